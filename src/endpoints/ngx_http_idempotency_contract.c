
/*
 * idempotency_policy: the directive, the request, and what is in a contract.
 */


#include "ngx_http_idempotency_contract.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_idempotency_digest.h"


static ngx_int_t ngx_http_idempotency_contract_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_contract_cache(ngx_http_request_t *r,
    ngx_http_idempotency_text_t *text);
static ngx_int_t ngx_http_idempotency_contract_collect(ngx_http_request_t *r,
    ngx_http_idempotency_contracts_t *contracts);
static ngx_int_t ngx_http_idempotency_contract_add(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_location_t *location,
    ngx_http_idempotency_main_conf_t *imcf);
static ngx_int_t ngx_http_idempotency_contract_answers(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_main_conf_t *imcf);
static ngx_uint_t ngx_http_idempotency_contract_applies(
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_main_conf_t *imcf);
static ngx_int_t ngx_http_idempotency_contract_flatten(
    ngx_http_idempotency_text_t *text, ngx_str_t *value);
static ngx_int_t ngx_http_idempotency_contract_path(
    ngx_http_idempotency_contract_t *contract,
    ngx_http_core_loc_conf_t *clcf);
static void ngx_http_idempotency_contract_shorten(
    ngx_http_idempotency_contracts_t *contracts);
static ngx_http_idempotency_contract_t *ngx_http_idempotency_contract_around(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_contract_path_t *path);
static ngx_int_t ngx_http_idempotency_contract_glossary(
    ngx_http_idempotency_contracts_t *contracts);


/* the first one is the default */

static ngx_http_idempotency_text_format_t
    ngx_http_idempotency_contract_formats[] =
{
    { ngx_string("json"), ngx_string("application/json"),
      ngx_string("application/json"),
      ngx_http_idempotency_contract_json },

    { ngx_string("openapi"), ngx_string("application/openapi+json"),
      ngx_string("application/openapi+json"),
      ngx_http_idempotency_contract_openapi },

    { ngx_string("html"), ngx_string("text/html"),
      ngx_string("text/html; charset=utf-8"),
      ngx_http_idempotency_contract_page },

    { ngx_null_string, ngx_null_string, ngx_null_string, NULL }
};


char *
ngx_http_idempotency_contract(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_page_t       *page;
    ngx_http_idempotency_main_conf_t  *imcf;

    if (ilcf->policy) {
        return "is duplicate";
    }

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (ilcf->endpoint || ilcf->stats) {
        return "is in a location that has another handler";
    }

    page = ngx_array_push(&imcf->pages);
    if (page == NULL) {
        return NGX_CONF_ERROR;
    }

    page->cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    page->clcf = clcf;
    ngx_str_null(&page->uri);

    clcf->handler = ngx_http_idempotency_contract_handler;
    ilcf->policy = 1;

    return NGX_CONF_OK;
}


/* Clients reach a page by its path if that is a prefix or the whole path. */

ngx_int_t
ngx_http_idempotency_contract_init(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf)
{
    u_char                       *p;
    ngx_str_t                    *name;
    ngx_uint_t                    i;
    ngx_http_idempotency_page_t  *page;

    page = imcf->pages.elts;

    for (i = 0; i < imcf->pages.nelts; i++) {
        name = &page[i].clcf->name;

        if (page[i].clcf->named || page[i].clcf->internal
#if (NGX_PCRE)
            || page[i].clcf->regex
#endif
            || name->len == 0 || name->data[0] != '/')
        {
            continue;
        }

        p = ngx_pnalloc(cf->pool, name->len
                                  + 2 * ngx_escape_uri(NULL, name->data,
                                                       name->len,
                                                       NGX_ESCAPE_URI));
        if (p == NULL) {
            return NGX_ERROR;
        }

        page[i].uri.data = p;
        page[i].uri.len = (u_char *) ngx_escape_uri(p, name->data, name->len,
                                                    NGX_ESCAPE_URI)
                          - p;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_contract_handler(ngx_http_request_t *r)
{
    ngx_int_t                            rc;
    ngx_http_idempotency_text_t          text;
    ngx_http_idempotency_contracts_t     contracts;
    ngx_http_idempotency_text_format_t  *format;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    format = ngx_http_idempotency_text_format(r,
                                      ngx_http_idempotency_contract_formats);
    if (format == NULL) {
        return NGX_HTTP_BAD_REQUEST;
    }

    if (ngx_http_idempotency_contract_collect(r, &contracts) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_idempotency_text_init(&text, r->pool);

    format->write(&contracts, &text);

    if (text.failed
        || ngx_http_idempotency_contract_cache(r, &text) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idempotency_text_output(r, &text, NGX_HTTP_OK,
                                            &format->type);
}


/*
 * It changes with the configuration only.  A page behind access checks must
 * not stay in a shared cache.
 */

static ngx_int_t
ngx_http_idempotency_contract_cache(ngx_http_request_t *r,
    ngx_http_idempotency_text_t *text)
{
    u_char            digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_str_t         value;
    ngx_chain_t      *cl;
    ngx_table_elt_t  *h;

    static ngx_str_t  cache_control = ngx_string("Cache-Control");
    static ngx_str_t  five_minutes = ngx_string("private, max-age=300");
    static ngx_str_t  vary = ngx_string("Vary");
    static ngx_str_t  accept = ngx_string("Accept");
    static ngx_str_t  etag = ngx_string("ETag");

    h = ngx_http_idempotency_header_add(&r->headers_out.headers,
                                        &cache_control, &five_minutes);

    if (h == NULL
        || ngx_http_idempotency_add_multi_header(r,
                                          &r->headers_out.cache_control, h)
           != NGX_OK
        || ngx_http_idempotency_header_add(&r->headers_out.headers, &vary,
                                           &accept)
           == NULL
        || ngx_idempotency_digest_start(r->connection->log, NULL, 0)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (cl = text->out; cl; cl = cl->next) {
        if (ngx_idempotency_digest_add(cl->buf->pos,
                                       cl->buf->last - cl->buf->pos)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    value.len = 2 + 2 * 12;
    value.data = ngx_pnalloc(r->pool, value.len);

    if (value.data == NULL
        || ngx_idempotency_digest_finish(digest) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_sprintf(value.data, "\"%*xs\"", (size_t) 12, digest);

    h = ngx_http_idempotency_header_add(&r->headers_out.headers, &etag,
                                        &value);
    r->headers_out.etag = h;

    return h ? NGX_OK : NGX_ERROR;
}


/*
 * Left out are dry runs, which refuse nothing, "if" and "limit_except", and
 * the server itself, whose configuration has no content handler.
 */

static ngx_int_t
ngx_http_idempotency_contract_collect(ngx_http_request_t *r,
    ngx_http_idempotency_contracts_t *contracts)
{
    ngx_uint_t                         i;
    ngx_http_core_srv_conf_t          *cscf;
    ngx_http_idempotency_location_t   *location;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);
    cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);

    contracts->request = r;

    if (ngx_array_init(&contracts->contracts, r->pool, 4,
                       sizeof(ngx_http_idempotency_contract_t))
        != NGX_OK
        || ngx_array_init(&contracts->answers, r->pool, 16,
                          sizeof(ngx_http_idempotency_contract_answer_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    location = imcf->locations.elts;

    for (i = 0; i < imcf->locations.nelts; i++) {

        if (location[i].cscf != cscf
            || location[i].dry_run
            || location[i].conf->stats
            || location[i].clcf->noname
            || location[i].location.len == 0)
        {
            continue;
        }

        if (ngx_http_idempotency_contract_add(contracts, &location[i], imcf)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    ngx_http_idempotency_contract_shorten(contracts);

    return ngx_http_idempotency_contract_glossary(contracts);
}


static ngx_int_t
ngx_http_idempotency_contract_add(ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_location_t *location,
    ngx_http_idempotency_main_conf_t *imcf)
{
    ngx_uint_t                        i;
    ngx_http_idempotency_text_t       text;
    ngx_http_idempotency_contract_t   contract, *known;

    contract.conf = location->conf;

    if (ngx_http_idempotency_contract_answers(contracts, &contract, imcf)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_idempotency_text_init(&text, contracts->request->pool);
    ngx_http_idempotency_contract_facts(&contract, &text);

    if (ngx_http_idempotency_contract_flatten(&text, &contract.facts)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    known = contracts->contracts.elts;

    for (i = 0; i < contracts->contracts.nelts; i++) {
        if (known[i].facts.len == contract.facts.len
            && ngx_memcmp(known[i].facts.data, contract.facts.data,
                          contract.facts.len)
               == 0)
        {
            return ngx_http_idempotency_contract_path(&known[i],
                                                      location->clcf);
        }
    }

    if (ngx_array_init(&contract.paths, contracts->request->pool, 4,
                       sizeof(ngx_http_idempotency_contract_path_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    known = ngx_array_push(&contracts->contracts);
    if (known == NULL) {
        return NGX_ERROR;
    }

    *known = contract;

    return ngx_http_idempotency_contract_path(known, location->clcf);
}


static ngx_int_t
ngx_http_idempotency_contract_answers(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_main_conf_t *imcf)
{
    ngx_uint_t                               i;
    ngx_http_idempotency_verdict_e           verdict;
    ngx_http_idempotency_contract_answer_t  *answer;

    if (ngx_array_init(&contract->answers, contracts->request->pool, 16,
                       sizeof(ngx_http_idempotency_contract_answer_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (verdict = NGX_HTTP_IDEMPOTENCY_KEY_MISSING;
         verdict <= NGX_HTTP_IDEMPOTENCY_ANSWER_LOST;
         verdict++)
    {
        if (!ngx_http_idempotency_contract_applies(contract->conf, verdict,
                                                   imcf))
        {
            continue;
        }

        answer = ngx_array_push(&contract->answers);
        if (answer == NULL) {
            return NGX_ERROR;
        }

        ngx_memzero(answer, sizeof(ngx_http_idempotency_contract_answer_t));

        if (contract->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_IETF
            || contract->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS)
        {
            answer->problem_json = 1;

        } else {
            answer->json = 1;
        }

        if (verdict < NGX_HTTP_IDEMPOTENCY_NOT_SENT) {
            ngx_http_idempotency_problem_of(contract->conf, verdict, 0,
                                            &answer->problem);
            answer->statuses[0] = ngx_atoi(answer->problem.line.data, 3);
            answer->n = 1;
            continue;
        }

        /* nginx's own errors */

        for (i = NGX_HTTP_BAD_GATEWAY; i <= NGX_HTTP_GATEWAY_TIME_OUT; i++) {
            ngx_http_idempotency_problem_of(contract->conf, verdict, i,
                                            &answer->problem);
            answer->statuses[answer->n++] = i;
        }
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idempotency_contract_applies(ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_main_conf_t *imcf)
{
    switch (verdict) {

    case NGX_HTTP_IDEMPOTENCY_KEY_MISSING:
        return conf->required
               || conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS;

    case NGX_HTTP_IDEMPOTENCY_FIRST_SENT_INVALID:
    case NGX_HTTP_IDEMPOTENCY_FIRST_SENT_EXPIRED:
        return conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS;

    case NGX_HTTP_IDEMPOTENCY_BODY_INVALID:

        /* or a field of the body is part of the key, source or scope */

        return conf->fingerprint > NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW
               || conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC
               || imcf->fields.nelts;

    case NGX_HTTP_IDEMPOTENCY_KEY_REUSED:
        return conf->fingerprint != NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF;

    case NGX_HTTP_IDEMPOTENCY_DUPLICATE:
        return conf->duplicate == NGX_HTTP_IDEMPOTENCY_DUPLICATE_REJECT;

    case NGX_HTTP_IDEMPOTENCY_KEY_EXPIRED:
        return conf->tombstone != 0;

    case NGX_HTTP_IDEMPOTENCY_KEY_CANCELLED:
        return imcf->cancel;

    case NGX_HTTP_IDEMPOTENCY_TOKEN_NOT_ISSUED:
        return conf->issued;

    case NGX_HTTP_IDEMPOTENCY_NUMBER_OUT_OF_ORDER:
        return conf->sequence != 0;

    case NGX_HTTP_IDEMPOTENCY_SUSPECTED:
        return conf->suspect == NGX_HTTP_IDEMPOTENCY_SUSPECT_REJECT;

    default:
        return 1;
    }
}


static ngx_int_t
ngx_http_idempotency_contract_flatten(ngx_http_idempotency_text_t *text,
    ngx_str_t *value)
{
    u_char       *p;
    ngx_chain_t  *cl;

    if (text->failed) {
        return NGX_ERROR;
    }

    value->len = (size_t) text->len;
    value->data = ngx_pnalloc(text->pool, value->len);
    if (value->data == NULL) {
        return NGX_ERROR;
    }

    p = value->data;

    for (cl = text->out; cl; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    return NGX_OK;
}


/* Clients cannot ask for a named or internal location. */

static ngx_int_t
ngx_http_idempotency_contract_path(ngx_http_idempotency_contract_t *contract,
    ngx_http_core_loc_conf_t *clcf)
{
    ngx_http_idempotency_contract_path_t  *path;

    if (clcf->named || clcf->internal) {
        return NGX_OK;
    }

    path = ngx_array_push(&contract->paths);
    if (path == NULL) {
        return NGX_ERROR;
    }

    path->path = clcf->name;
    path->match = NGX_HTTP_IDEMPOTENCY_MATCH_PREFIX;

    if (clcf->exact_match) {
        path->match = NGX_HTTP_IDEMPOTENCY_MATCH_EXACT;
    }

#if (NGX_PCRE)
    if (clcf->regex) {
        path->match = NGX_HTTP_IDEMPOTENCY_MATCH_REGEX;
    }
#endif

    return NGX_OK;
}


/*
 * A path is left out if the next shorter one around it has the same contract:
 * what inherits from server{} need not be published by name.
 */

static void
ngx_http_idempotency_contract_shorten(
    ngx_http_idempotency_contracts_t *contracts)
{
    ngx_uint_t                             i, j, n;
    ngx_http_idempotency_contract_t       *contract;
    ngx_http_idempotency_contract_path_t  *path;

    contract = contracts->contracts.elts;

    /* all are marked first: what is removed is around others */

    for (i = 0; i < contracts->contracts.nelts; i++) {
        path = contract[i].paths.elts;

        for (j = 0; j < contract[i].paths.nelts; j++) {
            path[j].redundant =
                ngx_http_idempotency_contract_around(contracts, &path[j])
                == &contract[i];
        }
    }

    for (i = 0; i < contracts->contracts.nelts; i++) {
        path = contract[i].paths.elts;

        for (j = 0, n = 0; j < contract[i].paths.nelts; j++) {
            if (!path[j].redundant) {
                path[n++] = path[j];
            }
        }

        contract[i].paths.nelts = n;
    }
}


/* the contract of the longest prefix that a path begins with, or NULL */

static ngx_http_idempotency_contract_t *
ngx_http_idempotency_contract_around(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_contract_path_t *path)
{
    size_t                                 longest;
    ngx_str_t                             *outer;
    ngx_uint_t                             i, j;
    ngx_http_idempotency_contract_t       *contract, *found;
    ngx_http_idempotency_contract_path_t  *other;

    longest = 0;
    found = NULL;
    contract = contracts->contracts.elts;

    for (i = 0; i < contracts->contracts.nelts; i++) {
        other = contract[i].paths.elts;

        for (j = 0; j < contract[i].paths.nelts; j++) {
            outer = &other[j].path;

            if (&other[j] == path
                || other[j].match != NGX_HTTP_IDEMPOTENCY_MATCH_PREFIX
                || outer->len <= longest)
            {
                continue;
            }

            /* of a regular expression only "/" is known to be around it */

            if (path->match == NGX_HTTP_IDEMPOTENCY_MATCH_REGEX
                ? outer->len == 1
                : outer->len <= path->path.len
                  && ngx_strncmp(outer->data, path->path.data, outer->len)
                     == 0)
            {
                longest = outer->len;
                found = &contract[i];
            }
        }
    }

    return found;
}


static ngx_int_t
ngx_http_idempotency_contract_glossary(
    ngx_http_idempotency_contracts_t *contracts)
{
    ngx_uint_t                               i, j, k, n;
    ngx_http_idempotency_contract_t         *contract;
    ngx_http_idempotency_contract_answer_t  *answer, *known;

    contract = contracts->contracts.elts;

    for (i = 0; i < contracts->contracts.nelts; i++) {
        answer = contract[i].answers.elts;

        for (j = 0; j < contract[i].answers.nelts; j++) {
            known = contracts->answers.elts;

            for (k = 0; k < contracts->answers.nelts; k++) {
                if (known[k].problem.detail.data
                    == answer[j].problem.detail.data
                    && known[k].problem.code.data
                       == answer[j].problem.code.data)
                {
                    break;
                }
            }

            if (k == contracts->answers.nelts) {
                known = ngx_array_push(&contracts->answers);
                if (known == NULL) {
                    return NGX_ERROR;
                }

                *known = answer[j];
                continue;
            }

            known[k].problem_json |= answer[j].problem_json;
            known[k].json |= answer[j].json;

            for (n = 0; n < known[k].n; n++) {
                if (known[k].statuses[n] == answer[j].statuses[0]) {
                    break;
                }
            }

            if (n == known[k].n
                && n < NGX_HTTP_IDEMPOTENCY_CONTRACT_STATUSES)
            {
                known[k].statuses[known[k].n++] = answer[j].statuses[0];
            }
        }
    }

    return NGX_OK;
}


ngx_uint_t
ngx_http_idempotency_contract_first(
    ngx_http_idempotency_contracts_t *contracts, ngx_uint_t i)
{
    ngx_str_t                               *code;
    ngx_uint_t                               n;
    ngx_http_idempotency_contract_answer_t  *answer;

    answer = contracts->answers.elts;
    code = &answer[i].problem.code;

    for (n = 0; n < i; n++) {
        if (answer[n].problem.code.len == code->len
            && ngx_strncmp(answer[n].problem.code.data, code->data, code->len)
               == 0)
        {
            break;
        }
    }

    return n;
}


ngx_uint_t
ngx_http_idempotency_contract_repeats(
    ngx_http_idempotency_contract_t *contract, ngx_uint_t i)
{
    ngx_http_idempotency_contract_answer_t  *answer;

    answer = contract->answers.elts;

    return i && answer[i].problem.code.len == answer[i - 1].problem.code.len
           && ngx_strncmp(answer[i].problem.code.data,
                          answer[i - 1].problem.code.data,
                          answer[i].problem.code.len)
              == 0
           && answer[i].statuses[0] == answer[i - 1].statuses[0];
}
