
/*
 * The store in Redis: what it has acknowledged, and may have forgotten.
 */


#include "ngx_idempotency_redis_op.h"


static ngx_uint_t ngx_idempotency_redis_safe_forgets(
    ngx_idempotency_redis_ctx_t *ctx);
static ngx_int_t ngx_idempotency_redis_safe_check(
    ngx_idempotency_redis_op_t *rop);
static ngx_uint_t ngx_idempotency_redis_safe_acked(
    ngx_idempotency_redis_op_t *rop);


void
ngx_idempotency_redis_safe_forgot(ngx_idempotency_redis_t *redis,
    const char *how)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = redis->data;

    if (redis->amnesia == NGX_CONF_UNSET_MSEC) {
        redis->amnesia = ctx->store->lease;
    }

    ctx->losses++;
    ngx_idempotency_count(ctx->store->counts->losses);
    ctx->forgetful = 1;
    ctx->forgot = ngx_current_msec;
    ctx->store->now->forgetful = ngx_time() + redis->amnesia / 1000;

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "idempotency store \"%V\" %s: keys may be forgotten, new "
                  "ones are refused for %M ms, losses seen: %ui",
                  &redis->name, how, redis->amnesia, ctx->losses);
}


static ngx_uint_t
ngx_idempotency_redis_safe_forgets(ngx_idempotency_redis_ctx_t *ctx)
{
    if (!ctx->forgetful) {
        return 0;
    }

    if (ngx_current_msec - ctx->forgot < ctx->redis.amnesia) {
        return 1;
    }

    ctx->forgetful = 0;

    if (ctx->redis.amnesia) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\" takes new keys again",
                      &ctx->store->name);
    }

    return 0;
}


void
ngx_idempotency_redis_safe_claim(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    if (rop->op->type != NGX_IDEMPOTENCY_CLAIM
        || !ngx_idempotency_redis_safe_forgets(ctx))
    {
        return;
    }

    rop->looks = 1;
    rop->script = &ctx->scripts[NGX_IDEMPOTENCY_FETCH];
    rop->args[1] = rop->script->sha;
}


ngx_uint_t
ngx_idempotency_redis_safe_waits(ngx_idempotency_redis_op_t *rop)
{
    return !rop->later && !rop->looks
           && (rop->op->type == NGX_IDEMPOTENCY_CLAIM
               || rop->op->type == NGX_IDEMPOTENCY_COMPLETE);
}


void
ngx_idempotency_redis_safe(ngx_idempotency_redis_op_t *rop)
{
    if (!rop->lease && !rop->later
        && ngx_idempotency_redis_safe_check(rop) != NGX_OK)
    {
        rop->op->error = NGX_IDEMPOTENCY_ERROR_UNSAFE;
    }
}


static ngx_int_t
ngx_idempotency_redis_safe_check(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_op_t         *op;
    ngx_idempotency_redis_ctx_t  *ctx;

    op = rop->op;
    ctx = op->store->data;

    if (rop->looks) {

        if (op->record.state == NGX_IDEMPOTENCY_NONE
            || op->record.state == NGX_IDEMPOTENCY_ISSUED)
        {
            return NGX_DECLINED;
        }

        op->result = NGX_IDEMPOTENCY_EXISTS;

        return NGX_OK;
    }

    if (!rop->cmd.wait) {
        return NGX_OK;
    }

    if (op->type == NGX_IDEMPOTENCY_CLAIM) {

        if (op->result != NGX_IDEMPOTENCY_GRANTED) {
            return NGX_OK;
        }

        /* asked before the loss was seen, and granted after it */

        if (ngx_idempotency_redis_safe_forgets(ctx)) {
            op->unsure = 1;
            return NGX_DECLINED;
        }
    }

    if (!ngx_idempotency_redis_safe_acked(rop)
        && op->type == NGX_IDEMPOTENCY_CLAIM)
    {
        op->unsure = 1;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* one line when they stay away, and one when they are back */

static ngx_uint_t
ngx_idempotency_redis_safe_acked(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    if (rop->cmd.acks >= ctx->redis.replicas) {

        if (ctx->lonely) {
            ctx->lonely = 0;
            ctx->store->now->lonely = 0;

            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "idempotency store \"%V\" has its replicas again, "
                          "operations without: %ui",
                          &ctx->store->name, ctx->few);
        }

        return 1;
    }

    ctx->few++;
    ngx_idempotency_count(ctx->store->counts->unacked);

    if (!ctx->lonely) {
        ctx->lonely = 1;
        ctx->store->now->lonely = 1;

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\": %ui of %ui replicas have "
                      "acknowledged, new keys are refused and answers may "
                      "get lost until they do",
                      &ctx->store->name, rop->cmd.acks, ctx->redis.replicas);
    }

    return 0;
}
