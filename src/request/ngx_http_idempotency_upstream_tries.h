
/*
 * The tries of an upstream: what guards them.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_UPSTREAM_TRIES_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_UPSTREAM_TRIES_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * A try needs a lease that is sure: not if the request has passed without a
 * claim, and not once its outcome is settled, as nothing is executed then.
 */
ngx_uint_t ngx_http_idempotency_upstream_leased(
    ngx_http_idempotency_ctx_t *ctx);

/* Logs that the lease is not sure; returns the status of the answer. */
ngx_int_t ngx_http_idempotency_upstream_lost(ngx_http_request_t *r);

/*
 * Guards the upstream that the content handler has just made, and the tries
 * that follow.  Does no harm if it was done before.
 */
void ngx_http_idempotency_upstream_guard(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_UPSTREAM_TRIES_H_INCLUDED_ */
