
/*
 * What an upstream has sent and received: everything that reads
 * ngx_http_upstream_t, but for the gate of its tries.
 */


#include "ngx_http_idempotency_upstream.h"


static ngx_uint_t ngx_http_idempotency_upstream_tries(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_upstream_t **upstream);
#if (NGX_HTTP_CACHE)
static ngx_http_upstream_conf_t *ngx_http_idempotency_upstream_cache_conf(
    ngx_http_request_t *r, char *name);
#endif


#define NGX_HTTP_IDEMPOTENCY_UPSTREAMS  5

/* modules whose location configuration begins with ngx_http_upstream_conf_t */

static char  *ngx_http_idempotency_upstream_modules
                  [NGX_HTTP_IDEMPOTENCY_UPSTREAMS] = {
    "ngx_http_proxy_module",
    "ngx_http_fastcgi_module",
    "ngx_http_uwsgi_module",
    "ngx_http_scgi_module",
    "ngx_http_grpc_module"
};


char *
ngx_http_idempotency_upstream_check(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf, ngx_uint_t methods)
{
    ngx_uint_t                 i, m;
    ngx_module_t              *module;
    ngx_http_conf_ctx_t       *ctx;
    ngx_http_upstream_conf_t  *ucf;

    if (clcf->handler == NULL) {
        return NGX_CONF_OK;
    }

    ctx = cf->ctx;

    for (m = 0; cf->cycle->modules[m]; m++) {
        module = cf->cycle->modules[m];

        for (i = 0; i < NGX_HTTP_IDEMPOTENCY_UPSTREAMS; i++) {

            if (ngx_strcmp(module->name,
                           ngx_http_idempotency_upstream_modules[i])
                != 0)
            {
                continue;
            }

            ucf = ctx->loc_conf[module->ctx_index];

            if (ucf->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT) {
                ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                              "\"non_idempotent\" in a \"next_upstream\" "
                              "directive of location \"%V\" would send a "
                              "request twice: remove it, or switch "
                              "\"idempotency\" off there", &clcf->name);
                return NGX_CONF_ERROR;
            }

#if (NGX_HTTP_CACHE)
            if (ucf->cache && ucf->cache_background_update
                && (ucf->cache_methods & methods))
            {
                ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                              "a \"cache_background_update\" directive of "
                              "location \"%V\" would send requests behind "
                              "answers of the cache: switch it off, or take "
                              "the protected methods out of "
                              "\"cache_methods\"", &clcf->name);
                return NGX_CONF_ERROR;
            }
#endif
        }
    }

    return NGX_CONF_OK;
}


void
ngx_http_idempotency_upstream_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ctx->upstream.earlier = r->upstream;
    ctx->upstream.earlier_tries = r->upstream_states
                                  ? r->upstream_states->nelts : 0;
}


void
ngx_http_idempotency_upstream_facts(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_facts_t *facts)
{
    ngx_http_upstream_t  *u;

    ngx_memzero(facts, sizeof(ngx_http_idempotency_facts_t));

    facts->wrapped = (ctx->upstream.handler != NULL);
    facts->ran = ctx->upstream.ran;
    facts->settled = ctx->settled;
    facts->sent_before = ctx->upstream.sent_before;
    facts->sent = ngx_http_idempotency_upstream_sent(r, ctx);

    (void) ngx_http_idempotency_upstream_tries(r, ctx, &u);

    if (u == NULL) {
        facts->upstream = ctx->upstream.no_memory;
        return;
    }

    facts->upstream = 1;

    facts->answered = ngx_http_idempotency_upstream_answered(r, ctx);

#if (NGX_HTTP_CACHE)
    if (r->cached && u == r->upstream) {

        /* from the cache, before a try or instead of what a try has got */

        facts->stale = (u->state != NULL
                        && u->cache_status != NGX_HTTP_CACHE_REVALIDATED);
        facts->answered = !facts->stale;
    }
#endif

    if (facts->answered) {
        facts->status = u->headers_in.status_n;
    }
}


/*
 * nginx fills bytes_sent of a try when that is over; what a live one has sent
 * is known to its connection.
 */

off_t
ngx_http_idempotency_upstream_sent(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    off_t                       sent;
    ngx_uint_t                  i, tries;
    ngx_http_upstream_t        *u;
    ngx_http_upstream_state_t  *state;

    sent = 0;
    tries = ngx_http_idempotency_upstream_tries(r, ctx, &u);

    for (i = ctx->upstream.earlier_tries; i < tries; i++) {
        state = r->upstream_states->elts;
        sent += state[i].bytes_sent;
    }

    if (u && u->cleanup && u->peer.connection) {
        sent += u->peer.connection->sent;
    }

    return sent;
}


void
ngx_http_idempotency_upstream_last_try(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *peer, ngx_uint_t *status)
{
    ngx_uint_t                  tries;
    ngx_http_upstream_t        *u;
    ngx_http_upstream_state_t  *state;

    ngx_str_null(peer);
    *status = 0;

    tries = ngx_http_idempotency_upstream_tries(r, ctx, &u);

    if (tries <= ctx->upstream.earlier_tries) {
        return;
    }

    state = r->upstream_states->elts;
    state += tries - 1;

    if (state->peer) {
        *peer = *state->peer;
    }

    *status = state->status;
}


ngx_uint_t
ngx_http_idempotency_upstream_answered(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_uint_t                  tries;
    ngx_http_upstream_t        *u;
    ngx_http_upstream_state_t  *state;

    tries = ngx_http_idempotency_upstream_tries(r, ctx, &u);

    if (u == NULL || tries <= ctx->upstream.earlier_tries) {
        return 0;
    }

    state = r->upstream_states->elts;

    /* set by ngx_http_upstream_process_header() for a whole header */

    return state[tries - 1].header_time != (ngx_msec_t) -1
           && u->headers_in.status_n != 0;
}


void
ngx_http_idempotency_upstream_enter(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ctx->upstream.entry = r->upstream;
    ctx->upstream.entry_status = r->err_status;
    ctx->upstream.refused_here = 0;
}


ngx_uint_t
ngx_http_idempotency_upstream_failed_here(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    if (r->err_status != ctx->upstream.entry_status
        || ctx->upstream.refused_here)
    {
        return 1;
    }

    u = r->upstream;

    return u != NULL
           && (void *) u != ctx->upstream.entry
           && u->headers_in.status_n == 0;
}


/* The upstream that was asked to execute, or NULL, and how often. */

static ngx_uint_t
ngx_http_idempotency_upstream_tries(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_upstream_t **upstream)
{
    ngx_uint_t  tries;

    if (ctx->upstream.arrival == NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE) {

        /* the request's own upstream may be that of the error page */

        *upstream = ctx->upstream.upstream;
        tries = ctx->upstream.tries;

    } else {
        *upstream = r->upstream;
        tries = r->upstream_states ? r->upstream_states->nelts : 0;
    }

    if ((void *) *upstream == ctx->upstream.earlier) {
        *upstream = NULL;
    }

    return tries;
}


ngx_str_t *
ngx_http_idempotency_upstream_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *name)
{
    ngx_uint_t            i;
    ngx_list_part_t      *part;
    ngx_table_elt_t      *h;
    ngx_http_upstream_t  *u;

    (void) ngx_http_idempotency_upstream_tries(r, ctx, &u);

    if (u == NULL) {
        return NULL;
    }

    part = &u->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        /* without memory for a line nginx has set its length only */

        if (h[i].hash
            && h[i].key.len == name->len
            && ngx_strncasecmp(h[i].key.data, name->data, name->len) == 0)
        {
            return &h[i].value;
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_idempotency_upstream_by_close(ngx_http_request_t *r)
{
    ngx_event_pipe_t     *p;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL || !u->header_sent) {
        return 0;
    }

    if (!u->buffering) {
        return u->length == -1;
    }

    p = u->pipe;

    return p->upstream_eof && !p->upstream_done && p->length == -1;
}


/*
 * Handlers of upstreams call ngx_http_upstream_init() for a subrequest before
 * they return, and ngx_http_upstream_init_request() looks at "cache" of the
 * location's configuration before anything else, and never later.  A worker
 * runs one request at a time, so no other one sees the change.
 */

ngx_int_t
ngx_http_idempotency_upstream_uncached(ngx_http_request_t *r,
    ngx_http_handler_pt handler)
{
#if (NGX_HTTP_CACHE)

    ngx_int_t                  rc, cache[NGX_HTTP_IDEMPOTENCY_UPSTREAMS];
    ngx_uint_t                 i;
    ngx_http_upstream_conf_t  *ucf[NGX_HTTP_IDEMPOTENCY_UPSTREAMS];

    for (i = 0; i < NGX_HTTP_IDEMPOTENCY_UPSTREAMS; i++) {
        ucf[i] = ngx_http_idempotency_upstream_cache_conf(r,
                                    ngx_http_idempotency_upstream_modules[i]);
        if (ucf[i]) {
            cache[i] = ucf[i]->cache;
            ucf[i]->cache = 0;
        }
    }

    rc = handler(r);

    for (i = 0; i < NGX_HTTP_IDEMPOTENCY_UPSTREAMS; i++) {
        if (ucf[i]) {
            ucf[i]->cache = cache[i];
        }
    }

    return rc;

#else

    return handler(r);

#endif
}


#if (NGX_HTTP_CACHE)

/* The configuration of a module that caches in this location, or NULL. */

static ngx_http_upstream_conf_t *
ngx_http_idempotency_upstream_cache_conf(ngx_http_request_t *r, char *name)
{
    ngx_uint_t                 m;
    ngx_module_t              *module;
    ngx_http_upstream_conf_t  *ucf;

    for (m = 0; ngx_cycle->modules[m]; m++) {
        module = ngx_cycle->modules[m];

        if (ngx_strcmp(module->name, name) == 0) {
            ucf = r->loc_conf[module->ctx_index];

            return ucf->cache ? ucf : NULL;
        }
    }

    return NULL;
}

#endif


/*
 * ngx_http_upstream_finalize_request() has cleared u->cleanup before nginx
 * makes an error of its own, serves an error page or follows an
 * X-Accel-Redirect.
 */

ngx_uint_t
ngx_http_idempotency_upstream_is_answering(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL || u->cleanup == NULL || u->peer.connection == NULL
        || r->filter_finalize)
    {
        return 0;
    }

#if (NGX_HTTP_CACHE)
    if (r->cached) {
        return 0;
    }
#endif

    return u->headers_in.status_n == r->headers_out.status;
}
