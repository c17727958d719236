
/*
 * The store in Redis: its configuration and its workers, and notices of other
 * gateways.
 */


#include "ngx_idempotency_redis.h"
#include "ngx_idempotency_redis_background.h"
#include "ngx_idempotency_redis_conf.h"
#include "ngx_idempotency_redis_op.h"
#include "ngx_idempotency_cache.h"
#include "ngx_idempotency_wait.h"


/* waits for a notice that another gateway has settled a record */

struct ngx_idempotency_listener_s {
    ngx_idempotency_redis_sub_t    sub;
    ngx_idempotency_redis_t       *redis;
    u_char                         digest[NGX_IDEMPOTENCY_DIGEST_LEN];
};


static char *ngx_idempotency_redis_conf_cache(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx, ngx_str_t *value, void *tag);
static ngx_int_t ngx_idempotency_redis_purge_channel_name(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx);
static ngx_int_t ngx_idempotency_redis_store_start(
    ngx_idempotency_store_t *store);
static void ngx_idempotency_redis_store_stop(ngx_idempotency_store_t *store);
static void ngx_idempotency_redis_on_ready(ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_on_purge(ngx_idempotency_redis_t *redis);
static ngx_idempotency_listener_t *ngx_idempotency_redis_store_listen(
    ngx_idempotency_op_t *op);
static void ngx_idempotency_redis_store_unlisten(
    ngx_idempotency_listener_t *listener);
static void ngx_idempotency_redis_on_notice(ngx_idempotency_redis_sub_t *sub);


ngx_uint_t
ngx_idempotency_redis_is_target(ngx_str_t *target)
{
    return target->len > 5 && ngx_strncmp(target->data, "redis", 5) == 0;
}


char *
ngx_idempotency_redis_create(ngx_conf_t *cf, ngx_idempotency_store_t *store,
    ngx_str_t *args, ngx_uint_t n, void *tag)
{
    char                         *rv;
    ngx_str_t                     value;
    ngx_uint_t                    i;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = ngx_pcalloc(cf->pool, sizeof(ngx_idempotency_redis_ctx_t));
    if (ctx == NULL) {
        return NGX_CONF_ERROR;
    }

    ctx->store = store;
    ctx->redis.name = store->name;
    ctx->redis.on_ready = ngx_idempotency_redis_on_ready;
    ctx->redis.data = ctx;
    ngx_str_set(&ctx->prefix, "idem:");

    rv = ngx_idempotency_redis_conf_target(cf, &args[0], &ctx->redis);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    for (i = 1; i < n; i++) {

        if (ngx_strncmp(args[i].data, "prefix=", 7) == 0) {
            ctx->prefix.data = args[i].data + 7;
            ctx->prefix.len = args[i].len - 7;
            continue;
        }

        if (ngx_strncmp(args[i].data, "cache=", 6) == 0) {
            value.data = args[i].data + 6;
            value.len = args[i].len - 6;

            rv = ngx_idempotency_redis_conf_cache(cf, ctx, &value, tag);

        } else {
            rv = ngx_idempotency_redis_conf_param(cf, &args[i], &ctx->redis);
        }

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    ctx->redis.prefix = ctx->prefix;

    rv = ngx_idempotency_redis_conf_finish(cf, &ctx->redis);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    if (ngx_idempotency_redis_amnesia_zone(cf, ctx) != NGX_OK
        || ngx_idempotency_redis_handover_zone(cf, ctx) != NGX_OK
        || ngx_idempotency_redis_purge_channel_name(cf, ctx) != NGX_OK
        || ngx_idempotency_redis_load_scripts(cf->pool, ctx) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    store->kind = "redis";
    store->submit = ngx_idempotency_redis_op_submit;
    store->start = ngx_idempotency_redis_store_start;
    store->stop = ngx_idempotency_redis_store_stop;
    store->listen = ngx_idempotency_redis_store_listen;
    store->unlisten = ngx_idempotency_redis_store_unlisten;
    store->largest = NGX_IDEMPOTENCY_REDIS_LARGEST;
    store->data = ctx;

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_redis_conf_cache(ngx_conf_t *cf,
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


static ngx_int_t
ngx_idempotency_redis_purge_channel_name(ngx_conf_t *cf,
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
        ctx->redis.purge_channel = ctx->purged;
        ctx->redis.on_purge = ngx_idempotency_redis_on_purge;
    }

    return NGX_OK;
}


void
ngx_idempotency_redis_resolver(ngx_idempotency_store_t *store,
    ngx_resolver_t *resolver, ngx_msec_t timeout)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    if (store->submit != ngx_idempotency_redis_op_submit) {
        return;
    }

    ctx = store->data;

    ctx->redis.resolver = resolver;
    ctx->redis.resolver_timeout = timeout;
}


static ngx_int_t
ngx_idempotency_redis_store_start(ngx_idempotency_store_t *store)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = store->data;

    ngx_idempotency_redis_background_start(ctx);
    ngx_idempotency_redis_handover_start(ctx);

    ctx->redis.counts = &store->counts->redis;
    ctx->redis.now = &store->now->redis;

    if (ngx_idempotency_redis_amnesia_start(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_idempotency_redis_start(&ctx->redis);
}


static void
ngx_idempotency_redis_store_stop(ngx_idempotency_store_t *store)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = store->data;

    ngx_idempotency_redis_stop(&ctx->redis);
    ngx_idempotency_redis_background_stop(ctx);
    ngx_idempotency_redis_handover_stop(ctx);
}


static void
ngx_idempotency_redis_on_ready(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_handover_take(redis->data);
    ngx_idempotency_redis_background_send(redis->data);
}


static void
ngx_idempotency_redis_on_purge(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = redis->data;

    ngx_idempotency_cache_purge(ctx->cache);
}


/* the channel of a record has its name */

static ngx_idempotency_listener_t *
ngx_idempotency_redis_store_listen(ngx_idempotency_op_t *op)
{
    u_char                       *p;
    ngx_str_t                     mark;
    ngx_idempotency_listener_t   *listener;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = op->store->data;

    listener = ngx_calloc(sizeof(ngx_idempotency_listener_t)
                          + ngx_idempotency_redis_record_name_len(ctx),
                          ngx_cycle->log);
    if (listener == NULL) {
        return NULL;
    }

    p = (u_char *) (listener + 1);

    listener->redis = &ctx->redis;
    ngx_memcpy(listener->digest, op->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    listener->sub.channel.str.data = p;
    listener->sub.channel.str.len = ngx_idempotency_redis_record_name(p, ctx,
                                           op->id.digest, op->flags, &mark) - p;
    listener->sub.handler = ngx_idempotency_redis_on_notice;
    listener->sub.data = listener;

    if (ngx_idempotency_redis_subscribe(&ctx->redis, &listener->sub)
        != NGX_OK)
    {
        ngx_free(listener);
        return NULL;
    }

    return listener;
}


static void
ngx_idempotency_redis_store_unlisten(ngx_idempotency_listener_t *listener)
{
    ngx_idempotency_redis_unsubscribe(listener->redis, &listener->sub);

    ngx_free(listener);
}


static void
ngx_idempotency_redis_on_notice(ngx_idempotency_redis_sub_t *sub)
{
    ngx_idempotency_listener_t *listener = sub->data;

    ngx_idempotency_wait_wake(listener->digest);
}
