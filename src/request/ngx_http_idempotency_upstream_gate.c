
/*
 * The gate before the content handler of a claimed request, and before the
 * first byte of every try of its upstream: asked when a server is chosen, and
 * again when the connection is there.
 */


#include "ngx_http_idempotency_upstream_gate.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_failpoint.h"
#include "ngx_http_idempotency_upstream.h"


typedef struct {
    ngx_http_upstream_srv_conf_t    *upstream;
    ngx_http_upstream_init_peer_pt   init;
} ngx_http_idempotency_peers_t;


static int ngx_libc_cdecl ngx_http_idempotency_upstream_compare(
    const void *one, const void *two);
static ngx_uint_t ngx_http_idempotency_upstream_redirected(
    ngx_http_request_t *r, ngx_http_idempotency_upstream_t *up);
static ngx_int_t ngx_http_idempotency_upstream_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_upstream_gate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_upstream_refuse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_upstream_renew(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_upstream_renew_handler(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_upstream_renewed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_upstream_forward(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_upstream_lease_lost(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_upstream_try(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
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
static void ngx_http_idempotency_upstream_guard(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_upstream_cached(ngx_http_request_t *r);
static void ngx_http_idempotency_upstream_resolved(ngx_resolver_ctx_t *rctx);


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


void
ngx_http_idempotency_upstream_arrive(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_upstream_t  *up;

    up = &ctx->upstream;

    if (up->arrival == NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE) {
        return;
    }

    if (ngx_http_idempotency_upstream_redirected(r, up)) {
        up->sent_before = ngx_http_idempotency_upstream_sent(r, ctx);
        up->arrival = NGX_HTTP_IDEMPOTENCY_ARRIVAL_REDIRECTED;

    } else if (r->method != up->method
               && (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)))
    {
        up->upstream = r->upstream;
        up->tries = r->upstream_states ? r->upstream_states->nelts : 0;
        up->arrival = NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE;

    } else if (up->ran) {
        up->arrival = NGX_HTTP_IDEMPOTENCY_ARRIVAL_ELSEWHERE;
    }
}


/*
 * Is this the location that the upstream's X-Accel-Redirect names, or one to
 * which try_files has led from there?  Not after error_page has led elsewhere:
 * that sets r->error_page, but leaves no trace where recursive_error_pages is
 * on.
 */

static ngx_uint_t
ngx_http_idempotency_upstream_redirected(ngx_http_request_t *r,
    ngx_http_idempotency_upstream_t *up)
{
    ngx_str_t                 *name;
    ngx_http_core_loc_conf_t  *clcf;

    if (!up->followed) {
        return 0;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (up->error_page != r->error_page || up->recursive) {
        up->followed = 0;

    } else if (!up->arrived) {
        name = &r->upstream->headers_in.x_accel_redirect->value;

        /* without such a location, error_page has led here */

        up->followed = (name->data[0] == '@')
                       ? (name->len == clcf->name.len
                          && ngx_memcmp(name->data, clcf->name.data, name->len)
                             == 0)
                       : (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)) != 0;
    }

    up->arrived = 1;
    up->recursive |= clcf->recursive_error_pages;

    return up->followed;
}


void
ngx_http_idempotency_upstream_wrap(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (r->content_handler == NULL
        || r->content_handler == ngx_http_idempotency_upstream_handler)
    {
        return;
    }

    ctx->upstream.handler = r->content_handler;

    r->content_handler = ngx_http_idempotency_upstream_handler;
}


static ngx_int_t
ngx_http_idempotency_upstream_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    ngx_http_idempotency_failpoint(ctx, "before_forward");

    switch (ngx_http_idempotency_upstream_gate(r, ctx)) {

    case NGX_OK:
        break;

    case NGX_AGAIN:
        return ngx_http_idempotency_upstream_renew(r, ctx);

    default: /* NGX_DECLINED */
        return ngx_http_idempotency_upstream_refuse(r, ctx);
    }

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "idempotency runs the content handler");

    return ngx_http_idempotency_upstream_forward(r, ctx);
}


/*
 * May an upstream get a byte of the request?  NGX_OK: yes.  NGX_AGAIN: yes
 * once the lease was renewed.  NGX_DECLINED: never, which is logged.
 */

static ngx_int_t
ngx_http_idempotency_upstream_gate(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_facts_t    facts;
    ngx_http_idempotency_arrival_e  arrival;

    arrival = ctx->upstream.arrival;

    facts.settled = ctx->settled;
    facts.sent_before = ctx->upstream.sent_before;
    facts.sent = ngx_http_idempotency_upstream_sent(r, ctx);
    facts.answered = (arrival == NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE
                      && ngx_http_idempotency_upstream_answered(r, ctx));

    /* "error_page 502 = /page": the client gets the status of the page */

    if (!ngx_http_idempotency_policy_gate(&facts, arrival,
                                       r->err_status < NGX_HTTP_BAD_REQUEST))
    {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idempotency request was %s before, it is not sent to "
                      "another upstream", facts.sent ? "sent" : "settled");
        return NGX_DECLINED;
    }

    if (arrival == NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE
        || ctx->unprotected
        || ngx_idempotency_lease_is_sure(&ctx->held))
    {
        return NGX_OK;
    }

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_idempotency_upstream_refuse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_facts_t  facts;

    if (ctx->upstream.refused) {

        /* recursive_error_pages would go on until there is a cycle */

        r->error_page = 1;
    }

    ctx->upstream.refused = 1;
    ctx->upstream.refused_here = 1;

    ngx_http_idempotency_upstream_facts(r, ctx, &facts);

    if (facts.answered && facts.status >= NGX_HTTP_BAD_REQUEST) {
        return facts.status;
    }

    return facts.sent ? NGX_HTTP_BAD_GATEWAY : NGX_HTTP_SERVICE_UNAVAILABLE;
}


static ngx_int_t
ngx_http_idempotency_upstream_renew(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_t  *op;

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_RENEW);

    if (op == NULL || ngx_idempotency_lease_add(&ctx->held, op) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_idempotency_op_submit(op) != NGX_AGAIN) {
        return ngx_http_idempotency_upstream_renewed(r, ctx);
    }

    /* as a content handler that has begun: it will finalize the request */

    r->main->count++;
    r->write_event_handler = ngx_http_idempotency_upstream_renew_handler;

    return NGX_DONE;
}


static void
ngx_http_idempotency_upstream_renew_handler(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx->op->pending) {
        return;
    }

    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_http_finalize_request(r,
                              ngx_http_idempotency_upstream_renewed(r, ctx));
}


static ngx_int_t
ngx_http_idempotency_upstream_renewed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_lease_renewed(ctx->op);

    if (!ngx_idempotency_lease_is_sure(&ctx->held)) {
        return ngx_http_idempotency_upstream_lease_lost(r);
    }

    return ngx_http_idempotency_upstream_forward(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_upstream_forward(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                         rc;
    ngx_http_idempotency_loc_conf_t  *ilcf;
    ngx_http_idempotency_upstream_t  *up;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    up = &ctx->upstream;

    if (up->arrival == NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE) {
        return up->handler(r);
    }

    up->ran = 1;
    up->open = 1;

    rc = up->handler(r);

    up->open = 0;

    if (r->upstream) {
        ilcf->upstreams = 1;
    }

    /* the handler had no memory for an upstream: its 500 is no answer */

    up->no_memory = (rc == NGX_HTTP_INTERNAL_SERVER_ERROR
                     && r->upstream == NULL && ilcf->upstreams);

    if (rc == NGX_DONE) {
        ngx_http_idempotency_upstream_guard(r, ctx);
    }

    return rc;
}


static ngx_int_t
ngx_http_idempotency_upstream_lease_lost(ngx_http_request_t *r)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "idempotency lease could not be renewed in time, "
                  "the request is not sent");

    return NGX_HTTP_SERVICE_UNAVAILABLE;
}


/* The gate for a try, which cannot wait: NGX_OK or NGX_DECLINED. */

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

    (void) ngx_http_idempotency_upstream_lease_lost(r);

    return NGX_DECLINED;
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

    if (ctx == NULL || ctx->state != NGX_HTTP_IDEMPOTENCY_STATE_RUNS) {
        return NGX_OK;
    }

    ngx_http_idempotency_upstream_watch(r, ctx);

    return ngx_http_idempotency_upstream_no_stale(r);
}


/*
 * proxy_cache_use_stale and "stale-if-error" would send the cached answer of
 * another request instead of what this one gets.
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
 * Wraps the functions of the upstream that start a try, send, and finalize.
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

    ctx = ngx_http_idempotency_get_ctx(r);

    if (ctx->upstream.open) {
        ctx->upstream.open = 0;

    } else if (ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK) {
        return NGX_BUSY;
    }

    return ctx->upstream.get_peer(pc, data);
}


/*
 * Everything that is sent to an upstream.  The connection may have taken long,
 * by a TLS handshake for example, so the gate is asked before the first byte.
 * Once that was sent ngx_http_upstream_next() finds no further try and reports
 * the error as it is: otherwise it would send PUT and DELETE again.
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
    ctx = ngx_http_idempotency_get_ctx(r);
    up = &ctx->upstream;

    if (u->peer.connection->sent == 0) {

        if (up->arrival != NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE) {
            ngx_http_idempotency_failpoint(ctx, "before_send");
        }

        if (ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK) {
            u->peer.tries = 0;
            return NGX_ERROR;
        }
    }

    rc = up->output_filter(up->filter_ctx, in);

    if (u->peer.connection->sent
        && u->peer.tries > 1
        && up->arrival != NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE)
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

    ctx = ngx_http_idempotency_get_ctx(r);
    up = &ctx->upstream;

    if (rc == NGX_DECLINED) {
        up->followed = 1;
        up->arrived = 0;
        up->recursive = 0;
        up->error_page = r->error_page;
    }

    up->finalize_request(r, rc);
}


/*
 * The content handler has returned NGX_DONE.  An upstream whose server is
 * given by variables has not been through ngx_http_idempotency_upstream_
 * init_peer(): its tries are wrapped here, or when its name was resolved or
 * the cache has answered.
 */

static void
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
            ctx->upstream.cache_handler = r->write_event_handler;
            r->write_event_handler = ngx_http_idempotency_upstream_cached;
        }
#endif

        return;
    }

    rctx = u->resolved->ctx;

    if (rctx && rctx->handler != ngx_http_idempotency_upstream_resolved) {
        ctx->upstream.resolve_handler = rctx->handler;
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
    ngx_uint_t                   freed;
    ngx_http_idempotency_ctx_t  *ctx;

    if (r->cache->waiting || r->aio) {
        return;
    }

    ctx = ngx_http_idempotency_get_ctx(r);

    r->write_event_handler = ngx_http_request_empty_handler;

    if (ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_SERVICE_UNAVAILABLE);
        return;
    }

    freed = 0;
    ctx->upstream.freed = &freed;

    ctx->upstream.cache_handler(r);

    if (freed) {
        return;
    }

    ctx->upstream.freed = NULL;

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
    ngx_uint_t                   freed;
    ngx_http_request_t          *r;
    ngx_http_idempotency_ctx_t  *ctx;

    r = rctx->data;
    ctx = ngx_http_idempotency_get_ctx(r);

    if (rctx->state == 0
        && ngx_http_idempotency_upstream_try(r, ctx) != NGX_OK)
    {
        /* ends the upstream, there is no other way from here */

        rctx->state = NGX_RESOLVE_SERVFAIL;
    }

    freed = 0;
    ctx->upstream.freed = &freed;

    ctx->upstream.resolve_handler(rctx);

    if (freed) {
        return;
    }

    ctx->upstream.freed = NULL;

    if (r->upstream && r->upstream->cleanup) {
        ngx_http_idempotency_upstream_watch(r, ctx);
    }
}
