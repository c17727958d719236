
/*
 * For tests only: runs one operation of a store over HTTP.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_EXERCISE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_EXERCISE_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * The directive "idempotency_exercise STORE".  The location then answers
 *
 *     ?op=claim|complete|release|mark_unknown|probe|renew|issue|fetch|resolve
 *         |purge
 *
 *      key=TEXT owner=TEXT fp=TEXT   padded to the sizes of a record; renew
 *                                    takes several keys, "a,b,c"
 *      digest=HEX                    instead of key
 *      lease=MSEC ttl=SEC tombstone=SEC status=CODE executed=1
 *      flags=unknown,issued
 *      fence=NUMBER|current          current: that of the record now
 *      head=TEXT head_len=N          text, or N bytes of a pattern
 *      body=TEXT body_len=N bufs=N   in so many buffers
 *      keep=0                        keep neither
 *      after=MSEC                    the clock is ahead by that much
 *      kill=N                        dies at the N-th point inside the mutex
 *      pause=MSEC                    sleeps between the first two steps
 *
 * by lines "result: ...", "state: ..." and so on, or "error: ...".  What else
 * it can do is in the table of ngx_http_idempotency_exercise.c.
 */
char *ngx_http_idempotency_exercise(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


/* an argument as text; empty when there is none */
ngx_str_t ngx_http_idempotency_exercise_text(ngx_http_request_t *r,
    char *name);

/* an argument as a number, or the default */
int64_t ngx_http_idempotency_exercise_number(ngx_http_request_t *r,
    char *name, int64_t value);

/* "len" bytes of a pattern that does not repeat within 64 KB */
void ngx_http_idempotency_exercise_pattern(u_char *p, size_t len);

/* the result of an operation; "rc" is what its submission returned */
ngx_int_t ngx_http_idempotency_exercise_show(ngx_http_request_t *r,
    ngx_idempotency_op_t *op, ngx_int_t rc);

/* sends text/plain */
ngx_int_t ngx_http_idempotency_exercise_send(ngx_http_request_t *r,
    ngx_buf_t *b);


/* of waiters; in ngx_http_idempotency_exercise_show.c */

ngx_int_t ngx_http_idempotency_exercise_poll(ngx_http_request_t *r,
    ngx_idempotency_store_t *store);

/* of the embedded store's zone; in ngx_http_idempotency_exercise_shm.c */

ngx_int_t ngx_http_idempotency_exercise_info(ngx_http_request_t *r,
    ngx_idempotency_store_t *store);
ngx_int_t ngx_http_idempotency_exercise_fill(ngx_http_request_t *r,
    ngx_idempotency_store_t *store);
ngx_int_t ngx_http_idempotency_exercise_scribble(ngx_http_request_t *r,
    ngx_idempotency_store_t *store);

/* of the codec; in ngx_http_idempotency_exercise_head.c */

ngx_int_t ngx_http_idempotency_exercise_head(ngx_http_request_t *r,
    ngx_idempotency_store_t *store);
ngx_int_t ngx_http_idempotency_exercise_decode(ngx_http_request_t *r,
    ngx_idempotency_store_t *store);
ngx_int_t ngx_http_idempotency_exercise_fuzz(ngx_http_request_t *r,
    ngx_idempotency_store_t *store);


#endif /* _NGX_HTTP_IDEMPOTENCY_EXERCISE_H_INCLUDED_ */
