
/*
 * What became of a request, said once: to its variable and to the log.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_EVENT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_EVENT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Sets the result of the request and logs it, at the level of the location:
 * a line for each result but "new" and "off".  "code" is that of a problem, or
 * NULL.  Of several results of one request the last one counts.
 */
void ngx_http_idempotency_event(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_result_e result, ngx_str_t *code);

/* The line of a result, where the request may be gone. */
void ngx_http_idempotency_event_log(ngx_log_t *log,
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_result_e result, ngx_str_t *code, u_char *digest,
    ngx_str_t *location);

/* The location that is protected, or that answers itself. */
ngx_str_t *ngx_http_idempotency_event_location(
    ngx_http_idempotency_ctx_t *ctx);


#endif /* _NGX_HTTP_IDEMPOTENCY_EVENT_H_INCLUDED_ */
