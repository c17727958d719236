
/*
 * The counts of all workers, added up, and what they say about a store.
 */


#include "ngx_http_idempotency_stats.h"


static void ngx_http_idempotency_stats_collect_store(
    ngx_idempotency_counts_t *counts, ngx_uint_t n,
    ngx_http_idempotency_stats_store_t *store);
static void ngx_http_idempotency_stats_sum(ngx_atomic_t *to,
    ngx_atomic_t *from, size_t size);
static void ngx_http_idempotency_stats_health(
    ngx_http_idempotency_stats_store_t *store);


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
    time_t                     age;
    ngx_uint_t                 i;
    ngx_idempotency_unknown_t  unknown;

    for (i = 0; i < counts->workers; i++) {
        ngx_http_idempotency_stats_sum((ngx_atomic_t *) &store->counts,
            (ngx_atomic_t *) ngx_idempotency_counts_store(counts, i, n),
            sizeof(ngx_idempotency_store_counts_t));
    }

    ngx_idempotency_counts_all(counts, n, &store->now);

    if (store->store->usage) {
        store->store->usage(store->store, &store->usage);
    }

    i = 0;

    while (ngx_idempotency_unknowns_next(&counts->unknowns[n], &i, &unknown)
           == NGX_OK)
    {
        age = ngx_time() - (time_t) unknown.since;

        store->unknown++;
        store->oldest = ngx_max(store->oldest, age);
    }

    ngx_http_idempotency_stats_health(store);
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


/* the worst comes first; the words are for people */

static void
ngx_http_idempotency_stats_health(ngx_http_idempotency_stats_store_t *store)
{
    ngx_atomic_t  *connections;

    store->health = NGX_HTTP_IDEMPOTENCY_STATS_DOWN;

    if (store->store->usage) {

        if (store->usage.broken) {
            store->why = "damaged: restart nginx";
            return;
        }

        store->health = NGX_HTTP_IDEMPOTENCY_STATS_DEGRADED;

        if (store->usage.free < store->usage.size / 10) {
            store->why = "less than a tenth is free";
            return;
        }

        store->health = NGX_HTTP_IDEMPOTENCY_STATS_OK;
        store->why = "";

        return;
    }

    connections = store->now.redis.connections;

    if (connections[NGX_IDEMPOTENCY_REDIS_IS_READY] == 0) {
        store->why = "not connected";
        return;
    }

    if ((time_t) store->now.forgetful > ngx_time()) {
        store->why = "has lost data: new keys are refused";
        return;
    }

    if (store->now.lonely) {
        store->why = "too few replicas: new keys are refused";
        return;
    }

    store->health = NGX_HTTP_IDEMPOTENCY_STATS_DEGRADED;

    if (connections[NGX_IDEMPOTENCY_REDIS_IS_DOWN]) {
        store->why = "some connections are down";
        return;
    }

    if (store->now.later) {
        store->why = "outcomes wait to be told";
        return;
    }

    store->health = NGX_HTTP_IDEMPOTENCY_STATS_OK;
    store->why = "";
}
