
/*
 * What Redis runs for each operation.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_SCRIPT_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_SCRIPT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/*
 * The text of the script of an operation.  All take one key and one argument
 * of NGX_IDEMPOTENCY_REDIS_QUESTION bytes, numbers with the highest byte first:
 *
 *     owner (16), fingerprint (32), lease (8, ms), keep (8, s), ttl (8, s),
 *     tombstone (8, s), fence (8), length of the head (4), status (2),
 *     flags (1), whether the answer is kept (1)
 *
 * complete and resolve take a second one: head and body of the answer.  They
 * answer with one string:
 *
 *     result (1), now (8, ms), owner (16), record
 *
 * the result as a number of ngx_idempotency_result_e, or 9 for a record that
 * cannot be read; the owner is the one who asked, so that nobody takes the
 * reply to another for its own; the record is as
 * ngx_idempotency_record_decode() reads it, without its answer where nobody
 * asks for one, or empty.
 */
ngx_int_t ngx_idempotency_redis_script(ngx_pool_t *pool,
    ngx_idempotency_op_e type, ngx_uint_t executed, ngx_str_t *script);


#endif /* _NGX_IDEMPOTENCY_REDIS_SCRIPT_H_INCLUDED_ */
