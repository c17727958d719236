
/*
 * The phase handlers: identify, body, claim, act.
 */


#include "ngx_http_idempotency_handler.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_failpoint.h"
#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_identify.h"
#include "ngx_http_idempotency_probe.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_replay.h"
#include "ngx_http_idempotency_upstream.h"
#include <openssl/rand.h>


#define NGX_HTTP_IDEMPOTENCY_OWNERS  64


static ngx_int_t ngx_http_idempotency_access_handler(ngx_http_request_t *r);
static ngx_http_idempotency_verdict_e ngx_http_idempotency_handler_early(
    ngx_http_request_t *r, ngx_http_idempotency_loc_conf_t *ilcf);
static ngx_int_t ngx_http_idempotency_handler(ngx_http_request_t *r);
static ngx_uint_t ngx_http_idempotency_handler_protects(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *ilcf);
static ngx_int_t ngx_http_idempotency_handler_identify(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_read_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_handler_body(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_handler_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type,
    uint64_t fence);
static ngx_int_t ngx_http_idempotency_handler_owner(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_act(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_unavailable(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_own(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_duplicate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_ask(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_told(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


ngx_int_t
ngx_http_idempotency_handler_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_ACCESS_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idempotency_access_handler;

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idempotency_handler;

    return NGX_OK;
}


/*
 * Spares the work of authentication for a request that has no chance.  Runs
 * before the access modules: it evaluates no variable, reads no store, and
 * never grants access.
 */

static ngx_int_t
ngx_http_idempotency_access_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_verdict_e    verdict;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (!ngx_http_idempotency_handler_protects(r, ilcf)
        || ngx_http_idempotency_context_get(r))
    {
        return NGX_DECLINED;
    }

    verdict = ngx_http_idempotency_handler_early(r, ilcf);

    if (verdict == NGX_HTTP_IDEMPOTENCY_EXECUTE) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_context_create(r, ilcf);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idempotency_problem(r, ctx, verdict);
}


/* EXECUTE where nothing speaks against it so far */

static ngx_http_idempotency_verdict_e
ngx_http_idempotency_handler_early(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *ilcf)
{
#if (NGX_HTTP_SSL)
    ngx_str_t  early_data;

    if (r->connection->ssl
        && ngx_ssl_get_early_data(r->connection, r->pool, &early_data)
           == NGX_OK
        && early_data.len)
    {
        return NGX_HTTP_IDEMPOTENCY_EARLY_DATA;
    }
#endif

    switch (ngx_http_idempotency_identify_header(r, ilcf)) {

    case NGX_DECLINED:
        return ilcf->required ? NGX_HTTP_IDEMPOTENCY_KEY_MISSING
                              : NGX_HTTP_IDEMPOTENCY_EXECUTE;

    case NGX_ABORT:
        return NGX_HTTP_IDEMPOTENCY_KEY_INVALID;

    default: /* NGX_OK, or NGX_ERROR, which the next phase will meet again */
        return NGX_HTTP_IDEMPOTENCY_EXECUTE;
    }
}


/*
 * Entered again after the body was read, after the store has answered, and
 * after internal redirects; ctx->way tells where it was.
 */

static ngx_int_t
ngx_http_idempotency_handler(ngx_http_request_t *r)
{
    ngx_int_t                         rc;
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    if (r != r->main || r->post_action) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx == NULL) {
        ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

        if (!ngx_http_idempotency_handler_protects(r, ilcf)) {
            return NGX_DECLINED;
        }

        ctx = ngx_http_idempotency_context_create(r, ilcf);
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    switch (ctx->way) {

    case NGX_HTTP_IDEMPOTENCY_WAY_NEW:
        rc = ngx_http_idempotency_handler_identify(r, ctx);
        if (rc != NGX_OK) {
            return rc;
        }

        return ngx_http_idempotency_handler_read_body(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_WAY_READY:
        return ngx_http_idempotency_handler_claim(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_WAY_CLAIM:
        return ctx->op->pending ? NGX_AGAIN
                                : ngx_http_idempotency_handler_act(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_WAY_PROBE:
        return ngx_http_idempotency_handler_told(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_WAY_OWNED:

        /* a redirect has brought another content handler */

        ngx_http_idempotency_upstream_wrap(r, ctx);
        return NGX_DECLINED;

    case NGX_HTTP_IDEMPOTENCY_WAY_BODY:

        /* the body could not be read and error_page has redirected us */

        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLOSED;
        return NGX_DECLINED;

    default: /* REPLAY, CLOSED */
        return NGX_DECLINED;
    }
}


static ngx_uint_t
ngx_http_idempotency_handler_protects(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *ilcf)
{
    return ilcf->store && (r->method & ilcf->methods);
}


static ngx_int_t
ngx_http_idempotency_handler_identify(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_idempotency_identify_key(r, ctx);

    if (rc == NGX_DECLINED) {

        if (ctx->conf->required) {
            return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_KEY_MISSING);
        }

        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLOSED;
        ctx->result = NGX_HTTP_IDEMPOTENCY_BYPASSED;
        return NGX_DECLINED;
    }

    if (rc == NGX_ABORT) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_KEY_INVALID);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_identify_record(r, ctx);
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_idempotency_problem(r, ctx,
                                         NGX_HTTP_IDEMPOTENCY_SOURCE_MISSING);
    }

    return rc == NGX_OK ? NGX_OK : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/*
 * As ngx_http_mirror_handler(): while the reader has the request it may
 * finalize it, so its count is given back here and the answer is NGX_DONE.
 */

static ngx_int_t
ngx_http_idempotency_handler_read_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_BODY;

    rc = ngx_http_read_client_request_body(r,
                                           ngx_http_idempotency_handler_body);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLOSED;
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


static void
ngx_http_idempotency_handler_body(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_context_get(r);

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_READY;

    r->preserve_body = 1;

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


static ngx_int_t
ngx_http_idempotency_handler_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ngx_http_idempotency_fingerprint(r, ctx) != NGX_OK) {
        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLOSED;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_idempotency_handler_owner(r, ctx) != NGX_OK) {
        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLOSED;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idempotency_handler_submit(r, ctx, NGX_IDEMPOTENCY_CLAIM,
                                               0);
}


/* "fence" is the one of an unknown that the operation is about, or 0 */

static ngx_int_t
ngx_http_idempotency_handler_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type,
    uint64_t fence)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    op = ngx_http_idempotency_context_op(ctx, type);

    if (op == NULL) {
        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLOSED;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->fence = fence;

    if (fence
        || ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_RETRY)
    {
        op->flags |= NGX_IDEMPOTENCY_CLAIM_UNKNOWN;
    }

    if (type == NGX_IDEMPOTENCY_RESOLVE) {
        ngx_http_idempotency_probe_answer(ctx, op);
    }

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLAIM;

    rc = ngx_http_idempotency_context_submit(ctx);

    return rc == NGX_AGAIN ? NGX_AGAIN
                           : ngx_http_idempotency_handler_act(r, ctx);
}


/*
 * libcrypto asks its price for the call and not for the bytes: owners are
 * drawn many at a time.  Workers start with none, and do not fork.
 */

static ngx_int_t
ngx_http_idempotency_handler_owner(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    static u_char      owners[NGX_HTTP_IDEMPOTENCY_OWNERS]
                             [NGX_IDEMPOTENCY_OWNER_LEN];
    static ngx_uint_t  left;

    if (left == 0) {

        if (RAND_bytes(owners[0], sizeof(owners)) != 1) {
            ngx_log_error(NGX_LOG_CRIT, r->connection->log, 0,
                          "idempotency got no random bytes from libcrypto");
            return NGX_ERROR;
        }

        left = NGX_HTTP_IDEMPOTENCY_OWNERS;
    }

    left--;

    ngx_memcpy(ctx->owner, owners[left], NGX_IDEMPOTENCY_OWNER_LEN);

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_handler_act(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    op = ctx->op;

    if (op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return ngx_http_idempotency_handler_unavailable(r, ctx);
    }

    ctx->fence = op->record.fence;
    ctx->attempt = op->record.attempts;
    ctx->created = op->record.created;

    if (op->type == NGX_IDEMPOTENCY_RESOLVE) {

        /* whether it was accepted or not: the record has the answer */

        return ngx_http_idempotency_handler_submit(r, ctx,
                                                   NGX_IDEMPOTENCY_CLAIM, 0);
    }

    if (op->result == NGX_IDEMPOTENCY_EXISTS) {
        return ngx_http_idempotency_handler_duplicate(r, ctx);
    }

    if (op->result != NGX_IDEMPOTENCY_GRANTED) {
        return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE);
    }

    return op->type == NGX_IDEMPOTENCY_PROBE
           ? ngx_http_idempotency_handler_ask(r, ctx)
           : ngx_http_idempotency_handler_own(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_handler_unavailable(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    op = ctx->op;

    if (ctx->conf->store_error == NGX_HTTP_IDEMPOTENCY_STORE_ERROR_PASS
        && op->type == NGX_IDEMPOTENCY_CLAIM
        && ngx_http_idempotency_policy_may_pass(op->error))
    {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idempotency store \"%V\" is unavailable, a request "
                      "passes unprotected", &op->store->name);

        /* it keeps its owner: its answer is stored if that can be done */

        ctx->passed = 1;
        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_OWNED;
        ctx->result = NGX_HTTP_IDEMPOTENCY_STORE_ERROR;

        ngx_http_idempotency_upstream_wrap(r, ctx);

        return NGX_DECLINED;
    }

    if (op->type == NGX_IDEMPOTENCY_CLAIM && op->unsure) {

        /* it may be ours all the same, and nothing will be sent */

        ngx_http_idempotency_context_take_back(ctx);
    }

    return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE);
}


static ngx_int_t
ngx_http_idempotency_handler_own(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_context_own(ctx);

    ngx_http_idempotency_failpoint(ctx, "after_claim");

    /* the answer is the upstream's, whatever the client has cached */

    r->disable_not_modified = 1;

    ngx_http_idempotency_upstream_wrap(r, ctx);

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_idempotency_handler_duplicate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_uint_t                      off;
    ngx_http_idempotency_verdict_e  verdict;

    off = (ctx->conf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF);

    verdict = ngx_http_idempotency_policy_duplicate(&ctx->op->record,
                                              off ? NULL : ctx->fingerprint,
                                              ctx->conf->duplicate);

    if (verdict == NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN
        && ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_PROBE
        && !ctx->probed)
    {
        ctx->probed = 1;

        return ngx_http_idempotency_handler_submit(r, ctx,
                                                   NGX_IDEMPOTENCY_PROBE, 0);
    }

    if (verdict != NGX_HTTP_IDEMPOTENCY_REPLAY) {
        return ngx_http_idempotency_problem(r, ctx, verdict);
    }

    switch (ngx_http_idempotency_replay(r, ctx)) {

    case NGX_OK:

        /* past mirror and try_files, straight to the content */

        return NGX_OK;

    case NGX_DECLINED:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency cannot read the stored answer of record "
                      "\"%*xs\"", (size_t) 8, ctx->digest);

        return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE);

    default: /* NGX_ERROR */
        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLOSED;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}


static ngx_int_t
ngx_http_idempotency_handler_ask(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ngx_http_idempotency_probe_start(r, ctx) != NGX_OK) {
        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLOSED;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_PROBE;

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_idempotency_handler_told(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_verdict_e  verdict;

    if (ngx_http_idempotency_probe_verdict(ctx, &verdict) == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    switch (verdict) {

    case NGX_HTTP_IDEMPOTENCY_REPLAY:
        return ngx_http_idempotency_handler_submit(r, ctx,
                                                   NGX_IDEMPOTENCY_RESOLVE,
                                                   ctx->fence);

    case NGX_HTTP_IDEMPOTENCY_EXECUTE:
        return ngx_http_idempotency_handler_submit(r, ctx,
                                                   NGX_IDEMPOTENCY_CLAIM,
                                                   ctx->fence);

    default:
        ngx_http_idempotency_probe_end(ctx);

        return ngx_http_idempotency_problem(r, ctx, verdict);
    }
}
