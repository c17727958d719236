
/*
 * The module's own error answers.
 */


#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_event.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_problem_body.h"


static ngx_int_t ngx_http_idempotency_problem_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict);
static void ngx_http_idempotency_problem_find(
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem);
static ngx_uint_t ngx_http_idempotency_problem_status(
    ngx_http_idempotency_problem_t *problem);
static ngx_int_t ngx_http_idempotency_problem_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict);
static ngx_uint_t ngx_http_idempotency_problem_has_page(ngx_http_request_t *r,
    ngx_uint_t status);
static ngx_int_t ngx_http_idempotency_problem_headers(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_problem_t *problem);
static ngx_int_t ngx_http_idempotency_problem_link(ngx_http_request_t *r,
    ngx_str_t *url);


/* in the order of the verdicts, from KEY_MISSING on */

static ngx_http_idempotency_problem_t  ngx_http_idempotency_problems[] = {

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_MISSING,
      ngx_string("key_missing"), ngx_string("new-key"), ngx_null_string,
      ngx_string("Idempotency key is missing"),
      ngx_string("This operation needs an idempotency key. Send the request "
                 "again with a key that was never used before.") },

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_INVALID,
      ngx_string("key_invalid"), ngx_string("new-key"), ngx_null_string,
      ngx_string("Idempotency key is invalid"),
      ngx_string("The idempotency key is empty, too long, given twice, or has "
                 "characters other than visible ASCII. Send the request "
                 "again with one well-formed key.") },

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_INVALID,
      ngx_string("source_missing"), ngx_string("never"), ngx_null_string,
      ngx_string("Source of the request is missing"),
      ngx_string("It cannot be told who sends this request. Send it with the "
                 "credentials that this operation expects.") },

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_INVALID,
      ngx_string("body_invalid"), ngx_string("new-key"), ngx_null_string,
      ngx_string("Request body is invalid"),
      ngx_string("The body is not a well-formed document of the type that "
                 "this operation expects, or is compressed. It was not "
                 "executed. Send a corrected request with a new key.") },

    { ngx_string("422 Unprocessable Content"), NGX_HTTP_IDEMPOTENCY_MISMATCH,
      ngx_string("key_reused"), ngx_string("new-key"), ngx_null_string,
      ngx_string("Idempotency key is already used"),
      ngx_string("This idempotency key was used before with another request. "
                 "Send a new request with a new key.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_IN_PROGRESS,
      ngx_string("in_progress"), ngx_string("same-key"), ngx_string("1"),
      ngx_string("A request with this idempotency key is in progress"),
      ngx_string("The first request with this idempotency key is still "
                 "running. Retry later with the same key to get its "
                 "answer.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_UNKNOWN,
      ngx_string("outcome_unknown"), ngx_string("same-key"), ngx_null_string,
      ngx_string("Outcome of the first request is unknown"),
      ngx_string("The first request with this idempotency key may have been "
                 "executed. It is not executed again until that is settled. "
                 "Ask what happened before you use another key.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_REJECTED,
      ngx_string("duplicate"), ngx_string("never"), ngx_null_string,
      ngx_string("Request is a duplicate"),
      ngx_string("The request with this idempotency key was executed before "
                 "and is not executed again.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_REJECTED,
      ngx_string("response_not_kept"), ngx_string("never"), ngx_null_string,
      ngx_string("Answer of the first request was not kept"),
      ngx_string("The request with this idempotency key was executed before, "
                 "and its answer was not kept. It is not executed again.") },

    { ngx_string("410 Gone"), NGX_HTTP_IDEMPOTENCY_EXPIRED,
      ngx_string("key_expired"), ngx_string("never"), ngx_null_string,
      ngx_string("Idempotency key has expired"),
      ngx_string("The request with this idempotency key was executed before, "
                 "and its answer is no longer kept. It is not executed "
                 "again.") },

    { ngx_string("503 Service Unavailable"), NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
      ngx_string("store_unavailable"), ngx_string("same-key"), ngx_string("1"),
      ngx_string("Idempotency store is unavailable"),
      ngx_string("The store cannot be used now, so this request was not "
                 "executed. Whether an earlier one with this idempotency key "
                 "was is not known. Retry later with the same key.") },

    { ngx_string("503 Service Unavailable"), NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
      ngx_string("store_unavailable"), ngx_string("same-key"), ngx_string("1"),
      ngx_string("Idempotency store is unavailable"),
      ngx_string("There is a record of this idempotency key, and it cannot be "
                 "read now: an earlier request may have been executed. It is "
                 "not executed again. Retry later with the same key, do not "
                 "use another one.") },

    { ngx_string("425 Too Early"), NGX_HTTP_IDEMPOTENCY_REJECTED,
      ngx_string("early_data"), ngx_string("same-key"), ngx_null_string,
      ngx_string("Request came in TLS early data"),
      ngx_string("Early data can be replayed by others, so the request was "
                 "not executed. Send it again with the same key once the "
                 "handshake is complete.") },

    { ngx_string("403 Forbidden"), NGX_HTTP_IDEMPOTENCY_NOT_ISSUED,
      ngx_string("not_issued"), ngx_string("new-key"), ngx_null_string,
      ngx_string("Idempotency key was not issued"),
      ngx_string("The idempotency key must be a token that was issued to you "
                 "and has not expired. Fetch a token and send the request "
                 "with it.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_OUT_OF_ORDER,
      ngx_string("out_of_order"), ngx_string("never"), ngx_null_string,
      ngx_string("Number is out of order"),
      ngx_string("Requests are executed in the order of their numbers, and it "
                 "is not the turn of this one. It was not executed now. Go on "
                 "with the number that is expected, or with a higher "
                 "epoch.") },

    { ngx_string("404 Not Found"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("not_found"), ngx_string("same-key"), ngx_null_string,
      ngx_string("Nothing is known of this idempotency key"),
      ngx_string("No request with this idempotency key was executed or is "
                 "running, as far as is remembered. A request with it would "
                 "be executed.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("fence_mismatch"), ngx_string("never"), ngx_null_string,
      ngx_string("Record has another fence"),
      ngx_string("The record was changed since it was looked at. Nothing was "
                 "done. Look at it again, and name the fence that it has "
                 "now.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("state_mismatch"), ngx_string("never"), ngx_null_string,
      ngx_string("Record is in another state"),
      ngx_string("Only a record that is unknown can be resolved, and only one "
                 "that nobody is executing can be purged. Nothing was "
                 "done.") },

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("argument_invalid"), ngx_string("never"), ngx_null_string,
      ngx_string("Argument is missing or invalid"),
      ngx_string("DELETE needs fence=, POST needs fence= and resolve=executed "
                 "or resolve=not-executed; an answer needs status= from 200 "
                 "to 599. A list needs state= and a cursor= as it was given. "
                 "Nothing was done.") },

    { ngx_string("405 Method Not Allowed"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("method_not_allowed"), ngx_string("never"), ngx_null_string,
      ngx_string("Method is not allowed"),
      ngx_string("The header Allow tells which methods are.") },

    { ngx_string("413 Content Too Large"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("answer_too_large"), ngx_string("never"), ngx_null_string,
      ngx_string("Answer is too large to be kept"),
      ngx_string("The answer is larger than idempotency_max_response. Nothing "
                 "was done. Resolve with a smaller one, or without a body and "
                 "without status=.") },

    { ngx_string("403 Forbidden"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("cross_site"), ngx_string("never"), ngx_null_string,
      ngx_string("Request comes from another site"),
      ngx_string("Records are not changed on behalf of a page of another "
                 "site. The header Origin must name the host that the request "
                 "is sent to, and Sec-Fetch-Site must be same-origin or none, "
                 "if they are sent. Nothing was done.") }
};


ngx_int_t
ngx_http_idempotency_problem(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict)
{
    ngx_uint_t                      status;
    ngx_http_idempotency_problem_t  problem;

    ngx_http_idempotency_problem_find(ctx, verdict, &problem);

    status = ngx_http_idempotency_problem_status(&problem);

    ctx->way = ctx->conf->dry_run ? NGX_HTTP_IDEMPOTENCY_WAY_PASSED
                                  : NGX_HTTP_IDEMPOTENCY_WAY_REFUSED;
    ctx->refused = verdict;

    ngx_http_idempotency_problem_event(ctx, verdict);

    if (ctx->conf->dry_run) {
        return NGX_DECLINED;
    }

    if (ngx_http_idempotency_problem_has_page(r, status)) {

        if (ngx_http_idempotency_problem_headers(r, ctx, &problem)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return status;
    }

    return ngx_http_idempotency_problem_answer(r, ctx, verdict);
}


ngx_int_t
ngx_http_idempotency_problem_failed(ngx_http_idempotency_ctx_t *ctx,
    ngx_int_t status)
{
    ctx->way = ctx->conf->dry_run ? NGX_HTTP_IDEMPOTENCY_WAY_PASSED
                                  : NGX_HTTP_IDEMPOTENCY_WAY_REFUSED;
    ctx->refused = status;

    return ctx->conf->dry_run ? NGX_DECLINED : status;
}


ngx_int_t
ngx_http_idempotency_problem_again(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->refused >= NGX_HTTP_SPECIAL_RESPONSE) {
        return ctx->refused;
    }

    /* "error_page 409 =200" is for a page, which there is none of */

    r->err_status = 0;

    return ngx_http_idempotency_problem_answer(r, ctx, ctx->refused);
}


static ngx_int_t
ngx_http_idempotency_problem_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict)
{
    ngx_int_t  rc;

    /* as ngx_http_special_response_handler(): no "100 Continue" any more */

    r->expect_tested = 1;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_finalize_request(r, ngx_http_idempotency_problem_send(r, ctx,
                                                                   verdict));
    return NGX_DONE;
}


/* a log has one word for one thing, whatever the profile */

void
ngx_http_idempotency_problem_event(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e verdict)
{
    ngx_str_t                      *code;
    ngx_http_idempotency_result_e   result;

    result = ngx_http_idempotency_problem_result(verdict, &code);

    ngx_http_idempotency_event(ctx, result, code);

    if (result == NGX_HTTP_IDEMPOTENCY_OFF) {

        /* who asks and gets another answer than it hoped for is no event */

        ngx_log_error(NGX_LOG_INFO, ctx->request->connection->log, 0,
                      "idempotency refused a lookup, code \"%V\"", code);
    }
}


ngx_http_idempotency_result_e
ngx_http_idempotency_problem_result(ngx_http_idempotency_verdict_e verdict,
    ngx_str_t **code)
{
    ngx_http_idempotency_problem_t  *problem;

    problem = &ngx_http_idempotency_problems[verdict
                                          - NGX_HTTP_IDEMPOTENCY_KEY_MISSING];

    *code = &problem->code;

    return problem->result;
}


static void
ngx_http_idempotency_problem_find(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem)
{
    *problem = ngx_http_idempotency_problems[verdict
                                          - NGX_HTTP_IDEMPOTENCY_KEY_MISSING];

    ngx_http_idempotency_problem_translate(ctx->conf->profile, verdict,
                                           problem);
}


static ngx_uint_t
ngx_http_idempotency_problem_status(ngx_http_idempotency_problem_t *problem)
{
    return ngx_atoi(problem->line.data, 3);
}


static ngx_int_t
ngx_http_idempotency_problem_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict)
{
    ngx_int_t    rc;
    ngx_chain_t  out;

    if (ngx_http_idempotency_problem_fill(r, ctx, verdict, &out) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, &out);
}


ngx_int_t
ngx_http_idempotency_problem_fill(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_chain_t *out)
{
    ngx_http_idempotency_problem_t  problem;

    ngx_http_idempotency_problem_find(ctx, verdict, &problem);

    r->headers_out.status = ngx_http_idempotency_problem_status(&problem);
    r->headers_out.status_line = problem.line;

    r->disable_not_modified = 1;
    r->allow_ranges = 0;

    if (ngx_http_idempotency_problem_headers(r, ctx, &problem) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_problem_body(r, ctx, verdict, &problem, out);
}


/* as ngx_http_special_response_handler() will decide */

static ngx_uint_t
ngx_http_idempotency_problem_has_page(ngx_http_request_t *r,
    ngx_uint_t status)
{
    ngx_uint_t                 i;
    ngx_http_err_page_t       *page;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (r->error_page || clcf->error_pages == NULL || r->uri_changes == 0) {
        return 0;
    }

    page = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {
        if ((ngx_uint_t) page[i].status == status) {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_idempotency_problem_headers(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_problem_t *problem)
{
    static ngx_str_t  retry_after = ngx_string("Retry-After");

    /* its clients ask this header before they look at the status */

    static ngx_str_t  should_retry = ngx_string("Stripe-Should-Retry");
    static ngx_str_t  yes = ngx_string("true");
    static ngx_str_t  no = ngx_string("false");

    if (ctx->advised) {
        return NGX_OK;
    }

    ctx->advised = 1;

    if (ngx_http_idempotency_header_no_store(r) != NGX_OK
        || ngx_http_idempotency_problem_retry(r, &problem->retry) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (problem->retry_after.len
        && ngx_http_idempotency_header_add(&r->headers_out.headers,
                                           &retry_after,
                                           &problem->retry_after)
           == NULL)
    {
        return NGX_ERROR;
    }

    if (ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_STRIPE
        && ngx_http_idempotency_header_add(&r->headers_out.headers,
                                           &should_retry,
                                           problem->retry.data[0] == 's'
                                           ? &yes : &no)
           == NULL)
    {
        return NGX_ERROR;
    }

    if (ctx->conf->describedby.len == 0) {
        return NGX_OK;
    }

    return ngx_http_idempotency_problem_link(r, &ctx->conf->describedby);
}


ngx_int_t
ngx_http_idempotency_problem_retry(ngx_http_request_t *r, ngx_str_t *value)
{
    static ngx_str_t  name = ngx_string("Idempotency-Retry");

    if (ngx_http_idempotency_header_add(&r->headers_out.headers, &name, value)
        == NULL)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_problem_link(ngx_http_request_t *r, ngx_str_t *url)
{
    ngx_str_t         value;
    ngx_table_elt_t  *h;

    static ngx_str_t  name = ngx_string("Link");

    value.len = sizeof("<>; rel=\"describedby\"") - 1 + url->len;
    value.data = ngx_pnalloc(r->pool, value.len);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(value.data, "<%V>; rel=\"describedby\"", url);

    h = ngx_http_idempotency_header_add(&r->headers_out.headers, &name,
                                        &value);
    if (h == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_add_multi_header(r, &r->headers_out.link, h);
}
