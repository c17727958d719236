
/*
 * The embedded store: records in an nginx shared memory zone.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * Makes "store" an embedded one of "size" bytes; its zone carries the store's
 * name.  "tag" is the module, as for ngx_shared_memory_add().  Returns a
 * configuration error string, or NULL.  A zone that is live with another size
 * is refused: a reload would empty it.
 */
char *ngx_idempotency_shm_create(ngx_conf_t *cf,
    ngx_idempotency_store_t *store, size_t size, void *tag);


#endif /* _NGX_IDEMPOTENCY_SHM_H_INCLUDED_ */
