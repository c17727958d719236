
/*
 * Which location protects a request that may visit several.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_LOCATION_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_LOCATION_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* Looks for nginx's modules that location_decides() has to know. */
void ngx_http_idempotency_location_init(ngx_conf_t *cf);

/*
 * The request enters a location: from the first one on that protects it,
 * there is a context, whose conf is that of the last one.  As a handler of
 * the rewrite phase: NGX_DECLINED, or NGX_ERROR when memory is short.
 */
ngx_int_t ngx_http_idempotency_location_enter(ngx_http_request_t *r);

/*
 * Access to the location is going to be checked; where that leads to an
 * error page, ctx->barred is set, until a location with an authentication of
 * its own lets the client in.  A handler of the preaccess phase.
 */
ngx_int_t ngx_http_idempotency_location_check(ngx_http_request_t *r);

/* The location is protected, and this request is one of those it means. */
ngx_uint_t ngx_http_idempotency_location_protects(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *ilcf);

/*
 * Does this location answer the request, by a content handler or as WebDAV?
 * Otherwise it can only hand it on: by try_files, index, or by error_page
 * after the 404 or 405 of a static file.  "early": before try_files.
 */
ngx_uint_t ngx_http_idempotency_location_decides(ngx_http_request_t *r,
    ngx_uint_t early);

/* The request is one that ngx_http_dav_module handles in this location. */
ngx_uint_t ngx_http_idempotency_location_dav(ngx_http_request_t *r);

/*
 * Key, source, scope and policy of the request are from now on those of this
 * location if it protects, else of the last one that did.  NGX_DECLINED: the
 * request is not what that one means, as a page for an error, asked by GET.
 */
ngx_int_t ngx_http_idempotency_location_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_LOCATION_H_INCLUDED_ */
