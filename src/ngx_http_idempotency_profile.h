
/*
 * What a profile says where the configuration says nothing.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_PROFILE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_PROFILE_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Sets the values that count in a location from those that were given there
 * or further out, all of which are in conf->given, and from its profile.
 * "prev" is the level around it.  NGX_ERROR when memory is short.
 */
ngx_int_t ngx_http_idempotency_profile_apply(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);


#endif /* _NGX_HTTP_IDEMPOTENCY_PROFILE_H_INCLUDED_ */
