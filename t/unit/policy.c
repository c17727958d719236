
/*
 * The rules of the product as tables: what goes in, what must come out.
 * Linked with policy.c only; prints TAP.
 */


#include "policy.h"


typedef struct {
    char                            *name;
    ngx_idempotency_state_e          state;
    ngx_uint_t                       kept;
    u_char                           stored;     /* fingerprints by a byte, */
    u_char                           sent;       /* 0: without fingerprint */
    ngx_uint_t                       duplicate;
    ngx_http_idempotency_verdict_e   verdict;
} test_duplicate_t;


typedef struct {
    char                            *name;
    ngx_http_idempotency_override_e  override;
    ngx_uint_t                       status;
    off_t                            sent;
    char                            *how;        /* see test_outcome() */
    ngx_idempotency_op_e             op;
} test_outcome_t;


typedef struct {
    ngx_uint_t                       from;       /* statuses */
    ngx_uint_t                       to;
    ngx_http_idempotency_verdict_e   verdict;
} test_probe_t;


typedef struct {
    char                            *name;
    off_t                            sent;
    off_t                            sent_before;
    char                            *how;
    ngx_http_idempotency_arrival_e   arrival;
    ngx_uint_t                       may;
} test_gate_t;


typedef struct {
    char                            *value;
    ngx_http_idempotency_override_e  override;
    time_t                           ttl;        /* -1: left alone */
} test_override_t;


static void test_duplicates(void);
static void test_cancelled(void);
static void test_outcomes(void);
static void test_status_lists(void);
static void test_probes(void);
static void test_failures(void);
static void test_gates(void);
static void test_refused(void);
static void test_overrides(void);
static void test_list(ngx_http_idempotency_statuses_t *statuses,
    ngx_uint_t from, ngx_uint_t to);
static ngx_idempotency_op_e test_outcome(test_outcome_t *t);


#define EXECUTING  NGX_IDEMPOTENCY_EXECUTING
#define UNKNOWN    NGX_IDEMPOTENCY_UNKNOWN
#define DONE       NGX_IDEMPOTENCY_DONE
#define TOMBSTONE  NGX_IDEMPOTENCY_TOMBSTONE

#define REPLAY     NGX_HTTP_IDEMPOTENCY_DUPLICATE_REPLAY
#define REJECT     NGX_HTTP_IDEMPOTENCY_DUPLICATE_REJECT


static test_duplicate_t  duplicates[] = {

    { "running, same request",
      EXECUTING, 0, 1, 1, REPLAY, NGX_HTTP_IDEMPOTENCY_RUNNING },
    { "running, other request: the mismatch comes first",
      EXECUTING, 0, 1, 2, REPLAY, NGX_HTTP_IDEMPOTENCY_KEY_REUSED },
    { "running, duplicates are rejected: it still runs",
      EXECUTING, 0, 1, 1, REJECT, NGX_HTTP_IDEMPOTENCY_RUNNING },

    { "unknown, same request",
      UNKNOWN, 0, 1, 1, REPLAY, NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN },
    { "unknown, other request",
      UNKNOWN, 0, 1, 2, REPLAY, NGX_HTTP_IDEMPOTENCY_KEY_REUSED },
    { "unknown, duplicates are rejected",
      UNKNOWN, 0, 1, 1, REJECT, NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN },

    { "done, same request",
      DONE, 1, 1, 1, REPLAY, NGX_HTTP_IDEMPOTENCY_REPLAY },
    { "done, other request",
      DONE, 1, 1, 2, REPLAY, NGX_HTTP_IDEMPOTENCY_KEY_REUSED },
    { "done, duplicates are rejected",
      DONE, 1, 1, 1, REJECT, NGX_HTTP_IDEMPOTENCY_DUPLICATE },
    { "done, other request, duplicates are rejected",
      DONE, 1, 1, 2, REJECT, NGX_HTTP_IDEMPOTENCY_KEY_REUSED },
    { "done, answer not kept",
      DONE, 0, 1, 1, REPLAY, NGX_HTTP_IDEMPOTENCY_NOT_KEPT },
    { "done, answer not kept, duplicates are rejected",
      DONE, 0, 1, 1, REJECT, NGX_HTTP_IDEMPOTENCY_DUPLICATE },
    { "done, answer not kept, other request",
      DONE, 0, 1, 2, REPLAY, NGX_HTTP_IDEMPOTENCY_KEY_REUSED },

    { "tombstone, same request",
      TOMBSTONE, 0, 1, 1, REPLAY, NGX_HTTP_IDEMPOTENCY_KEY_EXPIRED },
    { "tombstone, other request",
      TOMBSTONE, 0, 1, 2, REPLAY, NGX_HTTP_IDEMPOTENCY_KEY_REUSED },
    { "tombstone, duplicates are rejected",
      TOMBSTONE, 0, 1, 1, REJECT, NGX_HTTP_IDEMPOTENCY_KEY_EXPIRED },

    { "fingerprints are off for the duplicate",
      DONE, 1, 1, 0, REPLAY, NGX_HTTP_IDEMPOTENCY_REPLAY },
    { "fingerprints were off for the first one",
      DONE, 1, 0, 1, REPLAY, NGX_HTTP_IDEMPOTENCY_REPLAY },

    { "a refused claim without a record",
      NGX_IDEMPOTENCY_NONE, 0, 1, 1, REPLAY,
      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE },
    { "a refused claim of an issued key",
      NGX_IDEMPOTENCY_ISSUED, 0, 0, 1, REPLAY,
      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE },

    { NULL, 0, 0, 0, 0, 0, 0 }
};


#define COMPLETE      NGX_IDEMPOTENCY_COMPLETE
#define RELEASE       NGX_IDEMPOTENCY_RELEASE
#define MARK_UNKNOWN  NGX_IDEMPOTENCY_MARK_UNKNOWN

#define NONE          NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE


/*
 * final is 200-499 500 501, retryable 401 403 407 408 425 429 503
 *
 * how: w the handler is ours, r it was called, u it has an upstream, a which
 * sent a header, h to which another one has handed it on
 */

static test_outcome_t  outcomes[] = {

    /* the upstream has answered: its status decides */

    { "200", NONE, 200, 99, "wrua", COMPLETE },
    { "201", NONE, 201, 99, "wrua", COMPLETE },
    { "204", NONE, 204, 99, "wrua", COMPLETE },
    { "303", NONE, 303, 99, "wrua", COMPLETE },
    { "400", NONE, 400, 99, "wrua", COMPLETE },
    { "422", NONE, 422, 99, "wrua", COMPLETE },
    { "500", NONE, 500, 99, "wrua", COMPLETE },
    { "501", NONE, 501, 99, "wrua", COMPLETE },
    { "429, in both lists: retryable wins",
      NONE, 429, 99, "wrua", RELEASE },
    { "503, in one list", NONE, 503, 99, "wrua", RELEASE },
    { "503, of a second upstream", NONE, 503, 99, "wruah", MARK_UNKNOWN },
    { "release, of a second upstream",
      NGX_HTTP_IDEMPOTENCY_OVERRIDE_RELEASE, 503, 99, "wruah", RELEASE },
    { "201, of a second upstream", NONE, 201, 99, "wruah", COMPLETE },
    { "502, in neither", NONE, 502, 99, "wrua", MARK_UNKNOWN },
    { "504, in neither", NONE, 504, 99, "wrua", MARK_UNKNOWN },
    { "101, which cannot be listed", NONE, 101, 99, "wrua", COMPLETE },
    { "100, which cannot be listed", NONE, 100, 99, "wrua", MARK_UNKNOWN },
    { "599, the last of the lists", NONE, 599, 99, "wrua", MARK_UNKNOWN },
    { "600, beyond the lists", NONE, 600, 99, "wrua", MARK_UNKNOWN },
    { "999, beyond the lists", NONE, 999, 99, "wrua", MARK_UNKNOWN },
    { "200 while the last bytes are not counted yet",
      NONE, 200, 0, "wrua", COMPLETE },

    /* no header came: the status is nginx's own, only the bytes tell */

    { "connection refused, 502", NONE, 502, 0, "wru", RELEASE },
    { "no live upstream, 502", NONE, 502, 0, "wru", RELEASE },
    { "time-out while connecting, 504", NONE, 504, 0, "wru", RELEASE },
    { "a byte was sent, then reset, 502", NONE, 502, 1, "wru", MARK_UNKNOWN },
    { "a byte was sent, then time-out, 504",
      NONE, 504, 1, "wru", MARK_UNKNOWN },
    { "sent, and nginx's own 503 is not the upstream's",
      NONE, 503, 99, "wru", MARK_UNKNOWN },
    { "sent, and nginx's own 500 is not the upstream's",
      NONE, 500, 99, "wru", MARK_UNKNOWN },
    { "not sent, and nginx's own 500 is not final",
      NONE, 500, 0, "wru", RELEASE },
    { "request gone, nothing sent", NONE, 0, 0, "wru", RELEASE },
    { "request gone, sent", NONE, 0, 1, "wru", MARK_UNKNOWN },

    /* the handler never ran */

    { "wrapped and never run, 403 of another module",
      NONE, 403, 0, "w", RELEASE },
    { "wrapped and never run, 200", NONE, 200, 0, "w", RELEASE },
    { "wrapped and never run, no answer", NONE, 0, 0, "w", RELEASE },

    /* content without an upstream: nginx is the one who acts */

    { "200 without upstream", NONE, 200, 0, "wr", COMPLETE },
    { "404 without upstream and handler", NONE, 404, 0, "", COMPLETE },
    { "503 without upstream", NONE, 503, 0, "wr", RELEASE },
    { "502 without upstream", NONE, 502, 0, "wr", RELEASE },
    { "no answer without upstream", NONE, 0, 0, "wr", MARK_UNKNOWN },
    { "no answer without upstream and handler",
      NONE, 0, 0, "", MARK_UNKNOWN },

    /* X-Accel-Idempotency beats the lists */

    { "final with 503",
      NGX_HTTP_IDEMPOTENCY_OVERRIDE_FINAL, 503, 99, "wrua", COMPLETE },
    { "final with 504",
      NGX_HTTP_IDEMPOTENCY_OVERRIDE_FINAL, 504, 99, "wrua", COMPLETE },
    { "release with 200",
      NGX_HTTP_IDEMPOTENCY_OVERRIDE_RELEASE, 200, 99, "wrua", RELEASE },
    { "unknown with 200",
      NGX_HTTP_IDEMPOTENCY_OVERRIDE_UNKNOWN, 200, 99, "wrua", MARK_UNKNOWN },
    { "unknown with 503",
      NGX_HTTP_IDEMPOTENCY_OVERRIDE_UNKNOWN, 503, 99, "wrua", MARK_UNKNOWN },

    { NULL, 0, 0, 0, NULL, 0 }
};


static test_probe_t  probes[] = {

    { 0, 199, NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN },
    { 200, 201, NGX_HTTP_IDEMPOTENCY_REPLAY },
    { 202, 202, NGX_HTTP_IDEMPOTENCY_RUNNING },
    { 203, 299, NGX_HTTP_IDEMPOTENCY_REPLAY },
    { 300, 403, NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN },
    { 404, 404, NGX_HTTP_IDEMPOTENCY_EXECUTE },
    { 405, 424, NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN },
    { 425, 425, NGX_HTTP_IDEMPOTENCY_RUNNING },
    { 426, 999, NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN },

    { 0, 0, 0 }
};


#define FIRST       NGX_HTTP_IDEMPOTENCY_ARRIVAL_FIRST
#define REDIRECTED  NGX_HTTP_IDEMPOTENCY_ARRIVAL_REDIRECTED
#define ERROR_PAGE  NGX_HTTP_IDEMPOTENCY_ARRIVAL_ERROR_PAGE
#define ELSEWHERE   NGX_HTTP_IDEMPOTENCY_ARRIVAL_ELSEWHERE

/* how: (a)nswered, (s)ettled, the page (h)ides the error */

static test_gate_t  gates[] = {

    { "first", 0, 0, "", FIRST, 1 },
    { "first, and settled", 0, 0, "s", FIRST, 0 },
    { "a second try, after a byte", 1, 0, "", FIRST, 0 },
    { "a second try, after an answer", 99, 0, "a", FIRST, 0 },
    { "a backup, nothing sent", 0, 0, "h", ELSEWHERE, 1 },
    { "a backup, and settled", 0, 0, "sh", ELSEWHERE, 0 },
    { "a backup, a byte sent", 1, 0, "h", ELSEWHERE, 0 },
    { "a backup, answered", 99, 0, "ah", ELSEWHERE, 0 },
    { "a backup after a redirect", 99, 99, "ah", ELSEWHERE, 0 },

    { "the upstream's own redirect", 99, 99, "a", REDIRECTED, 1 },
    { "its own redirect, nothing sent", 0, 0, "", REDIRECTED, 1 },
    { "its own redirect, and settled", 99, 99, "as", REDIRECTED, 0 },
    { "a second try where it leads", 150, 99, "a", REDIRECTED, 0 },

    { "a page, nothing sent", 0, 0, "", ERROR_PAGE, 1 },
    { "a page that hides it, not sent", 0, 0, "h", ERROR_PAGE, 1 },
    { "a page, sent", 99, 0, "", ERROR_PAGE, 1 },
    { "a page that hides it, sent", 99, 0, "h", ERROR_PAGE, 0 },
    { "a page, answered", 99, 0, "a", ERROR_PAGE, 1 },
    { "a page that hides it, answered", 99, 0, "ah", ERROR_PAGE, 1 },
    { "a page, settled", 99, 0, "s", ERROR_PAGE, 1 },

    { NULL, 0, 0, NULL, FIRST, 0 }
};


#define FINAL         NGX_HTTP_IDEMPOTENCY_OVERRIDE_FINAL
#define RELEASED      NGX_HTTP_IDEMPOTENCY_OVERRIDE_RELEASE
#define UNKNOWN_OVERRIDE  NGX_HTTP_IDEMPOTENCY_OVERRIDE_UNKNOWN


static test_override_t  words[] = {

    { "final", FINAL, -1 },
    { "release", RELEASED, -1 },
    { "unknown", UNKNOWN_OVERRIDE, -1 },
    { "Final", FINAL, -1 },
    { "RELEASE", RELEASED, -1 },
    { "final ", FINAL, -1 },
    { "final; ttl=60", FINAL, 60 },
    { "final;ttl=60", FINAL, 60 },
    { "final ; ttl=60", FINAL, 60 },
    { "final;   TTL=1", FINAL, 1 },
    { "release; ttl=5", RELEASED, 5 },
    { "unknown; ttl=5", UNKNOWN_OVERRIDE, 5 },
    { "final; ttl=2147483648", FINAL, 2147483647 },

    { "", NONE, -1 },
    { " ", NONE, -1 },
    { ";", NONE, -1 },
    { "fina", NONE, -1 },
    { "finally", NONE, -1 },
    { "releases", NONE, -1 },
    { "finalfinal", NONE, -1 },
    { "final;", NONE, -1 },
    { "final; ", NONE, -1 },
    { "final release", NONE, -1 },
    { "final; ttl", NONE, -1 },
    { "final; ttl=", NONE, -1 },
    { "final; ttl=0", NONE, -1 },
    { "final; ttl=-1", NONE, -1 },
    { "final; ttl=1h", NONE, -1 },
    { "final; ttl=60; x", NONE, -1 },
    { "final; ttl=99999999999999999999", NONE, -1 },
    { "final; max=60", NONE, -1 },

    { NULL, 0, 0 }
};


static ngx_http_idempotency_statuses_t  final, retryable;

int
main(void)
{
    static ngx_uint_t  codes[] = { 401, 403, 407, 408, 425, 429, 503, 0 };

    ngx_uint_t  i;

    test_list(&final, 200, 501);

    for (i = 0; codes[i]; i++) {
        test_list(&retryable, codes[i], codes[i]);
    }

    test_duplicates();
    test_cancelled();
    test_outcomes();
    test_status_lists();
    test_probes();
    test_failures();
    test_gates();
    test_refused();
    test_overrides();

    printf("1..%u\n", (unsigned) number);

    return failed != 0;
}


static void
test_duplicates(void)
{
    test_duplicate_t                *t;
    ngx_idempotency_record_t         record;
    ngx_http_idempotency_verdict_e   verdict;
    u_char             fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_LEN];

    for (t = duplicates; t->name; t++) {
        ngx_memzero(&record, sizeof(ngx_idempotency_record_t));
        ngx_memzero(fingerprint, NGX_IDEMPOTENCY_FINGERPRINT_LEN);

        record.state = t->state;
        record.kept = t->kept;

        /* the last byte counts as much as the first */

        record.fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_SUM - 1] = t->stored;
        fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_SUM - 1] = t->sent;

        verdict = ngx_http_idempotency_policy_duplicate(&record,
                                                t->sent ? fingerprint : NULL,
                                                t->duplicate);

        ok(verdict == t->verdict, "duplicate", t->name);
    }
}


static void
test_cancelled(void)
{
    u_char                    fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_LEN];
    ngx_uint_t                i;
    ngx_idempotency_record_t  record;

    static ngx_idempotency_state_e  states[] = { DONE, TOMBSTONE };

    ngx_memset(fingerprint, 'f', NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    for (i = 0; i < 2; i++) {
        ngx_memzero(&record, sizeof(ngx_idempotency_record_t));
        record.state = states[i];
        record.status = NGX_IDEMPOTENCY_CANCELLED_STATUS;

        ok(ngx_http_idempotency_policy_duplicate(&record, fingerprint, REPLAY)
           == NGX_HTTP_IDEMPOTENCY_KEY_CANCELLED
           && ngx_http_idempotency_policy_duplicate(&record, NULL, REJECT)
              == NGX_HTTP_IDEMPOTENCY_KEY_CANCELLED,
           "duplicate", "cancelled");

        record.attempts = 1;

        ok(ngx_http_idempotency_policy_duplicate(&record, fingerprint, REPLAY)
           != NGX_HTTP_IDEMPOTENCY_KEY_CANCELLED,
           "duplicate", "executed, and the answer was 410");
    }
}


static void
test_outcomes(void)
{
    test_outcome_t  *t;

    for (t = outcomes; t->name; t++) {
        ok(test_outcome(t) == t->op, "outcome", t->name);
    }
}


static ngx_idempotency_op_e
test_outcome(test_outcome_t *t)
{
    ngx_http_idempotency_facts_t  facts;

    ngx_memzero(&facts, sizeof(ngx_http_idempotency_facts_t));

    facts.override = t->override;
    facts.status = t->status;
    facts.sent = t->sent;

    facts.wrapped = strchr(t->how, 'w') != NULL;
    facts.ran = strchr(t->how, 'r') != NULL;
    facts.upstream = strchr(t->how, 'u') != NULL;
    facts.answered = strchr(t->how, 'a') != NULL;
    facts.sent_before = strchr(t->how, 'h') != NULL;

    return ngx_http_idempotency_policy_outcome(&facts, &final, &retryable);
}


/* every status once: no bit of a list is read for another status */

static void
test_status_lists(void)
{
    ngx_uint_t                       status, wrong;
    test_outcome_t                   t;
    ngx_http_idempotency_statuses_t  saved;

    ngx_memzero(&t, sizeof(test_outcome_t));
    t.how = "wrua";

    saved = final;
    wrong = 0;

    for (status = 200; status < NGX_HTTP_IDEMPOTENCY_STATUSES; status++) {
        ngx_memzero(&final, sizeof(ngx_http_idempotency_statuses_t));
        test_list(&final, status, status);

        for (t.status = 102; t.status < 1000; t.status++) {
            if ((test_outcome(&t) == COMPLETE)
                != (t.status == status
                    && !(retryable.bits[status / 8] & (1 << status % 8))))
            {
                wrong++;
            }
        }
    }

    final = saved;

    ok(wrong == 0, "outcome", "a status is in a list alone");
}


static void
test_probes(void)
{
    char           name[32];
    ngx_uint_t     status, wrong;
    test_probe_t  *t;

    for (t = probes; t->to; t++) {
        wrong = 0;

        for (status = t->from; status <= t->to; status++) {
            if (ngx_http_idempotency_policy_probe(status) != t->verdict) {
                wrong++;
            }
        }

        sprintf(name, "%u to %u", (unsigned) t->from, (unsigned) t->to);

        ok(wrong == 0, "probe", name);
    }
}


/* only where no record was met may a client be told that none is known */

static void
test_failures(void)
{
    ngx_uint_t               seen;
    ngx_idempotency_error_e  error;

    for (error = NGX_IDEMPOTENCY_ERROR_FULL;
         error <= NGX_IDEMPOTENCY_ERROR_MEMORY;
         error++)
    {
        for (seen = 0; seen < 2; seen++) {
            ok(ngx_http_idempotency_policy_failed(error, seen)
               == ((seen || error == NGX_IDEMPOTENCY_ERROR_DAMAGED)
                   ? NGX_HTTP_IDEMPOTENCY_RECORD_UNREADABLE
                   : NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE),
               "failure", seen ? "a record was seen" : "none was seen");
        }
    }
}


static void
test_refused(void)
{
    ngx_uint_t  i;

    static ngx_uint_t  refused[] = { 400, 401, 402, 403, 404, 407, 451, 499 };
    static ngx_uint_t  others[] = { 429, 500, 502, 503, 504 };

    for (i = 0; i < sizeof(refused) / sizeof(ngx_uint_t); i++) {
        ok(ngx_http_idempotency_policy_is_refusal(refused[i]), "refused",
           "an access check says no");
    }

    for (i = 0; i < sizeof(others) / sizeof(ngx_uint_t); i++) {
        ok(!ngx_http_idempotency_policy_is_refusal(others[i]), "refused",
           "not by an access check");
    }

    ok(ngx_http_idempotency_policy_access_rank(401, 1)
       > ngx_http_idempotency_policy_access_rank(500, 1), "likely",
       "an access check that refuses before one that fails");
    ok(ngx_http_idempotency_policy_access_rank(500, 1)
       > ngx_http_idempotency_policy_access_rank(404, 1), "likely",
       "an access check that fails before anything else");
    ok(ngx_http_idempotency_policy_access_rank(503, 0)
       > ngx_http_idempotency_policy_access_rank(403, 0), "likely",
       "a limit before the access checks");
    ok(ngx_http_idempotency_policy_access_rank(407, 0)
       > ngx_http_idempotency_policy_access_rank(405, 0), "likely",
       "an access check before what comes after it");
}


static void
test_gates(void)
{
    test_gate_t                   *t;
    ngx_http_idempotency_facts_t   facts;

    for (t = gates; t->name; t++) {
        ngx_memzero(&facts, sizeof(ngx_http_idempotency_facts_t));

        facts.sent = t->sent;
        facts.sent_before = t->sent_before;
        facts.answered = strchr(t->how, 'a') != NULL;
        facts.settled = strchr(t->how, 's') != NULL;

        ok(ngx_http_idempotency_policy_gate(&facts, t->arrival,
                                            strchr(t->how, 'h') != NULL)
           == t->may, "gate", t->name);
    }
}


static void
test_overrides(void)
{
    time_t                           ttl;
    ngx_str_t                        value;
    test_override_t                     *t;
    ngx_http_idempotency_override_e  override;

    for (t = words; t->value; t++) {

        /* of its exact size, without a null: a read beyond it is seen */

        value.len = strlen(t->value);
        value.data = malloc(value.len);

        if (value.data == NULL) {
            ok(0, "override", "memory");
            return;
        }

        ngx_memcpy(value.data, t->value, value.len);

        ttl = -1;
        override = ngx_http_idempotency_policy_override(&value, &ttl);

        ok(override == t->override && ttl == t->ttl, "override", t->value);

        free(value.data);
    }
}


static void
test_list(ngx_http_idempotency_statuses_t *statuses, ngx_uint_t from,
    ngx_uint_t to)
{
    while (from <= to) {
        statuses->bits[from / 8] |= (u_char) (1 << from % 8);
        from++;
    }
}
