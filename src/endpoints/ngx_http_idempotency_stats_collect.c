
/*
 * The counts of all workers, added up, and the state of each store.
 */


#include "ngx_http_idempotency_stats.h"


/*
 * Of several that apply the worst one is shown.  The first ones are those of
 * ngx_idempotency_refusal_e, in its order.
 */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_STATS_FINE = 0,
    NGX_HTTP_IDEMPOTENCY_STATS_DISCONNECTED = NGX_IDEMPOTENCY_REFUSAL_N,
    NGX_HTTP_IDEMPOTENCY_STATS_NEARLY_FULL,
    NGX_HTTP_IDEMPOTENCY_STATS_CONNECTIONS_DOWN,
    NGX_HTTP_IDEMPOTENCY_STATS_OUTCOMES_WAITING
} ngx_http_idempotency_stats_store_state_e;


static void ngx_http_idempotency_stats_collect_store(
    ngx_idempotency_counts_t *counts, ngx_uint_t n,
    ngx_http_idempotency_stats_store_t *store);
static void ngx_http_idempotency_stats_sum(ngx_atomic_t *to,
    ngx_atomic_t *from, size_t size);
static void ngx_http_idempotency_stats_unknown(
    ngx_http_idempotency_stats_store_t *store);
static ngx_http_idempotency_stats_store_state_e
    ngx_http_idempotency_stats_shm_state(
    ngx_http_idempotency_stats_store_t *store);
static ngx_http_idempotency_stats_store_state_e
    ngx_http_idempotency_stats_redis_state(
    ngx_http_idempotency_stats_store_t *store);


/* in the order of ngx_http_idempotency_stats_store_state_e */

static ngx_http_idempotency_stats_store_state_t
    ngx_http_idempotency_stats_store_states[] =
{
    { NGX_HTTP_IDEMPOTENCY_STATS_OK, "ok", "" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "unreachable",
      "cannot be reached: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "timeout",
      "does not answer in time: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "protocol",
      "sends what makes no sense: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "readonly",
      "is a replica and read-only: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "full", "full: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "too_few_replicas",
      "too few replicas: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "not_permitted",
      "wrong password or missing permission: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "misconfigured",
      "cannot save to its disk: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "loading",
      "is loading its data: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "moving",
      "slots are moving: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "lost_data",
      "has lost data: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "evicts",
      "may evict keys: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "no_fsync",
      "not on enough disks: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "full", "full: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "damaged",
      "damaged: see the error log" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "disk",
      "its disk fails: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "refused",
      "refuses new keys, see the error log" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "old_store",
      "the store of from= fails: new keys are refused" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DOWN, "disconnected", "not connected" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DEGRADED, "nearly_full",
      "less than a tenth is free" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DEGRADED, "connections_down",
      "some connections are down" },

    { NGX_HTTP_IDEMPOTENCY_STATS_DEGRADED, "outcomes_waiting",
      "outcomes wait to be stored" }
};


ngx_int_t
ngx_http_idempotency_stats_collect(ngx_http_request_t *r,
    ngx_http_idempotency_stats_t *stats)
{
    ngx_uint_t                  i;
    ngx_idempotency_store_t   **stores;
    ngx_idempotency_counts_t   *counts;

    stats->request = r;
    stats->imcf = ngx_http_get_module_main_conf(r,
                                                ngx_http_idempotency_module);

    counts = stats->imcf->counts;
    stores = stats->imcf->stores.elts;

    stats->nstores = counts->stores;
    stats->stores = ngx_pcalloc(r->pool, counts->stores
                              * sizeof(ngx_http_idempotency_stats_store_t));
    stats->cells = ngx_pcalloc(r->pool, counts->cells * sizeof(ngx_atomic_t));

    if (stats->stores == NULL || stats->cells == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < counts->stores; i++) {
        stats->stores[i].store = stores[i];
        ngx_http_idempotency_stats_collect_store(counts, i,
                                                 &stats->stores[i]);
    }

    for (i = 0; i < counts->workers; i++) {
        ngx_http_idempotency_stats_sum(stats->cells,
            ngx_idempotency_counts_cells(counts, i),
            counts->cells * sizeof(ngx_atomic_t));
    }

    return NGX_OK;
}


static void
ngx_http_idempotency_stats_collect_store(ngx_idempotency_counts_t *counts,
    ngx_uint_t n, ngx_http_idempotency_stats_store_t *store)
{
    ngx_uint_t                      i;
    ngx_idempotency_unknowns_sum_t  unknown;

    for (i = 0; i < counts->workers; i++) {
        ngx_http_idempotency_stats_sum((ngx_atomic_t *) &store->counts,
            (ngx_atomic_t *) ngx_idempotency_counts_store(counts, i, n),
            sizeof(ngx_idempotency_store_counts_t));
    }

    ngx_idempotency_counts_all(counts, n, &store->now);

    if (store->store->left) {
        store->now.background += store->store->left(store->store);
    }

    if (store->store->usage) {
        store->store->usage(store->store, &store->usage);
        ngx_http_idempotency_stats_unknown(store);
    }

    store->refusing = (ngx_idempotency_refusal_e) counts->health[n].refusing;

    ngx_idempotency_unknowns_sum(&counts->unknowns[n], &unknown);

    store->unknown = unknown.number;
    store->unknown_counted = unknown.counted_at;

    if (unknown.number && unknown.oldest < ngx_time()) {
        store->oldest = ngx_time() - unknown.oldest;
    }

    store->state = ngx_http_idempotency_stats_store_states
                   + (store->store->usage
                      ? ngx_http_idempotency_stats_shm_state(store)
                      : ngx_http_idempotency_stats_redis_state(store));
}


static void
ngx_http_idempotency_stats_sum(ngx_atomic_t *to, ngx_atomic_t *from,
    size_t size)
{
    ngx_uint_t  i;

    for (i = 0; i < size / sizeof(ngx_atomic_t); i++) {
        to[i] += from[i];
    }
}


/*
 * A record in "executing" that no worker holds a lease for is unknown, or will
 * be when its lease ends.
 */

static void
ngx_http_idempotency_stats_unknown(ngx_http_idempotency_stats_store_t *store)
{
    ngx_idempotency_usage_t  *usage;

    usage = &store->usage;

    store->zone_unknown = usage->unknown;

    if (usage->executing > store->now.leases) {
        store->zone_unknown += usage->executing - store->now.leases;
    }

    store->zone_unknown_bytes = store->zone_unknown * usage->record;
}


static ngx_http_idempotency_stats_store_state_e
ngx_http_idempotency_stats_shm_state(ngx_http_idempotency_stats_store_t *store)
{
    if (store->usage.broken) {
        store->refusing = NGX_IDEMPOTENCY_REFUSAL_DAMAGED;
    }

    if (store->usage.refusing) {
        store->refusing = store->usage.refusing;
    }

    if (store->refusing) {
        return (ngx_http_idempotency_stats_store_state_e) store->refusing;
    }

    if (store->usage.free < store->usage.size / 10) {
        return NGX_HTTP_IDEMPOTENCY_STATS_NEARLY_FULL;
    }

    if (store->now.background) {
        return NGX_HTTP_IDEMPOTENCY_STATS_OUTCOMES_WAITING;
    }

    return NGX_HTTP_IDEMPOTENCY_STATS_FINE;
}


static ngx_http_idempotency_stats_store_state_e
ngx_http_idempotency_stats_redis_state(
    ngx_http_idempotency_stats_store_t *store)
{
    ngx_atomic_t  *connections;

    connections = store->now.redis.connections;

    /* also before the first new key, unless a login has a better reason */

    if (connections[NGX_IDEMPOTENCY_REDIS_IS_READY] == 0
        && store->refusing != NGX_IDEMPOTENCY_REFUSAL_READONLY
        && store->refusing != NGX_IDEMPOTENCY_REFUSAL_NOT_PERMITTED
        && store->refusing != NGX_IDEMPOTENCY_REFUSAL_LOADING)
    {
        if (store->refusing == NGX_IDEMPOTENCY_REFUSAL_NONE) {
            store->refusing = NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE;
        }

        return NGX_HTTP_IDEMPOTENCY_STATS_DISCONNECTED;
    }

    if ((time_t) store->now.refusing_until > ngx_time()) {
        store->refusing = NGX_IDEMPOTENCY_REFUSAL_FORGOTTEN;
    }

    if (store->refusing) {
        return (ngx_http_idempotency_stats_store_state_e) store->refusing;
    }

    if (connections[NGX_IDEMPOTENCY_REDIS_IS_DOWN]) {
        return NGX_HTTP_IDEMPOTENCY_STATS_CONNECTIONS_DOWN;
    }

    if (store->now.background) {
        return NGX_HTTP_IDEMPOTENCY_STATS_OUTCOMES_WAITING;
    }

    return NGX_HTTP_IDEMPOTENCY_STATS_FINE;
}
