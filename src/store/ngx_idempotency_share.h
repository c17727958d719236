
/*
 * One copy in memory of an answer that several requests replay.
 */


#ifndef _NGX_IDEMPOTENCY_SHARE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHARE_H_INCLUDED_


#include "ngx_idempotency_store.h"


/* smaller bodies are not worth a comparison */
#define NGX_IDEMPOTENCY_SHARE_MIN  65536


/*
 * "op" is a finished claim with an answer, opened if it was sealed.  Returns
 * the operation to go on with: another one of this worker that has the same
 * answer, byte for byte, and "op" is dropped; or "op" itself, which other
 * requests may share from now on.  The caller drops what is returned.
 */
ngx_idempotency_op_t *ngx_idempotency_share(ngx_idempotency_op_t *op);


#endif /* _NGX_IDEMPOTENCY_SHARE_H_INCLUDED_ */
