
/*
 * The files with secrets: read, checked, made into keys.
 */


#include "ngx_http_idempotency_conf.h"


static ngx_int_t ngx_http_idempotency_conf_secret_read(ngx_conf_t *cf,
    ngx_str_t *name, u_char *bytes);
static ngx_int_t ngx_http_idempotency_conf_secret_check(ngx_conf_t *cf,
    ngx_str_t *name, ngx_file_info_t *fi);


char *
ngx_http_idempotency_conf_secret(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_int_t                   rc;
    ngx_str_t                  *value;
    ngx_idempotency_secret_t   *secret, **secrets;
    u_char                      bytes[NGX_IDEMPOTENCY_SECRET_LEN];

    value = cf->args->elts;

    if (ngx_conf_full_name(cf->cycle, &value[1], 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (ilcf->secrets == NGX_CONF_UNSET_PTR) {
        ilcf->secrets = ngx_array_create(cf->pool, 2,
                                         sizeof(ngx_idempotency_secret_t *));
        if (ilcf->secrets == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    secret = ngx_palloc(cf->pool, sizeof(ngx_idempotency_secret_t));
    if (secret == NULL) {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_idempotency_conf_secret_read(cf, &value[1], bytes) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    rc = ngx_idempotency_secret_init(cf->pool, secret, bytes);

    ngx_explicit_memzero(bytes, sizeof(bytes));

    if (rc != NGX_OK) {
        return "cannot use AES-256 and HMAC of libcrypto";
    }

    if (ngx_idempotency_secret_find(ilcf->secrets, secret->id)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_secret\" file \"%V\" has the same "
                           "secret as one before it, leave it out", &value[1]);
        return NGX_CONF_ERROR;
    }

    secrets = ngx_array_push(ilcf->secrets);
    if (secrets == NULL) {
        return NGX_CONF_ERROR;
    }

    *secrets = secret;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_idempotency_conf_secret_read(ngx_conf_t *cf, ngx_str_t *name,
    u_char *bytes)
{
    ssize_t          n;
    ngx_fd_t         fd;
    ngx_int_t        rc;
    ngx_file_info_t  fi;

    /* a pipe must not block the start */

    fd = ngx_open_file(name->data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                       NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "cannot open the file \"%V\" of "
                           "\"idempotency_secret\", make it with \"umask 077; "
                           "openssl rand 32 > %V\"", name, name);
        return NGX_ERROR;
    }

    rc = NGX_ERROR;

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_fd_info_n " \"%V\" failed", name);
        goto done;
    }

    if (ngx_http_idempotency_conf_secret_check(cf, name, &fi) != NGX_OK) {
        goto done;
    }

    n = ngx_read_fd(fd, bytes, NGX_IDEMPOTENCY_SECRET_LEN);

    if (n != NGX_IDEMPOTENCY_SECRET_LEN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, n == -1 ? ngx_errno : 0,
                           "cannot read the file \"%V\" of "
                           "\"idempotency_secret\"", name);
        goto done;
    }

    rc = NGX_OK;

done:

    if (ngx_close_file(fd) == NGX_FILE_ERROR) {
        ngx_log_error(NGX_LOG_ALERT, cf->log, ngx_errno,
                      ngx_close_file_n " \"%V\" failed", name);
    }

    return rc;
}


static ngx_int_t
ngx_http_idempotency_conf_secret_check(ngx_conf_t *cf, ngx_str_t *name,
    ngx_file_info_t *fi)
{
    if (!ngx_is_file(fi)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" of \"idempotency_secret\" is not a file",
                           name);
        return NGX_ERROR;
    }

    if (ngx_file_access(fi) & 077) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the file \"%V\" of \"idempotency_secret\" is open "
                           "to others than its owner, run "
                           "\"chmod 600 %V\"; if they may have read it, make "
                           "a new one", name, name);
        return NGX_ERROR;
    }

    if (ngx_file_size(fi) != NGX_IDEMPOTENCY_SECRET_LEN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the file \"%V\" of \"idempotency_secret\" has %O "
                           "bytes, it must have %d: make it with "
                           "\"umask 077; openssl rand 32 > %V\"",
                           name, ngx_file_size(fi),
                           NGX_IDEMPOTENCY_SECRET_LEN, name);
        return NGX_ERROR;
    }

    return NGX_OK;
}
