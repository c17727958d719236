
/*
 * The store in PostgreSQL: a connection in the event loop.
 *
 * Where libpq may block, and what is done instead:
 *
 *   PQconnectdb(), PQreset()       in a thread, see dial
 *   PQexec(), PQprepare()          not used here: PQsendQueryPrepared()
 *   PQcancel()                     not used: statement_timeout of the server
 *                                  ends a query, PQfinish() a connection
 *   PQsend*(), PQpipelineSync()    buffer or send what the socket takes, since
 *                                  PQsetnonblocking() was called
 *   PQgetResult()                  only while PQisBusy() is 0, and never behind
 *                                  PGRES_PIPELINE_SYNC
 *   PQfinish()                     sends its last message without waiting on a
 *                                  nonblocking connection
 *
 * PQconsumeInput() may leave bytes in the socket: the event is level-triggered.
 * libpq may close the socket itself when it notices that the connection is
 * lost; its number may be in use again then, so that it is never asked for
 * twice.
 */


#include "ngx_idempotency_postgres_conn.h"
#include <poll.h>


/* milliseconds between two tries to connect, at first and at most */
#define NGX_IDEMPOTENCY_POSTGRES_BACKOFF       50
#define NGX_IDEMPOTENCY_POSTGRES_BACKOFF_MAX   1000


static void ngx_idempotency_postgres_conn_timer(ngx_event_t *ev);
static void ngx_idempotency_postgres_conn_dialed(ngx_event_t *ev);
static ngx_int_t ngx_idempotency_postgres_conn_adopt(
    ngx_idempotency_postgres_conn_t *conn);
static void ngx_idempotency_postgres_conn_retry(
    ngx_idempotency_postgres_conn_t *conn);
static void ngx_idempotency_postgres_conn_flush(
    ngx_idempotency_postgres_conn_t *conn);
static void ngx_idempotency_postgres_conn_write(ngx_event_t *wev);
static void ngx_idempotency_postgres_conn_read(ngx_event_t *rev);
static ngx_int_t ngx_idempotency_postgres_conn_results(
    ngx_idempotency_postgres_conn_t *conn);
static ngx_int_t ngx_idempotency_postgres_conn_result(
    ngx_idempotency_postgres_conn_t *conn, PGresult *res);
static void ngx_idempotency_postgres_conn_failed(
    ngx_idempotency_postgres_conn_t *conn, ngx_idempotency_postgres_job_t *job,
    PGresult *res);
static void ngx_idempotency_postgres_conn_finish(
    ngx_idempotency_postgres_conn_t *conn);


void
ngx_idempotency_postgres_conn_start(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_queue_init(&conn->group);

    conn->dummy.fd = (ngx_socket_t) -1;
    conn->dummy.data = conn;

    conn->timer.handler = ngx_idempotency_postgres_conn_timer;
    conn->timer.data = &conn->dummy;
    conn->timer.log = ngx_cycle->log;
    conn->timer.cancelable = 1;

    conn->task.ctx = conn;
    conn->task.handler = ngx_idempotency_postgres_dial;
    conn->task.event.handler = ngx_idempotency_postgres_conn_dialed;
    conn->task.event.data = conn;
    conn->task.event.log = ngx_cycle->log;

    conn->state = NGX_IDEMPOTENCY_POSTGRES_IDLE;
    conn->backoff = NGX_IDEMPOTENCY_POSTGRES_BACKOFF;

    ngx_idempotency_postgres_conn_timer(&conn->timer);
}


static void
ngx_idempotency_postgres_conn_timer(ngx_event_t *ev)
{
    ngx_connection_t                 *dummy;
    ngx_idempotency_postgres_conn_t  *conn;

    dummy = ev->data;
    conn = dummy->data;

    if (ngx_thread_task_post(conn->threads, &conn->task) != NGX_OK) {

        /* the queue of the pool is full */

        ngx_idempotency_postgres_conn_retry(conn);
        return;
    }

    conn->state = NGX_IDEMPOTENCY_POSTGRES_DIALING;
}


static void
ngx_idempotency_postgres_conn_dialed(ngx_event_t *ev)
{
    ngx_idempotency_postgres_conn_t  *conn;

    conn = ev->data;

    conn->state = NGX_IDEMPOTENCY_POSTGRES_IDLE;

    if (conn->pg == NULL) {
        ngx_idempotency_postgres_conn_retry(conn);
        conn->events->refused(conn);
        return;
    }

    if (ngx_idempotency_postgres_conn_adopt(conn) != NGX_OK) {
        PQfinish(conn->pg);
        conn->pg = NULL;

        conn->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        (void) ngx_sprintf(conn->text, "no free worker_connections%Z");

        ngx_idempotency_postgres_conn_retry(conn);
        conn->events->refused(conn);
        return;
    }

    conn->state = NGX_IDEMPOTENCY_POSTGRES_READY;
    conn->backoff = NGX_IDEMPOTENCY_POSTGRES_BACKOFF;

    conn->events->ready(conn);
}


static ngx_int_t
ngx_idempotency_postgres_conn_adopt(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_connection_t  *c;

    c = ngx_get_connection(PQsocket(conn->pg), ngx_cycle->log);
    if (c == NULL) {
        return NGX_ERROR;
    }

    c->data = conn;
    c->log = ngx_cycle->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = ngx_idempotency_postgres_conn_read;
    c->write->handler = ngx_idempotency_postgres_conn_write;
    c->number = ngx_atomic_fetch_add(ngx_connection_counter, 1);

    conn->c = c;

    if (ngx_add_event(c->read, NGX_READ_EVENT, NGX_LEVEL_EVENT) != NGX_OK) {
        c->fd = (ngx_socket_t) -1;
        ngx_free_connection(c);
        conn->c = NULL;
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_idempotency_postgres_conn_retry(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_add_timer(&conn->timer, conn->backoff);

    conn->backoff = ngx_min(2 * conn->backoff,
                            NGX_IDEMPOTENCY_POSTGRES_BACKOFF_MAX);
}


void
ngx_idempotency_postgres_conn_send(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_queue_t                     *q;
    ngx_idempotency_postgres_job_t  *job;

    conn->state = NGX_IDEMPOTENCY_POSTGRES_BUSY;
    conn->began = ngx_current_msec;
    conn->current = ngx_queue_head(&conn->group);
    conn->failed = 0;
    conn->ends = 0;

    for (q = ngx_queue_head(&conn->group);
         q != ngx_queue_sentinel(&conn->group);
         q = ngx_queue_next(q))
    {
        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

        if (ngx_idempotency_postgres_statement_send(conn->pg, job) != 1) {
            ngx_idempotency_postgres_conn_close(conn,
                                                PQerrorMessage(conn->pg));
            return;
        }

        job->sent = 1;
    }

    if (PQpipelineSync(conn->pg) != 1) {
        ngx_idempotency_postgres_conn_close(conn, PQerrorMessage(conn->pg));
        return;
    }

    ngx_idempotency_postgres_conn_flush(conn);
}


/* while there is more to send, both directions are looked at */

static void
ngx_idempotency_postgres_conn_flush(ngx_idempotency_postgres_conn_t *conn)
{
    int           rc;
    ngx_event_t  *wev;

    rc = PQflush(conn->pg);

    if (rc == -1) {
        ngx_idempotency_postgres_conn_close(conn, PQerrorMessage(conn->pg));
        return;
    }

    wev = conn->c->write;

    if (rc == 1 && !wev->active) {
        rc = (ngx_add_event(wev, NGX_WRITE_EVENT, NGX_LEVEL_EVENT) == NGX_OK)
             ? 0 : -1;

    } else if (rc == 0 && wev->active) {
        rc = (ngx_del_event(wev, NGX_WRITE_EVENT, 0) == NGX_OK) ? 0 : -1;
    }

    if (rc == -1) {
        ngx_idempotency_postgres_conn_close(conn, "epoll_ctl() failed");
    }
}


static void
ngx_idempotency_postgres_conn_write(ngx_event_t *wev)
{
    ngx_connection_t                 *c;
    ngx_idempotency_postgres_conn_t  *conn;

    c = wev->data;
    conn = c->data;

    if (conn->c != c) {
        return;
    }

    ngx_idempotency_postgres_conn_flush(conn);
}


static void
ngx_idempotency_postgres_conn_read(ngx_event_t *rev)
{
    ngx_connection_t                 *c;
    ngx_idempotency_postgres_conn_t  *conn;

    c = rev->data;
    conn = c->data;

    if (conn->c != c) {
        return;
    }

    if (PQconsumeInput(conn->pg) != 1) {
        ngx_idempotency_postgres_conn_close(conn, PQerrorMessage(conn->pg));
        return;
    }

    if (conn->state != NGX_IDEMPOTENCY_POSTGRES_BUSY) {

        /* notices, and the last words of a server that stops */

        if (PQstatus(conn->pg) != CONNECTION_OK) {
            ngx_idempotency_postgres_conn_close(conn,
                                                PQerrorMessage(conn->pg));
        }

        return;
    }

    switch (ngx_idempotency_postgres_conn_results(conn)) {

    case NGX_OK:
        conn->state = NGX_IDEMPOTENCY_POSTGRES_READY;
        conn->events->done(conn);
        break;

    case NGX_ERROR:
        ngx_idempotency_postgres_conn_close(conn, PQerrorMessage(conn->pg));
        break;

    default: /* NGX_AGAIN */

        /* what has arrived may have made room to send */

        ngx_idempotency_postgres_conn_flush(conn);
        break;
    }
}


/* NGX_OK: the sync is there, and with it the group is committed */

static ngx_int_t
ngx_idempotency_postgres_conn_results(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_int_t   rc;
    PGresult   *res;

    while (!PQisBusy(conn->pg)) {

        if (PQstatus(conn->pg) != CONNECTION_OK) {
            return NGX_ERROR;
        }

        res = PQgetResult(conn->pg);

        if (res == NULL) {

            /* between the results of two jobs */

            if (conn->current != ngx_queue_sentinel(&conn->group)) {
                conn->current = ngx_queue_next(conn->current);

            } else if (conn->ends++) {

                /* one may stand behind an error of the commit */

                return NGX_ERROR;
            }

            continue;
        }

        rc = ngx_idempotency_postgres_conn_result(conn, res);

        if (rc != NGX_AGAIN) {
            return rc;
        }
    }

    return NGX_AGAIN;
}


static ngx_int_t
ngx_idempotency_postgres_conn_result(ngx_idempotency_postgres_conn_t *conn,
    PGresult *res)
{
    ngx_idempotency_postgres_job_t  *job;

    job = NULL;

    if (conn->current != ngx_queue_sentinel(&conn->group)) {
        job = ngx_queue_data(conn->current, ngx_idempotency_postgres_job_t,
                             queue);
    }

    switch (PQresultStatus(res)) {

    case PGRES_TUPLES_OK:

        if (job == NULL || job->reply) {
            PQclear(res);
            return NGX_ERROR;
        }

        job->reply = res;

        return NGX_AGAIN;

    case PGRES_PIPELINE_SYNC:
        PQclear(res);

        return NGX_OK;

    case PGRES_PIPELINE_ABORTED:
        PQclear(res);

        return NGX_AGAIN;

    case PGRES_FATAL_ERROR:

        /* behind the last result it is the commit that has failed */

        ngx_idempotency_postgres_conn_failed(conn, job, res);
        PQclear(res);

        return NGX_AGAIN;

    default:
        PQclear(res);

        return NGX_ERROR;
    }
}


static void
ngx_idempotency_postgres_conn_failed(ngx_idempotency_postgres_conn_t *conn,
    ngx_idempotency_postgres_job_t *job, PGresult *res)
{
    const char                 *state, *fix;
    ngx_idempotency_error_e     error;
    ngx_idempotency_refusal_e   refusal;

    state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    error = ngx_idempotency_postgres_error(state, &refusal, &fix);

    conn->failed = 1;
    conn->error = error;
    conn->refusal = refusal;

    if (job == NULL) {
        job = ngx_queue_data(ngx_queue_last(&conn->group),
                             ngx_idempotency_postgres_job_t, queue);
    }

    job->error = error;
    job->refusal = refusal;

    /* a lock, a deadlock or a serialization failure is worth another try */

    if (state && (ngx_strcmp(state, "55P03") == 0
                  || ngx_strncmp(state, "40", 2) == 0))
    {
        job->after = ngx_current_msec + 20;
    }

    (void) ngx_snprintf(conn->text, sizeof(conn->text), "%s%s%s%Z",
                        PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY)
                        ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY)
                        : "connection lost",
                        fix ? "; " : "", fix ? fix : "");
}


void
ngx_idempotency_postgres_conn_close(ngx_idempotency_postgres_conn_t *conn,
    const char *why)
{
    u_char  *p, *last;

    if (conn->c == NULL) {
        return;
    }

    conn->error = NGX_IDEMPOTENCY_ERROR_CONNECT;
    conn->refusal = NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE;

    last = conn->text + sizeof(conn->text) - 1;

    for (p = conn->text; *why && p < last; why++) {
        *p++ = (*why == '\n' || *why == '\t') ? ' ' : *why;
    }

    while (p > conn->text && p[-1] == ' ') {
        p--;
    }

    *p = '\0';

    ngx_idempotency_postgres_conn_finish(conn);
    ngx_idempotency_postgres_conn_retry(conn);

    conn->events->lost(conn);
}


static void
ngx_idempotency_postgres_conn_finish(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_connection_t  *c;

    c = conn->c;

    /*
     * If libpq has closed the socket it is out of epoll already, and its
     * number may be that of another connection: NGX_CLOSE_EVENT only resets
     * the state of the events.
     */

    if (PQsocket(conn->pg) == c->fd) {
        if (c->write->active) {
            (void) ngx_del_event(c->write, NGX_WRITE_EVENT, 0);
        }

        if (c->read->active) {
            (void) ngx_del_event(c->read, NGX_READ_EVENT, 0);
        }

    } else {
        c->read->active = 0;
        c->write->active = 0;
    }

    if (c->read->posted) {
        ngx_delete_posted_event(c->read);
    }

    if (c->write->posted) {
        ngx_delete_posted_event(c->write);
    }

    c->read->closed = 1;
    c->write->closed = 1;

    ngx_free_connection(c);
    c->fd = (ngx_socket_t) -1;

    PQfinish(conn->pg);

    conn->c = NULL;
    conn->pg = NULL;
    conn->state = NGX_IDEMPOTENCY_POSTGRES_IDLE;
}


void
ngx_idempotency_postgres_conn_drain(ngx_idempotency_postgres_conn_t *conn,
    ngx_msec_t msec)
{
    int            rc;
    ngx_int_t      result;
    ngx_msec_t     deadline;
    struct pollfd  pfd;

    ngx_time_update();
    deadline = ngx_current_msec + msec;

    while (conn->c && conn->state == NGX_IDEMPOTENCY_POSTGRES_BUSY) {

        rc = PQflush(conn->pg);

        pfd.fd = PQsocket(conn->pg);
        pfd.events = POLLIN | (rc == 1 ? POLLOUT : 0);

        if (rc == -1
            || (ngx_msec_int_t) (deadline - ngx_current_msec) <= 0
            || (poll(&pfd, 1, (int) (deadline - ngx_current_msec)) == -1
                && errno != EINTR)
            || PQconsumeInput(conn->pg) != 1)
        {
            return;
        }

        ngx_time_update();

        result = ngx_idempotency_postgres_conn_results(conn);

        if (result == NGX_ERROR) {
            return;
        }

        if (result == NGX_OK) {
            conn->state = NGX_IDEMPOTENCY_POSTGRES_READY;
        }
    }
}


void
ngx_idempotency_postgres_conn_stop(ngx_idempotency_postgres_conn_t *conn)
{
    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    if (conn->c) {
        ngx_idempotency_postgres_conn_finish(conn);

    } else if (conn->pg) {

        /* made by a thread, and not taken over */

        PQfinish(conn->pg);
        conn->pg = NULL;
    }
}
