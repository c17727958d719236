
/*
 * Which sentinel is believed.
 *
 * A failover has a number, its epoch, which only grows.  A sentinel with a
 * higher epoch than that of the current master is believed at once.  A
 * sentinel that was down, or was restored from an old file, names an old
 * master with a lower epoch, and so may the first that answers after the
 * start: these are believed if a majority of the configured sentinels, or of
 * all that are known, agrees.
 *
 * The current master is shared by all workers and survives a reload.
 */


#include "ngx_idempotency_redis_sentinel.h"


static ngx_uint_t ngx_idempotency_redis_quorum_is_gone(
    ngx_idempotency_redis_watch_t *watch, int64_t epoch);
static ngx_uint_t ngx_idempotency_redis_quorum_majority(
     ngx_idempotency_redis_sentinel_t *sentinel);
static ngx_uint_t ngx_idempotency_redis_quorum_agree(
    ngx_idempotency_redis_sentinel_t *a, ngx_idempotency_redis_sentinel_t *b);


void
ngx_idempotency_redis_quorum_epoch(ngx_idempotency_redis_sentinel_t *sentinel,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t  epoch;

    ngx_idempotency_redis_reply_value(reply, "config-epoch", &epoch);

    sentinel->epoch = ngx_max(ngx_atoi(epoch.data, epoch.len), 0);
}


ngx_int_t
ngx_idempotency_redis_quorum_address(ngx_idempotency_redis_sentinel_t *sentinel,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_int_t  port;
    ngx_str_t  host, text;

    if (ngx_idempotency_redis_reply_elements(reply) != 2) {
        return NGX_DECLINED;
    }

    ngx_idempotency_redis_reply_text(reply, 0, &host);
    ngx_idempotency_redis_reply_text(reply, 1, &text);

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
    ngx_idempotency_redis_t         *redis;
    ngx_idempotency_redis_shared_t  *shared;

    redis = sentinel->redis;
    shared = redis->zone->data;

    ngx_idempotency_redis_lock(redis);

    none = (shared->followed == 0);
    epoch = shared->epoch;
    same = (shared->master_port == sentinel->port
            && shared->master_len == sentinel->host.len
            && ngx_memcmp(shared->master, sentinel->host.data,
                          sentinel->host.len)
               == 0);

    ngx_idempotency_redis_unlock(redis);

    if (none) {
        return ngx_idempotency_redis_quorum_majority(sentinel);
    }

    if (sentinel->epoch > epoch || (sentinel->epoch == epoch && same)) {
        return 1;
    }

    if (sentinel->epoch == epoch) {

        /* no failover: the sentinels were reconfigured */

        return ngx_idempotency_redis_quorum_majority(sentinel);
    }

    /*
     * the sentinels were set up anew, or most do not know of the failover yet
     */

    return all && ngx_idempotency_redis_quorum_is_gone(redis->map, epoch)
           && ngx_idempotency_redis_quorum_majority(sentinel);
}


/* no sentinel knows of that failover, and its master is down */

static ngx_uint_t
ngx_idempotency_redis_quorum_is_gone(ngx_idempotency_redis_watch_t *watch,
    int64_t epoch)
{
    ngx_uint_t                         i;
    ngx_idempotency_redis_sentinel_t  *sentinel;

    for (i = 0; i < watch->most; i++) {
        sentinel = &watch->sentinels[i];

        if (sentinel->node && sentinel->host.len && sentinel->epoch >= epoch)
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

        if (other->node == NULL) {
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


ngx_int_t
ngx_idempotency_redis_quorum_follow(ngx_idempotency_redis_t *redis,
    ngx_str_t *host, in_port_t port, int64_t epoch)
{
    ngx_idempotency_redis_watch_t   *watch;
    ngx_idempotency_redis_shared_t  *shared;

    watch = redis->map;
    shared = redis->zone->data;

    watch->doubted = 0;

    ngx_idempotency_redis_lock(redis);

    if (shared->followed && shared->followed != watch->followed
        && shared->epoch > epoch)
    {
        /* another worker has learnt of a later failover meanwhile */

        ngx_idempotency_redis_unlock(redis);
        return NGX_DECLINED;
    }

    /* a failover and one back to the same master are a change as well */

    if (shared->followed == 0
        || shared->epoch != epoch
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

    ngx_idempotency_redis_unlock(redis);

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_quorum_followed(ngx_idempotency_redis_t *redis,
    u_char *text, ngx_str_t *host, in_port_t *port)
{
    ngx_idempotency_redis_watch_t   *watch;
    ngx_idempotency_redis_shared_t  *shared;

    watch = redis->map;
    shared = redis->zone->data;

    if (shared->followed == watch->followed) {
        return NGX_DECLINED;
    }

    ngx_idempotency_redis_lock(redis);

    ngx_memcpy(text, shared->master, shared->master_len);

    host->data = text;
    host->len = shared->master_len;
    *port = shared->master_port;

    watch->followed = shared->followed;

    ngx_idempotency_redis_unlock(redis);

    return NGX_OK;
}


void
ngx_idempotency_redis_quorum_warn(ngx_idempotency_redis_t *redis)
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

        if (sentinel->node == NULL || sentinel->host.len == 0) {
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
                  "is ignored", &redis->name, &best->node->peer.name,
                  &best->host, best->epoch,
                  shared->followed ? shared->epoch : -1, watch->n, own);
}
