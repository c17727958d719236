
/*
 * Statistics: as JSON, for Prometheus, and as a page.
 */


#include "ngx_http_idempotency_stats.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_idempotency_census.h"
#include "ngx_idempotency_random.h"

/* "config" writes it: ngx_http_idempotency_page[] */
#include "ngx_http_idempotency_page.h"


/* how often some of the unknown outcomes are checked, milliseconds */
#define NGX_HTTP_IDEMPOTENCY_STATS_CHECK  1000

#define NGX_HTTP_IDEMPOTENCY_PAGE_NONCE   16
#define NGX_HTTP_IDEMPOTENCY_PAGE_HERE    "@NONCE@"


static ngx_int_t ngx_http_idempotency_stats_handler(ngx_http_request_t *r);
static void ngx_http_idempotency_stats_page(void *data,
    ngx_http_idempotency_text_t *text);
static ngx_int_t ngx_http_idempotency_stats_page_policy(ngx_http_request_t *r,
    u_char *nonce);
static void ngx_http_idempotency_stats_check(ngx_event_t *ev);


/* the first one is the default */

static ngx_http_idempotency_text_format_t
    ngx_http_idempotency_stats_formats[] =
{
    { ngx_string("json"), ngx_string("application/json"),
      ngx_string("application/json"),
      ngx_http_idempotency_stats_json },

    { ngx_string("prometheus"), ngx_string("text/plain"),
      ngx_string("text/plain; version=0.0.4; charset=utf-8"),
      ngx_http_idempotency_stats_prometheus },

    { ngx_string("prometheus"), ngx_string("application/openmetrics-text"),
      ngx_string("text/plain; version=0.0.4; charset=utf-8"),
      ngx_http_idempotency_stats_prometheus },

    { ngx_string("html"), ngx_string("text/html"),
      ngx_string("text/html; charset=utf-8"),
      ngx_http_idempotency_stats_page },

    { ngx_null_string, ngx_null_string, ngx_null_string, NULL }
};


/* in the order of ngx_idempotency_error_e */

ngx_str_t  ngx_http_idempotency_stats_errors[] = {
    ngx_null_string,
    ngx_string("full"),
    ngx_string("damaged"),
    ngx_string("connect"),
    ngx_string("timeout"),
    ngx_string("protocol"),
    ngx_string("refused"),
    ngx_string("unsafe"),
    ngx_string("memory")
};


/* in the order of ngx_idempotency_redis_is_e */

ngx_str_t  ngx_http_idempotency_stats_states[] = {
    ngx_string("off"),
    ngx_string("down"),
    ngx_string("connecting"),
    ngx_string("ready")
};


static ngx_event_t       ngx_http_idempotency_stats_timer;
static ngx_connection_t  ngx_http_idempotency_stats_dumb;


char *
ngx_http_idempotency_stats(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    if (imcf->counts == NULL) {
        imcf->counts = ngx_pcalloc(cf->pool, sizeof(ngx_idempotency_counts_t));
        if (imcf->counts == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_idempotency_stats_handler;

    ilcf->stats = 1;

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_idempotency_stats_init(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf)
{
    uint32_t                          crc;
    ngx_uint_t                        i;
    ngx_idempotency_store_t         **stores;
    ngx_idempotency_counts_t         *counts;
    ngx_http_idempotency_location_t  *location;

    counts = imcf->counts;

    if (counts == NULL) {
        return NGX_OK;
    }

    counts->stores = imcf->stores.nelts;
    counts->cells = imcf->locations.nelts * NGX_HTTP_IDEMPOTENCY_RESULTS;

    ngx_crc32_init(crc);

    stores = imcf->stores.elts;

    for (i = 0; i < counts->stores; i++) {
        ngx_crc32_update(&crc, stores[i]->name.data, stores[i]->name.len);
    }

    location = imcf->locations.elts;

    for (i = 0; i < imcf->locations.nelts; i++) {
        ngx_crc32_update(&crc, location[i].server.data,
                         location[i].server.len);
        ngx_crc32_update(&crc, location[i].location.data,
                         location[i].location.len);
        ngx_crc32_update(&crc, (u_char *) (location[i].dry_run ? "dry" : ""),
                         location[i].dry_run ? 3 : 0);
    }

    ngx_crc32_final(crc);

    counts->layout = crc;

    return ngx_idempotency_counts_create(cf, counts,
                                         &ngx_http_idempotency_module);
}


void
ngx_http_idempotency_stats_start(ngx_http_idempotency_main_conf_t *imcf)
{
    ngx_uint_t                 i;
    ngx_event_t               *ev;
    ngx_idempotency_store_t  **stores;

    if (imcf->counts == NULL) {
        return;
    }

    ngx_idempotency_counts_begin(imcf->counts);

    imcf->cells = ngx_idempotency_counts_cells(imcf->counts, ngx_worker);

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        stores[i]->counts = ngx_idempotency_counts_store(imcf->counts,
                                                         ngx_worker, i);
        stores[i]->now = ngx_idempotency_counts_now(imcf->counts, i);
        stores[i]->unknowns = &imcf->counts->unknowns[i];
        stores[i]->health = &imcf->counts->health[i];
    }

    if (ngx_worker != 0) {
        return;
    }

    ngx_http_idempotency_stats_dumb.fd = (ngx_socket_t) -1;
    ngx_http_idempotency_stats_dumb.data = imcf;

    ev = &ngx_http_idempotency_stats_timer;

    ev->handler = ngx_http_idempotency_stats_check;
    ev->data = &ngx_http_idempotency_stats_dumb;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, NGX_HTTP_IDEMPOTENCY_STATS_CHECK);

    for (i = 0; i < imcf->stores.nelts; i++) {
        if (ngx_idempotency_census_start(stores[i]) != NGX_OK) {
            ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, 0,
                          "no memory to count unknown outcomes of idempotency "
                          "store \"%V\"", &stores[i]->name);
        }
    }
}


/* The page, made of page/; its script asks for the counts as JSON. */

static void
ngx_http_idempotency_stats_page(void *data, ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_stats_t *stats = data;

    u_char      *p;
    const char  *from, *here;
    u_char       random[NGX_HTTP_IDEMPOTENCY_PAGE_NONCE];
    u_char       nonce[2 * NGX_HTTP_IDEMPOTENCY_PAGE_NONCE + 1];

    if (ngx_idempotency_random(random, sizeof(random)) != NGX_OK) {
        text->failed = 1;
        return;
    }

    p = ngx_hex_dump(nonce, random, sizeof(random));
    *p = '\0';

    if (ngx_http_idempotency_stats_page_policy(stats->request, nonce)
        != NGX_OK)
    {
        text->failed = 1;
        return;
    }

    from = ngx_http_idempotency_page;

    for ( ;; ) {
        here = ngx_strstr(from, NGX_HTTP_IDEMPOTENCY_PAGE_HERE);
        if (here == NULL) {
            break;
        }

        ngx_http_idempotency_text_bytes(text, from, here - from);
        ngx_http_idempotency_text_add(text, "%s", nonce);

        from = here + sizeof(NGX_HTTP_IDEMPOTENCY_PAGE_HERE) - 1;
    }

    ngx_http_idempotency_text_bytes(text, from, ngx_strlen(from));
}


/* Only what is in the page runs, and connects to this host only. */

static ngx_int_t
ngx_http_idempotency_stats_page_policy(ngx_http_request_t *r, u_char *nonce)
{
    ngx_str_t         value;
    ngx_uint_t        i;

    static ngx_str_t  name = ngx_string("Content-Security-Policy");
    static char       policy[] =
        "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'";

    static ngx_str_t  others[][2] = {
        { ngx_string("X-Content-Type-Options"), ngx_string("nosniff") },
        { ngx_string("Referrer-Policy"), ngx_string("no-referrer") }
    };

    value.data = ngx_pnalloc(r->pool, sizeof(policy) + 2 * ngx_strlen(nonce));
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = ngx_sprintf(value.data, policy, nonce, nonce) - value.data;

    if (ngx_http_idempotency_header_add(&r->headers_out.headers, &name,
                                        &value)
        == NULL)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (ngx_http_idempotency_header_add(&r->headers_out.headers,
                                            &others[i][0], &others[i][1])
            == NULL)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* Unknowns may have been settled elsewhere, or have expired. */

static void
ngx_http_idempotency_stats_check(ngx_event_t *ev)
{
    ngx_uint_t                          i;
    ngx_connection_t                   *dumb;
    ngx_idempotency_store_t           **stores;
    ngx_http_idempotency_main_conf_t   *imcf;

    dumb = ev->data;
    imcf = dumb->data;

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        ngx_idempotency_store_check(stores[i]);
    }

    ngx_idempotency_trouble_sweep(imcf->counts->trouble);

    ngx_add_timer(ev, NGX_HTTP_IDEMPOTENCY_STATS_CHECK);
}


void
ngx_http_idempotency_stats_stop(ngx_http_idempotency_main_conf_t *imcf)
{
    if (imcf->counts && imcf->cells) {
        ngx_idempotency_counts_end(imcf->counts);
    }
}


static ngx_int_t
ngx_http_idempotency_stats_handler(ngx_http_request_t *r)
{
    ngx_int_t                            rc;
    ngx_http_idempotency_text_t          text;
    ngx_http_idempotency_stats_t         stats;
    ngx_http_idempotency_text_format_t  *format;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    format = ngx_http_idempotency_text_format(r,
                                         ngx_http_idempotency_stats_formats);

    if (format == NULL) {
        return NGX_HTTP_BAD_REQUEST;
    }

    if (ngx_http_idempotency_stats_collect(r, &stats) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_idempotency_text_init(&text, r->pool);

    format->write(&stats, &text);

    return ngx_http_idempotency_text_send(r, &text, NGX_HTTP_OK,
                                          &format->type);
}
