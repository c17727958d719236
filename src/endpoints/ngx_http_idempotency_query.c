
/*
 * The arguments of a lookup, and records as JSON.  A record is written as the
 * 64 hex digits of its digest; a "-" in the middle marks one of a sequence,
 * whose key in Redis has another form.
 */


#include "ngx_http_idempotency_query.h"


#define NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS  (2 * NGX_IDEMPOTENCY_DIGEST_LEN)


static ngx_int_t ngx_http_idempotency_query_record(
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *value);
static ngx_int_t ngx_http_idempotency_query_state(
    ngx_http_idempotency_query_t *query, ngx_str_t *value);
static ngx_int_t ngx_http_idempotency_query_fence(ngx_http_request_t *r,
    ngx_http_idempotency_query_t *query);
static ngx_int_t ngx_http_idempotency_query_resolve(ngx_http_request_t *r,
    ngx_http_idempotency_query_t *query);

static void ngx_http_idempotency_query_show_record(
    ngx_http_idempotency_text_t *text, u_char *digest, ngx_uint_t sequence,
    ngx_idempotency_record_t *record);


ngx_int_t
ngx_http_idempotency_query(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                      value;
    ngx_http_idempotency_query_t  *query;

    query = ngx_pcalloc(r->pool, sizeof(ngx_http_idempotency_query_t));
    if (query == NULL) {
        return NGX_ERROR;
    }

    ctx->query = query;
    query->type = NGX_IDEMPOTENCY_FETCH;

    if (ctx->conf->cancel
        && r->method == NGX_HTTP_DELETE
        && !(ctx->conf->admin
             && (ngx_http_arg(r, (u_char *) "fence", 5, &value) == NGX_OK
                 || ngx_http_arg(r, (u_char *) "record", 6, &value)
                    == NGX_OK)))
    {
        query->type = NGX_IDEMPOTENCY_CANCEL;
        return NGX_OK;
    }

    if (!ctx->conf->admin) {
        return NGX_OK;
    }

    if (ngx_http_arg(r, (u_char *) "record", 6, &value) == NGX_OK
        && ngx_http_idempotency_query_record(ctx, &value) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    switch (r->method) {

    case NGX_HTTP_DELETE:
        query->type = NGX_IDEMPOTENCY_PURGE;
        return ngx_http_idempotency_query_fence(r, query);

    case NGX_HTTP_POST:
        query->type = NGX_IDEMPOTENCY_RESOLVE;
        return ngx_http_idempotency_query_resolve(r, query);

    default: /* NGX_HTTP_GET, NGX_HTTP_HEAD */

        if (ngx_http_arg(r, (u_char *) "state", 5, &value) != NGX_OK) {
            return NGX_OK;
        }

        query->type = NGX_IDEMPOTENCY_LIST;

        /* an empty cursor is the beginning */

        if (ngx_http_arg(r, (u_char *) "cursor", 6, &query->cursor)
            != NGX_OK)
        {
            ngx_str_null(&query->cursor);
        }

        return ngx_http_idempotency_query_state(query, &value);
    }
}


static ngx_int_t
ngx_http_idempotency_query_record(ngx_http_idempotency_ctx_t *ctx,
    ngx_str_t *value)
{
    u_char   hex[NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS];
    u_char  *p;

    p = value->data;

    if (value->len == NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS + 1
        && p[NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2] == '-')
    {
        ngx_memcpy(hex, p, NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2);
        ngx_memcpy(hex + NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2,
                   p + NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2 + 1,
                   NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2);

        ctx->identity.flags = NGX_IDEMPOTENCY_SEQUENCE;
        p = hex;

    } else if (value->len != NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS) {
        return NGX_DECLINED;
    }

    ctx->query->named = 1;

    return ngx_idempotency_record_digest(p, ctx->id.digest);
}


/* "none" is no state that could be listed */

static ngx_int_t
ngx_http_idempotency_query_state(ngx_http_idempotency_query_t *query,
    ngx_str_t *value)
{
    ngx_uint_t   i;
    ngx_str_t   *name;

    name = ngx_idempotency_states;

    for (i = NGX_IDEMPOTENCY_ISSUED; name[i].len; i++) {

        if (value->len == name[i].len
            && ngx_strncmp(value->data, name[i].data, value->len) == 0)
        {
            query->state = (ngx_idempotency_state_e) i;
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_idempotency_query_fence(ngx_http_request_t *r,
    ngx_http_idempotency_query_t *query)
{
    off_t      fence;
    ngx_str_t  value;

    if (ngx_http_arg(r, (u_char *) "fence", 5, &value) != NGX_OK) {
        return NGX_DECLINED;
    }

    fence = ngx_atoof(value.data, value.len);

    if (fence <= 0) {
        return NGX_DECLINED;
    }

    query->fence = (uint64_t) fence;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_query_resolve(ngx_http_request_t *r,
    ngx_http_idempotency_query_t *query)
{
    ngx_int_t  status;
    ngx_str_t  value;

    static ngx_str_t  executed = ngx_string("executed");
    static ngx_str_t  not_executed = ngx_string("not-executed");

    if (ngx_http_arg(r, (u_char *) "resolve", 7, &value) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (value.len == executed.len
        && ngx_strncmp(value.data, executed.data, value.len) == 0)
    {
        query->executed = 1;

    } else if (value.len != not_executed.len
               || ngx_strncmp(value.data, not_executed.data, value.len) != 0)
    {
        return NGX_DECLINED;
    }

    if (ngx_http_arg(r, (u_char *) "status", 6, &value) == NGX_OK) {
        status = ngx_atoi(value.data, value.len);

        if (!query->executed || status < NGX_HTTP_OK
            || status >= NGX_HTTP_IDEMPOTENCY_STATUSES)
        {
            return NGX_DECLINED;
        }

        query->status = status;
    }

    return ngx_http_idempotency_query_fence(r, query);
}


void
ngx_http_idempotency_query_show(ngx_http_idempotency_text_t *text,
    ngx_idempotency_op_t *op)
{
    ngx_uint_t                i;
    ngx_idempotency_list_t   *list;
    ngx_idempotency_entry_t  *entry;

    list = op->list;

    if (list == NULL) {
        ngx_http_idempotency_query_show_record(text, op->id.digest,
                                        op->flags & NGX_IDEMPOTENCY_SEQUENCE,
                                        &op->record);
        ngx_http_idempotency_text_add(text, "\n");

        return;
    }

    ngx_http_idempotency_text_add(text, "{\"store\":\"");
    ngx_http_idempotency_text_json(text, &op->store->name);
    ngx_http_idempotency_text_add(text, "\",\"state\":\"%V\",\"records\":[",
                                  &ngx_idempotency_states[list->state]);

    entry = list->entries.elts;

    for (i = 0; i < list->entries.nelts; i++) {
        ngx_http_idempotency_text_add(text, i ? ",\n" : "\n");
        ngx_http_idempotency_query_show_record(text, entry[i].digest,
                                               entry[i].sequence,
                                               &entry[i].record);
    }

    ngx_http_idempotency_text_add(text, "],\"seen\":%ui,\"cursor\":",
                                  list->seen);

    if (list->cursor.len) {
        ngx_http_idempotency_text_add(text, "\"%V\"}\n", &list->cursor);

    } else {
        ngx_http_idempotency_text_add(text, "null}\n");
    }
}


static void
ngx_http_idempotency_query_show_record(ngx_http_idempotency_text_t *text,
    u_char *digest, ngx_uint_t sequence, ngx_idempotency_record_t *record)
{
    ngx_uint_t  cancelled;

    static ngx_str_t  cancelled_state = ngx_string("cancelled");

    ngx_http_idempotency_text_add(text, "{\"record\":\"%*xs%s%*xs\",",
                                  (size_t) NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                                  digest, sequence ? "-" : "",
                                  (size_t) NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                                  digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2);

    cancelled = ngx_idempotency_record_is_cancelled(record);

    ngx_http_idempotency_text_add(text, "\"state\":\"%V\",\"fence\":%uL",
                                  cancelled ? &cancelled_state
                                  : &ngx_idempotency_states[record->state],
                                  record->fence);

    if (record->state != NGX_IDEMPOTENCY_NONE) {
        ngx_http_idempotency_text_add(text,
            ",\"created\":%T,\"age\":%T,\"attempts\":%ui,\"ttl\":%T",
            record->created, ngx_max(ngx_time() - record->created, 0),
            record->attempts, record->ttl_left);
    }

    if (record->state >= NGX_IDEMPOTENCY_DONE && record->status && !cancelled)
    {
        ngx_http_idempotency_text_add(text, ",\"status\":%ui",
                                      record->status);
    }

    ngx_http_idempotency_text_add(text, "}");
}
