
/*
 * Commands out, replies in: a FIFO on one socket, with a deadline for its
 * first.
 */


#include "ngx_idempotency_redis_link.h"


/* milliseconds: a timer that goes off so late says nothing about others */
#define NGX_IDEMPOTENCY_REDIS_LATE     200

/* reads in one turn of the event loop */
#define NGX_IDEMPOTENCY_REDIS_READS   64


static void ngx_idempotency_redis_pipe_write_handler(ngx_event_t *wev);
static void ngx_idempotency_redis_pipe_write(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_pipe_read_handler(ngx_event_t *rev);
static ngx_int_t ngx_idempotency_redis_pipe_read(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_pipe_reply(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_reply_t *reply);
static ngx_msec_int_t ngx_idempotency_redis_pipe_left(
    ngx_idempotency_redis_conn_t *conn, ngx_msec_t more);
static void ngx_idempotency_redis_pipe_closed(
    ngx_idempotency_redis_conn_t *conn, ngx_err_t err);
static void ngx_idempotency_redis_pipe_broken(
    ngx_idempotency_redis_conn_t *conn, const char *what);


ngx_int_t
ngx_idempotency_redis_pipe_push(ngx_idempotency_redis_conn_t *conn,
    ngx_str_t *bytes, ngx_idempotency_redis_cmd_t *cmd)
{
    u_char                         *p;
    ngx_str_t                      *args;
    ngx_uint_t                      rest;
    ngx_msec_t                      wait;
    ngx_event_t                    *ev;
    ngx_idempotency_redis_bytes_t  *out;

    static u_char  asking[] = "*1" CRLF "$6" CRLF "ASKING" CRLF;

    out = &conn->out;
    rest = cmd->begin ? cmd->nargs - cmd->nbegin : 0;
    args = cmd->args + cmd->nbegin;

    if (ngx_idempotency_redis_bytes_reserve(out, sizeof(asking) + bytes->len
                     + ngx_idempotency_redis_encode_rest_len(args, rest))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    p = out->last;

    if (cmd->skip) {

        /* it has a reply of its own, which is skipped */

        p = ngx_cpymem(p, asking, sizeof(asking) - 1);
    }

    p = ngx_cpymem(p, bytes->data, bytes->len);
    p = ngx_idempotency_redis_encode_rest(p, args, rest);

    conn->appended += p - out->last;
    out->last = p;

    cmd->end = conn->appended;
    cmd->sent = 0;
    cmd->error = NGX_IDEMPOTENCY_REDIS_FINE;

    wait = conn->redis->timeout;

    if (cmd->until
        && (ngx_msec_int_t) (cmd->until - ngx_current_msec)
           < (ngx_msec_int_t) wait)
    {
        wait = cmd->until - ngx_current_msec;
    }

    cmd->pushed = ngx_current_msec;
    cmd->deadline = ngx_current_msec + wait;

    ngx_queue_insert_tail(&conn->commands, &cmd->queue);
    conn->ncommands++;

    if (cmd->wait && ngx_idempotency_redis_acks(conn->redis)) {
        conn->unacked = 1;
    }

    /*
     * the timer is not moved for each command, only for one that has less
     * time than those before: it may go off earlier than needed, and then
     * looks; it holds an exiting worker while somebody waits
     */

    ev = &conn->deadline;
    ev->cancelable = (conn->node->kind != NGX_IDEMPOTENCY_REDIS_SERVER);

    if (ev->timer_set
        && (ngx_msec_int_t) (ev->timer.key - cmd->deadline) > 0)
    {
        /* ngx_event_add_timer() would keep one that is near */

        ngx_del_timer(ev);
    }

    if (!ev->timer_set) {
        ngx_add_timer(ev, wait);
    }

    if (conn->state == NGX_IDEMPOTENCY_REDIS_READY) {
        conn->peer.connection->idle = 0;

        ngx_post_event(&conn->flush, &ngx_posted_events);
    }

    return NGX_OK;
}


/* a socket is there: from now on its events are those of the pipe */

void
ngx_idempotency_redis_pipe_open(ngx_idempotency_redis_conn_t *conn)
{
    ngx_connection_t  *c;

    c = conn->peer.connection;

    c->read->handler = ngx_idempotency_redis_pipe_read_handler;
    c->write->handler = ngx_idempotency_redis_pipe_write_handler;

    /* TLS may have read more than the handshake */

    ngx_post_event(c->read, &ngx_posted_events);
    ngx_post_event(&conn->flush, &ngx_posted_events);
}


void
ngx_idempotency_redis_pipe_flush(ngx_event_t *ev)
{
    ngx_connection_t  *dummy;

    dummy = ev->data;

    ngx_idempotency_redis_pipe_write(dummy->data);
}


static void
ngx_idempotency_redis_pipe_write_handler(ngx_event_t *wev)
{
    ngx_connection_t  *c;

    c = wev->data;

    ngx_idempotency_redis_pipe_write(c->data);
}


static void
ngx_idempotency_redis_pipe_write(ngx_idempotency_redis_conn_t *conn)
{
    size_t                          len;
    ssize_t                         n;
    ngx_event_t                    *wev;
    ngx_connection_t               *c;
    ngx_idempotency_redis_bytes_t  *bytes;

    c = conn->peer.connection;
    wev = c->write;

    /* commands wait until the login is answered */

    bytes = (conn->state == NGX_IDEMPOTENCY_REDIS_LOGIN) ? &conn->hello
                                                         : &conn->out;

    if (bytes == &conn->out && ngx_idempotency_redis_acks(conn->redis)
        && ngx_idempotency_redis_ack_batch(conn) != NGX_OK)
    {
        ngx_idempotency_redis_pipe_closed(conn, 0);
        return;
    }

    while (bytes->pos < bytes->last && wev->ready) {

        len = bytes->last - bytes->pos;

        if (bytes == &conn->out && ngx_idempotency_redis_acks(conn->redis)) {
            len = (size_t) ngx_min(len, conn->batch - conn->written);

            if (len == 0) {
                break;
            }
        }

        n = c->send(c, bytes->pos, len);

        if (n == NGX_ERROR) {
            ngx_idempotency_redis_pipe_closed(conn, 0);
            return;
        }

        if (n == NGX_AGAIN || n == 0) {
            break;
        }

        bytes->pos += n;

        if (bytes == &conn->out) {
            conn->written += n;
        }
    }

    if (bytes->pos == bytes->last) {
        ngx_idempotency_redis_bytes_clear(bytes, NGX_IDEMPOTENCY_REDIS_KEEP);
    }

    if (ngx_handle_write_event(wev, 0) != NGX_OK) {
        ngx_idempotency_redis_pipe_closed(conn, 0);
    }
}


static void
ngx_idempotency_redis_pipe_read_handler(ngx_event_t *rev)
{
    ssize_t                        n;
    ngx_err_t                      err;
    ngx_uint_t                     reads;
    ngx_connection_t              *c;
    ngx_idempotency_redis_conn_t  *conn;

    c = rev->data;
    conn = c->data;

    if (c->close) {
        ngx_idempotency_redis_conn_retire(conn);
        return;
    }

    reads = 0;

    for ( ;; ) {

        if (reads++ == NGX_IDEMPOTENCY_REDIS_READS) {

            /* others want their turn */

            ngx_post_event(rev, &ngx_posted_next_events);
            break;
        }

        ngx_set_socket_errno(0);

        n = c->recv(c, conn->in, NGX_IDEMPOTENCY_REDIS_CHUNK);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            err = n ? ngx_socket_errno : 0;
            ngx_idempotency_redis_pipe_closed(conn, err);
            return;
        }

        if (ngx_idempotency_redis_reader_feed(conn->reader, conn->in, n)
            != NGX_OK)
        {
            ngx_idempotency_redis_pipe_broken(conn, "no memory for a reply");
            return;
        }

        if (ngx_idempotency_redis_pipe_read(conn) != NGX_OK) {
            return;
        }
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_idempotency_redis_pipe_closed(conn, 0);
    }
}


/* NGX_OK, or NGX_DONE when this socket is gone */

static ngx_int_t
ngx_idempotency_redis_pipe_read(ngx_idempotency_redis_conn_t *conn)
{
    ngx_int_t                       rc;
    ngx_uint_t                      generation;
    ngx_idempotency_redis_reply_t  *reply;

    generation = conn->generation;

    for ( ;; ) {

        rc = ngx_idempotency_redis_reader_next(conn->reader, &reply);

        if (rc == NGX_AGAIN) {
            return NGX_OK;
        }

        if (rc == NGX_ERROR) {
            ngx_idempotency_redis_pipe_broken(conn,
                             ngx_idempotency_redis_reader_error(conn->reader));
            return NGX_DONE;
        }

        /* rc == NGX_OK */

        rc = ngx_idempotency_redis_pipe_reply(conn, reply);

        if (rc == NGX_DONE) {

            /* it is not ours any more */

            continue;
        }

        ngx_idempotency_redis_reply_free(reply);

        if (generation != conn->generation) {
            return NGX_DONE;
        }

        if (rc != NGX_OK) {
            ngx_idempotency_redis_pipe_broken(conn,
                                              "a reply that nobody asked for");
            return NGX_DONE;
        }
    }
}


/* NGX_OK, NGX_DONE if the reply was kept, NGX_ERROR if nobody wants it */

static ngx_int_t
ngx_idempotency_redis_pipe_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                     text;
    ngx_queue_t                  *q;
    ngx_idempotency_redis_cmd_t  *cmd;

    if (conn->state == NGX_IDEMPOTENCY_REDIS_LOGIN) {
        ngx_idempotency_redis_login_reply(conn, reply);
        return NGX_OK;
    }

    if (conn->node->kind == NGX_IDEMPOTENCY_REDIS_EAR) {
        ngx_idempotency_redis_hear_reply(conn, reply);
        return NGX_OK;
    }

    if (conn->node->kind == NGX_IDEMPOTENCY_REDIS_HEARD) {
        return conn->redis->topology->reply(conn, NULL, reply);
    }

    if (ngx_queue_empty(&conn->commands)) {
        return NGX_ERROR;
    }

    q = ngx_queue_head(&conn->commands);
    cmd = ngx_queue_data(q, ngx_idempotency_redis_cmd_t, queue);

    if (cmd->end > conn->written) {

        /* not even written: this cannot be its answer */

        return NGX_ERROR;
    }

    if (cmd->skip) {
        cmd->skip = 0;
        return NGX_OK;
    }

    ngx_queue_remove(q);
    conn->ncommands--;

    if (conn->ncommands == 0) {
        conn->deadline.cancelable = 1;
        conn->peer.connection->idle = 1;
    }

    cmd->sent = 1;
    cmd->shard = conn->counter ? conn->counter->shard : NULL;

    if (cmd->wait && !cmd->tick && cmd->shard) {
        cmd->shard->used = 1;
    }

    if (cmd == &conn->ack || cmd == &conn->sync) {
        ngx_idempotency_redis_ack_told(conn, cmd, reply);
        return NGX_OK;
    }

    if (cmd == &conn->auth) {
        ngx_idempotency_redis_secret_told(conn, reply);
        return NGX_OK;
    }

    cmd->refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE;

    if (ngx_idempotency_redis_reply_type(reply) == NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        ngx_idempotency_redis_reply_string(reply, &text);
        cmd->refusal = ngx_idempotency_redis_refusal(&text);
    }

    if (conn->redis->topology->reply(conn, cmd, reply) == NGX_OK) {
        return NGX_OK;
    }

    if (cmd->wait && ngx_idempotency_redis_acks(conn->redis)
        && cmd->refusal == NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE)
    {
        ngx_idempotency_redis_ack_hold(conn, cmd, reply);
        return NGX_DONE;
    }

    if (cmd->handler) {
        cmd->handler(cmd, reply);
    }

    return NGX_OK;
}


void
ngx_idempotency_redis_pipe_deadline(ngx_event_t *ev)
{
    ngx_msec_int_t                 left;
    ngx_connection_t              *dummy;
    ngx_idempotency_redis_conn_t  *conn;

    dummy = ev->data;
    conn = dummy->data;

    if (ngx_queue_empty(&conn->commands)) {
        return;
    }

    left = ngx_idempotency_redis_pipe_left(conn, 0);

    if (left > 0) {
        ngx_add_timer(ev, (ngx_msec_t) left);
        return;
    }

    if (left < -NGX_IDEMPOTENCY_REDIS_LATE) {

        /* this process was stopped or busy, the server had no time at all */

        (void) ngx_idempotency_redis_pipe_left(conn, conn->redis->timeout);
        ngx_add_timer(ev, conn->redis->timeout);
        return;
    }

    ngx_idempotency_redis_report(conn,
                                 NGX_IDEMPOTENCY_REDIS_SAID_TIMEOUT, 0,
                                 "timed out, commands waiting: %ui",
                                 conn->ncommands);

    if (conn->state == NGX_IDEMPOTENCY_REDIS_READY) {
        ngx_idempotency_redis_conn_lost(conn, NGX_IDEMPOTENCY_REDIS_TIMEOUT);
        return;
    }

    /* nothing was sent: who waits need not, the connection may still come */

    conn->refuses = 1;

    ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_TIMEOUT);
}


/*
 * The time left to who has the least: usually the first, but not where one is
 * asked again.  Who has none is given "more", if there is any to give.
 */

static ngx_msec_int_t
ngx_idempotency_redis_pipe_left(ngx_idempotency_redis_conn_t *conn,
    ngx_msec_t more)
{
    ngx_queue_t                  *q;
    ngx_msec_int_t                left, least;
    ngx_idempotency_redis_cmd_t  *cmd;

    least = NGX_MAX_INT32_VALUE;

    for (q = ngx_queue_head(&conn->commands);
         q != ngx_queue_sentinel(&conn->commands);
         q = ngx_queue_next(q))
    {
        cmd = ngx_queue_data(q, ngx_idempotency_redis_cmd_t, queue);

        left = (ngx_msec_int_t) (cmd->deadline - ngx_current_msec);

        if (left <= 0 && more) {
            cmd->deadline = ngx_current_msec + more;
        }

        least = ngx_min(least, left);
    }

    return least;
}


static void
ngx_idempotency_redis_pipe_closed(ngx_idempotency_redis_conn_t *conn,
    ngx_err_t err)
{
    if (conn->state != NGX_IDEMPOTENCY_REDIS_READY) {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_SAID_CLOSED, err,
                                     "closed the connection at login");
        ngx_idempotency_redis_login_closed(conn);
        return;
    }

    if (conn->ncommands) {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_SAID_LOST, err,
                                     "closed the connection, commands "
                                     "lost: %ui", conn->ncommands);

    } else if (conn->node->kind != NGX_IDEMPOTENCY_REDIS_EAR
               && !ngx_idempotency_redis_conn_is_steady(conn))
    {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_SAID_LOST, err,
                                     "closed a connection as soon as it was "
                                     "made, requests are refused until the "
                                     "next one is up");

    } else {
        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, err,
                      "idempotency store \"%V\" closed an idle connection, "
                      "node \"%V\"", &conn->redis->name, conn->peer.name);
    }

    ngx_idempotency_redis_conn_lost(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);
}


static void
ngx_idempotency_redis_pipe_broken(ngx_idempotency_redis_conn_t *conn,
    const char *what)
{
    ngx_idempotency_redis_report(conn,
                                 NGX_IDEMPOTENCY_REDIS_SAID_PROTOCOL, 0,
                                 "broke the protocol: %s", what);

    if (conn->state != NGX_IDEMPOTENCY_REDIS_READY) {
        ngx_idempotency_redis_dial_failed(conn);
        return;
    }

    ngx_idempotency_redis_conn_lost(conn, NGX_IDEMPOTENCY_REDIS_PROTOCOL);
}
