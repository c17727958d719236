
/*
 * What a request shows of how its client retries.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_TROUBLE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_TROUBLE_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* The request ends: notes what its client has done wrong, if anything. */
void ngx_http_idempotency_trouble_end(ngx_http_idempotency_ctx_t *ctx,
    ngx_idempotency_trouble_t *trouble);


#endif /* _NGX_HTTP_IDEMPOTENCY_TROUBLE_H_INCLUDED_ */
