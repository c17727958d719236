
/*
 * What is noted for people with the record of a request: its label, where it
 * went, and why its outcome is unknown.
 */


#include "ngx_http_idempotency_note.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_upstream.h"


static void ngx_http_idempotency_note_encode(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_note_t *note);
static void ngx_http_idempotency_note_log(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_note_t *note);


void
ngx_http_idempotency_note_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op)
{
    ngx_str_t               *label;
    ngx_idempotency_note_t   note;

    label = &ctx->identity.label;

    if (ctx->conf->label) {

        if (ngx_http_complex_value(r, ctx->conf->label, label) != NGX_OK) {
            ngx_str_null(label);
        }

        label->len = ngx_min(label->len, NGX_IDEMPOTENCY_LABEL_LEN);
    }

    ngx_memzero(&note, sizeof(ngx_idempotency_note_t));

    note.label = *label;
    note.location = *ngx_http_idempotency_event_location(ctx);

    ngx_http_idempotency_note_encode(ctx, op, &note);
}


ngx_idempotency_reason_e
ngx_http_idempotency_note_reason(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx,
    const ngx_http_idempotency_facts_t *facts, ngx_idempotency_op_e type)
{
    ngx_str_t   peer;
    ngx_uint_t  status;

    if (type != NGX_IDEMPOTENCY_MARK_UNKNOWN) {
        return NGX_IDEMPOTENCY_REASON_NONE;
    }

    if (facts->override == NGX_HTTP_IDEMPOTENCY_OVERRIDE_UNKNOWN) {
        return NGX_IDEMPOTENCY_REASON_UPSTREAM;
    }

    if (facts->upstream && !facts->answered) {
        ngx_http_idempotency_upstream_last_try(r, ctx, &peer, &status);

        switch (status) {

        case NGX_HTTP_GATEWAY_TIME_OUT:
            return NGX_IDEMPOTENCY_REASON_TIMEOUT;

        case 0:
            return NGX_IDEMPOTENCY_REASON_ENDED;

        default:
            return NGX_IDEMPOTENCY_REASON_RESET;
        }
    }

    return facts->status ? NGX_IDEMPOTENCY_REASON_STATUS
                         : NGX_IDEMPOTENCY_REASON_ENDED;
}


void
ngx_http_idempotency_note_settle(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op)
{
    ngx_uint_t              status;
    ngx_idempotency_note_t  note;

    if (op->type == NGX_IDEMPOTENCY_RELEASE
        || (op->type == NGX_IDEMPOTENCY_COMPLETE
            && ctx->identity.label.len == 0))
    {
        return;
    }

    ngx_memzero(&note, sizeof(ngx_idempotency_note_t));

    note.label = ctx->identity.label;

    if (op->type == NGX_IDEMPOTENCY_MARK_UNKNOWN) {
        note.location = *ngx_http_idempotency_event_location(ctx);
        note.reason = ctx->capture.reason;
        note.status = ctx->capture.reason_status;
        note.since = ngx_time();

        ngx_http_idempotency_upstream_last_try(r, ctx, &note.upstream,
                                               &status);

        ngx_http_idempotency_note_log(ctx, op, &note);
    }

    ngx_http_idempotency_note_encode(ctx, op, &note);
}


static void
ngx_http_idempotency_note_encode(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_note_t *note)
{
    ngx_idempotency_secret_t  **secret;

    secret = ctx->conf->secrets ? ctx->conf->secrets->elts : NULL;

    if (ngx_idempotency_note_encode(op->pool, note, secret ? secret[0] : NULL,
                                    op->id.digest, &op->note)
        != NGX_OK)
    {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency record \"%*xs\" has no room for its label",
                      NGX_IDEMPOTENCY_WHOLE, op->id.digest);
    }
}


/* at this level whatever idempotency_log_level says: somebody must act */

static void
ngx_http_idempotency_note_log(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_note_t *note)
{
    size_t   i;
    u_char  *p;
    u_char   reason[NGX_IDEMPOTENCY_REASON_LEN];
    u_char   label[NGX_IDEMPOTENCY_LABEL_LEN];

    if (ngx_idempotency_record_is_dry(op->id.digest)) {
        return;
    }

    p = ngx_idempotency_note_reason(reason, note);

    for (i = 0; i < note->label.len; i++) {
        label[i] = note->label.data[i];

        if (label[i] < 0x20 || label[i] == '"' || label[i] == 0x7f) {
            label[i] = '?';
        }
    }

    ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                  "idempotency outcome unknown, record \"%*xs%s%*xs\", "
                  "fence %uL, label \"%*s\", location \"%V\", "
                  "upstream \"%V\", reason \"%*s\"",
                  (size_t) NGX_IDEMPOTENCY_DIGEST_LEN / 2, op->id.digest,
                  op->flags & NGX_IDEMPOTENCY_SEQUENCE ? "-" : "",
                  (size_t) NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                  op->id.digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                  op->fence, note->label.len, label, &note->location,
                  &note->upstream, (size_t) (p - reason), reason);
}
