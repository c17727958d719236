
/*
 * The marks of sequences: how far each source has come.
 *
 * A mark is a node of the zone among the records, in a state of its own.  It
 * is written after the record of a claim: a process that dies in between leaves
 * a record beyond its mark, and whoever meets that moves the mark.
 */


#include "ngx_idempotency_shm_mark.h"
#include "ngx_idempotency_shm_move.h"
#include "ngx_idempotency_shm_steps.h"


/* "next" is the lowest number that was never claimed */

typedef struct {
    uint64_t                       epoch;
    uint64_t                       next;
} ngx_idempotency_shm_count_t;


_Static_assert(2 * sizeof(ngx_idempotency_shm_count_t)
               <= NGX_IDEMPOTENCY_FINGERPRINT_SUM,
               "a mark has room for two counts");


static ngx_idempotency_shm_node_t *ngx_idempotency_shm_mark_find(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op, uint64_t now,
    u_char *digest, ngx_idempotency_shm_count_t *count);
static ngx_int_t ngx_idempotency_shm_mark_judge(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_shm_count_t *count,
    ngx_uint_t *below);
static ngx_int_t ngx_idempotency_shm_mark_expect(ngx_idempotency_op_t *op,
    uint64_t number);
static void ngx_idempotency_shm_mark_set(ngx_idempotency_shm_node_t *mark,
    uint64_t epoch, uint64_t next);


ngx_int_t
ngx_idempotency_shm_mark_claim(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now,
    ngx_idempotency_shm_op_pt claim)
{
    u_char                        digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    uint64_t                      due;
    ngx_int_t                     rc;
    ngx_uint_t                    below, made;
    ngx_idempotency_shm_node_t   *mark;
    ngx_idempotency_shm_count_t   count;

    below = 0;
    made = 0;

    mark = ngx_idempotency_shm_mark_find(ctx, op, now, digest, &count);

    if (mark
        && ngx_idempotency_shm_mark_judge(op, node, &count, &below) != NGX_OK)
    {
        op->result = NGX_IDEMPOTENCY_OUT_OF_ORDER;
        return NGX_OK;
    }

    due = now + 1000 * (uint64_t) (ngx_max(op->ttl + op->tombstone,
                                           NGX_IDEMPOTENCY_UNKNOWN_TTL)
                                   + NGX_IDEMPOTENCY_MARK_TTL);

    if (mark == NULL) {
        count.epoch = op->epoch;
        count.next = op->number;

        mark = ngx_idempotency_shm_move_mark(ctx, digest, (u_char *) &count,
                                         sizeof(ngx_idempotency_shm_count_t),
                                         due, now);
        if (mark == NULL) {
            op->error = NGX_IDEMPOTENCY_ERROR_FULL;
            return NGX_ERROR;
        }

        made = 1;
    }

    rc = claim(ctx, op, node, now);

    if (rc == NGX_ERROR
        || (op->result != NGX_IDEMPOTENCY_GRANTED
            && op->result != NGX_IDEMPOTENCY_EXISTS))
    {
        if (made) {
            ngx_idempotency_shm_remove(ctx, mark);
        }

        return rc;
    }

    if (!below) {
        ngx_idempotency_shm_mark_set(mark, op->epoch, op->number + 1);
    }

    if (op->result == NGX_IDEMPOTENCY_GRANTED) {
        mark->lease = ngx_max(mark->lease, due);
    }

    return rc;
}


static ngx_idempotency_shm_node_t *
ngx_idempotency_shm_mark_find(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now, u_char *digest,
    ngx_idempotency_shm_count_t *count)
{
    ngx_idempotency_shm_node_t  *mark;

    ngx_idempotency_shm_mark_digest(digest, op->digest);

    mark = ngx_idempotency_shm_find(ctx, digest, now);

    if (mark) {
        ngx_memcpy(count, mark->fingerprint
                          + mark->status * sizeof(ngx_idempotency_shm_count_t),
                   sizeof(ngx_idempotency_shm_count_t));
    }

    return mark;
}


/* NGX_DECLINED: it is not the turn of this number */

static ngx_int_t
ngx_idempotency_shm_mark_judge(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_shm_count_t *count,
    ngx_uint_t *below)
{
    ngx_uint_t  known, strict;

    known = node && node->state != NGX_IDEMPOTENCY_NONE;
    strict = op->flags & NGX_IDEMPOTENCY_SEQUENCE_STRICT;

    if (op->epoch < count->epoch) {
        return NGX_DECLINED;
    }

    if (op->epoch > count->epoch) {

        /* the count begins anew, with 0 or with 1 */

        return (known || !strict || op->number <= 1)
               ? NGX_OK : ngx_idempotency_shm_mark_expect(op, 0);
    }

    if (op->number < count->next) {
        *below = 1;

        /* known, or released */

        return node ? NGX_OK
                    : ngx_idempotency_shm_mark_expect(op, count->next);
    }

    return (known || !strict || op->number == count->next)
           ? NGX_OK : ngx_idempotency_shm_mark_expect(op, count->next);
}


static ngx_int_t
ngx_idempotency_shm_mark_expect(ngx_idempotency_op_t *op, uint64_t number)
{
    if (op->flags & NGX_IDEMPOTENCY_SEQUENCE_STRICT) {
        op->expects = 1;
        op->expected = number;
    }

    return NGX_DECLINED;
}


/* one count is valid at every instant: the other one is written */

static void
ngx_idempotency_shm_mark_set(ngx_idempotency_shm_node_t *mark, uint64_t epoch,
    uint64_t next)
{
    uint16_t                      i;
    ngx_idempotency_shm_count_t   count;

    i = !mark->status;

    count.epoch = epoch;
    count.next = next;

    ngx_memcpy(mark->fingerprint + i * sizeof(ngx_idempotency_shm_count_t),
               &count, sizeof(ngx_idempotency_shm_count_t));

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    mark->status = i;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();
}


ngx_int_t
ngx_idempotency_shm_mark_release(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now,
    ngx_idempotency_shm_op_pt release)
{
    u_char                        digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_int_t                     rc;
    ngx_idempotency_shm_node_t   *mark;
    ngx_idempotency_shm_count_t   count;

    if (node == NULL) {

        /* a stub would make it look as if it had been claimed and released */

        op->result = NGX_IDEMPOTENCY_OK;
        return NGX_OK;
    }

    if (node->state != NGX_IDEMPOTENCY_EXECUTING
        || !ngx_idempotency_shm_owns(node, op->owner))
    {
        return release(ctx, op, node, now);
    }

    rc = release(ctx, op, node, now);

    mark = ngx_idempotency_shm_mark_find(ctx, op, now, digest, &count);

    if (mark && count.epoch == op->epoch && count.next == op->number + 1) {
        ngx_idempotency_shm_mark_set(mark, op->epoch, op->number);
    }

    return rc;
}
