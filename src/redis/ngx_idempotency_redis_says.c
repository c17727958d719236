
/*
 * What the error of a server means.
 */


#include "ngx_idempotency_redis_link.h"


ngx_uint_t
ngx_idempotency_redis_says(ngx_idempotency_redis_reply_t *reply,
    const char *word)
{
    ngx_str_t  text, part;

    if (ngx_idempotency_redis_reply_type(reply) != NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        return 0;
    }

    ngx_idempotency_redis_reply_string(reply, &text);

    part.data = (u_char *) word;
    part.len = ngx_strlen(word);

    /* before 7.0: ERR Error running script (call to f_...): ... -WORD ... */

    return ngx_idempotency_redis_refusal_has(&text, &part);
}


ngx_uint_t
ngx_idempotency_redis_says_no_master(ngx_idempotency_redis_reply_t *reply)
{
    return ngx_idempotency_redis_says(reply, "READONLY")
           || ngx_idempotency_redis_says(reply, "MASTERDOWN")
           || ngx_idempotency_redis_says(reply, "LOADING");
}
