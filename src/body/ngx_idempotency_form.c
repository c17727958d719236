
/*
 * The pairs of application/x-www-form-urlencoded into a tree: an object whose
 * names may occur more than once.
 */


#include "ngx_idempotency_body_tree.h"


static ngx_int_t ngx_idempotency_form_decode(u_char **dst,
    const u_char **pos, const u_char *last);


ngx_int_t
ngx_idempotency_form_parse(ngx_idempotency_body_tree_t *tree,
    const ngx_str_t *text)
{
    u_char                            *dst;
    ngx_int_t                          rc;
    const u_char                      *p, *last, *end, *equals, *at;
    ngx_idempotency_body_tree_node_t  *node;

    ngx_idempotency_body_tree_start(tree);

    if (text->len > NGX_MAX_INT32_VALUE) {
        tree->error = "too long";
        return NGX_DECLINED;
    }

    rc = ngx_idempotency_body_tree_add(tree, 0, &node);
    if (rc != NGX_OK) {
        return rc;
    }

    node->type = NGX_IDEMPOTENCY_BODY_TREE_OBJECT;

    dst = ngx_idempotency_body_tree_decode(tree, text->len);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    last = text->data + text->len;

    for (p = text->data; p < last; p = end + 1) {

        end = memchr(p, '&', last - p);

        if (end == NULL) {
            end = last;
        }

        if (end == p) {
            continue;
        }

        equals = memchr(p, '=', end - p);

        if (equals == NULL) {
            equals = end;
        }

        rc = ngx_idempotency_body_tree_add(tree, 0, &node);
        if (rc != NGX_OK) {
            return rc;
        }

        node->type = NGX_IDEMPOTENCY_BODY_TREE_STRING;
        node->flags = NGX_IDEMPOTENCY_BODY_TREE_ESCAPE
                      |NGX_IDEMPOTENCY_BODY_TREE_ESCAPE_NAME;

        node->name = dst;

        at = p;

        if (ngx_idempotency_form_decode(&dst, &at, equals) != NGX_OK) {
            goto invalid;
        }

        node->name_len = (uint32_t) (dst - node->name);
        node->data = dst;

        at = equals + 1;

        if (equals < end
            && ngx_idempotency_form_decode(&dst, &at, end) != NGX_OK)
        {
            goto invalid;
        }

        node->len = (uint32_t) (dst - node->data);
    }

    (void) ngx_idempotency_body_tree_sort(tree, 0);

    return NGX_OK;

invalid:

    tree->error = "% without two hexadecimal digits";
    tree->offset = at - text->data;

    return NGX_DECLINED;
}


/* Leaves *pos at the character that cannot be decoded. */

static ngx_int_t
ngx_idempotency_form_decode(u_char **dst, const u_char **pos,
    const u_char *last)
{
    u_char        *d;
    ngx_int_t      high, low;
    const u_char  *p;

    d = *dst;

    for (p = *pos; p < last; p++) {

        if (*p == '+') {
            *d++ = ' ';
            continue;
        }

        if (*p != '%') {
            *d++ = *p;
            continue;
        }

        *pos = p;

        if (last - p < 3) {
            return NGX_DECLINED;
        }

        high = ngx_idempotency_body_tree_hex(p[1]);
        low = ngx_idempotency_body_tree_hex(p[2]);

        if (high < 0 || low < 0) {
            return NGX_DECLINED;
        }

        *d++ = (u_char) (high << 4 | low);
        p += 2;
    }

    *dst = d;

    return NGX_OK;
}
