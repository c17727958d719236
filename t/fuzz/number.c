
/*
 * The number of a sequence: what is accepted is written in one way only.
 */


#include "fuzz.h"
#include "ngx_idempotency_key.h"


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    u_char    *last, text[NGX_INT64_LEN];
    uint64_t   n;

    if (ngx_idempotency_key_number(in, &n) != NGX_OK) {
        return;
    }

    fuzz_want(n <= (uint64_t) -1 >> 1);

    last = ngx_sprintf(text, "%uL", n);

    fuzz_want((size_t) (last - text) == in->len
              && ngx_memcmp(text, in->data, in->len) == 0);
}
