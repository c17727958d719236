
/*
 * The durable store: the disk below it, how full it is, and how it fails.
 */


#include "ngx_idempotency_sqlite_disk.h"
#include <sys/statvfs.h>


/*
 * Frames of the WAL, each a page.  It is written back to the database when it
 * has WAL more than at the last try, and MANY if that was within a second: the
 * more there are, the more of them are the same page, which is written once.
 * Writers that never pause keep it from beginning anew after that: at LONG, one
 * worker makes it do so.  A reader, as a backup, can hold up that too: it is
 * cut off when it was VERY_LONG.
 */
#define NGX_IDEMPOTENCY_SQLITE_WAL            1000
#define NGX_IDEMPOTENCY_SQLITE_WAL_MANY       4000
#define NGX_IDEMPOTENCY_SQLITE_WAL_LONG       2048
#define NGX_IDEMPOTENCY_SQLITE_WAL_VERY_LONG  16384

/* milliseconds, of MANY */
#define NGX_IDEMPOTENCY_SQLITE_OFTEN          1000

/* bytes: what is running when the disk is full should find room in it */
#define NGX_IDEMPOTENCY_SQLITE_RESERVE        (4 * 1024 * 1024)

/* what PATH-lock says of a database that was found damaged */
#define NGX_IDEMPOTENCY_SQLITE_DAMAGED                                        \
    "damaged: repair the database, then remove this file\n"

/* milliseconds: pages of the database are counted so often */
#define NGX_IDEMPOTENCY_SQLITE_ROOM           20


static void ngx_idempotency_sqlite_mark_damaged(
    ngx_idempotency_sqlite_ctx_t *ctx);


int
ngx_idempotency_sqlite_cause(ngx_idempotency_sqlite_db_t *db, int rc)
{
    ngx_err_t  err;

    if ((rc & 0xff) != SQLITE_IOERR
        || rc == SQLITE_IOERR_FSYNC
        || rc == SQLITE_IOERR_DIR_FSYNC)
    {
        return rc;
    }

    /* sqlite3_system_errno() knows nothing of a COMMIT that has failed */

    err = db->err ? db->err : sqlite3_system_errno(db->handle);

    switch (err) {

    case ENOSPC:
    case EDQUOT:
        return SQLITE_FULL;

    case EROFS:
        return SQLITE_READONLY;

    default:
        return rc;
    }
}


void
ngx_idempotency_sqlite_names(int rc, ngx_idempotency_error_e *error,
    ngx_idempotency_refusal_e *refusal)
{
    switch (rc & 0xff) {

    case SQLITE_FULL:
        *error = NGX_IDEMPOTENCY_ERROR_FULL;
        *refusal = NGX_IDEMPOTENCY_REFUSAL_FULL;
        break;

    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        *error = NGX_IDEMPOTENCY_ERROR_TIMEOUT;
        *refusal = NGX_IDEMPOTENCY_REFUSAL_TIMEOUT;
        break;

    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        *error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        *refusal = NGX_IDEMPOTENCY_REFUSAL_DAMAGED;
        break;

    case SQLITE_CANTOPEN:
    case SQLITE_MISMATCH:
    case SQLITE_NOTFOUND:
        *error = NGX_IDEMPOTENCY_ERROR_CONNECT;
        *refusal = NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE;
        break;

    case SQLITE_READONLY:
        *error = NGX_IDEMPOTENCY_ERROR_REFUSED;
        *refusal = NGX_IDEMPOTENCY_REFUSAL_READONLY;
        break;

    case SQLITE_NOMEM:
        *error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        *refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;
        break;

    case SQLITE_IOERR:
        *error = NGX_IDEMPOTENCY_ERROR_REFUSED;
        *refusal = NGX_IDEMPOTENCY_REFUSAL_DISK;
        break;

    default:
        *error = NGX_IDEMPOTENCY_ERROR_REFUSED;
        *refusal = NGX_IDEMPOTENCY_REFUSAL_OTHER;
    }
}


void
ngx_idempotency_sqlite_log(ngx_idempotency_sqlite_ctx_t *ctx, int rc,
    const char *what)
{
    uint64_t     now;
    ngx_uint_t   level;
    const char  *fix;

    now = ngx_idempotency_sqlite_msec(CLOCK_MONOTONIC);

    if (ctx->error == rc && now - ctx->logged < 1000) {
        return;
    }

    ctx->error = rc;
    ctx->logged = now;

    switch (rc & 0xff) {

    case SQLITE_FULL:
        fix = ", the disk is full: make room, new keys are refused";
        break;

    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        fix = ", the database is damaged: stop nginx and restore the file "
              "from a backup, or save what \".dump\" of sqlite3 can read";
        break;

    case SQLITE_READONLY:
        fix = ", the file or its file system is read-only";
        break;

    case SQLITE_NOTFOUND:
        fix = ", the file was removed or replaced while nginx used it: put it "
              "back, then restart nginx";
        break;

    case SQLITE_IOERR:
        fix = (rc == SQLITE_IOERR_FSYNC || rc == SQLITE_IOERR_DIR_FSYNC)
              ? ", the disk has lost data: replace it, then restart nginx"
              : ", the disk fails";
        break;

    default:
        fix = "";
    }

    level = (rc & 0xff) == SQLITE_BUSY ? NGX_LOG_ERR : NGX_LOG_CRIT;

    ngx_log_error(level, ngx_cycle->log, 0,
                  "idempotency store \"%V\": \"%V\" %s, SQLite: %s (%d)%s",
                  &ctx->store->name, &ctx->path, what, sqlite3_errstr(rc), rc,
                  fix);
}


/*
 * After an error of fsync() the kernel may have dropped what it could not
 * write, and a second fsync() would succeed.  Where one page is damaged,
 * another one may be wrong unnoticed: a record that is not found there would
 * be executed again.  A file that was replaced knows other keys.
 */

void
ngx_idempotency_sqlite_give_up(ngx_idempotency_sqlite_ctx_t *ctx, int rc)
{
    ngx_idempotency_error_e           error;
    ngx_idempotency_refusal_e         refusal;
    ngx_idempotency_sqlite_shared_t  *shared;

    shared = ctx->zone->data;

    switch (rc & 0xff) {

    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_NOTFOUND:
        break;

    default:

        if (rc != SQLITE_IOERR_FSYNC && rc != SQLITE_IOERR_DIR_FSYNC) {
            return;
        }
    }

    if (shared->failed) {
        return;
    }

    ngx_idempotency_sqlite_names(rc, &error, &refusal);

    shared->refusing = refusal;
    shared->failed = (ngx_atomic_uint_t) rc;

    if ((rc & 0xff) == SQLITE_CORRUPT && ctx->db) {
        ngx_idempotency_sqlite_mark_damaged(ctx);
    }

    ngx_idempotency_sqlite_log(ctx, rc, "is not used any more");
}


/*
 * A restart must not hide it: the next nginx would meet the damage only when
 * it reads that page again.
 */

static void
ngx_idempotency_sqlite_mark_damaged(ngx_idempotency_sqlite_ctx_t *ctx)
{
    if (pwrite(ctx->db->lock, NGX_IDEMPOTENCY_SQLITE_DAMAGED,
               sizeof(NGX_IDEMPOTENCY_SQLITE_DAMAGED) - 1, 0)
        == -1)
    {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno,
                      "idempotency store \"%V\": write to \"%V\" failed",
                      &ctx->store->name, &ctx->lock);
    }
}


ngx_uint_t
ngx_idempotency_sqlite_was_damaged(ngx_idempotency_sqlite_ctx_t *ctx)
{
    struct stat  st;

    if (fstat(ctx->db->lock, &st) == -1 || st.st_size == 0) {
        return 0;
    }

    ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                  "idempotency store \"%V\": \"%V\" was found damaged before, "
                  "repair it and remove \"%V\"",
                  &ctx->store->name, &ctx->path, &ctx->lock);

    return 1;
}


/*
 * Another process would use the other file, and neither would know the keys of
 * the other.  SQLite itself removes the WAL only when the last connection to
 * it is closed.
 */

int
ngx_idempotency_sqlite_same_file(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           moved;
    struct stat                   st;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;
    moved = 0;

    (void) sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_HAS_MOVED,
                                &moved);

    if (moved
        || stat((char *) ctx->wal.data, &st) == -1
        || st.st_ino != db->wal_inode)
    {
        return SQLITE_NOTFOUND;
    }

    return SQLITE_OK;
}


void
ngx_idempotency_sqlite_reserve_fill(ngx_idempotency_sqlite_ctx_t *ctx)
{
    struct stat                   st;
    struct statvfs                fs;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    if (db->reserve == NGX_INVALID_FILE) {
        db->reserve = open((char *) ctx->reserve.data,
                           O_RDWR|O_CREAT|O_CLOEXEC, 0600);
    }

    if (db->reserve == NGX_INVALID_FILE
        || fstat(db->reserve, &st) == -1
        || st.st_size >= NGX_IDEMPOTENCY_SQLITE_RESERVE)
    {
        return;
    }

    /* what is given back at once would be taken at once */

    if (fstatvfs(db->reserve, &fs) == -1
        || (off_t) fs.f_bavail * (off_t) fs.f_frsize
           < NGX_IDEMPOTENCY_SQLITE_RESERVE * 3 / 2)
    {
        return;
    }

    if (posix_fallocate(db->reserve, 0, NGX_IDEMPOTENCY_SQLITE_RESERVE) != 0) {

        if (ftruncate(db->reserve, 0) == -1) {
            ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno,
                          "idempotency store \"%V\": ftruncate(\"%V\") failed",
                          &ctx->store->name, &ctx->reserve);
        }

        return;
    }

    if (db->spent) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\": there is room on the disk "
                      "again, new keys are accepted", &ctx->store->name);
    }
}


ngx_uint_t
ngx_idempotency_sqlite_reserve_spend(ngx_idempotency_sqlite_ctx_t *ctx)
{
    struct stat  st;

    if (ctx->db->reserve == NGX_INVALID_FILE
        || fstat(ctx->db->reserve, &st) == -1
        || st.st_size == 0
        || ftruncate(ctx->db->reserve, 0) == -1)
    {
        return 0;
    }

    ngx_idempotency_sqlite_log(ctx, SQLITE_FULL, "has used its reserve");

    return 1;
}


void
ngx_idempotency_sqlite_room(ngx_idempotency_sqlite_ctx_t *ctx)
{
    struct stat                       st;
    struct statvfs                    fs;
    ngx_idempotency_sqlite_db_t      *db;
    ngx_idempotency_sqlite_shared_t  *shared;

    db = ctx->db;

    db->spent = (db->reserve == NGX_INVALID_FILE
                 || fstat(db->reserve, &st) == -1
                 || st.st_size < NGX_IDEMPOTENCY_SQLITE_RESERVE);

    if (ctx->expire
        || (ctx->size && db->now - db->counted_at
                         >= NGX_IDEMPOTENCY_SQLITE_ROOM))
    {
        db->counted_at = db->now;

        db->used = (off_t) 4096
                   * (ngx_idempotency_sqlite_number(db,
                                           NGX_IDEMPOTENCY_SQLITE_PAGES)
                      - ngx_idempotency_sqlite_number(db,
                                         NGX_IDEMPOTENCY_SQLITE_FREE_PAGES));
    }

    db->full = db->spent || (ctx->size && db->used >= ctx->size);

    if (ctx->expire && fstatvfs(db->lock, &fs) == 0) {
        shared = ctx->zone->data;
        shared->room = (ngx_atomic_uint_t) fs.f_bavail * fs.f_frsize;
    }
}


ngx_uint_t
ngx_idempotency_sqlite_checkpoint_due(ngx_idempotency_sqlite_db_t *db)
{
    if (db->frames < db->tried) {

        /* another worker has begun a new WAL */

        db->tried = 0;
    }

    if (db->frames < db->tried + NGX_IDEMPOTENCY_SQLITE_WAL
        || (db->frames < db->tried + NGX_IDEMPOTENCY_SQLITE_WAL_MANY
            && db->now - db->tried_at < NGX_IDEMPOTENCY_SQLITE_OFTEN))
    {
        return 0;
    }

    db->tried = db->frames;
    db->tried_at = db->now;

    return 1;
}


/*
 * Most of it is done while others write.  No attempt waits for readers: a
 * backup must not stop the writers.
 */

void
ngx_idempotency_sqlite_checkpoint(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           rc, frames, mode;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;
    frames = 0;

    (void) sqlite3_busy_timeout(db->handle, 0);

    rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                   &frames, NULL);

    if (rc == SQLITE_OK
        && frames > NGX_IDEMPOTENCY_SQLITE_WAL_LONG
        && ngx_idempotency_sqlite_lock(ctx) == SQLITE_OK)
    {
        mode = (frames > NGX_IDEMPOTENCY_SQLITE_WAL_VERY_LONG)
               ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_RESTART;

        rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, mode, &frames, NULL);

        ngx_idempotency_sqlite_unlock(ctx);

        if ((rc & 0xff) == SQLITE_BUSY
            && frames > NGX_IDEMPOTENCY_SQLITE_WAL_VERY_LONG)
        {
            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "idempotency store \"%V\": \"%V\" has %d pages and "
                          "grows, since another program reads the database, "
                          "as a backup does: let it end",
                          &ctx->store->name, &ctx->wal, frames);
        }
    }

    (void) sqlite3_busy_timeout(db->handle, (int) ctx->timeout);

    if (rc == SQLITE_OK || (rc & 0xff) == SQLITE_BUSY) {
        return;
    }

    rc = ngx_idempotency_sqlite_cause(db, rc);

    ngx_idempotency_sqlite_log(ctx, rc, "was not written back");
    ngx_idempotency_sqlite_give_up(ctx, rc);
}


uint64_t
ngx_idempotency_sqlite_msec(clockid_t id)
{
    struct timespec  ts;

    (void) clock_gettime(id, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
