
/*
 * The embedded store: records in an nginx shared memory zone.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * Makes "store" an embedded one; args are "shm:SIZE" and nothing else.  Its
 * zone carries the store's name; "tag" is the module, as for
 * ngx_shared_memory_add().  Returns NGX_CONF_OK, or NGX_CONF_ERROR after
 * having logged why.  A zone that is live with another size is refused: a
 * reload would empty it.
 */
char *ngx_idempotency_shm_create(ngx_conf_t *cf,
    ngx_idempotency_store_t *store, ngx_str_t *args, ngx_uint_t n, void *tag);


#endif /* _NGX_IDEMPOTENCY_SHM_H_INCLUDED_ */
