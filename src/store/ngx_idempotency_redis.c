
/*
 * The store in Redis: operations to scripts, replies to results.
 */


#include "ngx_idempotency_redis.h"
#include "ngx_idempotency_redis_conf.h"
#include "ngx_idempotency_redis_op.h"
#include "ngx_idempotency_redis_script.h"
#include <openssl/evp.h>


static ngx_int_t ngx_idempotency_redis_load_scripts(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx);
static ngx_int_t ngx_idempotency_redis_store_start(
    ngx_idempotency_store_t *store);
static void ngx_idempotency_redis_store_stop(ngx_idempotency_store_t *store);
static void ngx_idempotency_redis_ready(ngx_idempotency_redis_t *redis);

static ngx_int_t ngx_idempotency_redis_submit(ngx_idempotency_op_t *op);
static ngx_int_t ngx_idempotency_redis_submit_leases(
    ngx_idempotency_op_t *op);


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
    ctx->redis.ready = ngx_idempotency_redis_ready;
    ctx->redis.forgot = ngx_idempotency_redis_safe_forgot;
    ctx->redis.renew = ngx_idempotency_redis_safe_renew;
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

            rv = ngx_idempotency_redis_cache_conf(cf, ctx, &value, tag);

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

    if (ngx_idempotency_redis_safe_zone(cf, ctx) != NGX_OK
        || ngx_idempotency_redis_handover_zone(cf, ctx) != NGX_OK
        || ngx_idempotency_redis_cache_channel(cf, ctx) != NGX_OK
        || ngx_idempotency_redis_load_scripts(cf, ctx) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    store->submit = ngx_idempotency_redis_submit;
    store->start = ngx_idempotency_redis_store_start;
    store->stop = ngx_idempotency_redis_store_stop;
    store->listen = ngx_idempotency_redis_push_listen;
    store->unlisten = ngx_idempotency_redis_push_unlisten;
    store->left = ngx_idempotency_redis_handover_number;
    store->largest = NGX_IDEMPOTENCY_REDIS_LARGEST;
    store->data = ctx;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_idempotency_redis_load_scripts(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_uint_t                     i;
    unsigned int                   len;
    ngx_idempotency_redis_text_t  *script;
    u_char                         sha[EVP_MAX_MD_SIZE];

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_SCRIPTS; i++) {
        script = &ctx->scripts[i];

        if (ngx_idempotency_redis_script(cf->pool, i, &script->text)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (EVP_Digest(script->text.data, script->text.len, sha, &len,
                       EVP_sha1(), NULL)
            != 1)
        {
            return NGX_ERROR;
        }

        script->sha.len = 2 * len;
        script->sha.data = ngx_pnalloc(cf->pool, script->sha.len);
        if (script->sha.data == NULL) {
            return NGX_ERROR;
        }

        ngx_hex_dump(script->sha.data, sha, len);

        if (ngx_idempotency_redis_op_begin(cf->pool, i, script) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


void
ngx_idempotency_redis_resolver(ngx_idempotency_store_t *store,
    ngx_resolver_t *resolver, ngx_msec_t timeout)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    if (store->submit != ngx_idempotency_redis_submit) {
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

    ngx_idempotency_redis_later_init(ctx);
    ngx_idempotency_redis_handover_start(ctx);

    ctx->redis.counts = &store->counts->redis;
    ctx->redis.now = &store->now->redis;

    if (ngx_idempotency_redis_safe_start(ctx) != NGX_OK) {
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
    ngx_idempotency_redis_later_stop(ctx);
    ngx_idempotency_redis_handover_stop(ctx);
}


static void
ngx_idempotency_redis_ready(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_handover_take(redis->data);
    ngx_idempotency_redis_later_ready(redis->data);
}


static ngx_int_t
ngx_idempotency_redis_submit(ngx_idempotency_op_t *op)
{
    ngx_idempotency_redis_op_t  *rop;

    op->error = NGX_IDEMPOTENCY_ERROR_NONE;
    op->unsure = 0;

    if (op->type == NGX_IDEMPOTENCY_RENEW) {
        return ngx_idempotency_redis_submit_leases(op);
    }

    if (op->type == NGX_IDEMPOTENCY_LIST
        && !ngx_idempotency_redis_list_is_cursor(&op->list->cursor))
    {
        op->result = NGX_IDEMPOTENCY_REFUSED;
        return NGX_OK;
    }

    if (ngx_idempotency_redis_cache_claim(op) == NGX_OK) {
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

    if (ngx_idempotency_redis_op_settles(op)) {
        ngx_idempotency_redis_later_add(op, op->type);
    }

    return NGX_ERROR;
}


/* a command for each lease; op->data is not ours, so op->own counts them */

static ngx_int_t
ngx_idempotency_redis_submit_leases(ngx_idempotency_op_t *op)
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
