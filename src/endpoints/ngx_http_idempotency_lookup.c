
/*
 * Lookups: shows the record of a key, and lets operators change records.
 *
 * A caller sees its own keys: the source is part of a record's name.  Where
 * the location says "cancel" it may cancel those that were not executed.
 * An operator, where the location says "admin", may list records, name them
 * by their digest, settle those that are unknown and purge others.  Each
 * change names the fence that was seen, so that nothing is changed that has
 * become something else meanwhile.
 */


#include "ngx_http_idempotency_lookup.h"
#include "ngx_http_idempotency_batch.h"
#include "ngx_http_idempotency_body.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_endpoint.h"
#include "ngx_http_idempotency_identify.h"
#include "ngx_http_idempotency_list.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_query.h"
#include "ngx_idempotency_random.h"


static char *ngx_http_idempotency_lookup_admin(ngx_conf_t *cf,
    ngx_idempotency_store_t *store);
static ngx_int_t ngx_http_idempotency_lookup_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_lookup_method(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_lookup_body(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_lookup_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_lookup_help(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_lookup_name(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_lookup_ask(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_lookup_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type);
static ngx_int_t ngx_http_idempotency_lookup_fill(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op);
static ngx_int_t ngx_http_idempotency_lookup_reply(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_lookup_listed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_lookup_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);

static ngx_int_t ngx_http_idempotency_lookup_resolve(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_lookup_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op);
static ngx_int_t ngx_http_idempotency_lookup_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_lookup_log(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


char *
ngx_http_idempotency_lookup(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    char        *rv;
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_strcmp(value[i].data, "admin") == 0) {
            ilcf->admin = 1;
            continue;
        }

        if (ngx_strcmp(value[i].data, "cancel") == 0) {
            ilcf->cancel = 1;
            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in "
                           "\"idempotency_lookup\", it takes \"admin\" and "
                           "\"cancel\"", &value[i]);
        return NGX_CONF_ERROR;
    }

    rv = ngx_http_idempotency_endpoint(cf, ilcf, &value[1],
                                       ngx_http_idempotency_lookup_handler,
                                       ngx_http_idempotency_lookup_reply);

    if (rv != NGX_CONF_OK || !ilcf->admin) {
        return rv;
    }

    return ngx_http_idempotency_lookup_admin(cf, ilcf->endpoint);
}


/* the page of the stats lists what it can reach by a path */

static char *
ngx_http_idempotency_lookup_admin(ngx_conf_t *cf,
    ngx_idempotency_store_t *store)
{
    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_location_t   *location;
    ngx_http_idempotency_main_conf_t  *imcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->named || clcf->noname
#if (NGX_PCRE)
        || clcf->regex
#endif
       )
    {
        return NGX_CONF_OK;
    }

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    location = ngx_array_push(&imcf->lookups);
    if (location == NULL) {
        return NGX_CONF_ERROR;
    }

    location->cscf = ngx_http_conf_get_module_srv_conf(cf,
                                                       ngx_http_core_module);
    location->server = location->cscf->server_name;
    location->location = clcf->name;
    location->store = store;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_idempotency_lookup_handler(ngx_http_request_t *r)
{
    ngx_int_t                         rc;
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    ctx = ngx_http_idempotency_context_create(r, ilcf, NULL);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_REFUSED);

    if ((ilcf->admin || ilcf->cancel)
        && (r->method & (NGX_HTTP_POST|NGX_HTTP_DELETE))
        && ngx_http_idempotency_endpoint_own_site(r, ctx) != NGX_OK)
    {
        return NGX_DONE;
    }

    if (ilcf->admin && r->method == NGX_HTTP_POST) {
        rc = ngx_http_read_client_request_body(r,
                                           ngx_http_idempotency_lookup_body);

        return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    /* ngx_http_idempotency_endpoint_go() finalizes the request */

    r->main->count++;

    rc = ngx_http_idempotency_lookup_method(r, ctx);

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_lookup_begin(r, ctx);
    }

    ngx_http_idempotency_endpoint_go(r, rc);

    return NGX_DONE;
}


static ngx_int_t
ngx_http_idempotency_lookup_method(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t  *methods;

    static ngx_str_t  look = ngx_string("GET, HEAD");
    static ngx_str_t  cancel = ngx_string("GET, HEAD, DELETE");
    static ngx_str_t  change = ngx_string("GET, HEAD, DELETE, POST");

    if ((r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))
        || ((ctx->conf->admin || ctx->conf->cancel)
            && r->method == NGX_HTTP_DELETE))
    {
        return NGX_OK;
    }

    methods = ctx->conf->cancel ? &cancel : &look;

    return ngx_http_idempotency_endpoint_method(r, ctx,
                                                ctx->conf->admin ? &change
                                                                 : methods);
}


static void
ngx_http_idempotency_lookup_body(ngx_http_request_t *r)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);

    ctx->request_body.read = 1;

    ngx_http_idempotency_endpoint_go(r,
                                 ngx_http_idempotency_lookup_begin(r, ctx));
}


static ngx_int_t
ngx_http_idempotency_lookup_begin(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_http_idempotency_query_t  *query;

    if (ngx_http_idempotency_query_variables(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_idempotency_query(r, ctx);

    if (rc == NGX_DECLINED) {
        return ngx_http_idempotency_problem(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_BAD_ARGUMENT);
    }

    if (rc != NGX_OK
        || ngx_idempotency_random(ctx->id.owner, NGX_IDEMPOTENCY_OWNER_LEN)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    query = ctx->query;

    if (query->many) {
        return ngx_http_idempotency_batch_begin(r, ctx);
    }

    if (query->type == NGX_IDEMPOTENCY_LIST) {
        return ngx_http_idempotency_list_begin(r, ctx);
    }

    if (query->digits.len) {

        /* two are enough to know that it is not the only one */

        query->limit = 2;

        return ngx_http_idempotency_list_begin(r, ctx);
    }

    if (!query->named) {
        rc = ngx_http_idempotency_lookup_name(r, ctx);

        if (rc == NGX_DECLINED) {
            return ngx_http_idempotency_lookup_help(r);
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return ngx_http_idempotency_lookup_ask(r, ctx);
}


/* it is known which record: to resolve it, it is read first */

static ngx_int_t
ngx_http_idempotency_lookup_ask(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_op_e  type;

    type = ctx->query->type;

    return ngx_http_idempotency_lookup_submit(r, ctx,
                                              type == NGX_IDEMPOTENCY_RESOLVE
                                              ? NGX_IDEMPOTENCY_FETCH : type);
}


static ngx_int_t
ngx_http_idempotency_lookup_help(ngx_http_request_t *r)
{
    ngx_http_idempotency_text_t  text;

    static ngx_str_t  type = ngx_string("text/plain");

    ngx_http_idempotency_text_init(&text, r->pool);

    ngx_http_idempotency_text_add(&text,
        "Records of an idempotency store, for operators.\n\n"
        "GET    ?state=unknown            a list, the oldest first; also\n"
        "       &format=csv|ndjson|json   &label=PREFIX  &location=NAME\n"
        "       &older=15m  &limit=100    &cursor=CURSOR\n"
        "GET    ?record=NAME              one record; 12 of its digits are "
        "enough\n"
        "POST   ?record=NAME&fence=FENCE&resolve=executed|not-executed\n"
        "       &label=LABEL              settles an unknown outcome\n");
    ngx_http_idempotency_text_add(&text,
        "POST   ?resolve=batch[&dry_run=1]  settles many, from NDJSON\n"
        "DELETE ?record=NAME&fence=FENCE  forgets a record: its request is "
        "executed\n"
        "                                 again if it is repeated\n\n"
        "Instead of record= the arguments or headers that have key, source "
        "and scope\nin this location name a record.\n");

    return ngx_http_idempotency_text_send(r, &text, NGX_HTTP_OK, &type);
}


/* NGX_DECLINED: an operator has said nothing at all */

static ngx_int_t
ngx_http_idempotency_lookup_name(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_idempotency_identify_key(r, ctx);

    if (rc == NGX_DECLINED
        && ctx->conf->admin
        && r->args.len == 0
        && (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)))
    {
        return NGX_DECLINED;
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_KEY_MISSING);
    }

    if (rc == NGX_ABORT) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_KEY_INVALID);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_identify_record(r, ctx);
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_idempotency_problem(r, ctx,
                                         NGX_HTTP_IDEMPOTENCY_SOURCE_MISSING);
    }

    return rc == NGX_OK ? NGX_OK : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static ngx_int_t
ngx_http_idempotency_lookup_submit(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_e type)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    op = ngx_http_idempotency_context_op(ctx, type);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    switch (ngx_http_idempotency_lookup_fill(r, ctx, op)) {

    case NGX_OK:
        rc = ngx_http_idempotency_endpoint_submit(r, ctx);
        break;

    case NGX_DECLINED:
        rc = ngx_http_idempotency_problem(r, ctx,
                                          NGX_HTTP_IDEMPOTENCY_BAD_ARGUMENT);
        break;

    case NGX_ABORT:
        rc = ngx_http_idempotency_problem(r, ctx,
                                          NGX_HTTP_IDEMPOTENCY_TOO_LARGE);
        break;

    default: /* NGX_ERROR */
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
        break;
    }

    /* the store has its own copy; the request may be gone */

    ngx_http_idempotency_body_free(r, NULL);

    return rc;
}


/* NGX_DECLINED: an argument is invalid; NGX_ABORT: too large; NGX_ERROR */

static ngx_int_t
ngx_http_idempotency_lookup_fill(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op)
{
    ngx_http_idempotency_query_t  *query;

    query = ctx->query;

    op->fence = query->fence;

    switch (op->type) {

    case NGX_IDEMPOTENCY_FETCH:
        op->flags |= NGX_IDEMPOTENCY_FETCH_BARE;
        return NGX_OK;

    case NGX_IDEMPOTENCY_RESOLVE:
        return query->executed ? ngx_http_idempotency_lookup_answer(r, ctx, op)
                               : NGX_OK;

    default: /* NGX_IDEMPOTENCY_PURGE, NGX_IDEMPOTENCY_CANCEL */
        return NGX_OK;
    }
}


static ngx_int_t
ngx_http_idempotency_lookup_reply(ngx_http_request_t *r)
{
    ngx_idempotency_op_t        *op;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);
    op = ctx->op;

    if (ctx->query->batch) {
        return ngx_http_idempotency_batch_reply(r, ctx);
    }

    if (op->type == NGX_IDEMPOTENCY_LIST) {
        return ngx_http_idempotency_lookup_listed(r, ctx);
    }

    if (op->error != NGX_IDEMPOTENCY_ERROR_NONE) {
        return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE);
    }

    switch (op->type) {

    case NGX_IDEMPOTENCY_FETCH:

        if (op->record.state == NGX_IDEMPOTENCY_NONE) {
            return ngx_http_idempotency_problem(r, ctx,
                                              NGX_HTTP_IDEMPOTENCY_NOT_FOUND);
        }

        if (ctx->query->type == NGX_IDEMPOTENCY_RESOLVE) {
            return ngx_http_idempotency_lookup_resolve(r, ctx);
        }

        break;

    case NGX_IDEMPOTENCY_CANCEL:

        if (op->result != NGX_IDEMPOTENCY_OK) {
            return ngx_http_idempotency_problem(r, ctx,
                                          NGX_HTTP_IDEMPOTENCY_NOT_CANCELLED);
        }

        ngx_http_idempotency_lookup_log(r, ctx);
        break;

    default: /* NGX_IDEMPOTENCY_RESOLVE, NGX_IDEMPOTENCY_PURGE */

        if (op->result != NGX_IDEMPOTENCY_OK) {
            return ngx_http_idempotency_lookup_refused(r, ctx);
        }

        ngx_http_idempotency_lookup_log(r, ctx);
        break;
    }

    return ngx_http_idempotency_lookup_send(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_lookup_listed(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_http_idempotency_row_t   **rowp;
    ngx_http_idempotency_query_t  *query;

    query = ctx->query;

    if (query->waits) {
        return ngx_http_idempotency_list_next(r, ctx);
    }

    rc = ngx_http_idempotency_list_reply(r, ctx);

    if (rc == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE);
    }

    if (rc != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (query->type == NGX_IDEMPOTENCY_LIST) {
        return ngx_http_idempotency_list_send(r, ctx);
    }

    /* the record was named by its first digits */

    if (query->rows.nelts == 0) {
        return ngx_http_idempotency_problem(r, ctx,
                                            NGX_HTTP_IDEMPOTENCY_NOT_FOUND);
    }

    if (query->rows.nelts > 1) {
        (void) ngx_http_idempotency_query_error(ctx,
                   "record= is ambiguous: more than one record begins with "
                   "these digits, give more of them");

        return ngx_http_idempotency_problem(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_BAD_ARGUMENT);
    }

    rowp = query->rows.elts;

    ngx_memcpy(ctx->id.digest, rowp[0]->entry.digest,
               NGX_IDEMPOTENCY_DIGEST_LEN);

    if (rowp[0]->entry.sequence) {
        ctx->identity.flags = NGX_IDEMPOTENCY_SEQUENCE;
    }

    return ngx_http_idempotency_lookup_ask(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_lookup_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_text_t  text;

    static ngx_str_t  type = ngx_string("application/json");

    ngx_http_idempotency_text_init(&text, r->pool);

    ngx_http_idempotency_list_show(&text, ctx, ctx->id.digest,
                                   ctx->identity.flags
                                   & NGX_IDEMPOTENCY_SEQUENCE,
                                   &ctx->op->record);
    ngx_http_idempotency_text_add(&text, "\n");

    return ngx_http_idempotency_text_send(r, &text, NGX_HTTP_OK, &type);
}


/*
 * The record was read.  Whether it may be changed is decided by the store, when
 * it is changed.
 */

static ngx_int_t
ngx_http_idempotency_lookup_resolve(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    char                            *error;
    ngx_idempotency_record_t        *record;
    ngx_http_idempotency_resolve_t   resolve;

    record = &ctx->op->record;

    if (record->state != NGX_IDEMPOTENCY_UNKNOWN
        || record->fence != ctx->query->fence)
    {
        return ngx_http_idempotency_lookup_refused(r, ctx);
    }

    ngx_memzero(&resolve, sizeof(ngx_http_idempotency_resolve_t));

    resolve.status = ctx->query->status;
    resolve.label = ctx->query->label;
    resolve.confirm = ctx->query->confirm;

    error = ngx_http_idempotency_resolve_check(r, ctx, &resolve);

    if (error) {
        (void) ngx_http_idempotency_query_error(ctx, error);

        return ngx_http_idempotency_problem(r, ctx,
                                           NGX_HTTP_IDEMPOTENCY_BAD_ARGUMENT);
    }

    return ngx_http_idempotency_lookup_submit(r, ctx,
                                              NGX_IDEMPOTENCY_RESOLVE);
}


static ngx_int_t
ngx_http_idempotency_lookup_answer(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_op_t *op)
{
    char                            *error;
    ngx_int_t                        rc;
    ngx_http_idempotency_resolve_t   resolve;

    ngx_memzero(&resolve, sizeof(ngx_http_idempotency_resolve_t));

    resolve.status = ctx->query->status;

    if (r->headers_in.content_type) {
        resolve.type = r->headers_in.content_type->value;
    }

    if (ngx_http_idempotency_body_whole(r, &resolve.body) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_idempotency_resolve_answer(r, ctx, &resolve, op, &error);

    return rc == NGX_DECLINED ? ngx_http_idempotency_query_error(ctx, error)
                              : rc;
}


static ngx_int_t
ngx_http_idempotency_lookup_refused(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_idempotency_record_t        *record;
    ngx_http_idempotency_verdict_e   verdict;

    record = &ctx->op->record;

    if (record->state == NGX_IDEMPOTENCY_NONE) {
        verdict = NGX_HTTP_IDEMPOTENCY_NOT_FOUND;

    } else if (record->fence != ctx->query->fence) {
        verdict = NGX_HTTP_IDEMPOTENCY_OTHER_FENCE;

    } else {
        verdict = NGX_HTTP_IDEMPOTENCY_OTHER_STATE;
    }

    return ngx_http_idempotency_problem(r, ctx, verdict);
}


static void
ngx_http_idempotency_lookup_log(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    const char                    *what;
    ngx_http_idempotency_query_t  *query;

    query = ctx->query;

    if (query->type == NGX_IDEMPOTENCY_CANCEL) {
        what = "cancelled";

    } else if (query->type == NGX_IDEMPOTENCY_PURGE) {
        what = "purged";

    } else {
        what = query->executed ? "resolved as executed"
                               : "resolved as not executed";
    }

    ngx_http_idempotency_resolve_log(r, ctx, what, query->status,
                                     query->fence ? query->fence
                                                  : ctx->op->record.fence);
}
