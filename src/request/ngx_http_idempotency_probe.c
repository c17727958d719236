
/*
 * The probe: asks the upstream about an unknown outcome.
 */


#include "ngx_http_idempotency_probe.h"
#include "ngx_http_idempotency_answer.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_probe_request.h"
#include "ngx_http_idempotency_upstream.h"


static void ngx_http_idempotency_probe_cleanup(void *data);
static ngx_int_t ngx_http_idempotency_probe_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_probe_done(ngx_http_request_t *r,
    void *data, ngx_int_t rc);
static ngx_uint_t ngx_http_idempotency_probe_is_grpc_error(
    ngx_http_request_t *r);


/*
 * The type of a probe's answer until its first content handler runs.
 * ngx_http_special_response_handler() clears the type of whatever it turns
 * into an error; "error_page ... =" with recursive_error_pages leaves no
 * other trace.
 */

static ngx_str_t  ngx_http_idempotency_probe_type = ngx_string("text/plain");


ngx_int_t
ngx_http_idempotency_probe_start(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                              uri, args;
    ngx_uint_t                             flags;
    ngx_pool_cleanup_t                    *cln;
    ngx_http_request_t                    *sr;
    ngx_http_posted_request_t             *posted;
    ngx_http_post_subrequest_t            *ps;
    ngx_http_idempotency_probe_request_t   pr;

    uri = ctx->conf->probe;
    flags = NGX_HTTP_LOG_UNSAFE;
    ngx_str_null(&args);

    if (ngx_http_parse_unsafe_uri(r, &uri, &args, &flags) != NGX_OK) {
        return NGX_ERROR;
    }

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_idempotency_probe_cleanup;
    cln->data = ctx;

    ps = ngx_palloc(r->pool, sizeof(ngx_http_post_subrequest_t));
    if (ps == NULL) {
        return NGX_ERROR;
    }

    ps->handler = ngx_http_idempotency_probe_done;
    ps->data = ctx;

    /* a subrequest cannot be taken back: nothing may fail after it */

    posted = ngx_palloc(r->pool, sizeof(ngx_http_posted_request_t));

    if (posted == NULL
        || ngx_http_idempotency_probe_request_prepare(r, &uri, &args, &pr)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    sr = NULL;

    if (ngx_http_subrequest(r, &uri, &args, &sr, ps,
                            NGX_HTTP_SUBREQUEST_WAITED)
        != NGX_OK)
    {
        /*
         * When memory is short, ngx_http_subrequest() leaves the connection
         * to a subrequest that does not exist, or that was not posted.
         */

        if (sr == NULL) {
            r->connection->data = r;
            return NGX_ERROR;
        }

        (void) ngx_http_post_request(sr, posted);
    }

    ngx_http_idempotency_probe_request_set(sr, &pr);

    sr->headers_out.content_type = ngx_http_idempotency_probe_type;

    ctx->probe.request = sr;

    return NGX_OK;
}


/* The client has left meanwhile: the next duplicate may send a probe. */

static void
ngx_http_idempotency_probe_cleanup(void *data)
{
    ngx_http_idempotency_ctx_t *ctx = data;

    if (ctx->state == NGX_HTTP_IDEMPOTENCY_STATE_PROBE) {
        ngx_http_idempotency_probe_end(ctx);
    }
}


void
ngx_http_idempotency_probe_wrap(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_probe_find(r);

    if (ctx == NULL
        || r->content_handler == NULL
        || r->content_handler == ngx_http_idempotency_probe_handler)
    {
        return;
    }

    ctx->probe.content_handler = r->content_handler;
    r->content_handler = ngx_http_idempotency_probe_handler;
}


/* The answers of further handlers do not count. */

static ngx_int_t
ngx_http_idempotency_probe_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t    *ctx;
    ngx_http_idempotency_probe_t  *probe;

    ctx = ngx_http_idempotency_probe_find(r);
    probe = &ctx->probe;

    if (probe->handlers++ == 0) {
        probe->error = (r->headers_out.content_type.len == 0);
    }

    if (r->headers_out.content_type.data
        == ngx_http_idempotency_probe_type.data)
    {
        ngx_str_null(&r->headers_out.content_type);
    }

    return ngx_http_idempotency_upstream_uncached(r, probe->content_handler);
}


static ngx_int_t
ngx_http_idempotency_probe_done(ngx_http_request_t *r, void *data,
    ngx_int_t rc)
{
    ngx_http_idempotency_ctx_t *ctx = data;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency probe done rc:%i status:%ui "
                   "from_upstream:%d complete:%d", rc, r->headers_out.status,
                   ctx->probe.from_upstream, ctx->capture.complete);

    ctx->probe.done = 1;

    return rc;
}


ngx_int_t
ngx_http_idempotency_probe_verdict(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e *verdict)
{
    ngx_uint_t           status;
    ngx_http_request_t  *sr;

    if (!ctx->probe.done) {
        return NGX_AGAIN;
    }

    sr = ctx->probe.request;
    status = sr->headers_out.status;

    *verdict = ngx_http_idempotency_policy_probe(status);

    if (*verdict == NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN) {
        return NGX_OK;
    }

    if (!ctx->probe.from_upstream) {
        ngx_log_error(NGX_LOG_WARN, sr->connection->log, 0,
                      "idempotency probe of record \"%*xs\" got status %ui "
                      "not from the upstream of its location but from an "
                      "error page, a redirect or nginx itself, the outcome "
                      "stays unknown", NGX_IDEMPOTENCY_WHOLE, ctx->id.digest,
                      status);

        *verdict = NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN;

    } else if (!ctx->capture.complete
               || !ngx_http_idempotency_answer_is_whole(sr, ctx)
               || ngx_http_idempotency_probe_is_grpc_error(sr))
    {
        *verdict = NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN;
    }

    return NGX_OK;
}


/* The status of a gRPC call is 200 even if the call has failed. */

static ngx_uint_t
ngx_http_idempotency_probe_is_grpc_error(ngx_http_request_t *r)
{
    ngx_str_t  *type, *status;

    static ngx_str_t  grpc = ngx_string("application/grpc");
    static ngx_str_t  name = ngx_string("grpc-status");

    type = &r->headers_out.content_type;

    if (type->len < grpc.len
        || ngx_strncasecmp(type->data, grpc.data, grpc.len) != 0)
    {
        return 0;
    }

    status = ngx_http_idempotency_header_find(&r->headers_out.headers, &name);

    if (status == NULL) {
        status = ngx_http_idempotency_header_find(&r->headers_out.trailers,
                                                  &name);
    }

    return status == NULL || status->len != 1 || status->data[0] != '0';
}


void
ngx_http_idempotency_probe_answer(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_t *op)
{
    op->executed = 1;

    ngx_http_idempotency_answer_attach(ctx->probe.request, ctx, op);
}


void
ngx_http_idempotency_probe_end(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_PROBE);

    if (op) {
        op->fence = ctx->fence;
        op->handler = NULL;

        (void) ngx_idempotency_op_submit(op);
    }
}


ngx_http_idempotency_ctx_t *
ngx_http_idempotency_probe_find(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r->main, ngx_http_idempotency_module);

    return ctx && ctx->probe.request == r ? ctx : NULL;
}


ngx_int_t
ngx_http_idempotency_probe_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    /* an error after a header that was held brings a second header */

    ngx_http_idempotency_answer_begin(r, ctx);

    ctx->probe.from_upstream =
                         (ctx->probe.handlers == 1
                          && !ctx->probe.error
                          && ngx_http_idempotency_upstream_is_answering(r));

    /* the status of a probe is its verdict, not this header line */

    (void) ngx_http_idempotency_answer_strip(r);

    r->filter_need_in_memory = 1;
    r->allow_ranges = 0;

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_probe_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in)
{
    if (ctx->capture.keep
        && ngx_http_idempotency_answer_collect(r, ctx, &in)
           != NGX_DECLINED)
    {
        return NGX_OK;
    }

    /* too large to keep: all that counts is that it ends */

    ctx->capture.keep = 0;

    for ( /* void */ ; in; in = in->next) {
        ctx->capture.size += ngx_buf_size(in->buf);
        ctx->capture.complete |= in->buf->last_buf || in->buf->last_in_chain;

        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }

    return NGX_OK;
}
