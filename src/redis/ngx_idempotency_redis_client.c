
/*
 * The client: starts and stops the connections of a worker.
 */


#include "ngx_idempotency_redis_client.h"
#include "ngx_idempotency_redis_login.h"
#include "ngx_idempotency_redis_pipe.h"
#include "ngx_idempotency_redis_topology.h"


/* milliseconds between two looks at password files */
#define NGX_IDEMPOTENCY_REDIS_CREDENTIALS  1000


static void ngx_idempotency_redis_client_credentials(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_client_check(ngx_event_t *ev);


ngx_int_t
ngx_idempotency_redis_start(ngx_idempotency_redis_t *redis)
{
    ngx_queue_init(&redis->nodes);
    ngx_queue_init(&redis->subscribers);

    redis->started = 1;

    redis->dummy.fd = (ngx_socket_t) -1;
    redis->dummy.data = redis;

    ngx_idempotency_redis_topology_init(redis);

    if (ngx_idempotency_redis_tick_start(redis) != NGX_OK
        || ngx_idempotency_redis_pubsub_start(redis) != NGX_OK
        || redis->topology->start(redis) != NGX_OK)
    {
        ngx_idempotency_redis_stop(redis);
        return NGX_ERROR;
    }

    ngx_idempotency_redis_client_credentials(redis);

    return NGX_OK;
}


static void
ngx_idempotency_redis_client_credentials(ngx_idempotency_redis_t *redis)
{
    ngx_event_t  *ev;

    if (redis->account.password_file.len == 0
        && redis->sentinel.password_file.len == 0)
    {
        return;
    }

    ev = &redis->credentials;

    ngx_memzero(ev, sizeof(ngx_event_t));

    ev->handler = ngx_idempotency_redis_client_check;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_CREDENTIALS);
}


static void
ngx_idempotency_redis_client_check(ngx_event_t *ev)
{
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_node_t  *node;
    ngx_uint_t                     i;
    ngx_queue_t                   *q;
    ngx_connection_t              *dummy;

    dummy = ev->data;
    redis = dummy->data;

    ngx_idempotency_redis_credentials_check(redis);

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        for (i = 0; i < node->nconns; i++) {
            ngx_idempotency_redis_credentials_renew(&node->conns[i]);
        }
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_CREDENTIALS);
}


void
ngx_idempotency_redis_stop(ngx_idempotency_redis_t *redis)
{
    ngx_queue_t  *q;

    if (!redis->started) {
        return;
    }

    redis->started = 0;

    if (redis->credentials.timer_set) {
        ngx_del_timer(&redis->credentials);
    }

    ngx_idempotency_redis_pubsub_stop(redis);

    if (redis->retry.timer_set) {
        ngx_del_timer(&redis->retry);
    }

    ngx_queue_add(&redis->nodes, &redis->subscribers);
    ngx_queue_add(&redis->nodes, &redis->leaving);

    while (!ngx_queue_empty(&redis->nodes)) {
        q = ngx_queue_head(&redis->nodes);

        ngx_idempotency_redis_node_free(
                    ngx_queue_data(q, ngx_idempotency_redis_node_t, queue));
    }

    ngx_idempotency_redis_queue_abandon(&redis->waiting);

    /* commands of these two may have been among the abandoned ones */

    redis->topology->stop(redis);
    ngx_idempotency_redis_tick_stop(redis);
}


ngx_uint_t
ngx_idempotency_redis_next_part(ngx_idempotency_redis_t *redis,
    ngx_uint_t part)
{
    return redis->topology->next ? redis->topology->next(redis, part) : 0;
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

            if (node->type->kind != NGX_IDEMPOTENCY_REDIS_KIND_DATA
                || conn->state != NGX_IDEMPOTENCY_REDIS_READY)
            {
                continue;
            }

            ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_REPORT_PROTOCOL, 0,
                                     "broke the protocol: %s",
                                     "a reply to another command");
            ngx_idempotency_redis_conn_lost(conn,
                                            NGX_IDEMPOTENCY_REDIS_CONNECT);
        }
    }
}


ngx_idempotency_redis_shard_t *
ngx_idempotency_redis_shard(ngx_idempotency_redis_t *redis, ngx_str_t *key)
{
    ngx_idempotency_redis_node_t  *node;
    ngx_uint_t                     hope;

    if (!redis->started) {
        return NULL;
    }

    node = redis->topology->pick(redis, key, &hope);

    return node && node->peer.counter ? node->peer.counter->shard : NULL;
}
