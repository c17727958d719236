
/*
 * Key, source and scope: find, check, name the record.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_IDENTIFY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_IDENTIFY_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * The first two return NGX_OK, NGX_DECLINED when there is no key, NGX_ABORT
 * when the key, its number or its epoch is invalid, NGX_ERROR when memory is
 * short.
 */

/*
 * Finds and checks the key if it is one header line of the request, without
 * evaluating any variable: safe before access was granted.  A key that is
 * given otherwise is not looked at: NGX_OK.
 */
ngx_int_t ngx_http_idempotency_identify_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Finds a header line of the request by its name as in $http_NAME.  NGX_OK;
 * NGX_DECLINED when there is none; NGX_ABORT when there are two.
 */
ngx_int_t ngx_http_idempotency_identify_line(ngx_http_request_t *r,
    ngx_str_t *name, ngx_table_elt_t **line);

/*
 * Sets the key, and the number and epoch of a sequence.  A header line that
 * identify_header() has parsed is not parsed again.
 */
ngx_int_t ngx_http_idempotency_identify_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Sets source and scope, and from these, key and epoch the digest that names
 * the record.  NGX_OK; NGX_DECLINED when the source is empty; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_identify_record(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * The path of a main request as its client sent it, decoded and normalized:
 * what $idempotency_uri says, whatever rewrites and redirects have made of
 * $uri.  NGX_OK; NGX_DECLINED and an empty string when there is none;
 * NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_identify_uri(ngx_http_request_t *r,
    ngx_str_t *uri);

/*
 * The name of the record that a request with source and scope has, or would
 * have in a dry run.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_identify_name(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_uint_t dry_run, u_char *digest);


#endif /* _NGX_HTTP_IDEMPOTENCY_IDENTIFY_H_INCLUDED_ */
