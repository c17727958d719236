
/*
 * An operator settles an unknown outcome: what is checked, stored and logged.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_RESOLVE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_RESOLVE_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* what an operator says of a record */

typedef struct {
    uint64_t                   fence;
    ngx_uint_t                 status;     /* of an answer, 0: none */
    ngx_str_t                  label;      /* of the record, to confirm, ... */
    ngx_str_t                  confirm;    /* ... or its name */
    ngx_str_t                  type;       /* of the body */
    ngx_str_t                  body;
    unsigned                   executed:1;
} ngx_http_idempotency_resolve_t;


/*
 * Does the operator mean the record that ctx->op has read?  NULL, or what is
 * wrong.  Whether it may be changed is decided by the store.
 */
char *ngx_http_idempotency_resolve_check(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_resolve_t *resolve);

/*
 * The body becomes that of the answer; without a status the record says only
 * that the request was executed.  NGX_OK; NGX_DECLINED with *error; NGX_ABORT:
 * it is too large; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_resolve_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_resolve_t *resolve,
    ngx_idempotency_op_t *op, char **error);

/* Logs a change of ctx->op's record and who made it. */
void ngx_http_idempotency_resolve_log(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const char *what, ngx_uint_t status,
    uint64_t fence);


#endif /* _NGX_HTTP_IDEMPOTENCY_RESOLVE_H_INCLUDED_ */
