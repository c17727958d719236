
/*
 * What must be equal in a duplicate.
 */


#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_body.h"
#include "ngx_http_idempotency_digest.h"


static ngx_str_t  ngx_http_idempotency_fingerprint_raw =
    ngx_string("fingerprint raw 1");


ngx_int_t
ngx_http_idempotency_fingerprint(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t  with;

    if (ctx->conf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, ctx->conf->fingerprint_with, &with)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_idempotency_digest_start(r->connection->log) != NGX_OK
        || ngx_http_idempotency_digest_add_part(
               &ngx_http_idempotency_fingerprint_raw) != NGX_OK
        || ngx_http_idempotency_digest_add_part(&with) != NGX_OK
        || ngx_http_idempotency_body_read(r, ngx_http_idempotency_digest_add)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_digest_finish(ctx->fingerprint);
}
