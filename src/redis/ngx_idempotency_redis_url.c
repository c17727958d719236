
/*
 * The target of a Redis store: a URL.
 */


#include "ngx_idempotency_redis_conf.h"
#include "ngx_idempotency_redis_topology.h"


#define NGX_IDEMPOTENCY_REDIS_PORT           6379
#define NGX_IDEMPOTENCY_REDIS_SENTINEL_PORT  26379
#define NGX_IDEMPOTENCY_REDIS_DATABASE_MAX   65535


typedef struct {
    ngx_str_t                           name;
    ngx_idempotency_redis_topology_t   *topology;
    ngx_uint_t                          port;        /* 0: unix socket */
    ngx_uint_t                          tls;
} ngx_idempotency_redis_scheme_t;


static char *ngx_idempotency_redis_url_inet(ngx_conf_t *cf, ngx_str_t *rest,
    ngx_idempotency_redis_t *redis, ngx_uint_t port);
static char *ngx_idempotency_redis_url_path(ngx_conf_t *cf, ngx_str_t *path,
    ngx_idempotency_redis_t *redis);
static ngx_idempotency_redis_host_t *ngx_idempotency_redis_url_new_host(
    ngx_conf_t *cf, ngx_idempotency_redis_t *redis);
static char *ngx_idempotency_redis_url_host(ngx_conf_t *cf, ngx_str_t *node,
    ngx_idempotency_redis_t *redis, ngx_uint_t default_port);
static char *ngx_idempotency_redis_url_login(ngx_conf_t *cf, ngx_str_t *info,
    ngx_idempotency_redis_t *redis);
static char *ngx_idempotency_redis_url_unix(ngx_conf_t *cf, ngx_str_t *rest,
    ngx_idempotency_redis_t *redis);
static char *ngx_idempotency_redis_url_database(ngx_conf_t *cf,
    ngx_str_t *text, ngx_idempotency_redis_t *redis);
static ngx_int_t ngx_idempotency_redis_url_decode(ngx_pool_t *pool,
    ngx_str_t *from, ngx_str_t *to);


static ngx_idempotency_redis_scheme_t  ngx_idempotency_redis_schemes[] = {

    { ngx_string("redis://"), &ngx_idempotency_redis_single,
      NGX_IDEMPOTENCY_REDIS_PORT, 0 },
    { ngx_string("rediss://"), &ngx_idempotency_redis_single,
      NGX_IDEMPOTENCY_REDIS_PORT, 1 },
    { ngx_string("redis+unix://"), &ngx_idempotency_redis_single, 0, 0 },
    { ngx_string("redis-sentinel://"), &ngx_idempotency_redis_sentinel,
      NGX_IDEMPOTENCY_REDIS_SENTINEL_PORT, 0 },
    { ngx_string("rediss-sentinel://"), &ngx_idempotency_redis_sentinel,
      NGX_IDEMPOTENCY_REDIS_SENTINEL_PORT, 1 },
    { ngx_string("redis-cluster://"), &ngx_idempotency_redis_cluster,
      NGX_IDEMPOTENCY_REDIS_PORT, 0 },
    { ngx_string("rediss-cluster://"), &ngx_idempotency_redis_cluster,
      NGX_IDEMPOTENCY_REDIS_PORT, 1 },

    { ngx_null_string, NULL, 0, 0 }
};


char *
ngx_idempotency_redis_conf_target(ngx_conf_t *cf, ngx_str_t *url,
    ngx_idempotency_redis_t *redis)
{
    ngx_str_t                        rest;
    ngx_idempotency_redis_scheme_t  *scheme;

    for (scheme = ngx_idempotency_redis_schemes; scheme->name.len; scheme++) {

        if (url->len >= scheme->name.len
            && ngx_strncmp(url->data, scheme->name.data, scheme->name.len)
               == 0)
        {
            break;
        }
    }

    if (scheme->name.len == 0) {

        /* it may hold a password: not shown */

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid target of \"idempotency_store\" \"%V\", "
                           "it must begin with \"redis://\", \"rediss://\", "
                           "\"redis+unix://\", \"redis-sentinel://\", "
                           "\"rediss-sentinel://\", \"redis-cluster://\" or "
                           "\"rediss-cluster://\"", &redis->name);
        return NGX_CONF_ERROR;
    }

    rest.data = url->data + scheme->name.len;
    rest.len = url->len - scheme->name.len;

    redis->topology = scheme->topology;
    redis->spread = scheme->topology->slots;
    redis->tls = scheme->tls;
    redis->amnesia = NGX_CONF_UNSET_MSEC;
    redis->evictable = NGX_CONF_UNSET_UINT;

#if (NGX_SSL)
    redis->ssl_verify = NGX_CONF_UNSET;
#else
    if (redis->tls) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the target \"%V\" of \"idempotency_store\" "
                           "\"%V\" needs nginx with TLS, build it with "
                           "--with-http_ssl_module", &scheme->name,
                           &redis->name);
        return NGX_CONF_ERROR;
    }
#endif

    if (scheme->port == 0) {
        return ngx_idempotency_redis_url_unix(cf, &rest, redis);
    }

    return ngx_idempotency_redis_url_inet(cf, &rest, redis, scheme->port);
}


/* [user[:password]@]host[:port][,...][/path] */

static char *
ngx_idempotency_redis_url_inet(ngx_conf_t *cf, ngx_str_t *rest,
    ngx_idempotency_redis_t *redis, ngx_uint_t port)
{
    u_char     *p, *last, *at;
    ngx_str_t   part;

    last = rest->data + rest->len;

    p = ngx_strlchr(rest->data, last, '/');

    part.data = p ? p + 1 : last;
    part.len = last - part.data;

    if (ngx_idempotency_redis_url_path(cf, &part, redis) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    last = p ? p : last;
    at = NULL;

    for (p = rest->data; p < last; p++) {
        if (*p == '@') {
            at = p;
        }
    }

    part.data = rest->data;

    if (at) {
        part.len = at - part.data;

        if (ngx_idempotency_redis_url_login(cf, &part, redis)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }

        part.data = at + 1;
    }

    for ( ;; ) {

        /* one server has no list */

        p = (redis->topology == &ngx_idempotency_redis_single)
            ? NULL : ngx_strlchr(part.data, last, ',');

        part.len = (p ? p : last) - part.data;

        if (ngx_idempotency_redis_url_host(cf, &part, redis, port)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }

        if (p == NULL) {
            return NGX_CONF_OK;
        }

        part.data = p + 1;
    }
}


/* what follows the first slash: [db], master[/db], nothing */

static char *
ngx_idempotency_redis_url_path(ngx_conf_t *cf, ngx_str_t *path,
    ngx_idempotency_redis_t *redis)
{
    u_char     *slash, *last;
    ngx_str_t   part;

    part = *path;

    if (redis->topology == &ngx_idempotency_redis_sentinel) {
        last = path->data + path->len;
        slash = ngx_strlchr(path->data, last, '/');

        part.len = (slash ? slash : last) - path->data;

        if (part.len == 0
            || ngx_idempotency_redis_url_decode(cf->pool, &part,
                                                &redis->master)
               != NGX_OK)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "no name of a master in the target of "
                               "\"idempotency_store\" \"%V\", write it as "
                               "in \"redis-sentinel://host1:26379,"
                               "host2:26379/mymaster\"", &redis->name);
            return NGX_CONF_ERROR;
        }

        part.data = slash ? slash + 1 : last;
        part.len = last - part.data;
    }

    if (part.len == 0) {
        return NGX_CONF_OK;
    }

    if (redis->topology == &ngx_idempotency_redis_cluster) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the target of \"idempotency_store\" \"%V\" has a "
                           "database, but a cluster has only one, remove it",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    return ngx_idempotency_redis_url_database(cf, &part, redis);
}


static ngx_idempotency_redis_host_t *
ngx_idempotency_redis_url_new_host(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_host_t  *host;

    if (redis->hosts.elts == NULL
        && ngx_array_init(&redis->hosts, cf->pool, 4,
                          sizeof(ngx_idempotency_redis_host_t))
           != NGX_OK)
    {
        return NULL;
    }

    host = ngx_array_push(&redis->hosts);
    if (host == NULL) {
        return NULL;
    }

    ngx_memzero(host, sizeof(ngx_idempotency_redis_host_t));

    return host;
}


static char *
ngx_idempotency_redis_url_host(ngx_conf_t *cf, ngx_str_t *node,
    ngx_idempotency_redis_t *redis, ngx_uint_t default_port)
{
    u_char                        *p, *last, *port;
    ngx_int_t                      n;
    ngx_idempotency_redis_host_t  *host;

    host = ngx_idempotency_redis_url_new_host(cf, redis);
    if (host == NULL) {
        return NGX_CONF_ERROR;
    }

    last = node->data + node->len;

    host->name.data = node->data;

    if (node->len && node->data[0] == '[') {
        host->name.data++;

        p = ngx_strlchr(node->data, last, ']');
        if (p == NULL) {
            goto invalid;
        }

        host->name.len = p - host->name.data;
        port = p + 1;

    } else {
        p = ngx_strlchr(node->data, last, ':');
        port = p ? p : last;

        host->name.len = port - host->name.data;
    }

    host->port = (in_port_t) default_port;

    if (port < last) {

        if (*port != ':') {
            goto invalid;
        }

        port++;
        n = ngx_atoi(port, last - port);

        if (n < 1 || n > 65535) {
            goto invalid;
        }

        host->port = (in_port_t) n;
    }

    if (host->name.len == 0
        || ngx_strlchr(host->name.data,
                       host->name.data + host->name.len, '?'))
    {
        goto invalid;
    }

    return NGX_CONF_OK;

invalid:

    /* what looks like a port may be a password with a slash in it */

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid host or port in the target of "
                       "\"idempotency_store\" \"%V\", write it as in "
                       "\"redis://user:password@host:6379/0\", with \"/\", "
                       "\"@\" and \"%%\" of a password as \"%%2F\", "
                       "\"%%40\" and \"%%25\"", &redis->name);

    return NGX_CONF_ERROR;
}


static char *
ngx_idempotency_redis_url_login(ngx_conf_t *cf, ngx_str_t *info,
    ngx_idempotency_redis_t *redis)
{
    u_char     *colon, *last;
    ngx_str_t   user, password;

    last = info->data + info->len;
    colon = ngx_strlchr(info->data, last, ':');

    user.data = info->data;
    user.len = (colon ? colon : last) - info->data;

    password.data = colon ? colon + 1 : last;
    password.len = last - password.data;

    if (ngx_idempotency_redis_url_decode(cf->pool, &user,
                                         &redis->account.user)
        != NGX_OK
        || ngx_idempotency_redis_url_decode(cf->pool, &password,
                                            &redis->account.password)
           != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid user or password in the target of "
                           "\"idempotency_store\" \"%V\", \"%%\" must be "
                           "written as \"%%25\"", &redis->name);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* /path[?db=n] */

static char *
ngx_idempotency_redis_url_unix(ngx_conf_t *cf, ngx_str_t *rest,
    ngx_idempotency_redis_t *redis)
{
    u_char                        *p, *query, *last;
    ngx_str_t                      path, name, text;
    ngx_url_t                      u;
    ngx_idempotency_redis_host_t  *host;

    last = rest->data + rest->len;
    query = ngx_strlchr(rest->data, last, '?');

    path.data = rest->data;
    path.len = (query ? query : last) - rest->data;

    if (path.len < 2 || path.data[0] != '/'
        || ngx_idempotency_redis_url_decode(cf->pool, &path, &name)
           != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid path in the target of "
                           "\"idempotency_store\" \"%V\", write it as in "
                           "\"redis+unix:///run/redis/redis.sock?db=0\"",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    if (query) {
        text.data = query + 1;
        text.len = last - text.data;

        if (text.len < 3 || ngx_strncmp(text.data, "db=", 3) != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid argument \"%V\" in the target of "
                               "\"idempotency_store\" \"%V\", it takes "
                               "\"?db=NUMBER\"", &text, &redis->name);
            return NGX_CONF_ERROR;
        }

        text.data += 3;
        text.len -= 3;

        if (ngx_idempotency_redis_url_database(cf, &text, redis)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    p = ngx_pnalloc(cf->pool, sizeof("unix:") + name.len);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url.data = p;
    u.url.len = ngx_sprintf(p, "unix:%V%Z", &name) - p - 1;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%s in the target of \"idempotency_store\" "
                           "\"%V\"", u.err ? u.err : "no memory",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    host = ngx_idempotency_redis_url_new_host(cf, redis);
    if (host == NULL) {
        return NGX_CONF_ERROR;
    }

    host->addrs = u.addrs;
    host->naddrs = u.naddrs;

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_redis_url_database(ngx_conf_t *cf, ngx_str_t *text,
    ngx_idempotency_redis_t *redis)
{
    ngx_int_t  n;

    n = ngx_atoi(text->data, text->len);

    if (n == NGX_ERROR || n > NGX_IDEMPOTENCY_REDIS_DATABASE_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid database in the target of "
                           "\"idempotency_store\" \"%V\", it must be a "
                           "number, as in \"redis://host:6379/0\"",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    redis->database = n;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_idempotency_redis_url_decode(ngx_pool_t *pool, ngx_str_t *from,
    ngx_str_t *to)
{
    u_char     *p, *src, *last;
    ngx_int_t   n;

    p = ngx_pnalloc(pool, from->len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    to->data = p;

    src = from->data;
    last = src + from->len;

    while (src < last) {

        if (*src != '%') {
            *p++ = *src++;
            continue;
        }

        if (last - src < 3) {
            return NGX_ERROR;
        }

        n = ngx_hextoi(src + 1, 2);

        if (n == NGX_ERROR || n == 0) {
            return NGX_ERROR;
        }

        *p++ = (u_char) n;
        src += 3;
    }

    *p = '\0';
    to->len = p - to->data;

    return NGX_OK;
}
