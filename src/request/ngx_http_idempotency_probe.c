
/*
 * Asks the upstream about an unknown.
 */


#include "ngx_http_idempotency_probe.h"
#include "ngx_http_idempotency_answer.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_upstream.h"


static void ngx_http_idempotency_probe_cleanup(void *data);
static ngx_int_t ngx_http_idempotency_probe_done(ngx_http_request_t *r,
    void *data, ngx_int_t rc);


ngx_int_t
ngx_http_idempotency_probe_start(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                    uri, args;
    ngx_uint_t                   flags;
    ngx_pool_cleanup_t          *cln;
    ngx_http_request_t          *sr;
    ngx_http_request_body_t     *body;
    ngx_http_posted_request_t   *posted;
    ngx_http_post_subrequest_t  *ps;

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

    body = ngx_pcalloc(r->pool, sizeof(ngx_http_request_body_t));
    posted = ngx_palloc(r->pool, sizeof(ngx_http_posted_request_t));

    if (body == NULL || posted == NULL) {
        return NGX_ERROR;
    }

    sr = NULL;

    if (ngx_http_subrequest(r, &uri, &args, &sr, ps,
                            NGX_HTTP_SUBREQUEST_WAITED)
        != NGX_OK)
    {
        /*
         * Short of memory, ngx_http_subrequest() leaves the connection to a
         * subrequest that is none, or one that nobody will run.
         */

        if (sr == NULL) {
            r->connection->data = r;
            return NGX_ERROR;
        }

        (void) ngx_http_post_request(sr, posted);
    }

    /* the body is the main request's: it is neither sent nor announced */

    sr->request_body = body;
    sr->headers_in.content_length = NULL;
    sr->headers_in.content_length_n = -1;
    sr->headers_in.chunked = 0;

    ngx_http_idempotency_answer_reset(ctx);

    ctx->probe = sr;

    return NGX_OK;
}


/* the client has left while the upstream was asked: others may ask now */

static void
ngx_http_idempotency_probe_cleanup(void *data)
{
    ngx_http_idempotency_ctx_t *ctx = data;

    if (ctx->way == NGX_HTTP_IDEMPOTENCY_WAY_PROBE) {
        ngx_http_idempotency_probe_end(ctx);
    }
}


static ngx_int_t
ngx_http_idempotency_probe_done(ngx_http_request_t *r, void *data,
    ngx_int_t rc)
{
    ngx_http_idempotency_ctx_t *ctx = data;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency probe done rc:%i status:%ui whole:%d",
                   rc, r->headers_out.status, ctx->complete);

    ctx->probe_done = 1;

    return rc;
}


ngx_int_t
ngx_http_idempotency_probe_verdict(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e *verdict)
{
    ngx_http_request_t  *sr;

    if (!ctx->probe_done) {
        return NGX_AGAIN;
    }

    sr = ctx->probe;

    *verdict = NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN;

    /* a 404 of nginx's own tells nothing about what was executed */

    if (ctx->complete
        && ngx_http_idempotency_answer_is_whole(sr, ctx)
        && ngx_http_idempotency_upstream_said(sr))
    {
        *verdict = ngx_http_idempotency_policy_probe(sr->headers_out.status);
    }

    return NGX_OK;
}


void
ngx_http_idempotency_probe_answer(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_t *op)
{
    op->executed = 1;

    ngx_http_idempotency_answer_give(ctx->probe, ctx, op);
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

    return ctx && ctx->probe == r ? ctx : NULL;
}


ngx_int_t
ngx_http_idempotency_probe_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    /* an error after a header that was held brings a second header */

    ngx_http_idempotency_answer_reset(ctx);

    ctx->keep = ngx_http_idempotency_answer_storable(r, ctx);

    r->filter_need_in_memory = 1;
    r->allow_ranges = 0;

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_probe_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in)
{
    if (ctx->keep
        && ngx_http_idempotency_answer_collect(r, ctx, &in)
           != NGX_DECLINED)
    {
        return NGX_OK;
    }

    /* too large to keep: all that counts is that it ends */

    ctx->keep = 0;

    for ( /* void */ ; in; in = in->next) {
        ctx->body_len += ngx_buf_size(in->buf);
        ctx->complete |= in->buf->last_buf || in->buf->last_in_chain;

        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }

    return NGX_OK;
}
