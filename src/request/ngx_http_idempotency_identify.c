
/*
 * Key, source and scope: find, check, name the record.
 */


#include "ngx_http_idempotency_identify.h"
#include "ngx_http_idempotency_jsonrpc.h"
#include "ngx_idempotency_digest.h"
#include "ngx_idempotency_key.h"


static ngx_uint_t ngx_http_idempotency_identify_same_header(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_identify_digest(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const ngx_str_t *purpose,
    u_char *digest);
static ngx_int_t ngx_http_idempotency_identify_scope(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_identify_parse_uri(
    ngx_http_request_t *r, ngx_str_t *uri);
static ngx_int_t ngx_http_idempotency_identify_parse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *value);


ngx_int_t
ngx_http_idempotency_identify_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                           rc;
    ngx_http_idempotency_loc_conf_t    *ilcf;
    ngx_http_idempotency_key_header_t  *header;

    ilcf = ctx->conf;
    header = &ctx->identity.header;

    if (ilcf->key_header.len == 0) {
        return NGX_OK;
    }

    header->conf = NULL;

    rc = ngx_http_idempotency_identify_line(r, &ilcf->key_header,
                                            &header->line);
    if (rc != NGX_OK) {
        return rc;
    }

    header->value = header->line->value;
    header->last = r->headers_in.headers.last;
    header->n = header->last->nelts;

    rc = ngx_http_idempotency_identify_parse(r, ctx, &header->value);
    if (rc != NGX_OK) {
        ngx_str_null(&ctx->identity.key);
        return rc;
    }

    header->conf = ilcf;

    return NGX_OK;
}


/*
 * Compares as $http_NAME does: case does not matter and "_" stands for "-".
 * A second line of that name makes the key ambiguous.
 */

ngx_int_t
ngx_http_idempotency_identify_line(ngx_http_request_t *r, ngx_str_t *name,
    ngx_table_elt_t **line)
{
    u_char            ch;
    size_t            n;
    ngx_uint_t        i, found;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    found = 0;
    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len != name->len) {
            continue;
        }

        for (n = 0; n < name->len; n++) {
            ch = h[i].lowcase_key[n];

            if ((ch == '-' ? '_' : ch) != name->data[n]) {
                break;
            }
        }

        if (n < name->len) {
            continue;
        }

        if (found++) {
            return NGX_ABORT;
        }

        *line = &h[i];
    }

    return found ? NGX_OK : NGX_DECLINED;
}


/* The number of a sequence is the key itself. */

static ngx_int_t
ngx_http_idempotency_identify_parse(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *value)
{
    u_char     *p;
    size_t      escapes;
    ngx_str_t  *key;

    key = &ctx->identity.key;

    /* the draft is about a header: other values are not structured fields */

    if (ngx_idempotency_key_parse(value, ctx->conf->max_key,
                                  ctx->conf->strict_key
                                  && ctx->conf->key_header.len,
                                  key, &escapes)
        != NGX_OK)
    {
        return NGX_ABORT;
    }

    if (escapes) {
        p = ngx_pnalloc(r->pool, key->len);
        if (p == NULL) {
            return NGX_ERROR;
        }

        ngx_idempotency_key_unescape(key, p);
    }

    ctx->id.number = 0;

    return ctx->conf->sequence
           ? ngx_idempotency_key_number(key, &ctx->id.number) : NGX_OK;
}


ngx_int_t
ngx_http_idempotency_identify_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                         rc;
    ngx_str_t                         value;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ilcf = ctx->conf;

    if (ilcf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC
        && ctx->request_body.read)
    {
        rc = ngx_http_idempotency_jsonrpc(r, ctx);

        if (rc != NGX_OK) {
            ctx->request_body.invalid = (rc == NGX_DECLINED);
            return rc;
        }
    }

    if (ilcf->key_header.len) {

        rc = ngx_http_idempotency_identify_same_header(r, ctx)
             ? NGX_OK : ngx_http_idempotency_identify_header(r, ctx);

    } else if (ctx->jsonrpc && ilcf->given.key == NULL) {
        rc = ngx_http_idempotency_jsonrpc_key(r, ctx, &value);

        if (rc == NGX_OK) {
            rc = ngx_http_idempotency_identify_parse(r, ctx, &value);
        }

    } else {
        if (ngx_http_complex_value(r, ilcf->key, &value) != NGX_OK) {
            return NGX_ERROR;
        }

        if (value.len == 0) {
            return NGX_DECLINED;
        }

        rc = ngx_http_idempotency_identify_parse(r, ctx, &value);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    ctx->identity.flags = ilcf->sequence;
    ctx->id.epoch = 0;

    if (!ilcf->sequence || ilcf->epoch == NULL) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, ilcf->epoch, &ctx->identity.epoch)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_idempotency_key_number(&ctx->identity.epoch, &ctx->id.epoch);
}


/* The access modules have left the header lines as they were. */

static ngx_uint_t
ngx_http_idempotency_identify_same_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_key_header_t  *header;

    header = &ctx->identity.header;

    return header->conf == ctx->conf
           && header->line->value.data == header->value.data
           && header->line->value.len == header->value.len
           && header->last == r->headers_in.headers.last
           && header->n == header->last->nelts;
}


ngx_int_t
ngx_http_idempotency_identify_record(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->conf->source == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_http_complex_value(r, ctx->conf->source, &ctx->identity.source)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* no longer than its constant part: all of its variables are empty */

    if (ctx->identity.source.len <= ctx->conf->source_text) {
        ngx_str_null(&ctx->identity.source);
        return NGX_DECLINED;
    }

    if (ngx_http_idempotency_identify_scope(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    /* the epoch of a sequence was read with its number */

    if (ctx->identity.flags == 0
        && ctx->conf->epoch
        && ngx_http_complex_value(r, ctx->conf->epoch, &ctx->identity.epoch)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_identify_name(r, ctx, ctx->conf->dry_run,
                                              ctx->id.digest);
}


/*
 * The default is put together here: the same bytes in a third of the time that
 * its variables take.
 */

static ngx_int_t
ngx_http_idempotency_identify_scope(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    u_char     *p;
    ngx_str_t   uri, *method, *scope;

    scope = &ctx->identity.scope;

    if (!ctx->conf->scope_is_default) {
        return ngx_http_complex_value(r, ctx->conf->scope, scope);
    }

    if (ngx_http_idempotency_identify_uri(r, &uri) == NGX_ERROR) {
        return NGX_ERROR;
    }

    method = &r->method_name;

    p = ngx_pnalloc(r->pool, method->len + 1 + uri.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    scope->data = p;

    p = ngx_cpymem(p, method->data, method->len);
    *p++ = ' ';
    p = ngx_cpymem(p, uri.data, uri.len);

    scope->len = p - scope->data;

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_identify_uri(ngx_http_request_t *r, ngx_str_t *uri)
{
    if (r->uri.len && r->uri.data == r->unparsed_uri.data) {
        *uri = r->uri;
        return NGX_OK;
    }

    ngx_str_null(uri);

    return ngx_http_idempotency_identify_parse_uri(r, uri);
}


/*
 * Reads the request's URI once more, as ngx_http_process_request_uri() did.
 * That was done before HTTP/1 knew the virtual server.
 */

static ngx_int_t
ngx_http_idempotency_identify_parse_uri(ngx_http_request_t *r, ngx_str_t *uri)
{
    u_char                    *p;
    size_t                     len;
    ngx_http_request_t         request;
    ngx_http_core_srv_conf_t  *cscf;

    len = r->unparsed_uri.len;

    /* the parser reads a byte behind the URI; an empty path becomes "/" */

    p = ngx_pnalloc(r->pool, 2 * (len + 1));
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&request, sizeof(ngx_http_request_t));

    request.connection = r->connection;
    request.empty_path_in_uri = r->empty_path_in_uri;
    request.uri_start = p;
    request.uri_end = ngx_cpymem(p, r->unparsed_uri.data, len);
    request.uri.data = request.uri_end + 1;

    *request.uri_end = ' ';

    if (r->http_version < NGX_HTTP_VERSION_20) {
        cscf = r->http_connection->conf_ctx->srv_conf
                                              [ngx_http_core_module.ctx_index];

    } else {
        cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
    }

    if (ngx_http_parse_complex_uri(&request, cscf->merge_slashes) != NGX_OK) {
        return NGX_DECLINED;
    }

    *uri = request.uri;

    return uri->len ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_http_idempotency_identify_name(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_uint_t dry_run, u_char *digest)
{
    u_char            sequence[NGX_IDEMPOTENCY_DIGEST_LEN];
    const ngx_str_t  *parts[3];

    static ngx_str_t  records[] = {
        ngx_string("record 1"), ngx_string("dry record 1")
    };
    static ngx_str_t  sequences[] = {
        ngx_string("sequence 1"), ngx_string("dry sequence 1")
    };

    if (ngx_http_idempotency_identify_digest(r, ctx, &records[dry_run],
                                             digest)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->identity.flags) {

        /* the first half is the same for all records of the sequence */

        parts[0] = &sequences[dry_run];
        parts[1] = &ctx->identity.scope;
        parts[2] = &ctx->identity.source;

        if (ngx_idempotency_digest(r->connection->log, parts, 3, sequence)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        ngx_memcpy(digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2, digest,
                   NGX_IDEMPOTENCY_DIGEST_LEN / 2);
        ngx_memcpy(digest, sequence, NGX_IDEMPOTENCY_DIGEST_LEN / 2);
    }

    if (dry_run) {

        /* a list of records knows those of dry runs by their last bytes */

        ngx_memcpy(digest + NGX_IDEMPOTENCY_DIGEST_LEN
                   - NGX_IDEMPOTENCY_DRY_LEN,
                   NGX_IDEMPOTENCY_DRY, NGX_IDEMPOTENCY_DRY_LEN);
    }

    return NGX_OK;
}


/* digests that are made for different purposes have nothing in common */

static ngx_int_t
ngx_http_idempotency_identify_digest(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const ngx_str_t *purpose, u_char *digest)
{
    const ngx_str_t  *parts[5];

    parts[0] = purpose;
    parts[1] = &ctx->identity.scope;
    parts[2] = &ctx->identity.source;
    parts[3] = &ctx->identity.key;
    parts[4] = &ctx->identity.epoch;

    return ngx_idempotency_digest(r->connection->log, parts,
                                  ctx->identity.epoch.len ? 5 : 4, digest);
}
