
/*
 * Which clients retry wrongly, in constant memory.
 *
 * Sources are counted by Space-Saving: a source that has no counter takes the
 * one with the lowest count, and inherits that as its error.  Of N events a
 * source with more than N / 64 has a counter for sure.  Answers that ask for a
 * retry are kept in a table by the hash of their key, where a newer one may
 * replace an older one.
 */


#include "ngx_idempotency_trouble.h"


/* tries to get the lock, which others hold for some hundred instructions */
#define NGX_IDEMPOTENCY_TROUBLE_SPINS  256


static ngx_uint_t ngx_idempotency_trouble_lock(
    ngx_idempotency_trouble_t *trouble);
static void ngx_idempotency_trouble_unlock(ngx_idempotency_trouble_t *trouble);
static void ngx_idempotency_trouble_count(ngx_idempotency_trouble_t *trouble,
    ngx_idempotency_trouble_e kind, ngx_idempotency_trouble_client_t *client);
static ngx_idempotency_trouble_source_t *ngx_idempotency_trouble_counter(
    ngx_idempotency_trouble_t *trouble, uint64_t source);
static ngx_idempotency_trouble_answer_t *ngx_idempotency_trouble_answer(
    ngx_idempotency_trouble_t *trouble, uint64_t key);
static int ngx_libc_cdecl ngx_idempotency_trouble_cmp(const void *one,
    const void *two);


const char  *ngx_idempotency_trouble_kinds[] = {
    "key_reused",
    "fresh_key",
    "no_backoff",
    "never_retried"
};


static ngx_uint_t
ngx_idempotency_trouble_lock(ngx_idempotency_trouble_t *trouble)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IDEMPOTENCY_TROUBLE_SPINS; i++) {

        if (trouble->lock == 0
            && ngx_atomic_cmp_set(&trouble->lock, 0, ngx_pid))
        {
            return 1;
        }

        ngx_cpu_pause();
    }

    (void) ngx_atomic_fetch_add(&trouble->missed, 1);

    return 0;
}


static void
ngx_idempotency_trouble_unlock(ngx_idempotency_trouble_t *trouble)
{
    (void) ngx_atomic_cmp_set(&trouble->lock, ngx_pid, 0);
}


void
ngx_idempotency_trouble_note(ngx_idempotency_trouble_t *trouble,
    ngx_idempotency_trouble_e kind, ngx_idempotency_trouble_client_t *client)
{
    if (ngx_idempotency_trouble_lock(trouble)) {
        ngx_idempotency_trouble_count(trouble, kind, client);
        ngx_idempotency_trouble_unlock(trouble);
    }
}


static void
ngx_idempotency_trouble_count(ngx_idempotency_trouble_t *trouble,
    ngx_idempotency_trouble_e kind, ngx_idempotency_trouble_client_t *client)
{
    ngx_idempotency_trouble_source_t  *source;

    source = ngx_idempotency_trouble_counter(trouble, client->source);

    source->count++;
    source->kinds[kind]++;
    source->last = ngx_time();
    source->location = client->location;

    trouble->kinds[kind]++;

    if (client->label.len) {
        source->label_len = ngx_min(client->label.len,
                                    NGX_IDEMPOTENCY_TROUBLE_LABEL);
        ngx_memcpy(source->label, client->label.data, source->label_len);
    }
}


static ngx_idempotency_trouble_source_t *
ngx_idempotency_trouble_counter(ngx_idempotency_trouble_t *trouble,
    uint64_t source)
{
    uint64_t                           count;
    ngx_uint_t                         i;
    ngx_idempotency_trouble_source_t  *one, *least;

    least = &trouble->sources[0];

    for (i = 0; i < NGX_IDEMPOTENCY_TROUBLE_SOURCES; i++) {
        one = &trouble->sources[i];

        if (one->count && one->source == source) {
            return one;
        }

        if (one->count < least->count) {
            least = one;
        }
    }

    count = least->count;

    ngx_memzero(least, sizeof(ngx_idempotency_trouble_source_t));

    least->source = source;
    least->count = count;
    least->error = count;

    return least;
}


static ngx_idempotency_trouble_answer_t *
ngx_idempotency_trouble_answer(ngx_idempotency_trouble_t *trouble,
    uint64_t key)
{
    return &trouble->answers[key % NGX_IDEMPOTENCY_TROUBLE_ANSWERS];
}


void
ngx_idempotency_trouble_answered(ngx_idempotency_trouble_t *trouble,
    uint64_t key, ngx_idempotency_trouble_client_t *client,
    ngx_uint_t unavailable)
{
    ngx_idempotency_trouble_answer_t  *answer;

    if (!ngx_idempotency_trouble_lock(trouble)) {
        return;
    }

    answer = ngx_idempotency_trouble_answer(trouble, key);

    if (answer->key && answer->key != key) {
        trouble->replaced++;
    }

    answer->key = key;
    answer->source = client->source;
    answer->when = ngx_current_msec;
    answer->location = client->location;
    answer->unavailable = (uint32_t) unavailable;

    ngx_idempotency_trouble_unlock(trouble);
}


ngx_uint_t
ngx_idempotency_trouble_retried(ngx_idempotency_trouble_t *trouble,
    uint64_t key, ngx_msec_t start)
{
    ngx_uint_t                         early;
    ngx_msec_int_t                     after;
    ngx_idempotency_trouble_answer_t  *answer;

    answer = ngx_idempotency_trouble_answer(trouble, key);

    if (answer->key != key || !ngx_idempotency_trouble_lock(trouble)) {
        return 0;
    }

    early = 0;

    if (answer->key == key) {
        after = (ngx_msec_int_t) (start - answer->when);

        /* one that came before the answer is not a retry of it */

        if (after >= 0) {
            early = (after < NGX_IDEMPOTENCY_TROUBLE_EARLY);
            answer->key = 0;
        }
    }

    ngx_idempotency_trouble_unlock(trouble);

    return early;
}


void
ngx_idempotency_trouble_sweep(ngx_idempotency_trouble_t *trouble)
{
    ngx_pid_t                          pid;
    ngx_uint_t                         i;
    ngx_idempotency_trouble_answer_t  *answer;
    ngx_idempotency_trouble_client_t   client;

    pid = (ngx_pid_t) trouble->lock;

    if (pid && kill(pid, 0) == -1 && ngx_errno == NGX_ESRCH) {

        /* what it has left half done is a wrong number at worst */

        (void) ngx_atomic_cmp_set(&trouble->lock, pid, 0);
    }

    ngx_memzero(&client, sizeof(ngx_idempotency_trouble_client_t));

    for (i = 0; i < NGX_IDEMPOTENCY_TROUBLE_ANSWERS; i++) {
        answer = &trouble->answers[i];

        if (answer->key == 0
            || ngx_current_msec - answer->when < NGX_IDEMPOTENCY_TROUBLE_LATE
            || !ngx_idempotency_trouble_lock(trouble))
        {
            continue;
        }

        if (answer->key
            && ngx_current_msec - answer->when >= NGX_IDEMPOTENCY_TROUBLE_LATE)
        {
            if (answer->unavailable) {
                client.source = answer->source;
                client.location = answer->location;

                ngx_idempotency_trouble_count(trouble,
                    NGX_IDEMPOTENCY_TROUBLE_NEVER_RETRIED, &client);
            }

            answer->key = 0;
        }

        ngx_idempotency_trouble_unlock(trouble);
    }
}


ngx_uint_t
ngx_idempotency_trouble_top(ngx_idempotency_trouble_t *trouble,
    ngx_idempotency_trouble_source_t *sources)
{
    ngx_uint_t  i, n;

    n = 0;

    for (i = 0; i < NGX_IDEMPOTENCY_TROUBLE_SOURCES; i++) {

        if (trouble->sources[i].count) {
            sources[n] = trouble->sources[i];
            sources[n].label_len = ngx_min(sources[n].label_len,
                                           NGX_IDEMPOTENCY_TROUBLE_LABEL);
            n++;
        }
    }

    ngx_qsort(sources, n, sizeof(ngx_idempotency_trouble_source_t),
              ngx_idempotency_trouble_cmp);

    return n;
}


/* by what is certain */

static int ngx_libc_cdecl
ngx_idempotency_trouble_cmp(const void *one, const void *two)
{
    uint64_t                                 a, b;
    const ngx_idempotency_trouble_source_t  *first, *second;

    first = one;
    second = two;

    a = first->count - first->error;
    b = second->count - second->error;

    return (a < b) - (a > b);
}
