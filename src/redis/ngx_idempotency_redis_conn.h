
/*
 * One connection: its life from an address to a lost socket.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_CONN_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_CONN_H_INCLUDED_


#include <ngx_event_connect.h>
#include "ngx_idempotency_redis_cmd.h"
#include "ngx_idempotency_redis_conf.h"
#include "ngx_idempotency_redis_loss.h"


/* commands of a login */
#define NGX_IDEMPOTENCY_REDIS_STEPS            8

/* what was logged in this outage of a node */
#define NGX_IDEMPOTENCY_REDIS_REPORT_RESOLVE   0x0001
#define NGX_IDEMPOTENCY_REDIS_REPORT_CONNECT   0x0002
#define NGX_IDEMPOTENCY_REDIS_REPORT_TIMEOUT   0x0004
#define NGX_IDEMPOTENCY_REDIS_REPORT_TLS       0x0008
#define NGX_IDEMPOTENCY_REDIS_REPORT_PROTOCOL  0x0010
#define NGX_IDEMPOTENCY_REDIS_REPORT_CLOSED    0x0020
#define NGX_IDEMPOTENCY_REDIS_REPORT_LOST      0x0040
#define NGX_IDEMPOTENCY_REDIS_REPORT_ROLE      0x0080
/* and, from here on, a bit for each error that Redis has a name for */
#define NGX_IDEMPOTENCY_REDIS_REPORT_REFUSED   0x0100

/* what is likely wrong with a handshake */
#define NGX_IDEMPOTENCY_REDIS_NO_TLS                                          \
    "(a port without TLS needs \"redis://\" instead of \"rediss://\")"


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


/*
 * What a node is used for: DATA has records, SENTINEL knows the master.  Each
 * of them has another node for subscriptions, since a connection that has
 * subscribed can do nothing else: SUBSCRIBER and SENTINEL_EVENTS.
 */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_KIND_DATA = 0,
    NGX_IDEMPOTENCY_REDIS_KIND_SUBSCRIBER,
    NGX_IDEMPOTENCY_REDIS_KIND_SENTINEL,
    NGX_IDEMPOTENCY_REDIS_KIND_SENTINEL_EVENTS
} ngx_idempotency_redis_kind_e;


typedef struct {
    u_char                             *start;
    u_char                             *pos;
    u_char                             *last;
    u_char                             *end;
} ngx_idempotency_redis_bytes_t;


/* a copy: when a name is resolved again it has other addresses */

typedef struct {
    ngx_sockaddr_t                      sockaddr;
    socklen_t                           socklen;     /* 0: none */
    ngx_str_t                           name;
    u_char                              text[NGX_SOCKADDR_STRLEN];
} ngx_idempotency_redis_address_t;


/* the commands of a login, in the order in which they are sent */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_STEP_AUTH = 0,
    NGX_IDEMPOTENCY_REDIS_STEP_SELECT,
    NGX_IDEMPOTENCY_REDIS_STEP_ROLE,
    NGX_IDEMPOTENCY_REDIS_STEP_PING,
    NGX_IDEMPOTENCY_REDIS_STEP_INFO,
    NGX_IDEMPOTENCY_REDIS_STEP_TIME,
    NGX_IDEMPOTENCY_REDIS_STEP_INCR,
    NGX_IDEMPOTENCY_REDIS_STEP_PEXPIRE,
    NGX_IDEMPOTENCY_REDIS_STEP_SUBSCRIBE
} ngx_idempotency_redis_step_e;


/* What all connections of a node share; it is part of the node. */

typedef struct {
    ngx_idempotency_redis_kind_e        kind;
    ngx_idempotency_redis_host_t        host;
    ngx_str_t                           name;        /* for logs */

    ngx_idempotency_redis_counter_t    *counter;     /* NULL: none */
    ngx_idempotency_redis_hint_e        hint;        /* for the next login */

    ngx_uint_t                          failures;    /* of this outage */
    ngx_uint_t                          reported;    /* REPORT_... bits */
    ngx_uint_t                          info_closed; /* the server has closed
                                                        the connection at INFO,
                                                        so many times */

    /* the login asks for its role, which must not be a replica's; and must be
     * known */

    unsigned                            role:1;
    unsigned                            strict:1;
} ngx_idempotency_redis_peer_t;


typedef struct ngx_idempotency_redis_conn_s  ngx_idempotency_redis_conn_t;
typedef struct ngx_idempotency_redis_node_s  ngx_idempotency_redis_node_t;
typedef struct ngx_idempotency_redis_pipe_events_s
    ngx_idempotency_redis_pipe_events_t;


/*
 * What the owner of a connection, a node, is told and asked; its own owner has
 * given it those that take a node.
 */

typedef struct {

    /* A round begins: connect to some address. */
    void                              (*on_dial)(
                                         ngx_idempotency_redis_conn_t *conn);

    /* It has failed at one address: try another one, or call conn_down. */
    void                              (*on_failed)(
                                         ngx_idempotency_redis_conn_t *conn);

    /* The login is over. */
    void                              (*on_ready)(
                                         ngx_idempotency_redis_conn_t *conn);

    /* It is closed because nginx wants that, or its node. */
    void                              (*on_retired)(
                                         ngx_idempotency_redis_conn_t *conn);

    /*
     * A reply.  NGX_OK: the command is taken care of; NGX_DECLINED: its
     * handler is to be called.  "cmd" is NULL for what was not asked for.
     * Or NULL.
     */
    ngx_int_t                         (*on_reply)(
                                         ngx_idempotency_redis_node_t *node,
                                         ngx_idempotency_redis_cmd_t *cmd,
                                         ngx_idempotency_redis_reply_t *reply);

    /* A socket is closed.  Or NULL. */
    void                              (*on_closed)(
                                         ngx_idempotency_redis_node_t *node);

    /*
     * A connection that was ready is lost, or a round has failed.  May be
     * called from within send.  Or NULL.
     */
    void                              (*on_lost)(
                                         ngx_idempotency_redis_node_t *node);

    /* Is another socket needed when this one is lost?  NULL: always. */
    ngx_uint_t                        (*is_wanted)(
                                         ngx_idempotency_redis_node_t *node);
} ngx_idempotency_redis_conn_events_t;


struct ngx_idempotency_redis_conn_s {
    ngx_idempotency_redis_t            *redis;
    ngx_idempotency_redis_peer_t       *peer;
    ngx_idempotency_redis_conn_events_t  *events;
    ngx_idempotency_redis_node_t       *node;        /* the owner */
    ngx_idempotency_redis_state_e       state;

    /* changes whenever a socket is closed */
    ngx_uint_t                          generation;

    ngx_peer_connection_t               pc;
    ngx_log_t                           log;
    ngx_event_t                         timer;       /* of a round; back-off */

    ngx_idempotency_redis_address_t     at;
    ngx_uint_t                          tried;       /* addresses */

    ngx_idempotency_redis_bytes_t       hello;       /* the login as bytes */
    ngx_idempotency_redis_login_t       login;
    ngx_idempotency_redis_step_e        steps[NGX_IDEMPOTENCY_REDIS_STEPS];
    ngx_uint_t                          nsteps;
    ngx_uint_t                          answered;    /* of these */
    ngx_uint_t                          failures;    /* rounds in a row */
    ngx_msec_t                          since;       /* ready */

    /* see queue */

    ngx_queue_t                         commands;
    ngx_uint_t                          ncommands;
    ngx_idempotency_redis_bytes_t       out;
    uint64_t                            appended;    /* to out */
    uint64_t                            written;     /* from out */
    ngx_event_t                         flush;
    ngx_event_t                         deadline;    /* of the first command */
    ngx_queue_t                         lost;        /* commands; handlers will
                                                        be called */
    ngx_event_t                         notify;      /* calls these */

    /* see ack */

    ngx_queue_t                         held;        /* have a reply */
    ngx_idempotency_redis_cmd_t         ack;         /* WAIT */
    ngx_idempotency_redis_cmd_t         sync;        /* WAITAOF */
    ngx_uint_t                          acking;      /* of these are sent */
    ngx_uint_t                          acks;        /* their replies */
    ngx_uint_t                          synced;
    ngx_idempotency_redis_refusal_e     ack_refusal;
    uint64_t                            batch;       /* may be written */

    /* see credentials */

    ngx_idempotency_redis_cmd_t         auth;
    ngx_uint_t                          password;    /* version of it */

    /* see pipe */

    ngx_idempotency_redis_pipe_events_t  *pipe;
    ngx_idempotency_redis_reader_t     *reader;
    u_char                             *in;

    /* events of ours point to it: nginx reads a descriptor there */
    ngx_connection_t                    dummy;

    unsigned                            replica:1;   /* said so at login */
    unsigned                            unsaid:1;    /* hello has no memory */
    unsigned                            again:1;     /* was ready before */
    unsigned                            refuses:1;   /* until it is ready */
    unsigned                            unacked:1;   /* since the last WAIT */
    unsigned                            authing:1;   /* AUTH is sent */
};


/* NGX_OK, or NGX_ERROR when memory is short. */
ngx_int_t ngx_idempotency_redis_conn_init(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_peer_t *peer,
    ngx_idempotency_redis_conn_events_t *events,
    ngx_idempotency_redis_node_t *node);
void ngx_idempotency_redis_conn_free(ngx_idempotency_redis_conn_t *conn);

void ngx_idempotency_redis_conn_state(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_state_e state);

/* To conn->at.  NGX_OK: it is under way; NGX_ERROR. */
ngx_int_t ngx_idempotency_redis_conn_connect(
    ngx_idempotency_redis_conn_t *conn);

/* Closes the socket, if there is one; the commands stay. */
void ngx_idempotency_redis_conn_close(ngx_idempotency_redis_conn_t *conn);
/* Closes, gives up all commands; handlers are called from the event loop. */
void ngx_idempotency_redis_conn_reset(ngx_idempotency_redis_conn_t *conn);
/* A connection that was ready is lost; the first command gets "error". */
void ngx_idempotency_redis_conn_lost(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error);
/* A round has failed: the next one begins after a while. */
void ngx_idempotency_redis_conn_down(ngx_idempotency_redis_conn_t *conn);
/* Commands are refused until the next round: it begins soon. */
void ngx_idempotency_redis_conn_hasten(ngx_idempotency_redis_conn_t *conn);
/* Resets it; the next command dials, if nginx does not exit at once. */
void ngx_idempotency_redis_conn_retire(ngx_idempotency_redis_conn_t *conn);
/* Resets it for good. */
void ngx_idempotency_redis_conn_end(ngx_idempotency_redis_conn_t *conn);

/* Has it lasted long enough for a loss to be no sign of trouble? */
ngx_uint_t ngx_idempotency_redis_conn_is_steady(
    ngx_idempotency_redis_conn_t *conn);


/* report: one line for each kind of failure in an outage */

void ngx_idempotency_redis_report(ngx_idempotency_redis_conn_t *conn,
    ngx_uint_t kind, ngx_err_t err, const char *fmt, ...);
/* The level for a line about the node, at most "level". */
ngx_uint_t ngx_idempotency_redis_report_level(
    ngx_idempotency_redis_peer_t *peer, ngx_uint_t level);
/* While an outage is known, nginx's own lines about it are kept back. */
void ngx_idempotency_redis_report_hush(ngx_idempotency_redis_conn_t *conn,
    ngx_uint_t hush);
u_char *ngx_idempotency_redis_report_log(ngx_log_t *log, u_char *buf,
    size_t len);


#endif /* _NGX_IDEMPOTENCY_REDIS_CONN_H_INCLUDED_ */
