
/*
 * The durable store: jobs, and what event loop and threads know of them.
 *
 * Everything that touches the disk runs in a thread, one task at a time for a
 * worker and store.  While the task runs, the thread owns the fields that are
 * marked so; the event loop owns all others, always.
 */


#ifndef _NGX_IDEMPOTENCY_SQLITE_JOB_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SQLITE_JOB_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_thread_pool.h>
#include "ngx_idempotency_transition.h"


typedef struct ngx_idempotency_sqlite_db_s  ngx_idempotency_sqlite_db_t;


/*
 * Of one database, shared by the workers of this nginx; a reload keeps it.
 * The two masters of a binary upgrade have one each, so nothing that safety
 * depends on between processes is here: that is in the files.
 *
 * "turns" and "syncs" are what futex() waits on; see sqlite_turn.  "failed" is
 * an error of SQLite after which nothing more is asked of the file, until nginx
 * is started again; 0: none.  Numbers of records are those that these workers
 * have seen or counted.
 */

typedef struct {
    uint32_t                        turns;       /* changes: one is over */
    uint32_t                        syncs;
    ngx_atomic_t                    waiting;     /* for their turn */
    ngx_atomic_t                    asked;       /* for a sync, number */
    ngx_atomic_t                    synced;      /* up to this number */
    ngx_atomic_t                    failed;
    ngx_atomic_t                    refusing;    /* because of that */
    ngx_atomic_t                    inode;       /* of the file, 0: unknown */
    ngx_atomic_t                    expiry;      /* when, msec: one worker */
    ngx_atomic_t                    counted;     /* all records, once */
    ngx_atomic_t                    used;        /* bytes of the database */
    ngx_atomic_t                    room;        /* and free on its disk */
    ngx_atomic_t                    states[NGX_IDEMPOTENCY_TOMBSTONE + 1];
} ngx_idempotency_sqlite_shared_t;


/*
 * One operation.  It outlives the operation that it was made of when that one
 * runs into its deadline: "op" is NULL from then on.
 */

typedef struct {
    ngx_queue_t                     queue;
    ngx_idempotency_op_t           *op;
    ngx_msec_t                      deadline;
    size_t                          bytes;       /* of the answer to keep */
    unsigned                        background:1;

    /* the question; its pointers lead into this job.  Nobody changes it. */

    ngx_idempotency_op_t            ask;
    ngx_str_t                       body;
    ngx_idempotency_lease_t        *leases;      /* results: of the thread */
    ngx_uint_t                      nleases;
    ngx_idempotency_list_t          list;        /* what is wanted */
    u_char                          cursor[NGX_IDEMPOTENCY_DIGEST_LEN];

    /* what came of it, written by the thread */

    ngx_idempotency_result_e        result;
    ngx_idempotency_error_e         error;
    ngx_idempotency_refusal_e       refusal;
    ngx_idempotency_record_t        record;
    ngx_idempotency_stored_t        stored;
    uint64_t                        now;
    uint64_t                        expected;
    u_char                         *note;        /* malloc()ed */
    u_char                         *answer;      /* malloc()ed head and body */
    ngx_idempotency_entry_t        *entries;     /* malloc()ed, and notes */
    ngx_uint_t                      nentries;
    ngx_uint_t                      seen;
    unsigned                        expects:1;
    unsigned                        more:1;      /* the list goes on */
    unsigned                        unsure:1;    /* failed, may have worked */
    unsigned                        again:1;     /* was not run */
} ngx_idempotency_sqlite_job_t;


typedef struct {
    ngx_idempotency_store_t        *store;

    /* as configured */

    ngx_str_t                       path;
    ngx_str_t                       dir;
    ngx_str_t                       lock;        /* file: PATH-lock */
    ngx_str_t                       wal;         /* file: PATH-wal */
    ngx_str_t                       reserve;     /* file: PATH-reserve */
    ngx_uint_t                      sync;        /* 1: full */
    off_t                           size;        /* 0: no bound */
    ngx_msec_t                      timeout;
    ngx_shm_zone_t                 *zone;
    ngx_shm_zone_t                 *cache;       /* or NULL */
    ngx_thread_pool_t              *threads;

    /* event loop */

    ngx_thread_task_t               task;
    ngx_queue_t                     queue;       /* for the next task */
    ngx_queue_t                     retry;       /* outcomes that failed */
    ngx_uint_t                      number;      /* of all jobs */
    size_t                          bytes;       /* of answers in them */
    ngx_uint_t                      last;        /* jobs of the last task */
    ngx_msec_t                      began;       /* the task that runs */
    ngx_msec_t                      exiting;     /* since then */
    ngx_event_t                     flush;
    ngx_event_t                     gather;      /* until then */
    ngx_event_t                     timer;
    ngx_event_t                     tick;
    ngx_connection_t                dummy;
    ngx_uint_t                      dropped;
    ngx_uint_t                      leave;       /* the thread must not wait */
    unsigned                        busy:1;
    unsigned                        expire_next:1;
    unsigned                        count_next:1;
    unsigned                        soon:1;      /* was not enough */

    /* the thread, while "busy" */

    ngx_queue_t                     batch;
    ngx_idempotency_sqlite_db_t    *db;
    int                             error;       /* the last failure */
    uint64_t                        logged;      /* it was, msec */
    uint64_t                        closed;      /* by a failure, msec */
    unsigned                        expire:1;    /* asked for */
    unsigned                        count:1;     /* and to look at records */
    unsigned                        overdue:1;   /* there is more to expire */
    unsigned                        checkpoint:1;
    unsigned                        stopping:1;
} ngx_idempotency_sqlite_ctx_t;


/* ngx_idempotency_sqlite.c: fills in the functions of the store */
void ngx_idempotency_sqlite_init(ngx_idempotency_sqlite_ctx_t *ctx);


/*
 * ngx_idempotency_sqlite_db.c, in a thread: runs all jobs of ctx->batch as one
 * transaction.  When it returns each job has a result that is as durable as
 * "sync" says, or an error.
 */
void ngx_idempotency_sqlite_run(void *data, ngx_log_t *log);

/* ngx_idempotency_sqlite_open.c: closes the database, if it is open */
void ngx_idempotency_sqlite_close(ngx_idempotency_sqlite_ctx_t *ctx);

/* whether the library can be used by threads */
ngx_uint_t ngx_idempotency_sqlite_threadsafe(void);


/*
 * ngx_idempotency_sqlite_job.c: a job that asks what the operation asks, with
 * a copy of its answer.  NULL when memory is short.
 */
ngx_idempotency_sqlite_job_t *ngx_idempotency_sqlite_job_create(
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_idempotency_op_t *op);
void ngx_idempotency_sqlite_job_free(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job);

/* forgets what came of it, in a thread or in the event loop */
void ngx_idempotency_sqlite_job_clear(ngx_idempotency_sqlite_job_t *job);

/* complete, release and mark_unknown are tried until they are stored */
ngx_uint_t ngx_idempotency_sqlite_settles(ngx_idempotency_sqlite_job_t *job);

/* what came of the job is what came of the operation */
void ngx_idempotency_sqlite_report(ngx_idempotency_op_t *op,
    ngx_idempotency_sqlite_job_t *job);

/*
 * With "cache=": answers a claim from memory, or declines; and remembers what
 * a claim has found.
 */
ngx_int_t ngx_idempotency_sqlite_cache_claim(ngx_idempotency_op_t *op);
void ngx_idempotency_sqlite_cache_put(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job);


#endif /* _NGX_IDEMPOTENCY_SQLITE_JOB_H_INCLUDED_ */
