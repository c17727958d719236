
/*
 * Repeatable requests as OASIS has them: their date, and Repeatability-Result.
 */


#include "ngx_http_idempotency_repeatability.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_identify.h"


ngx_http_idempotency_verdict_e
ngx_http_idempotency_repeatability(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_int_t rc)
{
    ngx_int_t         found;
    ngx_table_elt_t  *line;

    static ngx_str_t  name = ngx_string("repeatability_first_sent");

    if (rc != NGX_OK && rc != NGX_DECLINED) {
        return NGX_HTTP_IDEMPOTENCY_EXECUTE;
    }

    found = ngx_http_idempotency_identify_line(r, &name, &line);

    if (rc == NGX_DECLINED) {
        return found == NGX_DECLINED ? NGX_HTTP_IDEMPOTENCY_EXECUTE
                                     : NGX_HTTP_IDEMPOTENCY_KEY_MISSING;
    }

    if (found != NGX_OK) {
        return NGX_HTTP_IDEMPOTENCY_FIRST_SENT_INVALID;
    }

    return ngx_http_idempotency_policy_first_sent(&line->value, ngx_time(),
                                                  ctx->conf->ttl);
}


ngx_int_t
ngx_http_idempotency_repeatability_result(ngx_http_request_t *r,
    ngx_str_t *value)
{
    static ngx_str_t  name = ngx_string("Repeatability-Result");

    ngx_http_idempotency_header_hide(&r->headers_out.headers, &name);

    return ngx_http_idempotency_header_add(&r->headers_out.headers, &name,
                                           value)
           ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_http_idempotency_repeatability_accepted(ngx_http_request_t *r)
{
    static ngx_str_t  accepted = ngx_string("accepted");

    return ngx_http_idempotency_repeatability_result(r, &accepted);
}
