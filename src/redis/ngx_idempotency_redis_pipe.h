
/*
 * Commands and replies on the socket of a connection.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_PIPE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_PIPE_H_INCLUDED_


#include "ngx_idempotency_redis_conn.h"


/* bytes that an empty output buffer keeps */
#define NGX_IDEMPOTENCY_REDIS_KEEP  65536


/* What the owner of the socket, conn, is told. */

struct ngx_idempotency_redis_pipe_events_s {

    /* As that of a connection; during the login without "cmd". */
    ngx_int_t                         (*on_reply)(
                                         ngx_idempotency_redis_conn_t *conn,
                                         ngx_idempotency_redis_cmd_t *cmd,
                                         ngx_idempotency_redis_reply_t *reply);

    void                              (*on_closed)(
                                         ngx_idempotency_redis_conn_t *conn,
                                         ngx_err_t err);
    /* What came is not RESP, or was not asked for. */
    void                              (*on_broken)(
                                         ngx_idempotency_redis_conn_t *conn,
                                         const char *what);
    /* nginx has set c->close: the worker is about to exit. */
    void                              (*on_retired)(
                                         ngx_idempotency_redis_conn_t *conn);
};


/* queue: what is to be written, and waits for its reply */

void ngx_idempotency_redis_queue_init(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_queue_free(ngx_idempotency_redis_conn_t *conn);

/* NGX_ERROR: too much is waiting, or memory is short. */
ngx_int_t ngx_idempotency_redis_queue_push(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd);
/* The same for what has no reply of its own. */
void ngx_idempotency_redis_queue_say(ngx_idempotency_redis_conn_t *conn,
    ngx_str_t *args, ngx_uint_t n);
/* Gives up all commands; handlers are called from the event loop. */
void ngx_idempotency_redis_queue_drop(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error);
/* The command that has the least time left; those with none get "more". */
ngx_msec_int_t ngx_idempotency_redis_queue_left(
    ngx_idempotency_redis_conn_t *conn, ngx_msec_t more);
/* The worker exits: no handlers are called. */
void ngx_idempotency_redis_queue_abandon(ngx_queue_t *commands);

ngx_int_t ngx_idempotency_redis_bytes_append(ngx_idempotency_redis_bytes_t *to,
    u_char *data, size_t len);
/* Empties it, and frees its memory if that is more than "keep". */
void ngx_idempotency_redis_bytes_clear(ngx_idempotency_redis_bytes_t *bytes,
    size_t keep);


/* ack: WAIT and WAITAOF */

/* Decides what may be written now, with a WAIT behind it if need be. */
ngx_int_t ngx_idempotency_redis_ack_batch(ngx_idempotency_redis_conn_t *conn);
/* The reply is the command's, and is kept until the WAIT is answered. */
void ngx_idempotency_redis_ack_hold(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
void ngx_idempotency_redis_ack_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *ack, ngx_idempotency_redis_reply_t *reply);
/* The connection is lost: commands with a reply are among conn->lost then. */
void ngx_idempotency_redis_ack_drop(ngx_idempotency_redis_conn_t *conn);


/* pipe: reads and writes */

ngx_int_t ngx_idempotency_redis_pipe_init(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_pipe_events_t *events);
void ngx_idempotency_redis_pipe_free(ngx_idempotency_redis_conn_t *conn);
/* The socket is connected: writes the login, and reads. */
ngx_int_t ngx_idempotency_redis_pipe_open(ngx_idempotency_redis_conn_t *conn);
/* The socket is about to be closed. */
void ngx_idempotency_redis_pipe_close(ngx_idempotency_redis_conn_t *conn);


#endif /* _NGX_IDEMPOTENCY_REDIS_PIPE_H_INCLUDED_ */
