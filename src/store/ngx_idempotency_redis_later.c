
/*
 * The store in Redis: what is asked again, and what goes on behind the
 * requests until it has landed.
 */


#include "ngx_idempotency_redis_op.h"


/* of answers; what is told without one needs some hundred bytes */
#define NGX_IDEMPOTENCY_REDIS_LATER_BYTES   (16 * 1024 * 1024)
#define NGX_IDEMPOTENCY_REDIS_LATER_NUMBER  10000

/* an answer of so many bytes is given up after so many time-outs */
#define NGX_IDEMPOTENCY_REDIS_LATER_LARGE   (64 * 1024)
#define NGX_IDEMPOTENCY_REDIS_LATER_TRIES   3

/* how often what could not be sent is looked at, milliseconds */
#define NGX_IDEMPOTENCY_REDIS_LATER_CLAIM   50
#define NGX_IDEMPOTENCY_REDIS_LATER_TICK    500

/* sent at once */
#define NGX_IDEMPOTENCY_REDIS_LATER_BATCH   256


static ngx_idempotency_redis_op_t *ngx_idempotency_redis_later_copy(
    ngx_idempotency_op_t *op, ngx_idempotency_op_e type, ngx_uint_t keep);
static size_t ngx_idempotency_redis_later_answer(ngx_idempotency_op_t *op);
static void ngx_idempotency_redis_later_bare(ngx_idempotency_redis_ctx_t *ctx,
    size_t size, const char *why);
static void ngx_idempotency_redis_later_put(ngx_idempotency_redis_op_t *rop,
    ngx_msec_t delay);
static void ngx_idempotency_redis_later_tick(ngx_event_t *ev);
static void ngx_idempotency_redis_later_look(ngx_idempotency_redis_ctx_t *ctx);
static void ngx_idempotency_redis_later_give_up(
    ngx_idempotency_redis_ctx_t *ctx, size_t least);
static void ngx_idempotency_redis_later_next(ngx_idempotency_redis_ctx_t *ctx);


void
ngx_idempotency_redis_later_init(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_event_t              *ev;

    static ngx_connection_t   dumb;

    dumb.fd = (ngx_socket_t) -1;

    ngx_queue_init(&ctx->later.queue);

    ev = &ctx->later.timer;

    ngx_memzero(ev, sizeof(ngx_event_t));

    ev->handler = ngx_idempotency_redis_later_tick;
    ev->data = &dumb;
    ev->log = ngx_cycle->log;
}


void
ngx_idempotency_redis_later_stop(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_queue_t  *q;

    if (ctx->later.timer.timer_set) {
        ngx_del_timer(&ctx->later.timer);
    }

    while (!ngx_queue_empty(&ctx->later.queue)) {

        q = ngx_queue_head(&ctx->later.queue);
        ngx_queue_remove(q);

        ngx_idempotency_redis_op_abandon(
                      ngx_queue_data(q, ngx_idempotency_redis_op_t, queue));
    }
}


void
ngx_idempotency_redis_later_again(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    if (ngx_idempotency_redis_op_send(rop) == NGX_AGAIN) {
        ngx_idempotency_count(ctx->store->counts->retries);
        return;
    }

    ngx_idempotency_redis_later_put(rop, NGX_IDEMPOTENCY_REDIS_LATER_CLAIM);
}


void
ngx_idempotency_redis_later_add(ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type)
{
    size_t                          size;
    ngx_uint_t                      keep;
    ngx_idempotency_redis_op_t     *rop;
    ngx_idempotency_redis_ctx_t    *ctx;
    ngx_idempotency_redis_later_t  *later;

    ctx = op->store->data;
    later = &ctx->later;

    rop = NULL;
    size = ngx_idempotency_redis_later_answer(op);
    keep = (size && later->bytes + size <= NGX_IDEMPOTENCY_REDIS_LATER_BYTES);

    if (later->number < NGX_IDEMPOTENCY_REDIS_LATER_NUMBER) {
        rop = ngx_idempotency_redis_later_copy(op, type, keep);

        if (rop == NULL && keep) {
            keep = 0;
            rop = ngx_idempotency_redis_later_copy(op, type, keep);
        }
    }

    if (rop == NULL) {

        ngx_idempotency_count(ctx->store->counts->dropped);

        if (later->dropped++ == 0) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "idempotency store \"%V\" is away and too many "
                          "outcomes wait in background: further ones become "
                          "unknown",
                          &ctx->store->name);
        }

        return;
    }

    ngx_idempotency_begins(ctx->store->now->later);

    if (later->number++ == 0) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\": could not store the outcome "
                      "of a request, retrying in background",
                      &ctx->store->name);
    }

    later->bytes += ngx_idempotency_redis_later_answer(rop->op);

    if (size && !keep) {
        ngx_idempotency_redis_later_bare(ctx, size, "has no room to wait");
    }

    ngx_idempotency_op_debug(rop->op, "to be retried in background");

    ngx_idempotency_redis_later_put(rop, NGX_IDEMPOTENCY_REDIS_LATER_TICK);
}


/* an operation of its own: the caller frees the one that failed */

static ngx_idempotency_redis_op_t *
ngx_idempotency_redis_later_copy(ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type, ngx_uint_t keep)
{
    ngx_idempotency_op_t        *copy;
    ngx_idempotency_redis_op_t  *rop;

    copy = ngx_idempotency_op_create(op->store, type);
    if (copy == NULL) {
        return NULL;
    }

    ngx_memcpy(copy->digest, op->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(copy->owner, op->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(copy->fingerprint, op->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    copy->flags = op->flags & NGX_IDEMPOTENCY_REDIS_LATER_FLAGS;
    copy->number = op->number;
    copy->epoch = op->epoch;
    copy->connection = op->connection;

    if (type == op->type) {
        copy->fence = op->fence;
    }

    copy->lease = op->lease;
    copy->ttl = op->ttl;
    copy->tombstone = op->tombstone;
    copy->status = op->status;

    rop = op->own;

    /* what op points to may be gone, its arguments are not */

    return ngx_idempotency_redis_later_make(copy,
                       keep ? &rop->args[NGX_IDEMPOTENCY_REDIS_ARGS - 1]
                            : NULL,
                       op->head.len);
}


ngx_idempotency_redis_op_t *
ngx_idempotency_redis_later_make(ngx_idempotency_op_t *op, ngx_str_t *answer,
    size_t head)
{
    ngx_buf_t                    b;
    ngx_chain_t                  cl;
    ngx_idempotency_redis_op_t  *rop;

    if (answer) {
        op->keep = 1;
        op->head.data = answer->data;
        op->head.len = head;

        ngx_memzero(&b, sizeof(ngx_buf_t));

        b.pos = answer->data + head;
        b.last = answer->data + answer->len;

        cl.buf = &b;
        cl.next = NULL;

        op->body = &cl;
        op->body_len = b.last - b.pos;
    }

    rop = ngx_idempotency_redis_op_create(op, NULL);

    op->body = NULL;
    op->head.data = NULL;

    if (rop == NULL) {
        ngx_idempotency_op_drop(op);
        return NULL;
    }

    rop->later = 1;

    return rop;
}


ngx_uint_t
ngx_idempotency_redis_later_has_room(ngx_idempotency_redis_ctx_t *ctx,
    size_t answer)
{
    return ctx->later.number < NGX_IDEMPOTENCY_REDIS_LATER_NUMBER
           && (answer == 0
               || ctx->later.bytes + answer
                  <= NGX_IDEMPOTENCY_REDIS_LATER_BYTES);
}


void
ngx_idempotency_redis_later_adopt(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    ngx_idempotency_begins(ctx->store->now->later);

    ctx->later.number++;
    ctx->later.bytes += ngx_idempotency_redis_later_answer(rop->op);

    ngx_idempotency_op_debug(rop->op, "was left by a worker that has exited");

    ngx_idempotency_redis_later_put(rop, NGX_IDEMPOTENCY_REDIS_LATER_TICK);
}


/* the bytes of its answer, 0: there is none to keep */

static size_t
ngx_idempotency_redis_later_answer(ngx_idempotency_op_t *op)
{
    ngx_idempotency_redis_op_t  *rop;

    if (op->type != NGX_IDEMPOTENCY_COMPLETE || !op->keep) {
        return 0;
    }

    rop = op->own;

    return rop->args[NGX_IDEMPOTENCY_REDIS_ARGS - 1].len;
}


static void
ngx_idempotency_redis_later_bare(ngx_idempotency_redis_ctx_t *ctx,
    size_t size, const char *why)
{
    if (ctx->later.bare++) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                  "idempotency store \"%V\": an answer of %uz bytes %s, it is "
                  "not kept, only that its request was executed",
                  &ctx->store->name, size, why);
}


/*
 * An exiting worker waits for claims, which have a deadline, and for some time
 * for what has none.
 */

static void
ngx_idempotency_redis_later_put(ngx_idempotency_redis_op_t *rop,
    ngx_msec_t delay)
{
    ngx_event_t                  *ev;
    ngx_msec_int_t                left;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;
    ev = &ctx->later.timer;

    ngx_queue_insert_tail(&ctx->later.queue, &rop->queue);

    if (!rop->later) {
        left = (ngx_msec_int_t) (rop->deadline - ngx_current_msec);
        delay = ngx_min(delay, (ngx_msec_t) ngx_max(left, 1));
    }

    if (ev->timer_set) {

        if (rop->later
            || (!ev->cancelable
                && (ngx_msec_int_t) (ev->timer.key - ngx_current_msec)
                   <= (ngx_msec_int_t) delay))
        {
            return;
        }

        ngx_del_timer(ev);
    }

    ev->cancelable = rop->later
                     && ngx_idempotency_redis_handover_is_due(ctx);

    ngx_add_timer(ev, delay);
}


static void
ngx_idempotency_redis_later_tick(ngx_event_t *ev)
{
    ngx_idempotency_redis_later_t  *later;

    later = (ngx_idempotency_redis_later_t *)
                ((u_char *) ev - offsetof(ngx_idempotency_redis_later_t,
                                          timer));

    ngx_idempotency_redis_later_look((ngx_idempotency_redis_ctx_t *)
                ((u_char *) later - offsetof(ngx_idempotency_redis_ctx_t,
                                             later)));
}


void
ngx_idempotency_redis_later_ready(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_idempotency_redis_later_look(ctx);
}


static void
ngx_idempotency_redis_later_look(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_uint_t                   n, most, large;
    ngx_queue_t                 *q, queue;
    ngx_idempotency_redis_op_t  *rop;

    if (ngx_queue_empty(&ctx->later.queue)) {
        return;
    }

    /* whatever cannot be sent is put back */

    ngx_queue_init(&queue);
    ngx_queue_add(&queue, &ctx->later.queue);
    ngx_queue_init(&ctx->later.queue);

    n = 0;
    most = NGX_IDEMPOTENCY_REDIS_LATER_BATCH;

    if (!ngx_idempotency_redis_is_up(&ctx->redis)) {

        /*
         * an exiting worker does not connect by itself, as its connections
         * are closed while they are idle: one command makes it try
         */

        most = ngx_exiting ? 1 : 0;
    }

    while (!ngx_queue_empty(&queue)) {

        q = ngx_queue_head(&queue);
        ngx_queue_remove(q);

        rop = ngx_queue_data(q, ngx_idempotency_redis_op_t, queue);

        if (!rop->later
            && (ngx_msec_int_t) (rop->deadline - ngx_current_msec) <= 0)
        {
            ngx_idempotency_redis_op_fail(rop, NGX_IDEMPOTENCY_ERROR_TIMEOUT);
            continue;
        }

        /* one large answer at a time: each has its timeout for itself */

        large = (ngx_idempotency_redis_later_answer(rop->op)
                 >= NGX_IDEMPOTENCY_REDIS_LATER_LARGE);

        if (n < most
            && !(large && ctx->later.busy)
            && ngx_idempotency_redis_op_send(rop) == NGX_AGAIN)
        {
            n++;
            ctx->later.busy |= large;
            ngx_idempotency_count(ctx->store->counts->retries);
            continue;
        }

        ngx_idempotency_redis_later_put(rop,
                                        rop->later
                                        ? NGX_IDEMPOTENCY_REDIS_LATER_TICK
                                        : NGX_IDEMPOTENCY_REDIS_LATER_CLAIM);
    }

    if (ngx_queue_empty(&ctx->later.queue) && ctx->later.timer.timer_set) {

        /* an exiting worker would stay for it */

        ngx_del_timer(&ctx->later.timer);
    }
}


void
ngx_idempotency_redis_later_failed(ngx_idempotency_redis_op_t *rop)
{
    size_t                        size;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;
    size = ngx_idempotency_redis_later_answer(rop->op);

    ngx_idempotency_redis_later_put(rop, NGX_IDEMPOTENCY_REDIS_LATER_TICK);

    if (size < NGX_IDEMPOTENCY_REDIS_LATER_LARGE) {
        return;
    }

    ctx->later.busy = 0;

    if (!rop->cmd.stuck) {
        return;
    }

    /* it is the next one again, or each would have all its tries */

    ngx_queue_remove(&rop->queue);
    ngx_queue_insert_head(&ctx->later.queue, &rop->queue);

    if (++rop->timeouts == NGX_IDEMPOTENCY_REDIS_LATER_TRIES) {
        ngx_idempotency_redis_later_give_up(ctx, size);
    }
}


/* others that wait and are as large would fare no better */

static void
ngx_idempotency_redis_later_give_up(ngx_idempotency_redis_ctx_t *ctx,
    size_t least)
{
    size_t                       size;
    ngx_queue_t                 *q;
    ngx_idempotency_redis_op_t  *rop;

    for (q = ngx_queue_head(&ctx->later.queue);
         q != ngx_queue_sentinel(&ctx->later.queue);
         q = ngx_queue_next(q))
    {
        rop = ngx_queue_data(q, ngx_idempotency_redis_op_t, queue);
        size = ngx_idempotency_redis_later_answer(rop->op);

        if (size < least) {
            continue;
        }

        ngx_idempotency_redis_later_bare(ctx, size,
                                         "could not be stored in time");
        ngx_idempotency_redis_op_bare(rop);
        ctx->later.bytes -= size;
    }
}


void
ngx_idempotency_redis_later_landed(ngx_idempotency_redis_op_t *rop)
{
    size_t                          size;
    ngx_idempotency_redis_ctx_t    *ctx;
    ngx_idempotency_redis_later_t  *later;

    ctx = rop->op->store->data;
    later = &ctx->later;

    ngx_idempotency_op_debug(rop->op, "stored in background");

    if (rop->op->type == NGX_IDEMPOTENCY_COMPLETE
        && rop->op->error == NGX_IDEMPOTENCY_ERROR_NONE
        && rop->op->result == NGX_IDEMPOTENCY_REFUSED)
    {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency record \"%*xs\" was settled by somebody "
                      "else before the outcome of its request was stored: "
                      "duplicates do not get the answer that its client got",
                      (size_t) 8, rop->op->digest);
    }

    later->number--;
    ngx_idempotency_ends(ctx->store->now->later);

    size = ngx_idempotency_redis_later_answer(rop->op);
    later->bytes -= size;

    if (size >= NGX_IDEMPOTENCY_REDIS_LATER_LARGE) {
        later->busy = 0;
        ngx_idempotency_redis_later_next(ctx);
    }

    if (later->number == 0) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\": all outcomes that waited in "
                      "background are stored, dropped: %ui, without their "
                      "answer: %ui",
                      &ctx->store->name, later->dropped, later->bare);
        later->dropped = 0;
        later->bare = 0;
    }

    ngx_idempotency_op_drop(rop->op);
}


/* from the event loop: this is a reply's handler */

static void
ngx_idempotency_redis_later_next(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_event_t  *ev;

    ev = &ctx->later.timer;

    if (!ev->timer_set) {
        return;
    }

    /* ngx_event_add_timer() would keep one that is near */

    ngx_del_timer(ev);
    ngx_add_timer(ev, 1);
}
