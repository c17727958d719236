
/*
 * Answers of gRPC.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_GRPC_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_GRPC_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/*
 * Is it an answer of a gRPC server?  It is judged when it has ended.  A status
 * other than 200 comes from a proxy or from nginx, and is judged at once.
 */
ngx_uint_t ngx_http_idempotency_grpc_is(ngx_http_request_t *r);

/*
 * The HTTP status that a whole answer is judged as: its own, or that of its
 * grpc-status, or 0 if that is missing.
 */
ngx_uint_t ngx_http_idempotency_grpc_status(ngx_http_request_t *r);

/*
 * The answer is whole.  Returns the operation that settles the claim: COMPLETE
 * unless ctx->grpc says that its end decides.  ctx->keep is cleared where the
 * answer is not to be kept.
 */
ngx_idempotency_op_e ngx_http_idempotency_grpc_judge(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_GRPC_H_INCLUDED_ */
