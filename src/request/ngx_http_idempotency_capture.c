
/*
 * Header and body filter: hold the answer, collect it, store it, send it.
 */


#include "ngx_http_idempotency_capture.h"
#include "ngx_http_idempotency_answer.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_dry_run.h"
#include "ngx_http_idempotency_failpoint.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_note.h"
#include "ngx_http_idempotency_probe.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_repeatability.h"
#include "ngx_http_idempotency_replay.h"
#include "ngx_http_idempotency_suspect.h"
#include "ngx_http_idempotency_upstream.h"


static ngx_int_t ngx_http_idempotency_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_idempotency_op_e ngx_http_idempotency_capture_decide(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_capture_own_error(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_capture_unclaimed(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_collect(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in);
static ngx_idempotency_op_e ngx_http_idempotency_capture_outcome(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_store(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type);
static void ngx_http_idempotency_capture_stored(ngx_idempotency_op_t *op);
static void ngx_http_idempotency_capture_write_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_capture_upgrade(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_open(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_error(ngx_http_request_t *r);
static void ngx_http_idempotency_capture_check(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_problem(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_replace(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *out);
static void ngx_http_idempotency_capture_consume(ngx_chain_t *in);
static void ngx_http_idempotency_capture_warn_by_close(ngx_http_request_t *r);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


/* with an error of nginx's own: another key might execute twice */

static ngx_str_t  ngx_http_idempotency_capture_retry =
    ngx_string("same-key");


void
ngx_http_idempotency_capture_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_idempotency_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_idempotency_body_filter;
}


static ngx_int_t
ngx_http_idempotency_header_filter(ngx_http_request_t *r)
{
    ngx_idempotency_op_e         type;
    ngx_http_idempotency_ctx_t  *ctx;

    if (r != r->main) {
        ctx = ngx_http_idempotency_probe_find(r);

        return ctx ? ngx_http_idempotency_probe_header(r, ctx)
                   : ngx_http_next_header_filter(r);
    }

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx == NULL || ctx->state != NGX_HTTP_IDEMPOTENCY_STATE_RUNS) {
        if (ctx && ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_DRY_RUN) {
            ngx_http_idempotency_dry_run_header(r, ctx);
        }

        if (ctx
            && ngx_http_idempotency_capture_own_error(r, ctx)
            && ngx_http_idempotency_capture_unclaimed(r, ctx))
        {
            return ngx_http_idempotency_capture_problem(r, ctx);
        }

        if (ngx_http_idempotency_upstream_asked(r)) {
            ngx_http_idempotency_answer_strip(r);
        }

        return ngx_http_next_header_filter(r);
    }

    if (ctx->capture.state == NGX_HTTP_IDEMPOTENCY_CAPTURE_OPEN) {

        if (ctx->capture.send == NGX_HTTP_IDEMPOTENCY_SEND_ERROR) {

            if (ngx_http_idempotency_capture_own_error(r, ctx)) {
                return ngx_http_idempotency_capture_problem(r, ctx);
            }

            (void) ngx_http_idempotency_problem_retry(r,
                                         &ngx_http_idempotency_capture_retry);
        }

        return ngx_http_next_header_filter(r);
    }

    if (ctx->capture.state == NGX_HTTP_IDEMPOTENCY_CAPTURE_STORE) {

        /* an answer is being stored: an error after it does not count */

        return NGX_OK;
    }

    /* an error after a header that was held brings a second header */

    ngx_http_idempotency_answer_begin(r, ctx);

    ngx_http_idempotency_failpoint(ctx, "after_header");

    /* a range would cut the header below us, and not what we hold above */

    r->allow_ranges = 0;

    type = ngx_http_idempotency_capture_decide(r, ctx);

    if (type != NGX_IDEMPOTENCY_COMPLETE) {
        ctx->capture.keep = 0;
    }

    if (!ctx->capture.keep) {
        return ngx_http_idempotency_capture_store(r, ctx, type);
    }

    ctx->capture.state = NGX_HTTP_IDEMPOTENCY_CAPTURE_COLLECT;

    r->filter_need_in_memory = 1;

    if (r->method == NGX_HTTP_HEAD || r->header_only) {

        /* no body will come: ngx_http_header_filter() would say so later */

        r->header_only = 1;

        return ngx_http_idempotency_capture_store(r, ctx,
                               ngx_http_idempotency_capture_outcome(r, ctx));
    }

    return NGX_OK;
}


static ngx_idempotency_op_e
ngx_http_idempotency_capture_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_e          type;
    ngx_http_idempotency_facts_t  facts;

    ngx_http_idempotency_upstream_facts(r, ctx, &facts);

    /* the status of the upstream decides, that of the client is stored */

    if (facts.status == 0) {
        facts.status = r->headers_out.status;
    }

    facts.override = ngx_http_idempotency_answer_override(r, ctx, &facts);

    /* a cached answer of another request is not sent */

    ctx->capture.send = facts.stale ? NGX_HTTP_IDEMPOTENCY_SEND_ERROR
                                    : NGX_HTTP_IDEMPOTENCY_SEND_ANSWER;

    ctx->capture.grpc = facts.override == NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE
                && facts.answered
                && facts.status == r->headers_out.status
                && ngx_http_idempotency_answer_is_grpc(r);

    if (ctx->capture.grpc) {
        return NGX_IDEMPOTENCY_COMPLETE;
    }

    type = ngx_http_idempotency_policy_outcome(&facts, ctx->conf->final,
                                               ctx->conf->retryable);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency answer %ui after %O bytes sent: %s",
                   facts.status, facts.sent, ngx_idempotency_ops[type]);

    if (type == NGX_IDEMPOTENCY_COMPLETE) {
        return type;
    }

    ctx->capture.reason = ngx_http_idempotency_note_reason(r, ctx, &facts,
                                                           type);
    ctx->capture.reason_status = facts.status;

    ngx_log_error(ctx->conf->log_level, r->connection->log, 0,
                  "idempotency record \"%*xs\" is %s, status %ui",
                  NGX_IDEMPOTENCY_WHOLE, ctx->id.digest,
                  type == NGX_IDEMPOTENCY_RELEASE ? "released" : "unknown",
                  r->headers_out.status);

    if (facts.answered || (facts.ran && !facts.upstream)) {
        return type;
    }

    /* an error of nginx's own: another key might execute twice */

    if (ngx_http_idempotency_capture_own_error(r, ctx)) {
        ctx->capture.send = NGX_HTTP_IDEMPOTENCY_SEND_PROBLEM;

    } else {
        (void) ngx_http_idempotency_problem_retry(r,
                                         &ngx_http_idempotency_capture_retry);
    }

    return type;
}


/*
 * Is this the page that ngx_http_special_response_handler() makes for a 502,
 * 503 or 504?  Clients of an API read problems, but where error_page has led
 * to a page that one is sent, and a gRPC client reads neither.
 */

static ngx_uint_t
ngx_http_idempotency_capture_own_error(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (r->headers_out.status < NGX_HTTP_BAD_GATEWAY
        || r->headers_out.status > NGX_HTTP_GATEWAY_TIME_OUT
        || r->err_status != r->headers_out.status
        || ctx->upstream.earlier)
    {
        return 0;
    }

    if (!ngx_http_idempotency_upstream_failed_here(r, ctx)) {
        return 0;
    }

    return r->headers_in.content_type == NULL
           || ngx_http_idempotency_policy_grpc(
                                         &r->headers_in.content_type->value)
              == NGX_HTTP_IDEMPOTENCY_GRPC_NONE;
}


/*
 * Was the request to be protected, and nothing was sent of it?  It has met
 * limit_req, "return", or the error of an access check.
 */

static ngx_uint_t
ngx_http_idempotency_capture_unclaimed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->conf->dry_run || ngx_http_idempotency_upstream_asked(r)) {
        return 0;
    }

    return ctx->state < NGX_HTTP_IDEMPOTENCY_STATE_RUNS
           || (ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_REFUSED
               && ctx->refused >= NGX_HTTP_SPECIAL_RESPONSE);
}


static ngx_int_t
ngx_http_idempotency_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_idempotency_ctx_t  *ctx;

    if (r != r->main) {
        ctx = ngx_http_idempotency_probe_find(r);

        return ctx ? ngx_http_idempotency_probe_body(r, ctx, in)
                   : ngx_http_next_body_filter(r, in);
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    if (ctx == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    switch (ctx->capture.state) {

    case NGX_HTTP_IDEMPOTENCY_CAPTURE_COLLECT:
        return ngx_http_idempotency_capture_collect(r, ctx, in);

    case NGX_HTTP_IDEMPOTENCY_CAPTURE_STORE:

        /* what comes meanwhile stays with its sender, as for a slow client */

        if (in && !ctx->capture.complete
            && ngx_chain_add_copy(r->pool, &ctx->capture.body, in) != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (ctx->op->pending) {
            r->buffered |= NGX_HTTP_IDEMPOTENCY_BUFFERED;
            return NGX_AGAIN;
        }

        return ngx_http_idempotency_capture_open(r, ctx);

    default: /* NONE, OPEN */

        if (ctx->capture.send == NGX_HTTP_IDEMPOTENCY_SEND_REPLACED && in) {
            ngx_http_idempotency_capture_consume(in);
            return NGX_OK;
        }

        return ngx_http_next_body_filter(r, in);
    }
}


static ngx_int_t
ngx_http_idempotency_capture_collect(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in)
{
    switch (ngx_http_idempotency_answer_collect(r, ctx, &in)) {

    case NGX_OK:

        if (ngx_http_idempotency_upstream_by_close(r)) {
            ngx_http_idempotency_capture_warn_by_close(r);
        }

        return ngx_http_idempotency_capture_store(r, ctx,
                               ngx_http_idempotency_capture_outcome(r, ctx));

    case NGX_AGAIN:

        if (in == NULL || !ngx_http_idempotency_upstream_cut(r)) {
            return NGX_OK;
        }

        break;

    case NGX_DECLINED:

        /* too large: executed, but the answer is not stored */

        ctx->capture.keep = 0;

        if (ngx_chain_add_copy(r->pool, &ctx->capture.body, in) != NGX_OK) {
            break;
        }

        return ngx_http_idempotency_capture_store(r, ctx,
                                                  NGX_IDEMPOTENCY_COMPLETE);

    default: /* NGX_ABORT, NGX_ERROR */
        break;
    }

    /* the answer broke off */

    ctx->capture.reason = NGX_IDEMPOTENCY_REASON_CUT;
    ctx->capture.keep = 0;
    ctx->capture.send = NGX_HTTP_IDEMPOTENCY_SEND_ERROR;

    return ngx_http_idempotency_capture_store(r, ctx,
                                              NGX_IDEMPOTENCY_MARK_UNKNOWN);
}


static ngx_idempotency_op_e
ngx_http_idempotency_capture_outcome(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_e          type;
    ngx_http_idempotency_facts_t  facts;

    if (!ctx->capture.grpc) {
        return NGX_IDEMPOTENCY_COMPLETE;
    }

    ngx_http_idempotency_upstream_facts(r, ctx, &facts);

    facts.status = ngx_http_idempotency_answer_grpc_status(r);

    type = ngx_http_idempotency_policy_outcome(&facts, ctx->conf->final,
                                               ctx->conf->retryable);

    ctx->capture.reason = ngx_http_idempotency_note_reason(r, ctx, &facts,
                                                           type);
    ctx->capture.reason_status = facts.status;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency gRPC answer, as status %ui: %s",
                   facts.status, ngx_idempotency_ops[type]);

    if (type != NGX_IDEMPOTENCY_COMPLETE) {
        ctx->capture.keep = 0;

        ngx_log_error(ctx->conf->log_level, r->connection->log, 0,
                      "idempotency record \"%*xs\" is %s, its grpc-status "
                      "means status %ui",
                      NGX_IDEMPOTENCY_WHOLE, ctx->id.digest,
                      type == NGX_IDEMPOTENCY_RELEASE ? "released"
                                                      : "unknown",
                      facts.status);
    }

    return type;
}


/*
 * Stores the outcome.  The answer is sent when the store has acknowledged, or
 * when it cannot: then the client still gets what the upstream has sent.
 */

static ngx_int_t
ngx_http_idempotency_capture_store(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    ctx->capture.state = NGX_HTTP_IDEMPOTENCY_CAPTURE_STORE;

    op = ngx_http_idempotency_context_op(ctx, type);

    if (op == NULL) {
        return ngx_http_idempotency_capture_open(r, ctx);
    }

    ngx_http_idempotency_answer_attach(r, ctx, op);

    op->fence = ctx->fence;

    ngx_http_idempotency_note_settle(r, ctx, op);

    op->handler = ngx_http_idempotency_capture_stored;

    ctx->settled = 1;

    ngx_http_idempotency_failpoint(ctx, "before_complete");

    rc = ngx_idempotency_op_submit(op);

    if (ctx->suspect) {
        ngx_http_idempotency_suspect_settle(ctx, type);
    }

    if (rc != NGX_AGAIN) {
        return ngx_http_idempotency_capture_open(r, ctx);
    }

    if (r->headers_out.status == NGX_HTTP_SWITCHING_PROTOCOLS) {
        return ngx_http_idempotency_capture_upgrade(r, ctx);
    }

    r->buffered |= NGX_HTTP_IDEMPOTENCY_BUFFERED;

    return NGX_AGAIN;
}


/*
 * An upstream that is still there, and has sent nothing more, would not call
 * the filters: see ngx_http_upstream_process_downstream().  The header of a
 * stream must not wait for its first event.
 */

static void
ngx_http_idempotency_capture_stored(ngx_idempotency_op_t *op)
{
    ngx_http_request_t          *r;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = op->data;
    r = ctx->request;

    if (ngx_http_idempotency_upstream_alive(r)
        && !ctx->capture.complete
        && ctx->capture.send == NGX_HTTP_IDEMPOTENCY_SEND_ANSWER)
    {
        ctx->capture.write_handler = r->write_event_handler;
        r->write_event_handler = ngx_http_idempotency_capture_write_handler;
    }

    ngx_http_idempotency_context_wake(op);
}


static void
ngx_http_idempotency_capture_write_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    r->write_event_handler = ctx->capture.write_handler;

    if (ctx->capture.state == NGX_HTTP_IDEMPOTENCY_CAPTURE_STORE
        && ngx_http_output_filter(r, NULL) == NGX_ERROR)
    {
        /* as ngx_http_request_handler(): the upstream's cleanup takes one */

        r->main->count++;
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    r->write_event_handler(r);
}


/*
 * ngx_http_upstream_upgrade() writes past the filters and does not wait for a
 * header: storing goes on behind it.
 */

static ngx_int_t
ngx_http_idempotency_capture_upgrade(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_lease_let_go(&ctx->held);

    ngx_idempotency_op_drop(ctx->op);
    ctx->op = NULL;

    ctx->capture.state = NGX_HTTP_IDEMPOTENCY_CAPTURE_OPEN;

    return ngx_http_next_header_filter(r);
}


static ngx_int_t
ngx_http_idempotency_capture_open(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    op = ctx->op;

    ngx_http_idempotency_failpoint(ctx, "after_complete");

    ngx_idempotency_lease_let_go(&ctx->held);

    ctx->capture.state = NGX_HTTP_IDEMPOTENCY_CAPTURE_OPEN;
    r->buffered &= ~NGX_HTTP_IDEMPOTENCY_BUFFERED;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency sends the answer, %uz bytes collected",
                   ctx->capture.size);

    if (op == NULL || op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency store could not store the outcome of record "
                      "\"%*xs\"", NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);

    } else if (op->type == NGX_IDEMPOTENCY_COMPLETE) {

        if (op->result == NGX_IDEMPOTENCY_REFUSED) {
            return ngx_http_idempotency_capture_refused(r, ctx);
        }

        ngx_http_idempotency_capture_check(r, ctx);

        if (ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS) {
            (void) ngx_http_idempotency_repeatability_accepted(r);
        }

    } else if (op->result == NGX_IDEMPOTENCY_REFUSED && op->record.committed) {

        /* its answer was lost, and its work was not */

        return ngx_http_idempotency_capture_refused(r, ctx);
    }

    if (ctx->capture.send == NGX_HTTP_IDEMPOTENCY_SEND_ERROR) {
        return ngx_http_idempotency_capture_error(r);
    }

    if (ctx->capture.send == NGX_HTTP_IDEMPOTENCY_SEND_PROBLEM) {
        return ngx_http_idempotency_capture_problem(r, ctx);
    }

    if (op && op->error == NGX_IDEMPOTENCY_ERROR_NONE
        && op->type == NGX_IDEMPOTENCY_COMPLETE)
    {
        (void) ngx_http_idempotency_header_expires(r, ctx,
                                                   (uint64_t) op->ttl * 1000);
    }

    rc = ngx_http_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only
        || ctx->capture.body == NULL)
    {
        return rc;
    }

    /* even if the header could not leave at once */

    return ngx_http_next_body_filter(r, ctx->capture.body);
}


/*
 * Nothing was sent: the client gets a clean error.  If the upstream has ended,
 * ngx_http_finalize_request() makes it of what is returned, and error_page may
 * even ask another upstream for it; if not, ngx_http_filter_finalize_request()
 * makes the upstream stop.
 */

static ngx_int_t
ngx_http_idempotency_capture_error(ngx_http_request_t *r)
{
    if (ngx_http_idempotency_upstream_alive(r)) {
        return ngx_http_filter_finalize_request(r,
                                                &ngx_http_idempotency_module,
                                                NGX_HTTP_BAD_GATEWAY);
    }

    ngx_http_clean_header(r);

    r->err_status = 0;

    return NGX_HTTP_BAD_GATEWAY;
}


/*
 * With "idempotency_unknown transaction" a success whose record was not
 * committed means that a later retry after a lost answer would run again.
 */

static void
ngx_http_idempotency_capture_check(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->conf->unknown != NGX_HTTP_IDEMPOTENCY_UNKNOWN_TRANSACTION
        || ctx->op->record.committed
        || r->headers_out.status < NGX_HTTP_OK
        || r->headers_out.status >= NGX_HTTP_SPECIAL_RESPONSE)
    {
        return;
    }

    ngx_idempotency_count(ctx->op->store->counts->uncommitted);

    ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0,
                  "idempotency record \"%*xs\": the service has answered %ui "
                  "and did not commit the record, it must call begin() and "
                  "executed() in its transaction: if such an answer is lost, "
                  "a retry does the work again",
                  NGX_IDEMPOTENCY_WHOLE, ctx->id.digest,
                  r->headers_out.status);
}


/*
 * Another owner has settled the record: the client gets what the record says
 * instead of this answer.
 */

static ngx_int_t
ngx_http_idempotency_capture_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                       rc;
    ngx_chain_t                     out;
    ngx_http_idempotency_verdict_e  verdict;

    if (ctx->op->record.committed) {
        ngx_log_error(ctx->conf->log_level, r->connection->log, 0,
                      "idempotency record \"%*xs\" was committed by its "
                      "service, whose answer takes the place of the one that "
                      "was received", NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);

    } else {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idempotency record \"%*xs\" was settled by another "
                      "request or an operator, the answer of this request is "
                      "dropped", NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);
    }

    ngx_http_clean_header(r);

    verdict = ngx_http_idempotency_policy_duplicate(&ctx->op->record, NULL,
                                                    ctx->conf->duplicate);

    if (verdict == NGX_HTTP_IDEMPOTENCY_REPLAY
        && ngx_http_idempotency_replay_decode(r, ctx) == NGX_OK)
    {
        ngx_http_idempotency_event(ctx, NGX_HTTP_IDEMPOTENCY_REPLAYED, NULL);

        rc = ngx_http_idempotency_replay_fill(r, ctx, &out);

    } else {
        /* "cancelled" is not true: the store has lost the claim before */

        if (verdict == NGX_HTTP_IDEMPOTENCY_REPLAY
            || verdict == NGX_HTTP_IDEMPOTENCY_KEY_CANCELLED
            || ctx->op->record.state == NGX_IDEMPOTENCY_NONE
            || ctx->op->record.state == NGX_IDEMPOTENCY_ISSUED)
        {
            verdict = NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN;
        }

        ngx_http_idempotency_problem_event(ctx, verdict);

        rc = ngx_http_idempotency_problem_fill(r, ctx, verdict, &out);
    }

    return rc == NGX_OK ? ngx_http_idempotency_capture_replace(r, ctx, &out)
                        : NGX_ERROR;
}


/* A problem instead of nginx's own page, whose header has just come. */

static ngx_int_t
ngx_http_idempotency_capture_problem(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_chain_t                     out;
    ngx_http_idempotency_verdict_e  verdict;

    verdict = ngx_http_idempotency_upstream_sent(r, ctx)
              ? NGX_HTTP_IDEMPOTENCY_ANSWER_LOST
              : NGX_HTTP_IDEMPOTENCY_NOT_SENT;

    return ngx_http_idempotency_problem_fill(r, ctx, verdict, &out) == NGX_OK
           ? ngx_http_idempotency_capture_replace(r, ctx, &out) : NGX_ERROR;
}


/* The header was set, "out" is the body; what is still to come is dropped. */

static ngx_int_t
ngx_http_idempotency_capture_replace(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *out)
{
    ngx_int_t  rc;

    ctx->capture.send = NGX_HTTP_IDEMPOTENCY_SEND_REPLACED;
    ngx_http_idempotency_capture_consume(ctx->capture.body);

    rc = ngx_http_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_next_body_filter(r, out);
}


static void
ngx_http_idempotency_capture_consume(ngx_chain_t *in)
{
    for ( /* void */ ; in; in = in->next) {
        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }
}


/* Only the closed connection has ended the answer: it may be truncated. */

static void
ngx_http_idempotency_capture_warn_by_close(ngx_http_request_t *r)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    if (imcf->by_close++) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "idempotency stores an answer that has no length and ended "
                  "with its connection, it may be truncated: "
                  "let the upstream send a length or chunks, as with "
                  "\"proxy_http_version 1.1\" or \"fastcgi_keep_conn on\"; "
                  "further ones are counted only");
}
