
/*
 * Many unknown outcomes are settled by one request.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_BATCH_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_BATCH_H_INCLUDED_


#include "ngx_http_idempotency_resolve.h"


/* a line of the request */

typedef struct {
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_uint_t                      flags;
    ngx_http_idempotency_resolve_t  resolve;
} ngx_http_idempotency_batch_line_t;


/*
 * Reads one line, a JSON object; its strings are in the pool.  NGX_OK;
 * NGX_DECLINED with *error; NGX_ERROR: memory is short.
 */
ngx_int_t ngx_http_idempotency_batch_parse(ngx_pool_t *pool, ngx_str_t *text,
    ngx_http_idempotency_batch_line_t *line, char **error);

/* The body was read: settles its lines, one after the other. */
ngx_int_t ngx_http_idempotency_batch_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The store has replied, or it is time to go on.  As a content handler. */
ngx_int_t ngx_http_idempotency_batch_reply(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_BATCH_H_INCLUDED_ */
