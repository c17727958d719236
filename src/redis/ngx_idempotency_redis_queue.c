
/*
 * The commands of a connection in the order in which they are sent and
 * answered, and the bytes that are to be written.
 */


#include "ngx_idempotency_redis_pipe.h"


/* bytes not yet written; more is refused */
#define NGX_IDEMPOTENCY_REDIS_UNSENT                                          \
    (NGX_IDEMPOTENCY_REDIS_LARGEST + 1024 * 1024)


static ngx_int_t ngx_idempotency_redis_queue_bytes(
    ngx_idempotency_redis_conn_t *conn, ngx_str_t *bytes,
    ngx_idempotency_redis_cmd_t *cmd);
static void ngx_idempotency_redis_queue_deadline(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_cmd_t *cmd);
static void ngx_idempotency_redis_queue_notify(ngx_event_t *ev);
static ngx_int_t ngx_idempotency_redis_bytes_reserve(
    ngx_idempotency_redis_bytes_t *to, size_t len);


void
ngx_idempotency_redis_queue_init(ngx_idempotency_redis_conn_t *conn)
{
    ngx_event_t  *ev;

    ngx_queue_init(&conn->commands);
    ngx_queue_init(&conn->lost);
    ngx_queue_init(&conn->held);

    ev = &conn->notify;

    ev->handler = ngx_idempotency_redis_queue_notify;
    ev->data = &conn->dummy;
    ev->log = ngx_cycle->log;
}


void
ngx_idempotency_redis_queue_free(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_queue_abandon(&conn->lost);

    if (conn->deadline.timer_set) {
        ngx_del_timer(&conn->deadline);
    }

    if (conn->notify.posted) {
        ngx_delete_posted_event(&conn->notify);
    }

    ngx_idempotency_redis_bytes_clear(&conn->out, 0);
}


ngx_int_t
ngx_idempotency_redis_queue_push(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd)
{
    ngx_int_t  rc;
    ngx_str_t  bytes;

    if (cmd->begin) {
        rc = ngx_idempotency_redis_queue_bytes(conn, cmd->begin, cmd);

    } else {

        if (ngx_idempotency_redis_encode(cmd->args, cmd->nargs, &bytes)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        rc = ngx_idempotency_redis_queue_bytes(conn, &bytes, cmd);

        ngx_idempotency_redis_encode_free(&bytes);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    cmd->sent = 0;
    cmd->error = NGX_IDEMPOTENCY_REDIS_FINE;

    ngx_queue_insert_tail(&conn->commands, &cmd->queue);
    conn->ncommands++;

    if (cmd->wait && ngx_idempotency_redis_acks(conn->redis)) {
        conn->unacked = 1;
    }

    ngx_idempotency_redis_queue_deadline(conn, cmd);

    if (conn->state == NGX_IDEMPOTENCY_REDIS_READY) {
        conn->pc.connection->idle = 0;

        ngx_post_event(&conn->flush, &ngx_posted_events);
    }

    return NGX_OK;
}


/* "bytes" are the command, or cmd->begin */

static ngx_int_t
ngx_idempotency_redis_queue_bytes(ngx_idempotency_redis_conn_t *conn,
    ngx_str_t *bytes, ngx_idempotency_redis_cmd_t *cmd)
{
    u_char                         *p;
    ngx_str_t                      *args;
    ngx_uint_t                      rest;
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

    if (cmd->asking) {

        /* its own reply is skipped, see pipe */

        p = ngx_cpymem(p, asking, sizeof(asking) - 1);
    }

    p = ngx_cpymem(p, bytes->data, bytes->len);
    p = ngx_idempotency_redis_encode_rest(p, args, rest);

    conn->appended += p - out->last;
    out->last = p;

    cmd->end = conn->appended;

    return NGX_OK;
}


/*
 * The timer is moved only for a command that has less time than those before:
 * it may go off earlier than needed, and is set again then.  It holds an
 * exiting worker as long as a command waits.
 */

static void
ngx_idempotency_redis_queue_deadline(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd)
{
    ngx_msec_t    wait;
    ngx_event_t  *ev;

    wait = conn->redis->timeout;

    if (cmd->until
        && (ngx_msec_int_t) (cmd->until - ngx_current_msec)
           < (ngx_msec_int_t) wait)
    {
        wait = cmd->until - ngx_current_msec;
    }

    cmd->pushed = ngx_current_msec;
    cmd->deadline = ngx_current_msec + wait;

    ev = &conn->deadline;
    ev->cancelable = (conn->peer->kind != NGX_IDEMPOTENCY_REDIS_KIND_DATA);

    if (ev->timer_set
        && (ngx_msec_int_t) (ev->timer.key - cmd->deadline) > 0)
    {
        /* ngx_event_add_timer() would keep one that is near */

        ngx_del_timer(ev);
    }

    if (!ev->timer_set) {
        ngx_add_timer(ev, wait);
    }
}


/* usually the first command, but not where one was sent a second time */

ngx_msec_int_t
ngx_idempotency_redis_queue_left(ngx_idempotency_redis_conn_t *conn,
    ngx_msec_t more)
{
    ngx_idempotency_redis_cmd_t  *cmd;
    ngx_queue_t                  *q;
    ngx_msec_int_t                left, least;

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


void
ngx_idempotency_redis_queue_say(ngx_idempotency_redis_conn_t *conn,
    ngx_str_t *args, ngx_uint_t n)
{
    ngx_str_t  bytes;

    if (ngx_idempotency_redis_encode(args, n, &bytes) != NGX_OK) {
        return;
    }

    if (ngx_idempotency_redis_bytes_append(&conn->out, bytes.data, bytes.len)
        == NGX_OK)
    {
        conn->appended += bytes.len;
        ngx_post_event(&conn->flush, &ngx_posted_events);
    }

    ngx_idempotency_redis_encode_free(&bytes);
}


void
ngx_idempotency_redis_queue_drop(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error)
{
    ngx_idempotency_redis_cmd_t  *cmd;
    ngx_uint_t                    stuck;
    ngx_queue_t                  *q;

    /* any command on a connection that was up may be what took so long */

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

    ngx_idempotency_redis_bytes_clear(&conn->out, NGX_IDEMPOTENCY_REDIS_KEEP);
    conn->appended = 0;
    conn->written = 0;

    if (!ngx_queue_empty(&conn->lost)) {
        ngx_post_event(&conn->notify, &ngx_posted_events);
    }
}


static void
ngx_idempotency_redis_queue_notify(ngx_event_t *ev)
{
    ngx_idempotency_redis_cmd_t   *cmd;
    ngx_idempotency_redis_conn_t  *conn;
    ngx_queue_t                   *q;
    ngx_connection_t              *dummy;

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


void
ngx_idempotency_redis_queue_abandon(ngx_queue_t *commands)
{
    ngx_idempotency_redis_cmd_t  *cmd;
    ngx_queue_t                  *q;

    while (!ngx_queue_empty(commands)) {
        q = ngx_queue_head(commands);
        ngx_queue_remove(q);

        cmd = ngx_queue_data(q, ngx_idempotency_redis_cmd_t, queue);

        if (cmd->abandon) {
            cmd->abandon(cmd);
        }
    }
}


ngx_int_t
ngx_idempotency_redis_bytes_append(ngx_idempotency_redis_bytes_t *to,
    u_char *data, size_t len)
{
    if (ngx_idempotency_redis_bytes_reserve(to, len) != NGX_OK) {
        return NGX_ERROR;
    }

    to->last = ngx_cpymem(to->last, data, len);

    return NGX_OK;
}


/* room for so many bytes at to->last */

static ngx_int_t
ngx_idempotency_redis_bytes_reserve(ngx_idempotency_redis_bytes_t *to,
    size_t len)
{
    size_t   used, size;
    u_char  *start;

    if (len <= (size_t) (to->end - to->last)) {
        return NGX_OK;
    }

    used = to->last - to->pos;

    if (len > NGX_IDEMPOTENCY_REDIS_UNSENT
        || used > NGX_IDEMPOTENCY_REDIS_UNSENT - len)
    {
        return NGX_ERROR;
    }

    size = ngx_max(2 * (used + len), 4096);

    start = ngx_alloc(size, ngx_cycle->log);
    if (start == NULL) {
        return NGX_ERROR;
    }

    if (used) {
        ngx_memcpy(start, to->pos, used);
    }

    if (to->start) {
        ngx_free(to->start);
    }

    to->start = start;
    to->pos = start;
    to->last = start + used;
    to->end = start + size;

    return NGX_OK;
}


void
ngx_idempotency_redis_bytes_clear(ngx_idempotency_redis_bytes_t *bytes,
    size_t keep)
{
    if (bytes->start == NULL) {
        return;
    }

    bytes->pos = bytes->start;
    bytes->last = bytes->start;

    if ((size_t) (bytes->end - bytes->start) > keep) {
        ngx_free(bytes->start);
        ngx_memzero(bytes, sizeof(ngx_idempotency_redis_bytes_t));
    }
}
