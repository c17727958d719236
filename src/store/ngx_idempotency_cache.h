
/*
 * A small cache of done records, in shared memory of this nginx.
 */


#ifndef _NGX_IDEMPOTENCY_CACHE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_CACHE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_record.h"


/* bytes: a smaller cache is refused */
#define NGX_IDEMPOTENCY_CACHE_MIN  65536


/*
 * A record as the store has sent it.  "asked" is when it was asked for, by the
 * clock of this machine; "now" is the time of the store when it answered.
 */

typedef struct {
    ngx_msec_t                      asked;
    uint64_t                        now;         /* milliseconds */
    ngx_str_t                       value;
} ngx_idempotency_cached_t;


/* Asks for the memory; "tag" is the module.  NULL when that fails. */
ngx_shm_zone_t *ngx_idempotency_cache_create(ngx_conf_t *cf, ngx_str_t *name,
    size_t size, void *tag);

/*
 * NGX_OK with the bytes of the record in the pool; NGX_DECLINED if there is
 * none that was asked for after "since" and after the last purge, and less
 * than five seconds ago.
 */
ngx_int_t ngx_idempotency_cache_get(ngx_shm_zone_t *zone, u_char *digest,
    ngx_msec_t since, ngx_pool_t *pool, ngx_idempotency_cached_t *cached);

/* Remembers it, unless it is too large; the oldest make room. */
void ngx_idempotency_cache_put(ngx_shm_zone_t *zone, u_char *digest,
    ngx_idempotency_cached_t *cached);

/* A record was purged: whatever was asked for before now is invalid. */
void ngx_idempotency_cache_purge(ngx_shm_zone_t *zone);


#endif /* _NGX_IDEMPOTENCY_CACHE_H_INCLUDED_ */
