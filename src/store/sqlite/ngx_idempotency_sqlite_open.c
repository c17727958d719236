
/*
 * The durable store: the database file is opened, made, and closed.
 */


#include "ngx_idempotency_sqlite_disk.h"
#include "ngx_idempotency_sqlite_statements.h"
#include "ngx_idempotency_sqlite_wal.h"


#define NGX_IDEMPOTENCY_SQLITE_VERSION     3

/* "idem" */
#define NGX_IDEMPOTENCY_SQLITE_APPLICATION 0x6964656d

#define NGX_IDEMPOTENCY_SQLITE_BOOT_ID     "/proc/sys/kernel/random/boot_id"


static int ngx_idempotency_sqlite_open_file(ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_settings(ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_schema(ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_schema_make(
    ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_schema_migrate(
    ngx_idempotency_sqlite_ctx_t *ctx, int64_t version);
static int ngx_idempotency_sqlite_schema_run(ngx_idempotency_sqlite_db_t *db,
    const char *sql, ngx_uint_t version);
static void ngx_idempotency_sqlite_schema_notes(
    ngx_idempotency_sqlite_ctx_t *ctx);
static ngx_uint_t ngx_idempotency_sqlite_schema_has_notes(
    ngx_idempotency_sqlite_db_t *db);
static void ngx_idempotency_sqlite_schema_suspects(
    ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_boot(ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_pragma(ngx_idempotency_sqlite_db_t *db,
    const char *text, int64_t *value);
static int ngx_idempotency_sqlite_open_wal(ngx_idempotency_sqlite_ctx_t *ctx);
static int ngx_idempotency_sqlite_wal_hook(void *data, sqlite3 *handle,
    const char *name, int frames);


/*
 * The transactions of a store write whole pages, and records are all over the
 * file, by their digests: so it matters how many pages an operation touches.
 * The answer of a record is in a table of its own, in the order of time.  So is
 * a record while it is executing: that table is small, and the claims of a
 * transaction share its pages.  It has no index by time; the few records that
 * nobody settles are found by the look at all of them.
 */

#define NGX_IDEMPOTENCY_SQLITE_TABLE(name)                                    \
    "CREATE TABLE " name " ("                                                 \
        "digest BLOB PRIMARY KEY, state INTEGER NOT NULL,"                    \
        " owner BLOB NOT NULL, fingerprint BLOB NOT NULL,"                    \
        " fence INTEGER NOT NULL, lease INTEGER NOT NULL,"                    \
        " until INTEGER NOT NULL, issued INTEGER NOT NULL,"                   \
        " created INTEGER NOT NULL, attempts INTEGER NOT NULL,"               \
        " keep INTEGER NOT NULL, tombstone INTEGER NOT NULL,"                 \
        " status INTEGER NOT NULL, kept INTEGER NOT NULL,"                    \
        " boot INTEGER NOT NULL, answer INTEGER NOT NULL,"                    \
        " due INTEGER NOT NULL) WITHOUT ROWID;"

#define NGX_IDEMPOTENCY_SQLITE_INDEX                                          \
    "CREATE INDEX records_due ON records(due);"

#define NGX_IDEMPOTENCY_SQLITE_VIEW                                           \
    "CREATE VIEW records_readable AS SELECT"                                  \
        " lower(hex(digest)) AS record,"                                      \
        " CASE WHEN state = 2 AND lease <= (SELECT value FROM meta"           \
            " WHERE name = 'clock') THEN 'unknown'"                           \
            " ELSE trim(substr('none     issued   executingunknown  done    " \
            " tombstone', 1 + 9 * state, 9)) END AS state,"                   \
        " datetime(created, 'unixepoch') AS created,"                         \
        " CASE WHEN state IN (2, 3)"                                          \
            " THEN datetime(lease / 1000, 'unixepoch') END AS lease_ends,"    \
        " datetime(due / 1000, 'unixepoch') AS state_ends,"                   \
        " attempts, nullif(status, 0) AS status, fence,"                      \
        " (SELECT length(head) + length(body) FROM answers"                   \
            " WHERE id = answer) AS answer_bytes"                             \
        " FROM (SELECT * FROM records UNION ALL SELECT * FROM executing);"

static const char  ngx_idempotency_sqlite_tables[] =
    "CREATE TABLE meta ("
        "name TEXT PRIMARY KEY, value) WITHOUT ROWID;"

    NGX_IDEMPOTENCY_SQLITE_TABLE("records")
    NGX_IDEMPOTENCY_SQLITE_TABLE("executing")
    NGX_IDEMPOTENCY_SQLITE_INDEX

    "CREATE TABLE answers ("
        "id INTEGER PRIMARY KEY, head BLOB NOT NULL, body BLOB NOT NULL);"

    "CREATE TABLE sequences ("
        "half BLOB PRIMARY KEY, epoch INTEGER NOT NULL,"
        " next INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;"

    "CREATE INDEX sequences_until ON sequences(until);"

    NGX_IDEMPOTENCY_SQLITE_VIEW

    "INSERT INTO meta VALUES ('clock', 0), ('boot', 0), ('boot_id', ''),"
        " ('offset', 0);";


/*
 * What makes the next version of a schema, from version 1 on.  It runs inside
 * one transaction, while no process uses the older one.
 */

static const char  *ngx_idempotency_sqlite_migrations[] = {

    /* 1 to 2: boots have a clock; another boot sets it */

    "INSERT INTO meta VALUES ('offset', 0);"
    "UPDATE meta SET value = 'none' WHERE name = 'boot_id';",

    /* 2 to 3: executing records have a table, and the others an index */

    NGX_IDEMPOTENCY_SQLITE_TABLE("executing")
    "INSERT INTO executing SELECT * FROM records WHERE state = 2;"
    "DELETE FROM records WHERE state = 2;"
    "DROP INDEX records_due;"
    NGX_IDEMPOTENCY_SQLITE_INDEX
    "DROP VIEW records_readable;"
    NGX_IDEMPOTENCY_SQLITE_VIEW
};


ngx_uint_t
ngx_idempotency_sqlite_threadsafe(void)
{
    return sqlite3_threadsafe() != 0;
}


int
ngx_idempotency_sqlite_open(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           rc;
    const char                   *text;
    ngx_uint_t                    i, n;
    ngx_idempotency_sqlite_db_t  *db;

    if (ctx->db) {
        return SQLITE_OK;
    }

    db = ngx_calloc(sizeof(ngx_idempotency_sqlite_db_t), ngx_cycle->log);
    if (db == NULL) {
        return SQLITE_NOMEM;
    }

    db->wal = NGX_INVALID_FILE;
    db->reserve = NGX_INVALID_FILE;
    db->lock = open((char *) ctx->lock.data, O_RDWR|O_CREAT|O_CLOEXEC, 0600);

    if (db->lock == NGX_INVALID_FILE) {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno,
                      "idempotency store \"%V\": open(\"%V\") failed",
                      &ctx->store->name, &ctx->lock);
        ngx_free(db);
        return SQLITE_CANTOPEN;
    }

    ctx->db = db;

    rc = ngx_idempotency_sqlite_lock(ctx);

    if (rc == SQLITE_OK && ngx_idempotency_sqlite_was_damaged(ctx)) {
        rc = SQLITE_CORRUPT;
    }

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_open_file(ctx);
    }

    n = db->suspects ? NGX_IDEMPOTENCY_SQLITE_STATEMENTS
                     : NGX_IDEMPOTENCY_SQLITE_LAST_FIND;

    for (i = 0; rc == SQLITE_OK && i < n; i++) {
        text = ngx_idempotency_sqlite_statement_text(i, db->notes);

        rc = sqlite3_prepare_v3(db->handle, text, -1,
                                SQLITE_PREPARE_PERSISTENT,
                                &db->statements[i], NULL);
    }

    if (rc == SQLITE_OK) {
        ngx_idempotency_sqlite_reserve_fill(ctx);

    } else {
        rc = ngx_idempotency_sqlite_cause(db, rc);
    }

    ngx_idempotency_sqlite_unlock(ctx);

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_open_wal(ctx);
    }

    if (rc != SQLITE_OK) {
        ngx_idempotency_sqlite_log(ctx, rc, "cannot be opened");
        ngx_idempotency_sqlite_give_up(ctx, rc);
        ngx_idempotency_sqlite_close(ctx);
    }

    return rc;
}


/* nginx has no umask, and SQLite gives its other files the mode of this one */

static int
ngx_idempotency_sqlite_open_file(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                               rc;
    ngx_fd_t                          fd;
    struct stat                       st;
    ngx_uint_t                        first;
    ngx_idempotency_sqlite_db_t      *db;
    ngx_idempotency_sqlite_shared_t  *shared;

    db = ctx->db;
    shared = ctx->zone->data;
    first = (shared->inode == 0);

    fd = open((char *) ctx->path.data,
              first ? O_RDWR|O_CREAT|O_CLOEXEC : O_RDWR|O_CLOEXEC, 0600);

    if (fd == NGX_INVALID_FILE) {

        if (!first && ngx_errno == ENOENT) {
            return SQLITE_NOTFOUND;
        }

        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno,
                      "idempotency store \"%V\": open(\"%V\") failed",
                      &ctx->store->name, &ctx->path);

        return (ngx_errno == EROFS) ? SQLITE_READONLY : SQLITE_CANTOPEN;
    }

    rc = (fstat(fd, &st) == 0) ? SQLITE_OK : SQLITE_IOERR_FSTAT;

    (void) ngx_close_file(fd);

    if (rc != SQLITE_OK) {
        return rc;
    }

    if (!first && shared->inode != (ngx_atomic_uint_t) st.st_ino) {
        return SQLITE_NOTFOUND;
    }

    rc = sqlite3_open_v2((char *) ctx->path.data, &db->handle,
                         SQLITE_OPEN_READWRITE|SQLITE_OPEN_NOMUTEX,
                         ngx_idempotency_sqlite_vfs());

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_settings(ctx);
    }

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_schema(ctx);
    }

    if (rc != SQLITE_OK) {
        return rc;
    }

    if (first) {

        /*
         * An earlier nginx may have stopped because of an error of fsync():
         * then parts of the WAL that can be read may not be on disk, and what
         * is written behind them would be lost with them.  So it is written
         * back and begins anew, if no other program reads the database.
         */

        rc = sqlite3_wal_checkpoint_v2(db->handle, NULL,
                                       SQLITE_CHECKPOINT_TRUNCATE, NULL,
                                       NULL);

        if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY) {
            return rc;
        }

        shared->inode = (ngx_atomic_uint_t) st.st_ino;
    }

    return ngx_idempotency_sqlite_boot(ctx);
}


static int
ngx_idempotency_sqlite_settings(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           rc;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    (void) sqlite3_extended_result_codes(db->handle, 1);
    (void) sqlite3_busy_timeout(db->handle, (int) ctx->timeout);

    rc = sqlite3_exec(db->handle,
                      "PRAGMA auto_vacuum = INCREMENTAL;"
                      "PRAGMA journal_mode = WAL;"
                      "PRAGMA synchronous = NORMAL;"
                      "PRAGMA wal_autocheckpoint = 0;"
                      "PRAGMA journal_size_limit = 20971520;"
                      "PRAGMA cache_size = -8192;"
                      "PRAGMA trusted_schema = OFF;",
                      NULL, NULL, NULL);

    /* after "wal_autocheckpoint", which is such a hook itself */

    (void) sqlite3_wal_hook(db->handle, ngx_idempotency_sqlite_wal_hook, db);

    return rc;
}


static int
ngx_idempotency_sqlite_schema(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           rc;
    int64_t                       version, application, tables, page;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    application = 0;
    tables = 0;

    rc = ngx_idempotency_sqlite_pragma(db, "PRAGMA user_version", &version);

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_pragma(db, "PRAGMA application_id",
                                           &application);
    }

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_pragma(db,
                                       "SELECT count(*) FROM sqlite_schema",
                                           &tables);
    }

    if (rc == SQLITE_OK && tables == 0) {
        rc = ngx_idempotency_sqlite_schema_make(ctx);
        application = NGX_IDEMPOTENCY_SQLITE_APPLICATION;
        version = NGX_IDEMPOTENCY_SQLITE_VERSION;

        if (rc == SQLITE_OK) {
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "idempotency store \"%V\" begins empty: the file "
                          "\"%V\" was made; if there was one before, its keys "
                          "are executed again", &ctx->store->name, &ctx->path);
        }
    }

    if (rc != SQLITE_OK) {
        return rc;
    }

    if (application != NGX_IDEMPOTENCY_SQLITE_APPLICATION) {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                      "idempotency store \"%V\": \"%V\" is the database of "
                      "another program, name another file",
                      &ctx->store->name, &ctx->path);
        return SQLITE_MISMATCH;
    }

    if (version < 1 || version > NGX_IDEMPOTENCY_SQLITE_VERSION) {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                      "idempotency store \"%V\": \"%V\" has version %L of the "
                      "schema and this module knows version %d, install the "
                      "module that has written it or a newer one",
                      &ctx->store->name, &ctx->path, version,
                      NGX_IDEMPOTENCY_SQLITE_VERSION);
        return SQLITE_MISMATCH;
    }

    if (version < NGX_IDEMPOTENCY_SQLITE_VERSION) {
        rc = ngx_idempotency_sqlite_schema_migrate(ctx, version);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    rc = ngx_idempotency_sqlite_pragma(db, "PRAGMA page_size", &page);
    if (rc != SQLITE_OK) {
        return rc;
    }

    ngx_idempotency_sqlite_log_attach(db, (size_t) page);

    /* for as long as the file is open */

    if (ngx_idempotency_sqlite_schema_lock(db, 0) != NGX_OK) {
        return SQLITE_IOERR_LOCK;
    }

    ngx_idempotency_sqlite_schema_notes(ctx);
    ngx_idempotency_sqlite_schema_suspects(ctx);

    return SQLITE_OK;
}


static int
ngx_idempotency_sqlite_schema_make(ngx_idempotency_sqlite_ctx_t *ctx)
{
    char  text[sizeof("PRAGMA application_id = ;") + NGX_INT_T_LEN];

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "idempotency store \"%V\": \"%V\" is new and knows no keys",
                  &ctx->store->name, &ctx->path);

    (void) ngx_sprintf((u_char *) text, "PRAGMA application_id = %d;%Z",
                       NGX_IDEMPOTENCY_SQLITE_APPLICATION);

    if (sqlite3_exec(ctx->db->handle, text, NULL, NULL, NULL) != SQLITE_OK) {
        return sqlite3_extended_errcode(ctx->db->handle);
    }

    return ngx_idempotency_sqlite_schema_run(ctx->db,
                                           ngx_idempotency_sqlite_tables,
                                           NGX_IDEMPOTENCY_SQLITE_VERSION);
}


/*
 * A module that knows the older schema would write what this one does not
 * understand: it must have ended.
 */

static int
ngx_idempotency_sqlite_schema_migrate(ngx_idempotency_sqlite_ctx_t *ctx,
    int64_t version)
{
    int  rc;

    if (ngx_idempotency_sqlite_schema_lock(ctx->db, 1) != NGX_OK) {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                      "idempotency store \"%V\": \"%V\" has version %L of the "
                      "schema, which an nginx with an older module still "
                      "uses: new keys are refused here until it has ended",
                      &ctx->store->name, &ctx->path, version);
        return SQLITE_MISMATCH;
    }

    for ( /* void */ ; version < NGX_IDEMPOTENCY_SQLITE_VERSION; version++) {

        rc = ngx_idempotency_sqlite_schema_run(ctx->db,
                            ngx_idempotency_sqlite_migrations[version - 1],
                            version + 1);
        if (rc != SQLITE_OK) {
            return rc;
        }

        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\": the schema of \"%V\" has "
                      "version %L now",
                      &ctx->store->name, &ctx->path, version + 1);
    }

    return SQLITE_OK;
}


static int
ngx_idempotency_sqlite_schema_run(ngx_idempotency_sqlite_db_t *db,
    const char *sql, ngx_uint_t version)
{
    int   rc;
    char  text[sizeof("PRAGMA user_version = ; COMMIT") + NGX_INT_T_LEN];

    (void) ngx_sprintf((u_char *) text, "PRAGMA user_version = %ui; COMMIT%Z",
                       version);

    rc = sqlite3_exec(db->handle, "BEGIN IMMEDIATE", NULL, NULL, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
    }

    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(db->handle, text, NULL, NULL, NULL);
    }

    if (rc != SQLITE_OK && !sqlite3_get_autocommit(db->handle)) {
        (void) sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    }

    return rc;
}


/*
 * The statements of older modules name their columns and leave this one alone:
 * it needs no version of the schema, and two modules of different age may use
 * the file during an upgrade.  A file that cannot be written is used without
 * it, since known keys are replayed.
 */

static void
ngx_idempotency_sqlite_schema_notes(ngx_idempotency_sqlite_ctx_t *ctx)
{
    sqlite3  *handle;

    static const char  columns[] =
        "BEGIN IMMEDIATE;"
        "ALTER TABLE records ADD COLUMN note BLOB;"
        "ALTER TABLE executing ADD COLUMN note BLOB;"
        "COMMIT";

    handle = ctx->db->handle;

    if (!ngx_idempotency_sqlite_schema_has_notes(ctx->db)
        && sqlite3_exec(handle, columns, NULL, NULL, NULL) != SQLITE_OK
        && !sqlite3_get_autocommit(handle))
    {
        (void) sqlite3_exec(handle, "ROLLBACK", NULL, NULL, NULL);
    }

    /* or another process has added it meanwhile */

    ctx->db->notes = ngx_idempotency_sqlite_schema_has_notes(ctx->db);

    if (!ctx->db->notes) {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                      "idempotency store \"%V\": the column for labels and "
                      "reasons cannot be made: \"%s\", reload nginx when "
                      "\"%V\" can be written", &ctx->store->name,
                      sqlite3_errmsg(handle), &ctx->path);
    }
}


static ngx_uint_t
ngx_idempotency_sqlite_schema_has_notes(ngx_idempotency_sqlite_db_t *db)
{
    return sqlite3_table_column_metadata(db->handle, NULL, "executing", "note",
                                         NULL, NULL, NULL, NULL, NULL)
           == SQLITE_OK;
}


/*
 * Modules that do not know the table leave it alone: it needs no version of
 * the schema.  A file that cannot be written is used without it, since known
 * keys are replayed.
 */

static void
ngx_idempotency_sqlite_schema_suspects(ngx_idempotency_sqlite_ctx_t *ctx)
{
    sqlite3  *handle;

    static const char  tables[] =
        "CREATE TABLE IF NOT EXISTS suspects (digest BLOB PRIMARY KEY,"
            " record BLOB NOT NULL, owner BLOB NOT NULL,"
            " made INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE INDEX IF NOT EXISTS suspects_until ON suspects(until);";

    handle = ctx->db->handle;

    if (ctx->store->suspects
        && sqlite3_exec(handle, tables, NULL, NULL, NULL) != SQLITE_OK)
    {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                      "idempotency store \"%V\": the table for suspects "
                      "cannot be made: \"%s\", reload nginx when \"%V\" can "
                      "be written", &ctx->store->name,
                      sqlite3_errmsg(handle), &ctx->path);
    }

    ctx->db->suspects = sqlite3_table_column_metadata(handle, NULL, "suspects",
                                                      "until", NULL, NULL,
                                                      NULL, NULL, NULL)
                        == SQLITE_OK;
}


/*
 * The store's clock is that of the boot and an offset, which the first process
 * of a boot chooses: with it the clock shows the time of the wall clock, or
 * the last time that the file has seen if that is later.  All processes of a
 * boot have the same clock, whatever the wall clock does.  No owner of a lease
 * survives a boot: those of an older one are over.
 */

static int
ngx_idempotency_sqlite_boot(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           rc;
    char                         *sql;
    u_char                       *p;
    ssize_t                       n;
    int64_t                       value, since;
    ngx_fd_t                      fd;
    u_char                        id[64];
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    fd = open(NGX_IDEMPOTENCY_SQLITE_BOOT_ID, O_RDONLY|O_CLOEXEC);
    n = 0;

    if (fd != NGX_INVALID_FILE) {
        n = ngx_read_fd(fd, id, sizeof(id) - 1);
        n = ngx_max(n, 0);

        (void) ngx_close_file(fd);
    }

    id[n] = '\0';

    p = (u_char *) ngx_strchr(id, '\n');

    if (p) {
        *p = '\0';
    }

    since = (int64_t) ngx_idempotency_sqlite_msec(CLOCK_BOOTTIME);

    /*
     * A clock that is behind belongs to another boot, also where a boot has no
     * name, as in some sandboxes.
     */

    sql = sqlite3_mprintf("SELECT (SELECT value FROM meta"
                          " WHERE name = 'boot_id') <> %Q"
                          " OR (SELECT value = 0 OR value + %lld"
                          " < (SELECT value FROM meta"
                          " WHERE name = 'clock')"
                          " FROM meta WHERE name = 'offset')", id, since);
    if (sql == NULL) {
        return SQLITE_NOMEM;
    }

    rc = ngx_idempotency_sqlite_pragma(db, sql, &value);

    sqlite3_free(sql);

    if (rc == SQLITE_OK && value) {
        sql = sqlite3_mprintf("BEGIN IMMEDIATE;"
                              "UPDATE meta SET value = value + 1"
                              " WHERE name = 'boot';"
                              "UPDATE meta SET value = %Q"
                              " WHERE name = 'boot_id';"
                              "UPDATE meta SET value = -%lld"
                              " + max(%lld, (SELECT value FROM meta"
                              " WHERE name = 'clock'))"
                              " WHERE name = 'offset';"
                              "COMMIT", id, since,
                              (int64_t) ngx_idempotency_sqlite_msec(
                                                            CLOCK_REALTIME));
        if (sql == NULL) {
            return SQLITE_NOMEM;
        }

        rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);

        sqlite3_free(sql);
    }

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_pragma(db,
                       "SELECT value FROM meta WHERE name = 'boot'", &value);
        db->boot = (uint64_t) value;
    }

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_pragma(db,
                       "SELECT value FROM meta WHERE name = 'offset'",
                       &db->offset);
    }

    if (rc == SQLITE_OK) {
        rc = ngx_idempotency_sqlite_pragma(db,
                       "SELECT value FROM meta WHERE name = 'clock'", &value);
        db->saved = (uint64_t) value;
    }

    return rc;
}


static int
ngx_idempotency_sqlite_pragma(ngx_idempotency_sqlite_db_t *db,
    const char *text, int64_t *value)
{
    int            rc;
    sqlite3_stmt  *stmt;

    *value = 0;

    rc = sqlite3_prepare_v2(db->handle, text, -1, &stmt, NULL);
    if (rc != SQLITE_OK) {
        return rc;
    }

    rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW) {
        *value = sqlite3_column_int64(stmt, 0);
        rc = SQLITE_OK;

    } else if (rc == SQLITE_DONE) {
        rc = SQLITE_CORRUPT;
    }

    (void) sqlite3_finalize(stmt);

    return rc;
}


/*
 * The WAL is there from now on, since this connection is: it is removed by the
 * last one only.  SQLite would sync the directory with its own first sync.
 */

static int
ngx_idempotency_sqlite_open_wal(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_fd_t                      dir;
    struct stat                   st;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    db->wal = open((char *) ctx->wal.data, O_RDWR|O_CLOEXEC);

    if (db->wal != NGX_INVALID_FILE && fstat(db->wal, &st) == 0) {
        db->wal_inode = st.st_ino;
    }

    dir = open((char *) ctx->dir.data, O_RDONLY|O_CLOEXEC);

    if (db->wal == NGX_INVALID_FILE
        || dir == NGX_INVALID_FILE
        || (ctx->sync && (fdatasync(db->wal) == -1 || fsync(dir) == -1)))
    {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno,
                      "idempotency store \"%V\": \"%V\" cannot be synced",
                      &ctx->store->name, &ctx->wal);

        if (dir != NGX_INVALID_FILE) {
            (void) ngx_close_file(dir);
        }

        return SQLITE_CANTOPEN;
    }

    (void) ngx_close_file(dir);

    return SQLITE_OK;
}


void
ngx_idempotency_sqlite_close(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_uint_t                        i;
    ngx_idempotency_sqlite_db_t      *db;
    ngx_idempotency_sqlite_shared_t  *shared;

    db = ctx->db;
    shared = ctx->zone->data;

    if (db == NULL) {
        return;
    }

    for (i = 0; i < NGX_IDEMPOTENCY_SQLITE_STATEMENTS; i++) {
        (void) sqlite3_finalize(db->statements[i]);
    }

    if (shared->failed && db->handle) {

        /* the last one to close it must neither write it nor remove a WAL */

        (void) sqlite3_db_config(db->handle,
                                 SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    }

    (void) sqlite3_close(db->handle);

    if (db->wal != NGX_INVALID_FILE) {
        (void) ngx_close_file(db->wal);
    }

    if (db->reserve != NGX_INVALID_FILE) {
        (void) ngx_close_file(db->reserve);
    }

    (void) ngx_close_file(db->lock);

    ngx_free(db);

    ctx->db = NULL;
    ctx->closed = ngx_idempotency_sqlite_msec(CLOCK_MONOTONIC);
}


static int
ngx_idempotency_sqlite_wal_hook(void *data, sqlite3 *handle, const char *name,
    int frames)
{
    ngx_idempotency_sqlite_db_t *db = data;

    db->frames = frames;

    return SQLITE_OK;
}


sqlite3_stmt *
ngx_idempotency_sqlite_statement(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_statement_e n)
{
    sqlite3_stmt  *stmt;

    stmt = db->statements[n];

    (void) sqlite3_reset(stmt);

    return stmt;
}


int
ngx_idempotency_sqlite_exec(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_statement_e n)
{
    int  rc;

    ngx_set_errno(0);

    do {
        rc = sqlite3_step(db->statements[n]);
    } while (rc == SQLITE_ROW);

    db->err = ngx_errno;

    (void) sqlite3_reset(db->statements[n]);

    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}


int64_t
ngx_idempotency_sqlite_number(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_statement_e n)
{
    int64_t        number;
    sqlite3_stmt  *stmt;

    stmt = db->statements[n];
    number = 0;

    if (sqlite3_step(stmt) == SQLITE_ROW) {
        number = sqlite3_column_int64(stmt, 0);
    }

    (void) sqlite3_reset(stmt);

    return number;
}
