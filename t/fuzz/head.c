
/*
 * The head of a stored answer: what can be read has one spelling, and becomes
 * a header that nobody can add a line to.
 */


#include "fuzz.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_replay.h"


static void fuzz_check(ngx_list_t *list);


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    ngx_int_t                    rc;
    ngx_str_t                    again;
    ngx_chain_t                  out;
    ngx_http_request_t           r;
    ngx_idempotency_op_t         op;
    ngx_idempotency_answer_t     answer;
    ngx_http_idempotency_ctx_t   ctx;

    static ngx_http_idempotency_loc_conf_t  conf;

    rc = ngx_idempotency_record_decode_head(pool, in, &answer);

    if (rc != NGX_OK) {
        fuzz_want(rc == NGX_DECLINED);
        return;
    }

    rc = ngx_idempotency_record_encode_head(pool, &answer, &again);

    fuzz_want(rc == NGX_OK && again.len == in->len
              && ngx_memcmp(again.data, in->data, in->len) == 0);

    ngx_memzero(&r, sizeof(ngx_http_request_t));
    ngx_memzero(&op, sizeof(ngx_idempotency_op_t));
    ngx_memzero(&ctx, sizeof(ngx_http_idempotency_ctx_t));

    r.pool = pool;
    ctx.op = &op;
    ctx.conf = &conf;
    op.record.head = *in;

    fuzz_want(ngx_list_init(&r.headers_out.headers, pool, 2,
                            sizeof(ngx_table_elt_t)) == NGX_OK);
    fuzz_want(ngx_list_init(&r.headers_out.trailers, pool, 2,
                            sizeof(ngx_table_elt_t)) == NGX_OK);

    if (ngx_http_idempotency_replay_decode(&r, &ctx) != NGX_OK) {
        return;
    }

    fuzz_want(ngx_http_idempotency_replay_fill(&r, &ctx, &out) == NGX_OK);
    fuzz_want(out.buf->last_buf);

    fuzz_check(&r.headers_out.headers);
    fuzz_check(&r.headers_out.trailers);

    fuzz_want(r.headers_out.content_type_len
              <= r.headers_out.content_type.len);
}


static void
fuzz_check(ngx_list_t *list)
{
    size_t            n;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &list->part; part; part = part->next) {

        for (i = 0; i < part->nelts; i++) {
            h = (ngx_table_elt_t *) part->elts + i;

            for (n = 0; n < h->key.len; n++) {
                fuzz_want(h->key.data[n] != CR && h->key.data[n] != LF);
            }

            for (n = 0; n < h->value.len; n++) {
                fuzz_want(h->value.data[n] != CR && h->value.data[n] != LF);
            }
        }
    }
}
