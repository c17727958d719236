
/*
 * What a profile says where the configuration says nothing.
 */


#include "ngx_http_idempotency_profile.h"
#include "ngx_http_idempotency_conf.h"


#define NGX_HTTP_IDEMPOTENCY_PROFILE_STATUSES  8


typedef struct {
    char                              *scope;
    char                              *with;       /* the fingerprint */
    ngx_flag_t                         required;
    ngx_str_t                          final
                                       [NGX_HTTP_IDEMPOTENCY_PROFILE_STATUSES];
    ngx_str_t                          retryable
                                       [NGX_HTTP_IDEMPOTENCY_PROFILE_STATUSES];
} ngx_http_idempotency_profile_t;


static ngx_int_t ngx_http_idempotency_profile_value(ngx_conf_t *cf,
    ngx_http_complex_value_t *given, char *text,
    ngx_http_complex_value_t **value);
static ngx_int_t ngx_http_idempotency_profile_statuses(ngx_conf_t *cf,
    ngx_http_idempotency_statuses_t *given, ngx_str_t *list,
    ngx_http_idempotency_statuses_t **statuses);


/* in the order of the numbers of the profiles */

static ngx_http_idempotency_profile_t  ngx_http_idempotency_profiles[] = {

    { "$request_method $idempotency_uri", "$is_args$args", 1,
      { ngx_string("200-499"), ngx_string("500"), ngx_string("501") },
      { ngx_string("401"), ngx_string("403"), ngx_string("407"),
        ngx_string("408"), ngx_string("425"), ngx_string("429"),
        ngx_string("503") } },

    /* whatever the upstream has said is said again */

    { "", "$request_method $idempotency_uri$is_args$args", 0,
      { ngx_string("200-599") },
      { ngx_null_string } },

    { "$request_method $idempotency_uri", "$is_args$args", 1,
      { ngx_string("200-499") },
      { ngx_string("401"), ngx_string("403"), ngx_string("407"),
        ngx_string("408"), ngx_string("425"), ngx_string("429"),
        ngx_string("500-599") } }
};


ngx_int_t
ngx_http_idempotency_profile_apply(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_idempotency_given_t    *given;
    ngx_http_idempotency_profile_t  *profile;

    given = &conf->given;
    profile = &ngx_http_idempotency_profiles[conf->profile];

    conf->required = (given->required != NGX_CONF_UNSET) ? given->required
                                                         : profile->required;

    if (prev->scope
        && prev->profile == conf->profile
        && ngx_memcmp(&prev->given, given,
                      sizeof(ngx_http_idempotency_given_t)) == 0)
    {
        /* a server may have a thousand locations */

        conf->scope = prev->scope;
        conf->fingerprint_with = prev->fingerprint_with;
        conf->final = prev->final;
        conf->retryable = prev->retryable;

        return NGX_OK;
    }

    if (ngx_http_idempotency_profile_value(cf, given->scope, profile->scope,
                                           &conf->scope)
        != NGX_OK
        || ngx_http_idempotency_profile_value(cf, given->with, profile->with,
                                              &conf->fingerprint_with)
           != NGX_OK
        || ngx_http_idempotency_profile_statuses(cf, given->final,
                                                 profile->final, &conf->final)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_profile_statuses(cf, given->retryable,
                                                 profile->retryable,
                                                 &conf->retryable);
}


static ngx_int_t
ngx_http_idempotency_profile_value(ngx_conf_t *cf,
    ngx_http_complex_value_t *given, char *text,
    ngx_http_complex_value_t **value)
{
    *value = given ? given : ngx_http_idempotency_conf_value(cf, text);

    return *value ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_idempotency_profile_statuses(ngx_conf_t *cf,
    ngx_http_idempotency_statuses_t *given, ngx_str_t *list,
    ngx_http_idempotency_statuses_t **statuses)
{
    ngx_uint_t  n;

    if (given != NGX_CONF_UNSET_PTR) {
        *statuses = given;
        return NGX_OK;
    }

    for (n = 0; n < NGX_HTTP_IDEMPOTENCY_PROFILE_STATUSES; n++) {
        if (list[n].len == 0) {
            break;
        }
    }

    *statuses = ngx_http_idempotency_conf_status_list(cf, list, n);

    return *statuses ? NGX_OK : NGX_ERROR;
}
