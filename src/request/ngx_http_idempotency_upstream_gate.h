
/*
 * The gate before the first byte of every try of an upstream.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_UPSTREAM_GATE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_UPSTREAM_GATE_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Puts the gate before the tries of all upstreams of the configuration.
 * NGX_ERROR when memory is short.
 */
ngx_int_t ngx_http_idempotency_upstream_gate_init(ngx_conf_t *cf);

/*
 * May an upstream get a byte of the request?  NGX_OK: yes.  NGX_AGAIN: yes
 * once the lease was renewed.  NGX_DECLINED: never, and the log says why.
 */
ngx_int_t ngx_http_idempotency_upstream_gate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* Logs that the lease is not sure; returns the status of the answer. */
ngx_int_t ngx_http_idempotency_upstream_lost(ngx_http_request_t *r);

/*
 * The content handler has made an upstream whose server is given by
 * variables: its further tries are watched, and a client that hangs up does
 * not cancel it.  Other upstreams are watched from their start.
 */
void ngx_http_idempotency_upstream_guard(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_UPSTREAM_GATE_H_INCLUDED_ */
