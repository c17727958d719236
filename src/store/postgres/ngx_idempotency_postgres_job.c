
/*
 * The store in PostgreSQL: jobs.
 */


#include "ngx_idempotency_postgres_job.h"


/* bytes of answers that may wait */
#define NGX_IDEMPOTENCY_POSTGRES_BYTES    (64 * 1024 * 1024)


static size_t ngx_idempotency_postgres_job_answer(
    ngx_idempotency_postgres_jobs_t *jobs, ngx_idempotency_op_t *op,
    ngx_uint_t *keep);


ngx_idempotency_postgres_job_t *
ngx_idempotency_postgres_job_create(ngx_idempotency_postgres_jobs_t *jobs,
    ngx_idempotency_op_t *op, ngx_uint_t statement, size_t size)
{
    u_char                          *p;
    size_t                           len, leases;
    ngx_uint_t                       keep;
    ngx_chain_t                     *cl;
    ngx_idempotency_postgres_job_t  *job;

    len = 0;
    leases = 0;
    keep = 0;

    if (op) {
        keep = op->keep;
        len = keep ? ngx_idempotency_postgres_job_answer(jobs, op, &keep) : 0;
        leases = op->leases ? op->leases->nelts
                              * sizeof(ngx_idempotency_lease_t) : 0;
        size = op->note.len + (op->suspect ? NGX_IDEMPOTENCY_DIGEST_LEN : 0);
    }

    job = ngx_alloc(sizeof(ngx_idempotency_postgres_job_t) + leases + len
                    + size, ngx_cycle->log);
    if (job == NULL) {
        return NULL;
    }

    ngx_memzero(job, sizeof(ngx_idempotency_postgres_job_t));

    job->statement = statement;
    job->deadline = ngx_current_msec + jobs->timeout;
    job->bytes = len;

    p = (u_char *) (job + 1);

    jobs->number++;
    jobs->bytes += len;

    if (op == NULL) {
        job->digests = p;
        return job;
    }

    job->op = op;
    job->ask = *op;
    job->ask.keep = keep;
    job->ask.body = NULL;
    job->ask.leases = NULL;

    ngx_str_null(&job->ask.head);

    if (leases) {
        job->leases = (ngx_idempotency_lease_t *) p;
        job->nleases = op->leases->nelts;
        p = ngx_cpymem(p, op->leases->elts, leases);
    }

    if (op->suspect) {
        job->ask.suspect = p;
        p = ngx_cpymem(p, op->suspect, NGX_IDEMPOTENCY_DIGEST_LEN);
    }

    if (op->note.len) {
        job->ask.note.data = p;
        p = ngx_cpymem(p, op->note.data, op->note.len);
    }

    if (keep) {
        job->ask.head.data = p;
        job->ask.head.len = op->head.len;

        p = ngx_cpymem(p, op->head.data, op->head.len);

        job->body.data = p;

        for (cl = op->body; cl; cl = cl->next) {
            p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
        }

        job->body.len = p - job->body.data;
    }

    return job;
}


static size_t
ngx_idempotency_postgres_job_answer(ngx_idempotency_postgres_jobs_t *jobs,
    ngx_idempotency_op_t *op, ngx_uint_t *keep)
{
    size_t        len;
    ngx_chain_t  *cl;

    len = op->head.len;

    for (cl = op->body; cl; cl = cl->next) {
        len += cl->buf->last - cl->buf->pos;
    }

    if (jobs->bytes == 0
        || jobs->bytes + len <= NGX_IDEMPOTENCY_POSTGRES_BYTES)
    {
        return len;
    }

    /* its request was executed: that much is kept */

    ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                  "idempotency store \"%V\": an answer of %uz bytes has no "
                  "room to wait, it is not kept, only that its request was "
                  "executed", &jobs->store->name, len);

    *keep = 0;

    return 0;
}


void
ngx_idempotency_postgres_job_free(ngx_idempotency_postgres_jobs_t *jobs,
    ngx_idempotency_postgres_job_t *job)
{
    jobs->number--;
    jobs->bytes -= job->bytes;

    if (job->background) {
        ngx_idempotency_ends(jobs->store->now->background);
    }

    ngx_idempotency_postgres_job_clear(job);
    ngx_free(job);
}


void
ngx_idempotency_postgres_job_clear(ngx_idempotency_postgres_job_t *job)
{
    if (job->reply) {
        PQclear(job->reply);
        job->reply = NULL;
    }

    job->error = NGX_IDEMPOTENCY_ERROR_NONE;
    job->refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;
    job->after = 0;
}


ngx_uint_t
ngx_idempotency_postgres_job_settles(ngx_idempotency_postgres_job_t *job)
{
    return job->statement == NGX_IDEMPOTENCY_COMPLETE
           || job->statement == NGX_IDEMPOTENCY_RELEASE
           || job->statement == NGX_IDEMPOTENCY_MARK_UNKNOWN;
}


ngx_uint_t
ngx_idempotency_postgres_job_repeats(ngx_idempotency_postgres_job_t *job)
{
    switch (job->statement) {

    case NGX_IDEMPOTENCY_PROBE:
    case NGX_IDEMPOTENCY_ISSUE:
    case NGX_IDEMPOTENCY_RESOLVE:
    case NGX_IDEMPOTENCY_PURGE:

        /* a second one would be refused because of the first */

        return 0;

    default:
        return 1;
    }
}


ngx_int_t
ngx_idempotency_postgres_job_cmp(const ngx_queue_t *one,
    const ngx_queue_t *two)
{
    ngx_int_t                        rc;
    ngx_uint_t                       a, b;
    ngx_idempotency_postgres_job_t  *first, *second;

    first = ngx_queue_data(one, ngx_idempotency_postgres_job_t, queue);
    second = ngx_queue_data(two, ngx_idempotency_postgres_job_t, queue);

    a = (first->ask.suspect != NULL);
    b = (second->ask.suspect != NULL);

    if (a != b) {
        return a ? 1 : -1;
    }

    rc = a ? ngx_memcmp(first->ask.suspect, second->ask.suspect,
                        NGX_IDEMPOTENCY_DIGEST_LEN)
           : ngx_memcmp(first->ask.id.digest, second->ask.id.digest,
                        NGX_IDEMPOTENCY_DIGEST_LEN);

    return rc;
}
