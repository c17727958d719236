
/*
 * The store in Redis: how long an exiting worker stays for what it has in the
 * background, and what other workers take over from it.
 */


#include "ngx_idempotency_redis_op.h"


/*
 * Milliseconds that an exiting worker stays, unless worker_shutdown_timeout
 * says something else.
 */
#define NGX_IDEMPOTENCY_REDIS_HANDOVER_STAY   30000

/* milliseconds: how often a worker looks whether something was left */
#define NGX_IDEMPOTENCY_REDIS_HANDOVER_TICK   500

/* entries that a worker takes at once, before others have their turn */
#define NGX_IDEMPOTENCY_REDIS_HANDOVER_BATCH  256

/* milliseconds that an exiting worker waits for the mutex */
#define NGX_IDEMPOTENCY_REDIS_HANDOVER_LOCK   500


static void ngx_idempotency_redis_handover_timer(ngx_event_t *ev);
static void ngx_idempotency_redis_handover_leave(
    ngx_idempotency_redis_ctx_t *ctx);
static ngx_int_t ngx_idempotency_redis_handover_next(
    ngx_idempotency_redis_ctx_t *ctx);
static ngx_idempotency_redis_op_t *ngx_idempotency_redis_handover_read(
    ngx_idempotency_redis_ctx_t *ctx, ngx_idempotency_redis_entry_t *entry);


/* for a store of this name that talks to the same servers: see safe */

ngx_int_t
ngx_idempotency_redis_handover_zone(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_str_t  *safe, name;

    safe = &ctx->redis.zone->shm.name;

    name.len = safe->len + sizeof(":background") - 1;
    name.data = ngx_pnalloc(cf->pool, name.len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_sprintf(name.data, "%V:background", safe);

    ctx->handover.zone = ngx_idempotency_redis_left_zone(cf, &name);

    return ctx->handover.zone ? NGX_OK : NGX_ERROR;
}


void
ngx_idempotency_redis_handover_start(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_event_t                       *ev;
    ngx_idempotency_redis_handover_t  *handover;

    handover = &ctx->handover;

    handover->dummy.fd = (ngx_socket_t) -1;
    handover->dummy.data = ctx;

    ev = &handover->timer;

    ngx_memzero(ev, sizeof(ngx_event_t));

    ev->handler = ngx_idempotency_redis_handover_timer;
    ev->data = &handover->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_HANDOVER_TICK);

    ngx_idempotency_redis_left_join(handover->zone);
}


static void
ngx_idempotency_redis_handover_timer(ngx_event_t *ev)
{
    ngx_connection_t             *dummy;
    ngx_idempotency_redis_ctx_t  *ctx;

    dummy = ev->data;
    ctx = dummy->data;

    if (ngx_exiting) {
        ngx_idempotency_redis_handover_leave(ctx);

    } else {
        ngx_idempotency_redis_handover_take(ctx);
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_HANDOVER_TICK);
}


/* nginx calls nobody when a worker begins to exit: a timer notices it */

static void
ngx_idempotency_redis_handover_leave(ngx_idempotency_redis_ctx_t *ctx)
{
    if (ctx->handover.leaving) {
        return;
    }

    ctx->handover.leaving = 1;
    ctx->handover.since = ngx_current_msec;

    ngx_idempotency_redis_left_part(ctx->handover.zone);
}


ngx_uint_t
ngx_idempotency_redis_handover_is_due(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_msec_t        stay;
    ngx_core_conf_t  *ccf;

    if (!ngx_exiting) {
        return 0;
    }

    ngx_idempotency_redis_handover_leave(ctx);

    ccf = (ngx_core_conf_t *) ngx_get_conf(ngx_cycle->conf_ctx,
                                           ngx_core_module);

    stay = ccf->shutdown_timeout ? ccf->shutdown_timeout
                                 : NGX_IDEMPOTENCY_REDIS_HANDOVER_STAY;

    return ngx_current_msec - ctx->handover.since >= stay;
}


void
ngx_idempotency_redis_handover_give(ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type)
{
    ngx_str_t                          answer;
    ngx_int_t                          rc;
    ngx_uint_t                         wait;
    ngx_idempotency_redis_op_t        *rop;
    ngx_idempotency_redis_ctx_t       *ctx;
    ngx_idempotency_redis_handover_t  *handover;

    ctx = op->store->data;
    handover = &ctx->handover;

    ngx_str_null(&answer);

    if (type == NGX_IDEMPOTENCY_COMPLETE && op->keep) {

        /* what op points to may be gone, its arguments are not */

        rop = op->own;
        answer = rop->args[NGX_IDEMPOTENCY_REDIS_ARGS - 1];
    }

    /* a process that had the mutex for so long does not let go any more */

    wait = handover->locked ? 0 : NGX_IDEMPOTENCY_REDIS_HANDOVER_LOCK;
    rc = NGX_DECLINED;

    if (ngx_idempotency_redis_left_lock(handover->zone, wait)) {
        rc = ngx_idempotency_redis_left_add(handover->zone, op, type,
                                            &answer);
        ngx_idempotency_redis_left_unlock(handover->zone);

    } else {
        handover->locked = 1;
    }

    if (rc == NGX_OK) {
        handover->given++;
        return;
    }

    /* rc == NGX_DECLINED */

    handover->lost++;
    ngx_idempotency_count(ctx->store->counts->dropped);
}


void
ngx_idempotency_redis_handover_stop(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_uint_t                         n;
    ngx_idempotency_redis_handover_t  *handover;

    handover = &ctx->handover;

    if (handover->timer.timer_set) {
        ngx_del_timer(&handover->timer);
    }

    ngx_idempotency_redis_left_part(handover->zone);

    if (handover->lost) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\": this worker exits and has no "
                      "room to leave %ui outcomes to other workers, they "
                      "become unknown",
                      &ctx->store->name, handover->lost);
    }

    if (ngx_idempotency_redis_left_has_takers(handover->zone)) {

        if (handover->given) {
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "idempotency store \"%V\": this worker exits, %ui "
                          "outcomes are left to other workers",
                          &ctx->store->name, handover->given);
        }

        return;
    }

    n = ngx_idempotency_redis_left_report(handover->zone);

    if (n) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\": the last worker exits, %ui "
                      "outcomes are not stored, they become unknown unless "
                      "this nginx starts a worker again",
                      &ctx->store->name, n);
    }
}


ngx_uint_t
ngx_idempotency_redis_handover_number(ngx_idempotency_store_t *store)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = store->data;

    return ngx_idempotency_redis_left_number(ctx->handover.zone);
}


/*
 * While Redis is away entries stay where they are: a worker that is killed
 * loses nothing of them.
 */

void
ngx_idempotency_redis_handover_take(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_uint_t                         n;
    ngx_idempotency_redis_handover_t  *handover;

    handover = &ctx->handover;

    if (ngx_exiting
        || ngx_idempotency_redis_left_number(handover->zone) == 0
        || !ngx_idempotency_redis_is_up(&ctx->redis)
        || !ngx_idempotency_redis_left_lock(handover->zone, 0))
    {
        return;
    }

    for (n = 0; n < NGX_IDEMPOTENCY_REDIS_HANDOVER_BATCH; n++) {
        if (ngx_idempotency_redis_handover_next(ctx) != NGX_OK) {
            break;
        }
    }

    ngx_idempotency_redis_left_unlock(handover->zone);

    if (n == 0) {
        return;
    }

    if (handover->took == 0) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\": takes over outcomes of "
                      "workers that have exited", &ctx->store->name);
    }

    handover->took = (n == NGX_IDEMPOTENCY_REDIS_HANDOVER_BATCH);

    ngx_idempotency_redis_later_ready(ctx);
}


/* NGX_DECLINED: there is none, or this worker cannot take any more now */

static ngx_int_t
ngx_idempotency_redis_handover_next(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_idempotency_redis_op_t     *rop;
    ngx_idempotency_redis_entry_t  *entry;

    entry = ngx_idempotency_redis_left_first(ctx->handover.zone);

    if (entry == NULL
        || !ngx_idempotency_redis_later_has_room(ctx, entry->answer))
    {
        return NGX_DECLINED;
    }

    rop = ngx_idempotency_redis_handover_read(ctx, entry);
    if (rop == NULL) {
        return NGX_DECLINED;
    }

    ngx_idempotency_redis_later_adopt(rop);
    ngx_idempotency_redis_left_took(ctx->handover.zone);

    return NGX_OK;
}


static ngx_idempotency_redis_op_t *
ngx_idempotency_redis_handover_read(ngx_idempotency_redis_ctx_t *ctx,
    ngx_idempotency_redis_entry_t *entry)
{
    ngx_str_t              answer;
    ngx_idempotency_op_t  *op;

    op = ngx_idempotency_op_create(ctx->store, entry->type);
    if (op == NULL) {
        return NULL;
    }

    op->status = entry->status;
    op->flags = entry->flags & NGX_IDEMPOTENCY_REDIS_LATER_FLAGS;
    op->fence = entry->fence;
    op->number = entry->number;
    op->epoch = entry->epoch;
    op->lease = entry->lease;
    op->ttl = entry->ttl;
    op->tombstone = entry->tombstone;
    op->connection = entry->connection;

    ngx_memcpy(op->digest, entry->digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(op->owner, entry->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(op->fingerprint, entry->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    answer.data = (u_char *) (entry + 1);
    answer.len = entry->answer;

    return ngx_idempotency_redis_later_make(op, answer.len ? &answer : NULL,
                                            entry->head);
}
