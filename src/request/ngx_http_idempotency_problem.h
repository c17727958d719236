
/*
 * The module's own error answers.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_PROBLEM_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_PROBLEM_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/*
 * Answers with a problem, from a phase handler.  Returns what the handler is
 * to return: NGX_DONE, or the status when an error_page wants it, or
 * NGX_DECLINED in a dry run.  Sets the state and the result of the request.
 */
ngx_int_t ngx_http_idempotency_problem(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict);

/*
 * Ends the request with a status and no answer of our own.  Sets its state and
 * returns what the phase handler is to return: the status, or NGX_DECLINED in
 * a dry run.
 */
ngx_int_t ngx_http_idempotency_problem_failed(ngx_http_idempotency_ctx_t *ctx,
    ngx_int_t status);

/*
 * error_page has led a refused request to a content handler: sends the same
 * answer, from a phase handler.  Logs and counts nothing.
 */
ngx_int_t ngx_http_idempotency_problem_again(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The result that belongs to a problem, and its code. */
ngx_http_idempotency_result_e ngx_http_idempotency_problem_result(
    ngx_http_idempotency_verdict_e verdict, ngx_str_t **code);

/* Sets the result that belongs to the problem, and logs it. */
void ngx_http_idempotency_problem_event(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e verdict);

/*
 * Makes the problem the answer of the request, from a filter: sets the
 * header and returns the body in "out".  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_problem_fill(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_chain_t *out);

/* Tells the client which key to retry with; "value" is not copied. */
ngx_int_t ngx_http_idempotency_problem_retry(ngx_http_request_t *r,
    ngx_str_t *value);


#endif /* _NGX_HTTP_IDEMPOTENCY_PROBLEM_H_INCLUDED_ */
