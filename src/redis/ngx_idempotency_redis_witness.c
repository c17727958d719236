
/*
 * Sentinels that are not in the target: those that are know them.  They are
 * asked as well, so that a failover is noticed when all of the target are
 * gone.  One that is in the target is not counted a second time: it is known
 * by its id, or by its address where it does not tell that.
 */


#include "ngx_idempotency_redis_sentinel.h"


/* milliseconds: between two looks for others, and until one is given up */
#define NGX_IDEMPOTENCY_REDIS_SEARCH  10000
#define NGX_IDEMPOTENCY_REDIS_MISS    60000


static void ngx_idempotency_redis_witness_who(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_witness_others(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_witness_read(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_reply_t *reply);
static ngx_uint_t ngx_idempotency_redis_witness_is_known(
    ngx_idempotency_redis_watch_t *watch, ngx_str_t *id, ngx_str_t *host,
    in_port_t port);
static void ngx_idempotency_redis_witness_add(ngx_idempotency_redis_t *redis,
    ngx_str_t *id, ngx_str_t *host, in_port_t port);
static ngx_uint_t ngx_idempotency_redis_witness_is_twice(
    ngx_idempotency_redis_watch_t *watch,
    ngx_idempotency_redis_sentinel_t *sentinel);
static void ngx_idempotency_redis_witness_leave(
    ngx_idempotency_redis_sentinel_t *sentinel);


void
ngx_idempotency_redis_witness_ready(
    ngx_idempotency_redis_sentinel_t *sentinel)
{
    ngx_idempotency_redis_watch_t  *watch;

    watch = sentinel->redis->map;

    if (sentinel->pending) {
        return;
    }

    sentinel->who.args = watch->who;
    sentinel->who.nargs = 2;
    sentinel->who.handler = ngx_idempotency_redis_witness_who;
    sentinel->who.data = sentinel;

    if (ngx_idempotency_redis_node_send(sentinel->asked, &sentinel->who)
        == NGX_AGAIN)
    {
        sentinel->pending++;
    }

    sentinel->others.args = watch->others;
    sentinel->others.nargs = 3;
    sentinel->others.handler = ngx_idempotency_redis_witness_others;
    sentinel->others.data = sentinel;

    if (ngx_idempotency_redis_node_send(sentinel->asked, &sentinel->others)
        == NGX_AGAIN)
    {
        sentinel->pending++;
    }
}


/* since Redis 6.2; one that does not know it is known by its address */

static void
ngx_idempotency_redis_witness_who(ngx_idempotency_redis_cmd_t *cmd,
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
ngx_idempotency_redis_witness_others(ngx_idempotency_redis_cmd_t *cmd,
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
        ngx_idempotency_redis_witness_read(sentinel->redis,
                             ngx_idempotency_redis_reply_element(reply, i));
    }
}


/* names and values by turns */

static void
ngx_idempotency_redis_witness_read(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_int_t   port;
    ngx_str_t   name, value, id, host;
    ngx_uint_t  i;

    port = 0;
    ngx_str_null(&id);
    ngx_str_null(&host);

    for (i = 0; i + 1 < ngx_idempotency_redis_reply_elements(reply); i += 2) {

        ngx_idempotency_redis_reply_string(
                        ngx_idempotency_redis_reply_element(reply, i), &name);
        ngx_idempotency_redis_reply_string(
                   ngx_idempotency_redis_reply_element(reply, i + 1), &value);

        if (name.len == sizeof("ip") - 1
            && ngx_strncmp(name.data, "ip", name.len) == 0)
        {
            host = value;

        } else if (name.len == sizeof("port") - 1
                   && ngx_strncmp(name.data, "port", name.len) == 0)
        {
            port = ngx_atoi(value.data, value.len);

        } else if (name.len == sizeof("runid") - 1
                   && ngx_strncmp(name.data, "runid", name.len) == 0
                   && value.len == NGX_IDEMPOTENCY_REDIS_ID)
        {
            id = value;
        }
    }

    if (host.len == 0 || host.len > 255 || port < 1 || port > 65535
        || ngx_idempotency_redis_witness_is_known(redis->map, &id, &host,
                                                  (in_port_t) port))
    {
        return;
    }

    ngx_idempotency_redis_witness_add(redis, &id, &host, (in_port_t) port);
}


static ngx_uint_t
ngx_idempotency_redis_witness_is_known(ngx_idempotency_redis_watch_t *watch,
    ngx_str_t *id, ngx_str_t *host, in_port_t port)
{
    ngx_uint_t                         i;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->asked == NULL) {
            continue;
        }

        if ((id->len && sentinel->identified
             && ngx_memcmp(sentinel->id, id->data, id->len) == 0)
            || ngx_idempotency_redis_node_is_at(sentinel->asked, host, port))
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_idempotency_redis_witness_add(ngx_idempotency_redis_t *redis,
    ngx_str_t *id, ngx_str_t *host, in_port_t port)
{
    ngx_uint_t                         i;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    watch = redis->map;

    for (i = watch->n; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->asked || sentinel->pending) {
            continue;
        }

        ngx_memzero(sentinel, sizeof(ngx_idempotency_redis_sentinel_t));

        sentinel->redis = redis;
        sentinel->there = ngx_current_msec;

        sentinel->asked = ngx_idempotency_redis_node_told(redis, host, port,
                                          NULL, NGX_IDEMPOTENCY_REDIS_ASKED);
        if (sentinel->asked == NULL) {
            return;
        }

        sentinel->heard = ngx_idempotency_redis_node_told(redis, host, port,
                                          NULL, NGX_IDEMPOTENCY_REDIS_HEARD);

        if (id->len) {
            ngx_memcpy(sentinel->id, id->data, id->len);
            sentinel->identified = 1;
        }

        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has a sentinel \"%V\" that is "
                      "not in its target", &redis->name,
                      &sentinel->asked->name);

        ngx_idempotency_redis_node_dial(sentinel->asked);

        if (sentinel->heard) {
            ngx_idempotency_redis_node_dial(sentinel->heard);
        }

        return;
    }
}


void
ngx_idempotency_redis_witness_search(ngx_idempotency_redis_t *redis)
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

        if (sentinel->asked == NULL) {
            continue;
        }

        if (ngx_idempotency_redis_node_is_up(sentinel->asked)) {
            sentinel->there = ngx_current_msec;

            if (search) {
                ngx_idempotency_redis_witness_ready(sentinel);
            }
        }

        if (sentinel->configured || sentinel->pending) {
            continue;
        }

        if (ngx_idempotency_redis_witness_is_twice(watch, sentinel)
            || ngx_current_msec - sentinel->there
               >= NGX_IDEMPOTENCY_REDIS_MISS)
        {
            ngx_idempotency_redis_witness_leave(sentinel);
        }
    }
}


/* one of the target has told meanwhile that it is this one */

static ngx_uint_t
ngx_idempotency_redis_witness_is_twice(ngx_idempotency_redis_watch_t *watch,
    ngx_idempotency_redis_sentinel_t *sentinel)
{
    ngx_idempotency_redis_sentinel_t  *other;

    for (other = watch->sentinels; other < sentinel; other++) {

        if (other->asked && other->identified && sentinel->identified
            && ngx_memcmp(other->id, sentinel->id, NGX_IDEMPOTENCY_REDIS_ID)
               == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_idempotency_redis_witness_leave(
    ngx_idempotency_redis_sentinel_t *sentinel)
{
    ngx_idempotency_redis_node_leave(sentinel->asked);

    if (sentinel->heard) {
        ngx_idempotency_redis_node_leave(sentinel->heard);
    }

    sentinel->asked = NULL;
    sentinel->heard = NULL;
    sentinel->host.len = 0;
}
