
/*
 * The gate before the first byte of every try of an upstream: it is asked
 * when a server is chosen, and again when the connection is there.
 */


#include "ngx_http_idempotency_upstream_gate.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_failpoint.h"
#include "ngx_http_idempotency_upstream.h"


typedef struct {
    ngx_http_upstream_srv_conf_t    *upstream;
    ngx_http_upstream_init_peer_pt   init;
} ngx_http_idempotency_peers_t;


static ngx_int_t ngx_http_idempotency_upstream_try(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static int ngx_libc_cdecl ngx_http_idempotency_upstream_compare(
    const void *one, const void *two);
static ngx_int_t ngx_http_idempotency_upstream_init_peer(
    ngx_http_request_t *r, ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_idempotency_upstream_no_stale(ngx_http_request_t *r);
static void ngx_http_idempotency_upstream_watch(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_upstream_get_peer(
    ngx_peer_connection_t *pc, void *data);
static ngx_int_t ngx_http_idempotency_upstream_output(void *data,
    ngx_chain_t *in);
static void ngx_http_idempotency_upstream_finalize(ngx_http_request_t *r,
    ngx_int_t rc);
static void ngx_http_idempotency_upstream_cached(ngx_http_request_t *r);
static void ngx_http_idempotency_upstream_resolved(ngx_resolver_ctx_t *rctx);


ngx_int_t
ngx_http_idempotency_upstream_gate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_came_e   came;
    ngx_http_idempotency_facts_t  facts;

    came = ctx->upstream.came;

    facts.settled = ctx->settled;
    facts.handed_on = ctx->upstream.handed_on;
    facts.sent = ngx_http_idempotency_upstream_sent(r, ctx);
    facts.answered = (came == NGX_HTTP_IDEMPOTENCY_CAME_ERROR_PAGE
                      && ngx_http_idempotency_upstream_answered(r, ctx));

    /* "error_page 502 = /page": the client gets the status of the page */

    if (!ngx_http_idempotency_policy_gate(&facts, came,
                                       r->err_status < NGX_HTTP_BAD_REQUEST))
    {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idempotency: %s, it is not sent to another one",
                      facts.sent ? "the request was sent to an upstream before"
                                 : "the request was settled before");
        return NGX_DECLINED;
    }

    if (came == NGX_HTTP_IDEMPOTENCY_CAME_ERROR_PAGE
        || ctx->passed
        || ngx_idempotency_lease_is_sure(&ctx->held))
    {
        return NGX_OK;
    }

    return NGX_AGAIN;
}


/* For a try, which cannot wait: NGX_OK or NGX_DECLINED. */

static ngx_int_t
ngx_http_idempotency_upstream_try(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_idempotency_upstream_gate(r, ctx);

    if (rc != NGX_AGAIN) {
        return rc;
    }

    if (ngx_idempotency_lease_check(&ctx->held) == NGX_OK) {
        return NGX_OK;
    }

    (void) ngx_http_idempotency_upstream_lost(r);

    return NGX_DECLINED;
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
 * ngx_http_upstream_init_request() calls peer.init of the upstream{} right
 * before the first try, whatever the request has waited for until then.
 */

ngx_int_t
ngx_http_idempotency_upstream_gate_init(ngx_conf_t *cf)
{
    ngx_uint_t                          i;
    ngx_http_idempotency_peers_t       *peers;
    ngx_http_upstream_srv_conf_t      **uscfp;
    ngx_http_upstream_main_conf_t      *umcf;
    ngx_http_idempotency_main_conf_t   *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);
    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);

    if (ngx_array_init(&imcf->peers, cf->pool, umcf->upstreams.nelts + 1,
                       sizeof(ngx_http_idempotency_peers_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    uscfp = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {

        if (uscfp[i]->peer.init == NULL) {
            continue;
        }

        peers = ngx_array_push(&imcf->peers);
        if (peers == NULL) {
            return NGX_ERROR;
        }

        peers->upstream = uscfp[i];
        peers->init = uscfp[i]->peer.init;

        uscfp[i]->peer.init = ngx_http_idempotency_upstream_init_peer;
    }

    ngx_qsort(imcf->peers.elts, imcf->peers.nelts,
              sizeof(ngx_http_idempotency_peers_t),
              ngx_http_idempotency_upstream_compare);

    return NGX_OK;
}


static int ngx_libc_cdecl
ngx_http_idempotency_upstream_compare(const void *one, const void *two)
{
    const ngx_http_idempotency_peers_t  *first = one, *second = two;

    return (first->upstream > second->upstream)
           - (first->upstream < second->upstream);
}


static ngx_int_t
ngx_http_idempotency_upstream_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_int_t                          rc;
    ngx_uint_t                         from, to, i;
    ngx_http_idempotency_ctx_t        *ctx;
    ngx_http_idempotency_peers_t      *peers;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    peers = imcf->peers.elts;
    from = 0;
    to = imcf->peers.nelts;

    while (to - from > 1) {
        i = (from + to) / 2;

        if (us < peers[i].upstream) {
            to = i;

        } else {
            from = i;
        }
    }

    rc = peers[from].init(r, us);

    if (rc != NGX_OK || r != r->main || r->post_action) {
        return rc;
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    if (ctx == NULL || ctx->way != NGX_HTTP_IDEMPOTENCY_WAY_OWNED) {
        return NGX_OK;
    }

    ngx_http_idempotency_upstream_watch(r, ctx);

    return ngx_http_idempotency_upstream_no_stale(r);
}


/*
 * An answer that a cache has kept of another request does not stand in for
 * what this one gets, as proxy_cache_use_stale and "stale-if-error" want it.
 */

static ngx_int_t
ngx_http_idempotency_upstream_no_stale(ngx_http_request_t *r)
{
#if (NGX_HTTP_CACHE)
    ngx_http_upstream_t       *u;
    ngx_http_upstream_conf_t  *conf;

    u = r->upstream;

    if (r->cache == NULL || u->cache_status != NGX_HTTP_CACHE_EXPIRED) {
        return NGX_OK;
    }

    conf = ngx_palloc(r->pool, sizeof(ngx_http_upstream_conf_t));
    if (conf == NULL) {
        return NGX_ERROR;
    }

    *conf = *u->conf;
    conf->cache_use_stale = 0;
    u->conf = conf;

    r->cache->stale_error = 0;
#endif

    return NGX_OK;
}


/*
 * Also does what "proxy_ignore_client_abort on" does, for this request only:
 * ngx_http_upstream_init_request() has installed its checks by now.
 */

static void
ngx_http_idempotency_upstream_watch(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_upstream_t              *u;
    ngx_http_idempotency_upstream_t  *up;

    u = r->upstream;
    up = &ctx->upstream;

    if (u->peer.get && u->peer.get != ngx_http_idempotency_upstream_get_peer) {
        up->get_peer = u->peer.get;
        u->peer.get = ngx_http_idempotency_upstream_get_peer;
    }

    if (u->output.output_filter != ngx_http_idempotency_upstream_output) {
        up->output_filter = u->output.output_filter;
        up->filter_ctx = u->output.filter_ctx;

        u->output.output_filter = ngx_http_idempotency_upstream_output;
        u->output.filter_ctx = r;
    }

    if (u->finalize_request != ngx_http_idempotency_upstream_finalize) {
        up->finalize_request = u->finalize_request;
        u->finalize_request = ngx_http_idempotency_upstream_finalize;
    }

    r->read_event_handler = ngx_http_block_reading;

    if (!u->header_sent) {
        r->write_event_handler = ngx_http_request_empty_handler;
    }
}


/* Every try starts here, see ngx_http_upstream_connect(). */

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

    if (ctx->upstream.asked) {
        ctx->upstream.asked = 0;

    } else if (ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK) {
        return NGX_BUSY;
    }

    return ctx->upstream.get_peer(pc, data);
}


/*
 * What an upstream gets, all of it.  The connection may have taken long, by a
 * TLS handshake for example, so the gate is asked before the first byte.  Once
 * that was sent ngx_http_upstream_next() finds no further try, and reports
 * the error as it is: it would send PUT and DELETE again.
 */

static ngx_int_t
ngx_http_idempotency_upstream_output(void *data, ngx_chain_t *in)
{
    ngx_int_t                         rc;
    ngx_http_request_t               *r;
    ngx_http_upstream_t              *u;
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_upstream_t  *up;

    r = data;
    u = r->upstream;
    ctx = ngx_http_idempotency_context_get(r);
    up = &ctx->upstream;

    if (u->peer.connection->sent == 0) {
        ngx_http_idempotency_failpoint(ctx, "before_send");

        if (ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK) {
            u->peer.tries = 0;
            return NGX_ERROR;
        }
    }

    rc = up->output_filter(up->filter_ctx, in);

    if (u->peer.connection->sent
        && u->peer.tries > 1
        && up->came != NGX_HTTP_IDEMPOTENCY_CAME_ERROR_PAGE)
    {
        u->peer.tries = 1;
    }

    return rc;
}


/* NGX_DECLINED: an X-Accel-Redirect, see ngx_http_upstream_process_headers() */

static void
ngx_http_idempotency_upstream_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_upstream_t  *up;

    ctx = ngx_http_idempotency_context_get(r);
    up = &ctx->upstream;

    if (rc == NGX_DECLINED) {
        up->followed = 1;
        up->arrived = 0;
        up->recursive = 0;
        up->error_page = r->error_page;
    }

    up->finalize_request(r, rc);
}


void
ngx_http_idempotency_upstream_guard(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_resolver_ctx_t   *rctx;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL || u->resolved == NULL) {
        return;
    }

    if (u->cleanup == NULL) {

#if (NGX_HTTP_CACHE)
        if (r->cache && (r->cache->waiting || r->aio)) {
            ctx->upstream.cached = r->write_event_handler;
            r->write_event_handler = ngx_http_idempotency_upstream_cached;
        }
#endif

        return;
    }

    rctx = u->resolved->ctx;

    if (rctx && rctx->handler != ngx_http_idempotency_upstream_resolved) {
        ctx->upstream.resolved = rctx->handler;
        rctx->handler = ngx_http_idempotency_upstream_resolved;
    }

    ngx_http_idempotency_upstream_watch(r, ctx);
}


/*
 * The request has waited for the lock of a cache, or for its file: now
 * ngx_http_upstream_init_request() goes on, which may free the request.
 */

static void
ngx_http_idempotency_upstream_cached(ngx_http_request_t *r)
{
#if (NGX_HTTP_CACHE)
    ngx_uint_t                   gone;
    ngx_http_idempotency_ctx_t  *ctx;

    if (r->cache->waiting || r->aio) {
        return;
    }

    ctx = ngx_http_idempotency_context_get(r);

    r->write_event_handler = ngx_http_request_empty_handler;

    if (ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_SERVICE_UNAVAILABLE);
        return;
    }

    gone = 0;
    ctx->upstream.gone = &gone;

    ctx->upstream.cached(r);

    if (gone) {
        return;
    }

    ctx->upstream.gone = NULL;

    ngx_http_idempotency_upstream_guard(r, ctx);
#endif
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
        && ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK)
    {
        /* the only way to end an upstream from here */

        rctx->state = NGX_RESOLVE_SERVFAIL;
    }

    gone = 0;
    ctx->upstream.gone = &gone;

    ctx->upstream.resolved(rctx);

    if (gone) {
        return;
    }

    ctx->upstream.gone = NULL;

    if (r->upstream && r->upstream->cleanup) {
        ngx_http_idempotency_upstream_watch(r, ctx);
    }
}
