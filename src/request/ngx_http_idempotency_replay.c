
/*
 * A stored answer through the normal filters.
 */


#include "ngx_http_idempotency_replay.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_jsonrpc.h"
#include "ngx_http_idempotency_repeatability.h"
#include "ngx_idempotency_share.h"


typedef struct {
    ngx_str_t   name;
    size_t      offset;
} ngx_http_idempotency_replay_header_t;


static ngx_int_t ngx_http_idempotency_replay_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_replay_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_replay_content_type(ngx_http_request_t *r,
    ngx_str_t *type);
static ngx_int_t ngx_http_idempotency_replay_line(ngx_http_request_t *r,
    ngx_idempotency_field_t *field);
static ngx_int_t ngx_http_idempotency_replay_trailers(ngx_http_request_t *r,
    ngx_idempotency_answer_t *answer);


/* lines that other filters look for through pointers */

static ngx_http_idempotency_replay_header_t
    ngx_http_idempotency_replay_headers[] =
{
    { ngx_string("Server"), offsetof(ngx_http_headers_out_t, server) },
    { ngx_string("Date"), offsetof(ngx_http_headers_out_t, date) },
    { ngx_string("Content-Encoding"),
      offsetof(ngx_http_headers_out_t, content_encoding) },
    { ngx_string(NGX_HTTP_IDEMPOTENCY_LOCATION),
      offsetof(ngx_http_headers_out_t, location) },
    { ngx_string("Refresh"), offsetof(ngx_http_headers_out_t, refresh) },
    { ngx_string("Last-Modified"),
      offsetof(ngx_http_headers_out_t, last_modified) },
    { ngx_string("WWW-Authenticate"),
      offsetof(ngx_http_headers_out_t, www_authenticate) },
    { ngx_string("Expires"), offsetof(ngx_http_headers_out_t, expires) },
    { ngx_string("Accept-Ranges"),
      offsetof(ngx_http_headers_out_t, accept_ranges) },
    { ngx_string("ETag"), offsetof(ngx_http_headers_out_t, etag) },
    { ngx_null_string, 0 }
};


ngx_int_t
ngx_http_idempotency_replay(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    /* an answer that cannot be read must not be sent in part */

    rc = ngx_http_idempotency_replay_decode(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    r->content_handler = ngx_http_idempotency_replay_handler;

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_replay_decode(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                  rc;
    ngx_idempotency_record_t  *record;

    record = &ctx->op->record;

    if (ngx_idempotency_seal_open(ctx->conf->secrets, ctx->id.digest,
                                  &record->head, &record->body)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    ctx->op = ngx_idempotency_share(ctx->op);
    record = &ctx->op->record;

    ctx->stored = ngx_palloc(r->pool, sizeof(ngx_idempotency_answer_t));
    if (ctx->stored == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_idempotency_record_decode_head(r->pool, &record->head,
                                            ctx->stored);

    return rc == NGX_OK && ctx->jsonrpc
           ? ngx_http_idempotency_jsonrpc_check(ctx) : rc;
}


static ngx_int_t
ngx_http_idempotency_replay_handler(ngx_http_request_t *r)
{
    ngx_int_t                    rc;
    ngx_chain_t                  out;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency replays an answer, status %ui",
                   ctx->stored->status);

    if (ngx_http_idempotency_replay_fill(r, ctx, &out) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, &out);
}


ngx_int_t
ngx_http_idempotency_replay_fill(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *out)
{
    ngx_buf_t                 *b;
    ngx_idempotency_record_t  *record;

    record = &ctx->op->record;

    if (ngx_http_idempotency_replay_header(r, ctx) != NGX_OK
        || ngx_http_idempotency_replay_trailers(r, ctx->stored) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS
        && ngx_http_idempotency_repeatability_accepted(r) != NGX_OK)
    {
        return NGX_ERROR;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    if (record->body.len) {
        b->pos = record->body.data;
        b->last = record->body.data + record->body.len;
        b->memory = 1;
    }

    b->last_buf = 1;
    b->last_in_chain = 1;

    out->buf = b;
    out->next = NULL;

    return ctx->jsonrpc ? ngx_http_idempotency_jsonrpc_answer(r, ctx, out)
                        : NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_replay_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                 *replayed, *expires;
    ngx_uint_t                 i;
    ngx_idempotency_field_t   *field;
    ngx_idempotency_answer_t  *answer;

    static ngx_str_t  yes = ngx_string("true");

    answer = ctx->stored;
    replayed = &ctx->conf->replayed_header;
    expires = &ctx->conf->expires_header;

    r->headers_out.status = answer->status;
    r->headers_out.status_line = answer->status_line;
    r->headers_out.content_length_n = answer->content_length;
    r->headers_out.last_modified_time = answer->last_modified;

    r->disable_not_modified = 1;
    r->allow_ranges = 0;

    if (answer->content_type.len) {
        ngx_http_idempotency_replay_content_type(r, &answer->content_type);

        if (answer->charset.len) {
            r->headers_out.charset = answer->charset;
        }
    }

    field = answer->headers.elts;

    for (i = 0; i < answer->headers.nelts; i++) {

        /* the upstream is such a gateway itself */

        if (ngx_http_idempotency_header_is(&field[i].name, replayed)
            || ngx_http_idempotency_header_is(&field[i].name, expires))
        {
            continue;
        }

        if (ngx_http_idempotency_replay_line(r, &field[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (replayed->len
        && ngx_http_idempotency_header_add(&r->headers_out.headers, replayed,
                                           &yes)
           == NULL)
    {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_header_expires(r, ctx,
                                               ctx->op->record.ttl_msec);
}


/* as ngx_http_upstream_copy_content_type(): a charset is known as such */

static void
ngx_http_idempotency_replay_content_type(ngx_http_request_t *r,
    ngx_str_t *type)
{
    u_char  *p, *last, *semicolon;

    r->headers_out.content_type = *type;
    r->headers_out.content_type_len = type->len;
    r->headers_out.content_type_lowcase = NULL;

    last = type->data + type->len;

    for (p = type->data; p < last; p++) {

        if (*p != ';') {
            continue;
        }

        semicolon = p++;

        while (p < last && *p == ' ') { p++; }

        if (last - p < 8 || ngx_strncasecmp(p, (u_char *) "charset=", 8) != 0)
        {
            p = semicolon;
            continue;
        }

        p += 8;

        r->headers_out.content_type_len = semicolon - type->data;

        if (p < last && *p == '"') {
            p++;
        }

        if (p < last && *(last - 1) == '"') {
            last--;
        }

        r->headers_out.charset.data = p;
        r->headers_out.charset.len = last - p;

        return;
    }
}


static ngx_int_t
ngx_http_idempotency_replay_line(ngx_http_request_t *r,
    ngx_idempotency_field_t *field)
{
    ngx_table_elt_t                       *h, **ph;
    ngx_http_idempotency_replay_header_t  *rh;

    static ngx_str_t  cache_control = ngx_string("Cache-Control");
    static ngx_str_t  link = ngx_string("Link");
    static ngx_str_t  charset = ngx_string(NGX_HTTP_IDEMPOTENCY_CHARSET);

    if (ngx_http_idempotency_header_is(&field->name, &charset)) {
        r->headers_out.override_charset = &field->value;
        return NGX_OK;
    }

    h = ngx_http_idempotency_header_add(&r->headers_out.headers, &field->name,
                                        &field->value);
    if (h == NULL) {
        return NGX_ERROR;
    }

    for (rh = ngx_http_idempotency_replay_headers; rh->name.len; rh++) {

        if (ngx_http_idempotency_header_is(&h->key, &rh->name)) {
            ph = (ngx_table_elt_t **) ((char *) &r->headers_out + rh->offset);
            *ph = h;

            if (ph == &r->headers_out.location) {
                ngx_str_set(&h->key, "Location");
            }

            /*
             * stored for an upstream that sends no such line, with
             * proxy_pass_header: nginx must not add its own
             */

            if (h->value.len == 0
                && (ph == &r->headers_out.server
                    || ph == &r->headers_out.date))
            {
                h->hash = 0;
            }

            return NGX_OK;
        }
    }

    if (ngx_http_idempotency_header_is(&h->key, &cache_control)) {
        return ngx_http_idempotency_add_multi_header(r,
                                          &r->headers_out.cache_control, h);
    }

    if (ngx_http_idempotency_header_is(&h->key, &link)) {
        return ngx_http_idempotency_add_multi_header(r, &r->headers_out.link,
                                                     h);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_replay_trailers(ngx_http_request_t *r,
    ngx_idempotency_answer_t *answer)
{
    ngx_uint_t                i;
    ngx_idempotency_field_t  *field;

    field = answer->trailers.elts;

    for (i = 0; i < answer->trailers.nelts; i++) {

        if (ngx_http_idempotency_header_add(&r->headers_out.trailers,
                                            &field[i].name, &field[i].value)
            == NULL)
        {
            return NGX_ERROR;
        }

        /* or HTTP/2 ends an empty answer with its header */

        r->expect_trailers = 1;
    }

    return NGX_OK;
}
