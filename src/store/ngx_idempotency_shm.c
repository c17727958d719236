
/*
 * The embedded store: its place in the configuration and its operations.
 *
 * An operation finds the record and decides; the change itself is a move.
 */


#include "ngx_idempotency_shm.h"
#include "ngx_idempotency_shm_list.h"
#include "ngx_idempotency_shm_mark.h"
#include "ngx_idempotency_shm_move.h"
#include "ngx_idempotency_shm_steps.h"


#define NGX_IDEMPOTENCY_SHM_MIN_PAGES  8

/* overdue records that each new key clears away */
#define NGX_IDEMPOTENCY_SHM_CLEAR      3

/* how often an operation is begun anew because its record was changed */
#define NGX_IDEMPOTENCY_SHM_TRIES      8


static ngx_int_t ngx_idempotency_shm_submit(ngx_idempotency_op_t *op);
static ngx_int_t ngx_idempotency_shm_run(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);
static ngx_int_t ngx_idempotency_shm_run_locked(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op, uint64_t now);
static void ngx_idempotency_shm_usage(ngx_idempotency_store_t *store,
    ngx_idempotency_usage_t *usage);
static void ngx_idempotency_shm_log_full(ngx_idempotency_shm_ctx_t *ctx);

static ngx_int_t ngx_idempotency_shm_claim(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);
static ngx_int_t ngx_idempotency_shm_claim_again(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now);
static ngx_uint_t ngx_idempotency_shm_may_take(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now);
static ngx_int_t ngx_idempotency_shm_release(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);
static ngx_int_t ngx_idempotency_shm_mark_unknown(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now);
static ngx_int_t ngx_idempotency_shm_probe(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);
static ngx_int_t ngx_idempotency_shm_issue(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);
static ngx_int_t ngx_idempotency_shm_resolve(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);
static ngx_int_t ngx_idempotency_shm_purge(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now);


char *
ngx_idempotency_shm_create(ngx_conf_t *cf, ngx_idempotency_store_t *store,
    ngx_str_t *args, ngx_uint_t n, void *tag)
{
    size_t                      size;
    ngx_str_t                   s;
    ngx_shm_zone_t             *shm_zone;
    ngx_idempotency_shm_ctx_t  *ctx;

    if (n > 1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store\" takes no parameter \"%V\" "
                           "with the target \"shm:SIZE\"", &args[1]);
        return NGX_CONF_ERROR;
    }

    s.data = args[0].data + 4;
    s.len = args[0].len - 4;

    size = ngx_parse_size(&s);

    if (size == (size_t) NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid size \"%V\" in \"idempotency_store\", "
                           "write it as in \"shm:10m\"", &s);
        return NGX_CONF_ERROR;
    }

    if (size < NGX_IDEMPOTENCY_SHM_MIN_PAGES * ngx_pagesize) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idempotency_store \"%V\": a zone of %uz bytes is "
                           "too small, it needs at least %uz",
                           &store->name, size,
                           NGX_IDEMPOTENCY_SHM_MIN_PAGES * ngx_pagesize);
        return NGX_CONF_ERROR;
    }

    if (ngx_idempotency_shm_check_old(cf, &store->name, size, tag)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ctx = ngx_pcalloc(cf->pool, sizeof(ngx_idempotency_shm_ctx_t));
    if (ctx == NULL) {
        return NGX_CONF_ERROR;
    }

    shm_zone = ngx_shared_memory_add(cf, &store->name, size, tag);
    if (shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (shm_zone->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idempotency_store \"%V\" is defined twice",
                           &store->name);
        return NGX_CONF_ERROR;
    }

    ctx->store = store;

    shm_zone->init = ngx_idempotency_shm_init_zone;
    shm_zone->data = ctx;

    store->submit = ngx_idempotency_shm_submit;
    store->usage = ngx_idempotency_shm_usage;
    store->data = ctx;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_idempotency_shm_submit(ngx_idempotency_op_t *op)
{
    uint64_t                    now;
    ngx_int_t                   rc;
    ngx_uint_t                  i;
    ngx_idempotency_shm_ctx_t  *ctx;

    ctx = op->store->data;
    now = ngx_current_msec;

    op->error = NGX_IDEMPOTENCY_ERROR_NONE;

    for (i = 0; i < NGX_IDEMPOTENCY_SHM_TRIES; i++) {

        ngx_memzero(&op->record, sizeof(ngx_idempotency_record_t));

        rc = ngx_idempotency_shm_run(ctx, op, now);

        if (rc == NGX_AGAIN) {
            rc = ngx_idempotency_shm_read_answer(ctx, op);
        }

        if (rc == NGX_DECLINED) {
            /* the record was changed between two steps */
            continue;
        }

        if (op->error == NGX_IDEMPOTENCY_ERROR_FULL) {
            ngx_idempotency_shm_log_full(ctx);
        }

        return rc;
    }

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "idempotency store \"%V\": a record was changed again and "
                  "again during one operation", &ctx->store->name);

    op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;

    return NGX_ERROR;
}


static ngx_int_t
ngx_idempotency_shm_run(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_int_t  rc;

    if (op->type == NGX_IDEMPOTENCY_RENEW) {
        return ngx_idempotency_shm_renew(ctx, op, now);
    }

    if (op->type == NGX_IDEMPOTENCY_LIST) {
        return ngx_idempotency_shm_list(ctx, op, now);
    }

    if (op->type == NGX_IDEMPOTENCY_COMPLETE
        || (op->type == NGX_IDEMPOTENCY_RESOLVE && op->executed))
    {
        return ngx_idempotency_shm_complete(ctx, op, now);
    }

    if (ngx_idempotency_shm_lock(ctx) != NGX_OK) {
        op->error = NGX_IDEMPOTENCY_ERROR_DAMAGED;
        return NGX_ERROR;
    }

    rc = ngx_idempotency_shm_run_locked(ctx, op, now);

    ngx_idempotency_shm_unlock(ctx);

    return rc;
}


static ngx_int_t
ngx_idempotency_shm_run_locked(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now)
{
    ngx_idempotency_shm_node_t  *node;

    if (op->type == NGX_IDEMPOTENCY_CLAIM
        || op->type == NGX_IDEMPOTENCY_ISSUE)
    {
        (void) ngx_idempotency_shm_expire(ctx, now,
                                          NGX_IDEMPOTENCY_SHM_CLEAR);
    }

    node = ngx_idempotency_shm_find(ctx, op->digest, now);

    switch (op->type) {

    case NGX_IDEMPOTENCY_CLAIM:
        if (op->flags & NGX_IDEMPOTENCY_SEQUENCE) {
            return ngx_idempotency_shm_mark_claim(ctx, op, node, now,
                                                  ngx_idempotency_shm_claim);
        }

        return ngx_idempotency_shm_claim(ctx, op, node, now);

    case NGX_IDEMPOTENCY_RELEASE:
        if (op->flags & NGX_IDEMPOTENCY_SEQUENCE) {
            return ngx_idempotency_shm_mark_release(ctx, op, node, now,
                                                ngx_idempotency_shm_release);
        }

        return ngx_idempotency_shm_release(ctx, op, node, now);

    case NGX_IDEMPOTENCY_MARK_UNKNOWN:
        return ngx_idempotency_shm_mark_unknown(ctx, op, node, now);

    case NGX_IDEMPOTENCY_PROBE:
        return ngx_idempotency_shm_probe(ctx, op, node, now);

    case NGX_IDEMPOTENCY_ISSUE:
        return ngx_idempotency_shm_issue(ctx, op, node, now);

    case NGX_IDEMPOTENCY_RESOLVE:
        return ngx_idempotency_shm_resolve(ctx, op, node, now);

    case NGX_IDEMPOTENCY_PURGE:
        return ngx_idempotency_shm_purge(ctx, op, node, now);

    default: /* NGX_IDEMPOTENCY_FETCH */
        op->result = NGX_IDEMPOTENCY_OK;

        if (op->flags & NGX_IDEMPOTENCY_FETCH_BARE) {
            ngx_idempotency_shm_show(op, node, now);
            return NGX_OK;
        }

        return ngx_idempotency_shm_show_answer(op, node, now);
    }
}


/* read without the mutex: numbers for people may be a moment old */

static void
ngx_idempotency_shm_usage(ngx_idempotency_store_t *store,
    ngx_idempotency_usage_t *usage)
{
    ngx_idempotency_shm_ctx_t  *ctx;

    ctx = store->data;

    usage->size = ctx->shpool->end - (u_char *) ctx->shpool;
    usage->free = ctx->shpool->pfree * ngx_pagesize;
    usage->records = ctx->sh->number;
    usage->executing = ctx->sh->states[NGX_IDEMPOTENCY_EXECUTING];
    usage->unknown = ctx->sh->states[NGX_IDEMPOTENCY_UNKNOWN];
    usage->record = sizeof(ngx_idempotency_shm_node_t);
    usage->broken = (ctx->sh->mark == NGX_IDEMPOTENCY_SHM_BROKEN);
}


static void
ngx_idempotency_shm_log_full(ngx_idempotency_shm_ctx_t *ctx)
{
    if (ctx->full_logged == ngx_time()) {
        return;
    }

    ctx->full_logged = ngx_time();

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\" is full, new keys are refused: "
                  "make its zone larger or the ttl shorter",
                  &ctx->store->name);
}


static ngx_int_t
ngx_idempotency_shm_claim(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    if ((op->flags & NGX_IDEMPOTENCY_CLAIM_ISSUED)
        && (node == NULL || node->state == NGX_IDEMPOTENCY_NONE))
    {
        op->result = NGX_IDEMPOTENCY_NOT_ISSUED;
        return NGX_OK;
    }

    if (node && ngx_idempotency_shm_owns(node, op->owner)) {
        return ngx_idempotency_shm_claim_again(op, node, now);
    }

    if (node && !ngx_idempotency_shm_may_take(op, node, now)) {
        op->result = NGX_IDEMPOTENCY_EXISTS;
        return ngx_idempotency_shm_show_answer(op, node, now);
    }

    if (node) {
        ngx_idempotency_shm_move_take(ctx, op, node, now);

    } else {
        node = ngx_idempotency_shm_move_new(ctx, op, now);
        if (node == NULL) {
            op->error = NGX_IDEMPOTENCY_ERROR_FULL;
            return NGX_ERROR;
        }
    }

    op->result = NGX_IDEMPOTENCY_GRANTED;
    ngx_idempotency_shm_show(op, node, now);

    return NGX_OK;
}


/* the same owner: its reply was lost, or this is the echo of an old try */

static ngx_int_t
ngx_idempotency_shm_claim_again(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now)
{
    switch (node->state) {

    case NGX_IDEMPOTENCY_EXECUTING:
        node->lease = now + op->lease;
        op->result = NGX_IDEMPOTENCY_GRANTED;
        break;

    case NGX_IDEMPOTENCY_NONE:
    case NGX_IDEMPOTENCY_ISSUED:
        op->result = NGX_IDEMPOTENCY_REFUSED;
        break;

    default:
        op->result = NGX_IDEMPOTENCY_EXISTS;
        return ngx_idempotency_shm_show_answer(op, node, now);
    }

    ngx_idempotency_shm_show(op, node, now);

    return NGX_OK;
}


static ngx_uint_t
ngx_idempotency_shm_may_take(ngx_idempotency_op_t *op,
    ngx_idempotency_shm_node_t *node, uint64_t now)
{
    switch (ngx_idempotency_shm_state(node, now)) {

    case NGX_IDEMPOTENCY_NONE:
    case NGX_IDEMPOTENCY_ISSUED:
        return 1;

    case NGX_IDEMPOTENCY_UNKNOWN:
        return (op->flags & NGX_IDEMPOTENCY_CLAIM_UNKNOWN)
               && (op->fence == 0 || op->fence == node->fence)
               && ngx_memcmp(node->fingerprint, op->fingerprint,
                             NGX_IDEMPOTENCY_FINGERPRINT_SUM) == 0;

    default:
        return 0;
    }
}


static ngx_int_t
ngx_idempotency_shm_release(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    ngx_idempotency_lease_t  lease;

    if (node == NULL) {

        /* what was lost is free; its owner is refused if there is room */

        ngx_idempotency_shm_op_lease(op, &lease);

        (void) ngx_idempotency_shm_move_anew(ctx, &lease,
                                             NGX_IDEMPOTENCY_NONE, now);

        op->result = NGX_IDEMPOTENCY_OK;

        return NGX_OK;
    }

    op->result = NGX_IDEMPOTENCY_REFUSED;

    if (node->state == NGX_IDEMPOTENCY_EXECUTING
        && ngx_idempotency_shm_owns(node, op->owner))
    {
        ngx_idempotency_shm_move_back(ctx, op, node, now);
        op->result = NGX_IDEMPOTENCY_OK;

    } else if (node->state == NGX_IDEMPOTENCY_NONE
               || node->state == NGX_IDEMPOTENCY_ISSUED)
    {
        ngx_idempotency_shm_move_refuse(ctx, op, node, now);
        op->result = NGX_IDEMPOTENCY_OK;
    }

    ngx_idempotency_shm_show(op, node, now);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_mark_unknown(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    ngx_idempotency_lease_t  lease;

    if (node == NULL) {

        ngx_idempotency_shm_op_lease(op, &lease);

        node = ngx_idempotency_shm_move_anew(ctx, &lease,
                                             NGX_IDEMPOTENCY_UNKNOWN, now);
        if (node == NULL) {
            op->error = NGX_IDEMPOTENCY_ERROR_FULL;
            return NGX_ERROR;
        }
    }

    op->result = NGX_IDEMPOTENCY_REFUSED;

    if (ngx_idempotency_shm_owns(node, op->owner)) {

        if (node->state == NGX_IDEMPOTENCY_EXECUTING) {
            ngx_idempotency_shm_move_unknown(ctx, node, now);
        }

        if (node->state == NGX_IDEMPOTENCY_UNKNOWN) {
            op->result = NGX_IDEMPOTENCY_OK;
        }
    }

    ngx_idempotency_shm_show(op, node, now);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_probe(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    if (op->fence) {
        op->result = NGX_IDEMPOTENCY_REFUSED;

        if (node
            && node->state == NGX_IDEMPOTENCY_UNKNOWN
            && node->fence == op->fence)
        {
            ngx_idempotency_shm_move_unknown(ctx, node, now);
            op->result = NGX_IDEMPOTENCY_OK;
        }

        ngx_idempotency_shm_show(op, node, now);

        return NGX_OK;
    }

    if (node == NULL
        || ngx_idempotency_shm_state(node, now) != NGX_IDEMPOTENCY_UNKNOWN
        || node->lease > now)
    {
        op->result = NGX_IDEMPOTENCY_EXISTS;
        return ngx_idempotency_shm_show_answer(op, node, now);
    }

    ngx_idempotency_shm_move_probe(ctx, op, node, now);

    op->result = NGX_IDEMPOTENCY_GRANTED;
    ngx_idempotency_shm_show(op, node, now);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_issue(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    if (node && node->state != NGX_IDEMPOTENCY_NONE) {
        op->result = NGX_IDEMPOTENCY_REFUSED;
        ngx_idempotency_shm_show(op, node, now);

        return NGX_OK;
    }

    node = ngx_idempotency_shm_move_issue(ctx, op, node, now);
    if (node == NULL) {
        op->error = NGX_IDEMPOTENCY_ERROR_FULL;
        return NGX_ERROR;
    }

    op->result = NGX_IDEMPOTENCY_OK;
    ngx_idempotency_shm_show(op, node, now);

    return NGX_OK;
}


/* as not executed; what was executed is completed */

static ngx_int_t
ngx_idempotency_shm_resolve(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    op->result = NGX_IDEMPOTENCY_REFUSED;

    if (node
        && node->fence == op->fence
        && ngx_idempotency_shm_state(node, now) == NGX_IDEMPOTENCY_UNKNOWN)
    {
        ngx_idempotency_shm_move_back(ctx, op, node, now);
        op->result = NGX_IDEMPOTENCY_OK;
    }

    ngx_idempotency_shm_show(op, node, now);

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_shm_purge(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, ngx_idempotency_shm_node_t *node, uint64_t now)
{
    op->result = NGX_IDEMPOTENCY_REFUSED;

    if (node
        && node->fence == op->fence
        && node->state != NGX_IDEMPOTENCY_NONE
        && ngx_idempotency_shm_state(node, now) != NGX_IDEMPOTENCY_EXECUTING)
    {
        ngx_idempotency_shm_move_none(ctx, op, node, now);
        op->result = NGX_IDEMPOTENCY_OK;
    }

    ngx_idempotency_shm_show(op, node, now);

    return NGX_OK;
}
