
/*
 * The marks of sequences: how far each source has come.
 * Private to the embedded store; everything here wants the mutex.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_MARK_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_MARK_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_node.h"


typedef ngx_int_t (*ngx_idempotency_shm_op_pt)(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);


/*
 * Claims a number of a sequence by "claim", if it is its turn, and moves the
 * mark with it.  Returns as "claim".
 */
ngx_int_t ngx_idempotency_shm_mark_claim(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now,
    ngx_idempotency_shm_op_pt claim);

/*
 * Releases a number by "release"; if it was the last one the mark goes back.
 * Returns as "release".
 */
ngx_int_t ngx_idempotency_shm_mark_release(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now,
    ngx_idempotency_shm_op_pt release);


#endif /* _NGX_IDEMPOTENCY_SHM_MARK_H_INCLUDED_ */
