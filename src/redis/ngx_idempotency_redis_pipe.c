
/*
 * The socket of a connection: writes what is queued, reads replies, and finds
 * the command of each.
 */


#include "ngx_idempotency_redis_pipe.h"


/* bytes of one read */
#define NGX_IDEMPOTENCY_REDIS_CHUNK      16384

/* reads in one turn of the event loop */
#define NGX_IDEMPOTENCY_REDIS_READS      64

/* bytes of the longest reply */
#define NGX_IDEMPOTENCY_REDIS_REPLY_MAX  (NGX_IDEMPOTENCY_REDIS_LARGEST + 65536)


static void ngx_idempotency_redis_pipe_flush(ngx_event_t *ev);
static void ngx_idempotency_redis_pipe_write_handler(ngx_event_t *wev);
static void ngx_idempotency_redis_pipe_write(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_pipe_read_handler(ngx_event_t *rev);
static ngx_int_t ngx_idempotency_redis_pipe_read(
    ngx_idempotency_redis_conn_t *conn);
static ngx_int_t ngx_idempotency_redis_pipe_reply(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_reply_t *reply);


ngx_int_t
ngx_idempotency_redis_pipe_init(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_pipe_events_t *events)
{
    conn->pipe = events;

    conn->flush.handler = ngx_idempotency_redis_pipe_flush;
    conn->flush.data = &conn->dummy;
    conn->flush.log = ngx_cycle->log;

    conn->in = ngx_alloc(NGX_IDEMPOTENCY_REDIS_CHUNK, ngx_cycle->log);

    return conn->in ? NGX_OK : NGX_ERROR;
}


void
ngx_idempotency_redis_pipe_free(ngx_idempotency_redis_conn_t *conn)
{
    if (conn->in) {
        ngx_free(conn->in);
    }
}


ngx_int_t
ngx_idempotency_redis_pipe_open(ngx_idempotency_redis_conn_t *conn)
{
    ngx_connection_t  *c;

    conn->reader = ngx_idempotency_redis_reader_create(
                                             NGX_IDEMPOTENCY_REDIS_REPLY_MAX);
    if (conn->reader == NULL) {
        return NGX_ERROR;
    }

    c = conn->pc.connection;

    c->read->handler = ngx_idempotency_redis_pipe_read_handler;
    c->write->handler = ngx_idempotency_redis_pipe_write_handler;

    /* TLS may have read more than the handshake */

    ngx_post_event(c->read, &ngx_posted_events);
    ngx_post_event(&conn->flush, &ngx_posted_events);

    return NGX_OK;
}


void
ngx_idempotency_redis_pipe_close(ngx_idempotency_redis_conn_t *conn)
{
    if (conn->flush.posted) {
        ngx_delete_posted_event(&conn->flush);
    }

    if (conn->reader) {
        ngx_idempotency_redis_reader_free(conn->reader);
        conn->reader = NULL;
    }
}


static void
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
    ngx_uint_t                      acks;
    ngx_idempotency_redis_bytes_t  *bytes;
    ngx_event_t                    *wev;
    ngx_connection_t               *c;

    c = conn->pc.connection;
    wev = c->write;

    /* commands wait until the login is answered */

    bytes = (conn->state == NGX_IDEMPOTENCY_REDIS_LOGIN) ? &conn->hello
                                                         : &conn->out;
    acks = (bytes == &conn->out && ngx_idempotency_redis_acks(conn->redis));

    if (acks && ngx_idempotency_redis_ack_batch(conn) != NGX_OK) {
        conn->pipe->on_closed(conn, 0);
        return;
    }

    while (bytes->pos < bytes->last && wev->ready) {

        len = bytes->last - bytes->pos;

        if (acks) {
            len = (size_t) ngx_min(len, conn->batch - conn->written);

            if (len == 0) {
                break;
            }
        }

        n = c->send(c, bytes->pos, len);

        if (n == NGX_ERROR) {
            conn->pipe->on_closed(conn, 0);
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
        conn->pipe->on_closed(conn, 0);
    }
}


static void
ngx_idempotency_redis_pipe_read_handler(ngx_event_t *rev)
{
    ssize_t                        n;
    ngx_idempotency_redis_conn_t  *conn;
    ngx_err_t                      err;
    ngx_uint_t                     reads;
    ngx_connection_t              *c;

    c = rev->data;
    conn = c->data;

    if (c->close) {
        conn->pipe->on_retired(conn);
        return;
    }

    reads = 0;

    for ( ;; ) {

        if (reads++ == NGX_IDEMPOTENCY_REDIS_READS) {

            /* other events of this turn have to be handled, too */

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
            conn->pipe->on_closed(conn, err);
            return;
        }

        if (ngx_idempotency_redis_reader_feed(conn->reader, conn->in, n)
            != NGX_OK)
        {
            conn->pipe->on_broken(conn, "no memory for a reply");
            return;
        }

        if (ngx_idempotency_redis_pipe_read(conn) != NGX_OK) {
            return;
        }
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        conn->pipe->on_closed(conn, 0);
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
            conn->pipe->on_broken(conn,
                             ngx_idempotency_redis_reader_error(conn->reader));
            return NGX_DONE;
        }

        /* rc == NGX_OK */

        rc = ngx_idempotency_redis_pipe_reply(conn, reply);

        if (rc == NGX_DONE) {
            continue;
        }

        ngx_idempotency_redis_reply_free(reply);

        if (generation != conn->generation) {
            return NGX_DONE;
        }

        if (rc != NGX_OK) {
            conn->pipe->on_broken(conn, "a reply that nobody asked for");
            return NGX_DONE;
        }
    }
}


/* NGX_OK, NGX_DONE if the reply is kept, NGX_ERROR if there is no command */

static ngx_int_t
ngx_idempotency_redis_pipe_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_cmd_t  *cmd;
    ngx_str_t                     text;
    ngx_queue_t                  *q;

    if (conn->state == NGX_IDEMPOTENCY_REDIS_LOGIN
        || conn->peer->kind == NGX_IDEMPOTENCY_REDIS_KIND_SUBSCRIBER
        || conn->peer->kind == NGX_IDEMPOTENCY_REDIS_KIND_SENTINEL_EVENTS)
    {
        return conn->pipe->on_reply(conn, NULL, reply);
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

    if (cmd->asking) {
        cmd->asking = 0;
        return NGX_OK;
    }

    ngx_queue_remove(q);
    conn->ncommands--;

    if (conn->ncommands == 0) {
        conn->deadline.cancelable = 1;
        conn->pc.connection->idle = 1;
    }

    cmd->sent = 1;
    cmd->shard = conn->login.counter ? conn->login.counter->shard : NULL;

    if (cmd->wait && !cmd->tick && cmd->shard) {
        cmd->shard->used = 1;
    }

    if (cmd == &conn->ack || cmd == &conn->sync) {
        ngx_idempotency_redis_ack_reply(conn, cmd, reply);
        return NGX_OK;
    }

    if (cmd == &conn->auth) {
        cmd->handler(cmd, reply);
        return NGX_OK;
    }

    cmd->refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE;

    if (ngx_idempotency_redis_reply_type(reply) == NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        ngx_idempotency_redis_reply_string(reply, &text);
        cmd->refusal = ngx_idempotency_redis_refusal(&text);
    }

    if (conn->pipe->on_reply(conn, cmd, reply) == NGX_OK) {
        return NGX_OK;
    }

    if (cmd->wait
        && ngx_idempotency_redis_acks(conn->redis)
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
