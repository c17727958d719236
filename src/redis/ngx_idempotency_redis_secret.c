
/*
 * Passwords in files, which may be tokens that expire.
 *
 * A file is read at each login.  About once a second each worker looks whether
 * it has changed, and then says AUTH again on its connections, in turn with
 * what else is sent there: what was logged in with the old password goes on
 * with the new one.  Who listens to channels may not say AUTH; such a
 * connection logs in anew when the server closes it.
 *
 * No password, and no text of Redis that may quote one, is logged.
 */


#include "ngx_idempotency_redis_conf.h"
#include "ngx_idempotency_redis_link.h"


#define NGX_IDEMPOTENCY_REDIS_PASSWORD_MAX  4096

/* with room for its line end, and a byte to see that it is longer */
#define NGX_IDEMPOTENCY_REDIS_PASSWORD_BUF                                    \
    (NGX_IDEMPOTENCY_REDIS_PASSWORD_MAX + 3)

/* how often files are looked at, milliseconds */
#define NGX_IDEMPOTENCY_REDIS_SECRET_LOOK   1000


static ngx_int_t ngx_idempotency_redis_secret_load(ngx_file_t *file,
    u_char *buf, ngx_str_t *text);
static ngx_int_t ngx_idempotency_redis_secret_line(ngx_str_t *text);
static void ngx_idempotency_redis_secret_read(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_account_t *account,
    ngx_idempotency_redis_stamp_t *stamp);
static void ngx_idempotency_redis_secret_warn(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_account_t *account, ngx_err_t err,
    const char *what);
static void ngx_idempotency_redis_secret_look(ngx_event_t *ev);
static void ngx_idempotency_redis_secret_check(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_account_t *account);
static ngx_idempotency_redis_account_t *ngx_idempotency_redis_secret_of(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_secret_renew(
    ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_account_t *account);
static void ngx_idempotency_redis_secret_lost(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);


char *
ngx_idempotency_redis_secret_conf(ngx_conf_t *cf,
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

    /* that of the worker from then on */

    buf = ngx_pnalloc(cf->pool, NGX_IDEMPOTENCY_REDIS_PASSWORD_BUF);
    if (buf == NULL) {
        return NGX_CONF_ERROR;
    }

    (void) ngx_idempotency_redis_stamp(&account->password_file,
                                       &account->stamp);

    ngx_memzero(&file, sizeof(ngx_file_t));

    file.name = account->password_file;
    file.log = cf->log;

    rc = ngx_idempotency_redis_secret_load(&file, buf, &account->password);

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


/* NGX_OK; NGX_DECLINED: it cannot be opened; NGX_ERROR: nor used */

static ngx_int_t
ngx_idempotency_redis_secret_load(ngx_file_t *file, u_char *buf,
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

    return ngx_idempotency_redis_secret_line(text);
}


static ngx_int_t
ngx_idempotency_redis_secret_line(ngx_str_t *text)
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


/* what cannot be read changes nothing */

static void
ngx_idempotency_redis_secret_read(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_account_t *account,
    ngx_idempotency_redis_stamp_t *stamp)
{
    ngx_int_t   rc;
    ngx_str_t   text;
    ngx_file_t  file;
    u_char      buf[NGX_IDEMPOTENCY_REDIS_PASSWORD_BUF];

    ngx_memzero(&file, sizeof(ngx_file_t));

    file.name = account->password_file;
    file.log = ngx_cycle->log;

    rc = ngx_idempotency_redis_secret_load(&file, buf, &text);

    if (rc != NGX_OK) {
        ngx_idempotency_redis_secret_warn(redis, account,
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
ngx_idempotency_redis_secret_warn(ngx_idempotency_redis_t *redis,
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
ngx_idempotency_redis_secret_start(ngx_idempotency_redis_t *redis)
{
    ngx_event_t  *ev;

    if (redis->account.password_file.len == 0
        && redis->sentinel.password_file.len == 0)
    {
        return;
    }

    ev = &redis->secrets;

    ngx_memzero(ev, sizeof(ngx_event_t));

    ev->handler = ngx_idempotency_redis_secret_look;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_SECRET_LOOK);
}


void
ngx_idempotency_redis_secret_stop(ngx_idempotency_redis_t *redis)
{
    if (redis->secrets.timer_set) {
        ngx_del_timer(&redis->secrets);
    }
}


static void
ngx_idempotency_redis_secret_look(ngx_event_t *ev)
{
    ngx_uint_t                        i;
    ngx_queue_t                      *q;
    ngx_connection_t                 *dummy;
    ngx_idempotency_redis_t          *redis;
    ngx_idempotency_redis_node_t     *node;
    ngx_idempotency_redis_conn_t     *conn;
    ngx_idempotency_redis_account_t  *account;

    dummy = ev->data;
    redis = dummy->data;

    ngx_idempotency_redis_secret_check(redis, &redis->account);
    ngx_idempotency_redis_secret_check(redis, &redis->sentinel);

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (node->kind == NGX_IDEMPOTENCY_REDIS_HEARD) {
            continue;
        }

        account = ngx_idempotency_redis_secret_of(node);

        for (i = 0; i < node->nconns; i++) {
            conn = &node->conns[i];

            if (conn->state == NGX_IDEMPOTENCY_REDIS_READY
                && conn->secret != account->version && !conn->authing)
            {
                ngx_idempotency_redis_secret_renew(conn, account);
            }
        }
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_SECRET_LOOK);
}


static void
ngx_idempotency_redis_secret_check(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_account_t *account)
{
    ngx_idempotency_redis_stamp_t  stamp;

    if (account->password_file.len == 0) {
        return;
    }

    if (ngx_idempotency_redis_stamp(&account->password_file, &stamp)
        != NGX_OK)
    {
        ngx_idempotency_redis_secret_warn(redis, account, ngx_errno,
                                          "cannot be found");
        return;
    }

    /* one that changes while it is read will have another stamp later */

    if (ngx_memcmp(&stamp, &account->stamp, sizeof(stamp)) != 0) {
        ngx_idempotency_redis_secret_read(redis, account, &stamp);
    }
}


static ngx_idempotency_redis_account_t *
ngx_idempotency_redis_secret_of(ngx_idempotency_redis_node_t *node)
{
    switch (node->kind) {

    case NGX_IDEMPOTENCY_REDIS_ASKED:
    case NGX_IDEMPOTENCY_REDIS_HEARD:
        return &node->redis->sentinel;

    default: /* SERVER, EAR */
        return &node->redis->account;
    }
}


ngx_idempotency_redis_account_t *
ngx_idempotency_redis_secret_login(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_stamp_t     stamp;
    ngx_idempotency_redis_account_t  *account;

    account = ngx_idempotency_redis_secret_of(conn->node);

    if (account->password_file.len) {

        /* read even if it looks the same; it is a rare event */

        (void) ngx_idempotency_redis_stamp(&account->password_file, &stamp);
        ngx_idempotency_redis_secret_read(conn->redis, account, &stamp);
    }

    conn->secret = account->version;

    return account;
}


ngx_uint_t
ngx_idempotency_redis_secret_args(ngx_idempotency_redis_account_t *account,
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


static void
ngx_idempotency_redis_secret_renew(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_account_t *account)
{
    ngx_int_t   rc;
    ngx_str_t   args[3], bytes;
    ngx_uint_t  n;

    n = ngx_idempotency_redis_secret_args(account, args);

    if (ngx_idempotency_redis_encode(args, n, &bytes) != NGX_OK) {
        return;
    }

    ngx_memzero(&conn->auth, sizeof(ngx_idempotency_redis_cmd_t));

    conn->auth.handler = ngx_idempotency_redis_secret_lost;
    conn->auth.data = conn;

    rc = ngx_idempotency_redis_pipe_push(conn, &bytes, &conn->auth);

    ngx_idempotency_redis_encode_free(&bytes);

    if (rc != NGX_OK) {
        return;
    }

    conn->authing = 1;
    conn->secret = account->version;
}


void
ngx_idempotency_redis_secret_told(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_account_t  *account;

    conn->authing = 0;

    account = ngx_idempotency_redis_secret_of(conn->node);

    if (ngx_idempotency_redis_reply_type(reply) != NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                      "idempotency store \"%V\" took the new password, "
                      "node \"%V\"", &conn->redis->name, &conn->node->name);
        return;
    }

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\" refused the new password of "
                  "\"%V\", node \"%V\"; the connection goes on with the old "
                  "one", &conn->redis->name, &account->password_file,
                  &conn->node->name);
}


/* the next login has the password anyway */

static void
ngx_idempotency_redis_secret_lost(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_conn_t  *conn;

    (void) reply;

    conn = cmd->data;
    conn->authing = 0;
}
