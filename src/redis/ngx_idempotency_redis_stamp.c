
/*
 * Whether a file has changed.
 */


#include "ngx_idempotency_redis_link.h"


ngx_int_t
ngx_idempotency_redis_stamp(ngx_str_t *name,
    ngx_idempotency_redis_stamp_t *stamp)
{
    ngx_file_info_t  fi;

    ngx_memzero(stamp, sizeof(ngx_idempotency_redis_stamp_t));

    if (ngx_file_info(name->data, &fi) == NGX_FILE_ERROR) {
        return NGX_ERROR;
    }

    stamp->uniq = ngx_file_uniq(&fi);
    stamp->size = ngx_file_size(&fi);
    stamp->mtime = ngx_file_mtime(&fi);

#if (NGX_LINUX)

    /* two writes within a second */

    stamp->nsec = (ngx_uint_t) fi.st_mtim.tv_nsec;

#endif

    return NGX_OK;
}
