
/*
 * A key, bare or quoted: what is accepted is one key, however it is written,
 * and what is strict is a key that is accepted otherwise, too.
 */


#include "fuzz.h"
#include "ngx_idempotency_key.h"


#define FUZZ_MAX_KEY  64


static ngx_int_t fuzz_parse(ngx_pool_t *pool, ngx_str_t *value,
    ngx_uint_t strict, ngx_str_t *key);


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    u_char     *p;
    size_t      i;
    ngx_int_t   rc;
    ngx_str_t   key, again, quoted;

    /* what is strict is accepted, and the same key */

    rc = fuzz_parse(pool, in, 1, &again);

    if (fuzz_parse(pool, in, 0, &key) != NGX_OK) {
        fuzz_want(rc != NGX_OK);
        return;
    }

    fuzz_want(rc != NGX_OK
              || (again.len == key.len
                  && ngx_memcmp(again.data, key.data, key.len) == 0));

    fuzz_want(key.len > 0 && key.len <= FUZZ_MAX_KEY && key.len <= in->len);

    p = ngx_pnalloc(pool, 2 * key.len + 4);
    fuzz_want(p != NULL);

    quoted.data = p;
    *p++ = ' ';
    *p++ = '"';

    for (i = 0; i < key.len; i++) {
        fuzz_want(key.data[i] >= 0x20 && key.data[i] < 0x7f);

        if (key.data[i] == '"' || key.data[i] == '\\') {
            *p++ = '\\';
        }

        *p++ = key.data[i];
    }

    *p++ = '"';
    *p++ = ' ';
    quoted.len = p - quoted.data;

    fuzz_want(fuzz_parse(pool, &quoted, 1, &again) == NGX_OK);
    fuzz_want(again.len == key.len
              && ngx_memcmp(again.data, key.data, key.len) == 0);
}


static ngx_int_t
fuzz_parse(ngx_pool_t *pool, ngx_str_t *value, ngx_uint_t strict,
    ngx_str_t *key)
{
    u_char     *p;
    size_t      escapes;
    ngx_int_t   rc;

    rc = ngx_idempotency_key_parse(value, FUZZ_MAX_KEY, strict, key,
                                   &escapes);

    if (rc != NGX_OK) {
        fuzz_want(rc == NGX_ABORT);
        return rc;
    }

    if (escapes) {
        p = ngx_pnalloc(pool, key->len - escapes);
        fuzz_want(p != NULL);
        ngx_idempotency_key_unescape(key, p);
    }

    return NGX_OK;
}
