
/*
 * TLS parameters of a Redis store.
 */


#include "ngx_idempotency_redis_login.h"


#if (NGX_SSL)

static char *ngx_idempotency_redis_conf_plain(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis);
static char *ngx_idempotency_redis_conf_tls_make(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis);
static ngx_int_t ngx_idempotency_redis_conf_tls_name(ngx_conf_t *cf,
    ngx_str_t *name);
static char *ngx_idempotency_redis_conf_tls_trust(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis);


char *
ngx_idempotency_redis_conf_tls(ngx_conf_t *cf, ngx_idempotency_redis_t *redis)
{
    return redis->tls ? ngx_idempotency_redis_conf_tls_make(cf, redis)
                      : ngx_idempotency_redis_conf_plain(cf, redis);
}


static char *
ngx_idempotency_redis_conf_plain(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis)
{
    if (redis->ssl_name.len
        || redis->ssl_trusted_certificate.len
        || redis->ssl_certificate.len
        || redis->ssl_certificate_key.len
        || redis->ssl_verify != NGX_CONF_UNSET)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store\" \"%V\" has \"ssl_\" "
                           "parameters but no TLS, use \"rediss://\" or "
                           "remove them", &redis->name);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_idempotency_redis_conf_tls_make(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis)
{
    ngx_ssl_t           *ssl;
    ngx_pool_cleanup_t  *cln;

    if (redis->ssl_verify == NGX_CONF_UNSET) {
        redis->ssl_verify = 1;
    }

    if ((redis->ssl_certificate.len == 0)
        != (redis->ssl_certificate_key.len == 0))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store\" \"%V\" needs both "
                           "\"ssl_certificate=\" and "
                           "\"ssl_certificate_key=\", or none of them",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_idempotency_redis_conf_tls_name(cf, &redis->ssl_certificate)
        != NGX_OK
        || ngx_idempotency_redis_conf_tls_name(cf,
                                               &redis->ssl_certificate_key)
           != NGX_OK
        || ngx_idempotency_redis_conf_tls_name(cf,
                                                &redis->ssl_trusted_certificate)
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_idempotency_redis_credentials_stamps(redis, redis->ssl_stamps);

    ssl = ngx_pcalloc(cf->pool, sizeof(ngx_ssl_t));
    if (ssl == NULL) {
        return NGX_CONF_ERROR;
    }

    ssl->log = cf->log;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    if (ngx_ssl_create(ssl, NGX_SSL_TLSv1_2|NGX_SSL_TLSv1_3, NULL)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_ssl_cleanup_ctx;
    cln->data = ssl;

    redis->ssl = ssl;

    if (redis->ssl_certificate.len
        && ngx_ssl_certificate(cf, ssl, &redis->ssl_certificate,
                               &redis->ssl_certificate_key, NULL)
           != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid \"ssl_certificate=%V\" or "
                           "\"ssl_certificate_key=%V\" of "
                           "\"idempotency_store\" \"%V\", they must be a "
                           "certificate and its key in PEM",
                           &redis->ssl_certificate,
                           &redis->ssl_certificate_key, &redis->name);
        return NGX_CONF_ERROR;
    }

    if (redis->ssl_verify || redis->ssl_trusted_certificate.len) {
        return ngx_idempotency_redis_conf_tls_trust(cf, redis);
    }

    return NGX_CONF_OK;
}


/*
 * ngx_ssl_certificate() takes files and other sources; only files get a full
 * path
 */

static ngx_int_t
ngx_idempotency_redis_conf_tls_name(ngx_conf_t *cf, ngx_str_t *name)
{
    if (name->len == 0
        || ngx_strncmp(name->data, "data:", sizeof("data:") - 1) == 0
        || ngx_strncmp(name->data, "store:", sizeof("store:") - 1) == 0
        || ngx_strncmp(name->data, "engine:", sizeof("engine:") - 1) == 0)
    {
        return NGX_OK;
    }

    return ngx_conf_full_name(cf->cycle, name, 1);
}


static char *
ngx_idempotency_redis_conf_tls_trust(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis)
{
    if (redis->ssl_trusted_certificate.len == 0) {

        if (SSL_CTX_set_default_verify_paths(redis->ssl->ctx) == 0) {
            ngx_ssl_error(NGX_LOG_EMERG, cf->log, 0,
                          "SSL_CTX_set_default_verify_paths() failed");
            return NGX_CONF_ERROR;
        }

        SSL_CTX_set_verify_depth(redis->ssl->ctx,
                                 NGX_IDEMPOTENCY_REDIS_VERIFY_DEPTH);

        return NGX_CONF_OK;
    }

    if (ngx_ssl_trusted_certificate(cf, redis->ssl,
                                    &redis->ssl_trusted_certificate,
                                    NGX_IDEMPOTENCY_REDIS_VERIFY_DEPTH)
        != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid \"ssl_trusted_certificate=%V\" of "
                           "\"idempotency_store\" \"%V\", it must be a file "
                           "of CA certificates in PEM",
                           &redis->ssl_trusted_certificate, &redis->name);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}

#endif
