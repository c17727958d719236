
/*
 * The durable store: its turns, its syncs, and the disk below it, in a thread.
 */


#ifndef _NGX_IDEMPOTENCY_SQLITE_DISK_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SQLITE_DISK_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_sqlite_db.h"


/*
 * ngx_idempotency_sqlite_turn.c: waits until no other worker writes, however
 * long that takes; SQLITE_BUSY in a worker that ends and has waited for long.
 */
int ngx_idempotency_sqlite_lock(ngx_idempotency_sqlite_ctx_t *ctx);
void ngx_idempotency_sqlite_unlock(ngx_idempotency_sqlite_ctx_t *ctx);

/*
 * Says that this process uses the schema as it is, or, with "change", that
 * no other one does.  NGX_OK, NGX_AGAIN: others use it, or NGX_ERROR.
 */
ngx_int_t ngx_idempotency_sqlite_schema_lock(ngx_idempotency_sqlite_db_t *db,
    ngx_uint_t change);

/*
 * Returns SQLITE_OK when everything that was committed before the call, by any
 * process, would survive loss of power.
 */
int ngx_idempotency_sqlite_sync(ngx_idempotency_sqlite_ctx_t *ctx);


/*
 * ngx_idempotency_sqlite_disk.c: the error of SQLite by its cause: what a
 * write could not do is SQLITE_FULL, SQLITE_READONLY or another.
 */
int ngx_idempotency_sqlite_cause(ngx_idempotency_sqlite_db_t *db, int rc);

/* the names of an error of SQLite */
void ngx_idempotency_sqlite_names(int rc, ngx_idempotency_error_e *error,
    ngx_idempotency_refusal_e *refusal);

/* logs what has failed and how to repair it, not more than once a second */
void ngx_idempotency_sqlite_log(ngx_idempotency_sqlite_ctx_t *ctx, int rc,
    const char *what);

/*
 * Asks nothing of the file any more if the error is one that a second try
 * would hide.
 */
void ngx_idempotency_sqlite_give_up(ngx_idempotency_sqlite_ctx_t *ctx, int rc);

/* whether an earlier nginx has found the database damaged; logged */
ngx_uint_t ngx_idempotency_sqlite_was_damaged(
    ngx_idempotency_sqlite_ctx_t *ctx);

/* SQLITE_OK, or an error if the file is not the one that was opened */
int ngx_idempotency_sqlite_same_file(ngx_idempotency_sqlite_ctx_t *ctx);

/*
 * The reserve is a file that takes room on the disk, to be given up when there
 * is no other: then outcomes are stored and new keys are refused, until there
 * is room for it again.
 */
void ngx_idempotency_sqlite_reserve_fill(ngx_idempotency_sqlite_ctx_t *ctx);
ngx_uint_t ngx_idempotency_sqlite_reserve_spend(
    ngx_idempotency_sqlite_ctx_t *ctx);

/* inside a transaction: is there room for new records? */
void ngx_idempotency_sqlite_room(ngx_idempotency_sqlite_ctx_t *ctx);

/* writes the WAL back to the database, and bounds its length */
ngx_uint_t ngx_idempotency_sqlite_checkpoint_due(
    ngx_idempotency_sqlite_db_t *db);
void ngx_idempotency_sqlite_checkpoint(ngx_idempotency_sqlite_ctx_t *ctx);

uint64_t ngx_idempotency_sqlite_msec(clockid_t id);


#endif /* _NGX_IDEMPOTENCY_SQLITE_DISK_H_INCLUDED_ */
