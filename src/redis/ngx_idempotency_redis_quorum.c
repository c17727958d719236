
/*
 * Which sentinel is believed.
 *
 * A failover has a number, its epoch, which only grows.  A higher one than
 * that of the master we follow is news, whoever has it.  A sentinel that was
 * away, or was restored from an old file, names an old master with a lower
 * one, and so may the first that answers when nothing is known yet: these are
 * believed if most of the sentinels of the target say the same, or most of all
 * that are known.
 *
 * What is followed is shared by all workers and outlives a reload.
 */


#include "ngx_idempotency_redis_sentinel.h"


static ngx_uint_t ngx_idempotency_redis_quorum_majority(
    ngx_idempotency_redis_sentinel_t *sentinel);
static ngx_uint_t ngx_idempotency_redis_quorum_agree(
    ngx_idempotency_redis_sentinel_t *a, ngx_idempotency_redis_sentinel_t *b);
static ngx_uint_t ngx_idempotency_redis_quorum_is_gone(
    ngx_idempotency_redis_watch_t *watch, int64_t epoch);


/* names and values by turns */

void
ngx_idempotency_redis_quorum_when(ngx_idempotency_redis_sentinel_t *sentinel,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t   name, value;
    ngx_uint_t  i;

    for (i = 0; i + 1 < ngx_idempotency_redis_reply_elements(reply); i += 2) {

        ngx_idempotency_redis_reply_string(
                     ngx_idempotency_redis_reply_element(reply, i), &name);

        if (name.len == sizeof("config-epoch") - 1
            && ngx_strncmp(name.data, "config-epoch", name.len) == 0)
        {
            ngx_idempotency_redis_reply_string(
                 ngx_idempotency_redis_reply_element(reply, i + 1), &value);

            sentinel->epoch = ngx_max(ngx_atoi(value.data, value.len), 0);
        }
    }
}


ngx_int_t
ngx_idempotency_redis_quorum_where(ngx_idempotency_redis_sentinel_t *sentinel,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_int_t  port;
    ngx_str_t  host, text;

    if (ngx_idempotency_redis_reply_elements(reply) != 2) {
        return NGX_DECLINED;
    }

    ngx_idempotency_redis_reply_string(
                     ngx_idempotency_redis_reply_element(reply, 0), &host);
    ngx_idempotency_redis_reply_string(
                     ngx_idempotency_redis_reply_element(reply, 1), &text);

    port = ngx_atoi(text.data, text.len);

    if (host.len && host.len < sizeof(sentinel->text)
        && port > 0 && port < 65536)
    {
        ngx_memcpy(sentinel->text, host.data, host.len);

        sentinel->host.data = sentinel->text;
        sentinel->host.len = host.len;
        sentinel->port = (in_port_t) port;
    }

    return NGX_OK;
}


ngx_uint_t
ngx_idempotency_redis_quorum_believes(
    ngx_idempotency_redis_sentinel_t *sentinel, ngx_uint_t all)
{
    int64_t                          epoch;
    ngx_uint_t                       none, same;
    ngx_slab_pool_t                 *shpool;
    ngx_idempotency_redis_t         *redis;
    ngx_idempotency_redis_shared_t  *shared;

    redis = sentinel->redis;
    shared = redis->zone->data;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    none = (shared->followed == 0);
    epoch = shared->epoch;
    same = (shared->master_port == sentinel->port
            && shared->master_len == sentinel->host.len
            && ngx_memcmp(shared->master, sentinel->host.data,
                          sentinel->host.len)
               == 0);

    ngx_shmtx_unlock(&shpool->mutex);

    if (none) {
        return ngx_idempotency_redis_quorum_majority(sentinel);
    }

    if (sentinel->epoch > epoch || (sentinel->epoch == epoch && same)) {
        return 1;
    }

    if (sentinel->epoch == epoch) {

        /* no failover: they were told of another master */

        return ngx_idempotency_redis_quorum_majority(sentinel);
    }

    /* they were set up anew, or most have not heard of the failover yet */

    return all && ngx_idempotency_redis_quorum_is_gone(redis->map, epoch)
           && ngx_idempotency_redis_quorum_majority(sentinel);
}


/* nobody knows of that failover, and its master is not there */

static ngx_uint_t
ngx_idempotency_redis_quorum_is_gone(ngx_idempotency_redis_watch_t *watch,
    int64_t epoch)
{
    ngx_uint_t                         i;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->asked && sentinel->host.len && sentinel->epoch >= epoch)
        {
            return 0;
        }
    }

    return watch->master == NULL
           || !ngx_idempotency_redis_node_is_up(watch->master);
}


static ngx_uint_t
ngx_idempotency_redis_quorum_majority(
    ngx_idempotency_redis_sentinel_t *sentinel)
{
    ngx_uint_t                         i, all, votes, own;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_sentinel_t  *other;

    watch = sentinel->redis->map;

    all = 0;
    votes = 0;
    own = 0;

    for (i = 0; i < watch->most; i++) {
        other = &watch->sentinels[i];

        if (other->asked == NULL) {
            continue;
        }

        all++;

        if (ngx_idempotency_redis_quorum_agree(sentinel, other)) {
            votes++;
            own += other->configured;
        }
    }

    return own > watch->n / 2 || votes > all / 2;
}


static ngx_uint_t
ngx_idempotency_redis_quorum_agree(ngx_idempotency_redis_sentinel_t *a,
    ngx_idempotency_redis_sentinel_t *b)
{
    return b->host.len == a->host.len
           && b->port == a->port
           && ngx_memcmp(b->host.data, a->host.data, a->host.len) == 0;
}


void
ngx_idempotency_redis_quorum_follow(ngx_idempotency_redis_t *redis,
    ngx_str_t *host, in_port_t port, int64_t epoch)
{
    ngx_slab_pool_t                 *shpool;
    ngx_idempotency_redis_watch_t   *watch;
    ngx_idempotency_redis_shared_t  *shared;

    watch = redis->map;
    shared = redis->zone->data;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    watch->doubted = 0;

    ngx_shmtx_lock(&shpool->mutex);

    if (shared->followed && shared->followed != watch->followed
        && shared->epoch > epoch)
    {
        /* another worker knows more since this one has asked */

        ngx_shmtx_unlock(&shpool->mutex);
        return;
    }

    if (shared->followed == 0
        || shared->master_port != port
        || shared->master_len != host->len
        || ngx_memcmp(shared->master, host->data, host->len) != 0)
    {
        shared->master_port = port;
        shared->master_len = ngx_min(host->len, sizeof(shared->master));
        ngx_memcpy(shared->master, host->data, shared->master_len);

        shared->followed++;
    }

    shared->epoch = epoch;
    watch->followed = shared->followed;

    ngx_shmtx_unlock(&shpool->mutex);
}


ngx_int_t
ngx_idempotency_redis_quorum_followed(ngx_idempotency_redis_t *redis,
    u_char *text, ngx_str_t *host, in_port_t *port)
{
    ngx_slab_pool_t                 *shpool;
    ngx_idempotency_redis_watch_t   *watch;
    ngx_idempotency_redis_shared_t  *shared;

    watch = redis->map;
    shared = redis->zone->data;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    if (shared->followed == watch->followed) {
        return NGX_DECLINED;
    }

    ngx_shmtx_lock(&shpool->mutex);

    ngx_memcpy(text, shared->master, shared->master_len);

    host->data = text;
    host->len = shared->master_len;
    *port = shared->master_port;

    watch->followed = shared->followed;

    ngx_shmtx_unlock(&shpool->mutex);

    return NGX_OK;
}


void
ngx_idempotency_redis_quorum_doubt(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                         i, own;
    ngx_idempotency_redis_watch_t     *watch;
    ngx_idempotency_redis_shared_t    *shared;
    ngx_idempotency_redis_sentinel_t  *sentinel, *best;

    watch = redis->map;
    shared = redis->zone->data;

    best = NULL;
    own = 0;

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->asked == NULL || sentinel->host.len == 0) {
            continue;
        }

        own += sentinel->configured;

        if (best == NULL || sentinel->epoch > best->epoch) {
            best = sentinel;
        }
    }

    if (best == NULL || watch->doubted) {
        return;
    }

    watch->doubted = 1;

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\": the sentinel \"%V\" names \"%V\" "
                  "with the epoch %L after %L, and no majority of the %ui "
                  "sentinels in the target agrees, of which %ui answered: it "
                  "is not believed", &redis->name, &best->asked->name,
                  &best->host, best->epoch,
                  shared->followed ? shared->epoch : -1, watch->n, own);
}
