
/*
 * From a command to the node that has its key, and again if it has not.
 */


#include "ngx_idempotency_redis_client.h"
#include "ngx_idempotency_redis_topology.h"


/* milliseconds until commands that wait are tried again */
#define NGX_IDEMPOTENCY_REDIS_RETRY  30


static ngx_int_t ngx_idempotency_redis_topology_route(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_cmd_t *cmd);
static void ngx_idempotency_redis_topology_retry(ngx_event_t *ev);
static void ngx_idempotency_redis_topology_sweep(
    ngx_idempotency_redis_t *redis);


void
ngx_idempotency_redis_topology_init(ngx_idempotency_redis_t *redis)
{
    ngx_event_t  *ev;

    ngx_queue_init(&redis->waiting);
    ngx_queue_init(&redis->leaving);

    ev = &redis->retry;

    ngx_memzero(ev, sizeof(ngx_event_t));

    ev->handler = ngx_idempotency_redis_topology_retry;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
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
    cmd->asking = 0;
    cmd->stuck = 0;

    rc = ngx_idempotency_redis_topology_route(redis, cmd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    /* rc == NGX_DECLINED: no node has the key now, one may have it soon */

    ngx_idempotency_redis_topology_wait(redis, cmd);

    return NGX_AGAIN;
}


/* NGX_AGAIN, NGX_ERROR, or NGX_DECLINED: a node may have the key soon */

static ngx_int_t
ngx_idempotency_redis_topology_route(ngx_idempotency_redis_t *redis,
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


void
ngx_idempotency_redis_topology_wait(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_cmd_t *cmd)
{
    cmd->sent = 0;
    cmd->asking = 0;

    ngx_queue_insert_tail(&redis->waiting, &cmd->queue);

    if (!redis->retry.timer_set) {
        redis->retry.cancelable = 0;
        ngx_add_timer(&redis->retry, NGX_IDEMPOTENCY_REDIS_RETRY);
    }
}


void
ngx_idempotency_redis_topology_changed(ngx_idempotency_redis_t *redis)
{
    if (ngx_queue_empty(&redis->waiting)
        && ngx_queue_empty(&redis->leaving))
    {
        return;
    }

    /* an exiting worker does not wait for nodes that are only to be freed */

    redis->retry.cancelable = ngx_queue_empty(&redis->waiting);

    ngx_add_timer(&redis->retry, 1);
}


static void
ngx_idempotency_redis_topology_retry(ngx_event_t *ev)
{
    ngx_int_t                     rc;
    ngx_queue_t                  *q, queue;
    ngx_connection_t             *dummy;
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_cmd_t  *cmd;

    dummy = ev->data;
    redis = dummy->data;

    ngx_idempotency_redis_topology_sweep(redis);

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
            rc = ngx_idempotency_redis_topology_route(redis, cmd);

            if (rc == NGX_AGAIN) {
                continue;
            }

            if (rc == NGX_DECLINED) {
                ngx_idempotency_redis_topology_wait(redis, cmd);
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


/* frees nodes that have left and have no commands any more */

static void
ngx_idempotency_redis_topology_sweep(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                     i, busy;
    ngx_queue_t                   *q, *next;
    ngx_idempotency_redis_node_t  *node;

    for (q = ngx_queue_head(&redis->leaving);
         q != ngx_queue_sentinel(&redis->leaving);
         q = next)
    {
        next = ngx_queue_next(q);
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        busy = 0;

        for (i = 0; i < node->nconns; i++) {
            if (!ngx_queue_empty(&node->conns[i].lost)) {
                busy = 1;
            }
        }

        if (!busy) {
            ngx_idempotency_redis_node_free(node);
        }
    }
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

        if (node->type->kind == NGX_IDEMPOTENCY_REDIS_KIND_DATA
            && ngx_idempotency_redis_node_is_up(node))
        {
            return 1;
        }
    }

    return 0;
}
