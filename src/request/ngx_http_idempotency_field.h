
/*
 * Fields of the body as variables.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_FIELD_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_FIELD_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * The get handler of such a variable; "data" is an
 * ngx_http_idempotency_field_t.  Empty before the body is read.  A body that
 * cannot be read sets ctx->request_body.invalid.
 */
ngx_int_t ngx_http_idempotency_field_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


#endif /* _NGX_HTTP_IDEMPOTENCY_FIELD_H_INCLUDED_ */
