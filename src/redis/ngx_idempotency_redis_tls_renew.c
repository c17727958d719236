
/*
 * Certificates that are replaced while nginx runs.
 *
 * Before a connection is made the files are looked at; if one has changed, all
 * of them are read anew.  Connections that are open keep what they have.
 */


#include "ngx_idempotency_redis_link.h"


#if (NGX_SSL)

static ngx_int_t ngx_idempotency_redis_tls_load(
    ngx_idempotency_redis_t *redis);
static int ngx_idempotency_redis_tls_no_password(char *buf, int size,
    int rwflag, void *data);


void
ngx_idempotency_redis_tls_stamps(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_stamp_t *stamps)
{
    ngx_uint_t   i;
    ngx_str_t   *files[3];

    files[0] = &redis->ssl_certificate;
    files[1] = &redis->ssl_certificate_key;
    files[2] = &redis->ssl_trusted_certificate;

    for (i = 0; i < 3; i++) {
        ngx_memzero(&stamps[i], sizeof(ngx_idempotency_redis_stamp_t));

        /* what is no file has no stamp, and so never changes */

        if (files[i]->len && files[i]->data[0] == '/') {
            (void) ngx_idempotency_redis_stamp(files[i], &stamps[i]);
        }
    }
}


void
ngx_idempotency_redis_tls_renew(ngx_idempotency_redis_t *redis)
{
    ngx_ssl_t                      old;
    ngx_idempotency_redis_stamp_t  stamps[3];

    ngx_idempotency_redis_tls_stamps(redis, stamps);

    if (ngx_memcmp(stamps, redis->ssl_stamps, sizeof(stamps)) == 0) {
        return;
    }

    /*
     * ngx_ssl_create() makes the context point to its ngx_ssl_t: the new one
     * is made in the place of the old one, which is put back if that fails.
     * Connections have references of their own to their context.
     */

    old = *redis->ssl;

    ngx_memzero(redis->ssl, sizeof(ngx_ssl_t));

    redis->ssl->log = ngx_cycle->log;

    if (ngx_idempotency_redis_tls_load(redis) == NGX_OK) {
        ngx_ssl_cleanup_ctx(&old);

        ngx_memcpy(redis->ssl_stamps, stamps, sizeof(stamps));
        redis->ssl_warned = 0;

        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has read its certificates "
                      "anew", &redis->name);
        return;
    }

    if (redis->ssl->ctx) {
        SSL_CTX_free(redis->ssl->ctx);
    }

    *redis->ssl = old;

    /* they may be half replaced: the next connection looks again */

    if (!redis->ssl_warned) {
        redis->ssl_warned = 1;

        ngx_ssl_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\": certificates have changed "
                      "and cannot be used by a worker, those that were read "
                      "last are used", &redis->name);
    }

    ERR_clear_error();
}


static ngx_int_t
ngx_idempotency_redis_tls_load(ngx_idempotency_redis_t *redis)
{
    SSL_CTX  *ctx;

    if (ngx_ssl_create(redis->ssl, NGX_SSL_TLSv1_2|NGX_SSL_TLSv1_3, NULL)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ctx = redis->ssl->ctx;

    /* a key with a password must not be asked for at the terminal */

    SSL_CTX_set_default_passwd_cb(ctx, ngx_idempotency_redis_tls_no_password);

    if (redis->ssl_certificate.len
        && (SSL_CTX_use_certificate_chain_file(ctx,
                                    (char *) redis->ssl_certificate.data)
            != 1
            || SSL_CTX_use_PrivateKey_file(ctx,
                                    (char *) redis->ssl_certificate_key.data,
                                    SSL_FILETYPE_PEM)
               != 1
            || SSL_CTX_check_private_key(ctx) != 1))
    {
        return NGX_ERROR;
    }

    if (!redis->ssl_verify && redis->ssl_trusted_certificate.len == 0) {
        return NGX_OK;
    }

    SSL_CTX_set_verify_depth(ctx, NGX_IDEMPOTENCY_REDIS_VERIFY_DEPTH);

    if (redis->ssl_trusted_certificate.len == 0) {
        return SSL_CTX_set_default_verify_paths(ctx) == 1 ? NGX_OK
                                                          : NGX_ERROR;
    }

    return SSL_CTX_load_verify_locations(ctx,
                             (char *) redis->ssl_trusted_certificate.data,
                             NULL)
           == 1 ? NGX_OK : NGX_ERROR;
}


static int
ngx_idempotency_redis_tls_no_password(char *buf, int size, int rwflag,
    void *data)
{
    (void) buf;
    (void) size;
    (void) rwflag;
    (void) data;

    return 0;
}

#endif
