
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
#include "ngx_http_idempotency_location.h"
#include "ngx_http_idempotency_probe.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_upstream.h"
#include "ngx_http_idempotency_upstream_gate.h"


static ngx_int_t ngx_http_idempotency_access_handler(ngx_http_request_t *r);
static ngx_http_idempotency_verdict_e ngx_http_idempotency_handler_key(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_handler_early_data(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_handler_before(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_handler_after(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_handler(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_handler_identity(ngx_http_request_t *r,
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
    ngx_array_t                *handlers;
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_REWRITE_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idempotency_location_enter;

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PREACCESS_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idempotency_location_check;

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_ACCESS_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idempotency_access_handler;

    /*
     * ngx_http_init_phase_handlers() calls the last of a phase first: the one
     * comes before mirror, which is to see no duplicates, the other after
     * try_files, which may send the request elsewhere
     */

    handlers = &cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers;

    if (ngx_array_push_n(handlers, 2) == NULL) {
        return NGX_ERROR;
    }

    h = handlers->elts;

    ngx_memmove(h + 1, h, (handlers->nelts - 2) * sizeof(ngx_http_handler_pt));

    h[0] = ngx_http_idempotency_handler_after;
    h[handlers->nelts - 1] = ngx_http_idempotency_handler_before;

    ngx_http_idempotency_location_init(cf);

    return ngx_http_idempotency_upstream_gate_init(cf);
}


/*
 * Spares the work of authentication for a request that has no chance.  Runs
 * before the access modules, which may send whom they refuse elsewhere: it
 * evaluates no variable, reads no store, and never grants access.
 */

static ngx_int_t
ngx_http_idempotency_access_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_verdict_e    verdict;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx == NULL
        || ctx->way != NGX_HTTP_IDEMPOTENCY_WAY_NEW
        || r->post_action)
    {
        return NGX_DECLINED;
    }

    /* until the access modules have let it in, see location.c */

    ctx->checked = 1;
    ctx->checking = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (!ngx_http_idempotency_location_protects(r, ilcf)
        || !ngx_http_idempotency_location_decides(r, 1))
    {
        return NGX_DECLINED;
    }

    ctx->conf = ilcf;

    verdict = ngx_http_idempotency_handler_key(r, ctx);

    if (verdict == NGX_HTTP_IDEMPOTENCY_EXECUTE) {
        return NGX_DECLINED;
    }

    ngx_http_idempotency_context_begin(ctx);

    return ngx_http_idempotency_problem(r, ctx, verdict);
}


/* EXECUTE where nothing speaks against it so far */

static ngx_http_idempotency_verdict_e
ngx_http_idempotency_handler_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ngx_http_idempotency_handler_early_data(r)) {
        return NGX_HTTP_IDEMPOTENCY_EARLY_DATA;
    }

    switch (ngx_http_idempotency_identify_header(r, ctx)) {

    case NGX_DECLINED:
        return ctx->conf->required ? NGX_HTTP_IDEMPOTENCY_KEY_MISSING
                              : NGX_HTTP_IDEMPOTENCY_EXECUTE;

    case NGX_ABORT:
        return NGX_HTTP_IDEMPOTENCY_KEY_INVALID;

    default: /* NGX_OK, or NGX_ERROR, which the next phase will meet again */
        return NGX_HTTP_IDEMPOTENCY_EXECUTE;
    }
}


static ngx_uint_t
ngx_http_idempotency_handler_early_data(ngx_http_request_t *r)
{
#if (NGX_HTTP_SSL)
    ngx_str_t  early_data;

    return r->connection->ssl
           && ngx_ssl_get_early_data(r->connection, r->pool, &early_data)
              == NGX_OK
           && early_data.len;
#else
    return 0;
#endif
}


static ngx_int_t
ngx_http_idempotency_handler_before(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    if (r != r->main) {
        ngx_http_idempotency_probe_wrap(r);
        return NGX_DECLINED;
    }

    if (r->post_action) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx == NULL) {
        return NGX_DECLINED;
    }

    ctx->checking = NULL;

    if (!ngx_http_idempotency_location_decides(r, 1)) {
        return NGX_DECLINED;
    }

    return ngx_http_idempotency_handler(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_handler_after(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    if (r != r->main || r->post_action) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx == NULL
        || ngx_http_idempotency_location_decides(r, 1)
        || !ngx_http_idempotency_location_decides(r, 0))
    {
        return NGX_DECLINED;
    }

    return ngx_http_idempotency_handler(r, ctx);
}


/*
 * Entered again after the body was read, after the store has answered, and
 * after internal redirects; ctx->way tells where it was.
 */

static ngx_int_t
ngx_http_idempotency_handler(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    switch (ctx->way) {

    case NGX_HTTP_IDEMPOTENCY_WAY_NEW:

        if (ngx_http_idempotency_location_decide(r, ctx) != NGX_OK) {
            return NGX_DECLINED;
        }

        if (ngx_http_idempotency_handler_early_data(r)) {
            return ngx_http_idempotency_problem(r, ctx,
                                             NGX_HTTP_IDEMPOTENCY_EARLY_DATA);
        }

        /* fall through */

    case NGX_HTTP_IDEMPOTENCY_WAY_READY:
        return ngx_http_idempotency_handler_identity(r, ctx);

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

        /* the stored answer could not be sent, and error_page as above */

        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_REFUSED;
        ctx->refused = NGX_HTTP_INTERNAL_SERVER_ERROR;

        /* fall through */

    case NGX_HTTP_IDEMPOTENCY_WAY_REFUSED:
        return ngx_http_idempotency_handler_refused(r, ctx);

    default: /* PASSED */
        return NGX_DECLINED;
    }
}


/* with fields of the body as variables the body comes first */

static ngx_int_t
ngx_http_idempotency_handler_identity(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    if (ngx_http_idempotency_field_any(r)
        ? ctx->body_read
        : ctx->way == NGX_HTTP_IDEMPOTENCY_WAY_NEW)
    {
        rc = ngx_http_idempotency_handler_identify(r, ctx);
        if (rc != NGX_OK) {
            return rc;
        }

        if (ctx->barred && ngx_http_idempotency_policy_refused(ctx->barred)) {

            /* a stranger makes no record that the owner of the key meets */

            return ngx_http_idempotency_problem_failed(ctx, ctx->barred);
        }
    }

    if (!ctx->body_read) {
        return ngx_http_idempotency_handler_read_body(r, ctx);
    }

    return ngx_http_idempotency_handler_claim(r, ctx);
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
        || !ngx_http_idempotency_location_protects(r, ctx->conf))
    {
        return NGX_DECLINED;
    }

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency lets no content handler have the request");

    /* recursive_error_pages would go on until there is a cycle */

    r->error_page = 1;

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

        ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_PASSED;
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

    if (r->method == NGX_HTTP_PUT && ngx_http_idempotency_location_dav(r)) {

        /* as ngx_http_dav_handler(), which makes the file of the body */

        r->request_body_in_file_only = 1;
        r->request_body_in_persistent_file = 1;
        r->request_body_in_clean_file = 1;
        r->request_body_file_group_access = 1;
        r->request_body_file_log_level = 0;
    }

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
