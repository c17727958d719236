
/*
 * Operations that take and leave the mutex several times.
 * Private to the embedded store.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_STEPS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_STEPS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_zone.h"


/*
 * Returns as an operation, or NGX_AGAIN: the answer in op->record is still to
 * be read, or NGX_DECLINED: begin anew, the record was changed meanwhile.
 */
ngx_int_t ngx_idempotency_shm_complete(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);

/* as an operation; NGX_ERROR when a lost record found no room */
ngx_int_t ngx_idempotency_shm_renew(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);

/* what an owner says of a record that the store has lost */
void ngx_idempotency_shm_op_lease(ngx_idempotency_op_t *op,
    ngx_idempotency_lease_t *lease);

ngx_uint_t ngx_idempotency_shm_owns(ngx_idempotency_shm_node_t *node,
    u_char *owner);

/* fills op->record; the mutex is held.  "node" may be NULL */
void ngx_idempotency_shm_show(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now);

/* as well with the answer; NGX_AGAIN: it is long, read it without mutex */
ngx_int_t ngx_idempotency_shm_show_answer(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now);

/* reads it.  NGX_DECLINED: begin anew, the record was changed meanwhile */
ngx_int_t ngx_idempotency_shm_read_answer(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op);


#endif /* _NGX_IDEMPOTENCY_SHM_STEPS_H_INCLUDED_ */
