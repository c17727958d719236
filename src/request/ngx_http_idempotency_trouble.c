
/*
 * What a request shows of how its client retries.
 */


#include "ngx_http_idempotency_trouble.h"
#include "ngx_idempotency_digest.h"


static ngx_uint_t ngx_http_idempotency_trouble_unavailable(
    ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_trouble_again(
    ngx_http_idempotency_ctx_t *ctx);
static ngx_msec_t ngx_http_idempotency_trouble_start(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_trouble_client(
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_trouble_client_t *client);
static uint64_t ngx_http_idempotency_trouble_hash(u_char *digest);


/* Most requests have none: they cost a look at one entry of the table. */

void
ngx_http_idempotency_trouble_end(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_trouble_t *trouble)
{
    uint64_t                          key;
    ngx_uint_t                        again, early, fresh, reused;
    ngx_idempotency_trouble_client_t  client;

    key = ngx_http_idempotency_trouble_hash(ctx->id.digest);

    if (key == 0 || ctx->conf->dry_run) {
        return;
    }

    early = ngx_idempotency_trouble_retried(trouble, key,
                       ngx_http_idempotency_trouble_start(ctx->request));

    reused = (ctx->result == NGX_HTTP_IDEMPOTENCY_MISMATCH);
    fresh = (ctx->suspect && ctx->suspect->suspected);
    again = ngx_http_idempotency_trouble_again(ctx);

    if (!(early || reused || fresh || again)
        || ngx_http_idempotency_trouble_client(ctx, &client) != NGX_OK)
    {
        return;
    }

    if (reused) {
        ngx_idempotency_trouble_note(trouble,
                                     NGX_IDEMPOTENCY_TROUBLE_KEY_REUSED,
                                     &client);
    }

    if (fresh) {
        ngx_idempotency_trouble_note(trouble,
                                     NGX_IDEMPOTENCY_TROUBLE_FRESH_KEY,
                                     &client);
    }

    if (early) {
        ngx_idempotency_trouble_note(trouble,
                                     NGX_IDEMPOTENCY_TROUBLE_NO_BACKOFF,
                                     &client);
    }

    if (again) {
        ngx_idempotency_trouble_answered(trouble, key, &client,
                               ngx_http_idempotency_trouble_unavailable(ctx));
    }
}


/* Was the client asked to wait, and to send the same again? */

static ngx_uint_t
ngx_http_idempotency_trouble_again(ngx_http_idempotency_ctx_t *ctx)
{
    if (!ctx->request->header_sent || ctx->request->connection->error) {
        return 0;
    }

    switch (ctx->result) {

    case NGX_HTTP_IDEMPOTENCY_IN_PROGRESS:
    case NGX_HTTP_IDEMPOTENCY_UNKNOWN:
    case NGX_HTTP_IDEMPOTENCY_STORE_ERROR:
        return 1;

    case NGX_HTTP_IDEMPOTENCY_NEW:
        return ngx_http_idempotency_trouble_unavailable(ctx);

    default:
        return 0;
    }
}


static ngx_uint_t
ngx_http_idempotency_trouble_unavailable(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_uint_t  status;

    status = ctx->request->headers_out.status;

    return status >= NGX_HTTP_BAD_GATEWAY
           && status <= NGX_HTTP_GATEWAY_TIME_OUT;
}


/* by the clock of ngx_current_msec, which the time of a request is not */

static ngx_msec_t
ngx_http_idempotency_trouble_start(ngx_http_request_t *r)
{
    ngx_time_t      *tp;
    ngx_msec_int_t   took;

    tp = ngx_timeofday();

    took = (ngx_msec_int_t) ((tp->sec - r->start_sec) * 1000
                             + (tp->msec - r->start_msec));

    return ngx_current_msec - ngx_max(took, 0);
}


/* SHA-256 of the source, so that an operator can compute it as well */

static ngx_int_t
ngx_http_idempotency_trouble_client(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_trouble_client_t *client)
{
    u_char      digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_str_t  *source;

    source = &ctx->identity.source;

    if (ngx_idempotency_digest_start(ngx_cycle->log, NULL, 0) != NGX_OK
        || ngx_idempotency_digest_add(source->data, source->len) != NGX_OK
        || ngx_idempotency_digest_finish(digest) != NGX_OK)
    {
        return NGX_ERROR;
    }

    client->source = ngx_http_idempotency_trouble_hash(digest);
    client->location = (uint32_t) ctx->conf->location;
    ngx_str_null(&client->label);

    /* where labels are sealed they are not shown here either */

    if (ctx->conf->secrets == NULL) {
        client->label = ctx->identity.label;
    }

    return NGX_OK;
}


static uint64_t
ngx_http_idempotency_trouble_hash(u_char *digest)
{
    uint64_t    hash;
    ngx_uint_t  i;

    hash = 0;

    for (i = 0; i < 8; i++) {
        hash = hash << 8 | digest[i];
    }

    return hash;
}
