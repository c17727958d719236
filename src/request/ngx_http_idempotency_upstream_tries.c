
/*
 * The tries of an upstream: nobody who hangs up cancels them, and none starts
 * under a lease that may be over.
 */


#include "ngx_http_idempotency_upstream_tries.h"
#include "ngx_http_idempotency_context.h"


static void ngx_http_idempotency_upstream_watch(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_upstream_resolved(ngx_resolver_ctx_t *rctx);
static ngx_int_t ngx_http_idempotency_upstream_get_peer(
    ngx_peer_connection_t *pc, void *data);


ngx_uint_t
ngx_http_idempotency_upstream_leased(ngx_http_idempotency_ctx_t *ctx)
{
    return !ctx->passed && !ctx->settled;
}


ngx_int_t
ngx_http_idempotency_upstream_lost(ngx_http_request_t *r)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "idempotency lease could not be renewed in time, "
                  "the request is not sent");

    return NGX_HTTP_SERVICE_UNAVAILABLE;
}


/*
 * What "proxy_ignore_client_abort on" does, for this request only: a client
 * that leaves does not cancel the call.  The body was read before, so
 * ngx_http_upstream_init() has run and installed its checks by now, unless it
 * waits for a lock of proxy_cache: then it will look at the configuration.
 *
 * ngx_http_idempotency_upstream_check() has refused "non_idempotent" for
 * protected locations, and cannot know where a redirect leads.
 */

void
ngx_http_idempotency_upstream_guard(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_upstream_t       *u;
    ngx_http_upstream_conf_t  *conf;

    u = r->upstream;

    if (u == NULL) {
        return;
    }

    if (u->cleanup == NULL
        || (u->conf->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT))
    {
        conf = ngx_palloc(r->pool, sizeof(ngx_http_upstream_conf_t));

        if (conf) {
            *conf = *u->conf;
            conf->ignore_client_abort = 1;
            conf->next_upstream &= ~NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT;
            u->conf = conf;
        }
    }

    if (u->cleanup == NULL) {
        return;
    }

    r->read_event_handler = ngx_http_block_reading;

    if (!u->header_sent) {
        r->write_event_handler = ngx_http_request_empty_handler;
    }

    ngx_http_idempotency_upstream_watch(r, ctx);
}


static void
ngx_http_idempotency_upstream_watch(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_resolver_ctx_t   *rctx;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    rctx = u->resolved ? u->resolved->ctx : NULL;

    if (rctx && rctx->handler != ngx_http_idempotency_upstream_resolved) {
        ctx->resolved = rctx->handler;
        rctx->handler = ngx_http_idempotency_upstream_resolved;
    }

    if (u->peer.get && u->peer.get != ngx_http_idempotency_upstream_get_peer) {
        ctx->get_peer = u->peer.get;
        u->peer.get = ngx_http_idempotency_upstream_get_peer;
    }
}


/*
 * The first try of a server whose name had to be resolved starts in
 * ngx_http_upstream_resolve_handler(), as late as the resolver answers.  That
 * may free the request as well.
 */

static void
ngx_http_idempotency_upstream_resolved(ngx_resolver_ctx_t *rctx)
{
    ngx_uint_t                   gone;
    ngx_http_request_t          *r;
    ngx_http_idempotency_ctx_t  *ctx;

    r = rctx->data;
    ctx = ngx_http_idempotency_context_get(r);

    if (rctx->state == 0
        && ngx_http_idempotency_upstream_leased(ctx)
        && ngx_idempotency_lease_check(&ctx->held) != NGX_OK)
    {
        (void) ngx_http_idempotency_upstream_lost(r);

        /* the only way to end an upstream from here */

        rctx->state = NGX_RESOLVE_SERVFAIL;
    }

    gone = 0;
    ctx->gone = &gone;

    ctx->resolved(rctx);

    if (gone) {
        return;
    }

    ctx->gone = NULL;

    if (r->upstream && r->upstream->cleanup) {
        ngx_http_idempotency_upstream_watch(r, ctx);
    }
}


/* Every further try starts here, see ngx_http_upstream_connect(). */

static ngx_int_t
ngx_http_idempotency_upstream_get_peer(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_request_t          *r;
    ngx_http_log_ctx_t          *log;
    ngx_http_idempotency_ctx_t  *ctx;

    /* set by ngx_http_upstream_init_request() to the log of the client */

    log = pc->log->data;
    r = log->request;

    ctx = ngx_http_idempotency_context_get(r);

    if (ngx_http_idempotency_upstream_leased(ctx)
        && ngx_idempotency_lease_check(&ctx->held) != NGX_OK)
    {
        (void) ngx_http_idempotency_upstream_lost(r);
        return NGX_BUSY;
    }

    return ctx->get_peer(pc, data);
}
