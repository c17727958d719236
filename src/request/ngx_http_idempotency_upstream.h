
/*
 * Everything that knows ngx_http_upstream_t.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_UPSTREAM_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_UPSTREAM_H_INCLUDED_


#include "ngx_http_idempotency_policy.h"


/* as many as ngx_http_idempotency_upstream_modules names before its NULL */
#define NGX_HTTP_IDEMPOTENCY_UPSTREAMS  5


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
 * A claimed request enters another location: notes how it came there.
 */
void ngx_http_idempotency_upstream_arrive(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/*
 * Puts our handler before the content handler of a claimed request, if it has
 * one.  Again after each internal redirect.
 */
void ngx_http_idempotency_upstream_wrap(ngx_http_request_t *r,
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

/* The last try has brought a whole header. */
ngx_uint_t ngx_http_idempotency_upstream_answered(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

/* The upstream's header line of that name, or NULL. */
ngx_str_t *ngx_http_idempotency_upstream_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *name);

/* The upstream is gone after its header and before its last byte. */
ngx_uint_t ngx_http_idempotency_upstream_cut(ngx_http_request_t *r);

/* An upstream was asked, or would have been. */
ngx_uint_t ngx_http_idempotency_upstream_asked(ngx_http_request_t *r);

/* The upstream is still at work for this request. */
ngx_uint_t ngx_http_idempotency_upstream_alive(ngx_http_request_t *r);

/* The answer is over because its connection was closed, and had no length. */
ngx_uint_t ngx_http_idempotency_upstream_by_close(ngx_http_request_t *r);


extern char  *ngx_http_idempotency_upstream_modules[];


#endif /* _NGX_HTTP_IDEMPOTENCY_UPSTREAM_H_INCLUDED_ */
