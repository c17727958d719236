
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


#endif /* _NGX_HTTP_IDEMPOTENCY_COMPAT_H_INCLUDED_ */
