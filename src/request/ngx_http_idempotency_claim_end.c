
/*
 * The end of a request: what was not settled is settled now.
 */


#include "ngx_http_idempotency_claim.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_dry_run.h"
#include "ngx_http_idempotency_note.h"
#include "ngx_http_idempotency_suspect.h"
#include "ngx_http_idempotency_trouble.h"
#include "ngx_http_idempotency_upstream.h"
#include "ngx_http_idempotency_wait.h"


static ngx_uint_t ngx_http_idempotency_claim_is_unused(
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_claim_abandon(
    ngx_http_idempotency_ctx_t *ctx);


/* The upstream has been finalized before, so the bytes sent are known. */

void
ngx_http_idempotency_claim_end(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_idempotency_module);

    if (ctx->upstream.freed) {
        *ctx->upstream.freed = 1;
    }

    ngx_idempotency_lease_let_go(&ctx->held);

    if (ctx->wait.state != NGX_HTTP_IDEMPOTENCY_WAIT_NONE) {
        ngx_http_idempotency_wait_end(ctx);
    }

    if (ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_DRY_RUN) {
        ngx_http_idempotency_dry_run_end(ctx);
    }

    if (ctx->in_flight) {
        ngx_idempotency_ends(ctx->in_flight->now->in_flight);

        /* a dry run whose store has not replied yet is counted then */

        if (imcf->cells
            && !(ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_DRY_RUN
                 && ctx->op == NULL))
        {
            ngx_idempotency_count(imcf->cells[ctx->conf->location
                                              * NGX_HTTP_IDEMPOTENCY_RESULTS
                                              + ctx->result]);

            ngx_http_idempotency_trouble_end(ctx, imcf->counts->trouble);
        }
    }

    if (ctx->suspect) {
        ngx_http_idempotency_suspect_end(ctx);
    }

    if (ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_RUNS && !ctx->settled) {
        ngx_http_idempotency_claim_abandon(ctx);

    } else if (ngx_http_idempotency_claim_is_unused(ctx)) {
        ngx_http_idempotency_context_take_back(ctx);
    }
}


/*
 * The store has granted a claim, or may have, and the client has left in the
 * same turn of the event loop: the phases did not run again.
 */

static ngx_uint_t
ngx_http_idempotency_claim_is_unused(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    op = ctx->op;

    if (ctx->state != NGX_HTTP_IDEMPOTENCY_STATE_CLAIM
        || op == NULL
        || op->pending
        || op->type != NGX_IDEMPOTENCY_CLAIM)
    {
        return 0;
    }

    return op->unsure
           || (op->error == NGX_IDEMPOTENCY_ERROR_NONE
               && op->result == NGX_IDEMPOTENCY_GRANTED);
}


static void
ngx_http_idempotency_claim_abandon(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_uint_t                     level;
    ngx_idempotency_op_e           type;
    ngx_idempotency_op_t          *op;
    ngx_http_idempotency_facts_t   facts;

    ngx_http_idempotency_upstream_facts(ctx->request, ctx, &facts);

    if (facts.answered) {

        /* the answer broke off before its last byte was collected */

        type = NGX_IDEMPOTENCY_MARK_UNKNOWN;

    } else {
        type = ngx_http_idempotency_policy_outcome(&facts, ctx->conf->final,
                                                   ctx->conf->retryable);
    }

    op = ngx_http_idempotency_context_op(ctx, type);
    rc = NGX_ERROR;

    ctx->capture.reason = facts.answered
                          ? NGX_IDEMPOTENCY_REASON_CUT
                          : ngx_http_idempotency_note_reason(ctx->request, ctx,
                                                             &facts, type);
    ctx->capture.reason_status = facts.status;

    if (op) {
        op->fence = ctx->fence;
        op->handler = NULL;

        ngx_http_idempotency_note_settle(ctx->request, ctx, op);

        rc = ngx_idempotency_op_submit(op);

        if (ctx->suspect) {
            ngx_http_idempotency_suspect_settle(ctx, type);
        }
    }

    level = (rc == NGX_ERROR) ? NGX_LOG_ERR : ctx->conf->log_level;

    ngx_log_error(level, ngx_cycle->log, 0,
                  "idempotency request ended without an answer, record "
                  "\"%*xs\" is %s%s", NGX_IDEMPOTENCY_WHOLE, ctx->id.digest,
                  type == NGX_IDEMPOTENCY_RELEASE && rc != NGX_ERROR
                  ? "released" : "unknown",
                  rc == NGX_ERROR ? " once its lease is over" : "");
}
