
/*
 * Records for operators: the oldest first, page by page, and their formats.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_LIST_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_LIST_H_INCLUDED_


#include "ngx_http_idempotency.h"
#include "ngx_http_idempotency_text.h"
#include "ngx_idempotency_note.h"


/* a record that was found; its note points into "note" */

typedef struct {
    ngx_idempotency_entry_t    entry;
    u_char                     note[NGX_IDEMPOTENCY_NOTE_LEN];
} ngx_http_idempotency_row_t;


/*
 * Looks for the records of ctx->query, and goes on with that.  As
 * ngx_http_idempotency_endpoint_submit().
 */
ngx_int_t ngx_http_idempotency_list_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
ngx_int_t ngx_http_idempotency_list_next(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * The store has shown a part of its records.  NGX_OK: that was the last one,
 * ctx->query->rows are complete; NGX_AGAIN: it is to go on in the next turn of
 * the event loop, ctx->query->waits is set; NGX_DECLINED: the store is not
 * available; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_list_reply(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* Sends the rows in the format that was asked for. */
ngx_int_t ngx_http_idempotency_list_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * A record as JSON.  Where the request went, and what it got, is shown to
 * operators only.
 */
void ngx_http_idempotency_list_show(ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_ctx_t *ctx, u_char *digest, ngx_uint_t sequence,
    ngx_idempotency_record_t *record);


#endif /* _NGX_HTTP_IDEMPOTENCY_LIST_H_INCLUDED_ */
