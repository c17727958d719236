
/*
 * Names that nobody has had before.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_UNIQUE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_UNIQUE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* the longest of them: a UUID */
#define NGX_HTTP_IDEMPOTENCY_UNIQUE_LEN        36

#define NGX_HTTP_IDEMPOTENCY_UNIQUE_MAX_NODE   1023


typedef enum {
    NGX_HTTP_IDEMPOTENCY_UNIQUE_UUID = 0,
    NGX_HTTP_IDEMPOTENCY_UNIQUE_UUID7,
    NGX_HTTP_IDEMPOTENCY_UNIQUE_SNOWFLAKE
} ngx_http_idempotency_unique_e;


/*
 * Where the workers of this nginx count the numbers that they have given.
 * Reloads keep it.  NULL when memory is short.
 */
ngx_shm_zone_t *ngx_http_idempotency_unique_zone(ngx_conf_t *cf);

/*
 * Writes a name to "dst" and returns its end, or NULL when libcrypto has no
 * random bytes.  "zone" and "node" are for snowflakes only.
 */
u_char *ngx_http_idempotency_unique(ngx_http_idempotency_unique_e format,
    ngx_shm_zone_t *zone, ngx_uint_t node, u_char *dst);


#endif /* _NGX_HTTP_IDEMPOTENCY_UNIQUE_H_INCLUDED_ */
