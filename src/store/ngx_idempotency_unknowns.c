
/*
 * Unknown records of a store, for statistics: a list of some, and the number.
 */


#include "ngx_idempotency_store.h"


static ngx_uint_t ngx_idempotency_unknowns_is(
    ngx_idempotency_unknown_t *unknown, u_char *digest);


void
ngx_idempotency_unknowns_note(ngx_idempotency_unknowns_t *unknowns,
    u_char *digest, ngx_uint_t flags, time_t since)
{
    ngx_uint_t                  i;
    ngx_idempotency_unknown_t  *unknown;

    for (i = 0; unknowns->number && i < NGX_IDEMPOTENCY_UNKNOWNS; i++) {
        if (ngx_idempotency_unknowns_is(&unknowns->list[i], digest)) {
            return;
        }
    }

    for (i = 0; i < NGX_IDEMPOTENCY_UNKNOWNS; i++) {
        unknown = &unknowns->list[i];

        if (unknown->state != NGX_IDEMPOTENCY_UNKNOWN_FREE
            || !ngx_atomic_cmp_set(&unknown->state,
                                   NGX_IDEMPOTENCY_UNKNOWN_FREE,
                                   NGX_IDEMPOTENCY_UNKNOWN_WRITING))
        {
            continue;
        }

        (void) ngx_atomic_fetch_add(&unknowns->number, 1);

        unknown->since = since;
        unknown->flags = flags & NGX_IDEMPOTENCY_SEQUENCE;
        ngx_memcpy(unknown->digest, digest, NGX_IDEMPOTENCY_DIGEST_LEN);

        ngx_memory_barrier();

        unknown->state = NGX_IDEMPOTENCY_UNKNOWN_SET;

        return;
    }
}


void
ngx_idempotency_unknowns_forget(ngx_idempotency_unknowns_t *unknowns,
    u_char *digest)
{
    ngx_uint_t                  i;
    ngx_idempotency_unknown_t  *unknown;

    /* two workers may have noted the same record at the same time */

    for (i = 0; unknowns->number && i < NGX_IDEMPOTENCY_UNKNOWNS; i++) {
        unknown = &unknowns->list[i];

        if (ngx_idempotency_unknowns_is(unknown, digest)
            && ngx_atomic_cmp_set(&unknown->state,
                                  NGX_IDEMPOTENCY_UNKNOWN_SET,
                                  NGX_IDEMPOTENCY_UNKNOWN_FREE))
        {
            (void) ngx_atomic_fetch_add(&unknowns->number, -1);
        }
    }
}


static ngx_uint_t
ngx_idempotency_unknowns_is(ngx_idempotency_unknown_t *unknown,
    u_char *digest)
{
    return unknown->state == NGX_IDEMPOTENCY_UNKNOWN_SET
           && ngx_memcmp(unknown->digest, digest, NGX_IDEMPOTENCY_DIGEST_LEN)
              == 0;
}


ngx_int_t
ngx_idempotency_unknowns_next(ngx_idempotency_unknowns_t *unknowns,
    ngx_uint_t *i, ngx_idempotency_unknown_t *unknown)
{
    for ( /* void */ ; *i < NGX_IDEMPOTENCY_UNKNOWNS; (*i)++) {

        if (unknowns->list[*i].state == NGX_IDEMPOTENCY_UNKNOWN_SET) {
            *unknown = unknowns->list[(*i)++];
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


void
ngx_idempotency_unknowns_counting(ngx_idempotency_unknowns_t *unknowns,
    ngx_uint_t number, time_t oldest)
{
    if (unknowns->counted_at == 0) {
        unknowns->counted = number;
        unknowns->counted_oldest = oldest;
    }
}


void
ngx_idempotency_unknowns_counted(ngx_idempotency_unknowns_t *unknowns,
    ngx_uint_t number, time_t oldest)
{
    unknowns->counted = number;
    unknowns->counted_oldest = oldest;
    unknowns->counted_at = ngx_time();
}


void
ngx_idempotency_unknowns_sum(ngx_idempotency_unknowns_t *unknowns,
    ngx_idempotency_unknowns_sum_t *sum)
{
    time_t                     since;
    ngx_uint_t                 i;
    ngx_idempotency_unknown_t  unknown;

    ngx_memzero(sum, sizeof(ngx_idempotency_unknowns_sum_t));

    sum->counted_at = (time_t) unknowns->counted_at;

    i = 0;

    while (ngx_idempotency_unknowns_next(unknowns, &i, &unknown) == NGX_OK) {
        since = (time_t) unknown.since;

        if (sum->number++ == 0 || since < sum->oldest) {
            sum->oldest = since;
        }
    }

    if (unknowns->counted <= NGX_IDEMPOTENCY_UNKNOWNS) {
        return;
    }

    sum->number = ngx_max(sum->number, unknowns->counted);

    since = (time_t) unknowns->counted_oldest;

    if (sum->oldest == 0 || since < sum->oldest) {
        sum->oldest = since;
    }
}
