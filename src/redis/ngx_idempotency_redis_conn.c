
/*
 * The life of a connection: start, loss, back-off, end.
 */


#include "ngx_idempotency_redis_link.h"


#define NGX_IDEMPOTENCY_REDIS_BACKOFF        50
#define NGX_IDEMPOTENCY_REDIS_BACKOFF_MAX    5000

/* while commands are refused nobody waits longer for the next attempt */
#define NGX_IDEMPOTENCY_REDIS_BACKOFF_ASKED  1000

/* a replica may be promoted, or its address lead to a master, any moment */
#define NGX_IDEMPOTENCY_REDIS_BACKOFF_REPLICA  200

/* a connection that lasted that long was a good one */
#define NGX_IDEMPOTENCY_REDIS_STEADY         1000


static void ngx_idempotency_redis_conn_event(ngx_event_t *ev,
    ngx_idempotency_redis_conn_t *conn, ngx_event_handler_pt handler);
static void ngx_idempotency_redis_conn_census(
    ngx_idempotency_redis_conn_t *conn, ngx_int_t n);
static void ngx_idempotency_redis_conn_found(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_conn_miss(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_conn_timer(ngx_event_t *ev);
static void ngx_idempotency_redis_conn_tell(ngx_event_t *ev);
static ngx_msec_t ngx_idempotency_redis_conn_jitter(ngx_msec_t delay);


ngx_int_t
ngx_idempotency_redis_conn_init(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_node_t *node)
{
    conn->redis = node->redis;
    conn->node = node;

    conn->log = *ngx_cycle->log;
    conn->log.handler = ngx_idempotency_redis_log;
    conn->log.data = conn;
    conn->log.action = NULL;

    conn->peer.name = &node->name;

    conn->dummy.fd = (ngx_socket_t) -1;
    conn->dummy.data = conn;

    ngx_queue_init(&conn->commands);
    ngx_queue_init(&conn->lost);
    ngx_queue_init(&conn->held);

    ngx_idempotency_redis_conn_census(conn, 1);

    ngx_idempotency_redis_conn_event(&conn->timer, conn,
                                     ngx_idempotency_redis_conn_timer);
    ngx_idempotency_redis_conn_event(&conn->tell, conn,
                                     ngx_idempotency_redis_conn_tell);
    ngx_idempotency_redis_conn_event(&conn->flush, conn,
                                     ngx_idempotency_redis_pipe_flush);
    ngx_idempotency_redis_conn_event(&conn->deadline, conn,
                                     ngx_idempotency_redis_pipe_deadline);

    conn->timer.cancelable = 1;

    conn->in = ngx_alloc(NGX_IDEMPOTENCY_REDIS_CHUNK, ngx_cycle->log);
    if (conn->in == NULL) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_idempotency_redis_conn_event(ngx_event_t *ev,
    ngx_idempotency_redis_conn_t *conn, ngx_event_handler_pt handler)
{
    ev->handler = handler;
    ev->data = &conn->dummy;
    ev->log = ngx_cycle->log;
}


void
ngx_idempotency_redis_conn_state(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_state_e state)
{
    ngx_idempotency_redis_conn_census(conn, -1);

    conn->state = state;

    ngx_idempotency_redis_conn_census(conn, 1);
}


/* those to sentinels have no records to lose */

static void
ngx_idempotency_redis_conn_census(ngx_idempotency_redis_conn_t *conn,
    ngx_int_t n)
{
    ngx_idempotency_redis_is_e  is;

    if (conn->node->kind != NGX_IDEMPOTENCY_REDIS_SERVER) {
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

    /* notes which of its commands have left */

    ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);
    ngx_idempotency_redis_abandon(&conn->lost);

    if (conn->deadline.timer_set) {
        ngx_del_timer(&conn->deadline);
    }

    if (conn->tell.posted) {
        ngx_delete_posted_event(&conn->tell);
    }

    ngx_idempotency_redis_bytes_clear(&conn->out, 0);

    if (conn->in) {
        ngx_free(conn->in);
    }
}


void
ngx_idempotency_redis_abandon(ngx_queue_t *commands)
{
    ngx_queue_t                  *q;
    ngx_idempotency_redis_cmd_t  *cmd;

    while (!ngx_queue_empty(commands)) {
        q = ngx_queue_head(commands);
        ngx_queue_remove(q);

        cmd = ngx_queue_data(q, ngx_idempotency_redis_cmd_t, queue);

        if (cmd->abandon) {
            cmd->abandon(cmd);
        }
    }
}


void
ngx_idempotency_redis_conn_hasten(ngx_idempotency_redis_conn_t *conn)
{
    ngx_msec_t      delay;
    ngx_msec_int_t  left;

    if (conn->state != NGX_IDEMPOTENCY_REDIS_DOWN || !conn->timer.timer_set) {
        return;
    }

    left = (ngx_msec_int_t) (conn->timer.timer.key - ngx_current_msec);

    if (left <= NGX_IDEMPOTENCY_REDIS_BACKOFF_ASKED) {
        return;
    }

    delay = NGX_IDEMPOTENCY_REDIS_BACKOFF_ASKED;

    ngx_add_timer(&conn->timer, ngx_idempotency_redis_conn_jitter(delay));
}


void
ngx_idempotency_redis_conn_ready(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_node_t  *node;

    redis = conn->redis;
    node = conn->node;

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
    conn->peer.connection->idle = (conn->ncommands == 0);
    conn->log.action = "talking to";

    if (node->said) {
        ngx_log_error(ngx_idempotency_redis_report_level(node,
                                                         NGX_LOG_NOTICE),
                      ngx_cycle->log, 0,
                      "idempotency store \"%V\" is up again after %ui failed "
                      "attempts, node \"%V\"",
                      &redis->name, node->failures, conn->peer.name);
    }

    node->said = 0;
    node->failures = 0;

    ngx_idempotency_redis_hush(conn, 0);

    if (conn->ncommands) {
        ngx_post_event(&conn->flush, &ngx_posted_events);
    }

    if (node->kind == NGX_IDEMPOTENCY_REDIS_EAR) {
        ngx_idempotency_redis_hear_ready(node);
        return;
    }

    ngx_idempotency_redis_conn_found(conn);

    if (conn->counter
        && conn->counter->losses != conn->counter->shard->known.losses)
    {
        ngx_idempotency_redis_tick_soon(redis);
    }

    redis->topology->ready(node);
}


/* this is the server: the others follow */

static void
ngx_idempotency_redis_conn_found(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t  *node;

    node = conn->node;

    node->at = conn->at;
    node->at.name.data = node->at.text;

    if (node->seeker == conn) {
        node->seeker = NULL;
    }

    ngx_idempotency_redis_name_watch(node);

    if (ngx_exiting) {
        return;
    }

    ngx_idempotency_redis_node_dial(node);

    if (node->ear && conn->info.identified
        && ngx_memcmp(node->run_id, conn->info.identity.run_id,
                      NGX_IDEMPOTENCY_REDIS_ID_LEN)
           != 0)
    {
        /* what it listens to may be the server before */

        ngx_idempotency_redis_conn_close(&node->ear->conns[0]);
        ngx_idempotency_redis_conn_drop(&node->ear->conns[0],
                                        NGX_IDEMPOTENCY_REDIS_CONNECT);
    }

    ngx_memcpy(node->run_id, conn->info.identity.run_id,
               NGX_IDEMPOTENCY_REDIS_ID_LEN);

    if (node->ear && ngx_idempotency_redis_hear_is_wanted(node->redis)) {
        ngx_idempotency_redis_node_dial(node->ear);
    }
}


void
ngx_idempotency_redis_conn_down(ngx_idempotency_redis_conn_t *conn)
{
    ngx_uint_t  n;
    ngx_msec_t  delay, most;

    ngx_idempotency_redis_conn_close(conn);
    ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);

    n = ngx_min(conn->failures, 7);

    conn->failures++;
    conn->node->failures++;
    (void) ngx_atomic_fetch_add(&conn->redis->counts->failures, 1);
    conn->refuses = 1;
    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_DOWN);

    most = conn->replica ? NGX_IDEMPOTENCY_REDIS_BACKOFF_REPLICA
                         : NGX_IDEMPOTENCY_REDIS_BACKOFF_MAX;
    delay = (ngx_msec_t) NGX_IDEMPOTENCY_REDIS_BACKOFF << n;
    delay = ngx_min(delay, most);

    ngx_add_timer(&conn->timer, ngx_idempotency_redis_conn_jitter(delay));

    ngx_idempotency_redis_conn_miss(conn);
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

    if (ngx_exiting && n == 0) {
        return;
    }

    if (conn->node->kind == NGX_IDEMPOTENCY_REDIS_EAR
        && !ngx_idempotency_redis_hear_is_wanted(conn->redis))
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

    ngx_idempotency_redis_dial(conn);

    ngx_idempotency_redis_conn_miss(conn);
}


/* an ear that is lost says nothing about where the records are */

static void
ngx_idempotency_redis_conn_miss(ngx_idempotency_redis_conn_t *conn)
{
    if (conn->node->kind != NGX_IDEMPOTENCY_REDIS_EAR) {
        conn->redis->topology->lost(conn->node);
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
     * sets c->error too: everybody is thrown out
     */

    final = conn->peer.connection->error;

    if (conn->node->seeker == conn) {
        conn->node->seeker = NULL;
    }

    ngx_idempotency_redis_conn_close(conn);
    ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);

    if (final) {
        conn->refuses = 1;
        ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_DOWN);
    }
}


void
ngx_idempotency_redis_conn_close(ngx_idempotency_redis_conn_t *conn)
{
    ngx_pool_t        *pool;
    ngx_connection_t  *c;

    conn->generation++;

    /* what is being asked about the name is the server's, see name */

    ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_OFF);

    if (conn->node->kind == NGX_IDEMPOTENCY_REDIS_EAR) {
        ngx_idempotency_redis_hear_closed(conn->node);
    }

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    if (conn->flush.posted) {
        ngx_delete_posted_event(&conn->flush);
    }

    if (conn->reader) {
        ngx_idempotency_redis_reader_free(conn->reader);
        conn->reader = NULL;
    }

    ngx_idempotency_redis_bytes_clear(&conn->hello, 0);

    c = conn->peer.connection;

    if (c == NULL) {
        return;
    }

    conn->peer.connection = NULL;

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


void
ngx_idempotency_redis_conn_drop(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error)
{
    ngx_uint_t                    stuck;
    ngx_queue_t                  *q;
    ngx_idempotency_redis_cmd_t  *cmd;

    ngx_idempotency_redis_ack_drop(conn);

    /* on a connection that was up; any of them may be what took so long */

    stuck = (error == NGX_IDEMPOTENCY_REDIS_TIMEOUT && conn->written);

    while (!ngx_queue_empty(&conn->commands)) {
        q = ngx_queue_head(&conn->commands);
        ngx_queue_remove(q);

        cmd = ngx_queue_data(q, ngx_idempotency_redis_cmd_t, queue);

        cmd->error = error;
        cmd->sent = (cmd->end <= conn->written);
        cmd->stuck = stuck;

        error = NGX_IDEMPOTENCY_REDIS_CONNECT;

        ngx_queue_insert_tail(&conn->lost, q);
    }

    conn->ncommands = 0;
    conn->deadline.cancelable = 1;

    ngx_idempotency_redis_bytes_clear(&conn->out,
                                     NGX_IDEMPOTENCY_REDIS_KEEP);
    conn->appended = 0;
    conn->written = 0;

    if (!ngx_queue_empty(&conn->lost)) {
        ngx_post_event(&conn->tell, &ngx_posted_events);
    }
}


static void
ngx_idempotency_redis_conn_tell(ngx_event_t *ev)
{
    ngx_queue_t                   *q;
    ngx_connection_t              *dummy;
    ngx_idempotency_redis_cmd_t   *cmd;
    ngx_idempotency_redis_conn_t  *conn;

    dummy = ev->data;
    conn = dummy->data;

    while (!ngx_queue_empty(&conn->lost)) {
        q = ngx_queue_head(&conn->lost);
        ngx_queue_remove(q);

        cmd = ngx_queue_data(q, ngx_idempotency_redis_cmd_t, queue);

        if (cmd->handler) {
            cmd->handler(cmd, NULL);
        }
    }
}


static void
ngx_idempotency_redis_conn_timer(ngx_event_t *ev)
{
    ngx_connection_t              *dummy;
    ngx_idempotency_redis_conn_t  *conn;

    dummy = ev->data;
    conn = dummy->data;

    if (conn->state == NGX_IDEMPOTENCY_REDIS_DOWN) {
        ngx_idempotency_redis_dial(conn);
        return;
    }

    ngx_idempotency_redis_dial_overdue(conn);
}


/* workers that lost the same server do not come back as one */

static ngx_msec_t
ngx_idempotency_redis_conn_jitter(ngx_msec_t delay)
{
    return delay / 2 + ngx_random() % (delay / 2 + 1);
}
