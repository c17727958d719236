
/*
 * The store interface: the life of an operation.
 */


#include "ngx_idempotency_store.h"
#include "ngx_idempotency_wait.h"


/*
 * Fits an operation and the answer of a small record, and is what malloc()
 * of glibc gives from a cache of its own.
 */
#define NGX_IDEMPOTENCY_OP_POOL_SIZE  1024

/* unknowns that are looked at again at a time */
#define NGX_IDEMPOTENCY_STORE_CHECK   8


static void ngx_idempotency_op_free_pool(ngx_pool_t *pool);
static void ngx_idempotency_op_begins(ngx_idempotency_op_t *op);
static uint64_t ngx_idempotency_op_now(void);
static void ngx_idempotency_op_count(ngx_idempotency_op_t *op);
static void ngx_idempotency_op_health(ngx_idempotency_op_t *op);
static ngx_idempotency_refusal_e ngx_idempotency_op_refusal(
    ngx_idempotency_op_t *op);
static ngx_uint_t ngx_idempotency_op_took(ngx_idempotency_op_t *op);
static void ngx_idempotency_op_note(ngx_idempotency_op_t *op);
static void ngx_idempotency_op_settled(ngx_idempotency_op_t *op);
static void ngx_idempotency_store_ask(ngx_idempotency_store_t *store,
    ngx_idempotency_unknown_t *unknown);
static void ngx_idempotency_store_checked(ngx_idempotency_op_t *op);


static ngx_pool_t  *ngx_idempotency_op_spare;


/* in the order of ngx_idempotency_op_e */

const char  *ngx_idempotency_ops[] = {
    "claim", "complete", "release", "mark_unknown", "probe", "renew", "issue",
    "fetch", "resolve", "purge", "cancel", "list", "suspect", "suspect_keep"
};


/* in the order of ngx_idempotency_result_e */

const char  *ngx_idempotency_results[] = {
    "ok", "granted", "exists", "not_issued", "refused", "out_of_order"
};


/* in the order of ngx_idempotency_refusal_e */

ngx_str_t  ngx_idempotency_refusals[] = {
    ngx_string("none"),
    ngx_string("unreachable"),
    ngx_string("timeout"),
    ngx_string("protocol"),
    ngx_string("readonly"),
    ngx_string("out_of_memory"),
    ngx_string("no_replicas"),
    ngx_string("not_permitted"),
    ngx_string("misconfigured"),
    ngx_string("loading"),
    ngx_string("moving"),
    ngx_string("forgotten"),
    ngx_string("evicts"),
    ngx_string("no_fsync"),
    ngx_string("full"),
    ngx_string("damaged"),
    ngx_string("disk"),
    ngx_string("other"),
    ngx_string("old_store")
};


ngx_idempotency_op_t *
ngx_idempotency_op_create(ngx_idempotency_store_t *store,
    ngx_idempotency_op_e type)
{
    ngx_pool_t            *pool;
    ngx_idempotency_op_t  *op;

    pool = ngx_idempotency_op_spare;

    if (pool) {
        ngx_idempotency_op_spare = NULL;

    } else {
        pool = ngx_create_pool(NGX_IDEMPOTENCY_OP_POOL_SIZE, ngx_cycle->log);
        if (pool == NULL) {
            return NULL;
        }
    }

    /* the operation may outlive its request and that request's log */

    pool->log = ngx_cycle->log;

    op = ngx_pcalloc(pool, sizeof(ngx_idempotency_op_t));
    if (op == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    op->pool = pool;
    op->store = store;
    op->type = type;

    return op;
}


ngx_int_t
ngx_idempotency_op_list(ngx_idempotency_op_t *op,
    ngx_idempotency_state_e state, ngx_str_t *cursor)
{
    ngx_idempotency_list_t  *list;

    if (cursor->len > NGX_IDEMPOTENCY_LIST_CURSOR) {
        return NGX_DECLINED;
    }

    list = ngx_pcalloc(op->pool, sizeof(ngx_idempotency_list_t));

    if (list == NULL
        || ngx_array_init(&list->entries, op->pool, 16,
                          sizeof(ngx_idempotency_entry_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    list->state = state;
    list->cursor.data = list->text;
    list->cursor.len = cursor->len;

    ngx_memcpy(list->text, cursor->data, cursor->len);

    op->list = list;

    return NGX_OK;
}


ngx_uint_t
ngx_idempotency_list_wants(ngx_idempotency_list_t *list,
    ngx_idempotency_state_e state, const u_char *digest)
{
    u_char  hex[2 * NGX_IDEMPOTENCY_DIGEST_LEN];

    if (state == NGX_IDEMPOTENCY_NONE
        || (state != list->state && list->state != NGX_IDEMPOTENCY_NONE))
    {
        return 0;
    }

    if (list->digits.len == 0) {
        return 1;
    }

    (void) ngx_hex_dump(hex, (u_char *) digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    return list->digits.len <= sizeof(hex)
           && ngx_memcmp(hex, list->digits.data, list->digits.len) == 0;
}


ngx_int_t
ngx_idempotency_op_submit(ngx_idempotency_op_t *op)
{
    ngx_int_t  rc;

    op->submitted = ngx_current_msec;
    op->refusal = NGX_IDEMPOTENCY_REFUSAL_NONE;

    if (op->store->unknowns && !op->part) {
        ngx_idempotency_op_begins(op);
    }

    rc = op->store->submit(op);

    op->pending = (rc == NGX_AGAIN);

    ngx_idempotency_op_debug(op, rc == NGX_AGAIN ? "is asked" : "at once");

    if (rc == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    ngx_idempotency_op_count(op);

    if (rc == NGX_OK) {
        ngx_idempotency_op_settled(op);
    }

    return rc;
}


void
ngx_idempotency_op_debug(ngx_idempotency_op_t *op, const char *what)
{
    if (op->pending) {
        ngx_log_debug5(NGX_LOG_DEBUG_CORE, ngx_cycle->log, 0,
                       "idempotency *%uA record \"%*xs\" %s: %s",
                       op->connection, (size_t) 8, op->id.digest,
                       ngx_idempotency_ops[op->type], what);
        return;
    }

    ngx_log_debug7(NGX_LOG_DEBUG_CORE, ngx_cycle->log, 0,
                   "idempotency *%uA record \"%*xs\" %s: %s, %s, error %d",
                   op->connection, (size_t) 8, op->id.digest,
                   ngx_idempotency_ops[op->type], what,
                   ngx_idempotency_results[op->result], op->error);
}


/* called only if statistics are configured */

static void
ngx_idempotency_op_begins(ngx_idempotency_op_t *op)
{
    switch (op->type) {

    case NGX_IDEMPOTENCY_CLAIM:
    case NGX_IDEMPOTENCY_COMPLETE:
        op->started = ngx_idempotency_op_now();
        break;

    case NGX_IDEMPOTENCY_MARK_UNKNOWN:
        if (!ngx_idempotency_record_is_dry(op->id.digest)) {
            ngx_idempotency_count(op->store->counts->unknown);
        }

        break;

    default:
        break;
    }
}


static uint64_t
ngx_idempotency_op_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}


static void
ngx_idempotency_op_count(ngx_idempotency_op_t *op)
{
    ngx_idempotency_store_counts_t  *counts;

    if (op->part) {
        return;
    }

    counts = op->store->counts;

    if (op->store->unknowns) {
        ngx_idempotency_op_health(op);
        ngx_idempotency_op_note(op);
    }

    if (op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        ngx_idempotency_count(counts->errors[op->error]);
        return;
    }

    if (op->started) {
        ngx_idempotency_counts_latency(op->type == NGX_IDEMPOTENCY_CLAIM
                                       ? &counts->claim : &counts->complete,
                                       ngx_idempotency_op_now()
                                       - op->started);
    }
}


/* notes whether the store takes new keys */

static void
ngx_idempotency_op_health(ngx_idempotency_op_t *op)
{
    ngx_idempotency_health_t   *health;
    ngx_idempotency_refusal_e   why;

    if (op->type != NGX_IDEMPOTENCY_CLAIM && op->type != NGX_IDEMPOTENCY_ISSUE)
    {
        return;
    }

    health = op->store->health;

    if (op->error == NGX_IDEMPOTENCY_ERROR_NONE) {

        /* as a rule it is only read: all workers share this cache line */

        if (ngx_idempotency_op_took(op)
            && health->refusing != NGX_IDEMPOTENCY_REFUSAL_NONE)
        {
            health->refusing = NGX_IDEMPOTENCY_REFUSAL_NONE;
        }

        return;
    }

    why = op->refusal ? op->refusal : ngx_idempotency_op_refusal(op);

    if (why == NGX_IDEMPOTENCY_REFUSAL_NONE) {
        return;
    }

    ngx_idempotency_count(op->store->counts->refused[why]);

    if (health->refusing == NGX_IDEMPOTENCY_REFUSAL_NONE) {
        health->since = ngx_time();
    }

    if (health->refusing != why) {
        health->refusing = why;
    }
}


/* where the store has set no reason, what the error says */

static ngx_idempotency_refusal_e
ngx_idempotency_op_refusal(ngx_idempotency_op_t *op)
{
    switch (op->error) {

    case NGX_IDEMPOTENCY_ERROR_FULL:
        return NGX_IDEMPOTENCY_REFUSAL_FULL;

    case NGX_IDEMPOTENCY_ERROR_DAMAGED:

        /* a zone refuses all keys; in Redis it is one record, not a new key */

        return op->store->usage ? NGX_IDEMPOTENCY_REFUSAL_DAMAGED
                                : NGX_IDEMPOTENCY_REFUSAL_NONE;

    case NGX_IDEMPOTENCY_ERROR_CONNECT:
        return NGX_IDEMPOTENCY_REFUSAL_UNREACHABLE;

    case NGX_IDEMPOTENCY_ERROR_TIMEOUT:
        return NGX_IDEMPOTENCY_REFUSAL_TIMEOUT;

    case NGX_IDEMPOTENCY_ERROR_PROTOCOL:
        return NGX_IDEMPOTENCY_REFUSAL_PROTOCOL;

    case NGX_IDEMPOTENCY_ERROR_REFUSED:
        return NGX_IDEMPOTENCY_REFUSAL_OTHER;

    case NGX_IDEMPOTENCY_ERROR_UNSAFE:
        return NGX_IDEMPOTENCY_REFUSAL_FORGOTTEN;

    default: /* NONE, MEMORY: a lack of this process, not of the store */
        return NGX_IDEMPOTENCY_REFUSAL_NONE;
    }
}


/*
 * A full store still grants claims of keys that have a record: only a new
 * record proves that it has room again.
 */

static ngx_uint_t
ngx_idempotency_op_took(ngx_idempotency_op_t *op)
{
    if (op->type == NGX_IDEMPOTENCY_ISSUE) {
        return op->result == NGX_IDEMPOTENCY_OK;
    }

    if (op->result != NGX_IDEMPOTENCY_GRANTED) {
        return 0;
    }

    return op->store->health->refusing != NGX_IDEMPOTENCY_REFUSAL_FULL
           || (op->record.attempts == 1
               && !(op->flags & NGX_IDEMPOTENCY_CLAIM_ISSUED));
}


/* notes whether the record of the operation is unknown */

static void
ngx_idempotency_op_note(ngx_idempotency_op_t *op)
{
    time_t  since;

    if (ngx_idempotency_record_is_dry(op->id.digest)) {
        return;
    }

    switch (op->type) {

    case NGX_IDEMPOTENCY_MARK_UNKNOWN:

        /* it is unknown, even if the store could not be reached */

        if (op->error == NGX_IDEMPOTENCY_ERROR_NONE
            && op->result != NGX_IDEMPOTENCY_OK)
        {
            return;
        }

        since = ngx_time();
        break;

    case NGX_IDEMPOTENCY_RENEW:
    case NGX_IDEMPOTENCY_ISSUE:
    case NGX_IDEMPOTENCY_PROBE:
    case NGX_IDEMPOTENCY_LIST:
    case NGX_IDEMPOTENCY_SUSPECT:
    case NGX_IDEMPOTENCY_SUSPECT_KEEP:
        return;

    default:

        if (op->error != NGX_IDEMPOTENCY_ERROR_NONE
            || op->result == NGX_IDEMPOTENCY_REFUSED)
        {
            return;
        }

        if (op->record.state != NGX_IDEMPOTENCY_UNKNOWN) {

            if (op->store->unknowns->number) {
                ngx_idempotency_unknowns_forget(op->store->unknowns,
                                                op->id.digest);
            }

            return;
        }

        since = op->record.created;
    }

    ngx_idempotency_unknowns_note(op->store->unknowns, op->id.digest, op->flags,
                                  since);
}


/* wakes those that wait for the record */

static void
ngx_idempotency_op_settled(ngx_idempotency_op_t *op)
{
    if (op->result != NGX_IDEMPOTENCY_OK || op->part) {
        return;
    }

    switch (op->type) {

    case NGX_IDEMPOTENCY_COMPLETE:
    case NGX_IDEMPOTENCY_RELEASE:
    case NGX_IDEMPOTENCY_MARK_UNKNOWN:
    case NGX_IDEMPOTENCY_RESOLVE:
    case NGX_IDEMPOTENCY_PURGE:
        ngx_idempotency_notice_post(op->id.digest);
        break;

    default:
        break;
    }
}


void
ngx_idempotency_op_drop(ngx_idempotency_op_t *op)
{
    if (op->pending) {
        op->detached = 1;
        op->handler = NULL;
        op->data = NULL;
        return;
    }

    if (op->shared) {
        op->shared--;
        return;
    }

    ngx_idempotency_op_free_pool(op->pool);
}


/*
 * The next operation begins in the pool of the last one.  A pool with more
 * than two blocks, or with something to clean up, is not kept.
 */

static void
ngx_idempotency_op_free_pool(ngx_pool_t *pool)
{
    if (ngx_idempotency_op_spare
        || (pool->d.next && pool->d.next->d.next)
        || pool->cleanup)
    {
        ngx_destroy_pool(pool);
        return;
    }

    ngx_reset_pool(pool);

    ngx_idempotency_op_spare = pool;
}


ngx_idempotency_op_t *
ngx_idempotency_op_share(ngx_idempotency_op_t *op)
{
    op->shared++;

    return op;
}


void
ngx_idempotency_op_done(ngx_idempotency_op_t *op)
{
    ngx_uint_t  detached;

    op->pending = 0;

    ngx_idempotency_op_debug(op, op->detached ? "behind its request"
                                              : "answers");

    ngx_idempotency_op_count(op);

    if (op->error == NGX_IDEMPOTENCY_ERROR_NONE) {
        ngx_idempotency_op_settled(op);
    }

    /* the handler of an operation that is not detached may free it */

    detached = op->detached;

    if (op->handler) {
        op->handler(op);
    }

    if (detached) {
        ngx_idempotency_op_free_pool(op->pool);
    }
}


void
ngx_idempotency_store_check(ngx_idempotency_store_t *store)
{
    ngx_uint_t                  i, n;
    ngx_idempotency_unknown_t   unknown;

    if (store->unknowns->number == 0) {
        return;
    }

    i = store->unknowns->checked;

    for (n = 0; n < NGX_IDEMPOTENCY_STORE_CHECK; n++) {

        if (ngx_idempotency_unknowns_next(store->unknowns, &i, &unknown)
            != NGX_OK)
        {
            i = 0;
            break;
        }

        ngx_idempotency_store_ask(store, &unknown);
    }

    store->unknowns->checked = i;
}


static void
ngx_idempotency_store_ask(ngx_idempotency_store_t *store,
    ngx_idempotency_unknown_t *unknown)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    op = ngx_idempotency_op_create(store, NGX_IDEMPOTENCY_FETCH);
    if (op == NULL) {
        return;
    }

    ngx_memcpy(op->id.digest, unknown->digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    op->flags = unknown->flags;
    op->handler = ngx_idempotency_store_checked;

    rc = ngx_idempotency_op_submit(op);

    if (rc != NGX_AGAIN) {
        ngx_idempotency_op_drop(op);
    }
}


/* ngx_idempotency_op_done() has noted what it is */

static void
ngx_idempotency_store_checked(ngx_idempotency_op_t *op)
{
    ngx_idempotency_op_drop(op);
}
