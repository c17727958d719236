
/*
 * What an error reply of Redis means.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_REFUSAL_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_REFUSAL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


typedef enum {
    NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE = 0,
    NGX_IDEMPOTENCY_REDIS_REFUSAL_READONLY,     /* it is a replica */
    NGX_IDEMPOTENCY_REDIS_REFUSAL_OOM,
    NGX_IDEMPOTENCY_REDIS_REFUSAL_NOREPLICAS,   /* min-replicas-to-write */
    NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM,       /* or a wrong password */
    NGX_IDEMPOTENCY_REDIS_REFUSAL_MISCONF,      /* it cannot save */
    NGX_IDEMPOTENCY_REDIS_REFUSAL_LOADING,
    NGX_IDEMPOTENCY_REDIS_REFUSAL_DOWN,         /* others are, it waits */
    NGX_IDEMPOTENCY_REDIS_REFUSAL_TRYAGAIN,     /* the slot moves */
    NGX_IDEMPOTENCY_REDIS_REFUSAL_NO_AOF,       /* no WAITAOF, or no AOF */
    NGX_IDEMPOTENCY_REDIS_REFUSAL_OTHER
} ngx_idempotency_redis_refusal_e;


/*
 * Reads the text of an error reply.  Before Redis 7 that of a command in a
 * script stands somewhere in the text of the script's error.
 */
ngx_idempotency_redis_refusal_e ngx_idempotency_redis_refusal(ngx_str_t *text);
/* As a whole word at the beginning, or behind the "-" of such an error? */
ngx_uint_t ngx_idempotency_redis_refusal_has(ngx_str_t *text,
    ngx_str_t *part);


#endif /* _NGX_IDEMPOTENCY_REDIS_REFUSAL_H_INCLUDED_ */
