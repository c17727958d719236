
/*
 * A small shared zone for one structure, which reloads keep.
 */


#ifndef _NGX_IDEMPOTENCY_ZONE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_ZONE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Adds a zone for "size" bytes.  Once nginx has started, its "data" points to
 * them, zeroed by the first configuration that has a zone of this name.
 * NULL after an error, which is logged.
 */
ngx_shm_zone_t *ngx_idempotency_zone_add(ngx_conf_t *cf, ngx_str_t *name,
    size_t size, void *tag);


#endif /* _NGX_IDEMPOTENCY_ZONE_H_INCLUDED_ */
