
/*
 * Header and body filter: hold, collect, complete, let go.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_CAPTURE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_CAPTURE_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* our bit in r->buffered */
#define NGX_HTTP_IDEMPOTENCY_BUFFERED  0x08


/* Puts the two filters on top of their chains. */
void ngx_http_idempotency_capture_init(void);


#endif /* _NGX_HTTP_IDEMPOTENCY_CAPTURE_H_INCLUDED_ */
