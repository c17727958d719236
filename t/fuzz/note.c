
/*
 * The note of a record: any bytes, with a secret and without.
 */


#include "fuzz.h"
#include "ngx_idempotency_note.h"


static void fuzz_text(ngx_str_t *text, ngx_str_t *in);


static ngx_idempotency_secret_t   fuzz_secret;
static ngx_idempotency_secret_t  *fuzz_list[] = { &fuzz_secret };
static ngx_array_t                fuzz_secrets;
static u_char                     fuzz_digest[NGX_IDEMPOTENCY_DIGEST_LEN];


void
fuzz_init(void)
{
    u_char  bytes[NGX_IDEMPOTENCY_SECRET_LEN];

    ngx_memset(bytes, 1, sizeof(bytes));

    fuzz_want(ngx_idempotency_secret_init(fuzz_conf.cycle->pool, &fuzz_secret,
                                          bytes)
              == NGX_OK);

    fuzz_secrets.elts = fuzz_list;
    fuzz_secrets.nelts = 1;
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    u_char                      how, reason[NGX_IDEMPOTENCY_REASON_LEN];
    ngx_int_t                   rc;
    ngx_str_t                   bytes, again;
    ngx_idempotency_note_t      note, copy;
    ngx_idempotency_record_t    record;
    ngx_idempotency_secret_t   *secret;

    how = fuzz_byte(in);
    bytes = fuzz_copy(pool, in);

    rc = ngx_idempotency_note_decode(pool, &bytes,
                                     (how & 1) ? &fuzz_secrets : NULL,
                                     fuzz_digest, &note);
    if (rc != NGX_OK) {
        fuzz_want(note.label.len == 0 && note.reason == 0);
        return;
    }

    fuzz_text(&note.label, in);
    fuzz_text(&note.location, in);
    fuzz_text(&note.upstream, in);

    fuzz_want(note.since >= 0);

    ngx_memzero(&record, sizeof(record));

    record.state = NGX_IDEMPOTENCY_UNKNOWN;
    record.unknown_for = note.status;

    ngx_idempotency_note_of(&record, 1000000000, &note);

    fuzz_want(ngx_idempotency_note_reason(reason, &note)
              <= reason + NGX_IDEMPOTENCY_REASON_LEN);

    /* what was read can be written, and read again */

    note.sealed = 0;
    secret = (how & 2) ? &fuzz_secret : NULL;

    fuzz_want(ngx_idempotency_note_encode(pool, &note, secret, fuzz_digest,
                                          &again)
              == NGX_OK);
    fuzz_want(again.len <= NGX_IDEMPOTENCY_NOTE_LEN);
    fuzz_want(ngx_idempotency_note_decode(pool, &again, &fuzz_secrets,
                                          fuzz_digest, &copy)
              == NGX_OK);

    fuzz_want(copy.reason == note.reason);
    fuzz_want(copy.label.len == ngx_min(note.label.len,
                                        NGX_IDEMPOTENCY_LABEL_LEN));
    fuzz_want(ngx_memcmp(copy.label.data, note.label.data, copy.label.len)
              == 0);
}


static void
fuzz_text(ngx_str_t *text, ngx_str_t *in)
{
    size_t  i;

    fuzz_want(text->len <= 255 && text->len <= in->len);

    for (i = 0; i < text->len; i++) {
        fuzz_want(text->data[i] >= 0x20 && text->data[i] != 0x7f);
    }
}
