
/*
 * Messages of JSON-RPC: where the id is, byte for byte.
 *
 * The tree of a document has strings without their escapes.  The id of an
 * answer must be that of the request as the client has written it, so it is
 * looked for in the text itself.
 */


#include "ngx_idempotency_jsonrpc.h"


static const u_char *ngx_idempotency_jsonrpc_space(const u_char *p,
    const u_char *last);
static const u_char *ngx_idempotency_jsonrpc_string(const u_char *p,
    const u_char *last);
static const u_char *ngx_idempotency_jsonrpc_value(const u_char *p,
    const u_char *last);
static ngx_uint_t ngx_idempotency_jsonrpc_is(const u_char *name, size_t len,
    char *word);


ngx_int_t
ngx_idempotency_jsonrpc_id(const ngx_str_t *text, ngx_str_t *id,
    ngx_uint_t *has)
{
    size_t         len;
    const u_char  *p, *last, *name, *value;

    ngx_str_null(id);
    *has = 0;

    last = text->data + text->len;
    p = ngx_idempotency_jsonrpc_space(text->data, last);

    if (p == last || *p++ != '{') {
        return NGX_DECLINED;
    }

    p = ngx_idempotency_jsonrpc_space(p, last);

    if (p < last && *p == '}') {
        p = ngx_idempotency_jsonrpc_space(p + 1, last);
        return p == last ? NGX_OK : NGX_DECLINED;
    }

    for ( ;; ) {

        name = p + 1;
        p = ngx_idempotency_jsonrpc_string(p, last);

        if (p == NULL) {
            return NGX_DECLINED;
        }

        len = p - 1 - name;

        if (memchr(name, '\\', len)) {
            return NGX_DECLINED;
        }

        p = ngx_idempotency_jsonrpc_space(p, last);

        if (p == last || *p++ != ':') {
            return NGX_DECLINED;
        }

        value = ngx_idempotency_jsonrpc_space(p, last);
        p = ngx_idempotency_jsonrpc_value(value, last);

        if (p == NULL) {
            return NGX_DECLINED;
        }

        if (ngx_idempotency_jsonrpc_is(name, len, "id")) {

            if (id->len) {
                return NGX_DECLINED;
            }

            id->data = (u_char *) value;
            id->len = p - value;

        } else if (ngx_idempotency_jsonrpc_is(name, len, "method")) {
            *has |= NGX_IDEMPOTENCY_JSONRPC_METHOD;

        } else if (ngx_idempotency_jsonrpc_is(name, len, "result")
                   || ngx_idempotency_jsonrpc_is(name, len, "error"))
        {
            *has |= NGX_IDEMPOTENCY_JSONRPC_RESULT;
        }

        p = ngx_idempotency_jsonrpc_space(p, last);

        if (p == last) {
            return NGX_DECLINED;
        }

        if (*p == '}') {
            p = ngx_idempotency_jsonrpc_space(p + 1, last);
            return p == last ? NGX_OK : NGX_DECLINED;
        }

        if (*p++ != ',') {
            return NGX_DECLINED;
        }

        p = ngx_idempotency_jsonrpc_space(p, last);
    }
}


static const u_char *
ngx_idempotency_jsonrpc_space(const u_char *p, const u_char *last)
{
    while (p < last
           && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
    {
        p++;
    }

    return p;
}


/* Behind the closing quote of the string that begins at p, or NULL. */

static const u_char *
ngx_idempotency_jsonrpc_string(const u_char *p, const u_char *last)
{
    if (p == last || *p++ != '"') {
        return NULL;
    }

    for ( /* void */ ; p < last; p++) {

        if (*p == '"') {
            return p + 1;
        }

        if (*p == '\\' && ++p == last) {
            break;
        }
    }

    return NULL;
}


/* Behind the value that begins at p, or NULL. */

static const u_char *
ngx_idempotency_jsonrpc_value(const u_char *p, const u_char *last)
{
    size_t         depth;
    const u_char  *start;

    if (p < last && *p == '"') {
        return ngx_idempotency_jsonrpc_string(p, last);
    }

    start = p;

    for (depth = 0; p < last; p++) {

        switch (*p) {

        case '"':

            /* inside an object or array, or not JSON */

            p = depth ? ngx_idempotency_jsonrpc_string(p, last) : NULL;

            if (p == NULL) {
                return NULL;
            }

            p--;
            break;

        case '{':
        case '[':
            depth++;
            break;

        case '}':
        case ']':

            if (depth == 0) {
                return p > start ? p : NULL;
            }

            if (--depth == 0) {
                return p + 1;
            }

            break;

        case ',':
        case ' ':
        case '\t':
        case '\n':
        case '\r':

            if (depth == 0) {
                return p > start ? p : NULL;
            }

            break;

        default:
            break;
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_idempotency_jsonrpc_is(const u_char *name, size_t len, char *word)
{
    return len == ngx_strlen(word) && ngx_memcmp(name, word, len) == 0;
}
