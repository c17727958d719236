
/*
 * The store in Redis: what Redis has acknowledged, and may have forgotten.
 *
 * The client reports that a server has lost data; the verdict is made here.
 * For some time claims of new keys are refused there, since keys that were
 * executed may be missing, and known keys are still answered.  Grants that too
 * few replicas or disks have acknowledged are refused as well.
 */


#include "ngx_idempotency_lease.h"
#include "ngx_idempotency_redis_op.h"
#include "ngx_idempotency_random.h"
#include "ngx_idempotency_zone.h"


static void ngx_idempotency_redis_amnesia_on_loss(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_shard_t *shard,
    const char *how);
static void ngx_idempotency_redis_amnesia_on_renew(
    ngx_idempotency_redis_t *redis);
static ngx_idempotency_refusal_e ngx_idempotency_redis_amnesia_refusal(
    ngx_idempotency_redis_op_t *rop);
static ngx_idempotency_refusal_e ngx_idempotency_redis_amnesia_shard_refusal(
    ngx_idempotency_redis_ctx_t *ctx, ngx_idempotency_redis_shard_t *shard);
static ngx_int_t ngx_idempotency_redis_amnesia_check_fetched(
    ngx_idempotency_redis_op_t *rop);
static ngx_int_t ngx_idempotency_redis_amnesia_check_granted(
    ngx_idempotency_redis_op_t *rop);
static ngx_idempotency_refusal_e ngx_idempotency_redis_amnesia_check_acks(
    ngx_idempotency_redis_op_t *rop);
static void ngx_idempotency_redis_amnesia_log_acks(
    ngx_idempotency_redis_op_t *rop, ngx_idempotency_refusal_e refusal);


/* the zone is of this module: another one may have the same name */

static ngx_uint_t  ngx_idempotency_redis_amnesia_tag;


/*
 * The name of the zone has all that names the data, so all but the password:
 * a reload keeps the zone unless the store has another server, which cannot
 * have lost what it never had.
 */

ngx_int_t
ngx_idempotency_redis_amnesia_zone(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx)
{
    size_t                         len;
    u_char                        *p;
    ngx_str_t                      name;
    ngx_uint_t                     i;
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_host_t  *host;

    redis = &ctx->redis;
    host = redis->hosts.elts;

    len = sizeof("idempotency_redis::/::") + redis->name.len
          + redis->master.len + redis->prefix.len + NGX_INT_T_LEN;

    for (i = 0; i < redis->hosts.nelts; i++) {
        len += sizeof(":65535,") + (host[i].name.len ? host[i].name.len
                                                : host[i].addrs[0].name.len);
    }

    name.data = ngx_pnalloc(cf->pool, len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(name.data, "idempotency_redis:%V:", &redis->name);

    for (i = 0; i < redis->hosts.nelts; i++) {
        p = ngx_sprintf(p, "%V:%ui,",
                        host[i].name.len ? &host[i].name
                                          : &host[i].addrs[0].name,
                        (ngx_uint_t) host[i].port);
    }

    p = ngx_sprintf(p, "%V/%ui:%V", &redis->master, redis->database,
                    &redis->prefix);

    name.len = p - name.data;

    redis->zone = ngx_idempotency_zone_add(cf, &name,
                                       sizeof(ngx_idempotency_redis_shared_t),
                                       &ngx_idempotency_redis_amnesia_tag);

    if (redis->zone == NULL) {
        return NGX_ERROR;
    }

    redis->on_loss = ngx_idempotency_redis_amnesia_on_loss;
    redis->on_renew = ngx_idempotency_redis_amnesia_on_renew;

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_amnesia_start(ngx_idempotency_redis_ctx_t *ctx)
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

    if (redis->amnesia == 0 || redis->spread) {
        return NGX_OK;
    }

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_SHARDS; i++) {

        if (shared->shards[i].number == 0) {
            break;
        }

        left = (ngx_msec_int_t) (shared->shards[i].until - ngx_current_msec);

        if (shared->shards[i].until && left > 0) {
            ctx->store->now->refusing_until =
                             ngx_max(ctx->store->now->refusing_until,
                                     (ngx_atomic_uint_t) ngx_time()
                                     + left / 1000);
        }
    }

    return NGX_OK;
}


/*
 * Called by the client once for a loss, in one of the workers: "how" is what
 * the server has done, for the log.
 */

static void
ngx_idempotency_redis_amnesia_on_loss(ngx_idempotency_redis_t *redis,
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

    if (!redis->spread) {

        /* in a cluster other nodes take new keys: stats show each node */

        ctx->store->now->refusing_until = ngx_time() + amnesia / 1000;
    }

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "idempotency store \"%V\" %s: keys may be forgotten, new "
                  "ones are refused for %M ms, losses seen: %uA",
                  &redis->name, how, amnesia, losses);
}


/*
 * Called by the client in each worker after a loss: claims of requests that
 * are executing in this worker are written again.
 */

static void
ngx_idempotency_redis_amnesia_on_renew(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = redis->data;

    ngx_idempotency_lease_renew_all(ctx->store);
}


void
ngx_idempotency_redis_amnesia_before_send(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    rop->cmd.shard = NULL;

    /* that it knows nothing of a key means nothing: no claim, no cancel */

    if ((rop->op->type != NGX_IDEMPOTENCY_CLAIM
         && rop->op->type != NGX_IDEMPOTENCY_CANCEL)
        || ngx_idempotency_redis_amnesia_refusal(rop)
           == NGX_IDEMPOTENCY_REFUSAL_NONE)
    {
        return;
    }

    rop->fetches = 1;
    rop->script = &ctx->scripts[NGX_IDEMPOTENCY_FETCH];
    rop->args[1] = rop->script->sha;
}


/*
 * Why a new key is refused now, NONE: it is not.  A key of a slot that moves
 * may be granted by the node that the slot moves to, so that the node which
 * has replied may be another one than the next command would be sent to: both
 * count.
 */

static ngx_idempotency_refusal_e
ngx_idempotency_redis_amnesia_refusal(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_refusal_e       refusal;
    ngx_idempotency_redis_ctx_t    *ctx;
    ngx_idempotency_redis_shard_t  *shard;

    ctx = rop->op->store->data;

    refusal = ngx_idempotency_redis_amnesia_shard_refusal(ctx, rop->cmd.shard);

    if (refusal != NGX_IDEMPOTENCY_REFUSAL_NONE) {
        return refusal;
    }

    shard = ngx_idempotency_redis_shard(&ctx->redis, &rop->args[3]);

    return ngx_idempotency_redis_amnesia_shard_refusal(ctx, shard);
}


/* the first worker that notices the end of a refusal logs it */

static ngx_idempotency_refusal_e
ngx_idempotency_redis_amnesia_shard_refusal(ngx_idempotency_redis_ctx_t *ctx,
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
                      "idempotency store \"%V\" accepts new keys again",
                      &ctx->store->name);
    }

    return NGX_IDEMPOTENCY_REFUSAL_NONE;
}


void
ngx_idempotency_redis_amnesia_after_reply(ngx_idempotency_redis_op_t *rop)
{
    ngx_int_t  rc;

    if (rop->lease || rop->background) {
        return;
    }

    rc = rop->fetches ? ngx_idempotency_redis_amnesia_check_fetched(rop)
                      : ngx_idempotency_redis_amnesia_check_granted(rop);

    if (rc == NGX_OK) {
        return;
    }

    /* rc == NGX_DECLINED */

    rop->op->error = NGX_IDEMPOTENCY_ERROR_UNSAFE;

    if (rop->op->refusal == NGX_IDEMPOTENCY_REFUSAL_NONE) {
        rop->op->refusal = NGX_IDEMPOTENCY_REFUSAL_FORGOTTEN;
    }
}


static ngx_int_t
ngx_idempotency_redis_amnesia_check_fetched(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_op_t  *op;

    op = rop->op;

    if (op->record.state == NGX_IDEMPOTENCY_NONE
        || op->record.state == NGX_IDEMPOTENCY_ISSUED)
    {
        op->refusal = ngx_idempotency_redis_amnesia_refusal(rop);
        return NGX_DECLINED;
    }

    if (rop->ours && op->record.state < NGX_IDEMPOTENCY_DONE) {

        /* an earlier try was granted, and its reply was lost */

        op->unsure = 1;
        return NGX_DECLINED;
    }

    if (op->type == NGX_IDEMPOTENCY_CLAIM) {
        op->result = NGX_IDEMPOTENCY_EXISTS;

    } else {
        op->result = ngx_idempotency_record_is_cancelled(&op->record)
                     ? NGX_IDEMPOTENCY_OK : NGX_IDEMPOTENCY_REFUSED;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_amnesia_check_granted(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_op_t       *op;
    ngx_idempotency_refusal_e   refusal;

    op = rop->op;

    if (!rop->cmd.wait) {
        return NGX_OK;
    }

    if (op->type != NGX_IDEMPOTENCY_COMPLETE) {

        if (op->result != NGX_IDEMPOTENCY_GRANTED
            && op->result != NGX_IDEMPOTENCY_OK)
        {
            return NGX_OK;
        }

        /* it was sent before the loss was noticed */

        op->refusal = ngx_idempotency_redis_amnesia_refusal(rop);

        if (op->refusal != NGX_IDEMPOTENCY_REFUSAL_NONE) {
            op->unsure = 1;
            return NGX_DECLINED;
        }
    }

    refusal = ngx_idempotency_redis_amnesia_check_acks(rop);

    if (refusal && op->type != NGX_IDEMPOTENCY_COMPLETE) {
        op->unsure = 1;
        op->refusal = refusal;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* one line is logged when acknowledgements stop, and one when they are back */

static ngx_idempotency_refusal_e
ngx_idempotency_redis_amnesia_check_acks(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_refusal_e     refusal;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;
    redis = &ctx->redis;

    if (rop->refusal != NGX_IDEMPOTENCY_REFUSAL_NONE) {
        refusal = rop->refusal;

    } else if (rop->cmd.acks < redis->replicas) {
        refusal = NGX_IDEMPOTENCY_REFUSAL_NO_REPLICAS;

    } else if (rop->cmd.synced < redis->fsync) {
        refusal = NGX_IDEMPOTENCY_REFUSAL_NO_FSYNC;

    } else {
        refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;
    }

    if (refusal != NGX_IDEMPOTENCY_REFUSAL_NONE) {
        ctx->unacked_ops++;
        ngx_idempotency_count(ctx->store->counts->unacked);
    }

    if (refusal != ctx->unacked) {
        ngx_idempotency_redis_amnesia_log_acks(rop, refusal);
        ctx->unacked = refusal;
    }

    return refusal;
}


static void
ngx_idempotency_redis_amnesia_log_acks(ngx_idempotency_redis_op_t *rop,
    ngx_idempotency_refusal_e refusal)
{
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;
    redis = &ctx->redis;

    if (refusal == NGX_IDEMPOTENCY_REFUSAL_NONE) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\": %s acknowledge again, "
                      "operations without: %ui", &redis->name,
                      redis->replicas ? "replicas" : "disks",
                      ctx->unacked_ops);
        ctx->unacked_ops = 0;
        return;
    }

    if (rop->refusal != NGX_IDEMPOTENCY_REFUSAL_NONE) {

        /* the client has logged the error */

        return;
    }

    if (refusal == NGX_IDEMPOTENCY_REFUSAL_NO_REPLICAS) {
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
