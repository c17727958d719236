
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
 * was sent.
 */

typedef struct {
    ngx_queue_t                queue;       /* of all that are held */
    ngx_queue_t                bucket;      /* of those with such an owner */
    ngx_idempotency_store_t   *store;
    ngx_idempotency_lease_t    line;
    ngx_msec_t                 confirmed;
    ngx_msec_t                 asked;       /* the last one sent at all */
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
 * May something be started in the belief that the lease is ours?  Yes if it
 * was confirmed less than two thirds of its time ago.  Asks the clock, not the
 * cached time: the process may just have been stopped.
 */
ngx_uint_t ngx_idempotency_lease_is_sure(ngx_idempotency_held_t *held);

/*
 * Makes the lease a line of a renewal that the caller submits; NGX_ERROR when
 * memory is short.  When it is over, renewed takes note of what came of it.
 */
ngx_int_t ngx_idempotency_lease_add(ngx_idempotency_held_t *held,
    ngx_idempotency_op_t *op);
void ngx_idempotency_lease_renewed(ngx_idempotency_op_t *op);

/*
 * All leases on a store, at once: it may have lost them, and a renewal writes
 * them anew.
 */
void ngx_idempotency_lease_renew_all(ngx_idempotency_store_t *store);

/*
 * For who cannot wait: NGX_OK if the lease is sure, or a renewal in passing
 * has made it so, which a store has to answer at once; else NGX_DECLINED.
 */
ngx_int_t ngx_idempotency_lease_check(ngx_idempotency_held_t *held);


#endif /* _NGX_IDEMPOTENCY_LEASE_H_INCLUDED_ */
