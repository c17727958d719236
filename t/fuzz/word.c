
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
    time_t                           ttl;
    ngx_http_idempotency_override_e  override;

    (void) pool;

    ttl = -1;
    override = ngx_http_idempotency_policy_override(in, &ttl);

    fuzz_want(ttl == -1 || ttl > 0);
    fuzz_want(ttl == -1 || override != NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE);
    fuzz_want(override == NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE || in->len >= 5);
}
