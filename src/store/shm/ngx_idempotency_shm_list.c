
/*
 * The embedded store: the records of one state, some at a time.
 *
 * The cursor is the digest of the last node that was visited, or the begin of
 * a tree.  Records may come and go between two steps.
 */


#include "ngx_idempotency_shm_list.h"
#include "ngx_idempotency_shm_node.h"


/* nodes and trees that are visited while the mutex is held ... */
#define NGX_IDEMPOTENCY_SHM_LIST_STEP   512

/* ... and how often it is taken for one list */
#define NGX_IDEMPOTENCY_SHM_LIST_STEPS  32


static ngx_int_t ngx_idempotency_shm_list_step(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, u_char *digest, uint64_t now);
static ngx_int_t ngx_idempotency_shm_list_look(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node,
    u_char *digest, uint64_t now);


ngx_int_t
ngx_idempotency_shm_list(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_int_t                rc;
    ngx_uint_t               i;
    ngx_idempotency_list_t  *list;
    u_char                   digest[NGX_IDEMPOTENCY_DIGEST_LEN];

    list = op->list;

    ngx_memzero(digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    if (list->cursor.len
        && (list->cursor.len != 2 * NGX_IDEMPOTENCY_DIGEST_LEN
            || ngx_idempotency_record_digest(list->cursor.data, digest)
               != NGX_OK))
    {
        op->result = NGX_IDEMPOTENCY_REFUSED;
        return NGX_OK;
    }

    rc = NGX_AGAIN;

    for (i = 0; rc == NGX_AGAIN && i < NGX_IDEMPOTENCY_SHM_LIST_STEPS; i++) {

        if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
            op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
            return NGX_ERROR;
        }

        rc = ngx_idempotency_shm_list_step(ctx, op, digest, now);

        ngx_idempotency_shm_unlock(ctx);
    }

    if (rc == NGX_ERROR) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    list->cursor.len = 0;

    if (rc != NGX_DONE) {
        (void) ngx_hex_dump(list->text, digest, NGX_IDEMPOTENCY_DIGEST_LEN);
        list->cursor.len = 2 * NGX_IDEMPOTENCY_DIGEST_LEN;
    }

    op->result = NGX_IDEMPOTENCY_OK;

    return NGX_OK;
}


/* NGX_DONE: these were all; NGX_OK: enough for one list; NGX_AGAIN */

static ngx_int_t
ngx_idempotency_shm_list_step(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, u_char *digest, uint64_t now)
{
    ngx_uint_t                   i, last;
    ngx_idempotency_shm_node_t  *node;

    for (i = 0; i < NGX_IDEMPOTENCY_SHM_LIST_STEP; i++) {

        if (op->list->entries.nelts >= NGX_IDEMPOTENCY_LIST_ENTRIES) {
            return NGX_OK;
        }

        last = 0;
        node = ngx_idempotency_shm_next(ctx, digest, &last);

        if (last) {
            return NGX_DONE;
        }

        if (node
            && ngx_idempotency_shm_list_look(ctx, op, node, digest, now)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_AGAIN;
}


/* time acts on a copy: a list changes nothing in the zone */

static ngx_int_t
ngx_idempotency_shm_list_look(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node,
    u_char *digest, uint64_t now)
{
    ngx_idempotency_entry_t   *entry;
    ngx_idempotency_stored_t   stored;
    ngx_idempotency_record_t   record;

    if (node->state >= NGX_IDEMPOTENCY_SHM_MARK
        || ngx_idempotency_record_is_dry(digest))
    {
        return NGX_OK;
    }

    op->list->seen++;

    ngx_idempotency_shm_load(node, &stored);
    ngx_idempotency_transition_time(&stored, now);

    ngx_memzero(&record, sizeof(ngx_idempotency_record_t));
    ngx_idempotency_transition_show(&stored, now, &record);

    if (!stored.exists
        || !ngx_idempotency_list_wants(op->list, record.state, digest))
    {
        return NGX_OK;
    }

    if (stored.note.len) {
        record.note.len = stored.note.len;
        record.note.data = ngx_pstrdup(op->pool, &stored.note);
        if (record.note.data == NULL) {
            return NGX_ERROR;
        }
    }

    entry = ngx_array_push(&op->list->entries);
    if (entry == NULL) {
        return NGX_ERROR;
    }

    entry->record = record;
    entry->sequence = ngx_idempotency_shm_in_sequence(ctx, digest);
    ngx_memcpy(entry->digest, digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    return NGX_OK;
}
