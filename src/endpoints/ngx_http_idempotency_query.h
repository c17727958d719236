
/*
 * The arguments of a lookup.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_QUERY_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_QUERY_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* the digits of a record, and the fewest that may name it */
#define NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS  (2 * NGX_IDEMPOTENCY_DIGEST_LEN)
#define NGX_HTTP_IDEMPOTENCY_QUERY_PREFIX  12


typedef enum {
    NGX_HTTP_IDEMPOTENCY_QUERY_JSON = 0,
    NGX_HTTP_IDEMPOTENCY_QUERY_NDJSON,
    NGX_HTTP_IDEMPOTENCY_QUERY_CSV
} ngx_http_idempotency_query_format_e;


struct ngx_http_idempotency_query_s {
    ngx_idempotency_op_e       type;       /* FETCH, LIST, RESOLVE, PURGE */
    ngx_idempotency_state_e    state;      /* to be listed */
    uint64_t                   fence;
    ngx_uint_t                 status;     /* of an answer, 0: none */
    ngx_str_t                  digits;     /* the record begins with these */
    ngx_str_t                  label;      /* to confirm, or a filter */
    ngx_str_t                  confirm;
    void                      *batch;      /* see batch.c */

    /* of a list: filters, and where it goes on */

    ngx_http_idempotency_query_format_e  format;
    ngx_uint_t                 limit;
    time_t                     older;      /* seconds */
    ngx_str_t                  location;
    time_t                     after;      /* created, -1: from the first */
    u_char                     after_digest[NGX_IDEMPOTENCY_DIGEST_LEN];

    /* what it has found so far, see list.c */

    ngx_array_t                rows;       /* ngx_http_idempotency_row_t * */
    ngx_uint_t                 seen;
    ngx_str_t                  cursor;     /* of the store */
    u_char                     text[NGX_IDEMPOTENCY_LIST_CURSOR];

    unsigned                   executed:1;
    unsigned                   named:1;    /* by "record=" */
    unsigned                   many:1;     /* "resolve=batch" */
    unsigned                   dry_run:1;
    unsigned                   waits:1;    /* for its turn to go on */
    unsigned                   more:1;     /* rows than the limit */
};


/*
 * Reads the arguments of the request; those that only an operator may give are
 * ignored unless the location is one for operators.  Sets ctx->query, and
 * ctx->id.digest if the record is named there.  NGX_OK; NGX_DECLINED: one is
 * missing or invalid, and ctx->request_body.error says which; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_query(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* Says what is wrong with an argument; returns NGX_DECLINED. */
ngx_int_t ngx_http_idempotency_query_error(ngx_http_idempotency_ctx_t *ctx,
    char *error);

/*
 * The name of a record, whole.  NGX_OK with the flags of its operations, or
 * NGX_DECLINED.
 */
ngx_int_t ngx_http_idempotency_query_name(ngx_str_t *value, u_char *digest,
    ngx_uint_t *flags);

/*
 * $arg_NAME has the bytes of the URI; from now on those of this request are
 * what they mean, without their escapes.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_query_variables(ngx_http_request_t *r);


#endif /* _NGX_HTTP_IDEMPOTENCY_QUERY_H_INCLUDED_ */
