
/*
 * The request's context: created, found again after redirects, its operations
 * and its result.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_CONTEXT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_CONTEXT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * The context of a main request, or NULL.  ngx_http_internal_redirect(),
 * ngx_http_named_location() and ngx_http_filter_finalize_request() clear the
 * contexts of all modules: it is looked for then.
 */

#define ngx_http_idempotency_get_ctx(r)                                       \
    (ngx_http_get_module_ctx(r, ngx_http_idempotency_module)                  \
     || (!(r)->internal && !(r)->filter_finalize)                             \
     ? ngx_http_get_module_ctx(r, ngx_http_idempotency_module)                \
     : ngx_http_idempotency_context_find(r))

/* Does the location protect requests of this method? */

#define ngx_http_idempotency_protects(r, ilcf)                                \
    ((ilcf)->store && (ilcf)->endpoint == NULL                                \
     && ((r)->method & (ilcf)->methods))

/* all moves: see ngx_http_idempotency_state_e */

#define ngx_http_idempotency_set_state(ctx, to)                               \
    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, (ctx)->request->connection->log, 0,    \
                   "idempotency %s -> %s",                                    \
                   ngx_http_idempotency_state_names[(ctx)->state],            \
                   ngx_http_idempotency_state_names[to]);                     \
    (ctx)->state = to


/*
 * A context for a main request.  When the request ends "end" is called,
 * unless it is NULL.  Returns NULL when memory is short.
 */
ngx_http_idempotency_ctx_t *ngx_http_idempotency_context_create(
    ngx_http_request_t *r, ngx_http_idempotency_loc_conf_t *ilcf,
    ngx_http_idempotency_end_pt end);

/* For ngx_http_idempotency_get_ctx() only. */
ngx_http_idempotency_ctx_t *ngx_http_idempotency_context_find(
    ngx_http_request_t *r);

/*
 * Makes the next operation of the request ctx->op: identity, retention and
 * handler are filled in.  With the default handler the request is woken by
 * its write event when the operation is over.  NULL when memory is short.
 */
ngx_idempotency_op_t *ngx_http_idempotency_context_op(
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type);

/* The default handler, for a handler that does more than that. */
void ngx_http_idempotency_context_wake(ngx_idempotency_op_t *op);

/* ctx->op is a claim that was granted: holds its lease. */
void ngx_http_idempotency_context_hold(ngx_http_idempotency_ctx_t *ctx);

/*
 * A claim got no reply and may have been granted: releases it behind the
 * request, however long that takes.  ctx->op stays what it is.
 */
void ngx_http_idempotency_context_take_back(ngx_http_idempotency_ctx_t *ctx);

/*
 * Sets the result of the request and logs it, at the level of the location:
 * a line for each result but "new" and "off".  "code" is that of a problem, or
 * NULL.  Of several results of one request the last one counts.
 */
void ngx_http_idempotency_event(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_result_e result, ngx_str_t *code);

/* The log line of a result, for a request that may be gone. */
void ngx_http_idempotency_event_log(ngx_log_t *log,
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_result_e result, ngx_str_t *code, u_char *digest,
    ngx_str_t *location);

/* The name of the location that is protected, or that answers itself. */
ngx_str_t *ngx_http_idempotency_event_location(
    ngx_http_idempotency_ctx_t *ctx);


/* by ngx_http_idempotency_result_e */
extern ngx_str_t  ngx_http_idempotency_result_names[];

/* by ngx_http_idempotency_state_e, for the debug log */
extern const char  *ngx_http_idempotency_state_names[];


#endif /* _NGX_HTTP_IDEMPOTENCY_CONTEXT_H_INCLUDED_ */
