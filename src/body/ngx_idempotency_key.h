
/*
 * The text of a key: parse, unquote, read as a number.
 */


#ifndef _NGX_IDEMPOTENCY_KEY_H_INCLUDED_
#define _NGX_IDEMPOTENCY_KEY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Finds the key in a value that a client has sent: visible ASCII, unless
 * "strict", or a string of RFC 9651; parameters behind the string must be
 * well-formed and mean nothing, spaces around it are not part of it.  "key"
 * points into the value, without quotes and with its escapes, of which there
 * are "escapes"; each of them counts as one byte of "max".  Returns NGX_OK, or
 * NGX_ABORT when the value is no key.
 */
ngx_int_t ngx_idempotency_key_parse(const ngx_str_t *value, size_t max,
    ngx_uint_t strict, ngx_str_t *key, size_t *escapes);

/*
 * Reads a number from 0 to 2^63 - 1 as it is written: digits without a zero
 * before them, so that each number is one key.  NGX_OK or NGX_ABORT.
 */
ngx_int_t ngx_idempotency_key_number(const ngx_str_t *key, uint64_t *n);

/* Copies the key to "dst" without its escapes. */
void ngx_idempotency_key_unescape(ngx_str_t *key, u_char *dst);


#endif /* _NGX_IDEMPOTENCY_KEY_H_INCLUDED_ */
