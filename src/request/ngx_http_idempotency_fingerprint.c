
/*
 * The fingerprint: what must be equal in a duplicate.
 */


#include "ngx_http_idempotency_fingerprint.h"
#include "ngx_http_idempotency_body.h"
#include "ngx_http_idempotency_jsonrpc.h"
#include "ngx_idempotency_canonical.h"
#include "ngx_idempotency_digest.h"
#include "ngx_idempotency_multipart.h"


/*
 * A record says how its fingerprint was made: the kind, in the highest three
 * bits of 16, and below them a hash of the text of with= and of the lists.
 * Versions of this module that did not write this have left 0.
 */

#define NGX_HTTP_IDEMPOTENCY_FINGERPRINT_BITS  13
#define NGX_HTTP_IDEMPOTENCY_FINGERPRINT_HASH                                 \
    ((1 << NGX_HTTP_IDEMPOTENCY_FINGERPRINT_BITS) - 1)

#define ngx_http_idempotency_fingerprint_how(kind, hash)                      \
    ((kind) << NGX_HTTP_IDEMPOTENCY_FINGERPRINT_BITS | (hash))


/* the lists of the location, for the multipart body that is being read */

typedef struct {
    ngx_array_t                       *include;
    ngx_array_t                       *exclude;
    ngx_uint_t                         skip;      /* this part */
} ngx_http_idempotency_fingerprint_lists_t;


static ngx_uint_t ngx_http_idempotency_fingerprint_is_multipart(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_fingerprint_make(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_uint_t kind, ngx_uint_t lists);
static ngx_int_t ngx_http_idempotency_fingerprint_raw_parts(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_fingerprint_multipart(
    ngx_http_request_t *r, ngx_array_t *include, ngx_array_t *exclude);
static ngx_int_t ngx_http_idempotency_fingerprint_parts(ngx_http_request_t *r,
    ngx_uint_t parts);
static ngx_int_t ngx_http_idempotency_fingerprint_parts_body(
    const u_char *data, size_t len);
static ngx_int_t ngx_http_idempotency_fingerprint_parts_event(
    ngx_idempotency_multipart_t *mp,
    ngx_idempotency_multipart_event_e event, const u_char *data,
    size_t len);
static ngx_int_t ngx_http_idempotency_fingerprint_part_head(
    ngx_idempotency_multipart_part_t *part);
static ngx_uint_t ngx_http_idempotency_fingerprint_listed(ngx_array_t *paths,
    ngx_str_t *name);
static ngx_int_t ngx_http_idempotency_fingerprint_doc(ngx_http_request_t *r,
    ngx_uint_t json, ngx_uint_t jsonrpc, ngx_array_t *include,
    ngx_array_t *exclude);
static void ngx_http_idempotency_fingerprint_mark(
    ngx_idempotency_body_tree_t *tree, ngx_array_t *paths, ngx_uint_t mark);
static ngx_uint_t ngx_http_idempotency_fingerprint_made(
    ngx_http_idempotency_loc_conf_t *ilcf, const u_char *fingerprint);
static ngx_int_t ngx_http_idempotency_fingerprint_make_as(
    ngx_http_request_t *r, ngx_http_idempotency_ctx_t *ctx, ngx_uint_t how);
static uint32_t ngx_http_idempotency_fingerprint_paths(ngx_array_t *paths,
    u_char type);
static ngx_int_t ngx_http_idempotency_fingerprint_with(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_secret_t *secret);


static ngx_idempotency_multipart_t  ngx_http_idempotency_fingerprint_reader;
static ngx_http_idempotency_fingerprint_lists_t
    ngx_http_idempotency_fingerprint_lists;


/* in the order of the numbers of the kinds */

static ngx_str_t  ngx_http_idempotency_fingerprint_kinds[] = {
    ngx_null_string,
    ngx_string("fingerprint raw 1"),
    ngx_string("fingerprint json 1"),
    ngx_string("fingerprint form 1"),
    ngx_string("fingerprint multipart 1"),
    ngx_string("fingerprint raw multipart 1")
};


ngx_int_t
ngx_http_idempotency_fingerprint(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_uint_t                  kind;
    ngx_idempotency_secret_t  **secret;

    kind = ctx->conf->fingerprint;

    if (kind == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF) {
        return NGX_OK;
    }

    rc = NGX_DECLINED;

    if (kind == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW
        && ngx_http_idempotency_fingerprint_is_multipart(r))
    {
        rc = ngx_http_idempotency_fingerprint_make(r, ctx,
                               NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW_PARTS, 1);
    }

    /* a body that is not well-formed counts byte by byte */

    if (rc == NGX_DECLINED) {
        rc = ngx_http_idempotency_fingerprint_make(r, ctx, kind, 1);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    secret = ctx->conf->secrets ? ctx->conf->secrets->elts : NULL;

    return ngx_http_idempotency_fingerprint_with(r, ctx,
                                                 secret ? secret[0] : NULL);
}


static ngx_uint_t
ngx_http_idempotency_fingerprint_is_multipart(ngx_http_request_t *r)
{
    ngx_table_elt_t  *type;

    type = r->headers_in.content_type;

    /* the first character is enough to exclude most requests */

    return type
           && type->value.len
           && (type->value.data[0] | 0x20) == 'm'
           && ngx_idempotency_multipart_is(&type->value);
}


/*
 * Sets ctx->identity.content and how it was made; "lists": with the lists of
 * the location.
 */

static ngx_int_t
ngx_http_idempotency_fingerprint_make(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_uint_t kind, ngx_uint_t lists)
{
    u_char                           *p;
    ngx_int_t                         rc;
    ngx_str_t                         with;
    ngx_uint_t                        how;
    const ngx_str_t                  *parts[2];
    ngx_array_t                      *include, *exclude;
    ngx_http_idempotency_loc_conf_t  *ilcf;

    ilcf = ctx->conf;

    if (ilcf->with_is_query && r->args.len == 0) {
        ngx_str_null(&with);

    } else if (ngx_http_complex_value(r, ilcf->fingerprint_with, &with)
               != NGX_OK)
    {
        return NGX_ERROR;
    }

    parts[0] = &ngx_http_idempotency_fingerprint_kinds[kind];
    parts[1] = &with;

    if (ngx_idempotency_digest_start(r->connection->log, parts, 2) != NGX_OK) {
        return NGX_ERROR;
    }

    include = lists ? ilcf->include : NULL;
    exclude = lists ? ilcf->exclude : NULL;

    switch (kind) {

    case NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW:
        rc = ngx_http_idempotency_body_read(r,
                                            ngx_idempotency_digest_add);
        break;

    case NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW_PARTS:
        rc = ngx_http_idempotency_fingerprint_raw_parts(r);
        break;

    case NGX_HTTP_IDEMPOTENCY_FINGERPRINT_MULTIPART:
        rc = ngx_http_idempotency_fingerprint_multipart(r, include, exclude);
        break;

    default:
        rc = ngx_http_idempotency_fingerprint_doc(r,
                kind == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_JSON,
                lists && ilcf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC,
                include, exclude);
        break;
    }

    if (rc != NGX_OK) {
        return rc;
    }

    how = ngx_http_idempotency_fingerprint_how(kind, lists
                         ? ilcf->fingerprint_hash
                         : ngx_http_idempotency_fingerprint_hash(ilcf, 0));

    p = ctx->id.fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM;

    p[0] = (u_char) (how >> 8);
    p[1] = (u_char) how;

    return ngx_idempotency_digest_finish(ctx->identity.content);
}


/* All bytes of the body but those of the boundary. */

static ngx_int_t
ngx_http_idempotency_fingerprint_raw_parts(ngx_http_request_t *r)
{
    u_char                        around;
    ngx_int_t                     rc;
    ngx_idempotency_multipart_t  *mp;

    mp = &ngx_http_idempotency_fingerprint_reader;

    if (ngx_idempotency_digest_inner_start() != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_idempotency_fingerprint_parts(r, 0);

    if (rc != NGX_OK) {
        return rc;
    }

    /* the epilogue; and whether CRLF was before the first delimiter */

    around = (u_char) (mp->preamble | mp->epilogue << 1);

    if (ngx_idempotency_digest_inner_end() != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_idempotency_digest_add(&around, 1);
}


/*
 * The parts of a multipart body, in the order in which they were sent: of each
 * its name, file names, type, encoding and content.  The length of a content
 * is not known before it was read, so each has a digest of its own, of fixed
 * length: no two lists of parts give the outer one the same bytes.
 */

static ngx_int_t
ngx_http_idempotency_fingerprint_multipart(ngx_http_request_t *r,
    ngx_array_t *include, ngx_array_t *exclude)
{
    ngx_int_t                     rc;
    ngx_idempotency_multipart_t  *mp;

    /* as for other documents, no body is one without values */

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        return NGX_OK;
    }

    mp = &ngx_http_idempotency_fingerprint_reader;

    ngx_http_idempotency_fingerprint_lists.include = include;
    ngx_http_idempotency_fingerprint_lists.exclude = exclude;

    if (ngx_http_idempotency_body_encoded(r)) {
        mp->error = "compressed";
        mp->offset = 0;
        rc = NGX_DECLINED;

    } else {
        rc = ngx_http_idempotency_fingerprint_parts(r, 1);
    }

    if (rc == NGX_DECLINED) {
        ngx_http_idempotency_body_refused(r, "multipart/form-data", mp->error,
                                          mp->offset);
    }

    return rc;
}


static ngx_int_t
ngx_http_idempotency_fingerprint_parts(ngx_http_request_t *r, ngx_uint_t parts)
{
    ngx_int_t                     rc;
    ngx_str_t                     type;
    ngx_idempotency_multipart_t  *mp;

    mp = &ngx_http_idempotency_fingerprint_reader;

    ngx_str_null(&type);

    if (r->headers_in.content_type) {
        type = r->headers_in.content_type->value;
    }

    mp->handler = ngx_http_idempotency_fingerprint_parts_event;

    rc = ngx_idempotency_multipart_start(mp, &type, parts);

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_body_read(r,
                                 ngx_http_idempotency_fingerprint_parts_body);
    }

    return rc == NGX_OK ? ngx_idempotency_multipart_end(mp) : rc;
}


static ngx_int_t
ngx_http_idempotency_fingerprint_parts_body(const u_char *data, size_t len)
{
    return ngx_idempotency_multipart_read(
                                     &ngx_http_idempotency_fingerprint_reader,
                                     data, len);
}


static ngx_int_t
ngx_http_idempotency_fingerprint_parts_event(ngx_idempotency_multipart_t *mp,
    ngx_idempotency_multipart_event_e event, const u_char *data,
    size_t len)
{
    ngx_str_t                                 *name;
    ngx_http_idempotency_fingerprint_lists_t  *lists;

    lists = &ngx_http_idempotency_fingerprint_lists;

    if (event == NGX_IDEMPOTENCY_MULTIPART_PART) {
        name = &mp->part.name;

        lists->skip = ngx_http_idempotency_fingerprint_listed(lists->exclude,
                                                              name)
                      || (lists->include
                          && !ngx_http_idempotency_fingerprint_listed(
                                                       lists->include, name));

        return lists->skip
               ? NGX_OK
               : ngx_http_idempotency_fingerprint_part_head(&mp->part);
    }

    if (mp->parts && lists->skip) {
        return NGX_OK;
    }

    if (event == NGX_IDEMPOTENCY_MULTIPART_BYTES) {
        return ngx_idempotency_digest_inner_add(data, len);
    }

    /* event == NGX_IDEMPOTENCY_MULTIPART_END */

    if (ngx_idempotency_digest_inner_end() != NGX_OK) {
        return NGX_ERROR;
    }

    return mp->parts ? NGX_OK : ngx_idempotency_digest_inner_start();
}


/* The fields before the content of a part. */

static ngx_int_t
ngx_http_idempotency_fingerprint_part_head(
    ngx_idempotency_multipart_part_t *part)
{
    u_char      there;
    ngx_uint_t  i;
    ngx_str_t  *fields[5];

    fields[0] = &part->name;
    fields[1] = &part->filename;
    fields[2] = &part->filename_ext;
    fields[3] = &part->type;
    fields[4] = &part->encoding;

    for (i = 0; i < 5; i++) {
        there = (fields[i]->data != NULL);

        if (ngx_idempotency_digest_add(&there, 1) != NGX_OK
            || (there && ngx_idempotency_digest_add_part(fields[i])
                         != NGX_OK))
        {
            return NGX_ERROR;
        }
    }

    return ngx_idempotency_digest_inner_start();
}


static ngx_uint_t
ngx_http_idempotency_fingerprint_listed(ngx_array_t *paths, ngx_str_t *name)
{
    ngx_uint_t                    i;
    ngx_http_idempotency_path_t  *path;

    if (paths == NULL) {
        return 0;
    }

    path = paths->elts;

    for (i = 0; i < paths->nelts; i++) {
        if (path[i].n == 1
            && path[i].names[0].len == name->len
            && ngx_memcmp(path[i].names[0].data, name->data, name->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_idempotency_fingerprint_doc(ngx_http_request_t *r, ngx_uint_t json,
    ngx_uint_t jsonrpc, ngx_array_t *include, ngx_array_t *exclude)
{
    ngx_int_t                    rc;
    ngx_idempotency_body_tree_t  tree;

    rc = ngx_http_idempotency_body_parse(r, json, &tree);

    if (rc == NGX_OK) {
        ngx_http_idempotency_fingerprint_mark(&tree, include,
                                          NGX_IDEMPOTENCY_BODY_TREE_INCLUDED);
        ngx_http_idempotency_fingerprint_mark(&tree, exclude,
                                          NGX_IDEMPOTENCY_BODY_TREE_EXCLUDED);

        if (jsonrpc) {
            ngx_http_idempotency_jsonrpc_mark(&tree);
        }

        rc = ngx_idempotency_canonical(&tree, include != NULL,
                                       ngx_idempotency_digest_add);
    }

    ngx_http_idempotency_body_free(r, &tree);

    return rc;
}


static void
ngx_http_idempotency_fingerprint_mark(ngx_idempotency_body_tree_t *tree,
    ngx_array_t *paths, ngx_uint_t mark)
{
    ngx_uint_t                    i;
    ngx_http_idempotency_path_t  *path;

    if (paths == NULL) {
        return;
    }

    path = paths->elts;

    for (i = 0; i < paths->nelts; i++) {
        ngx_idempotency_body_tree_mark(tree, path[i].names, path[i].n, mark);
    }
}


ngx_uint_t
ngx_http_idempotency_fingerprint_same(ngx_http_idempotency_loc_conf_t *ilcf,
    const u_char *one, const u_char *other)
{
    if (ngx_memcmp(one, other, NGX_IDEMPOTENCY_KEY_ID_LEN) != 0) {
        return 0;
    }

    return ngx_memcmp(one + NGX_IDEMPOTENCY_FINGERPRINT_SUM,
                      other + NGX_IDEMPOTENCY_FINGERPRINT_SUM,
                      NGX_IDEMPOTENCY_FINGERPRINT_LEN
                      - NGX_IDEMPOTENCY_FINGERPRINT_SUM) == 0
           || ngx_http_idempotency_fingerprint_made(ilcf, one)
              == ngx_http_idempotency_fingerprint_made(ilcf, other);
}


/*
 * A record of an older version, which has 0, is taken to be made as the
 * location makes them today.  In that version a boundary counted as all other
 * bytes did, and "multipart" did not exist.
 */

static ngx_uint_t
ngx_http_idempotency_fingerprint_made(ngx_http_idempotency_loc_conf_t *ilcf,
    const u_char *fingerprint)
{
    ngx_uint_t     how, kind;
    const u_char  *p;

    p = fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM;
    how = p[0] << 8 | p[1];

    if (how) {
        return how;
    }

    kind = ilcf->fingerprint;

    if (kind == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_MULTIPART) {
        kind = NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW;
    }

    return ngx_http_idempotency_fingerprint_how(kind, ilcf->fingerprint_hash);
}


ngx_int_t
ngx_http_idempotency_fingerprint_as(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, const u_char *other)
{
    ngx_int_t                  rc;
    ngx_uint_t                 how;
    ngx_idempotency_secret_t  *secret;

    static u_char  none[NGX_IDEMPOTENCY_KEY_ID_LEN];

    if (ngx_http_idempotency_fingerprint_same(ctx->conf, ctx->id.fingerprint,
                                              other))
    {
        return NGX_OK;
    }

    secret = NULL;

    if (ngx_memcmp(other, none, NGX_IDEMPOTENCY_KEY_ID_LEN) != 0) {
        secret = ngx_idempotency_secret_find(ctx->conf->secrets, other);

        if (secret == NULL) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "idempotency record \"%*xs\" was made with a "
                          "secret that is not known: keep old secrets "
                          "after the first \"idempotency_secret\" until "
                          "their records have expired",
                          NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);
            return NGX_DECLINED;
        }
    }

    how = ngx_http_idempotency_fingerprint_made(ctx->conf, other);

    if (how != ngx_http_idempotency_fingerprint_made(ctx->conf,
                                                     ctx->id.fingerprint))
    {
        rc = ngx_http_idempotency_fingerprint_make_as(r, ctx, how);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (ngx_http_idempotency_fingerprint_with(r, ctx, secret) != NGX_OK) {
        return NGX_ERROR;
    }

    return NGX_DONE;
}


/*
 * The location can repeat what was made with its own with=, and with its own
 * lists or none: the hash shows whether that is the case.
 */

static ngx_int_t
ngx_http_idempotency_fingerprint_make_as(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_uint_t how)
{
    u_char      *p;
    ngx_int_t    rc;
    ngx_uint_t   kind, hash, lists;

    kind = how >> NGX_HTTP_IDEMPOTENCY_FINGERPRINT_BITS;
    hash = how & NGX_HTTP_IDEMPOTENCY_FINGERPRINT_HASH;

    lists = (hash == ctx->conf->fingerprint_hash);

    if (kind == NGX_HTTP_IDEMPOTENCY_FINGERPRINT_OFF
        || kind > NGX_HTTP_IDEMPOTENCY_FINGERPRINT_RAW_PARTS
        || (!lists
            && hash != ngx_http_idempotency_fingerprint_hash(ctx->conf, 0)))
    {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idempotency record \"%*xs\" was made with another "
                      "\"idempotency_fingerprint\" than that of this "
                      "location: the request was not compared with the first "
                      "one", NGX_IDEMPOTENCY_WHOLE, ctx->id.digest);
        return NGX_ABORT;
    }

    rc = ngx_http_idempotency_fingerprint_make(r, ctx, kind, lists);

    if (rc == NGX_DECLINED) {

        /* the first body was such a document and this one is not */

        ngx_memzero(ctx->identity.content, NGX_IDEMPOTENCY_DIGEST_LEN);

        p = ctx->id.fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM;

        p[0] = (u_char) (how >> 8);
        p[1] = (u_char) how;

        return NGX_OK;
    }

    return rc;
}


/* the order within a list makes no difference */

ngx_uint_t
ngx_http_idempotency_fingerprint_hash(ngx_http_idempotency_loc_conf_t *ilcf,
    ngx_uint_t lists)
{
    uint32_t  hash;

    hash = ngx_crc32_long(ilcf->fingerprint_with->value.data,
                          ilcf->fingerprint_with->value.len);

    if (lists) {
        hash += ngx_http_idempotency_fingerprint_paths(ilcf->include, 'i');
        hash += ngx_http_idempotency_fingerprint_paths(ilcf->exclude, 'e');
        hash += (ilcf->profile == NGX_HTTP_IDEMPOTENCY_PROFILE_JSONRPC);
    }

    return hash & NGX_HTTP_IDEMPOTENCY_FINGERPRINT_HASH;
}


static uint32_t
ngx_http_idempotency_fingerprint_paths(ngx_array_t *paths, u_char type)
{
    uint32_t                      hash, sum;
    ngx_uint_t                    i, k;
    ngx_http_idempotency_path_t  *path;

    if (paths == NULL) {
        return 0;
    }

    sum = 0;
    path = paths->elts;

    for (i = 0; i < paths->nelts; i++) {

        ngx_crc32_init(hash);
        ngx_crc32_update(&hash, &type, 1);

        for (k = 0; k < path[i].n; k++) {
            ngx_crc32_update(&hash, path[i].names[k].data,
                             path[i].names[k].len);
            ngx_crc32_update(&hash, (u_char *) "", 1);
        }

        ngx_crc32_final(hash);

        sum += hash;
    }

    return sum;
}


/* the id of the secret, and as much of the digest as there is room for */

static ngx_int_t
ngx_http_idempotency_fingerprint_with(ngx_http_request_t *r,
    ngx_http_idempotency_ctx_t *ctx, ngx_idempotency_secret_t *secret)
{
    u_char  *p;
    u_char   keyed[NGX_IDEMPOTENCY_DIGEST_LEN];

    p = ctx->identity.content;

    if (secret) {
        if (ngx_idempotency_digest_keyed(r->connection->log,
                                         secret->fingerprint,
                                         ctx->identity.content, keyed)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        p = keyed;

        ngx_memcpy(ctx->id.fingerprint, secret->id, NGX_IDEMPOTENCY_KEY_ID_LEN);

    } else {
        ngx_memzero(ctx->id.fingerprint, NGX_IDEMPOTENCY_KEY_ID_LEN);
    }

    ngx_memcpy(ctx->id.fingerprint + NGX_IDEMPOTENCY_KEY_ID_LEN, p,
               NGX_IDEMPOTENCY_FINGERPRINT_SUM - NGX_IDEMPOTENCY_KEY_ID_LEN);

    return NGX_OK;
}
