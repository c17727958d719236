
/*
 * The gate before the content handler of a claimed request, and before the
 * first byte of every try of its upstream.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_UPSTREAM_GATE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_UPSTREAM_GATE_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Puts the gate before the tries of all upstreams of the configuration.
 * NGX_ERROR when memory is short.
 */
ngx_int_t ngx_http_idempotency_upstream_gate_init(ngx_conf_t *cf);

/* A claimed request enters another location: notes how it arrived there. */
void ngx_http_idempotency_upstream_arrive(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Puts the gate before the content handler of a claimed request, if it has
 * one.  Again after each internal redirect.
 */
void ngx_http_idempotency_upstream_wrap(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_UPSTREAM_GATE_H_INCLUDED_ */
