
/*
 * Asks the upstream about an unknown.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_PROBE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_PROBE_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/*
 * The right to ask was granted, ctx->fence is its fence: sends a subrequest
 * to the URI of idempotency_unknown.  NGX_OK: the request is run again when
 * it has ended.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_idempotency_probe_start(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * What the probe location's own upstream has said, if the answer is its own
 * and whole.  NGX_AGAIN: nothing yet.  NGX_OK: "verdict" is set.
 */
ngx_int_t ngx_http_idempotency_probe_verdict(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e *verdict);

/* Puts the answer of the subrequest into the operation that resolves. */
void ngx_http_idempotency_probe_answer(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_t *op);

/* It has told nothing: the next duplicate may ask at once. */
void ngx_http_idempotency_probe_end(ngx_http_idempotency_ctx_t *ctx);

/*
 * For the precontent phase of any subrequest: if it is a probe's, puts our
 * handler before its content handler.  Again after each internal redirect.
 */
void ngx_http_idempotency_probe_wrap(ngx_http_request_t *r);

/* For the filters: is this the subrequest of a probe? */
ngx_http_idempotency_ctx_t *ngx_http_idempotency_probe_find(
    ngx_http_request_t *r);

/* For the filters: takes what the subrequest sends, nothing goes further. */
ngx_int_t ngx_http_idempotency_probe_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
ngx_int_t ngx_http_idempotency_probe_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in);


#endif /* _NGX_HTTP_IDEMPOTENCY_PROBE_H_INCLUDED_ */
