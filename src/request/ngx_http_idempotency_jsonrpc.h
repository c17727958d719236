
/*
 * Requests that are messages of JSON-RPC: their id and key, and replays that
 * carry the id of the request that asks for them.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_JSONRPC_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_JSONRPC_H_INCLUDED_


#include "ngx_http_idempotency.h"
#include "ngx_idempotency_body_tree.h"


/*
 * Reads the message in the body, which must have been read: sets ctx->jsonrpc
 * once.  NGX_OK; NGX_DECLINED when the body is not one message, which is
 * logged, and the reason is kept for the answer; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_jsonrpc(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * The key, from the header or from the message.  NGX_OK; NGX_DECLINED when
 * there is none; NGX_ABORT when there are several that differ, or one that is
 * no string.
 */
ngx_int_t ngx_http_idempotency_jsonrpc_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *key);

/* The id for an error, as the client has written it, or "null". */
ngx_str_t *ngx_http_idempotency_jsonrpc_id(ngx_http_idempotency_ctx_t *ctx);

/*
 * ctx->stored is to be replayed.  NGX_OK, or NGX_ABORT when its id ought to be
 * another one and cannot be changed.
 */
ngx_int_t ngx_http_idempotency_jsonrpc_check(ngx_http_idempotency_ctx_t *ctx);

/*
 * Puts the id of this request into the answer: "out" is the stored body in one
 * buffer, and in three afterwards; the stored bytes are not changed.  The
 * header was set from the record: its length is corrected, and digests of the
 * body are removed.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_jsonrpc_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *out);

/* Marks what is no part of the operation: EXCLUDED. */
void ngx_http_idempotency_jsonrpc_mark(ngx_idempotency_body_tree_t *tree);


#endif /* _NGX_HTTP_IDEMPOTENCY_JSONRPC_H_INCLUDED_ */
