
/*
 * The canonical text of a document.
 */


#include "ngx_idempotency_canonical.h"
#include "ngx_idempotency_number.h"


#define NGX_HTTP_IDEMPOTENCY_CANONICAL_BUF  2048


typedef struct {
    ngx_idempotency_body_tree_node_t    *nodes;
    ngx_idempotency_canonical_pt   handler;
    ngx_int_t                           rc;
    u_char                             *last;
    u_char                              buf
                                      [NGX_HTTP_IDEMPOTENCY_CANONICAL_BUF];
} ngx_idempotency_canonical_t;


#define ngx_idempotency_canonical_room(c)                                \
    ((size_t) ((c)->buf + NGX_HTTP_IDEMPOTENCY_CANONICAL_BUF - (c)->last))


static void ngx_idempotency_canonical_value(
    ngx_idempotency_canonical_t *c, uint32_t i, ngx_uint_t whole);
static void ngx_idempotency_canonical_children(
    ngx_idempotency_canonical_t *c,
    ngx_idempotency_body_tree_node_t *node, ngx_uint_t whole);
static ngx_uint_t ngx_idempotency_canonical_skips(
    ngx_idempotency_body_tree_node_t *node, ngx_uint_t whole);
static void ngx_idempotency_canonical_number(
    ngx_idempotency_canonical_t *c, const u_char *data, size_t len);
static void ngx_idempotency_canonical_string(
    ngx_idempotency_canonical_t *c, const u_char *data, size_t len,
    ngx_uint_t escape);
static void ngx_idempotency_canonical_escape(
    ngx_idempotency_canonical_t *c, u_char ch);
static ngx_inline void ngx_idempotency_canonical_char(
    ngx_idempotency_canonical_t *c, u_char ch);
static void ngx_idempotency_canonical_put(
    ngx_idempotency_canonical_t *c, const void *data, size_t len);
static void ngx_idempotency_canonical_flush(
    ngx_idempotency_canonical_t *c, const u_char *data, size_t len);


ngx_int_t
ngx_idempotency_canonical(ngx_idempotency_body_tree_t *tree,
    ngx_uint_t some, ngx_idempotency_canonical_pt handler)
{
    ngx_idempotency_canonical_t  c;

    c.nodes = tree->nodes;
    c.handler = handler;
    c.rc = NGX_OK;
    c.last = c.buf;

    if (tree->n
        && !ngx_idempotency_canonical_skips(&tree->nodes[0], !some))
    {
        ngx_idempotency_canonical_value(&c, 0, !some);
    }

    ngx_idempotency_canonical_flush(&c, NULL, 0);

    return c.rc;
}


/* Recursive: the depth of a document is bounded. */

static void
ngx_idempotency_canonical_value(ngx_idempotency_canonical_t *c,
    uint32_t i, ngx_uint_t whole)
{
    ngx_idempotency_body_tree_node_t  *node;

    node = &c->nodes[i];

    switch (node->type) {

    case NGX_IDEMPOTENCY_BODY_TREE_NULL:
        ngx_idempotency_canonical_put(c, "null", 4);
        break;

    case NGX_IDEMPOTENCY_BODY_TREE_TRUE:
        ngx_idempotency_canonical_put(c, "true", 4);
        break;

    case NGX_IDEMPOTENCY_BODY_TREE_FALSE:
        ngx_idempotency_canonical_put(c, "false", 5);
        break;

    case NGX_IDEMPOTENCY_BODY_TREE_NUMBER:
        if (node->flags & NGX_IDEMPOTENCY_BODY_TREE_REWRITE) {
            ngx_idempotency_canonical_number(c, node->data, node->len);

        } else {
            ngx_idempotency_canonical_put(c, node->data, node->len);
        }

        break;

    case NGX_IDEMPOTENCY_BODY_TREE_STRING:
        ngx_idempotency_canonical_string(c, node->data, node->len,
                              node->flags & NGX_IDEMPOTENCY_BODY_TREE_ESCAPE);
        break;

    case NGX_IDEMPOTENCY_BODY_TREE_ARRAY:
        ngx_idempotency_canonical_char(c, '[');
        ngx_idempotency_canonical_children(c, node, whole);
        ngx_idempotency_canonical_char(c, ']');
        break;

    default: /* NGX_IDEMPOTENCY_BODY_TREE_OBJECT */
        ngx_idempotency_canonical_char(c, '{');
        ngx_idempotency_canonical_children(c, node, whole);
        ngx_idempotency_canonical_char(c, '}');
        break;
    }
}


static void
ngx_idempotency_canonical_children(ngx_idempotency_canonical_t *c,
    ngx_idempotency_body_tree_node_t *node, ngx_uint_t whole)
{
    uint32_t                           i;
    ngx_uint_t                         comma;
    ngx_idempotency_body_tree_node_t  *child;

    whole |= node->flags & NGX_IDEMPOTENCY_BODY_TREE_INCLUDED;
    comma = 0;

    for (i = node->child; i; i = child->next) {
        child = &c->nodes[i];

        if (ngx_idempotency_canonical_skips(child, whole)) {
            continue;
        }

        if (comma) {
            ngx_idempotency_canonical_char(c, ',');
        }

        comma = 1;

        if (child->span) {
            ngx_idempotency_canonical_put(c, child->name - 1,
                                          child->span);
            continue;
        }

        if (node->type == NGX_IDEMPOTENCY_BODY_TREE_OBJECT) {
            ngx_idempotency_canonical_string(c, child->name,
                        child->name_len,
                        child->flags & NGX_IDEMPOTENCY_BODY_TREE_ESCAPE_NAME);
            ngx_idempotency_canonical_char(c, ':');
        }

        ngx_idempotency_canonical_value(c, i, whole);
    }
}


static ngx_uint_t
ngx_idempotency_canonical_skips(ngx_idempotency_body_tree_node_t *node,
    ngx_uint_t whole)
{
    if (node->flags & NGX_IDEMPOTENCY_BODY_TREE_EXCLUDED) {
        return 1;
    }

    if (whole || (node->flags & NGX_IDEMPOTENCY_BODY_TREE_INCLUDED)) {
        return 0;
    }

    return !(node->flags & NGX_IDEMPOTENCY_BODY_TREE_WAY)
           || (node->type != NGX_IDEMPOTENCY_BODY_TREE_ARRAY
               && node->type != NGX_IDEMPOTENCY_BODY_TREE_OBJECT);
}


static void
ngx_idempotency_canonical_number(ngx_idempotency_canonical_t *c,
    const u_char *data, size_t len)
{
    if (ngx_idempotency_number_room(len)
        > ngx_idempotency_canonical_room(c))
    {
        ngx_idempotency_canonical_flush(c, NULL, 0);
    }

    c->last = ngx_idempotency_number_write(c->last, data, len);
}


static void
ngx_idempotency_canonical_string(ngx_idempotency_canonical_t *c,
    const u_char *data, size_t len, ngx_uint_t escape)
{
    const u_char  *p, *last;

    if (!escape && len + 2 <= ngx_idempotency_canonical_room(c)) {
        *c->last++ = '"';
        c->last = ngx_cpymem(c->last, data, len);
        *c->last++ = '"';
        return;
    }

    ngx_idempotency_canonical_char(c, '"');

    if (escape) {
        last = data + len;

        for (p = data; p < last; p++) {

            if (*p >= 0x20 && *p != '"' && *p != '\\') {
                continue;
            }

            ngx_idempotency_canonical_put(c, data, p - data);
            ngx_idempotency_canonical_escape(c, *p);

            data = p + 1;
        }

        len = last - data;
    }

    ngx_idempotency_canonical_put(c, data, len);
    ngx_idempotency_canonical_char(c, '"');
}


static void
ngx_idempotency_canonical_escape(ngx_idempotency_canonical_t *c,
    u_char ch)
{
    u_char  escape[] = "\\u00";

    static u_char  letters[] = "btn?fr";
    static u_char  hex[] = "0123456789abcdef";

    if (ch >= '\b' && ch <= '\r' && ch != '\v') {
        escape[1] = letters[ch - '\b'];
        ngx_idempotency_canonical_put(c, escape, 2);
        return;
    }

    if (ch >= 0x20) {
        escape[1] = ch;
        ngx_idempotency_canonical_put(c, escape, 2);
        return;
    }

    ngx_idempotency_canonical_put(c, escape, 4);
    ngx_idempotency_canonical_put(c, &hex[ch >> 4], 1);
    ngx_idempotency_canonical_put(c, &hex[ch & 0xf], 1);
}


static ngx_inline void
ngx_idempotency_canonical_char(ngx_idempotency_canonical_t *c,
    u_char ch)
{
    if (ngx_idempotency_canonical_room(c) == 0) {
        ngx_idempotency_canonical_flush(c, NULL, 0);
    }

    *c->last++ = ch;
}


static void
ngx_idempotency_canonical_put(ngx_idempotency_canonical_t *c,
    const void *data, size_t len)
{
    if (len > ngx_idempotency_canonical_room(c)) {
        ngx_idempotency_canonical_flush(c, data, len);
        return;
    }

    c->last = ngx_cpymem(c->last, data, len);
}


/* what is in the buffer, and then these bytes */

static void
ngx_idempotency_canonical_flush(ngx_idempotency_canonical_t *c,
    const u_char *data, size_t len)
{
    if (c->rc == NGX_OK && c->last != c->buf) {
        c->rc = c->handler(c->buf, c->last - c->buf);
    }

    c->last = c->buf;

    if (c->rc == NGX_OK && len) {
        c->rc = c->handler(data, len);
    }
}
