
/*
 * A dry run: claims and settles records, and leaves the request alone.
 *
 * Records of dry runs have names of their own, see identify.c: protection that
 * is switched on later begins without records.  They hold no answers.  The
 * request waits for no reply of the store.
 */


#include "ngx_http_idempotency_dry_run.h"
#include "ngx_http_idempotency_answer.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_upstream.h"


/*
 * In the pool of the claim, which may outlive the request: "ctx" is NULL then.
 * The record is settled when both the store has replied, "claimed", and the
 * outcome is known, "decided".
 */

typedef struct {
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_loc_conf_t  *conf;
    ngx_atomic_t                     *cells;     /* of its location, or NULL */
    ngx_str_t                        *location;
    ngx_idempotency_op_e              type;
    ngx_uint_t                        status;
    time_t                            ttl;
    unsigned                          keep:1;
    unsigned                          decided:1;
    unsigned                          claimed:1;
} ngx_http_idempotency_dry_run_t;


static void ngx_http_idempotency_dry_run_claimed(ngx_idempotency_op_t *op);
static ngx_http_idempotency_verdict_e ngx_http_idempotency_dry_run_verdict(
    ngx_idempotency_op_t *op, ngx_http_idempotency_dry_run_t *dry);
static void ngx_http_idempotency_dry_run_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_dry_run_t *dry);
static void ngx_http_idempotency_dry_run_settle(ngx_idempotency_op_t *op,
    ngx_http_idempotency_dry_run_t *dry);


ngx_int_t
ngx_http_idempotency_dry_run_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t              *op;
    ngx_http_idempotency_dry_run_t    *dry;
    ngx_http_idempotency_main_conf_t  *imcf;

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_PASSED);

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_CLAIM);
    if (op == NULL) {
        return NGX_DECLINED;
    }

    dry = ngx_pcalloc(op->pool, sizeof(ngx_http_idempotency_dry_run_t));
    if (dry == NULL) {
        return NGX_DECLINED;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    dry->ctx = ctx;
    dry->conf = ctx->conf;
    dry->location = ngx_http_idempotency_event_location(ctx);

    if (imcf->cells) {
        dry->cells = imcf->cells + ctx->conf->location
                                   * NGX_HTTP_IDEMPOTENCY_RESULTS;
    }

    if (ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_RETRY) {
        op->flags |= NGX_IDEMPOTENCY_CLAIM_UNKNOWN;
    }

    op->handler = ngx_http_idempotency_dry_run_claimed;
    op->data = dry;

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_DRY_RUN);

    if (ngx_idempotency_op_submit(op) != NGX_AGAIN) {
        ngx_http_idempotency_dry_run_claimed(op);
    }

    return NGX_DECLINED;
}


/* The store has replied, in time or after the request. */

static void
ngx_http_idempotency_dry_run_claimed(ngx_idempotency_op_t *op)
{
    ngx_str_t                       *code;
    ngx_http_idempotency_ctx_t      *ctx;
    ngx_http_idempotency_dry_run_t  *dry;
    ngx_http_idempotency_result_e    result;
    ngx_http_idempotency_verdict_e   verdict;

    dry = op->data;
    ctx = dry->ctx;

    dry->claimed = 1;

    verdict = ngx_http_idempotency_dry_run_verdict(op, dry);

    code = NULL;

    switch (verdict) {

    case NGX_HTTP_IDEMPOTENCY_EXECUTE:
        result = NGX_HTTP_IDEMPOTENCY_NEW;
        break;

    case NGX_HTTP_IDEMPOTENCY_REPLAY:
        result = NGX_HTTP_IDEMPOTENCY_REPLAYED;
        break;

    case NGX_HTTP_IDEMPOTENCY_RUNNING:

        if (dry->conf->wait) {
            result = NGX_HTTP_IDEMPOTENCY_WAITED;
            break;
        }

        /* fall through */

    default:
        result = ngx_http_idempotency_problem_result(verdict, &code);
        break;
    }

    if (ctx) {
        ctx->store_time += ngx_current_msec - op->submitted;

        ngx_http_idempotency_event(ctx, result, code);

        if (result == NGX_HTTP_IDEMPOTENCY_NEW && !dry->decided) {
            ngx_http_idempotency_context_hold(ctx);
        }

    } else {
        ngx_http_idempotency_event_log(ngx_cycle->log, dry->conf, result,
                                       code, op->id.digest, dry->location);

        if (dry->cells) {
            ngx_idempotency_count(dry->cells[result]);
        }
    }

    if (result == NGX_HTTP_IDEMPOTENCY_NEW && dry->decided) {
        ngx_http_idempotency_dry_run_settle(op, dry);
    }
}


static ngx_http_idempotency_verdict_e
ngx_http_idempotency_dry_run_verdict(ngx_idempotency_op_t *op,
    ngx_http_idempotency_dry_run_t *dry)
{
    u_char  *fingerprint;

    if (op->error == NGX_IDEMPOTENCY_ERROR_NONE) {

        switch (op->result) {

        case NGX_IDEMPOTENCY_GRANTED:
            return NGX_HTTP_IDEMPOTENCY_EXECUTE;

        case NGX_IDEMPOTENCY_OUT_OF_ORDER:
            return NGX_HTTP_IDEMPOTENCY_NUMBER_OUT_OF_ORDER;

        case NGX_IDEMPOTENCY_EXISTS:

            /* a fingerprint that was made in another way is not compared */

            fingerprint = NULL;

            if (dry->conf->fingerprint != NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF
                && ngx_http_idempotency_fingerprint_same(dry->conf,
                                                   op->id.fingerprint,
                                                   op->record.fingerprint))
            {
                fingerprint = op->id.fingerprint;
            }

            return ngx_http_idempotency_policy_duplicate(&op->record,
                                                    fingerprint,
                                                    dry->conf->duplicate);

        default:
            break;
        }
    }

    return NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE;
}


void
ngx_http_idempotency_dry_run_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t            *op;
    ngx_http_idempotency_dry_run_t  *dry;

    op = ctx->op;
    dry = op->data;

    if (dry->decided || ngx_http_idempotency_answer_is_grpc(r)) {
        return;
    }

    ngx_http_idempotency_dry_run_decide(r, ctx, dry);

    if (dry->claimed && ctx->result == NGX_HTTP_IDEMPOTENCY_NEW) {
        ngx_idempotency_lease_let_go(&ctx->held);
        ngx_http_idempotency_dry_run_settle(op, dry);
    }
}


static void
ngx_http_idempotency_dry_run_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_dry_run_t *dry)
{
    ngx_http_idempotency_facts_t  facts;

    ngx_http_idempotency_answer_begin(r, ctx);

    ngx_http_idempotency_upstream_facts(r, ctx, &facts);

    if (facts.status == 0) {
        facts.status = r->headers_out.status;
    }

    if (facts.answered && ngx_http_idempotency_answer_is_grpc(r)) {
        facts.status = ngx_http_idempotency_answer_grpc_status(r);
    }

    facts.override = ngx_http_idempotency_answer_override(r, ctx, &facts);

    dry->type = ngx_http_idempotency_policy_outcome(&facts, ctx->conf->final,
                                                    ctx->conf->retryable);
    dry->status = r->headers_out.status;
    dry->keep = ctx->capture.keep;
    dry->ttl = ctx->capture.ttl;
    dry->decided = 1;
}


/* As the request would have settled it, but without the answer's bytes. */

static void
ngx_http_idempotency_dry_run_settle(ngx_idempotency_op_t *op,
    ngx_http_idempotency_dry_run_t *dry)
{
    ngx_idempotency_op_t  *settle;

    if (dry->type != NGX_IDEMPOTENCY_COMPLETE) {
        ngx_log_error(dry->conf->log_level,
                      dry->ctx ? dry->ctx->request->connection->log
                               : ngx_cycle->log, 0,
                      "idempotency dry run: record \"%*xs\" would be %s, "
                      "status %ui", NGX_IDEMPOTENCY_WHOLE, op->id.digest,
                      dry->type == NGX_IDEMPOTENCY_RELEASE ? "released"
                                                           : "unknown",
                      dry->status);
    }

    settle = ngx_idempotency_op_create(op->store, dry->type);
    if (settle == NULL) {
        return;
    }

    settle->id = op->id;
    settle->flags = op->flags & (NGX_IDEMPOTENCY_SEQUENCE
                                 |NGX_IDEMPOTENCY_SEQUENCE_STRICT);
    settle->connection = op->connection;
    settle->ttl = dry->ttl ? dry->ttl : op->ttl;
    settle->tombstone = op->tombstone;
    settle->status = dry->status;
    settle->keep = dry->keep;

    (void) ngx_idempotency_op_submit(settle);

    ngx_idempotency_op_drop(settle);
}


/*
 * Without a header the outcome depends on the bytes that were sent.  That of a
 * gRPC answer is known at its end only.
 */

void
ngx_http_idempotency_dry_run_end(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t            *op;
    ngx_http_idempotency_dry_run_t  *dry;
    ngx_http_idempotency_facts_t     facts;

    op = ctx->op;
    dry = op->data;

    if (!dry->decided && ngx_http_idempotency_answer_is_grpc(ctx->request)) {
        ngx_http_idempotency_dry_run_decide(ctx->request, ctx, dry);

        if (dry->claimed && ctx->result == NGX_HTTP_IDEMPOTENCY_NEW) {
            ngx_http_idempotency_dry_run_settle(op, dry);
        }
    }

    if (!dry->decided) {
        ngx_http_idempotency_upstream_facts(ctx->request, ctx, &facts);

        dry->type = ngx_http_idempotency_policy_outcome(&facts,
                                                        ctx->conf->final,
                                                        ctx->conf->retryable);
        dry->decided = 1;

        if (dry->claimed && ctx->result == NGX_HTTP_IDEMPOTENCY_NEW) {
            ngx_http_idempotency_dry_run_settle(op, dry);
        }
    }

    if (!op->pending) {
        return;
    }

    /* the claim goes on alone until the store has replied */

    dry->ctx = NULL;
    op->detached = 1;
    ctx->op = NULL;
}
