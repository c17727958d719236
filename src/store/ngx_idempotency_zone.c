
/*
 * A small shared zone for one structure, which reloads keep.
 */


#include "ngx_idempotency_zone.h"


/* an upper bound of what the slab allocator takes for itself */
#define NGX_IDEMPOTENCY_ZONE_OWN_PAGES  8


static ngx_int_t ngx_idempotency_zone_init(ngx_shm_zone_t *zone, void *data);


ngx_shm_zone_t *
ngx_idempotency_zone_add(ngx_conf_t *cf, ngx_str_t *name, size_t size,
    void *tag)
{
    ngx_shm_zone_t  *zone;

    zone = ngx_shared_memory_add(cf, name,
                                 ngx_align(size, ngx_pagesize)
                                 + NGX_IDEMPOTENCY_ZONE_OWN_PAGES
                                   * ngx_pagesize,
                                 tag);
    if (zone == NULL) {
        return NULL;
    }

    zone->init = ngx_idempotency_zone_init;

    /* until there is memory, "data" is its size */

    zone->data = (void *) size;

    return zone;
}


static ngx_int_t
ngx_idempotency_zone_init(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t  *shpool;

    if (data) {
        zone->data = data;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    zone->data = ngx_slab_calloc(shpool, (size_t) zone->data);

    return zone->data ? NGX_OK : NGX_ERROR;
}
