
/*
 * The embedded store: the bytes of an answer.
 *
 * Whole pages while much remains, then slab slots, which are powers of two:
 * the smallest that takes all the rest, or one half as large if that would
 * leave too much unused.
 */


#include "ngx_idempotency_shm_answer.h"


#define NGX_IDEMPOTENCY_SHM_PIECE_MIN  32

/* what a piece may leave unused: this, or a quarter of it */
#define NGX_IDEMPOTENCY_SHM_UNUSED     64


static void ngx_idempotency_shm_answer_take(ngx_idempotency_shm_writer_t *w,
    u_char *dst, size_t len);


size_t
ngx_idempotency_shm_answer_piece_size(size_t rest)
{
    size_t  need, size;

    need = NGX_IDEMPOTENCY_SHM_PIECE_HEAD + rest;

    if (need >= ngx_pagesize) {
        return ngx_pagesize;
    }

    size = NGX_IDEMPOTENCY_SHM_PIECE_MIN;

    while (size < need) {
        size <<= 1;
    }

    if (size - need > ngx_max(size / 4, NGX_IDEMPOTENCY_SHM_UNUSED)) {
        return size / 2;
    }

    return size;
}


void
ngx_idempotency_shm_answer_write_start(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_shm_writer_t *w,
    ngx_str_t *head, ngx_chain_t *body, size_t body_len)
{
    size_t  len;

    /* of a writer that never finished */

    ngx_idempotency_shm_answer_free(ctx, node);

    node->generation = ++ctx->sh->generation;

    w->pos = head->data;
    w->last = head->data + head->len;
    w->in = body;
    w->head_len = head->len;
    w->body_len = body_len;
    w->rest = head->len + body_len;
    w->piece = &node->answer;
    w->generation = node->generation;

    len = ngx_min(w->rest, NGX_IDEMPOTENCY_SHM_INLINE);

    ngx_idempotency_shm_answer_take(w, node->data, len);
}


ngx_int_t
ngx_idempotency_shm_answer_write(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_shm_writer_t *w,
    uint64_t now)
{
    size_t                        n, len, size;
    ngx_idempotency_shm_piece_t  *piece;

    for (n = 0; w->rest && n < NGX_IDEMPOTENCY_SHM_STEP; n += len) {

        size = ngx_idempotency_shm_answer_piece_size(w->rest);

        piece = ngx_idempotency_shm_alloc(ctx, size, now);
        if (piece == NULL) {

            if (now >= ctx->sh->due) {
                return NGX_AGAIN;
            }

            ngx_idempotency_shm_answer_free(ctx, node);
            return NGX_DECLINED;
        }

        len = ngx_min(w->rest, size - NGX_IDEMPOTENCY_SHM_PIECE_HEAD);

        ngx_idempotency_shm_answer_take(w, piece->data, len);
        piece->next = NULL;

        ngx_memory_barrier();

        ngx_idempotency_shm_point();

        *w->piece = piece;
        w->piece = &piece->next;
    }

    return w->rest ? NGX_AGAIN : NGX_OK;
}


static void
ngx_idempotency_shm_answer_take(ngx_idempotency_shm_writer_t *w, u_char *dst,
    size_t len)
{
    size_t  n;

    w->rest -= len;

    while (len) {

        while (w->pos == w->last) {
            w->pos = w->in->buf->pos;
            w->last = w->in->buf->last;
            w->in = w->in->next;
        }

        n = ngx_min(len, (size_t) (w->last - w->pos));

        dst = ngx_cpymem(dst, w->pos, n);
        w->pos += n;
        len -= n;
    }
}


void
ngx_idempotency_shm_answer_read_start(ngx_idempotency_shm_node_t *node,
    ngx_idempotency_shm_reader_t *r, u_char *pos)
{
    size_t  len;

    r->rest = (size_t) node->head_len + node->body_len;
    r->piece = node->answer;
    r->generation = node->generation;

    len = ngx_min(r->rest, NGX_IDEMPOTENCY_SHM_INLINE);

    r->pos = ngx_cpymem(pos, node->data, len);
    r->rest -= len;
}


ngx_int_t
ngx_idempotency_shm_answer_read(ngx_idempotency_shm_reader_t *r)
{
    size_t  n, len;

    for (n = 0; r->rest && n < NGX_IDEMPOTENCY_SHM_STEP; n += len) {

        if (r->piece == NULL) {
            return NGX_ERROR;
        }

        len = ngx_idempotency_shm_answer_piece_size(r->rest)
              - NGX_IDEMPOTENCY_SHM_PIECE_HEAD;
        len = ngx_min(r->rest, len);

        r->pos = ngx_cpymem(r->pos, r->piece->data, len);
        r->rest -= len;
        r->piece = r->piece->next;
    }

    return r->rest ? NGX_AGAIN : NGX_OK;
}


void
ngx_idempotency_shm_answer_free(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node)
{
    ngx_idempotency_shm_piece_t  *piece, *next;

    piece = node->answer;

    node->answer = NULL;
    node->kept = 0;
    node->head_len = 0;
    node->body_len = 0;

    while (piece) {
        next = piece->next;
        ngx_slab_free_locked(ctx->shpool, piece);
        piece = next;

        ngx_idempotency_shm_point();
    }
}
