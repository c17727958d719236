
/*
 * The store in Redis: what is sent later, by this worker or by another one.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_BACKGROUND_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_BACKGROUND_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_redis_op.h"
#include "ngx_idempotency_redis_spool.h"


/* A worker starts, or exits: then its queue is left to other workers. */
void ngx_idempotency_redis_background_start(ngx_idempotency_redis_ctx_t *ctx);
void ngx_idempotency_redis_background_stop(ngx_idempotency_redis_ctx_t *ctx);

/* A claim is sent again as soon as possible, until its deadline. */
void ngx_idempotency_redis_background_retry(ngx_idempotency_redis_op_t *rop);

/*
 * The outcome that this operation was to store is sent until Redis has it,
 * as an operation of the type given.  Within bounds: an answer that there is
 * no memory for is left out, and beyond a number of outcomes it is dropped and
 * counted.
 */
void ngx_idempotency_redis_background_add(ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type);

/*
 * The same for one that another worker has left; "data" is the context of the
 * store.  NGX_DECLINED: there is no room, or no memory.
 */
ngx_int_t ngx_idempotency_redis_background_adopt(void *data,
    ngx_idempotency_redis_outcome_t *outcome, ngx_str_t *answer);

/*
 * An outcome could not be stored again, or is stored.  One whose large answer
 * has timed out some times is sent without it: it would time out again, and
 * so would everything that shares its connection.
 */
void ngx_idempotency_redis_background_failed(ngx_idempotency_redis_op_t *rop);
void ngx_idempotency_redis_background_done(ngx_idempotency_redis_op_t *rop);

/* Sends what is queued, if a connection is up. */
void ngx_idempotency_redis_background_send(ngx_idempotency_redis_ctx_t *ctx);


/* After the zone of amnesia: the spool of what exiting workers leave. */
ngx_int_t ngx_idempotency_redis_handover_zone(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx);

/*
 * A worker starts, and takes what others have left; it exits, after all that
 * it leaves was put into the spool.
 */
void ngx_idempotency_redis_handover_start(ngx_idempotency_redis_ctx_t *ctx);
void ngx_idempotency_redis_handover_stop(ngx_idempotency_redis_ctx_t *ctx);

/* This worker is to exit, and has waited long enough for its outcomes. */
ngx_uint_t ngx_idempotency_redis_handover_is_due(
    ngx_idempotency_redis_ctx_t *ctx);

/*
 * The worker exits now: others are to store the outcome, as an operation of
 * the type given.  Without room in the spool it is lost and counted.
 */
void ngx_idempotency_redis_handover_leave(ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type);

/* Takes what others have left, if there is something and Redis is up. */
void ngx_idempotency_redis_handover_take(ngx_idempotency_redis_ctx_t *ctx);


#endif /* _NGX_IDEMPOTENCY_REDIS_BACKGROUND_H_INCLUDED_ */
