
/*
 * JSON (RFC 8259) into a tree: strictly, in one pass, without recursion.
 * Refuses besides: bytes that are not UTF-8, surrogates that are no pair,
 * names that occur twice, numbers beyond the range of a double.  Parsers
 * disagree on the meaning of such texts.
 */


#include "ngx_idempotency_json.h"
#include "ngx_idempotency_number.h"


/* without an exponent, so many digits are in range */
#define NGX_IDEMPOTENCY_JSON_PLAIN  300

/* and so many need no exponent */
#define NGX_IDEMPOTENCY_JSON_SAME   21


static ngx_inline void ngx_idempotency_json_space(
    ngx_idempotency_json_t *j);
static ngx_inline ngx_uint_t ngx_idempotency_json_comma(
    ngx_idempotency_json_t *j);
static ngx_int_t ngx_idempotency_json_step(
    ngx_idempotency_json_t *j);
static ngx_int_t ngx_idempotency_json_children(
    ngx_idempotency_json_t *j, ngx_uint_t object);
static ngx_int_t ngx_idempotency_json_name(
    ngx_idempotency_json_t *j, ngx_idempotency_body_tree_node_t *node);
static ngx_int_t ngx_idempotency_json_value(
    ngx_idempotency_json_t *j, ngx_idempotency_body_tree_node_t *node);
static ngx_int_t ngx_idempotency_json_open(
    ngx_idempotency_json_t *j);
static ngx_int_t ngx_idempotency_json_close(
    ngx_idempotency_json_t *j);
static ngx_int_t ngx_idempotency_json_word(
    ngx_idempotency_json_t *j, char *word, size_t len);
static ngx_int_t ngx_idempotency_json_number(
    ngx_idempotency_json_t *j, ngx_idempotency_body_tree_node_t *node);

ngx_int_t
ngx_idempotency_json_parse(ngx_idempotency_body_tree_t *tree,
    const ngx_str_t *text)
{
    ngx_int_t               rc;
    ngx_idempotency_json_t  j;

    ngx_idempotency_body_tree_start(tree);

    ngx_memzero(&j, sizeof(ngx_idempotency_json_t));

    j.tree = tree;
    j.start = text->data;
    j.pos = text->data;
    j.last = text->data + text->len;

    if (text->len > NGX_MAX_INT32_VALUE) {
        return ngx_idempotency_json_error(&j, "too long");
    }

    for ( ;; ) {

        ngx_idempotency_json_space(&j);

        if (j.pos == j.last) {
            break;
        }

        rc = ngx_idempotency_json_step(&j);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (j.depth || j.state != NGX_IDEMPOTENCY_JSON_AFTER) {
        return ngx_idempotency_json_error(&j, "unexpected end");
    }

    return NGX_OK;
}


static ngx_inline void
ngx_idempotency_json_space(ngx_idempotency_json_t *j)
{
    const u_char  *p, *last;

    last = j->last;

    for (p = j->pos; p < last && *p <= ' '; p++) {
        if (*p != ' ' && *p != LF && *p != CR && *p != '\t') {
            break;
        }
    }

    j->pos = p;
}


/* goes behind it and the white space there, if that is what comes */

static ngx_inline ngx_uint_t
ngx_idempotency_json_comma(ngx_idempotency_json_t *j)
{
    ngx_idempotency_json_space(j);

    if (j->pos == j->last || *j->pos != ',') {
        return 0;
    }

    j->pos++;

    ngx_idempotency_json_space(j);

    return 1;
}


/* children, or the end of an array or object */

static ngx_int_t
ngx_idempotency_json_step(ngx_idempotency_json_t *j)
{
    ngx_uint_t  object;

    switch (j->state) {

    case NGX_IDEMPOTENCY_JSON_ROOT:
        return ngx_idempotency_json_children(j, 0);

    case NGX_IDEMPOTENCY_JSON_FIRST_NAME:

        if (*j->pos == '}') {
            return ngx_idempotency_json_close(j);
        }

        return ngx_idempotency_json_children(j, 1);

    case NGX_IDEMPOTENCY_JSON_FIRST:

        if (*j->pos == ']') {
            return ngx_idempotency_json_close(j);
        }

        return ngx_idempotency_json_children(j, 0);

    default: /* NGX_IDEMPOTENCY_JSON_AFTER */
        break;
    }

    if (j->depth == 0) {
        return ngx_idempotency_json_error(j, "unexpected character");
    }

    object = (j->tree->nodes[j->parent].type
              == NGX_IDEMPOTENCY_BODY_TREE_OBJECT);

    if (ngx_idempotency_json_comma(j)) {
        return ngx_idempotency_json_children(j, object);
    }

    if (*j->pos == (object ? '}' : ']')) {
        return ngx_idempotency_json_close(j);
    }

    return ngx_idempotency_json_error(j, "unexpected character");
}


/* values and their names, up to one that has children itself, or the last */

static ngx_int_t
ngx_idempotency_json_children(ngx_idempotency_json_t *j,
    ngx_uint_t object)
{
    ngx_int_t                          rc;
    ngx_uint_t                         tight;
    const u_char                      *start;
    ngx_idempotency_body_tree_node_t  *node;

    do {
        if (j->pos == j->last) {
            return ngx_idempotency_json_error(j, "unexpected end");
        }

        if (object && *j->pos != '"') {
            return ngx_idempotency_json_error(j, "a name is missing");
        }

        rc = ngx_idempotency_body_tree_add(j->tree, j->parent, &node);
        if (rc != NGX_OK) {
            return rc;
        }

        start = j->pos;
        tight = 0;

        if (object) {
            rc = ngx_idempotency_json_name(j, node);
            if (rc != NGX_OK) {
                return rc;
            }

            /* but two quotes and the colon, which leaves no white space */
            tight = ((size_t) (j->pos - start) == (size_t) node->name_len + 3);
        }

        rc = ngx_idempotency_json_value(j, node);
        if (rc != NGX_OK) {
            return rc;
        }

        if (j->state != NGX_IDEMPOTENCY_JSON_AFTER) {
            return NGX_OK;
        }

        /* no flag: neither escapes nor another form of the number */

        if (tight && node->flags == 0) {
            node->span = (uint32_t) (j->pos - start);
        }

    } while (j->depth && ngx_idempotency_json_comma(j));

    return NGX_OK;
}


/* up to the value */

static ngx_int_t
ngx_idempotency_json_name(ngx_idempotency_json_t *j,
    ngx_idempotency_body_tree_node_t *node)
{
    ngx_int_t   rc;
    ngx_uint_t  escaped;

    rc = ngx_idempotency_json_string(j, &node->name, &node->name_len,
                                     &escaped);
    if (rc != NGX_OK) {
        return rc;
    }

    if (escaped) {
        node->flags |= NGX_IDEMPOTENCY_BODY_TREE_ESCAPE_NAME;
    }

    ngx_idempotency_json_space(j);

    if (j->pos == j->last || *j->pos != ':') {
        return ngx_idempotency_json_error(j, "a colon is missing");
    }

    j->pos++;

    ngx_idempotency_json_space(j);

    if (j->pos == j->last) {
        return ngx_idempotency_json_error(j, "unexpected end");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_json_value(ngx_idempotency_json_t *j,
    ngx_idempotency_body_tree_node_t *node)
{
    ngx_int_t   rc;
    ngx_uint_t  escaped;

    j->state = NGX_IDEMPOTENCY_JSON_AFTER;

    switch (*j->pos) {

    case '"':
        node->type = NGX_IDEMPOTENCY_BODY_TREE_STRING;

        rc = ngx_idempotency_json_string(j, &node->data, &node->len,
                                         &escaped);
        if (escaped) {
            node->flags |= NGX_IDEMPOTENCY_BODY_TREE_ESCAPE;
        }

        return rc;

    case '{':
        node->type = NGX_IDEMPOTENCY_BODY_TREE_OBJECT;
        j->parent = (uint32_t) (node - j->tree->nodes);
        j->state = NGX_IDEMPOTENCY_JSON_FIRST_NAME;

        return ngx_idempotency_json_open(j);

    case '[':
        node->type = NGX_IDEMPOTENCY_BODY_TREE_ARRAY;
        j->parent = (uint32_t) (node - j->tree->nodes);
        j->state = NGX_IDEMPOTENCY_JSON_FIRST;

        return ngx_idempotency_json_open(j);

    case 'n':
        node->type = NGX_IDEMPOTENCY_BODY_TREE_NULL;
        return ngx_idempotency_json_word(j, "null", 4);

    case 't':
        node->type = NGX_IDEMPOTENCY_BODY_TREE_TRUE;
        return ngx_idempotency_json_word(j, "true", 4);

    case 'f':
        node->type = NGX_IDEMPOTENCY_BODY_TREE_FALSE;
        return ngx_idempotency_json_word(j, "false", 5);

    default:
        node->type = NGX_IDEMPOTENCY_BODY_TREE_NUMBER;
        return ngx_idempotency_json_number(j, node);
    }
}


static ngx_int_t
ngx_idempotency_json_open(ngx_idempotency_json_t *j)
{
    if (j->depth == NGX_IDEMPOTENCY_BODY_TREE_DEPTH) {
        return ngx_idempotency_json_error(j, "nested too deeply");
    }

    j->depth++;
    j->pos++;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_json_close(ngx_idempotency_json_t *j)
{
    uint32_t                           twice;
    const u_char                      *name;
    ngx_idempotency_body_tree_node_t  *node;

    node = &j->tree->nodes[j->parent];

    if (node->type == NGX_IDEMPOTENCY_BODY_TREE_OBJECT) {
        twice = ngx_idempotency_body_tree_sort(j->tree, j->parent);

        if (twice) {

            /* one of them, unless its name has escapes */

            name = j->tree->nodes[twice].name;

            if (name > j->start && name < j->last) {
                j->pos = name - 1;
            }

            return ngx_idempotency_json_error(j, "a name occurs twice");
        }
    }

    j->depth--;
    j->pos++;
    j->parent = node->parent;
    j->state = NGX_IDEMPOTENCY_JSON_AFTER;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_json_word(ngx_idempotency_json_t *j, char *word,
    size_t len)
{
    if ((size_t) (j->last - j->pos) < len
        || ngx_memcmp(j->pos, word, len) != 0)
    {
        return ngx_idempotency_json_error(j, "unexpected character");
    }

    j->pos += len;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_json_number(ngx_idempotency_json_t *j,
    ngx_idempotency_body_tree_node_t *node)
{
    ngx_uint_t     plain, same;
    const u_char  *p, *last, *digits;

    p = j->pos;
    last = j->last;
    plain = 1;
    same = 1;

    if (*p == '-') {
        p++;
        same = 0;
    }

    if (p == last || !ngx_idempotency_json_is_digit(*p)) {
        return ngx_idempotency_json_error(j, "unexpected character");
    }

    if (*p == '0') {
        p++;

    } else {
        while (p < last && ngx_idempotency_json_is_digit(*p)) { p++; }
    }

    if (p < last && *p == '.') {
        digits = ++p;

        while (p < last && ngx_idempotency_json_is_digit(*p)) { p++; }

        if (p == digits) {
            return ngx_idempotency_json_error(j, "not a number");
        }

        same &= (*j->pos != '0' && p[-1] != '0');
    }

    if (p < last && (*p == 'e' || *p == 'E')) {
        p++;
        plain = 0;

        if (p < last && (*p == '+' || *p == '-')) {
            p++;
        }

        digits = p;

        while (p < last && ngx_idempotency_json_is_digit(*p)) { p++; }

        if (p == digits) {
            return ngx_idempotency_json_error(j, "not a number");
        }
    }

    node->data = j->pos;
    node->len = (uint32_t) (p - j->pos);

    /* most numbers are canonical already: 15, 15.5 */

    if (!same || !plain || node->len > NGX_IDEMPOTENCY_JSON_SAME) {
        node->flags |= NGX_IDEMPOTENCY_BODY_TREE_REWRITE;
    }

    if ((!plain || p - j->pos > NGX_IDEMPOTENCY_JSON_PLAIN)
        && ngx_idempotency_number_range(node->data, node->len) != NGX_OK)
    {
        return ngx_idempotency_json_error(j, "a number out of range");
    }

    j->pos = p;

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_json_error(ngx_idempotency_json_t *j, char *error)
{
    j->tree->error = error;
    j->tree->offset = j->pos - j->start;

    return NGX_DECLINED;
}
