
/*
 * Key, source and scope: find, check, name the record.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_IDENTIFY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_IDENTIFY_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * The first three return NGX_OK, NGX_DECLINED when there is no key,
 * NGX_ABORT when the key cannot be accepted, NGX_ERROR when memory is short.
 */

/*
 * Finds and checks the key if it is one header line of the request, without
 * evaluating any variable: safe before access was granted.  Sets ctx->key.  A
 * key from anywhere else is NGX_OK here, unseen.
 */
ngx_int_t ngx_http_idempotency_identify_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* Sets ctx->key, unquoted, and what makes it a number of a sequence. */
ngx_int_t ngx_http_idempotency_identify_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Sets ctx->source and ctx->scope, and from all three ctx->digest, the name
 * of the record.  NGX_DECLINED: the source is empty.
 */
ngx_int_t ngx_http_idempotency_identify_record(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * A digest of scope, source, key and epoch for one purpose: digests made for
 * different purposes have nothing in common.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_identify_digest(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *purpose, u_char *digest);


#endif /* _NGX_HTTP_IDEMPOTENCY_IDENTIFY_H_INCLUDED_ */
