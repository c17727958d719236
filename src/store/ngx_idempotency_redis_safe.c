
/*
 * The store in Redis: what it has acknowledged, and may have forgotten.
 */


#include "ngx_idempotency_lease.h"
#include "ngx_idempotency_redis_op.h"
#include "ngx_idempotency_random.h"
#include "ngx_idempotency_zone.h"


static ngx_idempotency_refusal_e ngx_idempotency_redis_safe_refuses(
    ngx_idempotency_redis_ctx_t *ctx, ngx_idempotency_redis_shard_t *shard);
static ngx_idempotency_refusal_e ngx_idempotency_redis_safe_why(
    ngx_idempotency_redis_op_t *rop);
static ngx_int_t ngx_idempotency_redis_safe_check(
    ngx_idempotency_redis_op_t *rop);
static ngx_idempotency_refusal_e ngx_idempotency_redis_safe_unacked(
    ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_safe_tell(ngx_idempotency_redis_op_t *rop,
    ngx_idempotency_refusal_e why);


/* whose zone it is: another may have the same name */

static ngx_uint_t  ngx_idempotency_redis_safe_tag;


/*
 * Its name is that of the store and of what it talks to, but for the password:
 * after a reload these have what they had, and another server is not asked
 * about what it was never told.
 */

ngx_int_t
ngx_idempotency_redis_safe_zone(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx)
{
    size_t                          len;
    u_char                         *p;
    ngx_str_t                       name;
    ngx_uint_t                      i;
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_place_t  *place;

    redis = &ctx->redis;
    place = redis->places.elts;

    len = sizeof("idempotency_redis::/::") + redis->name.len
          + redis->master.len + redis->prefix.len + NGX_INT_T_LEN;

    for (i = 0; i < redis->places.nelts; i++) {
        len += sizeof(":65535,") + (place[i].host.len ? place[i].host.len
                                                : place[i].addrs[0].name.len);
    }

    name.data = ngx_pnalloc(cf->pool, len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(name.data, "idempotency_redis:%V:", &redis->name);

    for (i = 0; i < redis->places.nelts; i++) {
        p = ngx_sprintf(p, "%V:%ui,",
                        place[i].host.len ? &place[i].host
                                          : &place[i].addrs[0].name,
                        (ngx_uint_t) place[i].port);
    }

    p = ngx_sprintf(p, "%V/%ui:%V", &redis->master, redis->database,
                    &redis->prefix);

    name.len = p - name.data;

    redis->zone = ngx_idempotency_zone_add(cf, &name,
                                       sizeof(ngx_idempotency_redis_shared_t),
                                       &ngx_idempotency_redis_safe_tag);

    return redis->zone ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_idempotency_redis_safe_start(ngx_idempotency_redis_ctx_t *ctx)
{
    u_char                           id[8];
    ngx_uint_t                       i;
    ngx_msec_int_t                   left;
    ngx_slab_pool_t                 *shpool;
    ngx_idempotency_redis_t         *redis;
    ngx_idempotency_redis_shared_t  *shared;

    redis = &ctx->redis;
    shared = redis->zone->data;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    redis->lease = ctx->store->lease;

    if (ngx_idempotency_random(id, sizeof(id)) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_shmtx_lock(&shpool->mutex);

    if (!shared->named) {
        ngx_memcpy(shared->id, id, sizeof(id));
        shared->named = 1;
    }

    ngx_shmtx_unlock(&shpool->mutex);

    if (redis->amnesia == 0 || ngx_idempotency_redis_is_spread(redis)) {
        return NGX_OK;
    }

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_SHARDS; i++) {

        if (shared->shards[i].number == 0) {
            break;
        }

        left = (ngx_msec_int_t) (shared->shards[i].until - ngx_current_msec);

        if (shared->shards[i].until && left > 0) {
            ctx->store->now->forgetful =
                             ngx_max(ctx->store->now->forgetful,
                                     (ngx_atomic_uint_t) ngx_time()
                                     + left / 1000);
        }
    }

    return NGX_OK;
}


void
ngx_idempotency_redis_safe_forgot(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, const char *how)
{
    ngx_msec_t                       amnesia;
    ngx_atomic_uint_t                losses;
    ngx_idempotency_redis_ctx_t     *ctx;
    ngx_idempotency_redis_shared_t  *shared;

    ctx = redis->data;
    shared = redis->zone->data;

    amnesia = redis->amnesia;

    if (amnesia == NGX_CONF_UNSET_MSEC) {

        /* another gateway may have longer leases than this one */

        amnesia = ngx_max(redis->lease, (ngx_msec_t) shared->lease);
    }

    if (amnesia) {
        ngx_idempotency_redis_shard_refuse(shard, ngx_current_msec + amnesia);
    }

    losses = ngx_atomic_fetch_add(&shared->losses, 1) + 1;
    ngx_idempotency_count(ctx->store->counts->losses);

    if (!ngx_idempotency_redis_is_spread(redis)) {

        /* elsewhere other nodes take new keys, and stats go by these */

        ctx->store->now->forgetful = ngx_time() + amnesia / 1000;
    }

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "idempotency store \"%V\" %s: keys may be forgotten, new "
                  "ones are refused for %M ms, losses seen: %uA",
                  &redis->name, how, amnesia, losses);
}


void
ngx_idempotency_redis_safe_renew(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = redis->data;

    ngx_idempotency_lease_renew_all(ctx->store);
}


/*
 * May a new key be forgotten, or have been?  One line when a loss is over, by
 * the first worker that notices.
 */

static ngx_idempotency_refusal_e
ngx_idempotency_redis_safe_refuses(ngx_idempotency_redis_ctx_t *ctx,
    ngx_idempotency_redis_shard_t *shard)
{
    ngx_atomic_uint_t  until;

    if (shard == NULL) {
        return NGX_IDEMPOTENCY_REFUSAL_NONE;
    }

    if (shard->evicts && !ctx->redis.evictable) {
        return NGX_IDEMPOTENCY_REFUSAL_EVICTS;
    }

    if (shard->unproven && ctx->redis.amnesia) {
        return NGX_IDEMPOTENCY_REFUSAL_FORGOTTEN;
    }

    until = shard->until;

    if (until == 0) {
        return NGX_IDEMPOTENCY_REFUSAL_NONE;
    }

    if ((ngx_msec_int_t) (until - ngx_current_msec) > 0) {
        return ctx->redis.amnesia ? NGX_IDEMPOTENCY_REFUSAL_FORGOTTEN
                                  : NGX_IDEMPOTENCY_REFUSAL_NONE;
    }

    if (ngx_atomic_cmp_set(&shard->until, until, 0)) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\" takes new keys again",
                      &ctx->store->name);
    }

    return NGX_IDEMPOTENCY_REFUSAL_NONE;
}


/*
 * A slot that moves may be granted where it moves to, and the server that has
 * replied may be another one than the next request would go to.
 */

static ngx_idempotency_refusal_e
ngx_idempotency_redis_safe_why(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_refusal_e     why;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    why = ngx_idempotency_redis_safe_refuses(ctx, rop->cmd.shard);

    if (why == NGX_IDEMPOTENCY_REFUSAL_NONE) {
        why = ngx_idempotency_redis_safe_refuses(ctx,
                        ngx_idempotency_redis_shard(&ctx->redis,
                                                    &rop->args[3]));
    }

    return why;
}


void
ngx_idempotency_redis_safe_claim(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    rop->cmd.shard = NULL;

    if (rop->op->type != NGX_IDEMPOTENCY_CLAIM
        || ngx_idempotency_redis_safe_why(rop) == NGX_IDEMPOTENCY_REFUSAL_NONE)
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

        if (rop->op->refusal == NGX_IDEMPOTENCY_REFUSAL_NONE) {
            rop->op->refusal = NGX_IDEMPOTENCY_REFUSAL_FORGOTTEN;
        }
    }
}


static ngx_int_t
ngx_idempotency_redis_safe_check(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_op_t       *op;
    ngx_idempotency_refusal_e   why;

    op = rop->op;

    if (rop->looks) {

        if (op->record.state == NGX_IDEMPOTENCY_NONE
            || op->record.state == NGX_IDEMPOTENCY_ISSUED)
        {
            op->refusal = ngx_idempotency_redis_safe_why(rop);
            return NGX_DECLINED;
        }

        if (rop->ours && op->record.state < NGX_IDEMPOTENCY_DONE) {

            /* asked before the loss was seen, and granted unheard */

            op->unsure = 1;
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

        op->refusal = ngx_idempotency_redis_safe_why(rop);

        if (op->refusal != NGX_IDEMPOTENCY_REFUSAL_NONE) {
            op->unsure = 1;
            return NGX_DECLINED;
        }
    }

    why = ngx_idempotency_redis_safe_unacked(rop);

    if (why && op->type == NGX_IDEMPOTENCY_CLAIM) {
        op->unsure = 1;
        op->refusal = why;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* one line when they stay away, and one when they are back */

static ngx_idempotency_refusal_e
ngx_idempotency_redis_safe_unacked(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_refusal_e     why;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;
    redis = &ctx->redis;

    if (rop->cmd.refusal != NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE) {
        why = ngx_idempotency_redis_op_refusal(rop->cmd.refusal);

    } else if (rop->cmd.acks < redis->replicas) {
        why = NGX_IDEMPOTENCY_REFUSAL_NO_REPLICAS;

    } else if (rop->cmd.synced < redis->fsync) {
        why = NGX_IDEMPOTENCY_REFUSAL_NO_FSYNC;

    } else {
        why = NGX_IDEMPOTENCY_REFUSAL_NONE;
    }

    if (why != NGX_IDEMPOTENCY_REFUSAL_NONE) {
        ctx->few++;
        ngx_idempotency_count(ctx->store->counts->unacked);
    }

    if (why != ctx->unacked) {
        ngx_idempotency_redis_safe_tell(rop, why);
        ctx->unacked = why;
    }

    return why;
}


static void
ngx_idempotency_redis_safe_tell(ngx_idempotency_redis_op_t *rop,
    ngx_idempotency_refusal_e why)
{
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;
    redis = &ctx->redis;

    if (why == NGX_IDEMPOTENCY_REFUSAL_NONE) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has its %s again, "
                      "operations without: %ui", &redis->name,
                      redis->replicas ? "replicas" : "data on disk",
                      ctx->few);
        ctx->few = 0;
        return;
    }

    if (rop->cmd.refusal != NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE) {

        /* the error was logged as it came */

        return;
    }

    if (why == NGX_IDEMPOTENCY_REFUSAL_NO_REPLICAS) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\": %ui of %ui replicas have "
                      "acknowledged, new keys are refused and answers may "
                      "get lost until they do",
                      &redis->name, rop->cmd.acks, redis->replicas);
        return;
    }

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\": %ui of %ui servers have written "
                  "to disk in time, new keys are refused and answers may "
                  "get lost until they do",
                  &redis->name, rop->cmd.synced, redis->fsync);
}
