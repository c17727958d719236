
/*
 * From nothing to a socket: names, addresses, connect.
 */


#include "ngx_idempotency_redis_link.h"


static ngx_int_t ngx_idempotency_redis_dial_resolve(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_dial_resolved(ngx_resolver_ctx_t *ctx);
static ngx_int_t ngx_idempotency_redis_dial_names(
    ngx_idempotency_redis_conn_t *conn, ngx_resolver_ctx_t *ctx);
static void ngx_idempotency_redis_dial_next(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_dial_connect(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_dial_handler(ngx_event_t *ev);
static ngx_err_t ngx_idempotency_redis_dial_test(ngx_connection_t *c);


void
ngx_idempotency_redis_dial(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_node_t  *node;

    redis = conn->redis;
    node = conn->node;

    conn->tried = 0;

    if (node->place.named && (conn->dialed || conn->naddrs == 0)) {

        if (redis->resolver
            && ngx_idempotency_redis_dial_resolve(conn) == NGX_OK)
        {
            return;
        }

        if (redis->resolver == NULL && !node->warned) {
            node->warned = 1;

            if (conn->naddrs) {
                ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                              "idempotency store \"%V\" connects to \"%V\" "
                              "by the addresses known at start, set "
                              "\"resolver\" to have it resolved again",
                              &redis->name, &node->place.host);

            } else {
                ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                              "idempotency store \"%V\" was told of a server "
                              "\"%V\" by name, set \"resolver\" to have it "
                              "resolved", &redis->name, &node->place.host);
            }
        }
    }

    conn->dialed = 1;

    ngx_idempotency_redis_dial_next(conn);
}


static ngx_int_t
ngx_idempotency_redis_dial_resolve(ngx_idempotency_redis_conn_t *conn)
{
    ngx_resolver_ctx_t       *ctx;
    ngx_idempotency_redis_t  *redis;

    redis = conn->redis;

    ctx = ngx_resolve_start(redis->resolver, NULL);

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        return NGX_DECLINED;
    }

    ctx->name = conn->node->place.host;
    ctx->handler = ngx_idempotency_redis_dial_resolved;
    ctx->data = conn;
    ctx->cancelable = 1;
    ctx->timeout = redis->resolver_timeout ? redis->resolver_timeout
                                           : redis->connect_timeout;

    conn->resolving = ctx;
    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_RESOLVING);

    /* the handler may have been called when this returns */

    if (ngx_resolve_name(ctx) != NGX_OK) {
        conn->resolving = NULL;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static void
ngx_idempotency_redis_dial_resolved(ngx_resolver_ctx_t *ctx)
{
    ngx_idempotency_redis_conn_t  *conn;

    conn = ctx->data;
    conn->resolving = NULL;

    if (ctx->state || ctx->naddrs == 0) {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_SAID_RESOLVE, 0,
                                     "has a host \"%V\" that could not be "
                                     "resolved (%i: %s), its last known "
                                     "addresses are used", &ctx->name,
                                     ctx->state,
                                     ngx_resolver_strerror(ctx->state));

    } else if (ngx_idempotency_redis_dial_names(conn, ctx) == NGX_OK) {
        conn->addr = 0;
    }

    ngx_resolve_name_done(ctx);

    ngx_idempotency_redis_dial_next(conn);
}


static ngx_int_t
ngx_idempotency_redis_dial_names(ngx_idempotency_redis_conn_t *conn,
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
        ngx_inet_set_port(sa, conn->node->place.port);

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

    if (conn->names) {
        ngx_destroy_pool(conn->names);
    }

    conn->names = pool;
    conn->addrs = addrs;
    conn->naddrs = ctx->naddrs;
    conn->peer.name = &addrs[0].name;

    return NGX_OK;

failed:

    ngx_destroy_pool(pool);

    return NGX_ERROR;
}


/* tries what is left of the addresses, until one gives something to wait for */

static void
ngx_idempotency_redis_dial_next(ngx_idempotency_redis_conn_t *conn)
{
    while (conn->tried < conn->naddrs) {

        if (ngx_idempotency_redis_dial_connect(conn) == NGX_OK) {
            return;
        }

        ngx_idempotency_redis_conn_close(conn);

        conn->tried++;
        conn->addr = (conn->addr + 1) % conn->naddrs;
    }

    ngx_idempotency_redis_conn_down(conn);
}


void
ngx_idempotency_redis_dial_failed(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_close(conn);

    conn->tried++;
    conn->addr = (conn->addr + 1) % conn->naddrs;

    ngx_idempotency_redis_dial_next(conn);
}


void
ngx_idempotency_redis_dial_overdue(ngx_idempotency_redis_conn_t *conn)
{
    const char  *step;

    switch (conn->state) {

    case NGX_IDEMPOTENCY_REDIS_CONNECTING:
        step = "connect";
        break;

    case NGX_IDEMPOTENCY_REDIS_HANDSHAKE:
        step = "TLS handshake";
        break;

    default: /* NGX_IDEMPOTENCY_REDIS_LOGIN */
        step = "login";
        break;
    }

    ngx_idempotency_redis_report(conn,
                                 NGX_IDEMPOTENCY_REDIS_SAID_TIMEOUT, 0,
                                 "timed out at %s", step);

    ngx_idempotency_redis_dial_failed(conn);
}


static ngx_int_t
ngx_idempotency_redis_dial_connect(ngx_idempotency_redis_conn_t *conn)
{
    ngx_int_t               rc;
    ngx_addr_t             *addr;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *peer;

    addr = &conn->addrs[conn->addr];

    peer = &conn->peer;

    peer->sockaddr = addr->sockaddr;
    peer->socklen = addr->socklen;
    peer->name = &addr->name;
    peer->get = ngx_event_get_peer;
    peer->log = &conn->log;
    peer->log_error = NGX_ERROR_INFO;
    peer->so_keepalive = (addr->sockaddr->sa_family != AF_UNIX);

    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_CONNECTING);
    conn->log.action = "connecting to";

    ngx_idempotency_redis_hush(conn, 1);
    ngx_set_socket_errno(0);

    rc = ngx_event_connect_peer(peer);

    if (rc == NGX_ERROR || rc == NGX_DECLINED) {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_SAID_CONNECT,
                                     ngx_socket_errno, "cannot be reached");
        return NGX_ERROR;
    }

    ngx_idempotency_redis_hush(conn, conn->node->said);

    c = peer->connection;

    c->data = conn;
    c->pool = ngx_create_pool(256, &conn->log);
    if (c->pool == NULL) {
        return NGX_ERROR;
    }

    c->read->handler = ngx_idempotency_redis_dial_handler;
    c->write->handler = ngx_idempotency_redis_dial_handler;

    ngx_add_timer(&conn->timer, conn->redis->connect_timeout);

    if (rc == NGX_OK) {
        ngx_post_event(c->write, &ngx_posted_next_events);
    }

    /* rc == NGX_OK or NGX_AGAIN */

    return NGX_OK;
}


static void
ngx_idempotency_redis_dial_handler(ngx_event_t *ev)
{
    ngx_err_t                      err;
    ngx_connection_t              *c;
    ngx_idempotency_redis_conn_t  *conn;

    c = ev->data;
    conn = c->data;

    if (c->close) {
        ngx_idempotency_redis_conn_retire(conn);
        return;
    }

    err = ngx_idempotency_redis_dial_test(c);

    if (err) {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_SAID_CONNECT,
                                     err, "cannot be reached");
        ngx_idempotency_redis_dial_failed(conn);
        return;
    }

    if (conn->peer.sockaddr->sa_family != AF_UNIX
        && ngx_tcp_nodelay(c) != NGX_OK)
    {
        ngx_idempotency_redis_dial_failed(conn);
        return;
    }

#if (NGX_SSL)

    if (conn->redis->ssl) {
        ngx_idempotency_redis_tls(conn);
        return;
    }

#endif

    ngx_idempotency_redis_login(conn);
}


static ngx_err_t
ngx_idempotency_redis_dial_test(ngx_connection_t *c)
{
    int        err;
    socklen_t  len;

    err = 0;
    len = sizeof(int);

    /* BSDs and Linux return 0 and set a pending error in err, Solaris -1 */

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    return err;
}
