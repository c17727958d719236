
/*
 * The request's context: create, find again after redirects, settle at the
 * end.
 */


#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_dry.h"
#include "ngx_http_idempotency_policy.h"
#include "ngx_http_idempotency_upstream.h"
#include "ngx_http_idempotency_variables.h"
#include "ngx_http_idempotency_wait.h"
#include "ngx_idempotency_random.h"
#include "ngx_idempotency_share.h"


static void ngx_http_idempotency_context_cleanup(void *data);
static void ngx_http_idempotency_context_count(
    ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_context_unheard(
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_context_abandon(
    ngx_http_idempotency_ctx_t *ctx);


ngx_http_idempotency_ctx_t *
ngx_http_idempotency_context_create(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *ilcf)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_idempotency_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_idempotency_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;

    ngx_memzero(ctx, sizeof(ngx_http_idempotency_ctx_t));

    ctx->request = r;
    ctx->conf = ilcf;
    ctx->last_body = &ctx->body;

    ngx_http_idempotency_upstream_begin(r, ctx);

    cln->handler = ngx_http_idempotency_context_cleanup;

    ngx_http_set_ctx(r, ctx, ngx_http_idempotency_module);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency begins with \"%V %V\"", &r->method_name,
                   &r->uri);

    return ctx;
}


void
ngx_http_idempotency_context_begin(ngx_http_idempotency_ctx_t *ctx)
{
    ctx->in_flight = ctx->conf->store;

    ngx_idempotency_begins(ctx->in_flight->now->in_flight);
}


void
ngx_http_idempotency_context_restart(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_lease_let_go(&ctx->held);

    if (ctx->dry) {
        ngx_http_idempotency_dry_end(ctx);
        ctx->dry = 0;
    }

    if (ctx->op) {
        ngx_idempotency_op_drop(ctx->op);
        ctx->op = NULL;
    }

    if (ctx->in_flight) {
        ngx_idempotency_ends(ctx->in_flight->now->in_flight);
        ctx->in_flight = NULL;
    }

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_NEW;
    ctx->result = NGX_HTTP_IDEMPOTENCY_OFF;
    ctx->refused = 0;
    ctx->flags = 0;
}


ngx_http_idempotency_ctx_t *
ngx_http_idempotency_context_get(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    if (ctx || (!r->internal && !r->filter_finalize)) {
        return ctx;
    }

    /*
     * ngx_http_internal_redirect(), ngx_http_named_location() and
     * ngx_http_filter_finalize_request() have cleared the contexts
     */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler == ngx_http_idempotency_context_cleanup) {
            ctx = cln->data;
            ngx_http_set_ctx(r, ctx, ngx_http_idempotency_module);
            return ctx;
        }
    }

    return NULL;
}


ngx_int_t
ngx_http_idempotency_context_owner(ngx_http_idempotency_ctx_t *ctx)
{
    return ngx_idempotency_random(ctx->owner, NGX_IDEMPOTENCY_OWNER_LEN);
}


ngx_idempotency_op_t *
ngx_http_idempotency_context_op(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_e type)
{
    ngx_idempotency_op_t  *op;

    if (ctx->op) {
        ngx_idempotency_op_drop(ctx->op);
    }

    op = ngx_idempotency_op_create(ctx->conf->endpoint ? ctx->conf->endpoint
                                                       : ctx->conf->store,
                                   type);

    ctx->op = op;

    if (op == NULL) {
        return NULL;
    }

    ngx_memcpy(op->digest, ctx->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(op->owner, ctx->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(op->fingerprint, ctx->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    op->flags = ctx->flags;

    if (ctx->conf->wait) {
        op->flags |= NGX_IDEMPOTENCY_TELL;
    }

    op->number = ctx->number;
    op->epoch = ctx->epoch;

    op->lease = ctx->conf->lease;
    op->ttl = ctx->ttl ? ctx->ttl : ctx->conf->ttl;
    op->tombstone = ctx->conf->tombstone;

    op->handler = ngx_http_idempotency_context_wake;
    op->data = ctx;
    op->connection = ctx->request->connection->number;

    return op;
}


ngx_int_t
ngx_http_idempotency_context_submit(ngx_http_idempotency_ctx_t *ctx)
{
    return ngx_idempotency_op_submit(ctx->op);
}


void
ngx_http_idempotency_context_own(ngx_http_idempotency_ctx_t *ctx)
{
    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_OWNED;
    ctx->result = NGX_HTTP_IDEMPOTENCY_NEW;

    ctx->upstream.method = ctx->request->method;

    ngx_http_idempotency_context_hold(ctx);
}


void
ngx_http_idempotency_context_hold(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t    *op;
    ngx_idempotency_held_t  *held;

    op = ctx->op;
    held = &ctx->held;

    held->store = op->store;

    ngx_memcpy(held->line.digest, op->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(held->line.owner, op->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(held->line.fingerprint, op->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    held->line.fence = op->record.fence;
    held->line.flags = op->flags & NGX_IDEMPOTENCY_SEQUENCE;
    held->line.lease = op->lease;
    held->line.keep = ngx_max(op->ttl, op->tombstone);
    held->line.keep = ngx_max(held->line.keep, NGX_IDEMPOTENCY_UNKNOWN_TTL);

    ngx_idempotency_lease_hold(held, op->submitted);
}


void
ngx_http_idempotency_context_take_back(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op, *last;

    last = ctx->op;
    ctx->op = NULL;

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_RELEASE);

    if (op) {
        (void) ngx_idempotency_op_submit(op);
        ngx_idempotency_op_drop(op);
    }

    ctx->op = last;
}


void
ngx_http_idempotency_context_wake(ngx_idempotency_op_t *op)
{
    ngx_connection_t            *c;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = op->data;
    c = ctx->request->connection;

    ctx->store_time += ngx_current_msec - op->submitted;

    /* many large answers may come before the first of them is sent */

    if (op->record.body.len >= NGX_IDEMPOTENCY_SHARE_MIN
        && ngx_idempotency_seal_open(ctx->conf->secrets, ctx->digest,
                                     &op->record.head, &op->record.body)
           == NGX_OK)
    {
        ctx->op = ngx_idempotency_share(op);
    }

    /* ngx_http_request_handler() goes on with the phases or the writer */

    ngx_post_event(c->write, &ngx_posted_events);
}


/*
 * The request's memory is still there, its connection may be gone.  The
 * upstream has been finalized before, so the bytes sent are known.
 */

static void
ngx_http_idempotency_context_cleanup(void *data)
{
    ngx_http_idempotency_ctx_t *ctx = data;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "idempotency ends, result \"%V\", way:%d answer:%d",
                   &ngx_http_idempotency_result_names[ctx->result],
                   ctx->way, ctx->answer);

    if (ctx->upstream.gone) {
        *ctx->upstream.gone = 1;
    }

    ngx_idempotency_lease_let_go(&ctx->held);
    ngx_http_idempotency_wait_end(ctx);

    if (ctx->dry) {
        ngx_http_idempotency_dry_end(ctx);
    }

    ngx_http_idempotency_context_count(ctx);

    if (ctx->way == NGX_HTTP_IDEMPOTENCY_WAY_OWNED && !ctx->settled) {
        ngx_http_idempotency_context_abandon(ctx);
    }

    if (ngx_http_idempotency_context_unheard(ctx)) {
        ngx_http_idempotency_context_take_back(ctx);
    }

    if (ctx->op) {
        ngx_idempotency_op_drop(ctx->op);
    }
}


static void
ngx_http_idempotency_context_count(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_idempotency_module);

    if (ctx->in_flight == NULL) {
        return;
    }

    ngx_idempotency_ends(ctx->in_flight->now->in_flight);

    /* of a dry run whose store has not answered, the answer is counted */

    if (imcf->cells && !(ctx->dry && ctx->op == NULL))
    {
        ngx_idempotency_count(imcf->cells[ctx->conf->location
                                          * NGX_HTTP_IDEMPOTENCY_RESULTS
                                          + ctx->result]);
    }
}


/*
 * The store has granted a claim, or may have, and the client was seen leaving
 * in the same turn of the event loop: the phases did not run again.
 */

static ngx_uint_t
ngx_http_idempotency_context_unheard(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    op = ctx->op;

    if (ctx->way != NGX_HTTP_IDEMPOTENCY_WAY_CLAIM
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
ngx_http_idempotency_context_abandon(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_uint_t                     level;
    ngx_idempotency_op_e           type;
    ngx_idempotency_op_t          *op;
    ngx_http_idempotency_facts_t   facts;

    ngx_http_idempotency_upstream_facts(ctx->request, ctx, &facts);

    if (facts.answered) {

        /* it broke off before its last byte was collected */

        type = NGX_IDEMPOTENCY_MARK_UNKNOWN;

    } else {
        type = ngx_http_idempotency_policy_outcome(&facts, ctx->conf->final,
                                                   ctx->conf->retryable);
    }

    op = ngx_http_idempotency_context_op(ctx, type);

    if (op == NULL) {
        rc = NGX_ERROR;

    } else {
        op->fence = ctx->fence;
        op->handler = NULL;
        rc = ngx_idempotency_op_submit(op);
    }

    level = (rc == NGX_ERROR) ? NGX_LOG_ERR : ctx->conf->log_level;

    ngx_log_error(level, ngx_cycle->log, 0,
                  "idempotency request ended without an answer, record "
                  "\"%*xs\" is %s%s", (size_t) 8, ctx->digest,
                  type == NGX_IDEMPOTENCY_RELEASE ? "released"
                                                  : "unknown",
                  rc == NGX_ERROR ? " once its lease is over" : "");
}
