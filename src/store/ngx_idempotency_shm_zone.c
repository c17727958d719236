
/*
 * The embedded store: the zone, its lock, and its repair after a process
 * died while it held the lock.
 */


#include "ngx_idempotency_shm_move.h"


#define NGX_IDEMPOTENCY_SHM_MAGIC    0x4d454449    /* "IDEM" */
#define NGX_IDEMPOTENCY_SHM_VERSION  1


/* a copy of what is saved: the records, each followed by its answer */

typedef struct {
    u_char      *data;
    size_t       size;
    ngx_uint_t   number;
    ngx_uint_t   answers;       /* which could not be saved */
} ngx_idempotency_shm_copy_t;


static void ngx_idempotency_shm_init_sh(ngx_idempotency_shm_ctx_t *ctx);
static ngx_int_t ngx_idempotency_shm_rebuild(ngx_idempotency_shm_ctx_t *ctx);
static ngx_int_t ngx_idempotency_shm_measure(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_copy_t *copy);
static ngx_int_t ngx_idempotency_shm_check_answer(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_shm_node_t *node);
static ngx_uint_t ngx_idempotency_shm_inside(ngx_idempotency_shm_ctx_t *ctx,
    void *p, size_t size);
static void ngx_idempotency_shm_save(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_copy_t *copy);
static ngx_int_t ngx_idempotency_shm_restore(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_copy_t *copy);
static ngx_int_t ngx_idempotency_shm_restore_node(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_shm_node_t *saved,
    u_char *bytes, uint64_t now, ngx_uint_t *lost);


#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
ngx_uint_t  ngx_idempotency_shm_kill;
#endif


ngx_int_t
ngx_idempotency_shm_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_idempotency_shm_ctx_t  *octx = data;

    ngx_idempotency_shm_sh_t   *sh;
    ngx_idempotency_shm_ctx_t  *ctx;

    ctx = shm_zone->data;

    ctx->shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (octx || shm_zone->shm.exists) {

        sh = octx ? octx->sh : ctx->shpool->data;

        if (sh->magic != NGX_IDEMPOTENCY_SHM_MAGIC
            || sh->version != NGX_IDEMPOTENCY_SHM_VERSION
            || sh->node_size != sizeof(ngx_idempotency_shm_node_t))
        {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "idempotency_store \"%V\": the live zone was "
                          "written by another version of this module and "
                          "cannot be taken over; restart nginx",
                          &shm_zone->shm.name);
            return NGX_ERROR;
        }

        ctx->sh = sh;

        return NGX_OK;
    }

    /*
     * the head is the first page, so that a rebuild finds it there again:
     * every process knows its address
     */

    sh = ngx_slab_alloc(ctx->shpool, ngx_pagesize);
    if (sh == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(sh, sizeof(ngx_idempotency_shm_sh_t));

    ctx->sh = sh;
    ctx->shpool->data = sh;

    sh->magic = NGX_IDEMPOTENCY_SHM_MAGIC;
    sh->version = NGX_IDEMPOTENCY_SHM_VERSION;
    sh->node_size = sizeof(ngx_idempotency_shm_node_t);

    (void) ngx_snprintf(sh->log_ctx, sizeof(sh->log_ctx) - 1,
                        " in idempotency store \"%V\"", &shm_zone->shm.name);

    ngx_idempotency_shm_init_sh(ctx);

    return NGX_OK;
}


static void
ngx_idempotency_shm_init_sh(ngx_idempotency_shm_ctx_t *ctx)
{
    ngx_idempotency_shm_sh_t  *sh;

    sh = ctx->sh;

    ctx->shpool->log_ctx = sh->log_ctx;
    ctx->shpool->log_nomem = 0;

    sh->records = NULL;
    sh->number = 0;

    ngx_rbtree_init(&sh->rbtree, &sh->sentinel, ngx_rbtree_insert_value);
    ngx_rbtree_init(&sh->expire, &sh->expire_sentinel,
                    ngx_rbtree_insert_value);
}


ngx_int_t
ngx_idempotency_shm_lock(ngx_idempotency_shm_ctx_t *ctx)
{
    ngx_idempotency_shm_sh_t  *sh;

    sh = ctx->sh;

    ngx_shmtx_lock(&ctx->shpool->mutex);

    if (sh->mark != NGX_IDEMPOTENCY_SHM_CLEAN) {

        /* ngx_unlock_mutexes() has taken the mutex from a dead process */

        if (sh->mark == NGX_IDEMPOTENCY_SHM_BROKEN) {
            ngx_shmtx_unlock(&ctx->shpool->mutex);
            return NGX_ERROR;
        }

        if (sh->mark != NGX_IDEMPOTENCY_SHM_CHANGING
            || ngx_idempotency_shm_rebuild(ctx) != NGX_OK)
        {
            sh->mark = NGX_IDEMPOTENCY_SHM_BROKEN;

            ngx_shmtx_unlock(&ctx->shpool->mutex);

            ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                          "idempotency store \"%V\" is damaged and refuses "
                          "everything from now on: restart nginx",
                          &ctx->store->name);

            return NGX_ERROR;
        }
    }

    sh->mark = NGX_IDEMPOTENCY_SHM_CHANGING;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    return NGX_OK;
}


void
ngx_idempotency_shm_unlock(ngx_idempotency_shm_ctx_t *ctx)
{
    ngx_idempotency_shm_point();

    ngx_memory_barrier();

    ctx->sh->mark = NGX_IDEMPOTENCY_SHM_CLEAN;

    ngx_memory_barrier();

    ngx_shmtx_unlock(&ctx->shpool->mutex);
}


/*
 * Neither the slab nor the trees can be trusted, the list of records can.
 * Everything is copied out and inserted again into an empty slab.  A death
 * in here leaves the mark, and the next holder refuses.
 */

static ngx_int_t
ngx_idempotency_shm_rebuild(ngx_idempotency_shm_ctx_t *ctx)
{
    ngx_int_t                    rc;
    ngx_idempotency_shm_sh_t    *sh, head;
    ngx_idempotency_shm_copy_t   copy;

    sh = ctx->sh;

    if (ngx_idempotency_shm_measure(ctx, &copy) != NGX_OK) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has a damaged list of "
                      "records", &ctx->store->name);
        return NGX_ERROR;
    }

    copy.data = ngx_alloc(copy.size + 1, ngx_cycle->log);
    if (copy.data == NULL) {
        return NGX_ERROR;
    }

    ngx_idempotency_shm_save(ctx, &copy);

    sh->mark = NGX_IDEMPOTENCY_SHM_REBUILDING;

    ngx_memory_barrier();

    /* ngx_slab_init() leaves mutex, data and addr as they are */

    head = *sh;

    ngx_slab_init(ctx->shpool);

    ngx_idempotency_shm_point();

    if (ngx_slab_alloc_locked(ctx->shpool, ngx_pagesize) != sh) {
        ngx_free(copy.data);
        return NGX_ERROR;
    }

    *sh = head;

    ngx_idempotency_shm_init_sh(ctx);

    rc = ngx_idempotency_shm_restore(ctx, &copy);

    ngx_free(copy.data);

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    sh->rebuilds++;

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "idempotency store \"%V\" was rebuilt after a process died "
                  "changing it: %ui records kept, none lost, "
                  "%ui answers lost",
                  &ctx->store->name, copy.number, copy.answers);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_measure(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_copy_t *copy)
{
    ngx_uint_t                   max;
    ngx_idempotency_shm_node_t  *node;

    ngx_memzero(copy, sizeof(ngx_idempotency_shm_copy_t));

    max = (ctx->shpool->end - ctx->shpool->start)
          / sizeof(ngx_idempotency_shm_node_t);

    for (node = ctx->sh->records; node; node = node->next) {

        if (!ngx_idempotency_shm_inside(ctx, node,
                                        sizeof(ngx_idempotency_shm_node_t))
            || node->state > NGX_IDEMPOTENCY_TOMBSTONE
            || copy->number == max)
        {
            return NGX_ERROR;
        }

        copy->number++;
        copy->size += sizeof(ngx_idempotency_shm_node_t);

        if (node->state != NGX_IDEMPOTENCY_DONE || !node->kept) {
            continue;
        }

        if (ngx_idempotency_shm_check_answer(ctx, node) == NGX_OK) {
            copy->size += (size_t) node->head_len + node->body_len;

        } else {
            node->kept = 0;
            copy->answers++;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_check_answer(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node)
{
    size_t                        len, rest, size;
    ngx_idempotency_shm_piece_t  *piece;

    rest = (size_t) node->head_len + node->body_len;
    rest -= ngx_min(rest, NGX_IDEMPOTENCY_SHM_INLINE);

    for (piece = node->answer; rest; piece = piece->next) {

        size = ngx_idempotency_shm_piece_size(rest);

        if (!ngx_idempotency_shm_inside(ctx, piece, size)) {
            return NGX_ERROR;
        }

        len = size - NGX_IDEMPOTENCY_SHM_PIECE_HEAD;
        rest -= ngx_min(rest, len);
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_idempotency_shm_inside(ngx_idempotency_shm_ctx_t *ctx, void *p,
    size_t size)
{
    u_char  *start;

    /* the first page is the head; a slab slot is aligned to its size */

    start = ctx->shpool->start + ngx_pagesize;

    return (u_char *) p >= start
           && (u_char *) p < ctx->shpool->end
           && (size_t) (ctx->shpool->end - (u_char *) p) >= size
           && ((uintptr_t) p & (size - 1)) == 0;
}


static void
ngx_idempotency_shm_save(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_copy_t *copy)
{
    u_char                        *p;
    ngx_idempotency_shm_node_t    *node;
    ngx_idempotency_shm_reader_t   r;

    p = copy->data;

    for (node = ctx->sh->records; node; node = node->next) {

        p = ngx_cpymem(p, node, sizeof(ngx_idempotency_shm_node_t));

        if (node->state != NGX_IDEMPOTENCY_DONE || !node->kept) {
            continue;
        }

        ngx_idempotency_shm_read_start(node, &r, p);

        while (ngx_idempotency_shm_read(&r) == NGX_AGAIN) { /* void */ }

        p = r.pos;
    }
}


static ngx_int_t
ngx_idempotency_shm_restore(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_copy_t *copy)
{
    u_char                      *p;
    uint64_t                     now;
    ngx_uint_t                   i;
    ngx_idempotency_shm_node_t   saved;

    now = ngx_current_msec;
    p = copy->data;

    for (i = 0; i < copy->number; i++) {

        ngx_memcpy(&saved, p, sizeof(ngx_idempotency_shm_node_t));
        p += sizeof(ngx_idempotency_shm_node_t);

        if (ngx_idempotency_shm_restore_node(ctx, &saved, p, now,
                                             &copy->answers)
            != NGX_OK)
        {
            ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                          "idempotency store \"%V\" has no room for its own "
                          "records", &ctx->store->name);
            return NGX_ERROR;
        }

        if (saved.state == NGX_IDEMPOTENCY_DONE && saved.kept) {
            p += (size_t) saved.head_len + saved.body_len;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_restore_node(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *saved, u_char *bytes, uint64_t now,
    ngx_uint_t *lost)
{
    uint64_t                       due;
    ngx_str_t                      answer;
    ngx_int_t                      rc;
    ngx_idempotency_shm_node_t    *node;
    ngx_idempotency_shm_writer_t   w;

    node = ngx_slab_alloc_locked(ctx->shpool,
                                 sizeof(ngx_idempotency_shm_node_t));
    if (node == NULL) {
        return NGX_ERROR;
    }

    *node = *saved;

    node->answer = NULL;
    ngx_idempotency_shm_free_answer(ctx, node);

    if (saved->state == NGX_IDEMPOTENCY_DONE && saved->kept) {

        answer.len = (size_t) saved->head_len + saved->body_len;
        answer.data = bytes;

        ngx_idempotency_shm_write_start(ctx, node, &w, &answer, NULL, 0);

        do {
            rc = ngx_idempotency_shm_write(ctx, node, &w, 0);
        } while (rc == NGX_AGAIN);

        if (rc == NGX_OK) {
            node->kept = 1;
            node->head_len = saved->head_len;
            node->body_len = saved->body_len;

        } else {
            (*lost)++;
        }
    }

    /*
     * ngx_rbtree_delete() zeroes the key: a record that was just being moved
     * in the tree of time is then due now, a stub in its full time
     */

    due = ngx_idempotency_shm_due(node);

    if (node->state == NGX_IDEMPOTENCY_NONE) {

        node->issued = 0;

        if (due == 0 || due > now + NGX_IDEMPOTENCY_STUB_TTL * 1000) {
            due = now + NGX_IDEMPOTENCY_STUB_TTL * 1000;
        }
    }

    ngx_idempotency_shm_insert(ctx, node, due);

    return NGX_OK;
}
