
/*
 * The canonical text of a document.
 */


#ifndef _NGX_IDEMPOTENCY_CANONICAL_H_INCLUDED_
#define _NGX_IDEMPOTENCY_CANONICAL_H_INCLUDED_


#include "ngx_idempotency_body_tree.h"


typedef ngx_int_t (*ngx_idempotency_canonical_pt)(const u_char *data,
    size_t len);


/*
 * Gives the text of RFC 8785 to "handler", in pieces: no white space, names
 * sorted, each string in one form, each number as number.h has it.  What is
 * marked EXCLUDED is left out, and with "some" everything that is not
 * INCLUDED.  NGX_OK, or NGX_ERROR if the handler returns that.
 */
ngx_int_t ngx_idempotency_canonical(ngx_idempotency_body_tree_t *tree,
    ngx_uint_t some, ngx_idempotency_canonical_pt handler);


#endif /* _NGX_IDEMPOTENCY_CANONICAL_H_INCLUDED_ */
