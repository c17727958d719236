
/*
 * Which location protects a request that may visit several.
 */


#include "ngx_http_idempotency_location.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_upstream.h"


#define NGX_HTTP_IDEMPOTENCY_DAV_METHODS                                      \
    (NGX_HTTP_PUT|NGX_HTTP_DELETE|NGX_HTTP_MKCOL|NGX_HTTP_COPY|NGX_HTTP_MOVE)


static ngx_uint_t ngx_http_idempotency_location_module(ngx_conf_t *cf,
    char *name);
static ngx_uint_t ngx_http_idempotency_location_guarded(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_idempotency_location_authenticates(
    ngx_http_request_t *r);
static void ngx_http_idempotency_location_bar(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


void
ngx_http_idempotency_location_init(ngx_conf_t *cf)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    imcf->try_files = ngx_http_idempotency_location_module(cf,
                                                 "ngx_http_try_files_module");
    imcf->dav = ngx_http_idempotency_location_module(cf,
                                                     "ngx_http_dav_module");
    imcf->access = ngx_http_idempotency_location_module(cf,
                                                    "ngx_http_access_module");
    imcf->auth_basic = ngx_http_idempotency_location_module(cf,
                                                "ngx_http_auth_basic_module");
    imcf->auth_request = ngx_http_idempotency_location_module(cf,
                                              "ngx_http_auth_request_module");
}


static ngx_uint_t
ngx_http_idempotency_location_module(ngx_conf_t *cf, char *name)
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
 * request on by error_page, and before anything can refuse it.
 */

ngx_int_t
ngx_http_idempotency_location_enter(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    if (r != r->main || r->post_action) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx && ctx->way == NGX_HTTP_IDEMPOTENCY_WAY_OWNED) {
        ngx_http_idempotency_upstream_arrive(r, ctx);
        return NGX_DECLINED;
    }

    if (ctx && ctx->checking) {
        ngx_http_idempotency_location_bar(r, ctx);
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (!ngx_http_idempotency_location_protects(r, ilcf)) {
        return NGX_DECLINED;
    }

    if (ctx == NULL || ctx->conf->endpoint) {

        /* error_page could execute a 500, and nothing would stop it */

        return ngx_http_idempotency_context_create(r, ilcf) ? NGX_DECLINED
                                                            : NGX_ERROR;
    }

    if (ctx->way == NGX_HTTP_IDEMPOTENCY_WAY_PASSED
        && ctx->conf != ilcf
        && !(ctx->dry && ilcf->dry_run))
    {
        ngx_http_idempotency_context_restart(ctx);
    }

    if (ctx->way == NGX_HTTP_IDEMPOTENCY_WAY_NEW) {
        ctx->conf = ilcf;
    }

    return NGX_DECLINED;
}


/*
 * The access modules do not see a request that limit_req refuses: its client
 * is not authenticated then.
 */

ngx_int_t
ngx_http_idempotency_location_check(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    if (r != r->main || r->post_action) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_context_get(r);

    if (ctx
        && ctx->way == NGX_HTTP_IDEMPOTENCY_WAY_NEW
        && ngx_http_idempotency_location_guarded(r))
    {
        ctx->checked = 0;
        ctx->checking = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    }

    return NGX_DECLINED;
}


/*
 * The configurations of these modules begin with lists of rules for IPv4 and,
 * as nginx was built, IPv6 and unix; a complex value; an URI.
 */

static ngx_uint_t
ngx_http_idempotency_location_guarded(ngx_http_request_t *r)
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


/* after the access phase: the realm may have variables, and may be "off" */

static ngx_uint_t
ngx_http_idempotency_location_authenticates(ngx_http_request_t *r)
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


/*
 * An access check has refused the request, and error_page leads here.  The
 * status is that of the error_page directive: with "=" r->err_status has none.
 * Where the directive has several, it is the one that is likely.
 */

static void
ngx_http_idempotency_location_bar(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                 *value;
    ngx_int_t                  status;
    ngx_uint_t                 i, likely, best;
    ngx_http_err_page_t       *page;
    ngx_http_core_loc_conf_t  *clcf, *last;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    last = ctx->checking;
    ctx->checking = NULL;
    ctx->barred = NGX_HTTP_FORBIDDEN;

    /* a URI is asked for by GET, and is not what the client asked for */

    ctx->page = (!clcf->named && (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)));

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

        likely = ngx_http_idempotency_policy_likely(page->status,
                                                    ctx->checked);
        if (likely > best) {
            best = likely;
            ctx->barred = page->status;
        }
    }
}


ngx_uint_t
ngx_http_idempotency_location_protects(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *ilcf)
{
    return ilcf->store
           && ilcf->endpoint == NULL
           && (r->method & ilcf->methods);
}


/*
 * The configuration of ngx_http_try_files_module begins with a pointer to the
 * files, that of ngx_http_dav_module with its methods.
 */

ngx_uint_t
ngx_http_idempotency_location_decides(ngx_http_request_t *r, ngx_uint_t early)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    if (early
        && imcf->try_files != NGX_CONF_UNSET_UINT
        && *(void **) r->loc_conf[imcf->try_files] != NULL)
    {
        return 0;
    }

    return r->content_handler != NULL || ngx_http_idempotency_location_dav(r);
}


ngx_uint_t
ngx_http_idempotency_location_dav(ngx_http_request_t *r)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    return r->content_handler == NULL
           && imcf->dav != NGX_CONF_UNSET_UINT
           && (r->method & NGX_HTTP_IDEMPOTENCY_DAV_METHODS
               & *(ngx_uint_t *) r->loc_conf[imcf->dav]);
}


ngx_int_t
ngx_http_idempotency_location_decide(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (ilcf->endpoint || ctx->page) {
        return NGX_DECLINED;
    }

    if (ctx->barred && ngx_http_idempotency_location_authenticates(r)) {
        ctx->barred = 0;
    }

    /* "if" has a configuration of its own, which was not entered */

    if (ngx_http_idempotency_location_protects(r, ilcf)) {
        ctx->conf = ilcf;

    } else if (!ngx_http_idempotency_location_protects(r, ctx->conf)) {
        return NGX_DECLINED;
    }

    ngx_http_idempotency_context_begin(ctx);

    return NGX_OK;
}
