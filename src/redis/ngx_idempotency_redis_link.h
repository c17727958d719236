
/*
 * One connection, from inside: what the files about it share.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_LINK_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_LINK_H_INCLUDED_


#include "ngx_idempotency_redis_conn.h"


/* bytes of one read */
#define NGX_IDEMPOTENCY_REDIS_CHUNK          16384

/* kept by an output buffer that is empty */
#define NGX_IDEMPOTENCY_REDIS_KEEP           65536

/* what the log was told about an outage */
#define NGX_IDEMPOTENCY_REDIS_SAID_RESOLVE   0x0001
#define NGX_IDEMPOTENCY_REDIS_SAID_CONNECT   0x0002
#define NGX_IDEMPOTENCY_REDIS_SAID_TIMEOUT   0x0004
#define NGX_IDEMPOTENCY_REDIS_SAID_TLS       0x0008
#define NGX_IDEMPOTENCY_REDIS_SAID_PROTOCOL  0x0010
#define NGX_IDEMPOTENCY_REDIS_SAID_CLOSED    0x0020
#define NGX_IDEMPOTENCY_REDIS_SAID_LOST      0x0040
/* and, from here on, a bit for each error that Redis has a name for */
#define NGX_IDEMPOTENCY_REDIS_SAID_REFUSED   0x0100


/*
 * OFF         no socket, nothing is wrong: the next command dials
 * DOWN        the last round over all addresses failed; the timer of the
 *             back-off runs
 * RESOLVING   \
 * CONNECTING   a round; any failure is that of one address, a failure of all
 * HANDSHAKE    leads to DOWN
 * LOGIN       /
 * READY       commands flow; a loss leads to a new round, or to DOWN if the
 *             connection did not last
 */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_OFF = 0,
    NGX_IDEMPOTENCY_REDIS_DOWN,
    NGX_IDEMPOTENCY_REDIS_RESOLVING,
    NGX_IDEMPOTENCY_REDIS_CONNECTING,
    NGX_IDEMPOTENCY_REDIS_HANDSHAKE,
    NGX_IDEMPOTENCY_REDIS_LOGIN,
    NGX_IDEMPOTENCY_REDIS_READY
} ngx_idempotency_redis_state_e;


typedef struct {
    u_char                             *start;
    u_char                             *pos;
    u_char                             *last;
    u_char                             *end;
} ngx_idempotency_redis_bytes_t;


struct ngx_idempotency_redis_conn_s {
    ngx_idempotency_redis_t            *redis;
    ngx_idempotency_redis_state_e       state;

    /* changes whenever a socket is closed */
    ngx_uint_t                          generation;

    ngx_peer_connection_t               peer;
    ngx_log_t                           log;
    ngx_event_t                         timer;       /* of dialing, back-off */

    /* of the configuration, or as resolved later, in memory of "names" */
    ngx_addr_t                         *addrs;
    ngx_uint_t                          naddrs;
    ngx_uint_t                          addr;
    ngx_uint_t                          tried;
    ngx_pool_t                         *names;
    ngx_resolver_ctx_t                 *resolving;

    ngx_idempotency_redis_bytes_t       hello;
    ngx_uint_t                          answered;    /* of the login */
    ngx_uint_t                          failures;    /* rounds in a row */
    ngx_msec_t                          since;       /* ready */

    ngx_queue_t                         commands;
    ngx_uint_t                          ncommands;
    ngx_idempotency_redis_bytes_t       out;
    uint64_t                            appended;    /* to out */
    uint64_t                            written;     /* from out */
    ngx_event_t                         flush;
    ngx_event_t                         deadline;    /* of the first command */

    ngx_idempotency_redis_reader_t     *reader;
    u_char                             *in;

    ngx_queue_t                         lost;        /* will be told */
    ngx_event_t                         tell;

    /* what events of ours point to: nginx reads a descriptor there */
    ngx_connection_t                    dummy;

    unsigned                            dialed:1;
    unsigned                            refuses:1;   /* until it is ready */
};


/* conn: the life of a connection */

/* One address failed: closes, and tries the next one or backs off. */
void ngx_idempotency_redis_conn_down(ngx_idempotency_redis_conn_t *conn);
/* A connection that was ready is lost; the first command gets "error". */
void ngx_idempotency_redis_conn_lost(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error);
/* nginx set c->close: the worker is about to exit. */
void ngx_idempotency_redis_conn_retire(ngx_idempotency_redis_conn_t *conn);
/* Login is over. */
void ngx_idempotency_redis_conn_ready(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_conn_close(ngx_idempotency_redis_conn_t *conn);
/* Gives up all commands; their handlers are called from the event loop. */
void ngx_idempotency_redis_conn_drop(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error);


/* dial: from nothing to a socket */

void ngx_idempotency_redis_dial(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_dial_failed(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_dial_overdue(ngx_idempotency_redis_conn_t *conn);


#if (NGX_SSL)
void ngx_idempotency_redis_tls(ngx_idempotency_redis_conn_t *conn);
#endif


void ngx_idempotency_redis_login(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_login_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply);


/* pipe: commands out, replies in */

ngx_int_t ngx_idempotency_redis_pipe_push(ngx_idempotency_redis_conn_t *conn,
    ngx_str_t *bytes, ngx_idempotency_redis_cmd_t *cmd);
ngx_int_t ngx_idempotency_redis_pipe_append(
    ngx_idempotency_redis_bytes_t *to, u_char *data, size_t len);
void ngx_idempotency_redis_pipe_open(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_pipe_flush(ngx_event_t *ev);
void ngx_idempotency_redis_pipe_deadline(ngx_event_t *ev);
void ngx_idempotency_redis_pipe_clear(ngx_idempotency_redis_bytes_t *bytes,
    size_t keep);


/* report: one line for each kind of failure in an outage */

void ngx_idempotency_redis_report(ngx_idempotency_redis_conn_t *conn,
    ngx_uint_t kind, ngx_err_t err, const char *fmt, ...);
/* While an outage is known, nginx's own lines about it are kept back. */
void ngx_idempotency_redis_hush(ngx_idempotency_redis_conn_t *conn,
    ngx_uint_t hush);
u_char *ngx_idempotency_redis_log(ngx_log_t *log, u_char *buf, size_t len);


#endif /* _NGX_IDEMPOTENCY_REDIS_LINK_H_INCLUDED_ */
