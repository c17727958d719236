
/*
 * The store in Redis: operations in shared memory, left by workers that have
 * exited.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_LEFT_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_LEFT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * One operation, followed by its answer.  It is written by one process and
 * read by another one of the same binary.
 */

typedef struct {
    size_t                 size;       /* of all, aligned */
    size_t                 head;       /* bytes of the answer's head */
    size_t                 answer;     /* of head and body, 0: there is none */
    ngx_idempotency_op_e   type;
    ngx_uint_t             status;
    ngx_uint_t             flags;
    uint64_t               fence;
    uint64_t               number;
    uint64_t               epoch;
    ngx_msec_t             lease;
    time_t                 ttl;
    time_t                 tombstone;
    ngx_atomic_uint_t      connection;
    u_char                 digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    u_char                 owner[NGX_IDEMPOTENCY_OWNER_LEN];
    u_char                 fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_LEN];
} ngx_idempotency_redis_entry_t;


/*
 * The zone of a store; a reload keeps it, if its name stays the same.  NULL
 * after an error, which is logged.
 */
ngx_shm_zone_t *ngx_idempotency_redis_left_zone(ngx_conf_t *cf,
    ngx_str_t *name);

/* This worker takes entries, or does not any more; does any of them all? */
void ngx_idempotency_redis_left_join(ngx_shm_zone_t *zone);
void ngx_idempotency_redis_left_part(ngx_shm_zone_t *zone);
ngx_uint_t ngx_idempotency_redis_left_has_takers(ngx_shm_zone_t *zone);

/*
 * Takes the mutex, or gives up after so many milliseconds: a process that was
 * killed with it has it for ever where the master does not know the zone any
 * more.
 */
ngx_uint_t ngx_idempotency_redis_left_lock(ngx_shm_zone_t *zone,
    ngx_uint_t wait);
void ngx_idempotency_redis_left_unlock(ngx_shm_zone_t *zone);

/*
 * Under the mutex.  Appends an operation with this type and answer.  An
 * answer that there is no room for is left out; NGX_DECLINED: there is no
 * room at all.
 */
ngx_int_t ngx_idempotency_redis_left_add(ngx_shm_zone_t *zone,
    ngx_idempotency_op_t *op, ngx_idempotency_op_e type, ngx_str_t *answer);

/* Under the mutex: the first entry, or NULL; and it was taken. */
ngx_idempotency_redis_entry_t *ngx_idempotency_redis_left_first(
    ngx_shm_zone_t *zone);
void ngx_idempotency_redis_left_took(ngx_shm_zone_t *zone);

/* How many there are, for those who only look. */
ngx_uint_t ngx_idempotency_redis_left_number(ngx_shm_zone_t *zone);

/* The same, without those that this was asked for before. */
ngx_uint_t ngx_idempotency_redis_left_report(ngx_shm_zone_t *zone);


#endif /* _NGX_IDEMPOTENCY_REDIS_LEFT_H_INCLUDED_ */
