
/*
 * A dry run: claims and settles records, and leaves the request alone.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_DRY_RUN_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_DRY_RUN_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Claims a record of dry runs without waiting for the store, whose reply
 * decides the request's result.  Returns NGX_DECLINED.
 */
ngx_int_t ngx_http_idempotency_dry_run_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The header of the answer has come: notes the outcome. */
void ngx_http_idempotency_dry_run_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The request ends; the store may reply after it. */
void ngx_http_idempotency_dry_run_end(ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_DRY_RUN_H_INCLUDED_ */
