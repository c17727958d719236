
/*
 * Which of a cluster's slots a key is in.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_SLOT_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_SLOT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_IDEMPOTENCY_REDIS_SLOTS  16384


/*
 * The slot of a key: CRC16 of what is between its first "{" and the next "}",
 * or of all of it where there is nothing.
 */
ngx_uint_t ngx_idempotency_redis_slot(ngx_str_t *key);

/* CRC16 as XMODEM has it. */
ngx_uint_t ngx_idempotency_redis_crc16(u_char *data, size_t len);


#endif /* _NGX_IDEMPOTENCY_REDIS_SLOT_H_INCLUDED_ */
