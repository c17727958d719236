
/*
 * The sentinels of a master: those of the target, and those that they know.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_SENTINEL_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_SENTINEL_H_INCLUDED_


#include "ngx_idempotency_redis_topology.h"


/* how many sentinels that are not in the target are asked */
#define NGX_IDEMPOTENCY_REDIS_FOUND  16


typedef struct {
    ngx_idempotency_redis_t            *redis;
    ngx_idempotency_redis_node_t       *node;        /* NULL: a free entry */
    ngx_idempotency_redis_node_t       *events;
    ngx_idempotency_redis_cmd_t         get_epoch;
    ngx_idempotency_redis_cmd_t         get_address;
    ngx_idempotency_redis_cmd_t         get_id;
    ngx_idempotency_redis_cmd_t         get_others;
    ngx_uint_t                          pending;     /* of get_id, get_others */

    u_char                              id[NGX_IDEMPOTENCY_REDIS_ID];
    ngx_uint_t                          identified;  /* it is set */
    ngx_uint_t                          configured;  /* in the target */
    ngx_msec_t                          up_at;       /* it was up then */

    /* its answer of this round */

    u_char                              text[256];
    ngx_str_t                           host;        /* empty: none */
    in_port_t                           port;
    int64_t                             epoch;
} ngx_idempotency_redis_sentinel_t;


typedef struct {
    ngx_idempotency_redis_node_t       *master;
    ngx_atomic_uint_t                   followed;    /* see shared */
    ngx_idempotency_redis_sentinel_t   *sentinels;
    ngx_uint_t                          n;           /* of the target */
    ngx_uint_t                          most;        /* entries for more, too */
    ngx_uint_t                          pending;     /* of this round */
    ngx_event_t                         timer;
    ngx_idempotency_redis_node_type_t  *node_type;   /* types of the two */
    ngx_idempotency_redis_node_type_t  *events_type;  /* nodes of each */
    ngx_str_t                           get_address[3];
    ngx_str_t                           get_epoch[3];
    ngx_str_t                           get_id[2];
    ngx_str_t                           get_others[3];
    ngx_msec_t                          began;
    ngx_msec_t                          searched;    /* for others */
    unsigned                            hopeless:1;
    unsigned                            again:1;     /* one more round */
    unsigned                            warned:1;
    unsigned                            doubted:1;   /* logged */
} ngx_idempotency_redis_watch_t;


/* quorum: which sentinel is believed */

/* Read the replies of a sentinel: the epoch, and the address of the master. */
void ngx_idempotency_redis_quorum_epoch(
    ngx_idempotency_redis_sentinel_t *sentinel,
    ngx_idempotency_redis_reply_t *reply);
/* NGX_DECLINED: it knows of none. */
ngx_int_t ngx_idempotency_redis_quorum_address(
    ngx_idempotency_redis_sentinel_t *sentinel,
    ngx_idempotency_redis_reply_t *reply);

/*
 * Is the master that this sentinel names used?  "all": the others had their
 * time to answer.
 */
ngx_uint_t ngx_idempotency_redis_quorum_believes(
    ngx_idempotency_redis_sentinel_t *sentinel, ngx_uint_t all);
/*
 * All workers use this master from now on.  NGX_DECLINED: since it was judged,
 * another worker has found the master of a later failover.
 */
ngx_int_t ngx_idempotency_redis_quorum_follow(ngx_idempotency_redis_t *redis,
    ngx_str_t *host, in_port_t port, int64_t epoch);
/*
 * NGX_OK: another worker has found this master.  NGX_DECLINED: it is ours, or
 * there is none.
 */
ngx_int_t ngx_idempotency_redis_quorum_followed(
    ngx_idempotency_redis_t *redis, u_char *text, ngx_str_t *host,
    in_port_t *port);
/* Logs once why no sentinel is believed. */
void ngx_idempotency_redis_quorum_warn(ngx_idempotency_redis_t *redis);


/* discovery: sentinels that are not in the target */

/* A connection to a sentinel is up. */
void ngx_idempotency_redis_discovery_ready(
    ngx_idempotency_redis_sentinel_t *sentinel);
/* Between two rounds. */
void ngx_idempotency_redis_discovery_search(ngx_idempotency_redis_t *redis);


#endif /* _NGX_IDEMPOTENCY_REDIS_SENTINEL_H_INCLUDED_ */
