
/*
 * The store in Redis: one operation, its command and its reply.
 */


#include "ngx_idempotency_redis_op.h"


static ngx_int_t ngx_idempotency_redis_op_args(
    ngx_idempotency_redis_op_t *rop, u_char *digest, u_char *owner,
    u_char *fingerprint);
static u_char *ngx_idempotency_redis_op_number(u_char *p, ngx_uint_t bytes,
    uint64_t n);
static ngx_int_t ngx_idempotency_redis_op_answer(
    ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_op_handler(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_op_damaged(ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_op_lost(ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_op_refused(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *message);
static ngx_int_t ngx_idempotency_redis_op_read(
    ngx_idempotency_redis_op_t *rop, ngx_idempotency_redis_reply_t *reply);
static ngx_int_t ngx_idempotency_redis_op_expected(ngx_idempotency_op_t *op,
    ngx_str_t *value);
static void ngx_idempotency_redis_op_over(ngx_idempotency_redis_op_t *rop);


ngx_idempotency_redis_op_t *
ngx_idempotency_redis_op_create(ngx_idempotency_op_t *op,
    ngx_idempotency_lease_t *lease)
{
    ngx_int_t                     rc;
    ngx_uint_t                    i;
    ngx_idempotency_redis_op_t   *rop;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = op->store->data;

    rop = ngx_pcalloc(op->pool, sizeof(ngx_idempotency_redis_op_t));
    if (rop == NULL) {
        return NULL;
    }

    i = ngx_idempotency_redis_script_of(op);

    rop->marked = (i >= NGX_IDEMPOTENCY_REDIS_CLAIM_NUMBER);

    rop->op = op;
    rop->lease = lease;
    rop->deadline = ngx_current_msec + ctx->redis.timeout;
    rop->script = &ctx->scripts[i];

    if (lease) {
        rc = ngx_idempotency_redis_op_args(rop, lease->digest, lease->owner,
                                           lease->fingerprint);

    } else {
        op->own = rop;

        rc = ngx_idempotency_redis_op_args(rop, op->digest, op->owner,
                                           op->fingerprint);
    }

    return rc == NGX_OK ? rop : NULL;
}


static ngx_int_t
ngx_idempotency_redis_op_args(ngx_idempotency_redis_op_t *rop, u_char *digest,
    u_char *owner, u_char *fingerprint)
{
    u_char                       *p;
    time_t                        keep;
    ngx_str_t                    *arg;
    ngx_idempotency_op_t         *op;
    ngx_idempotency_redis_ctx_t  *ctx;

    op = rop->op;
    ctx = op->store->data;
    arg = rop->args;

    keep = ngx_max(op->ttl, op->tombstone);
    keep = ngx_max(keep, NGX_IDEMPOTENCY_UNKNOWN_TTL);

    p = ngx_pnalloc(op->pool, ctx->prefix.len
                              + 2 * NGX_IDEMPOTENCY_DIGEST_LEN + 2
                              + NGX_IDEMPOTENCY_REDIS_QUESTION);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&arg[0], "EVALSHA");

    arg[1] = rop->script->sha;

    ngx_str_set(&arg[2], "1");

    arg[3].data = p;
    p = ngx_cpymem(p, ctx->prefix.data, ctx->prefix.len);

    if ((rop->lease ? rop->lease->flags : op->flags)
        & NGX_IDEMPOTENCY_SEQUENCE)
    {
        /* all records of a sequence share a slot, and so does its mark */

        *p++ = '{';
        p = ngx_hex_dump(p, digest, NGX_IDEMPOTENCY_DIGEST_LEN / 2);
        *p++ = '}';

        if (rop->marked) {
            ngx_str_set(&arg[2], "2");

            arg[4].data = arg[3].data;
            arg[4].len = p - arg[3].data;
        }

        p = ngx_hex_dump(p, digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                         NGX_IDEMPOTENCY_DIGEST_LEN / 2);

    } else {
        p = ngx_hex_dump(p, digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    }

    arg[3].len = p - arg[3].data;

    rop->nargs = rop->marked ? 5 : 4;

    arg[rop->nargs].data = p;
    arg[rop->nargs].len = NGX_IDEMPOTENCY_REDIS_QUESTION;
    rop->nargs++;

    p = ngx_cpymem(p, owner, NGX_IDEMPOTENCY_OWNER_LEN);
    p = ngx_cpymem(p, fingerprint, NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    p = ngx_idempotency_redis_op_number(p, 8, rop->lease ? rop->lease->lease
                                                         : op->lease);
    p = ngx_idempotency_redis_op_number(p, 8, rop->lease ? rop->lease->keep
                                                         : keep);
    p = ngx_idempotency_redis_op_number(p, 8, op->ttl);
    p = ngx_idempotency_redis_op_number(p, 8, op->tombstone);
    p = ngx_idempotency_redis_op_number(p, 8, rop->lease ? rop->lease->fence
                                                         : op->fence);
    p = ngx_idempotency_redis_op_number(p, 4, op->keep ? op->head.len : 0);
    p = ngx_idempotency_redis_op_number(p, 2, op->status);

    *p++ = (u_char) op->flags;
    *p++ = (u_char) op->keep;

    p = ngx_idempotency_redis_op_number(p, 8, op->number);
    p = ngx_idempotency_redis_op_number(p, 8, op->number + 1);
    (void) ngx_idempotency_redis_op_number(p, 8, op->epoch);

    if (op->type == NGX_IDEMPOTENCY_COMPLETE
        || (op->type == NGX_IDEMPOTENCY_RESOLVE && op->executed))
    {
        return ngx_idempotency_redis_op_answer(rop);
    }

    return NGX_OK;
}


static u_char *
ngx_idempotency_redis_op_number(u_char *p, ngx_uint_t bytes, uint64_t n)
{
    ngx_uint_t  i;

    for (i = bytes; i; i--) {
        p[i - 1] = (u_char) n;
        n >>= 8;
    }

    return p + bytes;
}


/* the answer to keep may be gone when it has to be sent again */

static ngx_int_t
ngx_idempotency_redis_op_answer(ngx_idempotency_redis_op_t *rop)
{
    u_char                *p;
    ngx_str_t             *arg;
    ngx_chain_t           *cl;
    ngx_idempotency_op_t  *op;

    op = rop->op;
    arg = &rop->args[rop->nargs++];

    if (!op->keep) {
        ngx_str_set(arg, "");
        return NGX_OK;
    }

    arg->len = op->head.len + op->body_len;
    arg->data = ngx_pnalloc(op->pool, arg->len);
    if (arg->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(arg->data, op->head.data, op->head.len);

    for (cl = op->body; cl; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_op_send(ngx_idempotency_redis_op_t *rop)
{
    ngx_msec_int_t                left;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    if (rop->eval) {
        ngx_str_set(&rop->args[0], "EVAL");
        rop->args[1] = rop->script->text;
    }

    rop->cmd.args = rop->args;
    rop->cmd.nargs = rop->nargs;
    rop->cmd.key = &rop->args[3];
    rop->cmd.handler = ngx_idempotency_redis_op_handler;
    rop->cmd.data = rop;
    rop->cmd.wait = ngx_idempotency_redis_safe_waits(rop);
    rop->cmd.error = NGX_IDEMPOTENCY_REDIS_FINE;
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

    if (rop->cmd.error == NGX_IDEMPOTENCY_REDIS_PROTOCOL) {
        rop->nonsense = 1;
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

    switch (rop->cmd.error) {

    case NGX_IDEMPOTENCY_REDIS_TIMEOUT:
        error = NGX_IDEMPOTENCY_ERROR_TIMEOUT;
        break;

    case NGX_IDEMPOTENCY_REDIS_PROTOCOL:
        error = NGX_IDEMPOTENCY_ERROR_PROTOCOL;
        break;

    default:
        error = NGX_IDEMPOTENCY_ERROR_CONNECT;
        break;
    }

    ngx_idempotency_redis_op_fail(rop, error);
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

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\" refuses: \"%V\"",
                      &ctx->store->name, message);
    }

    if (rop->later) {
        ngx_idempotency_redis_later_failed(rop);
        return;
    }

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

    for (now = 0; p < value.data + 9; p++) {
        now = now << 8 | *p;
    }

    value.data += NGX_IDEMPOTENCY_REDIS_ANSWER;
    value.len -= NGX_IDEMPOTENCY_REDIS_ANSWER;

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

    return ngx_idempotency_record_decode(&value, now, &op->record);
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

    rop->op->error = rop->nonsense ? NGX_IDEMPOTENCY_ERROR_PROTOCOL : error;

    ngx_idempotency_redis_op_over(rop);
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


ngx_uint_t
ngx_idempotency_redis_op_settles(ngx_idempotency_op_t *op)
{
    return op->type == NGX_IDEMPOTENCY_COMPLETE
           || op->type == NGX_IDEMPOTENCY_RELEASE
           || op->type == NGX_IDEMPOTENCY_MARK_UNKNOWN;
}
