
/*
 * Does a server still know what it has acknowledged?
 *
 * Each master carries a counter.  It is advanced by a timer, of one worker for
 * all of them, and at each login before anything else is sent: a value that is
 * not above the last one acknowledged means that the server has lost what came
 * with that one or later.  What it loses between two ticks cannot be seen so:
 * a server that took over from another one is known by its identity, keys that
 * it has evicted by its count of them, and leases that ended early by its
 * clock.  Each of these is a loss.  After a loss the counter has a new name,
 * which no older copy knows.
 *
 * What is known is in shared memory: a worker that is new, after a reload or
 * the death of another, knows what there was to be forgotten.
 */


#include "ngx_idempotency_redis_link.h"


/* a counter that was not advanced for half a day may have expired in Redis */
#define NGX_IDEMPOTENCY_REDIS_EXPECTED      43200000

/*
 * Milliseconds for which a server that one worker has left for another one is
 * not gone back to, unless it was a replica meanwhile: other workers may know
 * an old address of its name for longer.
 */
#define NGX_IDEMPOTENCY_REDIS_LEFT          3000

/* milliseconds by which a clock may be corrected without being noticed */
#define NGX_IDEMPOTENCY_REDIS_CLOCK_STEP    2000

/* a reply that took longer says less about the clock */
#define NGX_IDEMPOTENCY_REDIS_CLOCK_NARROW  100

/* what is said once for all workers */
#define NGX_IDEMPOTENCY_REDIS_ONCE_INCR     0x01
#define NGX_IDEMPOTENCY_REDIS_ONCE_INFO     0x02
#define NGX_IDEMPOTENCY_REDIS_ONCE_VERSION  0x04


static ngx_idempotency_redis_shard_t *ngx_idempotency_redis_loss_shard(
    ngx_idempotency_redis_t *redis, ngx_uint_t n);
static ngx_uint_t ngx_idempotency_redis_loss_left(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_shard_t *shard);
static void ngx_idempotency_redis_loss_meet(
    ngx_idempotency_redis_shard_t *shard,
    ngx_idempotency_redis_identity_t *server);
static const char *ngx_idempotency_redis_loss_evicts(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_shard_t *shard,
    ngx_idempotency_redis_info_t *info, ngx_uint_t same);
static int64_t ngx_idempotency_redis_loss_clock(
    ngx_idempotency_redis_shard_t *shard, int64_t time, ngx_msec_t sent);
static void ngx_idempotency_redis_loss_stepped(
    ngx_idempotency_redis_t *redis, int64_t step);
static void ngx_idempotency_redis_loss(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, const char *how);
static void ngx_idempotency_redis_loss_tell(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_reply_t *reply);
static ngx_uint_t ngx_idempotency_redis_loss_once(
    ngx_idempotency_redis_t *redis, ngx_atomic_uint_t bit);


void
ngx_idempotency_redis_loss_name(ngx_idempotency_redis_t *redis, ngx_uint_t n,
    ngx_uint_t generation, ngx_str_t *name)
{
    ngx_idempotency_redis_shared_t  *shared;

    shared = redis->zone->data;

    name->len = ngx_sprintf(name->data, "%Vcounter:{%*xs:%ui}:%ui",
                            &redis->prefix, sizeof(shared->id), shared->id, n,
                            generation)
                - name->data;
}


void
ngx_idempotency_redis_loss_count(ngx_idempotency_redis_node_t *node,
    ngx_uint_t n)
{
    ngx_queue_t                       *q;
    ngx_idempotency_redis_t           *redis;
    ngx_idempotency_redis_shard_t     *shard;
    ngx_idempotency_redis_counter_t   *counter;
    ngx_idempotency_redis_detector_t  *detector;

    redis = node->redis;
    detector = redis->detector;

    for (q = ngx_queue_head(&detector->counters);
         q != ngx_queue_sentinel(&detector->counters);
         q = ngx_queue_next(q))
    {
        counter = ngx_queue_data(q, ngx_idempotency_redis_counter_t, queue);

        if (counter->n == n) {
            node->counter = counter;
            return;
        }
    }

    node->counter = NULL;

    shard = ngx_idempotency_redis_loss_shard(redis, n);
    if (shard == NULL) {
        return;
    }

    counter = ngx_calloc(sizeof(ngx_idempotency_redis_counter_t)
                         + ngx_idempotency_redis_loss_name_len(redis),
                         ngx_cycle->log);
    if (counter == NULL) {
        return;
    }

    counter->redis = redis;
    counter->n = n;
    counter->shard = shard;
    counter->losses = shard->known.losses;
    counter->generation = shard->known.losses;
    counter->name.data = (u_char *) (counter + 1);

    ngx_idempotency_redis_loss_name(redis, n, counter->generation,
                                    &counter->name);

    ngx_queue_insert_tail(&detector->counters, &counter->queue);

    node->counter = counter;
}


static ngx_idempotency_redis_shard_t *
ngx_idempotency_redis_loss_shard(ngx_idempotency_redis_t *redis,
    ngx_uint_t n)
{
    ngx_uint_t                       i;
    ngx_slab_pool_t                 *shpool;
    ngx_idempotency_redis_shard_t   *shard;
    ngx_idempotency_redis_shared_t  *shared;

    shared = redis->zone->data;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_SHARDS; i++) {
        shard = &shared->shards[i];

        if (shard->number == 0) {
            shard->number = n + 1;
        }

        if (shard->number == n + 1) {
            ngx_shmtx_unlock(&shpool->mutex);
            return shard;
        }
    }

    ngx_shmtx_unlock(&shpool->mutex);

    if (!redis->detector->full) {
        redis->detector->full = 1;

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has had more masters than can "
                      "be watched: if the last ones forget what they have "
                      "acknowledged, that will not be noticed", &redis->name);
    }

    return NULL;
}


ngx_idempotency_redis_shard_t *
ngx_idempotency_redis_shard(ngx_idempotency_redis_t *redis, ngx_str_t *key)
{
    ngx_uint_t                     hope;
    ngx_idempotency_redis_node_t  *node;

    if (!redis->started) {
        return NULL;
    }

    node = redis->topology->pick(redis, key, &hope);

    return node && node->counter ? node->counter->shard : NULL;
}


void
ngx_idempotency_redis_shard_refuse(ngx_idempotency_redis_shard_t *shard,
    ngx_msec_t until)
{
    ngx_atomic_uint_t  old;

    until = ngx_max(until, 1);

    do {
        old = shard->until;

        if (old && (ngx_msec_int_t) (until - old) <= 0) {
            return;
        }

    } while (!ngx_atomic_cmp_set(&shard->until, old, until));
}


void
ngx_idempotency_redis_loss_know(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_counter_t *counter,
    ngx_idempotency_redis_known_t *before)
{
    ngx_slab_pool_t                *shpool;
    ngx_idempotency_redis_shard_t  *shard;

    shard = counter->shard;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    /* others have their own idea of the time, which may be a bit later */

    if ((ngx_msec_int_t) (ngx_current_msec - shard->told)
        > NGX_IDEMPOTENCY_REDIS_EXPECTED)
    {
        shard->known.seen = 0;
    }

    *before = shard->known;

    ngx_shmtx_unlock(&shpool->mutex);

    if (counter->generation != before->losses) {
        counter->generation = before->losses;

        ngx_idempotency_redis_loss_name(redis, counter->n,
                                        counter->generation, &counter->name);
    }
}


/*
 * Several may be on their way, from several workers: each is compared with
 * what was known when it was sent.  What was sent before a loss was seen is
 * no second loss, and may tell of what is lost.
 */

void
ngx_idempotency_redis_loss_value(ngx_idempotency_redis_counter_t *counter,
    uint64_t value)
{
    ngx_slab_pool_t                *shpool;
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_shard_t  *shard;

    redis = counter->redis;
    shard = counter->shard;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    if (shard->known.losses == counter->before.losses) {
        shard->told = ngx_current_msec;

        shard->unproven = 0;

        if (value > counter->before.seen) {
            shard->known.seen = ngx_max(shard->known.seen, value);

        } else {
            ngx_idempotency_redis_loss(redis, shard,
                                       value == 1
                                       ? "has come back without its data"
                                       : "has come back behind its data");
        }
    }

    ngx_shmtx_unlock(&shpool->mutex);
}


void
ngx_idempotency_redis_loss_info(ngx_idempotency_redis_counter_t *counter,
    ngx_idempotency_redis_info_t *info)
{
    const char                     *how;
    ngx_slab_pool_t                *shpool;
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_shard_t  *shard;

    redis = counter->redis;
    shard = counter->shard;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    /* another process is that of a connection which is about to leave it */

    if (shard->identified && info->identified
        && ngx_memcmp(shard->server.run_id, info->identity.run_id,
                      NGX_IDEMPOTENCY_REDIS_ID_LEN)
           == 0)
    {
        how = ngx_idempotency_redis_loss_evicts(redis, shard, info, 1);

        if (ngx_idempotency_redis_info_judge(&shard->server, info,
                                             NGX_IDEMPOTENCY_REDIS_HINT_NONE,
                                             redis->topology->slots)
            == NGX_IDEMPOTENCY_REDIS_SERVER_SUCCESSOR)
        {
            how = "has another master";
        }

        /* a server gets another history when its first replica comes */

        shard->server = info->identity;

        if (how) {
            ngx_idempotency_redis_loss(redis, shard, how);
        }
    }

    ngx_shmtx_unlock(&shpool->mutex);
}


ngx_int_t
ngx_idempotency_redis_loss_login(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    int64_t                          step;
    uint64_t                         value;
    const char                      *how, *evicted;
    ngx_slab_pool_t                 *shpool;
    ngx_idempotency_redis_t         *redis;
    ngx_idempotency_redis_info_t    *info;
    ngx_idempotency_redis_shard_t   *shard;
    ngx_idempotency_redis_server_e   server;

    redis = conn->redis;
    info = &conn->info;
    shard = conn->counter->shard;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    if (ngx_idempotency_redis_reply_is_error(reply, "MOVED ")
        || ngx_idempotency_redis_reply_is_error(reply, "ASK "))
    {
        /*
         * The slot of the counter is elsewhere, and so is the shard.  A server
         * that has just taken over is judged when the map has a counter for it.
         */

        conn->counter = NULL;

        return conn->node->hint == NGX_IDEMPOTENCY_REDIS_HINT_TAKEN_OVER
               ? NGX_ERROR : NGX_OK;
    }

    ngx_idempotency_redis_loss_tell(conn, reply);

    ngx_shmtx_lock(&shpool->mutex);

    if (ngx_idempotency_redis_loss_left(conn, shard)) {
        ngx_shmtx_unlock(&shpool->mutex);
        return NGX_ERROR;
    }

    if (shard->known.losses != conn->before.losses) {
        ngx_shmtx_unlock(&shpool->mutex);
        return NGX_AGAIN;
    }

    how = NULL;

    server = ngx_idempotency_redis_info_judge(shard->identified
                                              ? &shard->server : NULL,
                                              info, conn->node->hint,
                                              redis->topology->slots);
    step = info->timed
           ? ngx_idempotency_redis_loss_clock(shard, info->time,
                                              conn->hello_at)
           : 0;

    if (server == NGX_IDEMPOTENCY_REDIS_SERVER_SUCCESSOR) {
        how = "has another master";

    } else if (step > 0) {
        how = "has a clock that went forward";
    }

    if (ngx_idempotency_redis_reply_type(reply)
        == NGX_IDEMPOTENCY_REDIS_INTEGER)
    {
        value = (uint64_t) ngx_idempotency_redis_reply_integer(reply);
        shard->told = ngx_current_msec;

        if (value <= conn->before.seen) {
            how = (value == 1) ? "has come back without its data"
                               : "has come back behind its data";

        } else if (!ngx_idempotency_redis_acks(redis)) {
            shard->known.seen = ngx_max(shard->known.seen, value);
        }

        shard->unproven = 0;

    } else if (!ngx_idempotency_redis_reply_is_error(reply, "NOPERM")
               && (conn->before.seen
                   || server != NGX_IDEMPOTENCY_REDIS_SERVER_SAME))
    {
        /* NOREPLICAS, OOM, MISCONF: it may take claims before it takes this */

        shard->unproven = 1;
    }

    evicted = ngx_idempotency_redis_loss_evicts(redis, shard, info,
                                  server == NGX_IDEMPOTENCY_REDIS_SERVER_SAME
                                  && shard->identified);
    how = how ? how : evicted;

    if (info->identified) {
        ngx_idempotency_redis_loss_meet(shard, &info->identity);
    }

    if (how) {
        ngx_idempotency_redis_loss(redis, shard, how);
    }

    ngx_shmtx_unlock(&shpool->mutex);

    ngx_idempotency_redis_loss_stepped(redis, step);

    conn->node->hint = NGX_IDEMPOTENCY_REDIS_HINT_NONE;

    return how ? NGX_AGAIN : NGX_OK;
}


static ngx_uint_t
ngx_idempotency_redis_loss_left(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_shard_t *shard)
{
    return !conn->redis->topology->slots
           && conn->info.identified
           && shard->left_at
           && ngx_memcmp(&shard->left, &conn->info.identity,
                         sizeof(ngx_idempotency_redis_identity_t))
              == 0
           && (ngx_msec_int_t) (ngx_current_msec - shard->left_at)
              < NGX_IDEMPOTENCY_REDIS_LEFT;
}


static void
ngx_idempotency_redis_loss_meet(ngx_idempotency_redis_shard_t *shard,
    ngx_idempotency_redis_identity_t *server)
{
    if (shard->identified
        && ngx_memcmp(shard->server.run_id, server->run_id,
                      NGX_IDEMPOTENCY_REDIS_ID_LEN)
           != 0)
    {
        shard->left = shard->server;
        shard->left_at = ngx_max(ngx_current_msec, 1);
    }

    shard->server = *server;
    shard->identified = 1;
}


/* NULL, or what was lost; "same": it is the server that was known */

static const char *
ngx_idempotency_redis_loss_evicts(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, ngx_idempotency_redis_info_t *info,
    ngx_uint_t same)
{
    uint64_t    before;
    ngx_uint_t  level;

    if (!info->watched) {

        /* nobody will say when that is over */

        shard->evicts = 0;

        return NULL;
    }

    if (info->evicts != shard->evicts) {
        shard->evicts = info->evicts;

        if (info->evicts) {
            level = redis->evictable ? NGX_LOG_WARN : NGX_LOG_ERR;

            ngx_log_error(level, ngx_cycle->log, 0,
                          "idempotency store \"%V\": the server's "
                          "maxmemory-policy is \"%*s\", it may forget keys "
                          "when its memory is full%s; set it to "
                          "\"noeviction\"", &redis->name, info->policy_len,
                          info->policy,
                          redis->evictable ? "" : ", new keys are refused");

        } else {
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "idempotency store \"%V\": the server no longer "
                          "evicts keys", &redis->name);
        }
    }

    before = shard->evicted;
    shard->evicted = info->evicted;

    return same && info->evicted > before && !redis->evictable
           ? "has evicted keys" : NULL;
}


void
ngx_idempotency_redis_clock(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, int64_t time, ngx_msec_t sent)
{
    int64_t           low, step;
    ngx_slab_pool_t  *shpool;

    if (shard == NULL || time < 0) {
        return;
    }

    low = time - (int64_t) ngx_current_msec;

    if (shard->timed
        && low <= shard->clock + NGX_IDEMPOTENCY_REDIS_CLOCK_NARROW
        && low >= shard->clock - NGX_IDEMPOTENCY_REDIS_CLOCK_NARROW)
    {
        return;
    }

    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    step = ngx_idempotency_redis_loss_clock(shard, time, sent);

    if (step > 0) {
        ngx_idempotency_redis_loss(redis, shard,
                                   "has a clock that went forward");
    }

    ngx_shmtx_unlock(&shpool->mutex);

    ngx_idempotency_redis_loss_stepped(redis, step);
}


static void
ngx_idempotency_redis_loss_stepped(ngx_idempotency_redis_t *redis,
    int64_t step)
{
    if (step == 0) {
        return;
    }

    (void) ngx_atomic_fetch_add(&redis->counts->clock_steps, 1);

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "idempotency store \"%V\": the clock of the server went %s "
                  "by %L ms", &redis->name, step > 0 ? "forward" : "back",
                  step > 0 ? step : -step);
}


/*
 * By how much a clock has jumped, 0: not at all.  The server's time was read
 * between "sent" and now; ours may be that of the last turn of the event loop.
 */

static int64_t
ngx_idempotency_redis_loss_clock(ngx_idempotency_redis_shard_t *shard,
    int64_t time, ngx_msec_t sent)
{
    int64_t  low, high, step;

    low = time - (int64_t) ngx_current_msec;
    high = time - (int64_t) sent;
    step = 0;

    if (!shard->timed) {
        shard->clock = low;
        shard->timed = 1;

        return 0;
    }

    if (low > shard->clock + NGX_IDEMPOTENCY_REDIS_CLOCK_STEP) {
        ngx_time_update();
        low = time - (int64_t) ngx_current_msec;
    }

    if (low > shard->clock + NGX_IDEMPOTENCY_REDIS_CLOCK_STEP) {
        step = low - shard->clock;

    } else if (high < shard->clock - NGX_IDEMPOTENCY_REDIS_CLOCK_STEP) {
        step = high - shard->clock;
    }

    if (step || high - low <= NGX_IDEMPOTENCY_REDIS_CLOCK_NARROW) {
        shard->clock = low;
    }

    return step;
}


/* under the mutex; whoever sees it noticed sees that nothing may be claimed */

static void
ngx_idempotency_redis_loss(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, const char *how)
{
    redis->forgot(redis, shard, how);

    shard->known.seen = 0;
    shard->known.losses++;
    shard->ticked = 0;

    /* other workers see it with their next tick */

    ngx_idempotency_redis_tick_soon(redis);
}


static void
ngx_idempotency_redis_loss_tell(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_t  *redis;

    redis = conn->redis;

    if (ngx_idempotency_redis_reply_is_error(reply, "NOPERM")
        && ngx_idempotency_redis_loss_once(redis,
                                           NGX_IDEMPOTENCY_REDIS_ONCE_INCR))
    {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" may not use INCR: if the "
                      "server forgets what it has acknowledged, that will "
                      "not be noticed; allow INCR and PEXPIRE",
                      &redis->name);
    }

    if ((!conn->info.identified || !conn->info.watched)
        && ngx_idempotency_redis_loss_once(redis,
                                           NGX_IDEMPOTENCY_REDIS_ONCE_INFO))
    {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" is not told by INFO what "
                      "server it talks to: a failover behind its address and "
                      "the eviction of keys will not be noticed; allow INFO",
                      &redis->name);
    }

    if (conn->info.version && conn->info.version < 5
        && ngx_idempotency_redis_loss_once(redis,
                                           NGX_IDEMPOTENCY_REDIS_ONCE_VERSION))
    {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\": the server is Redis %ui, it "
                      "lacks what scripts need here; use 5 or newer",
                      &redis->name, conn->info.version);
    }
}


static ngx_uint_t
ngx_idempotency_redis_loss_once(ngx_idempotency_redis_t *redis,
    ngx_atomic_uint_t bit)
{
    ngx_atomic_uint_t                said;
    ngx_idempotency_redis_shared_t  *shared;

    shared = redis->zone->data;

    do {
        said = shared->said;

        if (said & bit) {
            return 0;
        }

    } while (!ngx_atomic_cmp_set(&shared->said, said, said | bit));

    return 1;
}
