
/*
 * The embedded store: operations that take and leave the mutex several
 * times.
 *
 * Anything may happen to a record between two steps.  Each step looks it up
 * again and goes on only if it has the generation that the first step saw.
 */


#include "ngx_idempotency_shm_move.h"
#include "ngx_idempotency_shm_steps.h"
#include "ngx_idempotency_shm_time.h"


/* leases that are renewed while the mutex is held */
#define NGX_IDEMPOTENCY_SHM_LEASES  64

/* milliseconds after which a writer who has not come to an end is dead */
#define NGX_IDEMPOTENCY_SHM_DEAD    60000


static ngx_int_t ngx_idempotency_shm_complete_begin(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op, uint64_t now,
    ngx_idempotency_shm_node_t **found);
static ngx_int_t ngx_idempotency_shm_complete_keep(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op, uint64_t now,
    ngx_idempotency_shm_node_t **found, ngx_idempotency_shm_writer_t *w);
static void ngx_idempotency_shm_complete_log(ngx_idempotency_shm_ctx_t *ctx);
static ngx_int_t ngx_idempotency_shm_renew_lease(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_lease_t *lease,
    uint64_t now);


ngx_int_t
ngx_idempotency_shm_complete(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_int_t                      rc;
    ngx_idempotency_shm_node_t    *node;
    ngx_idempotency_shm_writer_t   w;

    if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return NGX_ERROR;
    }

    rc = ngx_idempotency_shm_complete_begin(ctx, op, now, &node);

    if (rc != NGX_DECLINED) {
        ngx_idempotency_shm_unlock(ctx);
        return rc;
    }

    rc = ngx_idempotency_shm_complete_keep(ctx, op, now, &node, &w);

    if (rc == NGX_ERROR) {
        /* the mutex is not held */
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return NGX_ERROR;
    }

    if (rc == NGX_BUSY) {
        ngx_idempotency_shm_unlock(ctx);
        return NGX_DECLINED;
    }

    /* rc == NGX_OK, or NGX_DECLINED: the answer is not kept */

    ngx_idempotency_shm_move_done(ctx, op, node, (rc == NGX_OK) ? &w : NULL,
                                  now);

    op->result = NGX_IDEMPOTENCY_OK;
    ngx_idempotency_shm_show(op, node, now);

    ngx_idempotency_shm_unlock(ctx);

    if (op->keep && rc == NGX_DECLINED) {
        ngx_idempotency_shm_complete_log(ctx);
    }

    return NGX_OK;
}


/* NGX_DECLINED: the record is there and may be completed */

static ngx_int_t
ngx_idempotency_shm_complete_begin(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now, ngx_idempotency_shm_node_t **found)
{
    ngx_idempotency_lease_t      lease;
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_find(ctx, op->digest, now);

    *found = node;

    if (op->type == NGX_IDEMPOTENCY_RESOLVE) {

        if (node
            && node->fence == op->fence
            && ngx_idempotency_shm_state(node, now) == NGX_IDEMPOTENCY_UNKNOWN)
        {
            return NGX_DECLINED;
        }

        op->result = NGX_IDEMPOTENCY_REFUSED;

        return ngx_idempotency_shm_show_answer(op, node, now);
    }

    if (node == NULL) {

        ngx_idempotency_shm_op_lease(op, &lease);

        *found = ngx_idempotency_shm_move_anew(ctx, &lease,
                                               NGX_IDEMPOTENCY_EXECUTING, now);
        if (*found == NULL) {
            op->error = NGX_IDEMPOTENCY_ERROR_FULL;
            return NGX_ERROR;
        }

        return NGX_DECLINED;
    }

    if (ngx_idempotency_shm_owns(node, op->owner)) {

        switch (node->state) {

        case NGX_IDEMPOTENCY_EXECUTING:
        case NGX_IDEMPOTENCY_UNKNOWN:
            return NGX_DECLINED;

        case NGX_IDEMPOTENCY_DONE:
        case NGX_IDEMPOTENCY_TOMBSTONE:

            op->result = NGX_IDEMPOTENCY_OK;
            ngx_idempotency_shm_show(op, node, now);

            return NGX_OK;

        default:
            break;
        }
    }

    op->result = NGX_IDEMPOTENCY_REFUSED;

    return ngx_idempotency_shm_show_answer(op, node, now);
}


/*
 * Writes the answer beside the record.  NGX_DECLINED: not to be kept, or no
 * room; NGX_BUSY: the record was changed; NGX_ERROR: the zone is broken and
 * the mutex is not held.
 */

static ngx_int_t
ngx_idempotency_shm_complete_keep(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now, ngx_idempotency_shm_node_t **found,
    ngx_idempotency_shm_writer_t *w)
{
    size_t        len;
    ngx_int_t     rc;
    ngx_chain_t  *cl;

    if (!op->keep) {
        return NGX_DECLINED;
    }

    len = 0;

    for (cl = op->body; cl; cl = cl->next) {
        len += cl->buf->last - cl->buf->pos;
    }

    if (op->head.len + len > NGX_MAX_UINT32_VALUE) {
        return NGX_DECLINED;
    }

    if ((*found)->expire.key <= now) {

        /* time must not look at it before its answer is written */

        ngx_idempotency_shm_time_move(ctx, *found,
                                      ngx_idempotency_shm_due(*found));
    }

    ngx_idempotency_shm_write_start(ctx, *found, w, &op->head, op->body, len);

    for ( ;; ) {

        rc = ngx_idempotency_shm_write(ctx, *found, w, now);

        if (rc != NGX_AGAIN) {
            return rc;
        }

        /* if we die now, time shall find what is written so far */

        ngx_idempotency_shm_time_move(ctx, *found,
                                      now + NGX_IDEMPOTENCY_SHM_DEAD);

        ngx_idempotency_shm_unlock(ctx);

        ngx_idempotency_shm_gap();

        if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        *found = ngx_idempotency_shm_lookup(ctx, op->digest);

        if (*found == NULL || (*found)->generation != w->generation) {
            return NGX_BUSY;
        }
    }
}


static void
ngx_idempotency_shm_complete_log(ngx_idempotency_shm_ctx_t *ctx)
{
    if (ctx->lost_logged == ngx_time()) {
        return;
    }

    ctx->lost_logged = ngx_time();

    ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                  "idempotency store \"%V\" has no room for an answer, its "
                  "duplicates will be refused: make the zone larger or the "
                  "ttl shorter", &ctx->store->name);
}


ngx_int_t
ngx_idempotency_shm_renew(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_int_t                 rc;
    ngx_uint_t                i, n;
    ngx_idempotency_lease_t  *lease;

    rc = NGX_OK;
    lease = op->leases->elts;

    for (i = 0; i < op->leases->nelts; i++) {
        lease[i].result = NGX_IDEMPOTENCY_REFUSED;
    }

    for (i = 0; i < op->leases->nelts; /* void */ ) {

        if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
            op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
            return NGX_ERROR;
        }

        n = ngx_min(i + NGX_IDEMPOTENCY_SHM_LEASES, op->leases->nelts);

        for ( /* void */ ; i < n; i++) {
            if (ngx_idempotency_shm_renew_lease(ctx, &lease[i], now)
                != NGX_OK)
            {
                op->error = NGX_IDEMPOTENCY_ERROR_FULL;
                rc = NGX_ERROR;
            }
        }

        ngx_idempotency_shm_unlock(ctx);
    }

    op->result = NGX_IDEMPOTENCY_OK;

    return rc;
}


static ngx_int_t
ngx_idempotency_shm_renew_lease(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_lease_t *lease, uint64_t now)
{
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_find(ctx, lease->digest, now);

    if (node == NULL) {

        node = ngx_idempotency_shm_move_anew(ctx, lease,
                                             NGX_IDEMPOTENCY_EXECUTING, now);
        if (node == NULL) {
            return NGX_ERROR;
        }

        lease->result = NGX_IDEMPOTENCY_OK;

        return NGX_OK;
    }

    if (node->state == NGX_IDEMPOTENCY_EXECUTING
        && ngx_idempotency_shm_owns(node, lease->owner))
    {
        node->lease = now + lease->lease;
        lease->result = NGX_IDEMPOTENCY_OK;
    }

    return NGX_OK;
}


void
ngx_idempotency_shm_op_lease(ngx_idempotency_op_t *op,
    ngx_idempotency_lease_t *lease)
{
    ngx_memcpy(lease->digest, op->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(lease->owner, op->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(lease->fingerprint, op->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    lease->fence = op->fence;
    lease->lease = 0;
    lease->keep = ngx_max(op->ttl, op->tombstone);
}


ngx_uint_t
ngx_idempotency_shm_owns(ngx_idempotency_shm_node_t *node, u_char *owner)
{
    return ngx_memcmp(node->owner, owner, NGX_IDEMPOTENCY_OWNER_LEN) == 0;
}


void
ngx_idempotency_shm_show(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now)
{
    uint64_t                   due;
    ngx_idempotency_record_t  *record;

    if (node == NULL) {
        return;
    }

    record = &op->record;

    record->state = ngx_idempotency_shm_state(node, now);
    record->fence = node->fence;
    record->created = (time_t) node->created;
    record->attempts = node->attempts;

    ngx_idempotency_shm_get_fingerprint(node, record->fingerprint);

    due = ngx_idempotency_shm_due(node);

    if (due > now) {
        record->ttl_left = (time_t) ((due - now + 999) / 1000);
    }

    switch (record->state) {

    case NGX_IDEMPOTENCY_NONE:
        record->ttl_left = 0;
        break;

    case NGX_IDEMPOTENCY_EXECUTING:
    case NGX_IDEMPOTENCY_UNKNOWN:
        if (node->lease > now) {
            record->lease_left = (ngx_msec_t) (node->lease - now);
        }

        break;

    case NGX_IDEMPOTENCY_DONE:
    case NGX_IDEMPOTENCY_TOMBSTONE:
        record->status = node->status;
        record->kept = node->kept;
        break;

    default:
        break;
    }
}


ngx_int_t
ngx_idempotency_shm_show_answer(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now)
{
    u_char                        *p;
    size_t                         len;
    ngx_idempotency_record_t      *record;
    ngx_idempotency_shm_reader_t   r;

    ngx_idempotency_shm_show(op, node, now);

    record = &op->record;

    if (!record->kept) {
        return NGX_OK;
    }

    record->head.len = node->head_len;
    record->body.len = node->body_len;

    len = record->head.len + record->body.len;

    if (len > NGX_IDEMPOTENCY_SHM_STEP) {
        return NGX_AGAIN;
    }

    p = ngx_pnalloc(op->pool, len);
    if (p == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    record->head.data = p;
    record->body.data = p + record->head.len;

    ngx_idempotency_shm_read_start(node, &r, p);

    if (ngx_idempotency_shm_read(&r) != NGX_OK) {
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_shm_read_answer(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op)
{
    u_char                        *p;
    ngx_int_t                      rc;
    ngx_idempotency_record_t      *record;
    ngx_idempotency_shm_node_t    *node;
    ngx_idempotency_shm_reader_t   r;

    record = &op->record;

    p = ngx_palloc(op->pool, record->head.len + record->body.len);
    if (p == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    record->head.data = p;
    record->body.data = p + record->head.len;

    do {

        if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
            op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
            return NGX_ERROR;
        }

        rc = NGX_DECLINED;
        node = ngx_idempotency_shm_lookup(ctx, op->digest);

        if (p) {

            /* the fence names the answer: another one has another fence */

            if (node
                && node->state == NGX_IDEMPOTENCY_DONE
                && node->fence == record->fence
                && node->head_len == record->head.len
                && node->body_len == record->body.len)
            {
                ngx_idempotency_shm_read_start(node, &r, p);
                rc = ngx_idempotency_shm_read(&r);
                p = NULL;
            }

        } else if (node && node->generation == r.generation) {
            rc = ngx_idempotency_shm_read(&r);
        }

        ngx_idempotency_shm_unlock(ctx);

        ngx_idempotency_shm_gap();

    } while (rc == NGX_AGAIN);

    if (rc == NGX_DECLINED) {
        ngx_pfree(op->pool, record->head.data);
    }

    if (rc == NGX_ERROR) {
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
    }

    return rc;
}
