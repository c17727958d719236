
/*
 * The store in PostgreSQL: what it does for itself.  It removes records that
 * have expired, looks at those that duplicates wait for, and tells statistics
 * and the log about its connections.
 */


#include "ngx_idempotency_postgres_ctx.h"
#include "ngx_idempotency_wait.h"


/* milliseconds between two steps of expiry, and if one was not enough */
#define NGX_IDEMPOTENCY_POSTGRES_TICK         1000
#define NGX_IDEMPOTENCY_POSTGRES_SOON         20

/* steps between two looks at sequences and last requests */
#define NGX_IDEMPOTENCY_POSTGRES_REST_TICKS   60

/* milliseconds between two looks at what duplicates wait for, and how many */
#define NGX_IDEMPOTENCY_POSTGRES_POLL         50
#define NGX_IDEMPOTENCY_POSTGRES_POLLED       1000


struct ngx_idempotency_listener_s {
    ngx_queue_t                      queue;
    ngx_idempotency_postgres_ctx_t  *ctx;
    u_char                           digest[NGX_IDEMPOTENCY_DIGEST_LEN];
};


static void ngx_idempotency_postgres_upkeep_expire(ngx_event_t *ev);
static ngx_idempotency_listener_t *ngx_idempotency_postgres_upkeep_listen(
    ngx_idempotency_op_t *op);
static void ngx_idempotency_postgres_upkeep_unlisten(
    ngx_idempotency_listener_t *listener);
static void ngx_idempotency_postgres_upkeep_poll(ngx_event_t *ev);


void
ngx_idempotency_postgres_upkeep_start(ngx_idempotency_postgres_ctx_t *ctx)
{
    ngx_queue_init(&ctx->listeners);

    ctx->tick.handler = ngx_idempotency_postgres_upkeep_expire;
    ctx->tick.data = &ctx->dummy;
    ctx->tick.log = ngx_cycle->log;
    ctx->tick.cancelable = 1;

    ctx->poll.handler = ngx_idempotency_postgres_upkeep_poll;
    ctx->poll.data = &ctx->dummy;
    ctx->poll.log = ngx_cycle->log;
    ctx->poll.cancelable = 1;

    ctx->store->listen = ngx_idempotency_postgres_upkeep_listen;
    ctx->store->unlisten = ngx_idempotency_postgres_upkeep_unlisten;

    ngx_idempotency_postgres_upkeep_connections(ctx);

    /* one worker removes what has expired */

    if (ngx_worker == 0) {
        ngx_add_timer(&ctx->tick, NGX_IDEMPOTENCY_POSTGRES_TICK);
    }
}


static void
ngx_idempotency_postgres_upkeep_expire(ngx_event_t *ev)
{
    ngx_connection_t                *dummy;
    ngx_idempotency_postgres_ctx_t  *ctx;
    ngx_idempotency_postgres_job_t  *job;

    dummy = ev->data;
    ctx = dummy->data;

    ngx_add_timer(ev, NGX_IDEMPOTENCY_POSTGRES_TICK);

    if (ctx->expiring || ctx->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return;
    }

    job = ngx_idempotency_postgres_job_create(&ctx->jobs, NULL,
                                      NGX_IDEMPOTENCY_POSTGRES_EXPIRE, 0);
    if (job == NULL) {
        return;
    }

    ctx->expiring = 1;

    job->alone = 1;
    job->rest = (ctx->ticks++ % NGX_IDEMPOTENCY_POSTGRES_REST_TICKS == 0);

    ngx_queue_insert_tail(&ctx->queue, &job->queue);
    ngx_post_event(&ctx->flush, &ngx_posted_events);
}


/*
 * NOTIFY in each completion would put all commits of the server in a row, so
 * this worker asks for all records that its duplicates wait for, in one call.
 */

static ngx_idempotency_listener_t *
ngx_idempotency_postgres_upkeep_listen(ngx_idempotency_op_t *op)
{
    ngx_idempotency_listener_t      *listener;
    ngx_idempotency_postgres_ctx_t  *ctx;

    ctx = op->store->data;

    listener = ngx_alloc(sizeof(ngx_idempotency_listener_t), ngx_cycle->log);
    if (listener == NULL) {
        return NULL;
    }

    listener->ctx = ctx;
    ngx_memcpy(listener->digest, op->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    ngx_queue_insert_tail(&ctx->listeners, &listener->queue);

    if (!ctx->poll.timer_set) {
        ngx_add_timer(&ctx->poll, NGX_IDEMPOTENCY_POSTGRES_POLL);
    }

    return listener;
}


static void
ngx_idempotency_postgres_upkeep_unlisten(ngx_idempotency_listener_t *listener)
{
    ngx_queue_remove(&listener->queue);
    ngx_free(listener);
}


static void
ngx_idempotency_postgres_upkeep_poll(ngx_event_t *ev)
{
    u_char                          *p;
    ngx_uint_t                       n;
    ngx_queue_t                     *q;
    ngx_connection_t                *dummy;
    ngx_idempotency_listener_t      *listener;
    ngx_idempotency_postgres_ctx_t  *ctx;
    ngx_idempotency_postgres_job_t  *job;

    dummy = ev->data;
    ctx = dummy->data;

    if (ngx_queue_empty(&ctx->listeners)) {
        return;
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_POSTGRES_POLL);

    if (ctx->polling || ctx->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return;
    }

    job = ngx_idempotency_postgres_job_create(&ctx->jobs, NULL,
                                      NGX_IDEMPOTENCY_POSTGRES_SETTLED,
                                      NGX_IDEMPOTENCY_POSTGRES_POLLED
                                      * NGX_IDEMPOTENCY_DIGEST_LEN);
    if (job == NULL) {
        return;
    }

    ctx->polling = 1;

    p = job->digests;

    for (n = 0; n < NGX_IDEMPOTENCY_POSTGRES_POLLED; n++) {

        /* the next look begins behind the last one of this one */

        q = ngx_queue_head(&ctx->listeners);
        listener = ngx_queue_data(q, ngx_idempotency_listener_t, queue);

        if (n && ngx_memcmp(job->digests, listener->digest,
                            NGX_IDEMPOTENCY_DIGEST_LEN) == 0)
        {
            break;
        }

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&ctx->listeners, q);

        p = ngx_cpymem(p, listener->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    }

    job->ndigests = n;

    ngx_queue_insert_tail(&ctx->queue, &job->queue);
    ngx_post_event(&ctx->flush, &ngx_posted_events);
}


/* a call that the store has made for itself */

ngx_uint_t
ngx_idempotency_postgres_upkeep_finish(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_job_t *job)
{
    u_char      *digest;
    ngx_int_t    n;
    ngx_uint_t   i;

    if (job->statement == NGX_IDEMPOTENCY_POSTGRES_EXPIRE) {
        n = ngx_idempotency_postgres_reply_result(job);

        ctx->expiring = 0;

        if (n > 0 && !ngx_exiting) {
            ngx_add_timer(&ctx->tick, NGX_IDEMPOTENCY_POSTGRES_SOON);
        }

    } else if (job->statement == NGX_IDEMPOTENCY_POSTGRES_SETTLED) {
        ctx->polling = 0;

        for (i = 0; /* void */ ; i++) {
            digest = ngx_idempotency_postgres_reply_digest(job, i);

            if (digest == NULL) {
                break;
            }

            ngx_idempotency_wait_wake(digest);
        }

    } else {
        return 0;
    }

    ngx_idempotency_postgres_job_free(&ctx->jobs, job);

    return 1;
}


/* connections as statistics show them */

void
ngx_idempotency_postgres_upkeep_connections(ngx_idempotency_postgres_ctx_t *ctx)
{
    ngx_uint_t                  i;
    ngx_atomic_t               *connections;
    ngx_idempotency_redis_is_e  is;

    connections = ctx->store->now->redis.connections;

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_IS_N; i++) {
        connections[i] = 0;
    }

    for (i = 0; i < ctx->nconns; i++) {

        switch (ctx->conns[i].state) {

        case NGX_IDEMPOTENCY_POSTGRES_READY:
        case NGX_IDEMPOTENCY_POSTGRES_BUSY:
            is = NGX_IDEMPOTENCY_REDIS_IS_READY;
            break;

        case NGX_IDEMPOTENCY_POSTGRES_DIALING:
            is = NGX_IDEMPOTENCY_REDIS_IS_DIALING;
            break;

        default:
            is = NGX_IDEMPOTENCY_REDIS_IS_DOWN;
            break;
        }

        connections[is]++;
    }
}


/* each text once until it changes or a connection is there */

void
ngx_idempotency_postgres_upkeep_fault(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_conn_t *conn, const char *what)
{
    ngx_uint_t  crc;

    crc = ngx_crc32_short(conn->text, ngx_strlen(conn->text)) | 1;

    if (crc == ctx->logged) {
        return;
    }

    ctx->logged = crc;

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\" %s: %s",
                  &ctx->store->name, what, conn->text);
}
