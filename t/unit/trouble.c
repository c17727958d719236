
/*
 * Clients that retry wrongly: counts are within the bound of the sketch, a
 * retry is too early, in time, or does not come, and the lock of a process
 * that has died is taken from it.  Prints TAP.
 */


#include "ngx_idempotency_trouble.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>


#define SOURCES  1000
#define EVENTS   200000


static void test_bound(void);
static void test_label(void);
static void test_retries(void);
static void test_sweep(void);
static void test_lock(void);
static uint64_t count(ngx_idempotency_trouble_e kind);
static void ok(ngx_uint_t passed, char *name);


ngx_pid_t                         ngx_pid;
volatile ngx_msec_t               ngx_current_msec = 1000000;
volatile ngx_time_t              *ngx_cached_time;

static ngx_time_t                 now;
static ngx_idempotency_trouble_t  trouble;
static ngx_uint_t                 tests, failed;


int
main(void)
{
    ngx_pid = getpid();
    now.sec = 1794823940;
    ngx_cached_time = &now;

    test_bound();
    test_label();
    test_retries();
    test_sweep();
    test_lock();

    printf("1..%u\n", (unsigned) tests);

    return failed != 0;
}


/* a few sources have most of the events, as it is with clients */

static void
test_bound(void)
{
    uint64_t                          truth[SOURCES], sum;
    ngx_uint_t                        i, n, s, k, low, high, kinds, missing;
    ngx_idempotency_trouble_client_t  client;
    ngx_idempotency_trouble_source_t  top[NGX_IDEMPOTENCY_TROUBLE_SOURCES];

    ngx_memzero(&trouble, sizeof(trouble));
    ngx_memzero(&client, sizeof(client));
    ngx_memzero(truth, sizeof(truth));

    srandom(7);

    for (i = 0; i < EVENTS; i++) {
        s = random() % (1 + random() % SOURCES);
        truth[s]++;

        client.source = s + 1;
        ngx_idempotency_trouble_note(&trouble,
                                     i % NGX_IDEMPOTENCY_TROUBLE_N, &client);
    }

    n = ngx_idempotency_trouble_top(&trouble, top);

    ok(n == NGX_IDEMPOTENCY_TROUBLE_SOURCES, "every counter is used");
    ok(trouble.missed == 0, "no event is missed");

    low = 0;
    high = 0;
    kinds = 0;

    for (i = 0; i < n; i++) {
        s = top[i].source - 1;
        sum = 0;

        for (k = 0; k < NGX_IDEMPOTENCY_TROUBLE_N; k++) {
            sum += top[i].kinds[k];
        }

        low += (top[i].count < truth[s]);
        high += (top[i].count - top[i].error > truth[s]
                 || top[i].error > EVENTS / NGX_IDEMPOTENCY_TROUBLE_SOURCES);
        kinds += (sum != top[i].count - top[i].error);

        truth[s] = 0;
    }

    missing = 0;

    for (s = 0; s < SOURCES; s++) {
        missing += (truth[s] > EVENTS / NGX_IDEMPOTENCY_TROUBLE_SOURCES);
    }

    ok(low == 0, "a count is not too low");
    ok(high == 0, "and too high by its error at most, which is N / 64");
    ok(kinds == 0, "the kinds of a source are what is certain");
    ok(missing == 0, "a source with more than N / 64 events is there");
    ok(top[0].count - top[0].error >= top[1].count - top[1].error
       && top[1].count - top[1].error >= top[n - 1].count - top[n - 1].error,
       "the worst come first");
}


static void
test_label(void)
{
    u_char                            text[100];
    ngx_idempotency_trouble_client_t  client;
    ngx_idempotency_trouble_source_t  top[NGX_IDEMPOTENCY_TROUBLE_SOURCES];

    ngx_memzero(&trouble, sizeof(trouble));
    ngx_memzero(&client, sizeof(client));
    ngx_memset(text, 'x', sizeof(text));

    client.source = 1;
    client.location = 5;
    client.label.data = text;
    client.label.len = sizeof(text);

    ngx_idempotency_trouble_note(&trouble, 0, &client);
    ngx_str_null(&client.label);
    ngx_idempotency_trouble_note(&trouble, 0, &client);

    ok(ngx_idempotency_trouble_top(&trouble, top) == 1
       && top[0].label_len == NGX_IDEMPOTENCY_TROUBLE_LABEL
       && ngx_memcmp(top[0].label, text, top[0].label_len) == 0
       && top[0].location == 5 && top[0].last == now.sec,
       "label, location and time are those of the last event that has them");
}


static void
test_retries(void)
{
    ngx_msec_t                        at;
    ngx_idempotency_trouble_client_t  client;

    ngx_memzero(&trouble, sizeof(trouble));
    ngx_memzero(&client, sizeof(client));

    client.source = 1;
    at = ngx_current_msec;

    ok(!ngx_idempotency_trouble_retried(&trouble, 77, at),
       "a first request is not a retry");

    ngx_idempotency_trouble_answered(&trouble, 77, &client, 0);

    ok(!ngx_idempotency_trouble_retried(&trouble, 77, at - 5),
       "nor is one that came before the answer");
    ok(ngx_idempotency_trouble_retried(&trouble, 77, at + 100),
       "a retry after 100 ms is too early");
    ok(!ngx_idempotency_trouble_retried(&trouble, 77, at + 100),
       "which is seen once");

    ngx_idempotency_trouble_answered(&trouble, 77, &client, 0);

    ok(!ngx_idempotency_trouble_retried(&trouble, 77, at + 1000),
       "one after a second is not");

    ngx_idempotency_trouble_answered(&trouble, 77, &client, 0);
    ngx_idempotency_trouble_answered(&trouble,
                                     77 + NGX_IDEMPOTENCY_TROUBLE_ANSWERS,
                                     &client, 0);

    ok(!ngx_idempotency_trouble_retried(&trouble, 77, at + 100)
       && trouble.replaced == 1,
       "an answer that was replaced is forgotten, and that is counted");
}


static void
test_sweep(void)
{
    ngx_idempotency_trouble_client_t  client;

    ngx_memzero(&trouble, sizeof(trouble));
    ngx_memzero(&client, sizeof(client));

    client.source = 1;

    ngx_idempotency_trouble_answered(&trouble, 1, &client, 1);
    ngx_idempotency_trouble_answered(&trouble, 2, &client, 0);
    ngx_idempotency_trouble_answered(&trouble, 3, &client, 1);

    ngx_current_msec += 5000;
    (void) ngx_idempotency_trouble_retried(&trouble, 3, ngx_current_msec);

    ngx_current_msec += NGX_IDEMPOTENCY_TROUBLE_LATE - 5001;
    ngx_idempotency_trouble_sweep(&trouble);
    ok(count(NGX_IDEMPOTENCY_TROUBLE_NEVER_RETRIED) == 0,
       "there is still time for a retry");

    ngx_current_msec += 1;
    ngx_idempotency_trouble_sweep(&trouble);
    ok(count(NGX_IDEMPOTENCY_TROUBLE_NEVER_RETRIED) == 1,
       "a 503 that was not retried, but no 409, and no 503 that was");

    ngx_idempotency_trouble_sweep(&trouble);
    ok(count(NGX_IDEMPOTENCY_TROUBLE_NEVER_RETRIED) == 1, "is counted once");
}


static void
test_lock(void)
{
    pid_t                             pid;
    ngx_idempotency_trouble_client_t  client;

    ngx_memzero(&trouble, sizeof(trouble));
    ngx_memzero(&client, sizeof(client));

    client.source = 1;

    pid = fork();

    if (pid == 0) {
        _exit(0);
    }

    (void) waitpid(pid, NULL, 0);

    trouble.lock = pid;

    ngx_idempotency_trouble_note(&trouble, 0, &client);
    ok(trouble.missed == 1 && trouble.kinds[0] == 0,
       "nobody waits for a lock: the event is missed");

    ngx_idempotency_trouble_sweep(&trouble);
    ngx_idempotency_trouble_note(&trouble, 0, &client);
    ok(trouble.missed == 1 && trouble.kinds[0] == 1,
       "it is taken from a process that has died");
}


static uint64_t
count(ngx_idempotency_trouble_e kind)
{
    return trouble.kinds[kind];
}


static void
ok(ngx_uint_t passed, char *name)
{
    printf("%sok %u - %s\n", passed ? "" : "not ", (unsigned) ++tests, name);

    failed += !passed;
}
