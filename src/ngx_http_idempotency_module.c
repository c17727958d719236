
/*
 * Makes an HTTP API safe to retry: directives, registration.
 */


#include "ngx_http_idempotency.h"
#include "ngx_http_idempotency_conf.h"
#include "ngx_http_idempotency_contract.h"
#include "ngx_http_idempotency_phases.h"
#include "ngx_http_idempotency_lookup.h"
#include "ngx_http_idempotency_merge.h"
#include "ngx_http_idempotency_capture.h"
#include "ngx_http_idempotency_probe_request.h"
#include "ngx_http_idempotency_stats.h"
#include "ngx_http_idempotency_token.h"
#include "ngx_http_idempotency_variables.h"
#include "ngx_http_idempotency_warn.h"
#include "ngx_idempotency_redis.h"

#if (NGX_HTTP_IDEMPOTENCY_DEBUG)
#include "ngx_http_idempotency_exercise.h"
#endif


static ngx_int_t ngx_http_idempotency_add_variables(ngx_conf_t *cf);
static ngx_int_t ngx_http_idempotency_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_idempotency_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_idempotency_init_process(ngx_cycle_t *cycle);
static void ngx_http_idempotency_exit_process(ngx_cycle_t *cycle);


#define NGX_HTTP_IDEMPOTENCY_ANY_CONF                                         \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF


static ngx_command_t  ngx_http_idempotency_commands[] = {

    { ngx_string("idempotency_store"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_idempotency_conf_store,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_json_set"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_idempotency_conf_field,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_form_set"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE2,
      ngx_http_idempotency_conf_field,
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
      ngx_http_idempotency_conf_source,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, source),
      NULL },

    { ngx_string("idempotency_scope"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, given.scope),
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
      offsetof(ngx_http_idempotency_loc_conf_t, given.required),
      NULL },

    { ngx_string("idempotency_max_key"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, max_key),
      &ngx_http_idempotency_conf_max_key },

    { ngx_string("idempotency_strict_key"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, strict_key),
      NULL },

    { ngx_string("idempotency_sequence"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, sequence),
      &ngx_http_idempotency_conf_sequence },

    { ngx_string("idempotency_epoch"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, epoch),
      NULL },

    { ngx_string("idempotency_issued"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, issued),
      NULL },

    { ngx_string("idempotency_fingerprint"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_idempotency_conf_fingerprint,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_secret"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_secret,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_duplicate"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, duplicate),
      &ngx_http_idempotency_conf_duplicate },

    { ngx_string("idempotency_in_progress"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_in_progress,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_unknown"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_unknown,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_store_error"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, store_error),
      &ngx_http_idempotency_conf_store_error },

    { ngx_string("idempotency_suspect"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE12,
      ngx_http_idempotency_conf_suspect,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_suspect_allow"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_set_predicate_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, suspect_allow),
      NULL },

    { ngx_string("idempotency_label"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, label),
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
      offsetof(ngx_http_idempotency_loc_conf_t, given.final),
      NULL },

    { ngx_string("idempotency_retryable"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_idempotency_conf_statuses,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, given.retryable),
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

    { ngx_string("idempotency_replayed_header"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_header,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, replayed_header),
      NULL },

    { ngx_string("idempotency_expires_header"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_header,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, expires_header),
      NULL },

    { ngx_string("idempotency_profile"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_TAKE1,
      ngx_http_idempotency_conf_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, profile),
      &ngx_http_idempotency_conf_profile },

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

    { ngx_string("idempotency_dry_run"),
      NGX_HTTP_IDEMPOTENCY_ANY_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, dry_run),
      NULL },

    { ngx_string("idempotency_token"),
      NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_idempotency_token,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_lookup"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE123,
      ngx_http_idempotency_lookup,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_stats"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_idempotency_stats,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idempotency_policy"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_idempotency_contract,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

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
    ngx_http_idempotency_init_module,      /* init module */
    ngx_http_idempotency_init_process,     /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_idempotency_exit_process,     /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_idempotency_add_variables(ngx_conf_t *cf)
{
    return ngx_http_idempotency_variables_add(cf);
}


static ngx_int_t
ngx_http_idempotency_init(ngx_conf_t *cf)
{
    ngx_uint_t                          i;
    ngx_idempotency_store_t           **stores;
    ngx_http_core_loc_conf_t           *clcf;
    ngx_http_idempotency_main_conf_t   *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {

        if (stores[i]->submit == NULL
            && stores[i]->name.len == 2
            && ngx_strncmp(stores[i]->name.data, "on", 2) == 0)
        {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"on\" in %s:%ui is not the name of a store: name "
                          "one there, as in \"idempotency pay;\", and add "
                          "\"idempotency_store pay shm:10m;\" to http{}",
                          stores[i]->file, stores[i]->line);
            return NGX_ERROR;
        }

        if (stores[i]->submit == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "the store \"%V\" that is named in %s:%ui is not "
                          "defined: add \"idempotency_store %V shm:10m;\" to "
                          "http{}", &stores[i]->name, stores[i]->file,
                          stores[i]->line, &stores[i]->name);
            return NGX_ERROR;
        }

        /* without "resolver" http{} has one that has no servers */

        if (clcf->resolver
            && ngx_http_idempotency_resolver_has_servers(clcf->resolver))
        {
            ngx_idempotency_redis_resolver(stores[i], clcf->resolver,
                                           clcf->resolver_timeout);
        }
    }

    if (ngx_http_idempotency_conf_from_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_idempotency_warn(cf, imcf);

    if (ngx_http_idempotency_stats_init(cf, imcf) != NGX_OK
        || ngx_http_idempotency_contract_init(cf, imcf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (imcf->stores.nelts == 0) {
        return NGX_OK;
    }

    if (ngx_http_idempotency_probe_request_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_idempotency_capture_init();

    return ngx_http_idempotency_phases_init(cf);
}


static ngx_int_t
ngx_http_idempotency_init_module(ngx_cycle_t *cycle)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_idempotency_module);

    if (imcf == NULL || imcf->notices == NULL) {
        return NGX_OK;
    }

    return ngx_idempotency_notice_open(cycle, imcf->notices);
}


/* runs in the cache manager as well, which serves no requests */

static ngx_int_t
ngx_http_idempotency_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                          i;
    ngx_idempotency_store_t           **stores;
    ngx_http_idempotency_main_conf_t   *imcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_idempotency_module);
    if (imcf == NULL) {
        return NGX_OK;
    }

    ngx_http_idempotency_stats_start(imcf);

    if (imcf->notices
        && ngx_idempotency_notice_start(cycle, imcf->notices) != NGX_OK)
    {
        return NGX_ERROR;
    }

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        if (stores[i]->start && stores[i]->start(stores[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static void
ngx_http_idempotency_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                          i;
    ngx_idempotency_store_t           **stores;
    ngx_http_idempotency_main_conf_t   *imcf;

    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_idempotency_module);
    if (imcf == NULL) {
        return;
    }

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        if (stores[i]->stop) {
            stores[i]->stop(stores[i]);
        }
    }

    ngx_http_idempotency_stats_stop(imcf);
}
