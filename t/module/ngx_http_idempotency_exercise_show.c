
/*
 * For tests only: the result of an operation, as text.
 */


#include "ngx_http_idempotency_exercise.h"
#include "ngx_idempotency_wait.h"


#define NGX_HTTP_IDEMPOTENCY_EXERCISE_LINES  1024

/* longer texts are shown as length and checksum */
#define NGX_HTTP_IDEMPOTENCY_EXERCISE_SHOW   64


static u_char *ngx_http_idempotency_exercise_show_bytes(u_char *p, char *name,
    ngx_str_t *s);


static char  *ngx_http_idempotency_exercise_errors[] = {
    "none", "full", "damaged", "connect", "timeout", "protocol", "refused",
    "unsafe", "memory"
};


ngx_int_t
ngx_http_idempotency_exercise_show(ngx_http_request_t *r,
    ngx_idempotency_op_t *op, ngx_int_t rc)
{
    size_t                     len;
    u_char                    *p;
    ngx_buf_t                 *b;
    ngx_uint_t                 i;
    ngx_idempotency_lease_t   *lease;
    ngx_idempotency_record_t  *record;

    record = &op->record;

    len = NGX_HTTP_IDEMPOTENCY_EXERCISE_LINES;

    if (op->leases) {
        len += op->leases->nelts * sizeof("lease: not_issued" CRLF);
    }

    b = ngx_create_temp_buf(r->pool, len);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = b->last;

    if (rc != NGX_OK) {
        b->last = ngx_sprintf(p, "error: %s\n",
                              ngx_http_idempotency_exercise_errors[op->error]);
        return ngx_http_idempotency_exercise_send(r, b);
    }

    p = ngx_sprintf(p, "result: %s\n",
                    ngx_idempotency_results[op->result]);

    if (op->expects) {
        p = ngx_sprintf(p, "expected: %uL\n", op->expected);
    }

    if (op->leases) {

        lease = op->leases->elts;

        for (i = 0; i < op->leases->nelts; i++) {
            p = ngx_sprintf(p, "lease: %s\n",
                    ngx_idempotency_results[lease[i].result]);
        }

        b->last = p;

        return ngx_http_idempotency_exercise_send(r, b);
    }

    p = ngx_sprintf(p, "state: %V\n"
                       "attempts: %ui\n"
                       "status: %ui\n"
                       "kept: %d\n",
                    &ngx_idempotency_states[record->state],
                    record->attempts, record->status, (int) record->kept);

    p = ngx_http_idempotency_exercise_show_bytes(p, "head", &record->head);
    p = ngx_http_idempotency_exercise_show_bytes(p, "body", &record->body);

    if (record->note.len) {
        p = ngx_http_idempotency_exercise_show_bytes(p, "note",
                                                     &record->note);
    }

    p = ngx_sprintf(p, "fp: %s\n", record->fingerprint);

    b->last = ngx_sprintf(p, "fence: %uL\n"
                             "created: %T\n"
                             "lease_left: %M\n"
                             "ttl_left: %T\n",
                          record->fence, record->created, record->lease_left,
                          record->ttl_left);

    return ngx_http_idempotency_exercise_send(r, b);
}


static u_char *
ngx_http_idempotency_exercise_show_bytes(u_char *p, char *name, ngx_str_t *s)
{
    if (s->len <= NGX_HTTP_IDEMPOTENCY_EXERCISE_SHOW) {
        return ngx_sprintf(p, "%s: \"%V\"\n", name, s);
    }

    return ngx_sprintf(p, "%s: %uz bytes %08xD\n", name, s->len,
                       ngx_crc32_long(s->data, s->len));
}


ngx_int_t
ngx_http_idempotency_exercise_send(ngx_http_request_t *r, ngx_buf_t *b)
{
    ngx_int_t    rc;
    ngx_chain_t  out;

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;
    ngx_str_set(&r->headers_out.content_type, "text/plain");
    r->headers_out.content_type_len = r->headers_out.content_type.len;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b->last_buf = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


ngx_int_t
ngx_http_idempotency_exercise_poll(ngx_http_request_t *r,
    ngx_idempotency_store_t *store)
{
    ngx_buf_t  *b;

    (void) store;

    b = ngx_create_temp_buf(r->pool, NGX_HTTP_IDEMPOTENCY_EXERCISE_SHOW);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_sprintf(b->last, "was: %M\n", ngx_idempotency_wait_msec);

    ngx_idempotency_wait_msec = ngx_http_idempotency_exercise_number(r, "ms",
                                                                     500);

    return ngx_http_idempotency_exercise_send(r, b);
}
