
/*
 * Whether a store takes new keys, and why it does not.
 */


#include "ngx_idempotency_store.h"


ngx_str_t  ngx_idempotency_refusals[] = {
    ngx_string("none"),
    ngx_string("unreachable"),
    ngx_string("timeout"),
    ngx_string("protocol"),
    ngx_string("readonly"),
    ngx_string("out_of_memory"),
    ngx_string("no_replicas"),
    ngx_string("not_permitted"),
    ngx_string("misconfigured"),
    ngx_string("loading"),
    ngx_string("moving"),
    ngx_string("forgotten"),
    ngx_string("evicts"),
    ngx_string("no_fsync"),
    ngx_string("full"),
    ngx_string("damaged"),
    ngx_string("other")
};


void
ngx_idempotency_store_refused(ngx_idempotency_store_t *store,
    ngx_idempotency_refusal_e why)
{
    ngx_idempotency_health_t  *health;

    ngx_idempotency_count(store->counts->refused[why]);

    health = store->health;

    if (health == NULL) {
        return;
    }

    if (health->refusing == NGX_IDEMPOTENCY_REFUSAL_NONE) {
        health->since = ngx_time();
    }

    if (health->refusing != why) {
        health->refusing = why;
    }
}


/* reads only, as a rule: the workers share this cache line */

void
ngx_idempotency_store_accepted(ngx_idempotency_store_t *store)
{
    if (store->health
        && store->health->refusing != NGX_IDEMPOTENCY_REFUSAL_NONE)
    {
        store->health->refusing = NGX_IDEMPOTENCY_REFUSAL_NONE;
    }
}
