
/*
 * What is noted for people with the record of a request.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_NOTE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_NOTE_H_INCLUDED_


#include "ngx_http_idempotency.h"
#include "ngx_http_idempotency_policy.h"
#include "ngx_idempotency_note.h"


/*
 * The label of the request is evaluated, and noted by the claim with the
 * location.  An error leaves them out: it is no reason to refuse a request.
 */
void ngx_http_idempotency_note_claim(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op);

/* Why the outcome that policy has called unknown is so. */
ngx_idempotency_reason_e ngx_http_idempotency_note_reason(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx,
    const ngx_http_idempotency_facts_t *facts, ngx_idempotency_op_e type);

/*
 * For the operation that settles the claim: the label of what is done; of
 * what is unknown all that is known, and one line in the error log, for people
 * who have to find out what happened.
 */
void ngx_http_idempotency_note_settle(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op);


#endif /* _NGX_HTTP_IDEMPOTENCY_NOTE_H_INCLUDED_ */
