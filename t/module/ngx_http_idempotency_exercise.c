
/*
 * For tests only: the operations of a store over HTTP.
 */


#include "ngx_http_idempotency_exercise.h"
#include "ngx_http_idempotency_identify.h"
#include "ngx_idempotency_shm_zone.h"
#include <ngx_md5.h>


typedef struct {
    ngx_str_t    name;
    ngx_int_t    type;
    ngx_int_t  (*handler)(ngx_http_request_t *r,
                          ngx_idempotency_store_t *store);
} ngx_http_idempotency_exercise_op_t;


static ngx_int_t ngx_http_idempotency_exercise_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_exercise_run(ngx_http_request_t *r,
    ngx_idempotency_store_t *store, ngx_idempotency_op_e type);
static ngx_idempotency_op_t *ngx_http_idempotency_exercise_create(
    ngx_http_request_t *r, ngx_idempotency_store_t *store,
    ngx_idempotency_op_e type);
static ngx_int_t ngx_http_idempotency_exercise_identify(
    ngx_http_request_t *r, u_char *digest);
static void ngx_http_idempotency_exercise_pad(ngx_http_request_t *r,
    char *name, u_char *dst, size_t len);
static void ngx_http_idempotency_exercise_digest(ngx_str_t *key,
    u_char *digest);
static ngx_int_t ngx_http_idempotency_exercise_fence(ngx_http_request_t *r,
    ngx_idempotency_op_t *op);
static void ngx_http_idempotency_exercise_fetched(
    ngx_idempotency_op_t *fetch);
static ngx_int_t ngx_http_idempotency_exercise_answer(ngx_http_request_t *r,
    ngx_idempotency_op_t *op);
static ngx_int_t ngx_http_idempotency_exercise_leases(ngx_http_request_t *r,
    ngx_idempotency_op_t *op);
static ngx_int_t ngx_http_idempotency_exercise_submit(ngx_http_request_t *r,
    ngx_idempotency_op_t *op);
static void ngx_http_idempotency_exercise_done(ngx_idempotency_op_t *op);
static void ngx_http_idempotency_exercise_drop(void *data);


static ngx_http_idempotency_exercise_op_t
    ngx_http_idempotency_exercise_ops[] =
{
    { ngx_string("claim"), NGX_IDEMPOTENCY_CLAIM, NULL },
    { ngx_string("complete"), NGX_IDEMPOTENCY_COMPLETE, NULL },
    { ngx_string("release"), NGX_IDEMPOTENCY_RELEASE, NULL },
    { ngx_string("mark_unknown"), NGX_IDEMPOTENCY_MARK_UNKNOWN, NULL },
    { ngx_string("probe"), NGX_IDEMPOTENCY_PROBE, NULL },
    { ngx_string("renew"), NGX_IDEMPOTENCY_RENEW, NULL },
    { ngx_string("issue"), NGX_IDEMPOTENCY_ISSUE, NULL },
    { ngx_string("fetch"), NGX_IDEMPOTENCY_FETCH, NULL },
    { ngx_string("resolve"), NGX_IDEMPOTENCY_RESOLVE, NULL },
    { ngx_string("purge"), NGX_IDEMPOTENCY_PURGE, NULL },
    { ngx_string("cancel"), NGX_IDEMPOTENCY_CANCEL, NULL },

    /* records, pages and repairs of the zone */
    { ngx_string("info"), 0, ngx_http_idempotency_exercise_info },

    /* n=N from=N: that many records, claimed and completed; the cost */
    { ngx_string("fill"), 0, ngx_http_idempotency_exercise_fill },

    /* overwrites slab and trees, as a crash inside them might, and dies */
    { ngx_string("scribble"), 0, ngx_http_idempotency_exercise_scribble },

    /* ms=N: the poll interval of waiters in this worker */
    { ngx_string("poll"), 0, ngx_http_idempotency_exercise_poll },

    /* encodes a head of the arguments, decodes it again */
    { ngx_string("head"), 0, ngx_http_idempotency_exercise_head },

    /* hex=HEX: decodes these bytes as a head */
    { ngx_string("decode"), 0, ngx_http_idempotency_exercise_decode },

    /* n=N seed=N: decodes damaged heads */
    { ngx_string("fuzz"), 0, ngx_http_idempotency_exercise_fuzz },

    { ngx_null_string, 0, NULL }
};


char *
ngx_http_idempotency_exercise(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    ngx_str_t                 *value;
    ngx_http_core_loc_conf_t  *clcf;

    value = cf->args->elts;

    ilcf->exercise = ngx_http_idempotency_store_get(cf, &value[1]);
    if (ilcf->exercise == NULL) {
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_idempotency_exercise_handler;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_idempotency_exercise_handler(ngx_http_request_t *r)
{
    ngx_int_t                            rc;
    ngx_str_t                            name;
    ngx_http_idempotency_loc_conf_t     *ilcf;
    ngx_http_idempotency_exercise_op_t  *op;

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    name = ngx_http_idempotency_exercise_text(r, "op");

    for (op = ngx_http_idempotency_exercise_ops; op->name.len; op++) {

        if (op->name.len != name.len
            || ngx_strncmp(op->name.data, name.data, name.len) != 0)
        {
            continue;
        }

        if (op->handler) {
            return op->handler(r, ilcf->exercise);
        }

        return ngx_http_idempotency_exercise_run(r, ilcf->exercise, op->type);
    }

    return NGX_HTTP_NOT_FOUND;
}


static ngx_int_t
ngx_http_idempotency_exercise_run(ngx_http_request_t *r,
    ngx_idempotency_store_t *store, ngx_idempotency_op_e type)
{
    ngx_int_t              rc;
    ngx_pool_cleanup_t    *cln;
    ngx_idempotency_op_t  *op;

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op = ngx_http_idempotency_exercise_create(r, store, type);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = ngx_http_idempotency_exercise_drop;
    cln->data = op;

    op->handler = ngx_http_idempotency_exercise_done;
    op->data = r;

    if (ngx_http_idempotency_exercise_answer(r, op) != NGX_OK
        || ngx_http_idempotency_exercise_leases(r, op) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_idempotency_exercise_fence(r, op);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_OK) {
        rc = ngx_http_idempotency_exercise_submit(r, op);
    }

    if (rc == NGX_AGAIN) {
        r->main->count++;
        return NGX_DONE;
    }

    return ngx_http_idempotency_exercise_show(r, op, rc);
}


static ngx_idempotency_op_t *
ngx_http_idempotency_exercise_create(ngx_http_request_t *r,
    ngx_idempotency_store_t *store, ngx_idempotency_op_e type)
{
    ngx_str_t              key, flags, hex;
    ngx_uint_t             i;
    ngx_idempotency_op_t  *op;

    static ngx_conf_bitmask_t  names[] = {
        { ngx_string("unknown"), NGX_IDEMPOTENCY_CLAIM_UNKNOWN },
        { ngx_string("issued"), NGX_IDEMPOTENCY_CLAIM_ISSUED },
        { ngx_string("sequence"), NGX_IDEMPOTENCY_SEQUENCE },
        { ngx_string("strict"), NGX_IDEMPOTENCY_SEQUENCE_STRICT },
        { ngx_null_string, 0 }
    };

    op = ngx_idempotency_op_create(store, type);
    if (op == NULL) {
        return NULL;
    }

    key = ngx_http_idempotency_exercise_text(r, "key");
    ngx_http_idempotency_exercise_digest(&key, op->id.digest);

    hex = ngx_http_idempotency_exercise_text(r, "digest");

    if (hex.len == 2 * NGX_IDEMPOTENCY_DIGEST_LEN) {
        for (i = 0; i < NGX_IDEMPOTENCY_DIGEST_LEN; i++) {
            op->id.digest[i] = (u_char) ngx_hextoi(&hex.data[2 * i], 2);
        }
    }

    if (ngx_http_idempotency_exercise_number(r, "identify", 0)
        && ngx_http_idempotency_exercise_identify(r, op->id.digest) != NGX_OK)
    {
        ngx_idempotency_op_drop(op);
        return NULL;
    }

    ngx_http_idempotency_exercise_pad(r, "owner", op->id.owner,
                                      NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_http_idempotency_exercise_pad(r, "fp", op->id.fingerprint,
                                      NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    flags = ngx_http_idempotency_exercise_text(r, "flags");

    for (i = 0; names[i].name.len; i++) {
        if (ngx_strlcasestrn(flags.data, flags.data + flags.len,
                             names[i].name.data, names[i].name.len - 1))
        {
            op->flags |= names[i].mask;
        }
    }

    op->id.number = ngx_http_idempotency_exercise_number(r, "number", 0);
    op->id.epoch = ngx_http_idempotency_exercise_number(r, "epoch", 0);
    op->lease = ngx_http_idempotency_exercise_number(r, "lease", 30000);
    op->ttl = ngx_http_idempotency_exercise_number(r, "ttl", 3600);
    op->tombstone = ngx_http_idempotency_exercise_number(r, "tombstone", 0);
    op->status = ngx_http_idempotency_exercise_number(r, "status", 201);
    op->keep = ngx_http_idempotency_exercise_number(r, "keep", 1);
    op->executed = ngx_http_idempotency_exercise_number(r, "executed", 0);
    op->note = ngx_http_idempotency_exercise_text(r, "note");
    op->note.len = ngx_min(op->note.len, NGX_IDEMPOTENCY_NOTE_LEN);

    return op;
}


/* the record of a request, by key, source and scope of this location */

static ngx_int_t
ngx_http_idempotency_exercise_identify(ngx_http_request_t *r, u_char *digest)
{
    ngx_http_idempotency_ctx_t  ctx;

    ngx_memzero(&ctx, sizeof(ngx_http_idempotency_ctx_t));

    ctx.request = r;
    ctx.conf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (ngx_http_idempotency_identify_key(r, &ctx) != NGX_OK
        || ngx_http_idempotency_identify_record(r, &ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_memcpy(digest, ctx.id.digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    return NGX_OK;
}


ngx_str_t
ngx_http_idempotency_exercise_text(ngx_http_request_t *r, char *name)
{
    ngx_str_t  value;

    if (ngx_http_arg(r, (u_char *) name, ngx_strlen(name), &value) != NGX_OK) {
        value.len = 0;
        value.data = (u_char *) "";
    }

    return value;
}


int64_t
ngx_http_idempotency_exercise_number(ngx_http_request_t *r, char *name,
    int64_t value)
{
    off_t      n;
    ngx_str_t  text;

    text = ngx_http_idempotency_exercise_text(r, name);

    n = ngx_atoof(text.data, text.len);

    return (n == NGX_ERROR) ? value : n;
}


static void
ngx_http_idempotency_exercise_pad(ngx_http_request_t *r, char *name,
    u_char *dst, size_t len)
{
    ngx_str_t  text;

    text = ngx_http_idempotency_exercise_text(r, name);

    ngx_memzero(dst, len);
    ngx_memcpy(dst, text.data, ngx_min(text.len, len));
}


static void
ngx_http_idempotency_exercise_digest(ngx_str_t *key, u_char *digest)
{
    ngx_md5_t  md5;

    ngx_md5_init(&md5);
    ngx_md5_update(&md5, key->data, key->len);
    ngx_md5_final(digest, &md5);

    ngx_md5_init(&md5);
    ngx_md5_update(&md5, digest, 16);
    ngx_md5_final(digest + 16, &md5);
}


static ngx_int_t
ngx_http_idempotency_exercise_fence(ngx_http_request_t *r,
    ngx_idempotency_op_t *op)
{
    ngx_int_t              rc;
    ngx_str_t              text;
    ngx_idempotency_op_t  *fetch;

    text = ngx_http_idempotency_exercise_text(r, "fence");

    if (text.len != 7 || ngx_strncmp(text.data, "current", 7) != 0) {
        op->fence = ngx_http_idempotency_exercise_number(r, "fence", 0);
        return NGX_OK;
    }

    fetch = ngx_idempotency_op_create(op->store, NGX_IDEMPOTENCY_FETCH);
    if (fetch == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(fetch->id.digest, op->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN);

    fetch->handler = ngx_http_idempotency_exercise_fetched;
    fetch->data = op;

    rc = ngx_idempotency_op_submit(fetch);

    if (rc == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    if (rc == NGX_OK) {
        op->fence = fetch->record.fence;
    }

    ngx_idempotency_op_drop(fetch);

    return rc;
}


static void
ngx_http_idempotency_exercise_fetched(ngx_idempotency_op_t *fetch)
{
    ngx_int_t              rc;
    ngx_idempotency_op_t  *op;

    op = fetch->data;

    rc = NGX_ERROR;
    op->error = fetch->error;
    op->fence = fetch->record.fence;

    fetch->pending = 0;
    ngx_idempotency_op_drop(fetch);

    if (op->error == NGX_IDEMPOTENCY_ERROR_NONE) {
        rc = ngx_http_idempotency_exercise_submit(op->data, op);
    }

    if (rc != NGX_AGAIN) {
        ngx_http_idempotency_exercise_done(op);
    }
}


/* the answer lives in the request, as that of a real one may */

static ngx_int_t
ngx_http_idempotency_exercise_answer(ngx_http_request_t *r,
    ngx_idempotency_op_t *op)
{
    u_char        *p;
    size_t         len, size;
    ngx_str_t      body;
    ngx_buf_t     *b;
    ngx_uint_t     n;
    ngx_chain_t   *cl, **ll;

    op->head = ngx_http_idempotency_exercise_text(r, "head");

    len = ngx_http_idempotency_exercise_number(r, "head_len", 0);

    if (len) {
        p = ngx_palloc(r->pool, len);
        if (p == NULL) {
            return NGX_ERROR;
        }

        ngx_http_idempotency_exercise_pattern(p, len);

        op->head.len = len;
        op->head.data = p;
    }

    body = ngx_http_idempotency_exercise_text(r, "body");

    len = ngx_http_idempotency_exercise_number(r, "body_len", 0);

    if (len) {
        p = ngx_palloc(r->pool, len);
        if (p == NULL) {
            return NGX_ERROR;
        }

        ngx_http_idempotency_exercise_pattern(p, len);

        body.len = len;
        body.data = p;
    }

    op->body_len = body.len;

    p = body.data;
    ll = &op->body;

    for (n = ngx_http_idempotency_exercise_number(r, "bufs", 1); n; n--) {

        size = (body.data + body.len - p) / n;

        b = ngx_calloc_buf(r->pool);
        cl = ngx_alloc_chain_link(r->pool);

        if (b == NULL || cl == NULL) {
            return NGX_ERROR;
        }

        b->pos = p;
        b->last = p + size;
        b->memory = 1;

        cl->buf = b;
        cl->next = NULL;

        *ll = cl;
        ll = &cl->next;

        p += size;
    }

    return NGX_OK;
}


void
ngx_http_idempotency_exercise_pattern(u_char *p, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        p[i] = (u_char) (i ^ (i >> 8) ^ (i >> 16));
    }
}


static ngx_int_t
ngx_http_idempotency_exercise_leases(ngx_http_request_t *r,
    ngx_idempotency_op_t *op)
{
    u_char                   *p, *last;
    ngx_str_t                 keys, key;
    ngx_idempotency_lease_t  *lease;

    if (op->type != NGX_IDEMPOTENCY_RENEW) {
        return NGX_OK;
    }

    op->leases = ngx_array_create(op->pool, 4,
                                  sizeof(ngx_idempotency_lease_t));
    if (op->leases == NULL) {
        return NGX_ERROR;
    }

    keys = ngx_http_idempotency_exercise_text(r, "key");
    last = keys.data + keys.len;

    for (p = keys.data; p < last; p = key.data + key.len + 1) {

        key.data = p;
        p = ngx_strlchr(p, last, ',');
        key.len = (p ? p : last) - key.data;

        lease = ngx_array_push(op->leases);
        if (lease == NULL) {
            return NGX_ERROR;
        }

        ngx_memzero(lease, sizeof(ngx_idempotency_lease_t));

        ngx_http_idempotency_exercise_digest(&key, lease->id.digest);

        ngx_memcpy(lease->id.owner, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);
        ngx_memcpy(lease->id.fingerprint, op->id.fingerprint,
                   NGX_IDEMPOTENCY_FINGERPRINT_LEN);

        lease->fence = ngx_http_idempotency_exercise_number(r, "fence", 0);
        lease->lease = op->lease;
        lease->keep = NGX_IDEMPOTENCY_UNKNOWN_TTL;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_exercise_submit(ngx_http_request_t *r,
    ngx_idempotency_op_t *op)
{
    ngx_int_t   rc;
    ngx_msec_t  now;

    now = ngx_current_msec;
    ngx_current_msec += ngx_http_idempotency_exercise_number(r, "after", 0);

    ngx_idempotency_shm_kill = ngx_http_idempotency_exercise_number(r, "kill",
                                                                    0);

    ngx_idempotency_shm_pause = ngx_http_idempotency_exercise_number(r,
                                                                  "pause", 0);

    rc = ngx_idempotency_op_submit(op);

    ngx_idempotency_shm_kill = 0;
    ngx_idempotency_shm_pause = 0;

    ngx_current_msec = now;

    return rc;
}


static void
ngx_http_idempotency_exercise_done(ngx_idempotency_op_t *op)
{
    ngx_int_t            rc;
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = op->data;
    c = r->connection;

    op->pending = 0;

    rc = (op->error == NGX_IDEMPOTENCY_ERROR_NONE) ? NGX_OK : NGX_ERROR;
    rc = ngx_http_idempotency_exercise_show(r, op, rc);

    ngx_http_finalize_request(r, rc);
    ngx_http_run_posted_requests(c);
}


static void
ngx_http_idempotency_exercise_drop(void *data)
{
    ngx_idempotency_op_drop(data);
}
