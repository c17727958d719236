
/*
 * Who waits for which record.
 */


#ifndef _NGX_IDEMPOTENCY_WAIT_H_INCLUDED_
#define _NGX_IDEMPOTENCY_WAIT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


typedef struct ngx_idempotency_waiter_s       ngx_idempotency_waiter_t;
typedef struct ngx_idempotency_wait_group_s   ngx_idempotency_wait_group_t;

typedef void (*ngx_idempotency_waiter_pt)(ngx_idempotency_waiter_t *waiter);


/*
 * Waiters for one record are a group.  When the record may have changed, one
 * of them gets the turn: it asks the store, and then waits on, leaves, or
 * tells the others what it was told.
 */

struct ngx_idempotency_waiter_s {
    ngx_queue_t                     queue;
    ngx_idempotency_wait_group_t   *group;     /* NULL: does not wait */
    ngx_idempotency_op_t           *told;      /* shared: to be dropped */
    ngx_idempotency_waiter_pt       handler;   /* has the turn, or was told */
    void                           *data;
    unsigned                        turn:1;
};


/*
 * Joins those who wait for the record of the operation.  The first one is
 * given the turn soon: the record may have changed before anybody was
 * listening.  NGX_DECLINED: too many wait, or memory is short.
 */
ngx_int_t ngx_idempotency_wait_join(ngx_idempotency_waiter_t *waiter,
    ngx_idempotency_op_t *op);

/* gives the turn back: there was no news */
void ngx_idempotency_wait_on(ngx_idempotency_waiter_t *waiter);

/*
 * Ends the wait of the whole group: all others are told the operation, whose
 * record they share from now on.
 */
void ngx_idempotency_wait_tell(ngx_idempotency_waiter_t *waiter,
    ngx_idempotency_op_t *op);

/* no longer waits, whatever it was about to do */
void ngx_idempotency_wait_leave(ngx_idempotency_waiter_t *waiter);

/* the record may have changed: somebody of its group should ask */
void ngx_idempotency_wait_wake(u_char *digest);

/* something has changed, and nobody knows what */
void ngx_idempotency_wait_wake_all(void);


#if (NGX_HTTP_IDEMPOTENCY_DEBUG)

/* how often somebody of a group asks all the same, in this process */
extern ngx_msec_t  ngx_idempotency_wait_msec;

#endif


#endif /* _NGX_IDEMPOTENCY_WAIT_H_INCLUDED_ */
