
/*
 * The request's context: create, find again after redirects, settle at the end.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_CONTEXT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_CONTEXT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * A context for a main request, found again after internal redirects, which
 * clear the module contexts.  NULL when memory is short.  When the request
 * ends, whatever its claim still owes the store is settled.
 */
ngx_http_idempotency_ctx_t *ngx_http_idempotency_context_create(
    ngx_http_request_t *r, ngx_http_idempotency_loc_conf_t *ilcf);

/* From now on the request is counted as one in flight. */
void ngx_http_idempotency_context_begin(ngx_http_idempotency_ctx_t *ctx);

/*
 * The request has passed a location without protection, and has come to
 * another one that may protect it: the context is as good as new.
 */
void ngx_http_idempotency_context_restart(ngx_http_idempotency_ctx_t *ctx);

/* The context of a main request, or NULL. */
ngx_http_idempotency_ctx_t *ngx_http_idempotency_context_get(
    ngx_http_request_t *r);

/* Draws the owner of the claim.  NGX_ERROR: there are no random bytes. */
ngx_int_t ngx_http_idempotency_context_owner(ngx_http_idempotency_ctx_t *ctx);

/*
 * Makes the next operation of the request ctx->op: what the record is, who
 * owns it and how long it is kept are filled in.  NULL when memory is short.
 */
ngx_idempotency_op_t *ngx_http_idempotency_context_op(
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type);

/*
 * Submits ctx->op.  As ngx_idempotency_op_submit(); with NGX_AGAIN the
 * request is woken by its write event.
 */
ngx_int_t ngx_http_idempotency_context_submit(ngx_http_idempotency_ctx_t *ctx);

/* What an operation calls that is over, unless its caller sets another. */
void ngx_http_idempotency_context_wake(ngx_idempotency_op_t *op);

/* The claim was granted: holds its lease until the request is settled. */
void ngx_http_idempotency_context_own(ngx_http_idempotency_ctx_t *ctx);

/* Its lease only. */
void ngx_http_idempotency_context_hold(ngx_http_idempotency_ctx_t *ctx);

/*
 * The claim failed and may have worked all the same: it is released behind
 * the request, however long that takes.  ctx->op stays what it is.
 */
void ngx_http_idempotency_context_take_back(ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_CONTEXT_H_INCLUDED_ */
