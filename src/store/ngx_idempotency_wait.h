
/*
 * Waiting for a record, and how waiters are woken.
 */


#ifndef _NGX_IDEMPOTENCY_WAIT_H_INCLUDED_
#define _NGX_IDEMPOTENCY_WAIT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_channel.h>
#include "ngx_idempotency_store.h"


typedef struct ngx_idempotency_waiter_s       ngx_idempotency_waiter_t;
typedef struct ngx_idempotency_wait_group_s   ngx_idempotency_wait_group_t;

typedef void (*ngx_idempotency_waiter_pt)(ngx_idempotency_waiter_t *waiter);


/*
 * A waiter is "waiting" while it has a group.  Its handler is called when it
 * gets the turn, or the result of another waiter of the group.
 */

struct ngx_idempotency_waiter_s {
    ngx_queue_t                     queue;
    ngx_idempotency_wait_group_t   *group;     /* NULL: does not wait */
    ngx_idempotency_op_t           *shared;    /* result, to be dropped */
    ngx_idempotency_waiter_pt       handler;
    void                           *data;
    unsigned                        turn:1;
};


typedef struct {
    ngx_fd_t                        fds[2];
} ngx_idempotency_notice_pipe_t;


typedef struct {
    ngx_shm_zone_t                 *zone;
    ngx_idempotency_notice_pipe_t  *pipes;     /* one for each worker */
    ngx_uint_t                      n;
} ngx_idempotency_notices_t;


/*
 * Joins those that wait for the record of the operation.  The first one is
 * given the turn soon: the record may have changed before its worker listened.
 * NGX_DECLINED: too many wait, or memory is short.
 */
ngx_int_t ngx_idempotency_wait_join(ngx_idempotency_waiter_t *waiter,
    ngx_idempotency_op_t *op);

/* gives the turn back: nothing has changed */
void ngx_idempotency_wait_continue(ngx_idempotency_waiter_t *waiter);

/*
 * Ends the wait of the whole group: all others get the operation, whose record
 * they share from now on.
 */
void ngx_idempotency_wait_share(ngx_idempotency_waiter_t *waiter,
    ngx_idempotency_op_t *op);

/* no longer waits; drops a shared result, passes on a turn */
void ngx_idempotency_wait_leave(ngx_idempotency_waiter_t *waiter);

/* the record may have changed: a waiter of its group in this worker asks */
void ngx_idempotency_wait_wake(u_char *digest);


/*
 * Asks for the shared memory in which notices are posted; "tag" is the
 * module.  NULL when that fails.
 */
ngx_idempotency_notices_t *ngx_idempotency_notice_create(ngx_conf_t *cf,
    void *tag);

/* before workers are forked */
ngx_int_t ngx_idempotency_notice_open(ngx_cycle_t *cycle,
    ngx_idempotency_notices_t *notices);

/* in a worker; without it nothing is posted */
ngx_int_t ngx_idempotency_notice_start(ngx_cycle_t *cycle,
    ngx_idempotency_notices_t *notices);

/* this worker has settled a record: wakes all workers that wait for it */
void ngx_idempotency_notice_post(u_char *digest);


#if (NGX_HTTP_IDEMPOTENCY_DEBUG)

/* the interval of the fallback in this process, msec */
extern ngx_msec_t  ngx_idempotency_wait_msec;

#endif


#endif /* _NGX_IDEMPOTENCY_WAIT_H_INCLUDED_ */
