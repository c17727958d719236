
/*
 * Answers of gRPC: their HTTP status is always 200.  The result is in the
 * trailer "grpc-status", or in a header of that name if there is no body.
 */


#include "ngx_http_idempotency_grpc.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_upstream.h"


ngx_uint_t
ngx_http_idempotency_grpc_is(ngx_http_request_t *r)
{
    return r->headers_out.status == NGX_HTTP_OK
           && ngx_http_idempotency_policy_grpc(&r->headers_out.content_type)
              != NGX_HTTP_IDEMPOTENCY_GRPC_NONE;
}


ngx_uint_t
ngx_http_idempotency_grpc_status(ngx_http_request_t *r)
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


ngx_idempotency_op_e
ngx_http_idempotency_grpc_judge(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_e          type;
    ngx_http_idempotency_facts_t  facts;

    if (!ctx->grpc) {
        return NGX_IDEMPOTENCY_COMPLETE;
    }

    ngx_http_idempotency_upstream_facts(r, ctx, &facts);

    facts.status = ngx_http_idempotency_grpc_status(r);

    type = ngx_http_idempotency_policy_outcome(&facts, ctx->conf->final,
                                               ctx->conf->retryable);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency gRPC answer, as status %ui: %s",
                   facts.status, ngx_idempotency_ops[type]);

    if (type != NGX_IDEMPOTENCY_COMPLETE) {
        ctx->keep = 0;

        ngx_log_error(ctx->conf->log_level, r->connection->log, 0,
                      "idempotency record \"%*xs\" is %s, its grpc-status "
                      "means status %ui", (size_t) 8, ctx->digest,
                      type == NGX_IDEMPOTENCY_RELEASE ? "released"
                                                      : "unknown",
                      facts.status);
    }

    return type;
}
