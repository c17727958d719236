
/*
 * A dry run: what would have become of a request that nobody touches.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_DRY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_DRY_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Claims a record that only dry runs know, and goes on without waiting for
 * the store: what it says is the request's result.  Returns NGX_DECLINED.
 */
ngx_int_t ngx_http_idempotency_dry_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The answer has come: what would it have made of the record? */
void ngx_http_idempotency_dry_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The request ends; a store that has not answered yet may do so later. */
void ngx_http_idempotency_dry_end(ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_DRY_H_INCLUDED_ */
