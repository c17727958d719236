
/*
 * Table tests of suspects: the last request with a source, scope and
 * fingerprint, and what its record says.  Linked with transition.c only;
 * prints TAP.
 */


#include "ngx_idempotency_transition.h"


#define NOW     10000000
#define LEASE   30000
#define WINDOW  120              /* seconds */

#define NONE    NGX_IDEMPOTENCY_NONE
#define ISSUED  NGX_IDEMPOTENCY_ISSUED
#define RUNS    NGX_IDEMPOTENCY_EXECUTING
#define LOST    NGX_IDEMPOTENCY_UNKNOWN
#define DONE    NGX_IDEMPOTENCY_DONE
#define TOMB    NGX_IDEMPOTENCY_TOMBSTONE


typedef struct {
    char                      *name;
    char                      *last;     /* "": none; its record, its owner */
    uint64_t                   age;      /* of that, msec */
    ngx_uint_t                 exists;   /* the record */
    ngx_idempotency_state_e    state;
    u_char                     owner;
    int64_t                    lease;    /* from now on, msec */
    ngx_uint_t                 attempts;
    ngx_uint_t                 suspected;
    ngx_uint_t                 taken;    /* is this one the last one now? */
    ngx_uint_t                 passing;  /* the same for one that passes */
} test_row_t;


/* the request that asks has record K and owner O; "2A": record 2, owner A */

static test_row_t  rows[] = {

    { "the first one", "", 0, 0, NONE, 0, 0, 0, 0, 1, 1 },

    { "the same key, executing", "KA", 5, 1, RUNS, 'A', 9, 1, 0, 1, 1 },
    { "the same key, unknown", "KA", 5, 1, LOST, 'A', 0, 1, 0, 1, 1 },
    { "the same key, done", "KA", 5, 1, DONE, 'A', -5, 1, 0, 1, 1 },
    { "the same key, gone", "KA", 5, 0, NONE, 0, 0, 0, 0, 1, 1 },

    { "executing", "2A", 5, 1, RUNS, 'A', 9, 1, 1, 0, 0 },
    { "executing for hours", "2A", 9000000, 1, RUNS, 'A', 9, 1, 1, 0, 0 },
    { "executing for another owner", "2A", 5, 1, RUNS, 'B', 9, 2, 1, 0, 0 },
    { "lease over", "2A", 9000000, 1, RUNS, 'A', -9000000, 1, 1, 0, 0 },
    { "unknown", "2A", 5, 1, LOST, 'A', 0, 1, 1, 0, 0 },
    { "unknown for hours", "2A", 9000000, 1, LOST, 'A', -9000000, 1, 1, 0, 0 },

    { "done just now", "2A", 5, 1, DONE, 'A', 0, 1, 1, 0, 1 },
    { "done within the window", "2A", 5, 1, DONE, 'A', -119999, 1, 1, 0, 1 },
    { "done before it", "2A", 5, 1, DONE, 'A', -120000, 1, 0, 1, 1 },
    { "done after a long time", "2A", 9000000, 1, DONE, 'A', -9, 1, 1, 0, 1 },
    { "done, by an older version", "2A", 5, 1, DONE, 'A', 9, 1, 1, 0, 1 },
    { "done by an operator", "2A", 5, 1, DONE, 0, -9, 1, 1, 0, 1 },
    { "a tombstone within the window", "2A", 5, 1, TOMB, 'A', -9, 1, 1, 0, 1 },
    { "a tombstone", "2A", 5, 1, TOMB, 'A', -120000, 1, 0, 1, 1 },
    { "cancelled", "2A", 5, 1, DONE, 0, -9, 0, 0, 1, 1 },

    { "released", "2A", 5, 1, NONE, 'A', 0, 1, 0, 1, 1 },
    { "released long ago", "2A", 9000000, 1, NONE, 'A', 0, 1, 0, 1, 1 },
    { "issued again", "2A", 5, 1, ISSUED, 'A', 0, 1, 0, 1, 1 },

    { "its claim is on its way", "2A", 0, 0, NONE, 0, 0, 0, 1, 0, 0 },
    { "the same, a lease ago", "2A", LEASE - 1, 0, NONE, 0, 0, 0, 1, 0, 0 },
    { "its claim was lost", "2A", LEASE, 0, NONE, 0, 0, 0, 0, 1, 1 },
    { "released before by another one", "2A", 5, 1, NONE, 'B', 0, 1, 1, 0, 0 },
    { "issued, on its way", "2A", 5, 1, ISSUED, 'B', 0, 1, 1, 0, 0 },
    { "issued, lost", "2A", LEASE, 1, ISSUED, 'B', 0, 1, 0, 1, 1 }
};


static ngx_uint_t  number, failed;


static void
ok(ngx_uint_t passed, char *what, char *name)
{
    number++;
    failed += !passed;

    printf("%s %u - %s: %s\n", passed ? "ok" : "not ok", (unsigned) number,
           name, what);
}


static void
test_row(test_row_t *row, ngx_uint_t passes)
{
    ngx_uint_t                 taken;
    ngx_idempotency_op_t       op;
    ngx_idempotency_last_t     last;
    ngx_idempotency_record_t   record;
    ngx_idempotency_result_e   result;
    ngx_idempotency_stored_t   other;

    ngx_memzero(&op, sizeof(ngx_idempotency_op_t));
    ngx_memzero(&other, sizeof(ngx_idempotency_stored_t));
    ngx_memset(&record, 'x', sizeof(ngx_idempotency_record_t));

    op.type = NGX_IDEMPOTENCY_SUSPECT;
    op.flags = passes ? NGX_IDEMPOTENCY_SUSPECT_PASSES : 0;
    op.lease = LEASE;
    op.window = WINDOW;
    ngx_memset(op.id.digest, 'K', NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memset(op.id.owner, 'O', NGX_IDEMPOTENCY_OWNER_LEN);

    ngx_memset(last.record, row->last[0], NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memset(last.owner, row->last[0] ? row->last[1] : 0,
               NGX_IDEMPOTENCY_OWNER_LEN);
    last.made = NOW - row->age;

    if (row->exists) {
        other.exists = 1;
        other.state = row->state;
        other.lease = NOW + row->lease;
        other.until = NOW + 5000;
        other.attempts = (uint32_t) row->attempts;
        other.status = row->attempts ? 201 : NGX_IDEMPOTENCY_CANCELLED_STATUS;
        ngx_memset(other.owner, row->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    }

    taken = ngx_idempotency_transition_suspect(&op,
                                               row->last[0] ? &last : NULL,
                                               &other, NOW, &result, &record);

    ok(result == (row->suspected ? NGX_IDEMPOTENCY_EXISTS
                                 : NGX_IDEMPOTENCY_GRANTED),
       passes ? "result, passes" : "result", row->name);

    ok(taken == (passes ? row->passing : row->taken),
       passes ? "the last one, passes" : "the last one", row->name);

    ok(row->suspected
       ? record.attempts == row->attempts
         && ngx_memcmp(record.fingerprint, last.record,
                       NGX_IDEMPOTENCY_DIGEST_LEN) == 0
       : record.state == NGX_IDEMPOTENCY_NONE && record.fence == 0,
       passes ? "record, passes" : "record", row->name);
}


int
main(void)
{
    ngx_uint_t  i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        test_row(&rows[i], 0);
        test_row(&rows[i], 1);
    }

    printf("1..%u\n", (unsigned) number);

    return failed != 0;
}
