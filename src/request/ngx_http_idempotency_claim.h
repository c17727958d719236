
/*
 * From the key to the verdict: identify, read the body, claim, act on what
 * the store replies.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_CLAIM_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_CLAIM_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Goes on from ctx->state, from a handler of the precontent phase.  Called
 * again after the body was read, after the store has replied, and after
 * internal redirects.  Returns the code of the phase.
 */
ngx_int_t ngx_http_idempotency_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * The request ends: settles its claim if that was not done, and counts its
 * result.  Its memory is still there, its connection may be gone.
 */
void ngx_http_idempotency_claim_end(ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_CLAIM_H_INCLUDED_ */
