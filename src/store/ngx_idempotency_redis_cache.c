
/*
 * The store in Redis: done records that need not be asked for again.
 *
 * A record that is done changes only when it is purged, which is published.
 * A worker that hears of it, and only while it does, may answer from memory
 * what was asked for since it began to listen.
 */


#include "ngx_idempotency_redis_op.h"
#include "ngx_idempotency_cache.h"


static void ngx_idempotency_redis_cache_told(ngx_idempotency_redis_t *redis);


char *
ngx_idempotency_redis_cache_conf(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx, ngx_str_t *value, void *tag)
{
    ssize_t  size;

    size = ngx_parse_size(value);

    if (ctx->cache || size < NGX_IDEMPOTENCY_CACHE_MIN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid or duplicate parameter \"cache=%V\" of "
                           "\"idempotency_store\" \"%V\", it must be a size "
                           "of at least 64k, as in \"10m\"",
                           value, &ctx->store->name);
        return NGX_CONF_ERROR;
    }

    ctx->cache = ngx_idempotency_cache_create(cf, &ctx->store->name, size,
                                              tag);

    return ctx->cache ? NGX_CONF_OK : NGX_CONF_ERROR;
}


ngx_int_t
ngx_idempotency_redis_cache_channel(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx)
{
    u_char  *p;

    p = ngx_pnalloc(cf->pool, ctx->prefix.len + sizeof("purged"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    ctx->purged.data = p;
    ctx->purged.len = ngx_sprintf(p, "%Vpurged", &ctx->prefix) - p;

    if (ctx->cache) {
        ctx->redis.news = ctx->purged;
        ctx->redis.told = ngx_idempotency_redis_cache_told;
    }

    return NGX_OK;
}


/* a number of a sequence is judged by its mark as well */

ngx_int_t
ngx_idempotency_redis_cache_claim(ngx_idempotency_op_t *op)
{
    ngx_msec_t                    since;
    ngx_idempotency_cached_t      cached;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = op->store->data;

    if (ctx->cache == NULL
        || op->type != NGX_IDEMPOTENCY_CLAIM
        || (op->flags & NGX_IDEMPOTENCY_SEQUENCE)
        || ngx_idempotency_redis_hears(&ctx->redis, &since) != NGX_OK
        || ngx_idempotency_cache_get(ctx->cache, op->digest, since, op->pool,
                                     &cached)
           != NGX_OK)
    {
        return NGX_DECLINED;
    }

    /* by the store's clock it is not later than that */

    cached.now += ngx_current_msec - cached.asked;

    if (ngx_idempotency_record_decode(&cached.value, cached.now, &op->record)
            != NGX_OK
        || op->record.state != NGX_IDEMPOTENCY_DONE)
    {
        ngx_memzero(&op->record, sizeof(ngx_idempotency_record_t));
        return NGX_DECLINED;
    }

    op->result = NGX_IDEMPOTENCY_EXISTS;

    ngx_idempotency_count(ctx->store->counts->cached);

    return NGX_OK;
}


void
ngx_idempotency_redis_cache_reply(ngx_idempotency_op_t *op, ngx_str_t *value,
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
        /* whoever asked for it sees it at once on this gateway */

        ngx_idempotency_cache_purge(ctx->cache);
        return;
    }

    if (op->type != NGX_IDEMPOTENCY_CLAIM
        || op->result != NGX_IDEMPOTENCY_EXISTS
        || op->record.state != NGX_IDEMPOTENCY_DONE
        || !op->record.kept
        || (op->flags & NGX_IDEMPOTENCY_SEQUENCE))
    {
        return;
    }

    cached.asked = op->submitted;
    cached.now = now;
    cached.value = *value;

    ngx_idempotency_cache_put(ctx->cache, op->digest, &cached);
}


static void
ngx_idempotency_redis_cache_told(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = redis->data;

    ngx_idempotency_cache_purge(ctx->cache);
}
