
/*
 * What an error reply of Redis means.
 */


#include "ngx_idempotency_redis_refusal.h"


typedef struct {
    ngx_str_t                           text;
    ngx_idempotency_redis_refusal_e     refusal;
} ngx_idempotency_redis_refusal_t;


/* the first word, or that of an error within the error of a script */

static ngx_idempotency_redis_refusal_t  ngx_idempotency_redis_refusal_words[] =
{
    { ngx_string("READONLY"), NGX_IDEMPOTENCY_REDIS_REFUSAL_READONLY },
    { ngx_string("OOM"), NGX_IDEMPOTENCY_REDIS_REFUSAL_OOM },
    { ngx_string("NOREPLICAS"), NGX_IDEMPOTENCY_REDIS_REFUSAL_NOREPLICAS },
    { ngx_string("NOPERM"), NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("NOAUTH"), NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("WRONGPASS"), NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("MISCONF"), NGX_IDEMPOTENCY_REDIS_REFUSAL_MISCONF },
    { ngx_string("LOADING"), NGX_IDEMPOTENCY_REDIS_REFUSAL_LOADING },
    { ngx_string("CLUSTERDOWN"), NGX_IDEMPOTENCY_REDIS_REFUSAL_DOWN },
    { ngx_string("MASTERDOWN"), NGX_IDEMPOTENCY_REDIS_REFUSAL_DOWN },
    { ngx_string("ASK"), NGX_IDEMPOTENCY_REDIS_REFUSAL_TRYAGAIN },
    { ngx_string("TRYAGAIN"), NGX_IDEMPOTENCY_REDIS_REFUSAL_TRYAGAIN },
    { ngx_null_string, 0 }
};


/* errors that are called ERR: what is somewhere in their text */

static ngx_idempotency_redis_refusal_t  ngx_idempotency_redis_refusal_texts[] =
{
    { ngx_string("The user executing the script can't"),
      NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("ACL failure in script"),
      NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_string("invalid password"),
      NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM },
    { ngx_null_string, 0 }
};


ngx_idempotency_redis_refusal_e
ngx_idempotency_redis_refusal(ngx_str_t *text)
{
    ngx_idempotency_redis_refusal_t  *r;

    for (r = ngx_idempotency_redis_refusal_words; r->text.len; r++) {
        if (ngx_idempotency_redis_refusal_has(text, &r->text)) {
            return r->refusal;
        }
    }

    for (r = ngx_idempotency_redis_refusal_texts; r->text.len; r++) {
        if (ngx_strlcasestrn(text->data, text->data + text->len,
                             r->text.data, r->text.len - 1))
        {
            return r->refusal;
        }
    }

    return NGX_IDEMPOTENCY_REDIS_REFUSAL_OTHER;
}


ngx_uint_t
ngx_idempotency_redis_refusal_has(ngx_str_t *text, ngx_str_t *part)
{
    u_char  *p, *last;

    last = text->data + text->len - part->len;

    for (p = text->data; p <= last; p++) {

        if ((p == text->data || p[-1] == '-')
            && ngx_strncmp(p, part->data, part->len) == 0
            && (p == last || p[part->len] == ' '))
        {
            return 1;
        }
    }

    return 0;
}
