
/*
 * Loss detection: does a master still have what it has acknowledged?
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_LOSS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_LOSS_H_INCLUDED_


#include "ngx_idempotency_redis_cmd.h"
#include "ngx_idempotency_redis_conf.h"
#include "ngx_idempotency_redis_info.h"


/* more masters than a cluster has */
#define NGX_IDEMPOTENCY_REDIS_SHARDS       1024

/* of an answer about a name; one with more is not shared */
#define NGX_IDEMPOTENCY_REDIS_ADDRS        16

/* milliseconds until a counter that no gateway advances expires: a day */
#define NGX_IDEMPOTENCY_REDIS_COUNTER_TTL  "86400000"


/* of a counter: what is known, and what was known when it was advanced */

typedef struct {
    uint64_t                            seen;        /* last acknowledged */
    ngx_uint_t                          losses;      /* so far; each gives the
                                                        counter a new name */
} ngx_idempotency_redis_known_t;


/*
 * What all workers know of the keys of one master: of the only one, of the one
 * that sentinels name, or of one in a cluster.  The server may change, the
 * shard stays.
 */

struct ngx_idempotency_redis_shard_s {
    ngx_uint_t                          number;      /* of its counter, plus 1;
                                                        0: a free entry */
    ngx_idempotency_redis_known_t       known;
    ngx_msec_t                          seen_at;     /* the time of "seen" */
    ngx_msec_t                          ticked;      /* last advanced */
    ngx_atomic_t                        used;        /* written to since */

    ngx_idempotency_redis_identity_t    server;      /* of the last login */
    ngx_uint_t                          identified;  /* "server" is set */
    ngx_idempotency_redis_identity_t    left;        /* the one before it */
    ngx_msec_t                          left_at;     /* 0: there was none */

    int64_t                             clock;       /* the server's time less
                                                        ours, milliseconds */
    ngx_atomic_t                        timed;       /* "clock" is set */

    ngx_msec_t                          watched;     /* time of the last INFO */
    uint64_t                            evicted;     /* keys, by that server */
    ngx_atomic_t                        evicts;      /* its policy allows it */

    ngx_atomic_t                        unproven;    /* a server did not take
                                                        INCR at its login */

    ngx_atomic_t                        until;       /* new claims are refused;
                                                        0: that is over */
};


/*
 * What all workers know of a store, before and after a reload, in shared
 * memory: under its mutex, but for what is atomic.
 */

typedef struct {
    u_char                              id[8];       /* in names of counters */
    ngx_uint_t                          named;       /* "id" is set */
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

    /* the newest answer about the name of the only server, see address */

    ngx_msec_t                          resolved_at;
    ngx_sockaddr_t                      addrs[NGX_IDEMPOTENCY_REDIS_ADDRS];
    socklen_t                           socklens[NGX_IDEMPOTENCY_REDIS_ADDRS];
    ngx_uint_t                          naddrs;      /* 0: none */

    ngx_idempotency_redis_shard_t       shards[NGX_IDEMPOTENCY_REDIS_SHARDS];
} ngx_idempotency_redis_shared_t;


/* A counter in Redis, and this worker's commands for it. */

struct ngx_idempotency_redis_counter_s {
    ngx_queue_t                         queue;
    ngx_idempotency_redis_t            *redis;
    ngx_uint_t                          n;           /* in its name */
    ngx_uint_t                          generation;  /* in its name, too */
    ngx_str_t                           name;
    ngx_uint_t                          losses;      /* that were acted on */
    ngx_idempotency_redis_shard_t      *shard;

    ngx_idempotency_redis_cmd_t         tick;        /* INCR */
    ngx_str_t                           args[2];
    ngx_idempotency_redis_known_t       before;      /* when it was sent */

    ngx_idempotency_redis_cmd_t         keep;        /* PEXPIRE */
    ngx_str_t                           keep_args[3];

    ngx_idempotency_redis_cmd_t         watch;       /* INFO */

    unsigned                            ticking:1;
    unsigned                            keeping:1;
    unsigned                            watching:1;
};


struct ngx_idempotency_redis_detector_s {
    ngx_queue_t                         counters;
    ngx_event_t                         timer;       /* of tick */

    ngx_idempotency_redis_cmd_t         lease;
    ngx_str_t                           lease_args[6];
    u_char                              lease_text[NGX_INT_T_LEN];
    ngx_str_t                           lease_key;

    unsigned                            leasing:1;
    unsigned                            full:1;      /* logged: no entry left */
};


/* What the login of a connection says about its server. */

typedef struct {
    ngx_idempotency_redis_counter_t    *counter;     /* NULL: none */
    ngx_idempotency_redis_known_t       before;      /* when INCR was sent */
    ngx_idempotency_redis_info_t        info;
    ngx_msec_t                          sent;
} ngx_idempotency_redis_login_t;


/* the mutex of what is shared */

#define ngx_idempotency_redis_lock(redis)                                     \
    ngx_shmtx_lock(&((ngx_slab_pool_t *) (redis)->zone->shm.addr)->mutex)

#define ngx_idempotency_redis_unlock(redis)                                   \
    ngx_shmtx_unlock(&((ngx_slab_pool_t *) (redis)->zone->shm.addr)->mutex)


/*
 * The name of a counter, of at most this many bytes.  Its slot in a cluster
 * depends on "n" only.
 */
#define ngx_idempotency_redis_loss_name_len(redis)                            \
    ((redis)->prefix.len + sizeof("counter:{:}:") + 16 + 2 * NGX_INT_T_LEN)
void ngx_idempotency_redis_loss_name(ngx_idempotency_redis_t *redis,
    ngx_uint_t n, ngx_uint_t generation, ngx_str_t *name);

/* NULL: memory is short, or too many shards are watched. */
ngx_idempotency_redis_counter_t *ngx_idempotency_redis_loss_counter(
    ngx_idempotency_redis_t *redis, ngx_uint_t n);

/* The counter is about to be advanced: "before" is what is known of it. */
void ngx_idempotency_redis_loss_know(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_counter_t *counter,
    ngx_idempotency_redis_known_t *before);

/*
 * "reply" is that of INCR, the last fact of a login; "hint" is reset when it
 * was used.  NGX_OK; NGX_AGAIN: a loss was seen, the login has to begin anew;
 * NGX_ERROR: this server must not be used now.
 */
ngx_int_t ngx_idempotency_redis_loss_login(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_login_t *login, ngx_idempotency_redis_hint_e *hint,
    ngx_idempotency_redis_reply_t *reply);

/*
 * The reply to a tick: the new value of the counter; and to INFO of its
 * server.
 */
void ngx_idempotency_redis_loss_value(ngx_idempotency_redis_counter_t *counter,
    uint64_t value);
void ngx_idempotency_redis_loss_info(ngx_idempotency_redis_counter_t *counter,
    ngx_idempotency_redis_info_t *info);

/* The next tick is due now: a loss was seen. */
void ngx_idempotency_redis_loss_tick(ngx_idempotency_redis_t *redis);

/* New claims are refused there until then, or later. */
void ngx_idempotency_redis_shard_refuse(ngx_idempotency_redis_shard_t *shard,
    ngx_msec_t until);

/*
 * The server has told its time, in milliseconds, between "sent" and now.  A
 * clock that has jumped is logged; one that went forward has ended leases and
 * ttl early, which is a loss.
 */
void ngx_idempotency_redis_clock(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, int64_t time, ngx_msec_t sent);


#endif /* _NGX_IDEMPOTENCY_REDIS_LOSS_H_INCLUDED_ */
