
/*
 * Lists of statuses: codes and ranges.
 */


#include "ngx_http_idempotency_conf.h"


static ngx_int_t ngx_http_idempotency_conf_status_range(ngx_str_t *text,
    ngx_http_idempotency_statuses_t *statuses);


char *
ngx_http_idempotency_conf_statuses(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    char  *p = conf;

    ngx_str_t                         *value;
    ngx_uint_t                         i;
    ngx_http_idempotency_statuses_t  **statuses;

    statuses = (ngx_http_idempotency_statuses_t **) (p + cmd->offset);

    if (*statuses != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    *statuses = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_statuses_t));
    if (*statuses == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_http_idempotency_conf_status_range(&value[i], *statuses)
            != NGX_OK)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid status \"%V\" in \"%V\", it must be "
                               "a code from 200 to 599, or a range such as "
                               "\"500-599\"", &value[i], &cmd->name);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


ngx_http_idempotency_statuses_t *
ngx_http_idempotency_conf_status_list(ngx_conf_t *cf, ngx_str_t *list,
    ngx_uint_t n)
{
    ngx_uint_t                        i;
    ngx_http_idempotency_statuses_t  *statuses;

    statuses = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_statuses_t));
    if (statuses == NULL) {
        return NULL;
    }

    for (i = 0; i < n; i++) {
        (void) ngx_http_idempotency_conf_status_range(&list[i], statuses);
    }

    return statuses;
}


static ngx_int_t
ngx_http_idempotency_conf_status_range(ngx_str_t *text,
    ngx_http_idempotency_statuses_t *statuses)
{
    u_char     *dash, *last;
    ngx_int_t   from, to;

    last = text->data + text->len;
    dash = ngx_strlchr(text->data, last, '-');

    from = ngx_atoi(text->data, (dash ? dash : last) - text->data);
    to = dash ? ngx_atoi(dash + 1, last - dash - 1) : from;

    if (from < 200 || to < from || to >= NGX_HTTP_IDEMPOTENCY_STATUSES) {
        return NGX_ERROR;
    }

    while (from <= to) {
        statuses->bits[from / 8] |= (u_char) (1 << from % 8);
        from++;
    }

    return NGX_OK;
}
