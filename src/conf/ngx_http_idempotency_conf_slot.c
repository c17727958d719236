
/*
 * Numbers, times, sizes, words of a list, and lists of statuses.
 */


#include "ngx_http_idempotency_conf.h"


static char *ngx_http_idempotency_conf_second(ngx_conf_t *cf, void *post,
    void *data);
static ngx_int_t ngx_http_idempotency_conf_status_range(ngx_str_t *text,
    ngx_http_idempotency_statuses_t *statuses);


static ngx_conf_num_bounds_t  ngx_http_idempotency_conf_max_key_bounds = {
    ngx_conf_check_num_bounds, 1, 65536
};


static ngx_conf_post_t  ngx_http_idempotency_conf_lease_post = {
    ngx_http_idempotency_conf_second
};


static ngx_conf_enum_t  ngx_http_idempotency_conf_duplicates[] = {
    { ngx_string("replay"), NGX_HTTP_IDEMPOTENCY_DUPLICATE_REPLAY },
    { ngx_string("reject"), NGX_HTTP_IDEMPOTENCY_DUPLICATE_REJECT },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_idempotency_conf_store_errors[] = {
    { ngx_string("reject"), NGX_HTTP_IDEMPOTENCY_STORE_ERROR_REJECT },
    { ngx_string("pass"), NGX_HTTP_IDEMPOTENCY_STORE_ERROR_PASS },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_idempotency_conf_profiles[] = {
    { ngx_string("ietf"), NGX_HTTP_IDEMPOTENCY_PROFILE_IETF },
    { ngx_string("stripe"), NGX_HTTP_IDEMPOTENCY_PROFILE_STRIPE },
    { ngx_string("acp"), NGX_HTTP_IDEMPOTENCY_PROFILE_ACP },
    { ngx_string("ucp"), NGX_HTTP_IDEMPOTENCY_PROFILE_UCP },
    { ngx_string("oasis"), NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS },
    { ngx_string("jsonrpc"), NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_idempotency_conf_sequences[] = {
    { ngx_string("off"), 0 },
    { ngx_string("increasing"), NGX_IDEMPOTENCY_SEQUENCE },
    { ngx_string("strict"),
      NGX_IDEMPOTENCY_SEQUENCE|NGX_IDEMPOTENCY_SEQUENCE_STRICT },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_idempotency_conf_log_levels[] = {
    { ngx_string("info"), NGX_LOG_INFO },
    { ngx_string("notice"), NGX_LOG_NOTICE },
    { ngx_string("warn"), NGX_LOG_WARN },
    { ngx_string("error"), NGX_LOG_ERR },
    { ngx_null_string, 0 }
};


ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_max_key = {
    ngx_conf_set_num_slot,
    &ngx_http_idempotency_conf_max_key_bounds,
    "a number from 1 to 65536"
};


ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_duplicate = {
    ngx_conf_set_enum_slot,
    ngx_http_idempotency_conf_duplicates,
    "\"replay\" or \"reject\""
};


ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_store_error = {
    ngx_conf_set_enum_slot,
    ngx_http_idempotency_conf_store_errors,
    "\"reject\" or \"pass\""
};


ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_lease = {
    ngx_conf_set_msec_slot,
    &ngx_http_idempotency_conf_lease_post,
    "a second at least, as in \"30s\""
};


ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_max_response = {
    ngx_conf_set_size_slot,
    NULL,
    "a size, as in \"1m\""
};


ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_profile = {
    ngx_conf_set_enum_slot,
    ngx_http_idempotency_conf_profiles,
    "\"ietf\", \"stripe\", \"acp\", \"ucp\", \"oasis\" or \"jsonrpc\""
};


ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_sequence = {
    ngx_conf_set_enum_slot,
    ngx_http_idempotency_conf_sequences,
    "\"off\", \"increasing\" or \"strict\""
};


ngx_http_idempotency_conf_slot_t  ngx_http_idempotency_conf_log_level = {
    ngx_conf_set_enum_slot,
    ngx_http_idempotency_conf_log_levels,
    "\"info\", \"notice\", \"warn\" or \"error\""
};


char *
ngx_http_idempotency_conf_slot(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                              *rv;
    ngx_str_t                         *value;
    ngx_uint_t                         level;
    ngx_command_t                      slot;
    ngx_http_idempotency_conf_slot_t  *rule;

    rule = cmd->post;

    slot = *cmd;
    slot.post = rule->post;

    /* some of nginx's parsers log a value without its directive */

    level = cf->log->log_level;
    cf->log->log_level = NGX_LOG_STDERR;

    rv = rule->set(cf, &slot, conf);

    cf->log->log_level = level;

    if (rv == NGX_CONF_OK
        || (rv != NGX_CONF_ERROR && ngx_strcmp(rv, "is duplicate") == 0))
    {
        return rv;
    }

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\", it must be %s",
                       &value[1], &cmd->name, rule->fix);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_idempotency_conf_second(ngx_conf_t *cf, void *post, void *data)
{
    ngx_msec_t *value = data;

    return *value < 1000 ? NGX_CONF_ERROR : NGX_CONF_OK;
}


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
