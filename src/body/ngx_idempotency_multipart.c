
/*
 * A multipart body (RFC 2046), read piece by piece.  Parsers differ in what
 * they tolerate.  This one tolerates nothing that another one could take for a
 * delimiter: "--boundary" at the start of a line must be one, whole, and
 * between CRLFs.
 */


#include "ngx_idempotency_multipart.h"


static ngx_int_t ngx_idempotency_multipart_boundary(
    ngx_idempotency_multipart_t *mp, const ngx_str_t *boundary);
static ngx_int_t ngx_idempotency_multipart_text(
    ngx_idempotency_multipart_t *mp, const u_char **pos,
    const u_char *last);
static ngx_int_t ngx_idempotency_multipart_held(
    ngx_idempotency_multipart_t *mp, size_t match);
static ngx_int_t ngx_idempotency_multipart_found(
    ngx_idempotency_multipart_t *mp);
static ngx_int_t ngx_idempotency_multipart_line(
    ngx_idempotency_multipart_t *mp, u_char ch);
static ngx_int_t ngx_idempotency_multipart_bytes(
    ngx_idempotency_multipart_t *mp, const u_char *data, size_t len);


ngx_uint_t
ngx_idempotency_multipart_is(const ngx_str_t *type)
{
    ngx_str_t  begin;

    begin.data = type->data;
    begin.len = ngx_min(type->len, sizeof("multipart/") - 1);

    return ngx_idempotency_multipart_equal(&begin, "multipart/");
}


ngx_int_t
ngx_idempotency_multipart_start(ngx_idempotency_multipart_t *mp,
    const ngx_str_t *type, ngx_uint_t parts)
{
    ngx_int_t      rc;
    ngx_str_t      name, value, boundary;
    const u_char  *p, *last;

    mp->error = NULL;
    mp->offset = 0;
    mp->state = NGX_IDEMPOTENCY_MULTIPART_TEXT;
    mp->line = NGX_IDEMPOTENCY_MULTIPART_START;
    mp->candidate = 1;
    mp->match = 0;
    mp->header_len = 0;
    mp->parts = parts ? 1 : 0;
    mp->preamble = 0;
    mp->epilogue = 0;
    mp->inside = 0;
    mp->content = 0;
    mp->cr = 0;

    if (!ngx_idempotency_multipart_is(type)) {
        return ngx_idempotency_multipart_error(mp,
                                        "no Content-Type of multipart");
    }

    p = type->data + sizeof("multipart/") - 1;
    last = type->data + type->len;

    while (p < last && ngx_idempotency_multipart_token(*p)) {
        p++;
    }

    boundary.data = NULL;

    for ( ;; ) {
        rc = ngx_idempotency_multipart_parameter(&p, last, &name,
                                                 &value);
        if (rc == NGX_DONE) {
            break;
        }

        if (rc != NGX_OK) {
            return ngx_idempotency_multipart_error(mp,
                                                  "malformed Content-Type");
        }

        if (!ngx_idempotency_multipart_equal(&name, "boundary")) {
            continue;
        }

        if (boundary.data) {
            return ngx_idempotency_multipart_error(mp,
                                                   "two boundaries");
        }

        boundary = value;
    }

    if (boundary.data == NULL) {
        return ngx_idempotency_multipart_error(mp,
                                            "no boundary in Content-Type");
    }

    return ngx_idempotency_multipart_boundary(mp, &boundary);
}


static ngx_int_t
ngx_idempotency_multipart_boundary(ngx_idempotency_multipart_t *mp,
    const ngx_str_t *boundary)
{
    u_char  *p;
    size_t   i;

    if (boundary->len == 0
        || boundary->len > NGX_IDEMPOTENCY_MULTIPART_BOUNDARY
        || boundary->data[boundary->len - 1] == ' ')
    {
        return ngx_idempotency_multipart_error(mp, "invalid boundary");
    }

    p = mp->dash;

    *p++ = '-';
    *p++ = '-';

    for (i = 0; i < boundary->len; i++) {

        if (boundary->data[i] < ' ' || boundary->data[i] > '~'
            || boundary->data[i] == '\\')
        {
            return ngx_idempotency_multipart_error(mp,
                                                   "invalid boundary");
        }

        *p++ = boundary->data[i];
    }

    mp->dash_len = p - mp->dash;

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_multipart_read(ngx_idempotency_multipart_t *mp,
    const u_char *data, size_t len)
{
    ngx_int_t      rc;
    const u_char  *p, *last;

    p = data;
    last = data + len;
    rc = NGX_OK;

    while (p < last && rc == NGX_OK) {

        switch (mp->state) {

        case NGX_IDEMPOTENCY_MULTIPART_TEXT:
            rc = ngx_idempotency_multipart_text(mp, &p, last);
            break;

        case NGX_IDEMPOTENCY_MULTIPART_EPILOGUE:
            rc = ngx_idempotency_multipart_bytes(mp, p, last - p);
            p = last;
            break;

        default:
            rc = ngx_idempotency_multipart_line(mp, *p++);
            break;
        }
    }

    mp->offset += p - data;

    return rc;
}


ngx_int_t
ngx_idempotency_multipart_end(ngx_idempotency_multipart_t *mp)
{
    if (mp->state == NGX_IDEMPOTENCY_MULTIPART_CLOSED
        || mp->state == NGX_IDEMPOTENCY_MULTIPART_EPILOGUE)
    {
        return NGX_OK;
    }

    return ngx_idempotency_multipart_error(mp, "no closing delimiter");
}


/*
 * Up to the next delimiter or to the end of this piece.  "start" is the first
 * byte that the handler has not got yet.  A line that may be a delimiter begins
 * at "begin", or before this piece if that is NULL: what was seen of it then is
 * known from mp->line and "held", and the handler gets it later if the line is
 * no delimiter.  There is no CR or LF in a boundary, so no line of this kind
 * can begin inside another.
 */

static ngx_int_t
ngx_idempotency_multipart_text(ngx_idempotency_multipart_t *mp,
    const u_char **pos, const u_char *last)
{
    size_t         held;
    ngx_int_t      rc;
    const u_char  *p, *start, *begin;

    p = *pos;
    start = p;
    begin = NULL;
    held = mp->match;

    *pos = last;

    if (mp->cr) {
        mp->cr = 0;

        if (*p == '\n') {
            mp->candidate = 1;
            mp->line = NGX_IDEMPOTENCY_MULTIPART_CRLF;
            mp->match = 0;
            held = 0;
            start = ++p;

        } else {
            rc = ngx_idempotency_multipart_bytes(mp, (u_char *) "\r", 1);
            if (rc != NGX_OK) {
                return rc;
            }
        }
    }

    for ( ;; ) {

        if (mp->candidate) {

            while (p < last && mp->match < mp->dash_len
                   && *p == mp->dash[mp->match])
            {
                p++;
                mp->match++;
            }

            if (mp->match == mp->dash_len || p == last) {
                break;
            }

            mp->candidate = 0;

            if (begin == NULL) {
                rc = ngx_idempotency_multipart_held(mp, held);
                if (rc != NGX_OK) {
                    return rc;
                }
            }
        }

        begin = memchr(p, '\n', last - p);

        if (begin == NULL) {

            if (last > start && last[-1] == '\r') {
                mp->cr = 1;
                last--;
            }

            return ngx_idempotency_multipart_bytes(mp, start,
                                                   last - start);
        }

        p = begin + 1;

        mp->candidate = 1;
        mp->line = NGX_IDEMPOTENCY_MULTIPART_LF;
        mp->match = 0;

        if (begin > start && begin[-1] == '\r') {
            mp->line = NGX_IDEMPOTENCY_MULTIPART_CRLF;
            begin--;
        }
    }

    if (begin) {
        rc = ngx_idempotency_multipart_bytes(mp, start, begin - start);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (mp->match < mp->dash_len) {
        return NGX_OK;
    }

    *pos = p;

    return ngx_idempotency_multipart_found(mp);
}


/* the bytes of earlier pieces that turned out to be no delimiter */

static ngx_int_t
ngx_idempotency_multipart_held(ngx_idempotency_multipart_t *mp,
    size_t match)
{
    ngx_int_t  rc;

    static u_char  crlf[] = "\r\n";

    rc = NGX_OK;

    if (mp->line == NGX_IDEMPOTENCY_MULTIPART_CRLF) {
        rc = ngx_idempotency_multipart_bytes(mp, crlf, 2);

    } else if (mp->line == NGX_IDEMPOTENCY_MULTIPART_LF) {
        rc = ngx_idempotency_multipart_bytes(mp, crlf + 1, 1);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_idempotency_multipart_bytes(mp, mp->dash, match);
}


/* "--boundary" at the start of a line: what was before it is over */

static ngx_int_t
ngx_idempotency_multipart_found(ngx_idempotency_multipart_t *mp)
{
    ngx_int_t  rc;

    mp->candidate = 0;

    if (mp->line == NGX_IDEMPOTENCY_MULTIPART_LF
        || mp->line == NGX_IDEMPOTENCY_MULTIPART_BEGUN)
    {
        return ngx_idempotency_multipart_error(mp,
                                                "delimiter without CRLF");
    }

    mp->state = NGX_IDEMPOTENCY_MULTIPART_DELIMITER;

    if (!mp->inside) {
        mp->preamble = (mp->line == NGX_IDEMPOTENCY_MULTIPART_CRLF);

        if (mp->parts) {
            return NGX_OK;
        }

    } else if (mp->parts && !mp->content) {

        /* no content at all: the empty line is the start of the delimiter */

        if (mp->header_len && mp->header[mp->header_len - 1] != '\n') {
            return ngx_idempotency_multipart_error(mp,
                                         "header of a part does not end");
        }

        rc = ngx_idempotency_multipart_header(mp, mp->header_len);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    return mp->handler(mp, NGX_IDEMPOTENCY_MULTIPART_END, NULL, 0);
}


/* what follows "--boundary" on its line */

static ngx_int_t
ngx_idempotency_multipart_line(ngx_idempotency_multipart_t *mp,
    u_char ch)
{
    if (mp->state == NGX_IDEMPOTENCY_MULTIPART_DELIMITER && ch == '\r') {
        mp->state = NGX_IDEMPOTENCY_MULTIPART_RETURN;

    } else if (mp->state == NGX_IDEMPOTENCY_MULTIPART_RETURN
               && ch == '\n')
    {
        mp->state = NGX_IDEMPOTENCY_MULTIPART_TEXT;
        mp->line = NGX_IDEMPOTENCY_MULTIPART_BEGUN;
        mp->candidate = 1;
        mp->match = 0;
        mp->inside = 1;
        mp->content = 0;
        mp->header_len = 0;

    } else if (mp->state == NGX_IDEMPOTENCY_MULTIPART_DELIMITER
               && ch == '-')
    {
        mp->state = NGX_IDEMPOTENCY_MULTIPART_DASH;

    } else if (mp->state == NGX_IDEMPOTENCY_MULTIPART_DASH && ch == '-') {
        mp->state = NGX_IDEMPOTENCY_MULTIPART_CLOSED;

    } else if (mp->state == NGX_IDEMPOTENCY_MULTIPART_CLOSED
               && ch == '\r')
    {
        mp->state = NGX_IDEMPOTENCY_MULTIPART_LAST;

    } else if (mp->state == NGX_IDEMPOTENCY_MULTIPART_LAST && ch == '\n') {
        mp->state = NGX_IDEMPOTENCY_MULTIPART_EPILOGUE;
        mp->epilogue = 1;
        mp->inside = 0;

    } else {
        return ngx_idempotency_multipart_error(mp,
                                              "text behind a delimiter");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_multipart_bytes(ngx_idempotency_multipart_t *mp,
    const u_char *data, size_t len)
{
    size_t     n;
    ngx_int_t  rc;

    if (mp->parts) {

        if (!mp->inside) {
            return NGX_OK;
        }

        while (len && !mp->content) {

            n = mp->header_len;

            if (n == NGX_IDEMPOTENCY_MULTIPART_HEADER) {
                return ngx_idempotency_multipart_error(mp,
                                            "header of a part is too long");
            }

            mp->header[n++] = *data++;
            mp->header_len = n;
            len--;

            if (mp->header[n - 1] == '\n'
                && n >= 2 && mp->header[n - 2] == '\r'
                && (n == 2 || mp->header[n - 3] == '\n'))
            {
                rc = ngx_idempotency_multipart_header(mp, n - 2);
                if (rc != NGX_OK) {
                    return rc;
                }
            }
        }
    }

    if (len == 0) {
        return NGX_OK;
    }

    return mp->handler(mp, NGX_IDEMPOTENCY_MULTIPART_BYTES, data, len);
}
