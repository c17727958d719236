
/*
 * Replies of Redis as bytes: however they are cut, the same replies come out,
 * and the same bytes are refused.  The first byte says how they are cut.
 */


#include "fuzz.h"
#include "ngx_idempotency_redis_resp.h"


#define FUZZ_MAX  65536


static ngx_uint_t fuzz_read(ngx_str_t *in, size_t piece, uint32_t *sum);
static void fuzz_walk(ngx_idempotency_redis_reply_t *reply, uint32_t *sum);


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    size_t      piece;
    uint32_t    one, two;
    ngx_uint_t  rc;

    (void) pool;

    piece = fuzz_byte(in) + 1;

    rc = fuzz_read(in, in->len, &one);

    fuzz_want(rc == fuzz_read(in, piece, &two));
    fuzz_want(one == two);
}


/* whether all bytes were replies, or the beginning of one */

static ngx_uint_t
fuzz_read(ngx_str_t *in, size_t piece, uint32_t *sum)
{
    u_char                          *p;
    size_t                           n, left;
    ngx_int_t                        rc;
    ngx_idempotency_redis_reply_t   *reply;
    ngx_idempotency_redis_reader_t  *reader;

    *sum = 0;

    reader = ngx_idempotency_redis_reader_create(FUZZ_MAX);
    fuzz_want(reader != NULL);

    rc = NGX_AGAIN;
    left = in->len;

    while (left && rc == NGX_AGAIN) {

        n = ngx_min(left, piece);

        /* a piece of its own, as if nothing came after it */

        p = malloc(n);
        fuzz_want(p != NULL);
        ngx_memcpy(p, in->data + in->len - left, n);

        rc = ngx_idempotency_redis_reader_feed(reader, p, n);
        fuzz_want(rc == NGX_OK);

        free(p);
        left -= n;

        for ( ;; ) {
            rc = ngx_idempotency_redis_reader_next(reader, &reply);

            if (rc != NGX_OK) {
                break;
            }

            *sum = *sum * 31 + 1;
            fuzz_walk(reply, sum);
            ngx_idempotency_redis_reply_free(reply);
        }
    }

    if (rc == NGX_ERROR) {
        fuzz_want(ngx_strlen(ngx_idempotency_redis_reader_error(reader)) > 0);
    }

    ngx_idempotency_redis_reader_free(reader);

    return rc == NGX_AGAIN;
}


static void
fuzz_walk(ngx_idempotency_redis_reply_t *reply, uint32_t *sum)
{
    ngx_str_t   s;
    ngx_uint_t  i, n;

    ngx_idempotency_redis_reply_string(reply, &s);
    n = ngx_idempotency_redis_reply_elements(reply);

    *sum = *sum * 31 + ngx_idempotency_redis_reply_type(reply);
    *sum = *sum * 31 + (uint32_t) ngx_idempotency_redis_reply_integer(reply);
    *sum = *sum * 31 + ngx_crc32_short(s.data, s.len);

    for (i = 0; i < n; i++) {
        fuzz_walk(ngx_idempotency_redis_reply_element(reply, i), sum);
    }

    fuzz_want(ngx_idempotency_redis_reply_element(reply, n) == NULL);
}
