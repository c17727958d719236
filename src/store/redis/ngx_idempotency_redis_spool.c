
/*
 * The store in Redis: outcomes as plain data, and a spool of them in shared
 * memory that exiting workers leave to the other workers.
 */


#include "ngx_idempotency_redis_spool.h"


/*
 * Bytes of a zone, which take memory only once they are used.  Answers may
 * take three quarters of them; the rest is for outcomes without an answer.
 */
#define NGX_IDEMPOTENCY_REDIS_SPOOL_SIZE     (16 * 1024 * 1024)
#define NGX_IDEMPOTENCY_REDIS_SPOOL_ANSWERS  (12 * 1024 * 1024)

/* what the slab allocator takes for itself, generously */
#define NGX_IDEMPOTENCY_REDIS_SPOOL_SLAB     (64 * ngx_pagesize)

#define NGX_IDEMPOTENCY_REDIS_SPOOL_ALIGN    16

/* flags that an operation keeps when it is sent later */
#define NGX_IDEMPOTENCY_REDIS_OUTCOME_FLAGS                                   \
    (NGX_IDEMPOTENCY_SEQUENCE|NGX_IDEMPOTENCY_SEQUENCE_STRICT                 \
     |NGX_IDEMPOTENCY_TELL)


/*
 * Entries are appended at "used" and taken at "taken", under the mutex.  Both
 * move as the last step: a process that is killed before that leaves an entry
 * that nobody sees, or one that is taken once more, which does no harm.  The
 * memory is used again when all entries were taken; taken >= used is empty.
 */

typedef struct {
    ngx_atomic_t  used;       /* bytes */
    ngx_atomic_t  taken;      /* bytes */
    ngx_atomic_t  number;     /* entries in between; after a kill it may be
                                 wrong by one until there are none */
    ngx_atomic_t  reported;   /* of these, see report */

    /* pids, by their place in ngx_processes[] */
    ngx_atomic_t  workers[NGX_MAX_PROCESSES];
} ngx_idempotency_redis_spool_t;


/* followed by the note and the answer */

typedef struct {
    size_t                           size;     /* of all, aligned */
    size_t                           answer;   /* bytes, 0: there is none */
    ngx_idempotency_redis_outcome_t  outcome;
} ngx_idempotency_redis_entry_t;


#define NGX_IDEMPOTENCY_REDIS_SPOOL_HEADER                                     \
    ngx_align(sizeof(ngx_idempotency_redis_spool_t),                           \
              NGX_IDEMPOTENCY_REDIS_SPOOL_ALIGN)


static ngx_int_t ngx_idempotency_redis_spool_init(ngx_shm_zone_t *zone,
    void *data);
static ngx_uint_t ngx_idempotency_redis_spool_lock(ngx_shm_zone_t *zone,
    ngx_uint_t wait);
static ngx_int_t ngx_idempotency_redis_spool_append(
    ngx_idempotency_redis_spool_t *spool,
    ngx_idempotency_redis_outcome_t *outcome, ngx_str_t *answer);
static ngx_idempotency_redis_entry_t *ngx_idempotency_redis_spool_entry(
    ngx_idempotency_redis_spool_t *spool, size_t offset);


/* the zone is of this module: another one may have the same name */

static ngx_uint_t  ngx_idempotency_redis_spool_tag;


void
ngx_idempotency_redis_outcome_save(ngx_idempotency_redis_outcome_t *outcome,
    ngx_idempotency_op_t *op, ngx_idempotency_op_e type)
{
    outcome->id = op->id;
    outcome->type = type;
    outcome->status = op->status;
    outcome->flags = op->flags & NGX_IDEMPOTENCY_REDIS_OUTCOME_FLAGS;
    outcome->fence = (type == op->type) ? op->fence : 0;
    outcome->lease = op->lease;
    outcome->ttl = op->ttl;
    outcome->tombstone = op->tombstone;
    outcome->connection = op->connection;
    outcome->head = op->head.len;
    outcome->note = op->note;

    if (type != op->type) {
        ngx_str_null(&outcome->note);
    }
}


void
ngx_idempotency_redis_outcome_load(ngx_idempotency_redis_outcome_t *outcome,
    ngx_idempotency_op_t *op)
{
    op->id = outcome->id;
    op->type = outcome->type;
    op->status = outcome->status;
    op->flags = outcome->flags;
    op->fence = outcome->fence;
    op->lease = outcome->lease;
    op->ttl = outcome->ttl;
    op->tombstone = outcome->tombstone;
    op->connection = outcome->connection;
    op->note = outcome->note;
}


ngx_shm_zone_t *
ngx_idempotency_redis_spool_zone(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_shm_zone_t  *zone;

    zone = ngx_shared_memory_add(cf, name,
                                 NGX_IDEMPOTENCY_REDIS_SPOOL_SIZE
                                 + NGX_IDEMPOTENCY_REDIS_SPOOL_SLAB,
                                 &ngx_idempotency_redis_spool_tag);

    if (zone) {
        zone->init = ngx_idempotency_redis_spool_init;
    }

    return zone;
}


/* only the header is zeroed: the rest takes no memory until it is used */

static ngx_int_t
ngx_idempotency_redis_spool_init(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t  *shpool;

    if (data) {
        zone->data = data;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    zone->data = ngx_slab_alloc(shpool, NGX_IDEMPOTENCY_REDIS_SPOOL_SIZE);
    if (zone->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(zone->data, NGX_IDEMPOTENCY_REDIS_SPOOL_HEADER);

    return NGX_OK;
}


void
ngx_idempotency_redis_spool_join(ngx_shm_zone_t *zone)
{
    ngx_idempotency_redis_spool_t  *spool;

    spool = zone->data;
    spool->workers[ngx_process_slot] = ngx_pid;
}


void
ngx_idempotency_redis_spool_leave(ngx_shm_zone_t *zone)
{
    ngx_idempotency_redis_spool_t  *spool;

    spool = zone->data;
    spool->workers[ngx_process_slot] = 0;
}


ngx_uint_t
ngx_idempotency_redis_spool_has_workers(ngx_shm_zone_t *zone)
{
    ngx_pid_t                       pid;
    ngx_uint_t                      i;
    ngx_idempotency_redis_spool_t  *spool;

    spool = zone->data;

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {
        pid = (ngx_pid_t) spool->workers[i];

        /* a worker that was killed has not left */

        if (pid && (kill(pid, 0) == 0 || ngx_errno != NGX_ESRCH)) {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_idempotency_redis_spool_add(ngx_shm_zone_t *zone,
    ngx_idempotency_redis_outcome_t *outcome, ngx_str_t *answer,
    ngx_uint_t wait)
{
    ngx_int_t         rc;
    ngx_slab_pool_t  *shpool;

    if (!ngx_idempotency_redis_spool_lock(zone, wait)) {
        return NGX_BUSY;
    }

    rc = ngx_idempotency_redis_spool_append(zone->data, outcome, answer);

    shpool = (ngx_slab_pool_t *) zone->shm.addr;
    ngx_shmtx_unlock(&shpool->mutex);

    return rc;
}


static ngx_uint_t
ngx_idempotency_redis_spool_lock(ngx_shm_zone_t *zone, ngx_uint_t wait)
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


static ngx_int_t
ngx_idempotency_redis_spool_append(ngx_idempotency_redis_spool_t *spool,
    ngx_idempotency_redis_outcome_t *outcome, ngx_str_t *answer)
{
    u_char                         *p;
    size_t                          size, len, fixed;
    ngx_idempotency_redis_entry_t  *entry;

    if (spool->taken >= spool->used) {

        /* in this order: if it is cut off in between, the spool is empty */

        spool->used = 0;
        ngx_memory_barrier();
        spool->taken = 0;
        spool->number = 0;
        spool->reported = 0;
    }

    len = answer->len;
    fixed = sizeof(ngx_idempotency_redis_entry_t) + outcome->note.len;
    size = ngx_align(fixed + len, NGX_IDEMPOTENCY_REDIS_SPOOL_ALIGN);

    if (spool->used + size > NGX_IDEMPOTENCY_REDIS_SPOOL_ANSWERS) {
        len = 0;
        size = ngx_align(fixed, NGX_IDEMPOTENCY_REDIS_SPOOL_ALIGN);
    }

    if (NGX_IDEMPOTENCY_REDIS_SPOOL_HEADER + spool->used + size
        > NGX_IDEMPOTENCY_REDIS_SPOOL_SIZE)
    {
        return NGX_DECLINED;
    }

    entry = ngx_idempotency_redis_spool_entry(spool, spool->used);

    entry->size = size;
    entry->answer = len;
    entry->outcome = *outcome;

    p = (u_char *) (entry + 1);

    if (outcome->note.len) {
        p = ngx_cpymem(p, outcome->note.data, outcome->note.len);
    }

    if (len) {
        ngx_memcpy(p, answer->data, len);
    }

    ngx_memory_barrier();

    spool->used += size;
    spool->number++;

    return NGX_OK;
}


static ngx_idempotency_redis_entry_t *
ngx_idempotency_redis_spool_entry(ngx_idempotency_redis_spool_t *spool,
    size_t offset)
{
    return (ngx_idempotency_redis_entry_t *)
               ((u_char *) spool + NGX_IDEMPOTENCY_REDIS_SPOOL_HEADER + offset);
}


ngx_uint_t
ngx_idempotency_redis_spool_take(ngx_shm_zone_t *zone, ngx_uint_t most,
    ngx_idempotency_redis_outcome_pt handler, void *data)
{
    ngx_str_t                         answer;
    ngx_uint_t                        n;
    ngx_slab_pool_t                  *shpool;
    ngx_idempotency_redis_spool_t    *spool;
    ngx_idempotency_redis_entry_t    *entry;
    ngx_idempotency_redis_outcome_t   outcome;

    if (!ngx_idempotency_redis_spool_lock(zone, 0)) {
        return 0;
    }

    spool = zone->data;

    for (n = 0; n < most && spool->taken < spool->used; n++) {
        entry = ngx_idempotency_redis_spool_entry(spool, spool->taken);

        outcome = entry->outcome;
        outcome.note.data = (u_char *) (entry + 1);

        answer.data = outcome.note.data + outcome.note.len;
        answer.len = entry->answer;

        if (handler(data, &outcome, &answer) != NGX_OK) {
            break;
        }

        spool->taken += entry->size;

        if (spool->number) {
            spool->number--;
        }

        if (spool->reported) {
            spool->reported--;
        }
    }

    shpool = (ngx_slab_pool_t *) zone->shm.addr;
    ngx_shmtx_unlock(&shpool->mutex);

    return n;
}


ngx_uint_t
ngx_idempotency_redis_spool_number(ngx_shm_zone_t *zone)
{
    ngx_idempotency_redis_spool_t  *spool;

    spool = zone->data;

    if (spool->taken >= spool->used) {
        return 0;
    }

    return ngx_max(spool->number, 1);
}


ngx_uint_t
ngx_idempotency_redis_spool_report(ngx_shm_zone_t *zone)
{
    ngx_uint_t                      n, reported;
    ngx_idempotency_redis_spool_t  *spool;

    spool = zone->data;

    n = ngx_idempotency_redis_spool_number(zone);
    reported = ngx_min(spool->reported, n);

    spool->reported = n;

    return n - reported;
}
