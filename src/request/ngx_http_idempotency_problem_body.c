
/*
 * The body of an error answer, in the words of a profile.
 */


#include "ngx_http_idempotency_problem_body.h"


/* what a profile says otherwise; a status or code of length 0 stays */

typedef struct {
    ngx_http_idempotency_verdict_e  verdict;
    ngx_str_t                       line;
    ngx_str_t                       type;
    ngx_str_t                       code;
} ngx_http_idempotency_phrase_t;


static ngx_http_idempotency_phrase_t *ngx_http_idempotency_problem_phrase(
    ngx_uint_t profile, ngx_http_idempotency_verdict_e verdict);
static u_char *ngx_http_idempotency_problem_ietf(u_char *p,
    ngx_http_idempotency_problem_t *problem, ngx_uint_t status,
    ngx_str_t *url);
static u_char *ngx_http_idempotency_problem_stripe(u_char *p,
    ngx_http_idempotency_problem_t *problem, ngx_str_t *type, ngx_str_t *url);


static ngx_str_t  ngx_http_idempotency_problem_type =
    ngx_string("application/problem+json");

static ngx_str_t  ngx_http_idempotency_problem_json =
    ngx_string("application/json");


/* the first entry is for all that have none */

static ngx_http_idempotency_phrase_t  ngx_http_idempotency_problem_by_stripe[] =
{
    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_string("invalid_request_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_REUSED, ngx_string("400 Bad Request"),
      ngx_string("idempotency_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_RUNNING, ngx_null_string,
      ngx_string("idempotency_error"), ngx_string("idempotency_key_in_use") },

    { NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN, ngx_null_string,
      ngx_string("idempotency_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_DUPLICATE, ngx_null_string,
      ngx_string("idempotency_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_NOT_KEPT, ngx_null_string,
      ngx_string("idempotency_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_EXPIRED, ngx_null_string,
      ngx_string("idempotency_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE, ngx_null_string,
      ngx_string("api_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_RECORD_UNREADABLE, ngx_null_string,
      ngx_string("api_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string }
};


static ngx_http_idempotency_phrase_t  ngx_http_idempotency_problem_by_acp[] =
{
    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_string("invalid_request"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_MISSING, ngx_null_string,
      ngx_string("invalid_request"), ngx_string("idempotency_key_required") },

    { NGX_HTTP_IDEMPOTENCY_KEY_REUSED, ngx_null_string,
      ngx_string("invalid_request"), ngx_string("idempotency_conflict") },

    { NGX_HTTP_IDEMPOTENCY_RUNNING, ngx_null_string,
      ngx_string("invalid_request"), ngx_string("idempotency_in_flight") },

    { NGX_HTTP_IDEMPOTENCY_OUTCOME_UNKNOWN, ngx_null_string,
      ngx_string("processing_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE, ngx_null_string,
      ngx_string("service_unavailable"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_RECORD_UNREADABLE, ngx_null_string,
      ngx_string("service_unavailable"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string }
};


void
ngx_http_idempotency_problem_translate(ngx_uint_t profile,
    ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem)
{
    ngx_http_idempotency_phrase_t  *phrase;

    if (profile == NGX_HTTP_IDEMPOTENCY_PROFILE_IETF) {
        return;
    }

    phrase = ngx_http_idempotency_problem_phrase(profile, verdict);

    if (phrase->line.len) {
        problem->line = phrase->line;
    }

    if (phrase->code.len) {
        problem->code = phrase->code;
    }
}


static ngx_http_idempotency_phrase_t *
ngx_http_idempotency_problem_phrase(ngx_uint_t profile,
    ngx_http_idempotency_verdict_e verdict)
{
    ngx_http_idempotency_phrase_t  *phrase, *phrases;

    phrases = (profile == NGX_HTTP_IDEMPOTENCY_PROFILE_STRIPE)
              ? ngx_http_idempotency_problem_by_stripe
              : ngx_http_idempotency_problem_by_acp;

    for (phrase = phrases; phrase->type.len; phrase++) {
        if (phrase->verdict == verdict) {
            return phrase;
        }
    }

    return phrases;
}


ngx_int_t
ngx_http_idempotency_problem_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem, ngx_chain_t *out)
{
    size_t      len;
    u_char     *p;
    ngx_buf_t  *b;
    ngx_str_t  *url, *type, *media;

    url = &ctx->conf->describedby;
    type = &ngx_http_idempotency_problem_phrase(ctx->conf->profile,
                                                verdict)->type;
    media = &ngx_http_idempotency_problem_json;

    /* the URL was checked at configuration */

    len = sizeof("{\"error\":{\"type\":\"\",\"title\":\"\",\"status\":,"
                 "\"detail\":\"\",\"code\":\"\",\"message\":\"\","
                 "\"doc_url\":\"about:blank#\",\"original_status\":,"
                 "\"expected\":,\"fence\":,\"state\":\"tombstone\"}}\n")
          + url->len + 2 * problem->code.len + type->len
          + problem->title.len + problem->detail.len + 3 * NGX_INT64_LEN;

    b = ngx_create_temp_buf(r->pool, len);
    if (b == NULL) {
        return NGX_ERROR;
    }

    p = b->last;

    switch (ctx->conf->profile) {

    case NGX_HTTP_IDEMPOTENCY_PROFILE_STRIPE:
        p = ngx_http_idempotency_problem_stripe(p, problem, type, url);
        break;

    case NGX_HTTP_IDEMPOTENCY_PROFILE_ACP:
        p = ngx_sprintf(p, "{\"type\":\"%V\",\"code\":\"%V\","
                        "\"message\":\"%V\"",
                        type, &problem->code, &problem->detail);
        break;

    default: /* NGX_HTTP_IDEMPOTENCY_PROFILE_IETF */
        media = &ngx_http_idempotency_problem_type;
        p = ngx_http_idempotency_problem_ietf(p, problem,
                                              r->headers_out.status, url);
        break;
    }

    if (ctx->op && ctx->op->record.status
        && problem->result == NGX_HTTP_IDEMPOTENCY_REJECTED)
    {
        p = ngx_sprintf(p, ",\"original_status\":%ui",
                        ctx->op->record.status);
    }

    if (verdict == NGX_HTTP_IDEMPOTENCY_NUMBER_OUT_OF_ORDER
        && ctx->op->expects)
    {
        p = ngx_sprintf(p, ",\"expected\":%uL", ctx->op->expected);
    }

    if (verdict == NGX_HTTP_IDEMPOTENCY_OTHER_FENCE
        || verdict == NGX_HTTP_IDEMPOTENCY_OTHER_STATE)
    {
        p = ngx_sprintf(p, ",\"fence\":%uL,\"state\":\"%V\"",
                        ctx->op->record.fence,
                        &ngx_idempotency_states[ctx->op->record.state]);
    }

    if (ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_STRIPE) {
        *p++ = '}';
    }

    *p++ = '}';
    *p++ = '\n';

    b->last = p;
    b->last_buf = 1;
    b->last_in_chain = 1;

    r->headers_out.content_type = *media;
    r->headers_out.content_type_len = media->len;
    r->headers_out.content_type_lowcase = NULL;
    r->headers_out.content_length_n = b->last - b->pos;

    out->buf = b;
    out->next = NULL;

    return NGX_OK;
}


static u_char *
ngx_http_idempotency_problem_ietf(u_char *p,
    ngx_http_idempotency_problem_t *problem, ngx_uint_t status, ngx_str_t *url)
{
    if (url->len) {
        p = ngx_sprintf(p, "{\"type\":\"%V#%V\"", url, &problem->code);

    } else {
        p = ngx_sprintf(p, "{\"type\":\"about:blank\"");
    }

    return ngx_sprintf(p,
                       ",\"title\":\"%V\",\"status\":%ui,\"detail\":\"%V\","
                       "\"code\":\"%V\"",
                       &problem->title, status, &problem->detail,
                       &problem->code);
}


static u_char *
ngx_http_idempotency_problem_stripe(u_char *p,
    ngx_http_idempotency_problem_t *problem, ngx_str_t *type, ngx_str_t *url)
{
    p = ngx_sprintf(p, "{\"error\":{\"type\":\"%V\",\"code\":\"%V\","
                    "\"message\":\"%V\"",
                    type, &problem->code, &problem->detail);

    if (url->len) {
        p = ngx_sprintf(p, ",\"doc_url\":\"%V#%V\"", url, &problem->code);
    }

    return p;
}
