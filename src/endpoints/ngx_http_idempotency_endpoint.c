
/*
 * What locations that answer themselves, and ask a store, have in common.
 */


#include "ngx_http_idempotency_endpoint.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_problem.h"


static void ngx_http_idempotency_endpoint_event(ngx_http_request_t *r);


char *
ngx_http_idempotency_endpoint(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *ilcf, ngx_str_t *store,
    ngx_http_handler_pt handler, ngx_http_handler_pt act)
{
    ngx_http_core_loc_conf_t  *clcf;

    if (ilcf->endpoint) {
        return "is duplicate, or another handler of the location";
    }

    ilcf->endpoint = ngx_http_idempotency_store_get(cf, store);
    if (ilcf->endpoint == NULL) {
        return NGX_CONF_ERROR;
    }

    ilcf->act = act;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = handler;

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_idempotency_endpoint_method(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *methods)
{
    static ngx_str_t  allow = ngx_string("Allow");

    if (ngx_http_idempotency_header_add(&r->headers_out.headers, &allow,
                                        methods)
        == NULL)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idempotency_problem(r, ctx,
                                        NGX_HTTP_IDEMPOTENCY_BAD_METHOD);
}


ngx_int_t
ngx_http_idempotency_endpoint_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    return ngx_http_idempotency_context_submit(ctx) == NGX_AGAIN
           ? NGX_AGAIN : ctx->conf->act(r);
}


void
ngx_http_idempotency_endpoint_go(ngx_http_request_t *r, ngx_int_t rc)
{
    if (rc == NGX_AGAIN) {
        r->write_event_handler = ngx_http_idempotency_endpoint_event;

    } else if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }
}


static void
ngx_http_idempotency_endpoint_event(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_context_get(r);

    if (!ctx->op->pending) {
        ngx_http_idempotency_endpoint_go(r, ctx->conf->act(r));
    }
}
