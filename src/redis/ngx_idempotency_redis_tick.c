
/*
 * The timer of loss detection: increments counters, reads the eviction policy,
 * and shares the longest lease that any gateway uses.  What a server is asked,
 * one worker asks for all.
 */


#include "ngx_idempotency_redis_client.h"
#include "ngx_idempotency_redis_topology.h"


/* milliseconds between two ticks: with writes since the last one, without */
#define NGX_IDEMPOTENCY_REDIS_TICK        250
#define NGX_IDEMPOTENCY_REDIS_TICK_IDLE   500

/* milliseconds between two INFO, and between two exchanges of leases */
#define NGX_IDEMPOTENCY_REDIS_WATCH       2000
#define NGX_IDEMPOTENCY_REDIS_LEASE       4000

/* one of so many exchanges renews the ttl of the key */
#define NGX_IDEMPOTENCY_REDIS_LEASE_EVERY  512


static void ngx_idempotency_redis_tick_timer(ngx_event_t *ev);
static void ngx_idempotency_redis_tick_follow(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_tick_advance(
    ngx_idempotency_redis_node_t *node);
static ngx_uint_t ngx_idempotency_redis_tick_due(
    ngx_idempotency_redis_t *redis, ngx_msec_t *last, ngx_msec_t every);
static void ngx_idempotency_redis_tick_keep(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_tick_kept(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_tick_ticked(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_tick_watch(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_tick_watched(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_tick_lease(ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_tick_leased(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static ngx_uint_t ngx_idempotency_redis_tick_refuses(
    ngx_idempotency_redis_shared_t *shared);


static ngx_str_t  ngx_idempotency_redis_tick_lease_script = ngx_string(
    "-- lease\n"
    "local v = tonumber(redis.call('GET', KEYS[1]) or 0) or 0\n"
    "local n = tonumber(ARGV[1])\n"
    "if n > v or n == v and ARGV[2] == '1' then\n"
    "  redis.call('SET', KEYS[1], n, 'PX', "
                   NGX_IDEMPOTENCY_REDIS_COUNTER_TTL ")\n"
    "  v = n\n"
    "end\n"
    "return v\n");


ngx_int_t
ngx_idempotency_redis_tick_start(ngx_idempotency_redis_t *redis)
{
    ngx_str_t                         *key;
    ngx_event_t                       *ev;
    ngx_idempotency_redis_detector_t  *detector;

    detector = ngx_calloc(sizeof(ngx_idempotency_redis_detector_t)
                          + redis->prefix.len + sizeof("lease"),
                          ngx_cycle->log);
    if (detector == NULL) {
        return NGX_ERROR;
    }

    redis->detector = detector;

    ngx_queue_init(&detector->counters);

    key = &detector->lease_key;

    key->data = (u_char *) (detector + 1);
    key->len = ngx_sprintf(key->data, "%Vlease", &redis->prefix) - key->data;

    ev = &detector->timer;

    ev->handler = ngx_idempotency_redis_tick_timer;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_TICK);

    return NGX_OK;
}


void
ngx_idempotency_redis_tick_stop(ngx_idempotency_redis_t *redis)
{
    ngx_queue_t                       *q;
    ngx_idempotency_redis_detector_t  *detector;

    detector = redis->detector;

    if (detector == NULL) {
        return;
    }

    if (detector->timer.timer_set) {
        ngx_del_timer(&detector->timer);
    }

    while (!ngx_queue_empty(&detector->counters)) {
        q = ngx_queue_head(&detector->counters);
        ngx_queue_remove(q);

        ngx_free(ngx_queue_data(q, ngx_idempotency_redis_counter_t, queue));
    }

    ngx_free(detector);
    redis->detector = NULL;
}


static void
ngx_idempotency_redis_tick_timer(ngx_event_t *ev)
{
    ngx_uint_t                        renew;
    ngx_queue_t                      *q, *next;
    ngx_connection_t                 *dummy;
    ngx_idempotency_redis_t          *redis;
    ngx_idempotency_redis_node_t     *node;
    ngx_idempotency_redis_counter_t  *counter;

    dummy = ev->data;
    redis = dummy->data;
    renew = 0;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = next)
    {
        next = ngx_queue_next(q);
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);
        counter = node->peer.counter;

        if (counter == NULL) {
            continue;
        }

        if (counter->losses != counter->shard->known.losses
            && ngx_idempotency_redis_node_is_up(node))
        {
            counter->losses = counter->shard->known.losses;
            renew = 1;
        }

        if (!redis->spread) {
            ngx_idempotency_redis_tick_follow(node);
        }

        /* an exiting worker claims nothing any more */

        if (!ngx_exiting && ngx_idempotency_redis_node_is_up(node)) {
            ngx_idempotency_redis_tick_advance(node);
            ngx_idempotency_redis_tick_watch(node);
        }
    }

    if (renew) {
        redis->on_renew(redis);
    }

    if (!ngx_exiting) {
        ngx_idempotency_redis_tick_lease(redis);
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_TICK);
}


/*
 * Another worker has found another server at the address of the master: this
 * worker must not stay with the old one.  In a cluster the map says which node
 * has a slot.
 */

static void
ngx_idempotency_redis_tick_follow(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t                      i;
    ngx_idempotency_redis_conn_t   *conn;
    ngx_idempotency_redis_shard_t  *shard;

    shard = node->peer.counter->shard;

    for (i = 0; i < node->nconns; i++) {
        conn = &node->conns[i];

        if (conn->state == NGX_IDEMPOTENCY_REDIS_READY
            && conn->login.info.identified && shard->identified
            && ngx_memcmp(conn->login.info.identity.run_id,
                          shard->server.run_id,
                          NGX_IDEMPOTENCY_REDIS_ID_LEN)
               != 0)
        {
            ngx_idempotency_redis_node_move(node);
            return;
        }
    }
}


static void
ngx_idempotency_redis_tick_advance(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_cmd_t      *cmd;
    ngx_idempotency_redis_shard_t    *shard;
    ngx_idempotency_redis_counter_t  *counter;

    counter = node->peer.counter;
    shard = counter->shard;

    if (counter->ticking
        || !ngx_idempotency_redis_tick_due(node->redis, &shard->ticked,
                                       shard->used
                                       ? NGX_IDEMPOTENCY_REDIS_TICK
                                       : NGX_IDEMPOTENCY_REDIS_TICK_IDLE))
    {
        return;
    }

    shard->used = 0;

    ngx_idempotency_redis_loss_know(node->redis, counter, &counter->before);

    cmd = &counter->tick;

    ngx_str_set(&counter->args[0], "INCR");
    counter->args[1] = counter->name;

    cmd->args = counter->args;
    cmd->nargs = 2;
    cmd->key = &counter->name;
    cmd->handler = ngx_idempotency_redis_tick_ticked;
    cmd->data = counter;
    cmd->wait = 1;
    cmd->tick = 1;

    if (ngx_idempotency_redis_send(node->redis, cmd) == NGX_AGAIN) {
        counter->ticking = 1;

        ngx_idempotency_redis_tick_keep(node);
    }
}


/* only one worker gets 1 within the period */

static ngx_uint_t
ngx_idempotency_redis_tick_due(ngx_idempotency_redis_t *redis,
    ngx_msec_t *last, ngx_msec_t every)
{
    ngx_uint_t        due;
    ngx_msec_int_t    passed;

    ngx_idempotency_redis_lock(redis);

    /* another worker's ngx_current_msec may be a little later */

    passed = (ngx_msec_int_t) (ngx_current_msec - *last);

    due = (*last == 0
           || passed >= (ngx_msec_int_t) every
           || passed < - (ngx_msec_int_t) every);

    if (due) {
        *last = ngx_max(ngx_current_msec, 1);
    }

    ngx_idempotency_redis_unlock(redis);

    return due;
}


/* in one write with the tick, so that appendfsync=always syncs once */

static void
ngx_idempotency_redis_tick_keep(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_cmd_t      *cmd;
    ngx_idempotency_redis_counter_t  *counter;

    counter = node->peer.counter;

    if (counter->keeping) {
        return;
    }

    cmd = &counter->keep;

    ngx_str_set(&counter->keep_args[0], "PEXPIRE");
    counter->keep_args[1] = counter->name;
    ngx_str_set(&counter->keep_args[2], NGX_IDEMPOTENCY_REDIS_COUNTER_TTL);

    cmd->args = counter->keep_args;
    cmd->nargs = 3;
    cmd->key = &counter->name;
    cmd->handler = ngx_idempotency_redis_tick_kept;
    cmd->data = counter;

    if (ngx_idempotency_redis_send(node->redis, cmd) == NGX_AGAIN) {
        counter->keeping = 1;
    }
}


static void
ngx_idempotency_redis_tick_kept(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_counter_t  *counter;

    (void) reply;

    counter = cmd->data;
    counter->keeping = 0;
}


static void
ngx_idempotency_redis_tick_ticked(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    uint64_t                          value;
    ngx_idempotency_redis_counter_t  *counter;

    counter = cmd->data;
    counter->ticking = 0;

    if (reply == NULL
        || !ngx_idempotency_redis_is_acked(counter->redis, cmd)
        || ngx_idempotency_redis_reply_type(reply)
           != NGX_IDEMPOTENCY_REDIS_INTEGER)
    {
        /* the next tick will show */

        return;
    }

    value = (uint64_t) ngx_idempotency_redis_reply_integer(reply);

    ngx_idempotency_redis_loss_value(counter, value);
}


/* not if INFO had no answer at the login */

static void
ngx_idempotency_redis_tick_watch(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t                        i;
    ngx_idempotency_redis_cmd_t      *cmd;
    ngx_idempotency_redis_counter_t  *counter;

    static ngx_str_t  info = ngx_string("INFO");

    counter = node->peer.counter;

    for (i = 0; i < node->nconns; i++) {
        if (node->conns[i].state == NGX_IDEMPOTENCY_REDIS_READY
            && node->conns[i].login.info.watched)
        {
            break;
        }
    }

    if (i == node->nconns || counter->watching
        || !ngx_idempotency_redis_tick_due(node->redis,
                                           &counter->shard->watched,
                                           NGX_IDEMPOTENCY_REDIS_WATCH))
    {
        return;
    }

    cmd = &counter->watch;

    cmd->args = &info;
    cmd->nargs = 1;
    cmd->handler = ngx_idempotency_redis_tick_watched;
    cmd->data = counter;

    if (ngx_idempotency_redis_node_send(node, cmd) == NGX_AGAIN) {
        counter->watching = 1;
    }
}


static void
ngx_idempotency_redis_tick_watched(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_info_t      info;
    ngx_idempotency_redis_counter_t  *counter;

    counter = cmd->data;
    counter->watching = 0;

    if (reply == NULL || cmd->shard != counter->shard) {
        return;
    }

    ngx_memzero(&info, sizeof(ngx_idempotency_redis_info_t));

    ngx_idempotency_redis_info_read(reply, &info);
    ngx_idempotency_redis_loss_info(counter, &info);
}


/*
 * Gateways may have leases of different length: after a loss each of them
 * waits for the longest one.
 */

static void
ngx_idempotency_redis_tick_lease(ngx_idempotency_redis_t *redis)
{
    ngx_str_t                         *args;
    ngx_idempotency_redis_cmd_t       *cmd;
    ngx_idempotency_redis_shared_t    *shared;
    ngx_idempotency_redis_detector_t  *detector;

    detector = redis->detector;
    shared = redis->zone->data;

    if (detector->leasing || !ngx_idempotency_redis_is_up(redis)
        || !ngx_idempotency_redis_tick_due(redis, &shared->lease_asked,
                                           NGX_IDEMPOTENCY_REDIS_LEASE))
    {
        return;
    }

    args = detector->lease_args;

    ngx_str_set(&args[0], "EVAL");
    args[1] = ngx_idempotency_redis_tick_lease_script;
    ngx_str_set(&args[2], "1");
    args[3] = detector->lease_key;
    args[4].data = detector->lease_text;
    args[4].len = ngx_sprintf(detector->lease_text, "%M", redis->lease)
                  - detector->lease_text;

    if (shared->lease_asks++ % NGX_IDEMPOTENCY_REDIS_LEASE_EVERY == 0) {
        ngx_str_set(&args[5], "1");

    } else {
        ngx_str_set(&args[5], "0");
    }

    cmd = &detector->lease;

    cmd->args = args;
    cmd->nargs = 6;
    cmd->key = &detector->lease_key;
    cmd->handler = ngx_idempotency_redis_tick_leased;
    cmd->data = redis;

    if (ngx_idempotency_redis_send(redis, cmd) == NGX_AGAIN) {
        detector->leasing = 1;
    }
}


/*
 * a shorter one counts only while no shard has lost data: the key may be lost,
 * too
 */

static void
ngx_idempotency_redis_tick_leased(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    int64_t                          lease;
    ngx_idempotency_redis_t         *redis;
    ngx_idempotency_redis_shared_t  *shared;

    redis = cmd->data;
    redis->detector->leasing = 0;

    if (reply == NULL
        || ngx_idempotency_redis_reply_type(reply)
           != NGX_IDEMPOTENCY_REDIS_INTEGER)
    {
        return;
    }

    lease = ngx_idempotency_redis_reply_integer(reply);
    shared = redis->zone->data;

    if (lease > (int64_t) shared->lease
        || (lease >= 0 && !ngx_idempotency_redis_tick_refuses(shared)))
    {
        shared->lease = (ngx_atomic_uint_t) lease;
    }
}


static ngx_uint_t
ngx_idempotency_redis_tick_refuses(ngx_idempotency_redis_shared_t *shared)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_SHARDS; i++) {

        if (shared->shards[i].number == 0) {
            break;
        }

        if (shared->shards[i].until) {
            return 1;
        }
    }

    return 0;
}
