
/*
 * What Redis runs for each operation.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_SCRIPT_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_SCRIPT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


/* an operation, or one of these; in the order of their scripts */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_EXECUTED = NGX_IDEMPOTENCY_LIST + 1,
    NGX_IDEMPOTENCY_REDIS_CLAIM_NUMBER,
    NGX_IDEMPOTENCY_REDIS_RELEASE_NUMBER,
    NGX_IDEMPOTENCY_REDIS_SCRIPTS
} ngx_idempotency_redis_script_e;


/*
 * The text of the script of an operation.  All take one key and one argument
 * of NGX_IDEMPOTENCY_REDIS_QUESTION bytes, numbers with the highest byte first:
 *
 *     owner (16), fingerprint (32), lease (8, ms), keep (8, s), ttl (8, s),
 *     tombstone (8, s), fence (8), length of the head (4), status (2),
 *     flags (1), whether the answer is kept (1), how the fingerprint was made
 *     (2),
 *     number (8), number + 1 (8), epoch (8)
 *
 * complete and resolve take a second one: head and body of the answer, and
 * purge: a channel, on which it is told.  The
 * last two scripts take a second key, the mark of a sequence.  They
 * answer with one string:
 *
 *     result (1), now (8, ms), owner (16), record
 *
 * the result as a number of ngx_idempotency_result_e, or 9 for a record that
 * cannot be read; the owner is the one who asked, so that nobody takes the
 * reply to another for its own; the record is as
 * ngx_idempotency_record_decode() reads it, without its answer where nobody
 * asks for one, or empty; or, with OUT_OF_ORDER, the number that is expected.
 *
 * The script of a list is another one.  It takes owner (16) and state (1),
 * the cursor of SCAN, and the prefix, and answers with
 *
 *     0 (1), now (8, ms), owner (16), length of the cursor (1),
 *     records seen (4), cursor, and for each record of that state
 *     whether it is of a sequence (1), its digest in hex (64), its header (116)
 */
ngx_int_t ngx_idempotency_redis_script(ngx_pool_t *pool,
    ngx_idempotency_redis_script_e type, ngx_str_t *script);

/* Which script this operation is. */
ngx_uint_t ngx_idempotency_redis_script_of(ngx_idempotency_op_t *op);


#endif /* _NGX_IDEMPOTENCY_REDIS_SCRIPT_H_INCLUDED_ */
