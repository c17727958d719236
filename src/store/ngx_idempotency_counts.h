
/*
 * Counters and gauges in shared memory, written by each worker for itself.
 */


#ifndef _NGX_IDEMPOTENCY_COUNTS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_COUNTS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_redis_counts.h"
#include "ngx_idempotency_trouble.h"
#include "ngx_idempotency_unknowns.h"


/* the last bucket has no bound */
#define NGX_IDEMPOTENCY_LATENCIES  17

#define NGX_IDEMPOTENCY_ERRORS     9


/* why a new key was refused; ngx_idempotency_refusals[] has the names */

typedef enum {
    NGX_IDEMPOTENCY_REFUSAL_NONE = 0,
    NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE,    /* no connection, or it broke */
    NGX_IDEMPOTENCY_REFUSAL_TIMEOUT,        /* no reply in time */
    NGX_IDEMPOTENCY_REFUSAL_PROTOCOL,       /* the reply made no sense */
    NGX_IDEMPOTENCY_REFUSAL_READONLY,       /* the server is a replica */
    NGX_IDEMPOTENCY_REFUSAL_OUT_OF_MEMORY,  /* Redis: maxmemory */
    NGX_IDEMPOTENCY_REFUSAL_NO_REPLICAS,    /* too few have acknowledged */
    NGX_IDEMPOTENCY_REFUSAL_NOT_PERMITTED,  /* password, or ACL */
    NGX_IDEMPOTENCY_REFUSAL_MISCONFIGURED,  /* Redis cannot save to disk */
    NGX_IDEMPOTENCY_REFUSAL_LOADING,        /* Redis reads its data */
    NGX_IDEMPOTENCY_REFUSAL_MOVING,         /* cluster: its slot moves */
    NGX_IDEMPOTENCY_REFUSAL_FORGOTTEN,      /* it has lost data just now */
    NGX_IDEMPOTENCY_REFUSAL_EVICTS,         /* its policy allows eviction */
    NGX_IDEMPOTENCY_REFUSAL_NO_FSYNC,       /* too few have it on disk */
    NGX_IDEMPOTENCY_REFUSAL_FULL,           /* no room in the zone */
    NGX_IDEMPOTENCY_REFUSAL_DAMAGED,        /* the zone cannot be read */
    NGX_IDEMPOTENCY_REFUSAL_DISK,           /* its disk fails */
    NGX_IDEMPOTENCY_REFUSAL_OTHER,          /* any other error of Redis */
    NGX_IDEMPOTENCY_REFUSAL_OLD_STORE,      /* the store of "from=" fails */

    NGX_IDEMPOTENCY_REFUSAL_N
} ngx_idempotency_refusal_e;


/*
 * Of one store, shared by all workers without a lock.  "refusing" is why the
 * last new key was refused, and NONE as soon as one is accepted.  It belongs
 * to no single worker: a worker that exits cannot leave an old reason behind.
 */

typedef struct {
    ngx_atomic_t                    refusing;    /* ngx_idempotency_refusal_e */
    ngx_atomic_t                    since;       /* seconds */
} ngx_idempotency_health_t;


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
    ngx_atomic_t                    abandoned;   /* leases of workers that
                                                    were killed */
    ngx_atomic_t                    uncommitted; /* answers, see postgres.md */
    ngx_atomic_t                    cached;      /* claims from the cache */
    ngx_atomic_t                    old_answers; /* claims that only the store
                                                    of "from=" has answered */
    ngx_atomic_t                    suspects_passed;
    ngx_atomic_t                    suspects_rejected;
    ngx_atomic_t                    losses;      /* of data, detected */
    ngx_atomic_t                    unacked;     /* too few replicas */
    ngx_atomic_t                    retries;     /* in background */
    ngx_atomic_t                    dropped;     /* outcomes, no room */
    ngx_idempotency_redis_counts_t  redis;
} ngx_idempotency_store_counts_t;


/* gauges of one store and process */

typedef struct {
    ngx_atomic_t                    in_flight;   /* requests with a key */
    ngx_atomic_t                    leases;      /* held */
    ngx_atomic_t                    waiting;     /* duplicates */
    ngx_atomic_t                    background;  /* outcomes to be stored */
    ngx_atomic_t                    refusing_until;   /* new keys, seconds */
    ngx_idempotency_redis_now_t     redis;
} ngx_idempotency_store_now_t;


/*
 * Each worker has a block: the counters of all stores, then "cells" others.
 * Workers share no block and need no lock; only the workers before and after
 * a reload have a block in common.
 *
 * Gauges have a block for each process, by its slot in ngx_processes[], with
 * its pid: what a process that was killed has left there is ignored.
 */

typedef struct {
    ngx_shm_zone_t                 *zone;
    ngx_uint_t                      workers;
    ngx_uint_t                      stores;
    ngx_uint_t                      cells;
    uint32_t                        layout;      /* what the cells mean */
    time_t                          since;       /* counting began */
    u_char                         *blocks;
    u_char                         *processes;
    ngx_idempotency_unknowns_t     *unknowns;    /* of each store */
    ngx_idempotency_health_t       *health;      /* of each store */
    ngx_idempotency_trouble_t      *trouble;     /* of clients */
} ngx_idempotency_counts_t;


/* for stores without shared counters */
extern ngx_idempotency_store_counts_t  ngx_idempotency_counts_nowhere;
extern ngx_idempotency_store_now_t     ngx_idempotency_counts_never;

/* in the order of ngx_idempotency_refusal_e */
extern ngx_str_t  ngx_idempotency_refusals[];

/* microseconds; the bound of a bucket */
extern const ngx_uint_t  ngx_idempotency_latency_bounds
                             [NGX_IDEMPOTENCY_LATENCIES - 1];


/*
 * Asks for the memory; stores, cells and layout are set.  Counters survive a
 * reload that changes none of these.
 */
ngx_int_t ngx_idempotency_counts_create(ngx_conf_t *cf,
    ngx_idempotency_counts_t *counts, void *tag);

/*
 * This process begins, with its gauges at zero, and ends.  Leases that the
 * last process of its slot held when it died are counted as abandoned.
 */
void ngx_idempotency_counts_begin(ngx_idempotency_counts_t *counts);
void ngx_idempotency_counts_end(ngx_idempotency_counts_t *counts);

/* the gauges of this process, and the sum over all live processes */
ngx_idempotency_store_now_t *ngx_idempotency_counts_now(
    ngx_idempotency_counts_t *counts, ngx_uint_t store);
void ngx_idempotency_counts_all(ngx_idempotency_counts_t *counts,
    ngx_uint_t store, ngx_idempotency_store_now_t *now);

/* counters in the block of a worker */
ngx_idempotency_store_counts_t *ngx_idempotency_counts_store(
    ngx_idempotency_counts_t *counts, ngx_uint_t worker, ngx_uint_t store);
ngx_atomic_t *ngx_idempotency_counts_cells(ngx_idempotency_counts_t *counts,
    ngx_uint_t worker);

void ngx_idempotency_counts_latency(ngx_idempotency_latency_t *latency,
    ngx_uint_t usec);


#define ngx_idempotency_count(cell)                                           \
    (void) ngx_atomic_fetch_add(&(cell), 1)

/* only this process writes its gauges */

#define ngx_idempotency_begins(cell)  (cell)++
#define ngx_idempotency_ends(cell)    (cell)--


#endif /* _NGX_IDEMPOTENCY_COUNTS_H_INCLUDED_ */
