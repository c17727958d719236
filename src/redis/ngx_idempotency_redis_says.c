
/*
 * What the error of a server means.
 */


#include "ngx_idempotency_redis_link.h"


ngx_uint_t
ngx_idempotency_redis_says(ngx_idempotency_redis_reply_t *reply,
    const char *word)
{
    u_char     *p, *last;
    size_t      len;
    ngx_str_t   text;

    if (ngx_idempotency_redis_reply_type(reply) != NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        return 0;
    }

    ngx_idempotency_redis_reply_string(reply, &text);

    len = ngx_strlen(word);
    p = text.data;
    last = p + text.len;

    /* ERR Error running script (call to f_...): @user_script:6: ... -WORD */

    if (ngx_idempotency_redis_reply_is_error(reply,
                                             "ERR Error running script"))
    {
        p = ngx_strlcasestrn(p, last, (u_char *) ": -", 3 - 1);

        if (p == NULL) {
            return 0;
        }

        p += 3;
    }

    return (size_t) (last - p) >= len
           && ngx_strncmp(p, word, len) == 0
           && (p + len == last || p[len] == ' ');
}


ngx_uint_t
ngx_idempotency_redis_says_no_master(ngx_idempotency_redis_reply_t *reply)
{
    return ngx_idempotency_redis_says(reply, "READONLY")
           || ngx_idempotency_redis_says(reply, "MASTERDOWN")
           || ngx_idempotency_redis_says(reply, "LOADING");
}
