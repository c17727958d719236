
/*
 * The TLS handshake of a connection, and the names in the certificate of its
 * server.
 */


#include "ngx_idempotency_redis_login.h"


#if (NGX_SSL)

/* names that a certificate may be for */
#define NGX_IDEMPOTENCY_REDIS_TLS_NAMES  3


static ngx_int_t ngx_idempotency_redis_tls_name(
    ngx_idempotency_redis_conn_t *conn);
static ngx_uint_t ngx_idempotency_redis_tls_expected(
    ngx_idempotency_redis_conn_t *conn, ngx_str_t **names);
static ngx_uint_t ngx_idempotency_redis_tls_host(ngx_connection_t *c,
    ngx_str_t *name);
static ngx_uint_t ngx_idempotency_redis_tls_is_address(ngx_str_t *name);


ngx_int_t
ngx_idempotency_redis_tls_start(ngx_idempotency_redis_conn_t *conn)
{
    ngx_connection_t  *c;

    c = conn->pc.connection;

    ngx_idempotency_redis_credentials_certificates(conn->redis);

    if (ngx_ssl_create_connection(conn->redis->ssl, c, NGX_SSL_CLIENT)
        != NGX_OK
        || ngx_idempotency_redis_tls_name(conn) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /*
     * our output grows and moves between two calls of SSL_write(), and what
     * was written is to be known record by record
     */

    SSL_set_mode(c->ssl->connection, SSL_MODE_ENABLE_PARTIAL_WRITE
                                     |SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);

    /*
     * ngx_ssl_create() has asked to free the buffers of 16 KB whenever they
     * are empty; here that is after each read and each write
     */

    SSL_clear_mode(c->ssl->connection, SSL_MODE_RELEASE_BUFFERS);

    return ngx_ssl_handshake(c) == NGX_AGAIN ? NGX_AGAIN : NGX_OK;
}


/* SNI takes no addresses */

static ngx_int_t
ngx_idempotency_redis_tls_name(ngx_idempotency_redis_conn_t *conn)
{
#ifdef SSL_CTRL_SET_TLSEXT_HOSTNAME

    u_char            *name;
    ngx_str_t         *ssl_name, *names[NGX_IDEMPOTENCY_REDIS_TLS_NAMES];
    ngx_uint_t         i, n;
    ngx_connection_t  *c;

    c = conn->pc.connection;
    n = ngx_idempotency_redis_tls_expected(conn, names);

    for (i = 0; i < n; i++) {
        if (names[i]->len
            && !ngx_idempotency_redis_tls_is_address(names[i]))
        {
            break;
        }
    }

    if (i == n) {
        return NGX_OK;
    }

    ssl_name = names[i];

    name = ngx_pnalloc(c->pool, ssl_name->len + 1);
    if (name == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(name, ssl_name->data, ssl_name->len + 1);

    if (SSL_set_tlsext_host_name(c->ssl->connection, (char *) name) == 0) {
        ngx_ssl_error(NGX_LOG_ERR, c->log, 0,
                      "SSL_set_tlsext_host_name(\"%s\") failed", name);
        return NGX_ERROR;
    }

#endif

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_tls_verify(ngx_idempotency_redis_conn_t *conn)
{
    long               rc;
    ngx_str_t         *names[NGX_IDEMPOTENCY_REDIS_TLS_NAMES];
    ngx_uint_t         i, n;
    ngx_connection_t  *c;

    c = conn->pc.connection;

    if (!c->ssl->handshaked) {
        ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_TLS, 0,
                                     "failed the TLS handshake "
                                     NGX_IDEMPOTENCY_REDIS_NO_TLS);
        return NGX_ERROR;
    }

    if (!conn->redis->ssl_verify) {
        return NGX_OK;
    }

    n = ngx_idempotency_redis_tls_expected(conn, names);

    rc = SSL_get_verify_result(c->ssl->connection);

    if (rc != X509_V_OK) {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_REPORT_TLS, 0,
                                     "has a certificate that is not trusted "
                                     "(%l: %s)", rc,
                                     X509_verify_cert_error_string(rc));
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        if (ngx_idempotency_redis_tls_host(c, names[i])) {
            return NGX_OK;
        }
    }

    ngx_idempotency_redis_report(conn, NGX_IDEMPOTENCY_REDIS_REPORT_TLS, 0,
                                 "has a certificate that is not for \"%V\"",
                                 names[0]);

    return NGX_ERROR;
}


/*
 * A server may be reached by its address and have a certificate for its name,
 * or the other way round: any of these will do, SNI has the first name.
 */

static ngx_uint_t
ngx_idempotency_redis_tls_expected(ngx_idempotency_redis_conn_t *conn,
    ngx_str_t **names)
{
    ngx_uint_t                     n;
    ngx_idempotency_redis_host_t  *host;

    if (conn->redis->ssl_name.len) {
        names[0] = &conn->redis->ssl_name;
        return 1;
    }

    n = 0;
    host = &conn->peer->host;

    if (host->alias.len) {
        names[n++] = &host->alias;
    }

    if (host->name.len) {
        names[n++] = &host->name;
    }

    if (host->seed.len) {
        names[n++] = &host->seed;
    }

    if (n == 0) {

        /* a unix socket */

        names[n++] = &host->name;
    }

    return n;
}


/* ngx_ssl_check_host() knows names only */

static ngx_uint_t
ngx_idempotency_redis_tls_host(ngx_connection_t *c, ngx_str_t *name)
{
    int      match;
    X509    *cert;
    u_char   text[NGX_SOCKADDR_STRLEN];

    if (!ngx_idempotency_redis_tls_is_address(name)) {
        return ngx_ssl_check_host(c, name) == NGX_OK;
    }

    cert = SSL_get_peer_certificate(c->ssl->connection);
    if (cert == NULL) {
        return 0;
    }

    (void) ngx_cpystrn(text, name->data,
                       ngx_min(name->len + 1, sizeof(text)));

    match = X509_check_ip_asc(cert, (char *) text, 0);

    X509_free(cert);

    return match == 1;
}


static ngx_uint_t
ngx_idempotency_redis_tls_is_address(ngx_str_t *name)
{
#if (NGX_HAVE_INET6)
    u_char  addr[16];

    if (ngx_inet6_addr(name->data, name->len, addr) == NGX_OK) {
        return 1;
    }
#endif

    return ngx_inet_addr(name->data, name->len) != INADDR_NONE;
}

#endif
