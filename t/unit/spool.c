
/*
 * Operations in shared memory, as exiting workers leave them: what was written
 * is what is read; a process may be killed at any step; the memory is bounded,
 * and so is the wait for a mutex whose holder is dead.  Prints TAP.
 */


#include "ngx_idempotency_redis_spool.h"
#include <stdio.h>
#include <sys/wait.h>


#define SIZE  (16 * 1024 * 1024 + 65536)


static ngx_idempotency_op_t *op(ngx_uint_t number);
static ngx_int_t add(ngx_uint_t number, size_t len);
static ngx_uint_t take(size_t *len);
static ngx_int_t take_one(void *data,
    ngx_idempotency_redis_outcome_t *outcome, ngx_str_t *answer);
static void test_outcome(void);
static void test_order(void);
static void test_killed(void);
static void test_bounds(void);
static void test_workers(void);
static void ok(ngx_uint_t passed, char *name);


/* the first words of the zone, as spool.c has them */

typedef struct {
    ngx_atomic_t  used;
    ngx_atomic_t  taken;
    ngx_atomic_t  number;
    ngx_atomic_t  reported;
} words_t;


ngx_int_t                ngx_process_slot;
ngx_pid_t                ngx_pid;
ngx_uint_t               ngx_pagesize = 4096;

static ngx_atomic_t      lock;
static ngx_shm_zone_t    zone;
static ngx_slab_pool_t   pool;
static words_t          *words;
static ngx_uint_t        tests, failed;


/* of nginx, as far as they are needed */

ngx_uint_t
ngx_shmtx_trylock(ngx_shmtx_t *mtx)
{
    (void) mtx;

    return lock == 0 && ngx_atomic_cmp_set(&lock, 0, ngx_pid);
}


void
ngx_shmtx_unlock(ngx_shmtx_t *mtx)
{
    (void) mtx;

    lock = 0;
}


ngx_shm_zone_t *
ngx_shared_memory_add(ngx_conf_t *cf, ngx_str_t *name, size_t size, void *tag)
{
    (void) cf;
    (void) name;
    (void) size;
    (void) tag;

    return &zone;
}


void *
ngx_slab_alloc(ngx_slab_pool_t *shpool, size_t size)
{
    (void) shpool;

    return size <= SIZE ? words : NULL;
}


int
main(void)
{
    ngx_pid = getpid();
    words = malloc(SIZE);

    if (words == NULL) {
        return 1;
    }

    memset(words, 0xa5, SIZE);

    zone.shm.addr = (u_char *) &pool;

    ok(ngx_idempotency_redis_spool_zone(NULL, NULL) == &zone
       && zone.init(&zone, NULL) == NGX_OK && zone.data == words,
       "a zone");
    ok(zone.init(&zone, words) == NGX_OK
       && ngx_idempotency_redis_spool_number(&zone) == 0,
       "a reload keeps it");

    test_outcome();
    test_order();
    test_killed();
    test_bounds();
    test_workers();

    printf("1..%u\n", (unsigned) tests);

    free(words);

    return failed != 0;
}


static ngx_idempotency_op_t *
op(ngx_uint_t number)
{
    static u_char                notes[] = "a note of some length";
    static ngx_idempotency_op_t  op;

    memset(&op, 0, sizeof(op));
    memset(op.id.digest, (int) number, sizeof(op.id.digest));
    memset(op.id.owner, (int) number + 1, sizeof(op.id.owner));
    memset(op.id.fingerprint, (int) number + 2, sizeof(op.id.fingerprint));

    op.type = NGX_IDEMPOTENCY_COMPLETE;
    op.id.number = number;
    op.id.epoch = number + 3;
    op.fence = number + 4;
    op.lease = number + 5;
    op.ttl = number + 6;
    op.tombstone = number + 7;
    op.status = number + 8;
    op.flags = NGX_IDEMPOTENCY_SEQUENCE;
    op.connection = number + 9;
    op.head.len = 2;
    op.note.data = notes;
    op.note.len = number % sizeof(notes);

    return &op;
}


static ngx_int_t
add(ngx_uint_t number, size_t len)
{
    ngx_str_t                        answer;
    ngx_idempotency_redis_outcome_t  outcome;

    static u_char  bytes[1024 * 1024];

    memset(bytes, (int) number, len);

    answer.data = bytes;
    answer.len = len;

    ngx_idempotency_redis_outcome_save(&outcome, op(number),
                                       NGX_IDEMPOTENCY_COMPLETE);

    return ngx_idempotency_redis_spool_add(&zone, &outcome, &answer, 3);
}


typedef struct {
    ngx_uint_t  number;
    size_t      len;
} taken_t;


/* the number of the first one, 0: there is none, or it is not as it was */

static ngx_uint_t
take(size_t *len)
{
    taken_t  taken;

    if (ngx_idempotency_redis_spool_take(&zone, 1, take_one, &taken) != 1) {
        return 0;
    }

    *len = taken.len;

    return taken.number;
}


static ngx_int_t
take_one(void *data, ngx_idempotency_redis_outcome_t *outcome,
    ngx_str_t *answer)
{
    size_t                 i;
    taken_t               *taken = data;
    ngx_idempotency_op_t   is, *was;

    memset(&is, 0, sizeof(is));
    ngx_idempotency_redis_outcome_load(outcome, &is);

    taken->number = is.id.number;
    taken->len = answer->len;

    was = op(is.id.number);

    if (outcome->head != was->head.len
        || is.note.len != was->note.len
        || memcmp(is.note.data, was->note.data, is.note.len) != 0)
    {
        return NGX_DECLINED;
    }

    is.note = was->note;

    for (i = 0; i < answer->len; i++) {
        if (answer->data[i] != (u_char) is.id.number) {
            return NGX_DECLINED;
        }
    }

    is.head.len = outcome->head;

    return memcmp(&is, was, sizeof(is)) == 0 ? NGX_OK : NGX_DECLINED;
}


static void
test_outcome(void)
{
    ngx_idempotency_op_t            *was;
    ngx_idempotency_redis_outcome_t  outcome;

    was = op(1);
    was->type = NGX_IDEMPOTENCY_CLAIM;
    was->flags |= NGX_IDEMPOTENCY_CLAIM_UNKNOWN|NGX_IDEMPOTENCY_TELL;

    ngx_idempotency_redis_outcome_save(&outcome, was,
                                       NGX_IDEMPOTENCY_RELEASE);

    ok(outcome.type == NGX_IDEMPOTENCY_RELEASE && outcome.fence == 0,
       "a claim becomes a release without its fence");
    ok(outcome.flags == (NGX_IDEMPOTENCY_SEQUENCE|NGX_IDEMPOTENCY_TELL),
       "and without the flags of a claim");
    ok(outcome.note.len == 0, "and without its note");
}


static void
test_order(void)
{
    size_t      len;
    ngx_uint_t  i, good;

    for (i = 1; i <= 100; i++) {
        (void) add(i, i * 7 % 50);
    }

    ok(ngx_idempotency_redis_spool_number(&zone) == 100, "100 are left");

    for (i = 1, good = 1; i <= 100; i++) {
        good &= (take(&len) == i && len == i * 7 % 50);
    }

    ok(good, "all of them are as they were, in their order");
    ok(take(&len) == 0 && ngx_idempotency_redis_spool_number(&zone) == 0,
       "none is taken twice");
    ok(add(7, 9) == NGX_OK && words->taken == 0, "the place is used again");
    ok(take(&len) == 7, "for another one");
}


static void
test_killed(void)
{
    size_t   len;
    words_t  before;

    /* while it was written */

    (void) add(1, 10);
    before = *words;
    (void) add(2, 1000);
    *words = before;

    ok(ngx_idempotency_redis_spool_number(&zone) == 1,
       "killed while it writes: nobody sees it");
    ok(add(3, 20) == NGX_OK && take(&len) == 1 && take(&len) == 3,
       "the next one is in its place");

    /* between both words */

    (void) add(1, 10);
    (void) add(2, 10);
    words->number = 1;

    ok(take(&len) == 1 && ngx_idempotency_redis_spool_number(&zone) == 1
       && take(&len) == 2,
       "killed before it was counted: it is taken all the same");
    ok(ngx_idempotency_redis_spool_number(&zone) == 0, "and none is left");

    /* while one is taken */

    (void) add(1, 10);
    before = *words;
    (void) take(&len);
    *words = before;

    ok(take(&len) == 1, "killed while it takes: another one takes it again");

    /* while an empty place is made ready */

    words->used = 0;

    ok(ngx_idempotency_redis_spool_number(&zone) == 0
       && take(&len) == 0,
       "killed while it begins anew: empty");
    ok(add(5, 10) == NGX_OK && take(&len) == 5, "and it goes on");

    /* with the mutex */

    lock = ngx_pid + 1;

    ok(add(1, 10) == NGX_BUSY && take(&len) == 0, "killed with the mutex");

    lock = 0;
}


static void
test_bounds(void)
{
    size_t      len;
    ngx_uint_t  i, with, without, good;

    for (i = 1; add(i, 1000000) == NGX_OK; i++) { /* void */ }

    i--;

    for (with = 0, good = 1; with < i; with++) {
        good &= (take(&len) == with + 1);

        if (len == 0) {
            break;
        }
    }

    for (without = 1; without + with < i; without++) {
        good &= (take(&len) == with + without + 1 && len == 0);
    }

    printf("# %u with an answer of 1000000 bytes, %u without\n",
           (unsigned) with, (unsigned) without);

    ok(good, "full: all are there");
    ok(with == 12, "answers take 12 MB");
    ok(without > 16000, "and 16000 outcomes have room besides");
    ok(take(&len) == 0 && add(1, 1000000) == NGX_OK && take(&len) == 1
       && len == 1000000, "then there is room again");
}


static void
test_workers(void)
{
    int    status;
    pid_t  pid;

    ok(!ngx_idempotency_redis_spool_has_workers(&zone), "no worker");

    ngx_idempotency_redis_spool_join(&zone);
    ok(ngx_idempotency_redis_spool_has_workers(&zone), "a worker");

    ngx_idempotency_redis_spool_leave(&zone);
    ok(!ngx_idempotency_redis_spool_has_workers(&zone), "it exits");

    pid = fork();

    if (pid == 0) {
        _exit(0);
    }

    (void) waitpid(pid, &status, 0);

    ngx_pid = pid;
    ngx_process_slot = 5;
    ngx_idempotency_redis_spool_join(&zone);
    ok(!ngx_idempotency_redis_spool_has_workers(&zone),
       "one that was killed takes nothing");

    (void) add(1, 10);
    (void) add(2, 10);
    ok(ngx_idempotency_redis_spool_report(&zone) == 2, "two are reported");

    (void) add(3, 10);
    ok(ngx_idempotency_redis_spool_report(&zone) == 1, "and one more");
    ok(ngx_idempotency_redis_spool_report(&zone) == 0, "once");
}


static void
ok(ngx_uint_t passed, char *name)
{
    tests++;
    failed += !passed;

    printf("%sok %u - %s\n", passed ? "" : "not ", (unsigned) tests, name);
}
