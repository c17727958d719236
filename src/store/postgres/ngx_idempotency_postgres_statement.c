
/*
 * The store in PostgreSQL: prepared statements, their parameters and results.
 *
 * Both are binary: bytea as it is, uuid as 16 bytes, integers with the highest
 * byte first.  A function returns one value, a composite: libpq asks for the
 * description of every result, and that of one column is short.
 */


#include "ngx_idempotency_postgres_job.h"


#define NGX_IDEMPOTENCY_POSTGRES_BOOL     16
#define NGX_IDEMPOTENCY_POSTGRES_BYTEA    17
#define NGX_IDEMPOTENCY_POSTGRES_INT8     20
#define NGX_IDEMPOTENCY_POSTGRES_INT4     23
#define NGX_IDEMPOTENCY_POSTGRES_UUID     2950
#define NGX_IDEMPOTENCY_POSTGRES_BYTEAS   1001
#define NGX_IDEMPOTENCY_POSTGRES_INT8S    1016
#define NGX_IDEMPOTENCY_POSTGRES_INT4S    1007
#define NGX_IDEMPOTENCY_POSTGRES_UUIDS    2951

/* of one statement */
#define NGX_IDEMPOTENCY_POSTGRES_PARAMS   16

/* records that one page of a list looks at */
#define NGX_IDEMPOTENCY_POSTGRES_LIST     1000

/* records that one step of expiry looks at */
#define NGX_IDEMPOTENCY_POSTGRES_EXPIRES  1000

/* bytes before the first element of an array, and before each element */
#define NGX_IDEMPOTENCY_POSTGRES_ARRAY    20
#define NGX_IDEMPOTENCY_POSTGRES_LENGTH   4


typedef enum {
    NGX_IDEMPOTENCY_POSTGRES_END = 0,
    NGX_IDEMPOTENCY_POSTGRES_DIGEST,
    NGX_IDEMPOTENCY_POSTGRES_OWNER,
    NGX_IDEMPOTENCY_POSTGRES_FINGERPRINT,
    NGX_IDEMPOTENCY_POSTGRES_LEASE,
    NGX_IDEMPOTENCY_POSTGRES_KEEP,
    NGX_IDEMPOTENCY_POSTGRES_TTL,
    NGX_IDEMPOTENCY_POSTGRES_TOMBSTONE,
    NGX_IDEMPOTENCY_POSTGRES_FENCE,
    NGX_IDEMPOTENCY_POSTGRES_GRANTED,
    NGX_IDEMPOTENCY_POSTGRES_FLAGS,
    NGX_IDEMPOTENCY_POSTGRES_NOTE,
    NGX_IDEMPOTENCY_POSTGRES_EPOCH,
    NGX_IDEMPOTENCY_POSTGRES_NUMBER,
    NGX_IDEMPOTENCY_POSTGRES_NEXT,
    NGX_IDEMPOTENCY_POSTGRES_KEPT,
    NGX_IDEMPOTENCY_POSTGRES_STATUS,
    NGX_IDEMPOTENCY_POSTGRES_CANCELLED,
    NGX_IDEMPOTENCY_POSTGRES_HEAD,
    NGX_IDEMPOTENCY_POSTGRES_BODY,
    NGX_IDEMPOTENCY_POSTGRES_BARE,
    NGX_IDEMPOTENCY_POSTGRES_EXECUTED,
    NGX_IDEMPOTENCY_POSTGRES_SUSPECT,
    NGX_IDEMPOTENCY_POSTGRES_WINDOW,
    NGX_IDEMPOTENCY_POSTGRES_STATE,
    NGX_IDEMPOTENCY_POSTGRES_CURSOR,
    NGX_IDEMPOTENCY_POSTGRES_LOOK,
    NGX_IDEMPOTENCY_POSTGRES_ENTRIES,
    NGX_IDEMPOTENCY_POSTGRES_STEP,
    NGX_IDEMPOTENCY_POSTGRES_REST,
    NGX_IDEMPOTENCY_POSTGRES_DIGESTS,
    NGX_IDEMPOTENCY_POSTGRES_OWNERS,
    NGX_IDEMPOTENCY_POSTGRES_FINGERPRINTS,
    NGX_IDEMPOTENCY_POSTGRES_LEASES,
    NGX_IDEMPOTENCY_POSTGRES_KEEPS,
    NGX_IDEMPOTENCY_POSTGRES_FENCES,
    NGX_IDEMPOTENCY_POSTGRES_FLAGSES
} ngx_idempotency_postgres_param_e;


typedef struct {
    const char                        *function;
    ngx_idempotency_postgres_param_e   params[NGX_IDEMPOTENCY_POSTGRES_PARAMS];
} ngx_idempotency_postgres_statement_t;


/* the parameters of a call: those that are numbers point into "numbers" */

typedef struct {
    const char                     *values[NGX_IDEMPOTENCY_POSTGRES_PARAMS];
    int                             lengths[NGX_IDEMPOTENCY_POSTGRES_PARAMS];
    int                             formats[NGX_IDEMPOTENCY_POSTGRES_PARAMS];
    u_char                          numbers[NGX_IDEMPOTENCY_POSTGRES_PARAMS]
                                           [8];
    u_char                         *arrays;
    int                             n;
} ngx_idempotency_postgres_call_t;


static Oid ngx_idempotency_postgres_type(ngx_idempotency_postgres_param_e name);
static void ngx_idempotency_postgres_bind(
    ngx_idempotency_postgres_call_t *call, ngx_idempotency_postgres_job_t *job,
    ngx_idempotency_postgres_param_e name);
static void ngx_idempotency_postgres_bind_bytes(
    ngx_idempotency_postgres_call_t *call, u_char *data, size_t len);
static void ngx_idempotency_postgres_bind_number(
    ngx_idempotency_postgres_call_t *call, uint64_t number, ngx_uint_t size);
static uint64_t ngx_idempotency_postgres_seconds(time_t sec);
static time_t ngx_idempotency_postgres_keep(time_t ttl, time_t tombstone);
static void ngx_idempotency_postgres_bind_array(
    ngx_idempotency_postgres_call_t *call, ngx_idempotency_postgres_job_t *job,
    ngx_idempotency_postgres_param_e name);
static u_char *ngx_idempotency_postgres_put(u_char *p, uint64_t number,
    ngx_uint_t size);


#define NAME(name)  NGX_IDEMPOTENCY_POSTGRES_##name

/* in the order of ngx_idempotency_op_e and what follows it */

static ngx_idempotency_postgres_statement_t
    ngx_idempotency_postgres_statements[] =
{
    { "claim",
      { NAME(DIGEST), NAME(OWNER), NAME(FINGERPRINT), NAME(LEASE), NAME(KEEP),
        NAME(TTL), NAME(TOMBSTONE), NAME(FENCE), NAME(GRANTED), NAME(FLAGS),
        NAME(NOTE), NAME(EPOCH), NAME(NUMBER), NAME(NEXT) } },

    { "complete",
      { NAME(DIGEST), NAME(OWNER), NAME(FINGERPRINT), NAME(KEEP), NAME(TTL),
        NAME(TOMBSTONE), NAME(FENCE), NAME(FLAGS), NAME(NOTE), NAME(KEPT),
        NAME(STATUS), NAME(HEAD), NAME(BODY) } },

    { "release",
      { NAME(DIGEST), NAME(OWNER), NAME(FINGERPRINT), NAME(KEEP), NAME(FLAGS),
        NAME(EPOCH), NAME(NUMBER), NAME(NEXT) } },

    { "mark_unknown",
      { NAME(DIGEST), NAME(OWNER), NAME(FINGERPRINT), NAME(KEEP), NAME(TTL),
        NAME(TOMBSTONE), NAME(FENCE), NAME(FLAGS), NAME(NOTE) } },

    { "probe",
      { NAME(DIGEST), NAME(LEASE), NAME(FENCE), NAME(GRANTED) } },

    { "renew",
      { NAME(DIGESTS), NAME(OWNERS), NAME(FINGERPRINTS), NAME(LEASES),
        NAME(KEEPS), NAME(FENCES), NAME(FLAGSES) } },

    { "issue",
      { NAME(DIGEST), NAME(TTL), NAME(GRANTED) } },

    { "read_record",
      { NAME(DIGEST), NAME(BARE) } },

    { "resolve",
      { NAME(DIGEST), NAME(FENCE), NAME(EXECUTED), NAME(TTL), NAME(TOMBSTONE),
        NAME(KEPT), NAME(STATUS), NAME(HEAD), NAME(BODY) } },

    { "purge",
      { NAME(DIGEST), NAME(FENCE) } },

    { "cancel",
      { NAME(DIGEST), NAME(TTL), NAME(TOMBSTONE), NAME(GRANTED),
        NAME(CANCELLED) } },

    { "list",
      { NAME(STATE), NAME(CURSOR), NAME(LOOK), NAME(ENTRIES) } },

    { "suspect",
      { NAME(DIGEST), NAME(OWNER), NAME(SUSPECT), NAME(LEASE), NAME(WINDOW),
        NAME(TTL), NAME(FLAGS) } },

    { "suspect_keep",
      { NAME(OWNER), NAME(SUSPECT), NAME(TTL) } },

    { "settled",
      { NAME(DIGESTS) } },

    { "expire",
      { NAME(STEP), NAME(REST) } }
};


int
ngx_idempotency_postgres_statement_prepare(PGconn *pg, ngx_uint_t n,
    char *schema)
{
    Oid                                    types
                                          [NGX_IDEMPOTENCY_POSTGRES_PARAMS];
    u_char                                *p;
    ngx_uint_t                             i;
    ngx_idempotency_postgres_statement_t  *statement;
    u_char                                 text[512], name[NGX_INT_T_LEN + 1];

    statement = &ngx_idempotency_postgres_statements[n];

    p = ngx_snprintf(text, sizeof(text) - 1, "SELECT %s%s.%s(",
                     n == NGX_IDEMPOTENCY_LIST ? "* FROM " : "", schema,
                     statement->function);

    for (i = 0; statement->params[i] != NAME(END); i++) {
        types[i] = ngx_idempotency_postgres_type(statement->params[i]);
        p = ngx_snprintf(p, text + sizeof(text) - 1 - p, "%s$%ui",
                         i ? "," : "", i + 1);
    }

    p = ngx_snprintf(p, text + sizeof(text) - 1 - p, ")");
    *p = '\0';

    (void) ngx_sprintf(name, "%ui%Z", n);

    return PQsendPrepare(pg, (char *) name, (char *) text, (int) i, types);
}


static Oid
ngx_idempotency_postgres_type(ngx_idempotency_postgres_param_e name)
{
    switch (name) {

    case NAME(OWNER):
        return NGX_IDEMPOTENCY_POSTGRES_UUID;

    case NAME(DIGEST):
    case NAME(FINGERPRINT):
    case NAME(NOTE):
    case NAME(HEAD):
    case NAME(BODY):
    case NAME(SUSPECT):
    case NAME(CURSOR):
        return NGX_IDEMPOTENCY_POSTGRES_BYTEA;

    case NAME(KEPT):
    case NAME(BARE):
    case NAME(EXECUTED):
    case NAME(REST):
        return NGX_IDEMPOTENCY_POSTGRES_BOOL;

    case NAME(LEASE):
    case NAME(FENCE):
    case NAME(GRANTED):
    case NAME(EPOCH):
    case NAME(NUMBER):
    case NAME(NEXT):
    case NAME(WINDOW):
        return NGX_IDEMPOTENCY_POSTGRES_INT8;

    case NAME(DIGESTS):
    case NAME(FINGERPRINTS):
        return NGX_IDEMPOTENCY_POSTGRES_BYTEAS;

    case NAME(OWNERS):
        return NGX_IDEMPOTENCY_POSTGRES_UUIDS;

    case NAME(LEASES):
    case NAME(FENCES):
        return NGX_IDEMPOTENCY_POSTGRES_INT8S;

    case NAME(KEEPS):
    case NAME(FLAGSES):
        return NGX_IDEMPOTENCY_POSTGRES_INT4S;

    default:
        return NGX_IDEMPOTENCY_POSTGRES_INT4;
    }
}


/* libpq copies the parameters into its output buffer */

int
ngx_idempotency_postgres_statement_send(PGconn *pg,
    ngx_idempotency_postgres_job_t *job)
{
    int                                    rc;
    u_char                                *arrays;
    ngx_uint_t                             i, n;
    ngx_idempotency_postgres_call_t        call;
    ngx_idempotency_postgres_statement_t  *statement;
    u_char                                 name[NGX_INT_T_LEN + 1];

    statement = &ngx_idempotency_postgres_statements[job->statement];

    call.n = 0;
    call.arrays = NULL;
    arrays = NULL;
    n = ngx_max(job->nleases, job->ndigests);

    if (n) {

        /* the longest element of each array, those of all arrays */

        arrays = ngx_alloc(7 * NGX_IDEMPOTENCY_POSTGRES_ARRAY
                           + n * (7 * NGX_IDEMPOTENCY_POSTGRES_LENGTH
                                  + NGX_IDEMPOTENCY_DIGEST_LEN
                                  + NGX_IDEMPOTENCY_OWNER_LEN
                                  + NGX_IDEMPOTENCY_FINGERPRINT_LEN + 24),
                           ngx_cycle->log);
        if (arrays == NULL) {
            return 0;
        }

        call.arrays = arrays;
    }

    for (i = 0; statement->params[i] != NAME(END); i++) {
        ngx_idempotency_postgres_bind(&call, job, statement->params[i]);
    }

    (void) ngx_sprintf(name, "%ui%Z", job->statement);

    rc = PQsendQueryPrepared(pg, (char *) name, call.n, call.values,
                             call.lengths, call.formats, 1);

    if (arrays) {
        ngx_free(arrays);
    }

    return rc;
}


static void
ngx_idempotency_postgres_bind(ngx_idempotency_postgres_call_t *call,
    ngx_idempotency_postgres_job_t *job, ngx_idempotency_postgres_param_e name)
{
    ngx_idempotency_op_t  *ask;

    /* unsigned numbers are stored less 2^63: that keeps their order */

    const uint64_t  half = (uint64_t) 1 << 63;

#define number(value, size)                                                   \
    ngx_idempotency_postgres_bind_number(call, (uint64_t) (value), size)
#define bytes(data, len)                                                      \
    ngx_idempotency_postgres_bind_bytes(call, data, len)

    ask = &job->ask;

    switch (name) {

    case NAME(DIGEST):
        bytes(ask->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN);
        break;

    case NAME(OWNER):
        bytes(ask->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);
        break;

    case NAME(FINGERPRINT):
        bytes(ask->id.fingerprint, NGX_IDEMPOTENCY_FINGERPRINT_LEN);
        break;

    case NAME(LEASE):
        number(ask->lease, 8);
        break;

    case NAME(KEEP):
        number(ngx_idempotency_postgres_seconds(
                   ngx_idempotency_postgres_keep(ask->ttl, ask->tombstone)),
               4);
        break;

    case NAME(TTL):
        number(ngx_idempotency_postgres_seconds(ask->ttl), 4);
        break;

    case NAME(TOMBSTONE):
        number(ngx_idempotency_postgres_seconds(ask->tombstone), 4);
        break;

    case NAME(FENCE):
        number(ask->fence, 8);
        break;

    case NAME(GRANTED):
        number(ask->granted, 8);
        break;

    case NAME(FLAGS):
        number(ask->flags, 4);
        break;

    case NAME(NOTE):
        bytes(ask->note.len ? ask->note.data : NULL, ask->note.len);
        break;

    case NAME(EPOCH):
        number(ask->id.epoch - half, 8);
        break;

    case NAME(NUMBER):
        number(ask->id.number - half, 8);
        break;

    case NAME(NEXT):
        number(ask->id.number + 1 - half, 8);
        break;

    case NAME(KEPT):
        number(ask->keep, 1);
        break;

    case NAME(STATUS):
        number(ask->status, 4);
        break;

    case NAME(CANCELLED):
        number(NGX_IDEMPOTENCY_CANCELLED_STATUS, 4);
        break;

    case NAME(HEAD):
        bytes(ask->keep ? ask->head.data : NULL, ask->head.len);
        break;

    case NAME(BODY):
        bytes(ask->keep ? job->body.data : NULL, job->body.len);
        break;

    case NAME(BARE):
        number((ask->flags & NGX_IDEMPOTENCY_FETCH_BARE) != 0, 1);
        break;

    case NAME(EXECUTED):
        number(ask->executed, 1);
        break;

    case NAME(SUSPECT):
        bytes(ask->suspect, NGX_IDEMPOTENCY_DIGEST_LEN);
        break;

    case NAME(WINDOW):
        number(ask->window, 8);
        break;

    case NAME(STATE):
        number(ask->list->state, 4);
        break;

    case NAME(CURSOR):
        bytes(job->cursor, job->cursor_len);
        break;

    case NAME(LOOK):
        number(NGX_IDEMPOTENCY_POSTGRES_LIST, 4);
        break;

    case NAME(ENTRIES):
        number(NGX_IDEMPOTENCY_LIST_ENTRIES, 4);
        break;

    case NAME(STEP):
        number(NGX_IDEMPOTENCY_POSTGRES_EXPIRES, 4);
        break;

    case NAME(REST):
        number(job->rest, 1);
        break;

    default:
        ngx_idempotency_postgres_bind_array(call, job, name);
        break;
    }

#undef number
#undef bytes
}


static void
ngx_idempotency_postgres_bind_bytes(ngx_idempotency_postgres_call_t *call,
    u_char *data, size_t len)
{
    call->values[call->n] = (char *) data;
    call->lengths[call->n] = (int) len;
    call->formats[call->n] = 1;
    call->n++;
}


static void
ngx_idempotency_postgres_bind_number(ngx_idempotency_postgres_call_t *call,
    uint64_t number, ngx_uint_t size)
{
    u_char  *p;

    p = call->numbers[call->n];

    (void) ngx_idempotency_postgres_put(p, number, size);

    ngx_idempotency_postgres_bind_bytes(call, p, size);
}


static uint64_t
ngx_idempotency_postgres_seconds(time_t sec)
{
    return (uint64_t) ngx_max(0, ngx_min(sec, (time_t) 0x7fffffff));
}


/* as ngx_idempotency_transition_hold() has it */

static time_t
ngx_idempotency_postgres_keep(time_t ttl, time_t tombstone)
{
    return ngx_max(ngx_max(ttl, tombstone), NGX_IDEMPOTENCY_UNKNOWN_TTL);
}


/* one dimension, no nulls, type, number, first index; length and element */

static void
ngx_idempotency_postgres_bind_array(ngx_idempotency_postgres_call_t *call,
    ngx_idempotency_postgres_job_t *job, ngx_idempotency_postgres_param_e name)
{
    Oid                       type;
    u_char                   *p, *start, *data;
    uint64_t                  value;
    ngx_uint_t                i, n, size;
    ngx_idempotency_lease_t  *lease;

    data = NULL;
    value = 0;
    n = job->ndigests ? job->ndigests : job->nleases;

    switch (name) {

    case NAME(DIGESTS):
        type = NGX_IDEMPOTENCY_POSTGRES_BYTEA;
        size = NGX_IDEMPOTENCY_DIGEST_LEN;
        break;

    case NAME(OWNERS):
        type = NGX_IDEMPOTENCY_POSTGRES_UUID;
        size = NGX_IDEMPOTENCY_OWNER_LEN;
        break;

    case NAME(FINGERPRINTS):
        type = NGX_IDEMPOTENCY_POSTGRES_BYTEA;
        size = NGX_IDEMPOTENCY_FINGERPRINT_LEN;
        break;

    case NAME(LEASES):
    case NAME(FENCES):
        type = NGX_IDEMPOTENCY_POSTGRES_INT8;
        size = 8;
        break;

    default: /* KEEPS, FLAGSES */
        type = NGX_IDEMPOTENCY_POSTGRES_INT4;
        size = 4;
        break;
    }

    start = call->arrays;

    p = ngx_idempotency_postgres_put(start, 1, 4);
    p = ngx_idempotency_postgres_put(p, 0, 4);
    p = ngx_idempotency_postgres_put(p, type, 4);
    p = ngx_idempotency_postgres_put(p, n, 4);
    p = ngx_idempotency_postgres_put(p, 1, 4);

    for (i = 0; i < n; i++) {
        lease = job->nleases ? &job->leases[i] : NULL;

        switch (name) {

        case NAME(DIGESTS):
            data = lease ? lease->id.digest
                         : job->digests + i * NGX_IDEMPOTENCY_DIGEST_LEN;
            break;

        case NAME(OWNERS):
            data = lease->id.owner;
            break;

        case NAME(FINGERPRINTS):
            data = lease->id.fingerprint;
            break;

        case NAME(LEASES):
            value = lease->lease;
            break;

        case NAME(FENCES):
            value = lease->fence;
            break;

        case NAME(KEEPS):
            value = ngx_idempotency_postgres_seconds(
                        ngx_idempotency_postgres_keep(lease->keep, 0));
            break;

        default: /* FLAGSES */
            value = lease->flags;
            break;
        }

        p = ngx_idempotency_postgres_put(p, size, 4);
        p = data ? ngx_cpymem(p, data, size)
                 : ngx_idempotency_postgres_put(p, value, size);
    }

    ngx_idempotency_postgres_bind_bytes(call, start, p - start);

    call->arrays = p;
}


static u_char *
ngx_idempotency_postgres_put(u_char *p, uint64_t number, ngx_uint_t size)
{
    ngx_uint_t  i;

    for (i = size; i > 0; i--) {
        *p++ = (u_char) (number >> (8 * (i - 1)));
    }

    return p;
}
