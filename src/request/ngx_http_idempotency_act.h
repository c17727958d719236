
/*
 * What the store's answer means for the request.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_ACT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_ACT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Asks the store, and acts if it has answered at once.  "fence" is that of an
 * unknown that the operation is about, or 0.  All of these return the code of
 * the phase.
 */
ngx_int_t ngx_http_idempotency_act_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type,
    uint64_t fence);

/* the store has answered: ctx->op is finished */
ngx_int_t ngx_http_idempotency_act(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* a request that waits for another one was woken */
ngx_int_t ngx_http_idempotency_act_woken(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* the upstream may have answered a probe */
ngx_int_t ngx_http_idempotency_act_told(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_ACT_H_INCLUDED_ */
