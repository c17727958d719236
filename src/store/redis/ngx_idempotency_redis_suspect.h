
/*
 * The store in Redis: the last request with a source, scope and fingerprint.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_SUSPECT_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_SUSPECT_H_INCLUDED_


#include "ngx_idempotency_redis_op.h"


/*
 * The arguments of an operation about suspects.  NGX_ERROR: memory is short.
 */
ngx_int_t ngx_idempotency_redis_suspect_args(ngx_idempotency_redis_op_t *rop);

/* What a reply says.  NGX_DECLINED: it cannot be read; NGX_ERROR: is none. */
ngx_int_t ngx_idempotency_redis_suspect_read(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *value, uint64_t now);

/* NGX_AGAIN: the next command is to be sent; NGX_OK: the result is set. */
ngx_int_t ngx_idempotency_redis_suspect_next(ngx_idempotency_redis_op_t *rop);


#endif /* _NGX_IDEMPOTENCY_REDIS_SUSPECT_H_INCLUDED_ */
