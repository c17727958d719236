
/*
 * What the module's own error answers say: status, code, advice, text.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_PROBLEM_TEXT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_PROBLEM_TEXT_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/* the strings need no escaping in JSON */

typedef struct {
    ngx_str_t                       line;          /* status */
    ngx_http_idempotency_result_e   result;
    ngx_str_t                       code;
    ngx_str_t                       retry;
    ngx_str_t                       retry_after;
    ngx_str_t                       title;
    ngx_str_t                       detail;
} ngx_http_idempotency_problem_t;


/* The problem of a verdict, as the profile of the location has it. */
void ngx_http_idempotency_problem_find(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem);

/*
 * The same without a request; "status" is that of an error of nginx's own, for
 * the verdicts that are about one.
 */
void ngx_http_idempotency_problem_of(ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_verdict_e verdict, ngx_uint_t status,
    ngx_http_idempotency_problem_t *problem);

/*
 * What the profile has besides: the type or the number of the error, or the
 * value of Repeatability-Result, or an empty string.
 */
ngx_str_t *ngx_http_idempotency_problem_kind(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e verdict);

/* The page that describes the codes, or an empty string. */
ngx_str_t *ngx_http_idempotency_problem_page(ngx_http_idempotency_ctx_t *ctx);

/*
 * Makes the body of the answer, "out", and sets its type, language and length.
 * NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_problem_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem, ngx_chain_t *out);


#endif /* _NGX_HTTP_IDEMPOTENCY_PROBLEM_TEXT_H_INCLUDED_ */
