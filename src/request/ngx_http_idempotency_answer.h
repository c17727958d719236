
/*
 * The answer that a request collects: its bytes, and what is kept of them.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_ANSWER_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_ANSWER_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/*
 * The upstream's own word on what its answer means, if its header was received
 * whole; ctx->ttl is set if it gives one.  The header line is taken out of the
 * answer.
 */
ngx_http_idempotency_word_e ngx_http_idempotency_answer_word(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx,
    const ngx_http_idempotency_facts_t *facts);

/* Takes that header line out; returns its value, or NULL. */
ngx_str_t *ngx_http_idempotency_answer_strip(ngx_http_request_t *r);

/* Can this answer be kept at all, as far as its header tells? */
ngx_uint_t ngx_http_idempotency_answer_storable(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* Forgets what was collected. */
void ngx_http_idempotency_answer_reset(ngx_http_idempotency_ctx_t *ctx);

/*
 * Copies the bytes of a chain and marks them as consumed.  NGX_OK: the last
 * one was there.  NGX_AGAIN: more will come.  NGX_DECLINED: it became too
 * much, "in" is what was not copied.  NGX_ERROR: memory is short.
 */
ngx_int_t ngx_http_idempotency_answer_collect(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t **in);

/* Puts a chain behind what was collected, without copying its bytes. */
ngx_int_t ngx_http_idempotency_answer_keep(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in);

/* Is the body as long as the header says? */
ngx_uint_t ngx_http_idempotency_answer_is_whole(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The length is known now: the first answer says it, as replays will. */
void ngx_http_idempotency_answer_announce(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Hands the answer to the operation that will keep it, sealed if there is a
 * secret.  What cannot be handed over is not kept.
 */
void ngx_http_idempotency_answer_give(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op);

/* The same for an operation that has its head and body already. */
void ngx_http_idempotency_answer_seal(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op);


#endif /* _NGX_HTTP_IDEMPOTENCY_ANSWER_H_INCLUDED_ */
