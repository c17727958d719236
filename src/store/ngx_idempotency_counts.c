
/*
 * What has happened so far, counted by each worker in shared memory.
 */


#include "ngx_idempotency_counts.h"


/* a worker's block begins a cache line */
#define NGX_IDEMPOTENCY_COUNTS_LINE  64


typedef struct {
    uint32_t                        layout;
    u_char                         *blocks;
} ngx_idempotency_counts_zone_t;


static ngx_int_t ngx_idempotency_counts_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static size_t ngx_idempotency_counts_block(ngx_idempotency_counts_t *counts);


ngx_idempotency_store_counts_t  ngx_idempotency_counts_nowhere;


const ngx_uint_t  ngx_idempotency_latency_bounds
    [NGX_IDEMPOTENCY_LATENCIES - 1] =
{
    100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000,
    500000, 1000000
};


ngx_int_t
ngx_idempotency_counts_create(ngx_conf_t *cf,
    ngx_idempotency_counts_t *counts, void *tag)
{
    size_t            size;
    ngx_core_conf_t  *ccf;

    static ngx_str_t  name = ngx_string("idempotency_counts");

    ccf = (ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx,
                                           ngx_core_module);

    /* the number may stand behind http{}: then some workers share a block */

    counts->workers = (ccf->worker_processes > 0)
                      ? (ngx_uint_t) ccf->worker_processes
                      : (ngx_uint_t) ngx_max(ngx_ncpu, 1);

    size = ngx_idempotency_counts_block(counts) * counts->workers;

    counts->zone = ngx_shared_memory_add(cf, &name,
                                         ngx_align(size, ngx_pagesize)
                                         + 8 * ngx_pagesize, tag);
    if (counts->zone == NULL) {
        return NGX_ERROR;
    }

    counts->zone->init = ngx_idempotency_counts_init_zone;
    counts->zone->data = counts;

    return NGX_OK;
}


static size_t
ngx_idempotency_counts_block(ngx_idempotency_counts_t *counts)
{
    return ngx_align(counts->stores * sizeof(ngx_idempotency_store_counts_t)
                     + counts->cells * sizeof(ngx_atomic_t),
                     NGX_IDEMPOTENCY_COUNTS_LINE);
}


static ngx_int_t
ngx_idempotency_counts_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    size_t                          size;
    ngx_slab_pool_t                *shpool;
    ngx_idempotency_counts_t       *counts;
    ngx_idempotency_counts_zone_t  *zone;

    counts = shm_zone->data;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;
    size = ngx_idempotency_counts_block(counts) * counts->workers;

    if (data) {
        zone = shpool->data;

        if (zone->layout != counts->layout) {
            ngx_memzero(zone->blocks, size);
        }

    } else {
        zone = ngx_slab_calloc(shpool, sizeof(ngx_idempotency_counts_zone_t));
        if (zone == NULL) {
            return NGX_ERROR;
        }

        zone->blocks = ngx_slab_calloc(shpool, size);
        if (zone->blocks == NULL) {
            return NGX_ERROR;
        }

        shpool->data = zone;
    }

    zone->layout = counts->layout;
    counts->blocks = zone->blocks;

    return NGX_OK;
}


ngx_idempotency_store_counts_t *
ngx_idempotency_counts_store(ngx_idempotency_counts_t *counts,
    ngx_uint_t worker, ngx_uint_t store)
{
    u_char  *block;

    block = counts->blocks + worker % counts->workers
                             * ngx_idempotency_counts_block(counts);

    return (ngx_idempotency_store_counts_t *) block + store;
}


ngx_atomic_t *
ngx_idempotency_counts_cells(ngx_idempotency_counts_t *counts,
    ngx_uint_t worker)
{
    return (ngx_atomic_t *) ngx_idempotency_counts_store(counts, worker,
                                                         counts->stores);
}


void
ngx_idempotency_counts_latency(ngx_idempotency_latency_t *latency,
    ngx_uint_t usec)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IDEMPOTENCY_LATENCIES - 1; i++) {
        if (usec <= ngx_idempotency_latency_bounds[i]) {
            break;
        }
    }

    ngx_idempotency_count(latency->le[i]);
    (void) ngx_atomic_fetch_add(&latency->usec, usec);
}
