
/*
 * Warnings of "nginx -t": configurations that are accepted and are mistakes.
 *
 * A warning must be certain.  Where a regular expression, a rewrite or the
 * access check of another module may make it right, there is none.
 */


#include "ngx_http_idempotency_warn.h"


static void ngx_http_idempotency_warn_effect(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf);
static ngx_uint_t ngx_http_idempotency_warn_leads(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location);
static void ngx_http_idempotency_warn_servers(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf, ngx_idempotency_store_t *store);
static ngx_uint_t ngx_http_idempotency_warn_open_scope(
    ngx_http_idempotency_location_t *location,
    ngx_idempotency_store_t *store);
static ngx_uint_t ngx_http_idempotency_warn_meet(
    ngx_http_idempotency_location_t *a, ngx_http_idempotency_location_t *b);
static void ngx_http_idempotency_warn_large(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location);
static void ngx_http_idempotency_warn_named(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location, ngx_str_t *name);
static void ngx_http_idempotency_warn_admin(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location);
static ngx_uint_t ngx_http_idempotency_warn_guarded(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location);
static ngx_uint_t ngx_http_idempotency_warn_rules(ngx_conf_t *cf,
    void **confs);
static ngx_uint_t ngx_http_idempotency_warn_auth_basic(ngx_conf_t *cf,
    void **confs);
static ngx_uint_t ngx_http_idempotency_warn_other_guards(ngx_conf_t *cf);


#define ngx_http_idempotency_warn_is_server(clcf)                             \
    ((clcf)->name.len == 0 && !(clcf)->noname)


/* what the default scope has, by profile: merge.c has the scopes */

static char  ngx_http_idempotency_warn_path[] =
    " $request_method $idempotency_uri";
static char  ngx_http_idempotency_warn_no_path[] = "";
static char  ngx_http_idempotency_warn_client[] =
    " $http_repeatability_client_id";

static char  *ngx_http_idempotency_warn_scopes[] = {
    ngx_http_idempotency_warn_path,
    ngx_http_idempotency_warn_no_path,
    ngx_http_idempotency_warn_path,
    ngx_http_idempotency_warn_path,
    ngx_http_idempotency_warn_client,
    ngx_http_idempotency_warn_path
};


void
ngx_http_idempotency_warn(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf)
{
    ngx_uint_t                         i;
    ngx_idempotency_store_t          **stores;
    ngx_http_idempotency_location_t   *location;

    ngx_http_idempotency_warn_effect(cf, imcf);

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        ngx_http_idempotency_warn_servers(cf, imcf, stores[i]);
    }

    location = imcf->locations.elts;

    for (i = 0; i < imcf->locations.nelts; i++) {

        if (ngx_http_idempotency_warn_is_server(location[i].clcf)) {
            continue;
        }

        ngx_http_idempotency_warn_probe(cf, &location[i]);
        ngx_http_idempotency_warn_large(cf, &location[i]);
    }

    location = imcf->admins.elts;

    for (i = 0; i < imcf->admins.nelts; i++) {
        ngx_http_idempotency_warn_admin(cf, &location[i]);
    }
}


/*
 * "idempotency" in a location that answers in an earlier phase, by itself, or
 * from files, and from which no other location inherits it.
 */

static void
ngx_http_idempotency_warn_effect(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf)
{
    ngx_uint_t                         i;
    ngx_http_idempotency_place_t     **places;
    ngx_http_idempotency_location_t   *location;

    location = imcf->locations.elts;

    for (i = 0; i < imcf->locations.nelts; i++) {
        if (!ngx_http_idempotency_warn_is_server(location[i].clcf)
            && ngx_http_idempotency_warn_leads(cf, &location[i]))
        {
            location[i].conf->place->used = 1;
        }
    }

    places = imcf->places.elts;

    for (i = 0; i < imcf->places.nelts; i++) {

        if (places[i]->used || places[i]->location.len == 0) {
            continue;
        }

        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"idempotency\" has no effect in location \"%V\": no "
                      "content handler such as \"proxy_pass\" gets its "
                      "requests; move it to the location that has one in "
                      "%V:%ui",
                      &places[i]->location, &places[i]->file,
                      places[i]->line);
    }
}


/* whether a request may get to a content handler from here */

static ngx_uint_t
ngx_http_idempotency_warn_leads(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location)
{
    void                      **confs, **try_files;
    ngx_str_t                  *index;
    ngx_uint_t                 *dav;
    ngx_array_t               **codes, **indices;
    ngx_http_script_code_pt    *code;
    ngx_http_core_loc_conf_t   *clcf;

    clcf = location->clcf;
    confs = clcf->loc_conf;

    if ((clcf->handler && !location->conf->stats)
        || clcf->error_pages
        || clcf->internal)
    {
        return 1;
    }

    /* ngx.exec() in an earlier phase */

    if (ngx_http_idempotency_warn_module(cf, confs, "ngx_http_lua_module")) {
        return 1;
    }

    /* the configurations of these begin with what is looked at */

    try_files = ngx_http_idempotency_warn_module(cf, confs,
                                                 "ngx_http_try_files_module");
    if (try_files && *try_files) {
        return 1;
    }

    /* "rewrite" may lead elsewhere, and "return" as the first one does not */

    codes = ngx_http_idempotency_warn_module(cf, confs,
                                             "ngx_http_rewrite_module");
    if (codes && *codes) {
        code = (*codes)->elts;

        if (*code != ngx_http_script_return_code) {
            return 1;
        }
    }

    dav = ngx_http_idempotency_warn_module(cf, confs, "ngx_http_dav_module");

    if (dav
        && (*dav & (NGX_HTTP_PUT|NGX_HTTP_DELETE|NGX_HTTP_MKCOL|NGX_HTTP_COPY
                    |NGX_HTTP_MOVE)))
    {
        return 1;
    }

    indices = ngx_http_idempotency_warn_module(cf, confs,
                                               "ngx_http_index_module");
    if (indices && *indices) {
        index = (*indices)->elts;

        return (*indices)->nelts != 1
               || index->len != sizeof("index.html")
               || ngx_strncmp(index->data, "index.html", index->len) != 0;
    }

    return 0;
}


/* a key of one server is that of another one */

static void
ngx_http_idempotency_warn_servers(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf, ngx_idempotency_store_t *store)
{
    ngx_str_t                        *a, *b;
    ngx_uint_t                        i, j;
    ngx_http_idempotency_place_t     *place;
    ngx_http_idempotency_location_t  *location;

    location = imcf->locations.elts;

    for (i = 1; i < imcf->locations.nelts; i++) {

        if (!ngx_http_idempotency_warn_open_scope(&location[i], store)) {
            continue;
        }

        for (j = 0; j < i; j++) {

            if (location[j].cscf == location[i].cscf
                || !ngx_http_idempotency_warn_open_scope(&location[j], store)
                || !ngx_http_idempotency_warn_meet(&location[j],
                                                   &location[i]))
            {
                continue;
            }

            a = &location[j].server;
            b = &location[i].server;
            place = location[i].conf->place;

            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "the servers \"%V\" and \"%V\" use the store \"%V\" "
                          "with the default scope, which does not tell them "
                          "apart: a client of one gets answers of the other "
                          "for the same key; set \"idempotency_scope "
                          "\"%s%s\";\", or give each a store of its own, or "
                          "set the scope explicitly if they are one in "
                          "%V:%ui",
                          a, b, &store->name,
                          a->len + b->len ? "$server_name" : "$server_port",
                          ngx_http_idempotency_warn_scopes[
                                               location[i].conf->profile],
                          &place->file, place->line);
            return;
        }
    }
}


static ngx_uint_t
ngx_http_idempotency_warn_open_scope(ngx_http_idempotency_location_t *location,
    ngx_idempotency_store_t *store)
{
    ngx_str_t                        *source;
    ngx_http_idempotency_loc_conf_t  *conf;

    conf = location->conf;

    if (conf->store != store
        || conf->given.scope
        || conf->source == NULL
        || location->clcf->handler == NULL)
    {
        return 0;
    }

    /* "$server_name:$remote_user", or $http_host */

    source = &conf->source->value;

    return ngx_strlcasestrn(source->data, source->data + source->len,
                            (u_char *) "server_", sizeof("server_") - 2)
           == NULL
           && ngx_strlcasestrn(source->data, source->data + source->len,
                               (u_char *) "host", sizeof("host") - 2)
              == NULL;
}


/* whether two locations of different servers may have the same scope */

static ngx_uint_t
ngx_http_idempotency_warn_meet(ngx_http_idempotency_location_t *a,
    ngx_http_idempotency_location_t *b)
{
    ngx_str_t                 *s, *l;
    ngx_http_core_loc_conf_t  *shorter, *longer;

    if (a->server.len
        && a->server.len == b->server.len
        && ngx_strncmp(a->server.data, b->server.data, a->server.len) == 0)
    {
        /* one server in two blocks, for http and https */

        return 0;
    }

    shorter = a->clcf;
    longer = b->clcf;

    if (ngx_http_idempotency_warn_scopes[a->conf->profile]
        != ngx_http_idempotency_warn_scopes[b->conf->profile])
    {
        return 0;
    }

    if (a->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_STRIPE
        || a->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS)
    {
        /* their scopes have no path */

        return 1;
    }

    if ((a->conf->methods & b->conf->methods) == 0) {
        return 0;
    }

    if (shorter->noname || shorter->named
        || longer->noname || longer->named
#if (NGX_PCRE)
        || shorter->regex || longer->regex
#endif
       )
    {
        return 1;
    }

    if (shorter->name.len > longer->name.len) {
        shorter = b->clcf;
        longer = a->clcf;
    }

    s = &shorter->name;
    l = &longer->name;

    return ngx_strncmp(s->data, l->data, s->len) == 0
           && (!shorter->exact_match || s->len == l->len);
}


/*
 * nginx compares Content-Length with client_max_body_size when it has found
 * the location, before any module sees the request.
 */

static void
ngx_http_idempotency_warn_large(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location)
{
    ngx_uint_t                 i;
    ngx_http_err_page_t       *page;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = location->clcf;

    if (clcf->error_pages == NULL) {
        return;
    }

    page = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {

        if (page[i].status == NGX_HTTP_REQUEST_ENTITY_TOO_LARGE
            && page[i].value.lengths == NULL
            && page[i].value.value.len
            && page[i].value.value.data[0] == '@')
        {
            ngx_http_idempotency_warn_named(cf, location,
                                            &page[i].value.value);
        }
    }
}


static void
ngx_http_idempotency_warn_named(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location, ngx_str_t *name)
{
    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_loc_t       **loc;
    ngx_http_idempotency_place_t      *place;
    ngx_http_idempotency_loc_conf_t   *named;

    loc = location->cscf->named_locations;

    while (loc && *loc
           && ((*loc)->name.len != name->len
               || ngx_strncmp((*loc)->name.data, name->data, name->len) != 0))
    {
        loc++;
    }

    if (loc == NULL || *loc == NULL) {
        return;
    }

    clcf = ngx_http_idempotency_loc_clcf(*loc);

    if (clcf->handler == NULL) {
        return;
    }

    named = clcf->loc_conf[ngx_http_idempotency_module.ctx_index];

    if (named->store || named->warned) {
        return;
    }

    named->warned = 1;
    place = location->conf->place;

    ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                  "\"error_page 413\" leads from location \"%V\" to \"%V\", "
                  "which is not protected and would execute each try of a "
                  "request that is too large: set \"idempotency %V;\" in "
                  "\"%V\" in %V:%ui",
                  &location->clcf->name, name, &location->conf->store->name,
                  name, &place->file, place->line);
}


static void
ngx_http_idempotency_warn_admin(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location)
{
    ngx_http_idempotency_place_t  *place;

    if (ngx_http_idempotency_warn_guarded(cf, location)) {
        return;
    }

    place = location->conf->endpoint_place;

    ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                  "\"idempotency_lookup ... admin\" in location \"%V\" is "
                  "open: everybody can list, resolve and purge records; set "
                  "\"allow 127.0.0.1; deny all;\" or \"auth_basic\" there in "
                  "%V:%ui",
                  &location->location, &place->file, place->line);
}


/* the configurations of these modules begin with what is looked at */

static ngx_uint_t
ngx_http_idempotency_warn_guarded(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location)
{
    void                     **codes, **confs;
    ngx_str_t                 *auth_request;
#if (NGX_HTTP_SSL)
    ngx_http_ssl_srv_conf_t   *sscf;
#endif

    confs = location->clcf->loc_conf;

    if (location->clcf->internal
        || ngx_http_idempotency_warn_other_guards(cf)
        || ngx_http_idempotency_warn_rules(cf, confs)
        || ngx_http_idempotency_warn_auth_basic(cf, confs))
    {
        return 1;
    }

    auth_request = ngx_http_idempotency_warn_module(cf, confs,
                                              "ngx_http_auth_request_module");
    if (auth_request && auth_request->len) {
        return 1;
    }

    /* "if" with "return 403" */

    codes = ngx_http_idempotency_warn_module(cf, confs,
                                             "ngx_http_rewrite_module");
    if (codes && *codes) {
        return 1;
    }

#if (NGX_HTTP_SSL)

    sscf = ngx_http_idempotency_warn_module(cf, location->cscf->ctx->srv_conf,
                                            "ngx_http_ssl_module");

    if (sscf && sscf->verify == 1) {
        return 1;
    }

#endif

    return 0;
}


/* "allow" and "deny": lists for IPv4 and, as nginx was built, IPv6 and unix */

static ngx_uint_t
ngx_http_idempotency_warn_rules(ngx_conf_t *cf, void **confs)
{
    void  **rules;

    rules = ngx_http_idempotency_warn_module(cf, confs,
                                             "ngx_http_access_module");

    return rules
           && (rules[0]
#if (NGX_HAVE_INET6)
               || rules[1]
#if (NGX_HAVE_UNIX_DOMAIN)
               || rules[2]
#endif
#elif (NGX_HAVE_UNIX_DOMAIN)
               || rules[1]
#endif
              );
}


static ngx_uint_t
ngx_http_idempotency_warn_auth_basic(ngx_conf_t *cf, void **confs)
{
    ngx_str_t                  *realm;
    ngx_http_complex_value_t  **auth_basic;

    auth_basic = ngx_http_idempotency_warn_module(cf, confs,
                                                "ngx_http_auth_basic_module");
    if (auth_basic == NULL || *auth_basic == NULL) {
        return 0;
    }

    realm = &(*auth_basic)->value;

    return (*auth_basic)->lengths
           || realm->len != 3
           || ngx_strncmp(realm->data, "off", 3) != 0;
}


/* modules that may check access in a way that is not seen here */

static ngx_uint_t
ngx_http_idempotency_warn_other_guards(ngx_conf_t *cf)
{
    char        *name;
    ngx_uint_t   i, m;

    static char  *known[] = {
        "ngx_http_access_module",
        "ngx_http_auth_basic_module",
        "ngx_http_auth_request_module",
        NULL
    };

    for (m = 0; cf->cycle->modules[m]; m++) {
        name = cf->cycle->modules[m]->name;

        if (cf->cycle->modules[m]->type != NGX_HTTP_MODULE
            || (ngx_strstr(name, "auth") == NULL
                && ngx_strstr(name, "access") == NULL
                && ngx_strstr(name, "lua") == NULL
                && ngx_strstr(name, "jwt") == NULL
                && ngx_strstr(name, "oidc") == NULL
                && ngx_strstr(name, "_js_") == NULL))
        {
            continue;
        }

        for (i = 0; known[i]; i++) {
            if (ngx_strcmp(name, known[i]) == 0) {
                break;
            }
        }

        if (known[i] == NULL) {
            return 1;
        }
    }

    return 0;
}


void *
ngx_http_idempotency_warn_module(ngx_conf_t *cf, void **confs, char *name)
{
    ngx_uint_t     m;
    ngx_module_t  *module;

    for (m = 0; cf->cycle->modules[m]; m++) {
        module = cf->cycle->modules[m];

        if (module->type == NGX_HTTP_MODULE
            && ngx_strcmp(module->name, name) == 0)
        {
            return confs[module->ctx_index];
        }
    }

    return NULL;
}
