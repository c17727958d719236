
/*
 * The header lines of a part of a multipart body, and parameters.
 */


#include "ngx_idempotency_multipart.h"


static ngx_int_t ngx_idempotency_multipart_field(
    ngx_idempotency_multipart_t *mp, const u_char *p,
    const u_char *last);
static ngx_int_t ngx_idempotency_multipart_disposition(
    ngx_idempotency_multipart_t *mp, ngx_str_t *value);
static ngx_int_t ngx_idempotency_multipart_once(
    ngx_idempotency_multipart_t *mp, ngx_str_t *field,
    const ngx_str_t *value);


ngx_int_t
ngx_idempotency_multipart_header(ngx_idempotency_multipart_t *mp,
    size_t len)
{
    ngx_int_t      rc;
    const u_char  *p, *end, *last;

    ngx_memzero(&mp->part, sizeof(ngx_idempotency_multipart_part_t));

    mp->content = 1;

    last = mp->header + len;

    for (p = mp->header; p < last; p = end + 1) {

        end = memchr(p, '\n', last - p);

        if (end == NULL || end == p || end[-1] != '\r') {
            return ngx_idempotency_multipart_error(mp,
                                       "header line of a part without CRLF");
        }

        rc = ngx_idempotency_multipart_field(mp, p, end - 1);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (mp->part.name.data == NULL) {
        return ngx_idempotency_multipart_error(mp, "part without a name");
    }

    return mp->handler(mp, NGX_IDEMPOTENCY_MULTIPART_PART, NULL, 0);
}


static ngx_int_t
ngx_idempotency_multipart_field(ngx_idempotency_multipart_t *mp,
    const u_char *p, const u_char *last)
{
    ngx_str_t      name, value;
    const u_char  *end;

    name.data = (u_char *) p;

    while (p < last && *p != ':' && ngx_idempotency_multipart_token(*p)) {
        p++;
    }

    name.len = p - name.data;

    if (name.len == 0 || p == last || *p != ':') {
        return ngx_idempotency_multipart_error(mp,
                                         "malformed header line of a part");
    }

    p++;

    for (end = p; end < last; end++) {
        if ((*end < ' ' && *end != '\t') || *end == 0x7f) {
            return ngx_idempotency_multipart_error(mp,
                                   "control character in header of a part");
        }
    }

    while (p < last && (*p == ' ' || *p == '\t')) {
        p++;
    }

    while (last > p && (last[-1] == ' ' || last[-1] == '\t')) {
        last--;
    }

    value.data = (u_char *) p;
    value.len = last - p;

    if (ngx_idempotency_multipart_equal(&name, "content-disposition")) {
        return ngx_idempotency_multipart_disposition(mp, &value);
    }

    if (ngx_idempotency_multipart_equal(&name, "content-type")) {
        return ngx_idempotency_multipart_once(mp, &mp->part.type,
                                              &value);
    }

    if (ngx_idempotency_multipart_equal(&name,
                                        "content-transfer-encoding"))
    {
        return ngx_idempotency_multipart_once(mp, &mp->part.encoding,
                                              &value);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_multipart_disposition(
    ngx_idempotency_multipart_t *mp, ngx_str_t *value)
{
    ngx_int_t                          rc;
    ngx_str_t                          name, text;
    const u_char                      *p, *last;
    ngx_idempotency_multipart_part_t  *part;

    part = &mp->part;

    p = value->data;
    last = p + value->len;

    name.data = value->data;

    while (p < last && ngx_idempotency_multipart_token(*p)) {
        p++;
    }

    name.len = p - name.data;

    if (part->name.data) {
        return ngx_idempotency_multipart_error(mp,
                                               "part with two dispositions");
    }

    if (!ngx_idempotency_multipart_equal(&name, "form-data")) {
        return ngx_idempotency_multipart_error(mp,
                                               "part is not form-data");
    }

    for ( ;; ) {
        rc = ngx_idempotency_multipart_parameter(&p, last, &name, &text);

        if (rc == NGX_DONE) {
            break;
        }

        if (rc != NGX_OK) {
            return ngx_idempotency_multipart_error(mp,
                                             "malformed Content-Disposition");
        }

        if (ngx_idempotency_multipart_equal(&name, "name")) {
            rc = ngx_idempotency_multipart_once(mp, &part->name, &text);

        } else if (ngx_idempotency_multipart_equal(&name, "filename")) {
            rc = ngx_idempotency_multipart_once(mp, &part->filename,
                                                &text);

        } else if (ngx_idempotency_multipart_equal(&name, "filename*")) {
            rc = ngx_idempotency_multipart_once(mp, &part->filename_ext,
                                                &text);
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (part->name.data == NULL) {
        return ngx_idempotency_multipart_error(mp, "part without a name");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_multipart_once(ngx_idempotency_multipart_t *mp,
    ngx_str_t *field, const ngx_str_t *value)
{
    if (field->data) {
        return ngx_idempotency_multipart_error(mp,
                                           "part says the same thing twice");
    }

    *field = *value;

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_multipart_parameter(const u_char **pos,
    const u_char *last, ngx_str_t *name, ngx_str_t *value)
{
    const u_char  *p;

    p = *pos;

    while (p < last && (*p == ' ' || *p == '\t')) {
        p++;
    }

    if (p == last) {
        return NGX_DONE;
    }

    if (*p++ != ';') {
        return NGX_DECLINED;
    }

    while (p < last && (*p == ' ' || *p == '\t')) {
        p++;
    }

    if (p == last) {
        return NGX_DONE;
    }

    name->data = (u_char *) p;

    while (p < last && *p != '=' && ngx_idempotency_multipart_token(*p)) {
        p++;
    }

    name->len = p - name->data;

    if (name->len == 0 || last - p < 2 || *p++ != '=') {
        return NGX_DECLINED;
    }

    if (*p != '"') {
        value->data = (u_char *) p;

        while (p < last && ngx_idempotency_multipart_token(*p)) {
            p++;
        }

        value->len = p - value->data;
        *pos = p;

        return value->len ? NGX_OK : NGX_DECLINED;
    }

    value->data = (u_char *) ++p;

    while (p < last && *p != '"') {

        if (*p == '\\' && last - p > 1 && (p[1] == '"' || p[1] == '\\')) {
            p++;
        }

        p++;
    }

    if (p >= last) {
        return NGX_DECLINED;
    }

    value->len = p - value->data;
    *pos = p + 1;

    return NGX_OK;
}


ngx_uint_t
ngx_idempotency_multipart_equal(const ngx_str_t *text, const char *word)
{
    size_t  i;

    for (i = 0; i < text->len && word[i]; i++) {
        if (ngx_tolower(text->data[i]) != (u_char) word[i]) {
            return 0;
        }
    }

    return i == text->len && word[i] == '\0';
}


ngx_int_t
ngx_idempotency_multipart_error(ngx_idempotency_multipart_t *mp,
    char *error)
{
    mp->error = error;

    return NGX_DECLINED;
}
