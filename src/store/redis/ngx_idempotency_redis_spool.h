
/*
 * The store in Redis: outcomes as plain data, and a spool of them in shared
 * memory that exiting workers leave to the other workers.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_SPOOL_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_SPOOL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * What is kept of an operation in order to send it later, but for its answer.
 * In the spool it is written by one process and read by another process of
 * the same binary; the bytes of the note are behind it there.
 */

typedef struct {
    ngx_idempotency_identity_t  id;
    ngx_idempotency_op_e        type;
    ngx_uint_t                  status;
    ngx_uint_t                  flags;
    uint64_t                    fence;
    ngx_msec_t                  lease;
    time_t                      ttl;
    time_t                      tombstone;
    ngx_atomic_uint_t           connection;
    size_t                      head;         /* bytes of it in the answer */
    ngx_str_t                   note;         /* the operation's bytes */
} ngx_idempotency_redis_outcome_t;


/* NGX_OK: it has the outcome now; anything else: it stays in the spool. */
typedef ngx_int_t (*ngx_idempotency_redis_outcome_pt)(void *data,
    ngx_idempotency_redis_outcome_t *outcome, ngx_str_t *answer);


/*
 * From an operation, as one of this type: a claim becomes a release without
 * the fence that it had; and to a new one.
 */
void ngx_idempotency_redis_outcome_save(ngx_idempotency_redis_outcome_t
    *outcome, ngx_idempotency_op_t *op, ngx_idempotency_op_e type);
void ngx_idempotency_redis_outcome_load(ngx_idempotency_redis_outcome_t
    *outcome, ngx_idempotency_op_t *op);

/*
 * The zone of a store; a reload keeps it, if its name stays the same.  NULL
 * after an error, which is logged.
 */
ngx_shm_zone_t *ngx_idempotency_redis_spool_zone(ngx_conf_t *cf,
    ngx_str_t *name);

/* This worker takes outcomes, or no longer does; does any worker? */
void ngx_idempotency_redis_spool_join(ngx_shm_zone_t *zone);
void ngx_idempotency_redis_spool_leave(ngx_shm_zone_t *zone);
ngx_uint_t ngx_idempotency_redis_spool_has_workers(ngx_shm_zone_t *zone);

/*
 * Appends an outcome.  An answer that there is no room for is left out.
 * NGX_DECLINED: there is no room at all.  NGX_BUSY: the mutex was not free
 * within so many milliseconds; a process that was killed with it has it for
 * ever where the master does not know the zone any more.
 */
ngx_int_t ngx_idempotency_redis_spool_add(ngx_shm_zone_t *zone,
    ngx_idempotency_redis_outcome_t *outcome, ngx_str_t *answer,
    ngx_uint_t wait);

/*
 * Hands the outcomes over to the handler, in their order and at most so many.
 * Returns how many it has taken; none if the mutex is not free.
 */
ngx_uint_t ngx_idempotency_redis_spool_take(ngx_shm_zone_t *zone,
    ngx_uint_t most, ngx_idempotency_redis_outcome_pt handler, void *data);

/* How many outcomes there are, without the mutex. */
ngx_uint_t ngx_idempotency_redis_spool_number(ngx_shm_zone_t *zone);

/* The same, without those that this function has returned before. */
ngx_uint_t ngx_idempotency_redis_spool_report(ngx_shm_zone_t *zone);


#endif /* _NGX_IDEMPOTENCY_REDIS_SPOOL_H_INCLUDED_ */
