
/*
 * The leases that this worker holds, and their renewal.
 */


#ifndef _NGX_IDEMPOTENCY_LEASE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_LEASE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include "ngx_idempotency_store.h"


/*
 * A lease that is held.  Its memory is the caller's, from hold to let_go.
 * "confirmed" is when the last claim or renewal that the store acknowledged
 * was sent, "asked" when the last one was sent at all.
 */

typedef struct {
    ngx_queue_t                queue;       /* of all that are held */
    ngx_queue_t                bucket;      /* by the hash of its owner */
    ngx_idempotency_store_t   *store;
    ngx_idempotency_lease_t    line;
    ngx_msec_t                 confirmed;
    ngx_msec_t                 asked;
    unsigned                   refused:1;   /* the last renewal, and logged */
} ngx_idempotency_held_t;


/*
 * From now on the lease is renewed each third of its time, all of the
 * worker's leases together, until it is let go.  store and line are
 * set by the caller, "sent" is when the claim was.
 */
void ngx_idempotency_lease_hold(ngx_idempotency_held_t *held,
    ngx_msec_t sent);
void ngx_idempotency_lease_let_go(ngx_idempotency_held_t *held);

/*
 * Is the lease surely ours?  Yes if it was confirmed less than two thirds of
 * its time ago.  Reads the clock, not the cached time: the process may have
 * been stopped until now.
 */
ngx_uint_t ngx_idempotency_lease_is_sure(ngx_idempotency_held_t *held);

/*
 * Adds the lease to a renewal that the caller submits; NGX_ERROR when memory
 * is short.  The caller passes the finished renewal to lease_renewed().
 */
ngx_int_t ngx_idempotency_lease_add(ngx_idempotency_held_t *held,
    ngx_idempotency_op_t *op);
void ngx_idempotency_lease_renewed(ngx_idempotency_op_t *op);

/*
 * Renews all leases of this worker on a store at once: the store may have lost
 * them, and a renewal writes them anew.
 */
void ngx_idempotency_lease_renew_all(ngx_idempotency_store_t *store);

/*
 * For callers that cannot wait: renews the lease if it is not sure.  NGX_OK if
 * it is sure then, that is, if the store has answered at once; else
 * NGX_DECLINED.
 */
ngx_int_t ngx_idempotency_lease_check(ngx_idempotency_held_t *held);


#endif /* _NGX_IDEMPOTENCY_LEASE_H_INCLUDED_ */
