
/*
 * Header and body filter: hold, collect, complete, let go.
 */


#include "ngx_http_idempotency_capture.h"
#include "ngx_http_idempotency_answer.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_dry.h"
#include "ngx_http_idempotency_event.h"
#include "ngx_http_idempotency_failpoint.h"
#include "ngx_http_idempotency_grpc.h"
#include "ngx_http_idempotency_probe.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_replay.h"
#include "ngx_http_idempotency_upstream.h"


static ngx_int_t ngx_http_idempotency_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_idempotency_op_e ngx_http_idempotency_capture_decide(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_collect(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_http_idempotency_capture_store(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type);
static void ngx_http_idempotency_capture_stored(ngx_idempotency_op_t *op);
static void ngx_http_idempotency_capture_go_on(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_capture_upgrade(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_open(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_capture_broken(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_capture_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_capture_swallow(ngx_chain_t *in);
static void ngx_http_idempotency_capture_by_close(ngx_http_request_t *r);


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

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx == NULL || ctx->way != NGX_HTTP_IDEMPOTENCY_WAY_OWNED) {
        if (ctx && ctx->dry) {
            ngx_http_idempotency_dry_header(r, ctx);
        }

        if (ngx_http_idempotency_upstream_asked(r)) {
            ngx_http_idempotency_answer_strip(r);
        }

        return ngx_http_next_header_filter(r);
    }

    if (ctx->answer == NGX_HTTP_IDEMPOTENCY_ANSWER_OPEN) {

        if (ctx->cut) {
            (void) ngx_http_idempotency_problem_retry(r,
                                         &ngx_http_idempotency_capture_retry);
        }

        return ngx_http_next_header_filter(r);
    }

    if (ctx->answer == NGX_HTTP_IDEMPOTENCY_ANSWER_STORE) {

        /* the answer is on its way to the store, no other one counts */

        return NGX_OK;
    }

    /* an error after a header that was held brings a second header */

    ngx_http_idempotency_answer_reset(ctx);

    ngx_http_idempotency_failpoint(ctx, "after_header");

    /* a range would cut the header below us, and not what we hold above */

    r->allow_ranges = 0;

    type = ngx_http_idempotency_capture_decide(r, ctx);

    if (type != NGX_IDEMPOTENCY_COMPLETE
        || !ngx_http_idempotency_answer_storable(r, ctx))
    {
        return ngx_http_idempotency_capture_store(r, ctx, type);
    }

    ctx->keep = 1;
    ctx->answer = NGX_HTTP_IDEMPOTENCY_ANSWER_COLLECT;

    r->filter_need_in_memory = 1;

    if (r->method == NGX_HTTP_HEAD || r->header_only) {

        /* no body will come: ngx_http_header_filter() would say so later */

        r->header_only = 1;

        return ngx_http_idempotency_capture_store(r, ctx,
                                   ngx_http_idempotency_grpc_judge(r, ctx));
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

    /* what the client sees is kept, what the upstream said decides */

    if (facts.status == 0) {
        facts.status = r->headers_out.status;
    }

    facts.word = ngx_http_idempotency_answer_word(r, ctx, &facts);

    /* another request's answer, which a cache has kept, is not sent */

    ctx->cut = facts.stale;

    ctx->grpc = facts.word == NGX_HTTP_IDEMPOTENCY_WORD_NONE
                && facts.answered
                && facts.status == r->headers_out.status
                && ngx_http_idempotency_grpc_is(r);

    if (ctx->grpc) {
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

    ngx_log_error(ctx->conf->log_level, r->connection->log, 0,
                  "idempotency record \"%*xs\" is %s, status %ui",
                  (size_t) 8, ctx->digest,
                  type == NGX_IDEMPOTENCY_RELEASE ? "released" : "unknown",
                  r->headers_out.status);

    if (!facts.answered && (facts.upstream || !facts.ran)) {

        /* an error of nginx's own: another key might execute twice */

        (void) ngx_http_idempotency_problem_retry(r,
                                         &ngx_http_idempotency_capture_retry);
    }

    return type;
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

    switch (ctx->answer) {

    case NGX_HTTP_IDEMPOTENCY_ANSWER_COLLECT:
        return ngx_http_idempotency_capture_collect(r, ctx, in);

    case NGX_HTTP_IDEMPOTENCY_ANSWER_STORE:

        /* what comes meanwhile stays with its sender, as for a slow client */

        if (in && !ctx->complete
            && ngx_http_idempotency_answer_keep(r, ctx, in) != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (ctx->op->pending) {
            r->buffered |= NGX_HTTP_IDEMPOTENCY_BUFFERED;
            return NGX_AGAIN;
        }

        return ngx_http_idempotency_capture_open(r, ctx);

    default: /* NONE, OPEN */

        if (ctx->dropped && in) {
            ngx_http_idempotency_capture_swallow(in);
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

        if (!ngx_http_idempotency_answer_is_whole(r, ctx)) {
            break;
        }

        if (ngx_http_idempotency_upstream_by_close(r)) {
            ngx_http_idempotency_capture_by_close(r);
        }

        return ngx_http_idempotency_capture_store(r, ctx,
                                   ngx_http_idempotency_grpc_judge(r, ctx));

    case NGX_AGAIN:

        if (in == NULL || !ngx_http_idempotency_upstream_cut(r)) {
            return NGX_OK;
        }

        break;

    case NGX_DECLINED:

        /* too large: executed, but the answer is not kept */

        ctx->keep = 0;

        if (ngx_http_idempotency_answer_keep(r, ctx, in) != NGX_OK) {
            break;
        }

        return ngx_http_idempotency_capture_store(r, ctx,
                                                  NGX_IDEMPOTENCY_COMPLETE);

    default: /* NGX_ERROR */
        break;
    }

    /* the answer broke off */

    ctx->keep = 0;
    ctx->cut = 1;

    return ngx_http_idempotency_capture_store(r, ctx,
                                              NGX_IDEMPOTENCY_MARK_UNKNOWN);
}


/*
 * Tells the store.  The answer is let go when the store has acknowledged, or
 * when it cannot: then the client still gets what the upstream said.
 */

static ngx_int_t
ngx_http_idempotency_capture_store(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    ctx->answer = NGX_HTTP_IDEMPOTENCY_ANSWER_STORE;

    op = ngx_http_idempotency_context_op(ctx, type);

    if (op == NULL) {
        return ngx_http_idempotency_capture_open(r, ctx);
    }

    ngx_http_idempotency_answer_give(r, ctx, op);

    op->fence = ctx->fence;
    op->handler = ngx_http_idempotency_capture_stored;

    ctx->settled = 1;

    ngx_http_idempotency_failpoint(ctx, "before_complete");

    rc = ngx_http_idempotency_context_submit(ctx);

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
 * A sender that is still there, and has nothing to send now, would not call
 * the filters before it has: see ngx_http_upstream_process_downstream().  The
 * header of a stream is not to wait for its first event.
 */

static void
ngx_http_idempotency_capture_stored(ngx_idempotency_op_t *op)
{
    ngx_http_request_t          *r;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = op->data;
    r = ctx->request;

    if (ngx_http_idempotency_upstream_alive(r) && !ctx->complete && !ctx->cut) {
        ctx->sender = r->write_event_handler;
        r->write_event_handler = ngx_http_idempotency_capture_go_on;
    }

    ngx_http_idempotency_context_wake(op);
}


static void
ngx_http_idempotency_capture_go_on(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_context_get(r);

    r->write_event_handler = ctx->sender;

    if (ctx->answer == NGX_HTTP_IDEMPOTENCY_ANSWER_STORE
        && ngx_http_output_filter(r, NULL) == NGX_ERROR)
    {
        /* as ngx_http_request_handler(): the sender's cleanup takes one */

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

    ctx->answer = NGX_HTTP_IDEMPOTENCY_ANSWER_OPEN;

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

    ctx->answer = NGX_HTTP_IDEMPOTENCY_ANSWER_OPEN;
    r->buffered &= ~NGX_HTTP_IDEMPOTENCY_BUFFERED;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency answer goes, %uz bytes collected",
                   ctx->body_len);

    if (op == NULL || op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency store did not take what became of record "
                      "\"%*xs\"", (size_t) 8, ctx->digest);

    } else if (op->result == NGX_IDEMPOTENCY_REFUSED
               && op->type == NGX_IDEMPOTENCY_COMPLETE)
    {
        return ngx_http_idempotency_capture_refused(r, ctx);
    }

    if (ctx->cut) {
        return ngx_http_idempotency_capture_broken(r);
    }

    if (ctx->complete) {
        ngx_http_idempotency_answer_announce(r, ctx);
    }

    rc = ngx_http_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only
        || ctx->body == NULL)
    {
        return rc;
    }

    /* even if the header could not leave at once */

    return ngx_http_next_body_filter(r, ctx->body);
}


/*
 * Nothing was sent: the client gets a clean error.  Where the sender has
 * ended, ngx_http_finalize_request() makes it of what is returned, and
 * error_page may even ask another upstream for it; where it has not,
 * ngx_http_filter_finalize_request() makes the sender stop.
 */

static ngx_int_t
ngx_http_idempotency_capture_broken(ngx_http_request_t *r)
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
 * Somebody else owns the record now: what it says is the answer, not what we
 * have got.
 */

static ngx_int_t
ngx_http_idempotency_capture_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                       rc;
    ngx_chain_t                     out;
    ngx_http_idempotency_verdict_e  verdict;

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "idempotency record \"%*xs\" was settled by somebody else, "
                  "the answer of this request is dropped",
                  (size_t) 8, ctx->digest);

    /* also what is still to come */

    ctx->dropped = 1;
    ngx_http_idempotency_capture_swallow(ctx->body);

    ngx_http_clean_header(r);

    verdict = ngx_http_idempotency_policy_duplicate(&ctx->op->record, NULL,
                                                    ctx->conf->duplicate);

    if (verdict == NGX_HTTP_IDEMPOTENCY_REPLAY
        && ngx_http_idempotency_replay_decode(r, ctx) == NGX_OK)
    {
        ngx_http_idempotency_event(ctx, NGX_HTTP_IDEMPOTENCY_REPLAYED, NULL);

        rc = ngx_http_idempotency_replay_fill(r, ctx, &out);

    } else {
        if (verdict == NGX_HTTP_IDEMPOTENCY_REPLAY
            || ctx->op->record.state == NGX_IDEMPOTENCY_NONE
            || ctx->op->record.state == NGX_IDEMPOTENCY_ISSUED)
        {
            verdict = NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN;
        }

        ngx_http_idempotency_problem_event(ctx, verdict);

        rc = ngx_http_idempotency_problem_fill(r, ctx, verdict, &out);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_next_body_filter(r, &out);
}


static void
ngx_http_idempotency_capture_swallow(ngx_chain_t *in)
{
    for ( /* void */ ; in; in = in->next) {
        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }
}


/* the end of the connection is its only end: it may have been cut */

static void
ngx_http_idempotency_capture_by_close(ngx_http_request_t *r)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    if (imcf->by_close++) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "idempotency keeps an answer that has no length and ended "
                  "with its connection, nobody can tell whether it was cut: "
                  "let the upstream send a length or chunks, as with "
                  "\"proxy_http_version 1.1\" or \"fastcgi_keep_conn on\"; "
                  "further ones are counted only");
}
