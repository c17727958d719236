
/*
 * One reader of the request body, in memory and in its temporary file.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_BODY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_BODY_H_INCLUDED_


#include "ngx_http_idempotency.h"
#include "ngx_idempotency_body_tree.h"


typedef ngx_int_t (*ngx_http_idempotency_body_pt)(const u_char *data,
    size_t len);


/*
 * Gives the whole body, which must have been read, to "handler" in pieces.
 * Returns NGX_OK, NGX_ERROR when the file cannot be read, or what the handler
 * returned if that is not NGX_OK.
 */
ngx_int_t ngx_http_idempotency_body_read(ngx_http_request_t *r,
    ngx_http_idempotency_body_pt handler);

/*
 * The whole body, which must have been read, in one piece; to be freed, with
 * NULL for the document.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_body_whole(ngx_http_request_t *r,
    ngx_str_t *body);

/*
 * The whole body, which must have been read, as JSON or as a form.  NGX_OK;
 * NGX_DECLINED when it is not what it should be, or compressed, which is
 * logged; NGX_ERROR.  An empty body is a document without values.  To be freed
 * whatever this returns.
 */
ngx_int_t ngx_http_idempotency_body_parse(ngx_http_request_t *r,
    ngx_uint_t json, ngx_idempotency_body_tree_t *tree);
void ngx_http_idempotency_body_free(ngx_http_request_t *r,
    ngx_idempotency_body_tree_t *tree);

/*
 * Logs that the body is not "what", JSON for example, and keeps the reason for
 * the answer; the texts need no escaping in JSON.
 */
void ngx_http_idempotency_body_refused(ngx_http_request_t *r, char *what,
    char *error, size_t offset);

/* Is there a Content-Encoding other than "identity"? */
ngx_uint_t ngx_http_idempotency_body_encoded(ngx_http_request_t *r);


#endif /* _NGX_HTTP_IDEMPOTENCY_BODY_H_INCLUDED_ */
