
/*
 * A request body as a tree of values: JSON, or the pairs of a form.
 */


#ifndef _NGX_IDEMPOTENCY_BODY_TREE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_BODY_TREE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* more than these is refused, so that time and memory have a bound */
#define NGX_IDEMPOTENCY_BODY_TREE_VALUES   (1024 * 1024)
#define NGX_IDEMPOTENCY_BODY_TREE_DEPTH    100

/* escapes in a text up to this length need no memory of their own */
#define NGX_IDEMPOTENCY_BODY_TREE_DECODED  4096


typedef enum {
    NGX_IDEMPOTENCY_BODY_TREE_NULL = 0,
    NGX_IDEMPOTENCY_BODY_TREE_TRUE,
    NGX_IDEMPOTENCY_BODY_TREE_FALSE,
    NGX_IDEMPOTENCY_BODY_TREE_NUMBER,       /* data: as it was sent */
    NGX_IDEMPOTENCY_BODY_TREE_STRING,       /* data: without its escapes */
    NGX_IDEMPOTENCY_BODY_TREE_ARRAY,
    NGX_IDEMPOTENCY_BODY_TREE_OBJECT        /* children sorted by name */
} ngx_idempotency_body_tree_type_e;


/* marks of ngx_idempotency_body_tree_mark() */
#define NGX_IDEMPOTENCY_BODY_TREE_INCLUDED     0x01
#define NGX_IDEMPOTENCY_BODY_TREE_WAY          0x02  /* above such a one */
#define NGX_IDEMPOTENCY_BODY_TREE_EXCLUDED     0x04

/* name or string may have bytes that JSON would escape */
#define NGX_IDEMPOTENCY_BODY_TREE_ESCAPE_NAME  0x10
#define NGX_IDEMPOTENCY_BODY_TREE_ESCAPE       0x20

/* a number that may have another form than the one it was sent in */
#define NGX_IDEMPOTENCY_BODY_TREE_REWRITE      0x40


/* links are indices; the root is 0, so that 0 is "none" in all of them */

typedef struct {
    const u_char   *name;          /* of a member of an object */
    const u_char   *data;          /* of a number or string */
    uint32_t        name_len;
    uint32_t        len;
    uint32_t        next;          /* sibling */
    uint32_t        parent;
    uint32_t        child;         /* the first, and while parsing ... */
    uint32_t        last;          /* ... the last one */
    uint32_t        span;          /* of a member that is canonical as it
                                      stands: from the quote of its name */
    u_char          type;          /* ngx_idempotency_body_tree_type_e */
    u_char          flags;
} ngx_idempotency_body_tree_node_t;


/*
 * One document at a time per worker, from parse to free: small ones need no
 * memory of their own.
 */

typedef struct {
    ngx_idempotency_body_tree_node_t  *nodes;
    ngx_uint_t                        n;
    ngx_uint_t                        allocated;
    u_char                           *decoded;
    u_char                           *decoded_last;
    char                             *error;   /* why it was refused ... */
    size_t                            offset;  /* ... and at which byte */
} ngx_idempotency_body_tree_t;


/*
 * The parsers, in json.c and form.c.  The text must stay until free, which is
 * to be called whatever these return: NGX_OK; NGX_DECLINED when the text is
 * not what it should be, with tree->error set; NGX_ERROR when memory is short.
 * Names that occur twice in an object of JSON are refused; in a form they
 * keep their order.
 */
ngx_int_t ngx_idempotency_json_parse(ngx_idempotency_body_tree_t *tree,
    const ngx_str_t *text);
ngx_int_t ngx_idempotency_form_parse(ngx_idempotency_body_tree_t *tree,
    const ngx_str_t *text);

void ngx_idempotency_body_tree_free(ngx_idempotency_body_tree_t *tree);

/*
 * The value that "n" names lead to from the root, object by object, or NULL.
 */
ngx_idempotency_body_tree_node_t *ngx_idempotency_body_tree_find(
    ngx_idempotency_body_tree_t *tree, const ngx_str_t *names, ngx_uint_t n);

/*
 * Marks what the names lead to as INCLUDED or EXCLUDED.  An array on the way
 * stands for each of its elements.
 */
void ngx_idempotency_body_tree_mark(ngx_idempotency_body_tree_t *tree,
    const ngx_str_t *names, ngx_uint_t n, ngx_uint_t mark);

/*
 * For the parsers.  start: no values yet.  add: a new value at the end of
 * "parent", which sets *node; the same returns, and those of grow: room for
 * more.  sort: the children of an object by name, those of the same name in
 * their order; returns one whose name occurs again, or 0.  decode: room for
 * as many bytes as the text has, or NULL.  hex: the value of a hexadecimal
 * digit, or -1.
 */
void ngx_idempotency_body_tree_start(ngx_idempotency_body_tree_t *tree);
static ngx_inline ngx_int_t ngx_idempotency_body_tree_add(
    ngx_idempotency_body_tree_t *tree, uint32_t parent,
    ngx_idempotency_body_tree_node_t **node);
ngx_int_t ngx_idempotency_body_tree_grow(ngx_idempotency_body_tree_t *tree);
uint32_t ngx_idempotency_body_tree_sort(ngx_idempotency_body_tree_t *tree,
    uint32_t object);
u_char *ngx_idempotency_body_tree_decode(ngx_idempotency_body_tree_t *tree,
    size_t len);
ngx_int_t ngx_idempotency_body_tree_hex(u_char ch);


static ngx_inline ngx_int_t
ngx_idempotency_body_tree_add(ngx_idempotency_body_tree_t *tree,
    uint32_t parent, ngx_idempotency_body_tree_node_t **node)
{
    ngx_int_t                          rc;
    ngx_idempotency_body_tree_node_t  *up, *new;

    if (tree->n == tree->allocated) {
        rc = ngx_idempotency_body_tree_grow(tree);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    new = &tree->nodes[tree->n];

    ngx_memzero(new, sizeof(ngx_idempotency_body_tree_node_t));

    new->parent = parent;

    if (tree->n) {
        up = &tree->nodes[parent];

        if (up->last) {
            tree->nodes[up->last].next = (uint32_t) tree->n;

        } else {
            up->child = (uint32_t) tree->n;
        }

        up->last = (uint32_t) tree->n;
    }

    tree->n++;

    *node = new;

    return NGX_OK;
}


#endif /* _NGX_IDEMPOTENCY_BODY_TREE_H_INCLUDED_ */
