
/*
 * Every change of a record: what time does to it, and what operations do.
 * Private to the embedded store; everything here wants the mutex.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_MOVE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_MOVE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_answer.h"


/* the record of a digest as it is at this time, if any */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_find(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest, uint64_t now);

/* the state at this time: executing is unknown once its lease is over */
ngx_idempotency_state_e ngx_idempotency_shm_state(
    ngx_idempotency_shm_node_t *node, uint64_t now);

/* when time ends the state that the record has */
uint64_t ngx_idempotency_shm_due(ngx_idempotency_shm_node_t *node);

/* lets time act on up to "n" overdue records; returns on how many it did */
ngx_uint_t ngx_idempotency_shm_expire(ngx_idempotency_shm_ctx_t *ctx,
    uint64_t now, ngx_uint_t n);

/*
 * Memory of the zone; what is overdue, by a moment, makes room for it.  NULL:
 * there is none, or sh->due has passed and more may be had in another turn.
 */
void *ngx_idempotency_shm_alloc(ngx_idempotency_shm_ctx_t *ctx, size_t size,
    uint64_t now);


/*
 * The moves.  Those that begin with nothing return NULL when the zone is full
 * of what is live; the others find their record in a state that allows them.
 */

/* nothing -> executing */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_move_new(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op, uint64_t now);

/* nothing -> the state in which its owner believes it */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_move_anew(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_lease_t *lease,
    ngx_idempotency_state_e state, uint64_t now);

/* nothing, none -> issued; "node" is NULL or a stub */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_move_issue(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now);

/* nothing -> a mark with this count */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_move_mark(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest, u_char *count, size_t len,
    uint64_t due, uint64_t now);

/* none, issued, unknown -> executing */
void ngx_idempotency_shm_move_take(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);

/* executing, unknown -> done; "w" has written the answer, NULL: not kept */
void ngx_idempotency_shm_move_done(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node,
    ngx_idempotency_shm_writer_t *w, uint64_t now);

/* executing, unknown -> unknown; nobody asks about it */
void ngx_idempotency_shm_move_unknown(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t now);

/* unknown -> unknown, with another fence: somebody asks what happened */
void ngx_idempotency_shm_move_probe(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);

/* executing, unknown -> issued, if it was and still would be, else none */
void ngx_idempotency_shm_move_back(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);

/* anything -> none: a stub with the fence, that refuses the last owner */
void ngx_idempotency_shm_move_none(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);

/* none, issued: as before, and this owner is the one that is refused */
void ngx_idempotency_shm_move_refuse(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);


#endif /* _NGX_IDEMPOTENCY_SHM_MOVE_H_INCLUDED_ */
