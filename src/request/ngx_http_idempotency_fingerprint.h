
/*
 * What must be equal in a duplicate.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_FINGERPRINT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_FINGERPRINT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Sets ctx->fingerprint from the body, which must have been read, and the
 * value of with=.  All zero when fingerprints are off.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_fingerprint(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_FINGERPRINT_H_INCLUDED_ */
