
/*
 * The rules of the product: values in, decision out.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_POLICY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_POLICY_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* what a request gets */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_EXECUTE = 0,
    NGX_HTTP_IDEMPOTENCY_REPLAY,

    /* the rest are problems, see problem.c */

    NGX_HTTP_IDEMPOTENCY_KEY_MISSING,
    NGX_HTTP_IDEMPOTENCY_KEY_INVALID,
    NGX_HTTP_IDEMPOTENCY_FIRST_SENT_INVALID,
    NGX_HTTP_IDEMPOTENCY_FIRST_SENT_EXPIRED,
    NGX_HTTP_IDEMPOTENCY_SOURCE_MISSING,
    NGX_HTTP_IDEMPOTENCY_BODY_INVALID,
    NGX_HTTP_IDEMPOTENCY_KEY_REUSED,
    NGX_HTTP_IDEMPOTENCY_RUNNING,
    NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN,
    NGX_HTTP_IDEMPOTENCY_DUPLICATE,
    NGX_HTTP_IDEMPOTENCY_NOT_KEPT,
    NGX_HTTP_IDEMPOTENCY_KEY_EXPIRED,
    NGX_HTTP_IDEMPOTENCY_KEY_CANCELLED,
    NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE,
    NGX_HTTP_IDEMPOTENCY_RECORD_UNREADABLE,
    NGX_HTTP_IDEMPOTENCY_EARLY_DATA,
    NGX_HTTP_IDEMPOTENCY_TOKEN_NOT_ISSUED,
    NGX_HTTP_IDEMPOTENCY_NUMBER_OUT_OF_ORDER,
    NGX_HTTP_IDEMPOTENCY_SUSPECTED,

    /* nginx's own errors, by what was sent */

    NGX_HTTP_IDEMPOTENCY_NOT_SENT,
    NGX_HTTP_IDEMPOTENCY_ANSWER_LOST,

    /* of lookups, where nothing was to be executed */

    NGX_HTTP_IDEMPOTENCY_NOT_FOUND,
    NGX_HTTP_IDEMPOTENCY_OTHER_FENCE,
    NGX_HTTP_IDEMPOTENCY_OTHER_STATE,
    NGX_HTTP_IDEMPOTENCY_NOT_CANCELLED,
    NGX_HTTP_IDEMPOTENCY_BAD_ARGUMENT,
    NGX_HTTP_IDEMPOTENCY_BAD_METHOD,
    NGX_HTTP_IDEMPOTENCY_TOO_LARGE,
    NGX_HTTP_IDEMPOTENCY_CROSS_SITE
} ngx_http_idempotency_verdict_e;


/* what an upstream may say of the outcome, in X-Accel-Idempotency */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_OVERRIDE_NONE = 0,
    NGX_HTTP_IDEMPOTENCY_OVERRIDE_FINAL,
    NGX_HTTP_IDEMPOTENCY_OVERRIDE_RELEASE,
    NGX_HTTP_IDEMPOTENCY_OVERRIDE_UNKNOWN
} ngx_http_idempotency_override_e;


/* where an answer has its grpc-status */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_GRPC_NONE = 0,
    NGX_HTTP_IDEMPOTENCY_GRPC,
    NGX_HTTP_IDEMPOTENCY_GRPC_WEB
} ngx_http_idempotency_grpc_e;


/* everything that decides the outcome of a claim */

typedef struct {
    ngx_http_idempotency_override_e    override;
    ngx_uint_t                         status;     /* the upstream's, or the
                                                      client's, or 0 */
    off_t                              sent;       /* bytes, over all tries */
    off_t                              sent_before;    /* of these, before an
                                                      X-Accel-Redirect */

    unsigned                           wrapped:1;  /* the content handler */
    unsigned                           ran:1;      /* that handler */
    unsigned                           upstream:1; /* it made an upstream */
    unsigned                           answered:1; /* which sent a header */
    unsigned                           stale:1;    /* a cache did instead */
    unsigned                           settled:1;  /* outcome submitted */
} ngx_http_idempotency_facts_t;


/*
 * A duplicate meets "record".  "fingerprint" is that of the duplicate, NULL
 * when fingerprints are off.  A mismatch comes before everything else, but for
 * a key that was cancelled, which has no fingerprint.
 */
ngx_http_idempotency_verdict_e ngx_http_idempotency_policy_duplicate(
    const ngx_idempotency_record_t *record, const u_char *fingerprint,
    ngx_uint_t duplicate);

/*
 * The answer has come, or none will (status 0).  Returns COMPLETE, RELEASE or
 * MARK_UNKNOWN: the operation that settles the claim.
 */
ngx_idempotency_op_e ngx_http_idempotency_policy_outcome(
    const ngx_http_idempotency_facts_t *facts,
    const ngx_http_idempotency_statuses_t *final,
    const ngx_http_idempotency_statuses_t *retryable);

/*
 * Is an answer of this content type judged by its grpc-status?  GRPC_WEB: only
 * if that is in its header, otherwise it is in the body.
 */
ngx_http_idempotency_grpc_e ngx_http_idempotency_policy_grpc(
    const ngx_str_t *type);

/*
 * The HTTP status that a grpc-status is judged as, or 0 when it is none: NULL
 * where an answer has ended without one.
 */
ngx_uint_t ngx_http_idempotency_policy_grpc_status(const ngx_str_t *value);

/*
 * The status that a probe of an unknown outcome got.  REPLAY: executed, and
 * the answer is the record's; EXECUTE: never executed; otherwise what the
 * duplicate gets.
 */
ngx_http_idempotency_verdict_e ngx_http_idempotency_policy_probe(
    ngx_uint_t status);

/*
 * The store has failed.  May a request pass without it, if the location says
 * so?  Only if it could not be reached: not for a record that is there and
 * cannot be read, nor for a store that is full.
 */
ngx_uint_t ngx_http_idempotency_policy_may_pass(
    ngx_idempotency_error_e error);

/*
 * What a request gets when the store has failed; "seen": it has met a record
 * of its key before.
 */
ngx_http_idempotency_verdict_e ngx_http_idempotency_policy_failed(
    ngx_idempotency_error_e error, ngx_uint_t seen);

/*
 * Does this status mean that an access check has refused the client?
 * Otherwise the check has failed, or a limit came before it.
 */
ngx_uint_t ngx_http_idempotency_policy_is_refusal(ngx_uint_t status);

/*
 * How likely it is that a request has ended with this status before access was
 * granted, from 1 to 3; "checked": in the access phase, not before it.
 */
ngx_uint_t ngx_http_idempotency_policy_access_rank(ngx_uint_t status,
    ngx_uint_t checked);

/*
 * The gate: may a content handler, or a try of its upstream, get a claimed
 * request?  An error page "hides" the error if its own status is sent.  The
 * caller checks the lease besides, but not for error pages.
 */
ngx_uint_t ngx_http_idempotency_policy_gate(
    const ngx_http_idempotency_facts_t *facts,
    ngx_http_idempotency_arrival_e arrival, ngx_uint_t hides);

/*
 * Reads "final | release | unknown[; ttl=SECONDS]"; ttl is left alone when it
 * is not given.  NONE when the value is none of these.
 */
ngx_http_idempotency_override_e ngx_http_idempotency_policy_override(
    const ngx_str_t *value, time_t *ttl);

/*
 * The date of a repeatable request (OASIS), as IMF-fixdate.  EXECUTE: a record
 * of an earlier try would still be there, for as long as "ttl"; otherwise the
 * problem.  The client's clock may be wrong by five minutes, or by a quarter
 * of ttl if that is less.
 */
ngx_http_idempotency_verdict_e ngx_http_idempotency_policy_first_sent(
    const ngx_str_t *date, time_t now, time_t ttl);


#endif /* _NGX_HTTP_IDEMPOTENCY_POLICY_H_INCLUDED_ */
