
/*
 * What must be equal in a duplicate.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_FINGERPRINT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_FINGERPRINT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Sets ctx->id.fingerprint from the body, which must have been read, and the
 * value of with=, and with the first secret if there is one.  All zero when
 * fingerprints are off.  NGX_OK; NGX_DECLINED when the body is not the
 * document that it should be; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_fingerprint(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Makes ctx->id.fingerprint with the secret that "other", the fingerprint of a
 * record, names, and in the way in which that was made, so that the two can be
 * compared.  NGX_OK: it was so already; NGX_DONE: it is another one now;
 * NGX_ABORT: it cannot be made in that way, which is logged; NGX_DECLINED:
 * that secret is not known, which is logged; NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_fingerprint_as(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const u_char *other);

/* Were these two made with the same secret and in the same way? */
ngx_uint_t ngx_http_idempotency_fingerprint_same(
    ngx_http_idempotency_loc_conf_t *ilcf, const u_char *one,
    const u_char *other);

/*
 * A hash of what a fingerprint depends on beside its kind: the text of with=,
 * and the lists of include= and exclude= unless "lists" is 0.
 */
ngx_uint_t ngx_http_idempotency_fingerprint_hash(
    ngx_http_idempotency_loc_conf_t *ilcf, ngx_uint_t lists);


#endif /* _NGX_HTTP_IDEMPOTENCY_FINGERPRINT_H_INCLUDED_ */
