
/*
 * An operator settles an unknown outcome: what is checked, stored and logged.
 */


#include "ngx_http_idempotency_resolve.h"
#include "ngx_http_idempotency_answer.h"
#include "ngx_http_idempotency_query.h"
#include "ngx_idempotency_note.h"


/* bytes of a user's name in the log */
#define NGX_HTTP_IDEMPOTENCY_RESOLVE_USER  64


/*
 * Somebody who settles one of many records has the label before the eyes, and
 * not the digits: if there is a label, it must be repeated.
 */

char *
ngx_http_idempotency_resolve_check(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_resolve_t *resolve)
{
    u_char                     digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_uint_t                 flags;
    ngx_idempotency_note_t     note;
    ngx_idempotency_record_t  *record;

    static u_char  none[NGX_IDEMPOTENCY_KEY_ID_LEN];

    record = &ctx->op->record;

    (void) ngx_idempotency_note_decode(r->pool, &record->note,
                                       ctx->conf->secrets, ctx->id.digest,
                                       &note);

    if (resolve->confirm.len) {
        flags = 0;

        if (ngx_http_idempotency_query_name(&resolve->confirm, digest, &flags)
            != NGX_OK
            || ngx_memcmp(digest, ctx->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN)
               != 0)
        {
            return "confirm= is not the name of the record";
        }

    } else if (note.sealed) {
        return "the label of the record cannot be opened here: confirm= must "
               "repeat the name of the record";

    } else if (note.label.len
               && (note.label.len != resolve->label.len
                   || ngx_memcmp(note.label.data, resolve->label.data,
                                 note.label.len)
                      != 0))
    {
        return "label= must repeat the label of the record, or confirm= its "
               "name";
    }

    if (resolve->status
        && ctx->conf->secrets == NULL
        && ngx_memcmp(record->fingerprint, none, NGX_IDEMPOTENCY_KEY_ID_LEN)
           != 0)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idempotency cannot seal an answer for record "
                      "\"%*xs\": the location of \"idempotency_lookup\" "
                      "needs the \"idempotency_secret\" of the location that "
                      "is protected", NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);

        return "the answer cannot be sealed: this location needs the "
               "idempotency_secret of the protected one";
    }

    return NULL;
}


ngx_int_t
ngx_http_idempotency_resolve_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_resolve_t *resolve,
    ngx_idempotency_op_t *op, char **error)
{
    ngx_buf_t                 *b;
    ngx_chain_t               *cl;
    ngx_idempotency_answer_t   answer;

    op->executed = 1;
    op->status = resolve->status;

    if (resolve->body.len && resolve->status == 0) {
        *error = "status= is missing: a body needs one";
        return NGX_DECLINED;
    }

    if (op->status == 0) {
        return NGX_OK;
    }

    if (resolve->body.len
        && (op->status == NGX_HTTP_NO_CONTENT
            || op->status == NGX_HTTP_NOT_MODIFIED))
    {
        *error = "status= is one of an answer without a body";
        return NGX_DECLINED;
    }

    if (resolve->body.len && resolve->type.len == 0) {
        *error = "the body has no Content-Type: clients could not read it";
        return NGX_DECLINED;
    }

    if (resolve->body.len > ctx->conf->max_response) {
        *error = "the body is larger than idempotency_max_response";
        return NGX_ABORT;
    }

    ngx_memzero(&answer, sizeof(ngx_idempotency_answer_t));

    answer.status = op->status;
    answer.content_length = resolve->body.len;
    answer.last_modified = -1;

    if (resolve->body.len) {
        answer.content_type = resolve->type;
    }

    if (ngx_idempotency_record_encode_head(r->pool, &answer, &op->head)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL) {
        return NGX_ERROR;
    }

    b->pos = resolve->body.data;
    b->last = resolve->body.data + resolve->body.len;
    b->memory = 1;

    cl->buf = b;
    cl->next = NULL;

    op->body = cl;
    op->body_len = resolve->body.len;

    ngx_http_idempotency_answer_seal(r, ctx, op);

    return op->keep ? NGX_OK : NGX_ERROR;
}


/* escaped so that no line can be forged */

void
ngx_http_idempotency_resolve_log(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const char *what, ngx_uint_t status,
    uint64_t fence)
{
    size_t     i;
    u_char     user[NGX_HTTP_IDEMPOTENCY_RESOLVE_USER];
    ngx_str_t  name;

    ngx_str_set(&name, "-");

    if (ngx_http_auth_basic_user(r) == NGX_OK) {
        name.len = ngx_min(r->headers_in.user.len, sizeof(user));
        name.data = user;

        for (i = 0; i < name.len; i++) {
            user[i] = r->headers_in.user.data[i];

            if (user[i] < 0x20 || user[i] == '"' || user[i] >= 0x7f) {
                user[i] = '?';
            }
        }
    }

    ngx_log_error(ctx->conf->log_level, r->connection->log, 0,
                  "idempotency record \"%*xs\" was %s by \"%V\" user \"%V\", "
                  "status %ui, fence %uL",
                  NGX_IDEMPOTENCY_WHOLE, ctx->id.digest, what,
                  &r->connection->addr_text, &name, status, fence);
}
