
/*
 * Text of any length, piece by piece, as the body of an answer.
 */


#include "ngx_http_idempotency_text.h"
#include "ngx_http_idempotency_header.h"


#define NGX_HTTP_IDEMPOTENCY_TEXT_BUFFER  8192
#define NGX_HTTP_IDEMPOTENCY_TEXT_PIECE   1024


static ngx_str_t *ngx_http_idempotency_text_accept(ngx_http_request_t *r);
static u_char *ngx_http_idempotency_text_room(
    ngx_http_idempotency_text_t *text, size_t size);


ngx_http_idempotency_text_format_t *
ngx_http_idempotency_text_format(ngx_http_request_t *r,
    ngx_http_idempotency_text_format_t *formats)
{
    u_char                              *p, *first;
    ngx_str_t                            value, *accept;
    ngx_http_idempotency_text_format_t  *format, *found;

    format = formats;

    if (ngx_http_arg(r, (u_char *) "format", 6, &value) == NGX_OK) {

        for ( /* void */ ; format->name.len; format++) {
            if (value.len == format->name.len
                && ngx_strncmp(value.data, format->name.data, value.len) == 0)
            {
                return format;
            }
        }

        return NULL;
    }

    accept = ngx_http_idempotency_text_accept(r);
    if (accept == NULL) {
        return format;
    }

    found = format;
    first = NULL;

    for ( /* void */ ; format->name.len; format++) {
        p = ngx_strlcasestrn(accept->data, accept->data + accept->len,
                             format->accept.data, format->accept.len - 1);

        if (p && (first == NULL || p < first)) {
            first = p;
            found = format;
        }
    }

    return found;
}


/* only some builds of nginx have r->headers_in.accept */

static ngx_str_t *
ngx_http_idempotency_text_accept(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    static ngx_str_t  name = ngx_string("Accept");

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (ngx_http_idempotency_header_is(&h[i].key, &name)) {
                return &h[i].value;
            }
        }
    }

    return NULL;
}


void
ngx_http_idempotency_text_init(ngx_http_idempotency_text_t *text,
    ngx_pool_t *pool)
{
    ngx_memzero(text, sizeof(ngx_http_idempotency_text_t));

    text->pool = pool;
    text->last = &text->out;
}


void
ngx_http_idempotency_text_add(ngx_http_idempotency_text_t *text,
    const char *fmt, ...)
{
    u_char   *p;
    va_list   args;

    p = ngx_http_idempotency_text_room(text,
                                       NGX_HTTP_IDEMPOTENCY_TEXT_PIECE);
    if (p == NULL) {
        return;
    }

    va_start(args, fmt);
    text->buf->last = ngx_vslprintf(p, p + NGX_HTTP_IDEMPOTENCY_TEXT_PIECE,
                                    fmt, args);
    va_end(args);

    text->len += text->buf->last - p;
}


void
ngx_http_idempotency_text_bytes(ngx_http_idempotency_text_t *text,
    const char *data, size_t len)
{
    u_char  *p;

    p = ngx_http_idempotency_text_room(text, len);
    if (p == NULL) {
        return;
    }

    text->buf->last = ngx_cpymem(p, data, len);
    text->len += len;
}


void
ngx_http_idempotency_text_json(ngx_http_idempotency_text_t *text,
    ngx_str_t *value)
{
    u_char    *p, *src, *from, *last;
    uint32_t   c;

    p = ngx_http_idempotency_text_room(text, 2 * value->len);
    if (p == NULL) {
        return;
    }

    src = value->data;
    last = src + value->len;

    while (src < last) {
        from = src;
        c = (*src < 0x80) ? *src++ : ngx_utf8_decode(&src, last - src);

        if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
            src = from + 1;
            c = 0;
        }

        if (c < 0x20 || c == 0x7f) {
            *p++ = '?';
            continue;
        }

        if (c == '"' || c == '\\') {
            *p++ = '\\';
        }

        p = ngx_cpymem(p, from, src - from);
    }

    text->len += p - text->buf->last;
    text->buf->last = p;
}


void
ngx_http_idempotency_text_html(ngx_http_idempotency_text_t *text,
    ngx_str_t *value)
{
    u_char    *p, *src, *from, *last;
    uint32_t   c;

    p = ngx_http_idempotency_text_room(text, value->len
                                             * (sizeof("&quot;") - 1));
    if (p == NULL) {
        return;
    }

    src = value->data;
    last = src + value->len;

    while (src < last) {
        from = src;
        c = (*src < 0x80) ? *src++ : ngx_utf8_decode(&src, last - src);

        if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
            src = from + 1;
            c = 0;
        }

        switch (c) {

        case '&':
            p = ngx_cpymem(p, "&amp;", sizeof("&amp;") - 1);
            break;

        case '<':
            p = ngx_cpymem(p, "&lt;", sizeof("&lt;") - 1);
            break;

        case '>':
            p = ngx_cpymem(p, "&gt;", sizeof("&gt;") - 1);
            break;

        case '"':
            p = ngx_cpymem(p, "&quot;", sizeof("&quot;") - 1);
            break;

        case '\'':
            p = ngx_cpymem(p, "&#39;", sizeof("&#39;") - 1);
            break;

        default:

            if (c < 0x20 || c == 0x7f) {
                *p++ = '?';

            } else {
                p = ngx_cpymem(p, from, src - from);
            }
        }
    }

    text->len += p - text->buf->last;
    text->buf->last = p;
}


static u_char *
ngx_http_idempotency_text_room(ngx_http_idempotency_text_t *text, size_t size)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = text->buf;

    if (b && (size_t) (b->end - b->last) >= size) {
        return b->last;
    }

    cl = ngx_alloc_chain_link(text->pool);
    b = ngx_create_temp_buf(text->pool,
                            ngx_max(size, NGX_HTTP_IDEMPOTENCY_TEXT_BUFFER));

    if (cl == NULL || b == NULL) {
        text->failed = 1;
        return NULL;
    }

    cl->buf = b;
    cl->next = NULL;

    *text->last = cl;
    text->last = &cl->next;
    text->buf = b;

    return b->last;
}


ngx_int_t
ngx_http_idempotency_text_send(ngx_http_request_t *r,
    ngx_http_idempotency_text_t *text, ngx_uint_t status, ngx_str_t *type)
{
    if (ngx_http_idempotency_header_no_store(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idempotency_text_output(r, text, status, type);
}


ngx_int_t
ngx_http_idempotency_text_output(ngx_http_request_t *r,
    ngx_http_idempotency_text_t *text, ngx_uint_t status, ngx_str_t *type)
{
    ngx_int_t  rc;

    if (text->failed || text->buf == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    text->buf->last_buf = (r == r->main);
    text->buf->last_in_chain = 1;

    r->headers_out.status = status;
    r->headers_out.content_length_n = text->len;
    r->headers_out.content_type = *type;
    r->headers_out.content_type_len = type->len;
    r->headers_out.content_type_lowcase = NULL;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, text->out);
}
