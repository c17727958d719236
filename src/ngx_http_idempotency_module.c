
/*
 * Makes an HTTP API safe to retry: directives, registration.
 */


#include "ngx_http_idempotency.h"
#include "ngx_http_idempotency_conf.h"
#include "ngx_http_idempotency_handler.h"
#include "ngx_http_idempotency_upstream.h"
#include "ngx_http_idempotency_capture.h"
#include "ngx_http_idempotency_variables.h"

#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
#include "ngx_http_idempotency_exercise.h"
#endif


static ngx_int_t ngx_http_idempotency_add_variables(ngx_conf_t *cf);
static void *ngx_http_idempotency_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_idempotency_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_idempotency_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_idempotency_merge_identity(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static ngx_int_t ngx_http_idempotency_merge_answer(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_check_location(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);
static ngx_int_t ngx_http_idempotency_init(ngx_conf_t *cf);


#define NGX_HTTP_IDEMPOTENCY_ANY_CONF                                         \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF


static ngx_str_t  ngx_http_idempotency_final[] = {
    ngx_string("200-499"),
    ngx_string("500"),
    ngx_string("501")
};


static ngx_str_t  ngx_http_idempotency_retryable[] = {
    ngx_string("401"),
    ngx_string("403"),
    ngx_string("407"),
    ngx_string("408"),
    ngx_string("425"),
    ngx_string("429"),
    ngx_string("503")
};


static ngx_command_t  ngx_http_idempotency_commands[] = {

    { ngx_string("idempotency_store"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_idempotency_conf_store,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_switch,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_key"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_key,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, key),
      NULL },

    { ngx_string("idempotency_source"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, source),
      NULL },

    { ngx_string("idempotency_scope"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, scope),
      NULL },

    { ngx_string("idempotency_methods"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_idempotency_conf_methods,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_required"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, required),
      NULL },

    { ngx_string("idempotency_max_key"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, max_key),
      &ngx_http_idempotency_conf_max_key },

    { ngx_string("idempotency_fingerprint"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_idempotency_conf_fingerprint,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_duplicate"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, duplicate),
      &ngx_http_idempotency_conf_duplicate },

    { ngx_string("idempotency_unknown"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_unknown,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_lease"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, lease),
      &ngx_http_idempotency_conf_lease },

    { ngx_string("idempotency_ttl"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE12,
      ngx_http_idempotency_conf_ttl,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_final"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_idempotency_conf_statuses,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, final),
      NULL },

    { ngx_string("idempotency_retryable"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_idempotency_conf_statuses,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, retryable),
      NULL },

    { ngx_string("idempotency_max_response"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, max_response),
      &ngx_http_idempotency_conf_max_response },

    { ngx_string("idempotency_hide_header"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_idempotency_conf_hide_header,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_describedby"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_describedby,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_log_level"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, log_level),
      &ngx_http_idempotency_conf_log_level },

#if (NGX_HTTP_IDEMPOTENCY_DEBUG)

    { ngx_string("idempotency_exercise"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_exercise,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_failpoint"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, failpoint),
      NULL },

#endif

      ngx_null_command
};


static ngx_http_module_t  ngx_http_idempotency_module_ctx = {
    ngx_http_idempotency_add_variables,    /* preconfiguration */
    ngx_http_idempotency_init,             /* postconfiguration */

    ngx_http_idempotency_create_main_conf, /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_idempotency_create_loc_conf,  /* create location configuration */
    ngx_http_idempotency_merge_loc_conf    /* merge location configuration */
};


ngx_module_t  ngx_http_idempotency_module = {
    NGX_MODULE_V1,
    &ngx_http_idempotency_module_ctx,      /* module context */
    ngx_http_idempotency_commands,         /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_idempotency_add_variables(ngx_conf_t *cf)
{
    return ngx_http_idempotency_variables_add(cf);
}


static void *
ngx_http_idempotency_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_main_conf_t));
    if (imcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&imcf->stores, cf->pool, 4,
                       sizeof(ngx_idempotency_store_t *))
        != NGX_OK)
    {
        return NULL;
    }

    return imcf;
}


static void *
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
     *     conf->key = NULL;
     *     conf->key_header = { 0, NULL };
     *     conf->source = NULL;
     *     conf->scope = NULL;
     *     conf->methods = 0;
     *     conf->fingerprint_with = NULL;
     *     conf->probe = { 0, NULL };
     *     conf->describedby = { 0, NULL };
     */

    conf->store = NGX_CONF_UNSET_PTR;
    conf->required = NGX_CONF_UNSET;
    conf->max_key = NGX_CONF_UNSET;
    conf->fingerprint = NGX_CONF_UNSET_UINT;
    conf->duplicate = NGX_CONF_UNSET_UINT;
    conf->unknown = NGX_CONF_UNSET_UINT;
    conf->lease = NGX_CONF_UNSET_MSEC;
    conf->ttl = NGX_CONF_UNSET;
    conf->tombstone = NGX_CONF_UNSET;
    conf->final = NGX_CONF_UNSET_PTR;
    conf->retryable = NGX_CONF_UNSET_PTR;
    conf->max_response = NGX_CONF_UNSET_SIZE;
    conf->hide_headers = NGX_CONF_UNSET_PTR;
    conf->log_level = NGX_CONF_UNSET_UINT;

    return conf;
}


static char *
ngx_http_idempotency_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_idempotency_loc_conf_t *prev = parent;
    ngx_http_idempotency_loc_conf_t *conf = child;

    ngx_conf_merge_ptr_value(conf->store, prev->store, NULL);

    if (ngx_http_idempotency_merge_identity(cf, prev, conf) != NGX_OK
        || ngx_http_idempotency_merge_answer(cf, prev, conf) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_conf_merge_uint_value(conf->log_level, prev->log_level,
                              NGX_LOG_NOTICE);

#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
    if (conf->failpoint == NULL) {
        conf->failpoint = prev->failpoint;
    }
#endif

    if (conf->store == NULL) {
        return NGX_CONF_OK;
    }

    return ngx_http_idempotency_check_location(cf, conf);
}


/* which request it is */

static ngx_int_t
ngx_http_idempotency_merge_identity(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    if (conf->key == NULL) {
        conf->key = prev->key;
        conf->key_header = prev->key_header;
    }

    if (conf->key == NULL) {
        conf->key = ngx_http_idempotency_conf_value(cf,
                                                    "$http_idempotency_key");
        ngx_str_set(&conf->key_header, "idempotency_key");
    }

    if (conf->source == NULL) {
        conf->source = prev->source;
    }

    if (conf->scope == NULL) {
        conf->scope = prev->scope;
    }

    if (conf->scope == NULL) {
        conf->scope = ngx_http_idempotency_conf_value(cf,
                                                      "$request_method $uri");
    }

    if (conf->methods == 0) {
        conf->methods = prev->methods ? prev->methods
                                      : (NGX_HTTP_POST|NGX_HTTP_PATCH);
    }

    ngx_conf_merge_value(conf->required, prev->required, 1);
    ngx_conf_merge_value(conf->max_key, prev->max_key, 255);

    if (conf->fingerprint == NGX_CONF_UNSET_UINT) {
        conf->fingerprint = prev->fingerprint;
        conf->fingerprint_with = prev->fingerprint_with;
    }

    ngx_conf_init_uint_value(conf->fingerprint,
                             NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW);

    if (conf->fingerprint_with == NULL) {
        conf->fingerprint_with = ngx_http_idempotency_conf_value(cf,
                                                            "$is_args$args");
    }

    if (conf->key == NULL
        || conf->scope == NULL
        || conf->fingerprint_with == NULL)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* what happens to its answer and to duplicates */

static ngx_int_t
ngx_http_idempotency_merge_answer(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_str_t  *name;

    ngx_conf_merge_uint_value(conf->duplicate, prev->duplicate,
                              NGX_HTTP_IDEMPOTENCY_DUPLICATE_REPLAY);

    if (conf->unknown == NGX_CONF_UNSET_UINT) {
        conf->unknown = prev->unknown;
        conf->probe = prev->probe;
    }

    ngx_conf_init_uint_value(conf->unknown,
                             NGX_HTTP_IDEMPOTENCY_UNKNOWN_HOLD);

    ngx_conf_merge_msec_value(conf->lease, prev->lease, 30000);
    ngx_conf_merge_sec_value(conf->tombstone, prev->tombstone, 0);
    ngx_conf_merge_sec_value(conf->ttl, prev->ttl, 24 * 3600);
    ngx_conf_merge_size_value(conf->max_response, prev->max_response,
                              1024 * 1024);
    ngx_conf_merge_str_value(conf->describedby, prev->describedby, "");

    ngx_conf_merge_ptr_value(conf->final, prev->final, NULL);

    if (conf->final == NULL) {
        conf->final = ngx_http_idempotency_conf_status_list(cf,
                          ngx_http_idempotency_final,
                          sizeof(ngx_http_idempotency_final)
                          / sizeof(ngx_str_t));
    }

    ngx_conf_merge_ptr_value(conf->retryable, prev->retryable, NULL);

    if (conf->retryable == NULL) {
        conf->retryable = ngx_http_idempotency_conf_status_list(cf,
                              ngx_http_idempotency_retryable,
                              sizeof(ngx_http_idempotency_retryable)
                              / sizeof(ngx_str_t));
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

    if (conf->final == NULL || conf->retryable == NULL) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static char *
ngx_http_idempotency_check_location(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->name.len == 0 && !clcf->noname) {

        /* a server: its locations may still say what is missing here */

        return NGX_CONF_OK;
    }

    if (conf->source == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"idempotency\" is on in location \"%V\" without "
                      "\"idempotency_source\": name what tells one client "
                      "from another, as in "
                      "\"idempotency_source $http_authorization;\"",
                      &clcf->name);
        return NGX_CONF_ERROR;
    }

    return ngx_http_idempotency_upstream_check(cf, clcf);
}


static ngx_int_t
ngx_http_idempotency_init(ngx_conf_t *cf)
{
    ngx_uint_t                          i;
    ngx_idempotency_store_t           **stores;
    ngx_http_idempotency_main_conf_t   *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {

        if (stores[i]->submit == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "the store \"%V\" of \"idempotency\" is not defined "
                          "in %s:%ui: add \"idempotency_store %V shm:10m;\" "
                          "to http{}", &stores[i]->name, stores[i]->file,
                          stores[i]->line, &stores[i]->name);
            return NGX_ERROR;
        }
    }

    if (imcf->stores.nelts == 0) {
        return NGX_OK;
    }

    ngx_http_idempotency_capture_init();

    return ngx_http_idempotency_handler_init(cf);
}
