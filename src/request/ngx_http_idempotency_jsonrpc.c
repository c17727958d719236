
/*
 * Requests that are messages of JSON-RPC: their id and key, and replays that
 * carry the id of the request that asks for them.
 */


#include "ngx_http_idempotency_jsonrpc.h"
#include "ngx_http_idempotency_body.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_identify.h"
#include "ngx_idempotency_jsonrpc.h"


/* the longest id, which errors and replays repeat */
#define NGX_HTTP_IDEMPOTENCY_JSONRPC_ID  1024

#define NGX_HTTP_IDEMPOTENCY_JSONRPC_NAMES  4


typedef struct {
    ngx_uint_t  n;
    ngx_str_t   names[NGX_HTTP_IDEMPOTENCY_JSONRPC_NAMES];
} ngx_http_idempotency_jsonrpc_path_t;


static ngx_int_t ngx_http_idempotency_jsonrpc_message(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *text,
    ngx_idempotency_body_tree_t *tree);
static ngx_int_t ngx_http_idempotency_jsonrpc_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, char *what);
static ngx_int_t ngx_http_idempotency_jsonrpc_find_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_body_tree_t *tree);
static ngx_int_t ngx_http_idempotency_jsonrpc_copy(ngx_http_request_t *r,
    ngx_str_t *dst, const u_char *data, size_t len);
static ngx_uint_t ngx_http_idempotency_jsonrpc_same(ngx_str_t *one,
    ngx_str_t *two);
static ngx_uint_t ngx_http_idempotency_jsonrpc_span(
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *id);
static ngx_uint_t ngx_http_idempotency_jsonrpc_is_json(
    ngx_http_idempotency_ctx_t *ctx);
static ngx_buf_t *ngx_http_idempotency_jsonrpc_add(ngx_http_request_t *r,
    ngx_chain_t *after, u_char *pos, u_char *last);
static void ngx_http_idempotency_jsonrpc_no_digests(ngx_http_request_t *r);


/*
 * Where keys are: in MCP's _meta; as SEP-3182 of MCP proposes; as the MCP
 * bindings of the Universal and of the Agentic Commerce Protocol have it
 */

static ngx_http_idempotency_jsonrpc_path_t
    ngx_http_idempotency_jsonrpc_keys[] =
{
    { 3, { ngx_string("params"), ngx_string("_meta"),
           ngx_string("idempotencyKey") } },
    { 2, { ngx_string("params"), ngx_string("idempotencyKey") } },
    { 4, { ngx_string("params"), ngx_string("arguments"), ngx_string("meta"),
           ngx_string("idempotency-key") } },
    { 4, { ngx_string("params"), ngx_string("arguments"), ngx_string("meta"),
           ngx_string("idempotency_key") } },
    { 0, { ngx_null_string } }
};


/* the id, the progress token, trace contexts: new with each try */

static ngx_http_idempotency_jsonrpc_path_t
    ngx_http_idempotency_jsonrpc_excluded[] =
{
    { 1, { ngx_string("id") } },
    { 2, { ngx_string("params"), ngx_string("_meta") } },
    { 0, { ngx_null_string } }
};


ngx_int_t
ngx_http_idempotency_jsonrpc(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                    rc;
    ngx_str_t                    text;
    ngx_idempotency_body_tree_t  tree;

    if (ctx->jsonrpc) {
        return NGX_OK;
    }

    ngx_idempotency_body_tree_start(&tree);

    rc = ngx_http_idempotency_body_whole(r, &text);

    if (rc != NGX_OK) {

        /* void */

    } else if (ngx_http_idempotency_body_encoded(r)) {
        ngx_http_idempotency_body_refused(r, "JSON", "compressed", 0);
        rc = NGX_DECLINED;

    } else {
        rc = ngx_idempotency_json_parse(&tree, &text);

        if (rc == NGX_DECLINED) {
            ngx_http_idempotency_body_refused(r, "JSON", tree.error,
                                              tree.offset);
        }
    }

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_jsonrpc_message(r, ctx, &text, &tree);
    }

    ngx_http_idempotency_body_free(r, &tree);

    return rc;
}


static ngx_int_t
ngx_http_idempotency_jsonrpc_message(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *text,
    ngx_idempotency_body_tree_t *tree)
{
    ngx_str_t                          id;
    ngx_uint_t                         has;
    ngx_idempotency_body_tree_node_t  *node;

    static ngx_str_t  names[] = { ngx_string("id"), ngx_string("method") };
    static ngx_str_t  call = ngx_string("tools/call");

    ctx->jsonrpc = ngx_pcalloc(r->pool,
                               sizeof(ngx_http_idempotency_jsonrpc_t));
    if (ctx->jsonrpc == NULL) {
        return NGX_ERROR;
    }

    if (tree->nodes[0].type == NGX_IDEMPOTENCY_BODY_TREE_ARRAY) {
        return ngx_http_idempotency_jsonrpc_refused(r, ctx,
                           "a batch of JSON-RPC: send its requests one by "
                           "one, each with its own key");
    }

    if (ngx_idempotency_jsonrpc_id(text, &id, &has) != NGX_OK) {
        return ngx_http_idempotency_jsonrpc_refused(r, ctx,
                           "not a message of JSON-RPC, which is an object "
                           "with names that have no escapes");
    }

    node = ngx_idempotency_body_tree_find(tree, &names[0], 1);

    if (node) {

        if (node->type != NGX_IDEMPOTENCY_BODY_TREE_STRING
            && node->type != NGX_IDEMPOTENCY_BODY_TREE_NUMBER
            && node->type != NGX_IDEMPOTENCY_BODY_TREE_NULL)
        {
            return ngx_http_idempotency_jsonrpc_refused(r, ctx,
                           "not a message of JSON-RPC: its id must be a "
                           "string, a number or null");
        }

        if (id.len > NGX_HTTP_IDEMPOTENCY_JSONRPC_ID) {
            return ngx_http_idempotency_jsonrpc_refused(r, ctx,
                           "a message of JSON-RPC whose id is longer than "
                           "1024 bytes");
        }

        if (ngx_http_idempotency_jsonrpc_copy(r, &ctx->jsonrpc->id, id.data,
                                              id.len)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    node = ngx_idempotency_body_tree_find(tree, &names[1], 1);

    ctx->jsonrpc->call = node
                         && node->type == NGX_IDEMPOTENCY_BODY_TREE_STRING
                         && node->len == call.len
                         && ngx_memcmp(node->data, call.data, call.len) == 0;

    return ngx_http_idempotency_jsonrpc_find_key(r, ctx, tree);
}


/* the text needs no escaping in JSON */

static ngx_int_t
ngx_http_idempotency_jsonrpc_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, char *what)
{
    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "idempotency request body is %s", what);

    ctx->request_body.error.data = (u_char *) what;
    ctx->request_body.error.len = ngx_strlen(what);

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_idempotency_jsonrpc_find_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_body_tree_t *tree)
{
    ngx_str_t                             key;
    ngx_http_idempotency_jsonrpc_t       *message;
    ngx_idempotency_body_tree_node_t     *node;
    ngx_http_idempotency_jsonrpc_path_t  *path;

    message = ctx->jsonrpc;

    for (path = ngx_http_idempotency_jsonrpc_keys; path->n; path++) {

        node = ngx_idempotency_body_tree_find(tree, path->names, path->n);

        if (node == NULL) {
            continue;
        }

        key.data = (u_char *) node->data;
        key.len = node->len;

        if (node->type != NGX_IDEMPOTENCY_BODY_TREE_STRING
            || key.len == 0
            || (message->key.len
                && !ngx_http_idempotency_jsonrpc_same(&message->key, &key)))
        {
            message->key_invalid = 1;
            return NGX_OK;
        }

        if (message->key.len == 0
            && ngx_http_idempotency_jsonrpc_copy(r, &message->key, key.data,
                                                 key.len)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_jsonrpc_copy(ngx_http_request_t *r, ngx_str_t *dst,
    const u_char *data, size_t len)
{
    dst->data = ngx_pnalloc(r->pool, len);
    if (dst->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(dst->data, data, len);
    dst->len = len;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_jsonrpc_same(ngx_str_t *one, ngx_str_t *two)
{
    return one->len == two->len
           && ngx_memcmp(one->data, two->data, one->len) == 0;
}


ngx_int_t
ngx_http_idempotency_jsonrpc_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *key)
{
    ngx_int_t         rc;
    ngx_str_t        *other;
    ngx_table_elt_t  *line;

    static ngx_str_t  name = ngx_string("idempotency_key");

    rc = ngx_http_idempotency_identify_line(r, &name, &line);

    if (rc == NGX_ABORT || ctx->jsonrpc->key_invalid) {
        return NGX_ABORT;
    }

    other = &ctx->jsonrpc->key;

    if (rc == NGX_OK) {
        *key = line->value;

        /* the header may be a quoted string */

        return other->len == 0
               || ngx_http_idempotency_jsonrpc_same(key, other)
               || (key->len == other->len + 2
                   && key->data[0] == '"'
                   && key->data[key->len - 1] == '"'
                   && ngx_memcmp(key->data + 1, other->data, other->len) == 0)
               ? NGX_OK : NGX_ABORT;
    }

    *key = *other;

    return other->len ? NGX_OK : NGX_DECLINED;
}


ngx_str_t *
ngx_http_idempotency_jsonrpc_id(ngx_http_idempotency_ctx_t *ctx)
{
    static ngx_str_t  none = ngx_string("null");

    return ctx->jsonrpc && ctx->jsonrpc->id.len ? &ctx->jsonrpc->id : &none;
}


ngx_int_t
ngx_http_idempotency_jsonrpc_check(ngx_http_idempotency_ctx_t *ctx)
{
    static ngx_str_t  encoding = ngx_string("Content-Encoding");

    ngx_uint_t                i;
    ngx_idempotency_field_t  *field;

    if (ctx->jsonrpc->id.len == 0
        || ctx->op->record.body.len == 0
        || !ngx_http_idempotency_jsonrpc_is_json(ctx))
    {
        return NGX_OK;
    }

    field = ctx->stored->headers.elts;

    for (i = 0; i < ctx->stored->headers.nelts; i++) {
        if (ngx_http_idempotency_header_is(&field[i].name, &encoding)) {
            return NGX_ABORT;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_jsonrpc_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *out)
{
    u_char     *last;
    ngx_buf_t  *b;
    ngx_str_t  *id, old;

    id = &ctx->jsonrpc->id;

    if (!ngx_http_idempotency_jsonrpc_span(ctx, &old)
        || ngx_http_idempotency_jsonrpc_same(&old, id))
    {
        return NGX_OK;
    }

    ngx_http_idempotency_jsonrpc_no_digests(r);

    if (r->headers_out.content_length_n >= 0) {
        r->headers_out.content_length_n += (off_t) id->len - (off_t) old.len;
    }

    b = out->buf;
    last = b->last;

    b->last = old.data;
    b->last_buf = 0;
    b->last_in_chain = 0;

    if (ngx_http_idempotency_jsonrpc_add(r, out, id->data, id->data + id->len)
        == NULL)
    {
        return NGX_ERROR;
    }

    b = ngx_http_idempotency_jsonrpc_add(r, out->next, old.data + old.len,
                                         last);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last_buf = 1;
    b->last_in_chain = 1;

    return NGX_OK;
}


/* Is the stored body a response, with an id that is another one? */

static ngx_uint_t
ngx_http_idempotency_jsonrpc_span(ngx_http_idempotency_ctx_t *ctx,
    ngx_str_t *id)
{
    ngx_uint_t  has;

    return ctx->jsonrpc->id.len
           && ctx->op->record.body.len
           && ngx_http_idempotency_jsonrpc_is_json(ctx)
           && ngx_idempotency_jsonrpc_id(&ctx->op->record.body, id, &has)
              == NGX_OK
           && id->len
           && (has & NGX_IDEMPOTENCY_JSONRPC_RESULT);
}


static ngx_uint_t
ngx_http_idempotency_jsonrpc_is_json(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t  *type;

    static ngx_str_t  json = ngx_string("application/json");

    type = &ctx->stored->content_type;

    return type->len >= json.len
           && ngx_strncasecmp(type->data, json.data, json.len) == 0
           && (type->len == json.len
               || type->data[json.len] == ';'
               || type->data[json.len] == ' ');
}


static ngx_buf_t *
ngx_http_idempotency_jsonrpc_add(ngx_http_request_t *r, ngx_chain_t *after,
    u_char *pos, u_char *last)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL) {
        return NULL;
    }

    b->pos = pos;
    b->last = last;
    b->memory = 1;

    cl->buf = b;
    cl->next = NULL;

    after->next = cl;

    return b;
}


/* They would not be true of other bytes. */

static void
ngx_http_idempotency_jsonrpc_no_digests(ngx_http_request_t *r)
{
    ngx_uint_t        i, n;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    static ngx_str_t  names[] = {
        ngx_string("Content-Digest"),
        ngx_string("Repr-Digest"),
        ngx_string("Digest"),
        ngx_string("Content-MD5"),
        ngx_string("Signature"),
        ngx_string("Signature-Input"),
        ngx_null_string
    };

    ngx_http_clear_etag(r);

    part = &r->headers_out.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        for (n = 0; names[n].len; n++) {
            if (ngx_http_idempotency_header_is(&h[i].key, &names[n])) {
                h[i].hash = 0;
            }
        }
    }
}


void
ngx_http_idempotency_jsonrpc_mark(ngx_idempotency_body_tree_t *tree)
{
    ngx_http_idempotency_jsonrpc_path_t  *path;

    for (path = ngx_http_idempotency_jsonrpc_excluded; path->n; path++) {
        ngx_idempotency_body_tree_mark(tree, path->names, path->n,
                                       NGX_IDEMPOTENCY_BODY_TREE_EXCLUDED);
    }
}
