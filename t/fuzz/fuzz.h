
/*
 * A fuzz target is one file t/fuzz/NAME.c that defines fuzz_one(), and some
 * seeds in t/fuzz/corpus/NAME/; t/fuzz/run finds both.  It is linked with all
 * of nginx and of the module (libnginx.a of t/tools/sanitized-nginx); a target
 * that wants static functions includes the .c file that has them, and no other
 * copy of that file is linked.
 *
 * fuzz_one() gets bytes that end where they end: reading one more is
 * noticed.  Whatever it takes from the pool is freed when it returns.  What
 * must be true is said by fuzz_want().
 */


#ifndef _FUZZ_H_INCLUDED_
#define _FUZZ_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>


/* The target's own; fuzz_init() is called once, before. */
void fuzz_init(void);
void fuzz_one(ngx_pool_t *pool, ngx_str_t *in);


#define fuzz_want(what)                                                       \
    if (!(what)) {                                                            \
        fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);    \
        abort();                                                              \
    }


/* The first byte, or 0; the rest stays. */
static inline u_char
fuzz_byte(ngx_str_t *in)
{
    if (in->len == 0) {
        return 0;
    }

    in->len--;

    return *in->data++;
}


/* A copy with nothing behind it, or with a zero as in a configuration. */
ngx_str_t fuzz_copy(ngx_pool_t *pool, ngx_str_t *in);
ngx_str_t fuzz_word(ngx_pool_t *pool, ngx_str_t *in);


extern ngx_conf_t  fuzz_conf;


#endif /* _FUZZ_H_INCLUDED_ */
