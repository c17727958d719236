
/*
 * A whole record in Redis, at any time of its server: 8 bytes of it, then
 * the record.
 */


#include "fuzz.h"
#include "ngx_http_idempotency_policy.h"


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    uint64_t                   now;
    ngx_str_t                  value;
    ngx_uint_t                 i;
    ngx_idempotency_answer_t   answer;
    ngx_idempotency_record_t   record;

    static u_char  owner[] = "0123456789abcdef";
    static u_char  fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_LEN];

    for (now = 0, i = 0; i < 8; i++) {
        now = now << 8 | fuzz_byte(in);
    }

    value = fuzz_copy(pool, in);

    (void) ngx_idempotency_record_is_of(&value, owner);

    if (ngx_idempotency_record_decode(&value, now, &record) != NGX_OK) {
        return;
    }

    fuzz_want(record.state <= NGX_IDEMPOTENCY_TOMBSTONE);
    fuzz_want(record.ttl_left >= 0);

    (void) ngx_http_idempotency_policy_duplicate(&record, fingerprint, 0);

    if (record.note.len) {
        fuzz_want(record.note.len <= NGX_IDEMPOTENCY_NOTE_LEN);
        fuzz_want(record.note.data > value.data
                  && record.note.data + record.note.len
                     <= value.data + value.len);
    }

    if (record.head.len + record.body.len) {
        fuzz_want(record.kept && record.state == NGX_IDEMPOTENCY_DONE);
        fuzz_want(record.body.data + record.body.len
                  == value.data + value.len);

        (void) ngx_idempotency_record_decode_head(pool, &record.head,
                                                  &answer);
    }
}
