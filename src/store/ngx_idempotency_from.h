
/*
 * A store that takes over from an older one, "from=STORE".
 */


#ifndef _NGX_IDEMPOTENCY_FROM_H_INCLUDED_
#define _NGX_IDEMPOTENCY_FROM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * From now on the operations of the store ask store->from as well, as from.c
 * says.  Both stores are defined, and store->from has none itself.
 */
void ngx_idempotency_from_init(ngx_idempotency_store_t *store);


#endif /* _NGX_IDEMPOTENCY_FROM_H_INCLUDED_ */
