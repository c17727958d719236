
/*
 * The store in Redis: operations in shared memory, left by workers that have
 * exited.
 */


#include "ngx_idempotency_redis_left.h"


/*
 * Bytes of a zone, which take memory only once they are used.  Answers may
 * take three quarters of them; the rest is for operations without an answer.
 */
#define NGX_IDEMPOTENCY_REDIS_LEFT_SIZE     (16 * 1024 * 1024)
#define NGX_IDEMPOTENCY_REDIS_LEFT_ANSWERS  (12 * 1024 * 1024)

/* what the slab allocator takes for itself, generously */
#define NGX_IDEMPOTENCY_REDIS_LEFT_OWN      (64 * ngx_pagesize)

#define NGX_IDEMPOTENCY_REDIS_LEFT_ALIGN    16


/*
 * Entries are appended at "used" and taken at "taken", under the mutex.  Both
 * move as the last step: a process that is killed before that leaves an entry
 * that nobody sees, or one that is taken once more, which does no harm.  The
 * place is used again when all entries were taken; taken >= used is empty.
 */

typedef struct {
    ngx_atomic_t  used;       /* bytes */
    ngx_atomic_t  taken;      /* bytes */
    ngx_atomic_t  number;     /* entries in between; after a kill it may be
                                 wrong by one until there are none */
    ngx_atomic_t  reported;   /* of these, see report */

    /* pids, by their place in ngx_processes[] */
    ngx_atomic_t  workers[NGX_MAX_PROCESSES];
} ngx_idempotency_redis_left_t;


#define NGX_IDEMPOTENCY_REDIS_LEFT_HEADER                                     \
    ngx_align(sizeof(ngx_idempotency_redis_left_t),                           \
              NGX_IDEMPOTENCY_REDIS_LEFT_ALIGN)


static ngx_int_t ngx_idempotency_redis_left_init(ngx_shm_zone_t *zone,
    void *data);
static u_char *ngx_idempotency_redis_left_at(
    ngx_idempotency_redis_left_t *left, size_t offset);


/* whose zone it is: another may have the same name */

static ngx_uint_t  ngx_idempotency_redis_left_tag;


ngx_shm_zone_t *
ngx_idempotency_redis_left_zone(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_shm_zone_t  *zone;

    zone = ngx_shared_memory_add(cf, name,
                                 NGX_IDEMPOTENCY_REDIS_LEFT_SIZE
                                 + NGX_IDEMPOTENCY_REDIS_LEFT_OWN,
                                 &ngx_idempotency_redis_left_tag);

    if (zone) {
        zone->init = ngx_idempotency_redis_left_init;
    }

    return zone;
}


/* only its header is zeroed: otherwise all of the memory would be used */

static ngx_int_t
ngx_idempotency_redis_left_init(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t  *shpool;

    if (data) {
        zone->data = data;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    zone->data = ngx_slab_alloc(shpool, NGX_IDEMPOTENCY_REDIS_LEFT_SIZE);
    if (zone->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(zone->data, NGX_IDEMPOTENCY_REDIS_LEFT_HEADER);

    return NGX_OK;
}


void
ngx_idempotency_redis_left_join(ngx_shm_zone_t *zone)
{
    ngx_idempotency_redis_left_t  *left;

    left = zone->data;
    left->workers[ngx_process_slot] = ngx_pid;
}


void
ngx_idempotency_redis_left_part(ngx_shm_zone_t *zone)
{
    ngx_idempotency_redis_left_t  *left;

    left = zone->data;
    left->workers[ngx_process_slot] = 0;
}


ngx_uint_t
ngx_idempotency_redis_left_has_takers(ngx_shm_zone_t *zone)
{
    ngx_pid_t                      pid;
    ngx_uint_t                     i;
    ngx_idempotency_redis_left_t  *left;

    left = zone->data;

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {
        pid = (ngx_pid_t) left->workers[i];

        /* one that was killed has not parted */

        if (pid && (kill(pid, 0) == 0 || ngx_errno != NGX_ESRCH)) {
            return 1;
        }
    }

    return 0;
}


ngx_uint_t
ngx_idempotency_redis_left_lock(ngx_shm_zone_t *zone, ngx_uint_t wait)
{
    ngx_slab_pool_t  *shpool;

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    while (!ngx_shmtx_trylock(&shpool->mutex)) {

        if (wait-- == 0) {
            return 0;
        }

        ngx_msleep(1);
    }

    return 1;
}


void
ngx_idempotency_redis_left_unlock(ngx_shm_zone_t *zone)
{
    ngx_slab_pool_t  *shpool;

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    ngx_shmtx_unlock(&shpool->mutex);
}


ngx_int_t
ngx_idempotency_redis_left_add(ngx_shm_zone_t *zone, ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type, ngx_str_t *answer)
{
    size_t                          size, len;
    ngx_idempotency_redis_left_t   *left;
    ngx_idempotency_redis_entry_t  *entry;

    left = zone->data;

    if (left->taken >= left->used) {

        /* in this order: whatever is cut off in between reads as empty */

        left->used = 0;
        ngx_memory_barrier();
        left->taken = 0;
        left->number = 0;
        left->reported = 0;
    }

    len = answer->len;
    size = ngx_align(sizeof(ngx_idempotency_redis_entry_t) + len,
                     NGX_IDEMPOTENCY_REDIS_LEFT_ALIGN);

    if (left->used + size > NGX_IDEMPOTENCY_REDIS_LEFT_ANSWERS) {
        len = 0;
        size = ngx_align(sizeof(ngx_idempotency_redis_entry_t),
                         NGX_IDEMPOTENCY_REDIS_LEFT_ALIGN);
    }

    if (NGX_IDEMPOTENCY_REDIS_LEFT_HEADER + left->used + size
        > NGX_IDEMPOTENCY_REDIS_LEFT_SIZE)
    {
        return NGX_DECLINED;
    }

    entry = (ngx_idempotency_redis_entry_t *)
                ngx_idempotency_redis_left_at(left, left->used);

    entry->size = size;
    entry->head = op->head.len;
    entry->answer = len;
    entry->type = type;
    entry->status = op->status;
    entry->flags = op->flags;
    entry->fence = (type == op->type) ? op->fence : 0;
    entry->number = op->number;
    entry->epoch = op->epoch;
    entry->lease = op->lease;
    entry->ttl = op->ttl;
    entry->tombstone = op->tombstone;
    entry->connection = op->connection;

    ngx_memcpy(entry->digest, op->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(entry->owner, op->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(entry->fingerprint, op->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    if (len) {
        ngx_memcpy(entry + 1, answer->data, len);
    }

    ngx_memory_barrier();

    left->used += size;
    left->number++;

    return NGX_OK;
}


static u_char *
ngx_idempotency_redis_left_at(ngx_idempotency_redis_left_t *left,
    size_t offset)
{
    return (u_char *) left + NGX_IDEMPOTENCY_REDIS_LEFT_HEADER + offset;
}


ngx_idempotency_redis_entry_t *
ngx_idempotency_redis_left_first(ngx_shm_zone_t *zone)
{
    ngx_idempotency_redis_left_t  *left;

    left = zone->data;

    if (left->taken >= left->used) {
        return NULL;
    }

    return (ngx_idempotency_redis_entry_t *)
               ngx_idempotency_redis_left_at(left, left->taken);
}


void
ngx_idempotency_redis_left_took(ngx_shm_zone_t *zone)
{
    ngx_idempotency_redis_left_t   *left;
    ngx_idempotency_redis_entry_t  *entry;

    left = zone->data;
    entry = ngx_idempotency_redis_left_first(zone);

    left->taken += entry->size;

    if (left->number) {
        left->number--;
    }

    if (left->reported) {
        left->reported--;
    }
}


ngx_uint_t
ngx_idempotency_redis_left_number(ngx_shm_zone_t *zone)
{
    ngx_idempotency_redis_left_t  *left;

    left = zone->data;

    if (left->taken >= left->used) {
        return 0;
    }

    return ngx_max(left->number, 1);
}


ngx_uint_t
ngx_idempotency_redis_left_report(ngx_shm_zone_t *zone)
{
    ngx_uint_t                     n, reported;
    ngx_idempotency_redis_left_t  *left;

    left = zone->data;

    n = ngx_idempotency_redis_left_number(zone);
    reported = ngx_min(left->reported, n);

    left->reported = n;

    return n - reported;
}
