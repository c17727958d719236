
/*
 * The digest of a multipart body.
 *
 * Its length is not known before it was read, so each part has a digest of
 * its own, of fixed length, and these are what the outer one is made of: no
 * two lists of parts give it the same bytes.
 */


#include "ngx_http_idempotency_parts.h"
#include "ngx_http_idempotency_body.h"
#include "ngx_http_idempotency_digest.h"
#include "ngx_http_idempotency_multipart.h"


/* of the body that is being read */

typedef struct {
    ngx_array_t                       *include;
    ngx_array_t                       *exclude;
    ngx_uint_t                         skip;      /* this part */
} ngx_http_idempotency_parts_t;


static ngx_int_t ngx_http_idempotency_parts_digest(ngx_http_request_t *r,
    ngx_uint_t parts);
static ngx_int_t ngx_http_idempotency_parts_body(const u_char *data,
    size_t len);
static ngx_int_t ngx_http_idempotency_parts_event(
    ngx_http_idempotency_multipart_t *mp,
    ngx_http_idempotency_multipart_event_e event, const u_char *data,
    size_t len);
static ngx_int_t ngx_http_idempotency_parts_part(
    ngx_http_idempotency_multipart_part_t *part);
static ngx_uint_t ngx_http_idempotency_parts_listed(ngx_array_t *paths,
    ngx_str_t *name);


static ngx_http_idempotency_multipart_t  ngx_http_idempotency_parts_reader;
static ngx_http_idempotency_parts_t      ngx_http_idempotency_parts_chosen;


ngx_int_t
ngx_http_idempotency_parts(ngx_http_request_t *r, ngx_array_t *include,
    ngx_array_t *exclude)
{
    ngx_int_t                          rc;
    ngx_http_idempotency_multipart_t  *mp;

    /* as for other documents, no body is one without values */

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        return NGX_OK;
    }

    mp = &ngx_http_idempotency_parts_reader;

    ngx_http_idempotency_parts_chosen.include = include;
    ngx_http_idempotency_parts_chosen.exclude = exclude;

    if (ngx_http_idempotency_body_encoded(r)) {
        mp->error = "compressed";
        mp->offset = 0;
        rc = NGX_DECLINED;

    } else {
        rc = ngx_http_idempotency_parts_digest(r, 1);
    }

    if (rc == NGX_DECLINED) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "idempotency request body is not multipart/form-data: "
                      "%s at byte %uz", mp->error, mp->offset);
    }

    return rc;
}


ngx_uint_t
ngx_http_idempotency_parts_expected(ngx_http_request_t *r)
{
    ngx_table_elt_t  *type;

    type = r->headers_in.content_type;

    /* the first character is enough to exclude most requests */

    return type
           && type->value.len
           && (type->value.data[0] | 0x20) == 'm'
           && ngx_http_idempotency_multipart_is(&type->value);
}


ngx_int_t
ngx_http_idempotency_parts_raw(ngx_http_request_t *r)
{
    u_char                             around;
    ngx_int_t                          rc;
    ngx_http_idempotency_multipart_t  *mp;

    mp = &ngx_http_idempotency_parts_reader;

    if (ngx_http_idempotency_digest_inner_start() != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_idempotency_parts_digest(r, 0);

    if (rc != NGX_OK) {
        return rc;
    }

    /* the epilogue; and whether CRLF was before the first delimiter */

    around = (u_char) (mp->preamble | mp->epilogue << 1);

    if (ngx_http_idempotency_digest_inner_end() != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_digest_add(&around, 1);
}


static ngx_int_t
ngx_http_idempotency_parts_digest(ngx_http_request_t *r, ngx_uint_t parts)
{
    ngx_int_t                          rc;
    ngx_str_t                          type;
    ngx_http_idempotency_multipart_t  *mp;

    mp = &ngx_http_idempotency_parts_reader;

    ngx_str_null(&type);

    if (r->headers_in.content_type) {
        type = r->headers_in.content_type->value;
    }

    mp->handler = ngx_http_idempotency_parts_event;

    rc = ngx_http_idempotency_multipart_start(mp, &type, parts);

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_body_read(r,
                                            ngx_http_idempotency_parts_body);
    }

    return rc == NGX_OK ? ngx_http_idempotency_multipart_end(mp) : rc;
}


static ngx_int_t
ngx_http_idempotency_parts_body(const u_char *data, size_t len)
{
    return ngx_http_idempotency_multipart_read(
                               &ngx_http_idempotency_parts_reader, data, len);
}


static ngx_int_t
ngx_http_idempotency_parts_event(ngx_http_idempotency_multipart_t *mp,
    ngx_http_idempotency_multipart_event_e event, const u_char *data,
    size_t len)
{
    ngx_http_idempotency_parts_t  *chosen;

    chosen = &ngx_http_idempotency_parts_chosen;

    if (event == NGX_HTTP_IDEMPOTENCY_MULTIPART_PART) {
        chosen->skip = (chosen->include
                        && !ngx_http_idempotency_parts_listed(chosen->include,
                                                              &mp->part.name))
                       || ngx_http_idempotency_parts_listed(chosen->exclude,
                                                            &mp->part.name);

        return chosen->skip ? NGX_OK
                            : ngx_http_idempotency_parts_part(&mp->part);
    }

    if (mp->parts && chosen->skip) {
        return NGX_OK;
    }

    if (event == NGX_HTTP_IDEMPOTENCY_MULTIPART_BYTES) {
        return ngx_http_idempotency_digest_inner_add(data, len);
    }

    /* event == NGX_HTTP_IDEMPOTENCY_MULTIPART_END */

    if (ngx_http_idempotency_digest_inner_end() != NGX_OK) {
        return NGX_ERROR;
    }

    return mp->parts ? NGX_OK : ngx_http_idempotency_digest_inner_start();
}


/* what stands before its content */

static ngx_int_t
ngx_http_idempotency_parts_part(ngx_http_idempotency_multipart_part_t *part)
{
    u_char      there;
    ngx_uint_t  i;
    ngx_str_t  *fields[5];

    fields[0] = &part->name;
    fields[1] = &part->filename;
    fields[2] = &part->filename_ext;
    fields[3] = &part->type;
    fields[4] = &part->encoding;

    for (i = 0; i < 5; i++) {
        there = (fields[i]->data != NULL);

        if (ngx_http_idempotency_digest_add(&there, 1) != NGX_OK
            || (there && ngx_http_idempotency_digest_add_part(fields[i])
                         != NGX_OK))
        {
            return NGX_ERROR;
        }
    }

    return ngx_http_idempotency_digest_inner_start();
}


static ngx_uint_t
ngx_http_idempotency_parts_listed(ngx_array_t *paths, ngx_str_t *name)
{
    ngx_uint_t                    i;
    ngx_http_idempotency_path_t  *path;

    if (paths == NULL) {
        return 0;
    }

    path = paths->elts;

    for (i = 0; i < paths->nelts; i++) {
        if (path[i].n == 1
            && path[i].names[0].len == name->len
            && ngx_memcmp(path[i].names[0].data, name->data, name->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}
