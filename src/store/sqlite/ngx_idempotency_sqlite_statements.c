
/*
 * The durable store: the texts of its statements.
 */


#include "ngx_idempotency_sqlite_statements.h"


#define NGX_IDEMPOTENCY_SQLITE_COLUMNS                                        \
    "state, owner, fingerprint, fence, lease, until, issued, created,"        \
    " attempts, keep, tombstone, status, kept, boot, answer"

/* "note" is ", note" or nothing, as the file has that column or not */

#define NGX_IDEMPOTENCY_SQLITE_INSERT_INTO(table, note, note_value)           \
    "INSERT INTO " table " (digest, " NGX_IDEMPOTENCY_SQLITE_COLUMNS          \
        ", due" note ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"     \
        " ?11, ?12, ?13, ?14, ?15, ?16, ?18" note_value ")"

#define NGX_IDEMPOTENCY_SQLITE_UPDATE_OF(table, note)                         \
    "UPDATE " table " SET state = ?2, owner = ?3, fingerprint = ?4,"          \
        " fence = ?5, lease = ?6, until = ?7, issued = ?8, created = ?9,"     \
        " attempts = ?10, keep = ?11, tombstone = ?12, status = ?13,"         \
        " kept = ?14, boot = ?15, answer = ?16, due = ?18" note               \
        " WHERE digest = ?1"

/* the first row is taken, so the small table is asked first */

#define NGX_IDEMPOTENCY_SQLITE_FIND_BY(note)                                  \
    "SELECT digest, " NGX_IDEMPOTENCY_SQLITE_COLUMNS ", " note ", 1"          \
        " FROM executing WHERE digest = ?1 UNION ALL"                         \
        " SELECT digest, " NGX_IDEMPOTENCY_SQLITE_COLUMNS ", " note ", 0"     \
        " FROM records WHERE digest = ?1"

#define NGX_IDEMPOTENCY_SQLITE_SCAN_BY(note)                                  \
    "SELECT digest, " NGX_IDEMPOTENCY_SQLITE_COLUMNS ", " note                \
        " FROM records WHERE digest > ?1 UNION ALL"                           \
        " SELECT digest, " NGX_IDEMPOTENCY_SQLITE_COLUMNS ", " note           \
        " FROM executing WHERE digest > ?1 ORDER BY digest LIMIT ?2"

#define NGX_IDEMPOTENCY_SQLITE_DELETE_FROM(table)                             \
    "DELETE FROM " table " WHERE digest = ?1"


/* in the order of ngx_idempotency_sqlite_statement_e */

static const char  *ngx_idempotency_sqlite_statements[] = {
    "BEGIN IMMEDIATE",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",

    NGX_IDEMPOTENCY_SQLITE_FIND_BY("note"),

    NGX_IDEMPOTENCY_SQLITE_INSERT_INTO("records", ", note", ", ?17"),
    NGX_IDEMPOTENCY_SQLITE_INSERT_INTO("executing", ", note", ", ?17"),
    NGX_IDEMPOTENCY_SQLITE_UPDATE_OF("records", ", note = ?17"),
    NGX_IDEMPOTENCY_SQLITE_UPDATE_OF("executing", ", note = ?17"),
    NGX_IDEMPOTENCY_SQLITE_DELETE_FROM("records"),
    NGX_IDEMPOTENCY_SQLITE_DELETE_FROM("executing"),

    "SELECT head, body FROM answers WHERE id = ?1",
    "INSERT INTO answers (head, body) VALUES (?1, ?2)",
    "DELETE FROM answers WHERE id = ?1",

    "SELECT epoch, next, until FROM sequences WHERE half = ?1",

    "INSERT INTO sequences (half, epoch, next, until)"
        " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (half) DO UPDATE"
        " SET epoch = ?2, next = ?3, until = ?4",

    "DELETE FROM sequences WHERE half IN"
        " (SELECT half FROM sequences WHERE until <= ?1 LIMIT 256)",

    NGX_IDEMPOTENCY_SQLITE_SCAN_BY("note"),

    "SELECT digest FROM records WHERE due <= ?1 ORDER BY due LIMIT ?2",

    "UPDATE meta SET value = ?1 WHERE name = 'clock'",
    "PRAGMA data_version",
    "PRAGMA page_count",
    "PRAGMA freelist_count",
    "PRAGMA incremental_vacuum(128)",

    "SELECT record, owner, made, until FROM suspects WHERE digest = ?1",

    "INSERT INTO suspects (digest, record, owner, made, until)"
        " VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (digest) DO UPDATE"
        " SET record = ?2, owner = ?3, made = ?4, until = ?5",

    "UPDATE suspects SET until = ?3 WHERE digest = ?1 AND owner = ?2",

    "DELETE FROM suspects WHERE digest IN"
        " (SELECT digest FROM suspects WHERE until <= ?1 LIMIT 256)"
};


/* the same for a file without the column for notes; NULL: there is none */

static const char  *ngx_idempotency_sqlite_without_notes[] = {
    NULL, NULL, NULL, NULL,

    NGX_IDEMPOTENCY_SQLITE_FIND_BY("NULL"),

    NGX_IDEMPOTENCY_SQLITE_INSERT_INTO("records", "", ""),
    NGX_IDEMPOTENCY_SQLITE_INSERT_INTO("executing", "", ""),
    NGX_IDEMPOTENCY_SQLITE_UPDATE_OF("records", ""),
    NGX_IDEMPOTENCY_SQLITE_UPDATE_OF("executing", ""),

    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,

    NGX_IDEMPOTENCY_SQLITE_SCAN_BY("NULL")
};


const char *
ngx_idempotency_sqlite_statement_text(ngx_idempotency_sqlite_statement_e n,
    ngx_uint_t notes)
{
    if (!notes
        && n <= NGX_IDEMPOTENCY_SQLITE_SCAN
        && ngx_idempotency_sqlite_without_notes[n])
    {
        return ngx_idempotency_sqlite_without_notes[n];
    }

    return ngx_idempotency_sqlite_statements[n];
}
