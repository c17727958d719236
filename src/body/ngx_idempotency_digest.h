
/*
 * SHA-256 over parts that cannot run into each other.
 */


#ifndef _NGX_IDEMPOTENCY_DIGEST_H_INCLUDED_
#define _NGX_IDEMPOTENCY_DIGEST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_record.h"


/*
 * All of these return NGX_OK, or NGX_ERROR when libcrypto fails.  A part is
 * added with its length: ("a", "bc") and ("ab", "c") differ.
 */

/* The digest of some parts, 32 bytes. */
ngx_int_t ngx_idempotency_digest(ngx_log_t *log, const ngx_str_t **parts,
    ngx_uint_t n, u_char *digest);

/*
 * One digest at a time per worker: start with some parts, any number of add
 * and add_part, finish, with nothing else in between.
 */
ngx_int_t ngx_idempotency_digest_start(ngx_log_t *log,
    const ngx_str_t **parts, ngx_uint_t n);
ngx_int_t ngx_idempotency_digest_add(const u_char *data, size_t len);
ngx_int_t ngx_idempotency_digest_add_part(const ngx_str_t *part);

/*
 * A digest inside the one that was started: end adds its 32 bytes to that.
 * Nothing else may be added in between.
 */
ngx_int_t ngx_idempotency_digest_inner_start(void);
ngx_int_t ngx_idempotency_digest_inner_add(const u_char *data,
    size_t len);
ngx_int_t ngx_idempotency_digest_inner_end(void);

/* writes 32 bytes */
ngx_int_t ngx_idempotency_digest_finish(u_char *digest);

/* HMAC of a digest, with a key of 32 bytes; writes 32 bytes */
ngx_int_t ngx_idempotency_digest_keyed(ngx_log_t *log, const u_char *key,
    const u_char *digest, u_char *keyed);


#endif /* _NGX_IDEMPOTENCY_DIGEST_H_INCLUDED_ */
