
/*
 * What the store's answer means for the request.
 */


#include "ngx_http_idempotency_act.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_event.h"
#include "ngx_http_idempotency_failpoint.h"
#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_probe.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_replay.h"
#include "ngx_http_idempotency_upstream.h"
#include "ngx_http_idempotency_wait.h"


static ngx_int_t ngx_http_idempotency_act_unavailable(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_act_own(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_act_duplicate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_act_unknown(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc);
static ngx_int_t ngx_http_idempotency_act_refuse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict);
static ngx_int_t ngx_http_idempotency_act_replay(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_act_unsure(ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_act_wait(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_act_ask(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


ngx_int_t
ngx_http_idempotency_act_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type,
    uint64_t fence)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    op = ngx_http_idempotency_context_op(ctx, type);

    if (op == NULL) {
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    op->fence = fence;

    if (fence
        || ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_RETRY)
    {
        op->flags |= NGX_IDEMPOTENCY_CLAIM_UNKNOWN;
    }

    if (ctx->conf->issued) {
        op->flags |= NGX_IDEMPOTENCY_CLAIM_ISSUED;
    }

    if (type == NGX_IDEMPOTENCY_RESOLVE) {
        ngx_http_idempotency_probe_answer(ctx, op);
    }

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLAIM;

    rc = ngx_http_idempotency_context_submit(ctx);

    return rc == NGX_AGAIN ? NGX_AGAIN
                           : ngx_http_idempotency_act(r, ctx);
}


ngx_int_t
ngx_http_idempotency_act(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    op = ctx->op;

    if (op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return ctx->waiter.turn ? ngx_http_idempotency_act_wait(r, ctx)
                                : ngx_http_idempotency_act_unavailable(r, ctx);
    }

    ctx->fence = op->record.fence;
    ctx->attempt = op->record.attempts;
    ctx->created = op->record.created;

    ngx_log_debug6(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency %s of record \"%*xs\" is %s, state \"%V\" "
                   "fence:%uL", ngx_idempotency_ops[op->type], (size_t) 8,
                   ctx->digest, ngx_idempotency_results[op->result],
                   &ngx_idempotency_states[op->record.state], ctx->fence);

    if (op->type == NGX_IDEMPOTENCY_RESOLVE) {

        /* whether it was accepted or not: the record has the answer */

        return ngx_http_idempotency_act_submit(r, ctx,
                                                   NGX_IDEMPOTENCY_CLAIM, 0);
    }

    if (op->result == NGX_IDEMPOTENCY_EXISTS) {
        ctx->seen = 1;

        if (ctx->barred) {

            /* an access check refused this client: it learns nothing */

            ngx_http_idempotency_act_unsure(ctx);

            return ngx_http_idempotency_problem_failed(ctx, ctx->barred);
        }

        return ngx_http_idempotency_act_duplicate(r, ctx);
    }

    if (op->result == NGX_IDEMPOTENCY_NOT_ISSUED
        && (op->flags & NGX_IDEMPOTENCY_CLAIM_ISSUED))
    {
        return ngx_http_idempotency_problem(r, ctx,
                                       NGX_HTTP_IDEMPOTENCY_TOKEN_NOT_ISSUED);
    }

    if (op->result == NGX_IDEMPOTENCY_OUT_OF_ORDER) {
        return ngx_http_idempotency_problem(r, ctx,
                                    NGX_HTTP_IDEMPOTENCY_NUMBER_OUT_OF_ORDER);
    }

    if (op->result != NGX_IDEMPOTENCY_GRANTED) {
        return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE);
    }

    return op->type == NGX_IDEMPOTENCY_PROBE
           ? ngx_http_idempotency_act_ask(r, ctx)
           : ngx_http_idempotency_act_own(r, ctx);
}


/*
 * A request that has seen a record must not pass unprotected: the record may
 * mean "executed".
 */

static ngx_int_t
ngx_http_idempotency_act_unavailable(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    static ngx_str_t  passed = ngx_string("passed");

    op = ctx->op;

    if (ctx->conf->store_error == NGX_HTTP_IDEMPOTENCY_STORE_ERROR_PASS
        && op->type == NGX_IDEMPOTENCY_CLAIM
        && !ctx->seen
        && ngx_http_idempotency_policy_may_pass(op->error))
    {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idempotency store \"%V\" is unavailable, a request "
                      "passes unprotected", &op->store->name);

        /* it keeps its owner: its answer is stored if that can be done */

        ctx->passed = 1;
        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_OWNED;
        ctx->upstream.method = r->method;

        ngx_http_idempotency_event(ctx, NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
                                   &passed);

        ngx_http_idempotency_upstream_wrap(r, ctx);

        return NGX_DECLINED;
    }

    if (op->type == NGX_IDEMPOTENCY_CLAIM && op->unsure) {

        /* the key may still be ours, and nothing will be sent */

        ngx_http_idempotency_context_take_back(ctx);
    }

    return ngx_http_idempotency_problem(r, ctx,
                       ngx_http_idempotency_policy_failed(op->error,
                                                          ctx->seen));
}


static ngx_int_t
ngx_http_idempotency_act_own(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_context_own(ctx);

    ctx->unsure = 0;
    ngx_http_idempotency_wait_end(ctx);

    ngx_http_idempotency_failpoint(ctx, "after_claim");

    /* the answer is the upstream's, whatever the client has cached */

    r->disable_not_modified = 1;

    ngx_http_idempotency_upstream_wrap(r, ctx);

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_idempotency_act_duplicate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    u_char                          *fingerprint;
    ngx_int_t                        rc;
    ngx_http_idempotency_verdict_e   verdict;

    fingerprint = NULL;
    rc = NGX_OK;

    if (ctx->conf->fingerprint != NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF) {

        /*
         * NGX_DONE: the record was made with another secret than the first
         * of today, or in another way; NGX_ABORT: it cannot be compared
         */

        rc = ngx_http_idempotency_fingerprint_as(r, ctx,
                                               ctx->op->record.fingerprint);

        if (rc == NGX_DECLINED) {
            return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_RECORD_UNREADABLE);
        }

        if (rc == NGX_ERROR) {
            return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
        }

        if (rc != NGX_ABORT) {
            fingerprint = ctx->fingerprint;
        }
    }

    verdict = ngx_http_idempotency_policy_duplicate(&ctx->op->record,
                                                    fingerprint,
                                                    ctx->conf->duplicate);

    if (verdict == NGX_HTTP_IDEMPOTENCY_RUNNING && ctx->conf->wait) {
        return ngx_http_idempotency_act_wait(r, ctx);
    }

    ngx_http_idempotency_wait_share(ctx);
    ngx_http_idempotency_wait_end(ctx);

    if (verdict == NGX_HTTP_IDEMPOTENCY_REPLAY) {
        return ngx_http_idempotency_act_replay(r, ctx);
    }

    if (verdict == NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN) {
        return ngx_http_idempotency_act_unknown(r, ctx, rc);
    }

    return ngx_http_idempotency_act_refuse(r, ctx, verdict);
}


/* "rc" is that of ngx_http_idempotency_fingerprint_as() */

static ngx_int_t
ngx_http_idempotency_act_unknown(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc)
{
    if (rc == NGX_ABORT) {

        /* what the store compares when it is asked to take the record over */

        ngx_memcpy(ctx->fingerprint, ctx->op->record.fingerprint,
                   NGX_IDEMPOTENCY_FINGERPRINT_LEN);
        rc = NGX_DONE;
    }

    if (ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_PROBE
        && !ctx->probed)
    {
        ctx->probed = 1;

        return ngx_http_idempotency_act_submit(r, ctx,
                                                   NGX_IDEMPOTENCY_PROBE, 0);
    }

    if (ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_RETRY
        && rc == NGX_DONE)
    {
        /* the store could not see that they are equal, now it can */

        return ngx_http_idempotency_act_submit(r, ctx, NGX_IDEMPOTENCY_CLAIM,
                                               0);
    }

    return ngx_http_idempotency_act_refuse(r, ctx,
                                        NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN);
}


static ngx_int_t
ngx_http_idempotency_act_refuse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict)
{
    ngx_http_idempotency_act_unsure(ctx);

    return ngx_http_idempotency_problem(r, ctx, verdict);
}


static ngx_int_t
ngx_http_idempotency_act_replay(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    switch (ngx_http_idempotency_replay(r, ctx)) {

    case NGX_OK:

        ngx_http_idempotency_event(ctx,
                                   ctx->waited ? NGX_HTTP_IDEMPOTENCY_WAITED
                                           : NGX_HTTP_IDEMPOTENCY_REPLAYED,
                                   NULL);

        /* past mirror and try_files, straight to the content */

        return NGX_OK;

    case NGX_DECLINED:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency cannot read the stored answer of record "
                      "\"%*xs\"", (size_t) 8, ctx->digest);

        return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_RECORD_UNREADABLE);

    default: /* NGX_ERROR */
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


static void
ngx_http_idempotency_act_unsure(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->op->type == NGX_IDEMPOTENCY_CLAIM
        && ctx->op->unsure
        && ctx->op->record.state < NGX_IDEMPOTENCY_DONE)
    {
        /* an earlier try that got no reply may arrive yet */

        ngx_http_idempotency_context_take_back(ctx);
    }
}


/*
 * The first is running, or was when the store could last be asked: a request
 * that knows it does not pass a store that fails meanwhile.
 */

static ngx_int_t
ngx_http_idempotency_act_wait(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ctx->unsure |= ctx->op->unsure;

    if (ctx->op->error == NGX_IDEMPOTENCY_ERROR_UNSAFE && ctx->unsure) {

        /* it may have taken the key of one who runs */

        ctx->unsure = 0;
        ctx->op->unsure = 0;
        ngx_http_idempotency_context_take_back(ctx);

        if (ngx_http_idempotency_context_owner(ctx) != NGX_OK) {
            ngx_http_idempotency_wait_end(ctx);

            return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
        }
    }

    if (ngx_http_idempotency_wait(r, ctx) != NGX_OK) {
        ngx_http_idempotency_wait_end(ctx);

        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_RUNNING);
    }

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_WAIT;

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_idempotency_act_woken(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    switch (ngx_http_idempotency_wait_woken(ctx)) {

    case NGX_OK:
        return ngx_http_idempotency_act(r, ctx);

    case NGX_DECLINED:
        return ngx_http_idempotency_act_submit(r, ctx, NGX_IDEMPOTENCY_CLAIM,
                                               0);

    case NGX_ABORT:
        ngx_http_idempotency_wait_end(ctx);

        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_RUNNING);

    default: /* NGX_AGAIN */
        return NGX_AGAIN;
    }
}


static ngx_int_t
ngx_http_idempotency_act_ask(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ngx_http_idempotency_probe_start(r, ctx) != NGX_OK) {
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_PROBE;

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_idempotency_act_told(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_verdict_e  verdict;

    if (ngx_http_idempotency_probe_verdict(ctx, &verdict) == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    switch (verdict) {

    case NGX_HTTP_IDEMPOTENCY_REPLAY:
        return ngx_http_idempotency_act_submit(r, ctx,
                                                   NGX_IDEMPOTENCY_RESOLVE,
                                                   ctx->fence);

    case NGX_HTTP_IDEMPOTENCY_EXECUTE:
        return ngx_http_idempotency_act_submit(r, ctx,
                                                   NGX_IDEMPOTENCY_CLAIM,
                                                   ctx->fence);

    default:
        ngx_http_idempotency_probe_end(ctx);

        return ngx_http_idempotency_problem(r, ctx, verdict);
    }
}
