
/*
 * Named moments at which a debug build can stop, delay or kill its worker.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_FAILPOINT_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_FAILPOINT_H_INCLUDED_


#include "ngx_http_idempotency.h"


/*
 * Does what idempotency_failpoint says for this moment: its value is
 * "MOMENT:kill", "MOMENT:stop" (SIGSTOP) or "MOMENT:MILLISECONDS", a sleep
 * that blocks the worker.  Other builds have no such directive and no code
 * here.
 */

#if (NGX_HTTP_IDEMPOTENCY_DEBUG)

void ngx_http_idempotency_failpoint(ngx_http_idempotency_ctx_t *ctx,
    char *moment);

#else

#define ngx_http_idempotency_failpoint(ctx, moment)

#endif


#endif /* _NGX_HTTP_IDEMPOTENCY_FAILPOINT_H_INCLUDED_ */
