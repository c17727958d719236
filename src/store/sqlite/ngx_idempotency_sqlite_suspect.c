
/*
 * The durable store: the last request with a source, scope and fingerprint.
 *
 * The job of a claim and the one that looks for a suspect are in the same
 * transaction, the claim first.
 */


#include "ngx_idempotency_sqlite_disk.h"


static int ngx_idempotency_sqlite_suspect_look(
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_idempotency_sqlite_job_t *job);
static int ngx_idempotency_sqlite_last_find(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_last_t *last, ngx_uint_t *found);
static int ngx_idempotency_sqlite_last_write(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_op_t *ask);
static int ngx_idempotency_sqlite_last_keep(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_job_t *job);


int
ngx_idempotency_sqlite_suspect(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    if (db->refuse != SQLITE_OK) {
        ngx_idempotency_sqlite_names(db->refuse, &job->error, &job->refusal);
        return SQLITE_OK;
    }

    if (!db->suspects) {

        /* their table could not be made when the file was opened */

        ngx_idempotency_sqlite_names(SQLITE_READONLY, &job->error,
                                     &job->refusal);
        return SQLITE_OK;
    }

    if (job->ask.type == NGX_IDEMPOTENCY_SUSPECT_KEEP) {
        return ngx_idempotency_sqlite_last_keep(db, job);
    }

    return ngx_idempotency_sqlite_suspect_look(ctx, job);
}


static int
ngx_idempotency_sqlite_suspect_look(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    int                            rc;
    ngx_uint_t                     found;
    ngx_idempotency_op_t          *ask;
    ngx_idempotency_last_t         last;
    ngx_idempotency_sqlite_db_t   *db;
    ngx_idempotency_sqlite_row_t   row;

    db = ctx->db;
    ask = &job->ask;

    rc = ngx_idempotency_sqlite_find(db, ask->id.digest, &row);

    if (rc != SQLITE_OK && rc != SQLITE_MISMATCH) {
        return rc;
    }

    if (!row.exists
        || row.stored.state != NGX_IDEMPOTENCY_EXECUTING
        || ngx_memcmp(row.stored.owner, ask->id.owner,
                      NGX_IDEMPOTENCY_OWNER_LEN)
           != 0)
    {
        job->result = NGX_IDEMPOTENCY_REFUSED;
        return SQLITE_OK;
    }

    rc = ngx_idempotency_sqlite_last_find(db, ask->suspect, &last, &found);

    if (rc == SQLITE_OK && found) {
        rc = ngx_idempotency_sqlite_find(db, last.record, &row);

        if (rc == SQLITE_MISMATCH) {
            job->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
            return SQLITE_OK;
        }

        ngx_idempotency_transition_time(&row.stored, db->now);
    }

    if (rc != SQLITE_OK) {
        return rc;
    }

    if (!ngx_idempotency_transition_suspect(ask, found ? &last : NULL,
                                            &row.stored, db->now,
                                            &job->result, &job->record))
    {
        return SQLITE_OK;
    }

    if (!found && db->full) {
        job->error = NGX_IDEMPOTENCY_ERROR_FULL;
        return SQLITE_OK;
    }

    return ngx_idempotency_sqlite_last_write(db, ask);
}


/* the bytes of the file are foreign data: what is none is replaced */

static int
ngx_idempotency_sqlite_last_find(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_last_t *last, ngx_uint_t *found)
{
    int            rc;
    sqlite3_stmt  *stmt;

    *found = 0;

    stmt = ngx_idempotency_sqlite_statement(db,
                                          NGX_IDEMPOTENCY_SQLITE_LAST_FIND);

    sqlite3_bind_blob(stmt, 1, digest, NGX_IDEMPOTENCY_DIGEST_LEN,
                      SQLITE_STATIC);

    rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW) {
        rc = SQLITE_DONE;

        last->made = (uint64_t) sqlite3_column_int64(stmt, 2);
        last->until = (uint64_t) sqlite3_column_int64(stmt, 3);

        if (last->until > db->now
            && sqlite3_column_bytes(stmt, 0) == NGX_IDEMPOTENCY_DIGEST_LEN
            && sqlite3_column_bytes(stmt, 1) == NGX_IDEMPOTENCY_OWNER_LEN)
        {
            ngx_memcpy(last->record, sqlite3_column_blob(stmt, 0),
                       NGX_IDEMPOTENCY_DIGEST_LEN);
            ngx_memcpy(last->owner, sqlite3_column_blob(stmt, 1),
                       NGX_IDEMPOTENCY_OWNER_LEN);
            *found = 1;
        }
    }

    (void) sqlite3_reset(stmt);

    return (rc == SQLITE_DONE) ? SQLITE_OK : rc;
}


static int
ngx_idempotency_sqlite_last_write(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_op_t *ask)
{
    sqlite3_stmt  *stmt;

    stmt = ngx_idempotency_sqlite_statement(db,
                                         NGX_IDEMPOTENCY_SQLITE_LAST_WRITE);

    sqlite3_bind_blob(stmt, 1, ask->suspect, NGX_IDEMPOTENCY_DIGEST_LEN,
                      SQLITE_STATIC);
    sqlite3_bind_blob(stmt, 2, ask->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN,
                      SQLITE_STATIC);
    sqlite3_bind_blob(stmt, 3, ask->id.owner, NGX_IDEMPOTENCY_OWNER_LEN,
                      SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 4, (int64_t) db->now);
    sqlite3_bind_int64(stmt, 5, (int64_t) (db->now + 1000 * (uint64_t)
                                                     ask->ttl));

    return ngx_idempotency_sqlite_exec(db, NGX_IDEMPOTENCY_SQLITE_LAST_WRITE);
}


/* what is kept for no time is removed by the next step of expiry */

static int
ngx_idempotency_sqlite_last_keep(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_job_t *job)
{
    int                    rc;
    sqlite3_stmt          *stmt;
    ngx_idempotency_op_t  *ask;

    ask = &job->ask;

    stmt = ngx_idempotency_sqlite_statement(db,
                                          NGX_IDEMPOTENCY_SQLITE_LAST_KEEP);

    sqlite3_bind_blob(stmt, 1, ask->suspect, NGX_IDEMPOTENCY_DIGEST_LEN,
                      SQLITE_STATIC);
    sqlite3_bind_blob(stmt, 2, ask->id.owner, NGX_IDEMPOTENCY_OWNER_LEN,
                      SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 3, (int64_t) (db->now + 1000 * (uint64_t)
                                                     ask->ttl));

    rc = ngx_idempotency_sqlite_exec(db, NGX_IDEMPOTENCY_SQLITE_LAST_KEEP);

    if (rc == SQLITE_OK && sqlite3_changes(db->handle) == 0) {
        job->result = NGX_IDEMPOTENCY_REFUSED;
    }

    return rc;
}
