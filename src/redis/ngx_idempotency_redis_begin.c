
/*
 * Commands that begin alike: hiredis encodes what they share, once.  What
 * differs is added here, for it is done twice in each request, and hiredis
 * would take 4000 instructions for a command and allocate for each argument.
 */


#include "ngx_idempotency_redis_proto.h"


/* arguments at most */
#define NGX_IDEMPOTENCY_REDIS_ALIKE  8


/*
 * hiredis makes the command with empty strings where the others will be, and
 * these are cut off
 */

ngx_int_t
ngx_idempotency_redis_encode_begin(ngx_pool_t *pool, ngx_str_t *args,
    ngx_uint_t given, ngx_uint_t n, ngx_str_t *bytes)
{
    ngx_str_t  all[NGX_IDEMPOTENCY_REDIS_ALIKE], whole;

    static ngx_str_t  empty = ngx_string("$0" CRLF CRLF);

    if (given > n || n > NGX_IDEMPOTENCY_REDIS_ALIKE) {
        return NGX_ERROR;
    }

    ngx_memzero(all, sizeof(all));
    ngx_memcpy(all, args, given * sizeof(ngx_str_t));

    if (ngx_idempotency_redis_encode(all, n, &whole) != NGX_OK) {
        return NGX_ERROR;
    }

    bytes->len = whole.len - (n - given) * empty.len;
    bytes->data = ngx_pnalloc(pool, bytes->len);

    if (bytes->data) {
        ngx_memcpy(bytes->data, whole.data, bytes->len);
    }

    ngx_idempotency_redis_encode_free(&whole);

    return bytes->data ? NGX_OK : NGX_ERROR;
}


size_t
ngx_idempotency_redis_encode_rest_len(ngx_str_t *args, ngx_uint_t n)
{
    size_t      len;
    ngx_uint_t  i;

    len = 0;

    for (i = 0; i < n; i++) {
        len += sizeof("$" CRLF CRLF) - 1 + NGX_SIZE_T_LEN + args[i].len;
    }

    return len;
}


/* each as "$", its length, and its bytes */

u_char *
ngx_idempotency_redis_encode_rest(u_char *p, ngx_str_t *args, ngx_uint_t n)
{
    size_t       len;
    u_char      *digit, digits[NGX_SIZE_T_LEN];
    ngx_uint_t   i;

    for (i = 0; i < n; i++) {

        digit = digits + NGX_SIZE_T_LEN;
        len = args[i].len;

        do {
            *--digit = (u_char) (len % 10 + '0');
            len /= 10;
        } while (len);

        *p++ = '$';
        p = ngx_cpymem(p, digit, digits + NGX_SIZE_T_LEN - digit);
        *p++ = CR;
        *p++ = LF;

        if (args[i].len) {
            p = ngx_cpymem(p, args[i].data, args[i].len);
        }

        *p++ = CR;
        *p++ = LF;
    }

    return p;
}
