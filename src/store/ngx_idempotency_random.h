
/*
 * Cryptographically secure random bytes.
 */


#ifndef _NGX_IDEMPOTENCY_RANDOM_H_INCLUDED_
#define _NGX_IDEMPOTENCY_RANDOM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Fills "p" with "len" bytes, 64 at most.  NGX_OK, or NGX_ERROR when
 * libcrypto has none, which is logged.
 */
ngx_int_t ngx_idempotency_random(u_char *p, size_t len);


#endif /* _NGX_IDEMPOTENCY_RANDOM_H_INCLUDED_ */
