
/*
 * What Redis runs for each operation.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_SCRIPT_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_SCRIPT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * The text of the script of an operation.  All take one key and the same
 * arguments, as far as they look at them:
 *
 *     owner, fingerprint, lease (ms), keep (s), ttl (s), tombstone (s),
 *     flags, fence, status, "1" if the answer is kept, head, body
 *
 * and answer { result, now (ms), value, owner }: the result as a number of
 * ngx_idempotency_result_e, or 9 for a record that cannot be read; the record
 * as ngx_idempotency_record_decode() reads it, without its answer where
 * nobody asks for one, or empty; and the owner who asked, so that nobody
 * takes the reply to another for its own.
 */
ngx_int_t ngx_idempotency_redis_script(ngx_pool_t *pool,
    ngx_idempotency_op_e type, ngx_uint_t executed, ngx_str_t *script);


#endif /* _NGX_IDEMPOTENCY_REDIS_SCRIPT_H_INCLUDED_ */
