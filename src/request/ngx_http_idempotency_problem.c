
/*
 * The module's own error answers.
 */


#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_problem_text.h"
#include "ngx_http_idempotency_repeatability.h"
#include "ngx_http_idempotency_wait.h"


static ngx_int_t ngx_http_idempotency_problem_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict);
static ngx_uint_t ngx_http_idempotency_problem_status(
    ngx_http_idempotency_problem_t *problem);
static ngx_int_t ngx_http_idempotency_problem_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict);
static ngx_uint_t ngx_http_idempotency_problem_has_page(ngx_http_request_t *r,
    ngx_uint_t status);
static ngx_int_t ngx_http_idempotency_problem_headers(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem);
static ngx_int_t ngx_http_idempotency_problem_link(ngx_http_request_t *r,
    ngx_str_t *url);


ngx_int_t
ngx_http_idempotency_problem(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict)
{
    ngx_uint_t                      status;
    ngx_http_idempotency_problem_t  problem;

    ngx_http_idempotency_problem_find(ctx, verdict, &problem);

    status = ngx_http_idempotency_problem_status(&problem);

    ngx_http_idempotency_problem_event(ctx, verdict);

    if (ngx_http_idempotency_problem_failed(ctx, verdict) == NGX_DECLINED) {
        return NGX_DECLINED;
    }

    if (ngx_http_idempotency_problem_has_page(r, status)) {

        if (ngx_http_idempotency_problem_headers(r, ctx, verdict, &problem)
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
    ctx->refused = status;

    if (ctx->conf->dry_run) {
        ngx_http_idempotency_set_state(ctx,
                                       NGX_HTTP_IDEMPOTENCY_STATE_PASSED);
        return NGX_DECLINED;
    }

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_REFUSED);

    if (ctx->wait.state != NGX_HTTP_IDEMPOTENCY_WAIT_NONE) {

        /* other waiters get the turn before this answer is sent, not after */

        ngx_http_idempotency_wait_end(ctx);
    }

    return status;
}


ngx_int_t
ngx_http_idempotency_problem_again(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->refused >= NGX_HTTP_SPECIAL_RESPONSE) {
        return ctx->refused;
    }

    /* the status of "error_page 409 =200" is that of a page, not of this */

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


/* The codes in the log do not depend on the profile. */

void
ngx_http_idempotency_problem_event(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e verdict)
{
    ngx_str_t                      *code;
    ngx_http_idempotency_result_e   result;

    result = ngx_http_idempotency_problem_result(verdict, &code);

    ngx_http_idempotency_event(ctx, result, code);

    if (result == NGX_HTTP_IDEMPOTENCY_OFF) {

        /* a refused lookup is no result of a protected request */

        ngx_log_error(NGX_LOG_INFO, ctx->request->connection->log, 0,
                      "idempotency refused a lookup, code \"%V\"", code);
    }
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

    if (ngx_http_idempotency_problem_headers(r, ctx, verdict, &problem)
        != NGX_OK)
    {
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
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem)
{
    ngx_str_t  *page, *kind;

    static ngx_str_t  retry_after = ngx_string("Retry-After");

    /* Stripe's libraries retry by this header, whatever the status is */

    static ngx_str_t  should_retry = ngx_string("Stripe-Should-Retry");
    static ngx_str_t  yes = ngx_string("true");
    static ngx_str_t  no = ngx_string("false");

    if (ctx->problem_headers) {
        return NGX_OK;
    }

    ctx->problem_headers = 1;

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
                                           && problem->result
                                              != NGX_HTTP_IDEMPOTENCY_MISMATCH
                                           ? &yes : &no)
           == NULL)
    {
        return NGX_ERROR;
    }

    /* the record of an executed or cancelled key: this answer ends with it */

    if (ctx->op
        && ctx->op->record.state >= NGX_IDEMPOTENCY_DONE
        && (problem->result == NGX_HTTP_IDEMPOTENCY_REJECTED
            || problem->result == NGX_HTTP_IDEMPOTENCY_EXPIRED)
        && ngx_http_idempotency_header_expires(r, ctx,
                                               ctx->op->record.ttl_msec)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    kind = ngx_http_idempotency_problem_kind(ctx, verdict);

    if (ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS
        && kind->len
        && ngx_http_idempotency_repeatability_result(r, kind) != NGX_OK)
    {
        return NGX_ERROR;
    }

    page = ngx_http_idempotency_problem_page(ctx);

    return page->len ? ngx_http_idempotency_problem_link(r, page) : NGX_OK;
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
