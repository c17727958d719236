
/*
 * Tokens: keys that are given out before they are used.
 *
 * A token is the key of a record in the state issued, under the source that
 * asked for it.  Where "idempotency_issued" is on, nothing else can be claimed.
 */


#include "ngx_http_idempotency_token.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_http_idempotency_endpoint.h"
#include "ngx_http_idempotency_header.h"
#include "ngx_http_idempotency_identify.h"
#include "ngx_http_idempotency_problem.h"
#include "ngx_http_idempotency_unique.h"


#define NGX_HTTP_IDEMPOTENCY_TOKEN_TTL    3600

/* a name that the store knows already is followed by another one */
#define NGX_HTTP_IDEMPOTENCY_TOKEN_TRIES  8


struct ngx_http_idempotency_token_s {
    time_t                              ttl;
    ngx_http_idempotency_unique_e       format;
    ngx_uint_t                          node;
    ngx_shm_zone_t                     *zone;
};


static char *ngx_http_idempotency_token_param(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_idempotency_token_t *token);

static ngx_int_t ngx_http_idempotency_token_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_token_issue(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_token_name(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_token_act(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_token_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


static ngx_conf_enum_t  ngx_http_idempotency_token_formats[] = {
    { ngx_string("uuid"), NGX_HTTP_IDEMPOTENCY_UNIQUE_UUID },
    { ngx_string("uuid7"), NGX_HTTP_IDEMPOTENCY_UNIQUE_UUID7 },
    { ngx_string("snowflake"), NGX_HTTP_IDEMPOTENCY_UNIQUE_SNOWFLAKE },
    { ngx_null_string, 0 }
};


char *
ngx_http_idempotency_token(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_loc_conf_t *ilcf = conf;

    char                          *rv;
    ngx_str_t                     *value;
    ngx_uint_t                     i;
    ngx_http_idempotency_token_t  *token;

    token = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_token_t));
    if (token == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    token->ttl = NGX_HTTP_IDEMPOTENCY_TOKEN_TTL;

    for (i = 2; i < cf->args->nelts; i++) {
        rv = ngx_http_idempotency_token_param(cf, &value[i], token);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    if (token->format == NGX_HTTP_IDEMPOTENCY_UNIQUE_SNOWFLAKE) {
        token->zone = ngx_http_idempotency_unique_zone(cf);
        if (token->zone == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    ilcf->token = token;

    return ngx_http_idempotency_endpoint(cf, ilcf, &value[1],
                                         ngx_http_idempotency_token_handler,
                                         ngx_http_idempotency_token_act);
}


static char *
ngx_http_idempotency_token_param(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_idempotency_token_t *token)
{
    ngx_int_t         node;
    ngx_str_t         s;
    ngx_conf_enum_t  *format;

    if (ngx_strncmp(value->data, "ttl=", 4) == 0) {
        s.data = value->data + 4;
        s.len = value->len - 4;

        token->ttl = ngx_parse_time(&s, 1);

        if (token->ttl != (time_t) NGX_ERROR && token->ttl != 0) {
            return NGX_CONF_OK;
        }

    } else if (ngx_strncmp(value->data, "format=", 7) == 0) {

        for (format = ngx_http_idempotency_token_formats; format->name.len;
             format++)
        {
            if (ngx_strcmp(value->data + 7, format->name.data) == 0) {
                token->format = format->value;
                return NGX_CONF_OK;
            }
        }

    } else if (ngx_strncmp(value->data, "node=", 5) == 0) {
        node = ngx_atoi(value->data + 5, value->len - 5);

        if (node >= 0 && node <= NGX_HTTP_IDEMPOTENCY_UNIQUE_MAX_NODE) {
            token->node = node;
            return NGX_CONF_OK;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\" in \"idempotency_token\", it "
                       "takes \"ttl=TIME\" of a second at least, \"format=\" "
                       "with \"uuid\", \"uuid7\" or \"snowflake\", and "
                       "\"node=\" with a number from 0 to %d", value,
                       NGX_HTTP_IDEMPOTENCY_UNIQUE_MAX_NODE);

    return NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_idempotency_token_handler(ngx_http_request_t *r)
{
    ngx_int_t                         rc;
    ngx_http_idempotency_ctx_t       *ctx;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    static ngx_str_t  methods = ngx_string("GET, POST");

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    ctx = ngx_http_idempotency_context_create(r, ilcf);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->way = NGX_HTTP_IDEMPOTENCY_WAY_REFUSED;
    ctx->tokens = NGX_HTTP_IDEMPOTENCY_TOKEN_TRIES;

    /* whoever has the answer finalizes the request */

    r->main->count++;

    rc = (r->method & (NGX_HTTP_GET|NGX_HTTP_POST))
         ? ngx_http_idempotency_token_issue(r, ctx)
         : ngx_http_idempotency_endpoint_method(r, ctx, &methods);

    ngx_http_idempotency_endpoint_go(r, rc);

    return NGX_DONE;
}


/* NGX_DONE: the request was finalized */

static ngx_int_t
ngx_http_idempotency_token_issue(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    rc = ngx_http_idempotency_token_name(r, ctx);

    if (rc == NGX_DECLINED) {
        return ngx_http_idempotency_problem(r, ctx,
                                         NGX_HTTP_IDEMPOTENCY_SOURCE_MISSING);
    }

    if (rc != NGX_OK || ngx_http_idempotency_context_owner(ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_ISSUE);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->ttl = ctx->conf->token->ttl;

    return ngx_http_idempotency_endpoint_submit(r, ctx);
}


/* as ngx_http_idempotency_identify_record() */

static ngx_int_t
ngx_http_idempotency_token_name(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    u_char                        *p, *last;
    ngx_http_idempotency_token_t  *token;

    token = ctx->conf->token;

    p = ngx_pnalloc(r->pool, NGX_HTTP_IDEMPOTENCY_UNIQUE_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_http_idempotency_unique(token->format, token->zone,
                                       token->node, p);
    if (last == NULL) {
        ngx_log_error(NGX_LOG_CRIT, r->connection->log, 0,
                      "idempotency got no random bytes from libcrypto");
        return NGX_ERROR;
    }

    ctx->key.data = p;
    ctx->key.len = last - p;

    return ngx_http_idempotency_identify_record(r, ctx);
}


static ngx_int_t
ngx_http_idempotency_token_act(ngx_http_request_t *r)
{
    ngx_idempotency_op_t        *op;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_context_get(r);
    op = ctx->op;

    if (op->error == NGX_IDEMPOTENCY_ERROR_NONE) {

        if (op->result == NGX_IDEMPOTENCY_OK) {
            return ngx_http_idempotency_token_send(r, ctx);
        }

        if (--ctx->tokens) {
            return ngx_http_idempotency_token_issue(r, ctx);
        }
    }

    return ngx_http_idempotency_problem(r, ctx,
                                      NGX_HTTP_IDEMPOTENCY_STORE_UNAVAILABLE);
}


static ngx_int_t
ngx_http_idempotency_token_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    b = ngx_create_temp_buf(r->pool,
                            sizeof("{\"token\":\"\",\"expires_in\":}\n")
                            + ctx->key.len + NGX_TIME_T_LEN);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_sprintf(b->last, "{\"token\":\"%V\",\"expires_in\":%T}\n",
                          &ctx->key, ctx->conf->token->ttl);
    b->last_buf = 1;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    if (ngx_http_idempotency_header_no_store(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.status = NGX_HTTP_OK;
    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_length_n = b->last - b->pos;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, &out);
}
