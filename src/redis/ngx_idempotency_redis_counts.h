
/*
 * What this worker counts of its connections to Redis.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_COUNTS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_COUNTS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * states of connections, as statistics show them; DIALING is the whole of a
 * round
 */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_IS_OFF = 0,
    NGX_IDEMPOTENCY_REDIS_IS_DOWN,
    NGX_IDEMPOTENCY_REDIS_IS_DIALING,
    NGX_IDEMPOTENCY_REDIS_IS_READY,

    NGX_IDEMPOTENCY_REDIS_IS_N
} ngx_idempotency_redis_is_e;


/* connections to nodes with records now; only this worker writes it */

typedef struct {
    ngx_atomic_t                    connections[NGX_IDEMPOTENCY_REDIS_IS_N];
    ngx_atomic_t                    unwatched;   /* 1: INFO says too little */
} ngx_idempotency_redis_now_t;


/* since the counts began, of all workers */

typedef struct {
    ngx_atomic_t                    reconnects;
    ngx_atomic_t                    failures;    /* rounds that failed */
    ngx_atomic_t                    clock_steps; /* jumps of servers' clocks */
} ngx_idempotency_redis_counts_t;


#endif /* _NGX_IDEMPOTENCY_REDIS_COUNTS_H_INCLUDED_ */
