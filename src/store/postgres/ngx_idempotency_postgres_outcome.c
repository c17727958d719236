
/*
 * The store in PostgreSQL: jobs that fail, wait, or run into a deadline.
 */


#include "ngx_idempotency_postgres_ctx.h"
#include "ngx_idempotency_wait.h"


/* milliseconds between two tries to store an outcome */
#define NGX_IDEMPOTENCY_POSTGRES_RETRY        500

/* milliseconds until a record that is locked is asked for again */
#define NGX_IDEMPOTENCY_POSTGRES_LOCKED_WAIT  20


void
ngx_idempotency_postgres_outcome_failed(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_job_t *job, ngx_idempotency_error_e error,
    ngx_idempotency_refusal_e refusal)
{
    ngx_uint_t             sent;
    ngx_idempotency_op_t  *op;

    op = job->op;
    sent = job->sent;
    job->op = NULL;

    ngx_idempotency_postgres_job_clear(job);

    if (job->statement == NGX_IDEMPOTENCY_POSTGRES_EXPIRE) {
        ctx->expiring = 0;
    }

    if (job->statement == NGX_IDEMPOTENCY_POSTGRES_SETTLED) {
        ctx->polling = 0;
    }

    if (ngx_idempotency_postgres_job_settles(job)
        && error != NGX_IDEMPOTENCY_ERROR_DAMAGED)
    {
        ngx_idempotency_postgres_outcome_background(ctx, job);
        ngx_queue_insert_tail(&ctx->retry, &job->queue);

    } else {
        ngx_idempotency_postgres_job_free(&ctx->jobs, job);
    }

    if (op) {
        op->error = error;
        op->refusal = refusal;
        op->unsure = sent && error != NGX_IDEMPOTENCY_ERROR_REFUSED
                     && error != NGX_IDEMPOTENCY_ERROR_FULL;

        ngx_idempotency_op_done(op);
    }
}


void
ngx_idempotency_postgres_outcome_later(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_job_t *job)
{
    ngx_idempotency_postgres_job_clear(job);

    job->after = ngx_current_msec + NGX_IDEMPOTENCY_POSTGRES_LOCKED_WAIT;
    job->sent = 0;

    ngx_queue_insert_tail(&ctx->retry, &job->queue);

    if (!ctx->again.timer_set) {
        ngx_add_timer(&ctx->again, NGX_IDEMPOTENCY_POSTGRES_LOCKED_WAIT);
    }
}


void
ngx_idempotency_postgres_outcome_background(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_idempotency_postgres_job_t *job)
{
    if (job->background) {
        ngx_idempotency_count(ctx->store->counts->retries);
        return;
    }

    job->background = 1;

    ngx_idempotency_begins(ctx->store->now->background);
}


/* as ngx_idempotency_op_done() does for an operation that still exists */

void
ngx_idempotency_postgres_outcome_landed(ngx_idempotency_postgres_job_t *job,
    ngx_int_t result)
{
    if (!ngx_idempotency_postgres_job_settles(job)) {
        return;
    }

    if (result == NGX_IDEMPOTENCY_OK) {
        ngx_idempotency_notice_post(job->ask.id.digest);
        return;
    }

    if (job->statement == NGX_IDEMPOTENCY_COMPLETE) {
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

void
ngx_idempotency_postgres_outcome_arm(ngx_idempotency_postgres_ctx_t *ctx)
{
    ngx_event_t  *ev;

    ev = &ctx->timer;

    if (ctx->jobs.number == 0) {

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
        ngx_add_timer(ev, ngx_min(ctx->server.timeout / 4 + 1,
                                  NGX_IDEMPOTENCY_POSTGRES_RETRY));
    }
}


/*
 * The jobs that are "running" go on.  A claim among them may be granted, so its
 * operation fails as unsure.
 */

void
ngx_idempotency_postgres_outcome_overdue(ngx_idempotency_postgres_ctx_t *ctx,
    ngx_queue_t *queue, ngx_uint_t running)
{
    ngx_queue_t                     *q, *next;
    ngx_idempotency_op_t            *op;
    ngx_idempotency_postgres_job_t  *job;

    for (q = ngx_queue_head(queue);
         q != ngx_queue_sentinel(queue);
         q = next)
    {
        next = ngx_queue_next(q);

        job = ngx_queue_data(q, ngx_idempotency_postgres_job_t, queue);
        op = job->op;

        if (op == NULL
            || (ngx_msec_int_t) (job->deadline - ngx_current_msec) > 0)
        {
            continue;
        }

        if (op->detached
            && (running || ngx_idempotency_postgres_job_settles(job)))
        {
            /* nobody waits; its end is seen to when it is done */

            continue;
        }

        job->op = NULL;

        op->error = NGX_IDEMPOTENCY_ERROR_TIMEOUT;
        op->unsure = running || job->sent;

        if (ngx_idempotency_postgres_job_settles(job)) {
            ngx_idempotency_postgres_outcome_background(ctx, job);

        } else if (!running) {
            ngx_queue_remove(q);
            ngx_idempotency_postgres_job_free(&ctx->jobs, job);
        }

        ngx_idempotency_op_done(op);
    }
}
