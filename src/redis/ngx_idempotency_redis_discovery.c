
/*
 * Sentinels that are not in the target: the configured ones know them.  They
 * are asked as well, so that a failover is noticed when all configured ones
 * are gone.  None is counted twice: a sentinel is identified by its id, or by
 * its address if it does not know SENTINEL MYID.
 */


#include "ngx_idempotency_redis_sentinel.h"


/* milliseconds between two searches, and until one that is down is given up */
#define NGX_IDEMPOTENCY_REDIS_SEARCH  10000
#define NGX_IDEMPOTENCY_REDIS_MISS    60000


static void ngx_idempotency_redis_discovery_id(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_discovery_found(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_discovery_read(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_reply_t *reply);
static ngx_uint_t ngx_idempotency_redis_discovery_is_known(
    ngx_idempotency_redis_watch_t *watch, ngx_str_t *id, ngx_str_t *host,
    in_port_t port);
static void ngx_idempotency_redis_discovery_add(ngx_idempotency_redis_t *redis,
    ngx_str_t *id, ngx_str_t *host, in_port_t port);
static ngx_uint_t ngx_idempotency_redis_discovery_is_twice(
    ngx_idempotency_redis_watch_t *watch,
    ngx_idempotency_redis_sentinel_t *sentinel);
static void ngx_idempotency_redis_discovery_leave(
     ngx_idempotency_redis_sentinel_t *sentinel);


void
ngx_idempotency_redis_discovery_ready(
    ngx_idempotency_redis_sentinel_t *sentinel)
{
    ngx_idempotency_redis_watch_t  *watch;

    watch = sentinel->redis->map;

    if (sentinel->pending) {
        return;
    }

    sentinel->get_id.args = watch->get_id;
    sentinel->get_id.nargs = 2;
    sentinel->get_id.handler = ngx_idempotency_redis_discovery_id;
    sentinel->get_id.data = sentinel;

    if (ngx_idempotency_redis_node_send(sentinel->node, &sentinel->get_id)
        == NGX_AGAIN)
    {
        sentinel->pending++;
    }

    sentinel->get_others.args = watch->get_others;
    sentinel->get_others.nargs = 3;
    sentinel->get_others.handler = ngx_idempotency_redis_discovery_found;
    sentinel->get_others.data = sentinel;

    if (ngx_idempotency_redis_node_send(sentinel->node, &sentinel->get_others)
        == NGX_AGAIN)
    {
        sentinel->pending++;
    }
}


/* SENTINEL MYID exists since Redis 6.2 */

static void
ngx_idempotency_redis_discovery_id(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                          id;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    sentinel = cmd->data;
    sentinel->pending--;

    if (reply == NULL
        || ngx_idempotency_redis_reply_type(reply)
           != NGX_IDEMPOTENCY_REDIS_STRING)
    {
        return;
    }

    ngx_idempotency_redis_reply_string(reply, &id);

    if (id.len == NGX_IDEMPOTENCY_REDIS_ID) {
        ngx_memcpy(sentinel->id, id.data, id.len);
        sentinel->identified = 1;
    }
}


static void
ngx_idempotency_redis_discovery_found(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_uint_t                         i;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    sentinel = cmd->data;
    sentinel->pending--;

    if (reply == NULL || ngx_exiting) {
        return;
    }

    for (i = 0; i < ngx_idempotency_redis_reply_elements(reply); i++) {
        ngx_idempotency_redis_discovery_read(sentinel->redis,
                                 ngx_idempotency_redis_reply_element(reply, i));
    }
}


static void
ngx_idempotency_redis_discovery_read(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_int_t  port;
    ngx_str_t  id, host, text;

    ngx_idempotency_redis_reply_value(reply, "ip", &host);
    ngx_idempotency_redis_reply_value(reply, "port", &text);
    ngx_idempotency_redis_reply_value(reply, "runid", &id);

    port = ngx_atoi(text.data, text.len);

    if (id.len != NGX_IDEMPOTENCY_REDIS_ID) {
        id.len = 0;
    }

    if (host.len && host.len <= 255 && port > 0 && port < 65536
        && !ngx_idempotency_redis_discovery_is_known(redis->map, &id, &host,
                                                     (in_port_t) port))
    {
        ngx_idempotency_redis_discovery_add(redis, &id, &host,
                                            (in_port_t) port);
    }
}


static ngx_uint_t
ngx_idempotency_redis_discovery_is_known(ngx_idempotency_redis_watch_t *watch,
    ngx_str_t *id, ngx_str_t *host, in_port_t port)
{
    ngx_uint_t                         i;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->node == NULL) {
            continue;
        }

        if ((id->len && sentinel->identified
             && ngx_memcmp(sentinel->id, id->data, id->len) == 0)
            || ngx_idempotency_redis_node_is_at(sentinel->node, host, port))
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_idempotency_redis_discovery_add(ngx_idempotency_redis_t *redis,
    ngx_str_t *id, ngx_str_t *host, in_port_t port)
{
    ngx_uint_t                         i;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    watch = redis->map;

    for (i = watch->n; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->node || sentinel->pending) {
            continue;
        }

        ngx_memzero(sentinel, sizeof(ngx_idempotency_redis_sentinel_t));

        sentinel->redis = redis;
        sentinel->up_at = ngx_current_msec;

        sentinel->node = ngx_idempotency_redis_node_create_at(redis, host, port,
                                                NULL, watch->node_type);
        if (sentinel->node == NULL) {
            return;
        }

        sentinel->events = ngx_idempotency_redis_node_create_at(redis, host,
                                                port, NULL,
                                                watch->events_type);

        if (id->len) {
            ngx_memcpy(sentinel->id, id->data, id->len);
            sentinel->identified = 1;
        }

        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has a sentinel \"%V\" that is "
                      "not in its target", &redis->name,
                      &sentinel->node->peer.name);

        ngx_idempotency_redis_node_dial(sentinel->node);

        if (sentinel->events) {
            ngx_idempotency_redis_node_dial(sentinel->events);
        }

        return;
    }
}


void
ngx_idempotency_redis_discovery_search(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                         i, search;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    watch = redis->map;

    search = (ngx_current_msec - watch->searched
              >= NGX_IDEMPOTENCY_REDIS_SEARCH);

    if (search) {
        watch->searched = ngx_current_msec;
    }

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->node == NULL) {
            continue;
        }

        if (ngx_idempotency_redis_node_is_up(sentinel->node)) {
            sentinel->up_at = ngx_current_msec;

            if (search) {
                ngx_idempotency_redis_discovery_ready(sentinel);
            }
        }

        if (sentinel->configured || sentinel->pending) {
            continue;
        }

        if (ngx_idempotency_redis_discovery_is_twice(watch, sentinel)
            || ngx_current_msec - sentinel->up_at
               >= NGX_IDEMPOTENCY_REDIS_MISS)
        {
            ngx_idempotency_redis_discovery_leave(sentinel);
        }
    }
}


/* a configured sentinel has the same id */

static ngx_uint_t
ngx_idempotency_redis_discovery_is_twice(ngx_idempotency_redis_watch_t *watch,
    ngx_idempotency_redis_sentinel_t *sentinel)
{
    ngx_idempotency_redis_sentinel_t  *other;

    for (other = watch->sentinels; other < sentinel; other++) {

        if (other->node && other->identified && sentinel->identified
            && ngx_memcmp(other->id, sentinel->id, NGX_IDEMPOTENCY_REDIS_ID)
               == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_idempotency_redis_discovery_leave(
    ngx_idempotency_redis_sentinel_t *sentinel)
{
    ngx_idempotency_redis_node_leave(sentinel->node);

    if (sentinel->events) {
        ngx_idempotency_redis_node_leave(sentinel->events);
    }

    sentinel->node = NULL;
    sentinel->events = NULL;
    sentinel->host.len = 0;
}
