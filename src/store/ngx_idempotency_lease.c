
/*
 * The leases that this worker holds, and their renewal.
 */


#include "ngx_idempotency_lease.h"


/* lines of one renewal */
#define NGX_IDEMPOTENCY_LEASE_BATCH    256

/* for thousands of slow requests */
#define NGX_IDEMPOTENCY_LEASE_BUCKETS  1024


static ngx_queue_t *ngx_idempotency_lease_bucket(u_char *owner);
static void ngx_idempotency_lease_arm(ngx_msec_t delay);
static void ngx_idempotency_lease_tick(ngx_event_t *ev);
static void ngx_idempotency_lease_renew(ngx_idempotency_store_t *store,
    ngx_queue_t *from);
static ngx_uint_t ngx_idempotency_lease_due(ngx_idempotency_held_t *held);
static void ngx_idempotency_lease_done(ngx_idempotency_op_t *op);
static ngx_uint_t ngx_idempotency_lease_failed(ngx_idempotency_op_t *op);
static void ngx_idempotency_lease_confirm(ngx_idempotency_lease_t *line,
    ngx_msec_t sent);


static ngx_queue_t       ngx_idempotency_lease_queue;
static ngx_queue_t       ngx_idempotency_lease_buckets
                             [NGX_IDEMPOTENCY_LEASE_BUCKETS];
static ngx_event_t       ngx_idempotency_lease_timer;
static ngx_connection_t  ngx_idempotency_lease_dumb;


void
ngx_idempotency_lease_hold(ngx_idempotency_held_t *held, ngx_msec_t sent)
{
    ngx_uint_t    i;
    ngx_event_t  *ev;

    ev = &ngx_idempotency_lease_timer;

    if (ev->handler == NULL) {
        ngx_queue_init(&ngx_idempotency_lease_queue);

        for (i = 0; i < NGX_IDEMPOTENCY_LEASE_BUCKETS; i++) {
            ngx_queue_init(&ngx_idempotency_lease_buckets[i]);
        }

        ngx_idempotency_lease_dumb.fd = (ngx_socket_t) -1;

        ev->handler = ngx_idempotency_lease_tick;
        ev->data = &ngx_idempotency_lease_dumb;
        ev->log = ngx_cycle->log;
        ev->cancelable = 1;
    }

    held->confirmed = sent;
    held->asked = sent;
    held->refused = 0;

    ngx_idempotency_begins(held->store->now->leases);

    ngx_queue_insert_tail(&ngx_idempotency_lease_queue, &held->queue);
    ngx_queue_insert_head(ngx_idempotency_lease_bucket(held->line.id.owner),
                          &held->bucket);

    ngx_idempotency_lease_arm(held->line.lease / 3);
}


void
ngx_idempotency_lease_let_go(ngx_idempotency_held_t *held)
{
    if (held->queue.next) {
        ngx_queue_remove(&held->queue);
        held->queue.next = NULL;

        ngx_queue_remove(&held->bucket);

        ngx_idempotency_ends(held->store->now->leases);
    }
}


/* owners are random: their first bytes are a hash */

static ngx_queue_t *
ngx_idempotency_lease_bucket(u_char *owner)
{
    return &ngx_idempotency_lease_buckets[(owner[0] << 8 | owner[1])
                                          % NGX_IDEMPOTENCY_LEASE_BUCKETS];
}


/* the timer may fire earlier than needed, never later */

static void
ngx_idempotency_lease_arm(ngx_msec_t delay)
{
    ngx_event_t  *ev;

    ev = &ngx_idempotency_lease_timer;

    if (ev->timer_set
        && (ngx_msec_int_t) (ev->timer.key - ngx_current_msec)
           <= (ngx_msec_int_t) delay)
    {
        return;
    }

    ngx_add_timer(ev, delay);
}


static void
ngx_idempotency_lease_tick(ngx_event_t *ev)
{
    ngx_msec_t               delay;
    ngx_queue_t             *q, *queue;
    ngx_idempotency_held_t  *held;

    queue = &ngx_idempotency_lease_queue;

    if (ngx_queue_empty(queue)) {
        return;
    }

    delay = NGX_MAX_INT_T_VALUE;

    for (q = ngx_queue_head(queue);
         q != ngx_queue_sentinel(queue);
         q = ngx_queue_next(q))
    {
        held = ngx_queue_data(q, ngx_idempotency_held_t, queue);

        if (ngx_idempotency_lease_due(held)) {
            ngx_idempotency_lease_renew(held->store, q);
        }

        delay = ngx_min(delay, held->line.lease / 3);
    }

    ngx_idempotency_lease_arm(delay);
}


void
ngx_idempotency_lease_renew_all(ngx_idempotency_store_t *store)
{
    ngx_queue_t             *q, *queue;
    ngx_idempotency_held_t  *held;

    queue = &ngx_idempotency_lease_queue;

    if (ngx_idempotency_lease_timer.handler == NULL) {
        return;
    }

    for (q = ngx_queue_head(queue);
         q != ngx_queue_sentinel(queue);
         q = ngx_queue_next(q))
    {
        held = ngx_queue_data(q, ngx_idempotency_held_t, queue);

        if (held->store == store) {
            held->asked = ngx_current_msec - held->line.lease;
        }
    }

    ngx_idempotency_lease_tick(&ngx_idempotency_lease_timer);
}


/*
 * Renews the leases of one store that are due, from a place in the queue on.
 * A lease that was asked for is not due again before a quarter of its time.
 */

static void
ngx_idempotency_lease_renew(ngx_idempotency_store_t *store, ngx_queue_t *from)
{
    ngx_uint_t               n;
    ngx_queue_t             *q, *queue;
    ngx_idempotency_op_t    *op;
    ngx_idempotency_held_t  *held;

    op = ngx_idempotency_op_create(store, NGX_IDEMPOTENCY_RENEW);
    if (op == NULL) {
        return;
    }

    n = 0;
    queue = &ngx_idempotency_lease_queue;

    for (q = from;
         q != ngx_queue_sentinel(queue) && n < NGX_IDEMPOTENCY_LEASE_BATCH;
         q = ngx_queue_next(q))
    {
        held = ngx_queue_data(q, ngx_idempotency_held_t, queue);

        if (held->store != store || !ngx_idempotency_lease_due(held)) {
            continue;
        }

        if (ngx_idempotency_lease_add(held, op) != NGX_OK) {
            break;
        }

        n++;
    }

    if (n == 0) {
        ngx_idempotency_op_drop(op);
        return;
    }

    op->handler = ngx_idempotency_lease_done;

    if (ngx_idempotency_op_submit(op) != NGX_AGAIN) {
        ngx_idempotency_lease_done(op);
    }
}


ngx_int_t
ngx_idempotency_lease_add(ngx_idempotency_held_t *held,
    ngx_idempotency_op_t *op)
{
    ngx_idempotency_lease_t  *line;

    if (op->leases == NULL) {
        op->leases = ngx_array_create(op->pool, 4,
                                      sizeof(ngx_idempotency_lease_t));
        if (op->leases == NULL) {
            return NGX_ERROR;
        }
    }

    line = ngx_array_push(op->leases);
    if (line == NULL) {
        return NGX_ERROR;
    }

    *line = held->line;
    held->asked = ngx_current_msec;

    return NGX_OK;
}


/* a tick that comes a little early must not skip a lease until the next */

static ngx_uint_t
ngx_idempotency_lease_due(ngx_idempotency_held_t *held)
{
    return ngx_current_msec - held->asked >= held->line.lease / 4;
}


static void
ngx_idempotency_lease_done(ngx_idempotency_op_t *op)
{
    ngx_idempotency_lease_renewed(op);
    ngx_idempotency_op_drop(op);
}


void
ngx_idempotency_lease_renewed(ngx_idempotency_op_t *op)
{
    ngx_uint_t                i;
    ngx_idempotency_lease_t  *line;

    if (op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store \"%V\" did not renew %ui leases",
                      &op->store->name, ngx_idempotency_lease_failed(op));
    }

    line = op->leases->elts;

    for (i = 0; i < op->leases->nelts; i++) {

        /* in a cluster some nodes may have renewed theirs */

        if (op->error == NGX_IDEMPOTENCY_ERROR_NONE
            || line[i].result == NGX_IDEMPOTENCY_OK)
        {
            ngx_idempotency_lease_confirm(&line[i], op->submitted);
        }
    }
}


static ngx_uint_t
ngx_idempotency_lease_failed(ngx_idempotency_op_t *op)
{
    ngx_uint_t                i, n;
    ngx_idempotency_lease_t  *line;

    line = op->leases->elts;
    n = 0;

    for (i = 0; i < op->leases->nelts; i++) {
        n += (line[i].result != NGX_IDEMPOTENCY_OK);
    }

    return n;
}


/* the lease is looked up: its request may have ended meanwhile */

static void
ngx_idempotency_lease_confirm(ngx_idempotency_lease_t *line, ngx_msec_t sent)
{
    ngx_queue_t             *q, *bucket;
    ngx_idempotency_held_t  *held;

    bucket = ngx_idempotency_lease_bucket(line->id.owner);

    for (q = ngx_queue_head(bucket);
         q != ngx_queue_sentinel(bucket);
         q = ngx_queue_next(q))
    {
        held = ngx_queue_data(q, ngx_idempotency_held_t, bucket);

        if (ngx_memcmp(held->line.id.owner, line->id.owner,
                       NGX_IDEMPOTENCY_OWNER_LEN)
            != 0)
        {
            continue;
        }

        if (line->result == NGX_IDEMPOTENCY_OK) {
            held->confirmed = sent;
            held->refused = 0;
            return;
        }

        if (!held->refused) {
            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "idempotency lease of record \"%*xs\" was lost",
                          NGX_IDEMPOTENCY_WHOLE, line->id.digest);
            held->refused = 1;
        }

        /* another owner may have the key: nothing is to be sent */

        held->confirmed = sent - held->line.lease;
        return;
    }
}


ngx_uint_t
ngx_idempotency_lease_is_sure(ngx_idempotency_held_t *held)
{
    ngx_time_update();

    return ngx_current_msec - held->confirmed < held->line.lease / 3 * 2;
}


ngx_int_t
ngx_idempotency_lease_check(ngx_idempotency_held_t *held)
{
    if (ngx_idempotency_lease_is_sure(held)) {
        return NGX_OK;
    }

    held->asked = held->confirmed;

    ngx_idempotency_lease_renew(held->store, &held->queue);

    return ngx_idempotency_lease_is_sure(held) ? NGX_OK : NGX_DECLINED;
}
