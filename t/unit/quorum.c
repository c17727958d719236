
/*
 * Which sentinel is believed, and what two workers make of it that judge at
 * the same time: each has a list of sentinels of its own, and they share the
 * master that is followed.  Prints TAP.
 */


#include "ngx_idempotency_redis_sentinel.h"
#include <stdio.h>


#define SENTINELS  3


typedef struct {
    ngx_idempotency_redis_t            redis;
    ngx_idempotency_redis_watch_t      watch;
    ngx_idempotency_redis_sentinel_t   sentinels[SENTINELS];
} worker_t;


typedef struct {
    const char  *host;     /* NULL: it does not answer */
    int64_t      epoch;
} word_t;


typedef struct {
    const char  *what;
    word_t       followed;
    ngx_uint_t   up;       /* that master */
    word_t       words[SENTINELS];
    ngx_uint_t   believed[SENTINELS];
} unit_belief_t;


static unit_belief_t  beliefs[] = {

    { "nothing is known, one answers", { NULL, 0 }, 0,
      { { "a", 5 }, { NULL, 0 }, { NULL, 0 } }, { 0, 0, 0 } },
    { "nothing is known, two agree", { NULL, 0 }, 0,
      { { "a", 5 }, { "a", 4 }, { "b", 9 } }, { 1, 1, 0 } },

    { "what is followed", { "a", 5 }, 1,
      { { "a", 5 }, { NULL, 0 }, { NULL, 0 } }, { 1, 0, 0 } },
    { "a later failover", { "a", 5 }, 1,
      { { "a", 5 }, { "b", 6 }, { "a", 5 } }, { 1, 1, 1 } },
    { "an older one, of one", { "a", 5 }, 0,
      { { "b", 4 }, { NULL, 0 }, { NULL, 0 } }, { 0, 0, 0 } },
    { "an older one, of two, and one knows of the later", { "a", 5 }, 0,
      { { "b", 4 }, { "b", 4 }, { "a", 5 } }, { 0, 0, 1 } },
    { "an older one, of two, the master is up", { "a", 5 }, 1,
      { { "b", 4 }, { "b", 4 }, { NULL, 0 } }, { 0, 0, 0 } },
    { "an older one, of two, the master is down", { "a", 5 }, 0,
      { { "b", 4 }, { "b", 4 }, { NULL, 0 } }, { 1, 1, 0 } },
    { "another one with the same epoch, of one", { "a", 5 }, 0,
      { { "b", 5 }, { NULL, 0 }, { NULL, 0 } }, { 0, 0, 0 } },
    { "another one with the same epoch, of two", { "a", 5 }, 0,
      { { "b", 5 }, { "b", 5 }, { NULL, 0 } }, { 1, 1, 0 } },

    { NULL, { NULL, 0 }, 0, { { NULL, 0 } }, { 0 } }
};


volatile ngx_cycle_t  *ngx_cycle;

static ngx_uint_t                       master_up, n, failed;
static ngx_slab_pool_t                  pool;
static ngx_shm_zone_t                   zone;
static ngx_idempotency_redis_shared_t   shared;
static ngx_idempotency_redis_node_t     node;


static void worker(worker_t *w);
static void says(worker_t *w, ngx_uint_t i, const char *host, int64_t epoch);
static ngx_int_t follow(worker_t *w, ngx_uint_t i);
static ngx_uint_t followed(worker_t *w, const char *host);
static ngx_uint_t is_shared(const char *host, int64_t epoch);
static void belief(unit_belief_t *t);
static void race(const char *what, const char *before, const char *here,
    const char *there);
static void check(ngx_uint_t passed, const char *what, const char *name);


/* of nginx and of the parts below, as far as they are needed */

void
ngx_shmtx_lock(ngx_shmtx_t *mtx)
{
    (void) mtx;
}


void
ngx_shmtx_unlock(ngx_shmtx_t *mtx)
{
    (void) mtx;
}


void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *fmt, ...)
{
    (void) level;
    (void) log;
    (void) err;
    (void) fmt;
}


ngx_int_t
ngx_atoi(u_char *line, size_t len)
{
    (void) line;
    (void) len;

    return NGX_ERROR;
}


ngx_uint_t
ngx_idempotency_redis_node_is_up(ngx_idempotency_redis_node_t *one)
{
    (void) one;

    return master_up;
}


ngx_uint_t
ngx_idempotency_redis_reply_elements(ngx_idempotency_redis_reply_t *reply)
{
    (void) reply;

    return 0;
}


void
ngx_idempotency_redis_reply_text(ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t i, ngx_str_t *text)
{
    (void) reply;
    (void) i;

    ngx_str_null(text);
}


void
ngx_idempotency_redis_reply_value(ngx_idempotency_redis_reply_t *reply,
    const char *name, ngx_str_t *text)
{
    (void) reply;
    (void) name;

    ngx_str_null(text);
}


int
main(void)
{
    unit_belief_t  *t;

    zone.data = &shared;
    zone.shm.addr = (u_char *) &pool;

    for (t = beliefs; t->what; t++) {
        belief(t);
    }

    race("another worker meets a later failover", "a", "b", "c");
    race("another worker meets a failover back", "a", "b", "a");

    printf("1..%lu\n", (unsigned long) n);

    return failed != 0;
}


static void
belief(unit_belief_t *t)
{
    worker_t    w;
    ngx_uint_t  i, right;

    ngx_memzero(&shared, sizeof(shared));

    worker(&w);

    if (t->followed.host) {
        says(&w, 0, t->followed.host, t->followed.epoch);
        (void) follow(&w, 0);
    }

    for (i = 0; i < SENTINELS; i++) {
        says(&w, i, t->words[i].host, t->words[i].epoch);
    }

    master_up = t->up;
    right = 1;

    for (i = 0; i < SENTINELS; i++) {
        right &= (!w.sentinels[i].host.len
                  || ngx_idempotency_redis_quorum_believes(&w.sentinels[i], 1)
                     == t->believed[i]);
    }

    check(right, "belief", t->what);
}


/*
 * Two workers follow "before" with the epoch 4.  This one believes a sentinel
 * that names "here" with 5; before it has written that, the other one follows
 * "there" with 9.
 */

static void
race(const char *what, const char *before, const char *here,
    const char *there)
{
    worker_t  one, two;

    ngx_memzero(&shared, sizeof(shared));

    worker(&one);
    worker(&two);

    says(&one, 0, before, 4);
    (void) follow(&one, 0);

    says(&two, 0, before, 4);
    check(follow(&two, 0) == NGX_OK && is_shared(before, 4), what,
          "both follow one master");

    says(&one, 0, here, 5);
    check(ngx_idempotency_redis_quorum_believes(&one.sentinels[0], 0), what,
          "a sentinel is believed");

    says(&two, 1, there, 9);
    check(follow(&two, 1) == NGX_OK && is_shared(there, 9), what,
          "the other worker is first");

    check(follow(&one, 0) == NGX_DECLINED, what, "the older one is declined");
    check(is_shared(there, 9), what, "the later one stays");
    check(followed(&one, there), what, "and is used");
    check(!followed(&one, there), what, "once");

    /* a later one is no race */

    says(&one, 2, here, 10);
    check(follow(&one, 2) == NGX_OK && is_shared(here, 10), what,
          "one that is later still is followed");
    check(followed(&two, here), what, "by the other worker, too");
}


static void
worker(worker_t *w)
{
    ngx_uint_t  i;

    ngx_memzero(w, sizeof(worker_t));

    w->redis.zone = &zone;
    w->redis.map = &w->watch;

    w->watch.master = &node;
    w->watch.sentinels = w->sentinels;
    w->watch.n = SENTINELS;
    w->watch.most = SENTINELS;

    for (i = 0; i < SENTINELS; i++) {
        w->sentinels[i].redis = &w->redis;
        w->sentinels[i].node = &node;
        w->sentinels[i].configured = 1;
    }
}


static void
says(worker_t *w, ngx_uint_t i, const char *host, int64_t epoch)
{
    ngx_idempotency_redis_sentinel_t  *sentinel;

    sentinel = &w->sentinels[i];

    sentinel->host.data = (u_char *) host;
    sentinel->host.len = host ? ngx_strlen(host) : 0;
    sentinel->port = 6379;
    sentinel->epoch = epoch;
}


static ngx_int_t
follow(worker_t *w, ngx_uint_t i)
{
    ngx_idempotency_redis_sentinel_t  *sentinel;

    sentinel = &w->sentinels[i];

    return ngx_idempotency_redis_quorum_follow(&w->redis, &sentinel->host,
                                               sentinel->port,
                                               sentinel->epoch);
}


/* another worker has found this master */

static ngx_uint_t
followed(worker_t *w, const char *host)
{
    u_char     text[256];
    in_port_t  port;
    ngx_str_t  name;

    return ngx_idempotency_redis_quorum_followed(&w->redis, text, &name, &port)
           == NGX_OK
           && name.len == ngx_strlen(host)
           && ngx_strncmp(name.data, host, name.len) == 0
           && port == 6379;
}


static ngx_uint_t
is_shared(const char *host, int64_t epoch)
{
    return shared.epoch == epoch
           && shared.master_len == ngx_strlen(host)
           && ngx_strncmp(shared.master, host, shared.master_len) == 0;
}


static void
check(ngx_uint_t passed, const char *what, const char *name)
{
    n++;
    failed += !passed;

    printf("%sok %lu - %s: %s\n", passed ? "" : "not ", (unsigned long) n,
           what, name);
}
