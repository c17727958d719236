
/*
 * A dry run: what would have become of a request that nobody touches.
 *
 * Records of dry runs have names of their own, see identify, so that what is
 * switched on later begins with nothing.  They hold no answers.  Whatever the
 * store does, and whenever, the request goes its way.
 */


#include "ngx_http_idempotency_dry.h"
#include "ngx_http_idempotency_answer.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_event.h"
#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_grpc.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_upstream.h"


/*
 * In the pool of the claim, which may outlive the request.  "ctx" is NULL
 * then.  What settles the claim is sent when both the store and the answer
 * have told: "told" and "decided".
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
    unsigned                          told:1;
} ngx_http_idempotency_dry_t;


static void ngx_http_idempotency_dry_told(ngx_idempotency_op_t *op);
static ngx_http_idempotency_verdict_e ngx_http_idempotency_dry_verdict(
    ngx_idempotency_op_t *op, ngx_http_idempotency_dry_t *dry);
static void ngx_http_idempotency_dry_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_dry_t *dry);
static void ngx_http_idempotency_dry_settle(ngx_idempotency_op_t *op,
    ngx_http_idempotency_dry_t *dry);


ngx_int_t
ngx_http_idempotency_dry_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t              *op;
    ngx_http_idempotency_dry_t        *dry;
    ngx_http_idempotency_main_conf_t  *imcf;

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_PASSED;

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_CLAIM);
    if (op == NULL) {
        return NGX_DECLINED;
    }

    dry = ngx_pcalloc(op->pool, sizeof(ngx_http_idempotency_dry_t));
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

    op->handler = ngx_http_idempotency_dry_told;
    op->data = dry;

    ctx->dry = 1;

    if (ngx_http_idempotency_context_submit(ctx) != NGX_AGAIN) {
        ngx_http_idempotency_dry_told(op);
    }

    return NGX_DECLINED;
}


/* the store has answered, in time or not */

static void
ngx_http_idempotency_dry_told(ngx_idempotency_op_t *op)
{
    ngx_str_t                       *code;
    ngx_http_idempotency_ctx_t      *ctx;
    ngx_http_idempotency_dry_t      *dry;
    ngx_http_idempotency_result_e    result;
    ngx_http_idempotency_verdict_e   verdict;

    dry = op->data;
    ctx = dry->ctx;

    dry->told = 1;

    verdict = ngx_http_idempotency_dry_verdict(op, dry);

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
                                       code, op->digest, dry->location);

        if (dry->cells) {
            ngx_idempotency_count(dry->cells[result]);
        }
    }

    if (result == NGX_HTTP_IDEMPOTENCY_NEW && dry->decided) {
        ngx_http_idempotency_dry_settle(op, dry);
    }
}


static ngx_http_idempotency_verdict_e
ngx_http_idempotency_dry_verdict(ngx_idempotency_op_t *op,
    ngx_http_idempotency_dry_t *dry)
{
    u_char  *fingerprint;

    if (op->error == NGX_IDEMPOTENCY_ERROR_NONE) {

        switch (op->result) {

        case NGX_IDEMPOTENCY_GRANTED:
            return NGX_HTTP_IDEMPOTENCY_EXECUTE;

        case NGX_IDEMPOTENCY_OUT_OF_ORDER:
            return NGX_HTTP_IDEMPOTENCY_NUMBER_OUT_OF_ORDER;

        case NGX_IDEMPOTENCY_EXISTS:

            /* one that was made in another way is not compared */

            fingerprint = NULL;

            if (dry->conf->fingerprint != NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF
                && ngx_http_idempotency_fingerprint_same(dry->conf,
                                                   op->fingerprint,
                                                   op->record.fingerprint))
            {
                fingerprint = op->fingerprint;
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
ngx_http_idempotency_dry_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t        *op;
    ngx_http_idempotency_dry_t  *dry;

    op = ctx->op;
    dry = op->data;

    if (dry->decided || ngx_http_idempotency_grpc_is(r)) {
        return;
    }

    ngx_http_idempotency_dry_decide(r, ctx, dry);

    if (dry->told && ctx->result == NGX_HTTP_IDEMPOTENCY_NEW) {
        ngx_idempotency_lease_let_go(&ctx->held);
        ngx_http_idempotency_dry_settle(op, dry);
    }
}


static void
ngx_http_idempotency_dry_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_dry_t *dry)
{
    ngx_http_idempotency_facts_t  facts;

    ngx_http_idempotency_upstream_facts(r, ctx, &facts);

    if (facts.status == 0) {
        facts.status = r->headers_out.status;
    }

    if (facts.answered && ngx_http_idempotency_grpc_is(r)) {
        facts.status = ngx_http_idempotency_grpc_status(r);
    }

    facts.word = ngx_http_idempotency_answer_word(r, ctx, &facts);

    dry->type = ngx_http_idempotency_policy_outcome(&facts, ctx->conf->final,
                                                    ctx->conf->retryable);
    dry->status = r->headers_out.status;
    dry->keep = ngx_http_idempotency_answer_storable(r, ctx);
    dry->ttl = ctx->ttl;
    dry->decided = 1;
}


/* as its request would have; an answer is kept in name only */

static void
ngx_http_idempotency_dry_settle(ngx_idempotency_op_t *op,
    ngx_http_idempotency_dry_t *dry)
{
    ngx_idempotency_op_t  *settle;

    if (dry->type != NGX_IDEMPOTENCY_COMPLETE) {
        ngx_log_error(dry->conf->log_level,
                      dry->ctx ? dry->ctx->request->connection->log
                               : ngx_cycle->log, 0,
                      "idempotency dry run: record \"%*xs\" would be %s, "
                      "status %ui", (size_t) 8, op->digest,
                      dry->type == NGX_IDEMPOTENCY_RELEASE ? "released"
                                                           : "unknown",
                      dry->status);
    }

    settle = ngx_idempotency_op_create(op->store, dry->type);
    if (settle == NULL) {
        return;
    }

    ngx_memcpy(settle->digest, op->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(settle->owner, op->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(settle->fingerprint, op->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    settle->flags = op->flags & (NGX_IDEMPOTENCY_SEQUENCE
                                 |NGX_IDEMPOTENCY_SEQUENCE_STRICT);
    settle->connection = op->connection;
    settle->number = op->number;
    settle->epoch = op->epoch;
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
ngx_http_idempotency_dry_end(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t          *op;
    ngx_http_idempotency_dry_t    *dry;
    ngx_http_idempotency_facts_t   facts;

    op = ctx->op;
    dry = op->data;

    if (!dry->decided && ngx_http_idempotency_grpc_is(ctx->request)) {
        ngx_http_idempotency_dry_decide(ctx->request, ctx, dry);

        if (dry->told && ctx->result == NGX_HTTP_IDEMPOTENCY_NEW) {
            ngx_http_idempotency_dry_settle(op, dry);
        }
    }

    if (!dry->decided) {
        ngx_http_idempotency_upstream_facts(ctx->request, ctx, &facts);

        dry->type = ngx_http_idempotency_policy_outcome(&facts,
                                                        ctx->conf->final,
                                                        ctx->conf->retryable);
        dry->decided = 1;

        if (dry->told && ctx->result == NGX_HTTP_IDEMPOTENCY_NEW) {
            ngx_http_idempotency_dry_settle(op, dry);
        }
    }

    if (!op->pending) {
        return;
    }

    /* it goes on alone until the store has answered */

    dry->ctx = NULL;
    op->detached = 1;
    ctx->op = NULL;
}
