
/*
 * Lookups: shows the record of a key, and lets operators change records.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_LOOKUP_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_LOOKUP_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* The directive: the location shows records of a store. */
char *ngx_http_idempotency_lookup(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


#endif /* _NGX_HTTP_IDEMPOTENCY_LOOKUP_H_INCLUDED_ */
