
/*
 * The parameters of a Redis store, and what follows from them.
 */


#include "ngx_idempotency_redis_login.h"


#define NGX_IDEMPOTENCY_REDIS_CONNECT_TIMEOUT  1000
#define NGX_IDEMPOTENCY_REDIS_TIMEOUT_DEFAULT  500
#define NGX_IDEMPOTENCY_REDIS_CONNECTIONS_MAX  64
#define NGX_IDEMPOTENCY_REDIS_REPLICAS_MAX     16


typedef struct {
    ngx_str_t                           name;
    char                             *(*set)(ngx_conf_t *cf, ngx_str_t *value,
                                         void *field);
    ngx_uint_t                          offset;
    const char                         *fix;
} ngx_idempotency_redis_param_t;


static char *ngx_idempotency_redis_conf_msec(ngx_conf_t *cf, ngx_str_t *value,
    void *field);
static char *ngx_idempotency_redis_conf_number(ngx_conf_t *cf,
    ngx_str_t *value, void *field);
static char *ngx_idempotency_redis_conf_replicas(ngx_conf_t *cf,
    ngx_str_t *value, void *field);
static char *ngx_idempotency_redis_conf_fsync(ngx_conf_t *cf,
    ngx_str_t *value, void *field);
static char *ngx_idempotency_redis_conf_wait(ngx_conf_t *cf,
    ngx_str_t *value, ngx_uint_t *number, ngx_msec_t *msec);
static char *ngx_idempotency_redis_conf_amnesia(ngx_conf_t *cf,
    ngx_str_t *value, void *field);
static char *ngx_idempotency_redis_conf_eviction(ngx_conf_t *cf,
    ngx_str_t *value, void *field);
static char *ngx_idempotency_redis_conf_str(ngx_conf_t *cf, ngx_str_t *value,
    void *field);
#if (NGX_SSL)
static char *ngx_idempotency_redis_conf_flag(ngx_conf_t *cf, ngx_str_t *value,
    void *field);
#endif
static char *ngx_idempotency_redis_conf_resolve(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_host_t *host);


static ngx_idempotency_redis_param_t  ngx_idempotency_redis_params[] = {

    { ngx_string("connect_timeout="),
      ngx_idempotency_redis_conf_msec,
      offsetof(ngx_idempotency_redis_t, connect_timeout),
      "a time, as in \"1s\"" },

    { ngx_string("timeout="),
      ngx_idempotency_redis_conf_msec,
      offsetof(ngx_idempotency_redis_t, timeout),
      "a time, as in \"500ms\"" },

    { ngx_string("connections="),
      ngx_idempotency_redis_conf_number,
      offsetof(ngx_idempotency_redis_t, connections),
      "a number from 1 to 64" },

    { ngx_string("password_file="),
      ngx_idempotency_redis_conf_str,
      offsetof(ngx_idempotency_redis_t, account.password_file),
      "the name of a file" },

    { ngx_string("replicas="),
      ngx_idempotency_redis_conf_replicas,
      0,
      "a number from 1 to 16, as in \"2\" or \"2:100ms\"" },

    { ngx_string("fsync="),
      ngx_idempotency_redis_conf_fsync,
      0,
      "a number from 1 to 16, as in \"1\" or \"2:200ms\"" },

    { ngx_string("amnesia="),
      ngx_idempotency_redis_conf_amnesia,
      offsetof(ngx_idempotency_redis_t, amnesia),
      "a time, as in \"30s\"" },

    { ngx_string("eviction="),
      ngx_idempotency_redis_conf_eviction,
      offsetof(ngx_idempotency_redis_t, evictable),
      "\"refuse\" or \"allow\"" },

    { ngx_string("sentinel_user="),
      ngx_idempotency_redis_conf_str,
      offsetof(ngx_idempotency_redis_t, sentinel.user),
      "the name of a user" },

    { ngx_string("sentinel_password_file="),
      ngx_idempotency_redis_conf_str,
      offsetof(ngx_idempotency_redis_t, sentinel.password_file),
      "the name of a file" },

#if (NGX_SSL)

    { ngx_string("ssl_trusted_certificate="),
      ngx_idempotency_redis_conf_str,
      offsetof(ngx_idempotency_redis_t, ssl_trusted_certificate),
      "the name of a file" },

    { ngx_string("ssl_certificate="),
      ngx_idempotency_redis_conf_str,
      offsetof(ngx_idempotency_redis_t, ssl_certificate),
      "the name of a file" },

    { ngx_string("ssl_certificate_key="),
      ngx_idempotency_redis_conf_str,
      offsetof(ngx_idempotency_redis_t, ssl_certificate_key),
      "the name of a file" },

    { ngx_string("ssl_name="),
      ngx_idempotency_redis_conf_str,
      offsetof(ngx_idempotency_redis_t, ssl_name),
      "the name in the server's certificate" },

    { ngx_string("ssl_verify="),
      ngx_idempotency_redis_conf_flag,
      offsetof(ngx_idempotency_redis_t, ssl_verify),
      "\"on\" or \"off\"" },

#endif

    { ngx_null_string, NULL, 0, NULL }
};


char *
ngx_idempotency_redis_conf_param(ngx_conf_t *cf, ngx_str_t *param,
    ngx_idempotency_redis_t *redis)
{
    char                           *rv;
    ngx_str_t                       value;
    ngx_idempotency_redis_param_t  *p;

    for (p = ngx_idempotency_redis_params; p->name.len; p++) {

        if (param->len >= p->name.len
            && ngx_strncmp(param->data, p->name.data, p->name.len) == 0)
        {
            break;
        }
    }

    if (p->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" of "
                           "\"idempotency_store\" \"%V\", a Redis store takes "
                           "prefix=, connect_timeout=, timeout=, "
                           "connections=, password_file=, replicas=, "
                           "fsync=, amnesia=, eviction=, cache=, "
                           "sentinel_user=, "
                           "sentinel_password_file="
#if (NGX_SSL)
                           ", ssl_trusted_certificate=, ssl_certificate=, "
                           "ssl_certificate_key=, ssl_name= and ssl_verify="
#endif
                           , param, &redis->name);
        return NGX_CONF_ERROR;
    }

    value.data = param->data + p->name.len;
    value.len = param->len - p->name.len;

    rv = p->set(cf, &value, (u_char *) redis + p->offset);

    if (rv == NGX_CONF_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" of "
                           "\"idempotency_store\" \"%V\", it must be %s",
                           param, &redis->name, p->fix);
        return NGX_CONF_ERROR;
    }

    if (rv != NGX_CONF_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "parameter \"%V\" of \"idempotency_store\" "
                           "\"%V\" %s", param, &redis->name, rv);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_redis_conf_msec(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_int_t    n;
    ngx_msec_t  *msec = field;

    (void) cf;

    if (*msec) {
        return "is duplicate";
    }

    n = ngx_parse_time(value, 0);

    if (n == NGX_ERROR || n == 0 || n > 24 * 3600 * 1000) {
        return NGX_CONF_ERROR;
    }

    *msec = (ngx_msec_t) n;

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_redis_conf_number(ngx_conf_t *cf, ngx_str_t *value,
    void *field)
{
    ngx_int_t    n;
    ngx_uint_t  *number = field;

    (void) cf;

    if (*number) {
        return "is duplicate";
    }

    n = ngx_atoi(value->data, value->len);

    if (n < 1 || n > NGX_IDEMPOTENCY_REDIS_CONNECTIONS_MAX) {
        return NGX_CONF_ERROR;
    }

    *number = n;

    return NGX_CONF_OK;
}


/* N[:TIME]; the offset is that of the whole structure */

static char *
ngx_idempotency_redis_conf_replicas(ngx_conf_t *cf, ngx_str_t *value,
    void *field)
{
    ngx_idempotency_redis_t *redis = field;

    return ngx_idempotency_redis_conf_wait(cf, value, &redis->replicas,
                                           &redis->replicas_wait);
}


static char *
ngx_idempotency_redis_conf_fsync(ngx_conf_t *cf, ngx_str_t *value,
    void *field)
{
    ngx_idempotency_redis_t *redis = field;

    return ngx_idempotency_redis_conf_wait(cf, value, &redis->fsync,
                                           &redis->fsync_wait);
}


static char *
ngx_idempotency_redis_conf_wait(ngx_conf_t *cf, ngx_str_t *value,
    ngx_uint_t *number, ngx_msec_t *msec)
{
    u_char     *colon, *last;
    ngx_int_t   n;
    ngx_str_t   time;

    if (*number) {
        return "is duplicate";
    }

    last = value->data + value->len;
    colon = ngx_strlchr(value->data, last, ':');

    n = ngx_atoi(value->data, (colon ? colon : last) - value->data);

    if (n < 1 || n > NGX_IDEMPOTENCY_REDIS_REPLICAS_MAX) {
        return NGX_CONF_ERROR;
    }

    *number = n;

    if (colon == NULL) {
        return NGX_CONF_OK;
    }

    time.data = colon + 1;
    time.len = last - time.data;

    return ngx_idempotency_redis_conf_msec(cf, &time, msec);
}


static char *
ngx_idempotency_redis_conf_amnesia(ngx_conf_t *cf, ngx_str_t *value,
    void *field)
{
    ngx_int_t    n;
    ngx_msec_t  *msec = field;

    (void) cf;

    if (*msec != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    n = ngx_parse_time(value, 0);

    if (n == NGX_ERROR || n > 24 * 3600 * 1000) {
        return NGX_CONF_ERROR;
    }

    *msec = (ngx_msec_t) n;

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_redis_conf_eviction(ngx_conf_t *cf, ngx_str_t *value,
    void *field)
{
    ngx_uint_t  *evictable = field;

    (void) cf;

    if (*evictable != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    if (value->len == 6 && ngx_strncmp(value->data, "refuse", 6) == 0) {
        *evictable = 0;

    } else if (value->len == 5 && ngx_strncmp(value->data, "allow", 5) == 0) {
        *evictable = 1;

    } else {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_redis_conf_str(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_str_t  *s = field;

    (void) cf;

    if (s->len) {
        return "is duplicate";
    }

    if (value->len == 0) {
        return NGX_CONF_ERROR;
    }

    *s = *value;

    return NGX_CONF_OK;
}


#if (NGX_SSL)

static char *
ngx_idempotency_redis_conf_flag(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_flag_t  *flag = field;

    (void) cf;

    if (*flag != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    if (value->len == 2 && ngx_strncmp(value->data, "on", 2) == 0) {
        *flag = 1;

    } else if (value->len == 3 && ngx_strncmp(value->data, "off", 3) == 0) {
        *flag = 0;

    } else {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}

#endif


char *
ngx_idempotency_redis_conf_finish(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                     i;
    ngx_msec_t                     wait;
    ngx_idempotency_redis_host_t  *host;

    if (redis->connect_timeout == 0) {
        redis->connect_timeout = NGX_IDEMPOTENCY_REDIS_CONNECT_TIMEOUT;
    }

    if (redis->timeout == 0) {
        redis->timeout = NGX_IDEMPOTENCY_REDIS_TIMEOUT_DEFAULT;
    }

    if (redis->connections == 0) {
        redis->connections = 1;
    }

    if (redis->evictable == NGX_CONF_UNSET_UINT) {
        redis->evictable = 0;
    }

    if (redis->replicas_wait == 0) {
        redis->replicas_wait = ngx_max(redis->timeout / 4, 1);
    }

    if (redis->fsync_wait == 0) {
        redis->fsync_wait = ngx_max(redis->timeout / 4, 1);
    }

    wait = (redis->replicas ? redis->replicas_wait : 0)
           + (redis->fsync ? redis->fsync_wait : 0);

    if (wait > ngx_max(redis->timeout / 2, 2)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store\" \"%V\" waits longer for "
                           "its %s than half of its \"timeout=\", make "
                           "the time of \"%s\" shorter", &redis->name,
                           redis->replicas ? "replicas" : "disks",
                           redis->replicas ? "replicas=" : "fsync=");
        return NGX_CONF_ERROR;
    }

    if (redis->master.len == 0
        && (redis->sentinel.user.len || redis->sentinel.password_file.len))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store\" \"%V\" has \"sentinel_\" "
                           "parameters but no sentinels, use "
                           "\"redis-sentinel://\" or remove them",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_idempotency_redis_credentials_conf(cf, redis, &redis->account)
        != NGX_CONF_OK
        || ngx_idempotency_redis_credentials_conf(cf, redis, &redis->sentinel)
           != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    host = redis->hosts.elts;

    for (i = 0; i < redis->hosts.nelts; i++) {
        if (host[i].name.len
            && ngx_idempotency_redis_conf_resolve(cf, redis, &host[i])
               != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

#if (NGX_SSL)

    return ngx_idempotency_redis_conf_tls(cf, redis);

#else

    return NGX_CONF_OK;

#endif
}


static char *
ngx_idempotency_redis_conf_resolve(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_host_t *host)
{
    u_char     *p;
    ngx_url_t   u;
    ngx_uint_t  inet6;

    ngx_memzero(&u, sizeof(ngx_url_t));

    inet6 = (ngx_strlchr(host->name.data,
                         host->name.data + host->name.len, ':')
             != NULL);

    host->named = !inet6
                   && ngx_inet_addr(host->name.data, host->name.len)
                      == INADDR_NONE;

    p = ngx_pnalloc(cf->pool, host->name.len + sizeof("[]:65535"));
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    u.url.data = p;
    u.url.len = ngx_sprintf(p, inet6 ? "[%V]:%ui" : "%V:%ui", &host->name,
                            (ngx_uint_t) host->port)
                - p;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%s in the target of \"idempotency_store\" "
                           "\"%V\": \"%V\"", u.err ? u.err : "no memory",
                           &redis->name, &u.url);
        return NGX_CONF_ERROR;
    }

    host->addrs = u.addrs;
    host->naddrs = u.naddrs;
    host->resolved = ngx_time();

    return NGX_CONF_OK;
}
