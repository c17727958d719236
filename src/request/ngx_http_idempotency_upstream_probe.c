
/*
 * The upstream of a probe.
 */


#include "ngx_http_idempotency_upstream_probe.h"
#include "ngx_http_idempotency_upstream.h"


#if (NGX_HTTP_CACHE)
static ngx_http_upstream_conf_t *ngx_http_idempotency_upstream_cache_conf(
    ngx_http_request_t *r, char *name);
#endif


/*
 * Handlers of upstreams call ngx_http_upstream_init() for a subrequest before
 * they return, and ngx_http_upstream_init_request() looks at "cache" of the
 * location's configuration before anything else; nobody looks at it later.
 * A worker runs one request at a time, so nobody else sees the change.
 */

ngx_int_t
ngx_http_idempotency_upstream_uncached(ngx_http_request_t *r,
    ngx_http_handler_pt handler)
{
#if (NGX_HTTP_CACHE)

    ngx_int_t                  rc, cache[NGX_HTTP_IDEMPOTENCY_UPSTREAMS];
    ngx_uint_t                 i;
    ngx_http_upstream_conf_t  *ucf[NGX_HTTP_IDEMPOTENCY_UPSTREAMS];

    for (i = 0; i < NGX_HTTP_IDEMPOTENCY_UPSTREAMS; i++) {
        ucf[i] = ngx_http_idempotency_upstream_cache_conf(r,
                                    ngx_http_idempotency_upstream_modules[i]);
        if (ucf[i]) {
            cache[i] = ucf[i]->cache;
            ucf[i]->cache = 0;
        }
    }

    rc = handler(r);

    for (i = 0; i < NGX_HTTP_IDEMPOTENCY_UPSTREAMS; i++) {
        if (ucf[i]) {
            ucf[i]->cache = cache[i];
        }
    }

    return rc;

#else

    return handler(r);

#endif
}


#if (NGX_HTTP_CACHE)

/* The configuration of a module that caches in this location, or NULL. */

static ngx_http_upstream_conf_t *
ngx_http_idempotency_upstream_cache_conf(ngx_http_request_t *r, char *name)
{
    ngx_uint_t                 m;
    ngx_module_t              *module;
    ngx_http_upstream_conf_t  *ucf;

    for (m = 0; ngx_cycle->modules[m]; m++) {
        module = ngx_cycle->modules[m];

        if (ngx_strcmp(module->name, name) == 0) {
            ucf = r->loc_conf[module->ctx_index];

            return ucf->cache ? ucf : NULL;
        }
    }

    return NULL;
}

#endif


/*
 * ngx_http_upstream_finalize_request() has cleared u->cleanup before nginx
 * makes an error of its own, serves an error page or follows an
 * X-Accel-Redirect.
 */

ngx_uint_t
ngx_http_idempotency_upstream_speaks(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL || u->cleanup == NULL || u->peer.connection == NULL
        || r->filter_finalize)
    {
        return 0;
    }

#if (NGX_HTTP_CACHE)
    if (r->cached) {
        return 0;
    }
#endif

    return u->headers_in.status_n == r->headers_out.status;
}
