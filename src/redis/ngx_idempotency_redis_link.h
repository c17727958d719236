
/*
 * Servers and connections, from inside: what the files about them share.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_LINK_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_LINK_H_INCLUDED_


#include "ngx_idempotency_redis_conn.h"


/* bytes of one read */
#define NGX_IDEMPOTENCY_REDIS_CHUNK          16384

/* milliseconds that a counter stays if nobody advances it: a day */
#define NGX_IDEMPOTENCY_REDIS_STAY           "86400000"

/* commands of a login */
#define NGX_IDEMPOTENCY_REDIS_STEPS          8

/* a node's name in a cluster, and how many replicas are remembered */
#define NGX_IDEMPOTENCY_REDIS_ID             40
#define NGX_IDEMPOTENCY_REDIS_REPLICAS       8

/* kept by an output buffer that is empty */
#define NGX_IDEMPOTENCY_REDIS_KEEP           65536

/* certificates between that of a server and one that is trusted */
#define NGX_IDEMPOTENCY_REDIS_VERIFY_DEPTH   5

/* what the log was told about an outage */
#define NGX_IDEMPOTENCY_REDIS_SAID_RESOLVE   0x0001
#define NGX_IDEMPOTENCY_REDIS_SAID_CONNECT   0x0002
#define NGX_IDEMPOTENCY_REDIS_SAID_TIMEOUT   0x0004
#define NGX_IDEMPOTENCY_REDIS_SAID_TLS       0x0008
#define NGX_IDEMPOTENCY_REDIS_SAID_PROTOCOL  0x0010
#define NGX_IDEMPOTENCY_REDIS_SAID_CLOSED    0x0020
#define NGX_IDEMPOTENCY_REDIS_SAID_LOST      0x0040
#define NGX_IDEMPOTENCY_REDIS_SAID_ROLE      0x0080
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


/* a copy: names are resolved again, and then have other addresses */

typedef struct {
    ngx_sockaddr_t                      sockaddr;
    socklen_t                           socklen;     /* 0: none */
    ngx_str_t                           name;
    u_char                              text[NGX_SOCKADDR_STRLEN];
} ngx_idempotency_redis_address_t;


/* of a login, in the order in which they are sent */

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


/* see loss */

typedef struct {
    ngx_queue_t                         queue;
    ngx_idempotency_redis_t            *redis;
    ngx_uint_t                          n;           /* of its name */
    ngx_str_t                           name;
    ngx_uint_t                          generation;  /* of its name */
    ngx_uint_t                          losses;      /* that were acted on */
    ngx_idempotency_redis_shard_t      *shard;

    ngx_idempotency_redis_cmd_t         tick;
    ngx_str_t                           args[2];
    ngx_idempotency_redis_known_t       before;      /* when it was sent */

    ngx_idempotency_redis_cmd_t         keep;
    ngx_str_t                           keep_args[3];

    ngx_idempotency_redis_cmd_t         watch;

    unsigned                            ticking:1;
    unsigned                            keeping:1;
    unsigned                            watching:1;
} ngx_idempotency_redis_counter_t;


struct ngx_idempotency_redis_detector_s {
    ngx_queue_t                         counters;
    ngx_event_t                         timer;

    ngx_idempotency_redis_cmd_t         lease;
    ngx_str_t                           lease_args[6];
    u_char                              lease_text[NGX_INT_T_LEN];
    ngx_str_t                           lease_key;

    unsigned                            leasing:1;
    unsigned                            full:1;      /* that was said */
};


/*
 * What a server is to us.  SERVER has records, and is listened to by its EAR;
 * a sentinel is asked on one connection and listened to on another, which can
 * do nothing else.
 */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_SERVER = 0,
    NGX_IDEMPOTENCY_REDIS_EAR,
    NGX_IDEMPOTENCY_REDIS_ASKED,
    NGX_IDEMPOTENCY_REDIS_HEARD
} ngx_idempotency_redis_kind_e;


/*
 * One server, and this worker's connections to it.  Its name may have several
 * addresses: one connection, the seeker, tries them and finds the server, and
 * all others follow it to the same address.
 */

struct ngx_idempotency_redis_node_s {
    ngx_queue_t                         queue;
    ngx_idempotency_redis_t            *redis;
    ngx_idempotency_redis_kind_e        kind;
    ngx_idempotency_redis_place_t       place;
    ngx_pool_t                         *pool;        /* of all of it */
    ngx_str_t                           name;        /* for logs */

    ngx_idempotency_redis_conn_t       *conns;
    ngx_uint_t                          nconns;
    ngx_uint_t                          next;

    /* see name */

    ngx_addr_t                         *addrs;       /* it may be there */
    ngx_uint_t                          naddrs;
    ngx_uint_t                          addr;        /* that is tried next */
    ngx_pool_t                         *names;       /* of addrs, or NULL */
    ngx_resolver_ctx_t                 *resolving;
    ngx_event_t                         check;       /* of its name */
    ngx_idempotency_redis_conn_t       *seeker;
    ngx_idempotency_redis_address_t     at;          /* where it answered */
    ngx_msec_t                          moved;       /* left that, then */

    ngx_uint_t                          failures;    /* of this outage */
    ngx_uint_t                          said;        /* what the log knows */

    ngx_idempotency_redis_counter_t    *counter;     /* NULL: none */
    ngx_idempotency_redis_hint_e        hint;        /* for the next login */
    u_char                              run_id[NGX_IDEMPOTENCY_REDIS_ID_LEN];
                                                     /* of the last login */
    ngx_uint_t                          info_closed; /* times, by INFO */

    /* in a cluster */

    u_char                              replicas
                                            [NGX_IDEMPOTENCY_REDIS_REPLICAS]
                                            [NGX_IDEMPOTENCY_REDIS_ID];
    ngx_uint_t                          nreplicas;
    ngx_msec_t                          used;
    ngx_msec_t                          refuses_until;  /* with its slots */

    /* see hear */

    ngx_idempotency_redis_node_t       *ear;         /* of a SERVER, or NULL */
    ngx_idempotency_redis_node_t       *server;      /* of an EAR, or NULL */
    ngx_msec_t                          pinged_at;
    ngx_msec_t                          since;       /* hears the news */

    unsigned                            warned:1;
    unsigned                            master:1;    /* has slots */
    unsigned                            dialed:1;
    unsigned                            unresolved:1;  /* at the last try */

    /* was left: another address is tried first; has not served since */

    unsigned                            left:1;
    unsigned                            moving:1;

    /* in a cluster: a connection was lost, and it has not served since */

    unsigned                            missed:1;

    unsigned                            pinged:1;    /* and not answered */
    unsigned                            plain:1;     /* not sharded */
    unsigned                            deaf:1;      /* we may not listen */
    unsigned                            sure:1;      /* hears the news */
};


/*
 * Which server has a key now, and what to do when it has not.  One server is
 * the simplest topology.
 */

struct ngx_idempotency_redis_topology_s {

    /* makes the first nodes; NGX_ERROR when memory is short */
    ngx_int_t                         (*start)(
                                         ngx_idempotency_redis_t *redis);
    void                              (*stop)(ngx_idempotency_redis_t *redis);

    /* NULL: not known.  With *hope it may be in a moment. */
    ngx_idempotency_redis_node_t     *(*pick)(ngx_idempotency_redis_t *redis,
                                         ngx_str_t *key, ngx_uint_t *hope);

    /*
     * A server answers.  NGX_OK: the command is taken care of, it was sent
     * elsewhere or waits; NGX_DECLINED: this is the reply.  "cmd" is NULL
     * for what was not asked for.
     */
    ngx_int_t                         (*reply)(
                                         ngx_idempotency_redis_conn_t *conn,
                                         ngx_idempotency_redis_cmd_t *cmd,
                                         ngx_idempotency_redis_reply_t *reply);

    /*
     * A connection is ready; is lost, or could not be made.  The latter may
     * be called from within send.
     */
    void                              (*ready)(
                                         ngx_idempotency_redis_node_t *node);
    void                              (*lost)(
                                         ngx_idempotency_redis_node_t *node);

    /*
     * The server of a part, as pick, and the number of the part behind it, or
     * 0.  NULL: there is one part, and pick will do.
     */
    ngx_idempotency_redis_node_t     *(*part)(ngx_idempotency_redis_t *redis,
                                         ngx_uint_t part, ngx_uint_t *hope);
    ngx_uint_t                        (*next)(ngx_idempotency_redis_t *redis,
                                         ngx_uint_t part);

    /* asked for its role, which must not be a replica's; or must be known */

    unsigned                            role:1;
    unsigned                            strict:1;

    unsigned                            slots:1;     /* on several nodes */
};


struct ngx_idempotency_redis_conn_s {
    ngx_idempotency_redis_t            *redis;
    ngx_idempotency_redis_node_t       *node;
    ngx_idempotency_redis_state_e       state;

    /* changes whenever a socket is closed */
    ngx_uint_t                          generation;

    ngx_peer_connection_t               peer;
    ngx_log_t                           log;
    ngx_event_t                         timer;       /* of dialing, back-off */

    ngx_idempotency_redis_address_t     at;
    ngx_uint_t                          tried;       /* addresses */

    ngx_idempotency_redis_bytes_t       hello;
    ngx_idempotency_redis_counter_t    *counter;
    ngx_idempotency_redis_known_t       before;      /* what it had */
    ngx_idempotency_redis_info_t        info;        /* of this login */
    ngx_msec_t                          hello_at;
    ngx_idempotency_redis_step_e        steps[NGX_IDEMPOTENCY_REDIS_STEPS];
    ngx_uint_t                          nsteps;      /* of the login */
    ngx_uint_t                          answered;    /* of these */
    ngx_uint_t                          failures;    /* rounds in a row */
    ngx_msec_t                          since;       /* ready */

    ngx_queue_t                         commands;
    ngx_uint_t                          ncommands;
    ngx_idempotency_redis_bytes_t       out;
    uint64_t                            appended;    /* to out */
    uint64_t                            written;     /* from out */
    ngx_event_t                         flush;
    ngx_event_t                         deadline;    /* of the first command */

    /* see ack */

    ngx_queue_t                         held;        /* have a reply */
    ngx_idempotency_redis_cmd_t         ack;         /* WAIT */
    ngx_idempotency_redis_cmd_t         sync;        /* WAITAOF */
    ngx_uint_t                          acking;      /* of these are sent */
    ngx_uint_t                          acks;        /* what they have said */
    ngx_uint_t                          synced;
    ngx_idempotency_redis_refusal_e     denied;
    uint64_t                            batch;       /* may be written */

    /* see secret */

    ngx_idempotency_redis_cmd_t         auth;
    ngx_uint_t                          secret;      /* version of the login */

    ngx_idempotency_redis_reader_t     *reader;
    u_char                             *in;

    ngx_queue_t                         lost;        /* will be told */
    ngx_event_t                         tell;

    /* what events of ours point to: nginx reads a descriptor there */
    ngx_connection_t                    dummy;

    unsigned                            replica:1;   /* said so at login */
    unsigned                            again:1;     /* was ready before */
    unsigned                            refuses:1;   /* until it is ready */
    unsigned                            unacked:1;   /* since the last WAIT */
    unsigned                            authing:1;   /* AUTH is sent */
};


/* route: from a command to a server */

/* The command was not executed: it is sent again in a moment, until its time
 * is over. */
void ngx_idempotency_redis_wait(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_cmd_t *cmd);
/* The topology has changed: what waits is sent. */
void ngx_idempotency_redis_changed(ngx_idempotency_redis_t *redis);


/* node: one server */

/* NULL when memory is short.  It is not connected yet. */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_node_create(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_place_t *place,
    ngx_idempotency_redis_kind_e kind);
/*
 * A server that another one told of, as text; "alias" is NULL, or a name that
 * it has besides.
 */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_node_told(
    ngx_idempotency_redis_t *redis, ngx_str_t *host, in_port_t port,
    ngx_str_t *alias, ngx_idempotency_redis_kind_e kind);
/* By the name it was told by, or the one address that it is known to have. */
ngx_uint_t ngx_idempotency_redis_node_is_at(
    ngx_idempotency_redis_node_t *node, ngx_str_t *host, in_port_t port);
ngx_uint_t ngx_idempotency_redis_node_is_addr(
    ngx_idempotency_redis_node_t *node, ngx_addr_t *addr);
/* It has this name, too; none is kept when memory is short. */
void ngx_idempotency_redis_node_alias(ngx_idempotency_redis_node_t *node,
    ngx_str_t *alias);
void ngx_idempotency_redis_node_dial(ngx_idempotency_redis_node_t *node);
/*
 * The node is a master.  A connection that was made before that was known, or
 * before its counter had another slot, has not asked for this counter: closes
 * it, and the next login asks.
 */
void ngx_idempotency_redis_node_login(ngx_idempotency_redis_node_t *node);
/* It has another role now: whatever connections it has begin anew. */
void ngx_idempotency_redis_node_log_out(ngx_idempotency_redis_node_t *node);
/*
 * The server is not the one to use any more: all connections leave it, and
 * its name, its other addresses and at last the same one are tried at once.
 */
void ngx_idempotency_redis_node_move(ngx_idempotency_redis_node_t *node);
/* It is on the move, and a command may wait until that is over. */
ngx_uint_t ngx_idempotency_redis_node_is_moving(
    ngx_idempotency_redis_node_t *node);
/* A connection of it that is ready; NULL: none. */
ngx_idempotency_redis_conn_t *ngx_idempotency_redis_node_ready(
    ngx_idempotency_redis_node_t *node);
/* NGX_AGAIN, or NGX_ERROR if it cannot be reached. */
ngx_int_t ngx_idempotency_redis_node_send(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_cmd_t *cmd);
ngx_uint_t ngx_idempotency_redis_node_is_up(
    ngx_idempotency_redis_node_t *node);
/* Closes its connections at once, and frees it when nobody needs it. */
void ngx_idempotency_redis_node_leave(ngx_idempotency_redis_node_t *node);
void ngx_idempotency_redis_node_free(ngx_idempotency_redis_node_t *node);


/* conn: the life of a connection */

/* moves it there, and in the counts */
void ngx_idempotency_redis_conn_state(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_state_e state);
ngx_int_t ngx_idempotency_redis_conn_init(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_node_t *node);
void ngx_idempotency_redis_conn_free(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_abandon(ngx_queue_t *commands);
/* Commands are refused: nobody waits longer than needed for the next try. */
void ngx_idempotency_redis_conn_hasten(ngx_idempotency_redis_conn_t *conn);
/* One address failed: closes, and tries the next one or backs off. */
void ngx_idempotency_redis_conn_down(ngx_idempotency_redis_conn_t *conn);
/* A connection that was ready is lost; the first command gets "error". */
void ngx_idempotency_redis_conn_lost(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_error_e error);
/* Has it lasted long enough for a loss to be no sign of trouble? */
ngx_uint_t ngx_idempotency_redis_conn_is_steady(
    ngx_idempotency_redis_conn_t *conn);
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
/* The name of its server was resolved, or was not. */
void ngx_idempotency_redis_dial_resolved(ngx_idempotency_redis_conn_t *conn);


/* name: the addresses of a server */

/*
 * NGX_AGAIN: the seeker, or nobody, will be told.  NGX_DECLINED: what is known
 * has to do.
 */
ngx_int_t ngx_idempotency_redis_name_resolve(
    ngx_idempotency_redis_node_t *node);
/* Which address is tried first. */
void ngx_idempotency_redis_name_first(ngx_idempotency_redis_node_t *node);
/* From now on the name is looked at now and then. */
void ngx_idempotency_redis_name_watch(ngx_idempotency_redis_node_t *node);
void ngx_idempotency_redis_name_stop(ngx_idempotency_redis_node_t *node);
void ngx_idempotency_redis_name_free(ngx_idempotency_redis_node_t *node);
void ngx_idempotency_redis_name_copy(ngx_idempotency_redis_address_t *to,
    struct sockaddr *sockaddr, socklen_t socklen);
/* The time that a resolver has. */
ngx_msec_t ngx_idempotency_redis_name_timeout(ngx_idempotency_redis_t *redis);


#if (NGX_SSL)
void ngx_idempotency_redis_tls(ngx_idempotency_redis_conn_t *conn);
/* Certificates as they are in their files now, for a new connection. */
void ngx_idempotency_redis_tls_renew(ngx_idempotency_redis_t *redis);
/* When these were changed; files that are not there have no time. */
void ngx_idempotency_redis_tls_stamps(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_stamp_t *stamps);
#endif


void ngx_idempotency_redis_login(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_login_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply);
/* The server has closed the connection before the login was over. */
void ngx_idempotency_redis_login_closed(ngx_idempotency_redis_conn_t *conn);


/* says: the errors of servers */

/*
 * Is it this error, from the server itself or, as Redis wrote it before 7.0,
 * from a command within a script?
 */
ngx_uint_t ngx_idempotency_redis_says(ngx_idempotency_redis_reply_t *reply,
    const char *word);
/*
 * Does it say that the server is a replica, or about to be one?  Then it has
 * not executed the command.
 */
ngx_uint_t ngx_idempotency_redis_says_no_master(
    ngx_idempotency_redis_reply_t *reply);


/* pipe: commands out, replies in */

/* "bytes" are the command, or cmd->begin. */
ngx_int_t ngx_idempotency_redis_pipe_push(ngx_idempotency_redis_conn_t *conn,
    ngx_str_t *bytes, ngx_idempotency_redis_cmd_t *cmd);
void ngx_idempotency_redis_pipe_open(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_pipe_flush(ngx_event_t *ev);
void ngx_idempotency_redis_pipe_deadline(ngx_event_t *ev);


/* bytes: on their way to a server */

ngx_int_t ngx_idempotency_redis_bytes_append(
    ngx_idempotency_redis_bytes_t *to, u_char *data, size_t len);
/* Room for so many bytes at to->last. */
ngx_int_t ngx_idempotency_redis_bytes_reserve(
    ngx_idempotency_redis_bytes_t *to, size_t len);
void ngx_idempotency_redis_bytes_clear(ngx_idempotency_redis_bytes_t *bytes,
    size_t keep);


/* ack: replicas and disks */

/* Decides what may be written now, with a WAIT behind it if need be. */
ngx_int_t ngx_idempotency_redis_ack_batch(ngx_idempotency_redis_conn_t *conn);
/* The reply is the command's, and is kept until the WAIT is answered. */
void ngx_idempotency_redis_ack_hold(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
void ngx_idempotency_redis_ack_told(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *ack, ngx_idempotency_redis_reply_t *reply);
void ngx_idempotency_redis_ack_drop(ngx_idempotency_redis_conn_t *conn);


/* stamp: whether a file has changed */

/* NGX_OK, or NGX_ERROR with an errno. */
ngx_int_t ngx_idempotency_redis_stamp(ngx_str_t *name,
    ngx_idempotency_redis_stamp_t *stamp);


/* secret: passwords in files, which change while connections are open */

void ngx_idempotency_redis_secret_start(ngx_idempotency_redis_t *redis);
void ngx_idempotency_redis_secret_stop(ngx_idempotency_redis_t *redis);
/* The account of a connection, with the password that its file has now. */
ngx_idempotency_redis_account_t *ngx_idempotency_redis_secret_login(
    ngx_idempotency_redis_conn_t *conn);
/* AUTH and its arguments, of which there are at most three; their number. */
ngx_uint_t ngx_idempotency_redis_secret_args(
    ngx_idempotency_redis_account_t *account, ngx_str_t *args);
/* The AUTH of a connection that was ready is answered. */
void ngx_idempotency_redis_secret_told(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply);


/* loss: does a server still know what it has acknowledged? */

/*
 * The name of a counter, with room for this many bytes at most.  Its slot in a
 * cluster depends on "n" only.
 */
#define ngx_idempotency_redis_loss_name_len(redis)                            \
    ((redis)->prefix.len + sizeof("counter:{:}:") + 16 + 2 * NGX_INT_T_LEN)
void ngx_idempotency_redis_loss_name(ngx_idempotency_redis_t *redis,
    ngx_uint_t n, ngx_uint_t generation, ngx_str_t *name);
/* The node carries this counter from now on. */
void ngx_idempotency_redis_loss_count(ngx_idempotency_redis_node_t *node,
    ngx_uint_t n);
/* The counter is about to be advanced: "before" is what is known of it. */
void ngx_idempotency_redis_loss_know(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_counter_t *counter,
    ngx_idempotency_redis_known_t *before);
/*
 * A login is over, this is what its counter says.  NGX_OK; NGX_AGAIN: a loss
 * was seen, the login has to begin anew; NGX_ERROR: not this time.
 */
ngx_int_t ngx_idempotency_redis_loss_login(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply);
/* The counter was advanced to this value; and this is what its server says. */
void ngx_idempotency_redis_loss_value(
    ngx_idempotency_redis_counter_t *counter, uint64_t value);
void ngx_idempotency_redis_loss_info(ngx_idempotency_redis_counter_t *counter,
    ngx_idempotency_redis_info_t *info);


/* tick: what is asked of servers now and then */

ngx_int_t ngx_idempotency_redis_tick_start(ngx_idempotency_redis_t *redis);
void ngx_idempotency_redis_tick_stop(ngx_idempotency_redis_t *redis);
/* Not later than now: a loss was seen. */
void ngx_idempotency_redis_tick_soon(ngx_idempotency_redis_t *redis);


/* hear: channels */

ngx_int_t ngx_idempotency_redis_hear_start(ngx_idempotency_redis_t *redis);
void ngx_idempotency_redis_hear_stop(ngx_idempotency_redis_t *redis);
/* Does anybody listen? */
ngx_uint_t ngx_idempotency_redis_hear_is_wanted(
    ngx_idempotency_redis_t *redis);
/* The connection of an ear is ready, was closed, has something to say. */
void ngx_idempotency_redis_hear_ready(ngx_idempotency_redis_node_t *ear);
void ngx_idempotency_redis_hear_closed(ngx_idempotency_redis_node_t *ear);
void ngx_idempotency_redis_hear_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply);
/* A server leaves, and its ear with it. */
void ngx_idempotency_redis_hear_leave(ngx_idempotency_redis_node_t *node);
/* The ear of a server, which is dialed if need be; NULL: memory is short. */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_hear_ear(
    ngx_idempotency_redis_node_t *node);


/* news: one channel of all servers */

/* All servers have ears, if anybody wants to hear it. */
void ngx_idempotency_redis_news_dial(ngx_idempotency_redis_t *redis);
/* It is open, or closed, or this is a message. */
void ngx_idempotency_redis_news_reply(ngx_idempotency_redis_node_t *ear,
    ngx_str_t *word);


/* report: one line for each kind of failure in an outage */

void ngx_idempotency_redis_report(ngx_idempotency_redis_conn_t *conn,
    ngx_uint_t kind, ngx_err_t err, const char *fmt, ...);
/* How loud this may be said of a server, at most "level". */
ngx_uint_t ngx_idempotency_redis_report_level(
    ngx_idempotency_redis_node_t *node, ngx_uint_t level);
/* While an outage is known, nginx's own lines about it are kept back. */
void ngx_idempotency_redis_hush(ngx_idempotency_redis_conn_t *conn,
    ngx_uint_t hush);
u_char *ngx_idempotency_redis_log(ngx_log_t *log, u_char *buf, size_t len);


#endif /* _NGX_IDEMPOTENCY_REDIS_LINK_H_INCLUDED_ */
