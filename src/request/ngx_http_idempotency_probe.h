
/*
 * The probe: asks the upstream about an unknown outcome.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_PROBE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_PROBE_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/*
 * The store has granted the probe, ctx->fence is its fence: sends a subrequest
 * to the URI of idempotency_unknown.  NGX_OK: the phases run again when it has
 * ended.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_idempotency_probe_start(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * The verdict of the probe: "outcome unknown" unless the probe location's own
 * upstream has answered completely.  NGX_OK, or NGX_AGAIN: no answer yet.
 */
ngx_int_t ngx_http_idempotency_probe_verdict(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e *verdict);

/* Puts the answer of the subrequest into the operation that resolves. */
void ngx_http_idempotency_probe_answer(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_t *op);

/* The probe brought no verdict: the next duplicate may send one at once. */
void ngx_http_idempotency_probe_end(ngx_http_idempotency_ctx_t *ctx);

/*
 * For the precontent phase of any subrequest: if it is a probe's, puts our
 * handler before its content handler.  Again after each internal redirect.
 */
void ngx_http_idempotency_probe_wrap(ngx_http_request_t *r);

/* For the filters: is this the subrequest of a probe? */
ngx_http_idempotency_ctx_t *ngx_http_idempotency_probe_find(
    ngx_http_request_t *r);

/* For the filters: collects the answer of the subrequest, sends nothing. */
ngx_int_t ngx_http_idempotency_probe_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
ngx_int_t ngx_http_idempotency_probe_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in);


#endif /* _NGX_HTTP_IDEMPOTENCY_PROBE_H_INCLUDED_ */
