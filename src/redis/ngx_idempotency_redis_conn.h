
/*
 * Redis as one worker reaches it, one server or many: persistent, pipelined
 * connections that all requests share.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_CONN_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_CONN_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_event_connect.h>
#include "ngx_idempotency_redis_counts.h"
#include "ngx_idempotency_redis_info.h"
#include "ngx_idempotency_redis_proto.h"
#include "ngx_idempotency_redis_refusal.h"


/* a cluster has fewer masters */
#define NGX_IDEMPOTENCY_REDIS_SHARDS  1024


typedef struct ngx_idempotency_redis_s           ngx_idempotency_redis_t;
typedef struct ngx_idempotency_redis_node_s      ngx_idempotency_redis_node_t;
typedef struct ngx_idempotency_redis_conn_s      ngx_idempotency_redis_conn_t;
typedef struct ngx_idempotency_redis_cmd_s       ngx_idempotency_redis_cmd_t;
typedef struct ngx_idempotency_redis_shard_s     ngx_idempotency_redis_shard_t;
typedef struct ngx_idempotency_redis_detector_s
    ngx_idempotency_redis_detector_t;
typedef struct ngx_idempotency_redis_hear_s      ngx_idempotency_redis_hear_t;
typedef struct ngx_idempotency_redis_sub_s       ngx_idempotency_redis_sub_t;
typedef struct ngx_idempotency_redis_topology_s
    ngx_idempotency_redis_topology_t;

typedef void (*ngx_idempotency_redis_handler_pt)(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
typedef void (*ngx_idempotency_redis_abandon_pt)(
    ngx_idempotency_redis_cmd_t *cmd);
typedef void (*ngx_idempotency_redis_ready_pt)(ngx_idempotency_redis_t *redis);
typedef void (*ngx_idempotency_redis_forgot_pt)(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_shard_t *shard,
    const char *how);
typedef void (*ngx_idempotency_redis_sub_pt)(ngx_idempotency_redis_sub_t *sub);


/* bytes of the largest argument that is sent; others have some room more */
#define NGX_IDEMPOTENCY_REDIS_LARGEST  (64 * 1024 * 1024)


typedef enum {
    NGX_IDEMPOTENCY_REDIS_FINE = 0,
    NGX_IDEMPOTENCY_REDIS_CONNECT,    /* no connection, or it was lost */
    NGX_IDEMPOTENCY_REDIS_TIMEOUT,    /* no reply in time */
    NGX_IDEMPOTENCY_REDIS_PROTOCOL,   /* what came back is not RESP */
    NGX_IDEMPOTENCY_REDIS_REFUSED     /* the server answered with an error */
} ngx_idempotency_redis_error_e;


/*
 * One command in flight.  Its memory is the caller's until the handler is
 * called, once, never from within send, and so is that of its arguments: it
 * may have to be sent to another server.  "reply" is NULL when none will come
 * and cmd->error says why; the reply is freed after the handler returns.
 * cmd->handler may be set to NULL: nobody waits any more.  Without a reply,
 * cmd->sent tells whether a server may have seen the command: 0 means that
 * it was never executed; and cmd->stuck that its connection was up and timed
 * out, because of this command or another one.  With cmd->wait, and
 * "replicas" or "fsync" configured, the handler is called when these have the
 * command too, or their time is over: cmd->acks tells how many replicas have
 * it, cmd->synced how many servers on disk, and cmd->refusal whether the
 * server could not be asked, see ngx_idempotency_redis_is_acked().  A worker
 * that exits calls no handler but, where there is one, "abandon": nobody sees
 * the command again.
 */

struct ngx_idempotency_redis_cmd_s {
    ngx_queue_t                         queue;
    ngx_str_t                          *args;
    ngx_uint_t                          nargs;
    ngx_str_t                          *begin;   /* NULL, or args encoded */
    ngx_uint_t                          nbegin;  /* of them */
    ngx_str_t                          *key;     /* NULL: any server will do */
    ngx_uint_t                          part;    /* not 0: instead of a key */
    ngx_msec_t                          within;  /* 0: the store's timeout */
    ngx_msec_t                          deadline;
    ngx_msec_t                          until;   /* on whatever servers */
    ngx_idempotency_redis_handler_pt    handler;
    ngx_idempotency_redis_abandon_pt    abandon;
    void                               *data;
    ngx_idempotency_redis_error_e       error;
    ngx_idempotency_redis_refusal_e     refusal; /* the error it got last */
    ngx_idempotency_redis_shard_t      *shard;   /* that replied, or NULL */
    ngx_msec_t                          pushed;  /* when it was */
    uint64_t                            end;     /* in the bytes to send */
    ngx_uint_t                          moves;   /* from server to server */
    ngx_idempotency_redis_reply_t      *reply;   /* until replicas have it */
    ngx_uint_t                          acks;    /* of replicas */
    ngx_uint_t                          synced;  /* servers, on disk */
    unsigned                            wait:1;  /* for these */
    unsigned                            tick:1;  /* of a counter */
    unsigned                            sent:1;
    unsigned                            stuck:1;
    unsigned                            skip:1;  /* a reply comes before */
};


/*
 * Somebody who listens to a channel, which is named as the key it is about.
 * Its memory and that of the name are the caller's.  The handler is called
 * for each message, and when something may have been missed: the channel is
 * open now, or again.  It may not end its own listening.
 */

struct ngx_idempotency_redis_sub_s {
    ngx_str_node_t                      channel;
    ngx_idempotency_redis_sub_pt        handler;
    void                               *data;
    ngx_idempotency_redis_node_t       *ear;     /* was asked, or NULL */
    unsigned                            sure:1;  /* and has said yes */
};


/*
 * Where a server is.  Its certificate may be for the host, or for one of two
 * other names: "alias", which the server itself announces beside its address,
 * and "seed", the name in the target which led to this address.
 */

typedef struct {
    ngx_str_t                           host;        /* empty: unix socket */
    ngx_str_t                           alias;
    ngx_str_t                           seed;
    in_port_t                           port;
    ngx_addr_t                         *addrs;       /* as known at first */
    ngx_uint_t                          naddrs;
    time_t                              resolved;    /* these, and when */
    ngx_uint_t                          named;       /* host is no address */
} ngx_idempotency_redis_place_t;


/* of a file: another one, or one that was written to, has another */

typedef struct {
    ngx_file_uniq_t                     uniq;
    off_t                               size;
    time_t                              mtime;
    ngx_uint_t                          nsec;
} ngx_idempotency_redis_stamp_t;


/*
 * Who we are.  With a file each worker has the password that it has read last,
 * see secret; "version" changes with it.
 */

typedef struct {
    ngx_str_t                           user;
    ngx_str_t                           password;
    ngx_str_t                           password_file;
    ngx_idempotency_redis_stamp_t       stamp;       /* when it was read */
    ngx_uint_t                          version;
    ngx_uint_t                          warned;
} ngx_idempotency_redis_account_t;


/* of a counter: what is known of it, and was when it was advanced */

typedef struct {
    uint64_t                            seen;        /* was acknowledged */
    ngx_uint_t                          losses;      /* so far; each gives the
                                                        counter a new name */
} ngx_idempotency_redis_known_t;


/*
 * What all workers know of the keys that one master has: of the only one, of
 * the one that sentinels name, or of one in a cluster.  The server may change,
 * the shard stays.
 */

struct ngx_idempotency_redis_shard_s {
    ngx_uint_t                          number;      /* of its name, plus 1 */

    ngx_idempotency_redis_known_t       known;
    ngx_msec_t                          told;        /* when it was seen */
    ngx_msec_t                          ticked;      /* when it was advanced */
    ngx_atomic_t                        used;        /* written to since */

    ngx_idempotency_redis_identity_t    server;      /* of the last login */
    ngx_uint_t                          identified;  /* it is set */
    ngx_idempotency_redis_identity_t    left;        /* the one before */
    ngx_msec_t                          left_at;     /* 0: there was none */

    int64_t                             clock;       /* the server's time less
                                                        ours, milliseconds */
    ngx_atomic_t                        timed;       /* it is set */

    ngx_msec_t                          watched;     /* when INFO was asked */
    uint64_t                            evicted;     /* keys, by that server */
    ngx_atomic_t                        evicts;      /* it may */

    ngx_atomic_t                        unproven;    /* a server took no tick
                                                        at its login */

    ngx_atomic_t                        until;       /* no new claims; 0: that
                                                        is over */
};


/*
 * What all workers know of a store, before and after a reload, in shared
 * memory: under its mutex, but for what is atomic.
 */

typedef struct {
    u_char                              id[8];       /* of its counters */
    ngx_uint_t                          named;       /* it has one */
    ngx_atomic_t                        losses;      /* so far */
    ngx_atomic_t                        lease;       /* the longest that any
                                                        gateway uses there */
    ngx_msec_t                          lease_asked;
    ngx_atomic_t                        lease_asks;
    ngx_atomic_t                        said;        /* once for all workers */

    /* the master that sentinels have named, see quorum */

    ngx_atomic_t                        followed;    /* changes; 0: none yet */
    int64_t                             epoch;
    u_char                              master[256];
    size_t                              master_len;
    in_port_t                           master_port;

    ngx_idempotency_redis_shard_t       shards[NGX_IDEMPOTENCY_REDIS_SHARDS];
} ngx_idempotency_redis_shared_t;


/*
 * What the configuration says, and what this worker has of it.  Set by the
 * configuration: everything down to "data".
 */

struct ngx_idempotency_redis_s {
    ngx_str_t                           name;        /* of the store */

    ngx_str_t                           prefix;      /* of all its keys */

    ngx_idempotency_redis_topology_t   *topology;
    ngx_array_t                         places;      /* of its target */

    ngx_str_t                           master;      /* as sentinels call it */

    ngx_idempotency_redis_account_t     account;
    ngx_idempotency_redis_account_t     sentinel;    /* for the sentinels */
    ngx_uint_t                          database;

    ngx_msec_t                          connect_timeout;
    ngx_msec_t                          timeout;
    ngx_uint_t                          connections;

    ngx_uint_t                          replicas;    /* to acknowledge */
    ngx_msec_t                          replicas_wait;
    ngx_uint_t                          fsync;       /* servers with a disk */
    ngx_msec_t                          fsync_wait;
    ngx_msec_t                          amnesia;     /* no new claims for; or
                                                        unset: see lease */
    ngx_msec_t                          lease;       /* the longest of ours */
    ngx_uint_t                          evictable;   /* keys may be evicted */
    ngx_shm_zone_t                     *zone;        /* has what is shared */

    ngx_resolver_t                     *resolver;    /* NULL: addrs stay */
    ngx_msec_t                          resolver_timeout;

    ngx_uint_t                          tls;
#if (NGX_SSL)
    ngx_ssl_t                          *ssl;         /* NULL: plain */
    ngx_str_t                           ssl_name;    /* empty: the host */
    ngx_str_t                           ssl_trusted_certificate;
    ngx_str_t                           ssl_certificate;
    ngx_str_t                           ssl_certificate_key;
    ngx_flag_t                          ssl_verify;
    ngx_idempotency_redis_stamp_t       ssl_stamps[3];  /* of these files */
    ngx_uint_t                          ssl_warned;
#endif

    /* a connection became ready: what waited may be sent now; not called
     * from within send */

    ngx_idempotency_redis_ready_pt      ready;

    /* what was acknowledged may be gone; before anything else is sent to the
     * server that has lost it, if that can be */

    ngx_idempotency_redis_forgot_pt     forgot;

    /* the same, seen by any worker: whoever runs should say so at once */

    ngx_idempotency_redis_ready_pt      renew;

    /* a channel of all servers, empty: none; somebody has used it */

    ngx_str_t                           news;
    ngx_idempotency_redis_ready_pt      told;
    void                               *data;

    /* of this worker */

    ngx_idempotency_redis_counts_t     *counts;      /* set before start */
    ngx_idempotency_redis_now_t        *now;
    ngx_idempotency_redis_detector_t   *detector;
    ngx_idempotency_redis_hear_t       *hear;
    ngx_event_t                         secrets;     /* looks at files */

    ngx_queue_t                         nodes;
    ngx_queue_t                         ears;        /* nodes, too */
    ngx_queue_t                         gone;        /* nodes to be freed */
    ngx_queue_t                         waiting;     /* commands */
    ngx_event_t                         again;       /* for these */
    ngx_connection_t                    dummy;
    void                               *map;         /* of the topology */

    /* why the last login was refused, NONE as soon as one succeeds */

    ngx_idempotency_redis_refusal_e     refusal;

    /* the last error of WAIT or WAITAOF that was logged */

    ngx_idempotency_redis_refusal_e     denied;

    unsigned                            started:1;
};


/* are commands to be acknowledged at all, and is this one? */

#define ngx_idempotency_redis_acks(redis)                                     \
    ((redis)->replicas || (redis)->fsync)

#define ngx_idempotency_redis_is_acked(redis, cmd)                            \
    ((cmd)->acks >= (redis)->replicas && (cmd)->synced >= (redis)->fsync)


/*
 * Connects this worker; later commands connect by themselves.  NGX_ERROR
 * when memory is short.
 */
ngx_int_t ngx_idempotency_redis_start(ngx_idempotency_redis_t *redis);

/* Closes everything at once: the worker exits. */
void ngx_idempotency_redis_stop(ngx_idempotency_redis_t *redis);

/*
 * Sends a command, its args, nargs, key, handler and data set, to the server
 * that has the key.  All commands of one turn of the event loop leave in one
 * write.  NGX_AGAIN: the handler will be called.  NGX_ERROR: no connection is
 * up or about to be for the first time: refused at once, the handler is not
 * called.
 */
ngx_int_t ngx_idempotency_redis_send(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_cmd_t *cmd);

/*
 * The keys are on several servers of a cluster, and otherwise on one: each is
 * a part.  They are numbered from 1 on, with gaps; 0: there is none behind it.
 */
ngx_uint_t ngx_idempotency_redis_next_part(ngx_idempotency_redis_t *redis,
    ngx_uint_t part);

/*
 * Listens from now on, as soon as the server that has the key says so.
 * NGX_OK, or NGX_DECLINED: there are too many.
 */
ngx_int_t ngx_idempotency_redis_listen(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub);
void ngx_idempotency_redis_unlisten(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub);

/*
 * NGX_OK: whatever is said in redis->news is heard, "since" then; or
 * NGX_DECLINED.
 */
ngx_int_t ngx_idempotency_redis_hears(ngx_idempotency_redis_t *redis,
    ngx_msec_t *since);

/*
 * A reply made no sense to who had asked: replies may be out of step, so all
 * connections are closed and made anew.  May be called from a handler.
 */
void ngx_idempotency_redis_distrust(ngx_idempotency_redis_t *redis);

/* Is a connection up? */
ngx_uint_t ngx_idempotency_redis_is_up(ngx_idempotency_redis_t *redis);

/* Are keys on several servers, as in a cluster? */
ngx_uint_t ngx_idempotency_redis_is_spread(ngx_idempotency_redis_t *redis);

/* Where the key is now; NULL: not known. */
ngx_idempotency_redis_shard_t *ngx_idempotency_redis_shard(
    ngx_idempotency_redis_t *redis, ngx_str_t *key);

/* Nothing new may be claimed there until then, or later. */
void ngx_idempotency_redis_shard_refuse(ngx_idempotency_redis_shard_t *shard,
    ngx_msec_t until);

/*
 * The server has told its time, in milliseconds, between "sent" and now.  A
 * clock that has jumped is logged; one that went forward has ended leases and
 * ttl early, which is a loss.
 */
void ngx_idempotency_redis_clock(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, int64_t time, ngx_msec_t sent);


#endif /* _NGX_IDEMPOTENCY_REDIS_CONN_H_INCLUDED_ */
