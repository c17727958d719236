
/*
 * The store in Redis.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * Makes "store" one in Redis; args are its target and its parameters, "tag"
 * is the module.  Returns NGX_CONF_OK, or NGX_CONF_ERROR after it has logged
 * the reason.
 */
char *ngx_idempotency_redis_create(ngx_conf_t *cf,
    ngx_idempotency_store_t *store, ngx_str_t *args, ngx_uint_t n, void *tag);

/* Is this the target of a store in Redis? */
ngx_uint_t ngx_idempotency_redis_is_target(ngx_str_t *target);

/*
 * The resolver that looks names up again when a connection has to be made
 * again; NULL: the addresses found at the start are kept.
 */
void ngx_idempotency_redis_resolver(ngx_idempotency_store_t *store,
    ngx_resolver_t *resolver, ngx_msec_t timeout);


#endif /* _NGX_IDEMPOTENCY_REDIS_H_INCLUDED_ */
