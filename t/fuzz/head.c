
/*
 * The head of a stored answer: what can be read has one spelling, and becomes
 * a header that nobody can add a line to.  And the other way round: what can
 * be stored can be replayed.
 */


#include "fuzz.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_replay.h"


static void fuzz_replay(ngx_pool_t *pool, ngx_str_t *head);
static void fuzz_store(ngx_pool_t *pool, ngx_str_t *in);
static void fuzz_check(ngx_list_t *list);
static void fuzz_check_text(ngx_str_t *s);


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    ngx_int_t                 rc;
    ngx_str_t                 again;
    ngx_idempotency_answer_t  answer;

    fuzz_store(pool, in);

    rc = ngx_idempotency_record_decode_head(pool, in, &answer);

    if (rc != NGX_OK) {
        fuzz_want(rc == NGX_DECLINED);
        return;
    }

    rc = ngx_idempotency_record_encode_head(pool, &answer, &again);

    fuzz_want(rc == NGX_OK && again.len == in->len
              && ngx_memcmp(again.data, in->data, in->len) == 0);

    fuzz_replay(pool, in);
}


/* an answer out of the input, as an upstream might have sent it */

static void
fuzz_store(ngx_pool_t *pool, ngx_str_t *in)
{
    size_t                     n;
    u_char                    *p, *last;
    ngx_str_t                  head, part[6];
    ngx_uint_t                 i;
    ngx_idempotency_field_t    field[2];
    ngx_idempotency_answer_t   answer;

    ngx_memzero(&answer, sizeof(ngx_idempotency_answer_t));

    p = in->data;
    last = in->data + in->len;

    if (last - p < 2) {
        return;
    }

    answer.status = p[0] << 8 | p[1];
    p += 2;

    for (i = 0; i < 6; i++) {
        n = (p < last) ? *p++ : 0;
        n = ngx_min(n, (size_t) (last - p));

        part[i].data = p;
        part[i].len = n;
        p += n;
    }

    answer.status_line = part[0];
    answer.content_type = part[1];
    answer.content_length = -1;
    answer.last_modified = -1;

    field[0].name = part[2];
    field[0].value = part[3];
    field[1].name = part[4];
    field[1].value = part[5];

    answer.headers.elts = field;
    answer.headers.nelts = 1;
    answer.trailers.elts = &field[1];
    answer.trailers.nelts = 1;

    if (ngx_idempotency_record_encode_head(pool, &answer, &head) == NGX_OK) {
        fuzz_replay(pool, &head);
    }
}


static void
fuzz_replay(ngx_pool_t *pool, ngx_str_t *head)
{
    ngx_int_t                   rc;
    ngx_chain_t                 out;
    ngx_http_request_t          r;
    ngx_idempotency_op_t        op;
    ngx_http_idempotency_ctx_t  ctx;

    static ngx_http_idempotency_loc_conf_t  conf;

    ngx_memzero(&r, sizeof(ngx_http_request_t));
    ngx_memzero(&op, sizeof(ngx_idempotency_op_t));
    ngx_memzero(&ctx, sizeof(ngx_http_idempotency_ctx_t));

    r.pool = pool;
    ctx.op = &op;
    ctx.conf = &conf;
    op.record.head = *head;

    fuzz_want(ngx_list_init(&r.headers_out.headers, pool, 2,
                            sizeof(ngx_table_elt_t)) == NGX_OK);
    fuzz_want(ngx_list_init(&r.headers_out.trailers, pool, 2,
                            sizeof(ngx_table_elt_t)) == NGX_OK);

    rc = ngx_http_idempotency_replay_decode(&r, &ctx);

    fuzz_want(rc == NGX_OK);

    fuzz_want(ngx_http_idempotency_replay_fill(&r, &ctx, &out) == NGX_OK);
    fuzz_want(out.buf->last_buf);

    fuzz_check_text(&r.headers_out.status_line);
    fuzz_check(&r.headers_out.headers);
    fuzz_check(&r.headers_out.trailers);

    fuzz_want(r.headers_out.content_type_len
              <= r.headers_out.content_type.len);
}


static void
fuzz_check(ngx_list_t *list)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &list->part; part; part = part->next) {

        for (i = 0; i < part->nelts; i++) {
            h = (ngx_table_elt_t *) part->elts + i;

            fuzz_check_text(&h->key);
            fuzz_check_text(&h->value);
        }
    }
}


static void
fuzz_check_text(ngx_str_t *s)
{
    size_t  n;

    for (n = 0; n < s->len; n++) {
        fuzz_want(s->data[n] != CR && s->data[n] != LF
                  && s->data[n] != '\0');
    }
}
