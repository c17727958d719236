
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
#include "ngx_idempotency_random.h"
#include "ngx_idempotency_zone.h"


#define NGX_HTTP_IDEMPOTENCY_TOKEN_TTL    3600

/* so many names are tried that the store knows already */
#define NGX_HTTP_IDEMPOTENCY_TOKEN_TRIES  8

/* the longest name: a UUID */
#define NGX_HTTP_IDEMPOTENCY_TOKEN_LEN    36

/* snowflakes: milliseconds since 2024-01-01T00:00:00Z, 41 bits until 2093 */
#define NGX_HTTP_IDEMPOTENCY_TOKEN_EPOCH  1704067200000ULL

#define NGX_HTTP_IDEMPOTENCY_TOKEN_COUNT_BITS  12
#define NGX_HTTP_IDEMPOTENCY_TOKEN_NODE_BITS   10
#define NGX_HTTP_IDEMPOTENCY_TOKEN_MAX_NODE    1023


typedef enum {
    NGX_HTTP_IDEMPOTENCY_TOKEN_UUID = 0,
    NGX_HTTP_IDEMPOTENCY_TOKEN_UUID7,
    NGX_HTTP_IDEMPOTENCY_TOKEN_SNOWFLAKE
} ngx_http_idempotency_token_format_e;


struct ngx_http_idempotency_token_s {
    time_t                                ttl;
    ngx_http_idempotency_token_format_e   format;
    ngx_uint_t                            node;   /* of snowflakes */
    ngx_shm_zone_t                       *zone;   /* and their last number */
};


static char *ngx_http_idempotency_token_param(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_idempotency_token_t *token);
static ngx_int_t ngx_http_idempotency_token_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_token_issue(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_token_name(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_token_uuid(
    ngx_http_idempotency_token_t *token, ngx_str_t *name);
static void ngx_http_idempotency_token_snowflake(
    ngx_http_idempotency_token_t *token, ngx_str_t *name);
static uint64_t ngx_http_idempotency_token_msec(void);
static ngx_int_t ngx_http_idempotency_token_reply(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_token_send(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);


/* tells the zone from a store of the same name */

static ngx_uint_t  ngx_http_idempotency_token_tag;


static ngx_conf_enum_t  ngx_http_idempotency_token_formats[] = {
    { ngx_string("uuid"), NGX_HTTP_IDEMPOTENCY_TOKEN_UUID },
    { ngx_string("uuid7"), NGX_HTTP_IDEMPOTENCY_TOKEN_UUID7 },
    { ngx_string("snowflake"), NGX_HTTP_IDEMPOTENCY_TOKEN_SNOWFLAKE },
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

    static ngx_str_t  name = ngx_string("idempotency_token");

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

    if (token->format == NGX_HTTP_IDEMPOTENCY_TOKEN_SNOWFLAKE) {
        token->zone = ngx_idempotency_zone_add(cf, &name, sizeof(ngx_atomic_t),
                                            &ngx_http_idempotency_token_tag);
        if (token->zone == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    ilcf->token = token;

    return ngx_http_idempotency_endpoint(cf, ilcf, &value[1],
                                         ngx_http_idempotency_token_handler,
                                         ngx_http_idempotency_token_reply);
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

        if (node >= 0 && node <= NGX_HTTP_IDEMPOTENCY_TOKEN_MAX_NODE) {
            token->node = node;
            return NGX_CONF_OK;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\" in \"idempotency_token\", it "
                       "takes \"ttl=TIME\" of a second at least, \"format=\" "
                       "with \"uuid\", \"uuid7\" or \"snowflake\", and "
                       "\"node=\" with a number from 0 to %d", value,
                       NGX_HTTP_IDEMPOTENCY_TOKEN_MAX_NODE);

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

    ctx = ngx_http_idempotency_context_create(r, ilcf, NULL);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_idempotency_set_state(ctx, NGX_HTTP_IDEMPOTENCY_STATE_REFUSED);
    ctx->tokens = NGX_HTTP_IDEMPOTENCY_TOKEN_TRIES;

    /* ngx_http_idempotency_endpoint_go() finalizes the request */

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

    if (rc != NGX_OK
        || ngx_idempotency_random(ctx->id.owner, NGX_IDEMPOTENCY_OWNER_LEN)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op = ngx_http_idempotency_context_op(ctx, NGX_IDEMPOTENCY_ISSUE);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->ttl = ctx->conf->token->ttl;

    return ngx_http_idempotency_endpoint_submit(r, ctx);
}


/* A new key.  Returns as ngx_http_idempotency_identify_record(). */

static ngx_int_t
ngx_http_idempotency_token_name(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t                     *key;
    ngx_http_idempotency_token_t  *token;

    token = ctx->conf->token;
    key = &ctx->identity.key;

    key->data = ngx_pnalloc(r->pool, NGX_HTTP_IDEMPOTENCY_TOKEN_LEN);
    if (key->data == NULL) {
        return NGX_ERROR;
    }

    if (token->format == NGX_HTTP_IDEMPOTENCY_TOKEN_SNOWFLAKE) {
        ngx_http_idempotency_token_snowflake(token, key);

    } else if (ngx_http_idempotency_token_uuid(token, key) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_identify_record(r, ctx);
}


/* RFC 9562, versions 4 and 7 */

static ngx_int_t
ngx_http_idempotency_token_uuid(ngx_http_idempotency_token_t *token,
    ngx_str_t *name)
{
    u_char      *p;
    u_char       uuid[16];
    uint64_t     msec;
    ngx_uint_t   i, version;

    if (ngx_idempotency_random(uuid, sizeof(uuid)) != NGX_OK) {
        return NGX_ERROR;
    }

    version = 4;

    if (token->format == NGX_HTTP_IDEMPOTENCY_TOKEN_UUID7) {
        version = 7;
        msec = ngx_http_idempotency_token_msec();

        for (i = 0; i < 6; i++) {
            uuid[i] = (u_char) (msec >> (40 - 8 * i));
        }
    }

    uuid[6] = (u_char) ((uuid[6] & 0x0f) | (version << 4));
    uuid[8] = (u_char) ((uuid[8] & 0x3f) | 0x80);

    p = name->data;

    for (i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *p++ = '-';
        }

        p = ngx_hex_dump(p, &uuid[i], 1);
    }

    name->len = p - name->data;

    return NGX_OK;
}


/*
 * Time and count are one number, which only grows: a full count runs into the
 * next millisecond, and after a step back of the clock it goes on counting.
 * All workers share it, and reloads keep it.
 */

static void
ngx_http_idempotency_token_snowflake(ngx_http_idempotency_token_t *token,
    ngx_str_t *name)
{
    uint64_t            msec, number;
    ngx_atomic_t       *last;
    ngx_atomic_uint_t   old, next;

    last = token->zone->data;

    do {
        msec = ngx_http_idempotency_token_msec();

        msec = (msec > NGX_HTTP_IDEMPOTENCY_TOKEN_EPOCH)
               ? msec - NGX_HTTP_IDEMPOTENCY_TOKEN_EPOCH : 0;

        old = *last;
        next = (ngx_atomic_uint_t) msec
               << NGX_HTTP_IDEMPOTENCY_TOKEN_COUNT_BITS;

        if (next <= old) {
            next = old + 1;
        }

    } while (!ngx_atomic_cmp_set(last, old, next));

    number = next >> NGX_HTTP_IDEMPOTENCY_TOKEN_COUNT_BITS;
    number = (number << NGX_HTTP_IDEMPOTENCY_TOKEN_NODE_BITS) | token->node;
    number = (number << NGX_HTTP_IDEMPOTENCY_TOKEN_COUNT_BITS)
             | (next & ((1 << NGX_HTTP_IDEMPOTENCY_TOKEN_COUNT_BITS) - 1));

    name->len = ngx_sprintf(name->data, "%uL", number) - name->data;
}


static uint64_t
ngx_http_idempotency_token_msec(void)
{
    struct timeval  tv;

    ngx_gettimeofday(&tv);

    return (uint64_t) tv.tv_sec * 1000 + tv.tv_usec / 1000;
}


static ngx_int_t
ngx_http_idempotency_token_reply(ngx_http_request_t *r)
{
    ngx_idempotency_op_t        *op;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r);
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
                            + ctx->identity.key.len + NGX_TIME_T_LEN);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_sprintf(b->last, "{\"token\":\"%V\",\"expires_in\":%T}\n",
                          &ctx->identity.key, ctx->conf->token->ttl);
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
