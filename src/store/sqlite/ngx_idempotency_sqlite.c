
/*
 * The durable store: the event loop's half.
 *
 * The operations of one turn of the event loop become one task, and one
 * transaction; while it runs, the next ones are collected.  An operation that
 * runs into its deadline fails; its job goes on if the thread may have it, or
 * if it settles a claim: outcomes are tried again until they are stored.
 */


#include "ngx_idempotency_sqlite_job.h"
#include "ngx_idempotency_sqlite_wal.h"
#include "ngx_idempotency_wait.h"


/* of one task; the lock is held for so long */
#define NGX_IDEMPOTENCY_SQLITE_BATCH    256

/*
 * A transaction costs more than the jobs in it.  After one that had so many
 * jobs the next one waits for as many, for a millisecond at most.
 */
#define NGX_IDEMPOTENCY_SQLITE_GATHER   4

/* jobs that may wait */
#define NGX_IDEMPOTENCY_SQLITE_NUMBER   10000

/* milliseconds between two tries to store an outcome */
#define NGX_IDEMPOTENCY_SQLITE_RETRY    500

/* milliseconds between two steps of expiry, and if one was not enough */
#define NGX_IDEMPOTENCY_SQLITE_TICK     1000
#define NGX_IDEMPOTENCY_SQLITE_SOON     25

/* milliseconds that an exiting worker stays for outcomes */
#define NGX_IDEMPOTENCY_SQLITE_STAY     30000


static ngx_int_t ngx_idempotency_sqlite_start(ngx_idempotency_store_t *store);
static void ngx_idempotency_sqlite_stop(ngx_idempotency_store_t *store);
static void ngx_idempotency_sqlite_stop_batch(
    ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_stop_queue(
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_queue_t *queue);
static void ngx_idempotency_sqlite_usage(ngx_idempotency_store_t *store,
    ngx_idempotency_usage_t *usage);
static ngx_int_t ngx_idempotency_sqlite_submit(ngx_idempotency_op_t *op);
static ngx_int_t ngx_idempotency_sqlite_refuse(
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_idempotency_op_t *op);
static void ngx_idempotency_sqlite_flush_handler(ngx_event_t *ev);
static void ngx_idempotency_sqlite_gather_handler(ngx_event_t *ev);
static void ngx_idempotency_sqlite_flush(ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_done(ngx_event_t *ev);
static void ngx_idempotency_sqlite_finish(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job);
static void ngx_idempotency_sqlite_background(
    ngx_idempotency_sqlite_ctx_t *ctx, ngx_idempotency_sqlite_job_t *job);
static void ngx_idempotency_sqlite_landed(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job);
static void ngx_idempotency_sqlite_arm(ngx_idempotency_sqlite_ctx_t *ctx);
static void ngx_idempotency_sqlite_timer(ngx_event_t *ev);
static void ngx_idempotency_sqlite_overdue(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_queue_t *queue, ngx_uint_t running);
static void ngx_idempotency_sqlite_tick(ngx_event_t *ev);


void
ngx_idempotency_sqlite_init(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ctx->store->kind = "sqlite";
    ctx->store->submit = ngx_idempotency_sqlite_submit;
    ctx->store->start = ngx_idempotency_sqlite_start;
    ctx->store->stop = ngx_idempotency_sqlite_stop;
    ctx->store->usage = ngx_idempotency_sqlite_usage;
}


/* the database is opened by the first task: not in the event loop */

static ngx_int_t
ngx_idempotency_sqlite_start(ngx_idempotency_store_t *store)
{
    ngx_idempotency_sqlite_ctx_t  *ctx;

    ctx = store->data;

    ngx_idempotency_sqlite_setup();

    ngx_queue_init(&ctx->queue);
    ngx_queue_init(&ctx->retry);
    ngx_queue_init(&ctx->batch);

    ctx->dummy.fd = (ngx_socket_t) -1;
    ctx->dummy.data = ctx;

    ctx->flush.handler = ngx_idempotency_sqlite_flush_handler;
    ctx->flush.data = ctx;
    ctx->flush.log = ngx_cycle->log;

    ctx->gather.handler = ngx_idempotency_sqlite_gather_handler;
    ctx->gather.data = &ctx->dummy;
    ctx->gather.log = ngx_cycle->log;

    ctx->timer.handler = ngx_idempotency_sqlite_timer;
    ctx->timer.data = &ctx->dummy;
    ctx->timer.log = ngx_cycle->log;

    ctx->tick.handler = ngx_idempotency_sqlite_tick;
    ctx->tick.data = &ctx->dummy;
    ctx->tick.log = ngx_cycle->log;
    ctx->tick.cancelable = 1;

    ctx->task.ctx = ctx;
    ctx->task.handler = ngx_idempotency_sqlite_run;
    ctx->task.event.handler = ngx_idempotency_sqlite_done;
    ctx->task.event.data = ctx;
    ctx->task.event.log = ngx_cycle->log;

    ngx_add_timer(&ctx->tick, 1);

    return NGX_OK;
}


/*
 * The threads have ended, as ngx_thread_pool_exit_worker() runs before this:
 * the task is done, but its results were not reported.  What is left is
 * written here, in the event loop's own thread; nobody waits for it any more.
 */

static void
ngx_idempotency_sqlite_stop(ngx_idempotency_store_t *store)
{
    ngx_uint_t                     lost;
    ngx_queue_t                   *q;
    ngx_idempotency_sqlite_ctx_t  *ctx;
    ngx_idempotency_sqlite_job_t  *job;

    ctx = store->data;

    if (ctx->flush.handler == NULL) {
        return;
    }

    ctx->stopping = 1;

    ngx_idempotency_sqlite_stop_batch(ctx);
    ngx_idempotency_sqlite_stop_queue(ctx, &ctx->queue);
    ngx_idempotency_sqlite_stop_queue(ctx, &ctx->retry);

    if (!ngx_queue_empty(&ctx->batch)) {
        ngx_idempotency_sqlite_run(ctx, ngx_cycle->log);
    }

    lost = 0;

    while (!ngx_queue_empty(&ctx->batch)) {
        q = ngx_queue_head(&ctx->batch);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);

        lost += (job->error != NGX_IDEMPOTENCY_ERROR_NONE);

        ngx_idempotency_sqlite_job_free(ctx, job);
    }

    if (lost) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\": %ui outcomes were not stored "
                      "before this worker had to end, they become unknown",
                      &store->name, lost);
    }

    ngx_idempotency_sqlite_close(ctx);
}


/* a claim that was granted to a request of this worker: nothing was sent */

static void
ngx_idempotency_sqlite_stop_batch(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_queue_t                   *q, batch;
    ngx_idempotency_sqlite_job_t  *job;

    ngx_queue_init(&batch);

    while (!ngx_queue_empty(&ctx->batch)) {
        q = ngx_queue_head(&ctx->batch);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);

        if (job->again) {
            ngx_queue_insert_tail(&ctx->queue, q);
            continue;
        }

        if (job->ask.type == NGX_IDEMPOTENCY_CLAIM
            && (job->unsure || job->result == NGX_IDEMPOTENCY_GRANTED))
        {
            job->ask.type = NGX_IDEMPOTENCY_RELEASE;
            ngx_queue_insert_tail(&batch, q);
            continue;
        }

        if (ngx_idempotency_sqlite_settles(job)
            && job->error != NGX_IDEMPOTENCY_ERROR_NONE)
        {
            ngx_queue_insert_tail(&batch, q);
            continue;
        }

        ngx_idempotency_sqlite_job_free(ctx, job);
    }

    ngx_queue_add(&ctx->batch, &batch);
}


static void
ngx_idempotency_sqlite_stop_queue(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_queue_t *queue)
{
    ngx_queue_t                   *q;
    ngx_idempotency_sqlite_job_t  *job;

    while (!ngx_queue_empty(queue)) {
        q = ngx_queue_head(queue);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);

        if (ngx_idempotency_sqlite_settles(job)) {
            ngx_queue_insert_tail(&ctx->batch, q);
            continue;
        }

        ngx_idempotency_sqlite_job_free(ctx, job);
    }
}


static void
ngx_idempotency_sqlite_usage(ngx_idempotency_store_t *store,
    ngx_idempotency_usage_t *usage)
{
    ngx_uint_t                        i;
    ngx_idempotency_sqlite_ctx_t     *ctx;
    ngx_idempotency_sqlite_shared_t  *shared;

    ctx = store->data;
    shared = ctx->zone->data;

    usage->size = ctx->size ? (size_t) ctx->size : shared->used + shared->room;

    if (shared->used < usage->size) {
        usage->free = ngx_min(usage->size - shared->used, shared->room);
    }

    for (i = NGX_IDEMPOTENCY_NONE; i <= NGX_IDEMPOTENCY_TOMBSTONE; i++) {
        usage->records += shared->states[i];
    }

    usage->executing = shared->states[NGX_IDEMPOTENCY_EXECUTING];
    usage->unknown = shared->states[NGX_IDEMPOTENCY_UNKNOWN];

    usage->refusing = (ngx_idempotency_refusal_e) shared->refusing;

    /* of a row and of its line in the index, roughly */

    usage->record = 200;
}


static ngx_int_t
ngx_idempotency_sqlite_submit(ngx_idempotency_op_t *op)
{
    ngx_uint_t                     i;
    ngx_idempotency_lease_t       *lease;
    ngx_idempotency_sqlite_ctx_t  *ctx;
    ngx_idempotency_sqlite_job_t  *job;

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

    if (ngx_idempotency_sqlite_cache_claim(op) == NGX_OK) {
        return NGX_OK;
    }

    if (ngx_idempotency_sqlite_refuse(ctx, op) != NGX_OK) {
        return NGX_ERROR;
    }

    job = ngx_idempotency_sqlite_job_create(ctx, op);
    if (job == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    if (op->type == NGX_IDEMPOTENCY_LIST
        && op->list->cursor.len
        && (op->list->cursor.len != 2 * NGX_IDEMPOTENCY_DIGEST_LEN
            || ngx_idempotency_record_digest(op->list->cursor.data,
                                             job->cursor)
               != NGX_OK))
    {
        ngx_idempotency_sqlite_job_free(ctx, job);

        op->result = NGX_IDEMPOTENCY_REFUSED;
        return NGX_OK;
    }

    ngx_queue_insert_tail(&ctx->queue, &job->queue);

    ngx_idempotency_sqlite_arm(ctx);

    if (!ctx->busy) {
        ngx_post_event(&ctx->flush, &ngx_posted_events);
    }

    return NGX_AGAIN;
}


/*
 * A disk that has not answered for longer than an operation may take will not
 * do it for the next one: new keys are refused at once.  What settles a claim
 * waits.
 */

static ngx_int_t
ngx_idempotency_sqlite_refuse(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_op_t *op)
{
    ngx_uint_t  stalled;

    stalled = (ctx->busy && ngx_current_msec - ctx->began > ctx->timeout);

    switch (op->type) {

    case NGX_IDEMPOTENCY_COMPLETE:
    case NGX_IDEMPOTENCY_RELEASE:
    case NGX_IDEMPOTENCY_MARK_UNKNOWN:

        if (ctx->number < NGX_IDEMPOTENCY_SQLITE_NUMBER) {
            return NGX_OK;
        }

        ngx_idempotency_count(ctx->store->counts->dropped);

        if (ctx->dropped++ == 0) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "idempotency store \"%V\" does not answer and too "
                          "many outcomes wait in background: further ones "
                          "become unknown", &ctx->store->name);
        }

        break;

    default:

        if (!stalled && ctx->number < NGX_IDEMPOTENCY_SQLITE_NUMBER) {
            return NGX_OK;
        }
    }

    op->error = NGX_IDEMPOTENCY_ERROR_TIMEOUT;

    return NGX_ERROR;
}


/* at the end of a turn of the event loop */

static void
ngx_idempotency_sqlite_flush_handler(ngx_event_t *ev)
{
    ngx_idempotency_sqlite_ctx_t  *ctx;

    ctx = ev->data;

    if (ctx->busy) {
        return;
    }

    if (ctx->last >= NGX_IDEMPOTENCY_SQLITE_GATHER
        && ctx->number < ctx->last
        && !ctx->expire_next && !ctx->checkpoint && !ngx_exiting)
    {
        if (!ctx->gather.timer_set && ctx->number) {
            ngx_add_timer(&ctx->gather, 1);
        }

        return;
    }

    ngx_idempotency_sqlite_flush(ctx);
}


static void
ngx_idempotency_sqlite_gather_handler(ngx_event_t *ev)
{
    ngx_connection_t  *dummy;

    dummy = ev->data;

    ngx_idempotency_sqlite_flush(dummy->data);
}


static void
ngx_idempotency_sqlite_flush(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_uint_t    n;
    ngx_queue_t  *q;

    if (ctx->busy
        || (ngx_queue_empty(&ctx->queue)
            && !ctx->expire_next && !ctx->checkpoint))
    {
        return;
    }

    if (ctx->gather.timer_set) {
        ngx_del_timer(&ctx->gather);
    }

    /* without jobs the task does what nobody waits for */

    if (!ctx->expire_next && !ctx->checkpoint) {

        for (n = 0; n < NGX_IDEMPOTENCY_SQLITE_BATCH; n++) {

            if (ngx_queue_empty(&ctx->queue)) {
                break;
            }

            q = ngx_queue_head(&ctx->queue);
            ngx_queue_remove(q);
            ngx_queue_insert_tail(&ctx->batch, q);
        }

        ctx->last = n;
    }

    ctx->expire = ctx->expire_next;
    ctx->count = ctx->count_next;
    ctx->expire_next = 0;

    if (ngx_thread_task_post(ctx->threads, &ctx->task) != NGX_OK) {

        /* the queue of the pool is full: the timer tries again */

        ngx_queue_add(&ctx->batch, &ctx->queue);
        ngx_queue_init(&ctx->queue);
        ngx_queue_add(&ctx->queue, &ctx->batch);
        ngx_queue_init(&ctx->batch);

        return;
    }

    ctx->busy = 1;
    ctx->began = ngx_current_msec;
}


static void
ngx_idempotency_sqlite_done(ngx_event_t *ev)
{
    ngx_queue_t                   *q, batch, again;
    ngx_idempotency_sqlite_ctx_t  *ctx;
    ngx_idempotency_sqlite_job_t  *job;

    ctx = ev->data;

    ctx->busy = 0;

    if (ctx->overdue && !ngx_exiting) {
        ctx->soon = 1;
        ngx_add_timer(&ctx->tick, NGX_IDEMPOTENCY_SQLITE_SOON);
    }

    ctx->overdue = 0;

    ngx_queue_init(&batch);
    ngx_queue_init(&again);

    while (!ngx_queue_empty(&ctx->batch)) {
        q = ngx_queue_head(&ctx->batch);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);

        ngx_queue_insert_tail(job->again ? &again : &batch, q);
    }

    if (!ngx_queue_empty(&again)) {
        ngx_queue_add(&again, &ctx->queue);
        ngx_queue_init(&ctx->queue);
        ngx_queue_add(&ctx->queue, &again);
    }

    if (ctx->last < NGX_IDEMPOTENCY_SQLITE_GATHER) {

        /* the disk works while the results are reported */

        ngx_idempotency_sqlite_flush(ctx);
    }

    while (!ngx_queue_empty(&batch)) {
        q = ngx_queue_head(&batch);
        ngx_queue_remove(q);

        ngx_idempotency_sqlite_finish(ctx,
                      ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue));
    }

    if (!ctx->busy && (ctx->number || ctx->checkpoint || ctx->expire_next)) {
        ngx_post_event(&ctx->flush, &ngx_posted_events);
    }

    ngx_idempotency_sqlite_arm(ctx);
}


static void
ngx_idempotency_sqlite_finish(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    ngx_uint_t             granted;
    ngx_idempotency_op_t  *op;

    op = job->op;
    granted = 0;

    if (job->ask.type == NGX_IDEMPOTENCY_CLAIM && op && op->detached) {
        granted = job->unsure
                  || (job->error == NGX_IDEMPOTENCY_ERROR_NONE
                      && job->result == NGX_IDEMPOTENCY_GRANTED);
    }

    ngx_idempotency_sqlite_cache_put(ctx, job);

    if (op) {
        job->op = NULL;
        ngx_idempotency_sqlite_report(op, job);
        ngx_idempotency_op_done(op);

    } else {
        ngx_idempotency_sqlite_landed(ctx, job);
    }

    if (granted) {

        /* nobody will run what this claim was made for */

        ngx_idempotency_sqlite_job_clear(job);
        job->ask.type = NGX_IDEMPOTENCY_RELEASE;

        ngx_idempotency_sqlite_background(ctx, job);
        ngx_queue_insert_tail(&ctx->queue, &job->queue);

        if (!ctx->busy) {
            ngx_post_event(&ctx->flush, &ngx_posted_events);
        }

        return;
    }

    if (ngx_idempotency_sqlite_settles(job)
        && job->error != NGX_IDEMPOTENCY_ERROR_NONE
        && job->error != NGX_IDEMPOTENCY_ERROR_DAMAGED)
    {
        ngx_idempotency_sqlite_job_clear(job);
        ngx_idempotency_sqlite_background(ctx, job);
        ngx_queue_insert_tail(&ctx->retry, &job->queue);
        return;
    }

    ngx_idempotency_sqlite_job_free(ctx, job);
}


static void
ngx_idempotency_sqlite_background(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    if (job->background) {
        ngx_idempotency_count(ctx->store->counts->retries);
        return;
    }

    job->background = 1;

    ngx_idempotency_begins(ctx->store->now->background);
}


/* as ngx_idempotency_op_done() does for an operation that still exists */

static void
ngx_idempotency_sqlite_landed(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    if (!ngx_idempotency_sqlite_settles(job)
        || job->error != NGX_IDEMPOTENCY_ERROR_NONE)
    {
        return;
    }

    if (job->result == NGX_IDEMPOTENCY_OK) {
        ngx_idempotency_notice_post(job->ask.id.digest);
        return;
    }

    if (job->ask.type == NGX_IDEMPOTENCY_COMPLETE) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency record \"%*xs\" was settled by another "
                      "request or an operator before the outcome of its "
                      "request was stored: "
                      "duplicates do not get the answer that its client got",
                      NGX_IDEMPOTENCY_WHOLE, job->ask.id.digest);
    }
}


/*
 * The timer is not cancelable: a worker that exits waits for what it has to
 * write, for some time.
 */

static void
ngx_idempotency_sqlite_arm(ngx_idempotency_sqlite_ctx_t *ctx)
{
    ngx_event_t  *ev;

    ev = &ctx->timer;

    if (ctx->number == 0) {

        if (ev->timer_set) {
            ngx_del_timer(ev);
        }

        if (ctx->dropped) {
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "idempotency store \"%V\": all outcomes that waited "
                          "in background are stored, dropped: %ui",
                          &ctx->store->name, ctx->dropped);
            ctx->dropped = 0;
        }

        return;
    }

    if (!ev->timer_set) {
        ngx_add_timer(ev, ngx_min(ctx->timeout / 4 + 1,
                                  NGX_IDEMPOTENCY_SQLITE_RETRY));
    }
}


static void
ngx_idempotency_sqlite_timer(ngx_event_t *ev)
{
    ngx_connection_t              *dummy;
    ngx_idempotency_sqlite_ctx_t  *ctx;

    dummy = ev->data;
    ctx = dummy->data;

    ngx_idempotency_sqlite_overdue(ctx, &ctx->queue, 0);

    if (ctx->busy) {
        ngx_idempotency_sqlite_overdue(ctx, &ctx->batch, 1);
    }

    if (!ngx_queue_empty(&ctx->retry)) {
        ngx_queue_add(&ctx->queue, &ctx->retry);
        ngx_queue_init(&ctx->retry);
    }

    if (ngx_exiting) {

        if (ctx->exiting == 0) {
            ctx->exiting = ngx_current_msec;
        }

        if (ngx_current_msec - ctx->exiting > NGX_IDEMPOTENCY_SQLITE_STAY) {
            ctx->leave = 1;
            ev->cancelable = 1;
        }
    }

    ngx_idempotency_sqlite_flush(ctx);
    ngx_idempotency_sqlite_arm(ctx);
}


/*
 * The thread may have the jobs that are "running": their results come later.
 * A claim among them may be granted then, so its operation fails as unsure.
 */

static void
ngx_idempotency_sqlite_overdue(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_queue_t *queue, ngx_uint_t running)
{
    ngx_queue_t                   *q, *next;
    ngx_idempotency_op_t          *op;
    ngx_idempotency_sqlite_job_t  *job;

    for (q = ngx_queue_head(queue);
         q != ngx_queue_sentinel(queue);
         q = next)
    {
        next = ngx_queue_next(q);

        job = ngx_queue_data(q, ngx_idempotency_sqlite_job_t, queue);
        op = job->op;

        if (op == NULL
            || (ngx_msec_int_t) (job->deadline - ngx_current_msec) > 0)
        {
            continue;
        }

        if (op->detached
            && (running || ngx_idempotency_sqlite_settles(job)))
        {
            /* nobody waits; its end is seen to when it is done */

            continue;
        }

        job->op = NULL;

        op->error = NGX_IDEMPOTENCY_ERROR_TIMEOUT;
        op->unsure = running;

        if (ngx_idempotency_sqlite_settles(job)) {
            ngx_idempotency_sqlite_background(ctx, job);

        } else if (!running) {
            ngx_queue_remove(q);
            ngx_idempotency_sqlite_job_free(ctx, job);
        }

        ngx_idempotency_op_done(op);
    }
}


/* one worker at a time removes what has expired */

static void
ngx_idempotency_sqlite_tick(ngx_event_t *ev)
{
    ngx_msec_t                        last;
    ngx_connection_t                 *dummy;
    ngx_idempotency_sqlite_ctx_t     *ctx;
    ngx_idempotency_sqlite_shared_t  *shared;

    dummy = ev->data;
    ctx = dummy->data;
    shared = ctx->zone->data;

    last = shared->expiry;

    if (ctx->soon
        || last == 0
        || ngx_current_msec - last >= NGX_IDEMPOTENCY_SQLITE_TICK)
    {
        if (ngx_atomic_cmp_set(&shared->expiry, last, ngx_current_msec)) {
            ctx->count_next = (!ctx->soon || !shared->counted);
            ctx->soon = 0;
            ctx->expire_next = 1;
            ngx_idempotency_sqlite_flush(ctx);
        }
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_SQLITE_TICK);
}
