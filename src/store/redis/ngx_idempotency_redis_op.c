
/*
 * The store in Redis: one operation, from its submission to its result.
 */


#include "ngx_idempotency_redis_op.h"
#include "ngx_idempotency_redis_suspect.h"
#include "ngx_idempotency_redis_background.h"
#include "ngx_idempotency_cache.h"


static ngx_int_t ngx_idempotency_redis_op_from_cache(ngx_idempotency_op_t *op);
static ngx_int_t ngx_idempotency_redis_op_submit_leases(
    ngx_idempotency_op_t *op);
static ngx_uint_t ngx_idempotency_redis_op_needs_ack(
    ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_op_handler(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_op_accepted(ngx_idempotency_redis_op_t *rop);
static ngx_int_t ngx_idempotency_redis_op_read(
    ngx_idempotency_redis_op_t *rop, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_op_to_cache(ngx_idempotency_op_t *op,
    ngx_str_t *value, uint64_t now);
static ngx_int_t ngx_idempotency_redis_op_expected(ngx_idempotency_op_t *op,
    ngx_str_t *value);
static void ngx_idempotency_redis_op_damaged(ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_op_lost(ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_op_refused(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *message);
static void ngx_idempotency_redis_op_done(ngx_idempotency_redis_op_t *rop);
static ngx_uint_t ngx_idempotency_redis_op_is_outcome(
    ngx_idempotency_op_t *op);
static ngx_idempotency_refusal_e ngx_idempotency_redis_op_unreachable(
    ngx_idempotency_redis_ctx_t *ctx);
static ngx_idempotency_refusal_e ngx_idempotency_redis_op_refusal(
    ngx_idempotency_redis_refusal_e refusal);


ngx_int_t
ngx_idempotency_redis_op_submit(ngx_idempotency_op_t *op)
{
    ngx_idempotency_redis_op_t  *rop;

    op->error = NGX_IDEMPOTENCY_ERROR_NONE;
    op->unsure = 0;

    if (op->type == NGX_IDEMPOTENCY_RENEW) {
        return ngx_idempotency_redis_op_submit_leases(op);
    }

    if (op->type == NGX_IDEMPOTENCY_LIST
        && !ngx_idempotency_redis_list_is_cursor(&op->list->cursor))
    {
        op->result = NGX_IDEMPOTENCY_REFUSED;
        return NGX_OK;
    }

    if (ngx_idempotency_redis_op_from_cache(op) == NGX_OK) {
        return NGX_OK;
    }

    rop = ngx_idempotency_redis_op_create(op, NULL);
    if (rop == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    if (ngx_idempotency_redis_op_send(rop) == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    op->error = NGX_IDEMPOTENCY_ERROR_CONNECT;
    op->refusal = ngx_idempotency_redis_op_unreachable(op->store->data);

    if (ngx_idempotency_redis_op_is_outcome(op)) {
        ngx_idempotency_redis_background_add(op, op->type);
    }

    return NGX_ERROR;
}


/*
 * A record that is done changes only when it is purged, which is published.  A
 * worker that is subscribed to purges may answer from memory what was fetched
 * since it has subscribed.
 */

static ngx_int_t
ngx_idempotency_redis_op_from_cache(ngx_idempotency_op_t *op)
{
    ngx_msec_t                    since;
    ngx_idempotency_cached_t      cached;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = op->store->data;

    if (ctx->cache == NULL
        || !ngx_idempotency_op_reads_answer(op)
        || ngx_idempotency_redis_purge_since(&ctx->redis, &since) != NGX_OK
        || ngx_idempotency_cache_get(ctx->cache, op->id.digest, since, op->pool,
                                     &cached)
           != NGX_OK)
    {
        return NGX_DECLINED;
    }

    /* the clock of the server is at most there */

    cached.now += ngx_current_msec - cached.asked;

    if (ngx_idempotency_record_decode(&cached.value, cached.now, &op->record)
            != NGX_OK
        || op->record.state != NGX_IDEMPOTENCY_DONE)
    {
        ngx_memzero(&op->record, sizeof(ngx_idempotency_record_t));
        return NGX_DECLINED;
    }

    op->result = op->type == NGX_IDEMPOTENCY_CLAIM ? NGX_IDEMPOTENCY_EXISTS
                                                   : NGX_IDEMPOTENCY_OK;

    ngx_idempotency_count(ctx->store->counts->cached);

    return NGX_OK;
}


/* one command for each lease; op->own points to the number under way */

static ngx_int_t
ngx_idempotency_redis_op_submit_leases(ngx_idempotency_op_t *op)
{
    ngx_uint_t                    i, *pending;
    ngx_idempotency_lease_t      *lease;
    ngx_idempotency_redis_op_t   *rop;

    pending = ngx_pcalloc(op->pool, sizeof(ngx_uint_t));
    if (pending == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    op->own = pending;
    lease = op->leases->elts;

    for (i = 0; i < op->leases->nelts; i++) {
        lease[i].result = NGX_IDEMPOTENCY_REFUSED;

        rop = ngx_idempotency_redis_op_create(op, &lease[i]);

        if (rop == NULL
            || ngx_idempotency_redis_op_send(rop) != NGX_AGAIN)
        {
            op->error = NGX_IDEMPOTENCY_ERROR_CONNECT;
            continue;
        }

        (*pending)++;
    }

    return *pending ? NGX_AGAIN : NGX_ERROR;
}


ngx_int_t
ngx_idempotency_redis_op_send(ngx_idempotency_redis_op_t *rop)
{
    ngx_msec_int_t                left;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    /* for each try: a loss may have been noticed since the last one */

    ngx_idempotency_redis_amnesia_before_send(rop);

    rop->cmd.begin = &rop->script->prefix;
    rop->cmd.nbegin = NGX_IDEMPOTENCY_REDIS_PREFIX_ARGS;

    if (rop->eval) {
        ngx_str_set(&rop->args[0], "EVAL");
        rop->args[1] = rop->script->text;
        rop->cmd.begin = NULL;
    }

    if (rop->script->nargs != rop->nargs) {

        /* a claim that only fetches has the arguments of a claim */

        rop->cmd.begin = NULL;
    }

    rop->cmd.args = rop->args;
    rop->cmd.nargs = rop->nargs;
    rop->cmd.key = &rop->args[3];
    rop->cmd.part = rop->part;
    rop->cmd.handler = ngx_idempotency_redis_op_handler;
    rop->cmd.abandon = ngx_idempotency_redis_op_abandon;
    rop->cmd.wait = ngx_idempotency_redis_op_needs_ack(rop);
    rop->cmd.error = NGX_IDEMPOTENCY_REDIS_FINE;
    rop->cmd.refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE;
    rop->cmd.within = 0;

    if (!rop->background) {
        left = (ngx_msec_int_t) (rop->deadline - ngx_current_msec);
        rop->cmd.within = ngx_max(left, 1);
    }

    return ngx_idempotency_redis_send(&ctx->redis, &rop->cmd);
}


/* are replicas, or disks, to acknowledge it? */

static ngx_uint_t
ngx_idempotency_redis_op_needs_ack(ngx_idempotency_redis_op_t *rop)
{
    return !rop->background && !rop->fetches
           && (rop->op->type == NGX_IDEMPOTENCY_CLAIM
               || rop->op->type == NGX_IDEMPOTENCY_COMPLETE
               || rop->op->type == NGX_IDEMPOTENCY_CANCEL);
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

        /* before Redis 7 it is somewhere in the text of the script's error */

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
        ngx_idempotency_redis_op_accepted(rop);
        return;

    case NGX_DECLINED:
        ngx_idempotency_redis_op_damaged(rop);
        return;

    default: /* NGX_ERROR */

        /* replies on these connections may be those to other commands */

        ctx = rop->op->store->data;

        rop->cmd.error = NGX_IDEMPOTENCY_REDIS_PROTOCOL;

        ngx_idempotency_redis_distrust(&ctx->redis);
        ngx_idempotency_redis_op_lost(rop);
        return;
    }
}


static void
ngx_idempotency_redis_op_accepted(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    ngx_idempotency_redis_clock(&ctx->redis, rop->cmd.shard, rop->time,
                                rop->cmd.pushed);

    /* if a list cannot go on now, its cursor says where to go on later */

    if (rop->op->type == NGX_IDEMPOTENCY_LIST
        && ngx_idempotency_redis_list_next(rop) == NGX_AGAIN
        && ngx_idempotency_redis_op_send(rop) == NGX_AGAIN)
    {
        return;
    }

    if (rop->suspect
        && ngx_idempotency_redis_suspect_next(rop) == NGX_AGAIN)
    {
        if (ngx_idempotency_redis_op_send(rop) != NGX_AGAIN) {
            ngx_idempotency_redis_op_lost(rop);
        }

        return;
    }

    rop->refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;

    if (rop->cmd.refusal != NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE) {
        rop->refusal = ngx_idempotency_redis_op_refusal(rop->cmd.refusal);
    }

    ngx_idempotency_redis_amnesia_after_reply(rop);
    ngx_idempotency_redis_op_done(rop);
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

    if (value.len < NGX_IDEMPOTENCY_REDIS_REPLY
        || ngx_memcmp(p + 9, rop->lease ? rop->lease->id.owner : op->id.owner,
                      NGX_IDEMPOTENCY_OWNER_LEN)
           != 0)
    {
        return NGX_ERROR;
    }

    if (ctx->error.len) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\" no longer refuses",
                      &ctx->store->name);
        ctx->error.len = 0;
    }

    result = *p++;

    for (now = 0; p < value.data + 9; p++) {
        now = now << 8 | *p;
    }

    rop->time = now;

    if (result > NGX_IDEMPOTENCY_OUT_OF_ORDER) {
        return NGX_DECLINED;
    }

    /* results that this operation cannot have */

    if ((result == NGX_IDEMPOTENCY_NOT_ISSUED
         && !(op->flags & NGX_IDEMPOTENCY_CLAIM_ISSUED))
        || (result == NGX_IDEMPOTENCY_OUT_OF_ORDER && !rop->sequence))
    {
        return NGX_ERROR;
    }

    if (rop->lease) {
        rop->lease->result = (ngx_idempotency_result_e) result;
        return NGX_OK;
    }

    op->result = (ngx_idempotency_result_e) result;

    value.data += NGX_IDEMPOTENCY_REDIS_REPLY;
    value.len -= NGX_IDEMPOTENCY_REDIS_REPLY;

    if (op->type == NGX_IDEMPOTENCY_LIST) {
        return ngx_idempotency_redis_list_read(rop, &value, now);
    }

    if (rop->suspect) {
        return ngx_idempotency_redis_suspect_read(rop, &value, now);
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

    /* a grant has the record of its owner */

    if (op->type == NGX_IDEMPOTENCY_CLAIM
        && op->result == NGX_IDEMPOTENCY_GRANTED
        && !ngx_idempotency_record_is_of(&value, op->id.owner))
    {
        return NGX_ERROR;
    }

    if (ngx_idempotency_record_decode(&value, now, &op->record) != NGX_OK) {
        return NGX_DECLINED;
    }

    rop->ours = ngx_idempotency_record_is_of(&value, op->id.owner);

    ngx_idempotency_redis_op_to_cache(op, &value, now);

    return NGX_OK;
}


static void
ngx_idempotency_redis_op_to_cache(ngx_idempotency_op_t *op, ngx_str_t *value,
    uint64_t now)
{
    ngx_idempotency_cached_t      cached;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = op->store->data;

    if (ctx->cache == NULL) {
        return;
    }

    if (op->type == NGX_IDEMPOTENCY_PURGE
        && op->result == NGX_IDEMPOTENCY_OK)
    {
        /* on this gateway the purge is seen before its client has the answer */

        ngx_idempotency_cache_purge(ctx->cache);
        return;
    }

    if (!ngx_idempotency_op_reads_answer(op)
        || op->record.state != NGX_IDEMPOTENCY_DONE
        || !op->record.kept)
    {
        return;
    }

    cached.asked = op->submitted;
    cached.now = now;
    cached.value = *value;

    ngx_idempotency_cache_put(ctx->cache, op->id.digest, &cached);
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


/* what is stored is not a record: it may have been one */

static void
ngx_idempotency_redis_op_damaged(ngx_idempotency_redis_op_t *rop)
{
    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\" has a record that cannot be read",
                  &rop->op->store->name);

    /* the operation may have taken effect before that */

    rop->op->unsure = 1;
    rop->refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;

    ngx_idempotency_redis_op_fail(rop, NGX_IDEMPOTENCY_ERROR_DAMAGED);
}


/*
 * No reply: it may have been executed or not.  The same command may be sent
 * again: scripts give the same owner the same result.
 */

static void
ngx_idempotency_redis_op_lost(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_op_t     *op;
    ngx_idempotency_error_e   error;

    op = rop->op;

    if (rop->background) {
        ngx_idempotency_redis_background_failed(rop);
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

        /* the next try may find no connection: the server still was silent */

        if (rop->cmd.stuck) {
            rop->refusal = NGX_IDEMPOTENCY_REFUSAL_TIMEOUT;

        } else if (rop->refusal != NGX_IDEMPOTENCY_REFUSAL_TIMEOUT) {
            rop->refusal = ngx_idempotency_redis_op_unreachable(
                                                             op->store->data);
        }

        break;
    }

    /* Redis had refused it, and there was no time left to send it again */

    if (rop->cmd.refusal != NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE
        && rop->cmd.refusal != NGX_IDEMPOTENCY_REDIS_REFUSAL_OTHER)
    {
        rop->refusal = ngx_idempotency_redis_op_refusal(rop->cmd.refusal);
    }

    if ((op->type == NGX_IDEMPOTENCY_CLAIM
         || op->type == NGX_IDEMPOTENCY_FETCH
         || op->type == NGX_IDEMPOTENCY_CANCEL
         || op->type == NGX_IDEMPOTENCY_SUSPECT)
        && (ngx_msec_int_t) (rop->deadline - ngx_current_msec) > 0)
    {
        ngx_idempotency_redis_background_retry(rop);
        return;
    }

    if (ngx_idempotency_redis_op_is_outcome(op)) {
        ngx_idempotency_redis_background_add(op, op->type);
    }

    ngx_idempotency_redis_op_fail(rop, error);
}


/* an error reply: nothing was changed */

static void
ngx_idempotency_redis_op_refused(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *message)
{
    u_char                       *p;
    size_t                        len;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    /* the first word is the error: LOADING, READONLY, OOM, MISCONF, ... */

    for (len = 0; len < message->len && message->data[len] != ' '; len++) {
        /* void */
    }

    len = ngx_min(len, sizeof(ctx->error_word));

    if (ctx->error.len != len
        || ngx_strncmp(ctx->error_word, message->data, len) != 0)
    {
        ngx_memcpy(ctx->error_word, message->data, len);
        ctx->error.data = ctx->error_word;
        ctx->error.len = len;

        /* an error about an unknown command quotes its arguments */

        p = ngx_strnstr(message->data, "with args", message->len);

        if (p) {
            message->len = p - message->data;
        }

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\" refuses: \"%V\"",
                      &ctx->store->name, message);
    }

    if (rop->background) {
        ngx_idempotency_redis_background_failed(rop);
        return;
    }

    rop->refusal = ngx_idempotency_redis_op_refusal(rop->cmd.refusal);

    if (ngx_idempotency_redis_op_is_outcome(rop->op)) {
        ngx_idempotency_redis_background_add(rop->op, rop->op->type);
    }

    ngx_idempotency_redis_op_fail(rop, NGX_IDEMPOTENCY_ERROR_REFUSED);
}


void
ngx_idempotency_redis_op_fail(ngx_idempotency_redis_op_t *rop,
    ngx_idempotency_error_e error)
{
    /* a server that replies nonsense is not an unreachable one */

    if (rop->nonsense) {
        error = NGX_IDEMPOTENCY_ERROR_PROTOCOL;
        rop->refusal = NGX_IDEMPOTENCY_REFUSAL_PROTOCOL;
    }

    rop->op->error = error;
    rop->op->refusal = rop->refusal;

    ngx_idempotency_redis_op_done(rop);
}


static void
ngx_idempotency_redis_op_done(ngx_idempotency_redis_op_t *rop)
{
    ngx_uint_t            *pending;
    ngx_idempotency_op_t  *op;

    op = rop->op;

    if (rop->background) {
        ngx_idempotency_redis_background_done(rop);
        return;
    }

    if (rop->lease) {
        pending = op->own;

        if (--(*pending) == 0) {
            ngx_idempotency_op_done(op);
        }

        return;
    }

    /* the request is gone: it will not execute what a try of it has claimed */

    if (op->type == NGX_IDEMPOTENCY_CLAIM && op->detached
        && (op->unsure
            || (op->error == NGX_IDEMPOTENCY_ERROR_NONE
                && op->result == NGX_IDEMPOTENCY_GRANTED)))
    {
        ngx_idempotency_redis_background_add(op, NGX_IDEMPOTENCY_RELEASE);
    }

    ngx_idempotency_op_done(op);
}


void
ngx_idempotency_redis_op_abandon(ngx_idempotency_redis_cmd_t *cmd)
{
    ngx_uint_t                   *pending;
    ngx_idempotency_op_t         *op;
    ngx_idempotency_redis_op_t   *rop;
    ngx_idempotency_redis_ctx_t  *ctx;

    rop = cmd->data;
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

    if (ngx_idempotency_redis_op_is_outcome(op)) {
        ngx_idempotency_redis_handover_leave(op, op->type);

    } else if (op->type == NGX_IDEMPOTENCY_CLAIM
               && (rop->cmd.sent || op->unsure))
    {
        /* its request ends with this worker, nothing was sent upstream */

        ngx_idempotency_redis_handover_leave(op, NGX_IDEMPOTENCY_RELEASE);
    }

    if (rop->background) {
        ctx = op->store->data;

        ctx->background.outcomes--;
        ngx_idempotency_ends(ctx->store->now->background);

    } else if (!op->detached) {
        return;
    }

    op->pending = 0;
    ngx_idempotency_op_drop(op);
}


/* must Redis have it, whether a request waits for it or not? */

static ngx_uint_t
ngx_idempotency_redis_op_is_outcome(ngx_idempotency_op_t *op)
{
    return op->type == NGX_IDEMPOTENCY_COMPLETE
           || op->type == NGX_IDEMPOTENCY_RELEASE
           || op->type == NGX_IDEMPOTENCY_MARK_UNKNOWN;
}


/* why a command could not be sent, or its connection was lost */

static ngx_idempotency_refusal_e
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


static ngx_idempotency_refusal_e
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
