
/*
 * What became of a request, said once: to its variable and to the log.
 */


#include "ngx_http_idempotency_event.h"
#include "ngx_http_idempotency_variables.h"


/* the rest of a line, the name of a location may be cut off */
#define NGX_HTTP_IDEMPOTENCY_EVENT_TEXT  512


void
ngx_http_idempotency_event(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_result_e result, ngx_str_t *code)
{
    ctx->result = result;

    /* without a source the record has no name yet */

    ngx_http_idempotency_event_log(ctx->request->connection->log, ctx->conf,
                                   result, code,
                                   ctx->source.len ? ctx->digest : NULL,
                                   ngx_http_idempotency_event_location(ctx));
}


void
ngx_http_idempotency_event_log(ngx_log_t *log,
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_result_e result, ngx_str_t *code, u_char *digest,
    ngx_str_t *location)
{
    u_char  *p, *last;
    u_char   text[NGX_HTTP_IDEMPOTENCY_EVENT_TEXT];

    if (result == NGX_HTTP_IDEMPOTENCY_NEW
        || result == NGX_HTTP_IDEMPOTENCY_OFF
        || log->log_level < conf->log_level)
    {
        return;
    }

    p = text;
    last = text + sizeof(text);

    if (code) {
        p = ngx_slprintf(p, last, ", code \"%V\"", code);
    }

    if (digest) {
        p = ngx_slprintf(p, last, ", record \"%*xs\"", (size_t) 8, digest);
    }

    p = ngx_slprintf(p, last, ", location \"%V\"", location);

    ngx_log_error(conf->log_level, log, 0, "idempotency %s \"%V\"%*s",
                  conf->dry_run ? "dry run: request would have been"
                                : "request was",
                  &ngx_http_idempotency_result_names[result],
                  (size_t) (p - text), text);
}


ngx_str_t *
ngx_http_idempotency_event_location(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_location_t   *locations;
    ngx_http_idempotency_main_conf_t  *imcf;

    if (ctx->conf->endpoint) {
        clcf = ngx_http_get_module_loc_conf(ctx->request,
                                            ngx_http_core_module);
        return &clcf->name;
    }

    /* a redirect may have brought another one */

    imcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_idempotency_module);
    locations = imcf->locations.elts;

    return &locations[ctx->conf->location].location;
}
