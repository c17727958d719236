
/*
 * Where a node is: the addresses that its name has, and the one at which it
 * answered.
 *
 * A name is resolved when a connection has to be made anew, and again now and
 * then while there is one: other gateways use the server that they find there,
 * and this worker must not stay with another one.
 *
 * Each worker caches what the name server says, until the ttl of that is over.
 * The newest answer of any worker is shared: one with an older answer would
 * return to a server that the others have left.
 */


#include "ngx_idempotency_redis_node.h"


/* milliseconds until a name is resolved again; nginx caches it longer */
#define NGX_IDEMPOTENCY_REDIS_CHECK     1000

/* of ngx_http_core_module, if "resolver_timeout" is not set */
#define NGX_IDEMPOTENCY_REDIS_RESOLVER  30000

/* seconds that addresses of the configuration are used without a look */
#define NGX_IDEMPOTENCY_REDIS_FRESH     2


static void ngx_idempotency_redis_address_seek(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_address_resolved(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_address_next(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_address_skip(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_address_choose(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_address_resolve(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_address_handler(ngx_resolver_ctx_t *ctx);
static void ngx_idempotency_redis_address_unresolved(
    ngx_idempotency_redis_node_t *node, ngx_resolver_ctx_t *ctx);
static void ngx_idempotency_redis_address_share(
    ngx_idempotency_redis_node_t *node, ngx_resolver_ctx_t *ctx);
static ngx_int_t ngx_idempotency_redis_address_shared(
    ngx_idempotency_redis_node_t *node);
static ngx_uint_t ngx_idempotency_redis_address_is_only(
    ngx_idempotency_redis_node_t *node);
static ngx_int_t ngx_idempotency_redis_address_take(
    ngx_idempotency_redis_node_t *node, ngx_resolver_addr_t *from,
    ngx_uint_t n);
static void ngx_idempotency_redis_address_compare(
    ngx_idempotency_redis_node_t *node);
static ngx_int_t ngx_idempotency_redis_address_find(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_address_first(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_address_check(ngx_event_t *ev);
static ngx_idempotency_redis_conn_t *ngx_idempotency_redis_address_ready(
    ngx_idempotency_redis_node_t *node);


void
ngx_idempotency_redis_address_dial(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t  *node;

    node = conn->node;

    conn->tried = 0;
    conn->replica = 0;

    if (node->type->kind == NGX_IDEMPOTENCY_REDIS_KIND_SUBSCRIBER
        ? (node->subscribed == NULL
           || !ngx_idempotency_redis_node_is_up(node->subscribed))
        : (node->seeker && node->seeker != conn))
    {
        /* it is dialed when the server is found */

        ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_OFF);
        return;
    }

    if (node->type->kind == NGX_IDEMPOTENCY_REDIS_KIND_SUBSCRIBER
        || ngx_idempotency_redis_node_is_up(node))
    {
        ngx_idempotency_redis_address_next(conn);
        return;
    }

    ngx_idempotency_redis_address_seek(conn);
}


static void
ngx_idempotency_redis_address_seek(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_node_t  *node;
    ngx_idempotency_redis_conn_t  *other;
    ngx_uint_t                     i;

    redis = conn->redis;
    node = conn->node;

    node->seeker = conn;

    /* other connections may be on their way to the old address */

    for (i = 0; i < node->nconns; i++) {
        other = &node->conns[i];

        if (other != conn && other->state != NGX_IDEMPOTENCY_REDIS_OFF) {
            ngx_idempotency_redis_conn_reset(other);
        }
    }

    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_RESOLVING);

    if (ngx_idempotency_redis_address_resolve(node) == NGX_AGAIN) {
        return;
    }

    if (node->peer.host.named && redis->resolver == NULL && !node->warned
        && (node->dialed || node->naddrs == 0))
    {
        node->warned = 1;

        if (node->naddrs) {
            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "idempotency store \"%V\" connects to \"%V\" "
                          "by the addresses known at start, set "
                          "\"resolver\" to have it resolved again",
                          &redis->name, &node->peer.host.name);

        } else {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "idempotency store \"%V\" has a node \"%V\" that was "
                          "announced by name, set \"resolver\" to have it "
                          "resolved", &redis->name, &node->peer.host.name);
        }
    }

    ngx_idempotency_redis_address_resolved(conn);
}


static void
ngx_idempotency_redis_address_resolved(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t  *node;

    node = conn->node;
    node->dialed = 1;

    ngx_idempotency_redis_address_first(node);
    ngx_idempotency_redis_address_next(conn);
}


/* tries what is left of the addresses until one can be waited for */

static void
ngx_idempotency_redis_address_next(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t  *node;
    ngx_uint_t                     n;

    node = conn->node;
    n = (node->seeker == conn) ? node->naddrs : 1;

    while (conn->tried < n) {

        if (ngx_idempotency_redis_address_choose(conn) == NGX_OK
            && ngx_idempotency_redis_conn_connect(conn) == NGX_OK)
        {
            return;
        }

        ngx_idempotency_redis_conn_close(conn);
        ngx_idempotency_redis_address_skip(conn);
    }

    ngx_idempotency_redis_conn_down(conn);
}


void
ngx_idempotency_redis_address_failed(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_address_skip(conn);
    ngx_idempotency_redis_address_next(conn);
}


static void
ngx_idempotency_redis_address_skip(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t  *node;

    node = conn->node;

    conn->tried++;

    if (node->seeker == conn && node->naddrs) {
        node->addr = (node->addr + 1) % node->naddrs;
    }
}


/* the address to try next, or that of a connection which is ready */

static ngx_int_t
ngx_idempotency_redis_address_choose(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t  *node;
    ngx_idempotency_redis_conn_t  *ready;
    ngx_addr_t                    *addr;

    node = conn->node;

    if (node->seeker == conn) {
        addr = &node->addrs[node->addr];

        ngx_idempotency_redis_address_copy(&conn->at, addr->sockaddr,
                                           addr->socklen);

        return NGX_OK;
    }

    ready = ngx_idempotency_redis_address_ready(node->subscribed
                                                ? node->subscribed : node);
    if (ready == NULL) {
        return NGX_ERROR;
    }

    ngx_idempotency_redis_address_copy(&conn->at, &ready->at.sockaddr.sockaddr,
                                       ready->at.socklen);

    return NGX_OK;
}


/*
 * NGX_AGAIN: the handler will be called, or was.  NGX_DECLINED: the addresses
 * that are known have to do.
 */

static ngx_int_t
ngx_idempotency_redis_address_resolve(ngx_idempotency_redis_node_t *node)
{
    ngx_resolver_ctx_t       *ctx;
    ngx_idempotency_redis_t  *redis;

    redis = node->redis;

    if (node->resolving) {
        return NGX_AGAIN;
    }

    if (!node->peer.host.named || redis->resolver == NULL) {
        return NGX_DECLINED;
    }

    if (!node->dialed && node->naddrs
        && ngx_time() - node->peer.host.resolved <= NGX_IDEMPOTENCY_REDIS_FRESH)
    {
        return NGX_DECLINED;
    }

    ctx = ngx_resolve_start(redis->resolver, NULL);

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        return NGX_DECLINED;
    }

    ctx->name = node->peer.host.name;
    ctx->handler = ngx_idempotency_redis_address_handler;
    ctx->data = node;
    ctx->cancelable = 1;
    ctx->timeout = ngx_idempotency_redis_address_timeout(redis);

    node->resolving = ctx;

    /* the handler may have been called when this returns */

    if (ngx_resolve_name(ctx) != NGX_OK) {
        node->resolving = NULL;
        return NGX_DECLINED;
    }

    return NGX_AGAIN;
}


/*
 * No request is served meanwhile.  After this time the addresses that are
 * known are tried, and then the name is resolved again.
 */

ngx_msec_t
ngx_idempotency_redis_address_timeout(ngx_idempotency_redis_t *redis)
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
ngx_idempotency_redis_address_handler(ngx_resolver_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_idempotency_redis_node_t  *node;

    node = ctx->data;
    node->resolving = NULL;

    if (ctx->state || ctx->naddrs == 0) {
        ngx_idempotency_redis_address_unresolved(node, ctx);
        rc = NGX_ERROR;

    } else {
        ngx_idempotency_redis_address_share(node, ctx);

        rc = ngx_idempotency_redis_address_take(node, ctx->addrs, ctx->naddrs);
    }

    node->unresolved = (rc != NGX_OK);

    ngx_resolve_name_done(ctx);

    if (ngx_idempotency_redis_address_shared(node) == NGX_OK) {
        rc = NGX_OK;
    }

    if (node->seeker
        && node->seeker->state == NGX_IDEMPOTENCY_REDIS_RESOLVING)
    {
        ngx_idempotency_redis_address_resolved(node->seeker);
        return;
    }

    if (rc == NGX_OK) {
        ngx_idempotency_redis_address_compare(node);
    }
}


static void
ngx_idempotency_redis_address_unresolved(ngx_idempotency_redis_node_t *node,
    ngx_resolver_ctx_t *ctx)
{
    if (node->seeker) {
        ngx_idempotency_redis_report(node->seeker,
                                     NGX_IDEMPOTENCY_REDIS_REPORT_RESOLVE, 0,
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


/*
 * A cached answer is as old as it was when it came: a new one has another time
 * until which it is valid.
 */

static void
ngx_idempotency_redis_address_share(ngx_idempotency_redis_node_t *node,
    ngx_resolver_ctx_t *ctx)
{
    ngx_uint_t                       i, n;
    ngx_idempotency_redis_t         *redis;
    ngx_idempotency_redis_shared_t  *shared;

    redis = node->redis;
    shared = redis->zone->data;

    if (node->valid != ctx->valid) {
        node->valid = ctx->valid;
        node->resolved_at = ngx_current_msec;
    }

    if (!ngx_idempotency_redis_address_is_only(node)) {
        return;
    }

    n = (ctx->naddrs <= NGX_IDEMPOTENCY_REDIS_ADDRS) ? ctx->naddrs : 0;

    ngx_idempotency_redis_lock(redis);

    if (shared->naddrs == 0
        || (ngx_msec_int_t) (node->resolved_at - shared->resolved_at) >= 0)
    {
        for (i = 0; i < n; i++) {
            ngx_memcpy(&shared->addrs[i], ctx->addrs[i].sockaddr,
                       ctx->addrs[i].socklen);
            shared->socklens[i] = ctx->addrs[i].socklen;
        }

        shared->naddrs = n;
        shared->resolved_at = node->resolved_at;
    }

    ngx_idempotency_redis_unlock(redis);
}


/* NGX_OK: another worker has a newer answer, which is used instead */

static ngx_int_t
ngx_idempotency_redis_address_shared(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t                       i, n;
    ngx_sockaddr_t                   addrs[NGX_IDEMPOTENCY_REDIS_ADDRS];
    ngx_resolver_addr_t              from[NGX_IDEMPOTENCY_REDIS_ADDRS];
    ngx_idempotency_redis_t         *redis;
    ngx_idempotency_redis_shared_t  *shared;

    redis = node->redis;
    shared = redis->zone->data;

    if (!ngx_idempotency_redis_address_is_only(node)) {
        return NGX_DECLINED;
    }

    ngx_idempotency_redis_lock(redis);

    n = ((ngx_msec_int_t) (shared->resolved_at - node->resolved_at) > 0)
        ? shared->naddrs : 0;

    for (i = 0; i < n; i++) {
        addrs[i] = shared->addrs[i];
        from[i].sockaddr = &addrs[i].sockaddr;
        from[i].socklen = shared->socklens[i];
    }

    ngx_idempotency_redis_unlock(redis);

    return n ? ngx_idempotency_redis_address_take(node, from, n)
             : NGX_DECLINED;
}


/* the name of the only server, not one of several */

static ngx_uint_t
ngx_idempotency_redis_address_is_only(ngx_idempotency_redis_node_t *node)
{
    return node->type->kind == NGX_IDEMPOTENCY_REDIS_KIND_DATA
           && !node->redis->spread
           && node->redis->master.len == 0;
}


static ngx_int_t
ngx_idempotency_redis_address_take(ngx_idempotency_redis_node_t *node,
    ngx_resolver_addr_t *from, ngx_uint_t n)
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

    addrs = ngx_palloc(pool, n * sizeof(ngx_addr_t));
    if (addrs == NULL) {
        goto failed;
    }

    for (i = 0; i < n; i++) {

        sa = ngx_palloc(pool, from[i].socklen);
        if (sa == NULL) {
            goto failed;
        }

        ngx_memcpy(sa, from[i].sockaddr, from[i].socklen);
        ngx_inet_set_port(sa, node->peer.host.port);

        p = ngx_pnalloc(pool, NGX_SOCKADDR_STRLEN);
        if (p == NULL) {
            goto failed;
        }

        addrs[i].sockaddr = sa;
        addrs[i].socklen = from[i].socklen;
        addrs[i].name.data = p;
        addrs[i].name.len = ngx_sock_ntop(sa, addrs[i].socklen, p,
                                          NGX_SOCKADDR_STRLEN, 1);
    }

    if (node->addrs_pool) {
        ngx_destroy_pool(node->addrs_pool);
    }

    node->addrs_pool = pool;
    node->addrs = addrs;
    node->naddrs = n;
    node->addr = 0;

    return NGX_OK;

failed:

    ngx_destroy_pool(pool);

    return NGX_ERROR;
}


/* is it connected to an address that the name no longer has? */

static void
ngx_idempotency_redis_address_compare(ngx_idempotency_redis_node_t *node)
{
    if (!ngx_idempotency_redis_node_is_up(node)
        || ngx_idempotency_redis_address_find(node) != NGX_DECLINED)
    {
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "idempotency store \"%V\" has moved: \"%V\" no longer has "
                  "the address \"%V\"", &node->redis->name,
                  &node->peer.host.name, &node->at.name);

    ngx_idempotency_redis_node_move(node);
}


/* the number of the address at which it answered last, or NGX_DECLINED */

static ngx_int_t
ngx_idempotency_redis_address_find(ngx_idempotency_redis_node_t *node)
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
 * The first to try is the address at which it answered last, as long as the
 * name has it: another one may be another server.  One that was left is tried
 * last.
 */

static void
ngx_idempotency_redis_address_first(ngx_idempotency_redis_node_t *node)
{
    ngx_int_t  n;

    n = ngx_idempotency_redis_address_find(node);

    if (n != NGX_DECLINED) {
        node->addr = (n + node->left) % node->naddrs;
    }

    node->left = 0;
}


/* the other connections follow to this address */

void
ngx_idempotency_redis_address_found(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_conn_t *conn)
{
    ngx_event_t  *ev;

    node->at = conn->at;
    node->at.name.data = node->at.text;

    if (node->seeker == conn) {
        node->seeker = NULL;
    }

    if (!node->peer.host.named || node->redis->resolver == NULL
        || node->type->kind != NGX_IDEMPOTENCY_REDIS_KIND_DATA || ngx_exiting)
    {
        return;
    }

    ev = &node->check;

    ev->handler = ngx_idempotency_redis_address_check;
    ev->data = &node->conns[0].dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    if (!ev->timer_set) {
        ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_CHECK);
    }
}


static void
ngx_idempotency_redis_address_check(ngx_event_t *ev)
{
    ngx_idempotency_redis_node_t  *node;
    ngx_idempotency_redis_conn_t  *conn;
    ngx_connection_t              *dummy;

    dummy = ev->data;
    conn = dummy->data;
    node = conn->node;

    if (ngx_exiting || !ngx_idempotency_redis_node_is_up(node)) {

        /* the next connection resolves the name, and sets the timer again */

        return;
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_CHECK);

    (void) ngx_idempotency_redis_address_resolve(node);
}


void
ngx_idempotency_redis_node_move(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t                     i, steady;
    ngx_idempotency_redis_conn_t  *conn;

    steady = 0;

    for (i = 0; i < node->nconns; i++) {
        conn = &node->conns[i];

        if (conn->state == NGX_IDEMPOTENCY_REDIS_READY) {
            steady |= ngx_idempotency_redis_conn_is_steady(conn);
        }

        ngx_idempotency_redis_conn_reset(conn);

        conn->refuses = 0;
    }

    if (node->subscriber) {
        ngx_idempotency_redis_conn_reset(&node->subscriber->conns[0]);
    }

    if (!node->moving) {
        node->moving = 1;
        node->moved = ngx_current_msec;
    }

    node->left = 1;

    conn = &node->conns[0];
    node->seeker = conn;

    if (steady) {
        conn->failures = 0;
        ngx_idempotency_redis_address_dial(conn);
        return;
    }

    /* a server that accepts logins but no commands is retried with back-off */

    conn->replica = 1;
    ngx_idempotency_redis_conn_down(conn);
}


ngx_uint_t
ngx_idempotency_redis_node_is_moving(ngx_idempotency_redis_node_t *node)
{
    return node->moving && node->seeker
           && ngx_current_msec - node->moved < node->redis->timeout;
}


ngx_uint_t
ngx_idempotency_redis_node_is_up(ngx_idempotency_redis_node_t *node)
{
    return ngx_idempotency_redis_address_ready(node) != NULL;
}


/* a connection that is ready; NULL: none */

static ngx_idempotency_redis_conn_t *
ngx_idempotency_redis_address_ready(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t  i;

    for (i = 0; i < node->nconns; i++) {
        if (node->conns[i].state == NGX_IDEMPOTENCY_REDIS_READY) {
            return &node->conns[i];
        }
    }

    return NULL;
}


void
ngx_idempotency_redis_address_stop(ngx_idempotency_redis_node_t *node)
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
ngx_idempotency_redis_address_free(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_address_stop(node);

    if (node->addrs_pool) {
        ngx_destroy_pool(node->addrs_pool);
        node->addrs_pool = NULL;
    }
}


void
ngx_idempotency_redis_address_copy(ngx_idempotency_redis_address_t *to,
    struct sockaddr *sockaddr, socklen_t socklen)
{
    to->socklen = ngx_min(socklen, sizeof(ngx_sockaddr_t));
    ngx_memcpy(&to->sockaddr, sockaddr, to->socklen);

    to->name.data = to->text;
    to->name.len = ngx_sock_ntop(&to->sockaddr.sockaddr, to->socklen,
                                 to->text, NGX_SOCKADDR_STRLEN, 1);
}
