
/*
 * The answer of an upstream: what it says of itself, its bytes, and what is
 * stored of them.
 */


#include "ngx_http_idempotency_answer.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_upstream.h"


#define NGX_HTTP_IDEMPOTENCY_ANSWER_BUF  4096


static ngx_uint_t ngx_http_idempotency_answer_storable(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_answer_append(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, u_char *data, size_t len);
static ngx_buf_t *ngx_http_idempotency_answer_buf(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, size_t len);
static ngx_int_t ngx_http_idempotency_answer_end(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_answer_encode(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *head);
static ngx_int_t ngx_http_idempotency_answer_fields(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_list_t *list, ngx_array_t *fields);
static ngx_uint_t ngx_http_idempotency_answer_hidden(
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *name);
static ngx_int_t ngx_http_idempotency_answer_charset(ngx_http_request_t *r,
    ngx_array_t *fields);


static ngx_str_t  ngx_http_idempotency_answer_header =
    ngx_string("X-Accel-Idempotency");


ngx_http_idempotency_override_e
ngx_http_idempotency_answer_override(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx,
    const ngx_http_idempotency_facts_t *facts)
{
    ngx_str_t                       *value, *own;
    ngx_http_idempotency_override_e  override;

    own = ngx_http_idempotency_answer_strip(r);

    if (facts->upstream && !facts->answered) {

        /* the header broke off, perhaps behind this line */

        return NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE;
    }

    /* after an X-Accel-Redirect the line is only in the upstream's header */

    value = ngx_http_idempotency_upstream_header(r, ctx,
                                        &ngx_http_idempotency_answer_header);
    if (value == NULL
        && ctx->upstream.arrival != NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE)
    {
        value = own;
    }

    if (value == NULL) {
        return NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE;
    }

    override = ngx_http_idempotency_policy_override(value, &ctx->capture.ttl);

    if (override == NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "upstream sent an invalid \"%V: %V\", it must be "
                      "\"final\", \"release\" or \"unknown\", with "
                      "\"; ttl=SECONDS\" at most",
                      &ngx_http_idempotency_answer_header, value);
    }

    return override;
}


ngx_str_t *
ngx_http_idempotency_answer_strip(ngx_http_request_t *r)
{
    ngx_str_t        *value;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    value = NULL;
    part = &r->headers_out.headers.part;
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

        if (h[i].hash
            && ngx_http_idempotency_header_is(&h[i].key,
                                       &ngx_http_idempotency_answer_header))
        {
            h[i].hash = 0;
            value = &h[i].value;
        }
    }

    return value;
}


void
ngx_http_idempotency_answer_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_capture_t  *capture;

    capture = &ctx->capture;

    capture->body = NULL;
    capture->last = &capture->body;
    capture->buf = NULL;
    capture->size = 0;
    capture->ttl = 0;
    capture->complete = 0;
    capture->keep = ngx_http_idempotency_answer_storable(r, ctx);
}


/* An upgraded connection or a stream of events never ends as an answer does. */

static ngx_uint_t
ngx_http_idempotency_answer_storable(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    static ngx_str_t  stream = ngx_string("text/event-stream");

    if (r->headers_out.status < NGX_HTTP_OK || r->subrequest_ranges) {
        return 0;
    }

    if (r->headers_out.content_length_n > (off_t) ctx->conf->max_response) {
        return 0;
    }

    return r->headers_out.content_type.len < stream.len
           || ngx_strncasecmp(r->headers_out.content_type.data, stream.data,
                              stream.len)
              != 0;
}


ngx_int_t
ngx_http_idempotency_answer_collect(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t **in)
{
    size_t        size;
    ngx_buf_t    *b;
    ngx_uint_t    last;
    ngx_chain_t  *cl;

    last = 0;

    for (cl = *in; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {
            size = b->last - b->pos;

            if (size > ctx->conf->max_response - ctx->capture.size) {
                *in = cl;
                return NGX_DECLINED;
            }

            if (ngx_http_idempotency_answer_append(r, ctx, b->pos, size)
                != NGX_OK)
            {
                return NGX_ERROR;
            }

            b->pos = b->last;

            if (b->in_file) {
                b->file_pos = b->file_last;
            }

        } else if (b->in_file) {

            /* the copy filter was asked to bring everything into memory */

            *in = cl;
            return NGX_DECLINED;
        }

        /* a subrequest ends with last_in_chain */

        last |= (r == r->main) ? b->last_buf : b->last_in_chain;
    }

    if (!last) {
        return NGX_AGAIN;
    }

    return ngx_http_idempotency_answer_end(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_answer_append(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, u_char *data, size_t len)
{
    size_t      n;
    ngx_buf_t  *b;

    b = ctx->capture.buf;

    while (len) {

        if (b == NULL || b->last == b->end) {
            b = ngx_http_idempotency_answer_buf(r, ctx, len);
            if (b == NULL) {
                return NGX_ERROR;
            }
        }

        n = ngx_min(len, (size_t) (b->end - b->last));

        b->last = ngx_cpymem(b->last, data, n);

        data += n;
        len -= n;
        ctx->capture.size += n;
    }

    return NGX_OK;
}


/* A buffer of the announced length, else twice as large each time. */

static ngx_buf_t *
ngx_http_idempotency_answer_buf(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, size_t len)
{
    off_t         announced;
    size_t        size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    announced = r->headers_out.content_length_n;

    if (announced > (off_t) ctx->capture.size) {
        size = (size_t) announced - ctx->capture.size;

    } else {
        size = ngx_max(ctx->capture.size, NGX_HTTP_IDEMPOTENCY_ANSWER_BUF);
        size = ngx_max(size, len);
    }

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NULL;
    }

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NULL;
    }

    cl->buf = b;
    cl->next = NULL;

    *ctx->capture.last = cl;
    ctx->capture.last = &cl->next;
    ctx->capture.buf = b;

    return b;
}


static ngx_int_t
ngx_http_idempotency_answer_end(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ctx->capture.buf;

    if (b == NULL) {
        b = ngx_calloc_buf(r->pool);
        if (b == NULL) {
            return NGX_ERROR;
        }

        cl = ngx_alloc_chain_link(r->pool);
        if (cl == NULL) {
            return NGX_ERROR;
        }

        cl->buf = b;
        cl->next = NULL;

        *ctx->capture.last = cl;
        ctx->capture.last = &cl->next;
        ctx->capture.buf = b;
    }

    b->last_buf = 1;
    b->last_in_chain = 1;

    ctx->capture.complete = 1;

    if (!ngx_http_idempotency_answer_is_whole(r, ctx)) {
        return NGX_ABORT;
    }

    /* the first answer says its length, as replays will */

    if (r->headers_out.content_length_n == -1
        && r->headers_out.trailers.part.nelts == 0
        && !r->expect_trailers
        && r->headers_out.status != NGX_HTTP_NO_CONTENT
        && r->headers_out.status != NGX_HTTP_NOT_MODIFIED)
    {
        r->headers_out.content_length_n = ctx->capture.size;
    }

    return NGX_OK;
}


ngx_uint_t
ngx_http_idempotency_answer_is_whole(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (r->headers_out.content_length_n == -1
        || r->headers_out.status == NGX_HTTP_NO_CONTENT
        || r->headers_out.status == NGX_HTTP_NOT_MODIFIED)
    {
        return 1;
    }

    return r->headers_out.content_length_n == (off_t) ctx->capture.size;
}


ngx_uint_t
ngx_http_idempotency_answer_is_grpc(ngx_http_request_t *r)
{
    return r->headers_out.status == NGX_HTTP_OK
           && ngx_http_idempotency_policy_grpc(&r->headers_out.content_type)
              != NGX_HTTP_IDEMPOTENCY_GRPC_NONE;
}


ngx_uint_t
ngx_http_idempotency_answer_grpc_status(ngx_http_request_t *r)
{
    ngx_str_t                    *value;
    ngx_http_idempotency_grpc_e   grpc;

    static ngx_str_t  name = ngx_string("grpc-status");

    grpc = ngx_http_idempotency_policy_grpc(&r->headers_out.content_type);

    if (r->headers_out.status != NGX_HTTP_OK
        || grpc == NGX_HTTP_IDEMPOTENCY_GRPC_NONE)
    {
        return r->headers_out.status;
    }

    value = ngx_http_idempotency_header_find(&r->headers_out.trailers, &name);

    if (value == NULL) {
        value = ngx_http_idempotency_header_find(&r->headers_out.headers,
                                                 &name);
    }

    if (value == NULL && grpc == NGX_HTTP_IDEMPOTENCY_GRPC_WEB) {
        return r->headers_out.status;
    }

    return ngx_http_idempotency_policy_grpc_status(value);
}


void
ngx_http_idempotency_answer_attach(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op)
{
    op->status = r->headers_out.status;

    if (!ctx->capture.keep) {
        return;
    }

    if (ngx_http_idempotency_answer_encode(r, ctx, &op->head) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency cannot store the header of the answer of "
                      "record \"%*xs\", the answer is not kept",
                      NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);
        return;
    }

    op->body = ctx->capture.body;
    op->body_len = ctx->capture.size;

    ngx_http_idempotency_answer_seal(r, ctx, op);
}


void
ngx_http_idempotency_answer_seal(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op)
{
    ngx_idempotency_secret_t  **secret;

    secret = ctx->conf->secrets ? ctx->conf->secrets->elts : NULL;

    if (secret && ngx_idempotency_seal(secret[0], op) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency cannot seal the answer of record "
                      "\"%*xs\", it is not kept",
                      NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);
        return;
    }

    if (op->store->largest
        && op->head.len + op->body_len
           > op->store->largest + NGX_IDEMPOTENCY_STORE_HEAD)
    {
        /* the store could write the record, but not read it again */

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency answer of record \"%*xs\" is too large "
                      "with its header, it is not kept",
                      NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);
        return;
    }

    op->keep = 1;
}


static ngx_int_t
ngx_http_idempotency_answer_encode(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *head)
{
    ngx_idempotency_answer_t  answer;

    answer.status = r->headers_out.status;
    answer.status_line = r->headers_out.status_line;
    answer.content_type = r->headers_out.content_type;
    answer.content_length = r->headers_out.content_length_n;
    answer.last_modified = r->headers_out.last_modified_time;

    /* a charset in the type is parsed from the type again */

    if (r->headers_out.content_type_len == r->headers_out.content_type.len) {
        answer.charset = r->headers_out.charset;

    } else {
        ngx_str_null(&answer.charset);
    }

    if (ngx_http_idempotency_answer_fields(r, ctx, &r->headers_out.headers,
                                           &answer.headers)
        != NGX_OK
        || ngx_http_idempotency_answer_charset(r, &answer.headers) != NGX_OK
        || ngx_http_idempotency_answer_fields(r, ctx,
                                              &r->headers_out.trailers,
                                              &answer.trailers)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_idempotency_record_encode_head(r->pool, &answer, head);
}


static ngx_int_t
ngx_http_idempotency_answer_fields(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_list_t *list, ngx_array_t *fields)
{
    ngx_uint_t                i;
    ngx_list_part_t          *part;
    ngx_table_elt_t          *h;
    ngx_idempotency_field_t  *field;

    if (ngx_array_init(fields, r->pool, 8, sizeof(ngx_idempotency_field_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    part = &list->part;
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

        if ((h[i].hash == 0
             && &h[i] != r->headers_out.server
             && &h[i] != r->headers_out.date)
            || ngx_http_idempotency_answer_hidden(ctx, &h[i].key))
        {
            continue;
        }

        field = ngx_array_push(fields);
        if (field == NULL) {
            return NGX_ERROR;
        }

        field->name = h[i].key;
        field->value = h[i].value;

        if (h[i].hash == 0) {

            /* an empty line in the record: nginx must not add its own */

            ngx_str_null(&field->value);
        }

        if (&h[i] == r->headers_out.location) {
            ngx_str_set(&field->name, NGX_HTTP_IDEMPOTENCY_LOCATION);
        }
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_answer_hidden(ngx_http_idempotency_ctx_t *ctx,
    ngx_str_t *name)
{
    ngx_str_t   *hidden;
    ngx_uint_t   i;

    hidden = ctx->conf->hide_headers->elts;

    for (i = 0; i < ctx->conf->hide_headers->nelts; i++) {
        if (ngx_http_idempotency_header_is(name, &hidden[i])) {
            return 1;
        }
    }

    return 0;
}


/* the charset of X-Accel-Charset */

static ngx_int_t
ngx_http_idempotency_answer_charset(ngx_http_request_t *r,
    ngx_array_t *fields)
{
    ngx_str_t                *charset;
    ngx_idempotency_field_t  *field;

    charset = r->headers_out.override_charset;

    if (charset == NULL) {
        return NGX_OK;
    }

    field = ngx_array_push(fields);
    if (field == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&field->name, NGX_HTTP_IDEMPOTENCY_CHARSET);
    field->value = *charset;

    return NGX_OK;
}
