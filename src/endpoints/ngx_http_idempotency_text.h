
/*
 * Text of any length, piece by piece, as the body of an answer.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_TEXT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_TEXT_H_INCLUDED_


#include "ngx_http_idempotency.h"


typedef struct {
    ngx_pool_t                        *pool;
    ngx_chain_t                       *out;
    ngx_chain_t                      **last;
    ngx_buf_t                         *buf;      /* being filled */
    off_t                              len;
    unsigned                           failed:1; /* memory was short */
} ngx_http_idempotency_text_t;


/* a format that a location can answer in */

typedef struct {
    ngx_str_t                          name;     /* of "format=" */
    ngx_str_t                          accept;
    ngx_str_t                          type;
    void                             (*write)(void *data,
                                         ngx_http_idempotency_text_t *text);
} ngx_http_idempotency_text_format_t;


/*
 * The format that a request asks for, by "?format=" or else by the first type
 * in Accept that is known; the first one if it asks for none.  NULL: the
 * argument names none of them.
 */
ngx_http_idempotency_text_format_t *ngx_http_idempotency_text_format(
    ngx_http_request_t *r, ngx_http_idempotency_text_format_t *formats);

void ngx_http_idempotency_text_init(ngx_http_idempotency_text_t *text,
    ngx_pool_t *pool);

/* as ngx_sprintf(), at most 1024 bytes at a time */
void ngx_http_idempotency_text_add(ngx_http_idempotency_text_t *text,
    const char *fmt, ...);

/* bytes as they are */
void ngx_http_idempotency_text_bytes(ngx_http_idempotency_text_t *text,
    const char *data, size_t len);

/*
 * a string as it stands between quotes in JSON, or in a label of Prometheus;
 * what is no UTF-8 or cannot be printed becomes a question mark
 */
void ngx_http_idempotency_text_json(ngx_http_idempotency_text_t *text,
    ngx_str_t *value);

/* a string as text of HTML or between the quotes of an attribute */
void ngx_http_idempotency_text_html(ngx_http_idempotency_text_t *text,
    ngx_str_t *value);

/*
 * sends it; returns as a content handler.  "send" forbids caches to keep it,
 * "output" leaves that to its caller.
 */
ngx_int_t ngx_http_idempotency_text_send(ngx_http_request_t *r,
    ngx_http_idempotency_text_t *text, ngx_uint_t status, ngx_str_t *type);
ngx_int_t ngx_http_idempotency_text_output(ngx_http_request_t *r,
    ngx_http_idempotency_text_t *text, ngx_uint_t status, ngx_str_t *type);


#endif /* _NGX_HTTP_IDEMPOTENCY_TEXT_H_INCLUDED_ */
