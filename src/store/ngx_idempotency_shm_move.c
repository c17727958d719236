
/*
 * The embedded store: every change of a record.
 *
 * Each move writes the fields of the new state first and the state last, so
 * that a process that dies in between leaves the old one.
 */


#include "ngx_idempotency_shm_move.h"
#include "ngx_idempotency_shm_time.h"


/* overdue records that make room for one allocation, at a time */
#define NGX_IDEMPOTENCY_SHM_EXPIRE    64

/* and how often, before others are let to the mutex */
#define NGX_IDEMPOTENCY_SHM_ROUNDS    16


static ngx_idempotency_shm_node_t *ngx_idempotency_shm_settle(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_shm_node_t *node,
    uint64_t now);
static void ngx_idempotency_shm_set_state(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_state_e state);
static ngx_idempotency_shm_node_t *ngx_idempotency_shm_create_node(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest, uint64_t now);
static void ngx_idempotency_shm_set_claim(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);
static uint64_t ngx_idempotency_shm_fence(ngx_idempotency_shm_ctx_t *ctx);
static void ngx_idempotency_shm_keep_stub(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t now);
static uint32_t ngx_idempotency_shm_seconds(time_t sec);


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_find(ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    uint64_t now)
{
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_lookup(ctx, digest);
    if (node == NULL) {
        return NULL;
    }

    return ngx_idempotency_shm_settle(ctx, node, now);
}


/* what time does: done -> tombstone, and what is overdue -> nothing */

static ngx_idempotency_shm_node_t *
ngx_idempotency_shm_settle(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t now)
{
    uint64_t  due;

    due = ngx_idempotency_shm_due(node);

    if (now < due) {
        return node;
    }

    if (node->state == NGX_IDEMPOTENCY_DONE) {

        due += (uint64_t) node->tombstone * 1000;

        if (now < due) {
            ngx_idempotency_shm_time_move(ctx, node, due);
            ngx_idempotency_shm_set_state(ctx, node,
                                          NGX_IDEMPOTENCY_TOMBSTONE);
            ngx_idempotency_shm_free_answer(ctx, node);

            return node;
        }
    }

    ngx_idempotency_shm_remove(ctx, node);

    return NULL;
}


uint64_t
ngx_idempotency_shm_due(ngx_idempotency_shm_node_t *node)
{
    switch (node->state) {

    case NGX_IDEMPOTENCY_EXECUTING:
    case NGX_IDEMPOTENCY_UNKNOWN:
        return node->lease + (uint64_t) node->keep * 1000;

    case NGX_IDEMPOTENCY_ISSUED:
        return node->issued;

    case NGX_IDEMPOTENCY_SHM_MARK:
        return node->lease;

    default:
        return node->expire.key;
    }
}


ngx_idempotency_state_e
ngx_idempotency_shm_state(ngx_idempotency_shm_node_t *node, uint64_t now)
{
    if (node->state == NGX_IDEMPOTENCY_EXECUTING && node->lease <= now) {
        return NGX_IDEMPOTENCY_UNKNOWN;
    }

    return node->state;
}


ngx_uint_t
ngx_idempotency_shm_expire(ngx_idempotency_shm_ctx_t *ctx, uint64_t now,
    ngx_uint_t n)
{
    ngx_uint_t                   i;
    ngx_idempotency_shm_node_t  *node;

    for (i = 0; i < n; i++) {

        node = ngx_idempotency_shm_time_next(ctx, now);
        if (node == NULL) {
            break;
        }

        node = ngx_idempotency_shm_settle(ctx, node, now);

        if (node && node->answer && !node->kept) {

            /* of a writer who died; one who lives will begin anew */

            node->generation = ++ctx->sh->generation;
            ngx_idempotency_shm_free_answer(ctx, node);
        }

        if (node) {
            ngx_idempotency_shm_time_move(ctx, node,
                                          ngx_idempotency_shm_due(node));
        }
    }

    return i;
}


void *
ngx_idempotency_shm_alloc(ngx_idempotency_shm_ctx_t *ctx, size_t size,
    uint64_t now)
{
    void        *p;
    ngx_uint_t   i;

    for (i = 0; /* void */ ; i++) {

        p = ngx_slab_alloc_locked(ctx->shpool, size);
        if (p) {
            return p;
        }

        /* a record that goes makes room for another one, not for a page */

        if (i == NGX_IDEMPOTENCY_SHM_ROUNDS
            && size != sizeof(ngx_idempotency_shm_node_t))
        {
            return NULL;
        }

        if (ngx_idempotency_shm_expire(ctx, now, NGX_IDEMPOTENCY_SHM_EXPIRE)
            == 0)
        {
            return NULL;
        }
    }
}


static ngx_idempotency_shm_node_t *
ngx_idempotency_shm_create_node(ngx_idempotency_shm_ctx_t *ctx,
    u_char *digest, uint64_t now)
{
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_alloc(ctx, sizeof(ngx_idempotency_shm_node_t),
                                     now);
    if (node == NULL) {
        return NULL;
    }

    ngx_memzero(node, sizeof(ngx_idempotency_shm_node_t));

    ngx_memcpy(&node->node.key, digest, sizeof(ngx_rbtree_key_t));
    ngx_memcpy(node->digest, digest + sizeof(ngx_rbtree_key_t),
               NGX_IDEMPOTENCY_SHM_DIGEST_REST);

    node->created = ngx_time();

    return node;
}


static void
ngx_idempotency_shm_set_state(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_state_e state)
{
    node->generation = ++ctx->sh->generation;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    ctx->sh->states[node->state]--;
    ctx->sh->states[state]++;

    node->state = (u_char) state;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_move_new(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_create_node(ctx, op->digest, now);
    if (node == NULL) {
        return NULL;
    }

    ngx_idempotency_shm_set_claim(ctx, op, node, now);
    node->state = NGX_IDEMPOTENCY_EXECUTING;

    ngx_idempotency_shm_insert(ctx, node, ngx_idempotency_shm_due(node));

    return node;
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_move_anew(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_lease_t *lease, ngx_idempotency_state_e state,
    uint64_t now)
{
    time_t                       keep;
    uint64_t                     due;
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_create_node(ctx, lease->digest, now);
    if (node == NULL) {
        return NULL;
    }

    ngx_memcpy(node->owner, lease->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_idempotency_shm_set_fingerprint(node, lease->fingerprint);

    if (lease->fence) {
        node->fence = lease->fence;
        ctx->sh->fence = ngx_max(ctx->sh->fence, lease->fence);

    } else {
        node->fence = ngx_idempotency_shm_fence(ctx);
    }

    keep = ngx_max(lease->keep, NGX_IDEMPOTENCY_UNKNOWN_TTL);

    node->attempts = 1;
    node->lease = now + lease->lease;
    node->keep = ngx_idempotency_shm_seconds(keep);
    node->state = (u_char) state;

    due = ngx_idempotency_shm_due(node);

    if (state == NGX_IDEMPOTENCY_NONE) {
        node->keep = NGX_IDEMPOTENCY_STUB_TTL;
        due = now + NGX_IDEMPOTENCY_STUB_TTL * 1000;
    }

    ngx_idempotency_shm_insert(ctx, node, due);

    return node;
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_move_issue(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    uint64_t  due;

    due = now + (uint64_t) ngx_idempotency_shm_seconds(op->ttl) * 1000;

    if (node) {
        node->fence = ngx_idempotency_shm_fence(ctx);
        node->created = ngx_time();
        node->issued = due;

        ngx_idempotency_shm_set_state(ctx, node, NGX_IDEMPOTENCY_ISSUED);
        ngx_idempotency_shm_time_move(ctx, node, due);

        return node;
    }

    node = ngx_idempotency_shm_create_node(ctx, op->digest, now);
    if (node == NULL) {
        return NULL;
    }

    node->fence = ngx_idempotency_shm_fence(ctx);
    node->issued = due;
    node->state = NGX_IDEMPOTENCY_ISSUED;

    ngx_idempotency_shm_insert(ctx, node, due);

    return node;
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_move_mark(ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    u_char *count, size_t len, uint64_t due, uint64_t now)
{
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_create_node(ctx, digest, now);
    if (node == NULL) {
        return NULL;
    }

    ngx_memcpy(node->fingerprint, count, len);

    node->lease = due;
    node->state = NGX_IDEMPOTENCY_SHM_MARK;

    ngx_idempotency_shm_insert(ctx, node, due);

    return node;
}


void
ngx_idempotency_shm_move_take(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    if (node->state == NGX_IDEMPOTENCY_EXECUTING) {
        /* its lease is over; a torn change must not look alive */
        ngx_idempotency_shm_set_state(ctx, node, NGX_IDEMPOTENCY_UNKNOWN);
    }

    if (node->state != NGX_IDEMPOTENCY_UNKNOWN) {
        node->created = ngx_time();
    }

    ngx_idempotency_shm_free_answer(ctx, node);
    ngx_idempotency_shm_set_claim(ctx, op, node, now);

    ngx_idempotency_shm_set_state(ctx, node, NGX_IDEMPOTENCY_EXECUTING);
    ngx_idempotency_shm_time_move(ctx, node, ngx_idempotency_shm_due(node));
}


static void
ngx_idempotency_shm_set_claim(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    time_t  keep;

    ngx_memcpy(node->owner, op->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_idempotency_shm_set_fingerprint(node, op->fingerprint);

    keep = ngx_max(op->ttl, op->tombstone);
    keep = ngx_max(keep, NGX_IDEMPOTENCY_UNKNOWN_TTL);

    node->fence = ngx_idempotency_shm_fence(ctx);
    node->attempts++;
    node->lease = now + op->lease;
    node->keep = ngx_idempotency_shm_seconds(keep);
}


void
ngx_idempotency_shm_move_done(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node,
    ngx_idempotency_shm_writer_t *w, uint64_t now)
{
    uint64_t  ttl;

    if (w) {
        node->kept = 1;
        node->head_len = (uint32_t) w->head_len;
        node->body_len = (uint32_t) w->body_len;

    } else {
        ngx_idempotency_shm_free_answer(ctx, node);
    }

    if (op->type == NGX_IDEMPOTENCY_RESOLVE) {
        /* the answer is not the owner's, who must not take it for its own */
        ngx_memzero(node->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    }

    ttl = (uint64_t) ngx_idempotency_shm_seconds(op->ttl) * 1000;

    node->status = (uint16_t) op->status;
    node->tombstone = ngx_idempotency_shm_seconds(op->tombstone);

    ngx_idempotency_shm_time_move(ctx, node, now + ttl);
    ngx_idempotency_shm_set_state(ctx, node, NGX_IDEMPOTENCY_DONE);
}


void
ngx_idempotency_shm_move_unknown(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t now)
{
    node->lease = now;

    ngx_idempotency_shm_set_state(ctx, node, NGX_IDEMPOTENCY_UNKNOWN);
    ngx_idempotency_shm_free_answer(ctx, node);
}


void
ngx_idempotency_shm_move_probe(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    ngx_idempotency_shm_move_unknown(ctx, node, now);

    node->fence = ngx_idempotency_shm_fence(ctx);
    node->lease = now + op->lease;
}


void
ngx_idempotency_shm_move_back(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    if (node->issued <= now) {
        ngx_idempotency_shm_move_none(ctx, op, node, now);
        return;
    }

    ngx_idempotency_shm_set_state(ctx, node, NGX_IDEMPOTENCY_ISSUED);
    ngx_idempotency_shm_time_move(ctx, node, node->issued);
    ngx_idempotency_shm_free_answer(ctx, node);
}


void
ngx_idempotency_shm_move_none(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    /* the time of a stub would be too short for what it was before */

    ngx_idempotency_shm_set_state(ctx, node, NGX_IDEMPOTENCY_NONE);

    if (!ngx_idempotency_shm_in_sequence(ctx, op->digest)) {
        /* else it says for as long as it may that the number is free */
        node->keep = NGX_IDEMPOTENCY_STUB_TTL;
    }

    ngx_idempotency_shm_keep_stub(ctx, node, now);
    ngx_idempotency_shm_free_answer(ctx, node);

    node->issued = 0;
    node->status = 0;
}


void
ngx_idempotency_shm_move_refuse(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    ngx_memcpy(node->owner, op->owner, NGX_IDEMPOTENCY_OWNER_LEN);

    if (node->state == NGX_IDEMPOTENCY_NONE) {
        ngx_idempotency_shm_keep_stub(ctx, node, now);
    }
}


static void
ngx_idempotency_shm_keep_stub(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t now)
{
    ngx_idempotency_shm_time_move(ctx, node,
                                  now + (uint64_t) node->keep * 1000);
}


static uint64_t
ngx_idempotency_shm_fence(ngx_idempotency_shm_ctx_t *ctx)
{
    uint64_t        usec;
    struct timeval  tv;

    ngx_gettimeofday(&tv);

    usec = (uint64_t) tv.tv_sec * 1000000 + tv.tv_usec;

    ctx->sh->fence = ngx_max(ctx->sh->fence + 1, usec);

    return ctx->sh->fence;
}


static uint32_t
ngx_idempotency_shm_seconds(time_t sec)
{
    if (sec < 0) {
        return 0;
    }

    return (uint32_t) ngx_min(sec, (time_t) NGX_MAX_UINT32_VALUE);
}
