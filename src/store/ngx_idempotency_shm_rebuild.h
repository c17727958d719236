
/*
 * The repair of a zone.
 * Private to the embedded store; it wants the mutex.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_REBUILD_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_REBUILD_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_zone.h"


/*
 * Makes slab and trees anew from the list of records, which stays as it is: a
 * death in here is repaired as any other.  NGX_ERROR when the list is damaged
 * too, the zone is marked broken then, or when memory is short.
 */
ngx_int_t ngx_idempotency_shm_rebuild(ngx_idempotency_shm_ctx_t *ctx);


#endif /* _NGX_IDEMPOTENCY_SHM_REBUILD_H_INCLUDED_ */
