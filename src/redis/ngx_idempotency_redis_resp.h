
/*
 * RESP: commands to bytes, bytes to replies, and what an error reply means.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_RESP_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_RESP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


typedef struct ngx_idempotency_redis_reader_s  ngx_idempotency_redis_reader_t;
typedef struct ngx_idempotency_redis_reply_s   ngx_idempotency_redis_reply_t;


typedef enum {
    NGX_IDEMPOTENCY_REDIS_NIL = 0,
    NGX_IDEMPOTENCY_REDIS_STATUS,
    NGX_IDEMPOTENCY_REDIS_ERROR,
    NGX_IDEMPOTENCY_REDIS_INTEGER,
    NGX_IDEMPOTENCY_REDIS_STRING,
    NGX_IDEMPOTENCY_REDIS_ARRAY
} ngx_idempotency_redis_type_e;


/* what an error reply means */

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
 * A command as bytes, to be given back with free.  NGX_OK or NGX_ERROR when
 * memory is short.
 */
ngx_int_t ngx_idempotency_redis_encode(ngx_str_t *args, ngx_uint_t n,
    ngx_str_t *bytes);
void ngx_idempotency_redis_encode_free(ngx_str_t *bytes);

/*
 * For commands with a common prefix.  begin: the bytes of a command of "n"
 * arguments up to the last one given, from the pool.  rest: the other
 * arguments, of at most rest_len bytes; returns their end.
 */
ngx_int_t ngx_idempotency_redis_encode_begin(ngx_pool_t *pool,
    ngx_str_t *args, ngx_uint_t given, ngx_uint_t n, ngx_str_t *bytes);
size_t ngx_idempotency_redis_encode_rest_len(ngx_str_t *args, ngx_uint_t n);
u_char *ngx_idempotency_redis_encode_rest(u_char *p, ngx_str_t *args,
    ngx_uint_t n);

/*
 * A reader takes bytes as they come and gives replies.  feed: NGX_OK, or
 * NGX_ERROR when memory is short.  next: NGX_OK with a reply that the caller
 * frees, NGX_AGAIN when it is not complete yet; NGX_ERROR, after the last
 * reply that is whole, when what follows is not RESP or more than "max" bytes
 * make no reply: "error" then says what is wrong with them.
 */
ngx_idempotency_redis_reader_t *ngx_idempotency_redis_reader_create(
    size_t max);
void ngx_idempotency_redis_reader_free(
    ngx_idempotency_redis_reader_t *reader);
ngx_int_t ngx_idempotency_redis_reader_feed(
    ngx_idempotency_redis_reader_t *reader, u_char *data, size_t len);
ngx_int_t ngx_idempotency_redis_reader_next(
    ngx_idempotency_redis_reader_t *reader,
    ngx_idempotency_redis_reply_t **reply);
const char *ngx_idempotency_redis_reader_error(
    ngx_idempotency_redis_reader_t *reader);
void ngx_idempotency_redis_reply_free(ngx_idempotency_redis_reply_t *reply);

/* What a reply is; each answers harmlessly for a reply of another type. */
ngx_idempotency_redis_type_e ngx_idempotency_redis_reply_type(
    ngx_idempotency_redis_reply_t *reply);
/* status, error and string: the bytes, else empty */
void ngx_idempotency_redis_reply_string(ngx_idempotency_redis_reply_t *reply,
    ngx_str_t *s);
/* is it an error that begins with this word? */
ngx_uint_t ngx_idempotency_redis_reply_is_error(
    ngx_idempotency_redis_reply_t *reply, const char *word);
int64_t ngx_idempotency_redis_reply_integer(
    ngx_idempotency_redis_reply_t *reply);
ngx_uint_t ngx_idempotency_redis_reply_elements(
    ngx_idempotency_redis_reply_t *reply);
/* NULL when there is none at "i" */
ngx_idempotency_redis_reply_t *ngx_idempotency_redis_reply_element(
    ngx_idempotency_redis_reply_t *reply, ngx_uint_t i);
/* the bytes of the element at "i", as reply_string has them */
void ngx_idempotency_redis_reply_text(ngx_idempotency_redis_reply_t *reply,
    ngx_uint_t i, ngx_str_t *s);
/* of an array with alternating names and values: the value, else empty */
void ngx_idempotency_redis_reply_value(ngx_idempotency_redis_reply_t *reply,
    const char *name, ngx_str_t *s);

/*
 * Reads the text of an error reply.  Before Redis 7 the error of a command
 * within a script stands somewhere in the text of the script's error.
 */
ngx_idempotency_redis_refusal_e ngx_idempotency_redis_refusal(ngx_str_t *text);
/* Is it this error, of the command or of one within its script? */
ngx_uint_t ngx_idempotency_redis_error_is(
    ngx_idempotency_redis_reply_t *reply, const char *word);
/*
 * Does it say that the server is a replica, or about to be one?  Then it has
 * not executed the command.
 */
ngx_uint_t ngx_idempotency_redis_error_is_no_master(
    ngx_idempotency_redis_reply_t *reply);


#endif /* _NGX_IDEMPOTENCY_REDIS_RESP_H_INCLUDED_ */
