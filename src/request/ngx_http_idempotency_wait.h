
/*
 * A duplicate waits for the first request of its key.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_WAIT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_WAIT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Begins to wait, or goes on after its turn has brought no news.  NGX_OK: the
 * request will be woken; NGX_DECLINED: its time is over, or too many wait.
 */
ngx_int_t ngx_http_idempotency_wait(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * What woke it.  NGX_OK: another one has asked, and ctx->op is what it was
 * told; NGX_DECLINED: it should ask itself; NGX_ABORT: its time is over;
 * NGX_AGAIN: nothing did.
 */
ngx_int_t ngx_http_idempotency_wait_woken(ngx_http_idempotency_ctx_t *ctx);

/* the record in ctx->op is settled: those who wait for it may have it, too */
void ngx_http_idempotency_wait_share(ngx_http_idempotency_ctx_t *ctx);

/* waits no longer */
void ngx_http_idempotency_wait_end(ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_WAIT_H_INCLUDED_ */
