
/*
 * A Redis store as "idempotency_store" names it, a target and parameters, and
 * what this worker has of it.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_CONF_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_CONF_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include "ngx_idempotency_redis_cmd.h"
#include "ngx_idempotency_redis_counts.h"


/* certificates between that of a server and one that is trusted */
#define NGX_IDEMPOTENCY_REDIS_VERIFY_DEPTH  5


typedef struct ngx_idempotency_redis_s           ngx_idempotency_redis_t;
typedef struct ngx_idempotency_redis_topology_s
    ngx_idempotency_redis_topology_t;
typedef struct ngx_idempotency_redis_counter_s
    ngx_idempotency_redis_counter_t;
typedef struct ngx_idempotency_redis_detector_s
    ngx_idempotency_redis_detector_t;
typedef struct ngx_idempotency_redis_pubsub_s    ngx_idempotency_redis_pubsub_t;

typedef void (*ngx_idempotency_redis_event_pt)(ngx_idempotency_redis_t *redis);
typedef void (*ngx_idempotency_redis_loss_pt)(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_shard_t *shard,
    const char *how);


/*
 * A host.  The certificate of the server may be for its name, or for one of
 * two others: "alias", which the server itself announces beside its address,
 * and "seed", the name in the target which led to this address.
 */

typedef struct {
    ngx_str_t                           name;        /* empty: unix socket */
    ngx_str_t                           alias;
    ngx_str_t                           seed;
    in_port_t                           port;
    ngx_addr_t                         *addrs;       /* known at first */
    ngx_uint_t                          naddrs;
    time_t                              resolved;    /* the time of these */
    ngx_uint_t                          named;       /* is no address */
} ngx_idempotency_redis_host_t;


/* another file, or one that was written to, has another stamp */

typedef struct {
    ngx_file_uniq_t                     uniq;
    off_t                               size;
    time_t                              mtime;
    ngx_uint_t                          nsec;
} ngx_idempotency_redis_file_stamp_t;


/*
 * A user.  With a file each worker has the password that it has read last, see
 * credentials; "version" changes with it.
 */

typedef struct {
    ngx_str_t                           user;
    ngx_str_t                           password;
    ngx_str_t                           password_file;
    ngx_idempotency_redis_file_stamp_t  stamp;       /* when it was read */
    ngx_uint_t                          version;
    ngx_uint_t                          warned;
} ngx_idempotency_redis_account_t;


struct ngx_idempotency_redis_s {
    ngx_str_t                           name;        /* of the store */

    ngx_str_t                           prefix;      /* of all its keys */

    ngx_idempotency_redis_topology_t   *topology;
    ngx_array_t                         hosts;       /* of its target */

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
    ngx_msec_t                          amnesia;     /* refuse new claims for;
                                                        unset: see lease */
    ngx_msec_t                          lease;       /* the longest of ours */
    ngx_uint_t                          evictable;   /* keys may be evicted */
    ngx_shm_zone_t                     *zone;        /* see shared in loss */

    ngx_resolver_t                     *resolver;    /* NULL: addrs stay */
    ngx_msec_t                          resolver_timeout;

    ngx_uint_t                          spread;      /* keys on several nodes */
    ngx_uint_t                          tls;
#if (NGX_SSL)
    ngx_ssl_t                          *ssl;         /* NULL: no TLS */
    ngx_str_t                           ssl_name;    /* empty: the host */
    ngx_str_t                           ssl_trusted_certificate;
    ngx_str_t                           ssl_certificate;
    ngx_str_t                           ssl_certificate_key;
    ngx_flag_t                          ssl_verify;
    ngx_idempotency_redis_file_stamp_t  ssl_stamps[3];  /* of these files */
    ngx_uint_t                          ssl_warned;
#endif

    /*
     * The store's callbacks, set before start.
     *
     * on_ready: a connection became ready, what waited may be sent now; not
     * called from within send.
     *
     * on_loss: what a server has acknowledged may be gone; called under the
     * mutex of the zone and, if that can be, before anything else is sent to
     * that server.
     *
     * on_renew: a loss was seen, by this worker or another one: leases should
     * be renewed at once.
     *
     * on_purge: there was a message in the purge channel, which all nodes with
     * records have; empty: there is none.
     */

    ngx_idempotency_redis_event_pt      on_ready;
    ngx_idempotency_redis_loss_pt       on_loss;
    ngx_idempotency_redis_event_pt      on_renew;
    ngx_idempotency_redis_event_pt      on_purge;
    ngx_str_t                           purge_channel;
    void                               *data;

    /* of this worker; what is counted is set before start */

    ngx_idempotency_redis_counts_t     *counts;
    ngx_idempotency_redis_now_t        *now;
    ngx_idempotency_redis_detector_t   *detector;
    ngx_idempotency_redis_pubsub_t     *pubsub;
    ngx_event_t                         credentials; /* looks at files */

    ngx_queue_t                         nodes;
    ngx_queue_t                         subscribers; /* nodes, too */
    ngx_queue_t                         leaving;     /* nodes to be freed */
    ngx_queue_t                         waiting;     /* commands */
    ngx_event_t                         retry;       /* of these */
    ngx_connection_t                    dummy;
    void                               *map;         /* of the topology */

    /* why the last login was refused, NONE as soon as one succeeds */

    ngx_idempotency_redis_refusal_e     refusal;

    /* the last error of WAIT or WAITAOF that was logged */

    ngx_idempotency_redis_refusal_e     ack_refusal;

    unsigned                            started:1;
};


/* are commands to be acknowledged by replicas or disks? */

#define ngx_idempotency_redis_acks(redis)                                     \
    ((redis)->replicas || (redis)->fsync)


/*
 * All three log what is wrong, with directive, value and fix but never a
 * password, and return NGX_CONF_OK or NGX_CONF_ERROR.  First the target, with
 * "redis" all zeroes but for its name; then each parameter; then finish.
 */
char *ngx_idempotency_redis_conf_target(ngx_conf_t *cf, ngx_str_t *url,
    ngx_idempotency_redis_t *redis);
char *ngx_idempotency_redis_conf_param(ngx_conf_t *cf, ngx_str_t *param,
    ngx_idempotency_redis_t *redis);

/* Defaults, the password file, addresses and TLS. */
char *ngx_idempotency_redis_conf_finish(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis);

#if (NGX_SSL)
/* TLS as the target and the parameters want it, or none. */
char *ngx_idempotency_redis_conf_tls(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis);
#endif


#endif /* _NGX_IDEMPOTENCY_REDIS_CONF_H_INCLUDED_ */
