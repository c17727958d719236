
/*
 * The strings of JSON: UTF-8, escapes, surrogates.
 */


#include "ngx_idempotency_json.h"


static ngx_int_t ngx_idempotency_json_escape(
    ngx_idempotency_json_t *j, u_char **dst);
static ngx_int_t ngx_idempotency_json_unicode(
    ngx_idempotency_json_t *j, u_char **dst);
static ngx_int_t ngx_idempotency_json_hex(ngx_idempotency_json_t *j,
    uint32_t *unit);
static size_t ngx_idempotency_json_utf8(const u_char *p,
    const u_char *last);


ngx_int_t
ngx_idempotency_json_string_parts(ngx_idempotency_json_t *j,
    const u_char **data, uint32_t *len, ngx_uint_t *escaped)
{
    size_t         n;
    u_char        *dst, *decoded;
    ngx_int_t      rc;
    const u_char  *p;

    dst = NULL;
    decoded = NULL;
    *escaped = 0;

    p = ++j->pos;

    for ( ;; ) {

        j->pos = ngx_idempotency_json_skip(j->pos, j->last);

        if (j->pos == j->last) {
            return ngx_idempotency_json_error(j, "unexpected end");
        }

        if (*j->pos >= 0x80) {
            n = ngx_idempotency_json_utf8(j->pos, j->last);

            if (n == 0) {
                return ngx_idempotency_json_error(j, "not UTF-8");
            }

            j->pos += n;
            continue;
        }

        if (*j->pos < 0x20) {
            return ngx_idempotency_json_error(j, "a control character");
        }

        if (dst == NULL && *j->pos == '"') {
            *data = p;
            *len = (uint32_t) (j->pos - p);
            j->pos++;
            return NGX_OK;
        }

        if (dst == NULL) {
            dst = ngx_idempotency_body_tree_decode(j->tree, j->last - j->start);
            if (dst == NULL) {
                return NGX_ERROR;
            }

            decoded = dst;
            *escaped = 1;
        }

        dst = ngx_cpymem(dst, p, j->pos - p);

        if (*j->pos == '"') {
            break;
        }

        /* a backslash */

        rc = ngx_idempotency_json_escape(j, &dst);
        if (rc != NGX_OK) {
            return rc;
        }

        p = j->pos;
    }

    j->pos++;
    j->tree->decoded_last = dst;

    *data = decoded;
    *len = (uint32_t) (dst - decoded);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_json_escape(ngx_idempotency_json_t *j, u_char **dst)
{
    u_char  ch;

    if (j->last - j->pos < 2) {
        return ngx_idempotency_json_error(j, "unexpected end");
    }

    ch = j->pos[1];

    switch (ch) {

    case '"':
    case '\\':
    case '/':
        break;

    case 'b':
        ch = '\b';
        break;

    case 'f':
        ch = '\f';
        break;

    case 'n':
        ch = LF;
        break;

    case 'r':
        ch = CR;
        break;

    case 't':
        ch = '\t';
        break;

    case 'u':
        return ngx_idempotency_json_unicode(j, dst);

    default:
        return ngx_idempotency_json_error(j, "not an escape");
    }

    *(*dst)++ = ch;
    j->pos += 2;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_json_unicode(ngx_idempotency_json_t *j,
    u_char **dst)
{
    u_char    *p;
    uint32_t   u, low;

    if (ngx_idempotency_json_hex(j, &u) != NGX_OK) {
        return ngx_idempotency_json_error(j, "not an escape");
    }

    if (u >= 0xd800 && u < 0xe000) {

        if (u >= 0xdc00
            || ngx_idempotency_json_hex(j, &low) != NGX_OK
            || low < 0xdc00 || low >= 0xe000)
        {
            return ngx_idempotency_json_error(j, "half of a surrogate "
                                              "pair");
        }

        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    }

    p = *dst;

    if (u < 0x80) {
        *p++ = (u_char) u;

    } else if (u < 0x800) {
        *p++ = (u_char) (0xc0 | u >> 6);
        *p++ = (u_char) (0x80 | (u & 0x3f));

    } else if (u < 0x10000) {
        *p++ = (u_char) (0xe0 | u >> 12);
        *p++ = (u_char) (0x80 | (u >> 6 & 0x3f));
        *p++ = (u_char) (0x80 | (u & 0x3f));

    } else {
        *p++ = (u_char) (0xf0 | u >> 18);
        *p++ = (u_char) (0x80 | (u >> 12 & 0x3f));
        *p++ = (u_char) (0x80 | (u >> 6 & 0x3f));
        *p++ = (u_char) (0x80 | (u & 0x3f));
    }

    *dst = p;

    return NGX_OK;
}


/* the six characters of one escape */

static ngx_int_t
ngx_idempotency_json_hex(ngx_idempotency_json_t *j, uint32_t *unit)
{
    uint32_t    u;
    ngx_int_t   digit;
    ngx_uint_t  i;

    if (j->last - j->pos < 6 || j->pos[0] != '\\' || j->pos[1] != 'u') {
        return NGX_DECLINED;
    }

    u = 0;

    for (i = 2; i < 6; i++) {
        digit = ngx_idempotency_body_tree_hex(j->pos[i]);

        if (digit < 0) {
            return NGX_DECLINED;
        }

        u = u << 4 | (uint32_t) digit;
    }

    j->pos += 6;
    *unit = u;

    return NGX_OK;
}


/* RFC 3629: the shortest form, no surrogates, up to U+10FFFF; 0 if not */

static size_t
ngx_idempotency_json_utf8(const u_char *p, const u_char *last)
{
    size_t  n, i;
    u_char  from, to;

    from = 0x80;
    to = 0xbf;

    if (*p >= 0xc2 && *p <= 0xdf) {
        n = 2;

    } else if (*p >= 0xe0 && *p <= 0xef) {
        n = 3;
        from = (*p == 0xe0) ? 0xa0 : 0x80;
        to = (*p == 0xed) ? 0x9f : 0xbf;

    } else if (*p >= 0xf0 && *p <= 0xf4) {
        n = 4;
        from = (*p == 0xf0) ? 0x90 : 0x80;
        to = (*p == 0xf4) ? 0x8f : 0xbf;

    } else {
        return 0;
    }

    if ((size_t) (last - p) < n || p[1] < from || p[1] > to) {
        return 0;
    }

    for (i = 2; i < n; i++) {
        if (p[i] < 0x80 || p[i] > 0xbf) {
            return 0;
        }
    }

    return n;
}
