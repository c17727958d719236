
/*
 * The store in PostgreSQL: jobs, and how they are written and read on the wire.
 */


#ifndef _NGX_IDEMPOTENCY_POSTGRES_JOB_H_INCLUDED_
#define _NGX_IDEMPOTENCY_POSTGRES_JOB_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <libpq-fe.h>
#include "ngx_idempotency_store.h"


/*
 * A result of the functions besides ngx_idempotency_result_e: the record is
 * locked by another transaction, and is asked for again.
 */
#define NGX_IDEMPOTENCY_POSTGRES_LOCKED    6


/* prepared statements; the operations come first, in their order */

typedef enum {
    NGX_IDEMPOTENCY_POSTGRES_SETTLED = NGX_IDEMPOTENCY_SUSPECT_KEEP + 1,
    NGX_IDEMPOTENCY_POSTGRES_EXPIRE,
    NGX_IDEMPOTENCY_POSTGRES_STATEMENTS
} ngx_idempotency_postgres_statement_e;


/*
 * One call of a function.  It outlives the operation that it was made of when
 * that one runs into its deadline: "op" is NULL from then on, and for calls
 * that the store makes for itself.
 */

typedef struct {
    ngx_queue_t                     queue;
    ngx_idempotency_op_t           *op;
    ngx_uint_t                      statement;
    ngx_msec_t                      deadline;
    ngx_msec_t                      after;       /* not sent before, or 0 */
    size_t                          bytes;       /* of the answer to keep */

    /* the question; its pointers lead into this job */

    ngx_idempotency_op_t            ask;
    ngx_str_t                       body;
    ngx_idempotency_lease_t        *leases;
    ngx_uint_t                      nleases;
    u_char                         *digests;     /* of "settled" */
    ngx_uint_t                      ndigests;
    u_char                          cursor[NGX_IDEMPOTENCY_DIGEST_LEN];
    size_t                          cursor_len;

    /* what came of it */

    PGresult                       *reply;
    ngx_idempotency_error_e         error;
    ngx_idempotency_refusal_e       refusal;

    unsigned                        background:1;
    unsigned                        alone:1;     /* not in a group */
    unsigned                        sent:1;      /* may have been done */
    unsigned                        rest:1;      /* of "expire" */
} ngx_idempotency_postgres_job_t;


/* what all jobs of a store and worker have in common */

typedef struct {
    ngx_idempotency_store_t        *store;
    ngx_msec_t                      timeout;
    ngx_uint_t                      number;
    size_t                          bytes;       /* of answers in them */
} ngx_idempotency_postgres_jobs_t;


/*
 * A job that asks what the operation asks, with a copy of its answer; or one
 * of the store itself, "op" being NULL.  NULL when memory is short.
 */
ngx_idempotency_postgres_job_t *ngx_idempotency_postgres_job_create(
    ngx_idempotency_postgres_jobs_t *jobs, ngx_idempotency_op_t *op,
    ngx_uint_t statement, size_t size);
void ngx_idempotency_postgres_job_free(ngx_idempotency_postgres_jobs_t *jobs,
    ngx_idempotency_postgres_job_t *job);

/* forgets what came of it: it is to be sent again */
void ngx_idempotency_postgres_job_clear(ngx_idempotency_postgres_job_t *job);

/* complete, release and mark_unknown are sent until they are stored */
ngx_uint_t ngx_idempotency_postgres_job_settles(
    ngx_idempotency_postgres_job_t *job);

/*
 * May it be sent again without another meaning, if it is not known whether it
 * was done?
 */
ngx_uint_t ngx_idempotency_postgres_job_repeats(
    ngx_idempotency_postgres_job_t *job);

/*
 * The order of a group: that of digests, so that two groups never wait for
 * each other in a circle; requests under another key behind all claims.
 */
ngx_int_t ngx_idempotency_postgres_job_cmp(const ngx_queue_t *one,
    const ngx_queue_t *two);


/*
 * ngx_idempotency_postgres_statement.c: prepares a statement and waits for it,
 * in a thread; sends a job.  1, or 0 as libpq functions do.
 */
int ngx_idempotency_postgres_statement_prepare(PGconn *pg, ngx_uint_t n,
    char *schema);
int ngx_idempotency_postgres_statement_send(PGconn *pg,
    ngx_idempotency_postgres_job_t *job);

/*
 * ngx_idempotency_postgres_reply.c: the number that the function has returned
 * first, or NGX_ERROR.
 */
ngx_int_t ngx_idempotency_postgres_reply_result(
    ngx_idempotency_postgres_job_t *job);

/*
 * Fills in what came of the operation from the reply of its job.  The bytes
 * are foreign data: NGX_DECLINED if they cannot be read, NGX_ERROR when memory
 * is short.  The answer stays in the reply, which is the operation's then.
 */
ngx_int_t ngx_idempotency_postgres_reply_read(ngx_idempotency_op_t *op,
    ngx_idempotency_postgres_job_t *job);

/* a digest in the reply of "settled", or NULL behind the last one */
u_char *ngx_idempotency_postgres_reply_digest(
    ngx_idempotency_postgres_job_t *job, ngx_uint_t i);


#endif /* _NGX_IDEMPOTENCY_POSTGRES_JOB_H_INCLUDED_ */
