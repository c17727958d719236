
/*
 * The phase handlers: which location protects a request that may visit
 * several, and where it is claimed.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_PHASES_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_PHASES_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* Registers the phase handlers.  NGX_OK or NGX_ERROR. */
ngx_int_t ngx_http_idempotency_phases_init(ngx_conf_t *cf);


#endif /* _NGX_HTTP_IDEMPOTENCY_PHASES_H_INCLUDED_ */
