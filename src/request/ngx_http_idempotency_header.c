
/*
 * Header lines of an answer: add, find.
 */


#include "ngx_http_idempotency_header.h"


ngx_table_elt_t *
ngx_http_idempotency_header_add(ngx_list_t *list, ngx_str_t *name,
    ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(list);
    if (h == NULL) {
        return NULL;
    }

    h->hash = 1;
    h->key = *name;
    h->value = *value;
    h->lowcase_key = NULL;
    ngx_http_idempotency_unlink_header(h);

    return h;
}


ngx_int_t
ngx_http_idempotency_header_no_store(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    static ngx_str_t  name = ngx_string("Cache-Control");
    static ngx_str_t  value = ngx_string("no-store");

    h = ngx_http_idempotency_header_add(&r->headers_out.headers, &name,
                                        &value);
    if (h == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_add_multi_header(r,
                                         &r->headers_out.cache_control, h);
}


ngx_str_t *
ngx_http_idempotency_header_find(ngx_list_t *list, ngx_str_t *name)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &list->part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (h[i].hash && ngx_http_idempotency_header_is(&h[i].key, name)) {
                return &h[i].value;
            }
        }
    }

    return NULL;
}
