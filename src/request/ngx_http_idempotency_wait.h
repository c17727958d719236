
/*
 * A duplicate waits for the first request with its key.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_WAIT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_WAIT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Begins to wait, or goes on waiting after a claim that brought no change.
 * NGX_OK: the request will be woken; NGX_DECLINED: its time is over, or too
 * many wait.
 */
ngx_int_t ngx_http_idempotency_wait(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Why the request was woken.  NGX_OK: another waiter has read the record,
 * which is that of ctx->op now; NGX_DECLINED: this one is to claim again;
 * NGX_ABORT: its time is over; NGX_AGAIN: for none of these, it waits on.
 */
ngx_int_t ngx_http_idempotency_wait_woken(ngx_http_idempotency_ctx_t *ctx);

/* Gives the record of ctx->op, if it is settled, to the other waiters. */
void ngx_http_idempotency_wait_share(ngx_http_idempotency_ctx_t *ctx);

/* The request, which has waited, does not wait any longer. */
void ngx_http_idempotency_wait_end(ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_WAIT_H_INCLUDED_ */
