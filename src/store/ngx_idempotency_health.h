
/*
 * Whether a store takes new keys, and why it does not.
 */


#ifndef _NGX_IDEMPOTENCY_HEALTH_H_INCLUDED_
#define _NGX_IDEMPOTENCY_HEALTH_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


struct ngx_idempotency_store_s;


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
    NGX_IDEMPOTENCY_REFUSAL_OTHER,          /* any other error of Redis */

    NGX_IDEMPOTENCY_REFUSAL_N
} ngx_idempotency_refusal_e;


/*
 * Of one store, shared by all workers without a lock.  "refusing" is why the
 * last new key was refused, and NONE as soon as one is accepted: the state
 * belongs to no worker, so that none can leave an old one behind.
 */

typedef struct {
    ngx_atomic_t                    refusing;    /* ngx_idempotency_refusal_e */
    ngx_atomic_t                    since;       /* seconds */
} ngx_idempotency_health_t;


/* in the order of ngx_idempotency_refusal_e */
extern ngx_str_t  ngx_idempotency_refusals[];


/*
 * The store has refused a new key, or taken one.  Who fails an operation sets
 * op->refusal instead, and ngx_idempotency_op_done() calls these.
 */
void ngx_idempotency_store_refused(struct ngx_idempotency_store_s *store,
    ngx_idempotency_refusal_e why);
void ngx_idempotency_store_accepted(struct ngx_idempotency_store_s *store);


#endif /* _NGX_IDEMPOTENCY_HEALTH_H_INCLUDED_ */
