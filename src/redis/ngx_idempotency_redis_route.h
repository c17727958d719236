
/*
 * The kinds of topologies that a target can name.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_ROUTE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_ROUTE_H_INCLUDED_


#include "ngx_idempotency_redis_conn.h"


extern ngx_idempotency_redis_topology_t  ngx_idempotency_redis_single;
extern ngx_idempotency_redis_topology_t  ngx_idempotency_redis_sentinel;
extern ngx_idempotency_redis_topology_t  ngx_idempotency_redis_cluster;


#endif /* _NGX_IDEMPOTENCY_REDIS_ROUTE_H_INCLUDED_ */
