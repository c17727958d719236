
/*
 * A request body as a tree of values: JSON, or the pairs of a form.
 */


#include "ngx_http_idempotency_doc.h"


#define NGX_HTTP_IDEMPOTENCY_DOC_SMALL  128

/* so many members are put in their place before the rest is merged */
#define NGX_HTTP_IDEMPOTENCY_DOC_MOVES  16


static uint32_t ngx_http_idempotency_doc_merge_sort(
    ngx_http_idempotency_doc_node_t *nodes, uint32_t i, uint32_t *twice);
static uint32_t ngx_http_idempotency_doc_merge(
    ngx_http_idempotency_doc_node_t *nodes, uint32_t one, uint32_t two,
    uint32_t *twice);
static ngx_inline ngx_int_t ngx_http_idempotency_doc_compare(
    const ngx_http_idempotency_doc_node_t *one,
    const ngx_http_idempotency_doc_node_t *two);
static ngx_int_t ngx_http_idempotency_doc_compare_bytes(
    const ngx_http_idempotency_doc_node_t *one,
    const ngx_http_idempotency_doc_node_t *two);
static uint32_t ngx_http_idempotency_doc_member(
    ngx_http_idempotency_doc_t *doc, uint32_t object, const ngx_str_t *name);
static void ngx_http_idempotency_doc_mark_below(
    ngx_http_idempotency_doc_t *doc, uint32_t i, const ngx_str_t *names,
    ngx_uint_t n, ngx_uint_t mark);


static ngx_http_idempotency_doc_node_t
    ngx_http_idempotency_doc_small[NGX_HTTP_IDEMPOTENCY_DOC_SMALL];
static u_char
    ngx_http_idempotency_doc_text[NGX_HTTP_IDEMPOTENCY_DOC_DECODED];


void
ngx_http_idempotency_doc_start(ngx_http_idempotency_doc_t *doc)
{
    doc->nodes = ngx_http_idempotency_doc_small;
    doc->n = 0;
    doc->allocated = NGX_HTTP_IDEMPOTENCY_DOC_SMALL;
    doc->decoded = NULL;
    doc->decoded_last = NULL;
    doc->error = NULL;
    doc->offset = 0;
}


void
ngx_http_idempotency_doc_free(ngx_http_idempotency_doc_t *doc)
{
    if (doc->nodes != ngx_http_idempotency_doc_small) {
        ngx_free(doc->nodes);
    }

    if (doc->decoded != ngx_http_idempotency_doc_text) {
        ngx_free(doc->decoded);
    }

    ngx_http_idempotency_doc_start(doc);
}


u_char *
ngx_http_idempotency_doc_decode(ngx_http_idempotency_doc_t *doc, size_t len)
{
    if (doc->decoded == NULL) {
        doc->decoded = (len <= NGX_HTTP_IDEMPOTENCY_DOC_DECODED)
                       ? ngx_http_idempotency_doc_text
                       : ngx_alloc(len, ngx_cycle->log);

        doc->decoded_last = doc->decoded;
    }

    return doc->decoded_last;
}


ngx_int_t
ngx_http_idempotency_doc_hex(u_char ch)
{
    if (ch >= '0' && ch <= '9') {
        return ch - '0';
    }

    ch |= 0x20;

    return (ch >= 'a' && ch <= 'f') ? ch - 'a' + 10 : -1;
}


ngx_int_t
ngx_http_idempotency_doc_grow(ngx_http_idempotency_doc_t *doc)
{
    ngx_uint_t                        n;
    ngx_http_idempotency_doc_node_t  *nodes;

    if (doc->allocated >= NGX_HTTP_IDEMPOTENCY_DOC_VALUES) {
        doc->error = "too many values";
        return NGX_DECLINED;
    }

    n = doc->allocated * 4;
    n = ngx_min(n, NGX_HTTP_IDEMPOTENCY_DOC_VALUES);

    nodes = ngx_alloc(n * sizeof(ngx_http_idempotency_doc_node_t),
                      ngx_cycle->log);
    if (nodes == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(nodes, doc->nodes,
               doc->n * sizeof(ngx_http_idempotency_doc_node_t));

    if (doc->nodes != ngx_http_idempotency_doc_small) {
        ngx_free(doc->nodes);
    }

    doc->nodes = nodes;
    doc->allocated = n;

    return NGX_OK;
}


/*
 * Most objects are small or almost in order: the members that are not are put
 * in their place one by one.  With many of them that would take too long.
 */

uint32_t
ngx_http_idempotency_doc_sort(ngx_http_idempotency_doc_t *doc,
    uint32_t object)
{
    uint32_t                          i, last, twice, *place;
    ngx_int_t                         order;
    ngx_uint_t                        moves;
    ngx_http_idempotency_doc_node_t  *nodes;

    nodes = doc->nodes;

    last = nodes[object].child;

    if (last == 0) {
        return 0;
    }

    twice = 0;
    moves = 0;

    /* up to "last" they are in order */

    for (i = nodes[last].next; i; i = nodes[last].next) {

        order = ngx_http_idempotency_doc_compare(&nodes[last], &nodes[i]);

        if (order == 0) {
            twice = i;
        }

        if (order <= 0) {
            last = i;
            continue;
        }

        if (++moves > NGX_HTTP_IDEMPOTENCY_DOC_MOVES) {
            nodes[object].child = ngx_http_idempotency_doc_merge_sort(nodes,
                                               nodes[object].child, &twice);
            break;
        }

        nodes[last].next = nodes[i].next;

        /* behind those of the same name; "last" ends the search */

        for (place = &nodes[object].child; /* void */ ;
             place = &nodes[*place].next)
        {
            order = ngx_http_idempotency_doc_compare(&nodes[*place],
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
ngx_http_idempotency_doc_merge_sort(ngx_http_idempotency_doc_node_t *nodes,
    uint32_t i, uint32_t *twice)
{
    uint32_t    next, runs[32];
    ngx_uint_t  k, n;

    n = 0;

    for ( /* void */ ; i; i = next) {
        next = nodes[i].next;
        nodes[i].next = 0;

        for (k = 0; k < n && runs[k]; k++) {
            i = ngx_http_idempotency_doc_merge(nodes, runs[k], i, twice);
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
            i = ngx_http_idempotency_doc_merge(nodes, runs[k], i, twice);
        }
    }

    return i;
}


/*
 * Of two that are equal the one of the first list comes first.  Two that are
 * neighbours in the end have been compared here.
 */

static uint32_t
ngx_http_idempotency_doc_merge(ngx_http_idempotency_doc_node_t *nodes,
    uint32_t one, uint32_t two, uint32_t *twice)
{
    uint32_t   head, *last;
    ngx_int_t  order;

    last = &head;

    while (one && two) {

        order = ngx_http_idempotency_doc_compare(&nodes[one], &nodes[two]);

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


/* most names differ in the first byte, and below 0xee bytes are the order */

static ngx_inline ngx_int_t
ngx_http_idempotency_doc_compare(const ngx_http_idempotency_doc_node_t *one,
    const ngx_http_idempotency_doc_node_t *two)
{
    u_char  a, b;

    if (one->name_len && two->name_len) {
        a = one->name[0];
        b = two->name[0];

        if (a != b && a < 0xee) {
            return a < b ? -1 : 1;
        }
    }

    return ngx_http_idempotency_doc_compare_bytes(one, two);
}


/*
 * By units of UTF-16, as RFC 8785 has it.  That is the order of the bytes of
 * UTF-8, except that what needs two units comes before U+E000 to U+FFFF.
 */

static ngx_int_t
ngx_http_idempotency_doc_compare_bytes(
    const ngx_http_idempotency_doc_node_t *one,
    const ngx_http_idempotency_doc_node_t *two)
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


ngx_http_idempotency_doc_node_t *
ngx_http_idempotency_doc_find(ngx_http_idempotency_doc_t *doc,
    const ngx_str_t *names, ngx_uint_t n)
{
    uint32_t    i;
    ngx_uint_t  k;

    if (doc->n == 0) {
        return NULL;
    }

    i = 0;

    for (k = 0; k < n; k++) {
        i = ngx_http_idempotency_doc_member(doc, i, &names[k]);

        if (i == 0) {
            return NULL;
        }
    }

    return &doc->nodes[i];
}


static uint32_t
ngx_http_idempotency_doc_member(ngx_http_idempotency_doc_t *doc,
    uint32_t object, const ngx_str_t *name)
{
    uint32_t                          i;
    ngx_http_idempotency_doc_node_t  *nodes;

    nodes = doc->nodes;

    if (nodes[object].type != NGX_HTTP_IDEMPOTENCY_DOC_OBJECT) {
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
ngx_http_idempotency_doc_mark(ngx_http_idempotency_doc_t *doc,
    const ngx_str_t *names, ngx_uint_t n, ngx_uint_t mark)
{
    if (doc->n) {
        ngx_http_idempotency_doc_mark_below(doc, 0, names, n, mark);
    }
}


/* calls itself for each level of the document, which are bounded */

static void
ngx_http_idempotency_doc_mark_below(ngx_http_idempotency_doc_t *doc,
    uint32_t i, const ngx_str_t *names, ngx_uint_t n, ngx_uint_t mark)
{
    uint32_t                          c;
    ngx_http_idempotency_doc_node_t  *nodes;

    nodes = doc->nodes;

    if (n == 0) {
        nodes[i].flags |= (u_char) mark;
        return;
    }

    if (mark == NGX_HTTP_IDEMPOTENCY_DOC_INCLUDED) {
        nodes[i].flags |= NGX_HTTP_IDEMPOTENCY_DOC_WAY;
    }

    switch (nodes[i].type) {

    case NGX_HTTP_IDEMPOTENCY_DOC_ARRAY:

        for (c = nodes[i].child; c; c = nodes[c].next) {
            ngx_http_idempotency_doc_mark_below(doc, c, names, n, mark);
        }

        break;

    case NGX_HTTP_IDEMPOTENCY_DOC_OBJECT:

        /* a form may have the name again */

        c = ngx_http_idempotency_doc_member(doc, i, names);

        for ( /* void */ ; c; c = nodes[c].next) {

            if (nodes[c].name_len != names[0].len
                || ngx_memcmp(nodes[c].name, names[0].data, names[0].len) != 0)
            {
                break;
            }

            ngx_http_idempotency_doc_mark_below(doc, c, names + 1, n - 1,
                                                mark);
        }

        break;

    default:
        break;
    }
}
