
/*
 * The note of a record.
 *
 * A version byte, then fields, each of them a tag (1), the length (1) and its
 * value: label, or the label sealed; location; upstream; reason (1) with a
 * status (2); since when it is unknown (8).  Numbers have the highest byte
 * first.
 */


#include "ngx_idempotency_note.h"


#define NGX_IDEMPOTENCY_NOTE_VERSION   1

#define NGX_IDEMPOTENCY_NOTE_LABEL     1
#define NGX_IDEMPOTENCY_NOTE_SEALED    2
#define NGX_IDEMPOTENCY_NOTE_LOCATION  3
#define NGX_IDEMPOTENCY_NOTE_UPSTREAM  4
#define NGX_IDEMPOTENCY_NOTE_REASON    5
#define NGX_IDEMPOTENCY_NOTE_SINCE     6


_Static_assert(1 + 2 + NGX_IDEMPOTENCY_LABEL_LEN + NGX_IDEMPOTENCY_SEAL_LEN
               + 2 + NGX_IDEMPOTENCY_LOCATION_LEN
               + 2 + NGX_IDEMPOTENCY_UPSTREAM_LEN + 2 + 3 + 2 + 8
               <= NGX_IDEMPOTENCY_NOTE_LEN,
               "a note with all of its fields must fit");

_Static_assert(NGX_IDEMPOTENCY_LABEL_LEN + NGX_IDEMPOTENCY_SEAL_LEN <= 255,
               "the length of a field is one byte");


static u_char *ngx_idempotency_note_put(u_char *p, u_char tag,
    ngx_str_t *value, size_t most);
static ngx_int_t ngx_idempotency_note_get(ngx_pool_t *pool, u_char tag,
    ngx_str_t *value, ngx_array_t *secrets, const u_char *digest,
    ngx_idempotency_note_t *note);
static void ngx_idempotency_note_clean(ngx_str_t *text);


ngx_int_t
ngx_idempotency_note_encode(ngx_pool_t *pool, ngx_idempotency_note_t *note,
    ngx_idempotency_secret_t *secret, const u_char *digest, ngx_str_t *bytes)
{
    u_char     *p;
    ngx_int_t   i;
    ngx_str_t   label;

    ngx_str_null(bytes);

    if (note->label.len == 0
        && note->location.len == 0
        && note->upstream.len == 0
        && note->reason == NGX_IDEMPOTENCY_REASON_NONE)
    {
        return NGX_OK;
    }

    label = note->label;
    label.len = ngx_min(label.len, NGX_IDEMPOTENCY_LABEL_LEN);

    p = ngx_pnalloc(pool, 1 + 2 + label.len + NGX_IDEMPOTENCY_SEAL_LEN
                          + 2 + ngx_min(note->location.len,
                                        NGX_IDEMPOTENCY_LOCATION_LEN)
                          + 2 + ngx_min(note->upstream.len,
                                        NGX_IDEMPOTENCY_UPSTREAM_LEN)
                          + 2 + 3 + 2 + 8);
    if (p == NULL) {
        return NGX_ERROR;
    }

    bytes->data = p;

    *p++ = NGX_IDEMPOTENCY_NOTE_VERSION;

    if (label.len && secret) {
        *p++ = NGX_IDEMPOTENCY_NOTE_SEALED;
        *p++ = (u_char) (label.len + NGX_IDEMPOTENCY_SEAL_LEN);

        if (ngx_idempotency_seal_text(secret, digest, &label, p) != NGX_OK) {
            ngx_str_null(bytes);
            return NGX_ERROR;
        }

        p += label.len + NGX_IDEMPOTENCY_SEAL_LEN;

    } else {
        p = ngx_idempotency_note_put(p, NGX_IDEMPOTENCY_NOTE_LABEL, &label,
                                     NGX_IDEMPOTENCY_LABEL_LEN);
    }

    p = ngx_idempotency_note_put(p, NGX_IDEMPOTENCY_NOTE_LOCATION,
                                 &note->location,
                                 NGX_IDEMPOTENCY_LOCATION_LEN);
    p = ngx_idempotency_note_put(p, NGX_IDEMPOTENCY_NOTE_UPSTREAM,
                                 &note->upstream,
                                 NGX_IDEMPOTENCY_UPSTREAM_LEN);

    if (note->reason != NGX_IDEMPOTENCY_REASON_NONE) {
        *p++ = NGX_IDEMPOTENCY_NOTE_REASON;
        *p++ = 3;
        *p++ = (u_char) note->reason;
        *p++ = (u_char) (note->status >> 8);
        *p++ = (u_char) note->status;
    }

    if (note->since > 0) {
        *p++ = NGX_IDEMPOTENCY_NOTE_SINCE;
        *p++ = 8;

        for (i = 56; i >= 0; i -= 8) {
            *p++ = (u_char) ((uint64_t) note->since >> i);
        }
    }

    bytes->len = p - bytes->data;

    return NGX_OK;
}


static u_char *
ngx_idempotency_note_put(u_char *p, u_char tag, ngx_str_t *value, size_t most)
{
    size_t  len;

    if (value->len == 0) {
        return p;
    }

    len = ngx_min(value->len, most);

    *p++ = tag;
    *p++ = (u_char) len;

    return ngx_cpymem(p, value->data, len);
}


ngx_int_t
ngx_idempotency_note_decode(ngx_pool_t *pool, ngx_str_t *bytes,
    ngx_array_t *secrets, const u_char *digest, ngx_idempotency_note_t *note)
{
    u_char     *p, *last, tag;
    ngx_str_t   value;

    ngx_memzero(note, sizeof(ngx_idempotency_note_t));

    if (bytes->len == 0) {
        return NGX_OK;
    }

    p = bytes->data;
    last = p + bytes->len;

    if (*p++ != NGX_IDEMPOTENCY_NOTE_VERSION) {
        return NGX_DECLINED;
    }

    while (p < last) {

        if (last - p < 2 || last - p - 2 < p[1]) {
            ngx_memzero(note, sizeof(ngx_idempotency_note_t));
            return NGX_DECLINED;
        }

        tag = *p++;

        value.len = *p++;
        value.data = p;

        p += value.len;

        if (ngx_idempotency_note_get(pool, tag, &value, secrets, digest, note)
            != NGX_OK)
        {
            ngx_memzero(note, sizeof(ngx_idempotency_note_t));
            return NGX_ERROR;
        }
    }

    ngx_idempotency_note_clean(&note->label);
    ngx_idempotency_note_clean(&note->location);
    ngx_idempotency_note_clean(&note->upstream);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_note_get(ngx_pool_t *pool, u_char tag, ngx_str_t *value,
    ngx_array_t *secrets, const u_char *digest, ngx_idempotency_note_t *note)
{
    size_t  i;

    switch (tag) {

    case NGX_IDEMPOTENCY_NOTE_LABEL:
        note->label = *value;
        break;

    case NGX_IDEMPOTENCY_NOTE_SEALED:

        /* a copy, since the bytes may be shared and are opened in place */

        value->data = ngx_pstrdup(pool, value);
        if (value->data == NULL) {
            return NGX_ERROR;
        }

        if (ngx_idempotency_seal_open_text(secrets, digest, value) == NGX_OK) {
            note->label = *value;

        } else {
            note->sealed = 1;
        }

        break;

    case NGX_IDEMPOTENCY_NOTE_LOCATION:
        note->location = *value;
        break;

    case NGX_IDEMPOTENCY_NOTE_UPSTREAM:
        note->upstream = *value;
        break;

    case NGX_IDEMPOTENCY_NOTE_REASON:

        if (value->len == 3 && value->data[0] < NGX_IDEMPOTENCY_REASON_LAPSED)
        {
            note->reason = (ngx_idempotency_reason_e) value->data[0];
            note->status = value->data[1] << 8 | value->data[2];
        }

        break;

    case NGX_IDEMPOTENCY_NOTE_SINCE:

        /* the highest bit would make it a time before 1970 */

        if (value->len == 8 && value->data[0] < 0x80) {
            for (note->since = 0, i = 0; i < 8; i++) {
                note->since = note->since << 8 | value->data[i];
            }
        }

        break;

    default: /* of a later version */
        break;
    }

    return NGX_OK;
}


static void
ngx_idempotency_note_clean(ngx_str_t *text)
{
    size_t  i;

    for (i = 0; i < text->len; i++) {
        if (text->data[i] < 0x20 || text->data[i] == 0x7f) {
            text->data[i] = '?';
        }
    }
}


void
ngx_idempotency_note_of(ngx_idempotency_record_t *record, time_t now,
    ngx_idempotency_note_t *note)
{
    if (record->state != NGX_IDEMPOTENCY_UNKNOWN) {
        return;
    }

    /* a probe sets the lease of a record that has lapsed before */

    if (note->reason == NGX_IDEMPOTENCY_REASON_NONE
        && (record->lapsed || record->note.len))
    {
        note->reason = NGX_IDEMPOTENCY_REASON_LAPSED;
    }

    if (note->since == 0 && record->unknown_for / 1000 < (uint64_t) now) {
        note->since = now - (time_t) (record->unknown_for / 1000);
    }
}


u_char *
ngx_idempotency_note_reason(u_char *p, ngx_idempotency_note_t *note)
{
    static const char  *names[] = {
        "not known", "timeout", "reset", "cut", "status", "upstream said so",
        "request ended", "worker died"
    };

    p = ngx_sprintf(p, "%s", names[note->reason]);

    if (note->reason == NGX_IDEMPOTENCY_REASON_STATUS) {
        p = ngx_sprintf(p, " %ui", note->status);
    }

    return p;
}
