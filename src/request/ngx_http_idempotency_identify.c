
/*
 * Key, source and scope: find, check, name the record.
 */


#include "ngx_http_idempotency_identify.h"
#include "ngx_http_idempotency_digest.h"
#include "ngx_http_idempotency_key.h"


static ngx_int_t ngx_http_idempotency_identify_number(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_identify_dry(
    ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_identify_same(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_identify_find(ngx_http_request_t *r,
    ngx_str_t *name, ngx_table_elt_t **line);
static ngx_int_t ngx_http_idempotency_identify_parse(ngx_pool_t *pool,
    ngx_str_t *value, size_t max, ngx_str_t *key);


ngx_int_t
ngx_http_idempotency_identify_header(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    uint64_t                            number;
    ngx_int_t                           rc;
    ngx_http_idempotency_loc_conf_t    *ilcf;
    ngx_http_idempotency_key_header_t  *header;

    ilcf = ctx->conf;
    header = &ctx->key_header;

    if (ilcf->key_header.len == 0) {
        return NGX_OK;
    }

    header->conf = NULL;

    rc = ngx_http_idempotency_identify_find(r, &ilcf->key_header,
                                            &header->line);
    if (rc != NGX_OK) {
        return rc;
    }

    header->value = header->line->value;
    header->last = r->headers_in.headers.last;
    header->n = header->last->nelts;

    rc = ngx_http_idempotency_identify_parse(r->pool, &header->value,
                                             ilcf->max_key, &ctx->key);

    if (rc == NGX_OK && ilcf->sequence) {
        rc = ngx_http_idempotency_key_number(&ctx->key, &number);
    }

    if (rc != NGX_OK) {
        ngx_str_null(&ctx->key);
        return rc;
    }

    header->conf = ilcf;

    return NGX_OK;
}


/* the access modules have left the header lines as they were */

static ngx_uint_t
ngx_http_idempotency_identify_same(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_idempotency_key_header_t  *header;

    header = &ctx->key_header;

    return header->conf == ctx->conf
           && header->line->value.data == header->value.data
           && header->line->value.len == header->value.len
           && header->last == r->headers_in.headers.last
           && header->n == header->last->nelts;
}


ngx_int_t
ngx_http_idempotency_identify_key(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                         rc;
    ngx_str_t                         value;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ilcf = ctx->conf;

    if (ilcf->key_header.len) {

        if (!ngx_http_idempotency_identify_same(r, ctx)) {
            rc = ngx_http_idempotency_identify_header(r, ctx);
            if (rc != NGX_OK) {
                return rc;
            }
        }

    } else {
        if (ngx_http_complex_value(r, ilcf->key, &value) != NGX_OK) {
            return NGX_ERROR;
        }

        if (value.len == 0) {
            return NGX_DECLINED;
        }

        rc = ngx_http_idempotency_identify_parse(r->pool, &value,
                                                 ilcf->max_key, &ctx->key);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    return ilcf->sequence ? ngx_http_idempotency_identify_number(r, ctx)
                          : NGX_OK;
}


/* the key is the number of a sequence, and the epoch is one too */

static ngx_int_t
ngx_http_idempotency_identify_number(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ctx->flags = ctx->conf->sequence;

    if (ngx_http_idempotency_key_number(&ctx->key, &ctx->number) != NGX_OK) {
        return NGX_ABORT;
    }

    if (ctx->conf->epoch == NULL) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, ctx->conf->epoch, &ctx->epoch_text)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_key_number(&ctx->epoch_text, &ctx->epoch);
}


/*
 * Compares as $http_NAME does: case does not matter and "_" stands for "-".
 * A second line of that name makes the key ambiguous.
 */

static ngx_int_t
ngx_http_idempotency_identify_find(ngx_http_request_t *r, ngx_str_t *name,
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


static ngx_int_t
ngx_http_idempotency_identify_parse(ngx_pool_t *pool, ngx_str_t *value,
    size_t max, ngx_str_t *key)
{
    u_char  *p;
    size_t   escapes;

    if (ngx_http_idempotency_key_parse(value, max, key, &escapes) != NGX_OK) {
        return NGX_ABORT;
    }

    if (escapes) {
        p = ngx_pnalloc(pool, key->len);
        if (p == NULL) {
            return NGX_ERROR;
        }

        ngx_http_idempotency_key_unescape(key, p);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idempotency_identify_record(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    u_char  tag[NGX_IDEMPOTENCY_DIGEST_LEN];

    static ngx_str_t  records[] = {
        ngx_string("record 1"), ngx_string("dry record 1")
    };
    static ngx_str_t  sequences[] = {
        ngx_string("sequence 1"), ngx_string("dry sequence 1")
    };

    if (ctx->conf->source == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_http_complex_value(r, ctx->conf->source, &ctx->source) != NGX_OK) {
        return NGX_ERROR;
    }

    /* no longer than its constant part: all of its variables are empty */

    if (ctx->source.len <= ctx->conf->source_text) {
        ngx_str_null(&ctx->source);
        return NGX_DECLINED;
    }

    if (ngx_http_complex_value(r, ctx->conf->scope, &ctx->scope) != NGX_OK) {
        return NGX_ERROR;
    }

    /* that of a sequence was read with the number */

    if (ctx->flags == 0
        && ctx->conf->epoch
        && ngx_http_complex_value(r, ctx->conf->epoch, &ctx->epoch_text)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_idempotency_identify_digest(r, ctx,
                                             &records[ctx->conf->dry_run],
                                             ctx->digest)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->flags == 0) {
        ngx_http_idempotency_identify_dry(ctx);
        return NGX_OK;
    }

    /* half of the name is that of the sequence, and of its mark */

    if (ngx_http_idempotency_digest_start(r->connection->log) != NGX_OK
        || ngx_http_idempotency_digest_add_part(
                                           &sequences[ctx->conf->dry_run])
           != NGX_OK
        || ngx_http_idempotency_digest_add_part(&ctx->scope) != NGX_OK
        || ngx_http_idempotency_digest_add_part(&ctx->source) != NGX_OK
        || ngx_http_idempotency_digest_finish(tag) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_memcpy(ctx->digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2, ctx->digest,
               NGX_IDEMPOTENCY_DIGEST_LEN / 2);
    ngx_memcpy(ctx->digest, tag, NGX_IDEMPOTENCY_DIGEST_LEN / 2);

    ngx_http_idempotency_identify_dry(ctx);

    return NGX_OK;
}


/* whoever lists records knows those of dry runs by their last bytes */

static void
ngx_http_idempotency_identify_dry(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->conf->dry_run) {
        ngx_memcpy(ctx->digest + NGX_IDEMPOTENCY_DIGEST_LEN
                   - NGX_IDEMPOTENCY_DRY_LEN,
                   NGX_IDEMPOTENCY_DRY, NGX_IDEMPOTENCY_DRY_LEN);
    }
}


ngx_int_t
ngx_http_idempotency_identify_digest(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_str_t *purpose, u_char *digest)
{
    if (ngx_http_idempotency_digest_start(r->connection->log) != NGX_OK
        || ngx_http_idempotency_digest_add_part(purpose) != NGX_OK
        || ngx_http_idempotency_digest_add_part(&ctx->scope) != NGX_OK
        || ngx_http_idempotency_digest_add_part(&ctx->source) != NGX_OK
        || ngx_http_idempotency_digest_add_part(&ctx->key) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->epoch_text.len
        && ngx_http_idempotency_digest_add_part(&ctx->epoch_text) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_digest_finish(digest);
}
