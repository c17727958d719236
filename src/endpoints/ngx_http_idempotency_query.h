
/*
 * The arguments of a lookup, and records as JSON.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_QUERY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_QUERY_H_INCLUDED_


#include "ngx_http_idempotency.h"
#include "ngx_http_idempotency_text.h"


struct ngx_http_idempotency_query_s {
    ngx_idempotency_op_e       type;       /* FETCH, LIST, RESOLVE, PURGE */
    ngx_idempotency_state_e    state;      /* to be listed */
    ngx_str_t                  cursor;
    uint64_t                   fence;
    ngx_uint_t                 status;     /* of an answer, 0: none */
    unsigned                   executed:1;
    unsigned                   named:1;    /* by "record=" */
};


/*
 * Reads the arguments of the request; those that only an operator may give are
 * ignored unless the location is one for operators.  Sets ctx->query, and
 * ctx->id.digest if the record is named there.  NGX_OK; NGX_DECLINED: one is
 * missing or invalid; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_query(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The record that an operation has brought, or its list, as JSON. */
void ngx_http_idempotency_query_show(ngx_http_idempotency_text_t *text,
    ngx_idempotency_op_t *op);


#endif /* _NGX_HTTP_IDEMPOTENCY_QUERY_H_INCLUDED_ */
