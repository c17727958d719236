
/*
 * Endpoints: what locations that answer from a store have in common.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_ENDPOINT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_ENDPOINT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * For a directive: the location uses that store, "handler" is its content
 * handler, and "on_reply" is called when the store has replied.  Both return as
 * a content handler, or NGX_AGAIN: the store will reply.
 */
char *ngx_http_idempotency_endpoint(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *ilcf, ngx_str_t *store,
    ngx_http_handler_pt handler, ngx_http_handler_pt on_reply);

/*
 * Goes on with what a content handler or, if it has taken a reference to the
 * request, a body handler has returned: finalizes the request, or waits for the
 * store.
 */
void ngx_http_idempotency_endpoint_go(ngx_http_request_t *r, ngx_int_t rc);

/* Refuses a method; "methods" are those that are allowed. */
ngx_int_t ngx_http_idempotency_endpoint_method(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *methods);

/*
 * From a content handler: NGX_OK, or NGX_DONE if a page of another site has
 * made the request, which is refused then.
 */
ngx_int_t ngx_http_idempotency_endpoint_own_site(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* Submits ctx->op; calls on_reply if the store has replied at once. */
ngx_int_t ngx_http_idempotency_endpoint_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_ENDPOINT_H_INCLUDED_ */
