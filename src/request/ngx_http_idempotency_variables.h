
/*
 * The variables $idempotency_*.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_VARIABLES_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_VARIABLES_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* by ngx_http_idempotency_result_e */
extern ngx_str_t  ngx_http_idempotency_result_names[];


ngx_int_t ngx_http_idempotency_variables_add(ngx_conf_t *cf);


#endif /* _NGX_HTTP_IDEMPOTENCY_VARIABLES_H_INCLUDED_ */
