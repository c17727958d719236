
/*
 * Waiting for a record, and how waiters are woken.
 *
 * The waiters of one worker for one record are a group.  One waiter of the
 * group at a time has the turn: it asks the store, and then either waits on,
 * or leaves, or shares what the store has answered with the whole group.  The
 * group gives a turn when
 *
 *   - an operation of this worker has settled the record:
 *     ngx_idempotency_notice_post() wakes the group,
 *   - one of another worker of this nginx has: it has posted the digest on
 *     a ring in shared memory, and a byte in the pipe of each worker that has
 *     waiters,
 *   - another gateway has: the store calls ngx_idempotency_wait_wake(), see
 *     store.listen,
 *   - as a fallback, every 500 ms: leases end silently, and a notice may be
 *     lost.
 *
 * Nobody waits for a reader of the ring: a reader that comes too late for a
 * place wakes all its groups.  The workers before and after a reload share the
 * ring and not the pipes: notices between them are left to the fallback.
 */


#include "ngx_idempotency_wait.h"
#include "ngx_idempotency_zone.h"


#define NGX_IDEMPOTENCY_WAIT_BUCKETS   256

/* waiters of one worker */
#define NGX_IDEMPOTENCY_WAIT_MAX       10000

/* the fallback, msec */
#define NGX_IDEMPOTENCY_WAIT_POLL      500

/*
 * The first turn, msec, where the store listens: it gives one itself, and much
 * earlier, as soon as the subscription stands.
 */
#define NGX_IDEMPOTENCY_WAIT_LISTEN    50

#define NGX_IDEMPOTENCY_NOTICE_PLACES  1024


#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
ngx_msec_t  ngx_idempotency_wait_msec = NGX_IDEMPOTENCY_WAIT_POLL;
#else
#define ngx_idempotency_wait_msec  NGX_IDEMPOTENCY_WAIT_POLL
#endif


struct ngx_idempotency_wait_group_s {
    ngx_queue_t                     queue;     /* of its bucket */
    ngx_queue_t                     waiters;
    ngx_idempotency_waiter_t       *asking;    /* has the turn */
    ngx_event_t                     timer;
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_idempotency_store_t        *store;
    ngx_idempotency_listener_t     *listener;  /* or NULL */
    unsigned                        again:1;   /* woken meanwhile */
};


typedef struct {
    ngx_atomic_t                    number;    /* 0: being written */
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
} ngx_idempotency_notice_t;


/*
 * "listens" counts the processes with a worker's number that have waiters.  A
 * process that is killed remains counted: that costs a needless byte each
 * time.
 */

typedef struct {
    ngx_atomic_t                    last;      /* number of the last notice */
    ngx_atomic_t                    listens[NGX_MAX_PROCESSES];
    ngx_idempotency_notice_t        places[NGX_IDEMPOTENCY_NOTICE_PLACES];
} ngx_idempotency_notice_ring_t;


static ngx_idempotency_wait_group_t *ngx_idempotency_wait_create(
    ngx_idempotency_op_t *op);
static ngx_idempotency_wait_group_t *ngx_idempotency_wait_find(
    u_char *digest, ngx_idempotency_store_t *store);
static void ngx_idempotency_wait_next(ngx_idempotency_wait_group_t *group);
static void ngx_idempotency_wait_poll(ngx_event_t *ev);
static void ngx_idempotency_wait_remove(ngx_idempotency_waiter_t *waiter);
static void ngx_idempotency_wait_destroy(ngx_idempotency_wait_group_t *group);
static void ngx_idempotency_wait_wake_all(void);
static void ngx_idempotency_notice_close(void *data);
static void ngx_idempotency_notice_read(ngx_event_t *ev);
static void ngx_idempotency_notice_listen(ngx_uint_t on);
static ngx_int_t ngx_idempotency_notice_get(ngx_atomic_uint_t number,
    u_char *digest);


/* all of this worker */

static ngx_queue_t       ngx_idempotency_wait_buckets
                             [NGX_IDEMPOTENCY_WAIT_BUCKETS];
static ngx_uint_t        ngx_idempotency_wait_n;
static time_t            ngx_idempotency_wait_logged;
static ngx_connection_t  ngx_idempotency_wait_dumb;

static ngx_idempotency_notices_t      *ngx_idempotency_notices;
static ngx_idempotency_notice_ring_t  *ngx_idempotency_notice_ring;
static ngx_atomic_uint_t               ngx_idempotency_notice_seen;


ngx_int_t
ngx_idempotency_wait_join(ngx_idempotency_waiter_t *waiter,
    ngx_idempotency_op_t *op)
{
    ngx_idempotency_wait_group_t  *group;

    if (ngx_idempotency_wait_n == NGX_IDEMPOTENCY_WAIT_MAX) {

        if (ngx_idempotency_wait_logged != ngx_time()) {
            ngx_idempotency_wait_logged = ngx_time();

            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "idempotency store \"%V\": %d requests wait in "
                          "this worker, further ones are refused",
                          &op->store->name, NGX_IDEMPOTENCY_WAIT_MAX);
        }

        return NGX_DECLINED;
    }

    group = ngx_idempotency_wait_find(op->id.digest, op->store);

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
    ngx_memcpy(group->digest, op->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN);

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

    bucket = &ngx_idempotency_wait_buckets[op->id.digest[0]];

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


/* gives the turn to the waiter that has waited longest for it */

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
ngx_idempotency_wait_continue(ngx_idempotency_waiter_t *waiter)
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
ngx_idempotency_wait_share(ngx_idempotency_waiter_t *waiter,
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

        other->shared = ngx_idempotency_op_share(op);
        other->handler(other);
    }

    ngx_idempotency_wait_destroy(group);
}


void
ngx_idempotency_wait_leave(ngx_idempotency_waiter_t *waiter)
{
    ngx_idempotency_wait_group_t  *group;

    if (waiter->shared) {
        ngx_idempotency_op_drop(waiter->shared);
        waiter->shared = NULL;
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

    /* in whichever store: digests are unique */

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


/* something has changed, and the reader came too late to see what */

static void
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


ngx_idempotency_notices_t *
ngx_idempotency_notice_create(ngx_conf_t *cf, void *tag)
{
    ngx_idempotency_notices_t  *notices;

    static ngx_str_t  name = ngx_string("idempotency_notices");

    notices = ngx_pcalloc(cf->pool, sizeof(ngx_idempotency_notices_t));
    if (notices == NULL) {
        return NULL;
    }

    notices->zone = ngx_idempotency_zone_add(cf, &name,
                                        sizeof(ngx_idempotency_notice_ring_t),
                                        tag);
    if (notices->zone == NULL) {
        return NULL;
    }

    return notices;
}


ngx_int_t
ngx_idempotency_notice_open(ngx_cycle_t *cycle,
    ngx_idempotency_notices_t *notices)
{
    ngx_fd_t            *fds;
    ngx_uint_t           i;
    ngx_core_conf_t     *ccf;
    ngx_pool_cleanup_t  *cln;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    notices->pipes = ngx_pcalloc(cycle->pool, ccf->worker_processes
                                     * sizeof(ngx_idempotency_notice_pipe_t));
    if (notices->pipes == NULL) {
        return NGX_ERROR;
    }

    cln = ngx_pool_cleanup_add(cycle->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_idempotency_notice_close;
    cln->data = notices;

    for (i = 0; i < (ngx_uint_t) ccf->worker_processes; i++) {
        fds = notices->pipes[i].fds;

        if (pipe(fds) == -1) {
            ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                          "idempotency got no pipe for a worker");
            return NGX_ERROR;
        }

        notices->n++;

        if (ngx_nonblocking(fds[0]) == -1
            || ngx_nonblocking(fds[1]) == -1
            || fcntl(fds[0], F_SETFD, FD_CLOEXEC) == -1
            || fcntl(fds[1], F_SETFD, FD_CLOEXEC) == -1)
        {
            ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                          "idempotency cannot set up a pipe for a worker");
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static void
ngx_idempotency_notice_close(void *data)
{
    ngx_idempotency_notices_t *notices = data;

    while (notices->n) {
        notices->n--;
        (void) ngx_close_file(notices->pipes[notices->n].fds[0]);
        (void) ngx_close_file(notices->pipes[notices->n].fds[1]);
    }
}


ngx_int_t
ngx_idempotency_notice_start(ngx_cycle_t *cycle,
    ngx_idempotency_notices_t *notices)
{
    ngx_idempotency_notices = notices;
    ngx_idempotency_notice_ring = notices->zone->data;
    ngx_idempotency_notice_seen = ngx_idempotency_notice_ring->last;

    return ngx_add_channel_event(cycle, notices->pipes[ngx_worker].fds[0],
                                 NGX_READ_EVENT, ngx_idempotency_notice_read);
}


/* this worker has waiters from now on, or no longer */

static void
ngx_idempotency_notice_listen(ngx_uint_t on)
{
    ngx_atomic_t  *listens;

    if (ngx_idempotency_notice_ring == NULL) {
        return;
    }

    listens = &ngx_idempotency_notice_ring->listens[ngx_worker];

    (void) ngx_atomic_fetch_add(listens, on ? 1 : -1);

    if (on) {
        ngx_idempotency_notice_seen = ngx_idempotency_notice_ring->last;
    }
}


void
ngx_idempotency_notice_post(u_char *digest)
{
    ngx_uint_t                      i;
    ngx_atomic_uint_t               number;
    ngx_idempotency_notice_t       *notice;
    ngx_idempotency_notice_ring_t  *ring;

    ring = ngx_idempotency_notice_ring;

    if (ring == NULL) {
        return;
    }

    ngx_idempotency_wait_wake(digest);

    number = 0;

    for (i = 0; i < ngx_idempotency_notices->n; i++) {

        if (i == ngx_worker || ring->listens[i] == 0) {
            continue;
        }

        if (number == 0) {
            number = ngx_atomic_fetch_add(&ring->last, 1) + 1;
            notice = &ring->places[number % NGX_IDEMPOTENCY_NOTICE_PLACES];

            notice->number = 0;
            ngx_memory_barrier();
            ngx_memcpy(notice->digest, digest, NGX_IDEMPOTENCY_DIGEST_LEN);
            ngx_memory_barrier();
            notice->number = number;
        }

        /* if the pipe is full, what is in it wakes the worker, too */

        (void) ngx_write_fd(ngx_idempotency_notices->pipes[i].fds[1], "", 1);
    }
}


static void
ngx_idempotency_notice_read(ngx_event_t *ev)
{
    u_char              bytes[NGX_IDEMPOTENCY_NOTICE_PLACES];
    ngx_connection_t   *c;
    ngx_atomic_uint_t   last;
    u_char              digest[NGX_IDEMPOTENCY_DIGEST_LEN];

    c = ev->data;

    while (ngx_read_fd(c->fd, bytes, sizeof(bytes)) > 0) { /* void */ }

    last = ngx_idempotency_notice_ring->last;

    while (ngx_idempotency_notice_seen != last) {
        ngx_idempotency_notice_seen++;

        if (ngx_idempotency_notice_get(ngx_idempotency_notice_seen, digest)
            != NGX_OK)
        {
            ngx_idempotency_notice_seen = last;
            ngx_idempotency_wait_wake_all();
            return;
        }

        ngx_idempotency_wait_wake(digest);
    }
}


/* NGX_DECLINED: it is not written yet, or written over */

static ngx_int_t
ngx_idempotency_notice_get(ngx_atomic_uint_t number, u_char *digest)
{
    ngx_idempotency_notice_t  *notice;

    notice = &ngx_idempotency_notice_ring->places
                  [number % NGX_IDEMPOTENCY_NOTICE_PLACES];

    if (notice->number != number) {
        return NGX_DECLINED;
    }

    ngx_memory_barrier();
    ngx_memcpy(digest, notice->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memory_barrier();

    return notice->number == number ? NGX_OK : NGX_DECLINED;
}
