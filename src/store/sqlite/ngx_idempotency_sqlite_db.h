
/*
 * The durable store: the database as the thread sees it.
 */


#ifndef _NGX_IDEMPOTENCY_SQLITE_DB_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SQLITE_DB_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <sqlite3.h>
#include "ngx_idempotency_sqlite_job.h"


/*
 * ngx_idempotency_sqlite_statements[] has their texts, in this order.  Behind
 * one that writes to "records" is the same one for "executing".
 */

typedef enum {
    NGX_IDEMPOTENCY_SQLITE_BEGIN = 0,
    NGX_IDEMPOTENCY_SQLITE_BEGIN_READ,
    NGX_IDEMPOTENCY_SQLITE_COMMIT,
    NGX_IDEMPOTENCY_SQLITE_ROLLBACK,
    NGX_IDEMPOTENCY_SQLITE_FIND,
    NGX_IDEMPOTENCY_SQLITE_INSERT,
    NGX_IDEMPOTENCY_SQLITE_INSERT_EXECUTING,
    NGX_IDEMPOTENCY_SQLITE_UPDATE,
    NGX_IDEMPOTENCY_SQLITE_UPDATE_EXECUTING,
    NGX_IDEMPOTENCY_SQLITE_DELETE,
    NGX_IDEMPOTENCY_SQLITE_DELETE_EXECUTING,
    NGX_IDEMPOTENCY_SQLITE_ANSWER_FIND,
    NGX_IDEMPOTENCY_SQLITE_ANSWER_INSERT,
    NGX_IDEMPOTENCY_SQLITE_ANSWER_DELETE,
    NGX_IDEMPOTENCY_SQLITE_MARK_FIND,
    NGX_IDEMPOTENCY_SQLITE_MARK_WRITE,
    NGX_IDEMPOTENCY_SQLITE_MARK_EXPIRE,
    NGX_IDEMPOTENCY_SQLITE_SCAN,
    NGX_IDEMPOTENCY_SQLITE_DUE,
    NGX_IDEMPOTENCY_SQLITE_CLOCK,
    NGX_IDEMPOTENCY_SQLITE_DATA_VERSION,
    NGX_IDEMPOTENCY_SQLITE_PAGES,
    NGX_IDEMPOTENCY_SQLITE_FREE_PAGES,
    NGX_IDEMPOTENCY_SQLITE_VACUUM,

    /* if the table is there */

    NGX_IDEMPOTENCY_SQLITE_LAST_FIND,
    NGX_IDEMPOTENCY_SQLITE_LAST_WRITE,
    NGX_IDEMPOTENCY_SQLITE_LAST_KEEP,
    NGX_IDEMPOTENCY_SQLITE_LAST_EXPIRE,

    NGX_IDEMPOTENCY_SQLITE_STATEMENTS
} ngx_idempotency_sqlite_statement_e;


/* the columns of a SELECT, in the order of their places in an INSERT */

typedef enum {
    NGX_IDEMPOTENCY_SQLITE_DIGEST = 0,
    NGX_IDEMPOTENCY_SQLITE_STATE,
    NGX_IDEMPOTENCY_SQLITE_OWNER,
    NGX_IDEMPOTENCY_SQLITE_FINGERPRINT,
    NGX_IDEMPOTENCY_SQLITE_FENCE,
    NGX_IDEMPOTENCY_SQLITE_LEASE,
    NGX_IDEMPOTENCY_SQLITE_UNTIL,
    NGX_IDEMPOTENCY_SQLITE_ISSUED,
    NGX_IDEMPOTENCY_SQLITE_CREATED,
    NGX_IDEMPOTENCY_SQLITE_ATTEMPTS,
    NGX_IDEMPOTENCY_SQLITE_KEEP,
    NGX_IDEMPOTENCY_SQLITE_TOMBSTONE,
    NGX_IDEMPOTENCY_SQLITE_STATUS,
    NGX_IDEMPOTENCY_SQLITE_KEPT,
    NGX_IDEMPOTENCY_SQLITE_BOOT,
    NGX_IDEMPOTENCY_SQLITE_ANSWER,
    NGX_IDEMPOTENCY_SQLITE_NOTE,
    NGX_IDEMPOTENCY_SQLITE_DUE_AT,

    /* of "find" only, in that place */

    NGX_IDEMPOTENCY_SQLITE_EXECUTING = NGX_IDEMPOTENCY_SQLITE_DUE_AT
} ngx_idempotency_sqlite_column_e;


typedef struct ngx_idempotency_sqlite_log_s  ngx_idempotency_sqlite_log_t;


/* records that a look at all of them may find past their time */
#define NGX_IDEMPOTENCY_SQLITE_LAPSED  64


/* a record as it is in the database */

typedef struct {
    ngx_idempotency_stored_t        stored;
    ngx_idempotency_state_e         state;       /* before time was seen to */
    int64_t                         answer;      /* its row, 0: none */
    unsigned                        exists:1;    /* the row does */
    unsigned                        executing:1; /* it is in that table */
    u_char                          note[NGX_IDEMPOTENCY_NOTE_LEN];
} ngx_idempotency_sqlite_row_t;


/*
 * Of one worker.  "changes" are those of numbers of records, by state, in the
 * transaction that is under way.
 */

struct ngx_idempotency_sqlite_db_s {
    sqlite3                        *handle;
    sqlite3_stmt                   *statements
                                        [NGX_IDEMPOTENCY_SQLITE_STATEMENTS];
    ngx_idempotency_sqlite_log_t   *log;         /* SQLite's own, or NULL */
    ngx_fd_t                        lock;
    ngx_fd_t                        wal;
    ngx_fd_t                        reserve;     /* or invalid */
    ino_t                           wal_inode;
    ngx_err_t                       err;         /* of the last statement */
    uint64_t                        boot;        /* number of this boot */
    int64_t                         offset;      /* of the store's clock */
    uint64_t                        now;         /* store's clock, msec */
    uint64_t                        saved;       /* the clock in the file */
    uint64_t                        counted_at;  /* pages were, msec */
    uint64_t                        fence;
    int64_t                         version;     /* of the data, as seen */
    int64_t                         synced;      /* and the last on disk */
    size_t                          loaded;      /* answers of this batch */
    off_t                           used;        /* bytes */
    int                             frames;      /* in the WAL */
    int                             tried;       /* at the last checkpoint */
    uint64_t                        tried_at;    /* when, msec */
    int                             before;      /* changes, in all */
    int                             refuse;      /* why nothing is written */
    ngx_int_t                       changes[NGX_IDEMPOTENCY_TOMBSTONE + 1];

    /* a look at all records, some at a time, and what it has counted */

    u_char                          scan[NGX_IDEMPOTENCY_DIGEST_LEN];
    u_char                          lapsed[NGX_IDEMPOTENCY_SQLITE_LAPSED]
                                          [NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_uint_t                      nlapsed;     /* executing, and past it */
    ngx_uint_t                      counted[NGX_IDEMPOTENCY_TOMBSTONE + 1];
    unsigned                        scanned:1;   /* counted is of all */
    unsigned                        suspects:1;  /* has their table */
    unsigned                        notes:1;     /* and the column of these */
    unsigned                        full:1;      /* no new records */
    unsigned                        spent:1;     /* the reserve is */
    unsigned                        changed:1;   /* by this transaction */
    unsigned                        locked:1;
};


/*
 * ngx_idempotency_sqlite_open.c: opens the database if it is not open, and
 * makes it if there is none.  SQLITE_OK, or an error of SQLite, logged.
 */
int ngx_idempotency_sqlite_open(ngx_idempotency_sqlite_ctx_t *ctx);

/* the statement, ready to be bound */
sqlite3_stmt *ngx_idempotency_sqlite_statement(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_statement_e n);

/* runs a statement that gives no rows.  SQLITE_OK, or an error of SQLite. */
int ngx_idempotency_sqlite_exec(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_statement_e n);

/* a number in the first column of the first row, 0 if there is none */
int64_t ngx_idempotency_sqlite_number(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_statement_e n);


/*
 * ngx_idempotency_sqlite_record.c: does one job inside a transaction.  Returns
 * SQLITE_OK with the result in the job, or an error of SQLite, after which the
 * transaction must be rolled back.
 */
int ngx_idempotency_sqlite_job_run(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job);

/* the record of a digest; as ngx_idempotency_sqlite_load() */
int ngx_idempotency_sqlite_find(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_sqlite_row_t *row);

/*
 * Reads a record from a row.  SQLITE_OK; SQLITE_MISMATCH: it is not one that
 * this module has written; or another error of SQLite.
 */
int ngx_idempotency_sqlite_load(ngx_idempotency_sqlite_db_t *db,
    sqlite3_stmt *stmt, ngx_idempotency_sqlite_row_t *row);

/* writes the record over the row, or a new one */
int ngx_idempotency_sqlite_save(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_stored_t *stored,
    ngx_idempotency_sqlite_row_t *row);

/* removes the row; its answer stays */
int ngx_idempotency_sqlite_delete(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_sqlite_row_t *row);

int ngx_idempotency_sqlite_drop_answer(ngx_idempotency_sqlite_db_t *db,
    ngx_idempotency_sqlite_row_t *row);

/* the mark of the sequence that the digest may belong to */
int ngx_idempotency_sqlite_mark_find(ngx_idempotency_sqlite_db_t *db,
    u_char *digest, ngx_idempotency_mark_t *mark);


/*
 * ngx_idempotency_sqlite_suspect.c: does a job about the last request with a
 * source, scope and fingerprint.  SQLITE_OK, or an error of SQLite.
 */
int ngx_idempotency_sqlite_suspect(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job);


/*
 * ngx_idempotency_sqlite_scan.c: does a job that lists records.  SQLITE_OK, or
 * an error of SQLite.
 */
int ngx_idempotency_sqlite_list(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job);

/*
 * Inside a transaction: removes some of what has expired, and some free pages.
 * Sets ctx->overdue if there is more.  SQLITE_OK, or an error of SQLite.
 */
int ngx_idempotency_sqlite_expire(ngx_idempotency_sqlite_ctx_t *ctx);

/* inside a transaction that reads: looks at some of the records */
int ngx_idempotency_sqlite_scan(ngx_idempotency_sqlite_ctx_t *ctx);


#endif /* _NGX_IDEMPOTENCY_SQLITE_DB_H_INCLUDED_ */
