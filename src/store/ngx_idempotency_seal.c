
/*
 * Encryption of stored answers, and the secrets that do it.
 *
 * A sealed answer is XAES-256-GCM (C2SP): AES-256-GCM with a key that is
 * derived anew from the secret and the first half of a random nonce of 24
 * bytes.  So many random bits do not repeat, however many answers one secret
 * seals; the 12 bytes of AES-GCM alone would after some billions.
 *
 *     0 version, 1 id of the secret (4), 5 nonce (24), 29 tag (16),
 *     45 head as ciphertext; and the body as ciphertext, of the same length
 *
 * The tag also covers the version, the id, the name of the record and the
 * length of the head: none of these can be swapped.  A text is a head without
 * a body, of another version.
 */


#include "ngx_idempotency_seal.h"
#include "ngx_idempotency_random.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>


/* differs from the first byte of an encoded head, see record_head.c */
#define NGX_IDEMPOTENCY_SEAL_VERSION  0x81
#define NGX_IDEMPOTENCY_SEAL_TEXT     0x82

#define NGX_IDEMPOTENCY_SEAL_ID       1
#define NGX_IDEMPOTENCY_SEAL_NONCE    5
#define NGX_IDEMPOTENCY_SEAL_TAG      29
#define NGX_IDEMPOTENCY_SEAL_HEAD     NGX_IDEMPOTENCY_SEAL_LEN

#define NGX_IDEMPOTENCY_SEAL_TAG_LEN  16
#define NGX_IDEMPOTENCY_SEAL_ENCRYPT  1
#define NGX_IDEMPOTENCY_SEAL_DECRYPT  0


static ngx_int_t ngx_idempotency_secret_key(const u_char *bytes,
    const char *purpose, u_char *key);
static void ngx_idempotency_secret_wipe(void *data);
static ngx_int_t ngx_idempotency_secret_subkey(
    ngx_idempotency_secret_t *secret);
static ngx_int_t ngx_idempotency_seal_start(ngx_idempotency_secret_t *secret,
    const u_char *prefix, const u_char *digest, size_t head_len,
    int encrypt);
static ngx_int_t ngx_idempotency_seal_begin(ngx_idempotency_secret_t *secret,
    u_char *prefix, u_char version, const u_char *digest, size_t len);
static ngx_int_t ngx_idempotency_seal_finish(u_char *prefix, u_char *last);
static ngx_int_t ngx_idempotency_seal_open_as(ngx_array_t *secrets,
    const u_char *digest, ngx_str_t *head, ngx_str_t *body);
static ngx_int_t ngx_idempotency_seal_blocks(ngx_idempotency_secret_t *secret,
    u_char *out, const u_char *in, int len);
static ngx_int_t ngx_idempotency_seal_update(u_char *out, const u_char *in,
    size_t len);


/* reused by all requests of the worker: making one costs more than sealing */

static EVP_CIPHER_CTX  *ngx_idempotency_seal_ctx;


ngx_int_t
ngx_idempotency_secret_init(ngx_pool_t *pool, ngx_idempotency_secret_t *secret,
    const u_char *bytes)
{
    u_char               id[32];
    EVP_CIPHER_CTX      *cipher;
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    secret->cipher = NULL;

    cln->handler = ngx_idempotency_secret_wipe;
    cln->data = secret;

    if (ngx_idempotency_secret_key(bytes, "idempotency id 1", id) != NGX_OK
        || ngx_idempotency_secret_key(bytes, "idempotency seal 1",
                                      secret->seal) != NGX_OK
        || ngx_idempotency_secret_key(bytes, "idempotency fingerprint 1",
                                      secret->fingerprint) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_memcpy(secret->id, id, NGX_IDEMPOTENCY_KEY_ID_LEN);
    secret->id[0] |= 1;

    cipher = EVP_CIPHER_CTX_new();

    secret->cipher = cipher;

    if (cipher == NULL
        || EVP_EncryptInit_ex(cipher, EVP_aes_256_ecb(), NULL, secret->seal,
                              NULL) != 1
        || EVP_CIPHER_CTX_set_padding(cipher, 0) != 1)
    {
        return NGX_ERROR;
    }

    return ngx_idempotency_secret_subkey(secret);
}


static ngx_int_t
ngx_idempotency_secret_key(const u_char *bytes, const char *purpose,
    u_char *key)
{
    unsigned int  len;

    if (HMAC(EVP_sha256(), bytes, NGX_IDEMPOTENCY_SECRET_LEN,
             (const u_char *) purpose, ngx_strlen(purpose), key, &len)
        == NULL)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_idempotency_secret_wipe(void *data)
{
    ngx_idempotency_secret_t *secret = data;

    EVP_CIPHER_CTX_free(secret->cipher);

    ngx_explicit_memzero(secret, sizeof(ngx_idempotency_secret_t));
}


static ngx_int_t
ngx_idempotency_secret_subkey(ngx_idempotency_secret_t *secret)
{
    u_char      zeros[16], block[16];
    ngx_uint_t  i;

    ngx_memzero(zeros, 16);

    if (ngx_idempotency_seal_blocks(secret, block, zeros, 16) != NGX_OK) {
        return NGX_ERROR;
    }

    for (i = 0; i < 15; i++) {
        secret->subkey[i] = (u_char) (block[i] << 1 | block[i + 1] >> 7);
    }

    secret->subkey[15] = (u_char) (block[15] << 1);

    if (block[0] & 0x80) {
        secret->subkey[15] ^= 0x87;
    }

    return NGX_OK;
}


ngx_idempotency_secret_t *
ngx_idempotency_secret_find(ngx_array_t *secrets, const u_char *id)
{
    ngx_uint_t                  i;
    ngx_idempotency_secret_t  **secret;

    if (secrets == NULL) {
        return NULL;
    }

    secret = secrets->elts;

    for (i = 0; i < secrets->nelts; i++) {
        if (ngx_memcmp(secret[i]->id, id, NGX_IDEMPOTENCY_KEY_ID_LEN) == 0) {
            return secret[i];
        }
    }

    return NULL;
}


ngx_int_t
ngx_idempotency_seal(ngx_idempotency_secret_t *secret,
    ngx_idempotency_op_t *op)
{
    size_t        len;
    u_char       *p;
    ngx_buf_t    *b;
    ngx_chain_t  *cl, *in;

    p = ngx_pnalloc(op->pool, NGX_IDEMPOTENCY_SEAL_HEAD + op->head.len);
    b = ngx_create_temp_buf(op->pool, op->body_len);
    cl = ngx_alloc_chain_link(op->pool);

    if (p == NULL || b == NULL || cl == NULL) {
        return NGX_ERROR;
    }

    if (ngx_idempotency_seal_begin(secret, p, NGX_IDEMPOTENCY_SEAL_VERSION,
                                   op->id.digest, op->head.len) != NGX_OK
        || ngx_idempotency_seal_update(p + NGX_IDEMPOTENCY_SEAL_HEAD,
                                       op->head.data, op->head.len) != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (in = op->body; in; in = in->next) {
        len = in->buf->last - in->buf->pos;

        if (len > (size_t) (b->end - b->last)
            || ngx_idempotency_seal_update(b->last, in->buf->pos, len)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        b->last += len;
    }

    if (b->last != b->end
        || ngx_idempotency_seal_finish(p, b->last) != NGX_OK)
    {
        return NGX_ERROR;
    }

    op->head.data = p;
    op->head.len += NGX_IDEMPOTENCY_SEAL_HEAD;

    cl->buf = b;
    cl->next = NULL;

    op->body = op->body_len ? cl : NULL;

    return NGX_OK;
}


/* the version, the id of the secret and a new nonce, in front of the rest */

static ngx_int_t
ngx_idempotency_seal_begin(ngx_idempotency_secret_t *secret, u_char *prefix,
    u_char version, const u_char *digest, size_t len)
{
    prefix[0] = version;
    ngx_memcpy(prefix + NGX_IDEMPOTENCY_SEAL_ID, secret->id,
               NGX_IDEMPOTENCY_KEY_ID_LEN);

    if (ngx_idempotency_random(prefix + NGX_IDEMPOTENCY_SEAL_NONCE,
                               NGX_IDEMPOTENCY_SEAL_TAG
                               - NGX_IDEMPOTENCY_SEAL_NONCE) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_idempotency_seal_start(secret, prefix, digest, len,
                                      NGX_IDEMPOTENCY_SEAL_ENCRYPT);
}


static ngx_int_t
ngx_idempotency_seal_finish(u_char *prefix, u_char *last)
{
    int  n;

    if (EVP_EncryptFinal_ex(ngx_idempotency_seal_ctx, last, &n) != 1
        || EVP_CIPHER_CTX_ctrl(ngx_idempotency_seal_ctx, EVP_CTRL_AEAD_GET_TAG,
                               NGX_IDEMPOTENCY_SEAL_TAG_LEN,
                               prefix + NGX_IDEMPOTENCY_SEAL_TAG) != 1)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_seal_text(ngx_idempotency_secret_t *secret,
    const u_char *digest, ngx_str_t *text, u_char *out)
{
    u_char  *p;

    p = out + NGX_IDEMPOTENCY_SEAL_HEAD;

    if (ngx_idempotency_seal_begin(secret, out, NGX_IDEMPOTENCY_SEAL_TEXT,
                                   digest, text->len) != NGX_OK
        || ngx_idempotency_seal_update(p, text->data, text->len) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_idempotency_seal_finish(out, p + text->len);
}


ngx_int_t
ngx_idempotency_seal_open_text(ngx_array_t *secrets, const u_char *digest,
    ngx_str_t *text)
{
    ngx_str_t  none;

    if (text->len == 0 || text->data[0] != NGX_IDEMPOTENCY_SEAL_TEXT) {
        return NGX_DECLINED;
    }

    ngx_str_null(&none);

    return ngx_idempotency_seal_open_as(secrets, digest, text, &none);
}


ngx_int_t
ngx_idempotency_seal_open(ngx_array_t *secrets, const u_char *digest,
    ngx_str_t *head, ngx_str_t *body)
{
    if (head->len == 0 || head->data[0] != NGX_IDEMPOTENCY_SEAL_VERSION) {
        return NGX_OK;
    }

    return ngx_idempotency_seal_open_as(secrets, digest, head, body);
}


static ngx_int_t
ngx_idempotency_seal_open_as(ngx_array_t *secrets, const u_char *digest,
    ngx_str_t *head, ngx_str_t *body)
{
    int                        len;
    u_char                    *prefix, rest[16];
    ngx_idempotency_secret_t  *secret;

    if (head->len < NGX_IDEMPOTENCY_SEAL_HEAD) {
        return NGX_DECLINED;
    }

    prefix = head->data;

    secret = ngx_idempotency_secret_find(secrets,
                                         prefix + NGX_IDEMPOTENCY_SEAL_ID);
    if (secret == NULL) {
        return NGX_DECLINED;
    }

    head->data += NGX_IDEMPOTENCY_SEAL_HEAD;
    head->len -= NGX_IDEMPOTENCY_SEAL_HEAD;

    if (ngx_idempotency_seal_start(secret, prefix, digest, head->len,
                                   NGX_IDEMPOTENCY_SEAL_DECRYPT) != NGX_OK
        || ngx_idempotency_seal_update(head->data, head->data, head->len)
           != NGX_OK
        || ngx_idempotency_seal_update(body->data, body->data, body->len)
           != NGX_OK
        || EVP_CIPHER_CTX_ctrl(ngx_idempotency_seal_ctx, EVP_CTRL_AEAD_SET_TAG,
                               NGX_IDEMPOTENCY_SEAL_TAG_LEN,
                               prefix + NGX_IDEMPOTENCY_SEAL_TAG) != 1
        || EVP_DecryptFinal_ex(ngx_idempotency_seal_ctx, rest, &len) != 1)
    {
        /* the record may be shared: it must not pass for an answer */

        ngx_str_null(head);
        ngx_str_null(body);

        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* one answer at a time per worker: start, updates, the tag */

static ngx_int_t
ngx_idempotency_seal_start(ngx_idempotency_secret_t *secret,
    const u_char *prefix, const u_char *digest, size_t head_len, int encrypt)
{
    int                len;
    u_char             key[32], *p;
    ngx_uint_t         i, n;
    const EVP_CIPHER  *cipher;
    const u_char      *nonce;
    u_char             bound[NGX_IDEMPOTENCY_SEAL_NONCE
                             + NGX_IDEMPOTENCY_DIGEST_LEN + 4];

    cipher = NULL;
    nonce = prefix + NGX_IDEMPOTENCY_SEAL_NONCE;

    if (head_len > NGX_MAX_INT32_VALUE) {
        return NGX_ERROR;
    }

    if (ngx_idempotency_seal_ctx == NULL) {
        ngx_idempotency_seal_ctx = EVP_CIPHER_CTX_new();
        if (ngx_idempotency_seal_ctx == NULL) {
            return NGX_ERROR;
        }

        cipher = EVP_aes_256_gcm();
    }

    /* two blocks of CMAC in counter mode, each of one block */

    for (i = 0; i < 2; i++) {
        p = key + 16 * i;

        p[0] = 0;
        p[1] = (u_char) (i + 1);
        p[2] = 'X';
        p[3] = 0;

        ngx_memcpy(p + 4, nonce, 12);

        for (n = 0; n < 16; n++) {
            p[n] ^= secret->subkey[n];
        }
    }

    if (ngx_idempotency_seal_blocks(secret, key, key, sizeof(key)) != NGX_OK
        || EVP_CipherInit_ex(ngx_idempotency_seal_ctx, cipher, NULL, key,
                             nonce + 12, encrypt) != 1)
    {
        if (cipher) {
            EVP_CIPHER_CTX_free(ngx_idempotency_seal_ctx);
            ngx_idempotency_seal_ctx = NULL;
        }

        return NGX_ERROR;
    }

    ngx_explicit_memzero(key, sizeof(key));

    p = ngx_cpymem(bound, prefix, NGX_IDEMPOTENCY_SEAL_NONCE);
    p = ngx_cpymem(p, digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    *p++ = (u_char) (head_len >> 24);
    *p++ = (u_char) (head_len >> 16);
    *p++ = (u_char) (head_len >> 8);
    *p++ = (u_char) head_len;

    if (EVP_CipherUpdate(ngx_idempotency_seal_ctx, NULL, &len, bound,
                         sizeof(bound)) != 1)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_seal_blocks(ngx_idempotency_secret_t *secret, u_char *out,
    const u_char *in, int len)
{
    return EVP_EncryptUpdate(secret->cipher, out, &len, in, len) == 1
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_idempotency_seal_update(u_char *out, const u_char *in, size_t len)
{
    int  n;

    if (len == 0) {
        return NGX_OK;
    }

    if (len > NGX_MAX_INT32_VALUE) {
        return NGX_ERROR;
    }

    return EVP_CipherUpdate(ngx_idempotency_seal_ctx, out, &n, in, (int) len)
           == 1 ? NGX_OK : NGX_ERROR;
}
