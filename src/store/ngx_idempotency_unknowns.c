
/*
 * The unknowns that this nginx has made or met, as far as there is room, and
 * whether they still are.
 */


#include "ngx_idempotency_store.h"


/* asked about at a time */
#define NGX_IDEMPOTENCY_UNKNOWNS_CHECK  8


static ngx_uint_t ngx_idempotency_unknowns_is(
    ngx_idempotency_unknown_t *unknown, u_char *digest);
static void ngx_idempotency_unknowns_ask(ngx_idempotency_store_t *store,
    ngx_idempotency_unknown_t *unknown);
static void ngx_idempotency_unknowns_asked(ngx_idempotency_op_t *op);


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

    /* two workers may have noted the same one at the same moment */

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
ngx_idempotency_unknowns_check(ngx_idempotency_store_t *store)
{
    ngx_uint_t                  i, n;
    ngx_idempotency_unknown_t   unknown;

    if (store->unknowns->number == 0) {
        return;
    }

    i = store->unknowns->checked;

    for (n = 0; n < NGX_IDEMPOTENCY_UNKNOWNS_CHECK; n++) {

        if (ngx_idempotency_unknowns_next(store->unknowns, &i, &unknown)
            != NGX_OK)
        {
            i = 0;
            break;
        }

        ngx_idempotency_unknowns_ask(store, &unknown);
    }

    store->unknowns->checked = i;
}


static void
ngx_idempotency_unknowns_ask(ngx_idempotency_store_t *store,
    ngx_idempotency_unknown_t *unknown)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    op = ngx_idempotency_op_create(store, NGX_IDEMPOTENCY_FETCH);
    if (op == NULL) {
        return;
    }

    ngx_memcpy(op->digest, unknown->digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    op->flags = unknown->flags;
    op->handler = ngx_idempotency_unknowns_asked;

    rc = ngx_idempotency_op_submit(op);

    if (rc != NGX_AGAIN) {
        ngx_idempotency_op_drop(op);
    }
}


/* what the answer means for the list was seen to already */

static void
ngx_idempotency_unknowns_asked(ngx_idempotency_op_t *op)
{
    ngx_idempotency_op_drop(op);
}
