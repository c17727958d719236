
/*
 * The durable store: one operation inside a transaction.
 *
 * What an operation makes of a record is decided by store/transition; here it
 * is read and written.
 */


#include "ngx_idempotency_sqlite_disk.h"


/* the digests of a sequence begin with the same half */
#define NGX_IDEMPOTENCY_SQLITE_HALF    (NGX_IDEMPOTENCY_DIGEST_LEN / 2)


static int ngx_idempotency_sqlite_change(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job, ngx_idempotency_op_t *ask,
    ngx_idempotency_result_e *result);
static int ngx_idempotency_sqlite_write(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job, ngx_idempotency_transition_t *t,
    ngx_idempotency_sqlite_row_t *row);
static int ngx_idempotency_sqlite_show(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job, ngx_idempotency_transition_t *t,
    ngx_idempotency_sqlite_row_t *row);
static int ngx_idempotency_sqlite_answer(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_job_t *job, int64_t id);
static int ngx_idempotency_sqlite_renew(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job);
static int ngx_idempotency_sqlite_mark_write(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_mark_t *mark);


int
ngx_idempotency_sqlite_job_run(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    switch (job->ask.type) {

    case NGX_IDEMPOTENCY_RENEW:
        return ngx_idempotency_sqlite_renew(ctx, job);

    case NGX_IDEMPOTENCY_LIST:
        return ngx_idempotency_sqlite_list(ctx, job);

    case NGX_IDEMPOTENCY_SUSPECT:
    case NGX_IDEMPOTENCY_SUSPECT_KEEP:
        return ngx_idempotency_sqlite_suspect(ctx, job);

    default:
        return ngx_idempotency_sqlite_change(ctx, job, &job->ask,
                                             &job->result);
    }
}


static int
ngx_idempotency_sqlite_change(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job, ngx_idempotency_op_t *ask,
    ngx_idempotency_result_e *result)
{
    int                            rc;
    ngx_idempotency_sqlite_db_t   *db;
    ngx_idempotency_transition_t   t;
    ngx_idempotency_sqlite_row_t   row;

    db = ctx->db;

    rc = ngx_idempotency_sqlite_find(db, ask->id.digest, &row);

    if (rc == SQLITE_MISMATCH) {
        job->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return SQLITE_OK;
    }

    if (rc != SQLITE_OK) {
        return rc;
    }

    ngx_memzero(&t.mark, sizeof(ngx_idempotency_mark_t));

    if (ask->type == NGX_IDEMPOTENCY_RELEASE
        || ask->type == NGX_IDEMPOTENCY_RESOLVE
        || ask->type == NGX_IDEMPOTENCY_PURGE
        || (ask->type == NGX_IDEMPOTENCY_CLAIM
            && (ask->flags & NGX_IDEMPOTENCY_SEQUENCE)))
    {
        rc = ngx_idempotency_sqlite_mark_find(db, ask->id.digest, &t.mark);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    t.stored = row.stored;
    t.op = ask;
    t.now = db->now;
    t.time = (time_t) (db->now / 1000);
    t.fence = ++db->fence;

    ngx_idempotency_transition(&t);

    *result = t.result;

    if (t.change != NGX_IDEMPOTENCY_UNCHANGED || t.mark_moved) {

        if (db->refuse != SQLITE_OK) {
            ngx_idempotency_sqlite_names(db->refuse, &job->error,
                                         &job->refusal);
            return SQLITE_OK;
        }

        if (!row.exists && db->full
            && (ask->type == NGX_IDEMPOTENCY_CLAIM
                || ask->type == NGX_IDEMPOTENCY_ISSUE
                || ask->type == NGX_IDEMPOTENCY_CANCEL))
        {
            job->error = NGX_IDEMPOTENCY_ERROR_FULL;
            return SQLITE_OK;
        }

        rc = ngx_idempotency_sqlite_write(ctx, job, &t, &row);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    return ngx_idempotency_sqlite_show(ctx, job, &t, &row);
}


static int
ngx_idempotency_sqlite_write(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job, ngx_idempotency_transition_t *t,
    ngx_idempotency_sqlite_row_t *row)
{
    int                           rc;
    sqlite3_stmt                 *stmt;
    ngx_idempotency_sqlite_db_t  *db;

    db = ctx->db;

    if (t->change == NGX_IDEMPOTENCY_MOVED) {

        /* whatever it had belongs to another state */

        rc = ngx_idempotency_sqlite_drop_answer(db, row);
        if (rc != SQLITE_OK) {
            return rc;
        }

        if (t->stored.state == NGX_IDEMPOTENCY_DONE && t->stored.kept) {
            stmt = ngx_idempotency_sqlite_statement(db,
                                      NGX_IDEMPOTENCY_SQLITE_ANSWER_INSERT);

            sqlite3_bind_blob(stmt, 1, job->ask.head.data,
                              (int) job->ask.head.len, SQLITE_STATIC);
            sqlite3_bind_blob(stmt, 2, job->body.data, (int) job->body.len,
                              SQLITE_STATIC);

            rc = ngx_idempotency_sqlite_exec(db,
                                      NGX_IDEMPOTENCY_SQLITE_ANSWER_INSERT);
            if (rc != SQLITE_OK) {
                return rc;
            }

            row->answer = sqlite3_last_insert_rowid(db->handle);
        }
    }

    if (t->change != NGX_IDEMPOTENCY_UNCHANGED) {
        rc = ngx_idempotency_sqlite_save(db, (u_char *) t->op->id.digest,
                                         &t->stored, row);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    if (t->mark_moved) {
        return ngx_idempotency_sqlite_mark_write(db,
                                                 (u_char *) t->op->id.digest,
                                                 &t->mark);
    }

    return SQLITE_OK;
}


static int
ngx_idempotency_sqlite_show(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job, ngx_idempotency_transition_t *t,
    ngx_idempotency_sqlite_row_t *row)
{
    ngx_idempotency_record_t  *record;

    record = &job->record;

    job->now = t->now;
    job->stored = t->stored;
    job->stored.note.len = 0;
    job->expects = t->expects;
    job->expected = t->expected;

    if (t->result == NGX_IDEMPOTENCY_OUT_OF_ORDER) {
        return SQLITE_OK;
    }

    ngx_memzero(record, sizeof(ngx_idempotency_record_t));

    ngx_idempotency_transition_show(&t->stored, t->now, record);

    if (t->change == NGX_IDEMPOTENCY_UNCHANGED
        && t->stored.note.len
        && job->ask.type != NGX_IDEMPOTENCY_RENEW)
    {
        record->note.len = t->stored.note.len;
        record->note.data = ngx_alloc(record->note.len, ngx_cycle->log);
        if (record->note.data == NULL) {
            return SQLITE_NOMEM;
        }

        job->note = record->note.data;
        ngx_memcpy(job->note, t->stored.note.data, record->note.len);
    }

    if (!t->answer || !record->kept) {
        return SQLITE_OK;
    }

    return ngx_idempotency_sqlite_answer(ctx->db, job, row->answer);
}


static int
ngx_idempotency_sqlite_answer(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_job_t *job, int64_t id)
{
    int                        rc;
    size_t                     head, body;
    sqlite3_stmt              *stmt;
    ngx_idempotency_record_t  *record;

    stmt = ngx_idempotency_sqlite_statement(db,
                                        NGX_IDEMPOTENCY_SQLITE_ANSWER_FIND);
    sqlite3_bind_int64(stmt, 1, id);

    rc = sqlite3_step(stmt);

    if (rc != SQLITE_ROW) {
        (void) sqlite3_reset(stmt);

        if (rc == SQLITE_DONE) {

            /* an operator has deleted the row */

            job->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
            return SQLITE_OK;
        }

        return rc;
    }

    head = sqlite3_column_bytes(stmt, 0);
    body = sqlite3_column_bytes(stmt, 1);

    job->answer = ngx_alloc(ngx_max(head + body, 1), ngx_cycle->log);
    if (job->answer == NULL) {
        (void) sqlite3_reset(stmt);
        return SQLITE_NOMEM;
    }

    record = &job->record;

    record->head.data = job->answer;
    record->head.len = head;
    record->body.data = job->answer + head;
    record->body.len = body;

    if (head) {
        ngx_memcpy(record->head.data, sqlite3_column_blob(stmt, 0), head);
    }

    if (body) {
        ngx_memcpy(record->body.data, sqlite3_column_blob(stmt, 1), body);
    }

    (void) sqlite3_reset(stmt);

    db->loaded += head + body;

    return SQLITE_OK;
}


static int
ngx_idempotency_sqlite_renew(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    int                       rc;
    ngx_uint_t                i;
    ngx_idempotency_op_t      one;
    ngx_idempotency_lease_t  *lease;

    ngx_memzero(&one, sizeof(ngx_idempotency_op_t));

    one.type = NGX_IDEMPOTENCY_RENEW;
    lease = job->leases;

    for (i = 0; i < job->nleases; i++) {
        one.id = lease[i].id;
        one.fence = lease[i].fence;
        one.lease = lease[i].lease;
        one.ttl = lease[i].keep;

        lease[i].result = NGX_IDEMPOTENCY_REFUSED;

        rc = ngx_idempotency_sqlite_change(ctx, job, &one, &lease[i].result);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    job->result = NGX_IDEMPOTENCY_OK;

    return SQLITE_OK;
}


/* SQLITE_MISMATCH: the row is not one that this module has written */

int
ngx_idempotency_sqlite_find(ngx_idempotency_sqlite_db_t *db, u_char *digest,
    ngx_idempotency_sqlite_row_t *row)
{
    int            rc;
    sqlite3_stmt  *stmt;

    ngx_memzero(row, offsetof(ngx_idempotency_sqlite_row_t, note));

    stmt = ngx_idempotency_sqlite_statement(db, NGX_IDEMPOTENCY_SQLITE_FIND);

    sqlite3_bind_blob(stmt, 1, digest, NGX_IDEMPOTENCY_DIGEST_LEN,
                      SQLITE_STATIC);

    rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW) {
        rc = ngx_idempotency_sqlite_load(db, stmt, row);
        row->executing = (sqlite3_column_int(stmt,
                                             NGX_IDEMPOTENCY_SQLITE_EXECUTING)
                          != 0);

    } else if (rc == SQLITE_DONE) {
        rc = SQLITE_OK;
    }

    (void) sqlite3_reset(stmt);

    return rc;
}


/*
 * The bytes of the file are foreign data.  A lease of an older boot is over;
 * see ngx_idempotency_sqlite_boot().
 */

int
ngx_idempotency_sqlite_load(ngx_idempotency_sqlite_db_t *db,
    sqlite3_stmt *stmt, ngx_idempotency_sqlite_row_t *row)
{
    size_t                     len;
    int64_t                    state;
    ngx_idempotency_stored_t  *s;

    ngx_memzero(row, offsetof(ngx_idempotency_sqlite_row_t, note));

    s = &row->stored;
    state = sqlite3_column_int64(stmt, NGX_IDEMPOTENCY_SQLITE_STATE);

    if (state < NGX_IDEMPOTENCY_NONE
        || state > NGX_IDEMPOTENCY_TOMBSTONE
        || sqlite3_column_bytes(stmt, NGX_IDEMPOTENCY_SQLITE_DIGEST)
           != NGX_IDEMPOTENCY_DIGEST_LEN
        || sqlite3_column_bytes(stmt, NGX_IDEMPOTENCY_SQLITE_OWNER)
           != NGX_IDEMPOTENCY_OWNER_LEN
        || sqlite3_column_bytes(stmt, NGX_IDEMPOTENCY_SQLITE_FINGERPRINT)
           != NGX_IDEMPOTENCY_FINGERPRINT_LEN)
    {
        return SQLITE_MISMATCH;
    }

    s->exists = 1;
    s->state = (ngx_idempotency_state_e) state;

    ngx_memcpy(s->owner,
               sqlite3_column_blob(stmt, NGX_IDEMPOTENCY_SQLITE_OWNER),
               NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(s->fingerprint,
               sqlite3_column_blob(stmt, NGX_IDEMPOTENCY_SQLITE_FINGERPRINT),
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

#define ngx_idempotency_sqlite_column(type, name)                             \
    (type) sqlite3_column_int64(stmt, NGX_IDEMPOTENCY_SQLITE_##name)

    s->fence = ngx_idempotency_sqlite_column(uint64_t, FENCE);
    s->lease = ngx_idempotency_sqlite_column(uint64_t, LEASE);
    s->until = ngx_idempotency_sqlite_column(uint64_t, UNTIL);
    s->issued = ngx_idempotency_sqlite_column(uint64_t, ISSUED);
    s->created = ngx_idempotency_sqlite_column(time_t, CREATED);
    s->attempts = ngx_idempotency_sqlite_column(uint32_t, ATTEMPTS);
    s->keep = ngx_idempotency_sqlite_column(uint32_t, KEEP);
    s->tombstone = ngx_idempotency_sqlite_column(uint32_t, TOMBSTONE);
    s->status = ngx_idempotency_sqlite_column(uint16_t, STATUS);
    s->kept = ngx_idempotency_sqlite_column(ngx_uint_t, KEPT) != 0;

    len = sqlite3_column_bytes(stmt, NGX_IDEMPOTENCY_SQLITE_NOTE);

    if (len && len <= NGX_IDEMPOTENCY_NOTE_LEN) {
        ngx_memcpy(row->note,
                   sqlite3_column_blob(stmt, NGX_IDEMPOTENCY_SQLITE_NOTE),
                   len);

        s->note.data = row->note;
        s->note.len = len;
    }

    row->exists = 1;
    row->state = s->state;
    row->answer = ngx_idempotency_sqlite_column(int64_t, ANSWER);

    if (ngx_idempotency_sqlite_column(uint64_t, BOOT) != db->boot
        && s->lease > db->now)
    {
        s->lease = db->now;
    }

    return SQLITE_OK;
}


int
ngx_idempotency_sqlite_save(ngx_idempotency_sqlite_db_t *db, u_char *digest,
    ngx_idempotency_stored_t *s, ngx_idempotency_sqlite_row_t *row)
{
    int                                  rc;
    ngx_uint_t                           executing;
    sqlite3_stmt                        *stmt;
    ngx_idempotency_sqlite_statement_e   n;

    executing = (s->state == NGX_IDEMPOTENCY_EXECUTING);

    if (row->exists && row->executing != executing) {
        rc = ngx_idempotency_sqlite_delete(db, digest, row);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }

    n = row->exists ? NGX_IDEMPOTENCY_SQLITE_UPDATE
                    : NGX_IDEMPOTENCY_SQLITE_INSERT;
    n += executing;

    stmt = ngx_idempotency_sqlite_statement(db, n);

#define ngx_idempotency_sqlite_bind(name, value)                              \
    sqlite3_bind_int64(stmt, NGX_IDEMPOTENCY_SQLITE_##name + 1,               \
                       (int64_t) (value))

    sqlite3_bind_blob(stmt, NGX_IDEMPOTENCY_SQLITE_DIGEST + 1, digest,
                      NGX_IDEMPOTENCY_DIGEST_LEN, SQLITE_STATIC);
    sqlite3_bind_blob(stmt, NGX_IDEMPOTENCY_SQLITE_OWNER + 1, s->owner,
                      NGX_IDEMPOTENCY_OWNER_LEN, SQLITE_STATIC);
    sqlite3_bind_blob(stmt, NGX_IDEMPOTENCY_SQLITE_FINGERPRINT + 1,
                      s->fingerprint, NGX_IDEMPOTENCY_FINGERPRINT_LEN,
                      SQLITE_STATIC);

    ngx_idempotency_sqlite_bind(STATE, s->state);
    ngx_idempotency_sqlite_bind(FENCE, s->fence);
    ngx_idempotency_sqlite_bind(LEASE, s->lease);
    ngx_idempotency_sqlite_bind(UNTIL, s->until);
    ngx_idempotency_sqlite_bind(ISSUED, s->issued);
    ngx_idempotency_sqlite_bind(CREATED, s->created);
    ngx_idempotency_sqlite_bind(ATTEMPTS, s->attempts);
    ngx_idempotency_sqlite_bind(KEEP, s->keep);
    ngx_idempotency_sqlite_bind(TOMBSTONE, s->tombstone);
    ngx_idempotency_sqlite_bind(STATUS, s->status);
    ngx_idempotency_sqlite_bind(KEPT, s->kept);
    ngx_idempotency_sqlite_bind(BOOT, db->boot);
    ngx_idempotency_sqlite_bind(ANSWER, row->answer);

    if (s->note.len) {
        sqlite3_bind_blob(stmt, NGX_IDEMPOTENCY_SQLITE_NOTE + 1,
                          s->note.data, (int) s->note.len, SQLITE_STATIC);

    } else {
        sqlite3_bind_null(stmt, NGX_IDEMPOTENCY_SQLITE_NOTE + 1);
    }

    ngx_idempotency_sqlite_bind(DUE_AT, ngx_idempotency_transition_due(s));

    if (row->exists) {
        db->changes[row->state]--;
    }

    db->changes[s->state]++;

    row->exists = 1;
    row->executing = executing;
    row->state = s->state;

    return ngx_idempotency_sqlite_exec(db, n);
}


int
ngx_idempotency_sqlite_delete(ngx_idempotency_sqlite_db_t *db, u_char *digest,
    ngx_idempotency_sqlite_row_t *row)
{
    sqlite3_stmt                        *stmt;
    ngx_idempotency_sqlite_statement_e   n;

    n = NGX_IDEMPOTENCY_SQLITE_DELETE + row->executing;

    stmt = ngx_idempotency_sqlite_statement(db, n);

    sqlite3_bind_blob(stmt, 1, digest, NGX_IDEMPOTENCY_DIGEST_LEN,
                      SQLITE_STATIC);

    db->changes[row->state]--;

    row->exists = 0;

    return ngx_idempotency_sqlite_exec(db, n);
}


int
ngx_idempotency_sqlite_drop_answer(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_row_t *row)
{
    sqlite3_stmt  *stmt;

    if (row->answer == 0) {
        return SQLITE_OK;
    }

    stmt = ngx_idempotency_sqlite_statement(db,
                                      NGX_IDEMPOTENCY_SQLITE_ANSWER_DELETE);

    sqlite3_bind_int64(stmt, 1, row->answer);

    row->answer = 0;

    return ngx_idempotency_sqlite_exec(db,
                                      NGX_IDEMPOTENCY_SQLITE_ANSWER_DELETE);
}


int
ngx_idempotency_sqlite_mark_find(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_mark_t *mark)
{
    int            rc;
    sqlite3_stmt  *stmt;

    ngx_memzero(mark, sizeof(ngx_idempotency_mark_t));

    stmt = ngx_idempotency_sqlite_statement(db,
                                          NGX_IDEMPOTENCY_SQLITE_MARK_FIND);

    sqlite3_bind_blob(stmt, 1, digest, NGX_IDEMPOTENCY_SQLITE_HALF,
                      SQLITE_STATIC);

    rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW) {
        mark->epoch = (uint64_t) sqlite3_column_int64(stmt, 0);
        mark->next = (uint64_t) sqlite3_column_int64(stmt, 1);
        mark->until = (uint64_t) sqlite3_column_int64(stmt, 2);
        mark->exists = (mark->until > db->now);

        if (!mark->exists) {
            ngx_memzero(mark, sizeof(ngx_idempotency_mark_t));
        }

        rc = SQLITE_DONE;
    }

    (void) sqlite3_reset(stmt);

    return (rc == SQLITE_DONE) ? SQLITE_OK : rc;
}


static int
ngx_idempotency_sqlite_mark_write(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_mark_t *mark)
{
    sqlite3_stmt  *stmt;

    stmt = ngx_idempotency_sqlite_statement(db,
                                         NGX_IDEMPOTENCY_SQLITE_MARK_WRITE);

    sqlite3_bind_blob(stmt, 1, digest, NGX_IDEMPOTENCY_SQLITE_HALF,
                      SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, (int64_t) mark->epoch);
    sqlite3_bind_int64(stmt, 3, (int64_t) mark->next);
    sqlite3_bind_int64(stmt, 4, (int64_t) mark->until);

    return ngx_idempotency_sqlite_exec(db, NGX_IDEMPOTENCY_SQLITE_MARK_WRITE);
}
