
/*
 * A duplicate waits for the first request with its key.
 *
 * This file has what a waiting request needs of nginx: a deadline, and a read
 * handler that notices a client which leaves.  store/wait has the waiters of
 * one record as a group.  When the record may have changed, one waiter of the
 * group gets the turn and claims again, with the owner it had: if it is
 * granted it runs, if the record is settled it shares that with the others.
 */


#include "ngx_http_idempotency_wait.h"
#include "ngx_http_idempotency_context.h"


static ngx_int_t ngx_http_idempotency_wait_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_wait_wake(ngx_idempotency_waiter_t *waiter);
static void ngx_http_idempotency_wait_timeout(ngx_event_t *ev);
static void ngx_http_idempotency_wait_take_back(
    ngx_http_idempotency_ctx_t *ctx);


ngx_int_t
ngx_http_idempotency_wait(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->wait.state == NGX_HTTP_IDEMPOTENCY_WAIT_OVER) {
        return NGX_DECLINED;
    }

    if (ctx->wait.state == NGX_HTTP_IDEMPOTENCY_WAIT_NONE
        && ngx_http_idempotency_wait_begin(r, ctx) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (ctx->wait.waiter.group) {
        ngx_idempotency_wait_continue(&ctx->wait.waiter);
        return NGX_OK;
    }

    return ngx_idempotency_wait_join(&ctx->wait.waiter, ctx->op);
}


static ngx_int_t
ngx_http_idempotency_wait_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_event_t  *ev;

    ctx->wait.state = NGX_HTTP_IDEMPOTENCY_WAIT_WAITING;

    ctx->wait.waiter.handler = ngx_http_idempotency_wait_wake;
    ctx->wait.waiter.data = ctx;

    ev = &ctx->wait.timer;

    ev->handler = ngx_http_idempotency_wait_timeout;
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
ngx_http_idempotency_wait_timeout(ngx_event_t *ev)
{
    ngx_http_idempotency_ctx_t *ctx = ev->data;

    ctx->wait.state = NGX_HTTP_IDEMPOTENCY_WAIT_OVER;

    ngx_http_idempotency_wait_wake(&ctx->wait.waiter);
}


ngx_int_t
ngx_http_idempotency_wait_woken(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->wait.waiter.shared) {
        ngx_http_idempotency_wait_take_back(ctx);
        ngx_idempotency_op_drop(ctx->op);

        ctx->op = ctx->wait.waiter.shared;
        ctx->wait.waiter.shared = NULL;

        return NGX_OK;
    }

    if (ctx->wait.state == NGX_HTTP_IDEMPOTENCY_WAIT_OVER) {
        return NGX_ABORT;
    }

    return ctx->wait.waiter.turn ? NGX_DECLINED : NGX_AGAIN;
}


void
ngx_http_idempotency_wait_share(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->wait.waiter.turn
        && ctx->op->record.state != NGX_IDEMPOTENCY_EXECUTING)
    {
        ngx_idempotency_wait_share(&ctx->wait.waiter, ctx->op);
    }
}


void
ngx_http_idempotency_wait_end(ngx_http_idempotency_ctx_t *ctx)
{
    ctx->wait.state = NGX_HTTP_IDEMPOTENCY_WAIT_OVER;

    ngx_http_idempotency_wait_take_back(ctx);
    ngx_idempotency_wait_leave(&ctx->wait.waiter);

    if (ctx->wait.timer.timer_set) {
        ngx_del_timer(&ctx->wait.timer);
    }

    ctx->request->read_event_handler = ngx_http_block_reading;
}


/* A claim of this waiter that got no reply may still be granted. */

static void
ngx_http_idempotency_wait_take_back(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->wait.in_doubt) {
        ctx->wait.in_doubt = 0;
        ngx_http_idempotency_context_take_back(ctx);
    }
}
