
/*
 * Named moments at which a debug build can stop, delay or kill its worker.
 */


#include "ngx_http_idempotency_failpoint.h"


void
ngx_http_idempotency_failpoint(ngx_http_idempotency_ctx_t *ctx, char *moment)
{
    size_t               len;
    ngx_int_t            ms;
    ngx_str_t            value;
    ngx_http_request_t  *r;

    r = ctx->request;

    if (ctx->conf->failpoint == NULL
        || ngx_http_complex_value(r, ctx->conf->failpoint, &value) != NGX_OK)
    {
        return;
    }

    len = ngx_strlen(moment);

    if (value.len <= len + 1
        || value.data[len] != ':'
        || ngx_strncmp(value.data, moment, len) != 0)
    {
        return;
    }

    value.data += len + 1;
    value.len -= len + 1;

    ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                  "idempotency failpoint \"%s:%V\"", moment, &value);

    if (value.len == 4 && ngx_strncmp(value.data, "kill", 4) == 0) {
        (void) kill(ngx_pid, SIGKILL);
        return;
    }

    if (value.len == 4 && ngx_strncmp(value.data, "stop", 4) == 0) {
        (void) kill(ngx_pid, SIGSTOP);
        return;
    }

    ms = ngx_atoi(value.data, value.len);

    if (ms > 0) {
        ngx_msleep(ms);
    }
}
