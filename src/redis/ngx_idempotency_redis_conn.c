
/*
 * The life of a connection: connect, handshake, login, loss, back-off.
 */


#include "ngx_idempotency_redis_login.h"
#include "ngx_idempotency_redis_pipe.h"


/* milliseconds of the first back-off, and of the longest */
#define NGX_IDEMPOTENCY_REDIS_BACKOFF          50
#define NGX_IDEMPOTENCY_REDIS_BACKOFF_MAX      5000

/* the longest while commands are refused because of it */
#define NGX_IDEMPOTENCY_REDIS_BACKOFF_ASKED    1000

/* the longest after a replica: it may be promoted any moment, or its address
 * lead to a master */
#define NGX_IDEMPOTENCY_REDIS_BACKOFF_REPLICA  200

/* milliseconds after which the loss of a connection is no sign of trouble */
#define NGX_IDEMPOTENCY_REDIS_STEADY           1000

/* milliseconds: a timer that goes off so late says nothing about the server */
#define NGX_IDEMPOTENCY_REDIS_LATE             200


static void ngx_idempotency_redis_conn_census(
    ngx_idempotency_redis_conn_t *conn, ngx_int_t n);
static void ngx_idempotency_redis_conn_connected(ngx_event_t *ev);
static void ngx_idempotency_redis_conn_login(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_conn_reply(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_conn_ready(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_conn_failed(
    ngx_idempotency_redis_conn_t *conn);
static ngx_msec_t ngx_idempotency_redis_conn_jitter(ngx_msec_t delay);
static void ngx_idempotency_redis_conn_timer(ngx_event_t *ev);
static void ngx_idempotency_redis_conn_deadline(ngx_event_t *ev);
static void ngx_idempotency_redis_conn_closed(
    ngx_idempotency_redis_conn_t *conn, ngx_err_t err);
static void ngx_idempotency_redis_conn_broken(
    ngx_idempotency_redis_conn_t *conn, const char *what);
static void ngx_idempotency_redis_conn_drop(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error);
#if (NGX_SSL)
static void ngx_idempotency_redis_conn_handshake(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_conn_handshaked(ngx_connection_t *c);
static void ngx_idempotency_redis_conn_no_handshake(
    ngx_idempotency_redis_conn_t *conn);
#endif


static ngx_idempotency_redis_pipe_events_t
    ngx_idempotency_redis_conn_pipe_events = {
    ngx_idempotency_redis_conn_reply,
    ngx_idempotency_redis_conn_closed,
    ngx_idempotency_redis_conn_broken,
    ngx_idempotency_redis_conn_retire
};


ngx_int_t
ngx_idempotency_redis_conn_init(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_peer_t *peer,
    ngx_idempotency_redis_conn_events_t *events,
    ngx_idempotency_redis_node_t *node)
{
    conn->redis = redis;
    conn->peer = peer;
    conn->events = events;
    conn->node = node;

    conn->log = *ngx_cycle->log;
    conn->log.handler = ngx_idempotency_redis_report_log;
    conn->log.data = conn;
    conn->log.action = NULL;

    conn->pc.name = &peer->name;

    conn->dummy.fd = (ngx_socket_t) -1;
    conn->dummy.data = conn;

    conn->timer.handler = ngx_idempotency_redis_conn_timer;
    conn->timer.data = &conn->dummy;
    conn->timer.log = ngx_cycle->log;
    conn->timer.cancelable = 1;

    conn->deadline.handler = ngx_idempotency_redis_conn_deadline;
    conn->deadline.data = &conn->dummy;
    conn->deadline.log = ngx_cycle->log;

    ngx_idempotency_redis_conn_census(conn, 1);

    ngx_idempotency_redis_queue_init(conn);

    return ngx_idempotency_redis_pipe_init(conn,
                                      &ngx_idempotency_redis_conn_pipe_events);
}


void
ngx_idempotency_redis_conn_state(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_state_e state)
{
    ngx_idempotency_redis_conn_census(conn, -1);

    conn->state = state;

    ngx_idempotency_redis_conn_census(conn, 1);
}


/* only connections to nodes with records are counted */

static void
ngx_idempotency_redis_conn_census(ngx_idempotency_redis_conn_t *conn,
    ngx_int_t n)
{
    ngx_idempotency_redis_is_e  is;

    if (conn->peer->kind != NGX_IDEMPOTENCY_REDIS_KIND_DATA) {
        return;
    }

    switch (conn->state) {

    case NGX_IDEMPOTENCY_REDIS_OFF:
        is = NGX_IDEMPOTENCY_REDIS_IS_OFF;
        break;

    case NGX_IDEMPOTENCY_REDIS_DOWN:
        is = NGX_IDEMPOTENCY_REDIS_IS_DOWN;
        break;

    case NGX_IDEMPOTENCY_REDIS_READY:
        is = NGX_IDEMPOTENCY_REDIS_IS_READY;
        break;

    default:
        is = NGX_IDEMPOTENCY_REDIS_IS_DIALING;
    }

    conn->redis->now->connections[is] += n;
}


void
ngx_idempotency_redis_conn_free(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_close(conn);
    ngx_idempotency_redis_conn_census(conn, -1);

    /* notes which of its commands were sent */

    ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);

    ngx_idempotency_redis_queue_free(conn);
    ngx_idempotency_redis_pipe_free(conn);
}


ngx_int_t
ngx_idempotency_redis_conn_connect(ngx_idempotency_redis_conn_t *conn)
{
    ngx_int_t               rc;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *pc;

    pc = &conn->pc;

    pc->sockaddr = &conn->at.sockaddr.sockaddr;
    pc->socklen = conn->at.socklen;
    pc->name = &conn->at.name;
    pc->get = ngx_event_get_peer;
    pc->log = &conn->log;
    pc->log_error = NGX_ERROR_INFO;
    pc->so_keepalive = (pc->sockaddr->sa_family != AF_UNIX);

    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_CONNECTING);
    conn->log.action = "connecting to";

    ngx_idempotency_redis_report_hush(conn, 1);
    ngx_set_socket_errno(0);

    rc = ngx_event_connect_peer(pc);

    if (rc == NGX_ERROR || rc == NGX_DECLINED) {
        ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_CONNECT,
                                     ngx_socket_errno,
                                     "cannot be reached");
        return NGX_ERROR;
    }

    ngx_idempotency_redis_report_hush(conn, conn->peer->reported);

    c = pc->connection;

    c->data = conn;
    c->pool = ngx_create_pool(256, &conn->log);
    if (c->pool == NULL) {
        return NGX_ERROR;
    }

    c->read->handler = ngx_idempotency_redis_conn_connected;
    c->write->handler = ngx_idempotency_redis_conn_connected;

    ngx_add_timer(&conn->timer, conn->redis->connect_timeout);

    if (rc == NGX_OK) {
        ngx_post_event(c->write, &ngx_posted_next_events);
    }

    /* rc == NGX_OK or NGX_AGAIN */

    return NGX_OK;
}


static void
ngx_idempotency_redis_conn_connected(ngx_event_t *ev)
{
    int                            err;
    ngx_idempotency_redis_conn_t  *conn;
    socklen_t                      len;
    ngx_connection_t              *c;

    c = ev->data;
    conn = c->data;

    if (c->close) {
        ngx_idempotency_redis_conn_retire(conn);
        return;
    }

    /* as ngx_http_upstream_test_connect() */

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err) {
        ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_CONNECT,
                                     err, "cannot be reached");
        ngx_idempotency_redis_conn_failed(conn);
        return;
    }

    if (conn->pc.sockaddr->sa_family != AF_UNIX
        && ngx_tcp_nodelay(c) != NGX_OK)
    {
        ngx_idempotency_redis_conn_failed(conn);
        return;
    }

#if (NGX_SSL)

    if (conn->redis->ssl) {
        ngx_idempotency_redis_conn_handshake(conn);
        return;
    }

#endif

    ngx_idempotency_redis_conn_login(conn);
}


#if (NGX_SSL)

static void
ngx_idempotency_redis_conn_handshake(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_HANDSHAKE);
    conn->log.action = "TLS handshaking with";

    switch (ngx_idempotency_redis_tls_start(conn)) {

    case NGX_OK:
        ngx_idempotency_redis_conn_handshaked(conn->pc.connection);
        return;

    case NGX_AGAIN:
        conn->pc.connection->ssl->handler =
                                         ngx_idempotency_redis_conn_handshaked;
        return;

    default: /* NGX_ERROR */
        ngx_idempotency_redis_conn_failed(conn);
    }
}


static void
ngx_idempotency_redis_conn_handshaked(ngx_connection_t *c)
{
    ngx_idempotency_redis_conn_t  *conn;

    conn = c->data;

    if (ngx_idempotency_redis_tls_verify(conn) != NGX_OK) {
        ngx_idempotency_redis_conn_failed(conn);
        return;
    }

    ngx_idempotency_redis_conn_login(conn);
}

#endif


static void
ngx_idempotency_redis_conn_login(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_LOGIN);
    conn->log.action = "logging in to";

    if (ngx_idempotency_redis_login_start(conn) != NGX_OK
        || ngx_idempotency_redis_pipe_open(conn) != NGX_OK)
    {
        ngx_idempotency_redis_conn_failed(conn);
    }
}


static ngx_int_t
ngx_idempotency_redis_conn_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    if (conn->state != NGX_IDEMPOTENCY_REDIS_LOGIN) {
        return conn->events->on_reply
               ? conn->events->on_reply(conn->node, cmd, reply)
               : NGX_DECLINED;
    }

    switch (ngx_idempotency_redis_login_reply(conn, reply)) {

    case NGX_OK:
        ngx_idempotency_redis_conn_ready(conn);
        break;

    case NGX_AGAIN:
        break;

    case NGX_DECLINED:

        /*
         * A loss was seen, here or by another worker.  The commands that wait
         * for this connection were sent before that was known: their callers
         * have to decide anew.
         */

        ngx_idempotency_redis_conn_reset(conn);
        conn->events->on_dial(conn);
        break;

    default: /* NGX_ERROR */
        ngx_idempotency_redis_conn_failed(conn);
    }

    return NGX_OK;
}


static void
ngx_idempotency_redis_conn_ready(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_peer_t  *peer;

    redis = conn->redis;
    peer = conn->peer;

    ngx_log_debug2(NGX_LOG_DEBUG_EVENT, &conn->log, 0,
                   "idempotency store \"%V\" is ready, commands:%ui",
                   &redis->name, conn->ncommands);

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_READY);
    conn->since = ngx_current_msec;
    conn->refuses = 0;
    conn->replica = 0;

    if (conn->again) {
        (void) ngx_atomic_fetch_add(&redis->counts->reconnects, 1);
    }

    conn->again = 1;
    conn->pc.connection->idle = (conn->ncommands == 0);
    conn->log.action = "talking to";

    if (peer->reported) {
        ngx_log_error(ngx_idempotency_redis_report_level(peer, NGX_LOG_NOTICE),
                      ngx_cycle->log, 0,
                      "idempotency store \"%V\" is up again after %ui failed "
                      "attempts, node \"%V\"",
                      &redis->name, peer->failures, conn->pc.name);
    }

    peer->reported = 0;
    peer->failures = 0;

    ngx_idempotency_redis_report_hush(conn, 0);

    if (conn->ncommands) {
        ngx_post_event(&conn->flush, &ngx_posted_events);
    }

    conn->events->on_ready(conn);
}


/* at one address */

static void
ngx_idempotency_redis_conn_failed(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_close(conn);

    conn->events->on_failed(conn);
}


void
ngx_idempotency_redis_conn_down(ngx_idempotency_redis_conn_t *conn)
{
    ngx_uint_t  n;
    ngx_msec_t  delay, most;

    ngx_idempotency_redis_conn_reset(conn);

    n = ngx_min(conn->failures, 7);

    conn->failures++;
    conn->peer->failures++;
    (void) ngx_atomic_fetch_add(&conn->redis->counts->failures, 1);
    conn->refuses = 1;
    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_DOWN);

    most = conn->replica ? NGX_IDEMPOTENCY_REDIS_BACKOFF_REPLICA
                         : NGX_IDEMPOTENCY_REDIS_BACKOFF_MAX;
    delay = (ngx_msec_t) NGX_IDEMPOTENCY_REDIS_BACKOFF << n;
    delay = ngx_min(delay, most);

    ngx_add_timer(&conn->timer, ngx_idempotency_redis_conn_jitter(delay));

    if (conn->events->on_lost) {
        conn->events->on_lost(conn->node);
    }
}


/* workers that have lost the same server do not come back all at once */

static ngx_msec_t
ngx_idempotency_redis_conn_jitter(ngx_msec_t delay)
{
    return delay / 2 + ngx_random() % (delay / 2 + 1);
}


void
ngx_idempotency_redis_conn_hasten(ngx_idempotency_redis_conn_t *conn)
{
    ngx_msec_int_t  left;

    if (conn->state != NGX_IDEMPOTENCY_REDIS_DOWN || !conn->timer.timer_set) {
        return;
    }

    left = (ngx_msec_int_t) (conn->timer.timer.key - ngx_current_msec);

    if (left > NGX_IDEMPOTENCY_REDIS_BACKOFF_ASKED) {
        ngx_add_timer(&conn->timer,
                      ngx_idempotency_redis_conn_jitter(
                                        NGX_IDEMPOTENCY_REDIS_BACKOFF_ASKED));
    }
}


static void
ngx_idempotency_redis_conn_timer(ngx_event_t *ev)
{
    ngx_idempotency_redis_conn_t  *conn;
    const char                    *step;
    ngx_connection_t              *dummy;

    dummy = ev->data;
    conn = dummy->data;

    switch (conn->state) {

    case NGX_IDEMPOTENCY_REDIS_DOWN:
        conn->events->on_dial(conn);
        return;

    case NGX_IDEMPOTENCY_REDIS_CONNECTING:
        step = "connect";
        break;

    case NGX_IDEMPOTENCY_REDIS_HANDSHAKE:
        ngx_idempotency_redis_conn_no_handshake(conn);
        ngx_idempotency_redis_conn_failed(conn);
        return;

    default: /* NGX_IDEMPOTENCY_REDIS_LOGIN */
        step = "login";
        break;
    }

    ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_TIMEOUT, 0,
                                 "timed out at %s", step);

    ngx_idempotency_redis_conn_failed(conn);
}


/* Redis without TLS mostly waits for the end of a line in what it gets */

static void
ngx_idempotency_redis_conn_no_handshake(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_TLS, 0,
                                 "did not finish the TLS handshake in time "
                                 NGX_IDEMPOTENCY_REDIS_NO_TLS);
}


/* of the command that has the least time left */

static void
ngx_idempotency_redis_conn_deadline(ngx_event_t *ev)
{
    ngx_idempotency_redis_conn_t  *conn;
    ngx_msec_int_t                 left;
    ngx_connection_t              *dummy;

    dummy = ev->data;
    conn = dummy->data;

    if (ngx_queue_empty(&conn->commands)) {
        return;
    }

    left = ngx_idempotency_redis_queue_left(conn, 0);

    if (left > 0) {
        ngx_add_timer(ev, (ngx_msec_t) left);
        return;
    }

    if (left < -NGX_IDEMPOTENCY_REDIS_LATE) {

        /* this process was stopped or busy, the server had no time at all */

        (void) ngx_idempotency_redis_queue_left(conn, conn->redis->timeout);
        ngx_add_timer(ev, conn->redis->timeout);
        return;
    }

    if (conn->state == NGX_IDEMPOTENCY_REDIS_HANDSHAKE) {
        ngx_idempotency_redis_conn_no_handshake(conn);

    } else {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_REPORT_TIMEOUT, 0,
                                     "timed out, commands waiting: %ui",
                                     conn->ncommands);
    }

    if (conn->state == NGX_IDEMPOTENCY_REDIS_READY) {
        ngx_idempotency_redis_conn_lost(conn, NGX_IDEMPOTENCY_REDIS_TIMEOUT);
        return;
    }

    /* no command was sent, and none waits longer: it may still get ready */

    conn->refuses = 1;

    ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_TIMEOUT);
}


static void
ngx_idempotency_redis_conn_closed(ngx_idempotency_redis_conn_t *conn,
    ngx_err_t err)
{
    if (conn->state != NGX_IDEMPOTENCY_REDIS_READY) {
        ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_CLOSED,
                                     err, "closed the connection at login");
        ngx_idempotency_redis_login_closed(conn);
        ngx_idempotency_redis_conn_failed(conn);
        return;
    }

    if (conn->ncommands) {
        ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_LOST,
                                     err,
                                     "closed the connection, commands "
                                     "lost: %ui",
                                     conn->ncommands);

    } else if (conn->peer->kind != NGX_IDEMPOTENCY_REDIS_KIND_SUBSCRIBER
               && !ngx_idempotency_redis_conn_is_steady(conn))
    {
        ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_LOST,
                                     err,
                                     "closed a connection as soon as it was "
                                     "made, requests are refused until the "
                                     "next one is up");

    } else {
        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, err,
                      "idempotency store \"%V\" closed an idle connection, "
                      "node \"%V\"", &conn->redis->name, conn->pc.name);
    }

    ngx_idempotency_redis_conn_lost(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);
}


static void
ngx_idempotency_redis_conn_broken(ngx_idempotency_redis_conn_t *conn,
    const char *what)
{
    ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_PROTOCOL, 0,
                                 "broke the protocol: %s", what);

    if (conn->state != NGX_IDEMPOTENCY_REDIS_READY) {
        ngx_idempotency_redis_conn_failed(conn);
        return;
    }

    ngx_idempotency_redis_conn_lost(conn, NGX_IDEMPOTENCY_REDIS_PROTOCOL);
}


void
ngx_idempotency_redis_conn_lost(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error)
{
    ngx_uint_t  n, steady;

    n = conn->ncommands;

    steady = ngx_idempotency_redis_conn_is_steady(conn);

    ngx_idempotency_redis_conn_close(conn);
    ngx_idempotency_redis_conn_drop(conn, error);

    if ((ngx_exiting && n == 0)
        || (conn->events->is_wanted && !conn->events->is_wanted(conn->node)))
    {
        return;
    }

    if (!steady) {
        ngx_idempotency_redis_conn_down(conn);
        return;
    }

    conn->failures = 0;

    /* a server that does not answer may accept and not answer again */

    conn->refuses = (error == NGX_IDEMPOTENCY_REDIS_TIMEOUT);

    conn->events->on_dial(conn);

    if (conn->events->on_lost) {
        conn->events->on_lost(conn->node);
    }
}


ngx_uint_t
ngx_idempotency_redis_conn_is_steady(ngx_idempotency_redis_conn_t *conn)
{
    return (ngx_msec_int_t) (ngx_current_msec - conn->since)
           >= NGX_IDEMPOTENCY_REDIS_STEADY;
}


void
ngx_idempotency_redis_conn_retire(ngx_idempotency_redis_conn_t *conn)
{
    ngx_uint_t  final;

    /*
     * ngx_close_idle_connections() sets c->close only: requests that are
     * still here may need another connection; ngx_shutdown_timer_handler()
     * sets c->error, too: no request may go on
     */

    final = conn->pc.connection->error;

    conn->events->on_retired(conn);

    if (final) {
        ngx_idempotency_redis_conn_end(conn);
        return;
    }

    ngx_idempotency_redis_conn_reset(conn);
}


void
ngx_idempotency_redis_conn_end(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_reset(conn);

    conn->refuses = 1;
    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_DOWN);
}


void
ngx_idempotency_redis_conn_reset(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_conn_close(conn);
    ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);
}


void
ngx_idempotency_redis_conn_close(ngx_idempotency_redis_conn_t *conn)
{
    ngx_pool_t        *pool;
    ngx_connection_t  *c;

    conn->generation++;

    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_OFF);

    if (conn->events->on_closed) {
        conn->events->on_closed(conn->node);
    }

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    ngx_idempotency_redis_pipe_close(conn);
    ngx_idempotency_redis_bytes_clear(&conn->hello, 0);

    c = conn->pc.connection;

    if (c == NULL) {
        return;
    }

    conn->pc.connection = NULL;

#if (NGX_SSL)

    if (c->ssl) {

        /* with both set ngx_ssl_shutdown() frees at once and never waits */

        c->ssl->no_wait_shutdown = 1;
        c->ssl->no_send_shutdown = 1;

        (void) ngx_ssl_shutdown(c);
    }

#endif

    pool = c->pool;

    ngx_close_connection(c);

    if (pool) {
        ngx_destroy_pool(pool);
    }
}


/* gives up all commands; handlers are called from the event loop */

static void
ngx_idempotency_redis_conn_drop(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error)
{
    ngx_idempotency_redis_ack_drop(conn);
    ngx_idempotency_redis_queue_drop(conn, error);
}
