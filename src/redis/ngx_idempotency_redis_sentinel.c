
/*
 * A master that sentinels watch: who it is, and when that changes.
 *
 * All sentinels are asked, by a poll and whenever something looks wrong, and
 * all are listened to.  What they say is a hint, see quorum: a server counts
 * as the master when it says so itself, see login.
 */


#include "ngx_idempotency_redis_sentinel.h"
#include "ngx_idempotency_redis_route.h"


/* milliseconds between two rounds: with a master, and without */
#define NGX_IDEMPOTENCY_REDIS_POLL  2000
#define NGX_IDEMPOTENCY_REDIS_SEEK  100


static ngx_int_t ngx_idempotency_redis_sentinel_start(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_stop(
    ngx_idempotency_redis_t *redis);
static ngx_idempotency_redis_node_t *ngx_idempotency_redis_sentinel_pick(
    ngx_idempotency_redis_t *redis, ngx_str_t *key, ngx_uint_t *hope);
static ngx_int_t ngx_idempotency_redis_sentinel_reply(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_sentinel_heard(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_sentinel_ready(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_sentinel_lost(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_sentinel_timer(ngx_event_t *ev);
static void ngx_idempotency_redis_sentinel_soon(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_round(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_where(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_sentinel_when(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_sentinel_over(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_adopt(
    ngx_idempotency_redis_sentinel_t *sentinel);
static void ngx_idempotency_redis_sentinel_follow(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_sentinel_master(
    ngx_idempotency_redis_t *redis, ngx_str_t *host, in_port_t port);


ngx_idempotency_redis_topology_t  ngx_idempotency_redis_sentinel = {
    ngx_idempotency_redis_sentinel_start,
    ngx_idempotency_redis_sentinel_stop,
    ngx_idempotency_redis_sentinel_pick,
    ngx_idempotency_redis_sentinel_reply,
    ngx_idempotency_redis_sentinel_ready,
    ngx_idempotency_redis_sentinel_lost,
    NULL,
    NULL,
    1,
    1,
    0
};


static ngx_int_t
ngx_idempotency_redis_sentinel_start(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                         i;
    ngx_event_t                       *ev;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_place_t     *place;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    place = redis->places.elts;

    watch = ngx_calloc(sizeof(ngx_idempotency_redis_watch_t)
                       + (redis->places.nelts + NGX_IDEMPOTENCY_REDIS_FOUND)
                         * sizeof(ngx_idempotency_redis_sentinel_t),
                       ngx_cycle->log);
    if (watch == NULL) {
        return NGX_ERROR;
    }

    redis->map = watch;

    watch->sentinels = (ngx_idempotency_redis_sentinel_t *) (watch + 1);
    watch->n = redis->places.nelts;
    watch->most = watch->n + NGX_IDEMPOTENCY_REDIS_FOUND;
    watch->searched = ngx_current_msec;

    ngx_str_set(&watch->where[0], "SENTINEL");
    ngx_str_set(&watch->where[1], "GET-MASTER-ADDR-BY-NAME");
    watch->where[2] = redis->master;

    ngx_str_set(&watch->when[0], "SENTINEL");
    ngx_str_set(&watch->when[1], "MASTER");
    watch->when[2] = redis->master;

    ngx_str_set(&watch->who[0], "SENTINEL");
    ngx_str_set(&watch->who[1], "MYID");

    ngx_str_set(&watch->others[0], "SENTINEL");
    ngx_str_set(&watch->others[1], "SENTINELS");
    watch->others[2] = redis->master;

    ev = &watch->timer;

    ev->handler = ngx_idempotency_redis_sentinel_timer;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    for (i = 0; i < watch->n; i++) {
        sentinel = &watch->sentinels[i];

        sentinel->redis = redis;
        sentinel->configured = 1;
        sentinel->asked = ngx_idempotency_redis_node_create(redis, &place[i],
                                                NGX_IDEMPOTENCY_REDIS_ASKED);
        sentinel->heard = ngx_idempotency_redis_node_create(redis, &place[i],
                                                NGX_IDEMPOTENCY_REDIS_HEARD);

        if (sentinel->asked == NULL || sentinel->heard == NULL) {
            return NGX_ERROR;
        }
    }

    for (i = 0; i < watch->n; i++) {
        ngx_idempotency_redis_node_dial(watch->sentinels[i].asked);
        ngx_idempotency_redis_node_dial(watch->sentinels[i].heard);
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

        /* another worker knows better; we may be within send */

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
ngx_idempotency_redis_sentinel_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_t  *redis;

    redis = conn->redis;

    switch (conn->node->kind) {

    case NGX_IDEMPOTENCY_REDIS_HEARD:
        ngx_idempotency_redis_sentinel_heard(redis, reply);
        return NGX_OK;

    case NGX_IDEMPOTENCY_REDIS_ASKED:
        return NGX_DECLINED;

    default: /* NGX_IDEMPOTENCY_REDIS_SERVER */
        break;
    }

    if (!ngx_idempotency_redis_says_no_master(reply)) {

        if (ngx_idempotency_redis_reply_type(reply)
            != NGX_IDEMPOTENCY_REDIS_ERROR)
        {
            conn->node->moving = 0;
        }

        return NGX_DECLINED;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "idempotency store \"%V\" is no longer at \"%V\", the "
                  "sentinels are asked", &redis->name, &conn->node->name);

    ngx_idempotency_redis_wait(redis, cmd);
    ngx_idempotency_redis_node_move(conn->node);
    ngx_idempotency_redis_sentinel_soon(redis);

    return NGX_OK;
}


/* "message", "+switch-master", "name host port host port" */

static void
ngx_idempotency_redis_sentinel_heard(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                       text;
    ngx_idempotency_redis_reply_t  *element;

    element = ngx_idempotency_redis_reply_element(reply, 2);
    if (element == NULL) {
        return;
    }

    ngx_idempotency_redis_reply_string(element, &text);

    if (text.len > redis->master.len
        && ngx_strncmp(text.data, redis->master.data, redis->master.len) == 0
        && text.data[redis->master.len] == ' ')
    {
        ngx_idempotency_redis_sentinel_soon(redis);
    }
}


static void
ngx_idempotency_redis_sentinel_ready(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t                      i;
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_watch_t  *watch;

    redis = node->redis;
    watch = redis->map;

    if (node == watch->master) {
        ngx_idempotency_redis_changed(redis);
        redis->ready(redis);
        return;
    }

    if (node->kind == NGX_IDEMPOTENCY_REDIS_SERVER) {
        return;
    }

    for (i = 0; i < watch->most; i++) {
        if (watch->sentinels[i].asked == node) {
            ngx_idempotency_redis_witness_ready(&watch->sentinels[i]);
        }
    }

    /* it may have said something while nobody listened */

    ngx_idempotency_redis_sentinel_soon(redis);
}


static void
ngx_idempotency_redis_sentinel_lost(ngx_idempotency_redis_node_t *node)
{
    if (node->kind == NGX_IDEMPOTENCY_REDIS_SERVER) {
        ngx_idempotency_redis_sentinel_soon(node->redis);
    }
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

    /* never called from here: we may be within send */

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
 * Asks all of them: since which failover the master is where it is, and then
 * where.  If there is one in between, the answer looks older than it is.
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

    ngx_idempotency_redis_witness_search(redis);

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->asked == NULL) {
            continue;
        }

        sentinel->host.len = 0;
        sentinel->epoch = 0;

        sentinel->when.args = watch->when;
        sentinel->when.nargs = 3;
        sentinel->when.handler = ngx_idempotency_redis_sentinel_when;
        sentinel->when.data = sentinel;

        if (ngx_idempotency_redis_node_send(sentinel->asked,
                                            &sentinel->when)
            != NGX_AGAIN)
        {
            continue;
        }

        watch->pending++;

        sentinel->where.args = watch->where;
        sentinel->where.nargs = 3;
        sentinel->where.handler = ngx_idempotency_redis_sentinel_where;
        sentinel->where.data = sentinel;

        if (ngx_idempotency_redis_node_send(sentinel->asked,
                                            &sentinel->where)
            == NGX_AGAIN)
        {
            watch->pending++;
        }
    }

    if (watch->pending == 0) {
        ngx_idempotency_redis_sentinel_over(redis);
    }
}


static void
ngx_idempotency_redis_sentinel_when(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    sentinel = cmd->data;
    watch = sentinel->redis->map;

    if (reply) {
        ngx_idempotency_redis_quorum_when(sentinel, reply);
    }

    if (--watch->pending == 0) {
        ngx_idempotency_redis_sentinel_over(sentinel->redis);
    }
}


static void
ngx_idempotency_redis_sentinel_where(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    sentinel = cmd->data;
    watch = sentinel->redis->map;

    if (reply
        && ngx_idempotency_redis_quorum_where(sentinel, reply) != NGX_OK
        && sentinel->configured && !watch->said)
    {
        watch->said = 1;

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\": the sentinel \"%V\" knows no "
                      "master \"%V\"", &sentinel->redis->name,
                      &sentinel->asked->name, &sentinel->redis->master);
    }

    /* news, or the last one of a majority, need not wait for the others */

    if (sentinel->host.len
        && ngx_idempotency_redis_quorum_believes(sentinel, 0))
    {
        ngx_idempotency_redis_sentinel_adopt(sentinel);
    }

    if (--watch->pending == 0) {
        ngx_idempotency_redis_sentinel_over(sentinel->redis);
    }
}


static void
ngx_idempotency_redis_sentinel_over(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                         i, up, believed;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    watch = redis->map;
    believed = 0;

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->asked && sentinel->host.len
            && ngx_idempotency_redis_quorum_believes(sentinel, 1))
        {
            ngx_idempotency_redis_sentinel_adopt(sentinel);
            believed = 1;
        }
    }

    up = watch->master && ngx_idempotency_redis_node_is_up(watch->master);

    if (!believed && !up) {
        ngx_idempotency_redis_quorum_doubt(redis);
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

    watch->said = 0;

    ngx_idempotency_redis_quorum_follow(redis, &sentinel->host,
                                        sentinel->port, sentinel->epoch);

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

    node = ngx_idempotency_redis_node_told(redis, host, port, NULL,
                                           NGX_IDEMPOTENCY_REDIS_SERVER);
    if (node == NULL) {
        return;
    }

    if (watch->master) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has a new master \"%V\" after "
                      "\"%V\"", &redis->name, &node->name,
                      &watch->master->name);

        /*
         * Sentinel does not wait for the last writes of the old master, even
         * if that one lives and takes more of them from other gateways
         */

        node->hint = NGX_IDEMPOTENCY_REDIS_HINT_TAKEN_OVER;

        ngx_idempotency_redis_node_leave(watch->master);
    }

    watch->master = node;

    ngx_idempotency_redis_loss_count(node, 0);
    ngx_idempotency_redis_node_dial(node);
    ngx_idempotency_redis_changed(redis);
}
