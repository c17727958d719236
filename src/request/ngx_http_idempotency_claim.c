
/*
 * From the key to the verdict: identify, read the body, claim, act on what
 * the store replies.
 */


#include "ngx_http_idempotency_claim.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_dry_run.h"
#include "ngx_http_idempotency_failpoint.h"
#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_identify.h"
#include "ngx_http_idempotency_note.h"
#include "ngx_http_idempotency_probe.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_repeatability.h"
#include "ngx_http_idempotency_replay.h"
#include "ngx_http_idempotency_suspect.h"
#include "ngx_http_idempotency_upstream.h"
#include "ngx_http_idempotency_upstream_gate.h"
#include "ngx_http_idempotency_wait.h"
#include "ngx_idempotency_random.h"


static ngx_int_t ngx_http_idempotency_claim_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_identify(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_read_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_claim_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_claim_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type,
    uint64_t fence);
static ngx_int_t ngx_http_idempotency_claim_result(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_unavailable(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_granted(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_duplicate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_unknown(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc);
static void ngx_http_idempotency_claim_forget(ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_replay(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_wait(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_woken(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_claim_probed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


ngx_int_t
ngx_http_idempotency_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    switch (ctx->state) {

    case NGX_HTTP_IDEMPOTENCY_STATE_NEW:
    case NGX_HTTP_IDEMPOTENCY_STATE_READY:
        return ngx_http_idempotency_claim_begin(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_STATE_CLAIM:
        return ctx->op->pending ? NGX_AGAIN
                                : ngx_http_idempotency_claim_result(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_STATE_PROBE:
        return ngx_http_idempotency_claim_probed(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_STATE_WAIT:
        return ngx_http_idempotency_claim_woken(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_STATE_RUNS:

        /* a redirect has brought another content handler */

        ngx_http_idempotency_upstream_wrap(r, ctx);
        return NGX_DECLINED;

    case NGX_HTTP_IDEMPOTENCY_STATE_BODY:

        /*
         * the body could not be read and error_page has redirected us; with
         * "=" r->err_status has not the status of that error
         */

        (void) ngx_http_idempotency_problem_failed(ctx,
                                    r->err_status >= NGX_HTTP_BAD_REQUEST
                                    ? r->err_status : NGX_HTTP_BAD_REQUEST);

        return ngx_http_idempotency_claim_refused(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_STATE_REPLAY:

        /* the stored answer could not be sent, and error_page as above */

        ngx_http_idempotency_set_state(ctx,
                                       NGX_HTTP_IDEMPOTENCY_STATE_REFUSED);
        ctx->refused = NGX_HTTP_INTERNAL_SERVER_ERROR;

        /* fall through */

    case NGX_HTTP_IDEMPOTENCY_STATE_REFUSED:
        return ngx_http_idempotency_claim_refused(r, ctx);

    default: /* PASSED, DRY_RUN */
        return NGX_DECLINED;
    }
}


/*
 * Where error_page keeps the method, "= @backup" would execute what was
 * refused.  Pages that are made otherwise, or asked for by GET, are sent.
 */

static ngx_int_t
ngx_http_idempotency_claim_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->refused == 0 || !ngx_http_idempotency_protects(r, ctx->conf)) {
        return NGX_DECLINED;
    }

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency refuses the request again after error_page");

    /* recursive_error_pages would go on until there is a cycle */

    r->error_page = 1;

    return ngx_http_idempotency_problem_again(r, ctx);
}


/*
 * Identifies the request and reads its body, then claims.  Any value may
 * depend on the body, through a map, once fields of bodies are variables: the
 * body is read first then.
 */

static ngx_int_t
ngx_http_idempotency_claim_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                          rc;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    if (imcf->fields.nelts
        || ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC
        ? ctx->request_body.read
        : ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_NEW)
    {
        rc = ngx_http_idempotency_claim_identify(r, ctx);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (!ctx->request_body.read) {
        return ngx_http_idempotency_claim_read_body(r, ctx);
    }

    rc = ngx_http_idempotency_fingerprint(r, ctx);

    /* with= may have read a field of the body, too */

    if (rc == NGX_DECLINED || ctx->request_body.invalid) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_BODY_INVALID);
    }

    if (rc != NGX_OK
        || ngx_idempotency_random(ctx->id.owner, NGX_IDEMPOTENCY_OWNER_LEN)
           != NGX_OK)
    {
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    if (ctx->conf->dry_run) {
        return ngx_http_idempotency_dry_run_claim(r, ctx);
    }

    return ngx_http_idempotency_claim_submit(r, ctx, NGX_IDEMPOTENCY_CLAIM, 0);
}


static ngx_int_t
ngx_http_idempotency_claim_identify(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                       rc;
    ngx_http_idempotency_verdict_e  verdict;

    verdict = NGX_HTTP_IDEMPOTENCY_EXECUTE;

    rc = ngx_http_idempotency_identify_key(r, ctx);

    if (ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS) {
        verdict = ngx_http_idempotency_repeatability(r, ctx, rc);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_identify_record(r, ctx);

        if (rc == NGX_DECLINED) {
            verdict = NGX_HTTP_IDEMPOTENCY_SOURCE_MISSING;
        }

    } else if (rc == NGX_ABORT) {
        verdict = NGX_HTTP_IDEMPOTENCY_KEY_INVALID;

    } else if (rc == NGX_DECLINED
               && ctx->conf->required
               && (ctx->jsonrpc == NULL || ctx->jsonrpc->call))
    {
        verdict = NGX_HTTP_IDEMPOTENCY_KEY_MISSING;
    }

    if (ctx->request_body.invalid) {
        verdict = NGX_HTTP_IDEMPOTENCY_BODY_INVALID;
    }

    if (verdict != NGX_HTTP_IDEMPOTENCY_EXECUTE) {
        return ngx_http_idempotency_problem(r, ctx, verdict);
    }

    if (rc == NGX_DECLINED) {
        ngx_http_idempotency_set_state(ctx,
                                       NGX_HTTP_IDEMPOTENCY_STATE_PASSED);
        ngx_http_idempotency_event(ctx, NGX_HTTP_IDEMPOTENCY_BYPASSED, NULL);
        return NGX_DECLINED;
    }

    if (rc != NGX_OK) {
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency record \"%*xs\" is that of key \"%V\"",
                   (size_t) 8, ctx->id.digest, &ctx->identity.key);

    if (ctx->access.refused
        && ngx_http_idempotency_policy_is_refusal(ctx->access.refused))
    {
        /* a client without access must not make records of others' keys */

        return ngx_http_idempotency_problem_failed(ctx, ctx->access.refused);
    }

    return NGX_OK;
}


/*
 * As ngx_http_mirror_handler(): while the reader has the request it may
 * finalize it, so its count is given back here and the answer is NGX_DONE.
 */

static ngx_int_t
ngx_http_idempotency_claim_read_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_BODY);

    if (ctx->request_body.dav_put) {

        /* as ngx_http_dav_handler(), which makes the file of the body */

        r->request_body_in_file_only = 1;
        r->request_body_in_persistent_file = 1;
        r->request_body_in_clean_file = 1;
        r->request_body_file_group_access = 1;
        r->request_body_file_log_level = 0;
    }

    rc = ngx_http_read_client_request_body(r,
                                     ngx_http_idempotency_claim_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        (void) ngx_http_idempotency_problem_failed(ctx, rc);
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


static void
ngx_http_idempotency_claim_body_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_READY);
    ctx->request_body.read = 1;

    r->preserve_body = 1;

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


/*
 * Asks the store, and acts if it replies at once.  "fence" is that of an
 * unknown outcome that the operation is about, or 0.
 */

static ngx_int_t
ngx_http_idempotency_claim_submit(ngx_http_request_t *r,
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

    } else {
        ngx_http_idempotency_note_claim(r, ctx, op);
    }

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_CLAIM);

    rc = ngx_idempotency_op_submit(op);

    if (ctx->conf->suspect && type == NGX_IDEMPOTENCY_CLAIM) {
        ngx_http_idempotency_suspect_ask(r, ctx, rc);
    }

    return rc == NGX_AGAIN ? rc : ngx_http_idempotency_claim_result(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_claim_result(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    op = ctx->op;

    rc = ctx->suspect ? ngx_http_idempotency_suspect_result(r, ctx) : NGX_OK;
    if (rc != NGX_OK) {
        return rc;
    }

    if (op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return ctx->wait.waiter.turn
               ? ngx_http_idempotency_claim_wait(r, ctx)
               : ngx_http_idempotency_claim_unavailable(r, ctx);
    }

    ctx->fence = op->record.fence;
    ctx->attempt = op->record.attempts;
    ctx->created = op->record.created;

    ngx_log_debug6(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency %s of record \"%*xs\" is %s, state \"%V\" "
                   "fence:%uL", ngx_idempotency_ops[op->type], (size_t) 8,
                   ctx->id.digest, ngx_idempotency_results[op->result],
                   &ngx_idempotency_states[op->record.state], ctx->fence);

    if (op->type == NGX_IDEMPOTENCY_RESOLVE) {

        /*
         * The claim finds the answer, or whatever another request has made
         * of the record since.
         */

        return ngx_http_idempotency_claim_submit(r, ctx,
                                                 NGX_IDEMPOTENCY_CLAIM, 0);
    }

    if (op->result == NGX_IDEMPOTENCY_EXISTS) {
        ctx->seen = 1;

        if (ctx->access.refused) {

            /* the client has no access: it learns nothing of the record */

            ngx_http_idempotency_claim_forget(ctx);

            return ngx_http_idempotency_problem_failed(ctx,
                                                       ctx->access.refused);
        }

        return ngx_http_idempotency_claim_duplicate(r, ctx);
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

    if (op->type == NGX_IDEMPOTENCY_CLAIM) {
        return ngx_http_idempotency_claim_granted(r, ctx);
    }

    /* op->type == NGX_IDEMPOTENCY_PROBE */

    if (ngx_http_idempotency_probe_start(r, ctx) != NGX_OK) {
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_PROBE);

    return NGX_AGAIN;
}


/*
 * A request that has seen a record must not pass unprotected: the record may
 * mean "executed".
 */

static ngx_int_t
ngx_http_idempotency_claim_unavailable(ngx_http_request_t *r,
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

        /* it keeps its owner: its answer is stored if the store comes back */

        ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_RUNS);
        ctx->unprotected = 1;
        ctx->upstream.method = r->method;

        ngx_http_idempotency_event(ctx, NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
                                   &passed);

        ngx_http_idempotency_upstream_wrap(r, ctx);

        return NGX_DECLINED;
    }

    if (op->type == NGX_IDEMPOTENCY_CLAIM && op->unsure) {

        /* the claim may have been granted, and nothing will be sent */

        ngx_http_idempotency_context_take_back(ctx);
    }

    return ngx_http_idempotency_problem(r, ctx,
                       ngx_http_idempotency_policy_failed(op->error,
                                                          ctx->seen));
}


static ngx_int_t
ngx_http_idempotency_claim_granted(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_RUNS);
    ctx->result = NGX_HTTP_IDEMPOTENCY_NEW;
    ctx->upstream.method = r->method;

    ngx_http_idempotency_context_hold(ctx);

    if (ctx->wait.state != NGX_HTTP_IDEMPOTENCY_WAIT_NONE) {
        ctx->wait.in_doubt = 0;
        ngx_http_idempotency_wait_end(ctx);
    }

    ngx_http_idempotency_failpoint(ctx, "after_claim");

    /* the answer is the upstream's, whatever the client has cached */

    r->disable_not_modified = 1;

    ngx_http_idempotency_upstream_wrap(r, ctx);

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_idempotency_claim_duplicate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    u_char                          *fingerprint;
    ngx_int_t                        rc;
    ngx_http_idempotency_verdict_e   verdict;

    fingerprint = NULL;
    rc = NGX_OK;

    if (ctx->conf->fingerprint != NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF) {

        /*
         * NGX_DONE: the record's fingerprint was made with an older secret or
         * in another way; NGX_ABORT: it cannot be compared
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
            fingerprint = ctx->id.fingerprint;
        }
    }

    verdict = ngx_http_idempotency_policy_duplicate(&ctx->op->record,
                                                    fingerprint,
                                                    ctx->conf->duplicate);

    if (verdict == NGX_HTTP_IDEMPOTENCY_RUNNING && ctx->conf->wait) {
        return ngx_http_idempotency_claim_wait(r, ctx);
    }

    if (ctx->wait.state != NGX_HTTP_IDEMPOTENCY_WAIT_NONE) {
        ngx_http_idempotency_wait_share(ctx);
        ngx_http_idempotency_wait_end(ctx);
    }

    if (verdict == NGX_HTTP_IDEMPOTENCY_REPLAY) {
        return ngx_http_idempotency_claim_replay(r, ctx);
    }

    if (verdict == NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN) {
        return ngx_http_idempotency_claim_unknown(r, ctx, rc);
    }

    ngx_http_idempotency_claim_forget(ctx);

    return ngx_http_idempotency_problem(r, ctx, verdict);
}


/* "rc" is that of ngx_http_idempotency_fingerprint_as() */

static ngx_int_t
ngx_http_idempotency_claim_unknown(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc)
{
    if (rc == NGX_ABORT) {

        /* the store compares it when the record is to be taken over */

        ngx_memcpy(ctx->id.fingerprint, ctx->op->record.fingerprint,
                   NGX_IDEMPOTENCY_FINGERPRINT_LEN);
        rc = NGX_DONE;
    }

    if (ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_PROBE
        && !ctx->probe.tried)
    {
        ctx->probe.tried = 1;

        return ngx_http_idempotency_claim_submit(r, ctx,
                                                 NGX_IDEMPOTENCY_PROBE, 0);
    }

    if ((ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_RETRY
         || ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_TRANSACTION)
        && rc == NGX_DONE)
    {
        /* the store could not see that they are equal, now it can */

        return ngx_http_idempotency_claim_submit(r, ctx, NGX_IDEMPOTENCY_CLAIM,
                                                 0);
    }

    ngx_http_idempotency_claim_forget(ctx);

    return ngx_http_idempotency_problem(r, ctx,
                                        NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN);
}


/* An earlier try of the claim that got no reply may still be executed. */

static void
ngx_http_idempotency_claim_forget(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->op->type == NGX_IDEMPOTENCY_CLAIM
        && ctx->op->unsure
        && ctx->op->record.state < NGX_IDEMPOTENCY_DONE)
    {
        ngx_http_idempotency_context_take_back(ctx);
    }
}


static ngx_int_t
ngx_http_idempotency_claim_replay(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    switch (ngx_http_idempotency_replay(r, ctx)) {

    case NGX_OK:

        ngx_http_idempotency_set_state(ctx,
                                       NGX_HTTP_IDEMPOTENCY_STATE_REPLAY);

        ngx_http_idempotency_event(ctx,
                      ctx->wait.state == NGX_HTTP_IDEMPOTENCY_WAIT_NONE
                      ? NGX_HTTP_IDEMPOTENCY_REPLAYED
                      : NGX_HTTP_IDEMPOTENCY_WAITED, NULL);

        /* past mirror and try_files, straight to the content */

        return NGX_OK;

    case NGX_DECLINED:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency cannot read the stored answer of record "
                      "\"%*xs\"", NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);

        return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_RECORD_UNREADABLE);

    case NGX_ABORT:
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_NOT_KEPT);

    default: /* NGX_ERROR */
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


/*
 * The first request is running, or was when the store last replied.  A waiter
 * does not pass a store that fails meanwhile.
 */

static ngx_int_t
ngx_http_idempotency_claim_wait(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ctx->wait.in_doubt |= ctx->op->unsure;

    if (ctx->op->error == NGX_IDEMPOTENCY_ERROR_UNSAFE && ctx->wait.in_doubt) {

        /*
         * The store has lost records.  The waiter's claim may have taken the
         * key of a request that still runs: it is released, and the waiter
         * claims as another owner from now on.
         */

        ctx->wait.in_doubt = 0;
        ctx->op->unsure = 0;
        ngx_http_idempotency_context_take_back(ctx);

        if (ngx_idempotency_random(ctx->id.owner, NGX_IDEMPOTENCY_OWNER_LEN)
            != NGX_OK)
        {
            return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
        }
    }

    if (ngx_http_idempotency_wait(r, ctx) != NGX_OK) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_RUNNING);
    }

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_WAIT);

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_idempotency_claim_woken(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    switch (ngx_http_idempotency_wait_woken(ctx)) {

    case NGX_OK:
        return ngx_http_idempotency_claim_result(r, ctx);

    case NGX_DECLINED:
        return ngx_http_idempotency_claim_submit(r, ctx, NGX_IDEMPOTENCY_CLAIM,
                                                 0);

    case NGX_ABORT:
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_RUNNING);

    default: /* NGX_AGAIN */
        return NGX_AGAIN;
    }
}


/* The upstream may have answered the probe of an unknown outcome. */

static ngx_int_t
ngx_http_idempotency_claim_probed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_verdict_e  verdict;

    if (ngx_http_idempotency_probe_verdict(ctx, &verdict) == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    switch (verdict) {

    case NGX_HTTP_IDEMPOTENCY_REPLAY:
        return ngx_http_idempotency_claim_submit(r, ctx,
                                                 NGX_IDEMPOTENCY_RESOLVE,
                                                 ctx->fence);

    case NGX_HTTP_IDEMPOTENCY_EXECUTE:
        return ngx_http_idempotency_claim_submit(r, ctx,
                                                 NGX_IDEMPOTENCY_CLAIM,
                                                 ctx->fence);

    default:
        ngx_http_idempotency_probe_end(ctx);

        return ngx_http_idempotency_problem(r, ctx, verdict);
    }
}
