
/*
 * The directives "idempotency_key" and "idempotency_source".
 */


#include "ngx_http_idempotency_conf.h"


static size_t ngx_http_idempotency_conf_constant(ngx_str_t *value);


/*
 * A key that is one header is looked up in the header lines themselves, so
 * that two lines are seen as two, in every version of nginx.
 */

char *
ngx_http_idempotency_conf_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    char       *rv;
    u_char      ch;
    size_t      i;
    ngx_str_t  *value;

    rv = ngx_http_set_complex_value_slot(cf, cmd, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return "must not be empty: name a variable, "
               "such as $http_idempotency_key";
    }

    if (ilcf->key->lengths == NULL) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"idempotency_key\" \"%V\" has no variable, all "
                           "requests of a source have the same key; a "
                           "variable begins with \"$\"", &value[1]);
        return NGX_CONF_OK;
    }

    if (value[1].len <= sizeof("$http_") - 1
        || ngx_strncasecmp(value[1].data, (u_char *) "$http_",
                           sizeof("$http_") - 1) != 0)
    {
        return NGX_CONF_OK;
    }

    for (i = sizeof("$http_") - 1; i < value[1].len; i++) {
        ch = ngx_tolower(value[1].data[i]);

        if ((ch < 'a' || ch > 'z') && (ch < '0' || ch > '9') && ch != '_') {
            return NGX_CONF_OK;
        }
    }

    ilcf->key_header.len = value[1].len - (sizeof("$http_") - 1);
    ilcf->key_header.data = value[1].data + sizeof("$http_") - 1;

    ngx_strlow(ilcf->key_header.data, ilcf->key_header.data,
               ilcf->key_header.len);

    return NGX_CONF_OK;
}


/*
 * A value such as "$tenant:$user" is not empty if both of its variables are:
 * its length is then that of the constant part.
 */

char *
ngx_http_idempotency_conf_source(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    char       *rv;
    ngx_str_t  *value;

    rv = ngx_http_set_complex_value_slot(cf, cmd, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    value = cf->args->elts;

    if (ilcf->source->lengths) {
        ilcf->source_text = ngx_http_idempotency_conf_constant(&value[1]);

    } else if (value[1].len) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"idempotency_source\" \"%V\" has no variable, "
                           "all clients are one source and get each other's "
                           "answers; a variable begins with \"$\"",
                           &value[1]);
    }

    if (ngx_strcasecmp(value[1].data, (u_char *) "$http_authorization") == 0
        || ngx_strcasecmp(value[1].data, (u_char *) "${http_authorization}")
           == 0)
    {
        ngx_conf_log_error(NGX_LOG_NOTICE, cf, 0,
                           "\"idempotency_source\" \"%V\" differs with each "
                           "try of a request that is signed (AWS SigV4, "
                           "Digest, OAuth 1), and each try would be executed; "
                           "take an identity that was verified, or a bearer "
                           "token by a \"map\"", &value[1]);
    }

    return NGX_CONF_OK;
}


/* variables are written as ngx_http_script_compile() reads them */

static size_t
ngx_http_idempotency_conf_constant(ngx_str_t *value)
{
    u_char  *p, *last;
    size_t   len;

    len = 0;
    p = value->data;
    last = p + value->len;

    while (p < last) {

        if (*p++ != '$') {
            len++;

        } else if (*p >= '1' && *p <= '9') {
            p++;

        } else if (*p == '{') {
            while (p < last && *p++ != '}') { /* void */ }

        } else {
            while (p < last && (isalnum(*p) || *p == '_')) {
                p++;
            }
        }
    }

    return len;
}
