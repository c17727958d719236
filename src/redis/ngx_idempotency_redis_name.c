
/*
 * The addresses of a server: those that its name has now, and the one at which
 * it answered.
 *
 * A name is resolved when a connection has to be made anew, and looked at now
 * and then while there is one: what other gateways find there is the server
 * that they use, and this worker must not stay with another one.
 */


#include "ngx_idempotency_redis_link.h"


/* milliseconds between two looks; the resolver keeps what it knows longer */
#define NGX_IDEMPOTENCY_REDIS_CHECK          1000

/* of ngx_http_core_module, if "resolver_timeout" is not set */
#define NGX_IDEMPOTENCY_REDIS_RESOLVER       30000

/* seconds that addresses of the configuration are believed without a look */
#define NGX_IDEMPOTENCY_REDIS_FRESH          2


static void ngx_idempotency_redis_name_handler(ngx_resolver_ctx_t *ctx);
static ngx_int_t ngx_idempotency_redis_name_take(
    ngx_idempotency_redis_node_t *node, ngx_resolver_ctx_t *ctx);
static void ngx_idempotency_redis_name_failed(
    ngx_idempotency_redis_node_t *node, ngx_resolver_ctx_t *ctx);
static void ngx_idempotency_redis_name_compare(
    ngx_idempotency_redis_node_t *node);
static ngx_int_t ngx_idempotency_redis_name_find(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_name_check(ngx_event_t *ev);


ngx_int_t
ngx_idempotency_redis_name_resolve(ngx_idempotency_redis_node_t *node)
{
    ngx_resolver_ctx_t       *ctx;
    ngx_idempotency_redis_t  *redis;

    redis = node->redis;

    if (node->resolving) {
        return NGX_AGAIN;
    }

    if (!node->place.named || redis->resolver == NULL) {
        return NGX_DECLINED;
    }

    if (!node->dialed && node->naddrs
        && ngx_time() - node->place.resolved <= NGX_IDEMPOTENCY_REDIS_FRESH)
    {
        return NGX_DECLINED;
    }

    ctx = ngx_resolve_start(redis->resolver, NULL);

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        return NGX_DECLINED;
    }

    ctx->name = node->place.host;
    ctx->handler = ngx_idempotency_redis_name_handler;
    ctx->data = node;
    ctx->cancelable = 1;
    ctx->timeout = ngx_idempotency_redis_name_timeout(redis);

    node->resolving = ctx;

    /* the handler may have been called when this returns */

    if (ngx_resolve_name(ctx) != NGX_OK) {
        node->resolving = NULL;
        return NGX_DECLINED;
    }

    return NGX_AGAIN;
}


/*
 * No request is served meanwhile; a name server that is silent for so long
 * will hardly answer: what is known is tried, and then the name again.
 */

ngx_msec_t
ngx_idempotency_redis_name_timeout(ngx_idempotency_redis_t *redis)
{
    if (redis->resolver_timeout && redis->resolver_timeout
                                   != NGX_CONF_UNSET_MSEC)
    {
        return redis->resolver_timeout;
    }

    return ngx_min(NGX_IDEMPOTENCY_REDIS_RESOLVER,
                   5 * redis->connect_timeout);
}


static void
ngx_idempotency_redis_name_handler(ngx_resolver_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_idempotency_redis_node_t  *node;

    node = ctx->data;
    node->resolving = NULL;

    if (ctx->state || ctx->naddrs == 0) {
        ngx_idempotency_redis_name_failed(node, ctx);
        rc = NGX_ERROR;

    } else {
        rc = ngx_idempotency_redis_name_take(node, ctx);
    }

    node->unresolved = (rc != NGX_OK);

    ngx_resolve_name_done(ctx);

    if (node->seeker
        && node->seeker->state == NGX_IDEMPOTENCY_REDIS_RESOLVING)
    {
        ngx_idempotency_redis_dial_resolved(node->seeker);
        return;
    }

    if (rc == NGX_OK) {
        ngx_idempotency_redis_name_compare(node);
    }
}


static void
ngx_idempotency_redis_name_failed(ngx_idempotency_redis_node_t *node,
    ngx_resolver_ctx_t *ctx)
{
    if (node->seeker) {
        ngx_idempotency_redis_report(node->seeker,
                                     NGX_IDEMPOTENCY_REDIS_SAID_RESOLVE, 0,
                                     "has a host \"%V\" that could not be "
                                     "resolved (%i: %s), its last known "
                                     "addresses are used", &ctx->name,
                                     ctx->state,
                                     ngx_resolver_strerror(ctx->state));
        return;
    }

    if (!node->unresolved) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has a host \"%V\" that could "
                      "not be resolved (%i: %s), it stays at \"%V\"",
                      &node->redis->name, &ctx->name, ctx->state,
                      ngx_resolver_strerror(ctx->state), &node->at.name);
    }
}


static ngx_int_t
ngx_idempotency_redis_name_take(ngx_idempotency_redis_node_t *node,
    ngx_resolver_ctx_t *ctx)
{
    u_char           *p;
    ngx_uint_t        i;
    ngx_addr_t       *addrs;
    ngx_pool_t       *pool;
    struct sockaddr  *sa;

    pool = ngx_create_pool(1024, ngx_cycle->log);
    if (pool == NULL) {
        return NGX_ERROR;
    }

    addrs = ngx_palloc(pool, ctx->naddrs * sizeof(ngx_addr_t));
    if (addrs == NULL) {
        goto failed;
    }

    for (i = 0; i < ctx->naddrs; i++) {

        sa = ngx_palloc(pool, ctx->addrs[i].socklen);
        if (sa == NULL) {
            goto failed;
        }

        ngx_memcpy(sa, ctx->addrs[i].sockaddr, ctx->addrs[i].socklen);
        ngx_inet_set_port(sa, node->place.port);

        p = ngx_pnalloc(pool, NGX_SOCKADDR_STRLEN);
        if (p == NULL) {
            goto failed;
        }

        addrs[i].sockaddr = sa;
        addrs[i].socklen = ctx->addrs[i].socklen;
        addrs[i].name.data = p;
        addrs[i].name.len = ngx_sock_ntop(sa, addrs[i].socklen, p,
                                          NGX_SOCKADDR_STRLEN, 1);
    }

    if (node->names) {
        ngx_destroy_pool(node->names);
    }

    node->names = pool;
    node->addrs = addrs;
    node->naddrs = ctx->naddrs;
    node->addr = 0;

    return NGX_OK;

failed:

    ngx_destroy_pool(pool);

    return NGX_ERROR;
}


/* connected, and the name leads elsewhere now */

static void
ngx_idempotency_redis_name_compare(ngx_idempotency_redis_node_t *node)
{
    if (!ngx_idempotency_redis_node_is_up(node)
        || ngx_idempotency_redis_name_find(node) != NGX_DECLINED)
    {
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "idempotency store \"%V\" has moved: \"%V\" no longer has "
                  "the address \"%V\"", &node->redis->name,
                  &node->place.host, &node->at.name);

    ngx_idempotency_redis_node_move(node);
}


/* the number of the address at which it answered last, or NGX_DECLINED */

static ngx_int_t
ngx_idempotency_redis_name_find(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t  i;

    for (i = 0; node->at.socklen && i < node->naddrs; i++) {
        if (ngx_cmp_sockaddr(node->addrs[i].sockaddr, node->addrs[i].socklen,
                             &node->at.sockaddr.sockaddr, node->at.socklen, 1)
            == NGX_OK)
        {
            return i;
        }
    }

    return NGX_DECLINED;
}


/*
 * The one at which it answered last, as long as the name has it: another one
 * may be another server.  One that was left is the last.
 */

void
ngx_idempotency_redis_name_first(ngx_idempotency_redis_node_t *node)
{
    ngx_int_t  n;

    n = ngx_idempotency_redis_name_find(node);

    if (n != NGX_DECLINED) {
        node->addr = (n + node->left) % node->naddrs;
    }

    node->left = 0;
}


void
ngx_idempotency_redis_name_watch(ngx_idempotency_redis_node_t *node)
{
    ngx_event_t  *ev;

    if (!node->place.named || node->redis->resolver == NULL
        || node->kind != NGX_IDEMPOTENCY_REDIS_SERVER || ngx_exiting)
    {
        return;
    }

    ev = &node->check;

    ev->handler = ngx_idempotency_redis_name_check;
    ev->data = &node->conns[0].dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    if (!ev->timer_set) {
        ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_CHECK);
    }
}


static void
ngx_idempotency_redis_name_check(ngx_event_t *ev)
{
    ngx_connection_t              *dummy;
    ngx_idempotency_redis_conn_t  *conn;
    ngx_idempotency_redis_node_t  *node;

    dummy = ev->data;
    conn = dummy->data;
    node = conn->node;

    if (ngx_exiting || !ngx_idempotency_redis_node_is_up(node)) {

        /* whoever connects anew asks, and looks again then */

        return;
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_CHECK);

    (void) ngx_idempotency_redis_name_resolve(node);
}


void
ngx_idempotency_redis_name_stop(ngx_idempotency_redis_node_t *node)
{
    if (node->resolving) {
        ngx_resolve_name_done(node->resolving);
        node->resolving = NULL;
    }

    if (node->check.timer_set) {
        ngx_del_timer(&node->check);
    }
}


void
ngx_idempotency_redis_name_free(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_name_stop(node);

    if (node->names) {
        ngx_destroy_pool(node->names);
        node->names = NULL;
    }
}


void
ngx_idempotency_redis_name_copy(ngx_idempotency_redis_address_t *to,
    struct sockaddr *sockaddr, socklen_t socklen)
{
    to->socklen = ngx_min(socklen, sizeof(ngx_sockaddr_t));
    ngx_memcpy(&to->sockaddr, sockaddr, to->socklen);

    to->name.data = to->text;
    to->name.len = ngx_sock_ntop(&to->sockaddr.sockaddr, to->socklen,
                                 to->text, NGX_SOCKADDR_STRLEN, 1);
}
