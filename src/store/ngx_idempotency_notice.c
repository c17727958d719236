
/*
 * Tells the workers of this nginx that a record was settled.
 *
 * Digests are posted on a ring in shared memory, and a byte in its pipe wakes
 * each worker that listens.  Nobody waits for anybody: a reader that comes too
 * late for a place on the ring looks at all it waits for.
 *
 * The workers before and after a reload have the ring in common, not the
 * pipes: there a notice may be missed, and the waiters' own timer is the net.
 */


#include "ngx_idempotency_notice.h"
#include "ngx_idempotency_wait.h"
#include "ngx_idempotency_zone.h"


#define NGX_IDEMPOTENCY_NOTICE_PLACES   1024


typedef struct {
    ngx_atomic_t                    number;    /* 0: is being written */
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
} ngx_idempotency_notice_t;


/*
 * "listens" counts the processes of a worker's number that want to be woken.
 * One that is killed stays counted: from then on it costs a needless byte.
 */

typedef struct {
    ngx_atomic_t                    last;      /* number of the last notice */
    ngx_atomic_t                    listens[NGX_MAX_PROCESSES];
    ngx_idempotency_notice_t        places[NGX_IDEMPOTENCY_NOTICE_PLACES];
} ngx_idempotency_notice_ring_t;


static void ngx_idempotency_notice_close(void *data);
static void ngx_idempotency_notice_read(ngx_event_t *ev);
static ngx_int_t ngx_idempotency_notice_get(ngx_atomic_uint_t number,
    u_char *digest);


/* of this worker */

static ngx_idempotency_notices_t      *ngx_idempotency_notices;
static ngx_idempotency_notice_ring_t  *ngx_idempotency_notice_ring;
static ngx_atomic_uint_t               ngx_idempotency_notice_seen;


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


void
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

        /* a full pipe wakes as well as another byte */

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


/* NGX_DECLINED: it is not there yet, or no longer */

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
