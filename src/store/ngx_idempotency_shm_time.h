
/*
 * When time looks at the records of a zone.
 * Private to the embedded store; everything here wants the mutex.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_TIME_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_TIME_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_node.h"


/* time looks at a record that is new to it, at "due" or a moment later */
void ngx_idempotency_shm_time_insert(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due);

/* the same for a record that time knows */
void ngx_idempotency_shm_time_move(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due);

/* time forgets the record; its expire.key is 0 then */
void ngx_idempotency_shm_time_remove(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node);

/*
 * The record that time looks at now; NULL if there is none, and sh->due is
 * when to ask again.
 */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_time_next(
    ngx_idempotency_shm_ctx_t *ctx, uint64_t now);


#endif /* _NGX_IDEMPOTENCY_SHM_TIME_H_INCLUDED_ */
