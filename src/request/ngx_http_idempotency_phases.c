
/*
 * The phase handlers: which location protects a request that may visit
 * several, and where it is claimed.
 */


#include "ngx_http_idempotency_phases.h"
#include "ngx_http_idempotency_claim.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_dry_run.h"
#include "ngx_http_idempotency_identify.h"
#include "ngx_http_idempotency_probe.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_repeatability.h"
#include "ngx_http_idempotency_upstream.h"
#include "ngx_http_idempotency_upstream_gate.h"


#define NGX_HTTP_IDEMPOTENCY_DAV_METHODS                                      \
    (NGX_HTTP_PUT|NGX_HTTP_DELETE|NGX_HTTP_MKCOL|NGX_HTTP_COPY|NGX_HTTP_MOVE)


static ngx_uint_t ngx_http_idempotency_phases_module(ngx_conf_t *cf,
    char *name);
static ngx_int_t ngx_http_idempotency_rewrite_handler(ngx_http_request_t *r);
static void ngx_http_idempotency_phases_access_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_phases_restart(
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_preaccess_handler(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_idempotency_phases_checks_access(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_access_handler(ngx_http_request_t *r);
static ngx_uint_t ngx_http_idempotency_phases_early_data(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_precontent_first(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_phases_subrequest(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_precontent_last(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_precontent(ngx_http_request_t *r,
    ngx_uint_t tries_files);
static ngx_uint_t ngx_http_idempotency_phases_tries_files(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_idempotency_phases_dav(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_phases_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_phases_authenticates(
    ngx_http_request_t *r);
static void ngx_http_idempotency_phases_count(
    ngx_http_idempotency_ctx_t *ctx);


ngx_int_t
ngx_http_idempotency_phases_init(ngx_conf_t *cf)
{
    ngx_array_t                       *handlers;
    ngx_http_handler_pt               *h;
    ngx_http_core_main_conf_t         *cmcf;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);
    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    imcf->try_files = ngx_http_idempotency_phases_module(cf,
                                                 "ngx_http_try_files_module");
    imcf->dav = ngx_http_idempotency_phases_module(cf, "ngx_http_dav_module");
    imcf->access = ngx_http_idempotency_phases_module(cf,
                                                    "ngx_http_access_module");
    imcf->auth_basic = ngx_http_idempotency_phases_module(cf,
                                                "ngx_http_auth_basic_module");
    imcf->auth_request = ngx_http_idempotency_phases_module(cf,
                                              "ngx_http_auth_request_module");

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_REWRITE_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idempotency_rewrite_handler;

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

    /*
     * ngx_http_init_phase_handlers() calls the last handler of a phase first:
     * one of ours comes before mirror, which must not see duplicates, the
     * other after try_files, which may send the request elsewhere
     */

    handlers = &cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers;

    if (ngx_array_push_n(handlers, 2) == NULL) {
        return NGX_ERROR;
    }

    h = handlers->elts;

    ngx_memmove(h + 1, h, (handlers->nelts - 2) * sizeof(ngx_http_handler_pt));

    h[0] = ngx_http_idempotency_precontent_last;
    h[handlers->nelts - 1] = ngx_http_idempotency_precontent_first;

    return ngx_http_idempotency_upstream_gate_init(cf);
}


static ngx_uint_t
ngx_http_idempotency_phases_module(ngx_conf_t *cf, char *name)
{
    ngx_uint_t  m;

    for (m = 0; cf->cycle->modules[m]; m++) {
        if (ngx_strcmp(cf->cycle->modules[m]->name, name) == 0) {
            return cf->cycle->modules[m]->ctx_index;
        }
    }

    return NGX_CONF_UNSET_UINT;
}


/*
 * The rewrite phase runs in every location, also where "return" sends the
 * request on by error_page, and before anything can refuse it.  The context is
 * made in the first location that protects, ctx->conf is that of the last one.
 */

static ngx_int_t
ngx_http_idempotency_rewrite_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    if (r != r->main || r->post_action) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx) {
        ngx_http_idempotency_upstream_enter(r, ctx);
    }

    if (ctx && ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_RUNS) {
        ngx_http_idempotency_upstream_arrive(r, ctx);
        return NGX_DECLINED;
    }

    if (ctx && ctx->access.location) {
        ngx_http_idempotency_phases_access_refused(r, ctx);
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (!ngx_http_idempotency_protects(r, ilcf)) {
        return NGX_DECLINED;
    }

    if (ctx == NULL || ctx->conf->endpoint) {

        ctx = ngx_http_idempotency_context_create(r, ilcf,
                                              ngx_http_idempotency_claim_end);
        if (ctx == NULL) {

            /* after a 500 error_page could lead to an unprotected execution */

            return NGX_ERROR;
        }

        ngx_http_idempotency_upstream_enter(r, ctx);
        ngx_http_idempotency_upstream_begin(r, ctx);

        return NGX_DECLINED;
    }

    if (ctx->conf != ilcf
        && (ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_PASSED
            || (ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_DRY_RUN
                && !ilcf->dry_run)))
    {
        ngx_http_idempotency_phases_restart(ctx);
    }

    if (ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_NEW) {
        ctx->conf = ilcf;
    }

    return NGX_DECLINED;
}


/*
 * An access check has refused the request, and error_page leads here.  The
 * status is that of the error_page directive: with "=" r->err_status has none.
 * Where the directive has several, it is the most likely one.
 */

static void
ngx_http_idempotency_phases_access_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                      *value;
    ngx_int_t                       status;
    ngx_uint_t                      i, rank, best;
    ngx_http_err_page_t            *page;
    ngx_http_core_loc_conf_t       *clcf, *last;
    ngx_http_idempotency_access_t  *access;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    access = &ctx->access;

    last = access->location;

    access->location = NULL;
    access->refused = NGX_HTTP_FORBIDDEN;

    /* the page of a URI is asked for by GET: it is not the operation */

    access->error_page = (!clcf->named
                          && (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)));

    best = 0;

    for (i = 0; last->error_pages && i < last->error_pages->nelts; i++) {
        page = (ngx_http_err_page_t *) last->error_pages->elts + i;

        value = &page->value.value;
        status = (page->overwrite == -1) ? page->status : page->overwrite;

        if (value->len != clcf->name.len
            || ngx_memcmp(value->data, clcf->name.data, value->len) != 0
            || (ngx_int_t) r->err_status != status)
        {
            continue;
        }

        rank = ngx_http_idempotency_policy_access_rank(page->status,
                                                       access->phase);
        if (rank > best) {
            best = rank;
            access->refused = page->status;
        }
    }
}


/*
 * The request has passed one location without protection, and has come to
 * another one that may protect it.
 */

static void
ngx_http_idempotency_phases_restart(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_lease_let_go(&ctx->held);

    if (ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_DRY_RUN) {
        ngx_http_idempotency_dry_run_end(ctx);
    }

    if (ctx->op) {
        ngx_idempotency_op_drop(ctx->op);
        ctx->op = NULL;
    }

    if (ctx->in_flight) {
        ngx_idempotency_ends(ctx->in_flight->now->in_flight);
        ctx->in_flight = NULL;
    }

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_NEW);
    ctx->result = NGX_HTTP_IDEMPOTENCY_OFF;
    ctx->refused = 0;
    ctx->identity.flags = 0;
    ctx->jsonrpc = NULL;
}


/*
 * The access modules do not see a request that limit_req refuses: its client
 * is not authenticated then.
 */

static ngx_int_t
ngx_http_idempotency_preaccess_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    if (r != r->main || r->post_action) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx
        && ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_NEW
        && ngx_http_idempotency_phases_checks_access(r))
    {
        ctx->access.phase = 0;
        ctx->access.location = ngx_http_get_module_loc_conf(r,
                                                       ngx_http_core_module);
    }

    return NGX_DECLINED;
}


/*
 * The configurations of these modules begin with lists of rules for IPv4 and,
 * as nginx was built, IPv6 and unix; a complex value; an URI.
 */

static ngx_uint_t
ngx_http_idempotency_phases_checks_access(ngx_http_request_t *r)
{
    void                              **conf;
    ngx_str_t                          *uri;
    ngx_http_idempotency_main_conf_t   *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    if (imcf->access != NGX_CONF_UNSET_UINT) {
        conf = r->loc_conf[imcf->access];

        if (conf[0]
#if (NGX_HAVE_INET6)
            || conf[1]
#if (NGX_HAVE_UNIX_DOMAIN)
            || conf[2]
#endif
#elif (NGX_HAVE_UNIX_DOMAIN)
            || conf[1]
#endif
            )
        {
            return 1;
        }
    }

    if (imcf->auth_basic != NGX_CONF_UNSET_UINT) {
        conf = r->loc_conf[imcf->auth_basic];

        if (conf[0]) {
            return 1;
        }
    }

    if (imcf->auth_request != NGX_CONF_UNSET_UINT) {
        uri = r->loc_conf[imcf->auth_request];

        return uri->len != 0;
    }

    return 0;
}


/*
 * Saves the work of authentication for a request that has no chance.  Runs
 * before the access modules, which may send a request that they refuse
 * elsewhere: it evaluates no variable, reads no store and never grants access.
 */

static ngx_int_t
ngx_http_idempotency_access_handler(ngx_http_request_t *r)
{
    ngx_int_t                         rc;
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_verdict_e    verdict;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx == NULL
        || ctx->state != NGX_HTTP_IDEMPOTENCY_STATE_NEW
        || r->post_action)
    {
        return NGX_DECLINED;
    }

    ctx->access.phase = 1;
    ctx->access.location = ngx_http_get_module_loc_conf(r,
                                                        ngx_http_core_module);

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (!ngx_http_idempotency_protects(r, ilcf)
        || (r->content_handler == NULL && !ngx_http_idempotency_phases_dav(r))
        || ngx_http_idempotency_phases_tries_files(r))
    {
        return NGX_DECLINED;
    }

    ctx->conf = ilcf;

    if (ngx_http_idempotency_phases_early_data(r)) {
        verdict = NGX_HTTP_IDEMPOTENCY_EARLY_DATA;

    } else if (ilcf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC) {

        /* the method and the id of the message are in the body */

        return NGX_DECLINED;

    } else {

        rc = ngx_http_idempotency_identify_header(r, ctx);

        verdict = NGX_HTTP_IDEMPOTENCY_EXECUTE;

        if (ilcf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS
            && ilcf->key_header.len)
        {
            verdict = ngx_http_idempotency_repeatability(r, ctx, rc);
        }

        if (rc == NGX_ABORT) {
            verdict = NGX_HTTP_IDEMPOTENCY_KEY_INVALID;

        } else if (rc == NGX_DECLINED && ilcf->required) {
            verdict = NGX_HTTP_IDEMPOTENCY_KEY_MISSING;
        }

        if (verdict == NGX_HTTP_IDEMPOTENCY_EXECUTE) {

            /* or NGX_ERROR, which precontent will meet again */

            return NGX_DECLINED;
        }
    }

    ngx_http_idempotency_phases_count(ctx);

    return ngx_http_idempotency_problem(r, ctx, verdict);
}


static ngx_uint_t
ngx_http_idempotency_phases_early_data(ngx_http_request_t *r)
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
ngx_http_idempotency_precontent_first(ngx_http_request_t *r)
{
    return (r == r->main) ? ngx_http_idempotency_precontent(r, 0)
                          : ngx_http_idempotency_phases_subrequest(r);
}


/*
 * A mirror or an auth_request may inherit an error_page that leads to the
 * location which executes requests.  There it would execute the operation
 * without a claim: in addition to the main request, or before that was let in.
 */

static ngx_int_t
ngx_http_idempotency_phases_subrequest(ngx_http_request_t *r)
{
    ngx_http_core_loc_conf_t         *clcf;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    if (ngx_http_idempotency_probe_find(r)) {
        ngx_http_idempotency_probe_wrap(r);
        return NGX_DECLINED;
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (!ngx_http_idempotency_upstream_was_tried(r)
        || r->content_handler == NULL
        || !ngx_http_idempotency_protects(r->main, ilcf)
        || ilcf->dry_run)
    {
        return NGX_DECLINED;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "idempotency: a subrequest is not sent to a protected "
                  "location, \"%V\", after its own upstream: give the "
                  "location of the subrequest an \"error_page\" of its own, "
                  "or set \"idempotency off\" in \"%V\"",
                  &clcf->name, &clcf->name);

    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static ngx_int_t
ngx_http_idempotency_precontent_last(ngx_http_request_t *r)
{
    return (r == r->main) ? ngx_http_idempotency_precontent(r, 1)
                          : NGX_DECLINED;
}


/*
 * A location without a content handler, and without WebDAV for the method,
 * only hands the request on: by try_files, index, or error_page after the 404
 * or 405 of a static file.  The request is claimed where it arrives.
 */

static ngx_int_t
ngx_http_idempotency_precontent(ngx_http_request_t *r,
    ngx_uint_t tries_files)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = r->post_action ? NULL : ngx_http_idempotency_get_ctx(r);

    if (ctx == NULL) {
        return NGX_DECLINED;
    }

    ctx->access.location = NULL;

    if ((r->content_handler == NULL && !ngx_http_idempotency_phases_dav(r))
        || ngx_http_idempotency_phases_tries_files(r) != tries_files)
    {
        return NGX_DECLINED;
    }

    if (ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_NEW) {

        if (ngx_http_idempotency_phases_decide(r, ctx) != NGX_OK) {
            return NGX_DECLINED;
        }

        if (ngx_http_idempotency_phases_early_data(r)) {
            return ngx_http_idempotency_problem(r, ctx,
                                             NGX_HTTP_IDEMPOTENCY_EARLY_DATA);
        }
    }

    return ngx_http_idempotency_claim(r, ctx);
}


/*
 * The configuration of ngx_http_try_files_module begins with a pointer to the
 * files, that of ngx_http_dav_module with its methods.
 */

static ngx_uint_t
ngx_http_idempotency_phases_tries_files(ngx_http_request_t *r)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    return imcf->try_files != NGX_CONF_UNSET_UINT
           && *(void **) r->loc_conf[imcf->try_files] != NULL;
}


static ngx_uint_t
ngx_http_idempotency_phases_dav(ngx_http_request_t *r)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    return imcf->dav != NGX_CONF_UNSET_UINT
           && (r->method & NGX_HTTP_IDEMPOTENCY_DAV_METHODS
               & *(ngx_uint_t *) r->loc_conf[imcf->dav]);
}


/*
 * Key, source, scope and policy of the request are from now on those of this
 * location if it protects, else of the last one that did.  NGX_DECLINED: that
 * one does not protect such a request, as a GET for an error page.
 */

static ngx_int_t
ngx_http_idempotency_phases_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (ilcf->endpoint || ctx->access.error_page) {
        return NGX_DECLINED;
    }

    if (ctx->access.refused && ngx_http_idempotency_phases_authenticates(r)) {

        /* this location has let the client in */

        ctx->access.refused = 0;
    }

    /* "if" has a configuration of its own, which was not entered */

    if (ngx_http_idempotency_protects(r, ilcf)) {
        ctx->conf = ilcf;

    } else if (!ngx_http_idempotency_protects(r, ctx->conf)) {
        return NGX_DECLINED;
    }

    ctx->request_body.dav_put = (r->content_handler == NULL
                                 && r->method == NGX_HTTP_PUT);

    ngx_http_idempotency_phases_count(ctx);

    return NGX_OK;
}


/* after the access phase: the realm may have variables, and may be "off" */

static ngx_uint_t
ngx_http_idempotency_phases_authenticates(ngx_http_request_t *r)
{
    void                              **conf;
    ngx_str_t                          *uri, realm;
    ngx_http_idempotency_main_conf_t   *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    if (imcf->auth_basic != NGX_CONF_UNSET_UINT) {
        conf = r->loc_conf[imcf->auth_basic];

        if (conf[0]
            && ngx_http_complex_value(r, conf[0], &realm) == NGX_OK
            && !(realm.len == 3 && ngx_strncmp(realm.data, "off", 3) == 0))
        {
            return 1;
        }
    }

    if (imcf->auth_request != NGX_CONF_UNSET_UINT) {
        uri = r->loc_conf[imcf->auth_request];

        return uri->len != 0;
    }

    return 0;
}


static void
ngx_http_idempotency_phases_count(ngx_http_idempotency_ctx_t *ctx)
{
    ctx->in_flight = ctx->conf->store;

    ngx_idempotency_begins(ctx->in_flight->now->in_flight);
}
