
/*
 * Bytes on their way to a server.
 */


#include "ngx_idempotency_redis_link.h"


/* not yet written; more is refused */
#define NGX_IDEMPOTENCY_REDIS_UNSENT                                          \
    (NGX_IDEMPOTENCY_REDIS_LARGEST + 1024 * 1024)


ngx_int_t
ngx_idempotency_redis_bytes_append(ngx_idempotency_redis_bytes_t *to,
    u_char *data, size_t len)
{
    if (ngx_idempotency_redis_bytes_reserve(to, len) != NGX_OK) {
        return NGX_ERROR;
    }

    to->last = ngx_cpymem(to->last, data, len);

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_bytes_reserve(ngx_idempotency_redis_bytes_t *to,
    size_t len)
{
    size_t   used, size;
    u_char  *start;

    if (len <= (size_t) (to->end - to->last)) {
        return NGX_OK;
    }

    used = to->last - to->pos;

    if (len > NGX_IDEMPOTENCY_REDIS_UNSENT
        || used > NGX_IDEMPOTENCY_REDIS_UNSENT - len)
    {
        return NGX_ERROR;
    }

    size = ngx_max(2 * (used + len), 4096);

    start = ngx_alloc(size, ngx_cycle->log);
    if (start == NULL) {
        return NGX_ERROR;
    }

    if (used) {
        ngx_memcpy(start, to->pos, used);
    }

    if (to->start) {
        ngx_free(to->start);
    }

    to->start = start;
    to->pos = start;
    to->last = start + used;
    to->end = start + size;

    return NGX_OK;
}


/* empties it, and gives its memory back if that is more than "keep" */

void
ngx_idempotency_redis_bytes_clear(ngx_idempotency_redis_bytes_t *bytes,
    size_t keep)
{
    if (bytes->start == NULL) {
        return;
    }

    bytes->pos = bytes->start;
    bytes->last = bytes->start;

    if ((size_t) (bytes->end - bytes->start) > keep) {
        ngx_free(bytes->start);
        ngx_memzero(bytes, sizeof(ngx_idempotency_redis_bytes_t));
    }
}
