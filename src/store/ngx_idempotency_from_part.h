
/*
 * One operation on two stores, one part of it at a time.
 */


#ifndef _NGX_IDEMPOTENCY_FROM_PART_H_INCLUDED_
#define _NGX_IDEMPOTENCY_FROM_PART_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


#define ngx_idempotency_from_granted(part)                                    \
    ((part)->error == NGX_IDEMPOTENCY_ERROR_NONE                              \
     && (part)->result == NGX_IDEMPOTENCY_GRANTED)

#define ngx_idempotency_from_is_done(part)                                    \
    ((part)->record.state >= NGX_IDEMPOTENCY_DONE)

/* nothing was executed under the key, as far as this store knows */
#define ngx_idempotency_from_is_free(part)                                    \
    ((part)->record.state <= NGX_IDEMPOTENCY_ISSUED)


typedef struct ngx_idempotency_from_s  ngx_idempotency_from_t;

/*
 * The step after a part: returns as a submit does, NGX_AGAIN when it has asked
 * for another part that is not done yet.
 */
typedef ngx_int_t (*ngx_idempotency_from_pt)(ngx_idempotency_from_t *from);


/*
 * An operation on a store with "from=", and its parts: at most one of them is
 * under way.  The finished ones are kept as long as the operation, whose
 * record may point into them.
 */

struct ngx_idempotency_from_s {
    ngx_idempotency_op_t      *op;
    ngx_idempotency_op_t      *look;     /* claim: what was read first */
    ngx_idempotency_op_t      *old;      /* the last part on each store */
    ngx_idempotency_op_t      *new;
    ngx_idempotency_from_pt    next;     /* when the part under way is done */
};


/* In the pool of the operation; NULL when memory is short. */
ngx_idempotency_from_t *ngx_idempotency_from_create(ngx_idempotency_op_t *op);

/*
 * Ask one of the stores the question of the operation, the new store possibly
 * by an operation of another type.  "next" is called with from->old or
 * from->new set, within this call or later; the result is that of "next", or
 * NGX_AGAIN.  NGX_ERROR with from->op->error set when memory is short.
 */
ngx_int_t ngx_idempotency_from_ask_old(ngx_idempotency_from_t *from,
    ngx_idempotency_from_pt next);
ngx_int_t ngx_idempotency_from_ask_new(ngx_idempotency_from_t *from,
    ngx_idempotency_op_e type, uint64_t granted,
    ngx_idempotency_from_pt next);

/* An operation on one of the stores whose result does not matter. */
void ngx_idempotency_from_behind(ngx_idempotency_from_t *from,
    ngx_idempotency_store_t *store, ngx_idempotency_op_e type,
    uint64_t fence);

/* The result of a part is that of the operation: NGX_OK, or NGX_ERROR. */
ngx_int_t ngx_idempotency_from_result(ngx_idempotency_from_t *from,
    ngx_idempotency_op_t *part);


#endif /* _NGX_IDEMPOTENCY_FROM_PART_H_INCLUDED_ */
