
/*
 * The request's context: created, found again after redirects, its operations
 * and its result.
 */


#include "ngx_http_idempotency_context.h"
#include "ngx_idempotency_share.h"


/* the end of a log line; the name of a location may be cut off */
#define NGX_HTTP_IDEMPOTENCY_EVENT_TEXT  512


static void ngx_http_idempotency_context_cleanup(void *data);


/* in the order of ngx_http_idempotency_result_e */

ngx_str_t  ngx_http_idempotency_result_names[] = {
    ngx_string("off"),
    ngx_string("new"),
    ngx_string("replayed"),
    ngx_string("rejected"),
    ngx_string("in_progress"),
    ngx_string("waited"),
    ngx_string("mismatch"),
    ngx_string("missing"),
    ngx_string("invalid"),
    ngx_string("unknown"),
    ngx_string("out_of_order"),
    ngx_string("not_issued"),
    ngx_string("expired"),
    ngx_string("bypassed"),
    ngx_string("store_error")
};


/* in the order of ngx_http_idempotency_state_e */

const char  *ngx_http_idempotency_state_names[] = {
    "NEW", "BODY", "READY", "CLAIM", "PROBE", "WAIT", "RUNS", "REPLAY",
    "REFUSED", "PASSED", "DRY_RUN"
};


ngx_http_idempotency_ctx_t *
ngx_http_idempotency_context_create(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *ilcf, ngx_http_idempotency_end_pt end)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_idempotency_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_idempotency_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;

    ngx_memzero(ctx, sizeof(ngx_http_idempotency_ctx_t));

    ctx->request = r;
    ctx->conf = ilcf;
    ctx->end = end;
    ctx->capture.last = &ctx->capture.body;

    cln->handler = ngx_http_idempotency_context_cleanup;

    ngx_http_set_ctx(r, ctx, ngx_http_idempotency_module);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency begins with \"%V %V\"", &r->method_name,
                   &r->uri);

    return ctx;
}


ngx_http_idempotency_ctx_t *
ngx_http_idempotency_context_find(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_idempotency_ctx_t  *ctx;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler == ngx_http_idempotency_context_cleanup) {
            ctx = cln->data;
            ngx_http_set_ctx(r, ctx, ngx_http_idempotency_module);
            return ctx;
        }
    }

    return NULL;
}


ngx_idempotency_op_t *
ngx_http_idempotency_context_op(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_op_e type)
{
    ngx_idempotency_op_t  *op;

    if (ctx->op) {
        ngx_idempotency_op_drop(ctx->op);
    }

    op = ngx_idempotency_op_create(ctx->conf->endpoint ? ctx->conf->endpoint
                                                       : ctx->conf->store,
                                   type);

    ctx->op = op;

    if (op == NULL) {
        return NULL;
    }

    op->id = ctx->id;
    op->flags = ctx->identity.flags;

    if (ctx->conf->wait) {
        op->flags |= NGX_IDEMPOTENCY_TELL;
    }

    if (ctx->conf->unknown == NGX_HTTP_IDEMPOTENCY_UNKNOWN_TRANSACTION) {
        op->flags |= NGX_IDEMPOTENCY_WORK;
    }

    op->lease = ctx->conf->lease;
    op->ttl = ctx->capture.ttl ? ctx->capture.ttl : ctx->conf->ttl;
    op->tombstone = ctx->conf->tombstone;

    op->handler = ngx_http_idempotency_context_wake;
    op->data = ctx;
    op->connection = ctx->request->connection->number;

    return op;
}


void
ngx_http_idempotency_context_wake(ngx_idempotency_op_t *op)
{
    ngx_connection_t            *c;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = op->data;
    c = ctx->request->connection;

    ctx->store_time += ngx_current_msec - op->submitted;

    /* many large answers may arrive before the first of them is sent */

    if (op->record.body.len >= NGX_IDEMPOTENCY_SHARE_MIN
        && ngx_idempotency_seal_open(ctx->conf->secrets, ctx->id.digest,
                                     &op->record.head, &op->record.body)
           == NGX_OK)
    {
        ctx->op = ngx_idempotency_share(op);
    }

    /* ngx_http_request_handler() goes on with the phases or the writer */

    ngx_post_event(c->write, &ngx_posted_events);
}


void
ngx_http_idempotency_context_hold(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t    *op;
    ngx_idempotency_held_t  *held;

    op = ctx->op;
    held = &ctx->held;

    held->store = op->store;
    held->line.id = op->id;
    held->line.fence = op->record.fence;
    held->line.flags = op->flags & (NGX_IDEMPOTENCY_SEQUENCE
                                    |NGX_IDEMPOTENCY_WORK);
    held->line.lease = op->lease;
    held->line.keep = ngx_max(op->ttl, op->tombstone);
    held->line.keep = ngx_max(held->line.keep, NGX_IDEMPOTENCY_UNKNOWN_TTL);

    ngx_idempotency_lease_hold(held, op->submitted);
}


void
ngx_http_idempotency_context_take_back(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op, *last;

    last = ctx->op;
    ctx->op = NULL;

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_RELEASE);

    if (op) {
        (void) ngx_idempotency_op_submit(op);
        ngx_idempotency_op_drop(op);
    }

    ctx->op = last;
}


void
ngx_http_idempotency_event(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_result_e result, ngx_str_t *code)
{
    ctx->result = result;

    /* without a source the record has no name yet */

    ngx_http_idempotency_event_log(ctx->request->connection->log, ctx->conf,
                                   result, code,
                                   ctx->identity.source.len ? ctx->id.digest
                                                            : NULL,
                                   ngx_http_idempotency_event_location(ctx));
}


void
ngx_http_idempotency_event_log(ngx_log_t *log,
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_result_e result, ngx_str_t *code, u_char *digest,
    ngx_str_t *location)
{
    u_char  *p, *last;
    u_char   text[NGX_HTTP_IDEMPOTENCY_EVENT_TEXT];

    if (result == NGX_HTTP_IDEMPOTENCY_NEW
        || result == NGX_HTTP_IDEMPOTENCY_OFF
        || log->log_level < conf->log_level)
    {
        return;
    }

    p = text;
    last = text + sizeof(text);

    if (code) {
        p = ngx_slprintf(p, last, ", code \"%V\"", code);
    }

    if (digest) {
        p = ngx_slprintf(p, last, ", record \"%*xs\"", NGX_IDEMPOTENCY_WHOLE,
                         digest);
    }

    p = ngx_slprintf(p, last, ", location \"%V\"", location);

    ngx_log_error(conf->log_level, log, 0, "idempotency %s \"%V\"%*s",
                  conf->dry_run ? "dry run: request would have been"
                                : "request was",
                  &ngx_http_idempotency_result_names[result],
                  (size_t) (p - text), text);
}


ngx_str_t *
ngx_http_idempotency_event_location(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_location_t   *locations;
    ngx_http_idempotency_main_conf_t  *imcf;

    if (ctx->conf->endpoint) {
        clcf = ngx_http_get_module_loc_conf(ctx->request,
                                            ngx_http_core_module);
        return &clcf->name;
    }

    /* after a redirect the core's location is another one */

    imcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_idempotency_module);
    locations = imcf->locations.elts;

    return &locations[ctx->conf->location].location;
}


static void
ngx_http_idempotency_context_cleanup(void *data)
{
    ngx_http_idempotency_ctx_t *ctx = data;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "idempotency ends, result \"%V\", state %s, capture:%d",
                   &ngx_http_idempotency_result_names[ctx->result],
                   ngx_http_idempotency_state_names[ctx->state],
                   ctx->capture.state);

    if (ctx->end) {
        ctx->end(ctx);
    }

    if (ctx->op) {
        ngx_idempotency_op_drop(ctx->op);
    }
}
