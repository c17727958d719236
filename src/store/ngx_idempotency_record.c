
/*
 * The bytes of a whole record in Redis, see redis_script.c.  Numbers have
 * fixed lengths, the highest byte first:
 *
 *     0 version, 1 state, 2 kept, 4 status (2), 6 how the fingerprint was
 *     made (2), 8 owner (16),
 *     24 fingerprint (32), 56 fence (8), 64 end of the lease, or when it was
 *     done (8),
 *     72 end of the ttl (8), 80 created (8), 88 attempts (4), 92 keep (4),
 *     96 tombstone (4), 100 length of the head (4), of the body (4),
 *     108 end of the issue (8), 116 head and body
 *
 * Version 2 has a note, which is between the header and the rest: 116 length
 * of the note (2), 118 the note.  The head is that of record_head.c.
 */


#include "ngx_idempotency_record.h"


static uint64_t ngx_idempotency_record_number(u_char *p, ngx_uint_t bytes);


/* in the order of ngx_idempotency_state_e */

ngx_str_t  ngx_idempotency_states[] = {
    ngx_string("none"),
    ngx_string("issued"),
    ngx_string("executing"),
    ngx_string("unknown"),
    ngx_string("done"),
    ngx_string("tombstone"),
    ngx_null_string
};


ngx_int_t
ngx_idempotency_record_decode(ngx_str_t *value, uint64_t now,
    ngx_idempotency_record_t *record)
{
    u_char    *p;
    size_t     size;
    uint64_t   lease, until, head, body, tombstone;

    ngx_memzero(record, sizeof(ngx_idempotency_record_t));

    if (value->len == 0) {
        return NGX_OK;
    }

    p = value->data;

    if (value->len < NGX_IDEMPOTENCY_RECORD_HEADER
        || p[1] > NGX_IDEMPOTENCY_DONE)
    {
        return NGX_DECLINED;
    }

    size = NGX_IDEMPOTENCY_RECORD_HEADER;

    switch (p[0]) {

    case NGX_IDEMPOTENCY_RECORD_VERSION:
        break;

    case NGX_IDEMPOTENCY_RECORD_NOTED:

        if (value->len < size + 2) {
            return NGX_DECLINED;
        }

        record->note.data = p + size + 2;
        record->note.len = (size_t) ngx_idempotency_record_number(p + size, 2);

        size += 2 + record->note.len;

        if (record->note.len > NGX_IDEMPOTENCY_NOTE_LEN || value->len < size) {
            ngx_str_null(&record->note);
            return NGX_DECLINED;
        }

        break;

    default:
        return NGX_DECLINED;
    }

    record->state = p[1];
    record->status = (ngx_uint_t) ngx_idempotency_record_number(p + 4, 2);
    record->fence = ngx_idempotency_record_number(p + 56, 8);
    record->created = (time_t) ngx_idempotency_record_number(p + 80, 8);
    record->attempts = (ngx_uint_t) ngx_idempotency_record_number(p + 88, 4);

    ngx_memcpy(record->fingerprint, p + 24, NGX_IDEMPOTENCY_FINGERPRINT_SUM);
    ngx_memcpy(record->fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM, p + 6,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN
               - NGX_IDEMPOTENCY_FINGERPRINT_SUM);

    lease = ngx_idempotency_record_number(p + 64, 8);
    until = ngx_idempotency_record_number(p + 72, 8);
    tombstone = ngx_idempotency_record_number(p + 96, 4) * 1000;
    head = ngx_idempotency_record_number(p + 100, 4);
    body = ngx_idempotency_record_number(p + 104, 4);

    switch (record->state) {

    case NGX_IDEMPOTENCY_EXECUTING:
    case NGX_IDEMPOTENCY_UNKNOWN:

        if (lease > now) {
            record->lease_left = (ngx_msec_t) (lease - now);

        } else {
            record->lapsed = (record->state == NGX_IDEMPOTENCY_EXECUTING);
            record->unknown_for = now - lease;
            record->state = NGX_IDEMPOTENCY_UNKNOWN;
        }

        until = lease + ngx_idempotency_record_number(p + 92, 4) * 1000;
        break;

    case NGX_IDEMPOTENCY_DONE:

        if (until <= now) {
            record->state = NGX_IDEMPOTENCY_TOMBSTONE;
            until += tombstone;
        }

        if (lease < now) {
            record->done_for = (ngx_msec_t) (now - lease);
        }

        break;

    default: /* NONE, ISSUED */
        break;
    }

    if (until > now) {
        record->ttl_left = (time_t) ((until - now + 999) / 1000);
        record->ttl_msec = until - now;
    }

    if (record->state != NGX_IDEMPOTENCY_DONE || p[2] == 0) {
        return NGX_OK;
    }

    record->kept = 1;

    if (value->len == size) {

        /* the answer was not asked for */

        return NGX_OK;
    }

    if (value->len - size != head + body) {
        return NGX_DECLINED;
    }

    record->head.data = p + size;
    record->head.len = (size_t) head;
    record->body.data = record->head.data + record->head.len;
    record->body.len = (size_t) body;

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_record_digest(const u_char *hex, u_char *digest)
{
    ngx_int_t   n;
    ngx_uint_t  i;

    for (i = 0; i < NGX_IDEMPOTENCY_DIGEST_LEN; i++) {
        n = ngx_hextoi((u_char *) hex + 2 * i, 2);

        if (n == NGX_ERROR) {
            return NGX_DECLINED;
        }

        digest[i] = (u_char) n;
    }

    return NGX_OK;
}


ngx_uint_t
ngx_idempotency_record_is_dry(const u_char *digest)
{
    return ngx_memcmp(digest + NGX_IDEMPOTENCY_DIGEST_LEN
                      - NGX_IDEMPOTENCY_DRY_LEN,
                      NGX_IDEMPOTENCY_DRY, NGX_IDEMPOTENCY_DRY_LEN)
           == 0;
}


ngx_uint_t
ngx_idempotency_record_is_of(ngx_str_t *value, u_char *owner)
{
    return value->len >= NGX_IDEMPOTENCY_RECORD_HEADER
           && ngx_memcmp(value->data + 8, owner, NGX_IDEMPOTENCY_OWNER_LEN)
              == 0;
}


static uint64_t
ngx_idempotency_record_number(u_char *p, ngx_uint_t bytes)
{
    uint64_t  n;

    for (n = 0; bytes; bytes--) {
        n = n << 8 | *p++;
    }

    return n;
}
