
/*
 * The embedded store: the repair of a zone whose last holder died.
 *
 * Neither the slab nor the trees can be trusted then, only the list of all
 * nodes, which is intact at every instant.  Nodes keep their addresses: the
 * slab is initialized and allocated up to the last slot, in such an order that
 * each page gets the slot size that it had, and then every slot is freed that
 * no node uses.
 *
 * This relies on ngx_slab_alloc() giving the lowest free page and slot, and
 * checks it: with another order the rebuild fails.
 */


#include "ngx_idempotency_shm_answer.h"


/* the smallest slot in use, as a shift */
#define NGX_IDEMPOTENCY_SHM_MIN_SHIFT  5


/* what the list of records says about the pages of the slab */

typedef struct {
    ngx_uint_t                   pages;
    u_char                      *shift;     /* of slots in a page, 0: free */
    u_char                      *used;      /* a bit for each smallest slot */
    ngx_uint_t                   number;
    ngx_uint_t                   lost;      /* answers */
} ngx_idempotency_shm_map_t;


static ngx_int_t ngx_idempotency_shm_map(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map);
static void ngx_idempotency_shm_map_answer(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, ngx_idempotency_shm_node_t *node);
static ngx_int_t ngx_idempotency_shm_map_pieces(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, ngx_idempotency_shm_node_t *node,
    ngx_uint_t mark);
static void ngx_idempotency_shm_map_note(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, ngx_idempotency_shm_node_t *node);
static ngx_int_t ngx_idempotency_shm_map_slot(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, void *p, size_t size, ngx_uint_t mark);
static ngx_int_t ngx_idempotency_shm_rebuild_slab(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_shm_map_t *map);
static ngx_int_t ngx_idempotency_shm_fill_page(ngx_idempotency_shm_ctx_t *ctx,
    u_char *page, size_t size);
static void ngx_idempotency_shm_free_page(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, u_char *page, size_t size);
static ngx_uint_t ngx_idempotency_shm_used(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, u_char *p);
static void ngx_idempotency_shm_rebuild_trees(ngx_idempotency_shm_ctx_t *ctx);


ngx_int_t
ngx_idempotency_shm_rebuild(ngx_idempotency_shm_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_idempotency_shm_map_t   map;

    ngx_memzero(&map, sizeof(ngx_idempotency_shm_map_t));

    map.pages = ctx->shpool->last - ctx->shpool->pages;

    map.shift = ngx_calloc(map.pages
                           + (map.pages << (ngx_pagesize_shift
                                            - NGX_IDEMPOTENCY_SHM_MIN_SHIFT
                                            - 3)),
                           ngx_cycle->log);
    if (map.shift == NULL) {
        return NGX_ERROR;
    }

    map.used = map.shift + map.pages;

    rc = ngx_idempotency_shm_map(ctx, &map);

    if (rc == NGX_OK) {
        rc = ngx_idempotency_shm_rebuild_slab(ctx, &map);
    }

    ngx_free(map.shift);

    if (rc != NGX_OK) {
        ctx->sh->dirty = NGX_IDEMPOTENCY_SHM_BROKEN;

        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                      "idempotency store \"%V\" is damaged and refuses "
                      "everything from now on: restart nginx",
                      &ctx->store->name);

        return NGX_ERROR;
    }

    ngx_idempotency_shm_rebuild_trees(ctx);

    ctx->sh->rebuilds++;

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "idempotency store \"%V\" was rebuilt after a process died "
                  "changing it: %ui records and %ui answers kept, 0 records "
                  "and %ui answers lost",
                  &ctx->store->name, ctx->sh->number, map.number, map.lost);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_map(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map)
{
    u_char                      *p, *last;
    ngx_idempotency_shm_sh_t    *sh;
    ngx_idempotency_shm_node_t  *node;

    sh = ctx->sh;

    /* the head, and behind it the roots if they have pages of their own */

    p = (u_char *) sh;
    last = (u_char *) (sh->roots + sh->mask + 1);

    for ( /* void */ ; p < last; p += ngx_pagesize) {
        if (ngx_idempotency_shm_map_slot(ctx, map, p, ngx_pagesize, 1)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    /* nodes first: no piece of an answer may claim the slot of a node */

    for (node = sh->records; node; node = node->next) {

        /* fails for a node that it has seen before: a loop ends */

        if (ngx_idempotency_shm_map_slot(ctx, map, node,
                                         NGX_IDEMPOTENCY_SHM_NODE_SIZE, 1)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (node->state > NGX_IDEMPOTENCY_SHM_LAST) {
            return NGX_ERROR;
        }
    }

    for (node = sh->records; node; node = node->next) {
        ngx_idempotency_shm_map_answer(ctx, map, node);
        ngx_idempotency_shm_map_note(ctx, map, node);
    }

    return NGX_OK;
}


static void
ngx_idempotency_shm_map_answer(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, ngx_idempotency_shm_node_t *node)
{
    if (node->state == NGX_IDEMPOTENCY_DONE && node->kept) {

        if (ngx_idempotency_shm_map_pieces(ctx, map, node, 0) == NGX_OK
            && ngx_idempotency_shm_map_pieces(ctx, map, node, 1) == NGX_OK)
        {
            map->number++;
            return;
        }

        map->lost++;
    }

    /* a process may be between two steps of writing: it must begin again */

    node->generation = ++ctx->sh->generation;
    node->kept = 0;
    node->answer = NULL;
}


static ngx_int_t
ngx_idempotency_shm_map_pieces(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, ngx_idempotency_shm_node_t *node,
    ngx_uint_t mark)
{
    size_t                        len, rest, size;
    ngx_idempotency_shm_piece_t  *piece;

    rest = (size_t) node->head_len + node->body_len;
    rest -= ngx_min(rest, NGX_IDEMPOTENCY_SHM_INLINE);

    for (piece = node->answer; rest; piece = piece->next) {

        size = ngx_idempotency_shm_answer_piece_size(rest);

        if (ngx_idempotency_shm_map_slot(ctx, map, piece, size, mark)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        len = size - NGX_IDEMPOTENCY_SHM_PIECE_HEAD;
        rest -= ngx_min(rest, len);
    }

    return NGX_OK;
}


/* a note that is not whole is dropped: it is for people only */

static void
ngx_idempotency_shm_map_note(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, ngx_idempotency_shm_node_t *node)
{
    size_t  size;

    if (node->note == NULL) {
        return;
    }

    /* its length may be read if the smallest slot is in the zone */

    size = ngx_idempotency_shm_note_size(0);

    if (ngx_idempotency_shm_map_slot(ctx, map, node->note, size, 0) == NGX_OK
        && node->note->len <= NGX_IDEMPOTENCY_NOTE_LEN)
    {
        size = ngx_idempotency_shm_note_size(node->note->len);

        if (ngx_idempotency_shm_map_slot(ctx, map, node->note, size, 1)
            == NGX_OK)
        {
            return;
        }
    }

    node->note = NULL;
}


/* "size" is a power of two, as slots and a page are */

static ngx_int_t
ngx_idempotency_shm_map_slot(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, void *p, size_t size, ngx_uint_t mark)
{
    u_char      shift;
    size_t      offset;
    ngx_uint_t  page, bit;

    if ((u_char *) p < ctx->shpool->start) {
        return NGX_ERROR;
    }

    offset = (u_char *) p - ctx->shpool->start;
    page = offset >> ngx_pagesize_shift;

    if (page >= map->pages || (offset & (size - 1))) {
        return NGX_ERROR;
    }

    for (shift = 0; ((size_t) 1 << shift) < size; shift++) { /* void */ }

    if (map->shift[page] && map->shift[page] != shift) {
        return NGX_ERROR;
    }

    bit = offset >> NGX_IDEMPOTENCY_SHM_MIN_SHIFT;

    if (map->used[bit / 8] & (1 << bit % 8)) {
        return NGX_ERROR;
    }

    if (mark) {
        map->shift[page] = shift;
        map->used[bit / 8] |= 1 << bit % 8;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_rebuild_slab(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map)
{
    size_t      size;
    u_char     *page;
    ngx_uint_t  i;

    /* does not touch mutex, data, addr and the contents of pages */

    ngx_slab_init(ctx->shpool);

    ctx->shpool->log_nomem = 0;

    ngx_idempotency_shm_point();

    page = ctx->shpool->start;

    for (i = 0; i < map->pages; i++) {

        size = map->shift[i] ? (size_t) 1 << map->shift[i] : ngx_pagesize;

        if (ngx_idempotency_shm_fill_page(ctx, page, size) != NGX_OK) {
            return NGX_ERROR;
        }

        page += ngx_pagesize;
    }

    ngx_idempotency_shm_point();

    page = ctx->shpool->start;

    for (i = 0; i < map->pages; i++) {

        size = map->shift[i] ? (size_t) 1 << map->shift[i] : ngx_pagesize;

        ngx_idempotency_shm_free_page(ctx, map, page, size);

        page += ngx_pagesize;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_fill_page(ngx_idempotency_shm_ctx_t *ctx, u_char *page,
    size_t size)
{
    u_char  *p;

    do {
        p = ngx_slab_alloc_locked(ctx->shpool, size);

        if (p < page || p > page + ngx_pagesize - size) {
            return NGX_ERROR;
        }

    } while (p != page + ngx_pagesize - size);

    return NGX_OK;
}


static void
ngx_idempotency_shm_free_page(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, u_char *page, size_t size)
{
    u_char      *p;
    ngx_uint_t   first;

    /* ngx_slab_alloc() keeps its bitmap in the first slots of small ones */

    first = 0;

    if (size < ngx_pagesize / (8 * sizeof(uintptr_t))) {
        first = ngx_pagesize / size / (size * 8);
        first = ngx_max(first, 1);
    }

    for (p = page + first * size; p < page + ngx_pagesize; p += size) {
        if (!ngx_idempotency_shm_used(ctx, map, p)) {
            ngx_slab_free_locked(ctx->shpool, p);
        }
    }
}


static ngx_uint_t
ngx_idempotency_shm_used(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_map_t *map, u_char *p)
{
    ngx_uint_t  bit;

    bit = (p - ctx->shpool->start) >> NGX_IDEMPOTENCY_SHM_MIN_SHIFT;

    return map->used[bit / 8] & (1 << bit % 8);
}


static void
ngx_idempotency_shm_rebuild_trees(ngx_idempotency_shm_ctx_t *ctx)
{
    uint64_t                      due, now;
    ngx_idempotency_shm_node_t   *node, **prev;

    now = ngx_current_msec;

    ngx_idempotency_shm_init_sh(ctx);

    prev = &ctx->sh->records;

    for (node = ctx->sh->records; node; node = node->next) {

        due = ngx_idempotency_shm_due(node);

        if (node->state == NGX_IDEMPOTENCY_NONE) {

            /* the key may be that of its last state, see shm_write() */

            due = now + (uint64_t) node->keep * 1000;
            node->issued = 0;

        } else if (due == 0) {

            /* it was removed and not inserted again, see expiry_move() */

            due = now;
        }

        node->prev = prev;
        prev = &node->next;

        ngx_idempotency_shm_insert_trees(ctx, node, due);
    }

    ngx_idempotency_shm_point();
}
