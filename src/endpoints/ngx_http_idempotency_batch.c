
/*
 * Many unknown outcomes are settled by one request: NDJSON, a line for each
 * record, as a list of records with format=ndjson has it and with "resolve"
 * added.  The answer has a line for each of them.
 *
 * A line is read first, and settled only if it is what the operator says: its
 * label is that of the record, its fence the one that was seen.  Lines do not
 * depend on each other: one that is refused does not stop the others.  Between
 * two lines other events come first.
 */


#include "ngx_http_idempotency_batch.h"
#include "ngx_http_idempotency_body.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_endpoint.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_query.h"
#include "ngx_http_idempotency_text.h"
#include "ngx_idempotency_body_tree.h"


#define NGX_HTTP_IDEMPOTENCY_BATCH_LINES  10000


typedef struct {
    u_char                             *pos;
    u_char                             *last;
    ngx_uint_t                          n;       /* of the line */
    ngx_http_idempotency_batch_line_t   line;
    ngx_http_idempotency_text_t         text;    /* the answer */
} ngx_http_idempotency_batch_t;


static ngx_int_t ngx_http_idempotency_batch_next(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_batch_line(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *text);
static ngx_int_t ngx_http_idempotency_batch_fetched(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_batch_over(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, char *result, char *detail);
static void ngx_http_idempotency_batch_result(
    ngx_http_idempotency_batch_t *batch, ngx_uint_t named, char *result,
    char *detail);
static ngx_int_t ngx_http_idempotency_batch_text(ngx_pool_t *pool,
    ngx_idempotency_body_tree_t *tree, char *name, ngx_str_t *value);
static ngx_int_t ngx_http_idempotency_batch_number(
    ngx_idempotency_body_tree_t *tree, char *name, off_t *value);
static ngx_int_t ngx_http_idempotency_batch_fields(ngx_pool_t *pool,
    ngx_idempotency_body_tree_t *tree,
    ngx_http_idempotency_batch_line_t *line, char **error);


ngx_int_t
ngx_http_idempotency_batch_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                      body;
    ngx_http_idempotency_batch_t  *batch;

    batch = ngx_pcalloc(r->pool, sizeof(ngx_http_idempotency_batch_t));

    if (batch == NULL
        || ngx_http_idempotency_body_whole(r, &body) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (body.len == 0) {
        (void) ngx_http_idempotency_query_error(ctx,
                   "resolve=batch needs a body: NDJSON, a line for each "
                   "record");

        return ngx_http_idempotency_problem(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_BAD_ARGUMENT);
    }

    batch->pos = body.data;
    batch->last = body.data + body.len;

    ngx_http_idempotency_text_init(&batch->text, r->pool);

    ctx->query->batch = batch;

    return ngx_http_idempotency_batch_next(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_batch_next(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    u_char                        *p;
    ngx_int_t                      rc;
    ngx_str_t                      text;
    ngx_http_idempotency_batch_t  *batch;

    static ngx_str_t  type = ngx_string("application/x-ndjson");

    batch = ctx->query->batch;

    while (batch->pos < batch->last) {

        text.data = batch->pos;

        p = ngx_strlchr(batch->pos, batch->last, '\n');

        text.len = (p ? p : batch->last) - text.data;
        batch->pos = p ? p + 1 : batch->last;
        batch->n++;

        if (text.len && text.data[text.len - 1] == '\r') {
            text.len--;
        }

        if (text.len == 0) {
            continue;
        }

        if (batch->n > NGX_HTTP_IDEMPOTENCY_BATCH_LINES) {
            ngx_http_idempotency_batch_result(batch, 0, "invalid",
                       "a batch has 10000 lines at most, the rest was not "
                       "read");
            break;
        }

        rc = ngx_http_idempotency_batch_line(r, ctx, &text);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    ngx_http_idempotency_body_free(r, NULL);

    return ngx_http_idempotency_text_send(r, &batch->text, NGX_HTTP_OK, &type);
}


/* NGX_DECLINED: it is invalid, which is noted */

static ngx_int_t
ngx_http_idempotency_batch_line(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *text)
{
    char                          *error;
    ngx_idempotency_op_t          *op;
    ngx_http_idempotency_batch_t  *batch;

    batch = ctx->query->batch;

    switch (ngx_http_idempotency_batch_parse(r->pool, text, &batch->line,
                                             &error))
    {
    case NGX_OK:
        break;

    case NGX_DECLINED:
        ngx_http_idempotency_batch_result(batch, 0, "invalid", error);
        return NGX_DECLINED;

    default: /* NGX_ERROR */
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memcpy(ctx->id.digest, batch->line.digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ctx->identity.flags = batch->line.flags;

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_FETCH);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->flags |= NGX_IDEMPOTENCY_FETCH_BARE;

    return ngx_http_idempotency_endpoint_submit(r, ctx);
}


ngx_int_t
ngx_http_idempotency_batch_reply(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t          *op;
    ngx_http_idempotency_batch_t  *batch;

    op = ctx->op;
    batch = ctx->query->batch;

    if (ctx->query->waits) {
        ctx->query->waits = 0;
        return ngx_http_idempotency_batch_next(r, ctx);
    }

    if (op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return ngx_http_idempotency_batch_over(r, ctx, "failed",
                   "the store is not available, it may have been settled: "
                   "look at it again");
    }

    if (op->type == NGX_IDEMPOTENCY_FETCH) {
        return ngx_http_idempotency_batch_fetched(r, ctx);
    }

    if (op->result != NGX_IDEMPOTENCY_OK) {
        return ngx_http_idempotency_batch_over(r, ctx, "refused",
                   "the record was changed meanwhile");
    }

    ngx_http_idempotency_resolve_log(r, ctx,
                                     batch->line.resolve.executed
                                     ? "resolved as executed"
                                     : "resolved as not executed",
                                     batch->line.resolve.status,
                                     batch->line.resolve.fence);

    return ngx_http_idempotency_batch_over(r, ctx, "resolved", NULL);
}


static ngx_int_t
ngx_http_idempotency_batch_fetched(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    char                            *error;
    ngx_int_t                        rc;
    ngx_idempotency_op_t            *op;
    ngx_idempotency_record_t        *record;
    ngx_http_idempotency_batch_t    *batch;
    ngx_http_idempotency_resolve_t  *resolve;

    batch = ctx->query->batch;
    resolve = &batch->line.resolve;
    record = &ctx->op->record;

    if (record->state == NGX_IDEMPOTENCY_NONE) {
        return ngx_http_idempotency_batch_over(r, ctx, "refused",
                                               "there is no such record");
    }

    if (record->fence != resolve->fence) {
        return ngx_http_idempotency_batch_over(r, ctx, "refused",
                                         "the record has another fence now");
    }

    if (record->state != NGX_IDEMPOTENCY_UNKNOWN) {
        return ngx_http_idempotency_batch_over(r, ctx, "refused",
                                               "the record is not unknown");
    }

    error = ngx_http_idempotency_resolve_check(r, ctx, resolve);

    if (error) {
        return ngx_http_idempotency_batch_over(r, ctx, "refused", error);
    }

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_RESOLVE);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->fence = resolve->fence;

    if (resolve->executed) {
        rc = ngx_http_idempotency_resolve_answer(r, ctx, resolve, op, &error);

        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (rc != NGX_OK) {
            return ngx_http_idempotency_batch_over(r, ctx, "refused", error);
        }
    }

    if (ctx->query->dry_run) {
        return ngx_http_idempotency_batch_over(r, ctx,
                                               resolve->executed
                                               ? "would be executed"
                                               : "would be not executed",
                                               NULL);
    }

    return ngx_http_idempotency_endpoint_submit(r, ctx);
}


/* the line is done with: the next one is read in the next turn */

static ngx_int_t
ngx_http_idempotency_batch_over(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, char *result, char *detail)
{
    ngx_http_idempotency_batch_result(ctx->query->batch, 1, result, detail);

    ctx->query->waits = 1;
    ngx_post_event(r->connection->write, &ngx_posted_next_events);

    return NGX_AGAIN;
}


static void
ngx_http_idempotency_batch_result(ngx_http_idempotency_batch_t *batch,
    ngx_uint_t named, char *result, char *detail)
{
    u_char                       *digest;
    ngx_http_idempotency_text_t  *text;

    text = &batch->text;
    digest = batch->line.digest;

    ngx_http_idempotency_text_add(text, "{\"line\":%ui,", batch->n);

    if (named) {
        ngx_http_idempotency_text_add(text, "\"record\":\"%*xs%s%*xs\",",
                                  (size_t) NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                                  digest, batch->line.flags ? "-" : "",
                                  (size_t) NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                                  digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2);
    }

    ngx_http_idempotency_text_add(text, "\"result\":\"%s\"", result);

    if (detail) {
        ngx_http_idempotency_text_add(text, ",\"detail\":\"%s\"", detail);
    }

    ngx_http_idempotency_text_add(text, "}\n");
}


ngx_int_t
ngx_http_idempotency_batch_parse(ngx_pool_t *pool, ngx_str_t *text,
    ngx_http_idempotency_batch_line_t *line, char **error)
{
    ngx_int_t                     rc;
    ngx_idempotency_body_tree_t   tree;

    ngx_memzero(line, sizeof(ngx_http_idempotency_batch_line_t));

    rc = ngx_idempotency_json_parse(&tree, text);

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_batch_fields(pool, &tree, line, error);

    } else if (rc == NGX_DECLINED) {
        *error = "this is not a JSON object in one line";
    }

    ngx_idempotency_body_tree_free(&tree);

    return rc;
}


static ngx_int_t
ngx_http_idempotency_batch_fields(ngx_pool_t *pool,
    ngx_idempotency_body_tree_t *tree,
    ngx_http_idempotency_batch_line_t *line, char **error)
{
    off_t                            n;
    ngx_str_t                        record, word;
    ngx_http_idempotency_resolve_t  *resolve;

    resolve = &line->resolve;

    if (ngx_http_idempotency_batch_text(pool, tree, "record", &record)
        != NGX_OK
        || ngx_http_idempotency_query_name(&record, line->digest,
                                           &line->flags)
           != NGX_OK)
    {
        *error = "record must be the whole name of a record";
        return NGX_DECLINED;
    }

    if (ngx_http_idempotency_batch_number(tree, "fence", &n) != NGX_OK
        || n <= 0)
    {
        *error = "fence must be the number that was seen";
        return NGX_DECLINED;
    }

    resolve->fence = (uint64_t) n;

    if (ngx_http_idempotency_batch_text(pool, tree, "resolve", &word)
        != NGX_OK)
    {
        *error = "resolve is missing: executed or not-executed";
        return NGX_DECLINED;
    }

    if (word.len == sizeof("executed") - 1
        && ngx_strncmp(word.data, "executed", word.len) == 0)
    {
        resolve->executed = 1;

    } else if (word.len != sizeof("not-executed") - 1
               || ngx_strncmp(word.data, "not-executed", word.len) != 0)
    {
        *error = "resolve must be executed or not-executed";
        return NGX_DECLINED;
    }

    switch (ngx_http_idempotency_batch_number(tree, "status", &n)) {

    case NGX_OK:
        if (n >= NGX_HTTP_OK
            && n < NGX_HTTP_IDEMPOTENCY_STATUSES
            && resolve->executed)
        {
            resolve->status = (ngx_uint_t) n;
            break;
        }

        /* fall through */

    case NGX_ERROR:
        *error = "status must be from 200 to 599, and is for executed";
        return NGX_DECLINED;

    default: /* NGX_DECLINED */
        break;
    }

    if (ngx_http_idempotency_batch_text(pool, tree, "label", &resolve->label)
            == NGX_ERROR
        || ngx_http_idempotency_batch_text(pool, tree, "confirm",
                                           &resolve->confirm)
           == NGX_ERROR
        || ngx_http_idempotency_batch_text(pool, tree, "content_type",
                                           &resolve->type)
           == NGX_ERROR
        || ngx_http_idempotency_batch_text(pool, tree, "body", &resolve->body)
           == NGX_ERROR)
    {
        *error = "label, confirm, content_type and body must be strings";
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* NGX_DECLINED: there is none; NGX_ERROR: it is not a string */

static ngx_int_t
ngx_http_idempotency_batch_text(ngx_pool_t *pool,
    ngx_idempotency_body_tree_t *tree, char *name, ngx_str_t *value)
{
    ngx_str_t                          path;
    ngx_idempotency_body_tree_node_t  *node;

    ngx_str_null(value);

    path.data = (u_char *) name;
    path.len = ngx_strlen(name);

    node = ngx_idempotency_body_tree_find(tree, &path, 1);

    if (node == NULL) {
        return NGX_DECLINED;
    }

    if (node->type != NGX_IDEMPOTENCY_BODY_TREE_STRING) {
        return NGX_ERROR;
    }

    value->data = ngx_pnalloc(pool, node->len + 1);
    if (value->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(value->data, node->data, node->len);
    value->len = node->len;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_batch_number(ngx_idempotency_body_tree_t *tree,
    char *name, off_t *value)
{
    ngx_str_t                          path;
    ngx_idempotency_body_tree_node_t  *node;

    path.data = (u_char *) name;
    path.len = ngx_strlen(name);

    node = ngx_idempotency_body_tree_find(tree, &path, 1);

    if (node == NULL) {
        return NGX_DECLINED;
    }

    if (node->type != NGX_IDEMPOTENCY_BODY_TREE_NUMBER) {
        return NGX_ERROR;
    }

    *value = ngx_atoof((u_char *) node->data, node->len);

    return *value == NGX_ERROR ? NGX_ERROR : NGX_OK;
}
