
/*
 * Configuration: defaults, inheritance, and what is refused.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_MERGE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_MERGE_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* As nginx calls them, see ngx_http_module_t. */
void *ngx_http_idempotency_create_main_conf(ngx_conf_t *cf);
void *ngx_http_idempotency_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_idempotency_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);


#endif /* _NGX_HTTP_IDEMPOTENCY_MERGE_H_INCLUDED_ */
