
/*
 * Configuration: defaults, inheritance, and what is refused.
 */


#include "ngx_http_idempotency_merge.h"
#include "ngx_http_idempotency_conf.h"
#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_upstream.h"


#define NGX_HTTP_IDEMPOTENCY_PROFILE_STATUSES  8

/* parts that profiles share */

#define NGX_HTTP_IDEMPOTENCY_PROFILE_KEY                                      \
    "$http_idempotency_key", ngx_string("idempotency_key"),                   \
    ngx_string("header Idempotency-Key")

#define NGX_HTTP_IDEMPOTENCY_PROFILE_NOT_NOW                                  \
    ngx_string("401"), ngx_string("403"), ngx_string("407"),                  \
    ngx_string("408"), ngx_string("425"), ngx_string("429")

/* known to identify_scope() and fingerprint_make() */

#define NGX_HTTP_IDEMPOTENCY_PROFILE_SCOPE  "$request_method $idempotency_uri"
#define NGX_HTTP_IDEMPOTENCY_PROFILE_WITH   "$is_args$args"


typedef struct {
    char                              *key;
    ngx_str_t                          key_header;
    ngx_str_t                          key_place;
    ngx_uint_t                         methods;
    ngx_uint_t                         fingerprint;
    time_t                             ttl;
    char                              *scope;
    char                              *with;       /* the fingerprint */
    ngx_flag_t                         required;
    ngx_str_t                          final
                                       [NGX_HTTP_IDEMPOTENCY_PROFILE_STATUSES];
    ngx_str_t                          retryable
                                       [NGX_HTTP_IDEMPOTENCY_PROFILE_STATUSES];
} ngx_http_idempotency_profile_t;


static ngx_int_t ngx_http_idempotency_merge_identity(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static ngx_int_t ngx_http_idempotency_merge_profile(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static ngx_int_t ngx_http_idempotency_profile_apply(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static ngx_int_t ngx_http_idempotency_profile_value(ngx_conf_t *cf,
    ngx_http_complex_value_t *given, char *text,
    ngx_http_complex_value_t **value);
static ngx_flag_t ngx_http_idempotency_profile_is(
    ngx_http_complex_value_t *value, const char *text);
static ngx_int_t ngx_http_idempotency_profile_statuses(ngx_conf_t *cf,
    ngx_http_idempotency_statuses_t *given, ngx_str_t *list,
    ngx_http_idempotency_statuses_t **statuses);
static ngx_int_t ngx_http_idempotency_merge_answer(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static ngx_int_t ngx_http_idempotency_merge_headers(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_check_endpoint(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);
static ngx_int_t ngx_http_idempotency_merge_location(ngx_conf_t *cf,
    ngx_array_t *locations, ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_check_location(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_check_suspect(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_check_transaction(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_check_size(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);


/* in the order of the numbers of the profiles */

static ngx_http_idempotency_profile_t  ngx_http_idempotency_profiles[] = {

    { NGX_HTTP_IDEMPOTENCY_PROFILE_KEY,
      NGX_HTTP_POST|NGX_HTTP_PATCH,
      NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW, 24 * 3600,
      NGX_HTTP_IDEMPOTENCY_PROFILE_SCOPE,
      NGX_HTTP_IDEMPOTENCY_PROFILE_WITH, 1,
      { ngx_string("200-499"), ngx_string("500"), ngx_string("501") },
      { NGX_HTTP_IDEMPOTENCY_PROFILE_NOT_NOW, ngx_string("503") } },

    /* all answers are final */

    { NGX_HTTP_IDEMPOTENCY_PROFILE_KEY,
      NGX_HTTP_POST|NGX_HTTP_PATCH,
      NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW, 24 * 3600,
      "", "$request_method $idempotency_uri$is_args$args", 0,
      { ngx_string("200-599") },
      { ngx_null_string } },

    { NGX_HTTP_IDEMPOTENCY_PROFILE_KEY,
      NGX_HTTP_POST|NGX_HTTP_PATCH,
      NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW, 24 * 3600,
      NGX_HTTP_IDEMPOTENCY_PROFILE_SCOPE,
      NGX_HTTP_IDEMPOTENCY_PROFILE_WITH, 1,
      { ngx_string("200-499") },
      { NGX_HTTP_IDEMPOTENCY_PROFILE_NOT_NOW, ngx_string("500-599") } },

    { NGX_HTTP_IDEMPOTENCY_PROFILE_KEY,
      NGX_HTTP_POST|NGX_HTTP_PUT|NGX_HTTP_PATCH,
      NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW, 48 * 3600,
      NGX_HTTP_IDEMPOTENCY_PROFILE_SCOPE,
      NGX_HTTP_IDEMPOTENCY_PROFILE_WITH, 1,
      { ngx_string("200-499"), ngx_string("500"), ngx_string("501") },
      { NGX_HTTP_IDEMPOTENCY_PROFILE_NOT_NOW, ngx_string("503") } },

    /* a key is unique for all time; its date belongs to it */

    { "$http_repeatability_request_id",
      ngx_string("repeatability_request_id"),
      ngx_string("header Repeatability-Request-ID"),
      NGX_HTTP_POST|NGX_HTTP_PUT|NGX_HTTP_PATCH|NGX_HTTP_DELETE,
      NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW, 24 * 3600,
      "$http_repeatability_client_id",
      "$request_method $idempotency_uri$is_args$args "
      "$http_repeatability_first_sent", 0,
      { ngx_string("200-499"), ngx_string("500"), ngx_string("501") },
      { NGX_HTTP_IDEMPOTENCY_PROFILE_NOT_NOW, ngx_string("503") } },

    /* the key is in the header or in the message, see jsonrpc.c */

    { "$http_idempotency_key", ngx_null_string,
      ngx_string("header Idempotency-Key or field "
                 "params._meta.idempotencyKey"),
      NGX_HTTP_POST,
      NGX_HTTP_IDEMPOTENCY_FINGERPRINT_JSON, 24 * 3600,
      NGX_HTTP_IDEMPOTENCY_PROFILE_SCOPE,
      NGX_HTTP_IDEMPOTENCY_PROFILE_WITH, 0,
      { ngx_string("200-499"), ngx_string("500"), ngx_string("501") },
      { NGX_HTTP_IDEMPOTENCY_PROFILE_NOT_NOW, ngx_string("503") } }
};


void *
ngx_http_idempotency_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_main_conf_t));
    if (imcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&imcf->stores, cf->pool, 4,
                       sizeof(ngx_idempotency_store_t *))
        != NGX_OK
        || ngx_array_init(&imcf->locations, cf->pool, 8,
                          sizeof(ngx_http_idempotency_location_t))
           != NGX_OK
        || ngx_array_init(&imcf->lookups, cf->pool, 1,
                          sizeof(ngx_http_idempotency_location_t))
           != NGX_OK
        || ngx_array_init(&imcf->pages, cf->pool, 1,
                          sizeof(ngx_http_idempotency_page_t))
           != NGX_OK
        || ngx_array_init(&imcf->admins, cf->pool, 1,
                          sizeof(ngx_http_idempotency_location_t))
           != NGX_OK
        || ngx_array_init(&imcf->places, cf->pool, 4,
                          sizeof(ngx_http_idempotency_place_t *))
           != NGX_OK
        || ngx_array_init(&imcf->fields, cf->pool, 4,
                          sizeof(ngx_http_idempotency_field_t *))
           != NGX_OK)
    {
        return NULL;
    }

    return imcf;
}


void *
ngx_http_idempotency_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_idempotency_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->place = NULL;
     *     conf->endpoint = NULL;
     *     conf->endpoint_place = NULL;
     *     conf->on_reply = NULL;
     *     conf->token = NULL;
     *     conf->admin = 0;
     *     conf->cancel = 0;
     *     conf->stats = 0;
     *     conf->policy = 0;
     *     conf->warned = 0;
     *     conf->key = NULL;
     *     conf->key_header = { 0, NULL };
     *     conf->key_place = { 0, NULL };
     *     conf->source = NULL;
     *     conf->source_text = 0;
     *     conf->given.key = NULL;
     *     conf->given.methods = 0;
     *     conf->given.fingerprint = 0;
     *     conf->given.scope = NULL;
     *     conf->given.with = NULL;
     *     conf->methods = 0;
     *     conf->epoch = NULL;
     *     conf->include = NULL;
     *     conf->exclude = NULL;
     *     conf->in_progress = 0;
     *     conf->suspect_window = 0;
     *     conf->probe = { 0, NULL };
     *     conf->probe_place = NULL;
     *     conf->replayed_header = { 0, NULL };
     *     conf->expires_header = { 0, NULL };
     *     conf->describedby = { 0, NULL };
     *     conf->label = NULL;
     */

    conf->store = NGX_CONF_UNSET_PTR;
    conf->profile = NGX_CONF_UNSET_UINT;
    conf->given.ttl = NGX_CONF_UNSET;
    conf->given.required = NGX_CONF_UNSET;
    conf->given.final = NGX_CONF_UNSET_PTR;
    conf->given.retryable = NGX_CONF_UNSET_PTR;
    conf->issued = NGX_CONF_UNSET;
    conf->sequence = NGX_CONF_UNSET_UINT;
    conf->max_key = NGX_CONF_UNSET;
    conf->strict_key = NGX_CONF_UNSET;
    conf->fingerprint = NGX_CONF_UNSET_UINT;
    conf->secrets = NGX_CONF_UNSET_PTR;
    conf->duplicate = NGX_CONF_UNSET_UINT;
    conf->wait = NGX_CONF_UNSET_MSEC;
    conf->unknown = NGX_CONF_UNSET_UINT;
    conf->store_error = NGX_CONF_UNSET_UINT;
    conf->suspect = NGX_CONF_UNSET_UINT;
    conf->suspect_allow = NGX_CONF_UNSET_PTR;
    conf->lease = NGX_CONF_UNSET_MSEC;
    conf->tombstone = NGX_CONF_UNSET;
    conf->max_response = NGX_CONF_UNSET_SIZE;
    conf->hide_headers = NGX_CONF_UNSET_PTR;
    conf->log_level = NGX_CONF_UNSET_UINT;
    conf->dry_run = NGX_CONF_UNSET;

    return conf;
}


char *
ngx_http_idempotency_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_idempotency_loc_conf_t *prev = parent;
    ngx_http_idempotency_loc_conf_t *conf = child;

    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_main_conf_t  *imcf;

    if (conf->store == NGX_CONF_UNSET_PTR) {
        conf->place = prev->place;
    }

    ngx_conf_merge_ptr_value(conf->store, prev->store, NULL);
    ngx_conf_merge_ptr_value(conf->secrets, prev->secrets, NULL);

    ngx_conf_merge_uint_value(conf->profile, prev->profile,
                              NGX_HTTP_IDEMPOTENCY_PROFILE_IETF);

    if (ngx_http_idempotency_merge_identity(cf, prev, conf) != NGX_OK
        || ngx_http_idempotency_merge_profile(cf, prev, conf) != NGX_OK
        || ngx_http_idempotency_merge_answer(cf, prev, conf) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_conf_merge_uint_value(conf->log_level, prev->log_level,
                              NGX_LOG_NOTICE);
    ngx_conf_merge_value(conf->dry_run, prev->dry_run, 0);

#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
    if (conf->failpoint == NULL) {
        conf->failpoint = prev->failpoint;
    }
#endif

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname && conf->endpoint == NULL) {

        /* "if" and "limit_except" have the handler of their location */

        conf->endpoint = prev->endpoint;
        conf->on_reply = prev->on_reply;
        conf->token = prev->token;
        conf->admin = prev->admin;
        conf->cancel = prev->cancel;
    }

    if (conf->endpoint) {
        conf->dry_run = 0;
        imcf->cancel |= conf->cancel;

        if (conf->admin
            && !clcf->noname
            && ngx_http_idempotency_merge_location(cf, &imcf->admins, conf)
               != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }

        return ngx_http_idempotency_check_endpoint(cf, conf);
    }

    if (conf->policy) {

        /* it must be there for clients that have no key yet */

        conf->store = NULL;
    }

    if (conf->store == NULL) {
        return NGX_CONF_OK;
    }

    /* the number under which its results are counted */

    conf->location = imcf->locations.nelts;

    if (ngx_http_idempotency_merge_location(cf, &imcf->locations, conf)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    conf->store->lease = ngx_max(conf->store->lease, conf->lease);

    return ngx_http_idempotency_check_location(cf, conf);
}


/* which request it is */

static ngx_int_t
ngx_http_idempotency_merge_identity(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_idempotency_profile_t  *profile;

    profile = &ngx_http_idempotency_profiles[conf->profile];

    if (conf->given.key == NULL) {
        conf->given.key = prev->given.key;

        if (prev->key && (conf->given.key || prev->profile == conf->profile)) {
            conf->key = prev->key;
            conf->key_header = prev->key_header;
            conf->key_place = prev->key_place;
        }
    }

    if (conf->key == NULL) {
        conf->key = ngx_http_idempotency_conf_value(cf, profile->key);
        conf->key_header = profile->key_header;
        conf->key_place = profile->key_place;

    } else if (conf->key_place.len == 0
               && ngx_http_idempotency_conf_key_place(cf, conf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (conf->source == NULL) {
        conf->source = prev->source;
        conf->source_text = prev->source_text;
    }

    if (conf->given.methods == 0) {
        conf->given.methods = prev->given.methods;
    }

    conf->methods = conf->given.methods ? conf->given.methods
                                        : profile->methods;

    ngx_conf_merge_value(conf->issued, prev->issued, 0);
    ngx_conf_merge_uint_value(conf->sequence, prev->sequence, 0);

    if (conf->epoch == NULL) {
        conf->epoch = prev->epoch;
    }

    ngx_conf_merge_value(conf->max_key, prev->max_key, 255);
    ngx_conf_merge_value(conf->strict_key, prev->strict_key, 0);

    if (!conf->given.fingerprint && prev->given.fingerprint) {
        conf->given.fingerprint = 1;
        conf->fingerprint = prev->fingerprint;
        conf->given.with = prev->given.with;
        conf->include = prev->include;
        conf->exclude = prev->exclude;
    }

    ngx_conf_init_uint_value(conf->fingerprint, profile->fingerprint);

    return conf->key ? NGX_OK : NGX_ERROR;
}


/* The profile decides where a directive was not given. */

static ngx_int_t
ngx_http_idempotency_merge_profile(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    if (conf->given.scope == NULL) {
        conf->given.scope = prev->given.scope;
    }

    ngx_conf_merge_sec_value(conf->given.ttl, prev->given.ttl,
                             NGX_CONF_UNSET);
    ngx_conf_merge_value(conf->given.required, prev->given.required,
                         NGX_CONF_UNSET);
    ngx_conf_merge_ptr_value(conf->given.final, prev->given.final,
                             NGX_CONF_UNSET_PTR);
    ngx_conf_merge_ptr_value(conf->given.retryable, prev->given.retryable,
                             NGX_CONF_UNSET_PTR);

    if (ngx_http_idempotency_profile_apply(cf, prev, conf) != NGX_OK) {
        return NGX_ERROR;
    }

    conf->scope_is_default = ngx_http_idempotency_profile_is(conf->scope,
                                          NGX_HTTP_IDEMPOTENCY_PROFILE_SCOPE);
    conf->with_is_query = ngx_http_idempotency_profile_is(
                                           conf->fingerprint_with,
                                           NGX_HTTP_IDEMPOTENCY_PROFILE_WITH);
    conf->fingerprint_hash = ngx_http_idempotency_fingerprint_hash(conf, 1);

    return NGX_OK;
}


/*
 * Sets the values that count in a location from those that were given there or
 * further out, which are in conf->given, and from its profile.
 */

static ngx_int_t
ngx_http_idempotency_profile_apply(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_idempotency_given_t    *given;
    ngx_http_idempotency_profile_t  *profile;

    given = &conf->given;
    profile = &ngx_http_idempotency_profiles[conf->profile];

    conf->ttl = (given->ttl != NGX_CONF_UNSET) ? given->ttl : profile->ttl;
    conf->required = (given->required != NGX_CONF_UNSET) ? given->required
                                                         : profile->required;

    if (prev->scope
        && prev->profile == conf->profile
        && prev->given.scope == given->scope
        && prev->given.with == given->with
        && prev->given.final == given->final
        && prev->given.retryable == given->retryable)
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


static ngx_flag_t
ngx_http_idempotency_profile_is(ngx_http_complex_value_t *value,
    const char *text)
{
    return value->value.len == ngx_strlen(text)
           && ngx_strncmp(value->value.data, text, value->value.len) == 0;
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


static ngx_int_t
ngx_http_idempotency_merge_headers(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_conf_merge_str_value(conf->replayed_header, prev->replayed_header,
                             "Idempotent-Replayed");
    ngx_conf_merge_str_value(conf->expires_header, prev->expires_header,
                             "Idempotency-Expires");

    if (conf->replayed_header.len == 0
        || conf->replayed_header.len != conf->expires_header.len
        || ngx_strncasecmp(conf->replayed_header.data,
                           conf->expires_header.data,
                           conf->expires_header.len)
           != 0)
    {
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"idempotency_replayed_header\" and "
                       "\"idempotency_expires_header\" are both \"%V\", "
                       "they need names of their own or \"off\"",
                       &conf->expires_header);
    return NGX_ERROR;
}


/* What happens to answers and to duplicates. */

static ngx_int_t
ngx_http_idempotency_merge_answer(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_str_t  *name;

    ngx_conf_merge_uint_value(conf->duplicate, prev->duplicate,
                              NGX_HTTP_IDEMPOTENCY_DUPLICATE_REPLAY);

    if (conf->wait == NGX_CONF_UNSET_MSEC) {
        conf->wait = prev->wait;
        conf->in_progress = prev->in_progress;
    }

    if (conf->wait == NGX_CONF_UNSET_MSEC) {
        conf->wait = 0;
        conf->in_progress = NGX_HTTP_CONFLICT;
    }

    if (conf->unknown == NGX_CONF_UNSET_UINT) {
        conf->unknown = prev->unknown;
        conf->probe = prev->probe;
        conf->probe_place = prev->probe_place;
    }

    ngx_conf_init_uint_value(conf->unknown,
                             NGX_HTTP_IDEMPOTENCY_UNKNOWN_HOLD);

    ngx_conf_merge_uint_value(conf->store_error, prev->store_error,
                              NGX_HTTP_IDEMPOTENCY_STORE_ERROR_REJECT);

    if (conf->suspect == NGX_CONF_UNSET_UINT) {
        conf->suspect = prev->suspect;
        conf->suspect_window = prev->suspect_window;
    }

    ngx_conf_init_uint_value(conf->suspect, NGX_HTTP_IDEMPOTENCY_SUSPECT_OFF);
    ngx_conf_merge_ptr_value(conf->suspect_allow, prev->suspect_allow, NULL);

    ngx_conf_merge_msec_value(conf->lease, prev->lease, 30000);
    ngx_conf_merge_sec_value(conf->tombstone, prev->tombstone, 0);
    ngx_conf_merge_size_value(conf->max_response, prev->max_response,
                              1024 * 1024);
    ngx_conf_merge_str_value(conf->describedby, prev->describedby, "");

    if (conf->label == NULL) {
        conf->label = prev->label;
    }


    if (ngx_http_idempotency_merge_headers(cf, prev, conf) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_conf_merge_ptr_value(conf->hide_headers, prev->hide_headers, NULL);

    if (conf->hide_headers == NULL) {
        conf->hide_headers = ngx_array_create(cf->pool, 1, sizeof(ngx_str_t));
        if (conf->hide_headers == NULL) {
            return NGX_ERROR;
        }

        name = ngx_array_push(conf->hide_headers);
        if (name == NULL) {
            return NGX_ERROR;
        }

        ngx_str_set(name, "Set-Cookie");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_merge_location(ngx_conf_t *cf, ngx_array_t *locations,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t         *clcf;
    ngx_http_core_srv_conf_t         *cscf;
    ngx_http_idempotency_location_t  *location;

    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    location = ngx_array_push(locations);
    if (location == NULL) {
        return NGX_ERROR;
    }

    location->server = cscf->server_name;
    location->location = clcf->name;
    location->store = conf->store;
    location->dry_run = conf->dry_run;
    location->cscf = cscf;
    location->clcf = clcf;
    location->conf = conf;

    return NGX_OK;
}


static char *
ngx_http_idempotency_check_endpoint(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (conf->cancel && conf->sequence) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"idempotency_lookup\" with \"cancel\" in location "
                      "\"%V\" where \"idempotency_sequence\" is on: a number "
                      "cannot be cancelled, remove one of them",
                      &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (conf->source == NULL || conf->given.scope == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "location \"%V\" with \"%s\" needs \"%s\", with the "
                      "value that it has where the keys are used",
                      &clcf->name,
                      conf->token ? "idempotency_token"
                                  : "idempotency_lookup",
                      conf->source ? "idempotency_scope"
                                   : "idempotency_source");
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_check_location(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->name.len == 0 && !clcf->noname) {

        /* a server: its locations may still give what is missing */

        return NGX_CONF_OK;
    }

    if (conf->source == NULL
        || (conf->source->lengths == NULL && conf->source->value.len == 0))
    {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"idempotency\" is on in location \"%V\" without "
                      "\"idempotency_source\": name what tells one client "
                      "from another, as in "
                      "\"idempotency_source $remote_user;\" with "
                      "\"auth_basic\"",
                      &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (conf->issued && conf->sequence) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"idempotency_issued\" and \"idempotency_sequence\" "
                      "are both on in location \"%V\": a key is a token or a "
                      "number, switch one of them off", &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_idempotency_check_suspect(cf, conf) != NGX_CONF_OK
        || ngx_http_idempotency_check_transaction(cf, conf) != NGX_CONF_OK
        || ngx_http_idempotency_check_size(cf, conf) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_idempotency_upstream_check(cf, clcf, conf->methods);
}


static char *
ngx_http_idempotency_check_suspect(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    if (conf->suspect == NGX_HTTP_IDEMPOTENCY_SUSPECT_OFF) {
        return NGX_CONF_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (conf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"idempotency_suspect\" is on in location \"%V\" where "
                      "\"idempotency_fingerprint\" is off: without it no two "
                      "requests are the same, switch one of them", &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (conf->sequence) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"idempotency_suspect\" and \"idempotency_sequence\" "
                      "are both on in location \"%V\": a number tells a retry "
                      "from the next request, switch one of them off",
                      &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (conf->suspect_window > conf->ttl + conf->tombstone) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"idempotency_suspect\" has \"window=%Ts\" in location "
                      "\"%V\", and \"idempotency_ttl\" keeps requests for "
                      "%T seconds only: make the window shorter or the ttl "
                      "longer", conf->suspect_window, &clcf->name,
                      conf->ttl + conf->tombstone);
        return NGX_CONF_ERROR;
    }

    conf->store->suspects = 1;

    return NGX_CONF_OK;
}


/* a dry run claims another record than the one that a service would commit */

static char *
ngx_http_idempotency_check_transaction(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    if (conf->unknown != NGX_HTTP_IDEMPOTENCY_UNKNOWN_TRANSACTION
        || (conf->store->transactions && conf->store->from == NULL
            && !conf->dry_run))
    {
        return NGX_CONF_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "\"idempotency_unknown transaction\" in location \"%V\" "
                  "needs a store with a target \"postgres://...\", without "
                  "\"from=\", and no \"idempotency_dry_run\": the service "
                  "commits the records of the store \"%V\"; use \"hold\" or "
                  "\"probe=/URI\" otherwise",
                  &clcf->name, &conf->store->name);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_idempotency_check_size(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    if (conf->store->largest == 0
        || conf->max_response <= conf->store->largest)
    {
        return NGX_CONF_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "\"idempotency_max_response\" is %uz bytes in location "
                  "\"%V\", the store \"%V\" is in Redis and takes %uz at "
                  "most: set it to \"%uzm\" or less",
                  conf->max_response, &clcf->name, &conf->store->name,
                  conf->store->largest,
                  conf->store->largest / (1024 * 1024));

    return NGX_CONF_ERROR;
}
