
/*
 * Loss detection: does a server still have what it has acknowledged?
 *
 * Each master has a counter.  One worker increments it by a timer, and each
 * connection at its login before it sends anything else: a value that is not
 * above the last acknowledged one means that the server has lost the writes
 * since then.  Losses between two ticks are detected by other means: a server
 * that has taken over by its identity, evicted keys by their number in INFO,
 * and leases that ended early by the clock of the server.  After a loss the
 * counter gets a new name, which no older copy has.
 *
 * The state is in shared memory: new workers, after a reload or a crash, know
 * what the server had acknowledged.
 */


#include "ngx_idempotency_redis_loss.h"


/* a counter that was not advanced for half a day may have expired in Redis */
#define NGX_IDEMPOTENCY_REDIS_EXPECTED      43200000

/*
 * Milliseconds during which no worker returns to a server that another worker
 * has just left, unless it was a replica meanwhile: a worker may have an old
 * address of the name for longer.
 */
#define NGX_IDEMPOTENCY_REDIS_LEFT          3000

/* milliseconds by which a clock may be corrected without being reported */
#define NGX_IDEMPOTENCY_REDIS_CLOCK_STEP    2000

/* a reply that took longer says less about the clock */
#define NGX_IDEMPOTENCY_REDIS_CLOCK_NARROW  100

/* warnings that are logged once for all workers */
#define NGX_IDEMPOTENCY_REDIS_ONCE_INCR     0x01
#define NGX_IDEMPOTENCY_REDIS_ONCE_INFO     0x02
#define NGX_IDEMPOTENCY_REDIS_ONCE_VERSION  0x04


static ngx_idempotency_redis_shard_t *ngx_idempotency_redis_loss_shard(
    ngx_idempotency_redis_t *redis, ngx_uint_t n);
static ngx_uint_t ngx_idempotency_redis_loss_left(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_shard_t *shard,
    ngx_idempotency_redis_info_t *info);
static void ngx_idempotency_redis_loss_meet(
    ngx_idempotency_redis_shard_t *shard,
    ngx_idempotency_redis_identity_t *server);
static const char *ngx_idempotency_redis_loss_evicts(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_shard_t *shard,
    ngx_idempotency_redis_info_t *info, ngx_uint_t same);
static void ngx_idempotency_redis_loss_stepped(ngx_idempotency_redis_t *redis,
    int64_t step);
static int64_t ngx_idempotency_redis_loss_clock(
    ngx_idempotency_redis_shard_t *shard, int64_t time, ngx_msec_t sent);
static void ngx_idempotency_redis_loss(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, const char *how);
static void ngx_idempotency_redis_loss_warn(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_info_t *info, ngx_idempotency_redis_reply_t *reply);
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


ngx_idempotency_redis_counter_t *
ngx_idempotency_redis_loss_counter(ngx_idempotency_redis_t *redis, ngx_uint_t n)
{
    ngx_idempotency_redis_shard_t     *shard;
    ngx_queue_t                       *q;
    ngx_idempotency_redis_counter_t   *counter;
    ngx_idempotency_redis_detector_t  *detector;

    detector = redis->detector;

    for (q = ngx_queue_head(&detector->counters);
         q != ngx_queue_sentinel(&detector->counters);
         q = ngx_queue_next(q))
    {
        counter = ngx_queue_data(q, ngx_idempotency_redis_counter_t, queue);

        if (counter->n == n) {
            return counter;
        }
    }

    shard = ngx_idempotency_redis_loss_shard(redis, n);
    if (shard == NULL) {
        return NULL;
    }

    counter = ngx_calloc(sizeof(ngx_idempotency_redis_counter_t)
                         + ngx_idempotency_redis_loss_name_len(redis),
                         ngx_cycle->log);
    if (counter == NULL) {
        return NULL;
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

    return counter;
}


static ngx_idempotency_redis_shard_t *
ngx_idempotency_redis_loss_shard(ngx_idempotency_redis_t *redis,
    ngx_uint_t n)
{
    ngx_uint_t                       i;
    ngx_idempotency_redis_shard_t   *shard;
    ngx_idempotency_redis_shared_t  *shared;

    shared = redis->zone->data;

    ngx_idempotency_redis_lock(redis);

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_SHARDS; i++) {
        shard = &shared->shards[i];

        if (shard->number == 0) {
            shard->number = n + 1;
        }

        if (shard->number == n + 1) {
            ngx_idempotency_redis_unlock(redis);
            return shard;
        }
    }

    ngx_idempotency_redis_unlock(redis);

    if (!redis->detector->full) {
        redis->detector->full = 1;

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has had more masters than can "
                      "be watched: a loss of data on the last ones will not "
                      "be detected", &redis->name);
    }

    return NULL;
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
    ngx_idempotency_redis_shard_t  *shard;

    shard = counter->shard;

    ngx_idempotency_redis_lock(redis);

    /* another worker's ngx_current_msec may be a little later */

    if ((ngx_msec_int_t) (ngx_current_msec - shard->seen_at)
        > NGX_IDEMPOTENCY_REDIS_EXPECTED)
    {
        shard->known.seen = 0;
    }

    *before = shard->known;

    ngx_idempotency_redis_unlock(redis);

    if (counter->generation != before->losses) {
        counter->generation = before->losses;

        ngx_idempotency_redis_loss_name(redis, counter->n,
                                        counter->generation, &counter->name);
    }
}


/*
 * Several workers may have sent INCR: each value is compared with what was
 * known when it was sent.  A value that was sent before a loss was seen is no
 * second loss.
 */

void
ngx_idempotency_redis_loss_value(ngx_idempotency_redis_counter_t *counter,
    uint64_t value)
{
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_shard_t  *shard;

    redis = counter->redis;
    shard = counter->shard;

    ngx_idempotency_redis_lock(redis);

    if (shard->known.losses == counter->before.losses) {
        shard->seen_at = ngx_current_msec;

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

    ngx_idempotency_redis_unlock(redis);
}


void
ngx_idempotency_redis_loss_info(ngx_idempotency_redis_counter_t *counter,
    ngx_idempotency_redis_info_t *info)
{
    const char                     *how;
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_shard_t  *shard;

    redis = counter->redis;
    shard = counter->shard;

    ngx_idempotency_redis_lock(redis);

    /* a connection to another process is about to be closed, see tick */

    if (shard->identified && info->identified
        && ngx_memcmp(shard->server.run_id, info->identity.run_id,
                      NGX_IDEMPOTENCY_REDIS_ID_LEN)
           == 0)
    {
        how = ngx_idempotency_redis_loss_evicts(redis, shard, info, 1);

        if (ngx_idempotency_redis_info_judge(&shard->server, info,
                                             NGX_IDEMPOTENCY_REDIS_HINT_NONE,
                                             redis->spread)
            == NGX_IDEMPOTENCY_REDIS_SERVER_SUCCESSOR)
        {
            how = "has another master";
        }

        /* a server gets another replid when its first replica connects */

        shard->server = info->identity;

        if (how) {
            ngx_idempotency_redis_loss(redis, shard, how);
        }
    }

    ngx_idempotency_redis_unlock(redis);
}


ngx_int_t
ngx_idempotency_redis_loss_login(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_login_t *login, ngx_idempotency_redis_hint_e *hint,
    ngx_idempotency_redis_reply_t *reply)
{
    int64_t                         step;
    uint64_t                        value;
    const char                     *how, *evicted;
    ngx_idempotency_redis_info_t   *info;
    ngx_idempotency_redis_shard_t  *shard;
    ngx_idempotency_redis_server_e  server;

    info = &login->info;
    shard = login->counter->shard;

    if (ngx_idempotency_redis_reply_is_error(reply, "MOVED ")
        || ngx_idempotency_redis_reply_is_error(reply, "ASK "))
    {
        /*
         * Another node has the slot of the counter, and so the shard.  A
         * server that has just taken over is judged when the map has a counter
         * for it.
         */

        login->counter = NULL;

        return *hint == NGX_IDEMPOTENCY_REDIS_HINT_TAKEN_OVER
               ? NGX_ERROR : NGX_OK;
    }

    redis->now->unwatched = (!info->identified || !info->watched);

    ngx_idempotency_redis_loss_warn(redis, info, reply);

    ngx_idempotency_redis_lock(redis);

    if (ngx_idempotency_redis_loss_left(redis, shard, info)) {
        ngx_idempotency_redis_unlock(redis);
        return NGX_ERROR;
    }

    if (shard->known.losses != login->before.losses) {
        ngx_idempotency_redis_unlock(redis);
        return NGX_AGAIN;
    }

    how = NULL;

    server = ngx_idempotency_redis_info_judge(shard->identified
                                              ? &shard->server : NULL,
                                              info, *hint,
                                              redis->spread);
    step = info->timed
           ? ngx_idempotency_redis_loss_clock(shard, info->time,
                                              login->sent)
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
        shard->seen_at = ngx_current_msec;

        if (value <= login->before.seen) {
            how = (value == 1) ? "has come back without its data"
                               : "has come back behind its data";

        } else if (!ngx_idempotency_redis_acks(redis)) {
            shard->known.seen = ngx_max(shard->known.seen, value);
        }

        shard->unproven = 0;

    } else if (!ngx_idempotency_redis_reply_is_error(reply, "NOPERM")
               && (login->before.seen
                   || server != NGX_IDEMPOTENCY_REDIS_SERVER_SAME))
    {
        /* NOREPLICAS, OOM, MISCONF: claims may succeed before INCR does */

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

    ngx_idempotency_redis_unlock(redis);

    ngx_idempotency_redis_loss_stepped(redis, step);

    *hint = NGX_IDEMPOTENCY_REDIS_HINT_NONE;

    return how ? NGX_AGAIN : NGX_OK;
}


/*
 * Another worker has left this server.  In a cluster the map says who has a
 * slot.
 */

static ngx_uint_t
ngx_idempotency_redis_loss_left(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, ngx_idempotency_redis_info_t *info)
{
    return !redis->spread
           && info->identified
           && shard->left_at
           && ngx_memcmp(&shard->left, &info->identity,
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


/* NULL, or the loss as text; "same": it is the server that was known */

static const char *
ngx_idempotency_redis_loss_evicts(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, ngx_idempotency_redis_info_t *info,
    ngx_uint_t same)
{
    uint64_t    before;
    ngx_uint_t  level;

    if (!info->watched) {

        /* without INFO it could never be reset */

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

    ngx_idempotency_redis_lock(redis);

    step = ngx_idempotency_redis_loss_clock(shard, time, sent);

    if (step > 0) {
        ngx_idempotency_redis_loss(redis, shard,
                                   "has a clock that went forward");
    }

    ngx_idempotency_redis_unlock(redis);

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
 * By how much the clock of the server has jumped, 0: not at all.  The server
 * has read it between "sent" and now; ngx_current_msec may be that of the last
 * turn of the event loop.
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


/*
 * under the mutex: a worker that sees the new number of losses also sees that
 * new claims are refused
 */

static void
ngx_idempotency_redis_loss(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, const char *how)
{
    redis->on_loss(redis, shard, how);

    shard->known.seen = 0;
    shard->known.losses++;
    shard->ticked = 0;

    /* other workers act on it with their next tick */

    ngx_idempotency_redis_loss_tick(redis);
}


void
ngx_idempotency_redis_loss_tick(ngx_idempotency_redis_t *redis)
{
    ngx_event_t  *ev;

    ev = &redis->detector->timer;

    if (ev->timer_set) {

        /* ngx_event_add_timer() would keep one that is near */

        ngx_del_timer(ev);
    }

    ngx_add_timer(ev, 1);
}


static void
ngx_idempotency_redis_loss_warn(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_info_t *info, ngx_idempotency_redis_reply_t *reply)
{
    if (ngx_idempotency_redis_reply_is_error(reply, "NOPERM")
        && ngx_idempotency_redis_loss_once(redis,
                                           NGX_IDEMPOTENCY_REDIS_ONCE_INCR))
    {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" may not use INCR: a "
                      "loss of data in Redis will not be detected; allow "
                      "INCR and PEXPIRE",
                      &redis->name);
    }

    if (redis->now->unwatched
        && ngx_idempotency_redis_loss_once(redis,
                                           NGX_IDEMPOTENCY_REDIS_ONCE_INFO))
    {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\": INFO does not identify the "
                      "server: a failover behind its address and the eviction "
                      "of keys will not be noticed; allow INFO",
                      &redis->name);
    }

    if (info->version && info->version < 5
        && ngx_idempotency_redis_loss_once(redis,
                                           NGX_IDEMPOTENCY_REDIS_ONCE_VERSION))
    {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\": the server is Redis %ui, it "
                      "lacks what scripts need here; use 5 or newer",
                      &redis->name, info->version);
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
