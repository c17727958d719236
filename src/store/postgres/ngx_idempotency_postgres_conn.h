
/*
 * The store in PostgreSQL: a connection, and groups of jobs on it.
 */


#ifndef _NGX_IDEMPOTENCY_POSTGRES_CONN_H_INCLUDED_
#define _NGX_IDEMPOTENCY_POSTGRES_CONN_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_thread_pool.h>
#include "ngx_idempotency_postgres_job.h"


#define NGX_IDEMPOTENCY_POSTGRES_VERSION  1


typedef struct ngx_idempotency_postgres_conn_s  ngx_idempotency_postgres_conn_t;

typedef void (*ngx_idempotency_postgres_conn_pt)(
    ngx_idempotency_postgres_conn_t *conn);


/* as configured; threads read it, nobody writes it */

typedef struct {
    ngx_str_t                       name;        /* of the store */
    char                           *url;
    char                           *password_file;
    char                           *schema;      /* as an SQL identifier */
    ngx_msec_t                      timeout;
    ngx_msec_t                      connect_timeout;
} ngx_idempotency_postgres_server_t;


/* what the owner of connections is told */

typedef struct {
    ngx_idempotency_postgres_conn_pt  ready;     /* a group may be sent */
    ngx_idempotency_postgres_conn_pt  done;      /* see "group" */
    ngx_idempotency_postgres_conn_pt  lost;      /* with what was in "group" */
    ngx_idempotency_postgres_conn_pt  refused;   /* could not be made */
} ngx_idempotency_postgres_events_t;


/*
 * IDLE: is made when its timer fires.  DIALING: a thread makes it and owns the
 * fields that are marked so.  READY: the event loop has it, and no group is
 * under way.  BUSY: one is.
 */

typedef enum {
    NGX_IDEMPOTENCY_POSTGRES_IDLE = 0,
    NGX_IDEMPOTENCY_POSTGRES_DIALING,
    NGX_IDEMPOTENCY_POSTGRES_READY,
    NGX_IDEMPOTENCY_POSTGRES_BUSY
} ngx_idempotency_postgres_conn_e;


struct ngx_idempotency_postgres_conn_s {
    ngx_idempotency_postgres_server_t  *server;
    ngx_idempotency_postgres_events_t  *events;
    ngx_thread_pool_t                  *threads;
    void                               *data;

    ngx_idempotency_postgres_conn_e     state;
    ngx_connection_t                   *c;
    ngx_thread_task_t                   task;
    ngx_event_t                         timer;   /* next try */
    ngx_connection_t                    dummy;
    ngx_msec_t                          backoff;
    ngx_msec_t                          began;   /* the group */

    /*
     * The group under way, as it was sent.  When "done" is called each job has
     * a reply or an error; all were rolled back if one has failed.
     */
    ngx_queue_t                         group;
    ngx_queue_t                        *current;
    ngx_uint_t                          failed;
    ngx_uint_t                          ends;

    /* the thread, while it is DIALING */

    PGconn                             *pg;
    ngx_idempotency_error_e             error;
    ngx_idempotency_refusal_e           refusal;
    u_char                              text[512];
};


/*
 * Sets it up and makes it soon.  The fields up to "data" are set.
 */
void ngx_idempotency_postgres_conn_start(ngx_idempotency_postgres_conn_t *conn);

/*
 * Sends the jobs in conn->group and a sync: one transaction.  "lost" may be
 * called before it returns.
 */
void ngx_idempotency_postgres_conn_send(ngx_idempotency_postgres_conn_t *conn);

/* Gives it up, with what is under way; a new one is made after a while. */
void ngx_idempotency_postgres_conn_close(ngx_idempotency_postgres_conn_t *conn,
    const char *why);

/*
 * The worker exits, and waits so long for the group under way; blocks.
 */
void ngx_idempotency_postgres_conn_drain(ngx_idempotency_postgres_conn_t *conn,
    ngx_msec_t msec);

/* The worker exits: closes it without a word. */
void ngx_idempotency_postgres_conn_stop(ngx_idempotency_postgres_conn_t *conn);


/*
 * ngx_idempotency_postgres_dial.c, in a thread: makes the connection, and on
 * it everything that groups need; or sets error, refusal and text.
 */
void ngx_idempotency_postgres_dial(void *data, ngx_log_t *log);

/*
 * What an error of the server means, and the fix as text or NULL.  "state" is
 * its SQLSTATE, which libpq leaves out for errors of its own: NULL.
 */
ngx_idempotency_error_e ngx_idempotency_postgres_error(const char *state,
    ngx_idempotency_refusal_e *refusal, const char **fix);


#endif /* _NGX_IDEMPOTENCY_POSTGRES_CONN_H_INCLUDED_ */
