
/*
 * The slots of a cluster, and the nodes that have them.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_MAP_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_MAP_H_INCLUDED_


#include "ngx_idempotency_redis_slot.h"
#include "ngx_idempotency_redis_topology.h"


typedef struct {
    ngx_idempotency_redis_node_t       *slots[NGX_IDEMPOTENCY_REDIS_SLOTS];
    ngx_idempotency_redis_node_type_t  *type;        /* of new nodes */
    unsigned                            known:1;
} ngx_idempotency_redis_map_t;


typedef struct ngx_idempotency_redis_seeds_s  ngx_idempotency_redis_seeds_t;


/* The hosts in the target; NULL when memory is short. */
ngx_idempotency_redis_seeds_t *ngx_idempotency_redis_seeds_start(
    ngx_idempotency_redis_t *redis);
void ngx_idempotency_redis_seeds_stop(ngx_idempotency_redis_seeds_t *seeds);
/*
 * Dials the nodes of the seeds, and creates those that are missing.  From the
 * second call on names are resolved again, asynchronously.
 */
ngx_int_t ngx_idempotency_redis_seeds_dial(
    ngx_idempotency_redis_seeds_t *seeds);


/*
 * Takes the reply of "from" to CLUSTER SLOTS.  New nodes are created; nodes
 * without slots stay until cluster lets them go.  NGX_DECLINED: this is no
 * map, nothing was changed.
 */
ngx_int_t ngx_idempotency_redis_map_read(ngx_idempotency_redis_map_t *map,
    ngx_idempotency_redis_node_t *from, ngx_idempotency_redis_reply_t *reply);

/*
 * A master that has a successor in this reply of another node, and seems to be
 * connected.  Only its own map shows whether it has handed over or is lost.
 * Each is returned once; NULL if there is none.
 */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_map_doubtful(
    ngx_idempotency_redis_node_t *from, ngx_idempotency_redis_reply_t *reply);

/* 1: a master was returned by map_doubtful(), and no map has settled it. */
ngx_uint_t ngx_idempotency_redis_map_is_doubtful(
    ngx_idempotency_redis_t *redis);

/* The node there; NULL if there is none. */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_map_find(
    ngx_idempotency_redis_t *redis, ngx_str_t *host, in_port_t port);


/* The parts of the keys, as a topology has them. */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_map_part(
    ngx_idempotency_redis_t *redis, ngx_uint_t part, ngx_uint_t *hope);
ngx_uint_t ngx_idempotency_redis_map_next(ngx_idempotency_redis_t *redis,
    ngx_uint_t part);

/*
 * A slot goes from one node, or NULL, to another: if the shard of the former
 * refuses new claims after a loss, that of the latter does so, too.
 */
void ngx_idempotency_redis_map_move(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_node_t *to);


#endif /* _NGX_IDEMPOTENCY_REDIS_MAP_H_INCLUDED_ */
