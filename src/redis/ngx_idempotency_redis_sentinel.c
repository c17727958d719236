
/*
 * A master that sentinels watch.
 *
 * All sentinels are asked where it is, periodically and whenever a connection
 * to it is lost, and their events are subscribed to.  What they say is judged
 * by quorum, and the server itself has to say that it is a master, see login.
 */


#include "ngx_idempotency_redis_sentinel.h"


/* milliseconds between two rounds: with a master, and without */
#define NGX_IDEMPOTENCY_REDIS_POLL  2000
#define NGX_IDEMPOTENCY_REDIS_SEEK  100


static ngx_int_t ngx_idempotency_redis_sentinel_start(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_stop(
    ngx_idempotency_redis_t *redis);
static ngx_idempotency_redis_node_t *ngx_idempotency_redis_sentinel_pick(
    ngx_idempotency_redis_t *redis, ngx_str_t *key, ngx_uint_t *hope);
static ngx_int_t ngx_idempotency_redis_sentinel_master_reply(
    ngx_idempotency_redis_node_t *node, ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_sentinel_master_ready(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_sentinel_master_lost(
    ngx_idempotency_redis_node_t *node);
static ngx_int_t ngx_idempotency_redis_sentinel_event(
    ngx_idempotency_redis_node_t *node, ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_sentinel_ready(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_sentinel_soon(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_timer(ngx_event_t *ev);
static void ngx_idempotency_redis_sentinel_round(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_epoch(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_sentinel_address(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_sentinel_round_over(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_adopt(
    ngx_idempotency_redis_sentinel_t *sentinel);
static void ngx_idempotency_redis_sentinel_follow(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_master(
    ngx_idempotency_redis_t *redis, ngx_str_t *host, in_port_t port);


static ngx_idempotency_redis_node_type_t
    ngx_idempotency_redis_sentinel_master_node = {
    NGX_IDEMPOTENCY_REDIS_KIND_DATA,
    ngx_idempotency_redis_sentinel_master_reply,
    ngx_idempotency_redis_sentinel_master_ready,
    ngx_idempotency_redis_sentinel_master_lost,
    NULL,
    NULL,
    NULL,
    1,
    1
};


static ngx_idempotency_redis_node_type_t
    ngx_idempotency_redis_sentinel_node = {
    NGX_IDEMPOTENCY_REDIS_KIND_SENTINEL,
    NULL,
    ngx_idempotency_redis_sentinel_ready,
    NULL,
    NULL,
    NULL,
    NULL,
    0,
    0
};


static ngx_idempotency_redis_node_type_t
    ngx_idempotency_redis_sentinel_events = {
    NGX_IDEMPOTENCY_REDIS_KIND_SENTINEL_EVENTS,
    ngx_idempotency_redis_sentinel_event,
    ngx_idempotency_redis_sentinel_ready,
    NULL,
    NULL,
    NULL,
    NULL,
    0,
    0
};


ngx_idempotency_redis_topology_t  ngx_idempotency_redis_sentinel = {
    ngx_idempotency_redis_sentinel_start,
    ngx_idempotency_redis_sentinel_stop,
    ngx_idempotency_redis_sentinel_pick,
    NULL,
    NULL,
    0
};


static ngx_int_t
ngx_idempotency_redis_sentinel_start(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                         i;
    ngx_event_t                       *ev;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_host_t      *host;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    host = redis->hosts.elts;

    watch = ngx_calloc(sizeof(ngx_idempotency_redis_watch_t)
                       + (redis->hosts.nelts + NGX_IDEMPOTENCY_REDIS_FOUND)
                         * sizeof(ngx_idempotency_redis_sentinel_t),
                       ngx_cycle->log);
    if (watch == NULL) {
        return NGX_ERROR;
    }

    redis->map = watch;

    watch->sentinels = (ngx_idempotency_redis_sentinel_t *) (watch + 1);
    watch->n = redis->hosts.nelts;
    watch->most = watch->n + NGX_IDEMPOTENCY_REDIS_FOUND;
    watch->searched = ngx_current_msec;
    watch->node_type = &ngx_idempotency_redis_sentinel_node;
    watch->events_type = &ngx_idempotency_redis_sentinel_events;

    ngx_str_set(&watch->get_address[0], "SENTINEL");
    ngx_str_set(&watch->get_address[1], "GET-MASTER-ADDR-BY-NAME");
    watch->get_address[2] = redis->master;

    ngx_str_set(&watch->get_epoch[0], "SENTINEL");
    ngx_str_set(&watch->get_epoch[1], "MASTER");
    watch->get_epoch[2] = redis->master;

    ngx_str_set(&watch->get_id[0], "SENTINEL");
    ngx_str_set(&watch->get_id[1], "MYID");

    ngx_str_set(&watch->get_others[0], "SENTINEL");
    ngx_str_set(&watch->get_others[1], "SENTINELS");
    watch->get_others[2] = redis->master;

    ev = &watch->timer;

    ev->handler = ngx_idempotency_redis_sentinel_timer;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    for (i = 0; i < watch->n; i++) {
        sentinel = &watch->sentinels[i];

        sentinel->redis = redis;
        sentinel->configured = 1;
        sentinel->node = ngx_idempotency_redis_node_create(redis, &host[i],
                                                            watch->node_type);
        sentinel->events = ngx_idempotency_redis_node_create(redis, &host[i],
                                                            watch->events_type);

        if (sentinel->node == NULL || sentinel->events == NULL) {
            return NGX_ERROR;
        }
    }

    for (i = 0; i < watch->n; i++) {
        ngx_idempotency_redis_node_dial(watch->sentinels[i].node);
        ngx_idempotency_redis_node_dial(watch->sentinels[i].events);
    }

    ngx_idempotency_redis_sentinel_follow(redis);
    ngx_idempotency_redis_sentinel_round(redis);

    return NGX_OK;
}


static void
ngx_idempotency_redis_sentinel_stop(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_watch_t  *watch;

    watch = redis->map;

    if (watch == NULL) {
        return;
    }

    if (watch->timer.timer_set) {
        ngx_del_timer(&watch->timer);
    }

    ngx_free(watch);
    redis->map = NULL;
}


static ngx_idempotency_redis_node_t *
ngx_idempotency_redis_sentinel_pick(ngx_idempotency_redis_t *redis,
    ngx_str_t *key, ngx_uint_t *hope)
{
    ngx_idempotency_redis_watch_t   *watch;
    ngx_idempotency_redis_shared_t  *shared;

    (void) key;

    watch = redis->map;
    shared = redis->zone->data;

    *hope = !watch->hopeless;

    if (watch->followed != shared->followed) {

        /* another worker has found another master; this may be within send */

        ngx_add_timer(&watch->timer, 1);

        *hope = 1;
        return NULL;
    }

    if (watch->master && ngx_idempotency_redis_node_is_moving(watch->master)) {
        *hope = 1;
        return NULL;
    }

    return watch->master;
}


static ngx_int_t
ngx_idempotency_redis_sentinel_master_reply(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_t  *redis;

    redis = node->redis;

    if (!ngx_idempotency_redis_error_is_no_master(reply)) {

        if (ngx_idempotency_redis_reply_type(reply)
            != NGX_IDEMPOTENCY_REDIS_ERROR)
        {
            node->moving = 0;
        }

        return NGX_DECLINED;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "idempotency store \"%V\" is no longer at \"%V\", asking "
                  "the sentinels", &redis->name, &node->peer.name);

    ngx_idempotency_redis_topology_wait(redis, cmd);
    ngx_idempotency_redis_node_move(node);
    ngx_idempotency_redis_sentinel_soon(redis);

    return NGX_OK;
}


static void
ngx_idempotency_redis_sentinel_master_ready(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_watch_t  *watch;

    redis = node->redis;
    watch = redis->map;

    if (node == watch->master) {
        ngx_idempotency_redis_topology_changed(redis);
        redis->on_ready(redis);
    }
}


static void
ngx_idempotency_redis_sentinel_master_lost(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_sentinel_soon(node->redis);
}


/* "message", "+switch-master", "name host port host port" */

static ngx_int_t
ngx_idempotency_redis_sentinel_event(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                 text;
    ngx_idempotency_redis_t  *redis;

    (void) cmd;

    redis = node->redis;

    ngx_idempotency_redis_reply_text(reply, 2, &text);

    if (text.len > redis->master.len
        && ngx_strncmp(text.data, redis->master.data, redis->master.len) == 0
        && text.data[redis->master.len] == ' ')
    {
        ngx_idempotency_redis_sentinel_soon(redis);
    }

    return NGX_OK;
}


static void
ngx_idempotency_redis_sentinel_ready(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_watch_t  *watch;
    ngx_uint_t                      i;

    watch = node->redis->map;

    for (i = 0; i < watch->most; i++) {
        if (watch->sentinels[i].node == node) {
            ngx_idempotency_redis_discovery_ready(&watch->sentinels[i]);
        }
    }

    /* events before now were missed */

    ngx_idempotency_redis_sentinel_soon(node->redis);
}


static void
ngx_idempotency_redis_sentinel_soon(ngx_idempotency_redis_t *redis)
{
    ngx_msec_t                      gone;
    ngx_idempotency_redis_watch_t  *watch;

    watch = redis->map;

    if (watch == NULL) {
        return;
    }

    if (watch->pending) {
        watch->again = 1;
        return;
    }

    /* by the timer: this may be within send */

    gone = ngx_current_msec - watch->began;

    ngx_add_timer(&watch->timer,
                  gone < NGX_IDEMPOTENCY_REDIS_SEEK
                  ? NGX_IDEMPOTENCY_REDIS_SEEK - gone : 1);
}


static void
ngx_idempotency_redis_sentinel_timer(ngx_event_t *ev)
{
    ngx_connection_t               *dummy;
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_watch_t  *watch;

    dummy = ev->data;
    redis = dummy->data;
    watch = redis->map;

    ngx_idempotency_redis_sentinel_follow(redis);

    if (watch->pending == 0) {
        ngx_idempotency_redis_sentinel_round(redis);
    }
}


/*
 * Asks all sentinels for the epoch of the master, and then for its address.
 * If a failover happens in between, the address has an epoch that is too low,
 * which is safe.
 */

static void
ngx_idempotency_redis_sentinel_round(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                         i;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    watch = redis->map;

    watch->began = ngx_current_msec;
    watch->again = 0;

    ngx_idempotency_redis_discovery_search(redis);

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->node == NULL) {
            continue;
        }

        sentinel->host.len = 0;
        sentinel->epoch = 0;

        sentinel->get_epoch.args = watch->get_epoch;
        sentinel->get_epoch.nargs = 3;
        sentinel->get_epoch.handler = ngx_idempotency_redis_sentinel_epoch;
        sentinel->get_epoch.data = sentinel;

        if (ngx_idempotency_redis_node_send(sentinel->node,
                                            &sentinel->get_epoch)
            != NGX_AGAIN)
        {
            continue;
        }

        watch->pending++;

        sentinel->get_address.args = watch->get_address;
        sentinel->get_address.nargs = 3;
        sentinel->get_address.handler = ngx_idempotency_redis_sentinel_address;
        sentinel->get_address.data = sentinel;

        if (ngx_idempotency_redis_node_send(sentinel->node,
                                            &sentinel->get_address)
            == NGX_AGAIN)
        {
            watch->pending++;
        }
    }

    if (watch->pending == 0) {
        ngx_idempotency_redis_sentinel_round_over(redis);
    }
}


static void
ngx_idempotency_redis_sentinel_epoch(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    sentinel = cmd->data;
    watch = sentinel->redis->map;

    if (reply) {
        ngx_idempotency_redis_quorum_epoch(sentinel, reply);
    }

    if (--watch->pending == 0) {
        ngx_idempotency_redis_sentinel_round_over(sentinel->redis);
    }
}


static void
ngx_idempotency_redis_sentinel_address(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    sentinel = cmd->data;
    watch = sentinel->redis->map;

    if (reply
        && ngx_idempotency_redis_quorum_address(sentinel, reply) != NGX_OK
        && sentinel->configured && !watch->warned)
    {
        watch->warned = 1;

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\": the sentinel \"%V\" knows no "
                      "master \"%V\"%s", &sentinel->redis->name,
                      &sentinel->node->peer.name, &sentinel->redis->master,
                      ngx_idempotency_redis_reply_is_error(reply,
                                                        "ERR unknown command")
                      ? ": it is no sentinel but a Redis, whose target is "
                        "\"redis://\""
                      : "");
    }

    /* a later epoch, or a majority, need not wait for the other replies */

    if (sentinel->host.len
        && ngx_idempotency_redis_quorum_believes(sentinel, 0))
    {
        ngx_idempotency_redis_sentinel_adopt(sentinel);
    }

    if (--watch->pending == 0) {
        ngx_idempotency_redis_sentinel_round_over(sentinel->redis);
    }
}


static void
ngx_idempotency_redis_sentinel_round_over(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                         i, up, believed;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    watch = redis->map;
    believed = 0;

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->node && sentinel->host.len
            && ngx_idempotency_redis_quorum_believes(sentinel, 1))
        {
            ngx_idempotency_redis_sentinel_adopt(sentinel);
            believed = 1;
        }
    }

    up = watch->master && ngx_idempotency_redis_node_is_up(watch->master);

    if (!believed && !up) {
        ngx_idempotency_redis_quorum_warn(redis);
    }

    watch->hopeless = (watch->master == NULL);

    ngx_add_timer(&watch->timer,
                  watch->again ? 1
                  : up ? NGX_IDEMPOTENCY_REDIS_POLL
                       : NGX_IDEMPOTENCY_REDIS_SEEK);
}


static void
ngx_idempotency_redis_sentinel_adopt(ngx_idempotency_redis_sentinel_t *sentinel)
{
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_watch_t  *watch;

    redis = sentinel->redis;
    watch = redis->map;

    watch->warned = 0;

    if (ngx_idempotency_redis_quorum_follow(redis, &sentinel->host,
                                            sentinel->port, sentinel->epoch)
        != NGX_OK)
    {
        ngx_idempotency_redis_sentinel_follow(redis);
        return;
    }

    ngx_idempotency_redis_sentinel_master(redis, &sentinel->host,
                                          sentinel->port);
}


/* what another worker has found, or this nginx before a reload */

static void
ngx_idempotency_redis_sentinel_follow(ngx_idempotency_redis_t *redis)
{
    u_char     text[256];
    in_port_t  port;
    ngx_str_t  host;

    if (ngx_idempotency_redis_quorum_followed(redis, text, &host, &port)
        == NGX_OK)
    {
        ngx_idempotency_redis_sentinel_master(redis, &host, port);
    }
}


static void
ngx_idempotency_redis_sentinel_master(ngx_idempotency_redis_t *redis,
    ngx_str_t *host, in_port_t port)
{
    ngx_idempotency_redis_node_t   *node;
    ngx_idempotency_redis_watch_t  *watch;

    watch = redis->map;

    watch->hopeless = 0;

    if (watch->master
        && ngx_idempotency_redis_node_is_at(watch->master, host, port))
    {
        return;
    }

    node = ngx_idempotency_redis_node_create_at(redis, host, port, NULL,
                                   &ngx_idempotency_redis_sentinel_master_node);
    if (node == NULL) {
        return;
    }

    if (watch->master) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has a new master \"%V\" after "
                      "\"%V\"", &redis->name, &node->peer.name,
                      &watch->master->peer.name);

        /*
         * Sentinel does not wait until the new master has the last writes of
         * the old one, which may even take more of them from other gateways
         */

        node->peer.hint = NGX_IDEMPOTENCY_REDIS_HINT_TAKEN_OVER;

        ngx_idempotency_redis_node_leave(watch->master);
    }

    watch->master = node;

    node->peer.counter = ngx_idempotency_redis_loss_counter(redis, 0);
    ngx_idempotency_redis_node_dial(node);
    ngx_idempotency_redis_topology_changed(redis);
}
