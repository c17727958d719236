
/*
 * A duplicate waits for the first request of its key.
 */


#include "ngx_http_idempotency_wait.h"
#include "ngx_http_idempotency_context.h"


static ngx_int_t ngx_http_idempotency_wait_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_wait_wake(ngx_idempotency_waiter_t *waiter);
static void ngx_http_idempotency_wait_over(ngx_event_t *ev);
static void ngx_http_idempotency_wait_forget(ngx_http_idempotency_ctx_t *ctx);


ngx_int_t
ngx_http_idempotency_wait(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    /* it has waited before, to the end or not: there is no deadline left */

    if (ctx->wait_over || (ctx->waited && !ctx->wait_timer.timer_set)) {
        return NGX_DECLINED;
    }

    if (!ctx->waited
        && ngx_http_idempotency_wait_begin(r, ctx) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (ctx->waiter.group) {
        ngx_idempotency_wait_on(&ctx->waiter);
        return NGX_OK;
    }

    return ngx_idempotency_wait_join(&ctx->waiter, ctx->op);
}


static ngx_int_t
ngx_http_idempotency_wait_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_event_t  *ev;

    ctx->waited = 1;

    ctx->waiter.handler = ngx_http_idempotency_wait_wake;
    ctx->waiter.data = ctx;

    ev = &ctx->wait_timer;

    ev->handler = ngx_http_idempotency_wait_over;
    ev->data = ctx;
    ev->log = r->connection->log;

    ngx_add_timer(ev, ctx->conf->wait);

    /* as ngx_http_limit_req_handler(): a client that leaves is noticed */

    r->read_event_handler = ngx_http_test_reading;

    if (r->connection->read->ready) {
        ngx_post_event(r->connection->read, &ngx_posted_events);
        return NGX_OK;
    }

    return ngx_handle_read_event(r->connection->read, 0);
}


static void
ngx_http_idempotency_wait_wake(ngx_idempotency_waiter_t *waiter)
{
    ngx_http_idempotency_ctx_t *ctx = waiter->data;

    ngx_post_event(ctx->request->connection->write, &ngx_posted_events);
}


static void
ngx_http_idempotency_wait_over(ngx_event_t *ev)
{
    ngx_http_idempotency_ctx_t *ctx = ev->data;

    ctx->wait_over = 1;

    ngx_http_idempotency_wait_wake(&ctx->waiter);
}


ngx_int_t
ngx_http_idempotency_wait_woken(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->waiter.told) {
        ngx_http_idempotency_wait_forget(ctx);
        ngx_idempotency_op_drop(ctx->op);

        ctx->op = ctx->waiter.told;
        ctx->waiter.told = NULL;

        return NGX_OK;
    }

    if (ctx->wait_over) {
        return NGX_ABORT;
    }

    return ctx->waiter.turn ? NGX_DECLINED : NGX_AGAIN;
}


void
ngx_http_idempotency_wait_share(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->waiter.turn
        && ctx->op->record.state != NGX_IDEMPOTENCY_EXECUTING)
    {
        ngx_idempotency_wait_tell(&ctx->waiter, ctx->op);
    }
}


void
ngx_http_idempotency_wait_end(ngx_http_idempotency_ctx_t *ctx)
{
    if (!ctx->waited) {
        return;
    }

    ngx_http_idempotency_wait_forget(ctx);
    ngx_idempotency_wait_leave(&ctx->waiter);

    if (ctx->wait_timer.timer_set) {
        ngx_del_timer(&ctx->wait_timer);
    }

    ctx->request->read_event_handler = ngx_http_block_reading;
}


/* a claim that got no reply may be granted yet, and is not used */

static void
ngx_http_idempotency_wait_forget(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->unsure) {
        ctx->unsure = 0;
        ngx_http_idempotency_context_take_back(ctx);
    }
}
