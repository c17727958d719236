
/*
 * A request that was the same under another key a short time ago.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_SUSPECT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_SUSPECT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * ctx->op is a claim that was submitted with the result "rc": asks the store
 * as well, at once if the claim is pending, so that both replies come in the
 * same round trip, or else if it was granted.
 */
void ngx_http_idempotency_suspect_ask(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc);

/*
 * ctx->op is over.  NGX_OK: go on with its result.  NGX_AGAIN: it was granted,
 * and the look is not over.  Otherwise the claim is given back, the request is
 * refused, and this is what the phase handler returns.
 */
ngx_int_t ngx_http_idempotency_suspect_result(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* An operation of this type settles the claim: so long it is the last one. */
void ngx_http_idempotency_suspect_settle(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_e type);

/* The request ends, or its claim was not granted: nothing may be left. */
void ngx_http_idempotency_suspect_end(ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_SUSPECT_H_INCLUDED_ */
