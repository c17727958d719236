
/*
 * The simplest topology: one server, behind one name.
 */


#include "ngx_idempotency_redis_topology.h"


static ngx_int_t ngx_idempotency_redis_single_start(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_single_stop(ngx_idempotency_redis_t *redis);
static ngx_idempotency_redis_node_t *ngx_idempotency_redis_single_pick(
    ngx_idempotency_redis_t *redis, ngx_str_t *key, ngx_uint_t *hope);
static ngx_int_t ngx_idempotency_redis_single_reply(
    ngx_idempotency_redis_node_t *node, ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_single_ready(
    ngx_idempotency_redis_node_t *node);


static ngx_idempotency_redis_node_type_t  ngx_idempotency_redis_single_node = {
    NGX_IDEMPOTENCY_REDIS_KIND_DATA,
    ngx_idempotency_redis_single_reply,
    ngx_idempotency_redis_single_ready,
    NULL,
    NULL,
    NULL,
    NULL,
    1,
    0
};


ngx_idempotency_redis_topology_t  ngx_idempotency_redis_single = {
    ngx_idempotency_redis_single_start,
    ngx_idempotency_redis_single_stop,
    ngx_idempotency_redis_single_pick,
    NULL,
    NULL,
    0
};


static ngx_int_t
ngx_idempotency_redis_single_start(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_node_t  *node;

    node = ngx_idempotency_redis_node_create(redis, redis->hosts.elts,
                                            &ngx_idempotency_redis_single_node);
    if (node == NULL) {
        return NGX_ERROR;
    }

    node->peer.counter = ngx_idempotency_redis_loss_counter(redis, 0);

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
ngx_idempotency_redis_single_reply(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t  text;

    if (!ngx_idempotency_redis_error_is_no_master(reply)) {

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
                      "\"%V\": looking for a master", &node->redis->name,
                      &text, &node->at.name);
    }

    ngx_idempotency_redis_topology_wait(node->redis, cmd);
    ngx_idempotency_redis_node_move(node);

    return NGX_OK;
}


static void
ngx_idempotency_redis_single_ready(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_topology_changed(node->redis);

    node->redis->on_ready(node->redis);
}
