
/*
 * The embedded store: its place in the configuration and its operations.
 *
 * What an operation makes of a record is decided by store/transition; here it
 * is looked up and written, with the mutex held.  An answer that is long is
 * written and read in steps, with the mutex released in between.  Anything may
 * happen to the record there: the next step looks it up again and goes on only
 * if it has the generation that the first step saw.
 */


#include "ngx_idempotency_shm.h"
#include "ngx_idempotency_shm_answer.h"
#include "ngx_idempotency_shm_expiry.h"
#include "ngx_idempotency_shm_list.h"


#define NGX_IDEMPOTENCY_SHM_MIN_PAGES  8

/* overdue records that each new key clears away */
#define NGX_IDEMPOTENCY_SHM_CLEAR      3

/* how often an operation is begun again because its record was changed */
#define NGX_IDEMPOTENCY_SHM_TRIES      8

/* leases that are renewed while the mutex is held */
#define NGX_IDEMPOTENCY_SHM_LEASES     64

/* milliseconds after which a writer that has not come to an end is dead */
#define NGX_IDEMPOTENCY_SHM_DEAD       60000


static ngx_int_t ngx_idempotency_shm_submit(ngx_idempotency_op_t *op);
static ngx_int_t ngx_idempotency_shm_run(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);
static ngx_int_t ngx_idempotency_shm_change(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);
static ngx_idempotency_shm_node_t *ngx_idempotency_shm_decide(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op, uint64_t now,
    ngx_idempotency_transition_t *t, ngx_idempotency_shm_node_t **mark);
static ngx_int_t ngx_idempotency_shm_show(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_transition_t *t);
static ngx_int_t ngx_idempotency_shm_complete(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);
static ngx_int_t ngx_idempotency_shm_complete_keep(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op, uint64_t now,
    ngx_idempotency_shm_node_t **found, ngx_idempotency_shm_writer_t *w);
static ngx_int_t ngx_idempotency_shm_renew(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);
static ngx_int_t ngx_idempotency_shm_read_answer(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op);
static ngx_int_t ngx_idempotency_shm_suspect(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);
static void ngx_idempotency_shm_suspect_keep(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);
static ngx_int_t ngx_idempotency_shm_suspect_look(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op, uint64_t now);
static void ngx_idempotency_shm_usage(ngx_idempotency_store_t *store,
    ngx_idempotency_usage_t *usage);
static void ngx_idempotency_shm_log_full(ngx_idempotency_shm_ctx_t *ctx);
static void ngx_idempotency_shm_complete_log(ngx_idempotency_shm_ctx_t *ctx);


char *
ngx_idempotency_shm_create(ngx_conf_t *cf, ngx_idempotency_store_t *store,
    ngx_str_t *args, ngx_uint_t n, void *tag)
{
    size_t                      size;
    ngx_str_t                   s;
    ngx_shm_zone_t             *shm_zone;
    ngx_idempotency_shm_ctx_t  *ctx;

    if (n > 1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store\" takes no parameter \"%V\" "
                           "with the target \"shm:SIZE\"", &args[1]);
        return NGX_CONF_ERROR;
    }

    s.data = args[0].data + 4;
    s.len = args[0].len - 4;

    size = ngx_parse_size(&s);

    if (size == (size_t) NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid size \"%V\" in \"idempotency_store\", "
                           "write it as in \"shm:10m\"", &s);
        return NGX_CONF_ERROR;
    }

    if (size < NGX_IDEMPOTENCY_SHM_MIN_PAGES * ngx_pagesize) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idempotency_store \"%V\": a zone of %uz bytes is "
                           "too small, it needs at least %uz",
                           &store->name, size,
                           NGX_IDEMPOTENCY_SHM_MIN_PAGES * ngx_pagesize);
        return NGX_CONF_ERROR;
    }

    if (ngx_idempotency_shm_check_old(cf, &store->name, size, tag)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ctx = ngx_pcalloc(cf->pool, sizeof(ngx_idempotency_shm_ctx_t));
    if (ctx == NULL) {
        return NGX_CONF_ERROR;
    }

    shm_zone = ngx_shared_memory_add(cf, &store->name, size, tag);
    if (shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (shm_zone->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idempotency_store \"%V\" is defined twice",
                           &store->name);
        return NGX_CONF_ERROR;
    }

    ctx->store = store;

    shm_zone->init = ngx_idempotency_shm_init_zone;
    shm_zone->data = ctx;

    store->kind = "shm";
    store->submit = ngx_idempotency_shm_submit;
    store->usage = ngx_idempotency_shm_usage;
    store->data = ctx;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_idempotency_shm_submit(ngx_idempotency_op_t *op)
{
    uint64_t                    now;
    ngx_int_t                   rc;
    ngx_uint_t                  i;
    ngx_idempotency_shm_ctx_t  *ctx;

    ctx = op->store->data;
    now = ngx_current_msec;

    op->error = NGX_IDEMPOTENCY_ERROR_NONE;

    for (i = 0; i < NGX_IDEMPOTENCY_SHM_TRIES; i++) {

        ngx_memzero(&op->record, sizeof(ngx_idempotency_record_t));

        rc = ngx_idempotency_shm_run(ctx, op, now);

        if (rc == NGX_AGAIN) {
            rc = ngx_idempotency_shm_read_answer(ctx, op);
        }

        if (rc == NGX_DECLINED) {
            /* the record was changed between two steps */
            continue;
        }

        if (op->error == NGX_IDEMPOTENCY_ERROR_FULL) {
            ngx_idempotency_shm_log_full(ctx);
        }

        return rc;
    }

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "idempotency store \"%V\": a record was changed again and "
                  "again during one operation", &ctx->store->name);

    op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;

    return NGX_ERROR;
}


/*
 * Returns as an operation, or NGX_AGAIN: the answer in op->record is long and
 * still to be read, or NGX_DECLINED: begin again, the record was changed.
 */

static ngx_int_t
ngx_idempotency_shm_run(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_int_t  rc;

    if (op->type == NGX_IDEMPOTENCY_RENEW) {
        return ngx_idempotency_shm_renew(ctx, op, now);
    }

    if (op->type >= NGX_IDEMPOTENCY_LIST) {
        return op->type == NGX_IDEMPOTENCY_LIST
               ? ngx_idempotency_shm_list(ctx, op, now)
               : ngx_idempotency_shm_suspect(ctx, op, now);
    }

    if (op->type == NGX_IDEMPOTENCY_COMPLETE
        || (op->type == NGX_IDEMPOTENCY_RESOLVE && op->executed))
    {
        return ngx_idempotency_shm_complete(ctx, op, now);
    }

    if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return NGX_ERROR;
    }

    if (op->type == NGX_IDEMPOTENCY_CLAIM
        || op->type == NGX_IDEMPOTENCY_ISSUE
        || op->type == NGX_IDEMPOTENCY_CANCEL)
    {
        (void) ngx_idempotency_shm_expire(ctx, now,
                                          NGX_IDEMPOTENCY_SHM_CLEAR);
    }

    rc = ngx_idempotency_shm_change(ctx, op, now);

    ngx_idempotency_shm_unlock(ctx);

    return rc;
}


/*
 * The mark of a sequence is written after the record.  A process that dies in
 * between leaves a record beyond its mark: the next claim moves the mark.
 */

static ngx_int_t
ngx_idempotency_shm_change(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_uint_t                     new_mark;
    ngx_idempotency_shm_node_t    *node, *mark;
    ngx_idempotency_transition_t   t;

    node = ngx_idempotency_shm_decide(ctx, op, now, &t, &mark);

    new_mark = (t.mark_moved && mark == NULL);

    if (new_mark) {
        mark = ngx_idempotency_shm_mark_insert(ctx, op->id.digest, &t.mark,
                                               now);
        if (mark == NULL) {
            op->error = NGX_IDEMPOTENCY_ERROR_FULL;
            return NGX_ERROR;
        }
    }

    if (t.change != NGX_IDEMPOTENCY_UNCHANGED) {

        if (node) {
            ngx_idempotency_shm_write(ctx, node, &t.stored, t.change);

        } else {
            node = ngx_idempotency_shm_insert(ctx, op->id.digest, &t.stored,
                                              now);
        }

        /* a key that is released is free, with or without a stub */

        if (node == NULL && op->type != NGX_IDEMPOTENCY_RELEASE) {

            if (new_mark) {
                ngx_idempotency_shm_remove(ctx, mark);
            }

            op->error = NGX_IDEMPOTENCY_ERROR_FULL;
            return NGX_ERROR;
        }

        if (node && (node->note || t.stored.note.len)) {
            ngx_idempotency_shm_note_write(ctx, node, &t.stored.note);
        }
    }

    if (t.mark_moved) {
        ngx_idempotency_shm_mark_write(mark, &t.mark);
    }

    return ngx_idempotency_shm_show(op, node, &t);
}


/* finds the record and its mark; nothing is written yet */

static ngx_idempotency_shm_node_t *
ngx_idempotency_shm_decide(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now, ngx_idempotency_transition_t *t,
    ngx_idempotency_shm_node_t **mark)
{
    struct timeval               tv;
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_find(ctx, op->id.digest, &t->stored, now);

    *mark = NULL;

    if (op->type == NGX_IDEMPOTENCY_RELEASE
        || op->type == NGX_IDEMPOTENCY_RESOLVE
        || op->type == NGX_IDEMPOTENCY_PURGE
        || (op->type == NGX_IDEMPOTENCY_CLAIM
            && (op->flags & NGX_IDEMPOTENCY_SEQUENCE)))
    {
        *mark = ngx_idempotency_shm_mark_find(ctx, op->id.digest, &t->mark,
                                              now);

    } else {
        ngx_memzero(&t->mark, sizeof(ngx_idempotency_mark_t));
    }

    t->op = op;
    t->now = now;
    t->time = ngx_time();
    t->fence = ctx->sh->fence + 1;

    if (node == NULL || op->type != NGX_IDEMPOTENCY_COMPLETE) {
        ngx_gettimeofday(&tv);
        t->fence = ngx_max(t->fence,
                           (uint64_t) tv.tv_sec * 1000000 + tv.tv_usec);
    }

    ngx_idempotency_transition(t);

    return node;
}


/* NGX_AGAIN: the answer is long, it is read in steps */

static ngx_int_t
ngx_idempotency_shm_show(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_transition_t *t)
{
    u_char                        *p;
    size_t                         len;
    ngx_idempotency_record_t      *record;
    ngx_idempotency_shm_reader_t   r;

    op->result = t->result;

    if (t->result == NGX_IDEMPOTENCY_OUT_OF_ORDER) {
        op->expects = t->expects;
        op->expected = t->expected;

        return NGX_OK;
    }

    record = &op->record;

    ngx_idempotency_transition_show(&t->stored, t->now, record);

    /* a renewal has no pool, and nobody looks at its record */

    if (t->change == NGX_IDEMPOTENCY_UNCHANGED && node && node->note
        && op->type != NGX_IDEMPOTENCY_RENEW)
    {
        record->note.len = t->stored.note.len;
        record->note.data = ngx_pstrdup(op->pool, &t->stored.note);

        if (record->note.data == NULL) {
            op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
            return NGX_ERROR;
        }
    }

    if (!t->answer || !record->kept) {
        return NGX_OK;
    }

    record->head.len = node->head_len;
    record->body.len = node->body_len;

    len = record->head.len + record->body.len;

    if (len > NGX_IDEMPOTENCY_SHM_STEP) {
        return NGX_AGAIN;
    }

    p = ngx_pnalloc(op->pool, len);
    if (p == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    record->head.data = p;
    record->body.data = p + record->head.len;

    ngx_idempotency_shm_answer_read_start(node, &r, p);

    if (ngx_idempotency_shm_answer_read(&r) != NGX_OK) {
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * Reads a long answer, with the mutex held for a part of it at a time.
 * NGX_DECLINED: begin again, the record was changed meanwhile.
 */

static ngx_int_t
ngx_idempotency_shm_read_answer(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op)
{
    u_char                        *p;
    ngx_int_t                      rc;
    ngx_idempotency_record_t      *record;
    ngx_idempotency_shm_node_t    *node;
    ngx_idempotency_shm_reader_t   r;

    record = &op->record;

    p = ngx_palloc(op->pool, record->head.len + record->body.len);
    if (p == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    record->head.data = p;
    record->body.data = p + record->head.len;

    do {

        if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
            op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
            return NGX_ERROR;
        }

        rc = NGX_DECLINED;
        node = ngx_idempotency_shm_lookup(ctx, op->id.digest);

        if (p) {

            /* the fence names the answer: another one has another fence */

            if (node
                && node->state == NGX_IDEMPOTENCY_DONE
                && node->fence == record->fence
                && node->head_len == record->head.len
                && node->body_len == record->body.len)
            {
                ngx_idempotency_shm_answer_read_start(node, &r, p);
                rc = ngx_idempotency_shm_answer_read(&r);
                p = NULL;
            }

        } else if (node && node->generation == r.generation) {
            rc = ngx_idempotency_shm_answer_read(&r);
        }

        ngx_idempotency_shm_unlock(ctx);

        ngx_idempotency_shm_gap();

    } while (rc == NGX_AGAIN);

    if (rc == NGX_DECLINED) {
        ngx_pfree(op->pool, record->head.data);
    }

    if (rc == NGX_ERROR) {
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
    }

    return rc;
}


/* a resolve as executed, too */

static ngx_int_t
ngx_idempotency_shm_complete(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_int_t                      rc;
    ngx_idempotency_stored_t       lost;
    ngx_idempotency_shm_node_t    *node, *mark;
    ngx_idempotency_transition_t   t;
    ngx_idempotency_shm_writer_t   w;

    if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return NGX_ERROR;
    }

    node = ngx_idempotency_shm_decide(ctx, op, now, &t, &mark);

    if (t.change == NGX_IDEMPOTENCY_UNCHANGED) {
        rc = ngx_idempotency_shm_show(op, node, &t);
        ngx_idempotency_shm_unlock(ctx);

        return rc;
    }

    if (node == NULL) {

        /* until its answer is written it is executing, as it was when lost */

        lost = t.stored;
        lost.state = NGX_IDEMPOTENCY_EXECUTING;

        node = ngx_idempotency_shm_insert(ctx, op->id.digest, &lost, now);
        if (node == NULL) {
            ngx_idempotency_shm_unlock(ctx);

            op->error = NGX_IDEMPOTENCY_ERROR_FULL;
            return NGX_ERROR;
        }
    }

    rc = ngx_idempotency_shm_complete_keep(ctx, op, now, &node, &w);

    if (rc == NGX_ERROR) {
        /* the mutex is not held */
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return NGX_ERROR;
    }

    if (rc == NGX_BUSY) {
        ngx_idempotency_shm_unlock(ctx);
        return NGX_DECLINED;
    }

    /* rc == NGX_OK, or NGX_DECLINED: the answer is not kept */

    if (rc == NGX_OK) {
        node->kept = 1;
        node->head_len = (uint32_t) w.head_len;
        node->body_len = (uint32_t) w.body_len;

    } else {
        t.stored.kept = 0;
    }

    ngx_idempotency_shm_write(ctx, node, &t.stored, t.change);

    if (node->note || t.stored.note.len) {
        ngx_idempotency_shm_note_write(ctx, node, &t.stored.note);
    }

    (void) ngx_idempotency_shm_show(op, node, &t);

    ngx_idempotency_shm_unlock(ctx);

    if (op->keep && rc == NGX_DECLINED) {
        ngx_idempotency_shm_complete_log(ctx);
    }

    return NGX_OK;
}


/*
 * Writes the answer beside the record.  NGX_DECLINED: not to be kept, or no
 * room; NGX_BUSY: the record was changed; NGX_ERROR: the zone is broken and
 * the mutex is not held.
 */

static ngx_int_t
ngx_idempotency_shm_complete_keep(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now, ngx_idempotency_shm_node_t **found,
    ngx_idempotency_shm_writer_t *w)
{
    size_t        len;
    ngx_int_t     rc;
    ngx_chain_t  *cl;

    if (!op->keep) {
        return NGX_DECLINED;
    }

    len = 0;

    for (cl = op->body; cl; cl = cl->next) {
        len += cl->buf->last - cl->buf->pos;
    }

    if (op->head.len + len > NGX_MAX_UINT32_VALUE) {
        return NGX_DECLINED;
    }

    if ((*found)->expire.key <= now) {

        /* it must not expire before its answer is written */

        ngx_idempotency_shm_expiry_move(ctx, *found,
                                        ngx_idempotency_shm_due(*found));
    }

    ngx_idempotency_shm_answer_write_start(ctx, *found, w, &op->head,
                                           op->body, len);

    for ( ;; ) {

        rc = ngx_idempotency_shm_answer_write(ctx, *found, w, now);

        if (rc != NGX_AGAIN) {
            return rc;
        }

        /* if we die now, what is written so far is freed then */

        ngx_idempotency_shm_expiry_move(ctx, *found,
                                        now + NGX_IDEMPOTENCY_SHM_DEAD);

        ngx_idempotency_shm_unlock(ctx);

        ngx_idempotency_shm_gap();

        if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        *found = ngx_idempotency_shm_lookup(ctx, op->id.digest);

        if (*found == NULL || (*found)->generation != w->generation) {
            return NGX_BUSY;
        }
    }
}


static ngx_int_t
ngx_idempotency_shm_renew(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_int_t                 rc;
    ngx_uint_t                i, n;
    ngx_idempotency_op_t      one;
    ngx_idempotency_lease_t  *lease;

    rc = NGX_OK;
    lease = op->leases->elts;

    for (i = 0; i < op->leases->nelts; i++) {
        lease[i].result = NGX_IDEMPOTENCY_REFUSED;
    }

    ngx_memzero(&one, sizeof(ngx_idempotency_op_t));

    one.type = NGX_IDEMPOTENCY_RENEW;

    for (i = 0; i < op->leases->nelts; /* void */ ) {

        if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
            op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
            return NGX_ERROR;
        }

        n = ngx_min(i + NGX_IDEMPOTENCY_SHM_LEASES, op->leases->nelts);

        for ( /* void */ ; i < n; i++) {
            one.id = lease[i].id;
            one.fence = lease[i].fence;
            one.lease = lease[i].lease;
            one.ttl = lease[i].keep;

            if (ngx_idempotency_shm_change(ctx, &one, now) == NGX_OK) {
                lease[i].result = one.result;

            } else {
                op->error = one.error;
                rc = NGX_ERROR;
            }
        }

        ngx_idempotency_shm_unlock(ctx);
    }

    op->result = NGX_IDEMPOTENCY_OK;

    return rc;
}


static ngx_int_t
ngx_idempotency_shm_suspect(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_int_t  rc;

    if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return NGX_ERROR;
    }

    rc = NGX_OK;

    if (op->type == NGX_IDEMPOTENCY_SUSPECT_KEEP) {
        ngx_idempotency_shm_suspect_keep(ctx, op, now);

    } else {
        rc = ngx_idempotency_shm_suspect_look(ctx, op, now);
    }

    ngx_idempotency_shm_unlock(ctx);

    return rc;
}


static void
ngx_idempotency_shm_suspect_keep(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_idempotency_last_t       last;
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_last_find(ctx, op->suspect, &last, now);

    if (node == NULL
        || ngx_memcmp(last.owner, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN)
           != 0)
    {
        op->result = NGX_IDEMPOTENCY_REFUSED;
        return;
    }

    if (op->ttl == 0) {
        ngx_idempotency_shm_remove(ctx, node);

    } else {
        node->lease = now + (uint64_t) op->ttl * 1000;
        ngx_idempotency_shm_expiry_move(ctx, node, node->lease);
    }

    op->result = NGX_IDEMPOTENCY_OK;
}


static ngx_int_t
ngx_idempotency_shm_suspect_look(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_idempotency_last_t       last;
    ngx_idempotency_stored_t     stored;
    ngx_idempotency_shm_node_t  *node;

    if (ngx_idempotency_shm_find(ctx, op->id.digest, &stored, now) == NULL
        || stored.state != NGX_IDEMPOTENCY_EXECUTING
        || ngx_memcmp(stored.owner, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN)
           != 0)
    {
        op->result = NGX_IDEMPOTENCY_REFUSED;
        return NGX_OK;
    }

    node = ngx_idempotency_shm_last_find(ctx, op->suspect, &last, now);

    if (node) {
        (void) ngx_idempotency_shm_find(ctx, last.record, &stored, now);
    }

    if (!ngx_idempotency_transition_suspect(op, node ? &last : NULL, &stored,
                                            now, &op->result, &op->record))
    {
        return NGX_OK;
    }

    ngx_memcpy(last.record, op->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(last.owner, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);

    last.made = now;
    last.until = now + (uint64_t) op->ttl * 1000;

    if (ngx_idempotency_shm_last_write(ctx, node, op->suspect, &last, now)
        != NGX_OK)
    {
        op->error = NGX_IDEMPOTENCY_ERROR_FULL;
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* read without the mutex: numbers for people may be a moment old */

static void
ngx_idempotency_shm_usage(ngx_idempotency_store_t *store,
    ngx_idempotency_usage_t *usage)
{
    ngx_idempotency_shm_ctx_t  *ctx;

    ctx = store->data;

    usage->size = ctx->shpool->end - (u_char *) ctx->shpool;
    usage->free = ctx->shpool->pfree * ngx_pagesize;
    usage->records = ctx->sh->number
                     - ctx->sh->states[NGX_IDEMPOTENCY_SHM_LAST];
    usage->executing = ctx->sh->states[NGX_IDEMPOTENCY_EXECUTING];
    usage->unknown = ctx->sh->states[NGX_IDEMPOTENCY_UNKNOWN];
    usage->record = sizeof(ngx_idempotency_shm_node_t);
    usage->broken = (ctx->sh->dirty == NGX_IDEMPOTENCY_SHM_BROKEN);
}


static void
ngx_idempotency_shm_log_full(ngx_idempotency_shm_ctx_t *ctx)
{
    if (ctx->full_logged == ngx_time()) {
        return;
    }

    ctx->full_logged = ngx_time();

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\" is full, new keys are refused: "
                  "make its zone larger or the ttl shorter",
                  &ctx->store->name);
}


static void
ngx_idempotency_shm_complete_log(ngx_idempotency_shm_ctx_t *ctx)
{
    if (ctx->lost_logged == ngx_time()) {
        return;
    }

    ctx->lost_logged = ngx_time();

    ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                  "idempotency store \"%V\" has no room for an answer, its "
                  "duplicates will be refused: make the zone larger or the "
                  "ttl shorter", &ctx->store->name);
}
