
/*
 * Contracts for people: a page without scripts.
 */


#include "ngx_http_idempotency_contract.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_idempotency_digest.h"

/* "config" writes it: ngx_http_idempotency_policy_page[] */
#include "ngx_http_idempotency_policy_page.h"


#define NGX_HTTP_IDEMPOTENCY_PAGE_CONTENT  "@CONTENT@\n"
#define NGX_HTTP_IDEMPOTENCY_PAGE_STYLE    "<style>"
#define NGX_HTTP_IDEMPOTENCY_PAGE_STYLED   "</style>"

#define ngx_http_idempotency_page_literal(text, s)                            \
    ngx_http_idempotency_text_bytes(text, s, sizeof(s) - 1)


static ngx_int_t ngx_http_idempotency_contract_page_policy(
    ngx_http_request_t *r);
static void ngx_http_idempotency_contract_page_contract(
    ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_page_paths(
    ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_page_key(
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_page_time(
    ngx_http_idempotency_text_t *text, time_t seconds);
static void ngx_http_idempotency_contract_page_kept(
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_page_compared(
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_page_fields(
    ngx_http_idempotency_text_t *text, const char *what, ngx_array_t *paths);
static void ngx_http_idempotency_contract_page_retries(
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_page_statuses(
    ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_statuses_t *statuses,
    ngx_http_idempotency_statuses_t *without);
static void ngx_http_idempotency_contract_page_codes(
    ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_page_answers(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_contract_page_advice(
    ngx_http_idempotency_problem_t *problem,
    ngx_http_idempotency_text_t *text);


void
ngx_http_idempotency_contract_page(void *data,
    ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_contracts_t *contracts = data;

    const char                       *page, *here;
    ngx_uint_t                        i;
    ngx_http_idempotency_contract_t  *contract;

    page = ngx_http_idempotency_policy_page;
    here = ngx_strstr(page, NGX_HTTP_IDEMPOTENCY_PAGE_CONTENT);

    if (here == NULL
        || ngx_http_idempotency_contract_page_policy(contracts->request)
           != NGX_OK)
    {
        text->failed = 1;
        return;
    }

    ngx_http_idempotency_text_bytes(text, page, here - page);

    contract = contracts->contracts.elts;

    for (i = 0; i < contracts->contracts.nelts; i++) {
        ngx_http_idempotency_contract_page_contract(&contract[i], text);
    }

    if (contracts->contracts.nelts) {
        ngx_http_idempotency_contract_page_answers(contracts, text);

    } else {
        ngx_http_idempotency_page_literal(text,
            "<section class=\"card\"><p class=\"none\">No path of this server "
            "takes idempotency keys.</p></section>\n");
    }

    here += sizeof(NGX_HTTP_IDEMPOTENCY_PAGE_CONTENT) - 1;

    ngx_http_idempotency_text_bytes(text, here, ngx_strlen(here));
}


/*
 * Nothing runs, and nothing is loaded.  The styles are allowed by their digest:
 * a nonce would differ from that of a page in a cache after a 304.
 */

static ngx_int_t
ngx_http_idempotency_contract_page_policy(ngx_http_request_t *r)
{
    u_char       *p;
    u_char        digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    u_char        base64[ngx_base64_encoded_length(NGX_IDEMPOTENCY_DIGEST_LEN)];
    ngx_str_t     value, src, dst;
    ngx_uint_t    i;
    const char   *style, *end;

    static char  policy[] =
        "default-src 'none'; style-src 'sha256-%V'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

    static ngx_str_t  name = ngx_string("Content-Security-Policy");

    static ngx_str_t  others[][2] = {
        { ngx_string("X-Content-Type-Options"), ngx_string("nosniff") },
        { ngx_string("Referrer-Policy"), ngx_string("no-referrer") }
    };

    style = ngx_strstr(ngx_http_idempotency_policy_page,
                       NGX_HTTP_IDEMPOTENCY_PAGE_STYLE);
    end = ngx_strstr(ngx_http_idempotency_policy_page,
                     NGX_HTTP_IDEMPOTENCY_PAGE_STYLED);

    if (style == NULL || end == NULL) {
        return NGX_ERROR;
    }

    style += sizeof(NGX_HTTP_IDEMPOTENCY_PAGE_STYLE) - 1;

    if (ngx_idempotency_digest_start(r->connection->log, NULL, 0) != NGX_OK
        || ngx_idempotency_digest_add((u_char *) style, end - style) != NGX_OK
        || ngx_idempotency_digest_finish(digest) != NGX_OK)
    {
        return NGX_ERROR;
    }

    src.data = digest;
    src.len = sizeof(digest);
    dst.data = base64;

    ngx_encode_base64(&dst, &src);

    value.data = ngx_pnalloc(r->pool, sizeof(policy) + dst.len);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(value.data, policy, &dst);
    value.len = p - value.data;

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


static void
ngx_http_idempotency_contract_page_contract(
    ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_text_t *text)
{
    ngx_str_t                        *method;
    ngx_uint_t                        i;
    ngx_http_idempotency_loc_conf_t  *conf;

    conf = contract->conf;

    ngx_http_idempotency_page_literal(text, "<section class=\"card\">\n<h2>");

    i = 0;

    while ((method = ngx_http_idempotency_contract_method(conf, &i)) != NULL) {
        ngx_http_idempotency_text_add(text, "<b>%V</b> ", method);
    }

    ngx_http_idempotency_contract_page_paths(contract, text);

    ngx_http_idempotency_page_literal(text, "</h2>\n<dl class=\"facts\">\n");

    ngx_http_idempotency_contract_page_key(conf, text);
    ngx_http_idempotency_contract_page_kept(conf, text);
    ngx_http_idempotency_contract_page_compared(conf, text);
    ngx_http_idempotency_contract_page_retries(conf, text);
    ngx_http_idempotency_contract_page_codes(contract, text);

    ngx_http_idempotency_page_literal(text, "</dl>\n</section>\n");
}


static void
ngx_http_idempotency_contract_page_paths(
    ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                             i;
    ngx_http_idempotency_contract_path_t  *path;

    /* in the order of ngx_http_idempotency_match_e */

    static const char  *behind[] = { "<i>\xE2\x80\xA6</i></code>", "</code>",
                                     "</code> <i>(pattern)</i>" };

    path = contract->paths.elts;

    for (i = 0; i < contract->paths.nelts; i++) {
        ngx_http_idempotency_text_add(text, "%s<code>", i ? ", " : "");
        ngx_http_idempotency_text_html(text, &path[i].path);
        ngx_http_idempotency_text_add(text, "%s", behind[path[i].match]);
    }

    if (contract->paths.nelts == 0) {
        ngx_http_idempotency_page_literal(text, "<i>other paths</i>");
    }
}


static void
ngx_http_idempotency_contract_page_key(ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_text_t *text)
{
    const char                           *unique;
    ngx_http_idempotency_contract_key_t   key;

    ngx_http_idempotency_contract_key(conf, &key);

    ngx_http_idempotency_text_add(text, "<dt>Key</dt><dd>%s ",
        conf->required ? "Required, in"
                       : "Optional; without it a request is not protected. "
                         "In");

    if (key.name.len == 0) {
        ngx_http_idempotency_page_literal(text,
            "a form that the documentation of this API describes");

    } else {
        ngx_http_idempotency_text_add(text, "the %s <code>",
              key.in.data[0] == 'h' ? "header"
            : key.in.data[0] == 'm' ? "header <code>Idempotency-Key</code> or "
                                      "the field"
            : key.in.data[0] == 'q' ? "query argument"
            : key.in.data[0] == 'c' ? "cookie"
            : key.in.data[0] == 'j' ? "field of the JSON body"
                                    : "field of the form");
        ngx_http_idempotency_text_html(text, &key.name);
        ngx_http_idempotency_page_literal(text, "</code>");
    }

    if (conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_OASIS) {
        ngx_http_idempotency_page_literal(text,
            ", with the date of the first try in "
            "<code>Repeatability-First-Sent</code>");
    }

    ngx_http_idempotency_page_literal(text, ".</dd>\n<dt>Syntax</dt><dd>");

    if (conf->sequence) {
        ngx_http_idempotency_text_add(text,
            "A decimal number, %s than the last one.",
            conf->sequence & NGX_IDEMPOTENCY_SEQUENCE_STRICT
            ? "one more" : "higher");

    } else if (conf->issued) {
        ngx_http_idempotency_page_literal(text,
            "A token that this server has issued to you, as it is.");

    } else if (conf->strict_key && conf->key_header.len) {
        ngx_http_idempotency_text_add(text,
            "A quoted string (RFC 9651) of 1 to %i characters, as in "
            "<code>&quot;8e03978e-40d5-43dd-bc93-6894a57f9324&quot;</code>.",
            conf->max_key);

    } else {
        ngx_http_idempotency_text_add(text,
            "1 to %i visible ASCII characters, as in "
            "<code>8e03978e-40d5-43dd-bc93-6894a57f9324</code>%s.",
            conf->max_key,
            key.in.data[0] == 'h'
            ? "; between quotes it is the same key" : "");
    }

    unique = ngx_http_idempotency_contract_unique(conf);

    ngx_http_idempotency_text_add(text,
        "</dd>\n<dt>Unique</dt><dd>Among your own requests%s. Keys of other "
        "clients never meet yours.</dd>\n",
        unique[0] == 'o' ? " with the same method and path"
        : unique[0] == 'g' ? " to this group of operations" : "");
}


static void
ngx_http_idempotency_contract_page_time(ngx_http_idempotency_text_t *text,
    time_t seconds)
{
    ngx_uint_t  i;

    static struct {
        time_t       seconds;
        const char  *name;
    } units[] = {
        { 86400, "day" }, { 3600, "hour" }, { 60, "minute" }, { 1, "second" }
    };

    /* 24 hours are better known by that name */

    for (i = (seconds == 86400); i < 3; i++) {
        if (seconds % units[i].seconds == 0) {
            break;
        }
    }

    ngx_http_idempotency_text_add(text, "%T %s%s", seconds / units[i].seconds,
                                  units[i].name,
                                  seconds == units[i].seconds ? "" : "s");
}


static void
ngx_http_idempotency_contract_page_kept(ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_page_literal(text, "<dt>Kept</dt><dd>");
    ngx_http_idempotency_contract_page_time(text, conf->ttl);
    ngx_http_idempotency_page_literal(text, " from the answer on");

    if (conf->tombstone) {
        ngx_http_idempotency_page_literal(text,
            ", and refused as expired for ");
        ngx_http_idempotency_contract_page_time(text, conf->tombstone);
        ngx_http_idempotency_page_literal(text, " after that");

    } else {
        ngx_http_idempotency_page_literal(text,
            "; after that a request with the key is executed again");
    }

    if (conf->expires_header.len) {
        ngx_http_idempotency_page_literal(text, ". Answers say until when in "
                                          "<code>");
        ngx_http_idempotency_text_html(text, &conf->expires_header);
        ngx_http_idempotency_page_literal(text, "</code>");
    }

    ngx_http_idempotency_page_literal(text, ".</dd>\n");
}


static void
ngx_http_idempotency_contract_page_compared(
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_idempotency_text_t *text)
{
    const char  *request;

    /* in the order of the kinds of fingerprints */

    static const char  *bodies[] = {
        "Nothing: a request with a known key is taken for a retry, whatever "
        "its body is",
        "The body, byte by byte",
        "The JSON body as a document: order of names, blanks and the spelling "
        "of numbers do not matter",
        "The form by its pairs: their order and encoding do not matter",
        "The multipart body by its parts: the boundary does not matter"
    };

    ngx_http_idempotency_text_add(text, "<dt>Compared</dt><dd>%s",
                                  bodies[conf->fingerprint]);

    if (conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC
        && conf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_JSON)
    {
        ngx_http_idempotency_page_literal(text,
            ", without <code>id</code> and <code>params._meta</code>");
    }

    ngx_http_idempotency_contract_page_fields(text, ", only the fields",
                                              conf->include);
    ngx_http_idempotency_contract_page_fields(text, ", without the fields",
                                              conf->exclude);

    request = ngx_http_idempotency_contract_request(conf);

    ngx_http_idempotency_text_add(text, "%s.%s</dd>\n",
        request[0] == 'q' ? "; and the query string"
        : request[0] == 'n' ? ""
        : request[0] == 'f' ? "; and method, path, query string and date"
        : ngx_strcmp(request, "operation") == 0
        ? "; and method, path and query string"
        : "; and further properties of the request",
        conf->fingerprint == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF
        ? "" : " A retry must not differ in them.");
}


static void
ngx_http_idempotency_contract_page_fields(ngx_http_idempotency_text_t *text,
    const char *what, ngx_array_t *paths)
{
    ngx_uint_t                    i, j;
    ngx_http_idempotency_path_t  *path;

    if (paths == NULL || paths->nelts == 0) {
        return;
    }

    ngx_http_idempotency_text_add(text, "%s ", what);

    path = paths->elts;

    for (i = 0; i < paths->nelts; i++) {
        ngx_http_idempotency_text_add(text, "%s<code>", i ? ", " : "");

        for (j = 0; j < path[i].n; j++) {
            ngx_http_idempotency_text_add(text, "%s", j ? "." : "");
            ngx_http_idempotency_text_html(text, &path[i].names[j]);
        }

        ngx_http_idempotency_page_literal(text, "</code>");
    }
}


static void
ngx_http_idempotency_contract_page_retries(
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_idempotency_text_t *text)
{
    size_t      size;
    ngx_uint_t  i, from, to;

    static const char  *units[] = { "bytes", "KB", "MB" };
    static const char  *unknown[] = {
        "is not executed again until that is settled",
        "is executed again: it may have been executed before",
        "is answered as soon as this server has learned what happened"
    };

    ngx_http_idempotency_page_literal(text, "<dt>A retry</dt><dd>");

    if (conf->duplicate == NGX_HTTP_IDEMPOTENCY_DUPLICATE_REPLAY) {
        ngx_http_idempotency_page_literal(text,
            "Gets the first answer, and executes nothing");

        if (conf->replayed_header.len) {
            ngx_http_idempotency_page_literal(text, "; <code>");
            ngx_http_idempotency_text_html(text, &conf->replayed_header);
            ngx_http_idempotency_page_literal(text, ": true</code> marks it");
        }

    } else {
        ngx_http_idempotency_page_literal(text,
            "Is refused as a duplicate, and executes nothing");
    }

    ngx_http_idempotency_page_literal(text, ". ");

    if (conf->wait) {
        ngx_http_idempotency_page_literal(text,
            "While the first request is running it waits, for ");
        ngx_http_idempotency_contract_page_time(text, conf->wait / 1000);
        ngx_http_idempotency_page_literal(text, " at most. ");

    } else {
        ngx_http_idempotency_page_literal(text,
            "While the first request is running it is refused. ");
    }

    ngx_http_idempotency_text_add(text, "If the outcome of the first one is "
                                  "unknown, it %s.</dd>\n",
                                  unknown[conf->unknown]);

    ngx_http_idempotency_page_literal(text,
        "<dt>Answers kept</dt><dd>Status ");
    ngx_http_idempotency_contract_page_statuses(text, conf->final,
                                                conf->retryable);

    i = 0;

    if (ngx_http_idempotency_contract_range(conf->retryable, NULL, &i, &from,
                                            &to)
        == NGX_OK)
    {
        ngx_http_idempotency_page_literal(text,
            ". Not kept, so that a retry is executed: ");
        ngx_http_idempotency_contract_page_statuses(text, conf->retryable,
                                                    NULL);
    }

    size = conf->max_response;

    for (i = 0; i < 2 && size && size % 1024 == 0; i++) {
        size /= 1024;
    }

    ngx_http_idempotency_text_add(text, ". Answers of more than %uz %s are "
                                  "not replayed.</dd>\n", size, units[i]);

    if (conf->suspect == NGX_HTTP_IDEMPOTENCY_SUSPECT_REJECT) {
        ngx_http_idempotency_page_literal(text,
            "<dt>Another key</dt><dd>The same request under another key is "
            "refused for ");
        ngx_http_idempotency_contract_page_time(text, conf->suspect_window);
        ngx_http_idempotency_page_literal(text,
            ", and while the first one is running or its outcome is "
            "unknown.</dd>\n");
    }

    if (conf->store_error == NGX_HTTP_IDEMPOTENCY_STORE_ERROR_PASS) {
        ngx_http_idempotency_page_literal(text,
            "<dt>Not available</dt><dd>While keys cannot be looked up, "
            "requests are executed without this protection.</dd>\n");
    }
}


static void
ngx_http_idempotency_contract_page_statuses(ngx_http_idempotency_text_t *text,
    ngx_http_idempotency_statuses_t *statuses,
    ngx_http_idempotency_statuses_t *without)
{
    ngx_uint_t  i, n, from, to;

    i = 0;
    n = 0;

    while (ngx_http_idempotency_contract_range(statuses, without, &i, &from,
                                               &to)
           == NGX_OK)
    {
        ngx_http_idempotency_text_add(text, "%s%ui", n++ ? ", " : "", from);

        if (to > from) {
            ngx_http_idempotency_text_add(text, "\xE2\x80\x93%ui", to);
        }
    }
}


static void
ngx_http_idempotency_contract_page_codes(
    ngx_http_idempotency_contract_t *contract,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                               i, n;
    ngx_http_idempotency_contract_answer_t  *answer;

    ngx_http_idempotency_page_literal(text,
        "<dt>Errors</dt><dd><ul class=\"codes\">");

    answer = contract->answers.elts;

    for (i = 0; i < contract->answers.nelts; i++) {

        if (ngx_http_idempotency_contract_repeats(contract, i)) {
            continue;
        }

        ngx_http_idempotency_text_add(text, "<li><a href=\"#%V\"><code>%V"
                                      "</code></a> ",
                                      &answer[i].problem.code,
                                      &answer[i].problem.code);

        for (n = 0; n < answer[i].n; n++) {
            ngx_http_idempotency_text_add(text, "%s%ui", n ? ", " : "",
                                          answer[i].statuses[n]);
        }

        ngx_http_idempotency_page_literal(text, "</li>");
    }

    ngx_http_idempotency_page_literal(text, "</ul></dd>\n");
}


/* Each code once: its anchor is the "type" of problems. */

static void
ngx_http_idempotency_contract_page_answers(
    ngx_http_idempotency_contracts_t *contracts,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                               i, j, n;
    ngx_http_idempotency_contract_answer_t  *answer;

    ngx_http_idempotency_page_literal(text, "<h2>Errors</h2>\n"
                                      "<section class=\"card errors\">\n");

    answer = contracts->answers.elts;

    for (i = 0; i < contracts->answers.nelts; i++) {

        if (ngx_http_idempotency_contract_first(contracts, i) != i) {
            continue;
        }

        ngx_http_idempotency_text_add(text,
                                      "<article id=\"%V\"><h3><code>%V</code>"
                                      " <i>",
                                      &answer[i].problem.code,
                                      &answer[i].problem.code);
        ngx_http_idempotency_text_html(text, &answer[i].problem.title);
        ngx_http_idempotency_page_literal(text, "</i></h3>\n");

        for (j = i; j < contracts->answers.nelts; j++) {

            if (ngx_http_idempotency_contract_first(contracts, j) != i) {
                continue;
            }

            ngx_http_idempotency_page_literal(text, "<p><b>");

            for (n = 0; n < answer[j].n; n++) {
                ngx_http_idempotency_text_add(text, "%s%ui", n ? ", " : "",
                                              answer[j].statuses[n]);
            }

            ngx_http_idempotency_page_literal(text, "</b> ");
            ngx_http_idempotency_text_html(text, &answer[j].problem.detail);
            ngx_http_idempotency_page_literal(text, "</p>\n");
        }

        ngx_http_idempotency_contract_page_advice(&answer[i].problem, text);

        ngx_http_idempotency_page_literal(text, "</article>\n");
    }

    ngx_http_idempotency_page_literal(text, "</section>\n");
}


static void
ngx_http_idempotency_contract_page_advice(
    ngx_http_idempotency_problem_t *problem,
    ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_text_add(text, "<p class=\"advice %V\">",
                                  &problem->retry);

    switch (problem->retry.data[0]) {

    case 's':
        ngx_http_idempotency_page_literal(text,
            "Retry with the same key, and with the first request unchanged");
        break;

    case 'n':
        if (problem->retry.data[2] == 'w') {
            ngx_http_idempotency_page_literal(text,
                "Nothing was executed: correct the request and send it with a "
                "new key");
            break;
        }

        /* fall through */

    default: /* "never" */
        ngx_http_idempotency_page_literal(text, "Do not retry");
        break;
    }

    if (problem->retry_after.len) {
        ngx_http_idempotency_text_add(text, ", after %V second%s",
                                      &problem->retry_after,
                                      problem->retry_after.len == 1
                                      && problem->retry_after.data[0] == '1'
                                      ? "" : "s");
    }

    ngx_http_idempotency_page_literal(text, ".</p>\n");
}
