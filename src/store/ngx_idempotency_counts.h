
/*
 * What has happened so far, counted by each worker in shared memory.
 */


#ifndef _NGX_IDEMPOTENCY_COUNTS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_COUNTS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* the last bucket has no bound */
#define NGX_IDEMPOTENCY_LATENCIES  14

#define NGX_IDEMPOTENCY_ERRORS     9


typedef struct {
    ngx_atomic_t                    le[NGX_IDEMPOTENCY_LATENCIES];
    ngx_atomic_t                    usec;        /* all of them */
} ngx_idempotency_latency_t;


/* of one store and worker; what is so now may go down again */

typedef struct {
    ngx_idempotency_latency_t       claim;
    ngx_idempotency_latency_t       complete;
    ngx_atomic_t                    errors[NGX_IDEMPOTENCY_ERRORS];
    ngx_atomic_t                    leases;      /* held now */
    ngx_atomic_t                    waiting;     /* duplicates, now */
    ngx_atomic_t                    losses;      /* of memory, noticed */
    ngx_atomic_t                    unacked;     /* too few replicas */
} ngx_idempotency_store_counts_t;


/*
 * For each worker a block: the counts of all stores, then "n" other cells.
 * Nothing is shared by workers, and nothing is locked; only the workers
 * before and after a reload have a block in common.
 */

typedef struct {
    ngx_shm_zone_t                 *zone;
    ngx_uint_t                      workers;
    ngx_uint_t                      stores;
    ngx_uint_t                      cells;
    uint32_t                        layout;      /* what the cells mean */
    u_char                         *blocks;
} ngx_idempotency_counts_t;


/* for stores before, and without, shared counts */
extern ngx_idempotency_store_counts_t  ngx_idempotency_counts_nowhere;

/* microseconds; the bound of a bucket */
extern const ngx_uint_t  ngx_idempotency_latency_bounds
                             [NGX_IDEMPOTENCY_LATENCIES - 1];


/*
 * Asks for the memory, when stores, cells and layout are set.  Counts survive
 * a reload that changes none of these.
 */
ngx_int_t ngx_idempotency_counts_create(ngx_conf_t *cf,
    ngx_idempotency_counts_t *counts, void *tag);

/* from the block of a worker */
ngx_idempotency_store_counts_t *ngx_idempotency_counts_store(
    ngx_idempotency_counts_t *counts, ngx_uint_t worker, ngx_uint_t store);
ngx_atomic_t *ngx_idempotency_counts_cells(ngx_idempotency_counts_t *counts,
    ngx_uint_t worker);

void ngx_idempotency_counts_latency(ngx_idempotency_latency_t *latency,
    ngx_uint_t usec);


#define ngx_idempotency_count(cell)                                           \
    (void) ngx_atomic_fetch_add(&(cell), 1)

#define ngx_idempotency_uncount(cell)                                         \
    (void) ngx_atomic_fetch_add(&(cell), -1)


#endif /* _NGX_IDEMPOTENCY_COUNTS_H_INCLUDED_ */
