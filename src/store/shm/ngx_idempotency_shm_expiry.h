
/*
 * The queue of nodes by the time at which they expire.
 * Private to the embedded store; the caller holds the mutex.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_EXPIRY_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_EXPIRY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_node.h"


/* adds a node that is due at "due"; it may be found 64 ms later */
void ngx_idempotency_shm_expiry_insert(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due);

/* changes when a node is due */
void ngx_idempotency_shm_expiry_move(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due);

/* removes a node; its expire.key is 0 then */
void ngx_idempotency_shm_expiry_remove(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node);

/*
 * A node that is due now; NULL if there is none, and sh->due is when to ask
 * again.
 */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_expiry_next(
    ngx_idempotency_shm_ctx_t *ctx, uint64_t now);


#endif /* _NGX_IDEMPOTENCY_SHM_EXPIRY_H_INCLUDED_ */
