
/*
 * The sentinels of a master: those of the target, and those that they know.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_SENTINEL_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_SENTINEL_H_INCLUDED_


#include "ngx_idempotency_redis_link.h"


/* of those that are not in the target, how many are asked */
#define NGX_IDEMPOTENCY_REDIS_FOUND  16


typedef struct {
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_node_t  *asked;       /* NULL: a free place */
    ngx_idempotency_redis_node_t  *heard;
    ngx_idempotency_redis_cmd_t    when;
    ngx_idempotency_redis_cmd_t    where;
    ngx_idempotency_redis_cmd_t    who;
    ngx_idempotency_redis_cmd_t    others;
    ngx_uint_t                     pending;     /* of these two */

    u_char                         id[NGX_IDEMPOTENCY_REDIS_ID];
    ngx_uint_t                     identified;  /* it is set */
    ngx_uint_t                     configured;  /* in the target */
    ngx_msec_t                     there;       /* it was */

    /* its answer of this round */

    u_char                         text[256];
    ngx_str_t                      host;        /* empty: none */
    in_port_t                      port;
    int64_t                        epoch;
} ngx_idempotency_redis_sentinel_t;


typedef struct {
    ngx_idempotency_redis_node_t      *master;
    ngx_atomic_uint_t                  followed; /* see shared */
    ngx_idempotency_redis_sentinel_t  *sentinels;
    ngx_uint_t                         n;       /* of the target */
    ngx_uint_t                         most;    /* places for more, too */
    ngx_uint_t                         pending; /* commands of this round */
    ngx_event_t                        timer;
    ngx_str_t                          where[3];
    ngx_str_t                          when[3];
    ngx_str_t                          who[2];
    ngx_str_t                          others[3];
    ngx_msec_t                         began;
    ngx_msec_t                         searched; /* for others */
    unsigned                           hopeless:1;
    unsigned                           again:1; /* one more round */
    unsigned                           said:1;
    unsigned                           doubted:1;  /* that was said */
} ngx_idempotency_redis_watch_t;


/* quorum: whom to believe */

/* The answer of a sentinel: the epoch, and then who is the master. */
void ngx_idempotency_redis_quorum_when(
    ngx_idempotency_redis_sentinel_t *sentinel,
    ngx_idempotency_redis_reply_t *reply);
/* NGX_DECLINED: it knows of none. */
ngx_int_t ngx_idempotency_redis_quorum_where(
    ngx_idempotency_redis_sentinel_t *sentinel,
    ngx_idempotency_redis_reply_t *reply);

/*
 * Is the answer of this sentinel followed?  "all": the others had their time
 * to answer.
 */
ngx_uint_t ngx_idempotency_redis_quorum_believes(
    ngx_idempotency_redis_sentinel_t *sentinel, ngx_uint_t all);
/* This master is followed, by all workers. */
void ngx_idempotency_redis_quorum_follow(ngx_idempotency_redis_t *redis,
    ngx_str_t *host, in_port_t port, int64_t epoch);
/*
 * NGX_OK: another worker follows this one.  NGX_DECLINED: so do we, or nobody
 * follows any.
 */
ngx_int_t ngx_idempotency_redis_quorum_followed(
    ngx_idempotency_redis_t *redis, u_char *text, ngx_str_t *host,
    in_port_t *port);
/* Logs once why no sentinel is believed. */
void ngx_idempotency_redis_quorum_doubt(ngx_idempotency_redis_t *redis);


/* witness: who else can be asked */

/* A connection to a sentinel is up. */
void ngx_idempotency_redis_witness_ready(
    ngx_idempotency_redis_sentinel_t *sentinel);
/* Between two rounds. */
void ngx_idempotency_redis_witness_search(ngx_idempotency_redis_t *redis);


#endif /* _NGX_IDEMPOTENCY_REDIS_SENTINEL_H_INCLUDED_ */
