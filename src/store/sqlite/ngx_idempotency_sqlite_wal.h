
/*
 * The durable store: how commits get into the WAL.
 */


#ifndef _NGX_IDEMPOTENCY_SQLITE_WAL_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SQLITE_WAL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_sqlite_db.h"


/* once in a process, before its threads use SQLite */
void ngx_idempotency_sqlite_setup(void);

/* the name of the file layer for SQLite, NULL: that of the system */
const char *ngx_idempotency_sqlite_vfs(void);

/* sets db->log for a database with pages of this size, if the layer is used */
void ngx_idempotency_sqlite_log_attach(ngx_idempotency_sqlite_db_t *db,
    size_t page);

/* a transaction begins; its COMMIT runs, or has ended */
void ngx_idempotency_sqlite_log_begin(ngx_idempotency_sqlite_log_t *wal);
void ngx_idempotency_sqlite_log_commit(ngx_idempotency_sqlite_log_t *wal,
    ngx_uint_t runs);


#endif /* _NGX_IDEMPOTENCY_SQLITE_WAL_H_INCLUDED_ */
