
/*
 * Cryptographically secure random bytes.
 */


#include "ngx_idempotency_random.h"
#include <openssl/rand.h>


#define NGX_IDEMPOTENCY_RANDOM_POOL  4096


/*
 * RAND_bytes() costs by the call, not by the byte: bytes are drawn many at a
 * time.  The master draws none, and workers do not fork: no two processes
 * share them.
 */

ngx_int_t
ngx_idempotency_random(u_char *p, size_t len)
{
    static u_char  bytes[NGX_IDEMPOTENCY_RANDOM_POOL];
    static size_t  left;

    if (left < len) {

        if (RAND_bytes(bytes, sizeof(bytes)) != 1) {
            ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                          "idempotency got no random bytes from libcrypto");
            return NGX_ERROR;
        }

        left = sizeof(bytes);
    }

    left -= len;

    ngx_memcpy(p, bytes + left, len);

    return NGX_OK;
}
