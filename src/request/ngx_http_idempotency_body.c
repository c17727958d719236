
/*
 * One reader of the request body, in memory and in its temporary file.
 */


#include "ngx_http_idempotency_body.h"


#define NGX_HTTP_IDEMPOTENCY_BODY_STEP  32768


static ngx_int_t ngx_http_idempotency_body_read_file(ngx_http_request_t *r,
    ngx_buf_t *b, ngx_http_idempotency_body_pt handler);


ngx_int_t
ngx_http_idempotency_body_read(ngx_http_request_t *r,
    ngx_http_idempotency_body_pt handler)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        b = cl->buf;

        if (b->in_file) {
            rc = ngx_http_idempotency_body_read_file(r, b, handler);

        } else if (b->last > b->pos) {
            rc = handler(b->pos, b->last - b->pos);

        } else {
            continue;
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_body_read_file(ngx_http_request_t *r, ngx_buf_t *b,
    ngx_http_idempotency_body_pt handler)
{
    off_t    offset;
    size_t   size;
    u_char  *buf;
    ssize_t  n;

    buf = ngx_palloc(r->pool, NGX_HTTP_IDEMPOTENCY_BODY_STEP);
    if (buf == NULL) {
        return NGX_ERROR;
    }

    for (offset = b->file_pos; offset < b->file_last; offset += n) {

        size = (size_t) ngx_min(b->file_last - offset,
                                NGX_HTTP_IDEMPOTENCY_BODY_STEP);

        n = ngx_read_file(b->file, buf, size, offset);

        if (n == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (n == 0) {
            ngx_log_error(NGX_LOG_CRIT, r->connection->log, 0,
                          "request body file \"%V\" is shorter than it was",
                          &b->file->name);
            return NGX_ERROR;
        }

        if (handler(buf, n) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_pfree(r->pool, buf);

    return NGX_OK;
}
