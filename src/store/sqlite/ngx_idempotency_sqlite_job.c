
/*
 * The durable store: jobs, what they report, and what is cached of them.
 */


#include "ngx_idempotency_sqlite_job.h"
#include "ngx_idempotency_cache.h"


/* bytes of answers that may wait */
#define NGX_IDEMPOTENCY_SQLITE_BYTES    (64 * 1024 * 1024)


static ngx_int_t ngx_idempotency_sqlite_report_answer(
    ngx_idempotency_op_t *op, ngx_idempotency_sqlite_job_t *job);
static void ngx_idempotency_sqlite_free(void *data);
static ngx_int_t ngx_idempotency_sqlite_report_list(ngx_idempotency_op_t *op,
    ngx_idempotency_sqlite_job_t *job);


ngx_idempotency_sqlite_job_t *
ngx_idempotency_sqlite_job_create(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_op_t *op)
{
    u_char                        *p;
    size_t                         len, fixed;
    ngx_uint_t                     keep;
    ngx_chain_t                   *cl;
    ngx_idempotency_sqlite_job_t  *job;

    len = 0;
    fixed = op->note.len;
    keep = op->keep;

    if (op->leases) {
        fixed += op->leases->nelts * sizeof(ngx_idempotency_lease_t);
    }

    if (op->suspect) {
        fixed += NGX_IDEMPOTENCY_DIGEST_LEN;
    }

    if (op->list) {
        fixed += op->list->digits.len;
    }

    if (keep) {
        len = op->head.len;

        for (cl = op->body; cl; cl = cl->next) {
            len += cl->buf->last - cl->buf->pos;
        }

        if (ctx->bytes && ctx->bytes + len > NGX_IDEMPOTENCY_SQLITE_BYTES) {

            /* its request was executed: that much is kept */

            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "idempotency store \"%V\": an answer of %uz bytes "
                          "has no room to wait, it is not kept, only that its "
                          "request was executed", &ctx->store->name, len);
            len = 0;
            keep = 0;
        }
    }

    job = ngx_alloc(sizeof(ngx_idempotency_sqlite_job_t) + fixed + len,
                    ngx_cycle->log);
    if (job == NULL) {
        return NULL;
    }

    ngx_memzero(job, sizeof(ngx_idempotency_sqlite_job_t));

    job->op = op;
    job->deadline = ngx_current_msec + ctx->timeout;
    job->bytes = len;
    job->ask = *op;
    job->ask.keep = keep;
    job->ask.body = NULL;
    job->ask.leases = NULL;
    job->ask.list = NULL;

    ngx_str_null(&job->ask.head);

    p = (u_char *) (job + 1);

    if (op->leases) {
        job->leases = (ngx_idempotency_lease_t *) p;
        job->nleases = op->leases->nelts;
        p = ngx_cpymem(p, op->leases->elts,
                       job->nleases * sizeof(ngx_idempotency_lease_t));
    }

    if (op->list) {
        job->list.state = op->list->state;
        job->list.digits.data = p;
        job->list.digits.len = op->list->digits.len;
        p = ngx_cpymem(p, op->list->digits.data, op->list->digits.len);
    }

    if (op->note.len) {
        job->ask.note.data = p;
        p = ngx_cpymem(p, op->note.data, op->note.len);
    }

    if (op->suspect) {
        job->ask.suspect = p;
        p = ngx_cpymem(p, op->suspect, NGX_IDEMPOTENCY_DIGEST_LEN);
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

    ctx->number++;
    ctx->bytes += len;

    return job;
}


void
ngx_idempotency_sqlite_job_free(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    ctx->number--;
    ctx->bytes -= job->bytes;

    if (job->background) {
        ngx_idempotency_ends(ctx->store->now->background);
    }

    if (ctx->stopping && job->op && job->op->detached) {
        job->op->pending = 0;
        ngx_idempotency_op_drop(job->op);
    }

    ngx_idempotency_sqlite_job_clear(job);
    ngx_free(job);
}


void
ngx_idempotency_sqlite_job_clear(ngx_idempotency_sqlite_job_t *job)
{
    if (job->answer) {
        ngx_free(job->answer);
        job->answer = NULL;
    }

    if (job->entries) {
        ngx_free(job->entries);
        job->entries = NULL;
    }

    if (job->note) {
        ngx_free(job->note);
        job->note = NULL;
    }

    job->nentries = 0;
    job->seen = 0;
    job->expects = 0;
    job->more = 0;
    job->unsure = 0;
    job->again = 0;
    job->result = NGX_IDEMPOTENCY_OK;
    job->error = NGX_IDEMPOTENCY_ERROR_NONE;
    job->refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;

    ngx_memzero(&job->record, sizeof(ngx_idempotency_record_t));
}


ngx_uint_t
ngx_idempotency_sqlite_settles(ngx_idempotency_sqlite_job_t *job)
{
    return job->ask.type == NGX_IDEMPOTENCY_COMPLETE
           || job->ask.type == NGX_IDEMPOTENCY_RELEASE
           || job->ask.type == NGX_IDEMPOTENCY_MARK_UNKNOWN;
}


void
ngx_idempotency_sqlite_report(ngx_idempotency_op_t *op,
    ngx_idempotency_sqlite_job_t *job)
{
    ngx_int_t  rc;

    op->result = job->result;
    op->error = job->error;
    op->refusal = job->refusal;
    op->record = job->record;
    op->expects = job->expects;
    op->expected = job->expected;
    op->unsure = job->unsure;

    if (job->nleases) {
        ngx_memcpy(op->leases->elts, job->leases,
                   job->nleases * sizeof(ngx_idempotency_lease_t));
    }

    rc = NGX_OK;

    if (job->note) {
        op->record.note.data = ngx_pstrdup(op->pool, &job->record.note);
        if (op->record.note.data == NULL) {
            op->record.note.len = 0;
        }
    }

    if (job->answer) {
        rc = ngx_idempotency_sqlite_report_answer(op, job);
    }

    if (op->list && op->error == NGX_IDEMPOTENCY_ERROR_NONE) {
        rc = ngx_idempotency_sqlite_report_list(op, job);
    }

    if (rc != NGX_OK) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;

        ngx_str_null(&op->record.head);
        ngx_str_null(&op->record.body);
    }
}


/* the memory that the thread has filled is the pool's from now on */

static ngx_int_t
ngx_idempotency_sqlite_report_answer(ngx_idempotency_op_t *op,
    ngx_idempotency_sqlite_job_t *job)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(op->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_idempotency_sqlite_free;
    cln->data = job->answer;

    job->answer = NULL;

    return NGX_OK;
}


static void
ngx_idempotency_sqlite_free(void *data)
{
    ngx_free(data);
}


static ngx_int_t
ngx_idempotency_sqlite_report_list(ngx_idempotency_op_t *op,
    ngx_idempotency_sqlite_job_t *job)
{
    ngx_str_t                *note;
    ngx_uint_t                i;
    ngx_idempotency_list_t   *list;
    ngx_idempotency_entry_t  *entries;

    list = op->list;

    list->seen += job->seen;
    list->cursor.len = 0;

    if (job->more) {
        (void) ngx_hex_dump(list->text, job->cursor,
                            NGX_IDEMPOTENCY_DIGEST_LEN);
        list->cursor.len = 2 * NGX_IDEMPOTENCY_DIGEST_LEN;
    }

    if (job->nentries == 0) {
        return NGX_OK;
    }

    entries = ngx_array_push_n(&list->entries, job->nentries);
    if (entries == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(entries, job->entries,
               job->nentries * sizeof(ngx_idempotency_entry_t));

    for (i = 0; i < job->nentries; i++) {
        note = &entries[i].record.note;

        if (note->len) {
            note->data = ngx_pstrdup(op->pool, note);
            if (note->data == NULL) {
                list->entries.nelts -= job->nentries;
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


/* what is cached: the record, the length of the head, head and body */

ngx_int_t
ngx_idempotency_sqlite_cache_claim(ngx_idempotency_op_t *op)
{
    u_char                        *p;
    uint32_t                       head;
    ngx_idempotency_stored_t       stored;
    ngx_idempotency_cached_t       cached;
    ngx_idempotency_sqlite_ctx_t  *ctx;

    ctx = op->store->data;

    if (ctx->cache == NULL
        || !ngx_idempotency_op_reads_answer(op)
        || ngx_idempotency_cache_get(ctx->cache, op->id.digest, 0, op->pool,
                                     &cached)
           != NGX_OK)
    {
        return NGX_DECLINED;
    }

    p = cached.value.data;

    ngx_memcpy(&stored, p, sizeof(ngx_idempotency_stored_t));
    p += sizeof(ngx_idempotency_stored_t);

    ngx_memcpy(&head, p, sizeof(uint32_t));
    p += sizeof(uint32_t);

    cached.now += ngx_current_msec - cached.asked;

    ngx_idempotency_transition_time(&stored, cached.now);

    if (!stored.exists || stored.state != NGX_IDEMPOTENCY_DONE) {
        return NGX_DECLINED;
    }

    ngx_memzero(&op->record, sizeof(ngx_idempotency_record_t));
    ngx_idempotency_transition_show(&stored, cached.now, &op->record);

    op->record.head.data = p;
    op->record.head.len = head;
    op->record.body.data = p + head;
    op->record.body.len = cached.value.data + cached.value.len - p - head;

    op->result = op->type == NGX_IDEMPOTENCY_CLAIM ? NGX_IDEMPOTENCY_EXISTS
                                                   : NGX_IDEMPOTENCY_OK;

    ngx_idempotency_count(ctx->store->counts->cached);

    return NGX_OK;
}


void
ngx_idempotency_sqlite_cache_put(ngx_idempotency_sqlite_ctx_t *ctx,
    ngx_idempotency_sqlite_job_t *job)
{
    u_char                    *p;
    uint32_t                   head;
    ngx_idempotency_cached_t   cached;

    if (ctx->cache == NULL || job->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return;
    }

    if (job->ask.type == NGX_IDEMPOTENCY_PURGE
        && job->result == NGX_IDEMPOTENCY_OK)
    {
        ngx_idempotency_cache_purge(ctx->cache);
        return;
    }

    if (!ngx_idempotency_op_reads_answer(&job->ask)
        || job->record.state != NGX_IDEMPOTENCY_DONE
        || job->answer == NULL)
    {
        return;
    }

    head = (uint32_t) job->record.head.len;

    cached.asked = job->ask.submitted;
    cached.now = job->now;
    cached.value.len = sizeof(ngx_idempotency_stored_t) + sizeof(uint32_t)
                       + head + job->record.body.len;
    cached.value.data = ngx_alloc(cached.value.len, ngx_cycle->log);
    if (cached.value.data == NULL) {
        return;
    }

    p = ngx_cpymem(cached.value.data, &job->stored,
                   sizeof(ngx_idempotency_stored_t));
    p = ngx_cpymem(p, &head, sizeof(uint32_t));

    ngx_memcpy(p, job->record.head.data, head + job->record.body.len);

    ngx_idempotency_cache_put(ctx->cache, job->ask.id.digest, &cached);

    ngx_free(cached.value.data);
}
