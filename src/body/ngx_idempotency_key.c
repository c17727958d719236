
/*
 * The text of a key: parse, unquote, read as a number.
 */


#include "ngx_idempotency_key.h"


#define NGX_IDEMPOTENCY_KEY_MAX_NUMBER  (UINT64_MAX >> 1)


static ngx_int_t ngx_idempotency_key_bare(const ngx_str_t *key);
static ngx_int_t ngx_idempotency_key_quoted(ngx_str_t *key,
    size_t *escapes);
static u_char *ngx_idempotency_key_string(u_char *p, u_char *last,
    size_t *escapes);
static ngx_int_t ngx_idempotency_key_parameters(u_char *p, u_char *last);
static u_char *ngx_idempotency_key_item(u_char *p, u_char *last);
static u_char *ngx_idempotency_key_digits(u_char *p, u_char *last,
    ngx_uint_t decimal);
static u_char *ngx_idempotency_key_display(u_char *p, u_char *last);


/* what may follow the first character of a parameter's name, and of a token */

#define ngx_idempotency_key_is_name(c)                                        \
    (((c) >= 'a' && (c) <= 'z') || ((c) >= '0' && (c) <= '9')                 \
     || ((c) && strchr("_-.*", (c))))

#define ngx_idempotency_key_is_token(c)                                       \
    (isalnum(c) || ((c) && strchr("!#$%&'*+-.^_`|~:/", (c))))


ngx_int_t
ngx_idempotency_key_parse(const ngx_str_t *value, size_t max,
    ngx_uint_t strict, ngx_str_t *key, size_t *escapes)
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

    if (key->data[0] == '"') {
        rc = ngx_idempotency_key_quoted(key, escapes);

    } else {
        rc = strict ? NGX_ABORT : ngx_idempotency_key_bare(key);
    }

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


/* An item of RFC 9651, 4.2.3: a string, and parameters that mean nothing. */

static ngx_int_t
ngx_idempotency_key_quoted(ngx_str_t *key, size_t *escapes)
{
    u_char  *p, *last;

    last = key->data + key->len;

    p = ngx_idempotency_key_string(key->data, last, escapes);

    if (p == NULL || ngx_idempotency_key_parameters(p, last) != NGX_OK) {
        return NGX_ABORT;
    }

    key->data++;
    key->len = p - 1 - key->data;

    return NGX_OK;
}


/* RFC 9651, 4.2.5, from the first quote; returns what is behind the last. */

static u_char *
ngx_idempotency_key_string(u_char *p, u_char *last, size_t *escapes)
{
    for (p++; /* void */ ; p++) {

        if (p == last || *p < 0x20 || *p >= 0x7f) {
            return NULL;
        }

        if (*p == '"') {
            return p + 1;
        }

        if (*p == '\\') {
            p++;

            if (p == last || (*p != '"' && *p != '\\')) {
                return NULL;
            }

            (*escapes)++;
        }
    }
}


/* RFC 9651, 4.2.3.2 */

static ngx_int_t
ngx_idempotency_key_parameters(u_char *p, u_char *last)
{
    while (p < last) {

        if (*p++ != ';') {
            return NGX_ABORT;
        }

        while (p < last && *p == ' ') { p++; }

        if (p == last || !((*p >= 'a' && *p <= 'z') || *p == '*')) {
            return NGX_ABORT;
        }

        while (p < last && ngx_idempotency_key_is_name(*p)) { p++; }

        if (p < last && *p == '=') {
            p = ngx_idempotency_key_item(p + 1, last);

            if (p == NULL) {
                return NGX_ABORT;
            }
        }
    }

    return NGX_OK;
}


/* RFC 9651, 4.2.3.1, which returns what is behind it, or NULL */

static u_char *
ngx_idempotency_key_item(u_char *p, u_char *last)
{
    size_t  escapes;

    if (p == last) {
        return NULL;
    }

    switch (*p) {

    case '"':
        escapes = 0;
        return ngx_idempotency_key_string(p, last, &escapes);

    case '?':
        return (last - p >= 2 && (p[1] == '0' || p[1] == '1')) ? p + 2 : NULL;

    case '@':
        return ngx_idempotency_key_digits(p + 1, last, 0);

    case '%':
        return ngx_idempotency_key_display(p + 1, last);

    case ':':

        for (p++; p < last; p++) {

            if (*p == ':') {
                return p + 1;
            }

            if (!isalnum(*p) && *p != '+' && *p != '/' && *p != '=') {
                return NULL;
            }
        }

        return NULL;

    default:
        break;
    }

    if (*p == '-' || (*p >= '0' && *p <= '9')) {
        return ngx_idempotency_key_digits(p, last, 1);
    }

    if (!isalpha(*p) && *p != '*') {
        return NULL;
    }

    while (p < last && ngx_idempotency_key_is_token(*p)) { p++; }

    return p;
}


/* 15 digits at most, or 12 and behind a point 3 */

static u_char *
ngx_idempotency_key_digits(u_char *p, u_char *last, ngx_uint_t decimal)
{
    u_char  *start;

    if (p < last && *p == '-') {
        p++;
    }

    for (start = p; p < last && *p >= '0' && *p <= '9'; p++) { /* void */ }

    if (p == start || p - start > 15) {
        return NULL;
    }

    if (!decimal || p == last || *p != '.') {
        return p;
    }

    if (p - start > 12) {
        return NULL;
    }

    for (start = ++p; p < last && *p >= '0' && *p <= '9'; p++) { /* void */ }

    return (p == start || p - start > 3) ? NULL : p;
}


/*
 * RFC 9651, 4.2.10, without a look at the UTF-8 that its escapes make: nothing
 * reads it
 */

static u_char *
ngx_idempotency_key_display(u_char *p, u_char *last)
{
    ngx_uint_t  i;

    if (p == last || *p != '"') {
        return NULL;
    }

    for (p++; p < last && *p >= 0x20 && *p < 0x7f; p++) {

        if (*p == '"') {
            return p + 1;
        }

        if (*p != '%') {
            continue;
        }

        for (i = 0; i < 2; i++) {
            p++;

            if (p == last
                || !((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f')))
            {
                return NULL;
            }
        }
    }

    return NULL;
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
