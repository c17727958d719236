
/*
 * The durable store: the thread's half.  One batch of jobs is one transaction.
 *
 * Writers of several workers take turns by a lock of their own, on a file
 * beside the database: SQLite's busy handler sleeps and is not fair.  SQLite
 * itself does not sync a commit (synchronous=NORMAL); with sync=full the WAL
 * is synced behind the commit, after the lock was given back, so that the
 * syncs of several workers meet in one of the disk.
 */


#include "ngx_idempotency_sqlite_db.h"
#include <sys/statvfs.h>


/*
 * Frames of the WAL, each a page: it is written back to the database when it
 * has so many more than at the last try, and cut off when a reader, as a
 * backup, has kept it from being reused for long.
 */
#define NGX_IDEMPOTENCY_SQLITE_WAL         1000
#define NGX_IDEMPOTENCY_SQLITE_WAL_LONG    16384

/*
 * Bytes: when the answers that a batch has read are longer, its other jobs
 * wait for the next one.  Each job has a copy, for store/share to drop.
 */
#define NGX_IDEMPOTENCY_SQLITE_LOADED      (1024 * 1024)

/* milliseconds: the clock is written so often, while there is something new */
#define NGX_IDEMPOTENCY_SQLITE_CLOCK_SAVE  1000


static int ngx_idempotency_sqlite_batch(ngx_idempotency_sqlite_ctx_t *ctx);
static ngx_uint_t ngx_idempotency_sqlite_reads(
    ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_sync(ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_checkpoint(
    ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_clock(ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_room(ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_committed(
    ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_fail(ngx_idempotency_sqlite_ctx_t *ctx,
    int rc);


void
ngx_idempotency_sqlite_run(void *data, ngx_log_t *log)
{
    ngx_idempotency_sqlite_ctx_t *ctx = data;

    int           rc;
    ngx_queue_t  *q;

    for (q = ngx_queue_head(&ctx->batch);
         q != ngx_queue_sentinel(&ctx->batch);
         q = ngx_queue_next(q))
    {
        ngx_idempotency_sqlite_job_clear(
                      ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue));
    }

    rc = ngx_idempotency_sqlite_batch(ctx);

    if (rc != SQLITE_OK) {
        ngx_idempotency_sqlite_fail(ctx, rc);
    }

    ctx->expire = 0;
}


static int
ngx_idempotency_sqlite_batch(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                               rc, before, changed;
    ngx_uint_t                        reads;
    ngx_queue_t                      *q;
    ngx_idempotency_sqlite_db_t      *db;
    ngx_idempotency_sqlite_job_t     *job;
    ngx_idempotency_sqlite_shared_t  *shared;

    shared = ctx->zone->data;

    if (shared->failed) {
        return SQLITE_IOERR_FSYNC;
    }

    rc = ngx_idempotency_sqlite_open(ctx);
    if (rc != SQLITE_OK) {
        return rc;
    }

    db = ctx->db;
    reads = ngx_idempotency_sqlite_reads(ctx);

    if (!reads) {
        rc = ngx_idempotency_sqlite_lock(ctx);
        if (rc != SQLITE_OK) {
            return rc;
        }

        ngx_idempotency_sqlite_checkpoint(ctx);
    }

    rc = ngx_idempotency_sqlite_exec(db, reads
                                         ? NGX_IDEMPOTENCY_SQLITE_BEGIN_READ
                                         : NGX_IDEMPOTENCY_SQLITE_BEGIN);
    if (rc != SQLITE_OK) {
        ngx_idempotency_sqlite_unlock(db);
        return rc;
    }

    before = sqlite3_total_changes(db->handle);

    ngx_memzero(db->changes, sizeof(db->changes));
    db->scanned = 0;
    db->loaded = 0;

    ngx_idempotency_sqlite_clock(ctx);
    ngx_idempotency_sqlite_room(ctx);

    for (q = ngx_queue_head(&ctx->batch);
         rc == SQLITE_OK && q != ngx_queue_sentinel(&ctx->batch);
         q = ngx_queue_next(q))
    {
        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);

        if (db->loaded > NGX_IDEMPOTENCY_SQLITE_LOADED) {
            job->again = 1;
            continue;
        }

        rc = ngx_idempotency_sqlite_job_run(ctx, job);
    }

    if (rc == SQLITE_OK && ctx->expire) {
        rc = ngx_idempotency_sqlite_expire(ctx);
    }

    changed = (sqlite3_total_changes(db->handle) != before);

    if (rc == SQLITE_OK && changed
        && db->now >= db->saved + NGX_IDEMPOTENCY_SQLITE_CLOCK_SAVE)
    {
        sqlite3_bind_int64(ngx_idempotency_sqlite_statement(db,
                                              NGX_IDEMPOTENCY_SQLITE_CLOCK),
                           1, (int64_t) db->now);
        rc = ngx_idempotency_sqlite_exec(db, NGX_IDEMPOTENCY_SQLITE_CLOCK);
        db->saved = db->now;
    }

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_exec(db, NGX_IDEMPOTENCY_SQLITE_COMMIT);
    }

    if (rc == SQLITE_OK) {
        ngx_idempotency_sqlite_committed(ctx);

    } else if (!sqlite3_get_autocommit(db->handle)) {
        (void) ngx_idempotency_sqlite_exec(db,
                                           NGX_IDEMPOTENCY_SQLITE_ROLLBACK);
    }

    ngx_idempotency_sqlite_unlock(db);

    if (rc == SQLITE_OK && changed && ctx->sync) {
        rc = ngx_idempotency_sqlite_sync(ctx);
    }

    return rc;
}


/* a look at records needs no turn, and goes on while a writer is stuck */

static ngx_uint_t
ngx_idempotency_sqlite_reads(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_queue_t                   *q;
    ngx_idempotency_sqlite_job_t  *job;

    if (ctx->expire || ctx->checkpoint || ngx_queue_empty(&ctx->batch)) {
        return 0;
    }

    for (q = ngx_queue_head(&ctx->batch);
         q != ngx_queue_sentinel(&ctx->batch);
         q = ngx_queue_next(q))
    {
        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);

        if (job->ask.type != NGX_IDEMPOTENCY_FETCH
            && job->ask.type != NGX_IDEMPOTENCY_LIST)
        {
            return 0;
        }
    }

    return 1;
}


/*
 * After an error the kernel may have dropped what it could not write, and a
 * second fsync() would succeed: nothing is asked of this file again.
 */

static int
ngx_idempotency_sqlite_sync(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_queue_t                      *q;
    ngx_idempotency_sqlite_job_t     *job;
    ngx_idempotency_sqlite_shared_t  *shared;

    if (fdatasync(ctx->db->wal) == 0) {
        return SQLITE_OK;
    }

    shared = ctx->zone->data;
    shared->failed = 1;

    ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno,
                  "idempotency store \"%V\": fdatasync(\"%V\") failed, new "
                  "keys are refused: replace the disk, then restart nginx",
                  &ctx->store->name, &ctx->wal);

    for (q = ngx_queue_head(&ctx->batch);
         q != ngx_queue_sentinel(&ctx->batch);
         q = ngx_queue_next(q))
    {
        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);

        job->unsure = (job->ask.type == NGX_IDEMPOTENCY_CLAIM
                       && job->result == NGX_IDEMPOTENCY_GRANTED);
    }

    return SQLITE_IOERR_FSYNC;
}


/* inside the lock there is no other writer and, but for people, no reader */

static void
ngx_idempotency_sqlite_checkpoint(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           mode, rc;
    ngx_idempotency_sqlite_db_t  *db;

    if (!ctx->checkpoint) {
        return;
    }

    db = ctx->db;
    ctx->checkpoint = 0;

    mode = (db->frames > NGX_IDEMPOTENCY_SQLITE_WAL_LONG)
           ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;

    rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, mode, NULL, NULL);

    if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY) {
        ngx_idempotency_sqlite_log(ctx, rc, "was not written back");
    }
}


/*
 * Wall clock, but it never goes back: meanwhile, it goes on as the monotonic
 * clock does.
 */

static void
ngx_idempotency_sqlite_clock(ngx_idempotency_sqlite_ctx_t *ctx)
{
    uint64_t                          wall, monotonic, least;
    struct timespec                   ts;
    ngx_idempotency_sqlite_shared_t  *shared;

    shared = ctx->zone->data;

    (void) clock_gettime(CLOCK_REALTIME, &ts);
    wall = (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    monotonic = (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;

    least = shared->clock;

    if (shared->monotonic && monotonic > shared->monotonic) {
        least += monotonic - shared->monotonic;
    }

    ctx->db->now = ngx_max(wall, least);
    ctx->db->fence = ngx_max(ctx->db->fence, ctx->db->now * 1000);

    shared->clock = ctx->db->now;
    shared->monotonic = monotonic;
}


static void
ngx_idempotency_sqlite_room(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int64_t                           pages;
    struct statvfs                    fs;
    ngx_idempotency_sqlite_db_t      *db;
    ngx_idempotency_sqlite_shared_t  *shared;

    db = ctx->db;

    if (ctx->size == 0 && !ctx->expire) {
        return;
    }

    pages = ngx_idempotency_sqlite_number(db, NGX_IDEMPOTENCY_SQLITE_PAGES)
            - ngx_idempotency_sqlite_number(db,
                                         NGX_IDEMPOTENCY_SQLITE_FREE_PAGES);

    db->used = (off_t) pages * 4096;
    db->full = (ctx->size && db->used >= ctx->size);

    if (ctx->expire && fstatvfs(db->lock, &fs) == 0) {
        shared = ctx->zone->data;
        shared->room = (ngx_atomic_uint_t) fs.f_bavail * fs.f_frsize;
    }
}


static void
ngx_idempotency_sqlite_committed(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_uint_t                        i;
    ngx_idempotency_sqlite_db_t      *db;
    ngx_idempotency_sqlite_shared_t  *shared;

    db = ctx->db;
    shared = ctx->zone->data;

    for (i = 0; i <= NGX_IDEMPOTENCY_TOMBSTONE; i++) {

        if (db->scanned) {
            shared->states[i] = db->counted[i];

        } else if (db->changes[i]) {
            (void) ngx_atomic_fetch_add(&shared->states[i], db->changes[i]);
        }
    }

    if (db->scanned) {
        ngx_memzero(db->counted, sizeof(db->counted));
    }

    if (db->used) {
        shared->used = db->used;
    }

    if (db->frames < db->tried) {

        /* another worker has begun a new WAL */

        db->tried = 0;
    }

    if (db->frames >= db->tried + NGX_IDEMPOTENCY_SQLITE_WAL) {
        db->tried = db->frames;
        ctx->checkpoint = 1;
    }
}


static void
ngx_idempotency_sqlite_fail(ngx_idempotency_sqlite_ctx_t *ctx, int rc)
{
    ngx_uint_t                     i, unsure;
    ngx_queue_t                   *q;
    ngx_idempotency_error_e        error;
    ngx_idempotency_refusal_e      refusal;
    ngx_idempotency_sqlite_job_t  *job;

    error = NGX_IDEMPOTENCY_ERROR_REFUSED;
    refusal = NGX_IDEMPOTENCY_REFUSAL_OTHER;

    switch (rc & 0xff) {

    case SQLITE_FULL:
        error = NGX_IDEMPOTENCY_ERROR_FULL;
        refusal = NGX_IDEMPOTENCY_REFUSAL_FULL;
        break;

    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        error = NGX_IDEMPOTENCY_ERROR_TIMEOUT;
        refusal = NGX_IDEMPOTENCY_REFUSAL_TIMEOUT;
        break;

    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        refusal = NGX_IDEMPOTENCY_REFUSAL_DAMAGED;
        break;

    case SQLITE_CANTOPEN:
    case SQLITE_MISMATCH:
        error = NGX_IDEMPOTENCY_ERROR_CONNECT;
        refusal = NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE;
        break;

    case SQLITE_READONLY:
        refusal = NGX_IDEMPOTENCY_REFUSAL_READONLY;
        break;

    case SQLITE_NOMEM:
        error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;
        break;

    default:
        break;
    }

    for (q = ngx_queue_head(&ctx->batch);
         q != ngx_queue_sentinel(&ctx->batch);
         q = ngx_queue_next(q))
    {
        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);
        unsure = job->unsure;

        ngx_idempotency_sqlite_job_clear(job);

        job->error = error;
        job->refusal = refusal;
        job->unsure = unsure;

        for (i = 0; i < job->nleases; i++) {
            job->leases[i].result = NGX_IDEMPOTENCY_REFUSED;
        }
    }

    if (ctx->db == NULL) {
        return;
    }

    ngx_idempotency_sqlite_log(ctx, rc, "has failed");

    /* the next task opens it anew, unless that would change nothing */

    if (error != NGX_IDEMPOTENCY_ERROR_FULL
        && error != NGX_IDEMPOTENCY_ERROR_MEMORY
        && error != NGX_IDEMPOTENCY_ERROR_TIMEOUT)
    {
        ngx_idempotency_sqlite_close(ctx);
    }
}
