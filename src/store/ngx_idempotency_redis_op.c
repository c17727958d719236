
/*
 * The store in Redis: one operation, from its question to its end.
 */


#include "ngx_idempotency_redis_op.h"


static void ngx_idempotency_redis_op_handler(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_op_unheard(
    ngx_idempotency_redis_cmd_t *cmd);
static void ngx_idempotency_redis_op_damaged(ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_op_lost(ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_op_cut(ngx_str_t *message);
static void ngx_idempotency_redis_op_refused(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *message);
static ngx_int_t ngx_idempotency_redis_op_read(
    ngx_idempotency_redis_op_t *rop, ngx_idempotency_redis_reply_t *reply);
static ngx_int_t ngx_idempotency_redis_op_expected(ngx_idempotency_op_t *op,
    ngx_str_t *value);
static void ngx_idempotency_redis_op_over(ngx_idempotency_redis_op_t *rop);


ngx_int_t
ngx_idempotency_redis_op_send(ngx_idempotency_redis_op_t *rop)
{
    ngx_msec_int_t                left;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    /* each time: a loss may have been seen since the last try */

    ngx_idempotency_redis_safe_claim(rop);

    rop->cmd.begin = &rop->script->begin;
    rop->cmd.nbegin = NGX_IDEMPOTENCY_REDIS_BEGIN;

    if (rop->eval) {
        ngx_str_set(&rop->args[0], "EVAL");
        rop->args[1] = rop->script->text;
        rop->cmd.begin = NULL;
    }

    if (rop->script->nargs != rop->nargs) {

        /* it only looks, with the arguments of a claim */

        rop->cmd.begin = NULL;
    }

    rop->cmd.args = rop->args;
    rop->cmd.nargs = rop->nargs;
    rop->cmd.key = &rop->args[3];
    rop->cmd.part = rop->part;
    rop->cmd.handler = ngx_idempotency_redis_op_handler;
    rop->cmd.abandon = ngx_idempotency_redis_op_unheard;
    rop->cmd.data = rop;
    rop->cmd.wait = ngx_idempotency_redis_safe_waits(rop);
    rop->cmd.error = NGX_IDEMPOTENCY_REDIS_FINE;
    rop->cmd.refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE;
    rop->cmd.within = 0;

    if (!rop->later) {
        left = (ngx_msec_int_t) (rop->deadline - ngx_current_msec);
        rop->cmd.within = ngx_max(left, 1);
    }

    return ngx_idempotency_redis_send(&ctx->redis, &rop->cmd);
}


static void
ngx_idempotency_redis_op_handler(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                     message;
    ngx_idempotency_redis_op_t   *rop;
    ngx_idempotency_redis_ctx_t  *ctx;

    rop = cmd->data;

    if (reply == NULL) {
        ngx_idempotency_redis_op_lost(rop);
        return;
    }

    if (ngx_idempotency_redis_reply_type(reply)
        == NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        ngx_idempotency_redis_reply_string(reply, &message);

        if (!rop->eval
            && message.len >= 8
            && ngx_strncmp(message.data, "NOSCRIPT", 8) == 0)
        {
            rop->eval = 1;

            if (ngx_idempotency_redis_op_send(rop) != NGX_AGAIN) {
                ngx_idempotency_redis_op_lost(rop);
            }

            return;
        }

        /* before Redis 7 this is somewhere in the text of a script's error */

        if (ngx_strlcasestrn(message.data, message.data + message.len,
                             (u_char *) "WRONGTYPE", 9 - 1))
        {
            ngx_idempotency_redis_op_damaged(rop);
            return;
        }

        ngx_idempotency_redis_op_refused(rop, &message);
        return;
    }

    switch (ngx_idempotency_redis_op_read(rop, reply)) {

    case NGX_OK:
        ctx = rop->op->store->data;

        ngx_idempotency_redis_clock(&ctx->redis, rop->cmd.shard, rop->time,
                                    rop->cmd.pushed);

        if (rop->op->type == NGX_IDEMPOTENCY_LIST
            && ngx_idempotency_redis_list_next(rop) == NGX_AGAIN)
        {
            return;
        }

        ngx_idempotency_redis_safe(rop);
        ngx_idempotency_redis_op_over(rop);
        return;

    case NGX_DECLINED:
        ngx_idempotency_redis_op_damaged(rop);
        return;

    default: /* NGX_ERROR */

        /* no reply on these connections can be trusted any more */

        ctx = rop->op->store->data;

        rop->cmd.error = NGX_IDEMPOTENCY_REDIS_PROTOCOL;

        ngx_idempotency_redis_distrust(&ctx->redis);
        ngx_idempotency_redis_op_lost(rop);
        return;
    }
}


/* something is there, and it is not a record: it may have been one */

static void
ngx_idempotency_redis_op_damaged(ngx_idempotency_redis_op_t *rop)
{
    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\" has a record that cannot be read",
                  &rop->op->store->name);

    /* and whatever was asked may have been done */

    rop->op->unsure = 1;
    rop->refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;

    ngx_idempotency_redis_op_fail(rop, NGX_IDEMPOTENCY_ERROR_DAMAGED);
}


/*
 * No reply: it may have been executed or not.  The same question may be asked
 * again, its owner is told the same.
 */

static void
ngx_idempotency_redis_op_lost(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_op_t     *op;
    ngx_idempotency_error_e   error;

    op = rop->op;

    if (rop->later) {
        ngx_idempotency_redis_later_failed(rop);
        return;
    }

    /* a command that did not leave as a whole was not executed */

    op->unsure |= rop->cmd.sent;

    switch (rop->cmd.error) {

    case NGX_IDEMPOTENCY_REDIS_TIMEOUT:
        error = NGX_IDEMPOTENCY_ERROR_TIMEOUT;
        rop->refusal = NGX_IDEMPOTENCY_REFUSAL_TIMEOUT;
        break;

    case NGX_IDEMPOTENCY_REDIS_PROTOCOL:
        error = NGX_IDEMPOTENCY_ERROR_PROTOCOL;
        rop->nonsense = 1;
        break;

    default:
        error = NGX_IDEMPOTENCY_ERROR_CONNECT;
        rop->refusal = ngx_idempotency_redis_op_unreachable(op->store->data);
        break;
    }

    /* it was to be sent to another server, or again, and time was over */

    if (rop->cmd.refusal != NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE
        && rop->cmd.refusal != NGX_IDEMPOTENCY_REDIS_REFUSAL_OTHER)
    {
        rop->refusal = ngx_idempotency_redis_op_refusal(rop->cmd.refusal);
    }

    if (op->type == NGX_IDEMPOTENCY_CLAIM
        && (ngx_msec_int_t) (rop->deadline - ngx_current_msec) > 0)
    {
        ngx_idempotency_redis_later_again(rop);
        return;
    }

    if (ngx_idempotency_redis_op_settles(op)) {
        ngx_idempotency_redis_later_add(op, op->type);
    }

    ngx_idempotency_redis_op_fail(rop, error);
}


/* an error about a command that is not known quotes its arguments */

static void
ngx_idempotency_redis_op_cut(ngx_str_t *message)
{
    u_char  *p;

    p = ngx_strnstr(message->data, "with args", message->len);

    if (p) {
        message->len = p - message->data;
    }
}


/* the server has an opinion: nothing was changed */

static void
ngx_idempotency_redis_op_refused(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *message)
{
    size_t                        len;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    /* the first word is the state: LOADING, READONLY, OOM, MISCONF, ... */

    for (len = 0; len < message->len && message->data[len] != ' '; len++) {
        /* void */
    }

    len = ngx_min(len, sizeof(ctx->refusal_name));

    if (ctx->refusal.len != len
        || ngx_strncmp(ctx->refusal_name, message->data, len) != 0)
    {
        ngx_memcpy(ctx->refusal_name, message->data, len);
        ctx->refusal.data = ctx->refusal_name;
        ctx->refusal.len = len;

        ngx_idempotency_redis_op_cut(message);

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\" refuses: \"%V\"",
                      &ctx->store->name, message);
    }

    if (rop->later) {
        ngx_idempotency_redis_later_failed(rop);
        return;
    }

    rop->refusal = ngx_idempotency_redis_op_refusal(rop->cmd.refusal);

    if (ngx_idempotency_redis_op_settles(rop->op)) {
        ngx_idempotency_redis_later_add(rop->op, rop->op->type);
    }

    ngx_idempotency_redis_op_fail(rop, NGX_IDEMPOTENCY_ERROR_REFUSED);
}


/*
 * NGX_DECLINED: what is stored cannot be read.  NGX_ERROR: this is not the
 * reply to what was asked.
 */

static ngx_int_t
ngx_idempotency_redis_op_read(ngx_idempotency_redis_op_t *rop,
    ngx_idempotency_redis_reply_t *reply)
{
    u_char                        *p;
    uint64_t                       now;
    ngx_str_t                      value;
    ngx_uint_t                     result;
    ngx_idempotency_op_t          *op;
    ngx_idempotency_redis_ctx_t   *ctx;

    op = rop->op;
    ctx = op->store->data;

    if (ngx_idempotency_redis_reply_type(reply)
        != NGX_IDEMPOTENCY_REDIS_STRING)
    {
        return NGX_ERROR;
    }

    ngx_idempotency_redis_reply_string(reply, &value);

    p = value.data;

    if (value.len < NGX_IDEMPOTENCY_REDIS_ANSWER
        || ngx_memcmp(p + 9, rop->lease ? rop->lease->owner : op->owner,
                      NGX_IDEMPOTENCY_OWNER_LEN)
           != 0)
    {
        return NGX_ERROR;
    }

    if (ctx->refusal.len) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\" no longer refuses",
                      &ctx->store->name);
        ctx->refusal.len = 0;
    }

    result = *p++;

    for (now = 0; p < value.data + 9; p++) {
        now = now << 8 | *p;
    }

    rop->time = now;

    if (result > NGX_IDEMPOTENCY_OUT_OF_ORDER) {
        return NGX_DECLINED;
    }

    /* nobody has asked for that */

    if ((result == NGX_IDEMPOTENCY_NOT_ISSUED
         && !(op->flags & NGX_IDEMPOTENCY_CLAIM_ISSUED))
        || (result == NGX_IDEMPOTENCY_OUT_OF_ORDER && !rop->marked))
    {
        return NGX_ERROR;
    }

    if (rop->lease) {
        rop->lease->result = (ngx_idempotency_result_e) result;
        return NGX_OK;
    }

    op->result = (ngx_idempotency_result_e) result;

    value.data += NGX_IDEMPOTENCY_REDIS_ANSWER;
    value.len -= NGX_IDEMPOTENCY_REDIS_ANSWER;

    if (op->type == NGX_IDEMPOTENCY_LIST) {
        return ngx_idempotency_redis_list_read(rop, &value, now);
    }

    if (result == NGX_IDEMPOTENCY_OUT_OF_ORDER) {
        return ngx_idempotency_redis_op_expected(op, &value);
    }

    if (value.len) {
        value.data = ngx_pstrdup(op->pool, &value);
        if (value.data == NULL) {
            return NGX_DECLINED;
        }
    }

    /* a grant comes with our record */

    if (op->type == NGX_IDEMPOTENCY_CLAIM
        && op->result == NGX_IDEMPOTENCY_GRANTED
        && !ngx_idempotency_record_is_of(&value, op->owner))
    {
        return NGX_ERROR;
    }

    if (ngx_idempotency_record_decode(&value, now, &op->record) != NGX_OK) {
        return NGX_DECLINED;
    }

    rop->ours = ngx_idempotency_record_is_of(&value, op->owner);

    ngx_idempotency_redis_cache_reply(op, &value, now);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_op_expected(ngx_idempotency_op_t *op, ngx_str_t *value)
{
    ngx_uint_t  i;

    if (value->len == 0) {
        return NGX_OK;
    }

    if (value->len != 8) {
        return NGX_ERROR;
    }

    op->expects = 1;
    op->expected = 0;

    for (i = 0; i < 8; i++) {
        op->expected = op->expected << 8 | value->data[i];
    }

    return NGX_OK;
}


void
ngx_idempotency_redis_op_fail(ngx_idempotency_redis_op_t *rop,
    ngx_idempotency_error_e error)
{
    /* somebody is there who is not to be trusted: that is not "away" */

    if (rop->nonsense) {
        error = NGX_IDEMPOTENCY_ERROR_PROTOCOL;
        rop->refusal = NGX_IDEMPOTENCY_REFUSAL_PROTOCOL;
    }

    rop->op->error = error;
    rop->op->refusal = rop->refusal;

    ngx_idempotency_redis_op_over(rop);
}


ngx_idempotency_refusal_e
ngx_idempotency_redis_op_unreachable(ngx_idempotency_redis_ctx_t *ctx)
{
    switch (ctx->redis.refusal) {

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE:
    case NGX_IDEMPOTENCY_REDIS_REFUSAL_OTHER:
        return NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE;

    default:
        return ngx_idempotency_redis_op_refusal(ctx->redis.refusal);
    }
}


ngx_idempotency_refusal_e
ngx_idempotency_redis_op_refusal(ngx_idempotency_redis_refusal_e refusal)
{
    switch (refusal) {

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_READONLY:
        return NGX_IDEMPOTENCY_REFUSAL_READONLY;

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_OOM:
        return NGX_IDEMPOTENCY_REFUSAL_OUT_OF_MEMORY;

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_NOREPLICAS:
        return NGX_IDEMPOTENCY_REFUSAL_NO_REPLICAS;

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM:
        return NGX_IDEMPOTENCY_REFUSAL_NOT_PERMITTED;

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_MISCONF:
        return NGX_IDEMPOTENCY_REFUSAL_MISCONFIGURED;

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_LOADING:
        return NGX_IDEMPOTENCY_REFUSAL_LOADING;

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_TRYAGAIN:
        return NGX_IDEMPOTENCY_REFUSAL_MOVING;

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_DOWN:
        return NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE;

    case NGX_IDEMPOTENCY_REDIS_REFUSAL_NO_AOF:
        return NGX_IDEMPOTENCY_REFUSAL_NO_FSYNC;

    default: /* NONE, OTHER */
        return NGX_IDEMPOTENCY_REFUSAL_OTHER;
    }
}


static void
ngx_idempotency_redis_op_over(ngx_idempotency_redis_op_t *rop)
{
    ngx_uint_t            *pending;
    ngx_idempotency_op_t  *op;

    op = rop->op;

    if (rop->later) {
        ngx_idempotency_redis_later_landed(rop);
        return;
    }

    if (rop->lease) {
        pending = op->own;

        if (--(*pending) == 0) {
            ngx_idempotency_op_done(op);
        }

        return;
    }

    /* nobody will run what this claim, or a lost try of it, was made for */

    if (op->type == NGX_IDEMPOTENCY_CLAIM && op->detached
        && (op->unsure
            || (op->error == NGX_IDEMPOTENCY_ERROR_NONE
                && op->result == NGX_IDEMPOTENCY_GRANTED)))
    {
        ngx_idempotency_redis_later_add(op, NGX_IDEMPOTENCY_RELEASE);
    }

    ngx_idempotency_op_done(op);
}


static void
ngx_idempotency_redis_op_unheard(ngx_idempotency_redis_cmd_t *cmd)
{
    ngx_idempotency_redis_op_abandon(cmd->data);
}


void
ngx_idempotency_redis_op_abandon(ngx_idempotency_redis_op_t *rop)
{
    ngx_uint_t                   *pending;
    ngx_idempotency_op_t         *op;
    ngx_idempotency_redis_ctx_t  *ctx;

    op = rop->op;

    if (rop->lease) {
        pending = op->own;

        if (--(*pending)) {
            return;
        }

        op->pending = 0;
        ngx_idempotency_op_drop(op);
        return;
    }

    if (ngx_idempotency_redis_op_settles(op)) {
        ngx_idempotency_redis_handover_give(op, op->type);

    } else if (op->type == NGX_IDEMPOTENCY_CLAIM
               && (rop->cmd.sent || op->unsure))
    {
        /* its request dies with this worker, and nothing was sent */

        ngx_idempotency_redis_handover_give(op, NGX_IDEMPOTENCY_RELEASE);
    }

    if (rop->later) {
        ctx = op->store->data;

        ctx->later.number--;
        ngx_idempotency_ends(ctx->store->now->later);

    } else if (!op->detached) {
        return;
    }

    op->pending = 0;
    ngx_idempotency_op_drop(op);
}


ngx_uint_t
ngx_idempotency_redis_op_settles(ngx_idempotency_op_t *op)
{
    return op->type == NGX_IDEMPOTENCY_COMPLETE
           || op->type == NGX_IDEMPOTENCY_RELEASE
           || op->type == NGX_IDEMPOTENCY_MARK_UNKNOWN;
}
