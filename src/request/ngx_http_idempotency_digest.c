
/*
 * SHA-256 over parts that cannot run into each other.
 */


#include "ngx_http_idempotency_digest.h"
#include <openssl/evp.h>


/* reused by all requests of the worker: making one costs more than hashing */

static EVP_MD_CTX  *ngx_http_idempotency_digest_ctx;


ngx_int_t
ngx_http_idempotency_digest_start(ngx_log_t *log)
{
    if (ngx_http_idempotency_digest_ctx == NULL) {
        ngx_http_idempotency_digest_ctx = EVP_MD_CTX_new();

        if (ngx_http_idempotency_digest_ctx == NULL
            || EVP_DigestInit_ex(ngx_http_idempotency_digest_ctx,
                                 EVP_sha256(), NULL)
               != 1)
        {
            ngx_log_error(NGX_LOG_CRIT, log, 0,
                          "idempotency cannot use SHA-256 of libcrypto");
            EVP_MD_CTX_free(ngx_http_idempotency_digest_ctx);
            ngx_http_idempotency_digest_ctx = NULL;
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    /* the same algorithm again: nothing is looked up */

    if (EVP_DigestInit_ex(ngx_http_idempotency_digest_ctx, NULL, NULL) != 1) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_digest_add(const u_char *data, size_t len)
{
    if (EVP_DigestUpdate(ngx_http_idempotency_digest_ctx, data, len) != 1) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_digest_add_part(const ngx_str_t *part)
{
    uint64_t    len;
    ngx_uint_t  i;
    u_char      prefix[8];

    len = part->len;

    for (i = 0; i < 8; i++) {
        prefix[i] = (u_char) (len >> (56 - 8 * i));
    }

    if (ngx_http_idempotency_digest_add(prefix, 8) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_digest_add(part->data, part->len);
}


ngx_int_t
ngx_http_idempotency_digest_finish(u_char *digest)
{
    unsigned int  len;

    if (EVP_DigestFinal_ex(ngx_http_idempotency_digest_ctx, digest, &len)
        != 1)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}
