
/*
 * The store in PostgreSQL: operations in the event loop.
 *
 * Operations become jobs.  Each connection has one group of jobs under way, as
 * one transaction; what is submitted meanwhile is the next group: so the cost
 * of a durable commit is shared.  A job that fails takes its group with it:
 * these are sent again one by one.
 *
 * An operation that runs into its deadline fails.  Its job goes on if it is
 * under way, or if it settles a claim: outcomes are sent until they are stored.
 */


#include "ngx_idempotency_postgres_ctx.h"


/* jobs of one group, and bytes of answers in it */
#define NGX_IDEMPOTENCY_POSTGRES_GROUP        64
#define NGX_IDEMPOTENCY_POSTGRES_GROUP_BYTES  (1024 * 1024)

/* jobs that may wait */
#define NGX_IDEMPOTENCY_POSTGRES_NUMBER       10000

/* milliseconds that the server may take longer than an operation */
#define NGX_IDEMPOTENCY_POSTGRES_STALLED      1000

/* milliseconds that an exiting worker stays for outcomes */
#define NGX_IDEMPOTENCY_POSTGRES_STAY         30000


static ngx_int_t ngx_idempotency_postgres_start(
    ngx_idempotency_store_t *store);
static void ngx_idempotency_postgres_event(ngx_event_t *ev,
    ngx_idempotency_postgres_ctx_t *ctx, ngx_event_handler_pt handler,
    ngx_uint_t cancelable);
static void ngx_idempotency_postgres_stop(ngx_idempotency_store_t *store);
static void ngx_idempotency_postgres_stop_group(
    ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_conn_t *conn);
static ngx_int_t ngx_idempotency_postgres_submit(ngx_idempotency_op_t *op);
static ngx_int_t ngx_idempotency_postgres_refuse(
    ngx_idempotency_postgres_ctx_t *ctx, ngx_idempotency_op_t *op);
static ngx_uint_t ngx_idempotency_postgres_is_stalled(
    ngx_idempotency_postgres_ctx_t *ctx);
static void ngx_idempotency_postgres_flush_handler(ngx_event_t *ev);
static void ngx_idempotency_postgres_flush(
    ngx_idempotency_postgres_ctx_t *ctx);
static ngx_uint_t ngx_idempotency_postgres_gather(
    ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_conn_t *conn);
static void ngx_idempotency_postgres_ready(
    ngx_idempotency_postgres_conn_t *conn);
static void ngx_idempotency_postgres_refused(
    ngx_idempotency_postgres_conn_t *conn);
static void ngx_idempotency_postgres_lost(
    ngx_idempotency_postgres_conn_t *conn);
static void ngx_idempotency_postgres_done(
    ngx_idempotency_postgres_conn_t *conn);
static void ngx_idempotency_postgres_done_failed(
    ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_conn_t *conn, ngx_queue_t *group);
static void ngx_idempotency_postgres_finish(
    ngx_idempotency_postgres_ctx_t *ctx, ngx_idempotency_postgres_job_t *job);
static void ngx_idempotency_postgres_timer(ngx_event_t *ev);
static void ngx_idempotency_postgres_again(ngx_event_t *ev);


static ngx_idempotency_postgres_events_t  ngx_idempotency_postgres_events = {
    ngx_idempotency_postgres_ready,
    ngx_idempotency_postgres_done,
    ngx_idempotency_postgres_lost,
    ngx_idempotency_postgres_refused
};


void
ngx_idempotency_postgres_init(ngx_idempotency_postgres_ctx_t *ctx)
{
    ctx->store->kind = "postgres";
    ctx->store->transactions = 1;
    ctx->store->submit = ngx_idempotency_postgres_submit;
    ctx->store->start = ngx_idempotency_postgres_start;
    ctx->store->stop = ngx_idempotency_postgres_stop;
}


static ngx_int_t
ngx_idempotency_postgres_start(ngx_idempotency_store_t *store)
{
    ngx_uint_t                        i;
    ngx_idempotency_postgres_ctx_t   *ctx;
    ngx_idempotency_postgres_conn_t  *conn;

    ctx = store->data;

    ngx_queue_init(&ctx->queue);
    ngx_queue_init(&ctx->retry);

    ctx->jobs.store = store;
    ctx->jobs.timeout = ctx->server.timeout;

    ctx->dummy.fd = (ngx_socket_t) -1;
    ctx->dummy.data = ctx;

    ngx_idempotency_postgres_event(&ctx->flush, ctx,
                                   ngx_idempotency_postgres_flush_handler, 0);
    ngx_idempotency_postgres_event(&ctx->timer, ctx,
                                   ngx_idempotency_postgres_timer, 0);
    ngx_idempotency_postgres_event(&ctx->again, ctx,
                                   ngx_idempotency_postgres_again, 1);

    /* nginx has initialised the library that libpq shares with it */

    PQinitOpenSSL(0, 0);

    ctx->conns = ngx_pcalloc(ngx_cycle->pool, ctx->nconns
                             * sizeof(ngx_idempotency_postgres_conn_t));
    if (ctx->conns == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < ctx->nconns; i++) {
        conn = &ctx->conns[i];

        conn->server = &ctx->server;
        conn->events = &ngx_idempotency_postgres_events;
        conn->threads = ctx->threads;
        conn->data = ctx;

        ngx_idempotency_postgres_conn_start(conn);
    }

    ngx_idempotency_postgres_upkeep_start(ctx);

    return NGX_OK;
}


static void
ngx_idempotency_postgres_event(ngx_event_t *ev,
    ngx_idempotency_postgres_ctx_t *ctx, ngx_event_handler_pt handler,
    ngx_uint_t cancelable)
{
    ev->handler = handler;
    ev->data = &ctx->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = cancelable;
}


/*
 * The worker ends: what is under way is waited for, as long as an operation
 * may take, and outcomes that wait are sent once.  Claims that were granted to
 * requests of this worker are taken back, as nothing was sent for them.
 */

static void
ngx_idempotency_postgres_stop(ngx_idempotency_store_t *store)
{
    ngx_uint_t                        i, lost;
    ngx_queue_t                      *q;
    ngx_idempotency_postgres_ctx_t   *ctx;
    ngx_idempotency_postgres_job_t   *job;
    ngx_idempotency_postgres_conn_t  *conn;

    ctx = store->data;

    if (ctx->conns == NULL) {
        return;
    }

    ctx->stopping = 1;

    ngx_queue_add(&ctx->queue, &ctx->retry);
    ngx_queue_init(&ctx->retry);

    for (i = 0; i < ctx->nconns; i++) {
        conn = &ctx->conns[i];

        ngx_idempotency_postgres_conn_drain(conn, ctx->server.timeout);
        ngx_idempotency_postgres_stop_group(ctx, conn);
    }

    for (i = 0; i < ctx->nconns; i++) {
        conn = &ctx->conns[i];

        while (conn->state == NGX_IDEMPOTENCY_POSTGRES_READY
               && ngx_idempotency_postgres_gather(ctx, conn))
        {
            ngx_idempotency_postgres_conn_send(conn);
            ngx_idempotency_postgres_conn_drain(conn, ctx->server.timeout);
            ngx_idempotency_postgres_stop_group(ctx, conn);
        }
    }

    lost = 0;

    while (!ngx_queue_empty(&ctx->queue)) {
        q = ngx_queue_head(&ctx->queue);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

        lost += ngx_idempotency_postgres_job_settles(job);

        ngx_idempotency_postgres_job_free(&ctx->jobs, job);
    }

    if (lost) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\": %ui outcomes were not stored "
                      "before this worker had to end, they become unknown",
                      &store->name, lost);
    }

    for (i = 0; i < ctx->nconns; i++) {
        ngx_idempotency_postgres_conn_stop(&ctx->conns[i]);
    }
}


/* what is left of a group: queued if it must be sent, else forgotten */

static void
ngx_idempotency_postgres_stop_group(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_conn_t *conn)
{
    ngx_uint_t                       done;
    ngx_queue_t                     *q;
    ngx_idempotency_postgres_job_t  *job;

    done = (conn->state == NGX_IDEMPOTENCY_POSTGRES_READY && !conn->failed);

    while (!ngx_queue_empty(&conn->group)) {
        q = ngx_queue_head(&conn->group);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

        if (job->statement == NGX_IDEMPOTENCY_CLAIM
            && (!done || ngx_idempotency_postgres_reply_result(job)
                         == NGX_IDEMPOTENCY_GRANTED))
        {
            job->statement = NGX_IDEMPOTENCY_RELEASE;

        } else if (done || !ngx_idempotency_postgres_job_settles(job)) {
            ngx_idempotency_postgres_job_free(&ctx->jobs, job);
            continue;
        }

        ngx_idempotency_postgres_job_clear(job);
        ngx_queue_insert_tail(&ctx->queue, q);
    }
}


static ngx_int_t
ngx_idempotency_postgres_submit(ngx_idempotency_op_t *op)
{
    ngx_uint_t                       i;
    ngx_idempotency_lease_t         *lease;
    ngx_idempotency_postgres_ctx_t  *ctx;
    ngx_idempotency_postgres_job_t  *job;

    ctx = op->store->data;

    op->error = NGX_IDEMPOTENCY_ERROR_NONE;
    op->unsure = 0;

    if (op->leases) {

        /* until they are known to be renewed */

        lease = op->leases->elts;

        for (i = 0; i < op->leases->nelts; i++) {
            lease[i].result = NGX_IDEMPOTENCY_REFUSED;
        }
    }

    if (ngx_idempotency_postgres_refuse(ctx, op) != NGX_OK) {
        return NGX_ERROR;
    }

    job = ngx_idempotency_postgres_job_create(&ctx->jobs, op, op->type, 0);
    if (job == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    if (op->type == NGX_IDEMPOTENCY_LIST && op->list->cursor.len) {

        if (op->list->cursor.len != 2 * NGX_IDEMPOTENCY_DIGEST_LEN
            || ngx_idempotency_record_digest(op->list->cursor.data,
                                             job->cursor)
               != NGX_OK)
        {
            ngx_idempotency_postgres_job_free(&ctx->jobs, job);

            op->result = NGX_IDEMPOTENCY_REFUSED;
            return NGX_OK;
        }

        job->cursor_len = NGX_IDEMPOTENCY_DIGEST_LEN;
    }

    ngx_queue_insert_tail(&ctx->queue, &job->queue);

    ngx_idempotency_postgres_outcome_arm(ctx);

    ngx_post_event(&ctx->flush, &ngx_posted_events);

    return NGX_AGAIN;
}


/*
 * A server that could not be reached, or that has not answered for longer than
 * an operation may take, will not do it for the next one: new keys are refused
 * at once.  What settles a claim waits.
 */

static ngx_int_t
ngx_idempotency_postgres_refuse(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_op_t *op)
{
    switch (op->type) {

    case NGX_IDEMPOTENCY_COMPLETE:
    case NGX_IDEMPOTENCY_RELEASE:
    case NGX_IDEMPOTENCY_MARK_UNKNOWN:

        if (ctx->jobs.number < NGX_IDEMPOTENCY_POSTGRES_NUMBER) {
            return NGX_OK;
        }

        ngx_idempotency_count(ctx->store->counts->dropped);

        if (ctx->dropped++ == 0) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "idempotency store \"%V\" does not answer and too "
                          "many outcomes wait in background: further ones "
                          "become unknown", &ctx->store->name);
        }

        op->error = NGX_IDEMPOTENCY_ERROR_TIMEOUT;
        return NGX_ERROR;

    default:
        break;
    }

    if (ctx->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        op->error = ctx->error;
        op->refusal = ctx->refusal;
        return NGX_ERROR;
    }

    if (ctx->jobs.number >= NGX_IDEMPOTENCY_POSTGRES_NUMBER
        || ngx_idempotency_postgres_is_stalled(ctx))
    {
        op->error = NGX_IDEMPOTENCY_ERROR_TIMEOUT;
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_idempotency_postgres_is_stalled(ngx_idempotency_postgres_ctx_t *ctx)
{
    ngx_uint_t                        i;
    ngx_idempotency_postgres_conn_t  *conn;

    for (i = 0; i < ctx->nconns; i++) {
        conn = &ctx->conns[i];

        if (conn->state != NGX_IDEMPOTENCY_POSTGRES_BUSY
            || ngx_current_msec - conn->began <= ctx->server.timeout)
        {
            return 0;
        }
    }

    return 1;
}


/* at the end of a turn of the event loop */

static void
ngx_idempotency_postgres_flush_handler(ngx_event_t *ev)
{
    ngx_connection_t  *dummy;

    dummy = ev->data;

    ngx_idempotency_postgres_flush(dummy->data);
}


static void
ngx_idempotency_postgres_flush(ngx_idempotency_postgres_ctx_t *ctx)
{
    ngx_uint_t                        i;
    ngx_idempotency_postgres_conn_t  *conn;

    for (i = 0; i < ctx->nconns; i++) {
        conn = &ctx->conns[i];

        if (conn->state == NGX_IDEMPOTENCY_POSTGRES_READY
            && ngx_idempotency_postgres_gather(ctx, conn))
        {
            ngx_idempotency_postgres_conn_send(conn);
        }
    }
}


/* the next group, sorted; 0: there is nothing to send */

static ngx_uint_t
ngx_idempotency_postgres_gather(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_conn_t *conn)
{
    size_t                           bytes;
    ngx_uint_t                       n;
    ngx_queue_t                     *q;
    ngx_idempotency_postgres_job_t  *job;

    bytes = 0;

    for (n = 0; n < NGX_IDEMPOTENCY_POSTGRES_GROUP; n++) {

        if (ngx_queue_empty(&ctx->queue)) {
            break;
        }

        q = ngx_queue_head(&ctx->queue);
        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

        if (n && (job->alone
                  || bytes + job->bytes > NGX_IDEMPOTENCY_POSTGRES_GROUP_BYTES))
        {
            break;
        }

        bytes += job->bytes;

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&conn->group, q);

        if (job->alone) {
            n++;
            break;
        }
    }

    if (n > 1) {
        ngx_queue_sort(&conn->group, ngx_idempotency_postgres_job_cmp);
    }

    return n;
}


static void
ngx_idempotency_postgres_ready(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_idempotency_postgres_ctx_t  *ctx;

    ctx = conn->data;

    ngx_idempotency_postgres_upkeep_connections(ctx);

    if (ctx->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\": connected to PostgreSQL again",
                      &ctx->store->name);
    }

    ctx->error = NGX_IDEMPOTENCY_ERROR_NONE;
    ctx->refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;
    ctx->logged = 0;

    ngx_idempotency_postgres_flush(ctx);
}


/* operations that wait for a connection are told at once */

static void
ngx_idempotency_postgres_refused(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_uint_t                       i;
    ngx_queue_t                      queue, *q;
    ngx_idempotency_postgres_ctx_t  *ctx;
    ngx_idempotency_postgres_job_t  *job;

    ctx = conn->data;

    ngx_idempotency_count(ctx->store->counts->redis.failures);

    ngx_idempotency_postgres_upkeep_connections(ctx);
    ngx_idempotency_postgres_upkeep_fault(ctx, conn,
                                          "cannot connect to PostgreSQL");

    for (i = 0; i < ctx->nconns; i++) {
        if (ctx->conns[i].c) {
            return;
        }
    }

    ctx->error = conn->error;
    ctx->refusal = conn->refusal;

    ngx_queue_init(&queue);
    ngx_queue_add(&queue, &ctx->queue);
    ngx_queue_init(&ctx->queue);

    while (!ngx_queue_empty(&queue)) {
        q = ngx_queue_head(&queue);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

        ngx_idempotency_postgres_outcome_failed(ctx, job, ctx->error,
                                                ctx->refusal);
    }

    ngx_idempotency_postgres_outcome_arm(ctx);
}


static void
ngx_idempotency_postgres_lost(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_queue_t                      group, *q;
    ngx_idempotency_postgres_ctx_t  *ctx;
    ngx_idempotency_postgres_job_t  *job;

    ctx = conn->data;

    if (ctx->stopping) {
        return;
    }

    ngx_idempotency_count(ctx->store->counts->redis.reconnects);

    ngx_idempotency_postgres_upkeep_connections(ctx);
    ngx_idempotency_postgres_upkeep_fault(ctx, conn, "lost its connection to "
                                   "PostgreSQL");

    ngx_queue_init(&group);
    ngx_queue_add(&group, &conn->group);
    ngx_queue_init(&conn->group);

    /* from the last one, so that they are in their order again */

    while (!ngx_queue_empty(&group)) {
        q = ngx_queue_last(&group);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

        ngx_idempotency_postgres_job_clear(job);

        if ((job->op || ngx_idempotency_postgres_job_settles(job))
            && (!job->sent || ngx_idempotency_postgres_job_repeats(job)))
        {
            ngx_queue_insert_head(&ctx->queue, q);
            continue;
        }

        ngx_idempotency_postgres_outcome_failed(ctx, job,
                                          NGX_IDEMPOTENCY_ERROR_CONNECT,
                                          NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE);
    }

    ngx_post_event(&ctx->flush, &ngx_posted_events);
}


/* the group is committed, or was rolled back */

static void
ngx_idempotency_postgres_done(ngx_idempotency_postgres_conn_t *conn)
{
    ngx_uint_t                       failed;
    ngx_queue_t                      group, *q;
    ngx_idempotency_postgres_ctx_t  *ctx;

    ctx = conn->data;
    failed = conn->failed;

    ngx_queue_init(&group);
    ngx_queue_add(&group, &conn->group);
    ngx_queue_init(&conn->group);

    if (failed) {
        ngx_idempotency_postgres_done_failed(ctx, conn, &group);

    } else {

        /* the server works while the results are reported */

        ngx_idempotency_postgres_flush(ctx);
    }

    while (!ngx_queue_empty(&group)) {
        q = ngx_queue_head(&group);
        ngx_queue_remove(q);

        ngx_idempotency_postgres_finish(ctx,
                    ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue));
    }

    if (!ngx_queue_empty(&ctx->queue)) {
        ngx_post_event(&ctx->flush, &ngx_posted_events);
    }

    ngx_idempotency_postgres_outcome_arm(ctx);
}


/* one alone has failed itself; the jobs of a group are sent one by one */

static void
ngx_idempotency_postgres_done_failed(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_conn_t *conn, ngx_queue_t *group)
{
    ngx_queue_t                     *q;
    ngx_idempotency_error_e          error;
    ngx_idempotency_refusal_e        refusal;
    ngx_idempotency_postgres_job_t  *job;

    error = conn->error;
    refusal = conn->refusal;

    q = ngx_queue_head(group);

    if (ngx_queue_next(q) == ngx_queue_sentinel(group)) {
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

        if (job->after) {
            ngx_idempotency_postgres_outcome_later(ctx, job);
            return;
        }

        ngx_idempotency_postgres_upkeep_fault(ctx, conn,
                                              "was refused an operation by "
                                              "PostgreSQL");

        ngx_idempotency_postgres_outcome_failed(ctx, job, error, refusal);

    } else {
        while (!ngx_queue_empty(group)) {
            q = ngx_queue_last(group);
            ngx_queue_remove(q);

            job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

            ngx_idempotency_postgres_job_clear(job);

            job->alone = 1;
            job->sent = 0;

            ngx_queue_insert_head(&ctx->queue, q);
        }
    }

    if (refusal == NGX_IDEMPOTENCY_REFUSAL_READONLY
        || refusal == NGX_IDEMPOTENCY_REFUSAL_MISCONFIGURED)
    {
        /* another server may be the primary, or the schema is installed */

        ngx_idempotency_postgres_conn_close(conn, (char *) conn->text);
    }
}


static void
ngx_idempotency_postgres_finish(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_job_t *job)
{
    ngx_int_t              rc, result;
    ngx_uint_t             taken_back;
    ngx_idempotency_op_t  *op;

    if (ngx_idempotency_postgres_upkeep_finish(ctx, job)) {
        return;
    }

    result = ngx_idempotency_postgres_reply_result(job);

    if (result == NGX_IDEMPOTENCY_POSTGRES_LOCKED) {
        ngx_idempotency_postgres_outcome_later(ctx, job);
        return;
    }

    op = job->op;
    job->op = NULL;

    if (op == NULL) {
        ngx_idempotency_postgres_outcome_landed(job, result);
        ngx_idempotency_postgres_job_free(&ctx->jobs, job);
        return;
    }

    /* nobody will run what this claim was made for */

    taken_back = (job->statement == NGX_IDEMPOTENCY_CLAIM && op->detached
                  && result == NGX_IDEMPOTENCY_GRANTED);

    rc = ngx_idempotency_postgres_reply_read(op, job);

    if (rc != NGX_OK) {
        op->error = (rc == NGX_ERROR) ? NGX_IDEMPOTENCY_ERROR_MEMORY
                                      : NGX_IDEMPOTENCY_ERROR_DAMAGED;
    }

    ngx_idempotency_op_done(op);

    if (!taken_back) {
        ngx_idempotency_postgres_job_free(&ctx->jobs, job);
        return;
    }

    ngx_idempotency_postgres_job_clear(job);
    job->statement = NGX_IDEMPOTENCY_RELEASE;
    job->ask.type = NGX_IDEMPOTENCY_RELEASE;

    ngx_idempotency_postgres_outcome_background(ctx, job);
    ngx_queue_insert_tail(&ctx->queue, &job->queue);
}


static void
ngx_idempotency_postgres_timer(ngx_event_t *ev)
{
    ngx_uint_t                        i;
    ngx_queue_t                      *q, *next;
    ngx_connection_t                 *dummy;
    ngx_idempotency_postgres_ctx_t   *ctx;
    ngx_idempotency_postgres_job_t   *job;
    ngx_idempotency_postgres_conn_t  *conn;

    dummy = ev->data;
    ctx = dummy->data;

    ngx_idempotency_postgres_outcome_overdue(ctx, &ctx->queue, 0);
    ngx_idempotency_postgres_outcome_overdue(ctx, &ctx->retry, 0);

    for (i = 0; i < ctx->nconns; i++) {
        conn = &ctx->conns[i];

        if (conn->state != NGX_IDEMPOTENCY_POSTGRES_BUSY) {
            continue;
        }

        ngx_idempotency_postgres_outcome_overdue(ctx, &conn->group, 1);

        if (ngx_current_msec - conn->began
            > ctx->server.timeout + NGX_IDEMPOTENCY_POSTGRES_STALLED)
        {
            ngx_idempotency_postgres_conn_close(conn,
                                              "the server does not answer");
        }
    }

    for (q = ngx_queue_head(&ctx->retry);
         q != ngx_queue_sentinel(&ctx->retry);
         q = next)
    {
        next = ngx_queue_next(q);

        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

        if (job->after == 0) {
            ngx_queue_remove(q);
            ngx_queue_insert_tail(&ctx->queue, q);
        }
    }

    if (ngx_exiting) {

        if (ctx->exiting == 0) {
            ctx->exiting = ngx_current_msec;
        }

        if (ngx_current_msec - ctx->exiting > NGX_IDEMPOTENCY_POSTGRES_STAY) {
            ev->cancelable = 1;
        }
    }

    ngx_idempotency_postgres_flush(ctx);
    ngx_idempotency_postgres_outcome_arm(ctx);
}


/* what was locked is asked for again */

static void
ngx_idempotency_postgres_again(ngx_event_t *ev)
{
    ngx_queue_t                     *q, *next;
    ngx_connection_t                *dummy;
    ngx_idempotency_postgres_ctx_t  *ctx;
    ngx_idempotency_postgres_job_t  *job;

    dummy = ev->data;
    ctx = dummy->data;

    for (q = ngx_queue_head(&ctx->retry);
         q != ngx_queue_sentinel(&ctx->retry);
         q = next)
    {
        next = ngx_queue_next(q);

        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);

        if (job->after == 0) {
            continue;
        }

        if ((ngx_msec_int_t) (job->after - ngx_current_msec) > 0) {
            if (!ev->timer_set) {
                ngx_add_timer(ev, job->after - ngx_current_msec);
            }

            continue;
        }

        job->after = 0;

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&ctx->queue, q);
    }

    ngx_idempotency_postgres_flush(ctx);
}
