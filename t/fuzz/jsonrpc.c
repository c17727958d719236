
/*
 * The id of a message of JSON-RPC: of a text that is JSON it is what the tree
 * of the document says, and with another id in its place the text is JSON
 * again, with that id and with everything else as it was.
 */


#include "fuzz.h"
#include "ngx_idempotency_canonical.h"
#include "ngx_idempotency_jsonrpc.h"


static ngx_uint_t fuzz_tree(ngx_str_t *text, ngx_str_t *rest);
static ngx_int_t fuzz_collect(const u_char *data, size_t len);


static u_char     fuzz_text[65536];
static size_t     fuzz_len;
static ngx_str_t  fuzz_id = ngx_string("id");
static u_char     fuzz_type;


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    u_char      *p;
    ngx_int_t    rc;
    ngx_str_t    text, id, other, rest, after;
    ngx_uint_t   has, there;

    static ngx_str_t  new = ngx_string("\"new\\u0041\"");

    text = fuzz_copy(pool, in);

    rc = ngx_idempotency_jsonrpc_id(&text, &id, &has);

    fuzz_want(rc == NGX_OK || rc == NGX_DECLINED);
    fuzz_want(rc != NGX_OK || id.len == 0
              || (id.data > text.data
                  && id.data + id.len < text.data + text.len));

    there = fuzz_tree(&text, &rest);

    if (rc != NGX_OK || there == 2) {
        return;
    }

    fuzz_want(there == (id.len != 0));

    if (id.len == 0) {
        return;
    }

    rest = fuzz_copy(pool, &rest);

    /* the id is a value of its own, of the type that the tree says */

    fuzz_want(fuzz_type != NGX_IDEMPOTENCY_BODY_TREE_STRING
              || (id.data[0] == '"' && id.data[id.len - 1] == '"'));
    fuzz_want(fuzz_type != NGX_IDEMPOTENCY_BODY_TREE_NULL || id.len == 4);

    /* as a replay does it */

    other.len = text.len - id.len + new.len;
    other.data = ngx_pnalloc(pool, other.len);
    fuzz_want(other.data != NULL);

    p = ngx_cpymem(other.data, text.data, id.data - text.data);
    p = ngx_cpymem(p, new.data, new.len);
    ngx_memcpy(p, id.data + id.len,
               text.data + text.len - (id.data + id.len));

    fuzz_want(fuzz_tree(&other, &after) == 1);
    fuzz_want(fuzz_type == NGX_IDEMPOTENCY_BODY_TREE_STRING);
    fuzz_want(after.len == rest.len
              && ngx_memcmp(after.data, rest.data, rest.len) == 0);

    fuzz_want(ngx_idempotency_jsonrpc_id(&other, &id, &has) == NGX_OK);
    fuzz_want(id.len == new.len
              && ngx_memcmp(id.data, new.data, new.len) == 0);
}


/*
 * 2: not JSON, or no object; otherwise whether there is an id, and the
 * canonical text of the rest.
 */

static ngx_uint_t
fuzz_tree(ngx_str_t *text, ngx_str_t *rest)
{
    ngx_uint_t                         there;
    ngx_idempotency_body_tree_t        tree;
    ngx_idempotency_body_tree_node_t  *node;

    there = 2;
    fuzz_len = 0;

    if (ngx_idempotency_json_parse(&tree, text) == NGX_OK
        && tree.nodes[0].type == NGX_IDEMPOTENCY_BODY_TREE_OBJECT)
    {
        node = ngx_idempotency_body_tree_find(&tree, &fuzz_id, 1);

        there = (node != NULL);

        if (node) {
            fuzz_type = node->type;
        }

        ngx_idempotency_body_tree_mark(&tree, &fuzz_id, 1,
                                       NGX_IDEMPOTENCY_BODY_TREE_EXCLUDED);

        fuzz_want(ngx_idempotency_canonical(&tree, 0, fuzz_collect) == NGX_OK);
    }

    ngx_idempotency_body_tree_free(&tree);

    rest->data = fuzz_text;
    rest->len = fuzz_len;

    return there;
}


static ngx_int_t
fuzz_collect(const u_char *data, size_t len)
{
    fuzz_want(len <= sizeof(fuzz_text) - fuzz_len);

    ngx_memcpy(fuzz_text + fuzz_len, data, len);
    fuzz_len += len;

    return NGX_OK;
}
