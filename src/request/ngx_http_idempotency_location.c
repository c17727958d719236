
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


void
ngx_http_idempotency_location_init(ngx_conf_t *cf)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    imcf->try_files = ngx_http_idempotency_location_module(cf,
                                                 "ngx_http_try_files_module");
    imcf->dav = ngx_http_idempotency_location_module(cf,
                                                     "ngx_http_dav_module");
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

    if (ilcf->endpoint) {
        return NGX_DECLINED;
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
