
/*
 * The arguments of a lookup.  A record is written as the 64 hex digits of its
 * digest; a "-" in the middle marks one of a sequence, whose key in Redis has
 * another form.
 */


#include "ngx_http_idempotency_query.h"


/* records of one page, and of an export */
#define NGX_HTTP_IDEMPOTENCY_QUERY_PAGE    256
#define NGX_HTTP_IDEMPOTENCY_QUERY_EXPORT  10000


static ngx_int_t ngx_http_idempotency_query_arg(ngx_http_request_t *r,
    char *name, ngx_str_t *value);
static ngx_uint_t ngx_http_idempotency_query_is(ngx_str_t *value, char *word);
static ngx_int_t ngx_http_idempotency_query_record(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *value);
static ngx_int_t ngx_http_idempotency_query_list(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_query_state(
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *value);
static ngx_int_t ngx_http_idempotency_query_format(
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *value);
static ngx_int_t ngx_http_idempotency_query_cursor(
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *value);
static ngx_int_t ngx_http_idempotency_query_fence(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_query_resolve(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


ngx_int_t
ngx_http_idempotency_query(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_str_t                      value;
    ngx_http_idempotency_query_t  *query;

    query = ngx_pcalloc(r->pool, sizeof(ngx_http_idempotency_query_t));
    if (query == NULL) {
        return NGX_ERROR;
    }

    ctx->query = query;
    query->type = NGX_IDEMPOTENCY_FETCH;
    query->after = -1;
    query->cursor.data = query->text;

    if (ctx->conf->cancel
        && r->method == NGX_HTTP_DELETE
        && !(ctx->conf->admin
             && (ngx_http_arg(r, (u_char *) "fence", 5, &value) == NGX_OK
                 || ngx_http_arg(r, (u_char *) "record", 6, &value)
                    == NGX_OK)))
    {
        query->type = NGX_IDEMPOTENCY_CANCEL;
        return NGX_OK;
    }

    if (!ctx->conf->admin) {
        return NGX_OK;
    }

    rc = ngx_http_idempotency_query_arg(r, "record", &value);

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_query_record(r, ctx, &value);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (rc == NGX_ERROR
        || ngx_http_idempotency_query_arg(r, "label", &query->label)
           == NGX_ERROR
        || ngx_http_idempotency_query_arg(r, "confirm", &query->confirm)
           == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    switch (r->method) {

    case NGX_HTTP_DELETE:
        query->type = NGX_IDEMPOTENCY_PURGE;
        return ngx_http_idempotency_query_fence(r, ctx);

    case NGX_HTTP_POST:
        query->type = NGX_IDEMPOTENCY_RESOLVE;
        return ngx_http_idempotency_query_resolve(r, ctx);

    default: /* NGX_HTTP_GET, NGX_HTTP_HEAD */

        if (ngx_http_arg(r, (u_char *) "state", 5, &value) != NGX_OK) {
            return NGX_OK;
        }

        query->type = NGX_IDEMPOTENCY_LIST;
        return ngx_http_idempotency_query_list(r, ctx);
    }
}


ngx_int_t
ngx_http_idempotency_query_error(ngx_http_idempotency_ctx_t *ctx, char *error)
{
    ctx->request_body.error.data = (u_char *) error;
    ctx->request_body.error.len = ngx_strlen(error);

    return NGX_DECLINED;
}


/* NGX_DECLINED: there is no such argument, and the value is empty */

static ngx_int_t
ngx_http_idempotency_query_arg(ngx_http_request_t *r, char *name,
    ngx_str_t *value)
{
    u_char     *dst, *src;
    ngx_str_t   arg;

    ngx_str_null(value);

    if (ngx_http_arg(r, (u_char *) name, ngx_strlen(name), &arg) != NGX_OK) {
        return NGX_DECLINED;
    }

    value->data = ngx_pnalloc(r->pool, arg.len + 1);
    if (value->data == NULL) {
        return NGX_ERROR;
    }

    dst = value->data;
    src = arg.data;

    ngx_unescape_uri(&dst, &src, arg.len, 0);

    value->len = dst - value->data;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_query_is(ngx_str_t *value, char *word)
{
    return value->len == ngx_strlen(word)
           && ngx_strncmp(value->data, word, value->len) == 0;
}


ngx_int_t
ngx_http_idempotency_query_variables(ngx_http_request_t *r)
{
    u_char                     *dst, *src;
    ngx_str_t                   name, arg;
    ngx_uint_t                  i;
    ngx_http_variable_t        *var;
    ngx_http_variable_value_t  *v;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    var = cmcf->variables.elts;

    for (i = 0; i < cmcf->variables.nelts; i++) {

        if (var[i].name.len <= 4
            || ngx_strncmp(var[i].name.data, "arg_", 4) != 0)
        {
            continue;
        }

        name.data = var[i].name.data + 4;
        name.len = var[i].name.len - 4;

        if (ngx_http_arg(r, name.data, name.len, &arg) != NGX_OK
            || ngx_strlchr(arg.data, arg.data + arg.len, '%') == NULL)
        {
            continue;
        }

        dst = ngx_pnalloc(r->pool, arg.len);
        if (dst == NULL) {
            return NGX_ERROR;
        }

        /* as ngx_http_get_indexed_variable() would, but decoded and kept */

        v = &r->variables[i];

        v->data = dst;
        src = arg.data;

        ngx_unescape_uri(&dst, &src, arg.len, 0);

        v->len = dst - v->data;
        v->valid = 1;
        v->no_cacheable = 0;
        v->not_found = 0;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_query_record(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *value)
{
    size_t      i;
    ngx_str_t  *digits;

    ctx->query->named = 1;

    if (ngx_http_idempotency_query_name(value, ctx->id.digest,
                                        &ctx->identity.flags)
        == NGX_OK)
    {
        return NGX_OK;
    }

    /* the first digits of one */

    digits = &ctx->query->digits;

    digits->data = ngx_pnalloc(r->pool, value->len + 1);
    if (digits->data == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < value->len; i++) {

        if (value->data[i] == '-'
            && i == NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2)
        {
            continue;
        }

        digits->data[digits->len] = ngx_tolower(value->data[i]);

        if ((digits->data[digits->len] < '0' || digits->data[digits->len] > '9')
            && (digits->data[digits->len] < 'a'
                || digits->data[digits->len] > 'f'))
        {
            return ngx_http_idempotency_query_error(ctx,
                       "record= is not the name of a record: it has 64 hex "
                       "digits, of which the first 12 or more may be given");
        }

        digits->len++;
    }

    if (digits->len < NGX_HTTP_IDEMPOTENCY_QUERY_PREFIX
        || digits->len >= NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS)
    {
        return ngx_http_idempotency_query_error(ctx,
                   "record= needs the first 12 digits of the name of a record "
                   "at least, and no more than its 64");
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_query_name(ngx_str_t *value, u_char *digest,
    ngx_uint_t *flags)
{
    u_char   hex[NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS];
    u_char  *p;

    p = value->data;

    if (value->len == NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS + 1
        && p[NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2] == '-')
    {
        ngx_memcpy(hex, p, NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2);
        ngx_memcpy(hex + NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2,
                   p + NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2 + 1,
                   NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS / 2);

        if (ngx_idempotency_record_digest(hex, digest) != NGX_OK) {
            return NGX_DECLINED;
        }

        *flags = NGX_IDEMPOTENCY_SEQUENCE;

        return NGX_OK;
    }

    if (value->len != NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS) {
        return NGX_DECLINED;
    }

    return ngx_idempotency_record_digest(p, digest);
}


static ngx_int_t
ngx_http_idempotency_query_list(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                      n;
    ngx_str_t                      value;
    ngx_http_idempotency_query_t  *query;

    query = ctx->query;

    if (ngx_http_idempotency_query_arg(r, "state", &value) == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (ngx_http_idempotency_query_state(ctx, &value) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (ngx_http_idempotency_query_arg(r, "format", &value) == NGX_OK
        && ngx_http_idempotency_query_format(ctx, &value) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    query->limit = query->format == NGX_HTTP_IDEMPOTENCY_QUERY_JSON
                   ? NGX_HTTP_IDEMPOTENCY_QUERY_PAGE
                   : NGX_HTTP_IDEMPOTENCY_QUERY_EXPORT;

    if (ngx_http_idempotency_query_arg(r, "limit", &value) == NGX_OK) {
        n = ngx_atoi(value.data, value.len);

        if (n < 1 || n > NGX_HTTP_IDEMPOTENCY_QUERY_EXPORT) {
            return ngx_http_idempotency_query_error(ctx,
                                       "limit= must be from 1 to 10000");
        }

        query->limit = n;
    }

    if (ngx_http_idempotency_query_arg(r, "older", &value) == NGX_OK) {
        n = ngx_parse_time(&value, 1);

        if (n == NGX_ERROR) {
            return ngx_http_idempotency_query_error(ctx,
                               "older= must be a time, as in older=15m");
        }

        query->older = n;
    }

    if (ngx_http_idempotency_query_arg(r, "location", &query->location)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    /* an empty cursor is the beginning */

    if (ngx_http_idempotency_query_arg(r, "cursor", &value) != NGX_OK
        || value.len == 0)
    {
        return NGX_OK;
    }

    return ngx_http_idempotency_query_cursor(ctx, &value);
}


/* "none" is no state that could be listed */

static ngx_int_t
ngx_http_idempotency_query_state(ngx_http_idempotency_ctx_t *ctx,
    ngx_str_t *value)
{
    ngx_uint_t   i;
    ngx_str_t   *name;

    name = ngx_idempotency_states;

    for (i = NGX_IDEMPOTENCY_ISSUED; name[i].len; i++) {

        if (value->len == name[i].len
            && ngx_strncmp(value->data, name[i].data, value->len) == 0)
        {
            ctx->query->state = (ngx_idempotency_state_e) i;
            return NGX_OK;
        }
    }

    return ngx_http_idempotency_query_error(ctx,
               "state= must be unknown, executing, done, tombstone or issued");
}


static ngx_int_t
ngx_http_idempotency_query_format(ngx_http_idempotency_ctx_t *ctx,
    ngx_str_t *value)
{
    if (ngx_http_idempotency_query_is(value, "csv")) {
        ctx->query->format = NGX_HTTP_IDEMPOTENCY_QUERY_CSV;

    } else if (ngx_http_idempotency_query_is(value, "ndjson")) {
        ctx->query->format = NGX_HTTP_IDEMPOTENCY_QUERY_NDJSON;

    } else if (!ngx_http_idempotency_query_is(value, "json")) {
        return ngx_http_idempotency_query_error(ctx,
                                   "format= must be json, ndjson or csv");
    }

    return NGX_OK;
}


/* the time of the last record of the page before, a dot, and its digest */

static ngx_int_t
ngx_http_idempotency_query_cursor(ngx_http_idempotency_ctx_t *ctx,
    ngx_str_t *value)
{
    u_char                        *dot, *last;
    ngx_http_idempotency_query_t  *query;

    query = ctx->query;

    last = value->data + value->len;
    dot = ngx_strlchr(value->data, last, '.');

    if (dot == NULL
        || last - dot - 1 != NGX_HTTP_IDEMPOTENCY_QUERY_DIGITS
        || ngx_idempotency_record_digest(dot + 1, query->after_digest)
           != NGX_OK)
    {
        return ngx_http_idempotency_query_error(ctx,
                   "cursor= must be one that a list has given");
    }

    query->after = ngx_atotm(value->data, dot - value->data);

    if (query->after == NGX_ERROR) {
        return ngx_http_idempotency_query_error(ctx,
                   "cursor= must be one that a list has given");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_query_fence(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    off_t      fence;
    ngx_str_t  value;

    if (ngx_http_arg(r, (u_char *) "fence", 5, &value) != NGX_OK) {
        return ngx_http_idempotency_query_error(ctx,
                   "fence= is missing: name the fence that was seen");
    }

    fence = ngx_atoof(value.data, value.len);

    if (fence <= 0) {
        return ngx_http_idempotency_query_error(ctx,
                   "fence= must be the number that was seen");
    }

    ctx->query->fence = (uint64_t) fence;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_query_resolve(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                      status;
    ngx_str_t                      value;
    ngx_http_idempotency_query_t  *query;

    query = ctx->query;

    if (ngx_http_arg(r, (u_char *) "resolve", 7, &value) != NGX_OK) {
        return ngx_http_idempotency_query_error(ctx,
                   "resolve= is missing: executed, not-executed or batch");
    }

    if (ngx_http_idempotency_query_is(&value, "batch")) {
        query->many = 1;

        if (ngx_http_arg(r, (u_char *) "dry_run", 7, &value) == NGX_OK) {

            if (ngx_http_idempotency_query_is(&value, "1")) {
                query->dry_run = 1;

            } else if (!ngx_http_idempotency_query_is(&value, "0")) {
                return ngx_http_idempotency_query_error(ctx,
                                                    "dry_run= must be 0 or 1");
            }
        }

        return NGX_OK;
    }

    if (ngx_http_idempotency_query_is(&value, "executed")) {
        query->executed = 1;

    } else if (!ngx_http_idempotency_query_is(&value, "not-executed")) {
        return ngx_http_idempotency_query_error(ctx,
                   "resolve= must be executed, not-executed or batch");
    }

    if (ngx_http_arg(r, (u_char *) "status", 6, &value) == NGX_OK) {
        status = ngx_atoi(value.data, value.len);

        if (!query->executed || status < NGX_HTTP_OK
            || status >= NGX_HTTP_IDEMPOTENCY_STATUSES)
        {
            return ngx_http_idempotency_query_error(ctx,
                       "status= must be from 200 to 599, and is for "
                       "resolve=executed");
        }

        query->status = status;
    }

    return ngx_http_idempotency_query_fence(r, ctx);
}
