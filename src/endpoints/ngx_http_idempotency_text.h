
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

/* sends it; returns as a content handler */
ngx_int_t ngx_http_idempotency_text_send(ngx_http_request_t *r,
    ngx_http_idempotency_text_t *text, ngx_uint_t status, ngx_str_t *type);


#endif /* _NGX_HTTP_IDEMPOTENCY_TEXT_H_INCLUDED_ */
