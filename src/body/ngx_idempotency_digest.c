
/*
 * SHA-256 over parts that cannot run into each other.
 */


/*
 * The functions below EVP: OpenSSL 3 allocates, clears and looks for engines
 * at each EVP_DigestInit_ex(), which costs more than to hash a small body.
 */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "ngx_idempotency_digest.h"
#include <openssl/sha.h>


/* what is gathered before libcrypto is called */
#define NGX_IDEMPOTENCY_DIGEST_BUF    512

/* the length of a part, at most */
#define NGX_IDEMPOTENCY_DIGEST_PREFIX 10

/* of SHA-256 */
#define NGX_IDEMPOTENCY_DIGEST_BLOCK  64


static ngx_int_t ngx_idempotency_digest_flush(void);
static ngx_int_t ngx_idempotency_digest_pad(ngx_log_t *log,
    const u_char *key, u_char ch);


static SHA256_CTX  ngx_idempotency_digest_ctx;
static SHA256_CTX  ngx_idempotency_digest_inner;

static u_char      ngx_idempotency_digest_buf
                       [NGX_IDEMPOTENCY_DIGEST_BUF];
static size_t      ngx_idempotency_digest_len;


ngx_int_t
ngx_idempotency_digest(ngx_log_t *log, const ngx_str_t **parts, ngx_uint_t n,
    u_char *digest)
{
    if (ngx_idempotency_digest_start(log, parts, n) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_idempotency_digest_finish(digest);
}


ngx_int_t
ngx_idempotency_digest_start(ngx_log_t *log, const ngx_str_t **parts,
    ngx_uint_t n)
{
    ngx_uint_t  i;

    ngx_idempotency_digest_len = 0;

    if (SHA256_Init(&ngx_idempotency_digest_ctx) != 1) {
        ngx_log_error(NGX_LOG_CRIT, log, 0,
                      "idempotency cannot use SHA-256 of libcrypto");
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        if (ngx_idempotency_digest_add_part(parts[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_digest_add(const u_char *data, size_t len)
{
    size_t  left;

    left = NGX_IDEMPOTENCY_DIGEST_BUF - ngx_idempotency_digest_len;

    if (len > left) {

        if (ngx_idempotency_digest_flush() != NGX_OK) {
            return NGX_ERROR;
        }

        if (len > NGX_IDEMPOTENCY_DIGEST_BUF) {
            return SHA256_Update(&ngx_idempotency_digest_ctx, data, len)
                   == 1 ? NGX_OK : NGX_ERROR;
        }
    }

    ngx_memcpy(ngx_idempotency_digest_buf
               + ngx_idempotency_digest_len, data, len);

    ngx_idempotency_digest_len += len;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_digest_flush(void)
{
    size_t  len;

    len = ngx_idempotency_digest_len;

    ngx_idempotency_digest_len = 0;

    if (SHA256_Update(&ngx_idempotency_digest_ctx,
                      ngx_idempotency_digest_buf, len)
        != 1)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_digest_add_part(const ngx_str_t *part)
{
    size_t   len;
    u_char  *p;

    if (NGX_IDEMPOTENCY_DIGEST_BUF - ngx_idempotency_digest_len
        < NGX_IDEMPOTENCY_DIGEST_PREFIX
        && ngx_idempotency_digest_flush() != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* seven bits in a byte, the lowest first; another follows a high bit */

    p = ngx_idempotency_digest_buf + ngx_idempotency_digest_len;

    for (len = part->len; len >= 0x80; len >>= 7) {
        *p++ = (u_char) (len | 0x80);
    }

    *p++ = (u_char) len;

    ngx_idempotency_digest_len = p - ngx_idempotency_digest_buf;

    if (part->len == 0) {
        return NGX_OK;
    }

    return ngx_idempotency_digest_add(part->data, part->len);
}


ngx_int_t
ngx_idempotency_digest_inner_start(void)
{
    return SHA256_Init(&ngx_idempotency_digest_inner) == 1 ? NGX_OK
                                                           : NGX_ERROR;
}


ngx_int_t
ngx_idempotency_digest_inner_add(const u_char *data, size_t len)
{
    return SHA256_Update(&ngx_idempotency_digest_inner, data, len) == 1
           ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_idempotency_digest_inner_end(void)
{
    u_char  digest[NGX_IDEMPOTENCY_DIGEST_LEN];

    if (SHA256_Final(digest, &ngx_idempotency_digest_inner) != 1) {
        return NGX_ERROR;
    }

    return ngx_idempotency_digest_add(digest, sizeof(digest));
}


ngx_int_t
ngx_idempotency_digest_finish(u_char *digest)
{
    if (ngx_idempotency_digest_flush() != NGX_OK) {
        return NGX_ERROR;
    }

    if (SHA256_Final(digest, &ngx_idempotency_digest_ctx) != 1) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* HMAC.  The state after the key is kept: most calls use the last key again. */

ngx_int_t
ngx_idempotency_digest_keyed(ngx_log_t *log, const u_char *key,
    const u_char *digest, u_char *keyed)
{
    ngx_uint_t  outer;

    static SHA256_CTX  begin[2];
    static ngx_uint_t  known;
    static u_char      last[NGX_IDEMPOTENCY_DIGEST_LEN];

    if (!known || ngx_memcmp(last, key, NGX_IDEMPOTENCY_DIGEST_LEN) != 0) {

        known = 0;

        for (outer = 0; outer < 2; outer++) {
            if (ngx_idempotency_digest_pad(log, key, outer ? 0x5c : 0x36)
                != NGX_OK)
            {
                return NGX_ERROR;
            }

            begin[outer] = ngx_idempotency_digest_ctx;
        }

        ngx_memcpy(last, key, NGX_IDEMPOTENCY_DIGEST_LEN);
        known = 1;
    }

    for (outer = 0; outer < 2; outer++) {

        ngx_idempotency_digest_len = 0;
        ngx_idempotency_digest_ctx = begin[outer];

        if (ngx_idempotency_digest_add(outer ? keyed : digest,
                                       NGX_IDEMPOTENCY_DIGEST_LEN)
               != NGX_OK
            || ngx_idempotency_digest_finish(keyed) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_digest_pad(ngx_log_t *log, const u_char *key, u_char ch)
{
    ngx_uint_t  i;
    u_char      pad[NGX_IDEMPOTENCY_DIGEST_BLOCK];

    ngx_memset(pad, ch, sizeof(pad));

    for (i = 0; i < NGX_IDEMPOTENCY_DIGEST_LEN; i++) {
        pad[i] ^= key[i];
    }

    if (ngx_idempotency_digest_start(log, NULL, 0) != NGX_OK
        || ngx_idempotency_digest_add(pad, sizeof(pad)) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_idempotency_digest_flush();
}
