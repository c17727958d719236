
/*
 * The text of a key: parse, unquote, read as a number.
 */


#include "ngx_idempotency_key.h"


#define NGX_IDEMPOTENCY_KEY_MAX_NUMBER  (UINT64_MAX >> 1)


static ngx_int_t ngx_idempotency_key_bare(const ngx_str_t *key);
static ngx_int_t ngx_idempotency_key_quoted(ngx_str_t *key,
    size_t *escapes);


ngx_int_t
ngx_idempotency_key_parse(const ngx_str_t *value, size_t max,
    ngx_str_t *key, size_t *escapes)
{
    ngx_int_t  rc;

    *key = *value;
    *escapes = 0;

    /* SP and nothing else, as RFC 9651, 4.2 */

    while (key->len && key->data[0] == ' ') {
        key->data++;
        key->len--;
    }

    while (key->len && key->data[key->len - 1] == ' ') {
        key->len--;
    }

    if (key->len == 0) {
        return NGX_ABORT;
    }

    rc = (key->data[0] == '"') ? ngx_idempotency_key_quoted(key, escapes)
                               : ngx_idempotency_key_bare(key);

    if (rc != NGX_OK || key->len == 0 || key->len - *escapes > max) {
        return NGX_ABORT;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_key_bare(const ngx_str_t *key)
{
    size_t  i;

    for (i = 0; i < key->len; i++) {
        if (key->data[i] <= 0x20 || key->data[i] >= 0x7f) {
            return NGX_ABORT;
        }
    }

    return NGX_OK;
}


/* RFC 9651, 4.2.5; anything behind the closing quote is too much */

static ngx_int_t
ngx_idempotency_key_quoted(ngx_str_t *key, size_t *escapes)
{
    u_char  *p, *last;

    last = key->data + key->len;

    for (p = key->data + 1; /* void */ ; p++) {

        if (p == last || *p < 0x20 || *p >= 0x7f) {
            return NGX_ABORT;
        }

        if (*p == '"') {
            break;
        }

        if (*p == '\\') {
            p++;

            if (p == last || (*p != '"' && *p != '\\')) {
                return NGX_ABORT;
            }

            (*escapes)++;
        }
    }

    if (p + 1 != last) {
        return NGX_ABORT;
    }

    key->data++;
    key->len -= 2;

    return NGX_OK;
}


void
ngx_idempotency_key_unescape(ngx_str_t *key, u_char *dst)
{
    u_char  *p, *last, *start;

    start = dst;
    last = key->data + key->len;

    for (p = key->data; p < last; p++) {

        if (*p == '\\') {
            p++;
        }

        *dst++ = *p;
    }

    key->data = start;
    key->len = dst - start;
}


ngx_int_t
ngx_idempotency_key_number(const ngx_str_t *key, uint64_t *n)
{
    size_t    i;
    uint64_t  digit, value;

    if (key->len == 0 || (key->len > 1 && key->data[0] == '0')) {
        return NGX_ABORT;
    }

    value = 0;

    for (i = 0; i < key->len; i++) {

        if (key->data[i] < '0' || key->data[i] > '9') {
            return NGX_ABORT;
        }

        digit = key->data[i] - '0';

        if (value > (NGX_IDEMPOTENCY_KEY_MAX_NUMBER - digit) / 10) {
            return NGX_ABORT;
        }

        value = value * 10 + digit;
    }

    *n = value;

    return NGX_OK;
}
