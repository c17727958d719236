
/*
 * The note of a record: what people want to know about the request that it is
 * of.  Stores keep its bytes and do not read them.
 */


#ifndef _NGX_IDEMPOTENCY_NOTE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_NOTE_H_INCLUDED_


#include "ngx_idempotency_seal.h"


/* bytes of a label, of the name of a location, and of an upstream's */
#define NGX_IDEMPOTENCY_LABEL_LEN     128
#define NGX_IDEMPOTENCY_LOCATION_LEN  96
#define NGX_IDEMPOTENCY_UPSTREAM_LEN  96


/*
 * Why an outcome is unknown.  The numbers are stored: new reasons are added at
 * the end.  LAPSED is never stored: the worker that would do so has died.
 */

typedef enum {
    NGX_IDEMPOTENCY_REASON_NONE = 0,      /* not known */
    NGX_IDEMPOTENCY_REASON_TIMEOUT,       /* the upstream did not answer */
    NGX_IDEMPOTENCY_REASON_RESET,         /* it closed the connection */
    NGX_IDEMPOTENCY_REASON_CUT,           /* its answer was not complete */
    NGX_IDEMPOTENCY_REASON_STATUS,        /* neither final nor retryable */
    NGX_IDEMPOTENCY_REASON_UPSTREAM,      /* it has said so */
    NGX_IDEMPOTENCY_REASON_ENDED,         /* the request ended before that */
    NGX_IDEMPOTENCY_REASON_LAPSED         /* its lease was not renewed */
} ngx_idempotency_reason_e;


typedef struct {
    ngx_str_t                  label;
    ngx_str_t                  location;
    ngx_str_t                  upstream;      /* address of the server */
    ngx_idempotency_reason_e   reason;
    ngx_uint_t                 status;        /* REASON_STATUS */
    time_t                     since;         /* unknown since, or 0 */

    unsigned                   sealed:1;      /* its label was, and cannot be
                                                 opened */
} ngx_idempotency_note_t;


/*
 * Encodes a note of the record named "digest" into the pool; the label is
 * sealed if there is a secret, and what is too long is cut.  A note without
 * anything in it is empty.  NGX_OK, or NGX_ERROR: "bytes" is empty then.
 */
ngx_int_t ngx_idempotency_note_encode(ngx_pool_t *pool,
    ngx_idempotency_note_t *note, ngx_idempotency_secret_t *secret,
    const u_char *digest, ngx_str_t *bytes);

/*
 * Reads the note of the record named "digest".  The bytes are foreign data;
 * fields that this version does not know are skipped, and control characters
 * are shown as "?".  A label that is sealed is opened in the pool.  NGX_OK;
 * NGX_DECLINED: they cannot be read, and the note is empty; NGX_ERROR.
 */
ngx_int_t ngx_idempotency_note_decode(ngx_pool_t *pool, ngx_str_t *bytes,
    ngx_array_t *secrets, const u_char *digest, ngx_idempotency_note_t *note);

/*
 * The note of a record, with what the record itself says: since when it is
 * unknown, and that its lease was not renewed.  "now" is by the wall clock.
 */
void ngx_idempotency_note_of(ngx_idempotency_record_t *record, time_t now,
    ngx_idempotency_note_t *note);

/* bytes of a reason in words, and the reason; returns its end */
#define NGX_IDEMPOTENCY_REASON_LEN    32
u_char *ngx_idempotency_note_reason(u_char *p, ngx_idempotency_note_t *note);


#endif /* _NGX_IDEMPOTENCY_NOTE_H_INCLUDED_ */
