
/*
 * The variables $idempotency_*.
 */


#include "ngx_http_idempotency_variables.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_identify.h"


static ngx_int_t ngx_http_idempotency_variable_result(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_variable_string(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_variable_number(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_variable_store_time(
    ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_variable_suspect(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_variable_record(
    ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_variable_uri(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_variable_set(
    ngx_http_variable_value_t *v, u_char *data, size_t len);


#define NGX_HTTP_IDEMPOTENCY_FENCE    0
#define NGX_HTTP_IDEMPOTENCY_ATTEMPT  1
#define NGX_HTTP_IDEMPOTENCY_AGE      2


static ngx_http_variable_t  ngx_http_idempotency_vars[] = {

    { ngx_string("idempotency_result"), NULL,
      ngx_http_idempotency_variable_result,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_key"), NULL,
      ngx_http_idempotency_variable_string,
      offsetof(ngx_http_idempotency_ctx_t, identity.key),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_source"), NULL,
      ngx_http_idempotency_variable_string,
      offsetof(ngx_http_idempotency_ctx_t, identity.source),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_fence"), NULL,
      ngx_http_idempotency_variable_number,
      NGX_HTTP_IDEMPOTENCY_FENCE, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_attempt"), NULL,
      ngx_http_idempotency_variable_number,
      NGX_HTTP_IDEMPOTENCY_ATTEMPT, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_age"), NULL,
      ngx_http_idempotency_variable_number,
      NGX_HTTP_IDEMPOTENCY_AGE, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_store_time"), NULL,
      ngx_http_idempotency_variable_store_time,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_suspect"), NULL,
      ngx_http_idempotency_variable_suspect,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_label"), NULL,
      ngx_http_idempotency_variable_string,
      offsetof(ngx_http_idempotency_ctx_t, identity.label),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_record"), NULL,
      ngx_http_idempotency_variable_record,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_upstream_key"), NULL,
      ngx_http_idempotency_variable_record,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_uri"), NULL,
      ngx_http_idempotency_variable_uri, 0, 0, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_idempotency_variables_add(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_idempotency_vars; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_variable_result(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                   *result;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r->main);

    result = &ngx_http_idempotency_result_names[ctx ? ctx->result
                                               : NGX_HTTP_IDEMPOTENCY_OFF];

    return ngx_http_idempotency_variable_set(v, result->data, result->len);
}


static ngx_int_t
ngx_http_idempotency_variable_string(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                   *s;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r->main);

    if (ctx == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    s = (ngx_str_t *) ((char *) ctx + data);

    if (s->len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    return ngx_http_idempotency_variable_set(v, s->data, s->len);
}


static ngx_int_t
ngx_http_idempotency_variable_number(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                      *p;
    uint64_t                     n;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r->main);

    if (ctx == NULL || ctx->fence == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    switch (data) {

    case NGX_HTTP_IDEMPOTENCY_FENCE:
        n = ctx->fence;
        break;

    case NGX_HTTP_IDEMPOTENCY_ATTEMPT:
        n = ctx->attempt;
        break;

    default: /* NGX_HTTP_IDEMPOTENCY_AGE */
        n = ngx_max(ngx_time() - ctx->created, 0);
        break;
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_variable_set(v, p,
                                             ngx_sprintf(p, "%uL", n) - p);
}


/* seconds with milliseconds, as $upstream_response_time */

static ngx_int_t
ngx_http_idempotency_variable_store_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                      *p, *last;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r->main);

    if (ctx == NULL || ctx->op == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_sprintf(p, "%T.%03M", (time_t) ctx->store_time / 1000,
                       ctx->store_time % 1000);

    return ngx_http_idempotency_variable_set(v, p, last - p);
}


static ngx_int_t
ngx_http_idempotency_variable_suspect(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r->main);

    if (ctx == NULL || ctx->suspect == NULL || !ctx->suspect->looked) {
        v->not_found = 1;
        return NGX_OK;
    }

    return ngx_http_idempotency_variable_set(v,
                              (u_char *) (ctx->suspect->suspected ? "1" : "0"),
                              1);
}


/*
 * The name of the record, which is made of scope, source and key and of
 * nothing else: it stays the same for as long as the upstream may have to
 * recognise it.  It is written as in a list of records, see query.c.
 */

static ngx_int_t
ngx_http_idempotency_variable_record(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                      *p;
    ngx_http_idempotency_ctx_t  *ctx;
    u_char                       digest[NGX_IDEMPOTENCY_DIGEST_LEN];

    ctx = ngx_http_idempotency_get_ctx(r->main);

    if (ctx == NULL || ctx->identity.source.len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    ngx_memcpy(digest, ctx->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    /* a retry after the end of a dry run must be recognised as well */

    if (ctx->conf->dry_run
        && ngx_http_idempotency_identify_name(r, ctx, 0, digest) != NGX_OK)
    {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(r->pool, 2 * NGX_IDEMPOTENCY_DIGEST_LEN + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    v->data = p;

    p = ngx_hex_dump(p, digest, NGX_IDEMPOTENCY_DIGEST_LEN / 2);

    if (ctx->identity.flags & NGX_IDEMPOTENCY_SEQUENCE) {
        *p++ = '-';
    }

    p = ngx_hex_dump(p, digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                     NGX_IDEMPOTENCY_DIGEST_LEN / 2);

    return ngx_http_idempotency_variable_set(v, v->data, p - v->data);
}


/*
 * The path that the client has asked for.  r->valid_unparsed_uri does not
 * tell whether r->uri is that path: ngx_http_try_files_handler() changes
 * r->uri and leaves the flag.  Whatever changes r->uri gives it other memory.
 */

static ngx_int_t
ngx_http_idempotency_variable_uri(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t  uri;

    switch (ngx_http_idempotency_identify_uri(r->main, &uri)) {

    case NGX_OK:
        return ngx_http_idempotency_variable_set(v, uri.data, uri.len);

    case NGX_ERROR:
        return NGX_ERROR;

    default: /* NGX_DECLINED */
        v->not_found = 1;
        return NGX_OK;
    }
}


static ngx_int_t
ngx_http_idempotency_variable_set(ngx_http_variable_value_t *v, u_char *data,
    size_t len)
{
    v->data = data;
    v->len = len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}
