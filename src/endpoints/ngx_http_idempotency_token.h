
/*
 * Tokens: keys that are given out before they are used.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_TOKEN_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_TOKEN_H_INCLUDED_


#include "ngx_http_idempotency.h"


/* The directive: the location answers with a token. */
char *ngx_http_idempotency_token(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


#endif /* _NGX_HTTP_IDEMPOTENCY_TOKEN_H_INCLUDED_ */
