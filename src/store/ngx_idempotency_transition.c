
/*
 * The moves of a record, as pure functions.
 */


#include "ngx_idempotency_transition.h"


typedef ngx_idempotency_result_e (*ngx_idempotency_transition_pt)(
    ngx_idempotency_transition_t *t);


static ngx_idempotency_result_e ngx_idempotency_transition_claim(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_claim_record(
    ngx_idempotency_transition_t *t);
static ngx_uint_t ngx_idempotency_transition_in_turn(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_complete(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_release(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_mark_unknown(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_probe(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_renew(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_issue(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_fetch(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_resolve(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_purge(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_result_e ngx_idempotency_transition_cancel(
    ngx_idempotency_transition_t *t);

static void ngx_idempotency_transition_hold(ngx_idempotency_transition_t *t);
static void ngx_idempotency_transition_restore(ngx_idempotency_transition_t *t);
static void ngx_idempotency_transition_done(ngx_idempotency_transition_t *t);
static void ngx_idempotency_transition_free(ngx_idempotency_transition_t *t,
    ngx_uint_t issued);
static ngx_uint_t ngx_idempotency_transition_owns(
    ngx_idempotency_transition_t *t);
static uint64_t ngx_idempotency_transition_fence(
    ngx_idempotency_transition_t *t);
static ngx_idempotency_state_e ngx_idempotency_transition_state(
    const ngx_idempotency_stored_t *stored, uint64_t now);
static uint32_t ngx_idempotency_transition_seconds(time_t sec);


/* in the order of ngx_idempotency_op_e */

static ngx_idempotency_transition_pt  ngx_idempotency_transitions[] = {
    ngx_idempotency_transition_claim,
    ngx_idempotency_transition_complete,
    ngx_idempotency_transition_release,
    ngx_idempotency_transition_mark_unknown,
    ngx_idempotency_transition_probe,
    ngx_idempotency_transition_renew,
    ngx_idempotency_transition_issue,
    ngx_idempotency_transition_fetch,
    ngx_idempotency_transition_resolve,
    ngx_idempotency_transition_purge,
    ngx_idempotency_transition_cancel
};


void
ngx_idempotency_transition(ngx_idempotency_transition_t *t)
{
    t->change = NGX_IDEMPOTENCY_UNCHANGED;
    t->expects = 0;
    t->answer = 0;
    t->mark_moved = 0;

    if (t->now >= ngx_idempotency_transition_due(&t->stored)) {
        ngx_idempotency_transition_time(&t->stored, t->now);
    }

    t->result = ngx_idempotency_transitions[t->op->type](t);
}


/*
 * The mark of a sequence moves with a granted claim.  A claim that finds the
 * record of another one moves it as well: the store may have died after it
 * had written that record, and before the mark.
 */

static ngx_idempotency_result_e
ngx_idempotency_transition_claim(ngx_idempotency_transition_t *t)
{
    uint64_t                     until;
    ngx_idempotency_mark_t      *mark;
    const ngx_idempotency_op_t  *op;
    ngx_idempotency_result_e     result;

    op = t->op;
    mark = &t->mark;

    if (!(op->flags & NGX_IDEMPOTENCY_SEQUENCE)) {
        return ngx_idempotency_transition_claim_record(t);
    }

    /* if another store has granted it, that one has checked its turn */

    if (mark->exists
        && op->granted == 0
        && !ngx_idempotency_transition_in_turn(t))
    {
        return NGX_IDEMPOTENCY_OUT_OF_ORDER;
    }

    result = ngx_idempotency_transition_claim_record(t);

    if (result != NGX_IDEMPOTENCY_GRANTED
        && result != NGX_IDEMPOTENCY_EXISTS)
    {
        return result;
    }

    if (!mark->exists || result == NGX_IDEMPOTENCY_GRANTED) {
        until = t->now + 1000 * (uint64_t)
                         (ngx_max(op->ttl + op->tombstone,
                                  NGX_IDEMPOTENCY_UNKNOWN_TTL)
                          + NGX_IDEMPOTENCY_MARK_TTL);

        mark->until = ngx_max(mark->until, until);
        t->mark_moved = 1;
    }

    if (!mark->exists
        || op->id.epoch > mark->epoch
        || (op->id.epoch == mark->epoch && op->id.number >= mark->next))
    {
        mark->exists = 1;
        mark->epoch = op->id.epoch;
        mark->next = op->id.number + 1;
        t->mark_moved = 1;
    }

    return result;
}


static ngx_uint_t
ngx_idempotency_transition_in_turn(ngx_idempotency_transition_t *t)
{
    uint64_t                     next;
    ngx_uint_t                   known, strict;
    const ngx_idempotency_op_t  *op;

    op = t->op;

    if (op->id.epoch < t->mark.epoch) {
        return 0;
    }

    known = (t->stored.state != NGX_IDEMPOTENCY_NONE);
    strict = op->flags & NGX_IDEMPOTENCY_SEQUENCE_STRICT;

    if (op->id.epoch > t->mark.epoch) {
        next = 0;

        /* numbers begin again, with 0 or with 1 */

        if (known || !strict || op->id.number <= 1) {
            return 1;
        }

    } else {
        next = t->mark.next;

        if (op->id.number < next) {

            /* its record is there, or a stub: it was released */

            if (t->stored.exists) {
                return 1;
            }

        } else if (known || !strict || op->id.number == next) {
            return 1;
        }
    }

    if (strict) {
        t->expects = 1;
        t->expected = next;
    }

    return 0;
}


static ngx_idempotency_result_e
ngx_idempotency_transition_claim_record(ngx_idempotency_transition_t *t)
{
    ngx_idempotency_state_e      state;
    ngx_idempotency_stored_t    *stored;
    const ngx_idempotency_op_t  *op;

    op = t->op;
    stored = &t->stored;

    if ((op->flags & NGX_IDEMPOTENCY_CLAIM_ISSUED)
        && stored->state == NGX_IDEMPOTENCY_NONE)
    {
        return NGX_IDEMPOTENCY_NOT_ISSUED;
    }

    state = ngx_idempotency_transition_state(stored, t->now);

    if (ngx_idempotency_transition_owns(t)) {

        /* the reply was lost, or this is a copy of an old claim */

        if (stored->state == NGX_IDEMPOTENCY_EXECUTING) {
            stored->fence = ngx_max(stored->fence, op->granted);
            stored->lease = t->now + op->lease;
            t->change = NGX_IDEMPOTENCY_TOUCHED;

            return NGX_IDEMPOTENCY_GRANTED;
        }

        if (state == NGX_IDEMPOTENCY_NONE || state == NGX_IDEMPOTENCY_ISSUED) {
            return NGX_IDEMPOTENCY_REFUSED;
        }

        t->answer = 1;
        return NGX_IDEMPOTENCY_EXISTS;
    }

    switch (state) {

    case NGX_IDEMPOTENCY_NONE:
    case NGX_IDEMPOTENCY_ISSUED:
        stored->created = t->time;
        break;

    case NGX_IDEMPOTENCY_UNKNOWN:

        if ((op->flags & NGX_IDEMPOTENCY_CLAIM_UNKNOWN)
            && (op->fence == 0 || op->fence == stored->fence)
            && ngx_memcmp(stored->fingerprint, op->id.fingerprint,
                          NGX_IDEMPOTENCY_FINGERPRINT_SUM) == 0)
        {
            break;
        }

        /* fall through */

    default:
        t->answer = 1;
        return NGX_IDEMPOTENCY_EXISTS;
    }

    ngx_idempotency_transition_hold(t);

    stored->state = NGX_IDEMPOTENCY_EXECUTING;
    stored->fence = ngx_idempotency_transition_fence(t);
    stored->attempts++;
    stored->lease = t->now + op->lease;

    return NGX_IDEMPOTENCY_GRANTED;
}


static ngx_idempotency_result_e
ngx_idempotency_transition_complete(ngx_idempotency_transition_t *t)
{
    if (!t->stored.exists) {
        ngx_idempotency_transition_restore(t);
        ngx_idempotency_transition_done(t);

        return NGX_IDEMPOTENCY_OK;
    }

    if (ngx_idempotency_transition_owns(t)) {

        switch (t->stored.state) {

        case NGX_IDEMPOTENCY_EXECUTING:
        case NGX_IDEMPOTENCY_UNKNOWN:
            ngx_idempotency_transition_done(t);
            t->stored.note = t->op->note;
            return NGX_IDEMPOTENCY_OK;

        case NGX_IDEMPOTENCY_DONE:
        case NGX_IDEMPOTENCY_TOMBSTONE:
            return NGX_IDEMPOTENCY_OK;

        default: /* NONE, ISSUED: the owner has given it up */
            break;
        }
    }

    t->answer = 1;

    return NGX_IDEMPOTENCY_REFUSED;
}


static ngx_idempotency_result_e
ngx_idempotency_transition_release(ngx_idempotency_transition_t *t)
{
    ngx_idempotency_mark_t      *mark;
    ngx_idempotency_stored_t    *stored;
    const ngx_idempotency_op_t  *op;

    op = t->op;
    mark = &t->mark;
    stored = &t->stored;

    if (!stored->exists) {

        if (op->flags & NGX_IDEMPOTENCY_SEQUENCE) {

            /* a stub would read as claimed and released */

            return NGX_IDEMPOTENCY_OK;
        }

        /* the claim may come behind its release: it must be refused */

        ngx_idempotency_transition_restore(t);
        ngx_idempotency_transition_free(t, 0);

        return NGX_IDEMPOTENCY_OK;
    }

    switch (stored->state) {

    case NGX_IDEMPOTENCY_EXECUTING:

        if (!ngx_idempotency_transition_owns(t)) {
            return NGX_IDEMPOTENCY_REFUSED;
        }

        ngx_idempotency_transition_free(t, 1);

        if ((op->flags & NGX_IDEMPOTENCY_SEQUENCE)
            && mark->exists
            && mark->epoch == op->id.epoch
            && mark->next == op->id.number + 1)
        {
            /* it was the last number: the next claim may have it */

            mark->next = op->id.number;
            t->mark_moved = 1;
        }

        return NGX_IDEMPOTENCY_OK;

    case NGX_IDEMPOTENCY_NONE:
        stored->until = t->now + (uint64_t) stored->keep * 1000;

        /* fall through */

    case NGX_IDEMPOTENCY_ISSUED:
        ngx_memcpy(stored->owner, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);
        t->change = NGX_IDEMPOTENCY_TOUCHED;

        return NGX_IDEMPOTENCY_OK;

    default:
        return NGX_IDEMPOTENCY_REFUSED;
    }
}


static ngx_idempotency_result_e
ngx_idempotency_transition_mark_unknown(ngx_idempotency_transition_t *t)
{
    if (!t->stored.exists) {
        ngx_idempotency_transition_restore(t);
        t->stored.state = NGX_IDEMPOTENCY_UNKNOWN;

        return NGX_IDEMPOTENCY_OK;
    }

    if (!ngx_idempotency_transition_owns(t)) {
        return NGX_IDEMPOTENCY_REFUSED;
    }

    switch (t->stored.state) {

    case NGX_IDEMPOTENCY_EXECUTING:
        t->stored.state = NGX_IDEMPOTENCY_UNKNOWN;
        t->stored.lease = t->now;
        t->change = NGX_IDEMPOTENCY_MOVED;

        if (t->op->note.len) {
            t->stored.note = t->op->note;
        }

        return NGX_IDEMPOTENCY_OK;

    case NGX_IDEMPOTENCY_UNKNOWN:
        return NGX_IDEMPOTENCY_OK;

    default:
        return NGX_IDEMPOTENCY_REFUSED;
    }
}


static ngx_idempotency_result_e
ngx_idempotency_transition_probe(ngx_idempotency_transition_t *t)
{
    ngx_idempotency_stored_t  *stored;

    stored = &t->stored;

    if (t->op->fence) {

        if (stored->state != NGX_IDEMPOTENCY_UNKNOWN
            || stored->fence != t->op->fence)
        {
            return NGX_IDEMPOTENCY_REFUSED;
        }

        stored->lease = t->now;
        t->change = NGX_IDEMPOTENCY_MOVED;

        return NGX_IDEMPOTENCY_OK;
    }

    if (ngx_idempotency_transition_state(stored, t->now)
        != NGX_IDEMPOTENCY_UNKNOWN
        || stored->lease > t->now)
    {
        t->answer = 1;
        return NGX_IDEMPOTENCY_EXISTS;
    }

    stored->state = NGX_IDEMPOTENCY_UNKNOWN;
    stored->fence = ngx_idempotency_transition_fence(t);
    stored->lease = t->now + t->op->lease;
    t->change = NGX_IDEMPOTENCY_MOVED;

    return NGX_IDEMPOTENCY_GRANTED;
}


static ngx_idempotency_result_e
ngx_idempotency_transition_renew(ngx_idempotency_transition_t *t)
{
    if (!t->stored.exists) {
        ngx_idempotency_transition_restore(t);
        t->stored.state = NGX_IDEMPOTENCY_EXECUTING;

    } else if (t->stored.state == NGX_IDEMPOTENCY_EXECUTING
               && ngx_idempotency_transition_owns(t))
    {
        t->change = NGX_IDEMPOTENCY_TOUCHED;

    } else {
        return NGX_IDEMPOTENCY_REFUSED;
    }

    t->stored.lease = t->now + t->op->lease;

    return NGX_IDEMPOTENCY_OK;
}


static ngx_idempotency_result_e
ngx_idempotency_transition_issue(ngx_idempotency_transition_t *t)
{
    ngx_idempotency_stored_t  *stored;

    stored = &t->stored;

    if (stored->state != NGX_IDEMPOTENCY_NONE) {
        return NGX_IDEMPOTENCY_REFUSED;
    }

    stored->exists = 1;
    stored->state = NGX_IDEMPOTENCY_ISSUED;
    stored->fence = ngx_idempotency_transition_fence(t);
    stored->created = t->time;
    stored->issued = t->now + 1000 * (uint64_t)
                     ngx_idempotency_transition_seconds(t->op->ttl);
    t->change = NGX_IDEMPOTENCY_MOVED;

    return NGX_IDEMPOTENCY_OK;
}


static ngx_idempotency_result_e
ngx_idempotency_transition_fetch(ngx_idempotency_transition_t *t)
{
    t->answer = !(t->op->flags & NGX_IDEMPOTENCY_FETCH_BARE);

    return NGX_IDEMPOTENCY_OK;
}


static ngx_idempotency_result_e
ngx_idempotency_transition_resolve(ngx_idempotency_transition_t *t)
{
    if (ngx_idempotency_transition_state(&t->stored, t->now)
        != NGX_IDEMPOTENCY_UNKNOWN
        || t->stored.fence != t->op->fence)
    {
        t->answer = t->op->executed;
        return NGX_IDEMPOTENCY_REFUSED;
    }

    if (t->op->executed) {

        /* the answer is not the owner's, who must not take it for its own */

        ngx_memzero(t->stored.owner, NGX_IDEMPOTENCY_OWNER_LEN);
        ngx_idempotency_transition_done(t);

    } else {
        ngx_idempotency_transition_free(t, 1);
    }

    return NGX_IDEMPOTENCY_OK;
}


static ngx_idempotency_result_e
ngx_idempotency_transition_purge(ngx_idempotency_transition_t *t)
{
    ngx_idempotency_state_e  state;

    state = ngx_idempotency_transition_state(&t->stored, t->now);

    if (state == NGX_IDEMPOTENCY_NONE
        || state == NGX_IDEMPOTENCY_EXECUTING
        || t->stored.fence != t->op->fence)
    {
        return NGX_IDEMPOTENCY_REFUSED;
    }

    ngx_idempotency_transition_free(t, 0);

    return NGX_IDEMPOTENCY_OK;
}


static ngx_idempotency_result_e
ngx_idempotency_transition_cancel(ngx_idempotency_transition_t *t)
{
    uint64_t                   fence;
    ngx_idempotency_stored_t  *stored;

    stored = &t->stored;

    if (ngx_idempotency_record_is_cancelled(stored)) {
        return NGX_IDEMPOTENCY_OK;
    }

    if (stored->state != NGX_IDEMPOTENCY_NONE
        && stored->state != NGX_IDEMPOTENCY_ISSUED)
    {
        return NGX_IDEMPOTENCY_REFUSED;
    }

    fence = ngx_idempotency_transition_fence(t);

    /* no owner: a late claim of one that gave it up is not granted either */

    ngx_memzero(stored, sizeof(ngx_idempotency_stored_t));

    ngx_idempotency_transition_done(t);

    stored->exists = 1;
    stored->fence = fence;
    stored->created = t->time;
    stored->kept = 0;
    stored->status = NGX_IDEMPOTENCY_CANCELLED_STATUS;

    return NGX_IDEMPOTENCY_OK;
}


/* the record is that of the operation's owner */

static void
ngx_idempotency_transition_hold(ngx_idempotency_transition_t *t)
{
    time_t                       keep;
    ngx_idempotency_stored_t    *stored;
    const ngx_idempotency_op_t  *op;

    op = t->op;
    stored = &t->stored;

    ngx_memcpy(stored->owner, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(stored->fingerprint, op->id.fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    keep = ngx_max(op->ttl, op->tombstone);
    keep = ngx_max(keep, NGX_IDEMPOTENCY_UNKNOWN_TTL);

    stored->exists = 1;
    stored->note = op->note;
    stored->keep = ngx_idempotency_transition_seconds(keep);
    t->change = NGX_IDEMPOTENCY_MOVED;
}


/*
 * The store has lost the record: it is written anew as its owner believes it.
 * The state is set by the caller, and the lease unless it is over.
 */

static void
ngx_idempotency_transition_restore(ngx_idempotency_transition_t *t)
{
    ngx_idempotency_transition_hold(t);

    t->stored.fence = t->op->fence ? t->op->fence
                                   : ngx_idempotency_transition_fence(t);
    t->stored.created = t->time;
    t->stored.attempts = 1;
    t->stored.lease = t->now;
}


static void
ngx_idempotency_transition_done(ngx_idempotency_transition_t *t)
{
    ngx_idempotency_stored_t    *stored;
    const ngx_idempotency_op_t  *op;

    op = t->op;
    stored = &t->stored;

    stored->state = NGX_IDEMPOTENCY_DONE;
    stored->kept = op->keep;
    stored->status = (uint16_t) op->status;
    stored->lease = t->now;
    stored->until = t->now + 1000 * (uint64_t)
                    ngx_idempotency_transition_seconds(op->ttl);
    stored->tombstone = ngx_idempotency_transition_seconds(op->tombstone);
    t->change = NGX_IDEMPOTENCY_MOVED;
}


/* "issued": a key that was issued is so again, if that time is not over */

static void
ngx_idempotency_transition_free(ngx_idempotency_transition_t *t,
    ngx_uint_t issued)
{
    ngx_idempotency_stored_t  *stored;

    stored = &t->stored;
    stored->note.len = 0;
    t->change = NGX_IDEMPOTENCY_MOVED;

    if (issued && stored->issued > t->now) {
        stored->state = NGX_IDEMPOTENCY_ISSUED;
        return;
    }

    if (!t->mark.exists) {

        /* that of a number says for as long as it may that it is free */

        stored->keep = NGX_IDEMPOTENCY_STUB_TTL;
    }

    stored->state = NGX_IDEMPOTENCY_NONE;
    stored->kept = 0;
    stored->until = t->now + (uint64_t) stored->keep * 1000;
    stored->issued = 0;
    stored->status = 0;
}


static ngx_uint_t
ngx_idempotency_transition_owns(ngx_idempotency_transition_t *t)
{
    return t->stored.exists
           && ngx_memcmp(t->stored.owner, t->op->id.owner,
                         NGX_IDEMPOTENCY_OWNER_LEN) == 0;
}


static uint64_t
ngx_idempotency_transition_fence(ngx_idempotency_transition_t *t)
{
    uint64_t  fence;

    fence = t->op->granted ? t->op->granted : t->fence;

    return ngx_max(t->stored.fence + 1, fence);
}


void
ngx_idempotency_transition_time(ngx_idempotency_stored_t *stored,
    uint64_t now)
{
    uint64_t  end;

    if (!stored->exists || now < ngx_idempotency_transition_due(stored)) {
        return;
    }

    end = stored->until + (uint64_t) stored->tombstone * 1000;

    if (stored->state == NGX_IDEMPOTENCY_DONE && now < end) {
        stored->state = NGX_IDEMPOTENCY_TOMBSTONE;
        stored->kept = 0;
        stored->until = end;

        return;
    }

    ngx_memzero(stored, sizeof(ngx_idempotency_stored_t));
}


ngx_uint_t
ngx_idempotency_transition_suspects(const ngx_idempotency_op_t *op,
    const ngx_idempotency_record_t *record, ngx_uint_t released, uint64_t age)
{
    switch (record->state) {

    case NGX_IDEMPOTENCY_EXECUTING:
    case NGX_IDEMPOTENCY_UNKNOWN:
        return 1;

    case NGX_IDEMPOTENCY_DONE:
    case NGX_IDEMPOTENCY_TOMBSTONE:
        return !ngx_idempotency_record_is_cancelled(record)
               && record->done_for < (ngx_msec_t) op->window * 1000;

    default: /* NONE, ISSUED */
        return !released && age < op->lease;
    }
}


ngx_uint_t
ngx_idempotency_transition_suspect(const ngx_idempotency_op_t *op,
    const ngx_idempotency_last_t *last, const ngx_idempotency_stored_t *other,
    uint64_t now, ngx_idempotency_result_e *result,
    ngx_idempotency_record_t *record)
{
    ngx_uint_t  released;

    *result = NGX_IDEMPOTENCY_GRANTED;

    ngx_memzero(record, sizeof(ngx_idempotency_record_t));

    if (last == NULL
        || ngx_memcmp(last->record, op->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN)
           == 0)
    {
        return 1;
    }

    ngx_idempotency_transition_show(other, now, record);

    released = other->exists
               && ngx_memcmp(other->owner, last->owner,
                             NGX_IDEMPOTENCY_OWNER_LEN)
                  == 0;

    if (!ngx_idempotency_transition_suspects(op, record, released,
                                             now > last->made
                                             ? now - last->made : 0))
    {
        ngx_memzero(record, sizeof(ngx_idempotency_record_t));
        return 1;
    }

    *result = NGX_IDEMPOTENCY_EXISTS;
    ngx_memcpy(record->fingerprint, last->record, NGX_IDEMPOTENCY_DIGEST_LEN);

    /* one that is not settled stays the last one: it does not age */

    return (op->flags & NGX_IDEMPOTENCY_SUSPECT_PASSES)
           && record->state >= NGX_IDEMPOTENCY_DONE;
}


void
ngx_idempotency_transition_show(const ngx_idempotency_stored_t *stored,
    uint64_t now, ngx_idempotency_record_t *record)
{
    uint64_t  due;

    if (!stored->exists) {
        return;
    }

    record->state = ngx_idempotency_transition_state(stored, now);
    record->fence = stored->fence;
    record->created = stored->created;
    record->attempts = stored->attempts;

    ngx_memcpy(record->fingerprint, stored->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    due = ngx_idempotency_transition_due(stored);

    if (due > now && record->state != NGX_IDEMPOTENCY_NONE) {
        record->ttl_left = (time_t) ((due - now + 999) / 1000);
        record->ttl_msec = due - now;
    }

    switch (record->state) {

    case NGX_IDEMPOTENCY_EXECUTING:
    case NGX_IDEMPOTENCY_UNKNOWN:
        if (stored->lease > now) {
            record->lease_left = (ngx_msec_t) (stored->lease - now);

        } else {
            record->lapsed = (stored->state == NGX_IDEMPOTENCY_EXECUTING);
            record->unknown_for = now - stored->lease;
        }

        break;

    case NGX_IDEMPOTENCY_DONE:
    case NGX_IDEMPOTENCY_TOMBSTONE:
        record->status = stored->status;
        record->kept = stored->kept;

        if (stored->lease < now) {
            record->done_for = (ngx_msec_t) (now - stored->lease);
        }

        break;

    default:
        break;
    }
}


/* executing is unknown once its lease is over */

static ngx_idempotency_state_e
ngx_idempotency_transition_state(const ngx_idempotency_stored_t *stored,
    uint64_t now)
{
    if (stored->state == NGX_IDEMPOTENCY_EXECUTING && stored->lease <= now) {
        return NGX_IDEMPOTENCY_UNKNOWN;
    }

    return stored->state;
}


static uint32_t
ngx_idempotency_transition_seconds(time_t sec)
{
    if (sec < 0) {
        return 0;
    }

    return (uint32_t) ngx_min(sec, (time_t) NGX_MAX_UINT32_VALUE);
}
