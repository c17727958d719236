
/*
 * Every difference between nginx versions that this module meets.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_COMPAT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_COMPAT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/*
 * Since 1.23.0 header lines of one name are linked by "next", which
 * ngx_list_push() leaves unset, and Cache-Control and Link of an answer are
 * such chains; before, they were arrays of pointers.
 */

#if (nginx_version >= 1023000)

#define ngx_http_idempotency_unlink_header(h)  (h)->next = NULL


static ngx_inline ngx_int_t
ngx_http_idempotency_add_multi_header(ngx_http_request_t *r,
    ngx_table_elt_t **headers, ngx_table_elt_t *h)
{
    (void) r;

    while (*headers) {
        headers = &(*headers)->next;
    }

    *headers = h;

    return NGX_OK;
}

#else

#define ngx_http_idempotency_unlink_header(h)


static ngx_inline ngx_int_t
ngx_http_idempotency_add_multi_header(ngx_http_request_t *r,
    ngx_array_t *headers, ngx_table_elt_t *h)
{
    ngx_table_elt_t  **ph;

    if (headers->elts == NULL
        && ngx_array_init(headers, r->pool, 2, sizeof(ngx_table_elt_t *))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ph = ngx_array_push(headers);
    if (ph == NULL) {
        return NGX_ERROR;
    }

    *ph = h;

    return NGX_OK;
}

#endif


/*
 * Angie, whose nginx_version is that of the nginx it follows.  The servers of
 * a resolver are a list since 1.12, an array before and in nginx.  What its
 * trees of locations point to is a name of a location since 1.3: one location
 * can have several.
 */

#ifndef angie_version
#define angie_version  0
#endif

#if (angie_version >= 1012000)
#define ngx_http_idempotency_resolver_has_servers(r)  ((r)->connections != NULL)
#else
#define ngx_http_idempotency_resolver_has_servers(r)                          \
    ((r)->connections.nelts != 0)
#endif

#if (angie_version >= 1003000)
#define ngx_http_idempotency_loc_t             ngx_http_core_loc_t
#define ngx_http_idempotency_loc_clcf(loc)     ((loc)->conf)
#else
#define ngx_http_idempotency_loc_t             ngx_http_core_loc_conf_t
#define ngx_http_idempotency_loc_clcf(loc)     (loc)
#endif


#endif /* _NGX_HTTP_IDEMPOTENCY_COMPAT_H_INCLUDED_ */
