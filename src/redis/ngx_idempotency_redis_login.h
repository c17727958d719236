
/*
 * From a connected socket to one that may be used: TLS, user, role.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_LOGIN_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_LOGIN_H_INCLUDED_


#include "ngx_idempotency_redis_conn.h"


/* login: the first commands of a connection */

/* Prepares conn->hello.  NGX_ERROR when memory is short. */
ngx_int_t ngx_idempotency_redis_login_start(ngx_idempotency_redis_conn_t *conn);
/*
 * NGX_OK: the login is over; NGX_AGAIN: there are more replies to come;
 * NGX_DECLINED: it has to begin anew; NGX_ERROR: this server cannot be used.
 */
ngx_int_t ngx_idempotency_redis_login_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply);
/* The server has closed the connection before the login was over. */
void ngx_idempotency_redis_login_closed(ngx_idempotency_redis_conn_t *conn);


/* credentials: passwords and certificates in files that change */

/* The password file of an account, if it has one, at start. */
char *ngx_idempotency_redis_credentials_conf(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_account_t *account);
/* AUTH and its arguments for a login, three at most; 0: none is needed. */
ngx_uint_t ngx_idempotency_redis_credentials_login(
    ngx_idempotency_redis_conn_t *conn, ngx_str_t *args);
/* Reads password files that have changed. */
void ngx_idempotency_redis_credentials_check(ngx_idempotency_redis_t *redis);
/* Sends AUTH again if the connection has an older password. */
void ngx_idempotency_redis_credentials_renew(
    ngx_idempotency_redis_conn_t *conn);

#if (NGX_SSL)

/* When the files of certificates were changed. */
void ngx_idempotency_redis_credentials_stamps(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_file_stamp_t *stamps);
/* Certificates as they are in their files now, for a new connection. */
void ngx_idempotency_redis_credentials_certificates(
    ngx_idempotency_redis_t *redis);


/* tls: the handshake */

/* NGX_OK: it is over, see verify; NGX_AGAIN: c->ssl->handler will be called. */
ngx_int_t ngx_idempotency_redis_tls_start(ngx_idempotency_redis_conn_t *conn);
/* Is this the right server? */
ngx_int_t ngx_idempotency_redis_tls_verify(ngx_idempotency_redis_conn_t *conn);

#endif


#endif /* _NGX_IDEMPOTENCY_REDIS_LOGIN_H_INCLUDED_ */
