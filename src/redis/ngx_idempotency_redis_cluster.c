
/*
 * A cluster: each key has a slot, each slot a node, and both may move.
 */


#include "ngx_idempotency_redis_map.h"
#include "ngx_idempotency_redis_slot.h"


/* milliseconds until CLUSTER SLOTS is sent again: all is well, or not */
#define NGX_IDEMPOTENCY_REDIS_REFRESH  5000
#define NGX_IDEMPOTENCY_REDIS_HURRY    100

/* a command is sent from node to node so often without a pause */
#define NGX_IDEMPOTENCY_REDIS_MOVES    5

/* milliseconds that a node without slots stays */
#define NGX_IDEMPOTENCY_REDIS_UNUSED    10000

typedef struct {
    ngx_idempotency_redis_map_t         map;         /* first, see map.c */
    ngx_idempotency_redis_t            *redis;
    ngx_idempotency_redis_seeds_t      *seeds;
    ngx_idempotency_redis_node_t       *asked;
    ngx_idempotency_redis_cmd_t         cmd;
    ngx_str_t                           args[2];
    ngx_event_t                         timer;
    ngx_msec_t                          began;
    unsigned                            asking:1;
    unsigned                            again:1;
    unsigned                            warned:1;
} ngx_idempotency_redis_cluster_t;


static ngx_int_t ngx_idempotency_redis_cluster_start(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_cluster_stop(ngx_idempotency_redis_t *redis);
static ngx_idempotency_redis_node_t *ngx_idempotency_redis_cluster_pick(
    ngx_idempotency_redis_t *redis, ngx_str_t *key, ngx_uint_t *hope);
static ngx_idempotency_redis_node_t *ngx_idempotency_redis_cluster_any(
    ngx_idempotency_redis_t *redis);
static ngx_int_t ngx_idempotency_redis_cluster_reply(
    ngx_idempotency_redis_node_t *node, ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_cluster_moved(
    ngx_idempotency_redis_node_t *from, ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply, ngx_uint_t ask);
static ngx_int_t ngx_idempotency_redis_cluster_parse(
    ngx_idempotency_redis_reply_t *reply, ngx_uint_t *slot, ngx_str_t *host,
    in_port_t *port);
static void ngx_idempotency_redis_cluster_ready(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_cluster_lost(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_cluster_soon(ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_cluster_timer(ngx_event_t *ev);
static ngx_int_t ngx_idempotency_redis_cluster_ask(
    ngx_idempotency_redis_cluster_t *cluster,
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_cluster_slots(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_cluster_let_go(
    ngx_idempotency_redis_cluster_t *cluster);


static ngx_idempotency_redis_node_type_t  ngx_idempotency_redis_cluster_node = {
    NGX_IDEMPOTENCY_REDIS_KIND_DATA,
    ngx_idempotency_redis_cluster_reply,
    ngx_idempotency_redis_cluster_ready,
    ngx_idempotency_redis_cluster_lost,
    NULL,
    NULL,
    NULL,
    0,
    0
};


ngx_idempotency_redis_topology_t  ngx_idempotency_redis_cluster = {
    ngx_idempotency_redis_cluster_start,
    ngx_idempotency_redis_cluster_stop,
    ngx_idempotency_redis_cluster_pick,
    ngx_idempotency_redis_map_part,
    ngx_idempotency_redis_map_next,
    1
};


static ngx_int_t
ngx_idempotency_redis_cluster_start(ngx_idempotency_redis_t *redis)
{
    ngx_event_t                      *ev;
    ngx_idempotency_redis_cluster_t  *cluster;

    cluster = ngx_calloc(sizeof(ngx_idempotency_redis_cluster_t),
                         ngx_cycle->log);
    if (cluster == NULL) {
        return NGX_ERROR;
    }

    redis->map = cluster;
    cluster->redis = redis;
    cluster->map.type = &ngx_idempotency_redis_cluster_node;

    ngx_str_set(&cluster->args[0], "CLUSTER");
    ngx_str_set(&cluster->args[1], "SLOTS");

    cluster->cmd.args = cluster->args;
    cluster->cmd.nargs = 2;
    cluster->cmd.handler = ngx_idempotency_redis_cluster_slots;
    cluster->cmd.data = cluster;

    ev = &cluster->timer;

    ev->handler = ngx_idempotency_redis_cluster_timer;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    cluster->seeds = ngx_idempotency_redis_seeds_start(redis);

    return cluster->seeds ? ngx_idempotency_redis_seeds_dial(cluster->seeds)
                          : NGX_ERROR;
}


static void
ngx_idempotency_redis_cluster_stop(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_cluster_t  *cluster;

    cluster = redis->map;

    if (cluster == NULL) {
        return;
    }

    ngx_idempotency_redis_seeds_stop(cluster->seeds);

    if (cluster->timer.timer_set) {
        ngx_del_timer(&cluster->timer);
    }

    ngx_free(cluster);
    redis->map = NULL;
}


static ngx_idempotency_redis_node_t *
ngx_idempotency_redis_cluster_pick(ngx_idempotency_redis_t *redis,
    ngx_str_t *key, ngx_uint_t *hope)
{
    ngx_idempotency_redis_node_t     *node;
    ngx_idempotency_redis_cluster_t  *cluster;

    cluster = redis->map;

    if (key == NULL) {
        return ngx_idempotency_redis_cluster_any(redis);
    }

    node = cluster->map.slots[ngx_idempotency_redis_slot(key)];

    if (node == NULL) {

        /* only nodes of the map have counters */

        ngx_idempotency_redis_cluster_soon(redis);

        node = ngx_idempotency_redis_cluster_any(redis);
        *hope = node && (ngx_idempotency_redis_node_is_up(node)
                         || !node->conns[0].refuses);

        return NULL;
    }

    return node;
}


static ngx_idempotency_redis_node_t *
ngx_idempotency_redis_cluster_any(ngx_idempotency_redis_t *redis)
{
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node, *hope;

    hope = NULL;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (ngx_idempotency_redis_node_is_up(node)) {

            /* the next call returns another node */

            ngx_queue_remove(q);
            ngx_queue_insert_tail(&redis->nodes, q);

            return node;
        }

        if (hope == NULL || hope->conns[0].refuses) {
            hope = node;
        }
    }

    return hope;
}


static ngx_int_t
ngx_idempotency_redis_cluster_reply(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    if (ngx_idempotency_redis_reply_type(reply)
        != NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        if (cmd->key) {

            /* it still has its slots, and no replica has taken over */

            node->missed = 0;
        }

        return NGX_DECLINED;
    }

    if (ngx_idempotency_redis_reply_is_error(reply, "MOVED ")) {
        ngx_idempotency_redis_cluster_moved(node, cmd, reply, 0);
        return NGX_OK;
    }

    if (ngx_idempotency_redis_reply_is_error(reply, "ASK ")) {
        ngx_idempotency_redis_cluster_moved(node, cmd, reply, 1);
        return NGX_OK;
    }

    if (ngx_idempotency_redis_error_is(reply, "TRYAGAIN")
        || ngx_idempotency_redis_error_is(reply, "CLUSTERDOWN")
        || ngx_idempotency_redis_error_is_no_master(reply))
    {
        ngx_idempotency_redis_cluster_soon(node->redis);
        ngx_idempotency_redis_topology_wait(node->redis, cmd);
        return NGX_OK;
    }

    return NGX_DECLINED;
}


/*
 * MOVED: another node has the slot; ASK: the slot is being moved, and this key
 * was already.  A node that is not known to be a master is used only when the
 * map has it: it may have taken over from one that is lost.
 */

static void
ngx_idempotency_redis_cluster_moved(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t ask)
{
    in_port_t                         port;
    ngx_str_t                         host;
    ngx_uint_t                        slot;
    ngx_idempotency_redis_t          *redis;
    ngx_idempotency_redis_node_t     *node;
    ngx_idempotency_redis_cluster_t  *cluster;

    redis = from->redis;
    cluster = redis->map;

    if (!ask) {
        ngx_idempotency_redis_cluster_soon(redis);
    }

    if (cmd->moves++ >= NGX_IDEMPOTENCY_REDIS_MOVES
        || ngx_idempotency_redis_cluster_parse(reply, &slot, &host, &port)
           != NGX_OK)
    {
        cmd->moves = 0;
        ngx_idempotency_redis_topology_wait(redis, cmd);
        return;
    }

    if (host.len == 0) {
        host = from->peer.host.name;
    }

    node = ngx_idempotency_redis_map_find(redis, &host, port);

    if (ask && node == NULL) {

        /* it has no slot yet */

        node = ngx_idempotency_redis_node_create_at(redis, &host, port, NULL,
                                                   cluster->map.type);
    }

    if (node == NULL || (!ask && !node->master)) {
        ngx_idempotency_redis_topology_wait(redis, cmd);
        return;
    }

    node->used = ngx_current_msec;

    if (!ask) {
        ngx_idempotency_redis_map_move(cluster->map.slots[slot], node);
        cluster->map.slots[slot] = node;
    }

    cmd->asking = ask;

    if (ngx_idempotency_redis_node_send(node, cmd) != NGX_AGAIN) {
        ngx_idempotency_redis_topology_wait(redis, cmd);
    }
}


/* MOVED 3999 host:port */

static ngx_int_t
ngx_idempotency_redis_cluster_parse(ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t *slot, ngx_str_t *host, in_port_t *port)
{
    u_char     *p, *last, *colon;
    ngx_int_t   n;
    ngx_str_t   text;

    ngx_idempotency_redis_reply_string(reply, &text);

    last = text.data + text.len;

    p = ngx_strlchr(text.data, last, ' ');
    if (p == NULL) {
        return NGX_DECLINED;
    }

    text.data = p + 1;

    p = ngx_strlchr(text.data, last, ' ');
    if (p == NULL) {
        return NGX_DECLINED;
    }

    n = ngx_atoi(text.data, p - text.data);

    if (n < 0 || n >= NGX_IDEMPOTENCY_REDIS_SLOTS) {
        return NGX_DECLINED;
    }

    *slot = n;

    /* an address of IPv6 has colons and no brackets */

    host->data = p + 1;
    colon = NULL;

    for (p = host->data; p < last; p++) {
        if (*p == ':') {
            colon = p;
        }
    }

    if (colon == NULL) {
        return NGX_DECLINED;
    }

    host->len = colon - host->data;

    n = ngx_atoi(colon + 1, last - colon - 1);

    if (n < 1 || n > 65535) {
        return NGX_DECLINED;
    }

    *port = (in_port_t) n;

    return NGX_OK;
}


static void
ngx_idempotency_redis_cluster_ready(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_t          *redis;
    ngx_idempotency_redis_cluster_t  *cluster;

    redis = node->redis;
    cluster = redis->map;

    if (!cluster->map.known) {
        ngx_idempotency_redis_cluster_soon(redis);
    }

    ngx_idempotency_redis_topology_changed(redis);

    redis->on_ready(redis);
}


static void
ngx_idempotency_redis_cluster_lost(ngx_idempotency_redis_node_t *node)
{
    node->missed = 1;

    ngx_idempotency_redis_cluster_soon(node->redis);
}


static void
ngx_idempotency_redis_cluster_soon(ngx_idempotency_redis_t *redis)
{
    ngx_msec_t                        gone, delay;
    ngx_event_t                      *ev;
    ngx_idempotency_redis_cluster_t  *cluster;

    cluster = redis->map;

    if (cluster == NULL) {
        return;
    }

    if (cluster->asking) {
        cluster->again = 1;
        return;
    }

    gone = ngx_current_msec - cluster->began;

    delay = gone < NGX_IDEMPOTENCY_REDIS_HURRY
            ? NGX_IDEMPOTENCY_REDIS_HURRY - gone : 1;

    ev = &cluster->timer;

    if (ev->timer_set
        && (ngx_msec_int_t) (ev->timer.key - ngx_current_msec)
           <= (ngx_msec_int_t) delay)
    {
        return;
    }

    ngx_add_timer(ev, delay);
}


static void
ngx_idempotency_redis_cluster_timer(ngx_event_t *ev)
{
    ngx_connection_t                 *dummy;
    ngx_idempotency_redis_t          *redis;
    ngx_idempotency_redis_node_t     *node;
    ngx_idempotency_redis_cluster_t  *cluster;

    dummy = ev->data;
    redis = dummy->data;
    cluster = redis->map;

    cluster->began = ngx_current_msec;
    cluster->again = 0;

    node = ngx_idempotency_redis_cluster_any(redis);

    if (node && ngx_idempotency_redis_cluster_ask(cluster, node) == NGX_OK) {
        return;
    }

    /* none of the known nodes can be reached */

    (void) ngx_idempotency_redis_seeds_dial(cluster->seeds);

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_HURRY);
}


static ngx_int_t
ngx_idempotency_redis_cluster_ask(ngx_idempotency_redis_cluster_t *cluster,
    ngx_idempotency_redis_node_t *node)
{
    if (ngx_idempotency_redis_node_send(node, &cluster->cmd) != NGX_AGAIN) {
        return NGX_ERROR;
    }

    cluster->asked = node;
    cluster->asking = 1;

    return NGX_OK;
}


static void
ngx_idempotency_redis_cluster_slots(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_int_t                         rc;
    ngx_str_t                         text;
    ngx_idempotency_redis_node_t     *node;
    ngx_idempotency_redis_cluster_t  *cluster;

    cluster = cmd->data;

    cluster->asking = 0;
    rc = NGX_DECLINED;

    if (reply) {
        node = ngx_idempotency_redis_map_doubtful(cluster->asked, reply);

        if (node && ngx_idempotency_redis_cluster_ask(cluster, node)
                    == NGX_OK)
        {
            return;
        }

        rc = ngx_idempotency_redis_map_read(&cluster->map, cluster->asked,
                                            reply);

        if (rc != NGX_OK && !cluster->warned) {
            cluster->warned = 1;

            ngx_idempotency_redis_reply_string(reply, &text);

            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "idempotency store \"%V\": the node \"%V\" has no "
                          "map of a cluster: \"%V\"", &cluster->redis->name,
                          &cluster->asked->peer.name, &text);
        }
    }

    if (rc == NGX_OK) {
        cluster->warned = 0;

        ngx_idempotency_redis_cluster_let_go(cluster);
        ngx_idempotency_redis_topology_changed(cluster->redis);
    }

    ngx_add_timer(&cluster->timer,
                  (rc != NGX_OK || cluster->again
                   || ngx_idempotency_redis_map_is_doubtful(cluster->redis))
                  ? NGX_IDEMPOTENCY_REDIS_HURRY
                  : NGX_IDEMPOTENCY_REDIS_REFRESH);
}


/* dials masters, and lets other nodes go that have nothing to do */

static void
ngx_idempotency_redis_cluster_let_go(ngx_idempotency_redis_cluster_t *cluster)
{
    ngx_uint_t                     i, busy;
    ngx_queue_t                   *q, *next;
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_node_t  *node;

    redis = cluster->redis;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = next)
    {
        next = ngx_queue_next(q);
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (node->master) {
            node->used = ngx_current_msec;
            ngx_idempotency_redis_node_log_out(node, 0);
            ngx_idempotency_redis_node_dial(node);
            continue;
        }

        busy = (ngx_current_msec - node->used < NGX_IDEMPOTENCY_REDIS_UNUSED);

        for (i = 0; i < node->nconns; i++) {
            if (node->conns[i].ncommands) {
                busy = 1;
            }
        }

        if (!busy) {
            ngx_idempotency_redis_node_leave(node);
        }
    }
}
