
/*
 * The records of one state, some at a time.
 * Private to the embedded store.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_LIST_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_LIST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_zone.h"


/* as an operation */
ngx_int_t ngx_idempotency_shm_list(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_op_t *op, uint64_t now);


#endif /* _NGX_IDEMPOTENCY_SHM_LIST_H_INCLUDED_ */
