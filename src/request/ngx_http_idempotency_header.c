
/*
 * Header lines of an answer: add, find.
 */


#include "ngx_http_idempotency_header.h"


#define NGX_HTTP_IDEMPOTENCY_HEADER_DATE                                      \
    (sizeof("Mon, 28 Sep 1970 06:00:00 GMT") - 1)


static u_char *ngx_http_idempotency_header_date(ngx_pool_t *pool, time_t sec);


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


void
ngx_http_idempotency_header_hide(ngx_list_t *list, ngx_str_t *name)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &list->part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (ngx_http_idempotency_header_is(&h[i].key, name)) {
                h[i].hash = 0;
            }
        }
    }
}


/*
 * The moment is never later than the true one: it counts from when the
 * operation was submitted, and is rounded down.  An operation that several
 * replays share has a time of its own for both.
 */

ngx_int_t
ngx_http_idempotency_header_expires(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, uint64_t msec)
{
    uint64_t     asked;
    ngx_str_t   *name, value;
    ngx_time_t  *tp;

    name = &ctx->conf->expires_header;

    if (name->len == 0) {
        return NGX_OK;
    }

    /* the upstream is such a gateway itself */

    ngx_http_idempotency_header_hide(&r->headers_out.headers, name);

    tp = ngx_timeofday();

    asked = (uint64_t) tp->sec * 1000 + tp->msec
            - (ngx_current_msec - ctx->op->submitted);

    value.len = NGX_HTTP_IDEMPOTENCY_HEADER_DATE;
    value.data = ngx_http_idempotency_header_date(r->pool,
                                           (time_t) ((asked + msec) / 1000));
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_header_add(&r->headers_out.headers, name,
                                           &value)
           ? NGX_OK : NGX_ERROR;
}


/* Many answers in a row have the same date, which takes long to write. */

static u_char *
ngx_http_idempotency_header_date(ngx_pool_t *pool, time_t sec)
{
    u_char  *date;

    static time_t  last = -1;
    static u_char  text[NGX_HTTP_IDEMPOTENCY_HEADER_DATE];

    if (sec != last) {
        ngx_http_time(text, sec);
        last = sec;
    }

    date = ngx_pnalloc(pool, NGX_HTTP_IDEMPOTENCY_HEADER_DATE);

    if (date) {
        ngx_memcpy(date, text, NGX_HTTP_IDEMPOTENCY_HEADER_DATE);
    }

    return date;
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
