
/*
 * Counters and gauges in shared memory, written by each worker for itself.
 */


#include "ngx_idempotency_counts.h"


/* a worker's block begins a cache line */
#define NGX_IDEMPOTENCY_COUNTS_LINE  64


typedef struct {
    time_t                          since;
    u_char                         *blocks;
    u_char                         *processes;
    ngx_idempotency_unknowns_t     *unknowns;
    ngx_idempotency_health_t       *health;
    ngx_idempotency_trouble_t      *trouble;
} ngx_idempotency_counts_zone_t;


static ngx_int_t ngx_idempotency_counts_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static size_t ngx_idempotency_counts_block(ngx_idempotency_counts_t *counts);
static size_t ngx_idempotency_counts_process(
    ngx_idempotency_counts_t *counts);
static ngx_atomic_t *ngx_idempotency_counts_pid(
    ngx_idempotency_counts_t *counts, ngx_uint_t slot);


ngx_idempotency_store_counts_t  ngx_idempotency_counts_nowhere;
ngx_idempotency_store_now_t     ngx_idempotency_counts_never;


const ngx_uint_t  ngx_idempotency_latency_bounds
    [NGX_IDEMPOTENCY_LATENCIES - 1] =
{
    10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000,
    250000, 500000, 1000000
};


ngx_int_t
ngx_idempotency_counts_create(ngx_conf_t *cf,
    ngx_idempotency_counts_t *counts, void *tag)
{
    size_t            size;
    ngx_str_t         name;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx,
                                           ngx_core_module);

    /* worker_processes may come after http{}: workers share blocks then */

    counts->workers = (ccf->worker_processes > 0)
                      ? (ngx_uint_t) ccf->worker_processes
                      : (ngx_uint_t) ngx_max(ngx_ncpu, 1);

    /*
     * After a reload old workers still write to their memory: if the layout
     * is another one, new workers must not use the same zone.
     */

    name.len = sizeof("idempotency_counts__") - 1 + 8 + NGX_INT_T_LEN;
    name.data = ngx_pnalloc(cf->pool, name.len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    name.len = ngx_sprintf(name.data, "idempotency_counts_%08xD_%ui",
                           counts->layout, counts->workers)
               - name.data;

    size = ngx_idempotency_counts_block(counts) * counts->workers
           + ngx_idempotency_counts_process(counts) * NGX_MAX_PROCESSES
           + counts->stores * (sizeof(ngx_idempotency_unknowns_t)
                               + sizeof(ngx_idempotency_health_t))
           + sizeof(ngx_idempotency_trouble_t);

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


static size_t
ngx_idempotency_counts_process(ngx_idempotency_counts_t *counts)
{
    return ngx_align(counts->stores * sizeof(ngx_idempotency_store_now_t)
                     + sizeof(ngx_atomic_t),
                     NGX_IDEMPOTENCY_COUNTS_LINE);
}


static ngx_int_t
ngx_idempotency_counts_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    size_t                          blocks, processes;
    ngx_slab_pool_t                *shpool;
    ngx_idempotency_counts_t       *counts;
    ngx_idempotency_counts_zone_t  *zone;

    counts = shm_zone->data;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (data) {
        zone = shpool->data;

    } else {
        zone = ngx_slab_calloc(shpool, sizeof(ngx_idempotency_counts_zone_t));
        if (zone == NULL) {
            return NGX_ERROR;
        }

        blocks = ngx_idempotency_counts_block(counts) * counts->workers;
        processes = ngx_idempotency_counts_process(counts)
                    * NGX_MAX_PROCESSES;

        zone->blocks = ngx_slab_calloc(shpool, blocks + processes
                           + counts->stores
                             * (sizeof(ngx_idempotency_unknowns_t)
                                + sizeof(ngx_idempotency_health_t))
                           + sizeof(ngx_idempotency_trouble_t));
        if (zone->blocks == NULL) {
            return NGX_ERROR;
        }

        zone->processes = zone->blocks + blocks;
        zone->unknowns = (ngx_idempotency_unknowns_t *)
                             (zone->processes + processes);
        zone->health = (ngx_idempotency_health_t *)
                           (zone->unknowns + counts->stores);
        zone->trouble = (ngx_idempotency_trouble_t *)
                            (zone->health + counts->stores);

        zone->since = ngx_time();

        shpool->data = zone;
    }

    counts->since = zone->since;
    counts->blocks = zone->blocks;
    counts->processes = zone->processes;
    counts->unknowns = zone->unknowns;
    counts->health = zone->health;
    counts->trouble = zone->trouble;

    return NGX_OK;
}


static ngx_atomic_t *
ngx_idempotency_counts_pid(ngx_idempotency_counts_t *counts, ngx_uint_t slot)
{
    return (ngx_atomic_t *) (counts->processes
                             + slot * ngx_idempotency_counts_process(counts));
}


void
ngx_idempotency_counts_begin(ngx_idempotency_counts_t *counts)
{
    ngx_uint_t                       i;
    ngx_atomic_t                    *pid;
    ngx_idempotency_store_now_t     *now;
    ngx_idempotency_store_counts_t  *store;

    pid = ngx_idempotency_counts_pid(counts, ngx_process_slot);

    for (i = 0; i < counts->stores; i++) {
        now = ngx_idempotency_counts_now(counts, i);

        if (*pid) {
            store = ngx_idempotency_counts_store(counts, ngx_worker, i);
            (void) ngx_atomic_fetch_add(&store->abandoned, now->leases);
        }

        ngx_memzero(now, sizeof(ngx_idempotency_store_now_t));
    }

    *pid = ngx_pid;
}


void
ngx_idempotency_counts_end(ngx_idempotency_counts_t *counts)
{
    *ngx_idempotency_counts_pid(counts, ngx_process_slot) = 0;
}


ngx_idempotency_store_now_t *
ngx_idempotency_counts_now(ngx_idempotency_counts_t *counts, ngx_uint_t store)
{
    return (ngx_idempotency_store_now_t *)
               (ngx_idempotency_counts_pid(counts, ngx_process_slot) + 1)
           + store;
}


void
ngx_idempotency_counts_all(ngx_idempotency_counts_t *counts,
    ngx_uint_t store, ngx_idempotency_store_now_t *now)
{
    ngx_uint_t                    i, n;
    ngx_atomic_t                 *pid, *to, *from;
    ngx_atomic_uint_t             refusing_until;
    ngx_idempotency_store_now_t  *one;

    ngx_memzero(now, sizeof(ngx_idempotency_store_now_t));

    to = (ngx_atomic_t *) now;

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {
        pid = ngx_idempotency_counts_pid(counts, i);

        if (*pid == 0
            || (kill((ngx_pid_t) *pid, 0) == -1 && ngx_errno == NGX_ESRCH))
        {
            continue;
        }

        one = (ngx_idempotency_store_now_t *) (pid + 1) + store;
        from = (ngx_atomic_t *) one;

        refusing_until = ngx_max(now->refusing_until, one->refusing_until);

        for (n = 0;
             n < sizeof(ngx_idempotency_store_now_t) / sizeof(ngx_atomic_t);
             n++)
        {
            to[n] += from[n];
        }

        now->refusing_until = refusing_until;
    }
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
