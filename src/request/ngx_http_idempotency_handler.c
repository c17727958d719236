
/*
 * The phase handlers: identify, body, claim, act.
 */


#include "ngx_http_idempotency_handler.h"
#include "ngx_http_idempotency_act.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_dry.h"
#include "ngx_http_idempotency_event.h"
#include "ngx_http_idempotency_field.h"
#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_identify.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_upstream.h"


static ngx_int_t ngx_http_idempotency_preaccess_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_access_handler(ngx_http_request_t *r);
static ngx_http_idempotency_verdict_e ngx_http_idempotency_handler_early(
    ngx_http_request_t *r, ngx_http_idempotency_loc_conf_t *ilcf);
static ngx_int_t ngx_http_idempotency_handler(ngx_http_request_t *r);
static ngx_uint_t ngx_http_idempotency_handler_protects(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *ilcf);
static ngx_uint_t ngx_http_idempotency_handler_is_new(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_identify(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_read_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_handler_body(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_handler_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


ngx_int_t
ngx_http_idempotency_handler_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PREACCESS_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idempotency_preaccess_handler;

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
 * Runs before limit_req and the like: where these refuse, error_page leads to
 * no execution that this module would not know of.
 */

static ngx_int_t
ngx_http_idempotency_preaccess_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    if (r != r->main || r->post_action) {
        return NGX_DECLINED;
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (!ngx_http_idempotency_handler_protects(r, ilcf)) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx
        && ctx->way != NGX_HTTP_IDEMPOTENCY_WAY_NEW
        && ctx->conf->endpoint == NULL)
    {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_context_create(r, ilcf);
    if (ctx == NULL) {

        /* 500 could be executed by error_page, and nobody would know */

        return NGX_ERROR;
    }

    ctx->refused = NGX_HTTP_SERVICE_UNAVAILABLE;

    return NGX_DECLINED;
}


/*
 * Spares the work of authentication for a request that has no chance.  Runs
 * before the access modules, which may send whom they refuse elsewhere: it
 * evaluates no variable, reads no store, and never grants access.
 */

static ngx_int_t
ngx_http_idempotency_access_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t      *ctx;
    ngx_http_idempotency_verdict_e   verdict;

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx == NULL || !ngx_http_idempotency_handler_is_new(r, ctx)) {
        return NGX_DECLINED;
    }

    ctx->refused = 0;

    verdict = ngx_http_idempotency_handler_early(r, ctx->conf);

    return verdict == NGX_HTTP_IDEMPOTENCY_EXECUTE
           ? NGX_DECLINED
           : ngx_http_idempotency_problem(r, ctx, verdict);
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
    ngx_int_t                    rc;
    ngx_http_idempotency_ctx_t  *ctx;

    if (r != r->main || r->post_action) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx == NULL) {
        return NGX_DECLINED;
    }

    switch (ctx->way) {

    case NGX_HTTP_IDEMPOTENCY_WAY_NEW:

        if (!ngx_http_idempotency_handler_is_new(r, ctx)) {

            /* refused by others, and redirected to what is not protected */

            return ngx_http_idempotency_handler_refused(r, ctx);
        }

        ctx->refused = 0;

        /* fall through */

    case NGX_HTTP_IDEMPOTENCY_WAY_READY:

        /* with fields of bodies as variables the body comes first */

        if (ngx_http_idempotency_field_any(r) == ctx->body_read) {
            rc = ngx_http_idempotency_handler_identify(r, ctx);
            if (rc != NGX_OK) {
                return rc;
            }
        }

        if (!ctx->body_read) {
            return ngx_http_idempotency_handler_read_body(r, ctx);
        }

        return ngx_http_idempotency_handler_claim(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_WAY_CLAIM:
        return ctx->op->pending ? NGX_AGAIN
                                : ngx_http_idempotency_act(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_WAY_PROBE:
        return ngx_http_idempotency_act_told(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_WAY_WAIT:
        return ngx_http_idempotency_act_woken(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_WAY_OWNED:

        /* a redirect has brought another content handler */

        ngx_http_idempotency_upstream_wrap(r, ctx);
        return NGX_DECLINED;

    case NGX_HTTP_IDEMPOTENCY_WAY_BODY:

        /*
         * the body could not be read and error_page has redirected us; "="
         * has forgotten the status
         */

        (void) ngx_http_idempotency_problem_failed(ctx,
                                    r->err_status >= NGX_HTTP_BAD_REQUEST
                                    ? r->err_status : NGX_HTTP_BAD_REQUEST);
        return ngx_http_idempotency_handler_refused(r, ctx);

    case NGX_HTTP_IDEMPOTENCY_WAY_REPLAY:

        /* the stored answer could not be sent, and the same */

        ctx->refused = NGX_HTTP_INTERNAL_SERVER_ERROR;
        return ngx_http_idempotency_handler_refused(r, ctx);

    default: /* CLOSED */
        return ngx_http_idempotency_handler_refused(r, ctx);
    }
}


static ngx_uint_t
ngx_http_idempotency_handler_protects(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *ilcf)
{
    return ilcf->store
           && ilcf->endpoint == NULL
           && (r->method & ilcf->methods);
}


/* nobody has looked at it, and it is still where it was to be protected */

static ngx_uint_t
ngx_http_idempotency_handler_is_new(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    return ctx->way == NGX_HTTP_IDEMPOTENCY_WAY_NEW
           && ctx->conf == ngx_http_get_module_loc_conf(r,
                                                 ngx_http_idempotency_module)
           && ngx_http_idempotency_handler_protects(r, ctx->conf);
}


/*
 * Where error_page keeps the method, "= @backup" would execute what was
 * refused.  Pages that are made otherwise, or asked for by GET, are sent.
 */

static ngx_int_t
ngx_http_idempotency_handler_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->refused == 0
        || ctx->conf->dry_run
        || r->content_handler == NULL
        || !ngx_http_idempotency_handler_protects(r, ctx->conf))
    {
        return NGX_DECLINED;
    }

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency lets no content handler have the request");

    return ngx_http_idempotency_problem_again(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_handler_identify(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_idempotency_identify_key(r, ctx);

    if (ctx->body_invalid) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_BODY_INVALID);
    }

    if (rc == NGX_DECLINED) {

        if (ctx->conf->required) {
            return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_KEY_MISSING);
        }

        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_CLOSED;
        ngx_http_idempotency_event(ctx, NGX_HTTP_IDEMPOTENCY_BYPASSED, NULL);
        return NGX_DECLINED;
    }

    if (rc == NGX_ABORT) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_KEY_INVALID);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_identify_record(r, ctx);
    }

    if (ctx->body_invalid) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_BODY_INVALID);
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_idempotency_problem(r, ctx,
                                         NGX_HTTP_IDEMPOTENCY_SOURCE_MISSING);
    }

    if (rc != NGX_OK) {
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency record \"%*xs\" is that of key \"%V\"",
                   (size_t) 8, ctx->digest, &ctx->key);

    return NGX_OK;
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
        (void) ngx_http_idempotency_problem_failed(ctx, rc);
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
    ctx->body_read = 1;

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency has the body");

    r->preserve_body = 1;

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


static ngx_int_t
ngx_http_idempotency_handler_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_idempotency_fingerprint(r, ctx);

    /* with= may have read a field of the body, too */

    if (rc == NGX_DECLINED || ctx->body_invalid) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_BODY_INVALID);
    }

    if (rc != NGX_OK || ngx_http_idempotency_context_owner(ctx) != NGX_OK) {
        return ngx_http_idempotency_problem_failed(ctx,
                                             NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    if (ctx->conf->dry_run) {
        return ngx_http_idempotency_dry_claim(r, ctx);
    }

    return ngx_http_idempotency_act_submit(r, ctx, NGX_IDEMPOTENCY_CLAIM,
                                               0);
}
