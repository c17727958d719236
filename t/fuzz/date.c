
/*
 * The date of a repeatable request: what is accepted is what nginx writes for
 * that second, but for the name of the day and a leap second.
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
    time_t                          t;
    u_char                          text[sizeof("Mon, 28 Sep 1970 "
                                                "06:00:00 GMT")];
    ngx_http_idempotency_verdict_e  verdict;

    verdict = ngx_http_idempotency_policy_first_sent(in, 0, 1);

    if (verdict == NGX_HTTP_IDEMPOTENCY_FIRST_SENT_INVALID) {
        return;
    }

    fuzz_want(in->len == sizeof(text) - 1);

    if (ngx_strncmp(in->data + 23, "60", 2) == 0) {
        return;
    }

    t = ngx_parse_http_time(in->data, in->len);

    fuzz_want(t != NGX_ERROR);

    ngx_http_time(text, t);

    fuzz_want(ngx_memcmp(text + 3, in->data + 3, in->len - 3) == 0);

    /* and the second is the same */

    fuzz_want(ngx_http_idempotency_policy_first_sent(in, t, 1)
              == NGX_HTTP_IDEMPOTENCY_EXECUTE);
    fuzz_want(ngx_http_idempotency_policy_first_sent(in, t + 2, 1)
              == NGX_HTTP_IDEMPOTENCY_FIRST_SENT_EXPIRED);
    fuzz_want(ngx_http_idempotency_policy_first_sent(in, t - 1, 1)
              == NGX_HTTP_IDEMPOTENCY_FIRST_SENT_EXPIRED);
}
