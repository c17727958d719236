
/*
 * The durable store: records in an SQLite database on a local disk.
 */


#ifndef _NGX_IDEMPOTENCY_SQLITE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SQLITE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * Makes "store" a durable one; args are "sqlite:PATH" and parameters; "tag" is
 * the module.  Returns NGX_CONF_OK, or NGX_CONF_ERROR after having logged why.
 * A module that was built without libsqlite3 refuses every such store.
 */
char *ngx_idempotency_sqlite_create(ngx_conf_t *cf,
    ngx_idempotency_store_t *store, ngx_str_t *args, ngx_uint_t n, void *tag);


#endif /* _NGX_IDEMPOTENCY_SQLITE_H_INCLUDED_ */
