
/*
 * One copy in memory of an answer that several requests replay.
 *
 * A replay to a slow client holds its answer in memory until the last byte is
 * sent.  The operations of this worker that hold large answers are in a table;
 * a request that has read the same answer from the store drops its own copy
 * and uses the operation in the table.
 */


#include "ngx_idempotency_share.h"


#define NGX_IDEMPOTENCY_SHARE_BUCKETS  256


static ngx_uint_t ngx_idempotency_share_is_same(ngx_idempotency_op_t *one,
    ngx_idempotency_op_t *two);
static ngx_int_t ngx_idempotency_share_add(ngx_queue_t *bucket,
    ngx_idempotency_op_t *op);
static void ngx_idempotency_share_remove(void *data);


static ngx_queue_t  ngx_idempotency_share_buckets
                        [NGX_IDEMPOTENCY_SHARE_BUCKETS];


ngx_idempotency_op_t *
ngx_idempotency_share(ngx_idempotency_op_t *op)
{
    ngx_queue_t           *q, *bucket;
    ngx_idempotency_op_t  *other;

    /*
     * The answer of a refused "complete" is sent by the capture filter, behind
     * ngx_http_copy_filter(): ngx_http_charset_recode() may change its bytes.
     */

    if (op->type != NGX_IDEMPOTENCY_CLAIM
        || op->record.body.len < NGX_IDEMPOTENCY_SHARE_MIN
        || op->replays.next)
    {
        return op;
    }

    bucket = &ngx_idempotency_share_buckets[op->id.digest[0]];

    if (bucket->next == NULL) {
        ngx_queue_init(bucket);
    }

    for (q = ngx_queue_head(bucket);
         q != ngx_queue_sentinel(bucket);
         q = ngx_queue_next(q))
    {
        other = ngx_queue_data(q, ngx_idempotency_op_t, replays);

        if (ngx_idempotency_share_is_same(op, other)) {
            ngx_idempotency_op_debug(op, "shares an answer");

            ngx_idempotency_op_drop(op);

            return ngx_idempotency_op_share(other);
        }
    }

    /* if memory is short, the answer is not shared */

    (void) ngx_idempotency_share_add(bucket, op);

    return op;
}


/* are they equal in everything that a replay uses? */

static ngx_uint_t
ngx_idempotency_share_is_same(ngx_idempotency_op_t *one,
    ngx_idempotency_op_t *two)
{
    ngx_idempotency_record_t  *a, *b;

    a = &one->record;
    b = &two->record;

    return one->store == two->store
           && one->result == two->result
           && a->state == b->state
           && a->fence == b->fence
           && a->head.len == b->head.len
           && a->body.len == b->body.len
           && ngx_memcmp(one->id.digest, two->id.digest,
                         NGX_IDEMPOTENCY_DIGEST_LEN)
              == 0
           && ngx_memcmp(a->fingerprint, b->fingerprint,
                         NGX_IDEMPOTENCY_FINGERPRINT_LEN)
              == 0
           && ngx_memcmp(a->head.data, b->head.data, a->head.len) == 0
           && ngx_memcmp(a->body.data, b->body.data, a->body.len) == 0;
}


static ngx_int_t
ngx_idempotency_share_add(ngx_queue_t *bucket, ngx_idempotency_op_t *op)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(op->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_idempotency_share_remove;
    cln->data = op;

    ngx_queue_insert_head(bucket, &op->replays);

    return NGX_OK;
}


/* the pool of the operation is being destroyed */

static void
ngx_idempotency_share_remove(void *data)
{
    ngx_idempotency_op_t *op = data;

    ngx_queue_remove(&op->replays);
}
