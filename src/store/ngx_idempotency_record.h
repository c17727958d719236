
/*
 * The record of one key as callers see it, and the encoding of its answer.
 */


#ifndef _NGX_IDEMPOTENCY_RECORD_H_INCLUDED_
#define _NGX_IDEMPOTENCY_RECORD_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_IDEMPOTENCY_DIGEST_LEN       32

/* its length, for a log */
#define NGX_IDEMPOTENCY_WHOLE            ((size_t) NGX_IDEMPOTENCY_DIGEST_LEN)

#define NGX_IDEMPOTENCY_FINGERPRINT_LEN  34
#define NGX_IDEMPOTENCY_OWNER_LEN        16

/*
 * A fingerprint begins with these bytes, which are compared; the two behind
 * them say how it was made, or are zero in records of older versions.
 */
#define NGX_IDEMPOTENCY_FINGERPRINT_SUM  32

/* the end of the digest of a record that a dry run has made */
#define NGX_IDEMPOTENCY_DRY              "dry run"
#define NGX_IDEMPOTENCY_DRY_LEN          8

/*
 * Of a record in Redis, before its note and its answer.  Records without a
 * note have the version of gateways that know no notes.
 */
#define NGX_IDEMPOTENCY_RECORD_HEADER    116
#define NGX_IDEMPOTENCY_RECORD_VERSION   1
#define NGX_IDEMPOTENCY_RECORD_NOTED     2

/* the longest note of a record, see note.h */
#define NGX_IDEMPOTENCY_NOTE_LEN         512


/*
 * Moves: none -> executing (claim); executing -> done (complete), unknown
 * (mark_unknown, or read so once the lease is over), none (release);
 * unknown -> done, none (complete by its owner, resolve); issued ->
 * executing (claim); done -> tombstone -> none (time).  Only a store moves
 * a record, for its owner or for an operator that names the fence; the rules
 * are in transition.c.
 */

typedef enum {
    NGX_IDEMPOTENCY_NONE = 0,
    NGX_IDEMPOTENCY_ISSUED,
    NGX_IDEMPOTENCY_EXECUTING,
    NGX_IDEMPOTENCY_UNKNOWN,
    NGX_IDEMPOTENCY_DONE,
    NGX_IDEMPOTENCY_TOMBSTONE
} ngx_idempotency_state_e;


/*
 * A key that its caller has cancelled is done without an answer and, as no
 * other done record is, without an attempt.  Versions of this module that do
 * not know that take it for one that was executed and whose answer was not
 * kept, with this status.
 */
#define NGX_IDEMPOTENCY_CANCELLED_STATUS  410

#define ngx_idempotency_record_is_cancelled(record)                           \
    ((record)->state >= NGX_IDEMPOTENCY_DONE                                  \
     && (record)->attempts == 0                                               \
     && (record)->status == NGX_IDEMPOTENCY_CANCELLED_STATUS)


/* the names of the states */
extern ngx_str_t  ngx_idempotency_states[];


/* a header or trailer line of a stored answer */

typedef struct {
    ngx_str_t                name;
    ngx_str_t                value;
} ngx_idempotency_field_t;


/*
 * The head of an answer.  Lengths, types and dates have fields of their own
 * because nginx wants them so; everything else is a line in "headers".
 */

typedef struct {
    ngx_uint_t               status;
    ngx_str_t                status_line;
    ngx_str_t                content_type;
    ngx_str_t                charset;
    off_t                    content_length;   /* -1: none was announced */
    time_t                   last_modified;    /* -1: none */
    ngx_array_t              headers;          /* ngx_idempotency_field_t */
    ngx_array_t              trailers;         /* ngx_idempotency_field_t */
} ngx_idempotency_answer_t;


/*
 * A record as a caller sees it.  "state" is the state at the moment of the
 * look: an executing record whose lease is over shows as unknown, a done
 * one past its ttl as a tombstone.  note, head and body point into the pool of
 * the operation that brought them; head and body are empty unless the state is
 * done.
 */

typedef struct {
    ngx_idempotency_state_e  state;
    uint64_t                 fence;
    u_char                   fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_LEN];
    time_t                   created;          /* wall clock, seconds */
    ngx_uint_t               attempts;         /* claims granted so far */
    ngx_uint_t               status;           /* of the answer, 0: none */
    ngx_msec_t               lease_left;       /* of owner or prober */
    ngx_msec_t               done_for;         /* done or a tombstone: so long;
                                                  less, if an older version
                                                  has written the record */
    time_t                   ttl_left;         /* seconds to the next move */
    uint64_t                 ttl_msec;         /* the same, not rounded up */
    uint64_t                 unknown_for;      /* msec since its lease ended */
    ngx_str_t                note;             /* encoded, see note.h */
    ngx_str_t                head;             /* encoded answer head */
    ngx_str_t                body;

    unsigned                 kept:1;           /* head and body were kept */
    unsigned                 committed:1;      /* by the service, with its
                                                  work */
    unsigned                 lapsed:1;         /* unknown because its lease is
                                                  over, not by its owner */
} ngx_idempotency_record_t;


/*
 * Encodes the head of an answer into the pool.  What it has encoded can be
 * decoded.  Returns NGX_ERROR when memory is short or the answer is one that
 * decode_head would refuse.
 */
ngx_int_t ngx_idempotency_record_encode_head(ngx_pool_t *pool,
    ngx_idempotency_answer_t *answer, ngx_str_t *head);

/*
 * Decodes what encode_head wrote.  The bytes are foreign data: every length
 * is checked, an unknown version or trailing bytes are refused, and so are a
 * string with CR, LF or a zero byte, one longer than 16 MB, and a status line
 * of another status.  The strings of the answer point into "head".  Returns
 * NGX_OK, NGX_DECLINED when the bytes cannot be read, NGX_ERROR when memory is
 * short.
 */
ngx_int_t ngx_idempotency_record_decode_head(ngx_pool_t *pool,
    ngx_str_t *head, ngx_idempotency_answer_t *answer);

/*
 * Reads a whole record as a Redis script has written it, with "now" in
 * milliseconds of the same server.  The bytes are foreign data; note, head and
 * body point into them.  An empty value is a record of state none.  Returns
 * NGX_OK, or NGX_DECLINED when they cannot be read.
 */
ngx_int_t ngx_idempotency_record_decode(ngx_str_t *value, uint64_t now,
    ngx_idempotency_record_t *record);

/* A digest that is written in hex.  NGX_OK, or NGX_DECLINED: it is none. */
ngx_int_t ngx_idempotency_record_digest(const u_char *hex, u_char *digest);

/* Is it the digest of a dry run? */
ngx_uint_t ngx_idempotency_record_is_dry(const u_char *digest);

/* Do these bytes of a record name this owner? */
ngx_uint_t ngx_idempotency_record_is_of(ngx_str_t *value, u_char *owner);


#endif /* _NGX_IDEMPOTENCY_RECORD_H_INCLUDED_ */
