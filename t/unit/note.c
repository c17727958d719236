
/*
 * The note of a record: what is written is read again, sealed or not; what is
 * too long is cut; foreign bytes are refused; and what a record itself says of
 * an unknown outcome.  Prints TAP.
 */


#include "ngx_idempotency_note.h"
#include "ngx_idempotency_random.h"
#include <stdio.h>


static void test_round(ngx_idempotency_secret_t *secret);
static void test_empty(void);
static void test_long(void);
static void test_foreign(void);
static void test_sealed(void);
static void test_record(void);
static void fill(ngx_idempotency_note_t *note);
static ngx_int_t encode(ngx_idempotency_note_t *note,
    ngx_idempotency_secret_t *secret);
static ngx_int_t decode(ngx_array_t *with, ngx_idempotency_note_t *note);
static ngx_uint_t is(ngx_str_t *text, char *want);
static void ok(ngx_uint_t passed, char *name);


static ngx_idempotency_secret_t   secrets[2];
static ngx_idempotency_secret_t  *listed[] = { &secrets[0] };
static ngx_idempotency_secret_t  *foreign[] = { &secrets[1] };
static ngx_array_t                list = { listed, 1, sizeof(void *), 1, NULL };
static ngx_array_t                others = { foreign, 1, sizeof(void *), 1,
                                             NULL };

static ngx_pool_cleanup_t         cleanups[4];
static ngx_uint_t                 ncleanups;
static u_char                     digest[NGX_IDEMPOTENCY_DIGEST_LEN];
static u_char                     memory[65536];
static size_t                     used;
static ngx_str_t                  bytes;
static ngx_uint_t                 tests, failed;


/* of nginx, as far as they are needed */

void *
ngx_pnalloc(ngx_pool_t *pool, size_t size)
{
    void  *p;

    (void) pool;

    if (used + size > sizeof(memory)) {
        used = 0;
    }

    p = memory + used;
    used += size;

    return p;
}


u_char *
ngx_pstrdup(ngx_pool_t *pool, ngx_str_t *src)
{
    return memcpy(ngx_pnalloc(pool, src->len), src->data, src->len);
}


ngx_pool_cleanup_t *
ngx_pool_cleanup_add(ngx_pool_t *pool, size_t size)
{
    (void) pool;
    (void) size;

    return &cleanups[ncleanups++];
}


ngx_buf_t *
ngx_create_temp_buf(ngx_pool_t *pool, size_t size)
{
    (void) pool;
    (void) size;

    return NULL;
}


ngx_chain_t *
ngx_alloc_chain_link(ngx_pool_t *pool)
{
    (void) pool;

    return NULL;
}


void
ngx_explicit_memzero(void *buf, size_t n)
{
    memset(buf, 0, n);
}


ngx_int_t
ngx_idempotency_random(u_char *dst, size_t len)
{
    static u_char  n;

    while (len--) {
        *dst++ = n++;
    }

    return NGX_OK;
}


u_char * ngx_cdecl
ngx_sprintf(u_char *buf, const char *fmt, ...)
{
    va_list  args;

    /* the two formats that note.c has */

    va_start(args, fmt);

    if (strcmp(fmt, "%s") == 0) {
        buf += sprintf((char *) buf, "%s", va_arg(args, char *));

    } else {
        buf += sprintf((char *) buf, " %lu",
                       (unsigned long) va_arg(args, ngx_uint_t));
    }

    va_end(args);

    return buf;
}


int
main(void)
{
    ngx_uint_t  i;
    u_char      key[NGX_IDEMPOTENCY_SECRET_LEN];

    for (i = 0; i < 2; i++) {
        memset(key, (int) i + 1, sizeof(key));
        (void) ngx_idempotency_secret_init(NULL, &secrets[i], key);
    }

    memset(digest, 7, sizeof(digest));

    test_round(NULL);
    test_round(&secrets[0]);
    test_empty();
    test_long();
    test_foreign();
    test_sealed();
    test_record();

    for (i = 0; i < ncleanups; i++) {
        cleanups[i].handler(cleanups[i].data);
    }

    printf("1..%lu\n", (unsigned long) tests);

    return failed ? 1 : 0;
}


static void
test_round(ngx_idempotency_secret_t *secret)
{
    ngx_idempotency_note_t  note;

    fill(&note);

    ok(encode(&note, secret) == NGX_OK, "it is encoded");
    ok((memmem(bytes.data, bytes.len, "order-1", 7) == NULL)
       == (secret != NULL), "its label is sealed if there is a secret");

    memset(&note, 0xff, sizeof(note));

    ok(decode(&list, &note) == NGX_OK, "and read");
    ok(is(&note.label, "order-1") && is(&note.location, "/pay")
       && is(&note.upstream, "127.0.0.1:8080"), "as it was");
    ok(note.reason == NGX_IDEMPOTENCY_REASON_STATUS && note.status == 502
       && note.since == 1700000000 && !note.sealed, "all of it");
}


static void
test_empty(void)
{
    ngx_idempotency_note_t  note;

    memset(&note, 0, sizeof(note));

    ok(encode(&note, &secrets[0]) == NGX_OK && bytes.len == 0,
       "a note of nothing takes no bytes");
    ok(decode(NULL, &note) == NGX_OK && note.label.len == 0,
       "and can be read");
}


static void
test_long(void)
{
    size_t                  i;
    ngx_idempotency_note_t  note;

    static u_char  text[1000];

    for (i = 0; i < sizeof(text); i++) {
        text[i] = (u_char) ('a' + i % 26);
    }

    fill(&note);

    note.label.data = note.location.data = note.upstream.data = text;
    note.label.len = note.location.len = note.upstream.len = sizeof(text);

    ok(encode(&note, &secrets[0]) == NGX_OK
       && bytes.len <= NGX_IDEMPOTENCY_NOTE_LEN, "the longest one fits");
    ok(decode(&list, &note) == NGX_OK
       && note.label.len == NGX_IDEMPOTENCY_LABEL_LEN
       && note.location.len == NGX_IDEMPOTENCY_LOCATION_LEN
       && note.upstream.len == NGX_IDEMPOTENCY_UPSTREAM_LEN,
       "and what is too long was cut");
    ok(memcmp(note.label.data, text, note.label.len) == 0, "at its end");
}


static void
test_foreign(void)
{
    size_t                  len;
    ngx_str_t               whole;
    ngx_uint_t              n;
    ngx_idempotency_note_t  note;

    static u_char  later[] = "\1\77\3abc\1\2xy";
    static u_char  control[] = "\1\1\5a\nb\0c\3\1\177";

    fill(&note);
    (void) encode(&note, NULL);

    whole = bytes;

    for (n = 0, len = 0; len < whole.len; len++) {
        bytes.len = len;

        if (decode(NULL, &note) == NGX_OK) {
            n++;
        }
    }

    /* nothing, the version alone, and behind each of its five fields */

    ok(n == 6, "a note that is cut is read up to a field, or not at all");

    bytes = whole;
    bytes.data[0] = 2;

    ok(decode(NULL, &note) == NGX_DECLINED && note.label.len == 0,
       "another version is refused");

    bytes.data = later;
    bytes.len = sizeof(later) - 1;

    ok(decode(NULL, &note) == NGX_OK && is(&note.label, "xy"),
       "a field of a later version is skipped");

    bytes.data = control;
    bytes.len = sizeof(control) - 1;

    ok(decode(NULL, &note) == NGX_OK && is(&note.label, "a?b?c")
       && is(&note.location, "?"), "control characters are not shown");
}


static void
test_sealed(void)
{
    ngx_uint_t              i, n;
    ngx_idempotency_note_t  note;

    fill(&note);
    (void) encode(&note, &secrets[0]);

    ok(decode(&others, &note) == NGX_OK && note.sealed
       && note.label.len == 0 && is(&note.location, "/pay"),
       "with another secret all but the label is read");
    ok(decode(NULL, &note) == NGX_OK && note.sealed, "and without one");

    digest[0] ^= 1;
    ok(decode(&list, &note) == NGX_OK && note.sealed,
       "and in the place of another record");
    digest[0] ^= 1;

    for (n = 0, i = 3; i < 3 + 45 + 7; i++) {
        bytes.data[i] ^= 1;

        if (decode(&list, &note) == NGX_OK && note.sealed) {
            n++;
        }

        bytes.data[i] ^= 1;
    }

    ok(n == 45 + 7, "no byte of it can be changed");
    ok(decode(&list, &note) == NGX_OK && is(&note.label, "order-1"),
       "it still opens");
}


static void
test_record(void)
{
    u_char                    *p, reason[NGX_IDEMPOTENCY_REASON_LEN];
    ngx_str_t                  text;
    ngx_idempotency_note_t     note;
    ngx_idempotency_record_t   record;

    memset(&note, 0, sizeof(note));
    memset(&record, 0, sizeof(record));

    record.state = NGX_IDEMPOTENCY_EXECUTING;
    ngx_idempotency_note_of(&record, 1000, &note);
    ok(note.reason == 0 && note.since == 0, "one that runs is not unknown");

    record.state = NGX_IDEMPOTENCY_UNKNOWN;
    record.unknown_for = 5000;
    ngx_idempotency_note_of(&record, 1000, &note);
    ok(note.reason == 0 && note.since == 995,
       "one of an older version is so since its lease ended");

    record.lapsed = 1;
    ngx_idempotency_note_of(&record, 1000, &note);
    p = ngx_idempotency_note_reason(reason, &note);
    text.data = reason;
    text.len = p - reason;
    ok(is(&text, "worker died"), "a lease that nobody has renewed");

    fill(&note);
    ngx_idempotency_note_of(&record, 1000, &note);
    p = ngx_idempotency_note_reason(reason, &note);
    text.len = p - reason;
    ok(is(&text, "status 502") && note.since == 1700000000,
       "what the note says is not replaced");
}


static void
fill(ngx_idempotency_note_t *note)
{
    memset(note, 0, sizeof(*note));

    note->label.data = (u_char *) "order-1";
    note->label.len = 7;
    note->location.data = (u_char *) "/pay";
    note->location.len = 4;
    note->upstream.data = (u_char *) "127.0.0.1:8080";
    note->upstream.len = 14;
    note->reason = NGX_IDEMPOTENCY_REASON_STATUS;
    note->status = 502;
    note->since = 1700000000;
}


static ngx_int_t
encode(ngx_idempotency_note_t *note, ngx_idempotency_secret_t *secret)
{
    return ngx_idempotency_note_encode(NULL, note, secret, digest, &bytes);
}


static ngx_int_t
decode(ngx_array_t *with, ngx_idempotency_note_t *note)
{
    return ngx_idempotency_note_decode(NULL, &bytes, with, digest, note);
}


static ngx_uint_t
is(ngx_str_t *text, char *want)
{
    return text->len == strlen(want)
           && memcmp(text->data, want, text->len) == 0;
}


static void
ok(ngx_uint_t passed, char *name)
{
    printf("%sok %lu - %s\n", passed ? "" : "not ", (unsigned long) ++tests,
           name);

    failed += !passed;
}
