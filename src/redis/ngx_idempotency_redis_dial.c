
/*
 * From nothing to a socket: names, addresses, connect.
 */


#include "ngx_idempotency_redis_link.h"


static void ngx_idempotency_redis_dial_seek(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_dial_next(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_dial_skip(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_dial_address(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_dial_connect(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_dial_handler(ngx_event_t *ev);
static ngx_err_t ngx_idempotency_redis_dial_test(ngx_connection_t *c);


void
ngx_idempotency_redis_dial(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t  *node;

    node = conn->node;

    conn->tried = 0;
    conn->replica = 0;

    if (node->kind == NGX_IDEMPOTENCY_REDIS_EAR
        ? (node->server == NULL
           || !ngx_idempotency_redis_node_is_up(node->server))
        : (node->seeker && node->seeker != conn))
    {
        /* it is dialed when the server is found */

        ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_OFF);
        return;
    }

    if (node->kind == NGX_IDEMPOTENCY_REDIS_EAR
        || ngx_idempotency_redis_node_is_up(node))
    {
        ngx_idempotency_redis_dial_next(conn);
        return;
    }

    ngx_idempotency_redis_dial_seek(conn);
}


static void
ngx_idempotency_redis_dial_seek(ngx_idempotency_redis_conn_t *conn)
{
    ngx_uint_t                     i;
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_conn_t  *other;
    ngx_idempotency_redis_node_t  *node;

    redis = conn->redis;
    node = conn->node;

    node->seeker = conn;

    /* others may be on their way to where the server was */

    for (i = 0; i < node->nconns; i++) {
        other = &node->conns[i];

        if (other != conn && other->state != NGX_IDEMPOTENCY_REDIS_OFF) {
            ngx_idempotency_redis_conn_close(other);
            ngx_idempotency_redis_conn_drop(other,
                                            NGX_IDEMPOTENCY_REDIS_CONNECT);
        }
    }

    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_RESOLVING);

    if (ngx_idempotency_redis_name_resolve(node) == NGX_AGAIN) {
        return;
    }

    if (node->place.named && redis->resolver == NULL && !node->warned
        && (node->dialed || node->naddrs == 0))
    {
        node->warned = 1;

        if (node->naddrs) {
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

    ngx_idempotency_redis_dial_resolved(conn);
}


void
ngx_idempotency_redis_dial_resolved(ngx_idempotency_redis_conn_t *conn)
{
    conn->node->dialed = 1;

    ngx_idempotency_redis_name_first(conn->node);
    ngx_idempotency_redis_dial_next(conn);
}


/* tries what is left of the addresses, until one gives something to wait for */

static void
ngx_idempotency_redis_dial_next(ngx_idempotency_redis_conn_t *conn)
{
    ngx_uint_t                     n;
    ngx_idempotency_redis_node_t  *node;

    node = conn->node;
    n = (node->seeker == conn) ? node->naddrs : 1;

    while (conn->tried < n) {

        if (ngx_idempotency_redis_dial_connect(conn) == NGX_OK) {
            return;
        }

        ngx_idempotency_redis_conn_close(conn);
        ngx_idempotency_redis_dial_skip(conn);
    }

    ngx_idempotency_redis_conn_down(conn);
}


void
ngx_idempotency_redis_dial_failed(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_close(conn);
    ngx_idempotency_redis_dial_skip(conn);
    ngx_idempotency_redis_dial_next(conn);
}


static void
ngx_idempotency_redis_dial_skip(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t  *node;

    node = conn->node;

    conn->tried++;

    if (node->seeker == conn && node->naddrs) {
        node->addr = (node->addr + 1) % node->naddrs;
    }
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


/* where the others are, or where one has to be found */

static ngx_int_t
ngx_idempotency_redis_dial_address(ngx_idempotency_redis_conn_t *conn)
{
    ngx_addr_t                    *addr;
    ngx_idempotency_redis_node_t  *node;
    ngx_idempotency_redis_conn_t  *ready;

    node = conn->node;

    if (node->seeker == conn) {
        addr = &node->addrs[node->addr];

        ngx_idempotency_redis_name_copy(&conn->at, addr->sockaddr,
                                        addr->socklen);
        return NGX_OK;
    }

    ready = ngx_idempotency_redis_node_ready(node->server ? node->server
                                                          : node);
    if (ready == NULL) {
        return NGX_ERROR;
    }

    ngx_idempotency_redis_name_copy(&conn->at, &ready->at.sockaddr.sockaddr,
                                    ready->at.socklen);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_dial_connect(ngx_idempotency_redis_conn_t *conn)
{
    ngx_int_t               rc;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *peer;

    if (ngx_idempotency_redis_dial_address(conn) != NGX_OK) {
        return NGX_ERROR;
    }

    peer = &conn->peer;

    peer->sockaddr = &conn->at.sockaddr.sockaddr;
    peer->socklen = conn->at.socklen;
    peer->name = &conn->at.name;
    peer->get = ngx_event_get_peer;
    peer->log = &conn->log;
    peer->log_error = NGX_ERROR_INFO;
    peer->so_keepalive = (peer->sockaddr->sa_family != AF_UNIX);

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
