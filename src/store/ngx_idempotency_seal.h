
/*
 * Encryption of stored answers, and the secrets that do it.
 */


#ifndef _NGX_IDEMPOTENCY_SEAL_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SEAL_H_INCLUDED_


#include "ngx_idempotency_store.h"


#define NGX_IDEMPOTENCY_SECRET_LEN  32
#define NGX_IDEMPOTENCY_KEY_ID_LEN  4

/* how much longer a text is when it is sealed */
#define NGX_IDEMPOTENCY_SEAL_LEN    45


/*
 * A secret and the independent keys that are derived from it.  Its id is
 * written into everything that was made with it and reveals nothing about it;
 * an id of zeros means no secret.
 */

typedef struct {
    u_char                   id[NGX_IDEMPOTENCY_KEY_ID_LEN];
    u_char                   seal[32];
    u_char                   subkey[16];   /* K1 of CMAC for "seal" */
    u_char                   fingerprint[32];
    void                    *cipher;       /* AES-256-ECB with "seal" */
} ngx_idempotency_secret_t;


/*
 * Makes the keys of a secret of NGX_IDEMPOTENCY_SECRET_LEN bytes; they are
 * wiped with the pool.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_idempotency_secret_init(ngx_pool_t *pool,
    ngx_idempotency_secret_t *secret, const u_char *bytes);

/*
 * The secret with that id among "secrets" (ngx_idempotency_secret_t *, may be
 * NULL), or NULL.
 */
ngx_idempotency_secret_t *ngx_idempotency_secret_find(ngx_array_t *secrets,
    const u_char *id);

/*
 * Seals head and body of the answer that "op" is about to keep, into the pool
 * of "op"; the bytes that it pointed to are left alone.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_idempotency_seal(ngx_idempotency_secret_t *secret,
    ngx_idempotency_op_t *op);

/*
 * Opens head and body of a record named "digest" in place; what was never
 * sealed is left as it is.  The bytes are foreign data.  NGX_OK, or
 * NGX_DECLINED when they were sealed with another secret, for another record,
 * or altered: they are garbage then.
 */
ngx_int_t ngx_idempotency_seal_open(ngx_array_t *secrets,
    const u_char *digest, ngx_str_t *head, ngx_str_t *body);

/*
 * The same for a short text: seals it into "out", which has room for
 * NGX_IDEMPOTENCY_SEAL_LEN more bytes than the text; and opens it in place.
 * What was sealed as a text is no answer, and the other way round.
 */
ngx_int_t ngx_idempotency_seal_text(ngx_idempotency_secret_t *secret,
    const u_char *digest, ngx_str_t *text, u_char *out);
ngx_int_t ngx_idempotency_seal_open_text(ngx_array_t *secrets,
    const u_char *digest, ngx_str_t *text);


#endif /* _NGX_IDEMPOTENCY_SEAL_H_INCLUDED_ */
