
/*
 * Fields of the body as variables.
 */


#include "ngx_http_idempotency_field.h"
#include "ngx_http_idempotency_body.h"
#include "ngx_http_idempotency_context.h"
#include "ngx_idempotency_number.h"


static void ngx_http_idempotency_field_twice(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *name);
static ngx_int_t ngx_http_idempotency_field_load(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_uint_t json);
static ngx_int_t ngx_http_idempotency_field_take(ngx_http_request_t *r,
    ngx_idempotency_body_tree_t *tree, ngx_idempotency_body_tree_node_t *node,
    ngx_http_idempotency_field_value_t *value);
static ngx_uint_t ngx_http_idempotency_field_expects(ngx_http_request_t *r,
    ngx_uint_t json);


ngx_int_t
ngx_http_idempotency_field_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_idempotency_field_t *field = (ngx_http_idempotency_field_t *) data;

    ngx_http_idempotency_ctx_t          *ctx;
    ngx_http_idempotency_field_value_t  *value;

    ctx = ngx_http_idempotency_get_ctx(r->main);

    v->not_found = 1;

    if (ctx == NULL || !ctx->request_body.read) {
        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "idempotency field \"%V\" before the body",
                       &field->name);
        return NGX_OK;
    }

    if (field->json ? !ctx->request_body.json_parsed
                    : !ctx->request_body.form_parsed)
    {
        if (ngx_http_idempotency_field_load(r->main, ctx, field->json)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    value = &ctx->request_body.fields[field->index];

    if (value->twice) {

        /* it is not known which of them the upstream would take */

        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "idempotency field \"%V\" occurs twice in the form",
                      &field->name);
        ctx->request_body.invalid = 1;
        ngx_http_idempotency_field_twice(r->main, ctx, &field->path.names[0]);
        return NGX_OK;
    }

    if (!value->found) {
        return NGX_OK;
    }

    v->data = value->text.data;
    v->len = value->text.len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


/* the reason for the answer; without memory there is none */

static void
ngx_http_idempotency_field_twice(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *name)
{
    u_char  *p, *last;

    static ngx_str_t  before = ngx_string("ambiguous: it has twice the field ");

    p = ngx_pnalloc(r->pool, before.len + name->len
                             + ngx_escape_json(NULL, name->data, name->len));
    if (p == NULL) {
        return;
    }

    last = ngx_cpymem(p, before.data, before.len);
    last = (u_char *) ngx_escape_json(last, name->data, name->len);

    ctx->request_body.error.data = p;
    ctx->request_body.error.len = last - p;
}


/* all fields of that kind at once */

static ngx_int_t
ngx_http_idempotency_field_load(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_uint_t json)
{
    ngx_int_t                          rc;
    ngx_uint_t                         i;
    ngx_idempotency_body_tree_t        tree;
    ngx_http_idempotency_field_t     **field;
    ngx_idempotency_body_tree_node_t  *node;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    if (ctx->request_body.fields == NULL) {
        ctx->request_body.fields = ngx_pcalloc(r->pool, imcf->fields.nelts
                                * sizeof(ngx_http_idempotency_field_value_t));
        if (ctx->request_body.fields == NULL) {
            return NGX_ERROR;
        }
    }

    if (json) {
        ctx->request_body.json_parsed = 1;

    } else {
        ctx->request_body.form_parsed = 1;
    }

    if (!ngx_http_idempotency_field_expects(r, json)) {
        return NGX_OK;
    }

    rc = ngx_http_idempotency_body_parse(r, json, &tree);

    if (rc == NGX_DECLINED) {
        ctx->request_body.invalid = 1;
    }

    field = imcf->fields.elts;

    for (i = 0; rc == NGX_OK && i < imcf->fields.nelts; i++) {

        if (field[i]->json != json) {
            continue;
        }

        node = ngx_idempotency_body_tree_find(&tree, field[i]->path.names,
                                              field[i]->path.n);
        if (node) {
            rc = ngx_http_idempotency_field_take(r, &tree, node,
                                                 &ctx->request_body.fields[i]);
        }
    }

    ngx_http_idempotency_body_free(r, &tree);

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_field_take(ngx_http_request_t *r,
    ngx_idempotency_body_tree_t *tree, ngx_idempotency_body_tree_node_t *node,
    ngx_http_idempotency_field_value_t *value)
{
    u_char                            *p;
    ngx_idempotency_body_tree_node_t  *next;

    next = &tree->nodes[node->next];

    if (node->next
        && next->name_len == node->name_len
        && ngx_memcmp(next->name, node->name, node->name_len) == 0)
    {
        value->twice = 1;
        return NGX_OK;
    }

    if (node->type != NGX_IDEMPOTENCY_BODY_TREE_STRING
        && node->type != NGX_IDEMPOTENCY_BODY_TREE_NUMBER)
    {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, ngx_idempotency_number_room(node->len));
    if (p == NULL) {
        return NGX_ERROR;
    }

    value->text.data = p;

    p = (node->type == NGX_IDEMPOTENCY_BODY_TREE_NUMBER)
        ? ngx_idempotency_number_write(p, node->data, node->len)
        : ngx_cpymem(p, node->data, node->len);

    value->text.len = p - value->text.data;
    value->found = 1;

    return NGX_OK;
}


/*
 * Is the body JSON, or a form, by its Content-Type?  Without one it is taken
 * for JSON.
 */

static ngx_uint_t
ngx_http_idempotency_field_expects(ngx_http_request_t *r, ngx_uint_t json)
{
    u_char     *p, *last;
    ngx_str_t   type;

    static ngx_str_t  form = ngx_string("application/x-www-form-urlencoded");
    static ngx_str_t  suffix = ngx_string("json");

    if (r->headers_in.content_type == NULL
        || r->headers_in.content_type->value.len == 0)
    {
        return json;
    }

    type = r->headers_in.content_type->value;

    last = ngx_strlchr(type.data, type.data + type.len, ';');

    if (last) {
        type.len = last - type.data;
    }

    while (type.len && type.data[type.len - 1] == ' ') {
        type.len--;
    }

    if (!json) {
        return type.len == form.len
               && ngx_strncasecmp(type.data, form.data, form.len) == 0;
    }

    /* application/json, text/json, application/problem+json */

    if (type.len <= suffix.len) {
        return 0;
    }

    p = type.data + type.len - suffix.len;

    return (p[-1] == '/' || p[-1] == '+')
           && ngx_strncasecmp(p, suffix.data, suffix.len) == 0;
}
