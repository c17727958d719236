
/*
 * A stored answer through the normal filters.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_REPLAY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_REPLAY_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Reads the stored answer of ctx->op and makes it the request's content.
 * Returns NGX_OK, or NGX_DECLINED when the stored bytes cannot be read, or
 * NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_replay(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* Reads it only.  Return codes as above. */
ngx_int_t ngx_http_idempotency_replay_decode(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Then sets the header of the answer and returns its body in "out".  NGX_OK
 * or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_replay_fill(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *out);


#endif /* _NGX_HTTP_IDEMPOTENCY_REPLAY_H_INCLUDED_ */
