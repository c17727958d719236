
/*
 * The store in Redis: an operation as the command of its script.
 */


#include "ngx_idempotency_redis_op.h"


static ngx_int_t ngx_idempotency_redis_op_args(
    ngx_idempotency_redis_op_t *rop, u_char *digest, u_char *owner,
    u_char *fingerprint);
static u_char *ngx_idempotency_redis_op_number(u_char *p, ngx_uint_t bytes,
    uint64_t n);
static ngx_int_t ngx_idempotency_redis_op_answer(
    ngx_idempotency_redis_op_t *rop);


ngx_int_t
ngx_idempotency_redis_op_begin(ngx_pool_t *pool, ngx_uint_t i,
    ngx_idempotency_redis_text_t *script)
{
    ngx_str_t  args[NGX_IDEMPOTENCY_REDIS_BEGIN];

    script->nargs = 5;

    ngx_str_set(&args[0], "EVALSHA");
    args[1] = script->sha;
    ngx_str_set(&args[2], "1");

    if (i >= NGX_IDEMPOTENCY_REDIS_CLAIM_NUMBER) {
        script->nargs = 6;
        ngx_str_set(&args[2], "2");
    }

    if (i == NGX_IDEMPOTENCY_COMPLETE || i == NGX_IDEMPOTENCY_REDIS_EXECUTED) {
        script->nargs = 6;
    }

    return ngx_idempotency_redis_encode_begin(pool, args,
                                              NGX_IDEMPOTENCY_REDIS_BEGIN,
                                              script->nargs, &script->begin);
}


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

    } else if (op->type == NGX_IDEMPOTENCY_LIST) {
        op->own = rop;

        rc = ngx_idempotency_redis_list_args(rop);

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
    ngx_str_t                    *arg, half;
    ngx_idempotency_op_t         *op;
    ngx_idempotency_redis_ctx_t  *ctx;

    op = rop->op;
    ctx = op->store->data;
    arg = rop->args;

    keep = ngx_max(op->ttl, op->tombstone);
    keep = ngx_max(keep, NGX_IDEMPOTENCY_UNKNOWN_TTL);

    p = ngx_pnalloc(op->pool, ngx_idempotency_redis_op_name_len(ctx)
                              + NGX_IDEMPOTENCY_REDIS_QUESTION);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&arg[0], "EVALSHA");

    arg[1] = rop->script->sha;

    ngx_str_set(&arg[2], "1");

    arg[3].data = p;

    p = ngx_idempotency_redis_op_name(p, ctx, digest,
                                      rop->lease ? rop->lease->flags
                                                 : op->flags, &half);

    if (rop->marked) {
        ngx_str_set(&arg[2], "2");
        arg[4] = half;
    }

    arg[3].len = p - arg[3].data;

    rop->nargs = rop->marked ? 5 : 4;

    arg[rop->nargs].data = p;
    arg[rop->nargs].len = NGX_IDEMPOTENCY_REDIS_QUESTION;
    rop->nargs++;

    p = ngx_cpymem(p, owner, NGX_IDEMPOTENCY_OWNER_LEN);
    p = ngx_cpymem(p, fingerprint, NGX_IDEMPOTENCY_FINGERPRINT_SUM);

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

    p = ngx_cpymem(p, fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM,
                   NGX_IDEMPOTENCY_FINGERPRINT_LEN
                   - NGX_IDEMPOTENCY_FINGERPRINT_SUM);

    p = ngx_idempotency_redis_op_number(p, 8, op->number);
    p = ngx_idempotency_redis_op_number(p, 8, op->number + 1);
    (void) ngx_idempotency_redis_op_number(p, 8, op->epoch);

    if (op->type == NGX_IDEMPOTENCY_COMPLETE
        || (op->type == NGX_IDEMPOTENCY_RESOLVE && op->executed))
    {
        return ngx_idempotency_redis_op_answer(rop);
    }

    if (op->type == NGX_IDEMPOTENCY_PURGE) {
        arg[rop->nargs++] = ctx->purged;
    }

    return NGX_OK;
}


u_char *
ngx_idempotency_redis_op_name(u_char *p, ngx_idempotency_redis_ctx_t *ctx,
    u_char *digest, ngx_uint_t flags, ngx_str_t *mark)
{
    mark->data = p;

    p = ngx_cpymem(p, ctx->prefix.data, ctx->prefix.len);

    if (!(flags & NGX_IDEMPOTENCY_SEQUENCE)) {
        return ngx_hex_dump(p, digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    }

    /* all records of a sequence share a slot, and so does its mark */

    *p++ = '{';
    p = ngx_hex_dump(p, digest, NGX_IDEMPOTENCY_DIGEST_LEN / 2);
    *p++ = '}';

    mark->len = p - mark->data;

    return ngx_hex_dump(p, digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                        NGX_IDEMPOTENCY_DIGEST_LEN / 2);
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


void
ngx_idempotency_redis_op_bare(ngx_idempotency_redis_op_t *rop)
{
    u_char     *p;
    ngx_str_t  *answer;

    answer = &rop->args[NGX_IDEMPOTENCY_REDIS_ARGS - 1];

    /* its length of the head, status, flags, and whether it is kept */

    p = rop->args[NGX_IDEMPOTENCY_REDIS_ARGS - 2].data
        + NGX_IDEMPOTENCY_OWNER_LEN + NGX_IDEMPOTENCY_FINGERPRINT_SUM + 5 * 8;

    (void) ngx_idempotency_redis_op_number(p, 4, 0);
    p[4 + 2 + 1] = 0;

    (void) ngx_pfree(rop->op->pool, answer->data);

    ngx_str_set(answer, "");
    rop->op->keep = 0;
}
