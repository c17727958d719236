
/*
 * The durable store: many records at a time.  Lists show those of one state,
 * expiry removes what is past its time; both in bounded steps.
 */


#include "ngx_idempotency_sqlite_disk.h"


/* records that one list looks at */
#define NGX_IDEMPOTENCY_SQLITE_LIST    4096

/*
 * Records that one step of expiry removes while it has milliseconds left, and
 * in any case: others wait for their turn.  Of many at a time, some are on the
 * same page.
 */
#define NGX_IDEMPOTENCY_SQLITE_DUES    1024
#define NGX_IDEMPOTENCY_SQLITE_STEP    4
#define NGX_IDEMPOTENCY_SQLITE_LEAST   128

/* records that one look counts */
#define NGX_IDEMPOTENCY_SQLITE_SCANS   2048

/* free pages that are not given back to the file system */
#define NGX_IDEMPOTENCY_SQLITE_SPARE   1024


static int ngx_idempotency_sqlite_list_look(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job, sqlite3_stmt *stmt);
static int ngx_idempotency_sqlite_remove(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_sqlite_row_t *row);
static int ngx_idempotency_sqlite_age(ngx_idempotency_sqlite_ctx_t *ctx,
    u_char digests[][NGX_IDEMPOTENCY_DIGEST_LEN], ngx_uint_t n,
    uint64_t until);


int
ngx_idempotency_sqlite_list(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    int            rc;
    ngx_uint_t     i;
    sqlite3_stmt  *stmt;

    job->entries = ngx_alloc(NGX_IDEMPOTENCY_LIST_ENTRIES
                             * (sizeof(ngx_idempotency_entry_t)
                                + NGX_IDEMPOTENCY_NOTE_LEN),
                             ngx_cycle->log);
    if (job->entries == NULL) {
        job->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return SQLITE_OK;
    }

    rc = SQLITE_OK;

    stmt = ngx_idempotency_sqlite_statement(ctx->db,
                                            NGX_IDEMPOTENCY_SQLITE_SCAN);

    sqlite3_bind_blob(stmt, 1, job->cursor, NGX_IDEMPOTENCY_DIGEST_LEN,
                      SQLITE_TRANSIENT);
    sqlite3_bind_int(stmt, 2, NGX_IDEMPOTENCY_SQLITE_LIST);

    for (i = 0; job->nentries < NGX_IDEMPOTENCY_LIST_ENTRIES; i++) {

        rc = sqlite3_step(stmt);

        if (rc != SQLITE_ROW) {
            break;
        }

        rc = ngx_idempotency_sqlite_list_look(ctx, job, stmt);
        if (rc != SQLITE_OK) {
            break;
        }
    }

    (void) sqlite3_reset(stmt);

    job->result = NGX_IDEMPOTENCY_OK;
    job->more = (i == NGX_IDEMPOTENCY_SQLITE_LIST
                 || job->nentries == NGX_IDEMPOTENCY_LIST_ENTRIES);

    return (rc == SQLITE_DONE) ? SQLITE_OK : rc;
}


/* what is overdue is not moved: a list changes nothing */

static int
ngx_idempotency_sqlite_list_look(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job, sqlite3_stmt *stmt)
{
    int                            rc;
    ngx_idempotency_mark_t         mark;
    ngx_idempotency_entry_t       *entry;
    ngx_idempotency_record_t       record;
    ngx_idempotency_sqlite_db_t   *db;
    ngx_idempotency_sqlite_row_t   row;

    db = ctx->db;

    if (ngx_idempotency_sqlite_load(db, stmt, &row) != SQLITE_OK) {

        /* a record that cannot be read is in no state */

        return SQLITE_OK;
    }

    ngx_memcpy(job->cursor,
               sqlite3_column_blob(stmt, NGX_IDEMPOTENCY_SQLITE_DIGEST),
               NGX_IDEMPOTENCY_DIGEST_LEN);

    if (ngx_idempotency_record_is_dry(job->cursor)) {
        return SQLITE_OK;
    }

    job->seen++;

    ngx_idempotency_transition_time(&row.stored, db->now);

    ngx_memzero(&record, sizeof(ngx_idempotency_record_t));
    ngx_idempotency_transition_show(&row.stored, db->now, &record);

    if (!row.stored.exists
        || !ngx_idempotency_list_wants(&job->list, record.state, job->cursor))
    {
        return SQLITE_OK;
    }

    rc = ngx_idempotency_sqlite_mark_find(db, job->cursor, &mark);
    if (rc != SQLITE_OK) {
        return rc;
    }

    if (row.stored.note.len) {
        record.note.len = row.stored.note.len;
        record.note.data = (u_char *) (job->entries
                                       + NGX_IDEMPOTENCY_LIST_ENTRIES)
                           + job->nentries * NGX_IDEMPOTENCY_NOTE_LEN;

        ngx_memcpy(record.note.data, row.stored.note.data, record.note.len);
    }

    entry = &job->entries[job->nentries++];

    ngx_memzero(entry, sizeof(ngx_idempotency_entry_t));
    ngx_memcpy(entry->digest, job->cursor, NGX_IDEMPOTENCY_DIGEST_LEN);

    entry->record = record;
    entry->sequence = mark.exists;

    return SQLITE_OK;
}


int
ngx_idempotency_sqlite_expire(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                           rc;
    int64_t                       pages, spare;
    uint64_t                      until;
    ngx_uint_t                    n;
    sqlite3_stmt                 *stmt;
    ngx_idempotency_sqlite_db_t  *db;
    u_char                        digests[NGX_IDEMPOTENCY_SQLITE_DUES]
                                         [NGX_IDEMPOTENCY_DIGEST_LEN];

    db = ctx->db;
    until = ngx_idempotency_sqlite_msec(CLOCK_MONOTONIC)
            + NGX_IDEMPOTENCY_SQLITE_STEP;

    stmt = ngx_idempotency_sqlite_statement(db, NGX_IDEMPOTENCY_SQLITE_DUE);

    sqlite3_bind_int64(stmt, 1, (int64_t) db->now);
    sqlite3_bind_int(stmt, 2, NGX_IDEMPOTENCY_SQLITE_DUES);

    for (n = 0; (rc = sqlite3_step(stmt)) == SQLITE_ROW; /* void */ ) {

        if (n < NGX_IDEMPOTENCY_SQLITE_DUES
            && sqlite3_column_bytes(stmt, NGX_IDEMPOTENCY_SQLITE_DIGEST)
               == NGX_IDEMPOTENCY_DIGEST_LEN)
        {
            ngx_memcpy(digests[n++],
                       sqlite3_column_blob(stmt,
                                           NGX_IDEMPOTENCY_SQLITE_DIGEST),
                       NGX_IDEMPOTENCY_DIGEST_LEN);
        }
    }

    (void) sqlite3_reset(stmt);

    if (rc != SQLITE_DONE) {
        return rc;
    }

    ctx->overdue = (n == NGX_IDEMPOTENCY_SQLITE_DUES);

    rc = ngx_idempotency_sqlite_age(ctx, digests, n, until);
    if (rc != SQLITE_OK) {
        return rc;
    }

    rc = ngx_idempotency_sqlite_age(ctx, db->lapsed, db->nlapsed, until);
    if (rc != SQLITE_OK) {
        return rc;
    }

    db->nlapsed = 0;

    stmt = ngx_idempotency_sqlite_statement(db,
                                        NGX_IDEMPOTENCY_SQLITE_MARK_EXPIRE);
    sqlite3_bind_int64(stmt, 1, (int64_t) db->now);

    rc = ngx_idempotency_sqlite_exec(db, NGX_IDEMPOTENCY_SQLITE_MARK_EXPIRE);
    if (rc != SQLITE_OK) {
        return rc;
    }

    /* as many as the statement removes at a time */

    ctx->overdue |= (sqlite3_changes(db->handle) >= 256);

    if (db->suspects) {
        stmt = ngx_idempotency_sqlite_statement(db,
                                        NGX_IDEMPOTENCY_SQLITE_LAST_EXPIRE);
        sqlite3_bind_int64(stmt, 1, (int64_t) db->now);

        rc = ngx_idempotency_sqlite_exec(db,
                                        NGX_IDEMPOTENCY_SQLITE_LAST_EXPIRE);
        if (rc != SQLITE_OK) {
            return rc;
        }

        ctx->overdue |= (sqlite3_changes(db->handle) >= 256);
    }

    pages = ngx_idempotency_sqlite_number(db, NGX_IDEMPOTENCY_SQLITE_PAGES);
    spare = ngx_idempotency_sqlite_number(db,
                                          NGX_IDEMPOTENCY_SQLITE_FREE_PAGES);

    if (spare <= NGX_IDEMPOTENCY_SQLITE_SPARE || spare <= pages / 4) {
        return SQLITE_OK;
    }

    ctx->overdue = 1;

    return ngx_idempotency_sqlite_exec(db, NGX_IDEMPOTENCY_SQLITE_VACUUM);
}


/*
 * Counts some of all records.  Those that are executing and were never settled
 * are not in the index by time: the next step of expiry removes what is found
 * here.
 */

int
ngx_idempotency_sqlite_scan(ngx_idempotency_sqlite_ctx_t *ctx)
{
    int                               rc;
    ngx_uint_t                        i;
    sqlite3_stmt                     *stmt;
    ngx_idempotency_sqlite_db_t      *db;
    ngx_idempotency_sqlite_row_t      row;
    ngx_idempotency_sqlite_shared_t  *shared;

    db = ctx->db;

    stmt = ngx_idempotency_sqlite_statement(db, NGX_IDEMPOTENCY_SQLITE_SCAN);

    sqlite3_bind_blob(stmt, 1, db->scan, NGX_IDEMPOTENCY_DIGEST_LEN,
                      SQLITE_TRANSIENT);
    sqlite3_bind_int(stmt, 2, NGX_IDEMPOTENCY_SQLITE_SCANS);

    for (i = 0; (rc = sqlite3_step(stmt)) == SQLITE_ROW; i++) {

        if (ngx_idempotency_sqlite_load(db, stmt, &row) != SQLITE_OK) {
            continue;
        }

        ngx_memcpy(db->scan,
                   sqlite3_column_blob(stmt, NGX_IDEMPOTENCY_SQLITE_DIGEST),
                   NGX_IDEMPOTENCY_DIGEST_LEN);

        if (row.state == NGX_IDEMPOTENCY_EXECUTING
            && ngx_idempotency_transition_due(&row.stored) <= db->now
            && db->nlapsed < NGX_IDEMPOTENCY_SQLITE_LAPSED)
        {
            ngx_memcpy(db->lapsed[db->nlapsed++], db->scan,
                       NGX_IDEMPOTENCY_DIGEST_LEN);
            continue;
        }

        db->counted[row.state]++;
    }

    (void) sqlite3_reset(stmt);

    if (rc != SQLITE_DONE) {
        return rc;
    }

    if (i < NGX_IDEMPOTENCY_SQLITE_SCANS) {
        ngx_memzero(db->scan, NGX_IDEMPOTENCY_DIGEST_LEN);
        db->scanned = 1;
        return SQLITE_OK;
    }

    shared = ctx->zone->data;

    if (!shared->counted) {

        /* after a start nothing is known of the numbers */

        ctx->overdue = 1;
    }

    return SQLITE_OK;
}


/* done becomes a tombstone, and what is past its time is removed */

static int
ngx_idempotency_sqlite_age(ngx_idempotency_sqlite_ctx_t *ctx,
    u_char digests[][NGX_IDEMPOTENCY_DIGEST_LEN], ngx_uint_t n,
    uint64_t until)
{
    int                            rc;
    ngx_uint_t                     i;
    ngx_idempotency_sqlite_db_t   *db;
    ngx_idempotency_sqlite_row_t   row;

    db = ctx->db;

    for (i = 0; i < n; i++) {

        if (i && i % NGX_IDEMPOTENCY_SQLITE_LEAST == 0
            && ngx_idempotency_sqlite_msec(CLOCK_MONOTONIC) > until)
        {
            ctx->overdue = 1;
            return SQLITE_OK;
        }

        rc = ngx_idempotency_sqlite_find(db, digests[i], &row);

        if (rc == SQLITE_MISMATCH || (rc == SQLITE_OK && !row.exists)) {
            continue;
        }

        if (rc != SQLITE_OK) {
            return rc;
        }

        if (ngx_idempotency_transition_due(&row.stored) > db->now) {
            continue;
        }

        ngx_idempotency_transition_time(&row.stored, db->now);

        if (!row.stored.exists) {
            rc = ngx_idempotency_sqlite_remove(db, digests[i], &row);

        } else {
            rc = ngx_idempotency_sqlite_drop_answer(db, &row);

            if (rc == SQLITE_OK) {
                rc = ngx_idempotency_sqlite_save(db, digests[i], &row.stored,
                                                 &row);
            }
        }

        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    return SQLITE_OK;
}


static int
ngx_idempotency_sqlite_remove(ngx_idempotency_sqlite_db_t *db, u_char *digest,
    ngx_idempotency_sqlite_row_t *row)
{
    int  rc;

    rc = ngx_idempotency_sqlite_drop_answer(db, row);
    if (rc != SQLITE_OK) {
        return rc;
    }

    return ngx_idempotency_sqlite_delete(db, digest, row);
}
