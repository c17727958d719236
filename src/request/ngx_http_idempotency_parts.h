
/*
 * The digest of a multipart body.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_PARTS_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_PARTS_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Adds the parts of the body, which must have been read, to the digest that
 * was started: of each its name, file names, type, encoding and content, in
 * the order in which they were sent.  Parts are chosen by their names with
 * "include" and "exclude" (ngx_http_idempotency_path_t, may be NULL).  NGX_OK;
 * NGX_DECLINED when it is not well-formed multipart/form-data or compressed,
 * which is logged; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_parts(ngx_http_request_t *r,
    ngx_array_t *include, ngx_array_t *exclude);

/* Does the Content-Type say that it is multipart? */
ngx_uint_t ngx_http_idempotency_parts_expected(ngx_http_request_t *r);

/*
 * Adds all bytes of the body but those of the boundary: preamble, parts with
 * their header lines, epilogue.  NGX_OK; NGX_DECLINED when it is not
 * well-formed; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_parts_raw(ngx_http_request_t *r);


#endif /* _NGX_HTTP_IDEMPOTENCY_PARTS_H_INCLUDED_ */
