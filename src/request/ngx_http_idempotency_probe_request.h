
/*
 * The request that a probe sends: a GET of the probe's URI.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_PROBE_REQUEST_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_PROBE_REQUEST_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* what a subrequest would share with the main request, see _prepare() */

typedef struct {
    ngx_str_t                   line;          /* the request line */
    ngx_str_t                   unparsed_uri;  /* a part of it */
    ngx_list_t                  headers;
    ngx_http_request_body_t    *body;
    ngx_http_variable_value_t  *variables;
} ngx_http_idempotency_probe_request_t;


/*
 * At configuration: makes $request_method a variable that a subrequest can
 * have of its own.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_probe_request_init(ngx_conf_t *cf);

/*
 * Makes all that the subrequest of a probe has for itself: a request line
 * and URI that name the probe, the main request's headers but for those of
 * its body and its conditions, an empty body, and variables that have the
 * values of the main request's unless they depend on these.  NGX_OK or
 * NGX_ERROR.
 */
ngx_int_t ngx_http_idempotency_probe_request_prepare(ngx_http_request_t *r,
    ngx_str_t *uri, ngx_str_t *args,
    ngx_http_idempotency_probe_request_t *pr);

/* Gives that to the subrequest; cannot fail. */
void ngx_http_idempotency_probe_request_set(ngx_http_request_t *sr,
    ngx_http_idempotency_probe_request_t *pr);


#endif /* _NGX_HTTP_IDEMPOTENCY_PROBE_REQUEST_H_INCLUDED_ */
