
/*
 * A request body as a tree of values: JSON, or the pairs of a form.
 */


#include "ngx_idempotency_body_tree.h"


#define NGX_IDEMPOTENCY_BODY_TREE_SMALL  128

/* so many members are inserted one by one before the rest is merged */
#define NGX_IDEMPOTENCY_BODY_TREE_MOVES  16


static uint32_t ngx_idempotency_body_tree_merge_sort(
    ngx_idempotency_body_tree_node_t *nodes, uint32_t i, uint32_t *twice);
static uint32_t ngx_idempotency_body_tree_merge(
    ngx_idempotency_body_tree_node_t *nodes, uint32_t one, uint32_t two,
    uint32_t *twice);
static ngx_inline ngx_int_t ngx_idempotency_body_tree_compare(
    const ngx_idempotency_body_tree_node_t *one,
    const ngx_idempotency_body_tree_node_t *two);
static ngx_int_t ngx_idempotency_body_tree_compare_bytes(
    const ngx_idempotency_body_tree_node_t *one,
    const ngx_idempotency_body_tree_node_t *two);
static uint32_t ngx_idempotency_body_tree_member(
    ngx_idempotency_body_tree_t *tree, uint32_t object, const ngx_str_t *name);
static void ngx_idempotency_body_tree_mark_below(
    ngx_idempotency_body_tree_t *tree, uint32_t i, const ngx_str_t *names,
    ngx_uint_t n, ngx_uint_t mark);


static ngx_idempotency_body_tree_node_t
    ngx_idempotency_body_tree_small[NGX_IDEMPOTENCY_BODY_TREE_SMALL];
static u_char
    ngx_idempotency_body_tree_text[NGX_IDEMPOTENCY_BODY_TREE_DECODED];


void
ngx_idempotency_body_tree_start(ngx_idempotency_body_tree_t *tree)
{
    tree->nodes = ngx_idempotency_body_tree_small;
    tree->n = 0;
    tree->allocated = NGX_IDEMPOTENCY_BODY_TREE_SMALL;
    tree->decoded = NULL;
    tree->decoded_last = NULL;
    tree->error = NULL;
    tree->offset = 0;
}


void
ngx_idempotency_body_tree_free(ngx_idempotency_body_tree_t *tree)
{
    if (tree->nodes != ngx_idempotency_body_tree_small) {
        ngx_free(tree->nodes);
    }

    if (tree->decoded != ngx_idempotency_body_tree_text) {
        ngx_free(tree->decoded);
    }

    ngx_idempotency_body_tree_start(tree);
}


u_char *
ngx_idempotency_body_tree_decode(ngx_idempotency_body_tree_t *tree, size_t len)
{
    if (tree->decoded == NULL) {
        tree->decoded = (len <= NGX_IDEMPOTENCY_BODY_TREE_DECODED)
                       ? ngx_idempotency_body_tree_text
                       : ngx_alloc(len, ngx_cycle->log);

        tree->decoded_last = tree->decoded;
    }

    return tree->decoded_last;
}


ngx_int_t
ngx_idempotency_body_tree_hex(u_char ch)
{
    if (ch >= '0' && ch <= '9') {
        return ch - '0';
    }

    ch |= 0x20;

    return (ch >= 'a' && ch <= 'f') ? ch - 'a' + 10 : -1;
}


ngx_int_t
ngx_idempotency_body_tree_grow(ngx_idempotency_body_tree_t *tree)
{
    ngx_uint_t                         n;
    ngx_idempotency_body_tree_node_t  *nodes;

    if (tree->allocated >= NGX_IDEMPOTENCY_BODY_TREE_VALUES) {
        tree->error = "too many values";
        return NGX_DECLINED;
    }

    n = tree->allocated * 4;
    n = ngx_min(n, NGX_IDEMPOTENCY_BODY_TREE_VALUES);

    nodes = ngx_alloc(n * sizeof(ngx_idempotency_body_tree_node_t),
                      ngx_cycle->log);
    if (nodes == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(nodes, tree->nodes,
               tree->n * sizeof(ngx_idempotency_body_tree_node_t));

    if (tree->nodes != ngx_idempotency_body_tree_small) {
        ngx_free(tree->nodes);
    }

    tree->nodes = nodes;
    tree->allocated = n;

    return NGX_OK;
}


/*
 * Most objects are small or almost sorted: the members that are out of order
 * are inserted one by one.  With many of them that would take too long.
 */

uint32_t
ngx_idempotency_body_tree_sort(ngx_idempotency_body_tree_t *tree,
    uint32_t object)
{
    uint32_t                           i, last, twice, *place;
    ngx_int_t                          order;
    ngx_uint_t                         moves;
    ngx_idempotency_body_tree_node_t  *nodes;

    nodes = tree->nodes;

    last = nodes[object].child;

    if (last == 0) {
        return 0;
    }

    twice = 0;
    moves = 0;

    /* up to "last" they are in order */

    for (i = nodes[last].next; i; i = nodes[last].next) {

        order = ngx_idempotency_body_tree_compare(&nodes[last], &nodes[i]);

        if (order == 0) {
            twice = i;
        }

        if (order <= 0) {
            last = i;
            continue;
        }

        if (++moves > NGX_IDEMPOTENCY_BODY_TREE_MOVES) {
            nodes[object].child = ngx_idempotency_body_tree_merge_sort(nodes,
                                               nodes[object].child, &twice);
            break;
        }

        nodes[last].next = nodes[i].next;

        /* behind those of the same name; "last" ends the search */

        for (place = &nodes[object].child; /* void */ ;
             place = &nodes[*place].next)
        {
            order = ngx_idempotency_body_tree_compare(&nodes[*place],
                                                      &nodes[i]);
            if (order > 0) {
                break;
            }

            if (order == 0) {
                twice = i;
            }
        }

        nodes[i].next = *place;
        *place = i;
    }

    return twice;
}


/* with the runs of 2^i members in runs[i] */

static uint32_t
ngx_idempotency_body_tree_merge_sort(ngx_idempotency_body_tree_node_t *nodes,
    uint32_t i, uint32_t *twice)
{
    uint32_t    next, runs[32];
    ngx_uint_t  k, n;

    n = 0;

    for ( /* void */ ; i; i = next) {
        next = nodes[i].next;
        nodes[i].next = 0;

        for (k = 0; k < n && runs[k]; k++) {
            i = ngx_idempotency_body_tree_merge(nodes, runs[k], i, twice);
            runs[k] = 0;
        }

        runs[k] = i;

        if (k == n) {
            n++;
        }
    }

    i = 0;

    for (k = 0; k < n; k++) {
        if (runs[k]) {
            i = ngx_idempotency_body_tree_merge(nodes, runs[k], i, twice);
        }
    }

    return i;
}


/*
 * Of two that are equal the one of the first list comes first.  Two that are
 * neighbours in the end have been compared here.
 */

static uint32_t
ngx_idempotency_body_tree_merge(ngx_idempotency_body_tree_node_t *nodes,
    uint32_t one, uint32_t two, uint32_t *twice)
{
    uint32_t   head, *last;
    ngx_int_t  order;

    last = &head;

    while (one && two) {

        order = ngx_idempotency_body_tree_compare(&nodes[one], &nodes[two]);

        if (order == 0) {
            *twice = one;
        }

        if (order <= 0) {
            *last = one;
            last = &nodes[one].next;
            one = *last;

        } else {
            *last = two;
            last = &nodes[two].next;
            two = *last;
        }
    }

    *last = one ? one : two;

    return head;
}


/* most names differ in the first byte; below 0xee the order is that of bytes */

static ngx_inline ngx_int_t
ngx_idempotency_body_tree_compare(const ngx_idempotency_body_tree_node_t *one,
    const ngx_idempotency_body_tree_node_t *two)
{
    u_char  a, b;

    if (one->name_len && two->name_len) {
        a = one->name[0];
        b = two->name[0];

        if (a != b && a < 0xee) {
            return a < b ? -1 : 1;
        }
    }

    return ngx_idempotency_body_tree_compare_bytes(one, two);
}


/*
 * By units of UTF-16, as RFC 8785 has it.  That is the order of the bytes of
 * UTF-8, except that what needs two units comes before U+E000 to U+FFFF.
 */

static ngx_int_t
ngx_idempotency_body_tree_compare_bytes(
    const ngx_idempotency_body_tree_node_t *one,
    const ngx_idempotency_body_tree_node_t *two)
{
    u_char    a, b;
    uint32_t  i, n;

    n = ngx_min(one->name_len, two->name_len);

    for (i = 0; i < n; i++) {
        a = one->name[i];
        b = two->name[i];

        if (a == b) {
            continue;
        }

        if (a >= 0xee && b >= 0xee && (a >= 0xf0) != (b >= 0xf0)) {
            return a >= 0xf0 ? -1 : 1;
        }

        return a < b ? -1 : 1;
    }

    if (one->name_len == two->name_len) {
        return 0;
    }

    return one->name_len < two->name_len ? -1 : 1;
}


ngx_idempotency_body_tree_node_t *
ngx_idempotency_body_tree_find(ngx_idempotency_body_tree_t *tree,
    const ngx_str_t *names, ngx_uint_t n)
{
    uint32_t    i;
    ngx_uint_t  k;

    if (tree->n == 0) {
        return NULL;
    }

    i = 0;

    for (k = 0; k < n; k++) {
        i = ngx_idempotency_body_tree_member(tree, i, &names[k]);

        if (i == 0) {
            return NULL;
        }
    }

    return &tree->nodes[i];
}


static uint32_t
ngx_idempotency_body_tree_member(ngx_idempotency_body_tree_t *tree,
    uint32_t object, const ngx_str_t *name)
{
    uint32_t                           i;
    ngx_idempotency_body_tree_node_t  *nodes;

    nodes = tree->nodes;

    if (nodes[object].type != NGX_IDEMPOTENCY_BODY_TREE_OBJECT) {
        return 0;
    }

    for (i = nodes[object].child; i; i = nodes[i].next) {
        if (nodes[i].name_len == name->len
            && ngx_memcmp(nodes[i].name, name->data, name->len) == 0)
        {
            break;
        }
    }

    return i;
}


void
ngx_idempotency_body_tree_mark(ngx_idempotency_body_tree_t *tree,
    const ngx_str_t *names, ngx_uint_t n, ngx_uint_t mark)
{
    if (tree->n) {
        ngx_idempotency_body_tree_mark_below(tree, 0, names, n, mark);
    }
}


/* Recursive: the depth of a document is bounded. */

static void
ngx_idempotency_body_tree_mark_below(ngx_idempotency_body_tree_t *tree,
    uint32_t i, const ngx_str_t *names, ngx_uint_t n, ngx_uint_t mark)
{
    uint32_t                           c;
    ngx_idempotency_body_tree_node_t  *nodes;

    nodes = tree->nodes;

    if (n == 0) {
        nodes[i].flags |= (u_char) mark;
        return;
    }

    if (mark == NGX_IDEMPOTENCY_BODY_TREE_INCLUDED) {
        nodes[i].flags |= NGX_IDEMPOTENCY_BODY_TREE_WAY;
    }

    switch (nodes[i].type) {

    case NGX_IDEMPOTENCY_BODY_TREE_ARRAY:

        for (c = nodes[i].child; c; c = nodes[c].next) {
            ngx_idempotency_body_tree_mark_below(tree, c, names, n, mark);
        }

        break;

    case NGX_IDEMPOTENCY_BODY_TREE_OBJECT:

        /* a form may repeat a name */

        c = ngx_idempotency_body_tree_member(tree, i, names);

        for ( /* void */ ; c; c = nodes[c].next) {

            if (nodes[c].name_len != names[0].len
                || ngx_memcmp(nodes[c].name, names[0].data, names[0].len) != 0)
            {
                break;
            }

            ngx_idempotency_body_tree_mark_below(tree, c, names + 1, n - 1,
                                                 mark);
        }

        break;

    default:
        break;
    }
}
