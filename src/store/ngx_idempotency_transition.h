
/*
 * The moves of a record, as pure functions: no lock, no clock, no memory of
 * their own.  A store reads the record, asks what an operation makes of it,
 * and writes it back, all of it inside one lock or transaction.  The scripts
 * of the Redis store have the same rules in Lua.
 */


#ifndef _NGX_IDEMPOTENCY_TRANSITION_H_INCLUDED_
#define _NGX_IDEMPOTENCY_TRANSITION_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * A record as a store keeps it, without its answer.  Times are milliseconds of
 * the store's clock.  A key without a record is all zero; a record of state
 * none is the stub of a key that was given back: it reads as none and refuses
 * "owner".
 *
 * A record of state executing or unknown is kept "keep" seconds longer than
 * its lease, an issued one until "issued", any other one until "until".
 */

typedef struct {
    ngx_idempotency_state_e   state;
    u_char                    owner[NGX_IDEMPOTENCY_OWNER_LEN];
    u_char                    fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_LEN];
    uint64_t                  fence;
    uint64_t                  lease;       /* its end; also that of a probe;
                                              or when it was done */
    uint64_t                  until;
    uint64_t                  issued;      /* its end, 0: was not issued */
    time_t                    created;     /* wall clock, seconds */
    uint32_t                  attempts;    /* claims granted so far */
    uint32_t                  keep;        /* seconds */
    uint32_t                  tombstone;   /* seconds */
    uint16_t                  status;      /* of the answer */
    unsigned                  kept:1;      /* its answer is */
    unsigned                  exists:1;    /* 0: there is no record */
    ngx_str_t                 note;        /* the store's bytes, or those of
                                              the operation */
} ngx_idempotency_stored_t;


/*
 * How far a sequence has come: "next" is the lowest number of the epoch that
 * was never claimed.  All zero if the store has no mark for the record.
 */

typedef struct {
    uint64_t                  epoch;
    uint64_t                  next;
    uint64_t                  until;       /* is kept so long, msec */
    unsigned                  exists:1;
} ngx_idempotency_mark_t;


/*
 * The last request with a source, scope and fingerprint, whatever its key.  It
 * names a record, which says what became of that request: nothing has to be
 * written here for that.
 */

typedef struct {
    u_char                    record[NGX_IDEMPOTENCY_DIGEST_LEN];
    u_char                    owner[NGX_IDEMPOTENCY_OWNER_LEN];
    uint64_t                  made;        /* msec */
    uint64_t                  until;       /* is kept so long, msec */
} ngx_idempotency_last_t;


typedef enum {
    NGX_IDEMPOTENCY_UNCHANGED = 0,

    /* same state, same holder: what the holder is writing remains valid */
    NGX_IDEMPOTENCY_TOUCHED,

    /* another state or holder: an answer that is not done is to be dropped */
    NGX_IDEMPOTENCY_MOVED
} ngx_idempotency_change_e;


typedef struct {
    /* what is asked, and when; a new fence is not below "fence" */

    const ngx_idempotency_op_t  *op;
    uint64_t                     now;         /* store's clock, msec */
    time_t                       time;        /* wall clock, for "created" */
    uint64_t                     fence;

    /* before and after */

    ngx_idempotency_stored_t     stored;
    ngx_idempotency_mark_t       mark;

    /* what came of it */

    ngx_idempotency_result_e     result;
    ngx_idempotency_change_e     change;      /* of the record */
    uint64_t                     expected;    /* as in the operation */
    unsigned                     expects:1;
    unsigned                     answer:1;    /* show it with its answer */
    unsigned                     mark_moved:1;
} ngx_idempotency_transition_t;


/*
 * What an operation makes of a record, and of the mark of its sequence; see
 * ngx_idempotency_op_e for the operations.  The mark is looked at when the
 * operation has the flag SEQUENCE, and by release, resolve and purge.
 *
 * A renewal is asked for one lease at a time: owner, fingerprint, fence and
 * lease are those of the line, ttl is its "keep".  After a complete or a
 * resolve as executed "kept" is what was asked for: a store without room for
 * the answer clears it.
 */
void ngx_idempotency_transition(ngx_idempotency_transition_t *t);

/*
 * What time alone makes of it: past its ttl a done record is a tombstone, and
 * a record that is past its time does not exist.  The end of a lease changes
 * nothing that is stored.
 */
void ngx_idempotency_transition_time(ngx_idempotency_stored_t *stored,
    uint64_t now);

/* when time ends the state that the record has */

static ngx_inline uint64_t
ngx_idempotency_transition_due(const ngx_idempotency_stored_t *stored)
{
    switch (stored->state) {

    case NGX_IDEMPOTENCY_EXECUTING:
    case NGX_IDEMPOTENCY_UNKNOWN:
        return stored->lease + (uint64_t) stored->keep * 1000;

    case NGX_IDEMPOTENCY_ISSUED:
        return stored->issued;

    default:
        return stored->until;
    }
}

/*
 * Is the request of a suspect operation one that "last" has made under another
 * key?  "record" is that of last->record, "age" is that of "last" in msec.
 * "released": the record names last->owner.  A record that is free and does not
 * name it means that the claim of that owner is still on its way, where a store
 * has no lock for both; if it does not arrive within a lease, it was lost.
 */
ngx_uint_t ngx_idempotency_transition_suspects(
    const ngx_idempotency_op_t *op, const ngx_idempotency_record_t *record,
    ngx_uint_t released, uint64_t age);

/*
 * The same in a store that has all records at hand: "other" is the one of
 * last->record, and "last" is NULL if there is none.  Sets result and record
 * of the operation, and returns whether its request is the last one now.
 */
ngx_uint_t ngx_idempotency_transition_suspect(const ngx_idempotency_op_t *op,
    const ngx_idempotency_last_t *last, const ngx_idempotency_stored_t *other,
    uint64_t now, ngx_idempotency_result_e *result,
    ngx_idempotency_record_t *record);

/*
 * The record as callers see it, without its answer and its note; "record" is
 * all zero before, and remains so if there is no record.
 */
void ngx_idempotency_transition_show(const ngx_idempotency_stored_t *stored,
    uint64_t now, ngx_idempotency_record_t *record);


#endif /* _NGX_IDEMPOTENCY_TRANSITION_H_INCLUDED_ */
