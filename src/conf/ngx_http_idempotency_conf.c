
/*
 * The values of directives: parsers that nginx does not have.
 */


#include "ngx_http_idempotency_conf.h"
#include "ngx_idempotency_from.h"
#include "ngx_idempotency_redis.h"
#include "ngx_idempotency_shm.h"
#include "ngx_idempotency_postgres.h"
#include "ngx_idempotency_sqlite.h"


/* seconds */
#define NGX_HTTP_IDEMPOTENCY_SUSPECT_WINDOW  120


static ngx_int_t ngx_http_idempotency_conf_from(ngx_conf_t *cf,
    ngx_idempotency_store_t *store);
static ngx_http_complex_value_t *ngx_http_idempotency_conf_compile(
    ngx_conf_t *cf, ngx_str_t *text);


ngx_conf_bitmask_t  ngx_http_idempotency_conf_method_names[] = {
    { ngx_string("GET"), NGX_HTTP_GET },
    { ngx_string("HEAD"), NGX_HTTP_HEAD },
    { ngx_string("POST"), NGX_HTTP_POST },
    { ngx_string("PUT"), NGX_HTTP_PUT },
    { ngx_string("DELETE"), NGX_HTTP_DELETE },
    { ngx_string("MKCOL"), NGX_HTTP_MKCOL },
    { ngx_string("COPY"), NGX_HTTP_COPY },
    { ngx_string("MOVE"), NGX_HTTP_MOVE },
    { ngx_string("OPTIONS"), NGX_HTTP_OPTIONS },
    { ngx_string("PROPFIND"), NGX_HTTP_PROPFIND },
    { ngx_string("PROPPATCH"), NGX_HTTP_PROPPATCH },
    { ngx_string("LOCK"), NGX_HTTP_LOCK },
    { ngx_string("UNLOCK"), NGX_HTTP_UNLOCK },
    { ngx_string("PATCH"), NGX_HTTP_PATCH },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_idempotency_conf_rejects[] = {
    { ngx_string("reject"), NGX_HTTP_CONFLICT },
    { ngx_string("reject=409"), NGX_HTTP_CONFLICT },
    { ngx_string("reject=425"), NGX_HTTP_IDEMPOTENCY_TOO_EARLY },
    { ngx_string("reject=503"), NGX_HTTP_SERVICE_UNAVAILABLE },
    { ngx_null_string, 0 }
};


/* headers that nginx, its filters or this module set or look for */

static ngx_str_t  ngx_http_idempotency_conf_taken[] = {
    ngx_string("Accept-Ranges"),
    ngx_string("Allow"),
    ngx_string("Cache-Control"),
    ngx_string("Connection"),
    ngx_string("Content-Encoding"),
    ngx_string("Content-Language"),
    ngx_string("Content-Length"),
    ngx_string("Content-Range"),
    ngx_string("Content-Type"),
    ngx_string("Date"),
    ngx_string("ETag"),
    ngx_string("Expires"),
    ngx_string("Idempotency-Key"),
    ngx_string("Idempotency-Retry"),
    ngx_string("Keep-Alive"),
    ngx_string("Last-Modified"),
    ngx_string("Link"),
    ngx_string("Location"),
    ngx_string("Refresh"),
    ngx_string("Retry-After"),
    ngx_string("Server"),
    ngx_string("Set-Cookie"),
    ngx_string("Trailer"),
    ngx_string("Transfer-Encoding"),
    ngx_string("Upgrade"),
    ngx_string("Vary"),
    ngx_string("WWW-Authenticate"),
    ngx_string("X-Accel-Idempotency"),
    ngx_null_string
};


static ngx_conf_enum_t  ngx_http_idempotency_conf_suspects[] = {
    { ngx_string("off"), NGX_HTTP_IDEMPOTENCY_SUSPECT_OFF },
    { ngx_string("report"), NGX_HTTP_IDEMPOTENCY_SUSPECT_REPORT },
    { ngx_string("reject"), NGX_HTTP_IDEMPOTENCY_SUSPECT_REJECT },
    { ngx_null_string, 0 }
};


ngx_idempotency_store_t *
ngx_http_idempotency_store_get(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                          i;
    ngx_idempotency_store_t            *store, **stores;
    ngx_http_idempotency_main_conf_t   *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        if (stores[i]->name.len == name->len
            && ngx_strncmp(stores[i]->name.data, name->data, name->len) == 0)
        {
            return stores[i];
        }
    }

    store = ngx_pcalloc(cf->pool, sizeof(ngx_idempotency_store_t));
    if (store == NULL) {
        return NULL;
    }

    stores = ngx_array_push(&imcf->stores);
    if (stores == NULL) {
        return NULL;
    }

    *stores = store;

    store->name = *name;
    store->counts = &ngx_idempotency_counts_nowhere;
    store->now = &ngx_idempotency_counts_never;
    store->file = cf->conf_file->file.name.data;
    store->line = cf->conf_file->line;

    return store;
}


ngx_http_idempotency_place_t *
ngx_http_idempotency_conf_place(ngx_conf_t *cf)
{
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_idempotency_place_t  *place;

    place = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_place_t));
    if (place == NULL) {
        return NULL;
    }

    place->file = cf->conf_file->file.name;
    place->line = cf->conf_file->line;

    if (cf->cmd_type & NGX_HTTP_LOC_CONF) {
        clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
        place->location = clcf->name;
    }

    return place;
}


char *
ngx_http_idempotency_conf_store(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_str_t                *value;
    ngx_idempotency_store_t  *store;

    value = cf->args->elts;

    if (value[1].len == 0
        || (value[1].len == 3 && ngx_strncmp(value[1].data, "off", 3) == 0))
    {
        return "needs a name for the store, and \"off\" is not a name";
    }

    store = ngx_http_idempotency_store_get(cf, &value[1]);
    if (store == NULL) {
        return NGX_CONF_ERROR;
    }

    if (store->submit) {
        return "is duplicate: a store of this name is defined already";
    }

    if (ngx_http_idempotency_conf_from(cf, store) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (ngx_strncmp(value[2].data, "shm:", 4) == 0) {
        return ngx_idempotency_shm_create(cf, store, &value[2],
                                          cf->args->nelts - 2,
                                          &ngx_http_idempotency_module);
    }

    if (ngx_strncmp(value[2].data, "sqlite:", 7) == 0) {
        return ngx_idempotency_sqlite_create(cf, store, &value[2],
                                             cf->args->nelts - 2,
                                             &ngx_http_idempotency_module);
    }

    if (ngx_idempotency_postgres_is_target(&value[2])) {
        return ngx_idempotency_postgres_create(cf, store, &value[2],
                                               cf->args->nelts - 2,
                                               &ngx_http_idempotency_module);
    }

    if (ngx_idempotency_redis_is_target(&value[2])) {
        return ngx_idempotency_redis_create(cf, store, &value[2],
                                            cf->args->nelts - 2,
                                            &ngx_http_idempotency_module);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid target \"%V\" in \"idempotency_store\", it "
                       "must be \"shm:SIZE\", as in \"shm:10m\", "
                       "\"sqlite:PATH\", or a URL that begins with "
                       "\"redis\" or \"postgres://\"", &value[2]);

    return NGX_CONF_ERROR;
}


/* takes "from=" out of the parameters: it is that of every kind of store */

static ngx_int_t
ngx_http_idempotency_conf_from(ngx_conf_t *cf, ngx_idempotency_store_t *store)
{
    ngx_str_t   *value, name;
    ngx_uint_t   i, n;

    value = cf->args->elts;

    for (i = 3, n = 3; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "from=", 5) != 0) {
            value[n++] = value[i];
            continue;
        }

        name.data = value[i].data + 5;
        name.len = value[i].len - 5;

        if (name.len == 0 || store->from) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid or duplicate parameter \"%V\" of "
                               "\"idempotency_store\" \"%V\", it must name "
                               "one store, as in \"from=old\"",
                               &value[i], &store->name);
            return NGX_ERROR;
        }

        if (name.len == store->name.len
            && ngx_strncmp(name.data, store->name.data, name.len) == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\" of "
                               "\"idempotency_store\" \"%V\", a store cannot "
                               "take over from itself: define the old store "
                               "under another name", &value[i], &store->name);
            return NGX_ERROR;
        }

        store->from = ngx_http_idempotency_store_get(cf, &name);

        if (store->from == NULL) {
            return NGX_ERROR;
        }
    }

    cf->args->nelts = n;

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_conf_from_init(ngx_conf_t *cf)
{
    ngx_uint_t                          i;
    ngx_idempotency_store_t            *store, **stores;
    ngx_http_idempotency_main_conf_t   *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        store = stores[i];

        if (store->from == NULL) {
            continue;
        }

        if (store->from->from) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"from=%V\" of \"idempotency_store\" \"%V\" names "
                          "a store that takes over from \"%V\" itself: finish "
                          "that move first, then remove \"from=%V\" of "
                          "\"%V\"", &store->from->name, &store->name,
                          &store->from->from->name, &store->from->from->name,
                          &store->from->name);
            return NGX_ERROR;
        }

        ngx_idempotency_from_init(store);
    }

    return NGX_OK;
}


char *
ngx_http_idempotency_conf_switch(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_str_t                          *value;
    ngx_http_idempotency_place_t      **place;
    ngx_http_idempotency_main_conf_t   *imcf;

    if (ilcf->store != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return "needs the name of a store, or \"off\"";
    }

    if (value[1].len == 3 && ngx_strncmp(value[1].data, "off", 3) == 0) {
        ilcf->store = NULL;
        return NGX_CONF_OK;
    }

    ilcf->store = ngx_http_idempotency_store_get(cf, &value[1]);
    ilcf->place = ngx_http_idempotency_conf_place(cf);

    if (ilcf->store == NULL || ilcf->place == NULL) {
        return NGX_CONF_ERROR;
    }

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    place = ngx_array_push(&imcf->places);
    if (place == NULL) {
        return NGX_CONF_ERROR;
    }

    *place = ilcf->place;

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_conf_methods(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_str_t           *value;
    ngx_uint_t           i, m;
    ngx_conf_bitmask_t  *names;

    if (ilcf->given.methods) {
        return "is duplicate";
    }

    value = cf->args->elts;
    names = ngx_http_idempotency_conf_method_names;

    for (i = 1; i < cf->args->nelts; i++) {

        for (m = 0; names[m].name.len; m++) {
            if (names[m].name.len == value[i].len
                && ngx_strcmp(names[m].name.data, value[i].data) == 0)
            {
                break;
            }
        }

        if (names[m].name.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid method \"%V\" in "
                               "\"idempotency_methods\", methods are written "
                               "in capitals, as in \"POST PATCH\"", &value[i]);
            return NGX_CONF_ERROR;
        }

        ilcf->given.methods |= names[m].mask;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_conf_in_progress(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_str_t                         *value, s;
    ngx_conf_enum_t                   *e;
    ngx_http_idempotency_main_conf_t  *imcf;

    if (ilcf->wait != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (e = ngx_http_idempotency_conf_rejects; e->name.len; e++) {
        if (ngx_strcmp(value[1].data, e->name.data) == 0) {
            ilcf->wait = 0;
            ilcf->in_progress = e->value;
            return NGX_CONF_OK;
        }
    }

    ilcf->in_progress = NGX_HTTP_CONFLICT;

    if (ngx_strncmp(value[1].data, "wait=", 5) == 0) {
        s.data = value[1].data + 5;
        s.len = value[1].len - 5;

        ilcf->wait = ngx_parse_time(&s, 0);
    }

    if (ilcf->wait == NGX_CONF_UNSET_MSEC || ilcf->wait == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in "
                           "\"idempotency_in_progress\", it must be "
                           "\"reject\", \"reject=409\", \"reject=425\", "
                           "\"reject=503\", or a time, as in \"wait=5s\"",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    if (imcf->notices == NULL) {
        imcf->notices = ngx_idempotency_notice_create(cf,
                                                &ngx_http_idempotency_module);
    }

    return imcf->notices ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_idempotency_conf_unknown(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_str_t  *value;

    if (ilcf->unknown != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "hold") == 0) {
        ilcf->unknown = NGX_HTTP_IDEMPOTENCY_UNKNOWN_HOLD;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value[1].data, "retry") == 0) {
        ilcf->unknown = NGX_HTTP_IDEMPOTENCY_UNKNOWN_RETRY;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value[1].data, "transaction") == 0) {
        ilcf->unknown = NGX_HTTP_IDEMPOTENCY_UNKNOWN_TRANSACTION;
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(value[1].data, "probe=/", 7) == 0) {
        ilcf->unknown = NGX_HTTP_IDEMPOTENCY_UNKNOWN_PROBE;
        ilcf->probe.data = value[1].data + 6;
        ilcf->probe.len = value[1].len - 6;
        ilcf->probe_place = ngx_http_idempotency_conf_place(cf);
        return ilcf->probe_place ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"idempotency_unknown\", it "
                       "must be \"hold\", \"retry\", \"probe=/URI\" or "
                       "\"transaction\"", &value[1]);

    return NGX_CONF_ERROR;
}


char *
ngx_http_idempotency_conf_suspect(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_str_t        *value, s;
    ngx_conf_enum_t  *e;

    if (ilcf->suspect != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (e = ngx_http_idempotency_conf_suspects; e->name.len; e++) {
        if (ngx_strcmp(value[1].data, e->name.data) == 0) {
            ilcf->suspect = e->value;
            break;
        }
    }

    if (e->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"idempotency_suspect\", "
                           "it must be \"off\", \"report\" or \"reject\"",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    ilcf->suspect_window = NGX_HTTP_IDEMPOTENCY_SUSPECT_WINDOW;

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    s.len = 0;

    if (ngx_strncmp(value[2].data, "window=", 7) == 0) {
        s.data = value[2].data + 7;
        s.len = value[2].len - 7;
    }

    ilcf->suspect_window = s.len ? ngx_parse_time(&s, 1)
                                 : (time_t) NGX_ERROR;

    if (ilcf->suspect_window == (time_t) NGX_ERROR
        || ilcf->suspect_window > NGX_MAX_INT32_VALUE)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in "
                           "\"idempotency_suspect\", it takes a time, as in "
                           "\"window=2m\"", &value[2]);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_conf_ttl(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_str_t  *value, s;

    if (ilcf->given.ttl != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;

    ilcf->given.ttl = ngx_parse_time(&value[1], 1);

    if (ilcf->given.ttl == (time_t) NGX_ERROR
        || ilcf->given.ttl == 0
        || ilcf->given.ttl > NGX_MAX_INT32_VALUE)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid time \"%V\" in \"idempotency_ttl\", it "
                           "must be a second at least, as in \"24h\", and "
                           "68 years at most",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    ilcf->tombstone = 0;

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(value[2].data, "tombstone=", 10) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"idempotency_ttl\", "
                           "it takes \"tombstone=TIME\"", &value[2]);
        return NGX_CONF_ERROR;
    }

    s.data = value[2].data + 10;
    s.len = value[2].len - 10;

    ilcf->tombstone = ngx_parse_time(&s, 1);

    if (ilcf->tombstone == (time_t) NGX_ERROR
        || ilcf->tombstone > NGX_MAX_INT32_VALUE)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid time \"%V\" in \"idempotency_ttl\", write "
                           "it as in \"tombstone=30d\", 68 years at most",
                           &s);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_conf_hide_header(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_str_t   *value, *name;
    ngx_uint_t   i;

    value = cf->args->elts;

    if (ilcf->hide_headers == NGX_CONF_UNSET_PTR) {
        ilcf->hide_headers = ngx_array_create(cf->pool, 4, sizeof(ngx_str_t));
        if (ilcf->hide_headers == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    for (i = 1; i < cf->args->nelts; i++) {

        if (value[i].len == 0) {
            return "has an empty header name";
        }

        name = ngx_array_push(ilcf->hide_headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = value[i];
    }

    return NGX_CONF_OK;
}


/* the name of a header line, or "off", which is an empty name */

char *
ngx_http_idempotency_conf_header(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    char  *p = conf;

    u_char       ch;
    size_t       i;
    ngx_str_t   *name, *value;
    ngx_uint_t   n;

    name = (ngx_str_t *) (p + cmd->offset);

    if (name->data) {
        return "is duplicate";
    }

    value = cf->args->elts;
    *name = value[1];

    if (name->len == 3 && ngx_strncmp(name->data, "off", 3) == 0) {
        name->len = 0;
        return NGX_CONF_OK;
    }

    for (i = 0; i < name->len; i++) {
        ch = name->data[i];

        if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
              || (ch >= '0' && ch <= '9')
              || (ch && ngx_strchr("!#$%&'*+-.^_`|~", ch))))
        {
            break;
        }
    }

    if (name->len == 0 || i < name->len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid name \"%V\" in \"%V\", it must be that "
                           "of a header, as in \"X-Name\", or \"off\"",
                           name, &cmd->name);
        return NGX_CONF_ERROR;
    }

    for (n = 0; ngx_http_idempotency_conf_taken[n].len; n++) {

        if (name->len == ngx_http_idempotency_conf_taken[n].len
            && ngx_strncasecmp(name->data,
                               ngx_http_idempotency_conf_taken[n].data,
                               name->len)
               == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid name \"%V\" in \"%V\", that header "
                               "has a meaning of its own: take another name, "
                               "as in \"X-Name\", or \"off\"",
                               name, &cmd->name);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


/* the URL becomes part of a header line and of a JSON string */

char *
ngx_http_idempotency_conf_describedby(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    size_t      i;
    u_char      ch;
    ngx_str_t  *value;

    if (ilcf->describedby.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 0; i < value[1].len; i++) {
        ch = value[1].data[i];

        if (ch <= 0x20 || ch >= 0x7f || ch == '"' || ch == '\\'
            || ch == '<' || ch == '>')
        {
            return "must be a URL without spaces, quotes and angle brackets";
        }
    }

    ilcf->describedby = value[1];

    return NGX_CONF_OK;
}


ngx_http_complex_value_t *
ngx_http_idempotency_conf_value(ngx_conf_t *cf, char *text)
{
    ngx_str_t  s;

    /* ngx_http_compile_complex_value() writes into the text */

    s.len = ngx_strlen(text);
    s.data = ngx_pnalloc(cf->pool, s.len + 1);
    if (s.data == NULL) {
        return NULL;
    }

    ngx_memcpy(s.data, text, s.len + 1);

    return ngx_http_idempotency_conf_compile(cf, &s);
}


static ngx_http_complex_value_t *
ngx_http_idempotency_conf_compile(ngx_conf_t *cf, ngx_str_t *text)
{
    ngx_http_complex_value_t          *value;
    ngx_http_compile_complex_value_t   ccv;

    value = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (value == NULL) {
        return NULL;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = value;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NULL;
    }

    return value;
}
