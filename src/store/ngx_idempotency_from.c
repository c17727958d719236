
/*
 * A store that takes over from an older one, "from=STORE".
 *
 * Three kinds of gateways and workers may be at work at the same time: those
 * that know the old store only, since they were not reloaded yet; those that
 * have "from=" and know both; and later those that know the new store only.
 * Reading the old store is therefore not enough: the old gateways would claim
 * a key there after it was read.  The rule is:
 *
 *     A request is executed only while its owner holds the key in both
 *     stores, and its outcome is written to both.
 *
 * An execution by a gateway that knows one store excludes all others through
 * that store, so at most one is under way, whichever gateways take part.  The
 * operations of a request are those of any store, with the same owner in both;
 * no rule about records is written here.
 *
 * claim      1. The new store is read.  A record that is done, or its
 *               tombstone, is the answer: the old store is not asked.
 *            2. The key is claimed in the old store.  If it is not granted,
 *               the old store has the answer; nothing was written.
 *            3. The key is claimed in the new store.  If it is not granted,
 *               the claim in the old one is taken back.
 *            The old store comes first since it has the records and the marks
 *            of sequences: a claim in the new store that was refused by the
 *            old one would have moved a mark that the new store does not know
 *            yet.  Step 3 gets the fence of step 2, so that both records have
 *            the same one, and it grows across both stores.
 * complete   In the old store, then in the new one, which is left alone if the
 *            old one refuses: another gateway has settled the record there,
 *            and every client must get that answer.  If the old store cannot
 *            be reached it gets the outcome in the background, as any store.
 * release, mark_unknown, renew, issue
 *            In both, old store first.  A lease is renewed if both say so.
 * probe      The right to probe is taken in both, under the same fence.
 * resolve, purge
 *            In both, by the fence that was seen; one of them must agree.
 * cancel     The new store is read, and what it knows is the answer.  Then in
 *            the old store, and if that agrees in the new one.
 * fetch      As a claim would see it: the new store's record if it is done,
 *            else that of the old store if there is one.
 * list, suspect
 *            The new store only.
 *
 * Records are not copied.  An old one is served by the old store until it
 * expires there: its ttl, its tombstone and its answer remain what they are.
 *
 * A process that dies between two steps leaves a key that is claimed in the
 * old store, or in both, and that becomes unknown there when the lease ends;
 * or an outcome that only the old store has, where a claim finds it.  It never
 * leaves a key claimed or done in the new store only.
 *
 * An old store that does not answer, or has no room, fails the claim: new keys
 * are refused, keys that are done in the new store are replayed.  A record
 * that the new store has and that is not done is then shown as it is, since
 * a request that has seen a record must not pass unprotected.
 */


#include "ngx_idempotency_from.h"
#include "ngx_idempotency_from_part.h"


static ngx_int_t ngx_idempotency_from_submit(ngx_idempotency_op_t *op);

static ngx_int_t ngx_idempotency_from_looked(ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_claimed_old(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_claimed_new(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_claimed_both(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_claim_failed(
    ngx_idempotency_from_t *from, ngx_idempotency_op_t *part);

static ngx_int_t ngx_idempotency_from_settled_old(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_settled_new(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_probed_old(ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_probed_new(ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_changed_old(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_changed_new(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_cancel_looked(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_cancelled_old(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_cancelled_new(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_fetched_new(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_fetched_old(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_renewed_old(
    ngx_idempotency_from_t *from);
static ngx_int_t ngx_idempotency_from_renewed_new(
    ngx_idempotency_from_t *from);


void
ngx_idempotency_from_init(ngx_idempotency_store_t *store)
{
    store->direct = store->submit;
    store->submit = ngx_idempotency_from_submit;

    /* the old store holds the leases of these locations, too */

    store->from->lease = ngx_max(store->from->lease, store->lease);
}


static ngx_int_t
ngx_idempotency_from_submit(ngx_idempotency_op_t *op)
{
    ngx_idempotency_from_t  *from;

    if (op->part || op->type >= NGX_IDEMPOTENCY_LIST) {
        return op->store->direct(op);
    }

    op->error = NGX_IDEMPOTENCY_ERROR_NONE;
    op->unsure = 0;

    from = ngx_idempotency_from_create(op);
    if (from == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        return NGX_ERROR;
    }

    switch (op->type) {

    case NGX_IDEMPOTENCY_CLAIM:
        return ngx_idempotency_from_ask_new(from, NGX_IDEMPOTENCY_FETCH, 0,
                                            ngx_idempotency_from_looked);

    case NGX_IDEMPOTENCY_COMPLETE:
    case NGX_IDEMPOTENCY_RELEASE:
    case NGX_IDEMPOTENCY_MARK_UNKNOWN:
    case NGX_IDEMPOTENCY_ISSUE:
        return ngx_idempotency_from_ask_old(from,
                                            ngx_idempotency_from_settled_old);

    case NGX_IDEMPOTENCY_PROBE:
        return ngx_idempotency_from_ask_old(from,
                                      op->fence
                                      ? ngx_idempotency_from_changed_old
                                      : ngx_idempotency_from_probed_old);

    case NGX_IDEMPOTENCY_RENEW:
        return ngx_idempotency_from_ask_old(from,
                                            ngx_idempotency_from_renewed_old);

    case NGX_IDEMPOTENCY_FETCH:
        return ngx_idempotency_from_ask_new(from, NGX_IDEMPOTENCY_FETCH, 0,
                                            ngx_idempotency_from_fetched_new);

    case NGX_IDEMPOTENCY_CANCEL:
        return ngx_idempotency_from_ask_new(from, NGX_IDEMPOTENCY_FETCH, 0,
                                          ngx_idempotency_from_cancel_looked);

    default: /* RESOLVE, PURGE */
        return ngx_idempotency_from_ask_old(from,
                                            ngx_idempotency_from_changed_old);
    }
}


/* claim, step 1: the new store was read */

static ngx_int_t
ngx_idempotency_from_looked(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *look;

    look = from->new;

    from->new = NULL;
    from->look = look;

    if (look->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        look->unsure = 0;
        return ngx_idempotency_from_result(from, look);
    }

    if (ngx_idempotency_from_is_done(look)) {
        (void) ngx_idempotency_from_result(from, look);
        from->op->result = NGX_IDEMPOTENCY_EXISTS;

        return NGX_OK;
    }

    if (from->op->detached) {
        return NGX_OK;
    }

    return ngx_idempotency_from_ask_old(from,
                                        ngx_idempotency_from_claimed_old);
}


static ngx_int_t
ngx_idempotency_from_claimed_old(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *op, *old;

    op = from->op;
    old = from->old;

    if (op->detached) {

        if (ngx_idempotency_from_granted(old) || old->unsure) {
            ngx_idempotency_from_behind(from, op->store->from,
                                        NGX_IDEMPOTENCY_RELEASE, 0);
        }

        return NGX_OK;
    }

    if (ngx_idempotency_from_granted(old)) {
        return ngx_idempotency_from_ask_new(from, NGX_IDEMPOTENCY_CLAIM,
                                            old->record.fence,
                                            ngx_idempotency_from_claimed_new);
    }

    if (old->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return ngx_idempotency_from_claim_failed(from, old);
    }

    if (ngx_idempotency_from_is_free(from->look)) {
        ngx_idempotency_count(op->store->counts->old_answers);
    }

    return ngx_idempotency_from_result(from, old);
}


static ngx_int_t
ngx_idempotency_from_claimed_new(ngx_idempotency_from_t *from)
{
    ngx_uint_t                granted;
    ngx_idempotency_op_t     *op, *old, *new;
    ngx_idempotency_store_t  *store;

    op = from->op;
    old = from->old;
    new = from->new;
    store = op->store;

    granted = ngx_idempotency_from_granted(new);

    if (op->detached) {
        ngx_idempotency_from_behind(from, store->from,
                                    NGX_IDEMPOTENCY_RELEASE, 0);

        if (granted || new->unsure) {
            ngx_idempotency_from_behind(from, store, NGX_IDEMPOTENCY_RELEASE,
                                        0);
        }

        return NGX_OK;
    }

    if (new->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return ngx_idempotency_from_claim_failed(from, new);
    }

    if (granted && new->record.fence != old->record.fence) {

        /* the new store has known the key under a higher fence */

        return ngx_idempotency_from_ask_old(from,
                                           ngx_idempotency_from_claimed_both);
    }

    if (granted) {
        return ngx_idempotency_from_claimed_both(from);
    }

    /*
     * The new store has a record that the old one does not know.  What was
     * unknown in the old one is so again.
     */

    ngx_idempotency_from_behind(from, store->from,
                                old->record.attempts > 1
                                && (op->flags & NGX_IDEMPOTENCY_CLAIM_UNKNOWN)
                                ? NGX_IDEMPOTENCY_MARK_UNKNOWN
                                : NGX_IDEMPOTENCY_RELEASE,
                                old->record.fence);

    return ngx_idempotency_from_result(from, new);
}


/* the new store has counted the attempts since the move only */

static ngx_int_t
ngx_idempotency_from_claimed_both(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *op, *old, *new;

    op = from->op;
    old = from->old;
    new = from->new;

    if (!ngx_idempotency_from_granted(old) || op->detached) {

        /* a claim that was granted before is lost: both are taken back */

        ngx_idempotency_from_behind(from, op->store->from,
                                    NGX_IDEMPOTENCY_RELEASE, 0);
        ngx_idempotency_from_behind(from, op->store, NGX_IDEMPOTENCY_RELEASE,
                                    0);

        return ngx_idempotency_from_result(from, old);
    }

    (void) ngx_idempotency_from_result(from, new);

    if (old->record.attempts > new->record.attempts) {
        op->record.attempts = old->record.attempts;
        op->record.created = old->record.created;
    }

    return NGX_OK;
}


/*
 * Without a record the caller decides: it takes the claim back in both stores,
 * or passes with it.
 */

static ngx_int_t
ngx_idempotency_from_claim_failed(ngx_idempotency_from_t *from,
    ngx_idempotency_op_t *part)
{
    ngx_uint_t             held;
    ngx_idempotency_op_t  *op, *look;

    op = from->op;
    look = from->look;
    held = (part == from->new || part->unsure);

    if (ngx_idempotency_from_is_free(look)) {
        (void) ngx_idempotency_from_result(from, part);
        op->unsure = held;

        return NGX_ERROR;
    }

    if (held) {
        ngx_idempotency_from_behind(from, op->store->from,
                                    NGX_IDEMPOTENCY_RELEASE, 0);
    }

    if (part == from->new && part->unsure) {
        ngx_idempotency_from_behind(from, op->store, NGX_IDEMPOTENCY_RELEASE,
                                    0);
    }

    (void) ngx_idempotency_from_result(from, look);

    op->result = NGX_IDEMPOTENCY_EXISTS;

    return NGX_OK;
}


/*
 * complete, release, mark_unknown, issue.  An outcome goes to the new store
 * even if the old one cannot be reached, a new token does not.
 */

static ngx_int_t
ngx_idempotency_from_settled_old(ngx_idempotency_from_t *from)
{
    uint64_t               granted;
    ngx_idempotency_op_t  *op, *old;

    op = from->op;
    old = from->old;
    granted = 0;

    if (op->type == NGX_IDEMPOTENCY_ISSUE) {
        granted = old->record.fence;

        if (old->error != NGX_IDEMPOTENCY_ERROR_NONE) {
            return ngx_idempotency_from_result(from, old);
        }
    }

    if ((op->type == NGX_IDEMPOTENCY_ISSUE
         || op->type == NGX_IDEMPOTENCY_COMPLETE)
        && old->error == NGX_IDEMPOTENCY_ERROR_NONE
        && old->result == NGX_IDEMPOTENCY_REFUSED)
    {
        return ngx_idempotency_from_result(from, old);
    }

    if (op->fence == 0) {

        /*
         * A request that has passed without a claim: its record, which both
         * stores write anew, has the same fence in both.
         */

        op->fence = old->record.fence;
    }

    return ngx_idempotency_from_ask_new(from, op->type, granted,
                                        ngx_idempotency_from_settled_new);
}


/* an answer that the new store has is stored, one that only it has, too */

static ngx_int_t
ngx_idempotency_from_settled_new(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *old, *new;

    old = from->old;
    new = from->new;

    if (from->op->type == NGX_IDEMPOTENCY_COMPLETE
        || new->error != NGX_IDEMPOTENCY_ERROR_NONE
        || (old->error == NGX_IDEMPOTENCY_ERROR_NONE
            && old->result == NGX_IDEMPOTENCY_OK))
    {
        return ngx_idempotency_from_result(from, new);
    }

    return ngx_idempotency_from_result(from, old);
}


static ngx_int_t
ngx_idempotency_from_probed_old(ngx_idempotency_from_t *from)
{
    uint64_t               granted;
    ngx_idempotency_op_t  *old;

    old = from->old;
    granted = 0;

    if (ngx_idempotency_from_granted(old)) {
        granted = old->record.fence;

    } else if (old->error != NGX_IDEMPOTENCY_ERROR_NONE
               || !ngx_idempotency_from_is_free(old))
    {
        return ngx_idempotency_from_result(from, old);
    }

    /* granted == 0: the old store does not know the key */

    return ngx_idempotency_from_ask_new(from, NGX_IDEMPOTENCY_PROBE, granted,
                                        ngx_idempotency_from_probed_new);
}


static ngx_int_t
ngx_idempotency_from_probed_new(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *old, *new;

    old = from->old;
    new = from->new;

    if (old->result != NGX_IDEMPOTENCY_GRANTED) {
        return ngx_idempotency_from_result(from, new);
    }

    if (new->error == NGX_IDEMPOTENCY_ERROR_NONE
        && (new->result == NGX_IDEMPOTENCY_GRANTED
            || ngx_idempotency_from_is_free(new)))
    {
        return ngx_idempotency_from_result(from, old);
    }

    ngx_idempotency_from_behind(from, from->op->store->from,
                                NGX_IDEMPOTENCY_PROBE, old->record.fence);

    return ngx_idempotency_from_result(from, new);
}


static ngx_int_t
ngx_idempotency_from_cancel_looked(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *look;

    look = from->new;

    from->new = NULL;
    from->look = look;

    if (look->error == NGX_IDEMPOTENCY_ERROR_NONE
        && ngx_idempotency_from_is_free(look))
    {
        return ngx_idempotency_from_ask_old(from,
                                          ngx_idempotency_from_cancelled_old);
    }

    if (ngx_idempotency_from_result(from, look) != NGX_OK) {
        return NGX_ERROR;
    }

    from->op->result = ngx_idempotency_record_is_cancelled(&look->record)
                       ? NGX_IDEMPOTENCY_OK : NGX_IDEMPOTENCY_REFUSED;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_from_cancelled_old(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *old;

    old = from->old;

    if (old->error != NGX_IDEMPOTENCY_ERROR_NONE
        || old->result != NGX_IDEMPOTENCY_OK)
    {
        return ngx_idempotency_from_result(from, old);
    }

    return ngx_idempotency_from_ask_new(from, NGX_IDEMPOTENCY_CANCEL,
                                        old->record.fence,
                                        ngx_idempotency_from_cancelled_new);
}


static ngx_int_t
ngx_idempotency_from_cancelled_new(ngx_idempotency_from_t *from)
{
    return ngx_idempotency_from_result(from, from->new);
}


/*
 * resolve, purge, and a right to probe that is given back.  After an error the
 * caller does not know what was changed, and may repeat it.
 */

static ngx_int_t
ngx_idempotency_from_changed_old(ngx_idempotency_from_t *from)
{
    if (from->old->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return ngx_idempotency_from_result(from, from->old);
    }

    return ngx_idempotency_from_ask_new(from, from->op->type, 0,
                                        ngx_idempotency_from_changed_new);
}


static ngx_int_t
ngx_idempotency_from_changed_new(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *old, *new;

    old = from->old;
    new = from->new;

    if (new->error != NGX_IDEMPOTENCY_ERROR_NONE
        || new->result == NGX_IDEMPOTENCY_OK
        || ngx_idempotency_from_is_done(new))
    {
        return ngx_idempotency_from_result(from, new);
    }

    if (old->result == NGX_IDEMPOTENCY_OK
        || !ngx_idempotency_from_is_free(old))
    {
        return ngx_idempotency_from_result(from, old);
    }

    return ngx_idempotency_from_result(from, new);
}


static ngx_int_t
ngx_idempotency_from_fetched_new(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *new;

    new = from->new;

    if (new->error != NGX_IDEMPOTENCY_ERROR_NONE
        || ngx_idempotency_from_is_done(new))
    {
        return ngx_idempotency_from_result(from, new);
    }

    return ngx_idempotency_from_ask_old(from,
                                        ngx_idempotency_from_fetched_old);
}


static ngx_int_t
ngx_idempotency_from_fetched_old(ngx_idempotency_from_t *from)
{
    ngx_idempotency_op_t  *old;

    old = from->old;

    if (old->error != NGX_IDEMPOTENCY_ERROR_NONE
        || old->record.state != NGX_IDEMPOTENCY_NONE)
    {
        return ngx_idempotency_from_result(from, old);
    }

    return ngx_idempotency_from_result(from, from->new);
}


/* both are renewed in any case: the other store may have lost its lease */

static ngx_int_t
ngx_idempotency_from_renewed_old(ngx_idempotency_from_t *from)
{
    return ngx_idempotency_from_ask_new(from, NGX_IDEMPOTENCY_RENEW, 0,
                                        ngx_idempotency_from_renewed_new);
}


static ngx_int_t
ngx_idempotency_from_renewed_new(ngx_idempotency_from_t *from)
{
    ngx_uint_t                i;
    ngx_idempotency_op_t     *op;
    ngx_idempotency_lease_t  *line, *old, *new;

    op = from->op;

    line = op->leases->elts;
    old = from->old->leases->elts;
    new = from->new->leases->elts;

    for (i = 0; i < op->leases->nelts; i++) {
        line[i].result = old[i].result == NGX_IDEMPOTENCY_OK ? new[i].result
                                                             : old[i].result;
    }

    return ngx_idempotency_from_result(from,
                             from->old->error != NGX_IDEMPOTENCY_ERROR_NONE
                             ? from->old : from->new);
}
