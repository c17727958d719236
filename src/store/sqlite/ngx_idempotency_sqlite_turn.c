
/*
 * The durable store: writers take turns, and share what they wait for.
 *
 * The locks are those of an open file (OFD), on bytes of PATH-lock: the death
 * of a process ends them, and both masters of a binary upgrade have them in
 * common.  They are only tried; what a process waits on is a number in shared
 * memory.  A number that does not change, because its process was killed or
 * belongs to another master, costs a millisecond of waiting, never more.
 */


#include <linux/futex.h>
#include <sys/syscall.h>
#include "ngx_idempotency_sqlite_disk.h"


/* bytes of the file: one of them writes, one syncs, all use the schema */
#define NGX_IDEMPOTENCY_SQLITE_TURN         0
#define NGX_IDEMPOTENCY_SQLITE_SYNCING      1
#define NGX_IDEMPOTENCY_SQLITE_SCHEMA       2

/* milliseconds between two tries if nothing is heard, at first and later */
#define NGX_IDEMPOTENCY_SQLITE_POLL         1
#define NGX_IDEMPOTENCY_SQLITE_POLL_LONG    20

/* milliseconds: the sync of another worker may take so long */
#define NGX_IDEMPOTENCY_SQLITE_PATIENCE     200

/* milliseconds: a worker that ends waits so long for its turn */
#define NGX_IDEMPOTENCY_SQLITE_STOP_LOCK    3000


static ngx_int_t ngx_idempotency_sqlite_try(ngx_fd_t fd, short type,
    off_t byte);
static void ngx_idempotency_sqlite_wait(uint32_t *number, uint32_t seen,
    ngx_msec_t msec);
static void ngx_idempotency_sqlite_wake(uint32_t *number, int n);
static int ngx_idempotency_sqlite_sync_file(ngx_idempotency_sqlite_ctx_t *ctx);


int
ngx_idempotency_sqlite_lock(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                               rc;
    uint32_t                          seen;
    uint64_t                          waited, start;
    ngx_int_t                         got;
    ngx_idempotency_sqlite_shared_t  *shared;

    got = ngx_idempotency_sqlite_try(ctx->db->lock, F_WRLCK,
                                     NGX_IDEMPOTENCY_SQLITE_TURN);
    if (got == NGX_OK) {
        ctx->db->locked = 1;
        return SQLITE_OK;
    }

    shared = ctx->zone->data;
    start = ngx_idempotency_sqlite_msec(CLOCK_MONOTONIC);

    (void) ngx_atomic_fetch_add(&shared->waiting, 1);

    for ( ;; ) {

        seen = *(volatile uint32_t *) &shared->turns;

        got = ngx_idempotency_sqlite_try(ctx->db->lock, F_WRLCK,
                                         NGX_IDEMPOTENCY_SQLITE_TURN);

        if (got != NGX_AGAIN) {
            ctx->db->locked = (got == NGX_OK);
            rc = (got == NGX_OK) ? SQLITE_OK : SQLITE_IOERR_LOCK;
            break;
        }

        waited = ngx_idempotency_sqlite_msec(CLOCK_MONOTONIC) - start;

        if (ctx->stopping
            ? waited >= NGX_IDEMPOTENCY_SQLITE_STOP_LOCK
            : ngx_terminate || ctx->leave
              || (ngx_exiting && ngx_queue_empty(&ctx->batch)))
        {
            rc = SQLITE_BUSY;
            break;
        }

        ngx_idempotency_sqlite_wait(&shared->turns, seen,
                                    waited < ctx->timeout
                                    ? NGX_IDEMPOTENCY_SQLITE_POLL
                                    : NGX_IDEMPOTENCY_SQLITE_POLL_LONG);
    }

    (void) ngx_atomic_fetch_add(&shared->waiting, -1);

    return rc;
}


void
ngx_idempotency_sqlite_unlock(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_idempotency_sqlite_shared_t  *shared;

    if (!ctx->db->locked) {
        return;
    }

    shared = ctx->zone->data;

    (void) ngx_idempotency_sqlite_try(ctx->db->lock, F_UNLCK,
                                      NGX_IDEMPOTENCY_SQLITE_TURN);
    ctx->db->locked = 0;

    (void) __sync_fetch_and_add(&shared->turns, 1);

    if (shared->waiting) {
        ngx_idempotency_sqlite_wake(&shared->turns, 1);
    }
}


ngx_int_t
ngx_idempotency_sqlite_schema_lock(ngx_idempotency_sqlite_db_t *db,
    ngx_uint_t change)
{
    return ngx_idempotency_sqlite_try(db->lock, change ? F_WRLCK : F_RDLCK,
                                      NGX_IDEMPOTENCY_SQLITE_SCHEMA);
}


/*
 * A commit is written to the WAL, but SQLite does not sync it
 * (synchronous=NORMAL): that is done here, after the turn was given back, so
 * that one sync serves all workers that have committed meanwhile.  It serves
 * those that have asked before it began.  The workers of another master ask
 * for syncs of their own.
 *
 * A checkpoint may move a commit from the WAL to the database before it is
 * synced here, and the WAL may begin anew.  That loses nothing: with NORMAL
 * SQLite syncs the WAL before a checkpoint, the database after it, and the
 * header of a WAL that begins anew (the documentation of "PRAGMA synchronous";
 * walCheckpoint() and sqlite3WalFrames() in wal.c).
 */

int
ngx_idempotency_sqlite_sync(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                               rc;
    uint32_t                          seen;
    uint64_t                          start;
    ngx_int_t                         got;
    ngx_atomic_uint_t                 mine, upto;
    ngx_idempotency_sqlite_shared_t  *shared;

    shared = ctx->zone->data;
    mine = (ngx_atomic_uint_t) ngx_atomic_fetch_add(&shared->asked, 1) + 1;
    start = ngx_idempotency_sqlite_msec(CLOCK_MONOTONIC);

    for ( ;; ) {

        seen = *(volatile uint32_t *) &shared->syncs;

        if (shared->failed) {
            return (int) shared->failed;
        }

        if ((ngx_atomic_int_t) (shared->synced - mine) >= 0) {
            return SQLITE_OK;
        }

        got = ngx_idempotency_sqlite_try(ctx->db->lock, F_WRLCK,
                                         NGX_IDEMPOTENCY_SQLITE_SYNCING);
        if (got == NGX_OK) {
            break;
        }

        if (got == NGX_ERROR
            || ngx_idempotency_sqlite_msec(CLOCK_MONOTONIC) - start
               > NGX_IDEMPOTENCY_SQLITE_PATIENCE)
        {
            /* the other worker may have been stopped */

            return ngx_idempotency_sqlite_sync_file(ctx);
        }

        ngx_idempotency_sqlite_wait(&shared->syncs, seen,
                                    NGX_IDEMPOTENCY_SQLITE_POLL);
    }

    rc = SQLITE_OK;

    if ((ngx_atomic_int_t) (shared->synced - mine) < 0) {
        upto = shared->asked;

        rc = ngx_idempotency_sqlite_sync_file(ctx);

        if (rc == SQLITE_OK) {
            shared->synced = upto;
        }
    }

    (void) ngx_idempotency_sqlite_try(ctx->db->lock, F_UNLCK,
                                      NGX_IDEMPOTENCY_SQLITE_SYNCING);

    (void) __sync_fetch_and_add(&shared->syncs, 1);

    ngx_idempotency_sqlite_wake(&shared->syncs, NGX_MAX_INT32_VALUE);

    return rc;
}


static int
ngx_idempotency_sqlite_sync_file(ngx_idempotency_sqlite_ctx_t *ctx)
{
    if (fdatasync(ctx->db->wal) == 0) {
        return SQLITE_OK;
    }

    ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno,
                  "idempotency store \"%V\": fdatasync(\"%V\") failed",
                  &ctx->store->name, &ctx->wal);

    ngx_idempotency_sqlite_give_up(ctx, SQLITE_IOERR_FSYNC);

    return SQLITE_IOERR_FSYNC;
}


/* NGX_OK, NGX_AGAIN: another process has it, or NGX_ERROR */

static ngx_int_t
ngx_idempotency_sqlite_try(ngx_fd_t fd, short type, off_t byte)
{
    struct flock  fl;

    ngx_memzero(&fl, sizeof(struct flock));

    fl.l_type = type;
    fl.l_whence = SEEK_SET;
    fl.l_start = byte;
    fl.l_len = 1;

    if (fcntl(fd, F_OFD_SETLK, &fl) == 0) {
        return NGX_OK;
    }

    return (ngx_errno == EAGAIN || ngx_errno == EACCES || ngx_errno == EINTR)
           ? NGX_AGAIN : NGX_ERROR;
}


static void
ngx_idempotency_sqlite_wait(uint32_t *number, uint32_t seen, ngx_msec_t msec)
{
    struct timespec  ts;

    ts.tv_sec = msec / 1000;
    ts.tv_nsec = (msec % 1000) * 1000000;

    (void) syscall(SYS_futex, number, FUTEX_WAIT, seen, &ts, NULL, 0);
}


static void
ngx_idempotency_sqlite_wake(uint32_t *number, int n)
{
    (void) syscall(SYS_futex, number, FUTEX_WAKE, n, NULL, NULL, 0);
}
