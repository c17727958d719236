
/*
 * The request that a probe sends: a GET of the probe's URI.
 *
 * ngx_http_subrequest() copies the unparsed URI, the request line, the
 * headers and the body of the main request, and shares its variables.  With
 * the fastcgi_params, uwsgi_params and scgi_params that come with nginx an
 * application would see the operation itself: its method, its URI, its type.
 */


#include "ngx_http_idempotency_probe_request.h"


static ngx_int_t ngx_http_idempotency_probe_request_line(
    ngx_http_request_t *r, ngx_str_t *uri, ngx_str_t *args,
    ngx_http_idempotency_probe_request_t *pr);
static ngx_int_t ngx_http_idempotency_probe_request_headers(
    ngx_http_request_t *r, ngx_list_t *list);
static ngx_int_t ngx_http_idempotency_probe_request_variables(
    ngx_http_request_t *r, ngx_http_idempotency_probe_request_t *pr);
static ngx_uint_t ngx_http_idempotency_probe_request_depends(ngx_str_t *name);
static ngx_uint_t ngx_http_idempotency_probe_request_is(ngx_str_t *name,
    ngx_str_t *other);
static ngx_uint_t ngx_http_idempotency_probe_request_drops(u_char *name,
    size_t len);


static ngx_str_t  ngx_http_idempotency_probe_request_get = ngx_string("GET");

static ngx_str_t  ngx_http_idempotency_probe_request_method =
    ngx_string("request_method");

static ngx_str_t  ngx_http_idempotency_probe_request_id =
    ngx_string("request_id");


/*
 * Headers that describe the operation's body, or on what condition it is to
 * be executed or answered.  A name with "-" at its end is that of a family.
 */

static ngx_str_t  ngx_http_idempotency_probe_request_dropped[] = {
    ngx_string("content-"),
    ngx_string("transfer-encoding"),
    ngx_string("trailer"),
    ngx_string("digest"),
    ngx_string("repr-digest"),
    ngx_string("expect"),
    ngx_string("upgrade"),
    ngx_string("range"),
    ngx_string("if"),
    ngx_string("if-"),
    ngx_null_string
};


/*
 * Variables that nginx caches and that are made of what the subrequest has
 * for itself.
 */

static ngx_str_t  ngx_http_idempotency_probe_request_own[] = {
    ngx_string("request"),
    ngx_string("request_uri"),
    ngx_string("request_body"),
    ngx_string("request_body_file"),
    ngx_string("content_type"),
    ngx_string("content_length"),
    ngx_null_string
};


/*
 * ngx_http_get_variable() looks into r->variables only for a variable that
 * has an index.
 */

ngx_int_t
ngx_http_idempotency_probe_request_init(ngx_conf_t *cf)
{
    return ngx_http_get_variable_index(cf,
                                 &ngx_http_idempotency_probe_request_method)
           == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_http_idempotency_probe_request_prepare(ngx_http_request_t *r,
    ngx_str_t *uri, ngx_str_t *args, ngx_http_idempotency_probe_request_t *pr)
{
    pr->body = ngx_pcalloc(r->pool, sizeof(ngx_http_request_body_t));
    if (pr->body == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_idempotency_probe_request_line(r, uri, args, pr) != NGX_OK
        || ngx_http_idempotency_probe_request_headers(r, &pr->headers)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_probe_request_variables(r, pr);
}


static ngx_int_t
ngx_http_idempotency_probe_request_line(ngx_http_request_t *r,
    ngx_str_t *uri, ngx_str_t *args, ngx_http_idempotency_probe_request_t *pr)
{
    u_char     *p;
    size_t      len;
    uintptr_t   escape;

    escape = 2 * ngx_escape_uri(NULL, uri->data, uri->len, NGX_ESCAPE_URI);

    len = sizeof("GET ") - 1 + uri->len + escape
          + sizeof("?") - 1 + args->len
          + sizeof(" ") - 1 + r->http_protocol.len;

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    pr->line.data = p;

    p = ngx_cpymem(p, "GET ", sizeof("GET ") - 1);

    pr->unparsed_uri.data = p;

    if (escape) {
        p = (u_char *) ngx_escape_uri(p, uri->data, uri->len, NGX_ESCAPE_URI);

    } else {
        p = ngx_cpymem(p, uri->data, uri->len);
    }

    if (args->len) {
        *p++ = '?';
        p = ngx_cpymem(p, args->data, args->len);
    }

    pr->unparsed_uri.len = p - pr->unparsed_uri.data;

    if (r->http_protocol.len) {
        *p++ = ' ';
        p = ngx_cpymem(p, r->http_protocol.data, r->http_protocol.len);
    }

    pr->line.len = p - pr->line.data;

    return NGX_OK;
}


/*
 * The parts of the list are runs of elements of the main request's list, not
 * copies: ngx_http_link_multi_headers() links elements, and the modules that
 * create requests compare their addresses.
 */

static ngx_int_t
ngx_http_idempotency_probe_request_headers(ngx_http_request_t *r,
    ngx_list_t *list)
{
    ngx_uint_t        i, run;
    ngx_list_part_t  *part, *last;
    ngx_table_elt_t  *h;

    last = &list->part;
    last->nelts = 0;
    last->next = NULL;

    for (part = &r->headers_in.headers.part; part; part = part->next) {

        h = part->elts;
        run = 0;

        for (i = 0; i < part->nelts; i++) {

            if (ngx_http_idempotency_probe_request_drops(h[i].key.data,
                                                         h[i].key.len))
            {
                run = 0;
                continue;
            }

            if (!run && last->nelts) {
                last->next = ngx_pcalloc(r->pool, sizeof(ngx_list_part_t));
                if (last->next == NULL) {
                    return NGX_ERROR;
                }

                last = last->next;
            }

            if (!run) {
                last->elts = &h[i];
                run = 1;
            }

            last->nelts++;
        }
    }

    if (last->nelts == 0) {
        return ngx_list_init(list, r->pool, 4, sizeof(ngx_table_elt_t));
    }

    /* the last part is full: ngx_list_push() writes to a new one */

    list->last = last;
    list->size = sizeof(ngx_table_elt_t);
    list->nalloc = last->nelts;
    list->pool = r->pool;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_probe_request_variables(ngx_http_request_t *r,
    ngx_http_idempotency_probe_request_t *pr)
{
    size_t                      size;
    ngx_str_t                  *get, *method, *id;
    ngx_uint_t                  i;
    ngx_http_variable_t        *v;
    ngx_http_variable_value_t  *vv;
    ngx_http_core_main_conf_t  *cmcf;

    get = &ngx_http_idempotency_probe_request_get;
    method = &ngx_http_idempotency_probe_request_method;
    id = &ngx_http_idempotency_probe_request_id;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    size = cmcf->variables.nelts * sizeof(ngx_http_variable_value_t);

    vv = ngx_palloc(r->pool, size);
    if (vv == NULL) {
        return NGX_ERROR;
    }

    v = cmcf->variables.elts;

    for (i = 0; i < cmcf->variables.nelts; i++) {

        /* random, and one for the request and its subrequests */

        if (ngx_http_idempotency_probe_request_is(&v[i].name, id)
            && ngx_http_get_indexed_variable(r, i) == NULL)
        {
            return NGX_ERROR;
        }
    }

    ngx_memcpy(vv, r->variables, size);

    for (i = 0; i < cmcf->variables.nelts; i++) {

        if (ngx_http_idempotency_probe_request_is(&v[i].name, method)) {

            /* ngx_http_variable_request_method() asks the main request */

            vv[i].data = get->data;
            vv[i].len = get->len;
            vv[i].valid = 1;
            vv[i].not_found = 0;
            vv[i].no_cacheable = 0;

        } else if (ngx_http_idempotency_probe_request_depends(&v[i].name)) {
            vv[i].valid = 0;
            vv[i].not_found = 0;
        }
    }

    pr->variables = vv;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_probe_request_depends(ngx_str_t *name)
{
    ngx_str_t  *own;

    if (name->len > 5 && ngx_strncmp(name->data, "http_", 5) == 0) {
        return ngx_http_idempotency_probe_request_drops(name->data + 5,
                                                        name->len - 5);
    }

    for (own = ngx_http_idempotency_probe_request_own; own->len; own++) {

        if (ngx_http_idempotency_probe_request_is(name, own)) {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_idempotency_probe_request_is(ngx_str_t *name, ngx_str_t *other)
{
    return name->len == other->len
           && ngx_strncmp(name->data, other->data, other->len) == 0;
}


/* the name of a header, or that of its variable after "http_" */

static ngx_uint_t
ngx_http_idempotency_probe_request_drops(u_char *name, size_t len)
{
    u_char      c;
    size_t      i;
    ngx_str_t  *dropped;

    dropped = ngx_http_idempotency_probe_request_dropped;

    for ( /* void */ ; dropped->len; dropped++) {

        if (len < dropped->len
            || (len > dropped->len
                && dropped->data[dropped->len - 1] != '-'))
        {
            continue;
        }

        for (i = 0; i < dropped->len; i++) {
            c = ngx_tolower(name[i]);

            if ((c == '_' ? '-' : c) != dropped->data[i]) {
                break;
            }
        }

        if (i == dropped->len) {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_idempotency_probe_request_set(ngx_http_request_t *sr,
    ngx_http_idempotency_probe_request_t *pr)
{
    ngx_http_headers_in_t  *in;

    sr->request_line = pr->line;
    sr->unparsed_uri = pr->unparsed_uri;
    sr->request_body = pr->body;
    sr->variables = pr->variables;

    in = &sr->headers_in;

    in->headers = pr->headers;

    if (pr->headers.last == &pr->headers.part) {
        in->headers.last = &in->headers.part;
    }

    in->content_length = NULL;
    in->content_length_n = -1;
    in->content_range = NULL;
    in->content_type = NULL;
    in->transfer_encoding = NULL;
    in->chunked = 0;
    in->expect = NULL;
    in->upgrade = NULL;
    in->range = NULL;
    in->if_range = NULL;
    in->if_match = NULL;
    in->if_none_match = NULL;
    in->if_modified_since = NULL;
    in->if_unmodified_since = NULL;
}
