
/*
 * The durable store: a commit is written to the WAL in few pieces.
 *
 * SQLite writes each page of a commit by two calls, a header of 24 bytes and
 * the page, and the system takes longer for them than for the bytes.  The file
 * layer here collects them, and hands them on when the commit is complete:
 * before SQLite tells other processes of it, and where it still looks for
 * errors.  It does so during COMMIT only, and only if nothing else was written
 * to the WAL in the same transaction.
 */


#include "ngx_idempotency_sqlite_wal.h"


#define NGX_IDEMPOTENCY_SQLITE_VFS         "idempotency"

/* bytes: SQLite itself writes no more at a time */
#define NGX_IDEMPOTENCY_SQLITE_COLLECT     (120 * 1024)

/* bytes, as in the documentation of the file format */
#define NGX_IDEMPOTENCY_SQLITE_WAL_HEADER  32
#define NGX_IDEMPOTENCY_SQLITE_FRAME       24


struct ngx_idempotency_sqlite_log_s {
    sqlite3_file                    file;
    sqlite3_file                   *real;        /* behind this structure */
    sqlite3_int64                   offset;      /* of what is collected */
    size_t                          len;
    size_t                          frame;       /* bytes of one */
    size_t                          frames;      /* that have room */
    u_char                         *data;
    unsigned                        commit:1;    /* COMMIT runs */
    unsigned                        written:1;   /* in this transaction */
};


static int ngx_idempotency_sqlite_log_open(sqlite3_vfs *vfs, const char *name,
    sqlite3_file *file, int flags, int *out);
static int ngx_idempotency_sqlite_log_close(sqlite3_file *file);
static int ngx_idempotency_sqlite_log_read(sqlite3_file *file, void *data,
    int n, sqlite3_int64 offset);
static int ngx_idempotency_sqlite_log_write(sqlite3_file *file,
    const void *data, int n, sqlite3_int64 offset);
static ngx_uint_t ngx_idempotency_sqlite_log_collects(
    ngx_idempotency_sqlite_log_t *wal, sqlite3_int64 offset);
static ngx_uint_t ngx_idempotency_sqlite_log_complete(
    ngx_idempotency_sqlite_log_t *wal);
static int ngx_idempotency_sqlite_log_flush(ngx_idempotency_sqlite_log_t *wal);
static int ngx_idempotency_sqlite_log_truncate(sqlite3_file *file,
    sqlite3_int64 size);
static int ngx_idempotency_sqlite_log_sync(sqlite3_file *file, int flags);
static int ngx_idempotency_sqlite_log_size(sqlite3_file *file,
    sqlite3_int64 *size);
static int ngx_idempotency_sqlite_log_lock(sqlite3_file *file, int level);
static int ngx_idempotency_sqlite_log_unlock(sqlite3_file *file, int level);
static int ngx_idempotency_sqlite_log_locked(sqlite3_file *file, int *locked);
static int ngx_idempotency_sqlite_log_control(sqlite3_file *file, int op,
    void *data);
static int ngx_idempotency_sqlite_log_sector(sqlite3_file *file);
static int ngx_idempotency_sqlite_log_traits(sqlite3_file *file);


static sqlite3_vfs  *ngx_idempotency_sqlite_system;

static sqlite3_vfs   ngx_idempotency_sqlite_layer;


static const sqlite3_io_methods  ngx_idempotency_sqlite_log_methods = {
    1,
    ngx_idempotency_sqlite_log_close,
    ngx_idempotency_sqlite_log_read,
    ngx_idempotency_sqlite_log_write,
    ngx_idempotency_sqlite_log_truncate,
    ngx_idempotency_sqlite_log_sync,
    ngx_idempotency_sqlite_log_size,
    ngx_idempotency_sqlite_log_lock,
    ngx_idempotency_sqlite_log_unlock,
    ngx_idempotency_sqlite_log_locked,
    ngx_idempotency_sqlite_log_control,
    ngx_idempotency_sqlite_log_sector,
    ngx_idempotency_sqlite_log_traits,
    NULL, NULL, NULL, NULL, NULL, NULL
};


void
ngx_idempotency_sqlite_setup(void)
{
    sqlite3_vfs  *vfs;

    if (ngx_idempotency_sqlite_system) {
        return;
    }

    /* a lock for each allocation; too late if another module was first */

    (void) sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);

    vfs = sqlite3_vfs_find(NULL);

    if (vfs == NULL) {
        return;
    }

    ngx_idempotency_sqlite_layer = *vfs;

    ngx_idempotency_sqlite_layer.zName = NGX_IDEMPOTENCY_SQLITE_VFS;
    ngx_idempotency_sqlite_layer.pNext = NULL;
    ngx_idempotency_sqlite_layer.xOpen = ngx_idempotency_sqlite_log_open;
    ngx_idempotency_sqlite_layer.szOsFile +=
                                         sizeof(ngx_idempotency_sqlite_log_t);

    if (sqlite3_vfs_register(&ngx_idempotency_sqlite_layer, 0) == SQLITE_OK) {
        ngx_idempotency_sqlite_system = vfs;
    }
}


const char *
ngx_idempotency_sqlite_vfs(void)
{
    return ngx_idempotency_sqlite_system ? NGX_IDEMPOTENCY_SQLITE_VFS : NULL;
}


void
ngx_idempotency_sqlite_log_attach(ngx_idempotency_sqlite_db_t *db,
    size_t page)
{
    sqlite3_file  *file;

    file = NULL;

    if (sqlite3_file_control(db->handle, "main",
                             SQLITE_FCNTL_JOURNAL_POINTER, &file)
        != SQLITE_OK
        || file == NULL
        || file->pMethods != &ngx_idempotency_sqlite_log_methods)
    {
        return;
    }

    db->log = (ngx_idempotency_sqlite_log_t *) file;
    db->log->frame = NGX_IDEMPOTENCY_SQLITE_FRAME + page;
    db->log->frames = NGX_IDEMPOTENCY_SQLITE_COLLECT / db->log->frame;
}


void
ngx_idempotency_sqlite_log_begin(ngx_idempotency_sqlite_log_t *wal)
{
    wal->written = 0;
}


void
ngx_idempotency_sqlite_log_commit(ngx_idempotency_sqlite_log_t *wal,
    ngx_uint_t runs)
{
    wal->commit = (runs && !wal->written);

    /* what a commit that has failed has left must not come later */

    wal->len = 0;
}


/* all other files are the system's own */

static int
ngx_idempotency_sqlite_log_open(sqlite3_vfs *vfs, const char *name,
    sqlite3_file *file, int flags, int *out)
{
    int                            rc;
    ngx_idempotency_sqlite_log_t  *wal;

    if (!(flags & SQLITE_OPEN_WAL)) {
        return ngx_idempotency_sqlite_system->xOpen(
                      ngx_idempotency_sqlite_system, name, file, flags, out);
    }

    wal = (ngx_idempotency_sqlite_log_t *) file;

    ngx_memzero(wal, sizeof(ngx_idempotency_sqlite_log_t));

    wal->data = ngx_alloc(NGX_IDEMPOTENCY_SQLITE_COLLECT, ngx_cycle->log);
    if (wal->data == NULL) {
        return SQLITE_NOMEM;
    }

    wal->real = (sqlite3_file *) (wal + 1);

    rc = ngx_idempotency_sqlite_system->xOpen(ngx_idempotency_sqlite_system,
                                              name, wal->real, flags, out);

    if (rc != SQLITE_OK) {
        ngx_free(wal->data);
        return rc;
    }

    wal->file.pMethods = &ngx_idempotency_sqlite_log_methods;

    return SQLITE_OK;
}


static int
ngx_idempotency_sqlite_log_close(sqlite3_file *file)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    ngx_free(wal->data);

    return wal->real->pMethods->xClose(wal->real);
}


static int
ngx_idempotency_sqlite_log_read(sqlite3_file *file, void *data, int n,
    sqlite3_int64 offset)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    int  rc;

    rc = ngx_idempotency_sqlite_log_flush(wal);
    if (rc != SQLITE_OK) {
        return rc;
    }

    return wal->real->pMethods->xRead(wal->real, data, n, offset);
}


static int
ngx_idempotency_sqlite_log_write(sqlite3_file *file, const void *data, int n,
    sqlite3_int64 offset)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    int  rc;

    if (wal->len && offset != wal->offset + (sqlite3_int64) wal->len) {
        rc = ngx_idempotency_sqlite_log_flush(wal);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    if (wal->len == 0 && !ngx_idempotency_sqlite_log_collects(wal, offset)) {
        wal->written = 1;
        return wal->real->pMethods->xWrite(wal->real, data, n, offset);
    }

    if (wal->len + n > wal->frames * wal->frame) {
        return SQLITE_IOERR_WRITE;
    }

    ngx_memcpy(wal->data + wal->len, data, n);
    wal->len += n;

    if (wal->len % wal->frame
        || (wal->len < wal->frames * wal->frame
            && !ngx_idempotency_sqlite_log_complete(wal)))
    {
        return SQLITE_OK;
    }

    return ngx_idempotency_sqlite_log_flush(wal);
}


/* what is collected begins where a frame does */

static ngx_uint_t
ngx_idempotency_sqlite_log_collects(ngx_idempotency_sqlite_log_t *wal,
    sqlite3_int64 offset)
{
    if (!wal->commit
        || offset < NGX_IDEMPOTENCY_SQLITE_WAL_HEADER
        || (offset - NGX_IDEMPOTENCY_SQLITE_WAL_HEADER) % wal->frame)
    {
        return 0;
    }

    wal->offset = offset;

    return 1;
}


/* the header of the last frame of a commit has the size of the database */

static ngx_uint_t
ngx_idempotency_sqlite_log_complete(ngx_idempotency_sqlite_log_t *wal)
{
    u_char  *p;

    p = wal->data + wal->len - wal->frame;

    return p[4] || p[5] || p[6] || p[7];
}


static int
ngx_idempotency_sqlite_log_flush(ngx_idempotency_sqlite_log_t *wal)
{
    size_t  len;

    len = wal->len;

    if (len == 0) {
        return SQLITE_OK;
    }

    wal->len = 0;

    return wal->real->pMethods->xWrite(wal->real, wal->data, (int) len,
                                       wal->offset);
}


static int
ngx_idempotency_sqlite_log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    int  rc;

    rc = ngx_idempotency_sqlite_log_flush(wal);
    if (rc != SQLITE_OK) {
        return rc;
    }

    return wal->real->pMethods->xTruncate(wal->real, size);
}


static int
ngx_idempotency_sqlite_log_sync(sqlite3_file *file, int flags)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    int  rc;

    rc = ngx_idempotency_sqlite_log_flush(wal);
    if (rc != SQLITE_OK) {
        return rc;
    }

    return wal->real->pMethods->xSync(wal->real, flags);
}


static int
ngx_idempotency_sqlite_log_size(sqlite3_file *file, sqlite3_int64 *size)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    int  rc;

    rc = ngx_idempotency_sqlite_log_flush(wal);
    if (rc != SQLITE_OK) {
        return rc;
    }

    return wal->real->pMethods->xFileSize(wal->real, size);
}


/* SQLite has its locks elsewhere */

static int
ngx_idempotency_sqlite_log_lock(sqlite3_file *file, int level)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    return wal->real->pMethods->xLock(wal->real, level);
}


static int
ngx_idempotency_sqlite_log_unlock(sqlite3_file *file, int level)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    return wal->real->pMethods->xUnlock(wal->real, level);
}


static int
ngx_idempotency_sqlite_log_locked(sqlite3_file *file, int *locked)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    return wal->real->pMethods->xCheckReservedLock(wal->real, locked);
}


static int
ngx_idempotency_sqlite_log_control(sqlite3_file *file, int op, void *data)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    return wal->real->pMethods->xFileControl(wal->real, op, data);
}


static int
ngx_idempotency_sqlite_log_sector(sqlite3_file *file)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    return wal->real->pMethods->xSectorSize(wal->real);
}


static int
ngx_idempotency_sqlite_log_traits(sqlite3_file *file)
{
    ngx_idempotency_sqlite_log_t *wal = (ngx_idempotency_sqlite_log_t *) file;

    return wal->real->pMethods->xDeviceCharacteristics(wal->real);
}
