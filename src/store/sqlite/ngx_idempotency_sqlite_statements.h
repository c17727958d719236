
/*
 * The durable store: the texts of its statements.
 */


#ifndef _NGX_IDEMPOTENCY_SQLITE_STATEMENTS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SQLITE_STATEMENTS_H_INCLUDED_


#include "ngx_idempotency_sqlite_db.h"


/* "notes": the file has the column for these */
const char *ngx_idempotency_sqlite_statement_text(
    ngx_idempotency_sqlite_statement_e n, ngx_uint_t notes);


#endif /* _NGX_IDEMPOTENCY_SQLITE_STATEMENTS_H_INCLUDED_ */
