
/*
 * What an upstream has sent and received.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_UPSTREAM_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_UPSTREAM_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/* An upstream was asked, or would have been. */

#define ngx_http_idempotency_upstream_asked(r)  ((r)->upstream != NULL)

/* The upstream is still at work for this request. */

#define ngx_http_idempotency_upstream_alive(r)                                \
    ((r)->upstream && (r)->upstream->cleanup)

/*
 * The upstream is gone after its header and before its last byte:
 * ngx_http_upstream_finalize_request() sends nothing but a flush then.  After
 * an X-Accel-Redirect the finalized upstream is still there, with its header
 * unsent.
 */

#define ngx_http_idempotency_upstream_cut(r)                                  \
    ((r)->upstream                                                            \
     && (r)->upstream->cleanup == NULL                                        \
     && (r)->upstream->header_sent)


/*
 * Refuses at configuration what would send a request twice.  Returns
 * NGX_CONF_OK, or NGX_CONF_ERROR after having logged why.
 */
char *ngx_http_idempotency_upstream_check(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf, ngx_uint_t methods);

/*
 * From now on the request is protected: what was sent by locations before
 * does not count.
 */
void ngx_http_idempotency_upstream_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * What was sent and what came back, for policy; the status is the upstream's
 * if it has sent one, else 0.
 */
void ngx_http_idempotency_upstream_facts(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_facts_t *facts);

/* The bytes that were sent, over all tries: 0 if nothing left this host. */
off_t ngx_http_idempotency_upstream_sent(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * The server of the last try, empty if there was none, and the status that
 * nginx has given to that try, 0 if it is not over.
 */
void ngx_http_idempotency_upstream_last_try(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *peer, ngx_uint_t *status);

/* The last try has brought a whole header. */
ngx_uint_t ngx_http_idempotency_upstream_answered(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Was the error that nginx reports made in this location?  Otherwise error_page
 * has led here with that status, and what the location sends is the page.
 */
ngx_uint_t ngx_http_idempotency_upstream_failed_here(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The request enters a location: for the above. */
void ngx_http_idempotency_upstream_enter(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The upstream's header line of that name, or NULL. */
ngx_str_t *ngx_http_idempotency_upstream_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *name);

/* The answer ended because its connection was closed, and had no length. */
ngx_uint_t ngx_http_idempotency_upstream_by_close(ngx_http_request_t *r);

/*
 * For a probe: calls a content handler so that its upstream is asked, and the
 * answer neither comes from a cache nor goes into one.  Returns what the
 * handler returns.
 */
ngx_int_t ngx_http_idempotency_upstream_uncached(ngx_http_request_t *r,
    ngx_http_handler_pt handler);

/*
 * For the header filter: the header that is being sent is the one that the
 * upstream of this request has just sent, with its status.
 */
ngx_uint_t ngx_http_idempotency_upstream_is_answering(ngx_http_request_t *r);

/* 1: the request was given to an upstream before, here or in another place. */
#define ngx_http_idempotency_upstream_was_tried(r)                            \
    ((r)->upstream_states != NULL)


#endif /* _NGX_HTTP_IDEMPOTENCY_UPSTREAM_H_INCLUDED_ */
