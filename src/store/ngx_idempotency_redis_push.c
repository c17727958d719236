
/*
 * The store in Redis: who settles a record tells those who wait for it on
 * other gateways.  The channel has the name of the record.
 */


#include "ngx_idempotency_redis_op.h"
#include "ngx_idempotency_wait.h"


struct ngx_idempotency_listener_s {
    ngx_idempotency_redis_sub_t    sub;
    ngx_idempotency_redis_t       *redis;
    u_char                         digest[NGX_IDEMPOTENCY_DIGEST_LEN];
};


static void ngx_idempotency_redis_push_handler(
    ngx_idempotency_redis_sub_t *sub);


ngx_idempotency_listener_t *
ngx_idempotency_redis_push_listen(ngx_idempotency_op_t *op)
{
    u_char                       *p;
    ngx_str_t                     mark;
    ngx_idempotency_listener_t   *listener;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = op->store->data;

    listener = ngx_calloc(sizeof(ngx_idempotency_listener_t)
                          + ngx_idempotency_redis_op_name_len(ctx),
                          ngx_cycle->log);
    if (listener == NULL) {
        return NULL;
    }

    p = (u_char *) (listener + 1);

    listener->redis = &ctx->redis;
    ngx_memcpy(listener->digest, op->digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    listener->sub.channel.str.data = p;
    listener->sub.channel.str.len = ngx_idempotency_redis_op_name(p, ctx,
                                           op->digest, op->flags, &mark) - p;
    listener->sub.handler = ngx_idempotency_redis_push_handler;
    listener->sub.data = listener;

    if (ngx_idempotency_redis_listen(&ctx->redis, &listener->sub) != NGX_OK) {
        ngx_free(listener);
        return NULL;
    }

    return listener;
}


void
ngx_idempotency_redis_push_unlisten(ngx_idempotency_listener_t *listener)
{
    ngx_idempotency_redis_unlisten(listener->redis, &listener->sub);

    ngx_free(listener);
}


static void
ngx_idempotency_redis_push_handler(ngx_idempotency_redis_sub_t *sub)
{
    ngx_idempotency_listener_t *listener = sub->data;

    ngx_idempotency_wait_wake(listener->digest);
}
