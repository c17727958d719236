
/*
 * One reader of the request body, in memory and in its temporary file.
 */


#include "ngx_http_idempotency_body.h"
#include "ngx_http_idempotency_context.h"


#define NGX_HTTP_IDEMPOTENCY_BODY_STEP  32768


static ngx_int_t ngx_http_idempotency_body_read_file(ngx_http_request_t *r,
    ngx_buf_t *b, ngx_http_idempotency_body_pt handler);
static ngx_int_t ngx_http_idempotency_body_gather(const u_char *data,
    size_t len);


/* the body that is being parsed, if it had to be copied, and its end so far */

static u_char  *ngx_http_idempotency_body_copy;
static u_char  *ngx_http_idempotency_body_last;


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
    off_t      offset;
    size_t     size;
    u_char    *buf;
    ssize_t    n;
    ngx_int_t  rc;

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

        rc = handler(buf, n);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    ngx_pfree(r->pool, buf);

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_body_parse(ngx_http_request_t *r, ngx_uint_t json,
    ngx_idempotency_body_tree_t *tree)
{
    ngx_int_t  rc;
    ngx_str_t  body;

    ngx_idempotency_body_tree_start(tree);

    if (ngx_http_idempotency_body_whole(r, &body) != NGX_OK) {
        return NGX_ERROR;
    }

    if (body.len == 0) {
        return NGX_OK;
    }

    if (ngx_http_idempotency_body_encoded(r)) {
        tree->error = "compressed";
        rc = NGX_DECLINED;

    } else {
        rc = json ? ngx_idempotency_json_parse(tree, &body)
                  : ngx_idempotency_form_parse(tree, &body);
    }

    if (rc == NGX_DECLINED) {
        ngx_http_idempotency_body_refused(r, json ? "JSON" : "a form",
                                          tree->error, tree->offset);
    }

    return rc;
}


void
ngx_http_idempotency_body_refused(ngx_http_request_t *r, char *what,
    char *error, size_t offset)
{
    u_char                      *p;
    size_t                       len;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "idempotency request body is not %s: %s at byte %uz",
                  what, error, offset);

    len = sizeof("not :  at byte ") - 1 + ngx_strlen(what)
          + ngx_strlen(error) + NGX_SIZE_T_LEN;

    p = ctx ? ngx_pnalloc(r->pool, len) : NULL;

    if (p) {
        ctx->request_body.error.data = p;
        ctx->request_body.error.len = ngx_sprintf(p, "not %s: %s at byte %uz",
                                                  what, error, offset) - p;
    }
}


void
ngx_http_idempotency_body_free(ngx_http_request_t *r,
    ngx_idempotency_body_tree_t *tree)
{
    if (tree) {
        ngx_idempotency_body_tree_free(tree);
    }

    if (ngx_http_idempotency_body_copy) {
        ngx_free(ngx_http_idempotency_body_copy);
        ngx_http_idempotency_body_copy = NULL;
    }
}


/* in one piece: a single buffer as it is, everything else as a copy */

ngx_int_t
ngx_http_idempotency_body_whole(ngx_http_request_t *r, ngx_str_t *body)
{
    off_t         size;
    ngx_chain_t  *cl;

    ngx_str_null(body);

    ngx_http_idempotency_body_copy = NULL;

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        return NGX_OK;
    }

    cl = r->request_body->bufs;

    if (cl->next == NULL && !cl->buf->in_file) {
        body->data = cl->buf->pos;
        body->len = cl->buf->last - cl->buf->pos;
        return NGX_OK;
    }

    size = 0;

    for ( /* void */ ; cl; cl = cl->next) {
        size += cl->buf->in_file ? cl->buf->file_last - cl->buf->file_pos
                                 : cl->buf->last - cl->buf->pos;
    }

    if (size == 0) {
        return NGX_OK;
    }

    body->len = (size_t) size;
    body->data = ngx_alloc(body->len, r->connection->log);
    if (body->data == NULL) {
        return NGX_ERROR;
    }

    ngx_http_idempotency_body_copy = body->data;
    ngx_http_idempotency_body_last = body->data;

    return ngx_http_idempotency_body_read(r,
                                          ngx_http_idempotency_body_gather);
}


static ngx_int_t
ngx_http_idempotency_body_gather(const u_char *data, size_t len)
{
    ngx_http_idempotency_body_last =
                      ngx_cpymem(ngx_http_idempotency_body_last, data, len);

    return NGX_OK;
}


ngx_uint_t
ngx_http_idempotency_body_encoded(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return 0;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == sizeof("Content-Encoding") - 1
            && ngx_strncmp(h[i].lowcase_key, "content-encoding",
                           sizeof("content-encoding") - 1) == 0
            && h[i].value.len
            && (h[i].value.len != sizeof("identity") - 1
                || ngx_strncasecmp(h[i].value.data, (u_char *) "identity",
                                   sizeof("identity") - 1) != 0))
        {
            return 1;
        }
    }
}
