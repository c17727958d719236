
/*
 * The durable store: the thread's half.  One batch of jobs is one transaction.
 *
 * A batch takes its turn among the writers of all workers, is committed, gives
 * the turn back, and with sync=full waits until it is on disk (sqlite_turn).
 * Only then is anything of it reported.
 */


#include "ngx_idempotency_sqlite_disk.h"
#include "ngx_idempotency_sqlite_wal.h"
#include <sys/statvfs.h>


/*
 * Bytes: when the answers that a batch has read are longer, its other jobs
 * wait for the next one.  Each job has a copy, for store/share to drop.
 */
#define NGX_IDEMPOTENCY_SQLITE_LOADED      (1024 * 1024)

/* milliseconds: the clock is written so often, while there is something new */
#define NGX_IDEMPOTENCY_SQLITE_CLOCK_SAVE  1000

/* milliseconds: a file that has failed is opened again so often */
#define NGX_IDEMPOTENCY_SQLITE_REOPEN      500


static int ngx_idempotency_sqlite_task(ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_batch(ngx_idempotency_sqlite_ctx_t *ctx);
static ngx_uint_t ngx_idempotency_sqlite_reads(
    ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_transaction(
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_uint_t reads);
static int ngx_idempotency_sqlite_jobs(ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_upkeep(ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_begin(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_uint_t reads);
static int ngx_idempotency_sqlite_end(ngx_idempotency_sqlite_ctx_t *ctx,
    int rc);
static int ngx_idempotency_sqlite_commit(ngx_idempotency_sqlite_db_t *db);
static void ngx_idempotency_sqlite_clock(ngx_idempotency_sqlite_db_t *db);
static void ngx_idempotency_sqlite_committed(
    ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_doubt(ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_fail(ngx_idempotency_sqlite_ctx_t *ctx,
    int rc);


void
ngx_idempotency_sqlite_run(void *data, ngx_log_t *log)
{
    ngx_idempotency_sqlite_ctx_t *ctx = data;

    int  rc;

    rc = ngx_idempotency_sqlite_task(ctx);

    if (rc != SQLITE_OK) {
        ngx_idempotency_sqlite_fail(ctx, rc);
    }

    ctx->expire = 0;
}


/* a task is either a batch of jobs, or work that no operation waits for */

static int
ngx_idempotency_sqlite_task(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                               rc;
    ngx_idempotency_sqlite_shared_t  *shared;

    shared = ctx->zone->data;

    if (shared->failed) {
        return (int) shared->failed;
    }

    if (ctx->closed && !ctx->stopping
        && ngx_idempotency_sqlite_msec(CLOCK_MONOTONIC) - ctx->closed
           < NGX_IDEMPOTENCY_SQLITE_REOPEN)
    {
        return ctx->error;
    }

    rc = ngx_idempotency_sqlite_open(ctx);
    if (rc != SQLITE_OK) {
        return rc;
    }

    rc = ngx_idempotency_sqlite_same_file(ctx);
    if (rc != SQLITE_OK) {
        return rc;
    }

    if (ngx_queue_empty(&ctx->batch)) {
        return ngx_idempotency_sqlite_upkeep(ctx);
    }

    return ngx_idempotency_sqlite_batch(ctx);
}


/*
 * What cannot be written is tried once more with the room of the reserve, and
 * then as far as it only reads: known keys are replayed while the disk is full
 * or read-only.
 */

static int
ngx_idempotency_sqlite_batch(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           rc;
    ngx_uint_t                    reads;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;
    db->refuse = SQLITE_OK;
    reads = ngx_idempotency_sqlite_reads(ctx);

    rc = ngx_idempotency_sqlite_transaction(ctx, reads);

    if (rc == SQLITE_FULL && ngx_idempotency_sqlite_reserve_spend(ctx)) {
        rc = ngx_idempotency_sqlite_transaction(ctx, reads);
    }

    if (!reads
        && (rc == SQLITE_FULL
            || (rc & 0xff) == SQLITE_READONLY
            || (rc & 0xff) == SQLITE_IOERR)
        && rc != SQLITE_IOERR_FSYNC && rc != SQLITE_IOERR_DIR_FSYNC)
    {
        ngx_idempotency_sqlite_log(ctx, rc, "cannot be written");

        db->refuse = rc;
        rc = ngx_idempotency_sqlite_transaction(ctx, 1);
    }

    if (rc != SQLITE_OK || !ctx->sync) {
        return rc;
    }

    /*
     * An answer that another worker has committed and not yet synced must not
     * reach a client either: loss of power would make it unknown.
     */

    if (db->changed || db->version != db->synced) {
        rc = ngx_idempotency_sqlite_sync(ctx);

        if (rc != SQLITE_OK) {
            ngx_idempotency_sqlite_doubt(ctx);
            return rc;
        }

        db->synced = db->version;
    }

    return SQLITE_OK;
}


/* a look at records needs no turn, and goes on while a writer is stuck */

static ngx_uint_t
ngx_idempotency_sqlite_reads(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_queue_t                   *q;
    ngx_idempotency_sqlite_job_t  *job;

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


static int
ngx_idempotency_sqlite_transaction(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_uint_t reads)
{
    int                           rc;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    rc = ngx_idempotency_sqlite_begin(ctx, reads);

    if (rc == SQLITE_OK && ctx->sync) {
        db->version = ngx_idempotency_sqlite_number(db,
                                        NGX_IDEMPOTENCY_SQLITE_DATA_VERSION);
    }

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_jobs(ctx);
    }

    return ngx_idempotency_sqlite_end(ctx, rc);
}


static int
ngx_idempotency_sqlite_jobs(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                            rc;
    ngx_queue_t                   *q;
    ngx_idempotency_sqlite_db_t   *db;
    ngx_idempotency_sqlite_job_t  *job;

    db = ctx->db;
    db->loaded = 0;

    for (q = ngx_queue_head(&ctx->batch);
         q != ngx_queue_sentinel(&ctx->batch);
         q = ngx_queue_next(q))
    {
        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);

        ngx_idempotency_sqlite_job_clear(job);

        if (db->loaded > NGX_IDEMPOTENCY_SQLITE_LOADED) {
            job->again = 1;
            continue;
        }

        rc = ngx_idempotency_sqlite_job_run(ctx, job);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    return SQLITE_OK;
}


/* nobody waits for it: what is lost of it is done again */

static int
ngx_idempotency_sqlite_upkeep(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           rc;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;
    db->refuse = SQLITE_OK;

    if (ctx->checkpoint) {
        ctx->checkpoint = 0;
        ngx_idempotency_sqlite_checkpoint(ctx);
    }

    if (!ctx->expire) {
        return SQLITE_OK;
    }

    ngx_idempotency_sqlite_reserve_fill(ctx);

    rc = ngx_idempotency_sqlite_begin(ctx, 0);

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_expire(ctx);
    }

    rc = ngx_idempotency_sqlite_end(ctx, rc);

    if (rc == SQLITE_FULL) {

        /* the next attempt to remove something will have room */

        (void) ngx_idempotency_sqlite_reserve_spend(ctx);
    }

    if (rc != SQLITE_OK || !ctx->count) {
        return rc;
    }

    rc = ngx_idempotency_sqlite_begin(ctx, 1);

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_scan(ctx);
    }

    return ngx_idempotency_sqlite_end(ctx, rc);
}


static int
ngx_idempotency_sqlite_begin(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_uint_t reads)
{
    int                           rc;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    if (!reads) {
        rc = ngx_idempotency_sqlite_lock(ctx);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    if (db->log) {
        ngx_idempotency_sqlite_log_begin(db->log);
    }

    rc = ngx_idempotency_sqlite_exec(db, reads
                                         ? NGX_IDEMPOTENCY_SQLITE_BEGIN_READ
                                         : NGX_IDEMPOTENCY_SQLITE_BEGIN);
    if (rc != SQLITE_OK) {
        return rc;
    }

    ngx_memzero(db->changes, sizeof(db->changes));

    db->before = sqlite3_total_changes(db->handle);
    db->scanned = 0;
    db->changed = 0;

    ngx_idempotency_sqlite_clock(db);
    ngx_idempotency_sqlite_room(ctx);

    return SQLITE_OK;
}


/* commits if all is well so far; in any case the transaction is over */

static int
ngx_idempotency_sqlite_end(ngx_idempotency_sqlite_ctx_t *ctx, int rc)
{
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    if (rc == SQLITE_OK) {
        db->changed = (sqlite3_total_changes(db->handle) != db->before);

        if (db->changed
            && db->now >= db->saved + NGX_IDEMPOTENCY_SQLITE_CLOCK_SAVE)
        {
            sqlite3_bind_int64(ngx_idempotency_sqlite_statement(db,
                                              NGX_IDEMPOTENCY_SQLITE_CLOCK),
                               1, (int64_t) db->now);

            rc = ngx_idempotency_sqlite_exec(db, NGX_IDEMPOTENCY_SQLITE_CLOCK);

            db->saved = db->now;
        }

        if (rc == SQLITE_OK) {
            rc = ngx_idempotency_sqlite_commit(db);
            if (rc != SQLITE_OK) {
                ngx_idempotency_sqlite_doubt(ctx);
            }
        }
    }

    if (rc == SQLITE_OK) {
        ngx_idempotency_sqlite_committed(ctx);

    } else {
        rc = ngx_idempotency_sqlite_cause(db, rc);

        if (!sqlite3_get_autocommit(db->handle)) {
            (void) ngx_idempotency_sqlite_exec(db,
                                             NGX_IDEMPOTENCY_SQLITE_ROLLBACK);
        }
    }

    ngx_idempotency_sqlite_unlock(ctx);

    return rc;
}


static int
ngx_idempotency_sqlite_commit(ngx_idempotency_sqlite_db_t *db)
{
    int  rc;

    if (db->log) {
        ngx_idempotency_sqlite_log_commit(db->log, 1);
    }

    rc = ngx_idempotency_sqlite_exec(db, NGX_IDEMPOTENCY_SQLITE_COMMIT);

    if (db->log) {
        ngx_idempotency_sqlite_log_commit(db->log, 0);
    }

    return rc;
}


/*
 * The store's clock goes on as the machine does: it is that of the boot and
 * an offset which is in the file, see ngx_idempotency_sqlite_boot().  Steps of
 * the wall clock neither end a lease nor make a record expire.
 */

static void
ngx_idempotency_sqlite_clock(ngx_idempotency_sqlite_db_t *db)
{
    uint64_t  now;

    now = ngx_idempotency_sqlite_msec(CLOCK_BOOTTIME)
          + (uint64_t) db->offset;

    db->now = ngx_max(db->now, now);
    db->fence = ngx_max(db->fence, db->now * 1000);
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
        shared->counted = 1;
    }

    if (db->used) {
        shared->used = db->used;
    }

    if (ngx_idempotency_sqlite_checkpoint_due(db)) {
        ctx->checkpoint = 1;
    }
}


/* the commit may have happened: what it has granted is to be taken back */

static void
ngx_idempotency_sqlite_doubt(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_queue_t                   *q;
    ngx_idempotency_sqlite_job_t  *job;

    for (q = ngx_queue_head(&ctx->batch);
         q != ngx_queue_sentinel(&ctx->batch);
         q = ngx_queue_next(q))
    {
        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);

        job->unsure = (job->ask.type == NGX_IDEMPOTENCY_CLAIM
                       && job->result == NGX_IDEMPOTENCY_GRANTED);
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

    ngx_idempotency_sqlite_names(rc, &error, &refusal);

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
    ngx_idempotency_sqlite_give_up(ctx, rc);

    /* a later task opens it anew, unless that would change nothing */

    if (error != NGX_IDEMPOTENCY_ERROR_FULL
        && error != NGX_IDEMPOTENCY_ERROR_MEMORY
        && error != NGX_IDEMPOTENCY_ERROR_TIMEOUT)
    {
        ngx_idempotency_sqlite_close(ctx);
    }
}
