
/*
 * The store in PostgreSQL.
 */


#ifndef _NGX_IDEMPOTENCY_POSTGRES_H_INCLUDED_
#define _NGX_IDEMPOTENCY_POSTGRES_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/* is it the target of such a store? */
ngx_uint_t ngx_idempotency_postgres_is_target(ngx_str_t *target);

/*
 * Makes the store of "postgres://..." and its parameters; "tag" is the module.
 * Without libpq or threads it says so.
 */
char *ngx_idempotency_postgres_create(ngx_conf_t *cf,
    ngx_idempotency_store_t *store, ngx_str_t *args, ngx_uint_t n, void *tag);


#endif /* _NGX_IDEMPOTENCY_POSTGRES_H_INCLUDED_ */
