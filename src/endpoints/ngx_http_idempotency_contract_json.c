
/*
 * Contracts for programs: as JSON, and as a fragment of OpenAPI 3.1.
 */


#include "ngx_http_idempotency_contract.h"


static void ngx_http_idempotency_contract_json_key(
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_json_compared(
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_json_fields(
    ngx_http_idempotency_text_t *text, const char *name, ngx_array_t *paths);
static void ngx_http_idempotency_contract_json_ranges(
    ngx_http_idempotency_text_t *text, const char *name,
    ngx_http_idempotency_statuses_t *statuses,
    ngx_http_idempotency_statuses_t *without);
static void ngx_http_idempotency_contract_json_header(
    ngx_http_idempotency_text_t *text, const char *name, ngx_str_t *header);
static void ngx_http_idempotency_contract_json_answer(
    ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_contract_answer_t *answer);
static void ngx_http_idempotency_contract_json_contracts(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_openapi_path(
    ngx_http_request_t *r, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_openapi_parameters(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_openapi_schema(
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_contract_key_t *key,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_openapi_headers(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_openapi_responses(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text);


static const char  *ngx_http_idempotency_contract_matches[] = {
    "prefix", "exact", "regex"
};


void
ngx_http_idempotency_contract_facts(ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_text_t *text)
{
    ngx_str_t                               *method;
    ngx_uint_t                               i, n;
    ngx_http_idempotency_loc_conf_t         *conf;
    ngx_http_idempotency_contract_answer_t  *answer;

    static const char  *unknown[] = { "held", "executed-again", "asked-for" };

    conf = contract->conf;

    ngx_http_idempotency_text_add(text, "\"methods\":[");

    i = 0;
    n = 0;

    while ((method = ngx_http_idempotency_contract_method(conf, &i)) != NULL) {
        ngx_http_idempotency_text_add(text, "%s\"%V\"", n++ ? "," : "",
                                      method);
    }

    ngx_http_idempotency_text_add(text, "],");

    ngx_http_idempotency_contract_json_key(conf, text);
    ngx_http_idempotency_contract_json_compared(conf, text);

    ngx_http_idempotency_text_add(text,
        "\"kept\":{\"seconds\":%T,\"refused_after\":%T},"
        "\"duplicate\":\"%s\",\"in_progress\":{\"wait\":%M},"
        "\"unknown_outcome\":\"%s\",\"not_available\":\"%s\","
        "\"answers_kept\":{\"max_bytes\":%uz,",
        conf->ttl, conf->tombstone,
        conf->duplicate == NGX_HTTP_IDEMPOTENCY_DUPLICATE_REPLAY
        ? "replayed" : "refused",
        conf->wait / 1000, unknown[conf->unknown],
        conf->store_error == NGX_HTTP_IDEMPOTENCY_STORE_ERROR_REJECT
        ? "refused" : "executed",
        conf->max_response);

    ngx_http_idempotency_contract_json_ranges(text, "statuses", conf->final,
                                              conf->retryable);
    ngx_http_idempotency_text_add(text, ",");
    ngx_http_idempotency_contract_json_ranges(text, "released",
                                              conf->retryable, NULL);

    ngx_http_idempotency_text_add(text, "},");

    if (conf->suspect == NGX_HTTP_IDEMPOTENCY_SUSPECT_REJECT) {
        ngx_http_idempotency_text_add(text,
                                  "\"another_key\":{\"refused\":%T},",
                                  conf->suspect_window);
    }

    ngx_http_idempotency_text_add(text, "\"headers\":{");
    ngx_http_idempotency_contract_json_header(text, "replayed",
                                              &conf->replayed_header);
    ngx_http_idempotency_text_add(text, ",");
    ngx_http_idempotency_contract_json_header(text, "expires",
                                              &conf->expires_header);
    ngx_http_idempotency_text_add(text, "},\"answers\":[");

    answer = contract->answers.elts;

    for (i = 0; i < contract->answers.nelts; i++) {

        if (ngx_http_idempotency_contract_repeats(contract, i)) {
            continue;
        }

        ngx_http_idempotency_text_add(text, "%s{", i ? "," : "");
        ngx_http_idempotency_contract_json_answer(text, &answer[i]);
        ngx_http_idempotency_text_add(text, "}");
    }

    ngx_http_idempotency_text_add(text, "]");
}


static void
ngx_http_idempotency_contract_json_key(ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_contract_key_t  key;

    ngx_http_idempotency_contract_key(conf, &key);

    ngx_http_idempotency_text_add(text, "\"key\":{\"in\":\"%V\",", &key.in);

    if (key.name.len) {
        ngx_http_idempotency_text_add(text, "\"name\":\"");
        ngx_http_idempotency_text_bytes(text, (char *) key.name.data,
                                        key.name.len);
        ngx_http_idempotency_text_add(text, "\",");
    }

    ngx_http_idempotency_text_add(text,
        "\"required\":%s,\"format\":\"%s\",\"max_length\":%i,"
        "\"unique\":\"%s\"},",
        conf->required ? "true" : "false",
        ngx_http_idempotency_contract_format(conf), conf->max_key,
        ngx_http_idempotency_contract_unique(conf));
}


static void
ngx_http_idempotency_contract_json_compared(
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_text_add(text,
                                  "\"compared\":{\"body\":\"%s\","
                                  "\"request\":\"%s\"",
                                  ngx_http_idempotency_contract_body(conf),
                                  ngx_http_idempotency_contract_request(conf));

    ngx_http_idempotency_contract_json_fields(text, "include", conf->include);
    ngx_http_idempotency_contract_json_fields(text, "exclude", conf->exclude);

    ngx_http_idempotency_text_add(text, "},");
}


/* each field is a list of names, from the outermost on */

static void
ngx_http_idempotency_contract_json_fields(ngx_http_idempotency_text_t *text,
    const char *name, ngx_array_t *paths)
{
    ngx_uint_t                    i, j;
    ngx_http_idempotency_path_t  *path;

    if (paths == NULL || paths->nelts == 0) {
        return;
    }

    ngx_http_idempotency_text_add(text, ",\"%s\":[", name);

    path = paths->elts;

    for (i = 0; i < paths->nelts; i++) {
        ngx_http_idempotency_text_add(text, "%s[", i ? "," : "");

        for (j = 0; j < path[i].n; j++) {
            ngx_http_idempotency_text_add(text, "%s\"", j ? "," : "");
            ngx_http_idempotency_text_json(text, &path[i].names[j]);
            ngx_http_idempotency_text_add(text, "\"");
        }

        ngx_http_idempotency_text_add(text, "]");
    }

    ngx_http_idempotency_text_add(text, "]");
}


static void
ngx_http_idempotency_contract_json_ranges(ngx_http_idempotency_text_t *text,
    const char *name, ngx_http_idempotency_statuses_t *statuses,
    ngx_http_idempotency_statuses_t *without)
{
    ngx_uint_t  i, n, from, to;

    ngx_http_idempotency_text_add(text, "\"%s\":[", name);

    i = 0;
    n = 0;

    while (ngx_http_idempotency_contract_range(statuses, without, &i, &from,
                                               &to)
           == NGX_OK)
    {
        ngx_http_idempotency_text_add(text, "%s\"%ui", n++ ? "," : "", from);

        if (to > from) {
            ngx_http_idempotency_text_add(text, "-%ui", to);
        }

        ngx_http_idempotency_text_add(text, "\"");
    }

    ngx_http_idempotency_text_add(text, "]");
}


/* the name was checked at configuration */

static void
ngx_http_idempotency_contract_json_header(ngx_http_idempotency_text_t *text,
    const char *name, ngx_str_t *header)
{
    if (header->len) {
        ngx_http_idempotency_text_add(text, "\"%s\":\"%V\"", name, header);

    } else {
        ngx_http_idempotency_text_add(text, "\"%s\":null", name);
    }
}


static void
ngx_http_idempotency_contract_json_answer(ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_contract_answer_t *answer)
{
    ngx_uint_t                       i;
    ngx_http_idempotency_problem_t  *problem;

    problem = &answer->problem;

    ngx_http_idempotency_text_add(text, "\"code\":\"%V\",\"statuses\":[",
                                  &problem->code);

    for (i = 0; i < answer->n; i++) {
        ngx_http_idempotency_text_add(text, "%s%ui", i ? "," : "",
                                      answer->statuses[i]);
    }

    ngx_http_idempotency_text_add(text, "],\"retry\":\"%V\"",
                                  &problem->retry);

    if (problem->retry_after.len) {
        ngx_http_idempotency_text_add(text, ",\"retry_after\":%V",
                                      &problem->retry_after);
    }
}


void
ngx_http_idempotency_contract_json(void *data,
    ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_contracts_t *contracts = data;

    ngx_uint_t                               i;
    ngx_http_idempotency_contract_answer_t  *answer;

    ngx_http_idempotency_text_add(text, "{");

    ngx_http_idempotency_contract_json_contracts(contracts, text);

    ngx_http_idempotency_text_add(text, ",\"answers\":[");

    answer = contracts->answers.elts;

    for (i = 0; i < contracts->answers.nelts; i++) {
        ngx_http_idempotency_text_add(text, "%s{", i ? "," : "");
        ngx_http_idempotency_contract_json_answer(text, &answer[i]);
        ngx_http_idempotency_text_add(text,
                                      ",\"title\":\"%V\",\"detail\":\"%V\"}",
                                      &answer[i].problem.title,
                                      &answer[i].problem.detail);
    }

    ngx_http_idempotency_text_add(text, "]}\n");
}


static void
ngx_http_idempotency_contract_json_contracts(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                             i, j;
    ngx_http_idempotency_contract_t       *contract;
    ngx_http_idempotency_contract_path_t  *path;

    ngx_http_idempotency_text_add(text, "\"contracts\":[");

    contract = contracts->contracts.elts;

    for (i = 0; i < contracts->contracts.nelts; i++) {
        ngx_http_idempotency_text_add(text, "%s{\"paths\":[", i ? "," : "");

        path = contract[i].paths.elts;

        for (j = 0; j < contract[i].paths.nelts; j++) {
            ngx_http_idempotency_text_add(text,
                          "%s{\"match\":\"%s\",\"path\":\"", j ? "," : "",
                          ngx_http_idempotency_contract_matches
                              [path[j].match]);
            ngx_http_idempotency_text_json(text, &path[j].path);
            ngx_http_idempotency_text_add(text, "\"}");
        }

        ngx_http_idempotency_text_add(text, "],");
        ngx_http_idempotency_text_bytes(text, (char *) contract[i].facts.data,
                                        contract[i].facts.len);
        ngx_http_idempotency_text_add(text, "}");
    }

    ngx_http_idempotency_text_add(text, "]");
}


/*
 * Components to refer to: which operations there are is for the description
 * of the API itself.
 */

void
ngx_http_idempotency_contract_openapi(void *data,
    ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_contracts_t *contracts = data;

    ngx_http_idempotency_text_add(text,
        "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"Idempotency keys\","
        "\"version\":\"1\",\"description\":\"Components for operations that "
        "are executed once for each idempotency key.\"},\"paths\":{");

    ngx_http_idempotency_contract_openapi_path(contracts->request, text);

    ngx_http_idempotency_text_add(text,
                                  "},\"components\":{\"parameters\":{");

    ngx_http_idempotency_contract_openapi_parameters(contracts, text);

    ngx_http_idempotency_text_add(text, "},\"headers\":{");

    ngx_http_idempotency_contract_openapi_headers(contracts, text);

    ngx_http_idempotency_text_add(text, "},\"responses\":{");

    ngx_http_idempotency_contract_openapi_responses(contracts, text);

    ngx_http_idempotency_text_add(text,
        "},\"schemas\":{\"Problem\":{\"type\":\"object\","
        "\"description\":\"RFC 9457\",\"required\":[\"type\",\"title\","
        "\"status\",\"detail\",\"code\"],\"properties\":{"
        "\"type\":{\"type\":\"string\",\"format\":\"uri-reference\"},"
        "\"title\":{\"type\":\"string\"},"
        "\"status\":{\"type\":\"integer\"},"
        "\"detail\":{\"type\":\"string\"},"
        "\"code\":{\"type\":\"string\"},"
        "\"original_status\":{\"type\":\"integer\"},"
        "\"expected\":{\"type\":\"integer\"}}}}},\"x-idempotency\":{");

    ngx_http_idempotency_contract_json_contracts(contracts, text);

    ngx_http_idempotency_text_add(text, "}}\n");
}


/* Some tools want a path, and there is one: that of this very document. */

static void
ngx_http_idempotency_contract_openapi_path(ngx_http_request_t *r,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                         i;
    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_page_t       *page;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    page = imcf->pages.elts;

    for (i = 0; i < imcf->pages.nelts; i++) {
        if (page[i].clcf == clcf && page[i].uri.len) {
            ngx_http_idempotency_text_add(text, "\"");
            ngx_http_idempotency_text_json(text, &page[i].uri);
            ngx_http_idempotency_text_add(text,
                "\":{\"get\":{\"summary\":\"How idempotency keys are used "
                "here\",\"operationId\":\"getIdempotencyPolicy\","
                "\"security\":[],"
                "\"responses\":{\"200\":{\"description\":\"For programs, for "
                "people, or this document.\",\"content\":{"
                "\"application/json\":{},\"text/html\":{},"
                "\"application/openapi+json\":{}}}}}}");
            return;
        }
    }
}


/* IdempotencyKey, IdempotencyKey2 and so on, in the order of the contracts */

static void
ngx_http_idempotency_contract_openapi_parameters(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                            i, n, required;
    ngx_http_idempotency_contract_t      *contract;
    ngx_http_idempotency_contract_key_t   key;

    contract = contracts->contracts.elts;
    n = 0;

    for (i = 0; i < contracts->contracts.nelts; i++) {
        ngx_http_idempotency_contract_key(contract[i].conf, &key);

        if (key.in.len == 4 || key.in.data[0] == 'o') {

            /* "json" and "form" are properties of the body */

            continue;
        }

        required = contract[i].conf->required;

        if (key.in.data[0] == 'm') {
            ngx_str_set(&key.in, "header");
            ngx_str_set(&key.name, "Idempotency-Key");
            required = 0;
        }

        ngx_http_idempotency_text_add(text, "%s\"IdempotencyKey",
                                      n ? "," : "");

        if (i) {
            ngx_http_idempotency_text_add(text, "%ui", i + 1);
        }

        n++;

        ngx_http_idempotency_text_add(text, "\":{\"name\":\"");
        ngx_http_idempotency_text_bytes(text, (char *) key.name.data,
                                        key.name.len);
        ngx_http_idempotency_text_add(text,
            "\",\"in\":\"%V\",\"required\":%s,\"description\":\"The same for "
            "every try of one operation, and for no other. It is kept for "
            "%T seconds.\",\"schema\":{",
            &key.in, required ? "true" : "false",
            contract[i].conf->ttl);

        ngx_http_idempotency_contract_openapi_schema(contract[i].conf, &key,
                                                     text);

        ngx_http_idempotency_text_add(text, "}}");
    }
}


/* in a quoted key two characters may stand for one; parameters may follow */

static void
ngx_http_idempotency_contract_openapi_schema(
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_contract_key_t *key,
    ngx_http_idempotency_text_t *text)
{
    static char  quoted[] =
        "\"pattern\":\"^\\\"([ !#-\\\\[\\\\]-~]|\\\\\\\\[\\\"\\\\\\\\])"
        "{1,%i}\\\"(;.*)?$\"";

    ngx_http_idempotency_text_add(text, "\"type\":\"string\",");

    if (conf->sequence) {
        ngx_http_idempotency_text_add(text, "\"pattern\":\"^[0-9]+$\"");
        return;
    }

    if (conf->strict_key && conf->key_header.len) {
        ngx_http_idempotency_text_add(text, quoted, conf->max_key);
        return;
    }

    if (key->in.data[0] != 'h') {
        ngx_http_idempotency_text_add(text, "\"minLength\":1,"
                                      "\"maxLength\":%i", conf->max_key);
        return;
    }

    ngx_http_idempotency_text_add(text, "\"anyOf\":[{\"pattern\":\"^[!#-~]"
                                  "[!-~]*$\",\"maxLength\":%i},{",
                                  conf->max_key);
    ngx_http_idempotency_text_add(text, quoted, conf->max_key);
    ngx_http_idempotency_text_add(text, "}]");
}


/* each name once, of all contracts */

static void
ngx_http_idempotency_contract_openapi_headers(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                        i, j, n;
    ngx_str_t                        *header, *other;
    ngx_http_idempotency_contract_t  *contract;

    ngx_http_idempotency_text_add(text,
        "\"Idempotency-Retry\":{\"description\":\"Which key a retry should "
        "have.\",\"schema\":{\"type\":\"string\",\"enum\":[\"same-key\","
        "\"new-key\",\"never\"]}},"
        "\"Retry-After\":{\"description\":\"Seconds to wait before a "
        "retry.\",\"schema\":{\"type\":\"integer\"}}");

    contract = contracts->contracts.elts;

    for (i = 0; i < 2 * contracts->contracts.nelts; i++) {
        header = i % 2 ? &contract[i / 2].conf->expires_header
                       : &contract[i / 2].conf->replayed_header;

        for (j = i % 2; j < i; j += 2) {
            other = i % 2 ? &contract[j / 2].conf->expires_header
                          : &contract[j / 2].conf->replayed_header;

            if (other->len == header->len
                && ngx_strncmp(other->data, header->data, header->len) == 0)
            {
                break;
            }
        }

        /* a name of a component has no other characters */

        for (n = 0; n < header->len; n++) {
            if (!isalnum(header->data[n]) && header->data[n] != '-'
                && header->data[n] != '_' && header->data[n] != '.')
            {
                break;
            }
        }

        if (header->len == 0 || j < i || n < header->len) {
            continue;
        }

        ngx_http_idempotency_text_add(text, i % 2
            ? ",\"%V\":{\"description\":\"Until then the key gets this "
              "answer: a date of HTTP.\",\"schema\":{\"type\":\"string\"}}"
            : ",\"%V\":{\"description\":\"The answer is that of an earlier "
              "request with this key.\",\"schema\":{\"type\":\"string\","
              "\"const\":\"true\"}}",
            header);
    }
}


static void
ngx_http_idempotency_contract_openapi_responses(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text)
{
    ngx_str_t                               *code;
    ngx_uint_t                               i, j, n, after, problem, json;
    ngx_http_idempotency_contract_answer_t  *answer;

    answer = contracts->answers.elts;
    n = 0;

    for (i = 0; i < contracts->answers.nelts; i++) {
        code = &answer[i].problem.code;

        if (ngx_http_idempotency_contract_first(contracts, i) != i) {
            continue;
        }

        ngx_http_idempotency_text_add(text, "%s\"%V\":{\"description\":\"",
                                      n++ ? "," : "", code);

        after = 0;
        problem = 0;
        json = 0;

        for (j = i; j < contracts->answers.nelts; j++) {
            if (ngx_http_idempotency_contract_first(contracts, j) == i) {
                ngx_http_idempotency_text_add(text, "%s%V", j == i ? "" : " ",
                                              &answer[j].problem.detail);
                after |= answer[j].problem.retry_after.len;
                problem |= answer[j].problem_json;
                json |= answer[j].json;
            }
        }

        ngx_http_idempotency_text_add(text,
            "\",\"headers\":{\"Idempotency-Retry\":{\"$ref\":"
            "\"#/components/headers/Idempotency-Retry\"}%s},\"content\":{"
            "%s%s%s}}",
            after ? ",\"Retry-After\":{\"$ref\":"
                    "\"#/components/headers/Retry-After\"}" : "",
            problem ? "\"application/problem+json\":{\"schema\":{\"$ref\":"
                      "\"#/components/schemas/Problem\"}}" : "",
            problem && json ? "," : "",
            json ? "\"application/json\":{\"schema\":{\"type\":\"object\"}}"
                 : "");
    }
}
