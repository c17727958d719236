
/*
 * One operation on two stores, one part of it at a time.
 */


#include "ngx_idempotency_from_part.h"


static void ngx_idempotency_from_cleanup(void *data);
static ngx_idempotency_op_t *ngx_idempotency_from_part(
    ngx_idempotency_from_t *from, ngx_idempotency_store_t *store,
    ngx_idempotency_op_e type);
static ngx_int_t ngx_idempotency_from_copy_leases(ngx_idempotency_op_t *part,
    ngx_array_t *leases);
static ngx_int_t ngx_idempotency_from_ask(ngx_idempotency_from_t *from,
    ngx_idempotency_op_t *part, ngx_idempotency_from_pt next);
static void ngx_idempotency_from_answered(ngx_idempotency_op_t *part);
static void ngx_idempotency_from_copy_answer(ngx_idempotency_op_t *op);
static ngx_int_t ngx_idempotency_from_memory(ngx_idempotency_op_t *op);


ngx_idempotency_from_t *
ngx_idempotency_from_create(ngx_idempotency_op_t *op)
{
    ngx_pool_cleanup_t      *cln;
    ngx_idempotency_from_t  *from;

    from = ngx_pcalloc(op->pool, sizeof(ngx_idempotency_from_t));
    if (from == NULL) {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(op->pool, 0);
    if (cln == NULL) {
        return NULL;
    }

    if (op->note.len) {

        /* the caller's bytes are gone when the second store gets its part */

        op->note.data = ngx_pstrdup(op->pool, &op->note);
        if (op->note.data == NULL) {
            op->note.len = 0;
        }
    }

    cln->handler = ngx_idempotency_from_cleanup;
    cln->data = from;

    from->op = op;

    return from;
}


static void
ngx_idempotency_from_cleanup(void *data)
{
    ngx_idempotency_from_t *from = data;

    if (from->look) {
        ngx_idempotency_op_drop(from->look);
    }

    if (from->old) {
        ngx_idempotency_op_drop(from->old);
    }

    if (from->new) {
        ngx_idempotency_op_drop(from->new);
    }
}


ngx_int_t
ngx_idempotency_from_ask_old(ngx_idempotency_from_t *from,
    ngx_idempotency_from_pt next)
{
    size_t                    len;
    ngx_idempotency_op_t     *op, *old;
    ngx_idempotency_store_t  *store;

    op = from->op;
    store = op->store->from;

    old = ngx_idempotency_from_part(from, store, op->type);
    if (old == NULL) {
        return ngx_idempotency_from_memory(op);
    }

    len = op->head.len + op->body_len;

    if (store->largest && len > store->largest + NGX_IDEMPOTENCY_STORE_HEAD) {

        /* it could write the record, but not read it again */

        old->keep = 0;
    }

    if (from->old) {

        /* claim: the fence of the new store is higher */

        old->granted = from->new->record.fence;

        ngx_idempotency_op_drop(from->old);
    }

    from->old = old;

    return ngx_idempotency_from_ask(from, old, next);
}


ngx_int_t
ngx_idempotency_from_ask_new(ngx_idempotency_from_t *from,
    ngx_idempotency_op_e type, uint64_t granted,
    ngx_idempotency_from_pt next)
{
    ngx_idempotency_op_t  *new;

    new = ngx_idempotency_from_part(from, from->op->store, type);

    if (new == NULL) {

        /* what the old store has granted is to be taken back */

        from->op->unsure = (from->old != NULL);

        return ngx_idempotency_from_memory(from->op);
    }

    new->part = 1;
    new->granted = granted;

    /* the old store has checked that; the new one may not know the token */

    new->flags &= ~NGX_IDEMPOTENCY_CLAIM_ISSUED;

    from->new = new;

    return ngx_idempotency_from_ask(from, new, next);
}


/* the same question, to one of the stores */

static ngx_idempotency_op_t *
ngx_idempotency_from_part(ngx_idempotency_from_t *from,
    ngx_idempotency_store_t *store, ngx_idempotency_op_e type)
{
    ngx_idempotency_op_t  *op, *part;

    op = from->op;

    part = ngx_idempotency_op_create(store, type);
    if (part == NULL) {
        return NULL;
    }

    part->id = op->id;
    part->flags = op->flags;
    part->fence = op->fence;
    part->lease = op->lease;
    part->ttl = op->ttl;
    part->tombstone = op->tombstone;
    part->note = op->note;
    part->status = op->status;
    part->head = op->head;
    part->body = op->body;
    part->body_len = op->body_len;
    part->keep = op->keep;
    part->executed = op->executed;
    part->connection = op->connection;

    if (op->leases
        && ngx_idempotency_from_copy_leases(part, op->leases) != NGX_OK)
    {
        ngx_idempotency_op_drop(part);
        return NULL;
    }

    return part;
}


static ngx_int_t
ngx_idempotency_from_copy_leases(ngx_idempotency_op_t *part,
    ngx_array_t *leases)
{
    ngx_uint_t                i;
    ngx_idempotency_lease_t  *line;

    part->leases = ngx_array_create(part->pool, leases->nelts,
                                    sizeof(ngx_idempotency_lease_t));
    if (part->leases == NULL) {
        return NGX_ERROR;
    }

    line = ngx_array_push_n(part->leases, leases->nelts);
    if (line == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(line, leases->elts,
               leases->nelts * sizeof(ngx_idempotency_lease_t));

    /* until it is known to be renewed */

    for (i = 0; i < leases->nelts; i++) {
        line[i].result = NGX_IDEMPOTENCY_REFUSED;
    }

    return NGX_OK;
}


/* what is done next is done at once, or when the store has answered */

static ngx_int_t
ngx_idempotency_from_ask(ngx_idempotency_from_t *from,
    ngx_idempotency_op_t *part, ngx_idempotency_from_pt next)
{
    part->handler = ngx_idempotency_from_answered;
    part->data = from;

    from->next = next;

    if (ngx_idempotency_op_submit(part) != NGX_AGAIN) {
        return next(from);
    }

    if (part == from->old && from->op->keep) {

        /* the caller's bytes are gone when the new store gets its part */

        ngx_idempotency_from_copy_answer(from->op);
    }

    return NGX_AGAIN;
}


static void
ngx_idempotency_from_answered(ngx_idempotency_op_t *part)
{
    ngx_idempotency_op_t    *op;
    ngx_idempotency_from_t  *from;

    from = part->data;
    op = from->op;

    if (from->next(from) != NGX_AGAIN) {
        ngx_idempotency_op_done(op);
    }
}


/* without memory for it: executed, and its answer is not kept */

static void
ngx_idempotency_from_copy_answer(ngx_idempotency_op_t *op)
{
    u_char       *p;
    ngx_buf_t    *b;
    ngx_chain_t  *cl, *copy;

    b = ngx_create_temp_buf(op->pool, op->head.len + op->body_len + 1);
    copy = ngx_alloc_chain_link(op->pool);

    if (b == NULL || copy == NULL) {
        op->keep = 0;
        op->body = NULL;
        op->body_len = 0;

        ngx_str_null(&op->head);

        return;
    }

    p = ngx_cpymem(b->pos, op->head.data, op->head.len);

    op->head.data = b->pos;
    b->pos = p;

    for (cl = op->body; cl; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    b->last = p;

    copy->buf = b;
    copy->next = NULL;

    op->body = copy;
}


void
ngx_idempotency_from_behind(ngx_idempotency_from_t *from,
    ngx_idempotency_store_t *store, ngx_idempotency_op_e type,
    uint64_t fence)
{
    ngx_idempotency_op_t  *op;

    op = ngx_idempotency_from_part(from, store, type);
    if (op == NULL) {
        return;
    }

    op->part = (store == from->op->store);
    op->fence = fence;
    op->keep = 0;

    (void) ngx_idempotency_op_submit(op);

    ngx_idempotency_op_drop(op);
}


ngx_int_t
ngx_idempotency_from_result(ngx_idempotency_from_t *from,
    ngx_idempotency_op_t *part)
{
    ngx_idempotency_op_t  *op;

    op = from->op;

    op->result = part->result;
    op->error = part->error;
    op->refusal = part->refusal;
    op->record = part->record;
    op->expects = part->expects;
    op->expected = part->expected;
    op->unsure = part->unsure;

    if (op->error == NGX_IDEMPOTENCY_ERROR_NONE) {
        return NGX_OK;
    }

    if (part == from->old && op->error != NGX_IDEMPOTENCY_ERROR_MEMORY) {
        op->refusal = NGX_IDEMPOTENCY_REFUSAL_OLD_STORE;
    }

    return NGX_ERROR;
}


static ngx_int_t
ngx_idempotency_from_memory(ngx_idempotency_op_t *op)
{
    op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;

    return NGX_ERROR;
}
