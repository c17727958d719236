
/*
 * Endpoints: what locations that answer from a store have in common.
 */


#include "ngx_http_idempotency_endpoint.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_problem.h"


static ngx_uint_t ngx_http_idempotency_endpoint_foreign(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_idempotency_endpoint_origin(ngx_http_request_t *r,
    ngx_str_t *origin);
static void ngx_http_idempotency_endpoint_event(ngx_http_request_t *r);


char *
ngx_http_idempotency_endpoint(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *ilcf, ngx_str_t *store,
    ngx_http_handler_pt handler, ngx_http_handler_pt on_reply)
{
    ngx_http_core_loc_conf_t  *clcf;

    if (ilcf->endpoint) {
        return "is duplicate, or another handler of the location";
    }

    ilcf->endpoint = ngx_http_idempotency_store_get(cf, store);
    ilcf->endpoint_place = ngx_http_idempotency_conf_place(cf);

    if (ilcf->endpoint == NULL || ilcf->endpoint_place == NULL) {
        return NGX_CONF_ERROR;
    }

    ilcf->on_reply = on_reply;

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
ngx_http_idempotency_endpoint_own_site(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (!ngx_http_idempotency_endpoint_foreign(r)) {
        return NGX_OK;
    }

    r->main->count++;

    ngx_http_idempotency_endpoint_go(r,
              ngx_http_idempotency_problem(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_CROSS_SITE));

    return NGX_DONE;
}


/*
 * Whether a browser says that a page of another site has made the request:
 * by Sec-Fetch-Site, or by an Origin that is not the request's host.
 */

static ngx_uint_t
ngx_http_idempotency_endpoint_foreign(ngx_http_request_t *r)
{
    ngx_str_t        *value;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        value = &h[i].value;

        if (h[i].key.len == sizeof("Sec-Fetch-Site") - 1
            && ngx_strncasecmp(h[i].key.data, (u_char *) "Sec-Fetch-Site",
                               sizeof("Sec-Fetch-Site") - 1)
               == 0
            && (value->len != sizeof("same-origin") - 1
                || ngx_strncmp(value->data, "same-origin", value->len) != 0)
            && (value->len != sizeof("none") - 1
                || ngx_strncmp(value->data, "none", value->len) != 0))
        {
            return 1;
        }

        if (h[i].key.len == sizeof("Origin") - 1
            && ngx_strncasecmp(h[i].key.data, (u_char *) "Origin",
                               sizeof("Origin") - 1)
               == 0
            && !ngx_http_idempotency_endpoint_origin(r, value))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * Whether the host of an origin is that of the request.  The scheme is not
 * compared: TLS may have ended at another proxy.  HTTP/2 and HTTP/3 may have
 * ":authority" instead of "Host", see ngx_http_v2_parse_authority().
 */

static ngx_uint_t
ngx_http_idempotency_endpoint_origin(ngx_http_request_t *r,
    ngx_str_t *origin)
{
    char       *port;
    ngx_str_t   host, o;

    if (r->headers_in.host) {
        host = r->headers_in.host->value;

    } else if (r->host_start && r->host_end) {
        host.data = r->host_start;
        host.len = r->host_end - r->host_start;

    } else {
        return 0;
    }

    o = *origin;

    if (o.len > 7 && ngx_strncasecmp(o.data, (u_char *) "http://", 7) == 0) {
        o.data += 7;
        o.len -= 7;
        port = ":80";

    } else if (o.len > 8
               && ngx_strncasecmp(o.data, (u_char *) "https://", 8) == 0)
    {
        o.data += 8;
        o.len -= 8;
        port = ":443";

    } else {
        return 0;
    }

    if (host.len < o.len || ngx_strncasecmp(host.data, o.data, o.len) != 0) {
        return 0;
    }

    /* browsers leave out the default port, other clients may not */

    host.data += o.len;
    host.len -= o.len;

    return host.len == 0
           || (host.len == ngx_strlen(port)
               && ngx_strncmp(host.data, port, host.len) == 0);
}


ngx_int_t
ngx_http_idempotency_endpoint_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    return ngx_idempotency_op_submit(ctx->op) == NGX_AGAIN
           ? NGX_AGAIN : ctx->conf->on_reply(r);
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

    ctx = ngx_http_idempotency_get_ctx(r);

    if (!ctx->op->pending) {
        ngx_http_idempotency_endpoint_go(r, ctx->conf->on_reply(r));
    }
}
