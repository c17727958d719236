
/*
 * The body of an error answer, in the words of a profile.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_PROBLEM_BODY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_PROBLEM_BODY_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/* nothing in it needs escaping in JSON */

typedef struct {
    ngx_str_t                       line;          /* status */
    ngx_http_idempotency_result_e   result;
    ngx_str_t                       code;
    ngx_str_t                       retry;
    ngx_str_t                       retry_after;
    ngx_str_t                       title;
    ngx_str_t                       detail;
} ngx_http_idempotency_problem_t;


/* Makes status and code those of the profile. */
void ngx_http_idempotency_problem_translate(ngx_uint_t profile,
    ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem);

/*
 * Writes the body and sets type and length of the answer, whose status is set
 * already.  NGX_ERROR when memory is short.
 */
ngx_int_t ngx_http_idempotency_problem_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem, ngx_chain_t *out);


#endif /* _NGX_HTTP_IDEMPOTENCY_PROBLEM_BODY_H_INCLUDED_ */
