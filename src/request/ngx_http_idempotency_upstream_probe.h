
/*
 * The upstream of a probe.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_UPSTREAM_PROBE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_UPSTREAM_PROBE_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Calls a content handler so that its upstream is asked: the answer neither
 * comes from a cache nor goes into one.  Returns what the handler returns.
 */
ngx_int_t ngx_http_idempotency_upstream_uncached(ngx_http_request_t *r,
    ngx_http_handler_pt handler);

/*
 * For the header filter: the header that is being sent is the one that the
 * upstream of this request has just sent, with its status.
 */
ngx_uint_t ngx_http_idempotency_upstream_speaks(ngx_http_request_t *r);


#endif /* _NGX_HTTP_IDEMPOTENCY_UPSTREAM_PROBE_H_INCLUDED_ */
