
/*
 * The canonical text of a document.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_CANONICAL_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_CANONICAL_H_INCLUDED_


#include "ngx_http_idempotency_doc.h"


typedef ngx_int_t (*ngx_http_idempotency_canonical_pt)(const u_char *data,
    size_t len);


/*
 * Gives the text of RFC 8785 to "handler", in pieces: no white space, names
 * sorted, each string in one form, each number as number.h has it.  What is
 * marked EXCLUDED is left out, and with "some" everything that is not
 * INCLUDED.  NGX_OK, or NGX_ERROR when the handler says so.
 */
ngx_int_t ngx_http_idempotency_canonical(ngx_http_idempotency_doc_t *doc,
    ngx_uint_t some, ngx_http_idempotency_canonical_pt handler);


#endif /* _NGX_HTTP_IDEMPOTENCY_CANONICAL_H_INCLUDED_ */
