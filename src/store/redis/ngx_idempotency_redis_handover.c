
/*
 * The store in Redis: how long an exiting worker stays for its outcomes in the
 * background, and how it leaves them to other workers.
 */


#include "ngx_idempotency_redis_background.h"


/*
 * Milliseconds that an exiting worker stays, unless worker_shutdown_timeout
 * says something else.
 */
#define NGX_IDEMPOTENCY_REDIS_HANDOVER_STAY   30000

/* milliseconds between two looks into the spool */
#define NGX_IDEMPOTENCY_REDIS_HANDOVER_TICK   500

/* outcomes that a worker takes at once, before other workers may */
#define NGX_IDEMPOTENCY_REDIS_HANDOVER_BATCH  256

/* milliseconds that an exiting worker waits for the mutex */
#define NGX_IDEMPOTENCY_REDIS_HANDOVER_LOCK   500


static void ngx_idempotency_redis_handover_timer(ngx_event_t *ev);
static void ngx_idempotency_redis_handover_exiting(
    ngx_idempotency_redis_ctx_t *ctx);
static ngx_uint_t ngx_idempotency_redis_handover_number(
    ngx_idempotency_store_t *store);


/* for a store of the same name and servers, see the zone of amnesia */

ngx_int_t
ngx_idempotency_redis_handover_zone(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_str_t  *amnesia, name;

    amnesia = &ctx->redis.zone->shm.name;

    name.len = amnesia->len + sizeof(":background") - 1;
    name.data = ngx_pnalloc(cf->pool, name.len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_sprintf(name.data, "%V:background", amnesia);

    ctx->handover.zone = ngx_idempotency_redis_spool_zone(cf, &name);
    if (ctx->handover.zone == NULL) {
        return NGX_ERROR;
    }

    ctx->store->left = ngx_idempotency_redis_handover_number;

    return NGX_OK;
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

    ngx_idempotency_redis_spool_join(handover->zone);
}


static void
ngx_idempotency_redis_handover_timer(ngx_event_t *ev)
{
    ngx_connection_t             *dummy;
    ngx_idempotency_redis_ctx_t  *ctx;

    dummy = ev->data;
    ctx = dummy->data;

    if (ngx_exiting) {
        ngx_idempotency_redis_handover_exiting(ctx);

    } else {
        ngx_idempotency_redis_handover_take(ctx);
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_HANDOVER_TICK);
}


/* nginx has no callback for a worker that begins to exit, only for its end */

static void
ngx_idempotency_redis_handover_exiting(ngx_idempotency_redis_ctx_t *ctx)
{
    if (ctx->handover.exiting) {
        return;
    }

    ctx->handover.exiting = 1;
    ctx->handover.exiting_since = ngx_current_msec;

    ngx_idempotency_redis_spool_leave(ctx->handover.zone);
}


ngx_uint_t
ngx_idempotency_redis_handover_is_due(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_msec_t        stay;
    ngx_core_conf_t  *ccf;

    if (!ngx_exiting) {
        return 0;
    }

    ngx_idempotency_redis_handover_exiting(ctx);

    ccf = (ngx_core_conf_t *) ngx_get_conf(ngx_cycle->conf_ctx,
                                           ngx_core_module);

    stay = ccf->shutdown_timeout ? ccf->shutdown_timeout
                                 : NGX_IDEMPOTENCY_REDIS_HANDOVER_STAY;

    return ngx_current_msec - ctx->handover.exiting_since >= stay;
}


void
ngx_idempotency_redis_handover_leave(ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type)
{
    ngx_int_t                          rc;
    ngx_idempotency_redis_ctx_t       *ctx;
    ngx_idempotency_redis_outcome_t    outcome;
    ngx_idempotency_redis_handover_t  *handover;

    ctx = op->store->data;
    handover = &ctx->handover;

    ngx_idempotency_redis_outcome_save(&outcome, op, type);

    rc = ngx_idempotency_redis_spool_add(handover->zone, &outcome,
                                     ngx_idempotency_redis_op_answer(op),
                                     handover->stuck
                                     ? 0
                                     : NGX_IDEMPOTENCY_REDIS_HANDOVER_LOCK);

    if (rc == NGX_OK) {
        handover->left++;
        return;
    }

    /* rc == NGX_DECLINED || rc == NGX_BUSY */

    handover->stuck |= (rc == NGX_BUSY);
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

    ngx_idempotency_redis_spool_leave(handover->zone);

    if (handover->lost) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\": this worker exits and has no "
                      "room to leave %ui outcomes to other workers, they "
                      "become unknown",
                      &ctx->store->name, handover->lost);
    }

    if (ngx_idempotency_redis_spool_has_workers(handover->zone)) {

        if (handover->left) {
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "idempotency store \"%V\": this worker exits, %ui "
                          "outcomes are left to other workers",
                          &ctx->store->name, handover->left);
        }

        return;
    }

    n = ngx_idempotency_redis_spool_report(handover->zone);

    if (n) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\": the last worker exits, %ui "
                      "outcomes are not stored, they become unknown unless "
                      "this nginx starts a worker again",
                      &ctx->store->name, n);
    }
}


static ngx_uint_t
ngx_idempotency_redis_handover_number(ngx_idempotency_store_t *store)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = store->data;

    return ngx_idempotency_redis_spool_number(ctx->handover.zone);
}


/*
 * While Redis is away outcomes stay in the spool, where they survive a worker
 * that is killed.
 */

void
ngx_idempotency_redis_handover_take(ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_uint_t                         n;
    ngx_idempotency_redis_handover_t  *handover;

    handover = &ctx->handover;

    if (ngx_exiting
        || ngx_idempotency_redis_spool_number(handover->zone) == 0
        || !ngx_idempotency_redis_is_up(&ctx->redis))
    {
        return;
    }

    n = ngx_idempotency_redis_spool_take(handover->zone,
                                      NGX_IDEMPOTENCY_REDIS_HANDOVER_BATCH,
                                      ngx_idempotency_redis_background_adopt,
                                      ctx);
    if (n == 0) {
        return;
    }

    if (!handover->more) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\": takes over outcomes of "
                      "workers that have exited", &ctx->store->name);
    }

    handover->more = (n == NGX_IDEMPOTENCY_REDIS_HANDOVER_BATCH);

    ngx_idempotency_redis_background_send(ctx);
}
