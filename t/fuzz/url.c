
/*
 * The target of a Redis store, and its parameters: lines of the input.
 */


#include "fuzz.h"
#include "ngx_idempotency_redis_conf.h"


void
fuzz_init(void)
{
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    u_char                   *p, *last;
    ngx_str_t                 line, word;
    ngx_uint_t                i;
    ngx_idempotency_redis_t   redis;

    ngx_memzero(&redis, sizeof(ngx_idempotency_redis_t));
    ngx_str_set(&redis.name, "fuzz");

    p = in->data;
    last = in->data + in->len;

    for (i = 0; p < last && i < 10; i++) {

        line.data = p;
        p = ngx_strlchr(p, last, LF);
        p = p ? p : last;
        line.len = p - line.data;
        p = (p < last) ? p + 1 : last;

        word = fuzz_word(pool, &line);

        if (i > 0) {
            (void) ngx_idempotency_redis_conf_param(&fuzz_conf, &word,
                                                    &redis);
            continue;
        }

        if (ngx_idempotency_redis_conf_target(&fuzz_conf, &word, &redis)
            != NGX_CONF_OK)
        {
            return;
        }

        fuzz_want(redis.topology && redis.hosts.nelts > 0);
    }
}
