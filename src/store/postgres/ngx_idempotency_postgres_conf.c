
/*
 * The store in PostgreSQL: its line in the configuration.
 */


#include "ngx_idempotency_postgres.h"

#if (NGX_IDEMPOTENCY_POSTGRES)

#include "ngx_idempotency_postgres_ctx.h"


#define NGX_IDEMPOTENCY_POSTGRES_TIMEOUT          500
#define NGX_IDEMPOTENCY_POSTGRES_CONNECT_TIMEOUT  2000
#define NGX_IDEMPOTENCY_POSTGRES_CONNECTIONS      64

/* bytes: the body of an answer */
#define NGX_IDEMPOTENCY_POSTGRES_LARGEST          (64 * 1024 * 1024)

/* bytes: NAMEDATALEN of the server, without the zero */
#define NGX_IDEMPOTENCY_POSTGRES_NAME             63


static char *ngx_idempotency_postgres_param(ngx_conf_t *cf,
    ngx_idempotency_postgres_ctx_t *ctx, ngx_str_t *arg);
static char *ngx_idempotency_postgres_schema(ngx_conf_t *cf,
    ngx_idempotency_postgres_ctx_t *ctx, ngx_str_t *value);
static char *ngx_idempotency_postgres_password_file(ngx_conf_t *cf,
    ngx_idempotency_postgres_ctx_t *ctx, ngx_str_t *value);

#endif


ngx_uint_t
ngx_idempotency_postgres_is_target(ngx_str_t *target)
{
    return ngx_strncmp(target->data, "postgres://", 11) == 0
           || ngx_strncmp(target->data, "postgresql://", 13) == 0;
}


#if (NGX_IDEMPOTENCY_POSTGRES)


char *
ngx_idempotency_postgres_create(ngx_conf_t *cf, ngx_idempotency_store_t *store,
    ngx_str_t *args, ngx_uint_t n, void *tag)
{
    char                            *rv;
    ngx_str_t                        schema;
    ngx_uint_t                       i;
    PQconninfoOption                *options;
    ngx_idempotency_postgres_ctx_t  *ctx;

    ctx = ngx_pcalloc(cf->pool, sizeof(ngx_idempotency_postgres_ctx_t));
    if (ctx == NULL) {
        return NGX_CONF_ERROR;
    }

    ctx->store = store;
    ctx->server.name = store->name;
    ctx->server.url = (char *) args[0].data;

    /* its message may have parts of the password */

    options = PQconninfoParse(ctx->server.url, NULL);

    if (options == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid URL of \"idempotency_store\" \"%V\", it "
                           "is one of libpq, as in "
                           "\"postgres://nginx@db1,db2/payments\" or "
                           "\"postgres://nginx@/payments?host="
                           "/run/postgresql\", with %%-escapes in names and "
                           "passwords", &store->name);
        return NGX_CONF_ERROR;
    }

    PQconninfoFree(options);

    for (i = 1; i < n; i++) {
        rv = ngx_idempotency_postgres_param(cf, ctx, &args[i]);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    if (ctx->server.timeout == 0) {
        ctx->server.timeout = NGX_IDEMPOTENCY_POSTGRES_TIMEOUT;
    }

    if (ctx->server.connect_timeout == 0) {
        ctx->server.connect_timeout = NGX_IDEMPOTENCY_POSTGRES_CONNECT_TIMEOUT;
    }

    if (ctx->nconns == 0) {
        ctx->nconns = 1;
    }

    if (ctx->server.schema == NULL) {
        ngx_str_set(&schema, "idempotency");

        if (ngx_idempotency_postgres_schema(cf, ctx, &schema) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }

    ctx->threads = ngx_thread_pool_add(cf, NULL);
    if (ctx->threads == NULL) {
        return NGX_CONF_ERROR;
    }

    store->largest = NGX_IDEMPOTENCY_POSTGRES_LARGEST;
    store->data = ctx;

    ngx_idempotency_postgres_init(ctx);

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_postgres_param(ngx_conf_t *cf,
    ngx_idempotency_postgres_ctx_t *ctx, ngx_str_t *arg)
{
    u_char     *p;
    ngx_int_t   n;
    ngx_str_t   value;

    p = ngx_strlchr(arg->data, arg->data + arg->len, '=');

    if (p == NULL) {
        goto invalid;
    }

    value.data = ++p;
    value.len = arg->data + arg->len - p;

    if (ngx_strncmp(arg->data, "timeout=", 8) == 0
        && ctx->server.timeout == 0)
    {
        n = ngx_parse_time(&value, 0);

        if (n == NGX_ERROR || n == 0) {
            goto invalid;
        }

        ctx->server.timeout = n;
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(arg->data, "connect_timeout=", 16) == 0
        && ctx->server.connect_timeout == 0)
    {
        n = ngx_parse_time(&value, 0);

        if (n == NGX_ERROR || n == 0) {
            goto invalid;
        }

        ctx->server.connect_timeout = n;
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(arg->data, "connections=", 12) == 0 && ctx->nconns == 0) {
        n = ngx_atoi(value.data, value.len);

        if (n == NGX_ERROR || n == 0
            || n > NGX_IDEMPOTENCY_POSTGRES_CONNECTIONS)
        {
            goto invalid;
        }

        ctx->nconns = n;
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(arg->data, "password_file=", 14) == 0
        && ctx->server.password_file == NULL && value.len)
    {
        return ngx_idempotency_postgres_password_file(cf, ctx, &value);
    }

    if (ngx_strncmp(arg->data, "schema=", 7) == 0
        && ctx->server.schema == NULL && value.len)
    {
        return ngx_idempotency_postgres_schema(cf, ctx, &value);
    }

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid or duplicate parameter \"%V\" of "
                       "\"idempotency_store\" \"%V\", with a target "
                       "\"postgres://...\" it takes timeout= and "
                       "connect_timeout=, as in \"500ms\", connections= from "
                       "1 to 64, password_file= and schema=",
                       arg, &ctx->store->name);

    return NGX_CONF_ERROR;
}


/* as an identifier in quotes */

static char *
ngx_idempotency_postgres_schema(ngx_conf_t *cf,
    ngx_idempotency_postgres_ctx_t *ctx, ngx_str_t *value)
{
    u_char  *p;
    size_t   i;

    p = ngx_pnalloc(cf->pool, value->len + 3);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    ctx->server.schema = (char *) p;

    *p++ = '"';

    for (i = 0; i < value->len; i++) {

        if (value->data[i] == '"' || value->data[i] < 0x20
            || i == NGX_IDEMPOTENCY_POSTGRES_NAME)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid \"schema=%V\" of "
                               "\"idempotency_store\" \"%V\", it is a name of "
                               "up to 63 bytes without quotes",
                               value, &ctx->store->name);
            return NGX_CONF_ERROR;
        }

        *p++ = value->data[i];
    }

    *p++ = '"';
    *p = '\0';

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_postgres_password_file(ngx_conf_t *cf,
    ngx_idempotency_postgres_ctx_t *ctx, ngx_str_t *value)
{
    ngx_str_t        path;
    ngx_file_info_t  fi;

    path = *value;

    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (ngx_file_info(path.data, &fi) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "\"password_file=%V\" of \"idempotency_store\" "
                           "\"%V\" cannot be read",
                           &path, &ctx->store->name);
        return NGX_CONF_ERROR;
    }

    ctx->server.password_file = (char *) path.data;

    return NGX_CONF_OK;
}


#else /* !(NGX_IDEMPOTENCY_POSTGRES) */


char *
ngx_idempotency_postgres_create(ngx_conf_t *cf, ngx_idempotency_store_t *store,
    ngx_str_t *args, ngx_uint_t n, void *tag)
{
#if (NGX_THREADS)

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"idempotency_store\" \"%V\": the module was built "
                       "without libpq; install libpq-dev and build again",
                       &store->name);

#else

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"idempotency_store\" \"%V\": this nginx was built "
                       "without threads, which a target \"postgres://\" "
                       "needs; build nginx with --with-threads",
                       &store->name);

#endif

    return NGX_CONF_ERROR;
}


#endif
