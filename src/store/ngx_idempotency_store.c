
/*
 * The store interface: the life of an operation.
 */


#include "ngx_idempotency_store.h"


/*
 * Fits an operation and the answer of a small record, and is what malloc()
 * of glibc gives from a cache of its own.
 */
#define NGX_IDEMPOTENCY_OP_POOL_SIZE  1024


ngx_idempotency_op_t *
ngx_idempotency_op_create(ngx_idempotency_store_t *store,
    ngx_idempotency_op_e type)
{
    ngx_pool_t            *pool;
    ngx_idempotency_op_t  *op;

    /* the operation may outlive its request and that request's log */

    pool = ngx_create_pool(NGX_IDEMPOTENCY_OP_POOL_SIZE, ngx_cycle->log);
    if (pool == NULL) {
        return NULL;
    }

    op = ngx_pcalloc(pool, sizeof(ngx_idempotency_op_t));
    if (op == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    op->pool = pool;
    op->store = store;
    op->type = type;

    return op;
}


ngx_int_t
ngx_idempotency_op_submit(ngx_idempotency_op_t *op)
{
    ngx_int_t  rc;

    op->submitted = ngx_current_msec;

    rc = op->store->submit(op);

    op->pending = (rc == NGX_AGAIN);

    return rc;
}


void
ngx_idempotency_op_drop(ngx_idempotency_op_t *op)
{
    if (op->pending) {
        op->detached = 1;
        op->handler = NULL;
        op->data = NULL;
        return;
    }

    ngx_destroy_pool(op->pool);
}


void
ngx_idempotency_op_done(ngx_idempotency_op_t *op)
{
    op->pending = 0;

    if (op->detached) {
        ngx_destroy_pool(op->pool);
        return;
    }

    if (op->handler) {
        op->handler(op);
    }
}
