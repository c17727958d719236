
/*
 * The store in PostgreSQL: what it has in a worker.
 */


#ifndef _NGX_IDEMPOTENCY_POSTGRES_CTX_H_INCLUDED_
#define _NGX_IDEMPOTENCY_POSTGRES_CTX_H_INCLUDED_


#include "ngx_idempotency_postgres_conn.h"


typedef struct {
    ngx_idempotency_store_t            *store;

    /* as configured */

    ngx_idempotency_postgres_server_t   server;
    ngx_thread_pool_t                  *threads;
    ngx_uint_t                          nconns;

    /* of a worker */

    ngx_idempotency_postgres_conn_t    *conns;
    ngx_idempotency_postgres_jobs_t     jobs;
    ngx_queue_t                         queue;       /* to be sent */
    ngx_queue_t                         retry;       /* not before their time,
                                                        or until the timer */
    ngx_queue_t                         listeners;
    ngx_event_t                         flush;
    ngx_event_t                         timer;       /* deadlines, retries */
    ngx_event_t                         again;       /* jobs with a time */
    ngx_event_t                         tick;        /* expiry */
    ngx_event_t                         poll;        /* for listeners */
    ngx_connection_t                    dummy;
    ngx_msec_t                          exiting;     /* since then */
    ngx_uint_t                          dropped;
    ngx_uint_t                          ticks;

    /* why the last connection could not be made or used; NONE: it could */

    ngx_idempotency_error_e             error;
    ngx_idempotency_refusal_e           refusal;
    ngx_uint_t                          logged;      /* a CRC of the text */

    unsigned                            polling:1;   /* "settled" is asked */
    unsigned                            expiring:1;
    unsigned                            stopping:1;
} ngx_idempotency_postgres_ctx_t;


/*
 * ngx_idempotency_postgres_outcome.c: a job has failed.  Its operation gets the
 * error; what settles a claim is sent again in background, any other is freed.
 */
void ngx_idempotency_postgres_outcome_failed(
    ngx_idempotency_postgres_ctx_t *ctx, ngx_idempotency_postgres_job_t *job,
    ngx_idempotency_error_e error, ngx_idempotency_refusal_e refusal);

/* the record was locked: it is asked for again in a moment */
void ngx_idempotency_postgres_outcome_later(
    ngx_idempotency_postgres_ctx_t *ctx, ngx_idempotency_postgres_job_t *job);

/* counts a job that goes on without its operation */
void ngx_idempotency_postgres_outcome_background(
    ngx_idempotency_postgres_ctx_t *ctx, ngx_idempotency_postgres_job_t *job);

/* such a job is done, with this result */
void ngx_idempotency_postgres_outcome_landed(
    ngx_idempotency_postgres_job_t *job, ngx_int_t result);

/* sets the timer of the store while there are jobs */
void ngx_idempotency_postgres_outcome_arm(ngx_idempotency_postgres_ctx_t *ctx);

/* ends the operations in the queue whose deadline is over */
void ngx_idempotency_postgres_outcome_overdue(
    ngx_idempotency_postgres_ctx_t *ctx, ngx_queue_t *queue,
    ngx_uint_t running);


/* ngx_idempotency_postgres_upkeep.c: a worker starts */
void ngx_idempotency_postgres_upkeep_start(
    ngx_idempotency_postgres_ctx_t *ctx);

/* a job of the store itself is done; 0: it is none, 1: and it is freed */
ngx_uint_t ngx_idempotency_postgres_upkeep_finish(
    ngx_idempotency_postgres_ctx_t *ctx, ngx_idempotency_postgres_job_t *job);

/* writes the states of connections for statistics */
void ngx_idempotency_postgres_upkeep_connections(
    ngx_idempotency_postgres_ctx_t *ctx);

/* logs what is wrong with a connection, once until that changes */
void ngx_idempotency_postgres_upkeep_fault(
    ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_conn_t *conn, const char *what);


/* ngx_idempotency_postgres.c: fills in the functions of the store */
void ngx_idempotency_postgres_init(ngx_idempotency_postgres_ctx_t *ctx);


#endif /* _NGX_IDEMPOTENCY_POSTGRES_CTX_H_INCLUDED_ */
