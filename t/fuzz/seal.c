
/*
 * A sealed answer: bytes that were not sealed do not open, and one that
 * was changed in any place does not, either.  The first byte says how long
 * the head is, the rest is the answer; or with a high bit, what is done to
 * the bytes of a real one.
 */


#include "fuzz.h"
#include "ngx_idempotency_seal.h"


#define FUZZ_HEAD  30
#define FUZZ_BODY  50

/* what stands before a sealed head */
#define FUZZ_MORE  45


static void fuzz_foreign(ngx_pool_t *pool, ngx_str_t *in, size_t len);
static void fuzz_changed(ngx_str_t *in);


static ngx_idempotency_secret_t   fuzz_secret;
static ngx_idempotency_secret_t  *fuzz_list[] = { &fuzz_secret };
static ngx_array_t                fuzz_secrets;
static u_char                     fuzz_digest[NGX_IDEMPOTENCY_DIGEST_LEN];
static u_char                     fuzz_sealed[FUZZ_MORE + FUZZ_HEAD
                                              + FUZZ_BODY];


void
fuzz_init(void)
{
    ngx_buf_t             b;
    ngx_chain_t           cl;
    ngx_idempotency_op_t  op;
    u_char                bytes[NGX_IDEMPOTENCY_SECRET_LEN];

    static u_char  answer[FUZZ_HEAD + FUZZ_BODY];

    ngx_memset(bytes, 1, sizeof(bytes));

    fuzz_want(ngx_idempotency_secret_init(fuzz_conf.cycle->pool, &fuzz_secret,
                                          bytes)
              == NGX_OK);

    fuzz_secrets.elts = fuzz_list;
    fuzz_secrets.nelts = 1;

    ngx_memzero(&op, sizeof(op));
    ngx_memzero(&b, sizeof(b));

    op.pool = fuzz_conf.cycle->pool;
    op.head.data = answer;
    op.head.len = FUZZ_HEAD;
    op.body_len = FUZZ_BODY;
    op.body = &cl;

    b.pos = answer + FUZZ_HEAD;
    b.last = answer + FUZZ_HEAD + FUZZ_BODY;

    cl.buf = &b;
    cl.next = NULL;

    fuzz_want(ngx_idempotency_seal(&fuzz_secret, &op) == NGX_OK);
    fuzz_want(op.head.len == FUZZ_MORE + FUZZ_HEAD);

    ngx_memcpy(fuzz_sealed, op.head.data, op.head.len);
    ngx_memcpy(fuzz_sealed + op.head.len, op.body->buf->pos, FUZZ_BODY);
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    u_char  how;

    how = fuzz_byte(in);

    if (how & 0x80) {
        fuzz_changed(in);

    } else {
        fuzz_foreign(pool, in, how);
    }
}


static void
fuzz_foreign(ngx_pool_t *pool, ngx_str_t *in, size_t len)
{
    ngx_int_t   rc;
    ngx_str_t   head, body;
    ngx_uint_t  sealed;

    head = *in;
    head.len = ngx_min(len, in->len);

    body.data = in->data + head.len;
    body.len = in->len - head.len;

    sealed = head.len && head.data[0] == 0x81;

    head = fuzz_copy(pool, &head);
    body = fuzz_copy(pool, &body);

    rc = ngx_idempotency_seal_open(&fuzz_secrets, fuzz_digest, &head, &body);

    fuzz_want(rc == (sealed ? NGX_DECLINED : NGX_OK));

    rc = ngx_idempotency_seal_open(NULL, fuzz_digest, &head, &body);

    fuzz_want(rc == NGX_OK || rc == NGX_DECLINED);
}


/* pairs of bytes: a place, and what is changed there; an odd one cuts */

static void
fuzz_changed(ngx_str_t *in)
{
    u_char     place, *bytes;
    size_t     cut;
    ngx_int_t  rc;
    ngx_str_t  head, body;

    bytes = malloc(sizeof(fuzz_sealed));
    fuzz_want(bytes != NULL);

    ngx_memcpy(bytes, fuzz_sealed, sizeof(fuzz_sealed));

    while (in->len >= 2) {
        place = fuzz_byte(in);
        bytes[place % sizeof(fuzz_sealed)] ^= fuzz_byte(in);
    }

    cut = fuzz_byte(in) % FUZZ_BODY;

    head.data = bytes;
    head.len = FUZZ_MORE + FUZZ_HEAD;
    body.data = bytes + head.len;
    body.len = FUZZ_BODY - cut;

    if (bytes[0] == fuzz_sealed[0]) {
        rc = (cut == 0 && ngx_memcmp(bytes, fuzz_sealed, sizeof(fuzz_sealed))
                          == 0)
             ? NGX_OK : NGX_DECLINED;

        fuzz_want(ngx_idempotency_seal_open(&fuzz_secrets, fuzz_digest, &head,
                                            &body)
                  == rc);
    }

    free(bytes);
}
