
/*
 * What must be equal in a duplicate.
 */


#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_body.h"
#include "ngx_http_idempotency_canonical.h"
#include "ngx_http_idempotency_digest.h"


static ngx_int_t ngx_http_idempotency_fingerprint_doc(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_fingerprint_mark(
    ngx_http_idempotency_doc_t *doc, ngx_array_t *paths, ngx_uint_t mark);
static ngx_int_t ngx_http_idempotency_fingerprint_with(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_secret_t *secret);


/* in the order of the numbers of the kinds */

static ngx_str_t  ngx_http_idempotency_fingerprint_kinds[] = {
    ngx_null_string,
    ngx_string("fingerprint raw 1"),
    ngx_string("fingerprint json 1"),
    ngx_string("fingerprint form 1")
};


ngx_int_t
ngx_http_idempotency_fingerprint(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_str_t                   with, *kind;
    ngx_idempotency_secret_t  **secret;

    if (ctx->conf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, ctx->conf->fingerprint_with, &with)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    kind = &ngx_http_idempotency_fingerprint_kinds[ctx->conf->fingerprint];

    if (ngx_http_idempotency_digest_start(r->connection->log) != NGX_OK
        || ngx_http_idempotency_digest_add_part(kind) != NGX_OK
        || ngx_http_idempotency_digest_add_part(&with) != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = (ctx->conf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW)
         ? ngx_http_idempotency_body_read(r, ngx_http_idempotency_digest_add)
         : ngx_http_idempotency_fingerprint_doc(r, ctx);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_idempotency_digest_finish(ctx->content) != NGX_OK) {
        return NGX_ERROR;
    }

    secret = ctx->conf->secrets ? ctx->conf->secrets->elts : NULL;

    return ngx_http_idempotency_fingerprint_with(r, ctx,
                                                 secret ? secret[0] : NULL);
}


static ngx_int_t
ngx_http_idempotency_fingerprint_doc(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                         rc;
    ngx_http_idempotency_doc_t        doc;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ilcf = ctx->conf;

    rc = ngx_http_idempotency_body_parse(r, ilcf->fingerprint
                                     == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_JSON,
                                     &doc);
    if (rc == NGX_OK) {
        ngx_http_idempotency_fingerprint_mark(&doc, ilcf->include,
                                          NGX_HTTP_IDEMPOTENCY_DOC_INCLUDED);
        ngx_http_idempotency_fingerprint_mark(&doc, ilcf->exclude,
                                          NGX_HTTP_IDEMPOTENCY_DOC_EXCLUDED);

        rc = ngx_http_idempotency_canonical(&doc, ilcf->include != NULL,
                                            ngx_http_idempotency_digest_add);
    }

    ngx_http_idempotency_body_free(r, &doc);

    return rc;
}


static void
ngx_http_idempotency_fingerprint_mark(ngx_http_idempotency_doc_t *doc,
    ngx_array_t *paths, ngx_uint_t mark)
{
    ngx_uint_t                    i;
    ngx_http_idempotency_path_t  *path;

    if (paths == NULL) {
        return;
    }

    path = paths->elts;

    for (i = 0; i < paths->nelts; i++) {
        ngx_http_idempotency_doc_mark(doc, path[i].names, path[i].n, mark);
    }
}


ngx_int_t
ngx_http_idempotency_fingerprint_as(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const u_char *other)
{
    ngx_idempotency_secret_t  *secret;

    static u_char  none[NGX_IDEMPOTENCY_KEY_ID_LEN];

    if (ngx_memcmp(ctx->fingerprint, other, NGX_IDEMPOTENCY_KEY_ID_LEN) == 0) {
        return NGX_OK;
    }

    secret = NULL;

    if (ngx_memcmp(other, none, NGX_IDEMPOTENCY_KEY_ID_LEN) != 0) {
        secret = ngx_idempotency_secret_find(ctx->conf->secrets, other);

        if (secret == NULL) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "idempotency record \"%*xs\" was made with a "
                          "secret that is not known: keep old ones behind the "
                          "first \"idempotency_secret\" for as long as "
                          "records live", (size_t) 8, ctx->digest);
            return NGX_DECLINED;
        }
    }

    if (ngx_http_idempotency_fingerprint_with(r, ctx, secret) != NGX_OK) {
        return NGX_ERROR;
    }

    return NGX_DONE;
}


/* the id of the secret, and as much of the digest as there is room for */

static ngx_int_t
ngx_http_idempotency_fingerprint_with(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_secret_t *secret)
{
    u_char  *p;
    u_char   keyed[NGX_IDEMPOTENCY_DIGEST_LEN];

    p = ctx->content;

    if (secret) {
        if (ngx_http_idempotency_digest_keyed(r->connection->log,
                                              secret->fingerprint,
                                              ctx->content, keyed)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        p = keyed;

        ngx_memcpy(ctx->fingerprint, secret->id, NGX_IDEMPOTENCY_KEY_ID_LEN);

    } else {
        ngx_memzero(ctx->fingerprint, NGX_IDEMPOTENCY_KEY_ID_LEN);
    }

    ngx_memcpy(ctx->fingerprint + NGX_IDEMPOTENCY_KEY_ID_LEN, p,
               NGX_IDEMPOTENCY_FINGERPRINT_SUM - NGX_IDEMPOTENCY_KEY_ID_LEN);

    return NGX_OK;
}
