
/*
 * Header lines of an answer: add, find.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_HEADER_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_HEADER_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Names in a record that no header line can have.  The first is that of a
 * Location to which r->headers_out.location points, so that
 * ngx_http_header_filter() completes it: a relative one that the upstream has
 * sent is left alone, one that proxy_redirect has made is not.  The second
 * is that of r->headers_out.override_charset.
 */
#define NGX_HTTP_IDEMPOTENCY_LOCATION  ":location"
#define NGX_HTTP_IDEMPOTENCY_CHARSET   ":charset"

/* Is this the name of a header line?  Case does not matter. */

#define ngx_http_idempotency_header_is(key, name)                             \
    ((key)->len == (name)->len                                                \
     && ngx_strncasecmp((key)->data, (name)->data, (name)->len) == 0)


/*
 * Adds a line to a list of headers or trailers; nothing is copied.  NULL
 * when memory is short.
 */
ngx_table_elt_t *ngx_http_idempotency_header_add(ngx_list_t *list,
    ngx_str_t *name, ngx_str_t *value);

/* Adds "Cache-Control: no-store".  NGX_OK or NGX_ERROR. */
ngx_int_t ngx_http_idempotency_header_no_store(ngx_http_request_t *r);

/* Lines of that name are not sent. */
void ngx_http_idempotency_header_hide(ngx_list_t *list, ngx_str_t *name);

/*
 * Adds the line of idempotency_expires_header, instead of any of that name:
 * "msec" is the time that the record of ctx->op was kept for when the store
 * was asked.  Nothing is added where the directive is "off".  NGX_OK or
 * NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_header_expires(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, uint64_t msec);

/* The value of the first line of that name among headers or trailers. */
ngx_str_t *ngx_http_idempotency_header_find(ngx_list_t *list,
    ngx_str_t *name);


#endif /* _NGX_HTTP_IDEMPOTENCY_HEADER_H_INCLUDED_ */
