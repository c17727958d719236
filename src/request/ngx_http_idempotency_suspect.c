
/*
 * A request that was the same under another key a short time ago: a client
 * that retries with a fresh key.
 *
 * The store remembers the last request with a source, scope and fingerprint.
 * The look at that goes with the claim; the claim of a request that is refused
 * is given back, and what was remembered of it is forgotten.  A look without a
 * reply refuses the request where suspects are refused: it was not executed,
 * and its client may try again with the same key.
 */


#include "ngx_http_idempotency_suspect.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_idempotency_digest.h"


static ngx_int_t ngx_http_idempotency_suspect_create(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_suspect_submit(
    ngx_http_idempotency_ctx_t *ctx);
static ngx_idempotency_op_t *ngx_http_idempotency_suspect_op(
    ngx_idempotency_op_t *claim, u_char *digest, ngx_idempotency_op_e type);
static time_t ngx_http_idempotency_suspect_ttl(
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_suspect_wake(ngx_idempotency_op_t *op);
static ngx_int_t ngx_http_idempotency_suspect_failed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_suspect_refuse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict);
static void ngx_http_idempotency_suspect_log(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_record_t *other);
static void ngx_http_idempotency_suspect_keep(ngx_idempotency_op_t *last,
    u_char *digest, time_t ttl);
static void ngx_http_idempotency_suspect_orphan(ngx_idempotency_op_t *op);


void
ngx_http_idempotency_suspect_ask(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc)
{
    if (rc == NGX_ERROR
        || (rc == NGX_OK && ctx->op->result != NGX_IDEMPOTENCY_GRANTED))
    {
        return;
    }

    if (ctx->suspect == NULL
        && ngx_http_idempotency_suspect_create(r, ctx) != NGX_OK)
    {
        return;
    }

    ctx->suspect->asked_again = 0;

    ngx_http_idempotency_suspect_submit(ctx);
}


static ngx_int_t
ngx_http_idempotency_suspect_create(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                        fingerprint;
    const ngx_str_t                 *parts[4];
    ngx_http_idempotency_suspect_t  *suspect;

    static ngx_str_t  purpose = ngx_string("suspect 1");

    suspect = ngx_pcalloc(r->pool, sizeof(ngx_http_idempotency_suspect_t));
    if (suspect == NULL) {
        return NGX_ERROR;
    }

    fingerprint.data = ctx->id.fingerprint;
    fingerprint.len = NGX_IDEMPOTENCY_FINGERPRINT_LEN;

    parts[0] = &purpose;
    parts[1] = &ctx->identity.scope;
    parts[2] = &ctx->identity.source;
    parts[3] = &fingerprint;

    if (ngx_idempotency_digest(r->connection->log, parts, 4, suspect->digest)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    suspect->passes = ctx->conf->suspect == NGX_HTTP_IDEMPOTENCY_SUSPECT_REPORT
                      || ngx_http_test_predicates(r, ctx->conf->suspect_allow)
                         != NGX_OK;

    ctx->suspect = suspect;

    return NGX_OK;
}


static void
ngx_http_idempotency_suspect_submit(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t            *op;
    ngx_http_idempotency_suspect_t  *suspect;

    suspect = ctx->suspect;

    op = ngx_http_idempotency_suspect_op(ctx->op, suspect->digest,
                                         NGX_IDEMPOTENCY_SUSPECT);
    suspect->op = op;

    if (op == NULL) {
        return;
    }

    if (suspect->passes) {
        op->flags |= NGX_IDEMPOTENCY_SUSPECT_PASSES;
    }

    if (suspect->asked_again) {
        op->flags |= NGX_IDEMPOTENCY_SUSPECT_CLAIMED;
    }

    op->lease = ctx->conf->lease;
    op->window = ctx->conf->suspect_window;
    op->ttl = ngx_http_idempotency_suspect_ttl(ctx);
    op->handler = ngx_http_idempotency_suspect_wake;
    op->data = ctx;

    (void) ngx_idempotency_op_submit(op);
}


static ngx_idempotency_op_t *
ngx_http_idempotency_suspect_op(ngx_idempotency_op_t *claim, u_char *digest,
    ngx_idempotency_op_e type)
{
    ngx_idempotency_op_t  *op;

    op = ngx_idempotency_op_create(claim->store, type);
    if (op == NULL) {
        return NULL;
    }

    op->suspect = ngx_pnalloc(op->pool, NGX_IDEMPOTENCY_DIGEST_LEN);
    if (op->suspect == NULL) {
        ngx_idempotency_op_drop(op);
        return NULL;
    }

    ngx_memcpy(op->suspect, digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    op->id = claim->id;
    op->connection = claim->connection;

    return op;
}


/* longer than an unknown outcome is kept: what is not settled does not age */

static time_t
ngx_http_idempotency_suspect_ttl(ngx_http_idempotency_ctx_t *ctx)
{
    time_t  keep;

    keep = ngx_max(ctx->conf->ttl, ctx->conf->tombstone);
    keep = ngx_max(keep, NGX_IDEMPOTENCY_UNKNOWN_TTL);

    return keep + NGX_IDEMPOTENCY_MARK_TTL;
}


static void
ngx_http_idempotency_suspect_wake(ngx_idempotency_op_t *op)
{
    ngx_http_idempotency_ctx_t *ctx = op->data;

    ngx_post_event(ctx->request->connection->write, &ngx_posted_events);
}


ngx_int_t
ngx_http_idempotency_suspect_result(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t            *op;
    ngx_http_idempotency_suspect_t  *suspect;

    suspect = ctx->suspect;

    if (suspect->refused) {
        return ngx_http_idempotency_problem(r, ctx, suspect->refused);
    }

    if (ctx->op->error != NGX_IDEMPOTENCY_ERROR_NONE
        || ctx->op->type != NGX_IDEMPOTENCY_CLAIM
        || ctx->op->result != NGX_IDEMPOTENCY_GRANTED)
    {
        ngx_http_idempotency_suspect_end(ctx);
        return NGX_OK;
    }

    op = suspect->op;

    if (op && op->pending) {
        return NGX_AGAIN;
    }

    if (op
        && op->error == NGX_IDEMPOTENCY_ERROR_NONE
        && op->result == NGX_IDEMPOTENCY_REFUSED
        && !suspect->asked_again)
    {
        /* the store did not know the claim: that of a duplicate, perhaps */

        suspect->asked_again = 1;

        ngx_idempotency_op_drop(op);
        ngx_http_idempotency_suspect_submit(ctx);

        return ngx_http_idempotency_suspect_result(r, ctx);
    }

    if (op == NULL
        || op->error != NGX_IDEMPOTENCY_ERROR_NONE
        || op->result == NGX_IDEMPOTENCY_REFUSED)
    {
        return ngx_http_idempotency_suspect_failed(r, ctx);
    }

    suspect->looked = 1;
    suspect->suspected = (op->result == NGX_IDEMPOTENCY_EXISTS);
    suspect->last = !suspect->suspected
                    || (suspect->passes
                        && op->record.state >= NGX_IDEMPOTENCY_DONE);

    if (suspect->suspected) {
        ngx_http_idempotency_suspect_log(ctx, &op->record);
    }

    suspect->op = NULL;
    ngx_idempotency_op_drop(op);

    if (!suspect->suspected || suspect->passes) {
        return NGX_OK;
    }

    return ngx_http_idempotency_suspect_refuse(r, ctx,
                                              NGX_HTTP_IDEMPOTENCY_SUSPECTED);
}


/* It is not known whether the request is a suspect. */

static ngx_int_t
ngx_http_idempotency_suspect_failed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    /* an answer that is late or lost may have made this the last one */

    ngx_http_idempotency_suspect_end(ctx);

    if (ctx->suspect->passes
        || ctx->conf->store_error == NGX_HTTP_IDEMPOTENCY_STORE_ERROR_PASS)
    {
        return NGX_OK;
    }

    return ngx_http_idempotency_suspect_refuse(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE);
}


/* The claim is given back before its client learns of it. */

static ngx_int_t
ngx_http_idempotency_suspect_refuse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict)
{
    ngx_idempotency_op_e   type;
    ngx_idempotency_op_t  *op;

    type = NGX_IDEMPOTENCY_RELEASE;

    if (ctx->op->record.attempts > 1
        && ctx->op->fence == 0
        && (ctx->op->flags & NGX_IDEMPOTENCY_CLAIM_UNKNOWN))
    {
        /* it may have been unknown before: then it is so again */

        type = NGX_IDEMPOTENCY_MARK_UNKNOWN;
    }

    op = ngx_http_idempotency_context_op(ctx, type);

    if (op == NULL) {
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    ctx->suspect->refused = verdict;

    return ngx_idempotency_op_submit(op) == NGX_AGAIN
           ? NGX_AGAIN : ngx_http_idempotency_problem(r, ctx, verdict);
}


static void
ngx_http_idempotency_suspect_log(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_record_t *other)
{
    ngx_idempotency_store_counts_t  *counts;

    counts = ctx->op->store->counts;

    if (ctx->suspect->passes) {
        ngx_idempotency_count(counts->suspects_passed);

    } else {
        ngx_idempotency_count(counts->suspects_rejected);
    }

    ngx_log_error(ctx->conf->log_level, ctx->request->connection->log, 0,
                  "idempotency suspects that record \"%*xs\" is a retry of "
                  "record \"%*xs\" under another key, which is \"%V\": %s, "
                  "location \"%V\"",
                  NGX_IDEMPOTENCY_WHOLE, ctx->id.digest,
                  NGX_IDEMPOTENCY_WHOLE, other->fingerprint,
                  &ngx_idempotency_states[other->state
                                          ? other->state
                                          : NGX_IDEMPOTENCY_EXECUTING],
                  ctx->suspect->passes ? "passed" : "rejected",
                  ngx_http_idempotency_event_location(ctx));
}


void
ngx_http_idempotency_suspect_settle(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_e type)
{
    time_t  ttl;

    if (!ctx->suspect->last || ctx->op == NULL) {
        return;
    }

    switch (type) {

    case NGX_IDEMPOTENCY_COMPLETE:
        ttl = ctx->conf->suspect_window;
        break;

    case NGX_IDEMPOTENCY_RELEASE:
        ttl = 0;
        break;

    default: /* NGX_IDEMPOTENCY_MARK_UNKNOWN */
        ttl = ngx_http_idempotency_suspect_ttl(ctx);
        break;
    }

    ctx->suspect->last = 0;

    ngx_http_idempotency_suspect_keep(ctx->op, ctx->suspect->digest, ttl);
}


static void
ngx_http_idempotency_suspect_keep(ngx_idempotency_op_t *last, u_char *digest,
    time_t ttl)
{
    ngx_idempotency_op_t  *op;

    op = ngx_http_idempotency_suspect_op(last, digest,
                                         NGX_IDEMPOTENCY_SUSPECT_KEEP);
    if (op == NULL) {
        return;
    }

    op->ttl = ttl;

    (void) ngx_idempotency_op_submit(op);
    ngx_idempotency_op_drop(op);
}


void
ngx_http_idempotency_suspect_end(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    op = ctx->suspect->op;
    ctx->suspect->op = NULL;

    if (op == NULL) {
        return;
    }

    if (op->pending) {
        op->detached = 1;
        op->handler = ngx_http_idempotency_suspect_orphan;
        op->data = NULL;
        return;
    }

    ngx_http_idempotency_suspect_orphan(op);
    ngx_idempotency_op_drop(op);
}


/* A look that came to its end without its request. */

static void
ngx_http_idempotency_suspect_orphan(ngx_idempotency_op_t *op)
{
    if (op->error != NGX_IDEMPOTENCY_ERROR_NONE
        ? op->unsure
        : (op->result == NGX_IDEMPOTENCY_GRANTED
           || (op->result == NGX_IDEMPOTENCY_EXISTS
               && op->record.state >= NGX_IDEMPOTENCY_DONE)))
    {
        ngx_http_idempotency_suspect_keep(op, op->suspect, 0);
    }
}
