
/*
 * What has happened so far, counted by each worker in shared memory.
 */


#ifndef _NGX_IDEMPOTENCY_COUNTS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_COUNTS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_health.h"
#include "ngx_idempotency_redis_counts.h"
#include "ngx_idempotency_unknowns.h"


/* the last bucket has no bound */
#define NGX_IDEMPOTENCY_LATENCIES  17

#define NGX_IDEMPOTENCY_ERRORS     9


typedef struct {
    ngx_atomic_t                    le[NGX_IDEMPOTENCY_LATENCIES];
    ngx_atomic_t                    usec;        /* all of them */
} ngx_idempotency_latency_t;


/* of one store and worker */

typedef struct {
    ngx_idempotency_latency_t       claim;
    ngx_idempotency_latency_t       complete;
    ngx_atomic_t                    errors[NGX_IDEMPOTENCY_ERRORS];
    ngx_atomic_t                    refused[NGX_IDEMPOTENCY_REFUSAL_N];
                                                 /* new keys */
    ngx_atomic_t                    unknown;     /* outcomes */
    ngx_atomic_t                    abandoned;   /* leases of the dead */
    ngx_atomic_t                    cached;      /* claims, not asked */
    ngx_atomic_t                    losses;      /* of memory, noticed */
    ngx_atomic_t                    unacked;     /* too few replicas */
    ngx_atomic_t                    retries;     /* behind the requests */
    ngx_atomic_t                    dropped;     /* outcomes, no room */
    ngx_idempotency_redis_counts_t  redis;
} ngx_idempotency_store_counts_t;


/* of one store and process, now */

typedef struct {
    ngx_atomic_t                    in_flight;   /* requests with a key */
    ngx_atomic_t                    leases;      /* held */
    ngx_atomic_t                    waiting;     /* duplicates */
    ngx_atomic_t                    later;       /* outcomes not yet told */
    ngx_atomic_t                    forgetful;   /* no new keys until then,
                                                    seconds */
    ngx_idempotency_redis_now_t     redis;
} ngx_idempotency_store_now_t;


/*
 * For each worker a block: the counts of all stores, then "n" other cells.
 * Nothing is shared by workers, and nothing is locked; only the workers
 * before and after a reload have a block in common.
 *
 * What goes up and down has a block for each process, by its place in
 * ngx_processes[], with the process's id: what a dead one has left there is
 * not taken for true.
 */

typedef struct {
    ngx_shm_zone_t                 *zone;
    ngx_uint_t                      workers;
    ngx_uint_t                      stores;
    ngx_uint_t                      cells;
    uint32_t                        layout;      /* what the cells mean */
    u_char                         *blocks;
    u_char                         *processes;
    ngx_idempotency_unknowns_t     *unknowns;    /* of each store */
    ngx_idempotency_health_t       *health;      /* of each store */
} ngx_idempotency_counts_t;


/* for stores before, and without, shared counts */
extern ngx_idempotency_store_counts_t  ngx_idempotency_counts_nowhere;
extern ngx_idempotency_store_now_t     ngx_idempotency_counts_never;

/* microseconds; the bound of a bucket */
extern const ngx_uint_t  ngx_idempotency_latency_bounds
                             [NGX_IDEMPOTENCY_LATENCIES - 1];


/*
 * Asks for the memory, when stores, cells and layout are set.  Counts survive
 * a reload that changes none of these.
 */
ngx_int_t ngx_idempotency_counts_create(ngx_conf_t *cf,
    ngx_idempotency_counts_t *counts, void *tag);

/*
 * This process begins, with nothing that is so now, and ends.  What its
 * predecessor held when it died is counted as abandoned.
 */
void ngx_idempotency_counts_begin(ngx_idempotency_counts_t *counts);
void ngx_idempotency_counts_end(ngx_idempotency_counts_t *counts);

/* what this process writes, and what all that live have written, added up */
ngx_idempotency_store_now_t *ngx_idempotency_counts_now(
    ngx_idempotency_counts_t *counts, ngx_uint_t store);
void ngx_idempotency_counts_all(ngx_idempotency_counts_t *counts,
    ngx_uint_t store, ngx_idempotency_store_now_t *now);

/* from the block of a worker */
ngx_idempotency_store_counts_t *ngx_idempotency_counts_store(
    ngx_idempotency_counts_t *counts, ngx_uint_t worker, ngx_uint_t store);
ngx_atomic_t *ngx_idempotency_counts_cells(ngx_idempotency_counts_t *counts,
    ngx_uint_t worker);

void ngx_idempotency_counts_latency(ngx_idempotency_latency_t *latency,
    ngx_uint_t usec);


#define ngx_idempotency_count(cell)                                           \
    (void) ngx_atomic_fetch_add(&(cell), 1)

/* nobody else writes what is so now in this process */

#define ngx_idempotency_begins(cell)  (cell)++
#define ngx_idempotency_ends(cell)    (cell)--


#endif /* _NGX_IDEMPOTENCY_COUNTS_H_INCLUDED_ */
