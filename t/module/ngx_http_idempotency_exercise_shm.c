
/*
 * For tests only: the zone of an embedded store.
 */


#include "ngx_http_idempotency_exercise.h"
#include "ngx_idempotency_shm_node.h"


static uint64_t ngx_http_idempotency_exercise_clock(void);


ngx_int_t
ngx_http_idempotency_exercise_info(ngx_http_request_t *r,
    ngx_idempotency_store_t *store)
{
    ngx_buf_t                  *b;
    ngx_uint_t                  pages;
    ngx_slab_pool_t            *shpool;
    ngx_idempotency_shm_ctx_t  *ctx;

    if (store->start) {

        /* not a zone */

        return NGX_HTTP_NOT_FOUND;
    }

    ctx = store->data;
    shpool = ctx->shpool;

    b = ngx_create_temp_buf(r->pool, 256);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    pages = shpool->last - shpool->pages;

    b->last = ngx_sprintf(b->last, "pid: %P\n"
                                   "dirty: %uA\n"
                                   "records: %ui\n"
                                   "rebuilds: %ui\n"
                                   "pages: %ui\n"
                                   "free: %ui\n"
                                   "pagesize: %ui\n",
                          ngx_pid, ctx->sh->dirty, ctx->sh->number,
                          ctx->sh->rebuilds, pages, shpool->pfree,
                          ngx_pagesize);

    return ngx_http_idempotency_exercise_send(r, b);
}


ngx_int_t
ngx_http_idempotency_exercise_fill(ngx_http_request_t *r,
    ngx_idempotency_store_t *store)
{
    u_char                *p;
    size_t                 head_len, body_len;
    uint64_t               i, n, from, start, claim, complete, key;
    ngx_int_t              rc;
    ngx_buf_t             *b, body;
    ngx_uint_t             done;
    ngx_chain_t            cl;
    ngx_idempotency_op_t  *op;

    n = ngx_http_idempotency_exercise_number(r, "n", 1);
    from = ngx_http_idempotency_exercise_number(r, "from", 0);
    head_len = ngx_http_idempotency_exercise_number(r, "head_len", 150);
    body_len = ngx_http_idempotency_exercise_number(r, "body_len", 200);

    b = ngx_create_temp_buf(r->pool, 256);
    p = ngx_palloc(r->pool, head_len + body_len);
    op = ngx_idempotency_op_create(store, NGX_IDEMPOTENCY_CLAIM);

    if (b == NULL || p == NULL || op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_idempotency_exercise_pattern(p, head_len + body_len);

    ngx_memzero(&body, sizeof(ngx_buf_t));
    body.pos = p + head_len;
    body.last = body.pos + body_len;

    cl.buf = &body;
    cl.next = NULL;

    op->head.data = p;
    op->head.len = head_len;
    op->body = &cl;
    op->body_len = body_len;
    op->lease = 30000;
    op->status = 201;
    op->keep = 1;
    op->ttl = ngx_http_idempotency_exercise_number(r, "ttl", 3600);
    op->tombstone = ngx_http_idempotency_exercise_number(r, "tombstone", 0);

    ngx_memset(op->id.owner, 'f', NGX_IDEMPOTENCY_OWNER_LEN);

    done = 0;
    claim = 0;
    complete = 0;

    for (i = from; i < from + n; i++) {

        /* an odd factor: distinct keys in no order */

        key = i * 0x9e3779b97f4a7c15ULL;
        ngx_memcpy(op->id.digest, &key, sizeof(uint64_t));

        ngx_time_update();

        start = ngx_http_idempotency_exercise_clock();

        op->type = NGX_IDEMPOTENCY_CLAIM;
        rc = ngx_idempotency_op_submit(op);

        claim += ngx_http_idempotency_exercise_clock() - start;

        if (rc != NGX_OK || op->result != NGX_IDEMPOTENCY_GRANTED) {
            continue;
        }

        start = ngx_http_idempotency_exercise_clock();

        op->type = NGX_IDEMPOTENCY_COMPLETE;
        rc = ngx_idempotency_op_submit(op);

        complete += ngx_http_idempotency_exercise_clock() - start;

        if (rc == NGX_OK && op->record.kept) {
            done++;
        }
    }

    ngx_idempotency_op_drop(op);

    b->last = ngx_sprintf(b->last, "kept: %ui\n"
                                   "claim_ns: %uL\n"
                                   "complete_ns: %uL\n",
                          done, claim / ngx_max(n, 1),
                          complete / ngx_max(n, 1));

    return ngx_http_idempotency_exercise_send(r, b);
}


static uint64_t
ngx_http_idempotency_exercise_clock(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}


ngx_int_t
ngx_http_idempotency_exercise_scribble(ngx_http_request_t *r,
    ngx_idempotency_store_t *store)
{
    ngx_slab_pool_t            *shpool;
    ngx_idempotency_shm_sh_t   *sh;
    ngx_idempotency_shm_ctx_t  *ctx;

    ctx = store->data;
    sh = ctx->sh;
    shpool = ctx->shpool;

    if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    if (ngx_http_idempotency_exercise_number(r, "list", 0)) {

        /* what a rebuild relies on: the list of records */

        sh->records = (ngx_idempotency_shm_node_t *) (shpool->start + 1);
    }

    ngx_memset(shpool->pages, 0x5a,
               (u_char *) shpool->last - (u_char *) shpool->pages);
    ngx_memset(&shpool->free, 0x5a, sizeof(ngx_slab_page_t));
    ngx_memset(sh->roots, 0x5a,
               (sh->mask + 1) * sizeof(ngx_rbtree_node_t *));
    ngx_memset(&sh->expire, 0x5a, sizeof(ngx_rbtree_t));

    (void) kill(ngx_pid, SIGKILL);

    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}
