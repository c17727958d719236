
/*
 * Everything that knows ngx_http_upstream_t, but for the gate of its tries.
 */


#include "ngx_http_idempotency_upstream.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_failpoint.h"
#include "ngx_http_idempotency_upstream_gate.h"


static ngx_uint_t ngx_http_idempotency_upstream_redirected(
    ngx_http_request_t *r, ngx_http_idempotency_upstream_t *up);
static ngx_int_t ngx_http_idempotency_upstream_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_upstream_refuse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_upstream_renew(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_upstream_wait(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_upstream_renewed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_upstream_forward(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_http_upstream_t *ngx_http_idempotency_upstream_of(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_upstream_tries(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


/* modules whose location configuration begins with ngx_http_upstream_conf_t */

char  *ngx_http_idempotency_upstream_modules[] = {
    "ngx_http_proxy_module",
    "ngx_http_fastcgi_module",
    "ngx_http_uwsgi_module",
    "ngx_http_scgi_module",
    "ngx_http_grpc_module",
    NULL
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

        for (i = 0; ngx_http_idempotency_upstream_modules[i]; i++) {

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
ngx_http_idempotency_upstream_arrive(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_upstream_t  *up;

    up = &ctx->upstream;

    if (up->came == NGX_HTTP_IDEMPOTENCY_CAME_ERROR_PAGE) {
        return;
    }

    if (ngx_http_idempotency_upstream_redirected(r, up)) {
        up->handed_on = ngx_http_idempotency_upstream_sent(r, ctx);
        up->came = NGX_HTTP_IDEMPOTENCY_CAME_REDIRECTED;

    } else if (r->method != up->method
               && (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)))
    {
        up->upstream = r->upstream;
        up->tries = ngx_http_idempotency_upstream_tries(r, ctx);
        up->came = NGX_HTTP_IDEMPOTENCY_CAME_ERROR_PAGE;

    } else if (up->ran) {
        up->came = NGX_HTTP_IDEMPOTENCY_CAME_ELSEWHERE;
    }
}


/*
 * An X-Accel-Redirect is the upstream's word for the location that it names,
 * which may have a try_files.  It is void once error_page has led elsewhere:
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

        /* if there is no such location, this one is error_page's */

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

    ctx = ngx_http_idempotency_context_get(r);

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
                   "idempotency lets the request go");

    return ngx_http_idempotency_upstream_forward(r, ctx);
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

    if (ngx_http_idempotency_context_submit(ctx) != NGX_AGAIN) {
        return ngx_http_idempotency_upstream_renewed(r, ctx);
    }

    /* as a content handler that has begun: it will finalize the request */

    r->main->count++;
    r->write_event_handler = ngx_http_idempotency_upstream_wait;

    return NGX_DONE;
}


static void
ngx_http_idempotency_upstream_wait(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_context_get(r);

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
        return ngx_http_idempotency_upstream_lost(r);
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

    if (up->came == NGX_HTTP_IDEMPOTENCY_CAME_ERROR_PAGE) {
        return up->handler(r);
    }

    up->ran = 1;
    up->asked = 1;

    rc = up->handler(r);

    up->asked = 0;

    if (r->upstream) {
        ilcf->upstreams = 1;
    }

    /* no memory to make one: it was not what the handler had to say */

    up->none = (rc == NGX_HTTP_INTERNAL_SERVER_ERROR
                && r->upstream == NULL && ilcf->upstreams);

    if (rc == NGX_DONE) {
        ngx_http_idempotency_upstream_guard(r, ctx);
    }

    return rc;
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
    facts->handed_on = ctx->upstream.handed_on;
    facts->sent = ngx_http_idempotency_upstream_sent(r, ctx);

    u = ngx_http_idempotency_upstream_of(r, ctx);

    if (u == NULL) {
        facts->upstream = ctx->upstream.none;
        return;
    }

    facts->upstream = 1;

    facts->answered = ngx_http_idempotency_upstream_answered(r, ctx);

#if (NGX_HTTP_CACHE)
    if (r->cached && u == r->upstream) {

        /* found there before a try, or in place of what a try has got */

        facts->stale = (u->state != NULL
                        && u->cache_status != NGX_HTTP_CACHE_REVALIDATED);
        facts->answered = !facts->stale;
    }
#endif

    if (facts->answered) {
        facts->status = u->headers_in.status_n;
    }
}


ngx_uint_t
ngx_http_idempotency_upstream_answered(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_uint_t                  tries;
    ngx_http_upstream_t        *u;
    ngx_http_upstream_state_t  *state;

    u = ngx_http_idempotency_upstream_of(r, ctx);
    tries = ngx_http_idempotency_upstream_tries(r, ctx);

    if (u == NULL || tries <= ctx->upstream.earlier_tries) {
        return 0;
    }

    state = r->upstream_states->elts;

    /* set by ngx_http_upstream_process_header() for a whole header */

    return state[tries - 1].header_time != (ngx_msec_t) -1
           && u->headers_in.status_n != 0;
}


/* the upstream that was asked to execute, not one that has an error page */

static ngx_http_upstream_t *
ngx_http_idempotency_upstream_of(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = (ctx->upstream.came == NGX_HTTP_IDEMPOTENCY_CAME_ERROR_PAGE)
        ? ctx->upstream.upstream : r->upstream;

    return ((void *) u == ctx->upstream.earlier) ? NULL : u;
}


static ngx_uint_t
ngx_http_idempotency_upstream_tries(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->upstream.came == NGX_HTTP_IDEMPOTENCY_CAME_ERROR_PAGE) {
        return ctx->upstream.tries;
    }

    return r->upstream_states ? r->upstream_states->nelts : 0;
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
    tries = ngx_http_idempotency_upstream_tries(r, ctx);

    for (i = ctx->upstream.earlier_tries; i < tries; i++) {
        state = r->upstream_states->elts;
        sent += state[i].bytes_sent;
    }

    u = ngx_http_idempotency_upstream_of(r, ctx);

    if (u && u->cleanup && u->peer.connection) {
        sent += u->peer.connection->sent;
    }

    return sent;
}


ngx_str_t *
ngx_http_idempotency_upstream_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *name)
{
    ngx_uint_t            i;
    ngx_list_part_t      *part;
    ngx_table_elt_t      *h;
    ngx_http_upstream_t  *u;

    u = ngx_http_idempotency_upstream_of(r, ctx);

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

        /* a line for which there was no memory has a length only */

        if (h[i].hash
            && h[i].key.len == name->len
            && ngx_strncasecmp(h[i].key.data, name->data, name->len) == 0)
        {
            return &h[i].value;
        }
    }

    return NULL;
}


/*
 * ngx_http_upstream_finalize_request() sends nothing but a flush then.  After
 * an X-Accel-Redirect the finalized upstream is still there, with its header
 * unsent.
 */

ngx_uint_t
ngx_http_idempotency_upstream_cut(ngx_http_request_t *r)
{
    return r->upstream
           && r->upstream->cleanup == NULL
           && r->upstream->header_sent;
}


ngx_uint_t
ngx_http_idempotency_upstream_asked(ngx_http_request_t *r)
{
    return r->upstream != NULL;
}


ngx_uint_t
ngx_http_idempotency_upstream_alive(ngx_http_request_t *r)
{
    return r->upstream && r->upstream->cleanup;
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
