
/*
 * What the module's own error answers say: status, code, advice, text.
 */


#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_jsonrpc.h"
#include "ngx_http_idempotency_problem_text.h"


/* what differs in a profile; a status or code of length 0 stays, "type" is of
   the error objects that have one */

typedef struct {
    ngx_http_idempotency_verdict_e  verdict;
    ngx_str_t                       line;
    ngx_str_t                       type;
    ngx_str_t                       code;
} ngx_http_idempotency_phrase_t;


static ngx_http_idempotency_phrase_t *ngx_http_idempotency_problem_phrase(
    ngx_uint_t profile, ngx_http_idempotency_verdict_e verdict);
static ngx_int_t ngx_http_idempotency_problem_detail(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem);
static u_char *ngx_http_idempotency_problem_ietf(u_char *p,
    ngx_http_idempotency_problem_t *problem, ngx_uint_t status,
    ngx_str_t *url);
static u_char *ngx_http_idempotency_problem_stripe(u_char *p,
    ngx_http_idempotency_problem_t *problem, ngx_str_t *type, ngx_str_t *url);
static u_char *ngx_http_idempotency_problem_jsonrpc(u_char *p,
    ngx_http_idempotency_problem_t *problem, ngx_str_t *type, ngx_str_t *id);


/* in the order of the verdicts, from KEY_MISSING on */

static ngx_http_idempotency_problem_t  ngx_http_idempotency_problems[] = {

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_MISSING,
      ngx_string("key_missing"), ngx_string("new-key"), ngx_null_string,
      ngx_string("Idempotency key is missing"),
      ngx_string("This operation needs an idempotency key. Send the request "
                 "again with a key that was never used before.") },

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_INVALID,
      ngx_string("key_invalid"), ngx_string("new-key"), ngx_null_string,
      ngx_string("Idempotency key is invalid"),
      ngx_string("The idempotency key is empty, too long, given twice, or has "
                 "characters other than visible ASCII. Send the request "
                 "again with one well-formed key.") },

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_INVALID,
      ngx_string("first_sent_invalid"), ngx_string("new-key"),
      ngx_null_string,
      ngx_string("Repeatability-First-Sent is missing or invalid"),
      ngx_string("The header Repeatability-First-Sent must be sent once, with "
                 "Repeatability-Request-ID, as a date in the form Sun, 06 Nov "
                 "1994 08:49:37 GMT. The request was not executed.") },

    { ngx_string("412 Precondition Failed"), NGX_HTTP_IDEMPOTENCY_EXPIRED,
      ngx_string("first_sent_expired"), ngx_string("never"), ngx_null_string,
      ngx_string("Repeatability-First-Sent is outside the tracked time"),
      ngx_string("Requests are remembered for a limited time, and the date in "
                 "Repeatability-First-Sent is before it, or in the future. "
                 "This request was not executed; whether an earlier one was "
                 "is not known.") },

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_INVALID,
      ngx_string("source_missing"), ngx_string("never"), ngx_null_string,
      ngx_string("Source of the request is missing"),
      ngx_string("The sender of this request cannot be identified. Send it "
                 "with the credentials that this operation expects.") },

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_INVALID,
      ngx_string("body_invalid"), ngx_string("new-key"), ngx_null_string,
      ngx_string("Request body is invalid"),
      ngx_string("The request was not executed. Send a corrected one with a "
                 "new key.") },

    { ngx_string("422 Unprocessable Content"), NGX_HTTP_IDEMPOTENCY_MISMATCH,
      ngx_string("key_reused"), ngx_string("same-key"), ngx_null_string,
      ngx_string("Idempotency key is already used"),
      ngx_string("This idempotency key was used before with another request, "
                 "and this one was not executed. If this is a retry, send the "
                 "first body unchanged; use a new key only for another "
                 "operation.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_IN_PROGRESS,
      ngx_string("in_progress"), ngx_string("same-key"), ngx_string("1"),
      ngx_string("A request with this idempotency key is in progress"),
      ngx_string("The first request with this idempotency key is still "
                 "running. Retry later with the same key to get its "
                 "answer.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_UNKNOWN,
      ngx_string("outcome_unknown"), ngx_string("same-key"), ngx_string("60"),
      ngx_string("Outcome of the first request is unknown"),
      ngx_string("The first request with this idempotency key may have been "
                 "executed. It is not executed again until that is settled: "
                 "do not use a new key, retry later with the same one.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_REJECTED,
      ngx_string("duplicate"), ngx_string("never"), ngx_null_string,
      ngx_string("Request is a duplicate"),
      ngx_string("The request with this idempotency key was executed before "
                 "and is not executed again.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_REJECTED,
      ngx_string("response_not_kept"), ngx_string("never"), ngx_null_string,
      ngx_string("Answer of the first request was not kept"),
      ngx_string("The request with this idempotency key was executed before, "
                 "and its answer was not kept. It is not executed again.") },

    { ngx_string("410 Gone"), NGX_HTTP_IDEMPOTENCY_EXPIRED,
      ngx_string("key_expired"), ngx_string("never"), ngx_null_string,
      ngx_string("Idempotency key has expired"),
      ngx_string("The request with this idempotency key was executed before, "
                 "and its answer is no longer kept. It is not executed "
                 "again.") },

    { ngx_string("410 Gone"), NGX_HTTP_IDEMPOTENCY_REJECTED,
      ngx_string("key_cancelled"), ngx_string("never"), ngx_null_string,
      ngx_string("Idempotency key was cancelled"),
      ngx_string("This idempotency key was cancelled before any request with "
                 "it was executed. No request with it will be executed.") },

    { ngx_string("503 Service Unavailable"), NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
      ngx_string("store_unavailable"), ngx_string("same-key"), ngx_string("1"),
      ngx_string("Idempotency store is unavailable"),
      ngx_string("The store cannot be used now, so this request was not "
                 "executed. Whether an earlier one with this idempotency key "
                 "was is not known. Retry later with the same key.") },

    { ngx_string("503 Service Unavailable"), NGX_HTTP_IDEMPOTENCY_STORE_ERROR,
      ngx_string("store_unavailable"), ngx_string("same-key"), ngx_string("1"),
      ngx_string("Idempotency store is unavailable"),
      ngx_string("There is a record of this idempotency key, and it cannot be "
                 "read now: an earlier request may have been executed. It is "
                 "not executed again. Retry later with the same key, do not "
                 "use another one.") },

    { ngx_string("425 Too Early"), NGX_HTTP_IDEMPOTENCY_REJECTED,
      ngx_string("early_data"), ngx_string("same-key"), ngx_null_string,
      ngx_string("Request came in TLS early data"),
      ngx_string("Early data can be replayed by others, so the request was "
                 "not executed. Send it again with the same key once the "
                 "handshake is complete.") },

    { ngx_string("403 Forbidden"), NGX_HTTP_IDEMPOTENCY_NOT_ISSUED,
      ngx_string("not_issued"), ngx_string("new-key"), ngx_null_string,
      ngx_string("Idempotency key was not issued"),
      ngx_string("The idempotency key must be a token that was issued to you "
                 "and has not expired. Fetch a token and send the request "
                 "with it.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_OUT_OF_ORDER,
      ngx_string("out_of_order"), ngx_string("never"), ngx_null_string,
      ngx_string("Number is out of order"),
      ngx_string("Requests are executed in the order of their numbers, and "
                 "this number is not accepted now. The request was not "
                 "executed now. Continue with the expected number, or raise "
                 "the epoch.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_REJECTED,
      ngx_string("suspected_duplicate"), ngx_string("never"), ngx_null_string,
      ngx_string("Request is a duplicate under another key"),
      ngx_string("The same request came under another idempotency key. That "
                 "one is running, was executed a short time ago, or may have "
                 "been; this one was not executed. A retry needs the key of "
                 "the first request.") },

    /* nginx's own errors: the status is that of the error */

    { ngx_null_string, NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("not_sent"), ngx_string("same-key"), ngx_null_string,
      ngx_string("Request was not sent"),
      ngx_string("Nothing of this request was sent to the server that "
                 "executes it. Retry with the same key.") },

    { ngx_null_string, NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("outcome_unknown"), ngx_string("same-key"), ngx_string("60"),
      ngx_string("Outcome of the request is unknown"),
      ngx_string("The request was sent, and no whole answer came back: it may "
                 "have been executed. Do not use a new key: retry later with "
                 "the same one to learn what happened.") },

    { ngx_string("404 Not Found"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("not_found"), ngx_string("same-key"), ngx_null_string,
      ngx_string("No record matches"),
      ngx_string("No record matches this key, source and scope, or has this "
                 "name. This does not prove that the operation never ran: its "
                 "record may have expired, or have another key, source or "
                 "scope.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("fence_mismatch"), ngx_string("never"), ngx_null_string,
      ngx_string("Record has another fence"),
      ngx_string("The record was changed since it was looked at. Nothing was "
                 "done. Look at it again, and name the fence that it has "
                 "now.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("state_mismatch"), ngx_string("never"), ngx_null_string,
      ngx_string("Record is in another state"),
      ngx_string("Only a record that is unknown can be resolved, and a record "
                 "whose request is executing cannot be purged. Nothing was "
                 "done.") },

    { ngx_string("409 Conflict"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("state_mismatch"), ngx_string("same-key"), ngx_null_string,
      ngx_string("Request can no longer be cancelled"),
      ngx_string("A request with this idempotency key is executing, was "
                 "executed, or may have been: the state says which. Nothing "
                 "was cancelled.") },

    { ngx_string("400 Bad Request"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("argument_invalid"), ngx_string("never"), ngx_null_string,
      ngx_string("Argument is missing or invalid"),
      ngx_string("DELETE needs fence=, POST needs fence= and resolve=executed "
                 "or resolve=not-executed; an answer needs status= from 200 "
                 "to 599. A list needs state= and a cursor= as it was given. "
                 "Nothing was done.") },

    { ngx_string("405 Method Not Allowed"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("method_not_allowed"), ngx_string("never"), ngx_null_string,
      ngx_string("Method is not allowed"),
      ngx_string("The header Allow lists the allowed methods.") },

    { ngx_string("413 Content Too Large"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("answer_too_large"), ngx_string("never"), ngx_null_string,
      ngx_string("Answer is too large to be kept"),
      ngx_string("The answer is larger than idempotency_max_response. Nothing "
                 "was done. Resolve with a smaller one, or without a body and "
                 "without status=.") },

    { ngx_string("403 Forbidden"), NGX_HTTP_IDEMPOTENCY_OFF,
      ngx_string("cross_site"), ngx_string("never"), ngx_null_string,
      ngx_string("Request comes from another site"),
      ngx_string("Records are not changed on behalf of a page of another "
                 "site. The header Origin must name the host that the request "
                 "is sent to, and Sec-Fetch-Site must be same-origin or none, "
                 "if they are sent. Nothing was done.") }
};


/* of nginx's own errors, from 502 on */

static ngx_str_t  ngx_http_idempotency_problem_own[] = {
    ngx_string("502 Bad Gateway"),
    ngx_string("503 Service Unavailable"),
    ngx_string("504 Gateway Timeout")
};


/* of idempotency_in_progress reject=STATUS */

static ngx_str_t  ngx_http_idempotency_problem_running[] = {
    ngx_string("425 Too Early"),
    ngx_string("503 Service Unavailable")
};


static ngx_str_t  ngx_http_idempotency_problem_type =
    ngx_string("application/problem+json");

static ngx_str_t  ngx_http_idempotency_problem_json =
    ngx_string("application/json");


/* the first entry is for all that have none, the last one ends the list */

static ngx_http_idempotency_phrase_t  ngx_http_idempotency_problem_by_ietf[] =
{
    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string }
};


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

    { NGX_HTTP_IDEMPOTENCY_KEY_CANCELLED, ngx_null_string,
      ngx_string("idempotency_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_SUSPECTED, ngx_null_string,
      ngx_string("idempotency_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE, ngx_null_string,
      ngx_string("api_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_RECORD_UNREADABLE, ngx_null_string,
      ngx_string("api_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_NOT_SENT, ngx_null_string,
      ngx_string("api_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_ANSWER_LOST, ngx_null_string,
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

    { NGX_HTTP_IDEMPOTENCY_NOT_SENT, ngx_null_string,
      ngx_string("service_unavailable"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_ANSWER_LOST, ngx_null_string,
      ngx_string("processing_error"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string }
};


static ngx_http_idempotency_phrase_t  ngx_http_idempotency_problem_by_ucp[] =
{
    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_REUSED, ngx_string("409 Conflict"),
      ngx_null_string, ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string }
};


/* the type is that of Repeatability-Result */

static ngx_http_idempotency_phrase_t  ngx_http_idempotency_problem_by_oasis[] =
{
    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_MISSING, ngx_null_string,
      ngx_string("rejected"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_INVALID, ngx_null_string,
      ngx_string("rejected"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_FIRST_SENT_INVALID, ngx_null_string,
      ngx_string("rejected"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_FIRST_SENT_EXPIRED, ngx_null_string,
      ngx_string("rejected"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_REUSED, ngx_string("400 Bad Request"),
      ngx_string("rejected"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_RUNNING, ngx_null_string,
      ngx_string("accepted"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_DUPLICATE, ngx_null_string,
      ngx_string("accepted"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_NOT_KEPT, ngx_null_string,
      ngx_string("accepted"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_EXPIRED, ngx_null_string,
      ngx_string("accepted"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string }
};


/* the type is the code of JSON-RPC, the code is in its data */

static ngx_http_idempotency_phrase_t
    ngx_http_idempotency_problem_by_jsonrpc[] =
{
    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_string("-32000"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_MISSING, ngx_null_string,
      ngx_string("-32602"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_INVALID, ngx_null_string,
      ngx_string("-32602"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_BODY_INVALID, ngx_null_string,
      ngx_string("-32700"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_KEY_REUSED, ngx_string("409 Conflict"),
      ngx_string("-32000"), ngx_null_string },

    { NGX_HTTP_IDEMPOTENCY_EXECUTE, ngx_null_string,
      ngx_null_string, ngx_null_string }
};


/* in the order of the numbers of the profiles */

static ngx_http_idempotency_phrase_t  *ngx_http_idempotency_problem_phrases[] =
{
    ngx_http_idempotency_problem_by_ietf,
    ngx_http_idempotency_problem_by_stripe,
    ngx_http_idempotency_problem_by_acp,
    ngx_http_idempotency_problem_by_ucp,
    ngx_http_idempotency_problem_by_oasis,
    ngx_http_idempotency_problem_by_jsonrpc
};


ngx_http_idempotency_result_e
ngx_http_idempotency_problem_result(ngx_http_idempotency_verdict_e verdict,
    ngx_str_t **code)
{
    ngx_http_idempotency_problem_t  *problem;

    problem = &ngx_http_idempotency_problems[verdict
                                          - NGX_HTTP_IDEMPOTENCY_KEY_MISSING];

    *code = &problem->code;

    return problem->result;
}


void
ngx_http_idempotency_problem_find(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem)
{
    ngx_http_idempotency_problem_of(ctx->conf, verdict,
                                    ctx->request->headers_out.status,
                                    problem);
}


void
ngx_http_idempotency_problem_of(ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_verdict_e verdict, ngx_uint_t status,
    ngx_http_idempotency_problem_t *problem)
{
    ngx_http_idempotency_phrase_t  *phrase;

    *problem = ngx_http_idempotency_problems[verdict
                                          - NGX_HTTP_IDEMPOTENCY_KEY_MISSING];

    phrase = ngx_http_idempotency_problem_phrase(conf->profile, verdict);

    if (phrase->line.len) {
        problem->line = phrase->line;
    }

    if (phrase->code.len) {
        problem->code = phrase->code;
    }

    switch (verdict) {

    case NGX_HTTP_IDEMPOTENCY_RUNNING:

        if (conf->in_progress != NGX_HTTP_CONFLICT) {
            problem->line = ngx_http_idempotency_problem_running[
                        conf->in_progress == NGX_HTTP_SERVICE_UNAVAILABLE];
        }

        break;

    case NGX_HTTP_IDEMPOTENCY_NOT_SENT:
    case NGX_HTTP_IDEMPOTENCY_ANSWER_LOST:
        problem->line = ngx_http_idempotency_problem_own[status
                                                  - NGX_HTTP_BAD_GATEWAY];
        break;

    default:
        break;
    }
}


static ngx_http_idempotency_phrase_t *
ngx_http_idempotency_problem_phrase(ngx_uint_t profile,
    ngx_http_idempotency_verdict_e verdict)
{
    ngx_http_idempotency_phrase_t  *phrase, *phrases;

    phrases = ngx_http_idempotency_problem_phrases[profile];

    for (phrase = phrases + 1;
         phrase->verdict != NGX_HTTP_IDEMPOTENCY_EXECUTE;
         phrase++)
    {
        if (phrase->verdict == verdict) {
            return phrase;
        }
    }

    return phrases;
}


ngx_str_t *
ngx_http_idempotency_problem_kind(ngx_http_idempotency_ctx_t *ctx,
    ngx_http_idempotency_verdict_e verdict)
{
    static ngx_str_t  not_a_request = ngx_string("-32600");

    if (verdict == NGX_HTTP_IDEMPOTENCY_BODY_INVALID && ctx->jsonrpc) {

        /* it is JSON */

        return &not_a_request;
    }

    return &ngx_http_idempotency_problem_phrase(ctx->conf->profile,
                                                verdict)->type;
}


/*
 * That of idempotency_describedby, or the policy of this server, which has no
 * codes of lookups and tokens.
 */

ngx_str_t *
ngx_http_idempotency_problem_page(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_uint_t                         i;
    ngx_http_core_srv_conf_t          *cscf;
    ngx_http_idempotency_page_t       *page;
    ngx_http_idempotency_main_conf_t  *imcf;

    if (ctx->conf->describedby.len || ctx->conf->endpoint) {
        return &ctx->conf->describedby;
    }

    imcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_idempotency_module);
    cscf = ngx_http_get_module_srv_conf(ctx->request, ngx_http_core_module);

    page = imcf->pages.elts;

    for (i = 0; i < imcf->pages.nelts; i++) {
        if (page[i].cscf == cscf && page[i].uri.len) {
            return &page[i].uri;
        }
    }

    return &ctx->conf->describedby;
}


ngx_int_t
ngx_http_idempotency_problem_body(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem, ngx_chain_t *out)
{
    size_t      len;
    u_char     *p;
    ngx_buf_t  *b;
    ngx_str_t  *url, *type, *media, *id;

    static ngx_str_t  language = ngx_string("Content-Language");
    static ngx_str_t  english = ngx_string("en");

    if (ngx_http_idempotency_header_add(&r->headers_out.headers, &language,
                                        &english)
        == NULL
        || ngx_http_idempotency_problem_detail(r, ctx, verdict, problem)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    url = ngx_http_idempotency_problem_page(ctx);
    type = ngx_http_idempotency_problem_kind(ctx, verdict);
    media = &ngx_http_idempotency_problem_json;
    id = NULL;

    /* the URL was checked at configuration */

    len = sizeof("{\"error\":{\"type\":\"\",\"title\":\"\",\"status\":,"
                 "\"detail\":\"\",\"code\":\"\",\"message\":\"\","
                 "\"doc_url\":\"about:blank#\",\"original_status\":,"
                 "\"expected\":,\"fence\":,\"state\":\"tombstone\"}}\n")
          + url->len + 2 * problem->code.len + type->len
          + ngx_max(problem->title.len, problem->line.len)
          + problem->detail.len + 3 * NGX_INT64_LEN;

    if (ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC) {
        id = ngx_http_idempotency_jsonrpc_id(ctx);
        len += sizeof("{\"jsonrpc\":\"2.0\",\"id\":,\"data\":{},\"content\","
                      "\"retry\":\"\",\"retry_after\":,") + id->len
               + problem->title.len + problem->retry.len
               + problem->retry_after.len;
    }

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

    case NGX_HTTP_IDEMPOTENCY_PROFILE_UCP:
        p = ngx_sprintf(p, "{\"code\":\"%V\",\"content\":\"%V\"",
                        &problem->code, &problem->detail);
        break;

    case NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC:
        p = ngx_http_idempotency_problem_jsonrpc(p, problem, type, id);
        break;

    default: /* NGX_HTTP_IDEMPOTENCY_PROFILE_IETF, _OASIS */
        media = &ngx_http_idempotency_problem_type;
        p = ngx_http_idempotency_problem_ietf(p, problem,
                                              r->headers_out.status, url);
        break;
    }

    if (ctx->op && ctx->op->record.status
        && problem->result == NGX_HTTP_IDEMPOTENCY_REJECTED
        && verdict != NGX_HTTP_IDEMPOTENCY_KEY_CANCELLED)
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
        || verdict == NGX_HTTP_IDEMPOTENCY_OTHER_STATE
        || verdict == NGX_HTTP_IDEMPOTENCY_NOT_CANCELLED)
    {
        p = ngx_sprintf(p, ",\"fence\":%uL,\"state\":\"%V\"",
                        ctx->op->record.fence,
                        &ngx_idempotency_states[ctx->op->record.state]);
    }

    if (ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_STRIPE) {
        *p++ = '}';

    } else if (ctx->conf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC) {
        *p++ = '}';
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


/* What the request in particular has to do with it: where, which byte. */

static ngx_int_t
ngx_http_idempotency_problem_detail(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_http_idempotency_verdict_e verdict,
    ngx_http_idempotency_problem_t *problem)
{
    char       *text;
    u_char     *p, *last;
    ngx_str_t  *fact;

    switch (verdict) {

    case NGX_HTTP_IDEMPOTENCY_KEY_MISSING:
        fact = &ctx->conf->key_place;
        text = "The %V is missing. ";
        break;

    case NGX_HTTP_IDEMPOTENCY_KEY_INVALID:
        fact = &ctx->conf->key_place;
        text = ctx->conf->strict_key && ctx->conf->key_header.len
               ? "The key is read from the %V and must be a quoted string "
                 "(RFC 9651). "
               : "The key is read from the %V. ";
        break;

    case NGX_HTTP_IDEMPOTENCY_BODY_INVALID:
        fact = &ctx->request_body.error;
        text = "The body is %V. ";
        break;

    case NGX_HTTP_IDEMPOTENCY_BAD_ARGUMENT:
        fact = &ctx->request_body.error;
        text = "Wrong argument: %V. ";
        break;

    default:
        return NGX_OK;
    }

    if (fact->len == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, ngx_strlen(text) + fact->len
                             + problem->detail.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_sprintf(p, text, fact);
    last = ngx_cpymem(last, problem->detail.data, problem->detail.len);

    problem->detail.data = p;
    problem->detail.len = last - p;

    return NGX_OK;
}


static u_char *
ngx_http_idempotency_problem_ietf(u_char *p,
    ngx_http_idempotency_problem_t *problem, ngx_uint_t status, ngx_str_t *url)
{
    ngx_str_t  phrase;

    if (url->len) {
        p = ngx_sprintf(p, "{\"type\":\"%V#%V\",\"title\":\"%V\"", url,
                        &problem->code, &problem->title);

    } else {

        /* RFC 9457, 4.2.1: the title is that of the status */

        phrase.data = problem->line.data + sizeof("400 ") - 1;
        phrase.len = problem->line.len - (sizeof("400 ") - 1);

        p = ngx_sprintf(p, "{\"type\":\"about:blank\",\"title\":\"%V\"",
                        &phrase);
    }

    return ngx_sprintf(p,
                       ",\"status\":%ui,\"detail\":\"%V\",\"code\":\"%V\"",
                       status, &problem->detail, &problem->code);
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


/* as errors of the Universal Commerce Protocol over MCP */

static u_char *
ngx_http_idempotency_problem_jsonrpc(u_char *p,
    ngx_http_idempotency_problem_t *problem, ngx_str_t *type, ngx_str_t *id)
{
    p = ngx_sprintf(p, "{\"jsonrpc\":\"2.0\",\"id\":%V,\"error\":{"
                    "\"code\":%V,\"message\":\"%V\",\"data\":{"
                    "\"code\":\"%V\",\"content\":\"%V\",\"retry\":\"%V\"",
                    id, type, &problem->title, &problem->code,
                    &problem->detail, &problem->retry);

    if (problem->retry_after.len) {
        p = ngx_sprintf(p, ",\"retry_after\":%V", &problem->retry_after);
    }

    return p;
}
