
/*
 * Repeatable requests as OASIS has them: their date, and Repeatability-Result.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_REPEATABILITY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_REPEATABILITY_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/*
 * Checks Repeatability-First-Sent, which must come with the key and not
 * without it; "rc" is the result of looking for the key.  EXECUTE, or the
 * problem.  Evaluates no variable.
 */
ngx_http_idempotency_verdict_e ngx_http_idempotency_repeatability(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc);

/*
 * Adds Repeatability-Result, instead of one that the upstream has sent;
 * "value" is not copied.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_repeatability_result(ngx_http_request_t *r,
    ngx_str_t *value);

/* The same: the operation was executed once, now or before. */
ngx_int_t ngx_http_idempotency_repeatability_accepted(ngx_http_request_t *r);


#endif /* _NGX_HTTP_IDEMPOTENCY_REPEATABILITY_H_INCLUDED_ */
