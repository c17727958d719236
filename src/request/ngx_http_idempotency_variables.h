
/*
 * The variables $idempotency_*.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_VARIABLES_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_VARIABLES_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* At preconfiguration.  NGX_OK or NGX_ERROR. */
ngx_int_t ngx_http_idempotency_variables_add(ngx_conf_t *cf);


#endif /* _NGX_HTTP_IDEMPOTENCY_VARIABLES_H_INCLUDED_ */
