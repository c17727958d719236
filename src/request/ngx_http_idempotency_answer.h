
/*
 * The answer of an upstream: what it says of itself, its bytes, and what is
 * stored of them.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_ANSWER_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_ANSWER_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/*
 * What the upstream says of the outcome in X-Accel-Idempotency, if its header
 * was received whole; a ttl there is ctx->capture.ttl.  The header line is
 * removed from the answer.
 */
ngx_http_idempotency_override_e ngx_http_idempotency_answer_override(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx,
    const ngx_http_idempotency_facts_t *facts);

/* Removes that header line only; returns its value, or NULL. */
ngx_str_t *ngx_http_idempotency_answer_strip(ngx_http_request_t *r);

/*
 * A header has come: forgets what was collected of an earlier one.  Sets
 * ctx->capture.keep if this answer can be stored, as far as its header tells.
 */
void ngx_http_idempotency_answer_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Copies the bytes of a chain and marks them as consumed.  NGX_OK: the last
 * one was there; a length that was not known is set.  NGX_ABORT: it was, and
 * the body is not as long as the header says.  NGX_AGAIN: more will come.
 * NGX_DECLINED: too much, "in" is what was not copied.  NGX_ERROR: memory.
 */
ngx_int_t ngx_http_idempotency_answer_collect(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t **in);

/* Is the body as long as the header says? */
ngx_uint_t ngx_http_idempotency_answer_is_whole(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Is it an answer of a gRPC server?  Then its end decides: the HTTP status is
 * always 200, the result is in the trailer "grpc-status", or in a header of
 * that name if there is no body.  A status other than 200 comes from a proxy
 * or from nginx.
 */
ngx_uint_t ngx_http_idempotency_answer_is_grpc(ngx_http_request_t *r);

/*
 * The HTTP status that a whole answer is judged as: its own, or that of its
 * grpc-status, or 0 if that is missing.
 */
ngx_uint_t ngx_http_idempotency_answer_grpc_status(ngx_http_request_t *r);

/*
 * Gives the answer to the operation that stores it, sealed if there is a
 * secret.  An answer that cannot be stored is left out, which is logged.
 */
void ngx_http_idempotency_answer_attach(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op);

/* The same for an operation that has its head and body already. */
void ngx_http_idempotency_answer_seal(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op);


#endif /* _NGX_HTTP_IDEMPOTENCY_ANSWER_H_INCLUDED_ */
