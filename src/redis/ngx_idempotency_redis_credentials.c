
/*
 * Passwords and certificates in files that change while nginx runs.
 *
 * A password may be a token that expires.  Its file is read at each login, and
 * about once a second each worker looks whether it has changed: then AUTH is
 * sent again on connections that are open.  A connection that is subscribed to
 * channels may not send AUTH; it logs in anew when the server closes it.
 *
 * The files of certificates are looked at before a connection is made; if one
 * has changed, all of them are read anew.  Open connections keep theirs.
 *
 * No password, and no text of Redis that may quote one, is logged.
 */


#include "ngx_idempotency_redis_login.h"
#include "ngx_idempotency_redis_pipe.h"


#define NGX_IDEMPOTENCY_REDIS_PASSWORD_MAX  4096

/* with room for its line end, and a byte to see that it is longer */
#define NGX_IDEMPOTENCY_REDIS_PASSWORD_BUF                                    \
    (NGX_IDEMPOTENCY_REDIS_PASSWORD_MAX + 3)


static ngx_int_t ngx_idempotency_redis_credentials_load(ngx_file_t *file,
    u_char *buf, ngx_str_t *text);
static ngx_int_t ngx_idempotency_redis_credentials_line(ngx_str_t *text);
static void ngx_idempotency_redis_credentials_read(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_account_t *account,
    ngx_idempotency_redis_file_stamp_t *stamp);
static void ngx_idempotency_redis_credentials_warn(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_account_t *account,
    ngx_err_t err, const char *what);
static void ngx_idempotency_redis_credentials_look(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_account_t *account);
static ngx_idempotency_redis_account_t *
    ngx_idempotency_redis_credentials_account(
    ngx_idempotency_redis_conn_t *conn);
static ngx_uint_t ngx_idempotency_redis_credentials_auth(
    ngx_idempotency_redis_account_t *account, ngx_str_t *args);
static void ngx_idempotency_redis_credentials_renewed(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static ngx_int_t ngx_idempotency_redis_credentials_stamp(ngx_str_t *name,
    ngx_idempotency_redis_file_stamp_t *stamp);
#if (NGX_SSL)
static ngx_int_t ngx_idempotency_redis_credentials_context(
    ngx_idempotency_redis_t *redis);
static int ngx_idempotency_redis_credentials_no_password(char *buf, int size,
    int rwflag, void *data);
#endif


char *
ngx_idempotency_redis_credentials_conf(ngx_conf_t *cf,
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_account_t *account)
{
    u_char      *buf;
    ngx_int_t    rc;
    ngx_file_t   file;

    if (account->password_file.len == 0) {
        return NGX_CONF_OK;
    }

    if (account->password.len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store\" \"%V\" has a password in "
                           "its target and a \"password_file=\", remove one "
                           "of them", &redis->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_conf_full_name(cf->cycle, &account->password_file, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    /* the worker reads later passwords into it */

    buf = ngx_pnalloc(cf->pool, NGX_IDEMPOTENCY_REDIS_PASSWORD_BUF);
    if (buf == NULL) {
        return NGX_CONF_ERROR;
    }

    (void) ngx_idempotency_redis_credentials_stamp(&account->password_file,
                        &account->stamp);

    ngx_memzero(&file, sizeof(ngx_file_t));

    file.name = account->password_file;
    file.log = cf->log;

    rc = ngx_idempotency_redis_credentials_load(&file, buf, &account->password);

    if (rc == NGX_DECLINED) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" failed, the "
                           "\"password_file=\" of \"idempotency_store\" "
                           "\"%V\"", &file.name, &redis->name);
        return NGX_CONF_ERROR;
    }

    if (rc != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid \"password_file=%V\" of "
                           "\"idempotency_store\" \"%V\", it must hold one "
                           "line of at most %d bytes", &file.name,
                           &redis->name, NGX_IDEMPOTENCY_REDIS_PASSWORD_MAX);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* NGX_OK; NGX_DECLINED: it cannot be opened; NGX_ERROR: it has no password */

static ngx_int_t
ngx_idempotency_redis_credentials_load(ngx_file_t *file, u_char *buf,
    ngx_str_t *text)
{
    ssize_t  n;

    file->fd = ngx_open_file(file->name.data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                             NGX_FILE_OPEN, 0);

    if (file->fd == NGX_INVALID_FILE) {
        return NGX_DECLINED;
    }

    n = ngx_read_fd(file->fd, buf, NGX_IDEMPOTENCY_REDIS_PASSWORD_BUF);

    if (ngx_close_file(file->fd) == NGX_FILE_ERROR) {
        ngx_log_error(NGX_LOG_ALERT, file->log, ngx_errno,
                      ngx_close_file_n " \"%V\" failed", &file->name);
    }

    if (n <= 0) {
        return NGX_ERROR;
    }

    text->data = buf;
    text->len = n;

    return ngx_idempotency_redis_credentials_line(text);
}


static ngx_int_t
ngx_idempotency_redis_credentials_line(ngx_str_t *text)
{
    u_char  *p, *last;

    last = text->data + text->len;

    if (last[-1] == LF) {
        last--;

        if (last > text->data && last[-1] == CR) {
            last--;
        }
    }

    text->len = last - text->data;

    if (text->len == 0 || text->len > NGX_IDEMPOTENCY_REDIS_PASSWORD_MAX) {
        return NGX_ERROR;
    }

    for (p = text->data; p < last; p++) {
        if (*p == LF || *p == '\0') {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* if it cannot be read the old password stays */

static void
ngx_idempotency_redis_credentials_read(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_account_t *account,
    ngx_idempotency_redis_file_stamp_t *stamp)
{
    ngx_int_t   rc;
    ngx_str_t   text;
    ngx_file_t  file;
    u_char      buf[NGX_IDEMPOTENCY_REDIS_PASSWORD_BUF];

    ngx_memzero(&file, sizeof(ngx_file_t));

    file.name = account->password_file;
    file.log = ngx_cycle->log;

    rc = ngx_idempotency_redis_credentials_load(&file, buf, &text);

    if (rc != NGX_OK) {
        ngx_idempotency_redis_credentials_warn(redis, account,
                              rc == NGX_DECLINED ? ngx_errno : 0,
                              rc == NGX_DECLINED ? "cannot be opened"
                                                 : "holds no password");

    } else {
        account->stamp = *stamp;
        account->warned = 0;

        if (text.len != account->password.len
            || ngx_memcmp(text.data, account->password.data, text.len) != 0)
        {
            ngx_memcpy(account->password.data, text.data, text.len);
            account->password.len = text.len;
            account->version++;

            ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                          "idempotency store \"%V\": \"%V\" has a new "
                          "password", &redis->name, &account->password_file);
        }
    }

    ngx_explicit_memzero(buf, sizeof(buf));
}


static void
ngx_idempotency_redis_credentials_warn(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_account_t *account, ngx_err_t err, const char *what)
{
    if (account->warned) {
        return;
    }

    account->warned = 1;

    ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, err,
                  "idempotency store \"%V\": \"password_file=%V\" %s by a "
                  "worker, the password that was read last is used",
                  &redis->name, &account->password_file, what);
}


void
ngx_idempotency_redis_credentials_check(ngx_idempotency_redis_t *redis)
{
    ngx_idempotency_redis_credentials_look(redis, &redis->account);
    ngx_idempotency_redis_credentials_look(redis, &redis->sentinel);
}


static void
ngx_idempotency_redis_credentials_look(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_account_t *account)
{
    ngx_idempotency_redis_file_stamp_t  stamp;

    if (account->password_file.len == 0) {
        return;
    }

    if (ngx_idempotency_redis_credentials_stamp(&account->password_file, &stamp)
        != NGX_OK)
    {
        ngx_idempotency_redis_credentials_warn(redis, account, ngx_errno,
                      "cannot be found");
        return;
    }

    /* a file that changes while it is read will have another stamp next time */

    if (ngx_memcmp(&stamp, &account->stamp, sizeof(stamp)) != 0) {
        ngx_idempotency_redis_credentials_read(redis, account, &stamp);
    }
}


static ngx_idempotency_redis_account_t *
ngx_idempotency_redis_credentials_account(ngx_idempotency_redis_conn_t *conn)
{
    switch (conn->peer->kind) {

    case NGX_IDEMPOTENCY_REDIS_KIND_SENTINEL:
    case NGX_IDEMPOTENCY_REDIS_KIND_SENTINEL_EVENTS:
        return &conn->redis->sentinel;

    default: /* nodes with records, and their subscribers */
        return &conn->redis->account;
    }
}


ngx_uint_t
ngx_idempotency_redis_credentials_login(ngx_idempotency_redis_conn_t *conn,
    ngx_str_t *args)
{
    ngx_idempotency_redis_account_t    *account;
    ngx_idempotency_redis_file_stamp_t  stamp;

    account = ngx_idempotency_redis_credentials_account(conn);

    if (account->password_file.len) {

        /* read even if it looks the same; it is a rare event */

        (void) ngx_idempotency_redis_credentials_stamp(&account->password_file,
                                                       &stamp);
        ngx_idempotency_redis_credentials_read(conn->redis, account, &stamp);
    }

    conn->password = account->version;

    if (account->password.len == 0 && account->user.len == 0) {
        return 0;
    }

    return ngx_idempotency_redis_credentials_auth(account, args);
}


static ngx_uint_t
ngx_idempotency_redis_credentials_auth(ngx_idempotency_redis_account_t *account,
    ngx_str_t *args)
{
    ngx_uint_t  n;

    n = 0;

    ngx_str_set(&args[n], "AUTH");
    n++;

    if (account->user.len) {
        args[n++] = account->user;
    }

    args[n++] = account->password;

    return n;
}


void
ngx_idempotency_redis_credentials_renew(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_cmd_t      *cmd;
    ngx_str_t                         args[3];
    ngx_idempotency_redis_account_t  *account;

    account = ngx_idempotency_redis_credentials_account(conn);

    if (conn->state != NGX_IDEMPOTENCY_REDIS_READY || conn->authing
        || conn->peer->kind == NGX_IDEMPOTENCY_REDIS_KIND_SENTINEL_EVENTS
        || conn->password == account->version)
    {
        return;
    }

    cmd = &conn->auth;

    ngx_memzero(cmd, sizeof(ngx_idempotency_redis_cmd_t));

    cmd->args = args;
    cmd->nargs = ngx_idempotency_redis_credentials_auth(account, args);
    cmd->handler = ngx_idempotency_redis_credentials_renewed;
    cmd->data = conn;

    if (ngx_idempotency_redis_queue_push(conn, cmd) != NGX_OK) {
        return;
    }

    conn->authing = 1;
    conn->password = account->version;
}


static void
ngx_idempotency_redis_credentials_renewed(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_conn_t     *conn;
    ngx_idempotency_redis_account_t  *account;

    conn = cmd->data;
    conn->authing = 0;

    if (reply == NULL) {

        /* the next login has the new password */

        return;
    }

    if (ngx_idempotency_redis_reply_type(reply) != NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                      "idempotency store \"%V\" took the new password, "
                      "node \"%V\"", &conn->redis->name, &conn->peer->name);
        return;
    }

    account = ngx_idempotency_redis_credentials_account(conn);

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\" refused the new password of "
                  "\"%V\", node \"%V\"; the connection continues with the old "
                  "one", &conn->redis->name, &account->password_file,
                  &conn->peer->name);
}


/* NGX_OK, or NGX_ERROR with an errno */

static ngx_int_t
ngx_idempotency_redis_credentials_stamp(ngx_str_t *name,
    ngx_idempotency_redis_file_stamp_t *stamp)
{
    ngx_file_info_t  fi;

    ngx_memzero(stamp, sizeof(ngx_idempotency_redis_file_stamp_t));

    if (ngx_file_info(name->data, &fi) == NGX_FILE_ERROR) {
        return NGX_ERROR;
    }

    stamp->uniq = ngx_file_uniq(&fi);
    stamp->size = ngx_file_size(&fi);
    stamp->mtime = ngx_file_mtime(&fi);

#if (NGX_LINUX)

    /* two writes within a second */

    stamp->nsec = (ngx_uint_t) fi.st_mtim.tv_nsec;

#endif

    return NGX_OK;
}


#if (NGX_SSL)

void
ngx_idempotency_redis_credentials_stamps(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_file_stamp_t *stamps)
{
    ngx_uint_t   i;
    ngx_str_t   *files[3];

    files[0] = &redis->ssl_certificate;
    files[1] = &redis->ssl_certificate_key;
    files[2] = &redis->ssl_trusted_certificate;

    for (i = 0; i < 3; i++) {
        ngx_memzero(&stamps[i], sizeof(ngx_idempotency_redis_file_stamp_t));

        /* what is no file has no stamp, and never changes */

        if (files[i]->len && files[i]->data[0] == '/') {
            (void) ngx_idempotency_redis_credentials_stamp(files[i],
                                                           &stamps[i]);
        }
    }
}


void
ngx_idempotency_redis_credentials_certificates(ngx_idempotency_redis_t *redis)
{
    ngx_ssl_t                           old;
    ngx_idempotency_redis_file_stamp_t  stamps[3];

    ngx_idempotency_redis_credentials_stamps(redis, stamps);

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

    if (ngx_idempotency_redis_credentials_context(redis) == NGX_OK) {
        ngx_ssl_cleanup_ctx(&old);

        ngx_memcpy(redis->ssl_stamps, stamps, sizeof(stamps));
        redis->ssl_warned = 0;

        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has reloaded its "
                      "certificates", &redis->name);
        return;
    }

    if (redis->ssl->ctx) {
        SSL_CTX_free(redis->ssl->ctx);
    }

    *redis->ssl = old;

    /* they may be half replaced: the next connection tries again */

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
ngx_idempotency_redis_credentials_context(ngx_idempotency_redis_t *redis)
{
    SSL_CTX  *ctx;

    if (ngx_ssl_create(redis->ssl, NGX_SSL_TLSv1_2|NGX_SSL_TLSv1_3, NULL)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ctx = redis->ssl->ctx;

    /* a key with a password must not be asked for at the terminal */

    SSL_CTX_set_default_passwd_cb(ctx,
                              ngx_idempotency_redis_credentials_no_password);

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
ngx_idempotency_redis_credentials_no_password(char *buf, int size, int rwflag,
    void *data)
{
    (void) buf;
    (void) size;
    (void) rwflag;
    (void) data;

    return 0;
}

#endif
