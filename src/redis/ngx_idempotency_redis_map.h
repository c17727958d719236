
/*
 * The slots of a cluster, and the nodes that have them.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_MAP_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_MAP_H_INCLUDED_


#include "ngx_idempotency_redis_link.h"
#include "ngx_idempotency_redis_slot.h"


typedef struct {
    ngx_idempotency_redis_node_t  *slots[NGX_IDEMPOTENCY_REDIS_SLOTS];
    unsigned                       known:1;
} ngx_idempotency_redis_map_t;


typedef struct ngx_idempotency_redis_seeds_s  ngx_idempotency_redis_seeds_t;


/* The hosts in the target; NULL when memory is short. */
ngx_idempotency_redis_seeds_t *ngx_idempotency_redis_seeds_start(
    ngx_idempotency_redis_t *redis);
void ngx_idempotency_redis_seeds_stop(ngx_idempotency_redis_seeds_t *seeds);
/*
 * Connects their nodes, as far as these are not known already.  From the
 * second time on names are resolved again, which goes on after the return.
 */
ngx_int_t ngx_idempotency_redis_seeds_dial(
    ngx_idempotency_redis_seeds_t *seeds);


/*
 * Takes over what CLUSTER SLOTS said to "from".  Nodes that are new are
 * connected, those that have no slot any more stay until they are let go.
 * NGX_DECLINED: this is no map, nothing was changed.
 */
ngx_int_t ngx_idempotency_redis_map_read(ngx_idempotency_redis_map_t *map,
    ngx_idempotency_redis_node_t *from, ngx_idempotency_redis_reply_t *reply);

/* The node at a place that was told by "from"; NULL if there is none. */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_map_find(
    ngx_idempotency_redis_t *redis, ngx_str_t *host, in_port_t port);


/* The parts of the keys, as a topology has them. */
ngx_idempotency_redis_node_t *ngx_idempotency_redis_map_part(
    ngx_idempotency_redis_t *redis, ngx_uint_t part, ngx_uint_t *hope);
ngx_uint_t ngx_idempotency_redis_map_next(ngx_idempotency_redis_t *redis,
    ngx_uint_t part);

/*
 * A slot goes from one node, or NULL, to another: whoever gets a slot of a
 * shard that has lost keys refuses new ones, too.
 */
void ngx_idempotency_redis_map_move(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_node_t *to);


#endif /* _NGX_IDEMPOTENCY_REDIS_MAP_H_INCLUDED_ */
