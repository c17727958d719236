
/*
 * The store in Redis: claims that are sent again, and outcomes that are sent
 * in the background until Redis has them.
 */


#include "ngx_idempotency_redis_background.h"


/* of answers; an outcome without one needs some hundred bytes */
#define NGX_IDEMPOTENCY_REDIS_BACKGROUND_BYTES   (16 * 1024 * 1024)
#define NGX_IDEMPOTENCY_REDIS_BACKGROUND_NUMBER  10000

/* an answer of so many bytes is given up after so many time-outs */
#define NGX_IDEMPOTENCY_REDIS_BACKGROUND_LARGE   (64 * 1024)
#define NGX_IDEMPOTENCY_REDIS_BACKGROUND_TRIES   3

/* milliseconds after which a claim, or an outcome, is sent again */
#define NGX_IDEMPOTENCY_REDIS_BACKGROUND_CLAIM   50
#define NGX_IDEMPOTENCY_REDIS_BACKGROUND_TICK    500

/* sent at once */
#define NGX_IDEMPOTENCY_REDIS_BACKGROUND_BATCH   256


static void ngx_idempotency_redis_background_timer(ngx_event_t *ev);
static ngx_idempotency_redis_op_t *ngx_idempotency_redis_background_create(
    ngx_idempotency_redis_ctx_t *ctx, ngx_idempotency_redis_outcome_t *outcome,
    ngx_str_t *answer);
static void ngx_idempotency_redis_background_enqueue(
    ngx_idempotency_redis_op_t *rop, ngx_msec_t delay);
static void ngx_idempotency_redis_background_strip_large(
    ngx_idempotency_redis_ctx_t *ctx, size_t least);
static void ngx_idempotency_redis_background_log_stripped(
    ngx_idempotency_redis_ctx_t *ctx, size_t size, const char *reason);


void
ngx_idempotency_redis_background_start(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_event_t                         *ev;
    ngx_idempotency_redis_background_t  *background;

    background = &ctx->background;

    ngx_queue_init(&background->queue);

    background->dummy.fd = (ngx_socket_t) -1;
    background->dummy.data = ctx;

    ev = &background->timer;

    ngx_memzero(ev, sizeof(ngx_event_t));

    ev->handler = ngx_idempotency_redis_background_timer;
    ev->data = &background->dummy;
    ev->log = ngx_cycle->log;
}


static void
ngx_idempotency_redis_background_timer(ngx_event_t *ev)
{
    ngx_connection_t  *dummy;

    dummy = ev->data;

    ngx_idempotency_redis_background_send(dummy->data);
}


void
ngx_idempotency_redis_background_stop(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_queue_t                 *q;
    ngx_idempotency_redis_op_t  *rop;

    if (ctx->background.timer.timer_set) {
        ngx_del_timer(&ctx->background.timer);
    }

    while (!ngx_queue_empty(&ctx->background.queue)) {

        q = ngx_queue_head(&ctx->background.queue);
        ngx_queue_remove(q);

        rop = ngx_queue_data(q, ngx_idempotency_redis_op_t, queue);

        ngx_idempotency_redis_op_abandon(&rop->cmd);
    }
}


void
ngx_idempotency_redis_background_retry(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    if (ngx_idempotency_redis_op_send(rop) == NGX_AGAIN) {
        ngx_idempotency_count(ctx->store->counts->retries);
        return;
    }

    ngx_idempotency_redis_background_enqueue(rop,
                                     NGX_IDEMPOTENCY_REDIS_BACKGROUND_CLAIM);
}


void
ngx_idempotency_redis_background_add(ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type)
{
    ngx_str_t                           *answer, none;
    ngx_uint_t                           keep;
    ngx_idempotency_redis_op_t          *rop;
    ngx_idempotency_redis_ctx_t         *ctx;
    ngx_idempotency_redis_outcome_t      outcome;
    ngx_idempotency_redis_background_t  *background;

    ctx = op->store->data;
    background = &ctx->background;

    ngx_idempotency_redis_outcome_save(&outcome, op, type);

    ngx_str_null(&none);

    rop = NULL;
    answer = ngx_idempotency_redis_op_answer(op);
    keep = (answer->len
            && background->bytes + answer->len
               <= NGX_IDEMPOTENCY_REDIS_BACKGROUND_BYTES);

    if (background->outcomes < NGX_IDEMPOTENCY_REDIS_BACKGROUND_NUMBER) {
        rop = ngx_idempotency_redis_background_create(ctx, &outcome,
                                                      keep ? answer : &none);
        if (rop == NULL && keep) {
            keep = 0;
            rop = ngx_idempotency_redis_background_create(ctx, &outcome,
                                                          &none);
        }
    }

    if (rop == NULL) {

        ngx_idempotency_count(ctx->store->counts->dropped);

        if (background->dropped++ == 0) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "idempotency store \"%V\" is unreachable and too "
                          "many outcomes wait in background: further ones "
                          "become unknown",
                          &ctx->store->name);
        }

        return;
    }

    if (background->outcomes == 1) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\": could not store the outcome "
                      "of a request, retrying in background",
                      &ctx->store->name);
    }

    if (answer->len && !keep) {
        ngx_idempotency_redis_background_log_stripped(ctx, answer->len,
                                                      "has no room to wait");
    }

    ngx_idempotency_op_debug(rop->op, "to be retried in background");

    ngx_idempotency_redis_background_enqueue(rop,
                                         NGX_IDEMPOTENCY_REDIS_BACKGROUND_TICK);
}


ngx_int_t
ngx_idempotency_redis_background_adopt(void *data,
    ngx_idempotency_redis_outcome_t *outcome, ngx_str_t *answer)
{
    ngx_idempotency_redis_op_t   *rop;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = data;

    if (ctx->background.outcomes >= NGX_IDEMPOTENCY_REDIS_BACKGROUND_NUMBER
        || (answer->len
            && ctx->background.bytes + answer->len
               > NGX_IDEMPOTENCY_REDIS_BACKGROUND_BYTES))
    {
        return NGX_DECLINED;
    }

    rop = ngx_idempotency_redis_background_create(ctx, outcome, answer);
    if (rop == NULL) {
        return NGX_DECLINED;
    }

    ngx_idempotency_op_debug(rop->op, "was left by a worker that has exited");

    ngx_idempotency_redis_background_enqueue(rop,
                                         NGX_IDEMPOTENCY_REDIS_BACKGROUND_TICK);

    return NGX_OK;
}


/* an operation of its own: the caller frees the one that failed */

static ngx_idempotency_redis_op_t *
ngx_idempotency_redis_background_create(ngx_idempotency_redis_ctx_t *ctx,
    ngx_idempotency_redis_outcome_t *outcome, ngx_str_t *answer)
{
    ngx_buf_t                    b;
    ngx_chain_t                  cl;
    ngx_idempotency_op_t        *op;
    ngx_idempotency_redis_op_t  *rop;

    op = ngx_idempotency_op_create(ctx->store, outcome->type);
    if (op == NULL) {
        return NULL;
    }

    ngx_idempotency_redis_outcome_load(outcome, op);

    if (answer->len) {
        op->keep = 1;
        op->head.data = answer->data;
        op->head.len = outcome->head;

        ngx_memzero(&b, sizeof(ngx_buf_t));

        b.pos = answer->data + outcome->head;
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

    rop->background = 1;

    ngx_idempotency_begins(ctx->store->now->background);

    ctx->background.outcomes++;
    ctx->background.bytes += answer->len;

    return rop;
}


/*
 * An exiting worker stays for claims, which have a deadline, and for outcomes
 * until their handover is due.
 */

static void
ngx_idempotency_redis_background_enqueue(ngx_idempotency_redis_op_t *rop,
    ngx_msec_t delay)
{
    ngx_event_t                  *ev;
    ngx_msec_int_t                left;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;
    ev = &ctx->background.timer;

    ngx_queue_insert_tail(&ctx->background.queue, &rop->queue);

    if (!rop->background) {
        left = (ngx_msec_int_t) (rop->deadline - ngx_current_msec);
        delay = ngx_min(delay, (ngx_msec_t) ngx_max(left, 1));
    }

    if (ev->timer_set) {

        if (rop->background
            || (!ev->cancelable
                && (ngx_msec_int_t) (ev->timer.key - ngx_current_msec)
                   <= (ngx_msec_int_t) delay))
        {
            return;
        }

        ngx_del_timer(ev);
    }

    ev->cancelable = rop->background
                     && ngx_idempotency_redis_handover_is_due(ctx);

    ngx_add_timer(ev, delay);
}


void
ngx_idempotency_redis_background_send(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_uint_t                   n, most, large;
    ngx_queue_t                 *q, queue;
    ngx_idempotency_redis_op_t  *rop;

    if (ngx_queue_empty(&ctx->background.queue)) {
        return;
    }

    /* what cannot be sent is queued again */

    ngx_queue_init(&queue);
    ngx_queue_add(&queue, &ctx->background.queue);
    ngx_queue_init(&ctx->background.queue);

    n = 0;
    most = NGX_IDEMPOTENCY_REDIS_BACKGROUND_BATCH;

    if (!ngx_idempotency_redis_is_up(&ctx->redis)) {

        /*
         * the client of an exiting worker has closed its idle connections
         * and does not connect again until there is a command
         */

        most = ngx_exiting ? 1 : 0;
    }

    while (!ngx_queue_empty(&queue)) {

        q = ngx_queue_head(&queue);
        ngx_queue_remove(q);

        rop = ngx_queue_data(q, ngx_idempotency_redis_op_t, queue);

        if (!rop->background
            && (ngx_msec_int_t) (rop->deadline - ngx_current_msec) <= 0)
        {
            ngx_idempotency_redis_op_fail(rop, NGX_IDEMPOTENCY_ERROR_TIMEOUT);
            continue;
        }

        /* one large answer at a time, as they would share one timeout */

        large = (ngx_idempotency_redis_op_answer(rop->op)->len
                 >= NGX_IDEMPOTENCY_REDIS_BACKGROUND_LARGE);

        if (n < most
            && !(large && ctx->background.large)
            && ngx_idempotency_redis_op_send(rop) == NGX_AGAIN)
        {
            n++;
            ctx->background.large |= large;
            ngx_idempotency_count(ctx->store->counts->retries);
            continue;
        }

        ngx_idempotency_redis_background_enqueue(rop,
                                rop->background
                                ? NGX_IDEMPOTENCY_REDIS_BACKGROUND_TICK
                                : NGX_IDEMPOTENCY_REDIS_BACKGROUND_CLAIM);
    }

    if (ngx_queue_empty(&ctx->background.queue)
        && ctx->background.timer.timer_set)
    {
        /* an exiting worker would stay for it */

        ngx_del_timer(&ctx->background.timer);
    }
}


void
ngx_idempotency_redis_background_failed(ngx_idempotency_redis_op_t *rop)
{
    size_t                        size;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;
    size = ngx_idempotency_redis_op_answer(rop->op)->len;

    ngx_idempotency_redis_background_enqueue(rop,
                                         NGX_IDEMPOTENCY_REDIS_BACKGROUND_TICK);

    if (size < NGX_IDEMPOTENCY_REDIS_BACKGROUND_LARGE) {
        return;
    }

    ctx->background.large = 0;

    if (!rop->cmd.stuck) {
        return;
    }

    /* it stays the first: otherwise each large answer would use its tries */

    ngx_queue_remove(&rop->queue);
    ngx_queue_insert_head(&ctx->background.queue, &rop->queue);

    if (++rop->timeouts == NGX_IDEMPOTENCY_REDIS_BACKGROUND_TRIES) {
        ngx_idempotency_redis_background_strip_large(ctx, size);
    }
}


/* other queued answers that are as large would time out as well */

static void
ngx_idempotency_redis_background_strip_large(ngx_idempotency_redis_ctx_t *ctx,
    size_t least)
{
    size_t                       size;
    ngx_queue_t                 *q;
    ngx_idempotency_redis_op_t  *rop;

    for (q = ngx_queue_head(&ctx->background.queue);
         q != ngx_queue_sentinel(&ctx->background.queue);
         q = ngx_queue_next(q))
    {
        rop = ngx_queue_data(q, ngx_idempotency_redis_op_t, queue);
        size = ngx_idempotency_redis_op_answer(rop->op)->len;

        if (size < least) {
            continue;
        }

        ngx_idempotency_redis_background_log_stripped(ctx, size,
                                              "could not be stored in time");
        ngx_idempotency_redis_op_strip(rop);
        ctx->background.bytes -= size;
    }
}


static void
ngx_idempotency_redis_background_log_stripped(ngx_idempotency_redis_ctx_t *ctx,
    size_t size, const char *reason)
{
    if (ctx->background.stripped++) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                  "idempotency store \"%V\": an answer of %uz bytes %s, it is "
                  "not kept, only that its request was executed",
                  &ctx->store->name, size, reason);
}


void
ngx_idempotency_redis_background_done(ngx_idempotency_redis_op_t *rop)
{
    size_t                               size;
    ngx_idempotency_redis_ctx_t         *ctx;
    ngx_idempotency_redis_background_t  *background;

    ctx = rop->op->store->data;
    background = &ctx->background;

    ngx_idempotency_op_debug(rop->op, "stored in background");

    if (rop->op->type == NGX_IDEMPOTENCY_COMPLETE
        && rop->op->error == NGX_IDEMPOTENCY_ERROR_NONE
        && rop->op->result == NGX_IDEMPOTENCY_REFUSED)
    {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency record \"%*xs\" was settled by another "
                      "request or an operator before the outcome of its "
                      "request was stored: duplicates do not get the answer "
                      "that its client got",
                      NGX_IDEMPOTENCY_WHOLE, rop->op->id.digest);
    }

    background->outcomes--;
    ngx_idempotency_ends(ctx->store->now->background);

    size = ngx_idempotency_redis_op_answer(rop->op)->len;
    background->bytes -= size;

    if (size >= NGX_IDEMPOTENCY_REDIS_BACKGROUND_LARGE) {
        background->large = 0;

        if (background->timer.timer_set) {

            /*
             * the next large one, from the event loop, as this is the handler
             * of a reply; ngx_event_add_timer() keeps a timer that is near
             */

            ngx_del_timer(&background->timer);
            ngx_add_timer(&background->timer, 1);
        }
    }

    if (background->outcomes == 0) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\": all outcomes that waited in "
                      "background are stored, dropped: %ui, without their "
                      "answer: %ui",
                      &ctx->store->name, background->dropped,
                      background->stripped);
        background->dropped = 0;
        background->stripped = 0;
    }

    ngx_idempotency_op_drop(rop->op);
}
