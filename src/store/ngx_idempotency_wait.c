
/*
 * Who waits for which record.
 */


#include "ngx_idempotency_wait.h"
#include "ngx_idempotency_notice.h"


#define NGX_IDEMPOTENCY_WAIT_BUCKETS  256

/* of one worker */
#define NGX_IDEMPOTENCY_WAIT_MAX      10000

/* the net below all notices: leases end silently, notices may be lost */
#define NGX_IDEMPOTENCY_WAIT_POLL     500

/* whoever is listened to tells when to look first, and much earlier */
#define NGX_IDEMPOTENCY_WAIT_LISTEN   50


#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
ngx_msec_t  ngx_idempotency_wait_msec = NGX_IDEMPOTENCY_WAIT_POLL;
#else
#define ngx_idempotency_wait_msec  NGX_IDEMPOTENCY_WAIT_POLL
#endif


struct ngx_idempotency_wait_group_s {
    ngx_queue_t                     queue;     /* of its bucket */
    ngx_queue_t                     waiters;
    ngx_idempotency_waiter_t       *asking;    /* who has the turn */
    ngx_event_t                     timer;
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_idempotency_store_t        *store;
    ngx_idempotency_listener_t     *listener;  /* or NULL */
    unsigned                        again:1;   /* woken while one asked */
};


static ngx_idempotency_wait_group_t *ngx_idempotency_wait_create(
    ngx_idempotency_op_t *op);
static ngx_idempotency_wait_group_t *ngx_idempotency_wait_find(
    u_char *digest, ngx_idempotency_store_t *store);
static void ngx_idempotency_wait_next(ngx_idempotency_wait_group_t *group);
static void ngx_idempotency_wait_poll(ngx_event_t *ev);
static void ngx_idempotency_wait_remove(ngx_idempotency_waiter_t *waiter);
static void ngx_idempotency_wait_destroy(ngx_idempotency_wait_group_t *group);


static ngx_queue_t       ngx_idempotency_wait_buckets
                             [NGX_IDEMPOTENCY_WAIT_BUCKETS];
static ngx_uint_t        ngx_idempotency_wait_n;
static time_t            ngx_idempotency_wait_logged;
static ngx_connection_t  ngx_idempotency_wait_dumb;


ngx_int_t
ngx_idempotency_wait_join(ngx_idempotency_waiter_t *waiter,
    ngx_idempotency_op_t *op)
{
    ngx_idempotency_wait_group_t  *group;

    if (ngx_idempotency_wait_n == NGX_IDEMPOTENCY_WAIT_MAX) {

        if (ngx_idempotency_wait_logged != ngx_time()) {
            ngx_idempotency_wait_logged = ngx_time();

            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "idempotency store \"%V\": %d requests wait for "
                          "others in this worker, the next ones are refused",
                          &op->store->name, NGX_IDEMPOTENCY_WAIT_MAX);
        }

        return NGX_DECLINED;
    }

    group = ngx_idempotency_wait_find(op->digest, op->store);

    if (group == NULL) {
        group = ngx_idempotency_wait_create(op);
        if (group == NULL) {
            return NGX_DECLINED;
        }
    }

    ngx_idempotency_begins(group->store->now->waiting);

    if (ngx_idempotency_wait_n++ == 0) {
        ngx_idempotency_notice_listen(1);
    }

    waiter->group = group;
    waiter->turn = 0;

    ngx_queue_insert_tail(&group->waiters, &waiter->queue);

    return NGX_OK;
}


static ngx_idempotency_wait_group_t *
ngx_idempotency_wait_find(u_char *digest, ngx_idempotency_store_t *store)
{
    ngx_queue_t                   *q, *bucket;
    ngx_idempotency_wait_group_t  *group;

    if (ngx_idempotency_wait_n == 0) {
        return NULL;
    }

    bucket = &ngx_idempotency_wait_buckets[digest[0]];

    if (bucket->next == NULL) {
        return NULL;
    }

    for (q = ngx_queue_head(bucket);
         q != ngx_queue_sentinel(bucket);
         q = ngx_queue_next(q))
    {
        group = ngx_queue_data(q, ngx_idempotency_wait_group_t, queue);

        if (group->store == store
            && ngx_memcmp(group->digest, digest, NGX_IDEMPOTENCY_DIGEST_LEN)
               == 0)
        {
            return group;
        }
    }

    return NULL;
}


static ngx_idempotency_wait_group_t *
ngx_idempotency_wait_create(ngx_idempotency_op_t *op)
{
    ngx_event_t                   *ev;
    ngx_queue_t                   *bucket;
    ngx_idempotency_wait_group_t  *group;

    group = ngx_calloc(sizeof(ngx_idempotency_wait_group_t), ngx_cycle->log);
    if (group == NULL) {
        return NULL;
    }

    ngx_queue_init(&group->waiters);
    ngx_memcpy(group->digest, op->digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    group->store = op->store;

    if (op->store->listen) {
        group->listener = op->store->listen(op);
    }

    ngx_idempotency_wait_dumb.fd = (ngx_socket_t) -1;

    ev = &group->timer;

    ev->handler = ngx_idempotency_wait_poll;
    ev->data = &ngx_idempotency_wait_dumb;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;     /* the waiters have deadlines of their own */

    ngx_add_timer(ev, group->listener ? NGX_IDEMPOTENCY_WAIT_LISTEN : 1);

    bucket = &ngx_idempotency_wait_buckets[op->digest[0]];

    if (bucket->next == NULL) {
        ngx_queue_init(bucket);
    }

    ngx_queue_insert_tail(bucket, &group->queue);

    return group;
}


static void
ngx_idempotency_wait_poll(ngx_event_t *ev)
{
    ngx_idempotency_wait_group_t  *group;

    group = (ngx_idempotency_wait_group_t *)
                ((u_char *) ev - offsetof(ngx_idempotency_wait_group_t, timer));

    ngx_idempotency_wait_next(group);
}


/* gives the turn to the one who has waited longest for it */

static void
ngx_idempotency_wait_next(ngx_idempotency_wait_group_t *group)
{
    ngx_queue_t               *q;
    ngx_idempotency_waiter_t  *waiter;

    if (group->asking) {
        group->again = 1;
        return;
    }

    if (group->timer.timer_set) {
        ngx_del_timer(&group->timer);
    }

    q = ngx_queue_head(&group->waiters);
    waiter = ngx_queue_data(q, ngx_idempotency_waiter_t, queue);

    group->asking = waiter;
    group->again = 0;

    waiter->turn = 1;
    waiter->handler(waiter);
}


void
ngx_idempotency_wait_on(ngx_idempotency_waiter_t *waiter)
{
    ngx_idempotency_wait_group_t  *group;

    group = waiter->group;

    waiter->turn = 0;
    group->asking = NULL;

    ngx_queue_remove(&waiter->queue);
    ngx_queue_insert_tail(&group->waiters, &waiter->queue);

    if (group->again) {
        ngx_idempotency_wait_next(group);
        return;
    }

    ngx_add_timer(&group->timer, ngx_idempotency_wait_msec);
}


void
ngx_idempotency_wait_tell(ngx_idempotency_waiter_t *waiter,
    ngx_idempotency_op_t *op)
{
    ngx_queue_t                   *q;
    ngx_idempotency_waiter_t      *other;
    ngx_idempotency_wait_group_t  *group;

    group = waiter->group;

    ngx_idempotency_wait_remove(waiter);

    while (!ngx_queue_empty(&group->waiters)) {
        q = ngx_queue_head(&group->waiters);
        other = ngx_queue_data(q, ngx_idempotency_waiter_t, queue);

        ngx_idempotency_wait_remove(other);

        other->told = ngx_idempotency_op_share(op);
        other->handler(other);
    }

    ngx_idempotency_wait_destroy(group);
}


void
ngx_idempotency_wait_leave(ngx_idempotency_waiter_t *waiter)
{
    ngx_idempotency_wait_group_t  *group;

    if (waiter->told) {
        ngx_idempotency_op_drop(waiter->told);
        waiter->told = NULL;
    }

    group = waiter->group;

    if (group == NULL) {
        return;
    }

    ngx_idempotency_wait_remove(waiter);

    if (ngx_queue_empty(&group->waiters)) {
        ngx_idempotency_wait_destroy(group);
        return;
    }

    if (group->asking == waiter) {
        group->asking = NULL;
        ngx_idempotency_wait_next(group);
    }
}


static void
ngx_idempotency_wait_remove(ngx_idempotency_waiter_t *waiter)
{
    ngx_queue_remove(&waiter->queue);

    ngx_idempotency_ends(waiter->group->store->now->waiting);

    waiter->group = NULL;
    waiter->turn = 0;

    if (--ngx_idempotency_wait_n == 0) {
        ngx_idempotency_notice_listen(0);
    }
}


static void
ngx_idempotency_wait_destroy(ngx_idempotency_wait_group_t *group)
{
    if (group->timer.timer_set) {
        ngx_del_timer(&group->timer);
    }

    if (group->listener) {
        group->store->unlisten(group->listener);
    }

    ngx_queue_remove(&group->queue);
    ngx_free(group);
}


void
ngx_idempotency_wait_wake(u_char *digest)
{
    ngx_queue_t                   *q, *bucket;
    ngx_idempotency_wait_group_t  *group;

    bucket = &ngx_idempotency_wait_buckets[digest[0]];

    if (ngx_idempotency_wait_n == 0 || bucket->next == NULL) {
        return;
    }

    /* of whatever store */

    for (q = ngx_queue_head(bucket);
         q != ngx_queue_sentinel(bucket);
         q = ngx_queue_next(q))
    {
        group = ngx_queue_data(q, ngx_idempotency_wait_group_t, queue);

        if (ngx_memcmp(group->digest, digest, NGX_IDEMPOTENCY_DIGEST_LEN)
            == 0)
        {
            ngx_idempotency_wait_next(group);
        }
    }
}


void
ngx_idempotency_wait_wake_all(void)
{
    ngx_uint_t                     i;
    ngx_queue_t                   *q, *bucket;
    ngx_idempotency_wait_group_t  *group;

    for (i = 0; i < NGX_IDEMPOTENCY_WAIT_BUCKETS; i++) {
        bucket = &ngx_idempotency_wait_buckets[i];

        if (bucket->next == NULL) {
            continue;
        }

        for (q = ngx_queue_head(bucket);
             q != ngx_queue_sentinel(bucket);
             q = ngx_queue_next(q))
        {
            group = ngx_queue_data(q, ngx_idempotency_wait_group_t, queue);

            ngx_idempotency_wait_next(group);
        }
    }
}
