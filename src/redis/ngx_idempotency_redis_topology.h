
/*
 * Topologies: which node has a key now, and what to do when it has not.  One
 * server is the simplest.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_TOPOLOGY_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_TOPOLOGY_H_INCLUDED_


#include "ngx_idempotency_redis_node.h"


struct ngx_idempotency_redis_topology_s {

    /* Creates the first nodes; NGX_ERROR when memory is short. */
    ngx_int_t                         (*start)(ngx_idempotency_redis_t *redis);
    void                              (*stop)(ngx_idempotency_redis_t *redis);

    /* NULL: not known.  With *hope it may be soon. */
    ngx_idempotency_redis_node_t     *(*pick)(ngx_idempotency_redis_t *redis,
                                         ngx_str_t *key, ngx_uint_t *hope);

    /*
     * The node of a part, as pick, and the number of the part behind it, or
     * 0.  NULL: there is one part, and pick will do.
     */
    ngx_idempotency_redis_node_t     *(*part)(ngx_idempotency_redis_t *redis,
                                         ngx_uint_t part, ngx_uint_t *hope);
    ngx_uint_t                        (*next)(ngx_idempotency_redis_t *redis,
                                         ngx_uint_t part);

    unsigned                            slots:1;     /* on several nodes */
};


extern ngx_idempotency_redis_topology_t  ngx_idempotency_redis_single;
extern ngx_idempotency_redis_topology_t  ngx_idempotency_redis_sentinel;
extern ngx_idempotency_redis_topology_t  ngx_idempotency_redis_cluster;


void ngx_idempotency_redis_topology_init(ngx_idempotency_redis_t *redis);
/* The command was not executed: it is sent again soon, until its time is
 * over. */
void ngx_idempotency_redis_topology_wait(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_cmd_t *cmd);
/* The topology has changed: commands that wait are sent. */
void ngx_idempotency_redis_topology_changed(ngx_idempotency_redis_t *redis);


#endif /* _NGX_IDEMPOTENCY_REDIS_TOPOLOGY_H_INCLUDED_ */
