
/*
 * Records for operators: the oldest first, page by page, and their formats.
 *
 * No store has its records in the order of time.  All of them are looked at
 * for each page, a bounded number in each turn of the event loop, and the
 * oldest behind the cursor are kept.
 */


#include "ngx_http_idempotency_list.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_endpoint.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_query.h"


static ngx_int_t ngx_http_idempotency_list_take(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_entry_t *entry);
static ngx_uint_t ngx_http_idempotency_list_matches(
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_entry_t *entry);
static ngx_int_t ngx_http_idempotency_list_compare(time_t created,
    u_char *digest, ngx_idempotency_entry_t *entry);
static void ngx_http_idempotency_list_json(ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_list_csv(ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_list_csv_text(
    ngx_http_idempotency_text_t *text, ngx_str_t *value);
static void ngx_http_idempotency_list_csv_time(
    ngx_http_idempotency_text_t *text, time_t time);
static ngx_int_t ngx_http_idempotency_list_cursor(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *cursor);
static void ngx_http_idempotency_list_note(ngx_pool_t *pool,
    ngx_http_idempotency_ctx_t *ctx, u_char *digest,
    ngx_idempotency_record_t *record, ngx_idempotency_note_t *note);


ngx_int_t
ngx_http_idempotency_list_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ngx_array_init(&ctx->query->rows, r->pool, 16,
                       sizeof(ngx_http_idempotency_row_t *))
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idempotency_list_next(r, ctx);
}


ngx_int_t
ngx_http_idempotency_list_next(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    ctx->query->waits = 0;

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_LIST);

    if (op == NULL
        || ngx_idempotency_op_list(op, ctx->query->state, &ctx->query->cursor)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->list->digits = ctx->query->digits;

    return ngx_http_idempotency_endpoint_submit(r, ctx);
}


ngx_int_t
ngx_http_idempotency_list_reply(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_uint_t                     i;
    ngx_idempotency_list_t        *list;
    ngx_idempotency_entry_t       *entry;
    ngx_http_idempotency_query_t  *query;

    query = ctx->query;

    if (ctx->op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return NGX_DECLINED;
    }

    if (ctx->op->result != NGX_IDEMPOTENCY_OK) {
        return NGX_ERROR;
    }

    list = ctx->op->list;
    entry = list->entries.elts;

    query->seen += list->seen;

    for (i = 0; i < list->entries.nelts; i++) {
        if (ngx_http_idempotency_list_take(r, ctx, &entry[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    query->cursor.len = list->cursor.len;
    ngx_memcpy(query->text, list->cursor.data, list->cursor.len);

    if (query->cursor.len == 0) {
        return NGX_OK;
    }

    /* other events come first: the next call is in the next turn */

    query->waits = 1;
    ngx_post_event(r->connection->write, &ngx_posted_next_events);

    return NGX_AGAIN;
}


/* keeps it if it is one of the oldest so far */

static ngx_int_t
ngx_http_idempotency_list_take(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_entry_t *entry)
{
    time_t                          created;
    ngx_uint_t                      low, high, middle, n;
    ngx_array_t                    *rows;
    ngx_http_idempotency_row_t     *row, **rowp;
    ngx_http_idempotency_query_t   *query;

    query = ctx->query;
    rows = &query->rows;
    created = entry->record.created;

    if (!ngx_http_idempotency_list_matches(ctx, entry)) {
        return NGX_OK;
    }

    rowp = rows->elts;
    low = 0;
    high = rows->nelts;

    while (low < high) {
        middle = (low + high) / 2;

        n = ngx_http_idempotency_list_compare(created, entry->digest,
                                              &rowp[middle]->entry)
            > 0;

        if (n) {
            low = middle + 1;

        } else {
            high = middle;
        }
    }

    if (low < rows->nelts
        && ngx_http_idempotency_list_compare(created, entry->digest,
                                             &rowp[low]->entry)
           == 0)
    {
        /* the store has shown it before: it was moved meanwhile */

        return NGX_OK;
    }

    if (rows->nelts == query->limit) {
        query->more = 1;

        if (low == rows->nelts) {
            return NGX_OK;
        }

        row = rowp[rows->nelts - 1];

    } else {
        row = ngx_palloc(r->pool, sizeof(ngx_http_idempotency_row_t));
        if (row == NULL || ngx_array_push(rows) == NULL) {
            return NGX_ERROR;
        }

        rowp = rows->elts;
    }

    ngx_memmove(&rowp[low + 1], &rowp[low],
                (rows->nelts - 1 - low) * sizeof(*rowp));

    rowp[low] = row;

    row->entry = *entry;

    if (entry->record.note.len) {
        row->entry.record.note.data = row->note;
        ngx_memcpy(row->note, entry->record.note.data,
                   ngx_min(entry->record.note.len, NGX_IDEMPOTENCY_NOTE_LEN));
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_list_matches(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_entry_t *entry)
{
    ngx_idempotency_note_t         note;
    ngx_http_idempotency_query_t  *query;

    query = ctx->query;

    if (!ngx_idempotency_list_wants(ctx->op->list, entry->record.state,
                                    entry->digest))
    {
        return 0;
    }

    if ((query->after >= 0
         && ngx_http_idempotency_list_compare(query->after,
                                              query->after_digest, entry)
            >= 0)
        || ngx_time() - entry->record.created < query->older)
    {
        return 0;
    }

    if (query->type != NGX_IDEMPOTENCY_LIST
        || (query->location.len == 0 && query->label.len == 0))
    {
        return 1;
    }

    ngx_http_idempotency_list_note(ctx->op->pool, ctx, entry->digest,
                                   &entry->record, &note);

    return (query->location.len == 0
            || (note.location.len == query->location.len
                && ngx_memcmp(note.location.data, query->location.data,
                              note.location.len)
                   == 0))
           && note.label.len >= query->label.len
           && ngx_memcmp(note.label.data, query->label.data, query->label.len)
              == 0;
}


static ngx_int_t
ngx_http_idempotency_list_compare(time_t created, u_char *digest,
    ngx_idempotency_entry_t *entry)
{
    if (created != entry->record.created) {
        return created < entry->record.created ? -1 : 1;
    }

    return ngx_memcmp(digest, entry->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
}


ngx_int_t
ngx_http_idempotency_list_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                    cursor;
    ngx_http_idempotency_text_t  text;

    static ngx_str_t  types[] = {
        ngx_string("application/json"),
        ngx_string("application/x-ndjson"),
        ngx_string("text/csv; charset=utf-8; header=present")
    };
    static ngx_str_t  name = ngx_string("Idempotency-Cursor");

    ngx_http_idempotency_text_init(&text, r->pool);

    if (ctx->query->format != NGX_HTTP_IDEMPOTENCY_QUERY_JSON
        && ctx->query->more)
    {
        if (ngx_http_idempotency_list_cursor(r, ctx, &cursor) != NGX_OK
            || ngx_http_idempotency_header_add(&r->headers_out.headers, &name,
                                               &cursor)
               == NULL)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    if (ctx->query->format == NGX_HTTP_IDEMPOTENCY_QUERY_CSV) {
        ngx_http_idempotency_list_csv(&text, ctx);

    } else {
        ngx_http_idempotency_list_json(&text, ctx);
    }

    return ngx_http_idempotency_text_send(r, &text, NGX_HTTP_OK,
                                          &types[ctx->query->format]);
}


/* the last row that is shown: the next page begins behind it */

static ngx_int_t
ngx_http_idempotency_list_cursor(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *cursor)
{
    u_char                       *p;
    ngx_http_idempotency_row_t  **rowp;

    p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 1
                             + NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS);
    if (p == NULL) {
        return NGX_ERROR;
    }

    rowp = ctx->query->rows.elts;
    rowp += ctx->query->rows.nelts - 1;

    cursor->data = p;

    p = ngx_sprintf(p, "%T.", (*rowp)->entry.record.created);
    p = ngx_hex_dump(p, (*rowp)->entry.digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    cursor->len = p - cursor->data;

    return NGX_OK;
}


static void
ngx_http_idempotency_list_json(ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                       cursor;
    ngx_uint_t                      i, lines;
    ngx_http_idempotency_row_t    **rowp;
    ngx_http_idempotency_query_t   *query;

    query = ctx->query;
    rowp = query->rows.elts;
    lines = (query->format == NGX_HTTP_IDEMPOTENCY_QUERY_NDJSON);

    if (!lines) {
        ngx_http_idempotency_text_add(text, "{\"store\":\"");
        ngx_http_idempotency_text_json(text, &ctx->op->store->name);
        ngx_http_idempotency_text_add(text,
                                      "\",\"state\":\"%V\",\"records\":[",
                                      &ngx_idempotency_states[query->state]);
    }

    for (i = 0; i < query->rows.nelts; i++) {

        if (!lines) {
            ngx_http_idempotency_text_add(text, i ? ",\n" : "\n");
        }

        ngx_http_idempotency_list_show(text, ctx, rowp[i]->entry.digest,
                                       rowp[i]->entry.sequence,
                                       &rowp[i]->entry.record);
        if (lines) {
            ngx_http_idempotency_text_add(text, "\n");
        }
    }

    if (lines) {
        return;
    }

    ngx_http_idempotency_text_add(text, "],\"seen\":%ui,\"cursor\":",
                                  query->seen);

    if (!query->more) {
        ngx_http_idempotency_text_add(text, "null}\n");
        return;
    }

    if (ngx_http_idempotency_list_cursor(ctx->request, ctx, &cursor)
        != NGX_OK)
    {
        text->failed = 1;
        return;
    }

    ngx_http_idempotency_text_add(text, "\"%V\"}\n", &cursor);
}


void
ngx_http_idempotency_list_show(ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_ctx_t *ctx, u_char *digest, ngx_uint_t sequence,
    ngx_idempotency_record_t *record)
{
    u_char                  *p;
    u_char                   reason[NGX_IDEMPOTENCY_REASON_LEN];
    ngx_uint_t               cancelled;
    ngx_idempotency_note_t   note;

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

    ngx_http_idempotency_list_note(text->pool, ctx, digest, record, &note);

    if (note.label.len) {
        ngx_http_idempotency_text_add(text, ",\"label\":\"");
        ngx_http_idempotency_text_json(text, &note.label);
        ngx_http_idempotency_text_add(text, "\"");
    }

    if (ctx->conf->admin) {

        if (note.sealed) {
            ngx_http_idempotency_text_add(text, ",\"label_sealed\":true");
        }

        if (note.location.len) {
            ngx_http_idempotency_text_add(text, ",\"location\":\"");
            ngx_http_idempotency_text_json(text, &note.location);
            ngx_http_idempotency_text_add(text, "\"");
        }

        if (note.upstream.len) {
            ngx_http_idempotency_text_add(text, ",\"upstream\":\"");
            ngx_http_idempotency_text_json(text, &note.upstream);
            ngx_http_idempotency_text_add(text, "\"");
        }

        if (note.reason != NGX_IDEMPOTENCY_REASON_NONE) {
            p = ngx_idempotency_note_reason(reason, &note);
            ngx_http_idempotency_text_add(text, ",\"reason\":\"%*s\"",
                                          (size_t) (p - reason), reason);
        }

        if (note.since) {
            ngx_http_idempotency_text_add(text, ",\"since\":%T", note.since);
        }
    }

    ngx_http_idempotency_text_add(text, "}");
}


static void
ngx_http_idempotency_list_note(ngx_pool_t *pool,
    ngx_http_idempotency_ctx_t *ctx, u_char *digest,
    ngx_idempotency_record_t *record, ngx_idempotency_note_t *note)
{
    (void) ngx_idempotency_note_decode(pool, &record->note,
                                       ctx->conf->secrets, digest, note);

    ngx_idempotency_note_of(record, ngx_time(), note);
}


static void
ngx_http_idempotency_list_csv(ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_ctx_t *ctx)
{
    u_char                       *p, *digest;
    u_char                        reason[NGX_IDEMPOTENCY_REASON_LEN];
    ngx_str_t                     words;
    ngx_uint_t                    i;
    ngx_idempotency_note_t        note;
    ngx_idempotency_record_t     *record;
    ngx_http_idempotency_row_t  **rowp;

    ngx_http_idempotency_text_add(text, "record,state,fence,label,location,"
                                  "upstream,reason,created,since,attempts,"
                                  "status\r\n");

    rowp = ctx->query->rows.elts;

    for (i = 0; i < ctx->query->rows.nelts; i++) {
        record = &rowp[i]->entry.record;
        digest = rowp[i]->entry.digest;

        ngx_http_idempotency_list_note(text->pool, ctx, digest, record,
                                       &note);

        ngx_http_idempotency_text_add(text, "%*xs%s%*xs,%V,%uL,",
                                  (size_t) NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                                  digest, rowp[i]->entry.sequence ? "-" : "",
                                  (size_t) NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                                  digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                                  &ngx_idempotency_states[record->state],
                                  record->fence);

        ngx_http_idempotency_list_csv_text(text, &note.label);
        ngx_http_idempotency_list_csv_text(text, &note.location);
        ngx_http_idempotency_list_csv_text(text, &note.upstream);

        words.data = reason;
        words.len = 0;

        if (note.reason != NGX_IDEMPOTENCY_REASON_NONE) {
            p = ngx_idempotency_note_reason(reason, &note);
            words.len = p - reason;
        }

        ngx_http_idempotency_list_csv_text(text, &words);
        ngx_http_idempotency_list_csv_time(text, record->created);
        ngx_http_idempotency_list_csv_time(text, note.since);

        ngx_http_idempotency_text_add(text, "%ui,%ui\r\n", record->attempts,
                                      record->status);
    }
}


/*
 * A spreadsheet takes a text that begins with one of these for a formula, and
 * executes it: an apostrophe makes it a text.
 */

static void
ngx_http_idempotency_list_csv_text(ngx_http_idempotency_text_t *text,
    ngx_str_t *value)
{
    size_t  i;

    ngx_http_idempotency_text_bytes(text, "\"", 1);

    if (value->len && ngx_strchr("=+-@|", value->data[0])) {
        ngx_http_idempotency_text_bytes(text, "'", 1);
    }

    for (i = 0; i < value->len; i++) {
        ngx_http_idempotency_text_bytes(text, (char *) &value->data[i], 1);

        if (value->data[i] == '"') {
            ngx_http_idempotency_text_bytes(text, "\"", 1);
        }
    }

    ngx_http_idempotency_text_bytes(text, "\",", 2);
}


static void
ngx_http_idempotency_list_csv_time(ngx_http_idempotency_text_t *text,
    time_t time)
{
    ngx_tm_t  tm;

    if (time > 0) {
        ngx_gmtime(time, &tm);

        ngx_http_idempotency_text_add(text,
                                      "%4d-%02d-%02dT%02d:%02d:%02dZ",
                                      tm.ngx_tm_year, tm.ngx_tm_mon,
                                      tm.ngx_tm_mday, tm.ngx_tm_hour,
                                      tm.ngx_tm_min, tm.ngx_tm_sec);
    }

    ngx_http_idempotency_text_bytes(text, ",", 1);
}
