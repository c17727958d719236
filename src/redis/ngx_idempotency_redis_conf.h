
/*
 * A Redis server as "idempotency_store" names it: a target and parameters.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_CONF_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_CONF_H_INCLUDED_


#include "ngx_idempotency_redis_conn.h"


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

/* The password file of an account, if it has one. */
char *ngx_idempotency_redis_secret_conf(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_account_t *account);

#if (NGX_SSL)
/* TLS as the target and the parameters want it, or none. */
char *ngx_idempotency_redis_conf_tls(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis);
#endif


#endif /* _NGX_IDEMPOTENCY_REDIS_CONF_H_INCLUDED_ */
