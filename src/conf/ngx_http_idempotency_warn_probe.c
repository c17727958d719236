
/*
 * A probe must reach an upstream: warnings of "nginx -t".
 */


#include "ngx_http_idempotency_warn.h"


static ngx_http_core_loc_conf_t *ngx_http_idempotency_warn_find(
    ngx_http_core_loc_conf_t *clcf, ngx_str_t *uri);
static ngx_http_idempotency_loc_t *ngx_http_idempotency_warn_static(
    ngx_http_location_tree_node_t *node, ngx_str_t *uri, ngx_uint_t *exact);
static ngx_uint_t ngx_http_idempotency_warn_moves(ngx_conf_t *cf,
    void **confs);
static ngx_uint_t ngx_http_idempotency_warn_cached(ngx_conf_t *cf,
    void **confs);


void
ngx_http_idempotency_warn_probe(ngx_conf_t *cf,
    ngx_http_idempotency_location_t *location)
{
    void                          **confs;
    u_char                         *p;
    ngx_str_t                       uri;
    ngx_http_core_loc_conf_t       *clcf;
    ngx_http_idempotency_place_t   *place;

    uri = location->conf->probe;
    place = location->conf->probe_place;

    if (location->conf->unknown != NGX_HTTP_IDEMPOTENCY_UNKNOWN_PROBE
        || location->clcf->handler == NULL
        || place->warned == location->cscf
        || ngx_strlchr(uri.data, uri.data + uri.len, '$'))
    {
        return;
    }

    p = ngx_strlchr(uri.data, uri.data + uri.len, '?');
    if (p) {
        uri.len = p - uri.data;
    }

    confs = location->cscf->ctx->loc_conf;

    clcf = ngx_http_idempotency_warn_find(
                                 confs[ngx_http_core_module.ctx_index], &uri);
    if (clcf == NULL) {
        return;
    }

    /* that of the server itself does not point to the others */

    if (clcf->loc_conf) {
        confs = clcf->loc_conf;
    }

    if (clcf->handler) {

        if (!ngx_http_idempotency_warn_cached(cf, confs)) {
            return;
        }

        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "the probe \"%V\" leads to location \"%V\", which has a "
                      "cache: what an upstream has done is not known from a "
                      "cache; set \"proxy_cache off;\" or the like there in "
                      "%V:%ui",
                      &uri, &clcf->name, &place->file, place->line);

    } else if (ngx_http_idempotency_warn_moves(cf, confs)) {
        return;

    } else if (clcf->name.len == 0) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "the probe \"%V\" leads to no location: add one with "
                      "\"proxy_pass\" or the like in %V:%ui",
                      &uri, &place->file, place->line);

    } else {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "the probe \"%V\" leads to location \"%V\", which has "
                      "no content handler: only an upstream can tell what it "
                      "has done; add \"proxy_pass\" or the like there in "
                      "%V:%ui",
                      &uri, &clcf->name, &place->file, place->line);
    }

    place->warned = location->cscf;
}


/*
 * As ngx_http_core_find_location(): the location of a path, that of the server
 * itself if no other has it, or NULL if a regular expression may take it.
 */

static ngx_http_core_loc_conf_t *
ngx_http_idempotency_warn_find(ngx_http_core_loc_conf_t *clcf, ngx_str_t *uri)
{
    ngx_uint_t                   exact;
    ngx_http_idempotency_loc_t  *next;

    for ( ;; ) {

        next = ngx_http_idempotency_warn_static(clcf->static_locations, uri,
                                                &exact);
        if (next && exact) {
            return ngx_http_idempotency_loc_clcf(next);
        }

#if (NGX_PCRE)
        if (clcf->regex_locations && (next == NULL || !next->noregex)) {
            return NULL;
        }
#endif

        if (next == NULL) {
            return clcf;
        }

        clcf = ngx_http_idempotency_loc_clcf(next);
    }
}


/*
 * A node of the tree has the part of a name that is behind the name of the
 * node whose "tree" it is in, see ngx_http_create_locations_tree().
 */

static ngx_http_idempotency_loc_t *
ngx_http_idempotency_warn_static(ngx_http_location_tree_node_t *node,
    ngx_str_t *uri, ngx_uint_t *exact)
{
    ngx_int_t                    rc;
    ngx_str_t                    rest;
    ngx_http_idempotency_loc_t  *found;

    rest = *uri;
    found = NULL;
    *exact = 0;

    while (node) {

        rc = ngx_filename_cmp(rest.data, node->name,
                              ngx_min(rest.len, (size_t) node->len));

        if (rc < 0 || (rc == 0 && rest.len < (size_t) node->len)) {
            node = node->left;

        } else if (rc > 0) {
            node = node->right;

        } else if (rest.len == (size_t) node->len) {
            *exact = (node->exact != NULL);
            return node->exact ? node->exact : node->inclusive;

        } else if (node->inclusive) {
            found = node->inclusive;
            rest.data += node->len;
            rest.len -= node->len;
            node = node->tree;

        } else {
            node = node->right;
        }
    }

    return found;
}


/* a request may go on from here; both configurations begin with what to do */

static ngx_uint_t
ngx_http_idempotency_warn_moves(ngx_conf_t *cf, void **confs)
{
    void  **codes, **try_files;

    codes = ngx_http_idempotency_warn_module(cf, confs,
                                             "ngx_http_rewrite_module");
    try_files = ngx_http_idempotency_warn_module(cf, confs,
                                                 "ngx_http_try_files_module");

    return (codes && *codes) || (try_files && *try_files);
}


/* of the module whose upstream it is, if that has no variables */

static ngx_uint_t
ngx_http_idempotency_warn_cached(ngx_conf_t *cf, void **confs)
{
#if (NGX_HTTP_CACHE)

    ngx_uint_t                 i;
    ngx_http_upstream_conf_t  *ucf;

    static char  *modules[] = {
        "ngx_http_proxy_module",
        "ngx_http_fastcgi_module",
        "ngx_http_uwsgi_module",
        "ngx_http_scgi_module",
        NULL
    };

    for (i = 0; modules[i]; i++) {
        ucf = ngx_http_idempotency_warn_module(cf, confs, modules[i]);

        if (ucf && ucf->upstream && ucf->cache > 0) {
            return 1;
        }
    }

#endif

    return 0;
}
