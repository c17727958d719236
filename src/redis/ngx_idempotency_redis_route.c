
/*
 * From a command to the server that has its key, and again if it has not.
 */


#include "ngx_idempotency_redis_link.h"
#include "ngx_idempotency_redis_route.h"


/* milliseconds between two tries of what waits */
#define NGX_IDEMPOTENCY_REDIS_AGAIN  30


static ngx_int_t ngx_idempotency_redis_route(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_cmd_t *cmd);
static void ngx_idempotency_redis_again(ngx_event_t *ev);
static void ngx_idempotency_redis_sweep(ngx_idempotency_redis_t *redis);

static ngx_int_t ngx_idempotency_redis_single_start(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_single_stop(ngx_idempotency_redis_t *redis);
static ngx_idempotency_redis_node_t *ngx_idempotency_redis_single_pick(
    ngx_idempotency_redis_t *redis, ngx_str_t *key, ngx_uint_t *hope);
static ngx_int_t ngx_idempotency_redis_single_reply(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_single_ready(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_single_lost(
    ngx_idempotency_redis_node_t *node);


ngx_idempotency_redis_topology_t  ngx_idempotency_redis_single = {
    ngx_idempotency_redis_single_start,
    ngx_idempotency_redis_single_stop,
    ngx_idempotency_redis_single_pick,
    ngx_idempotency_redis_single_reply,
    ngx_idempotency_redis_single_ready,
    ngx_idempotency_redis_single_lost,
    NULL,
    NULL,
    1,
    0,
    0
};


ngx_int_t
ngx_idempotency_redis_start(ngx_idempotency_redis_t *redis)
{
    ngx_event_t  *ev;

    ngx_queue_init(&redis->nodes);
    ngx_queue_init(&redis->ears);
    ngx_queue_init(&redis->gone);
    ngx_queue_init(&redis->waiting);

    redis->started = 1;

    redis->dummy.fd = (ngx_socket_t) -1;
    redis->dummy.data = redis;

    ev = &redis->again;

    ngx_memzero(ev, sizeof(ngx_event_t));

    ev->handler = ngx_idempotency_redis_again;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;

    if (ngx_idempotency_redis_tick_start(redis) != NGX_OK
        || ngx_idempotency_redis_hear_start(redis) != NGX_OK
        || redis->topology->start(redis) != NGX_OK)
    {
        ngx_idempotency_redis_stop(redis);
        return NGX_ERROR;
    }

    ngx_idempotency_redis_secret_start(redis);

    return NGX_OK;
}


void
ngx_idempotency_redis_stop(ngx_idempotency_redis_t *redis)
{
    ngx_queue_t  *q;

    if (!redis->started) {
        return;
    }

    redis->started = 0;

    ngx_idempotency_redis_secret_stop(redis);
    ngx_idempotency_redis_hear_stop(redis);

    if (redis->again.timer_set) {
        ngx_del_timer(&redis->again);
    }

    ngx_queue_add(&redis->nodes, &redis->ears);
    ngx_queue_add(&redis->nodes, &redis->gone);

    while (!ngx_queue_empty(&redis->nodes)) {
        q = ngx_queue_head(&redis->nodes);

        ngx_idempotency_redis_node_free(
                    ngx_queue_data(q, ngx_idempotency_redis_node_t, queue));
    }

    ngx_idempotency_redis_abandon(&redis->waiting);

    /* commands of theirs may have been among these */

    redis->topology->stop(redis);
    ngx_idempotency_redis_tick_stop(redis);
}


ngx_int_t
ngx_idempotency_redis_send(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_cmd_t *cmd)
{
    ngx_int_t  rc;

    if (!redis->started) {
        return NGX_ERROR;
    }

    cmd->until = ngx_current_msec + (cmd->within ? cmd->within
                                               : redis->timeout);
    cmd->moves = 0;
    cmd->skip = 0;
    cmd->stuck = 0;

    rc = ngx_idempotency_redis_route(redis, cmd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    /* rc == NGX_DECLINED: nobody has it now, somebody may soon */

    ngx_idempotency_redis_wait(redis, cmd);

    return NGX_AGAIN;
}


/* NGX_AGAIN, NGX_ERROR, or NGX_DECLINED: it is worth to wait */

static ngx_int_t
ngx_idempotency_redis_route(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_cmd_t *cmd)
{
    ngx_uint_t                     hope;
    ngx_idempotency_redis_node_t  *node;

    hope = 0;

    node = (cmd->part && redis->topology->part)
           ? redis->topology->part(redis, cmd->part, &hope)
           : redis->topology->pick(redis, cmd->key, &hope);

    if (node == NULL) {
        return hope ? NGX_DECLINED : NGX_ERROR;
    }

    return ngx_idempotency_redis_node_send(node, cmd);
}


ngx_uint_t
ngx_idempotency_redis_next_part(ngx_idempotency_redis_t *redis,
    ngx_uint_t part)
{
    return redis->topology->next ? redis->topology->next(redis, part) : 0;
}


void
ngx_idempotency_redis_wait(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_cmd_t *cmd)
{
    cmd->sent = 0;
    cmd->skip = 0;

    ngx_queue_insert_tail(&redis->waiting, &cmd->queue);

    if (!redis->again.timer_set) {
        redis->again.cancelable = 0;
        ngx_add_timer(&redis->again, NGX_IDEMPOTENCY_REDIS_AGAIN);
    }
}


void
ngx_idempotency_redis_changed(ngx_idempotency_redis_t *redis)
{
    if (ngx_queue_empty(&redis->waiting)
        && ngx_queue_empty(&redis->gone))
    {
        return;
    }

    /* nobody waits for what is only to be freed */

    redis->again.cancelable = ngx_queue_empty(&redis->waiting);

    ngx_add_timer(&redis->again, 1);
}


static void
ngx_idempotency_redis_again(ngx_event_t *ev)
{
    ngx_int_t                     rc;
    ngx_queue_t                  *q, queue;
    ngx_connection_t             *dummy;
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_cmd_t  *cmd;

    dummy = ev->data;
    redis = dummy->data;

    ngx_idempotency_redis_sweep(redis);

    if (ngx_queue_empty(&redis->waiting)) {
        return;
    }

    ngx_queue_init(&queue);
    ngx_queue_add(&queue, &redis->waiting);
    ngx_queue_init(&redis->waiting);

    while (!ngx_queue_empty(&queue)) {
        q = ngx_queue_head(&queue);
        ngx_queue_remove(q);

        cmd = ngx_queue_data(q, ngx_idempotency_redis_cmd_t, queue);

        rc = NGX_DECLINED;

        if ((ngx_msec_int_t) (cmd->until - ngx_current_msec) > 0) {
            rc = ngx_idempotency_redis_route(redis, cmd);

            if (rc == NGX_AGAIN) {
                continue;
            }

            if (rc == NGX_DECLINED) {
                ngx_idempotency_redis_wait(redis, cmd);
                continue;
            }
        }

        cmd->sent = 0;
        cmd->error = (rc == NGX_ERROR) ? NGX_IDEMPOTENCY_REDIS_CONNECT
                                       : NGX_IDEMPOTENCY_REDIS_TIMEOUT;

        if (cmd->handler) {
            cmd->handler(cmd, NULL);
        }
    }
}


/* whoever had sent something to these was told meanwhile */

static void
ngx_idempotency_redis_sweep(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                     i, told;
    ngx_queue_t                   *q, *next;
    ngx_idempotency_redis_node_t  *node;

    for (q = ngx_queue_head(&redis->gone);
         q != ngx_queue_sentinel(&redis->gone);
         q = next)
    {
        next = ngx_queue_next(q);
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        told = 1;

        for (i = 0; i < node->nconns; i++) {
            if (!ngx_queue_empty(&node->conns[i].lost)) {
                told = 0;
            }
        }

        if (told) {
            ngx_idempotency_redis_node_free(node);
        }
    }
}


void
ngx_idempotency_redis_distrust(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                     i;
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node;
    ngx_idempotency_redis_conn_t  *conn;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        for (i = 0; i < node->nconns; i++) {
            conn = &node->conns[i];

            if (node->kind != NGX_IDEMPOTENCY_REDIS_SERVER
                || conn->state != NGX_IDEMPOTENCY_REDIS_READY)
            {
                continue;
            }

            ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_SAID_PROTOCOL, 0,
                                     "broke the protocol: %s",
                                     "a reply to another command");
            ngx_idempotency_redis_conn_lost(conn,
                                     NGX_IDEMPOTENCY_REDIS_CONNECT);
        }
    }
}


ngx_uint_t
ngx_idempotency_redis_is_spread(ngx_idempotency_redis_t *redis)
{
    return redis->topology->slots;
}


ngx_uint_t
ngx_idempotency_redis_is_up(ngx_idempotency_redis_t *redis)
{
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node;

    if (!redis->started) {
        return 0;
    }

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (node->kind == NGX_IDEMPOTENCY_REDIS_SERVER
            && ngx_idempotency_redis_node_is_up(node))
        {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_idempotency_redis_single_start(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_node_t  *node;

    node = ngx_idempotency_redis_node_create(redis, redis->places.elts,
                                             NGX_IDEMPOTENCY_REDIS_SERVER);
    if (node == NULL) {
        return NGX_ERROR;
    }

    ngx_idempotency_redis_loss_count(node, 0);
    ngx_idempotency_redis_node_dial(node);

    return NGX_OK;
}


static void
ngx_idempotency_redis_single_stop(ngx_idempotency_redis_t *redis)
{
    (void) redis;
}


static ngx_idempotency_redis_node_t *
ngx_idempotency_redis_single_pick(ngx_idempotency_redis_t *redis,
    ngx_str_t *key, ngx_uint_t *hope)
{
    ngx_idempotency_redis_node_t  *node;

    (void) key;

    node = ngx_queue_data(ngx_queue_head(&redis->nodes),
                          ngx_idempotency_redis_node_t, queue);

    if (ngx_idempotency_redis_node_is_moving(node)) {
        *hope = 1;
        return NULL;
    }

    return node;
}


static ngx_int_t
ngx_idempotency_redis_single_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                      text;
    ngx_idempotency_redis_node_t  *node;

    node = conn->node;

    if (!ngx_idempotency_redis_says_no_master(reply)) {

        if (ngx_idempotency_redis_reply_type(reply)
            != NGX_IDEMPOTENCY_REDIS_ERROR)
        {
            node->moving = 0;
        }

        return NGX_DECLINED;
    }

    if (!node->moving) {
        ngx_idempotency_redis_reply_string(reply, &text);

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\" refuses: \"%V\", node "
                      "\"%V\": a master is looked for", &conn->redis->name,
                      &text, &conn->at.name);
    }

    ngx_idempotency_redis_wait(conn->redis, cmd);
    ngx_idempotency_redis_node_move(node);

    return NGX_OK;
}


static void
ngx_idempotency_redis_single_ready(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_changed(node->redis);

    node->redis->ready(node->redis);
}


static void
ngx_idempotency_redis_single_lost(ngx_idempotency_redis_node_t *node)
{
    (void) node;
}
