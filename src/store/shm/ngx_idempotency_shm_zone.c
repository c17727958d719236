
/*
 * The embedded store: the zone and its lock.
 */


#include "ngx_idempotency_shm_answer.h"


#define NGX_IDEMPOTENCY_SHM_MAGIC    0x4d454449    /* "IDEM" */
#define NGX_IDEMPOTENCY_SHM_VERSION  5

/* the trees of a small zone have their roots behind its head */
#define NGX_IDEMPOTENCY_SHM_ROOTS    256


_Static_assert(sizeof(ngx_idempotency_shm_sh_t)
               + NGX_IDEMPOTENCY_SHM_ROOTS * sizeof(ngx_rbtree_node_t *)
               <= 4096,
               "the head of a zone must fit into a page");


static ngx_int_t ngx_idempotency_shm_init_roots(
    ngx_idempotency_shm_ctx_t *ctx);


#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
ngx_uint_t  ngx_idempotency_shm_kill;
ngx_msec_t  ngx_idempotency_shm_pause;
#endif


static ngx_uint_t ngx_idempotency_shm_is_ours(ngx_shm_zone_t *shm_zone);


/*
 * ngx_init_cycle() keeps a zone only if name, size and tag are the same.  The
 * tag is another one when the module was loaded from another file.
 */

ngx_int_t
ngx_idempotency_shm_check_old(ngx_conf_t *cf, ngx_str_t *name, size_t size,
    void *tag)
{
    ngx_uint_t        i;
    ngx_shm_zone_t   *zone;
    ngx_list_part_t  *part;

    part = &cf->cycle->old_cycle->shared_memory.part;
    zone = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return NGX_OK;
            }

            part = part->next;
            zone = part->elts;
            i = 0;
        }

        if (zone[i].shm.name.len == name->len
            && ngx_strncmp(zone[i].shm.name.data, name->data, name->len) == 0)
        {
            break;
        }
    }

    if (zone[i].tag == tag) {

        if (zone[i].shm.size == size) {
            return NGX_OK;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idempotency_store \"%V\": the size of a live zone "
                           "cannot change from %uz to %uz in a reload, it "
                           "would forget every key; restart nginx, or keep "
                           "the size", name, zone[i].shm.size, size);

        return NGX_ERROR;
    }

    if (!ngx_idempotency_shm_is_ours(&zone[i])) {
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "idempotency_store \"%V\": the live zone belongs to "
                       "another copy of this module, a reload would forget "
                       "every key; restart nginx, or load the module from "
                       "where it was", name);

    return NGX_ERROR;
}


static ngx_uint_t
ngx_idempotency_shm_is_ours(ngx_shm_zone_t *shm_zone)
{
    u_char                    *addr;
    ngx_slab_pool_t           *shpool;
    ngx_idempotency_shm_sh_t  *sh;

    addr = shm_zone->shm.addr;

    if (addr == NULL) {
        return 0;
    }

    shpool = (ngx_slab_pool_t *) addr;
    sh = shpool->data;

    if ((u_char *) sh < addr
        || (u_char *) sh > addr + shm_zone->shm.size
                           - sizeof(ngx_idempotency_shm_sh_t))
    {
        return 0;
    }

    return sh->magic == NGX_IDEMPOTENCY_SHM_MAGIC;
}


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
     * the head is the first page: every process knows its address, and after
     * a rebuild it is allocated there again
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

    if (ngx_idempotency_shm_init_roots(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_idempotency_shm_init_sh(ctx);

    if (!ngx_test_config) {
        ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                      "idempotency store \"%V\" begins empty: it is in shared "
                      "memory, which a restart or a binary upgrade of nginx "
                      "does not keep; keys from before are executed again",
                      &shm_zone->shm.name);
    }

    return NGX_OK;
}


/*
 * One tree for each page or two, that is for a dozen records at most: each
 * level of a large tree would cost a cache miss and a TLB miss.
 */

static ngx_int_t
ngx_idempotency_shm_init_roots(ngx_idempotency_shm_ctx_t *ctx)
{
    ngx_uint_t                 n, pages;
    ngx_idempotency_shm_sh_t  *sh;

    sh = ctx->sh;

    n = NGX_IDEMPOTENCY_SHM_ROOTS;
    pages = ctx->shpool->last - ctx->shpool->pages;

    while (n * 2 <= pages) {
        n *= 2;
    }

    sh->mask = n - 1;

    if (n == NGX_IDEMPOTENCY_SHM_ROOTS) {
        sh->roots = (ngx_rbtree_node_t **) (sh + 1);
        return NGX_OK;
    }

    sh->roots = ngx_slab_alloc(ctx->shpool, n * sizeof(ngx_rbtree_node_t *));

    return sh->roots ? NGX_OK : NGX_ERROR;
}


void
ngx_idempotency_shm_init_sh(ngx_idempotency_shm_ctx_t *ctx)
{
    ngx_uint_t                 i;
    ngx_idempotency_shm_sh_t  *sh;

    sh = ctx->sh;

    ctx->shpool->log_ctx = sh->log_ctx;
    ctx->shpool->log_nomem = 0;

    sh->number = 0;
    ngx_memzero(sh->states, sizeof(sh->states));
    sh->due = 0;

    ngx_rbtree_sentinel_init(&sh->sentinel);

    for (i = 0; i <= sh->mask; i++) {
        sh->roots[i] = &sh->sentinel;
    }

    ngx_rbtree_init(&sh->expire, &sh->expire_sentinel,
                    ngx_rbtree_insert_value);
}


ngx_int_t
ngx_idempotency_shm_lock(ngx_idempotency_shm_ctx_t *ctx)
{
    ngx_idempotency_shm_sh_t  *sh;

    sh = ctx->sh;

    ngx_shmtx_lock(&ctx->shpool->mutex);

    if (sh->dirty != NGX_IDEMPOTENCY_SHM_CLEAN) {

        /* the holder died, ngx_unlock_mutexes() has released its mutex */

        if (sh->dirty == NGX_IDEMPOTENCY_SHM_BROKEN
            || ngx_idempotency_shm_rebuild(ctx) != NGX_OK)
        {
            ngx_shmtx_unlock(&ctx->shpool->mutex);
            return NGX_ERROR;
        }
    }

    sh->dirty = NGX_IDEMPOTENCY_SHM_CHANGING;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    return NGX_OK;
}


void
ngx_idempotency_shm_unlock(ngx_idempotency_shm_ctx_t *ctx)
{
    ngx_idempotency_shm_point();

    ngx_memory_barrier();

    ctx->sh->dirty = NGX_IDEMPOTENCY_SHM_CLEAN;

    ngx_memory_barrier();

    ngx_shmtx_unlock(&ctx->shpool->mutex);
}
