
/*
 * The phase handlers: identify, body, claim, act.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_HANDLER_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_HANDLER_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* Registers the handlers of the access and the precontent phase. */
ngx_int_t ngx_http_idempotency_handler_init(ngx_conf_t *cf);


#endif /* _NGX_HTTP_IDEMPOTENCY_HANDLER_H_INCLUDED_ */
