
/*
 * Contracts: the values of the configuration in words that clients know.
 */


#include "ngx_http_idempotency_contract.h"
#include "ngx_http_idempotency_conf.h"


static ngx_uint_t ngx_http_idempotency_contract_is(
    ngx_http_complex_value_t *value, const char *text);


void
ngx_http_idempotency_contract_key(ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_contract_key_t *key)
{
    size_t      begin, end;
    ngx_str_t  *place;
    ngx_uint_t  i;

    static struct {
        ngx_str_t  in;
        ngx_str_t  begin;
        ngx_str_t  end;
    } places[] = {
        { ngx_string("message"),
          ngx_string("header Idempotency-Key or field "), ngx_string("") },
        { ngx_string("header"), ngx_string("header "), ngx_string("") },
        { ngx_string("query"), ngx_string("query argument "),
          ngx_string("") },
        { ngx_string("cookie"), ngx_string("cookie "), ngx_string("") },
        { ngx_string("json"), ngx_string("field "),
          ngx_string(" of the JSON body") },
        { ngx_string("form"), ngx_string("field "),
          ngx_string(" of the form") }
    };

    place = &conf->key_place;

    for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        begin = places[i].begin.len;
        end = places[i].end.len;

        if (place->len > begin + end
            && ngx_strncmp(place->data, places[i].begin.data, begin) == 0
            && ngx_strncmp(place->data + place->len - end,
                           places[i].end.data, end)
               == 0)
        {
            key->in = places[i].in;
            key->name.data = place->data + begin;
            key->name.len = place->len - begin - end;
            return;
        }
    }

    /* made of several values, or by a map: its provider must say how */

    ngx_str_set(&key->in, "other");
    ngx_str_null(&key->name);
}


const char *
ngx_http_idempotency_contract_format(ngx_http_idempotency_loc_conf_t *conf)
{
    if (conf->sequence) {
        return "number";
    }

    if (conf->issued) {
        return "token";
    }

    return conf->strict_key && conf->key_header.len ? "string" : "any";
}


const char *
ngx_http_idempotency_contract_unique(ngx_http_idempotency_loc_conf_t *conf)
{
    if (ngx_http_idempotency_contract_is(conf->scope,
                                         "$request_method $idempotency_uri")
        || ngx_http_idempotency_contract_is(conf->scope,
                                            "$request_method $uri"))
    {
        return "operation";
    }

    /* the client of a client is its own affair */

    if (ngx_http_idempotency_contract_is(conf->scope, "")
        || ngx_http_idempotency_contract_is(conf->scope,
                                            "$http_repeatability_client_id"))
    {
        return "client";
    }

    return "group";
}


const char *
ngx_http_idempotency_contract_body(ngx_http_idempotency_loc_conf_t *conf)
{
    static const char  *bodies[] = { "none", "bytes", "json", "form",
                                     "multipart" };

    return bodies[conf->fingerprint];
}


const char *
ngx_http_idempotency_contract_request(ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_complex_value_t  *with;

    with = conf->fingerprint_with;

    if (conf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF
        || ngx_http_idempotency_contract_is(with, ""))
    {
        return "none";
    }

    if (ngx_http_idempotency_contract_is(with, "$is_args$args")) {
        return "query";
    }

    if (ngx_http_idempotency_contract_is(with,
                        "$request_method $idempotency_uri$is_args$args"))
    {
        return "operation";
    }

    if (ngx_http_idempotency_contract_is(with,
                        "$request_method $idempotency_uri$is_args$args "
                        "$http_repeatability_first_sent"))
    {
        return "first-sent";
    }

    return "other";
}


static ngx_uint_t
ngx_http_idempotency_contract_is(ngx_http_complex_value_t *value,
    const char *text)
{
    return value->value.len == ngx_strlen(text)
           && ngx_strncmp(value->value.data, text, value->value.len) == 0;
}


ngx_str_t *
ngx_http_idempotency_contract_method(ngx_http_idempotency_loc_conf_t *conf,
    ngx_uint_t *i)
{
    ngx_conf_bitmask_t  *method;

    for ( ;; ) {
        method = &ngx_http_idempotency_conf_method_names[(*i)++];

        if (method->name.len == 0) {
            return NULL;
        }

        if (conf->methods & method->mask) {
            return &method->name;
        }
    }
}


ngx_int_t
ngx_http_idempotency_contract_range(ngx_http_idempotency_statuses_t *statuses,
    ngx_http_idempotency_statuses_t *without, ngx_uint_t *i, ngx_uint_t *from,
    ngx_uint_t *to)
{
    ngx_uint_t  has, status;

    for (*from = 0; *i < NGX_HTTP_IDEMPOTENCY_STATUSES; (*i)++) {
        status = *i;

        has = (statuses->bits[status / 8] & (1 << status % 8))
              && !(without
                   && (without->bits[status / 8] & (1 << status % 8)));

        if (has && *from == 0) {
            *from = status;
        }

        if (!has && *from) {
            break;
        }

        *to = status;
    }

    return *from ? NGX_OK : NGX_DONE;
}
