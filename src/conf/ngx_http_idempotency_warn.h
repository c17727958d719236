
/*
 * Warnings of "nginx -t": configurations that are accepted and are mistakes.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_WARN_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_WARN_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Logs what it finds, with the file and the line of the directive.  All
 * configurations are merged, and the trees of locations are made: it is called
 * from the postconfiguration of the module.
 */
void ngx_http_idempotency_warn(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf);

/* The part of it that looks at the probe of a protected location. */
void ngx_http_idempotency_warn_probe(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location);

/* A module's configuration, or NULL where nginx does not have the module. */
void *ngx_http_idempotency_warn_module(ngx_conf_t *cf, void **confs,
    char *name);


#endif /* _NGX_HTTP_IDEMPOTENCY_WARN_H_INCLUDED_ */
