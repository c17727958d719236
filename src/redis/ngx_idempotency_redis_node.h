
/*
 * A node: one server, and this worker's connections to it.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_NODE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_NODE_H_INCLUDED_


#include "ngx_idempotency_redis_conn.h"


/* bytes of a node's id in a cluster, or of a sentinel's */
#define NGX_IDEMPOTENCY_REDIS_ID        40

/* of a master in a cluster, how many replicas are remembered */
#define NGX_IDEMPOTENCY_REDIS_REPLICAS  8


/*
 * What a node is for, and what its owner, a topology or pubsub, is told about
 * it.  on_reply, on_closed, on_lost and is_wanted are those of its connections.
 */

typedef struct {
    ngx_idempotency_redis_kind_e        kind;

    ngx_int_t                         (*on_reply)(
                                         ngx_idempotency_redis_node_t *node,
                                         ngx_idempotency_redis_cmd_t *cmd,
                                         ngx_idempotency_redis_reply_t *reply);

    /* A connection is ready. */
    void                              (*on_ready)(
                                         ngx_idempotency_redis_node_t *node);

    void                              (*on_lost)(
                                         ngx_idempotency_redis_node_t *node);
    void                              (*on_closed)(
                                         ngx_idempotency_redis_node_t *node);

    /* The node is about to leave, with the one it belongs to.  Or NULL. */
    void                              (*on_leave)(
                                         ngx_idempotency_redis_node_t *node);

    ngx_uint_t                        (*is_wanted)(
                                         ngx_idempotency_redis_node_t *node);

    unsigned                            role:1;      /* see peer in conn */
    unsigned                            strict:1;
} ngx_idempotency_redis_node_type_t;


/*
 * Its name may have several addresses: one connection, the seeker, tries them
 * and finds the server, and all others follow it to the same address.
 */

struct ngx_idempotency_redis_node_s {
    ngx_queue_t                         queue;
    ngx_idempotency_redis_t            *redis;
    ngx_idempotency_redis_node_type_t  *type;
    ngx_idempotency_redis_conn_events_t  events;
    ngx_idempotency_redis_peer_t        peer;
    ngx_pool_t                         *pool;        /* has all of it */

    ngx_idempotency_redis_conn_t       *conns;
    ngx_uint_t                          nconns;
    ngx_uint_t                          next;

    /* see address */

    ngx_addr_t                         *addrs;       /* it may be there */
    ngx_uint_t                          naddrs;
    ngx_uint_t                          addr;        /* that is tried next */
    ngx_pool_t                         *addrs_pool;  /* or NULL */
    ngx_resolver_ctx_t                 *resolving;
    time_t                              valid;       /* until then nginx caches
                                                        the answer that came */
    ngx_msec_t                          resolved_at;
    ngx_event_t                         check;       /* of its name */
    ngx_idempotency_redis_conn_t       *seeker;
    ngx_idempotency_redis_address_t     at;          /* where it answered */
    ngx_msec_t                          moved;       /* left that, then */

    u_char                              run_id[NGX_IDEMPOTENCY_REDIS_ID_LEN];
                                                     /* of the last login */

    /* in a cluster */

    u_char                              replicas
                                            [NGX_IDEMPOTENCY_REDIS_REPLICAS]
                                            [NGX_IDEMPOTENCY_REDIS_ID];
    ngx_uint_t                          nreplicas;
    ngx_msec_t                          used;
    ngx_msec_t                          refuses_until;  /* with its slots */

    /* see pubsub */

    ngx_idempotency_redis_node_t       *subscriber;  /* of this node, or NULL */
    ngx_idempotency_redis_node_t       *subscribed;  /* to this node, or NULL */
    ngx_msec_t                          pinged_at;
    ngx_msec_t                          since;       /* in the purge channel */

    unsigned                            warned:1;
    unsigned                            master:1;    /* has slots */
    unsigned                            dialed:1;
    unsigned                            unresolved:1;  /* at the last try */

    /* was left: another address is tried first; has not served since */

    unsigned                            left:1;
    unsigned                            moving:1;

    /* in a cluster: a connection was lost, and it has not served since */

    unsigned                            missed:1;

    /* another node's map has its successor: it was asked for its own map */

    unsigned                            questioned:1;

    unsigned                            pinged:1;    /* and not answered */
    unsigned                            unsharded:1; /* has no SSUBSCRIBE */
    unsigned                            denied:1;    /* has refused SUBSCRIBE */
    unsigned                            purges:1;    /* in the purge channel */
};


/* node */

/* NULL when memory is short.  It is not connected yet. */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_node_create(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_host_t *host,
    ngx_idempotency_redis_node_type_t *type);
/* The same for a host as text; "alias" is NULL, or another name of it. */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_node_create_at(
    ngx_idempotency_redis_t *redis, ngx_str_t *host, in_port_t port,
    ngx_str_t *alias, ngx_idempotency_redis_node_type_t *type);
/* By one of its names, or the one address that it is known to have. */
ngx_uint_t ngx_idempotency_redis_node_is_at(ngx_idempotency_redis_node_t *node,
    ngx_str_t *host, in_port_t port);
ngx_uint_t ngx_idempotency_redis_node_is_addr(
    ngx_idempotency_redis_node_t *node, ngx_addr_t *addr);
/* It has this name, too; none is kept when memory is short. */
void ngx_idempotency_redis_node_alias(ngx_idempotency_redis_node_t *node,
    ngx_str_t *alias);
/* Dials all connections that are off. */
void ngx_idempotency_redis_node_dial(ngx_idempotency_redis_node_t *node);
/* NGX_AGAIN, or NGX_ERROR if it cannot be reached. */
ngx_int_t ngx_idempotency_redis_node_send(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_cmd_t *cmd);
/*
 * Closes connections that have logged in, those of another counter than the
 * node has now or all of them: they were not asked for this counter, or before
 * the node got another role.
 */
void ngx_idempotency_redis_node_log_out(ngx_idempotency_redis_node_t *node,
    ngx_uint_t all);
/* Closes its connections at once; freed when no command needs it. */
void ngx_idempotency_redis_node_leave(ngx_idempotency_redis_node_t *node);
void ngx_idempotency_redis_node_free(ngx_idempotency_redis_node_t *node);


/* address: where the node is */

/* For on_dial and on_failed. */
void ngx_idempotency_redis_address_dial(ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_address_failed(ngx_idempotency_redis_conn_t *conn);
/* The node has answered there: its name is resolved again now and then. */
void ngx_idempotency_redis_address_found(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_conn_t *conn);
void ngx_idempotency_redis_address_stop(ngx_idempotency_redis_node_t *node);
void ngx_idempotency_redis_address_free(ngx_idempotency_redis_node_t *node);
void ngx_idempotency_redis_address_copy(ngx_idempotency_redis_address_t *to,
    struct sockaddr *sockaddr, socklen_t socklen);
/* The time that a resolver has. */
ngx_msec_t ngx_idempotency_redis_address_timeout(
    ngx_idempotency_redis_t *redis);

/*
 * The server is not the one to use any more: all connections leave it, and
 * its name, its other addresses and at last the same one are tried at once.
 */
void ngx_idempotency_redis_node_move(ngx_idempotency_redis_node_t *node);
/* It moves, and a command may wait until that is over. */
ngx_uint_t ngx_idempotency_redis_node_is_moving(
    ngx_idempotency_redis_node_t *node);
ngx_uint_t ngx_idempotency_redis_node_is_up(ngx_idempotency_redis_node_t *node);


#endif /* _NGX_IDEMPOTENCY_REDIS_NODE_H_INCLUDED_ */
