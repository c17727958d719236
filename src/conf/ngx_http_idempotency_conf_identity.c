
/*
 * What a request is recognised by: key, source, fingerprint, and fields of
 * the body as variables.
 */


#include "ngx_http_idempotency_conf.h"
#include "ngx_http_idempotency_field.h"


static ngx_uint_t ngx_http_idempotency_conf_skip(ngx_str_t *name,
    char *prefix);
static ngx_int_t ngx_http_idempotency_conf_field_name(ngx_conf_t *cf,
    ngx_str_t *name);
static void ngx_http_idempotency_conf_header_name(u_char *p, u_char *last);
static size_t ngx_http_idempotency_conf_constant(ngx_str_t *value);
static char *ngx_http_idempotency_conf_fingerprint_parameter(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *ilcf, ngx_str_t *value);
static char *ngx_http_idempotency_conf_paths(ngx_conf_t *cf,
    ngx_str_t *value, ngx_uint_t nested, ngx_array_t **paths);
static ngx_int_t ngx_http_idempotency_conf_path(ngx_conf_t *cf,
    ngx_str_t *text, ngx_uint_t nested, ngx_http_idempotency_path_t *path);


static ngx_conf_enum_t  ngx_http_idempotency_conf_fingerprints[] = {
    { ngx_string("off"), NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF },
    { ngx_string("raw"), NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW },
    { ngx_string("json"), NGX_HTTP_IDEMPOTENCY_FINGERPRINT_JSON },
    { ngx_string("form"), NGX_HTTP_IDEMPOTENCY_FINGERPRINT_FORM },
    { ngx_string("multipart"), NGX_HTTP_IDEMPOTENCY_FINGERPRINT_MULTIPART },
    { ngx_null_string, 0 }
};


/*
 * A key that is one header is looked up in the header lines themselves, so
 * that two lines are seen as two, in every version of nginx.
 */

char *
ngx_http_idempotency_conf_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    char       *rv;
    u_char      ch;
    size_t      i;
    ngx_str_t  *value;

    rv = ngx_http_set_complex_value_slot(cf, cmd, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    ilcf->given.key = ilcf->key;

    value = cf->args->elts;

    if (value[1].len == 0) {
        return "must not be empty: name a variable, "
               "such as $http_idempotency_key";
    }

    if (ilcf->key->lengths == NULL) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"idempotency_key\" \"%V\" has no variable, all "
                           "requests of a source have the same key; a "
                           "variable begins with \"$\"", &value[1]);
        return NGX_CONF_OK;
    }

    if (value[1].len <= sizeof("$http_") - 1
        || ngx_strncasecmp(value[1].data, (u_char *) "$http_",
                           sizeof("$http_") - 1) != 0)
    {
        return NGX_CONF_OK;
    }

    for (i = sizeof("$http_") - 1; i < value[1].len; i++) {
        ch = ngx_tolower(value[1].data[i]);

        if ((ch < 'a' || ch > 'z') && (ch < '0' || ch > '9') && ch != '_') {
            return NGX_CONF_OK;
        }
    }

    ilcf->key_header.len = value[1].len - (sizeof("$http_") - 1);
    ilcf->key_header.data = value[1].data + sizeof("$http_") - 1;

    ngx_strlow(ilcf->key_header.data, ilcf->key_header.data,
               ilcf->key_header.len);

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_idempotency_conf_key_place(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    char       *type, *of;
    u_char     *p, *last;
    size_t      i;
    ngx_str_t   name;
    ngx_uint_t  header;

    name = conf->key->value;
    header = 0;
    of = "";

    if (name.len < 2 || name.data[0] != '$') {
        return NGX_OK;
    }

    name.data++;
    name.len--;

    if (name.data[0] == '{' && name.data[name.len - 1] == '}') {
        name.data++;
        name.len -= 2;
    }

    for (i = 0; i < name.len; i++) {
        if (!isalnum(name.data[i]) && name.data[i] != '_') {
            return NGX_OK;
        }
    }

    if (ngx_http_idempotency_conf_skip(&name, "http_")) {
        type = "header ";
        header = 1;

    } else if (ngx_http_idempotency_conf_skip(&name, "arg_")) {
        type = "query argument ";

    } else if (ngx_http_idempotency_conf_skip(&name, "cookie_")) {
        type = "cookie ";

    } else {
        type = "field ";

        switch (ngx_http_idempotency_conf_field_name(cf, &name)) {

        case NGX_OK:
            of = " of the JSON body";
            break;

        case NGX_DONE:
            of = " of the form";
            break;

        case NGX_DECLINED:
            return NGX_OK;

        default: /* NGX_ERROR */
            return NGX_ERROR;
        }
    }

    p = ngx_pnalloc(cf->pool, ngx_strlen(type) + name.len + ngx_strlen(of)
                              + ngx_escape_json(NULL, name.data, name.len));
    if (p == NULL) {
        return NGX_ERROR;
    }

    conf->key_place.data = p;

    p = ngx_cpymem(p, type, ngx_strlen(type));
    last = (u_char *) ngx_escape_json(p, name.data, name.len);

    if (header) {
        ngx_http_idempotency_conf_header_name(p, last);
    }

    last = ngx_cpymem(last, of, ngx_strlen(of));

    conf->key_place.len = last - conf->key_place.data;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_conf_skip(ngx_str_t *name, char *prefix)
{
    size_t  len;

    len = ngx_strlen(prefix);

    if (name->len <= len
        || ngx_strncasecmp(name->data, (u_char *) prefix, len) != 0)
    {
        return 0;
    }

    name->data += len;
    name->len -= len;

    return 1;
}


/* "order.id": NGX_OK in JSON, NGX_DONE in a form, or NGX_DECLINED, NGX_ERROR */

static ngx_int_t
ngx_http_idempotency_conf_field_name(ngx_conf_t *cf, ngx_str_t *name)
{
    u_char                             *p;
    size_t                              len;
    ngx_uint_t                          i, n;
    ngx_http_idempotency_field_t      **field;
    ngx_http_idempotency_main_conf_t   *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    field = imcf->fields.elts;

    for (i = 0; i < imcf->fields.nelts; i++) {

        if (field[i]->name.len == name->len
            && ngx_strncasecmp(field[i]->name.data, name->data, name->len)
               == 0)
        {
            break;
        }
    }

    if (i == imcf->fields.nelts) {
        return NGX_DECLINED;
    }

    len = 0;

    for (n = 0; n < field[i]->path.n; n++) {
        len += field[i]->path.names[n].len + 1;
    }

    p = ngx_pnalloc(cf->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    name->data = p;

    for (n = 0; n < field[i]->path.n; n++) {
        p = ngx_cpymem(p, field[i]->path.names[n].data,
                       field[i]->path.names[n].len);
        *p++ = '.';
    }

    name->len = p - 1 - name->data;

    return field[i]->json ? NGX_OK : NGX_DONE;
}


/* "idempotency_key" as people write it */

static void
ngx_http_idempotency_conf_header_name(u_char *p, u_char *last)
{
    ngx_uint_t  first;

    for (first = 1; p < last; p++) {

        if (*p == '_') {
            *p = '-';
            first = 1;
            continue;
        }

        *p = first ? ngx_toupper(*p) : ngx_tolower(*p);
        first = 0;
    }
}


/*
 * A value such as "$tenant:$user" is not empty if both of its variables are:
 * its length is then that of the constant part.
 */

char *
ngx_http_idempotency_conf_source(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    char       *rv;
    ngx_str_t  *value;

    rv = ngx_http_set_complex_value_slot(cf, cmd, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    value = cf->args->elts;

    if (ilcf->source->lengths) {
        ilcf->source_text = ngx_http_idempotency_conf_constant(&value[1]);

    } else if (value[1].len) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"idempotency_source\" \"%V\" has no variable, "
                           "all clients are one source and get each other's "
                           "answers; a variable begins with \"$\"",
                           &value[1]);
    }

    if (ngx_strcasecmp(value[1].data, (u_char *) "$http_authorization") == 0
        || ngx_strcasecmp(value[1].data, (u_char *) "${http_authorization}")
           == 0)
    {
        ngx_conf_log_error(NGX_LOG_NOTICE, cf, 0,
                           "\"idempotency_source\" \"%V\" differs with each "
                           "try of a request that is signed (AWS SigV4, "
                           "Digest, OAuth 1), and each try would be executed; "
                           "take an identity that was verified, or a bearer "
                           "token by a \"map\"", &value[1]);
    }

    return NGX_CONF_OK;
}


/* variables are written as ngx_http_script_compile() reads them */

static size_t
ngx_http_idempotency_conf_constant(ngx_str_t *value)
{
    u_char  *p, *last;
    size_t   len;

    len = 0;
    p = value->data;
    last = p + value->len;

    while (p < last) {

        if (*p++ != '$') {
            len++;

        } else if (*p >= '1' && *p <= '9') {
            p++;

        } else if (*p == '{') {
            while (p < last && *p++ != '}') { /* void */ }

        } else {
            while (p < last && (isalnum(*p) || *p == '_')) {
                p++;
            }
        }
    }

    return len;
}


char *
ngx_http_idempotency_conf_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    char             *rv;
    ngx_str_t        *value;
    ngx_uint_t        i;
    ngx_conf_enum_t  *e;

    if (ilcf->fingerprint != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (e = ngx_http_idempotency_conf_fingerprints; e->name.len; e++) {
        if (ngx_strcmp(value[1].data, e->name.data) == 0) {
            ilcf->fingerprint = e->value;
            ilcf->given.fingerprint = 1;
        }
    }

    if (ilcf->fingerprint == NGX_CONF_UNSET_UINT) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in "
                           "\"idempotency_fingerprint\", it must be \"raw\", "
                           "\"json\", \"form\", \"multipart\" or "
                           "\"off\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {
        rv = ngx_http_idempotency_conf_fingerprint_parameter(cf, ilcf,
                                                             &value[i]);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_conf_fingerprint_parameter(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *ilcf, ngx_str_t *value)
{
    ngx_str_t   paths;
    ngx_uint_t  json, fields;

    json = (ilcf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_JSON);
    fields = json
             || ilcf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_FORM
             || ilcf->fingerprint
                == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_MULTIPART;

    if (ngx_strncmp(value->data, "with=", 5) == 0
        && ilcf->fingerprint != NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF)
    {
        if (ilcf->given.with) {
            return "has two parameters \"with=\", put both values into one";
        }

        ilcf->given.with = ngx_http_idempotency_conf_value(cf,
                                                (char *) value->data + 5);

        return ilcf->given.with ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    if (fields
        && (ngx_strncmp(value->data, "include=", 8) == 0
            || ngx_strncmp(value->data, "exclude=", 8) == 0))
    {
        paths.data = value->data + 8;
        paths.len = value->len - 8;

        return ngx_http_idempotency_conf_paths(cf, &paths, json,
                                               value->data[0] == 'i'
                                               ? &ilcf->include
                                               : &ilcf->exclude);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\" in "
                       "\"idempotency_fingerprint\", \"raw\" takes "
                       "\"with=VALUE\", \"json\", \"form\" and "
                       "\"multipart\" also \"include=PATH,...\" and "
                       "\"exclude=PATH,...\"",
                       value);

    return NGX_CONF_ERROR;
}


/* "one,two.three": a backslash takes the meaning from a comma or a dot */

static char *
ngx_http_idempotency_conf_paths(ngx_conf_t *cf, ngx_str_t *value,
    ngx_uint_t nested, ngx_array_t **paths)
{
    size_t                        i;
    ngx_str_t                     text;
    ngx_http_idempotency_path_t  *path;

    if (*paths == NULL) {
        *paths = ngx_array_create(cf->pool, 4,
                                  sizeof(ngx_http_idempotency_path_t));
        if (*paths == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    text.data = value->data;

    for (i = 0; i <= value->len; i++) {

        if (i < value->len && value->data[i] == '\\') {
            i++;
            continue;
        }

        if (i < value->len && value->data[i] != ',') {
            continue;
        }

        text.len = value->data + i - text.data;

        path = ngx_array_push(*paths);
        if (path == NULL) {
            return NGX_CONF_ERROR;
        }

        if (ngx_http_idempotency_conf_path(cf, &text, nested, path) != NGX_OK)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid path \"%V\" in "
                               "\"idempotency_fingerprint\", write names as "
                               "in \"exclude=nonce,meta.sent_at\"", &text);
            return NGX_CONF_ERROR;
        }

        text.data = value->data + i + 1;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_idempotency_conf_path(ngx_conf_t *cf, ngx_str_t *text,
    ngx_uint_t nested, ngx_http_idempotency_path_t *path)
{
    u_char       *p, *last, *dst;
    ngx_str_t    *name;
    ngx_array_t   names;

    if (ngx_array_init(&names, cf->pool, 2, sizeof(ngx_str_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    p = text->data;
    last = text->data + text->len;

    for ( ;; ) {

        name = ngx_array_push(&names);
        if (name == NULL) {
            return NGX_ERROR;
        }

        name->data = ngx_pnalloc(cf->pool, text->len + 1);
        if (name->data == NULL) {
            return NGX_ERROR;
        }

        for (dst = name->data; p < last; *dst++ = *p++) {

            if (*p == '\\' && p + 1 < last) {
                p++;
                continue;
            }

            if (*p == '.' && nested) {
                break;
            }
        }

        name->len = dst - name->data;

        if (name->len == 0) {
            return NGX_ERROR;
        }

        if (p == last) {
            break;
        }

        p++;
    }

    path->names = names.elts;
    path->n = names.nelts;

    return NGX_OK;
}


char *
ngx_http_idempotency_conf_field(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_idempotency_main_conf_t *imcf = conf;

    ngx_str_t                      *value;
    ngx_http_variable_t            *var;
    ngx_http_idempotency_field_t   *field, **fields;

    value = cf->args->elts;

    if (value[1].len < 2 || value[1].data[0] != '$') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid variable name \"%V\" in \"%V\", write it "
                           "with its dollar, as in \"%V $order order_no;\"",
                           &value[1], &cmd->name, &cmd->name);
        return NGX_CONF_ERROR;
    }

    field = ngx_palloc(cf->pool, sizeof(ngx_http_idempotency_field_t));
    fields = ngx_array_push(&imcf->fields);

    if (field == NULL || fields == NULL) {
        return NGX_CONF_ERROR;
    }

    *fields = field;

    field->name.data = value[1].data + 1;
    field->name.len = value[1].len - 1;
    field->index = imcf->fields.nelts - 1;
    field->json = (cmd->name.data[sizeof("idempotency_") - 1] == 'j');
    field->path.n = cf->args->nelts - 2;
    field->path.names = ngx_palloc(cf->pool,
                                   field->path.n * sizeof(ngx_str_t));
    if (field->path.names == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memcpy(field->path.names, &value[2],
               field->path.n * sizeof(ngx_str_t));

    if (field->json
        && field->path.n == 1
        && ngx_strlchr(value[2].data, value[2].data + value[2].len, '.'))
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" in \"%V\" is one name with a dot in it; "
                           "a nested field is written with blanks, as in "
                           "\"%V %V order id;\"",
                           &value[2], &cmd->name, &cmd->name, &value[1]);
    }

    /* before the body is there its value does not count */

    var = ngx_http_add_variable(cf, &field->name, NGX_HTTP_VAR_NOCACHEABLE);
    if (var == NULL) {
        return NGX_CONF_ERROR;
    }

    var->get_handler = ngx_http_idempotency_field_variable;
    var->data = (uintptr_t) field;

    return NGX_CONF_OK;
}
