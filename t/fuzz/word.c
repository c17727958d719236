
/*
 * What an upstream says in X-Accel-Idempotency.
 */


#include "fuzz.h"
#include "ngx_http_idempotency_policy.h"


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    time_t                       ttl;
    ngx_http_idempotency_word_e  word;

    (void) pool;

    ttl = -1;
    word = ngx_http_idempotency_policy_word(in, &ttl);

    fuzz_want(ttl == -1 || ttl > 0);
    fuzz_want(ttl == -1 || word != NGX_HTTP_IDEMPOTENCY_WORD_NONE);
    fuzz_want(word == NGX_HTTP_IDEMPOTENCY_WORD_NONE || in->len >= 5);
}
