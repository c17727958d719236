
/*
 * A small cache of done records, in shared memory of this nginx.
 *
 * It is a ring: records are written one behind the other, over the oldest.
 * A place only grows: its address is the place modulo the size, and a record
 * that is more than the size behind the last place was written over.  So
 * nothing is freed or repaired, and a worker that is killed while it writes
 * leaves a record to which no slot points.
 */


#include "ngx_idempotency_cache.h"


/* milliseconds: older records are fetched again */
#define NGX_IDEMPOTENCY_CACHE_AGE     5000

/* larger records are not cached: the mutex is held while they are copied */
#define NGX_IDEMPOTENCY_CACHE_RECORD  131072

/* bytes of memory for each slot */
#define NGX_IDEMPOTENCY_CACHE_SLOT    512


typedef struct {
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_msec_t                      asked;
    uint64_t                        now;
    size_t                          len;
} ngx_idempotency_cache_entry_t;


typedef struct {
    ngx_msec_t                      purged;
    uint64_t                        last;      /* place of the next one */
    size_t                          size;      /* of the records */
    ngx_uint_t                      mask;      /* of slots */
    uint64_t                       *slots;     /* places, 0: none */
    u_char                         *records;
} ngx_idempotency_cache_t;


static ngx_int_t ngx_idempotency_cache_init_zone(ngx_shm_zone_t *zone,
    void *data);
static uint64_t *ngx_idempotency_cache_find(ngx_idempotency_cache_t *cache,
    u_char *digest, ngx_uint_t room);
static ngx_idempotency_cache_entry_t *ngx_idempotency_cache_entry(
    ngx_idempotency_cache_t *cache, uint64_t place);


ngx_shm_zone_t *
ngx_idempotency_cache_create(ngx_conf_t *cf, ngx_str_t *name, size_t size,
    void *tag)
{
    u_char          *p;
    ngx_str_t        full;
    ngx_shm_zone_t  *zone;

    full.data = ngx_pnalloc(cf->pool, name->len
                                      + sizeof("idempotency_cache_"));
    if (full.data == NULL) {
        return NULL;
    }

    p = ngx_sprintf(full.data, "idempotency_cache_%V", name);
    full.len = p - full.data;

    zone = ngx_shared_memory_add(cf, &full, size, tag);
    if (zone == NULL) {
        return NULL;
    }

    zone->init = ngx_idempotency_cache_init_zone;

    return zone;
}


static ngx_int_t
ngx_idempotency_cache_init_zone(ngx_shm_zone_t *zone, void *data)
{
    size_t                    size;
    ngx_uint_t                n;
    ngx_slab_pool_t          *shpool;
    ngx_idempotency_cache_t  *cache;

    if (data) {
        zone->data = data;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    /* one allocation of all pages */

    size = shpool->pfree * ngx_pagesize;

    cache = ngx_slab_calloc(shpool, size);
    if (cache == NULL) {
        return NGX_ERROR;
    }

    for (n = 64; n * NGX_IDEMPOTENCY_CACHE_SLOT < size / 2; n *= 2) {
        /* void */
    }

    cache->mask = n - 1;
    cache->slots = (uint64_t *) (cache + 1);
    cache->records = (u_char *) (cache->slots + n);
    cache->size = (u_char *) cache + size - cache->records;
    cache->size -= cache->size % sizeof(uint64_t);
    cache->last = cache->size;

    zone->data = cache;

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_cache_get(ngx_shm_zone_t *zone, u_char *digest,
    ngx_msec_t since, ngx_pool_t *pool, ngx_idempotency_cached_t *cached)
{
    uint64_t                       *slot;
    ngx_int_t                       rc;
    ngx_slab_pool_t                *shpool;
    ngx_idempotency_cache_t        *cache;
    ngx_idempotency_cache_entry_t  *entry;

    cache = zone->data;
    shpool = (ngx_slab_pool_t *) zone->shm.addr;
    rc = NGX_DECLINED;

    ngx_shmtx_lock(&shpool->mutex);

    slot = ngx_idempotency_cache_find(cache, digest, 0);

    if (slot == NULL) {
        goto done;
    }

    entry = ngx_idempotency_cache_entry(cache, *slot);

    if ((ngx_msec_int_t) (entry->asked - since) <= 0
        || (ngx_msec_int_t) (entry->asked - cache->purged) <= 0
        || ngx_current_msec - entry->asked >= NGX_IDEMPOTENCY_CACHE_AGE)
    {
        goto done;
    }

    cached->value.data = ngx_pnalloc(pool, entry->len);
    if (cached->value.data == NULL) {
        goto done;
    }

    ngx_memcpy(cached->value.data, entry + 1, entry->len);

    cached->value.len = entry->len;
    cached->asked = entry->asked;
    cached->now = entry->now;

    rc = NGX_OK;

done:

    ngx_shmtx_unlock(&shpool->mutex);

    return rc;
}


void
ngx_idempotency_cache_put(ngx_shm_zone_t *zone, u_char *digest,
    ngx_idempotency_cached_t *cached)
{
    size_t                          len, rest;
    uint64_t                       *slot, place;
    ngx_slab_pool_t                *shpool;
    ngx_idempotency_cache_t        *cache;
    ngx_idempotency_cache_entry_t  *entry;

    cache = zone->data;
    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    len = ngx_align(sizeof(ngx_idempotency_cache_entry_t) + cached->value.len,
                    sizeof(uint64_t));

    if (len > NGX_IDEMPOTENCY_CACHE_RECORD || len > cache->size / 8) {
        return;
    }

    ngx_shmtx_lock(&shpool->mutex);

    rest = cache->size - cache->last % cache->size;

    place = cache->last + (rest < len ? rest : 0);

    /* first, the records that will be written over become invalid */

    cache->last = place + len;

    slot = ngx_idempotency_cache_find(cache, digest, 1);
    *slot = 0;

    ngx_memory_barrier();

    entry = (ngx_idempotency_cache_entry_t *)
                (cache->records + place % cache->size);

    ngx_memcpy(entry->digest, digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(entry + 1, cached->value.data, cached->value.len);

    entry->asked = cached->asked;
    entry->now = cached->now;
    entry->len = cached->value.len;

    ngx_memory_barrier();

    *slot = place;

    ngx_shmtx_unlock(&shpool->mutex);
}


void
ngx_idempotency_cache_purge(ngx_shm_zone_t *zone)
{
    ngx_slab_pool_t          *shpool;
    ngx_idempotency_cache_t  *cache;

    cache = zone->data;
    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    /* the cached time is that of the begin of this event loop cycle */

    ngx_time_update();

    ngx_shmtx_lock(&shpool->mutex);

    if (cache->purged == 0
        || (ngx_msec_int_t) (ngx_current_msec - cache->purged) > 0)
    {
        cache->purged = ngx_current_msec;
    }

    ngx_shmtx_unlock(&shpool->mutex);
}


/*
 * A record may be in one of two slots.  If it is in none: NULL, or with "room"
 * the slot that is free or has the older record.
 */

static uint64_t *
ngx_idempotency_cache_find(ngx_idempotency_cache_t *cache, u_char *digest,
    ngx_uint_t room)
{
    uint32_t                        hash;
    uint64_t                       *slot;
    ngx_uint_t                      i;
    ngx_idempotency_cache_entry_t  *entry;

    ngx_memcpy(&hash, digest, sizeof(uint32_t));

    slot = &cache->slots[hash & cache->mask & ~(ngx_uint_t) 1];

    for (i = 0; i < 2; i++) {
        entry = ngx_idempotency_cache_entry(cache, slot[i]);

        if (entry && ngx_memcmp(entry->digest, digest,
                                NGX_IDEMPOTENCY_DIGEST_LEN)
                     == 0)
        {
            return &slot[i];
        }
    }

    if (!room) {
        return NULL;
    }

    return slot[0] <= slot[1] ? &slot[0] : &slot[1];
}


/* NULL: the record was written over */

static ngx_idempotency_cache_entry_t *
ngx_idempotency_cache_entry(ngx_idempotency_cache_t *cache, uint64_t place)
{
    if (place == 0 || cache->last - place > cache->size) {
        return NULL;
    }

    return (ngx_idempotency_cache_entry_t *)
               (cache->records + place % cache->size);
}
