
/*
 * Sealed answers: the published vectors of XAES-256-GCM, and that nothing
 * opens which is not whole, in its place and under its secret.  Linked with
 * seal.c only; prints TAP.
 */


#include "ngx_idempotency_seal.h"
#include "ngx_idempotency_random.h"
#include <openssl/evp.h>


static void test_vector(u_char byte, char *text, char *sealed);
static void test_round(size_t head, size_t body);
static void test_altered(void);
static void test_secrets(void);
static void make(ngx_uint_t i, u_char byte);
static ngx_int_t open_again(u_char *digest);
static void seal(size_t head, size_t body);
static void ok(ngx_uint_t passed, char *name, size_t n);


static ngx_idempotency_secret_t  secrets[3];
static ngx_idempotency_secret_t *listed[3] = { &secrets[0], &secrets[1] };
static ngx_array_t               list = { listed, 2, sizeof(void *), 3, NULL };

static u_char                   *nonce;
static ngx_idempotency_op_t      op;
static ngx_str_t                 kept_head, kept_body;
static void                     *memory[16];
static ngx_uint_t                used, tests, failed;


int
main(void)
{
    static size_t  sizes[] = { 0, 1, 15, 16, 17, 100, 4096, 100000 };

    ngx_uint_t  i, k;

    test_vector(1, "XAES-256-GCM", "ce546ef63c9cc60765923609");
    test_vector(3, "XAES-256-GCM", "986ec1832593df5443a17943");

    make(0, 7);
    make(1, 8);
    make(2, 9);

    for (i = 0; i < sizeof(sizes) / sizeof(size_t); i++) {
        for (k = 0; k < sizeof(sizes) / sizeof(size_t); k++) {
            test_round(sizes[i], sizes[k]);
        }
    }

    test_altered();
    test_secrets();

    printf("1..%lu\n", (unsigned long) tests);

    return failed ? 1 : 0;
}


/* the ciphertext does not depend on what else the tag covers */

static void
test_vector(u_char byte, char *text, char *sealed)
{
    u_char      hex[3];
    ngx_uint_t  i, equal;

    make(0, byte);

    /* the vectors have this key itself, not one derived from it */

    memset(secrets[0].seal, byte, 32);

    EVP_EncryptInit_ex(secrets[0].cipher, EVP_aes_256_ecb(), NULL,
                       secrets[0].seal, NULL);

    {
        int     len;
        u_char  zeros[16], block[16];

        memset(zeros, 0, 16);
        EVP_EncryptUpdate(secrets[0].cipher, block, &len, zeros, 16);

        for (i = 0; i < 16; i++) {
            secrets[0].subkey[i] = (u_char) (block[i] << 1
                                         | (i < 15 ? block[i + 1] >> 7 : 0));
        }

        secrets[0].subkey[15] ^= (block[0] & 0x80) ? 0x87 : 0;
    }

    nonce = (u_char *) "ABCDEFGHIJKLMNOPQRSTUVWX";

    seal(0, 0);

    op.head.data = (u_char *) text;
    op.head.len = strlen(text);
    op.body = NULL;
    op.body_len = 0;

    ok(ngx_idempotency_seal(&secrets[0], &op) == NGX_OK, "a vector", 0);

    equal = 1;

    for (i = 0; i < strlen(text); i++) {
        sprintf((char *) hex, "%02x", op.head.data[45 + i]);
        equal &= memcmp(hex, sealed + 2 * i, 2) == 0;
    }

    ok(equal, "is what it should be", byte);

    nonce = NULL;
}


static void
test_round(size_t head, size_t body)
{
    u_char  *p;
    size_t   i;

    seal(head, body);

    ok(kept_head.len == head + 45 && kept_body.len == body,
       "lengths", head + body);

    p = op.id.digest;
    ok(open_again(p) == NGX_OK, "opens", head + body);
    ok(kept_head.len == head && kept_body.len == body, "as it was",
       head + body);

    for (i = 0; i < head && kept_head.data[i] == (u_char) (i * 7); i++);
    ok(i == head, "the head", head);

    for (i = 0; i < body && kept_body.data[i] == (u_char) (i * 11); i++);
    ok(i == body, "the body", body);
}


static void
test_altered(void)
{
    size_t      i, n;
    u_char      digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_uint_t  opened;

    opened = 0;

    for (i = 0; i < 45 + 20 + 30; i++) {
        seal(20, 30);

        if (i < 65) {
            kept_head.data[i] ^= 0x10;

        } else {
            kept_body.data[i - 65] ^= 0x10;
        }

        /* what begins otherwise was never sealed, and is not decoded later */

        opened += (open_again(op.id.digest) == NGX_OK) && i != 0;
    }

    ok(opened == 0, "a byte that differs", opened);

    opened = 0;

    for (i = 0; i < NGX_IDEMPOTENCY_DIGEST_LEN; i++) {
        seal(20, 30);
        memcpy(digest, op.id.digest, sizeof(digest));
        digest[i] ^= 1;
        opened += open_again(digest) == NGX_OK;
    }

    ok(opened == 0, "another record", opened);

    opened = 0;

    for (n = 1; n < 45 + 20; n++) {
        seal(20, 30);
        kept_head.len -= n;
        opened += open_again(op.id.digest) == NGX_OK;
    }

    for (n = 1; n <= 30; n++) {
        seal(20, 30);
        kept_body.len -= n;
        opened += open_again(op.id.digest) == NGX_OK;
    }

    ok(opened == 0, "cut", opened);

    seal(20, 30);
    kept_head.len = 0;
    ok(open_again(op.id.digest) == NGX_OK, "no head was never sealed", 0);
}


static void
test_secrets(void)
{
    ngx_uint_t  i;

    seal(5, 5);
    list.nelts = 0;
    ok(open_again(op.id.digest) == NGX_DECLINED, "no secret", 0);

    list.nelts = 1;
    listed[0] = &secrets[1];
    seal(5, 5);
    ok(open_again(op.id.digest) == NGX_DECLINED, "another secret", 0);

    listed[1] = &secrets[2];
    listed[2] = &secrets[0];
    list.nelts = 3;
    seal(5, 5);
    ok(open_again(op.id.digest) == NGX_OK, "the third", 0);

    ok(ngx_idempotency_seal_open(NULL, op.id.digest, &kept_head, &kept_body)
       == NGX_OK, "what is open stays open", 0);

    for (i = 0; i < 3; i++) {
        ok(ngx_idempotency_secret_find(&list, secrets[i].id) == &secrets[i],
           "found by its id", i);
    }
}


static void
make(ngx_uint_t i, u_char byte)
{
    u_char  bytes[NGX_IDEMPOTENCY_SECRET_LEN];

    memset(bytes, byte, sizeof(bytes));

    if (secrets[i].cipher) {
        EVP_CIPHER_CTX_free(secrets[i].cipher);
    }

    ok(ngx_idempotency_secret_init(NULL, &secrets[i], bytes) == NGX_OK,
       "a secret", i);
}


/* into memory where a byte too much would be seen */

static void
seal(size_t head, size_t body)
{
    size_t               i;
    static ngx_buf_t     one, two;
    static ngx_chain_t   first, second;
    static u_char       *bytes;

    while (used) {
        free(memory[--used]);
    }

    free(bytes);
    bytes = malloc(head + body + 1);

    memset(&op, 0, sizeof(op));
    memset(op.id.digest, 0xd1, sizeof(op.id.digest));

    for (i = 0; i < head; i++) {
        bytes[i] = (u_char) (i * 7);
    }

    for (i = 0; i < body; i++) {
        bytes[head + i] = (u_char) (i * 11);
    }

    op.head.data = bytes;
    op.head.len = head;

    /* in two buffers */

    one.pos = bytes + head;
    one.last = one.pos + body / 3;
    two.pos = one.last;
    two.last = bytes + head + body;

    first.buf = &one;
    first.next = &second;
    second.buf = &two;
    second.next = NULL;

    op.body = body ? &first : NULL;
    op.body_len = body;

    if (ngx_idempotency_seal(&secrets[0], &op) != NGX_OK) {
        ok(0, "seals", head + body);
    }

    free(kept_head.data);
    free(kept_body.data);

    kept_head.len = op.head.len;
    kept_head.data = malloc(op.head.len);
    memcpy(kept_head.data, op.head.data, op.head.len);

    kept_body.len = body;
    kept_body.data = malloc(body ? body : 1);

    if (body) {
        memcpy(kept_body.data, op.body->buf->pos, body);
    }
}


static ngx_int_t
open_again(u_char *digest)
{
    ngx_int_t  rc;
    ngx_str_t  head, body;

    static u_char  *copy;

    head = kept_head;
    body = kept_body;

    rc = ngx_idempotency_seal_open(&list, digest, &head, &body);

    /* the ends are freed by their beginnings */

    free(copy);
    copy = malloc(kept_head.len + 1);

    if (rc == NGX_OK && head.len) {
        memcpy(copy, head.data, head.len);
        memcpy(kept_head.data, copy, head.len);
    }

    kept_head.len = head.len;

    return rc;
}


/* what seal.c needs of nginx */

volatile ngx_cycle_t  *ngx_cycle;


ngx_int_t
ngx_idempotency_random(u_char *p, size_t len)
{
    size_t         i;
    static u_char  next;

    for (i = 0; i < len; i++) {
        p[i] = nonce ? nonce[i] : next++;
    }

    return NGX_OK;
}


/* until the next answer is sealed */

void *
ngx_pnalloc(ngx_pool_t *pool, size_t size)
{
    void  *p;

    p = malloc(size ? size : 1);

    memory[used++] = p;

    return p;
}


ngx_buf_t *
ngx_create_temp_buf(ngx_pool_t *pool, size_t size)
{
    ngx_buf_t  *b;

    b = ngx_pnalloc(pool, sizeof(ngx_buf_t));
    b->pos = ngx_pnalloc(pool, size);
    b->last = b->pos;
    b->end = b->pos + size;

    return b;
}


ngx_chain_t *
ngx_alloc_chain_link(ngx_pool_t *pool)
{
    return ngx_pnalloc(pool, sizeof(ngx_chain_t));
}


ngx_pool_cleanup_t *
ngx_pool_cleanup_add(ngx_pool_t *pool, size_t size)
{
    static ngx_pool_cleanup_t  cln;

    return &cln;
}


void
ngx_explicit_memzero(void *buf, size_t n)
{
    memset(buf, 0, n);
}


static void
ok(ngx_uint_t passed, char *name, size_t n)
{
    tests++;
    failed += !passed;

    printf("%sok %lu - %s, %lu\n", passed ? "" : "not ",
           (unsigned long) tests, name, (unsigned long) n);
}
