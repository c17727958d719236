
/*
 * The store in Redis: an operation as the command of its script.
 */


#include "ngx_idempotency_redis_op.h"
#include "ngx_idempotency_redis_scripts.h"
#include "ngx_idempotency_redis_suspect.h"
#include <openssl/evp.h>


static ngx_int_t ngx_idempotency_redis_script_prefix(ngx_pool_t *pool,
    ngx_uint_t i, ngx_idempotency_redis_script_t *script);
static ngx_uint_t ngx_idempotency_redis_script_of(ngx_idempotency_op_t *op);
static ngx_int_t ngx_idempotency_redis_op_args(
    ngx_idempotency_redis_op_t *rop);
static u_char *ngx_idempotency_redis_op_number(u_char *p, ngx_uint_t bytes,
    uint64_t n);
static ngx_int_t ngx_idempotency_redis_op_copy_answer(
    ngx_idempotency_redis_op_t *rop);


/* in the order of ngx_idempotency_op_e and ngx_idempotency_redis_script_e */

static ngx_str_t  ngx_idempotency_redis_script_texts[] = {
    ngx_string(ngx_idempotency_redis_lua_claim),
    ngx_string(ngx_idempotency_redis_lua_complete),
    ngx_string(ngx_idempotency_redis_lua_release),
    ngx_string(ngx_idempotency_redis_lua_mark_unknown),
    ngx_string(ngx_idempotency_redis_lua_probe),
    ngx_string(ngx_idempotency_redis_lua_renew),
    ngx_string(ngx_idempotency_redis_lua_issue),
    ngx_string(ngx_idempotency_redis_lua_fetch),
    ngx_string(ngx_idempotency_redis_lua_not_executed),
    ngx_string(ngx_idempotency_redis_lua_purge),
    ngx_string(ngx_idempotency_redis_lua_cancel),
    ngx_string(ngx_idempotency_redis_lua_list),
    ngx_string(ngx_idempotency_redis_lua_suspect),
    ngx_string(ngx_idempotency_redis_lua_suspect_keep),
    ngx_string(ngx_idempotency_redis_lua_executed),
    ngx_string(ngx_idempotency_redis_lua_claim_number),
    ngx_string(ngx_idempotency_redis_lua_release_number)
};


ngx_int_t
ngx_idempotency_redis_load_scripts(ngx_pool_t *pool,
    ngx_idempotency_redis_ctx_t *ctx)
{
    ngx_uint_t                       i;
    unsigned int                     len;
    ngx_idempotency_redis_script_t  *script;
    u_char                           sha[EVP_MAX_MD_SIZE];

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_SCRIPTS; i++) {
        script = &ctx->scripts[i];

        script->text = ngx_idempotency_redis_script_texts[i];

        if (EVP_Digest(script->text.data, script->text.len, sha, &len,
                       EVP_sha1(), NULL)
            != 1)
        {
            return NGX_ERROR;
        }

        script->sha.len = 2 * len;
        script->sha.data = ngx_pnalloc(pool, script->sha.len);
        if (script->sha.data == NULL) {
            return NGX_ERROR;
        }

        ngx_hex_dump(script->sha.data, sha, len);

        if (ngx_idempotency_redis_script_prefix(pool, i, script) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_script_prefix(ngx_pool_t *pool, ngx_uint_t i,
    ngx_idempotency_redis_script_t *script)
{
    ngx_str_t  args[NGX_IDEMPOTENCY_REDIS_PREFIX_ARGS];

    script->nargs = 5;

    ngx_str_set(&args[0], "EVALSHA");
    args[1] = script->sha;
    ngx_str_set(&args[2], "1");

    if (i >= NGX_IDEMPOTENCY_REDIS_CLAIM_NUMBER) {
        script->nargs = 6;
        ngx_str_set(&args[2], "2");
    }

    if (i == NGX_IDEMPOTENCY_COMPLETE || i == NGX_IDEMPOTENCY_REDIS_EXECUTED) {
        script->nargs = 6;
    }

    return ngx_idempotency_redis_encode_begin(pool, args,
                                              NGX_IDEMPOTENCY_REDIS_PREFIX_ARGS,
                                              script->nargs, &script->prefix);
}


ngx_idempotency_redis_op_t *
ngx_idempotency_redis_op_create(ngx_idempotency_op_t *op,
    ngx_idempotency_lease_t *lease)
{
    ngx_int_t                     rc;
    ngx_uint_t                    i;
    ngx_idempotency_redis_op_t   *rop;
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = op->store->data;

    rop = ngx_pcalloc(op->pool, sizeof(ngx_idempotency_redis_op_t));
    if (rop == NULL) {
        return NULL;
    }

    i = ngx_idempotency_redis_script_of(op);

    rop->sequence = (i >= NGX_IDEMPOTENCY_REDIS_CLAIM_NUMBER);

    rop->cmd.data = rop;
    rop->op = op;
    rop->lease = lease;
    rop->deadline = ngx_current_msec + ctx->redis.timeout;
    rop->script = &ctx->scripts[i];

    if (lease == NULL) {
        op->own = rop;
    }

    if (op->type < NGX_IDEMPOTENCY_LIST) {
        rc = ngx_idempotency_redis_op_args(rop);

    } else if (op->type == NGX_IDEMPOTENCY_LIST) {
        rc = ngx_idempotency_redis_list_args(rop);

    } else {
        rc = ngx_idempotency_redis_suspect_args(rop);
    }

    return rc == NGX_OK ? rop : NULL;
}


/* which of the scripts executes this operation */

static ngx_uint_t
ngx_idempotency_redis_script_of(ngx_idempotency_op_t *op)
{
    if (op->type == NGX_IDEMPOTENCY_RESOLVE && op->executed) {
        return NGX_IDEMPOTENCY_REDIS_EXECUTED;
    }

    if (op->flags & NGX_IDEMPOTENCY_SEQUENCE) {

        if (op->type == NGX_IDEMPOTENCY_CLAIM) {
            return NGX_IDEMPOTENCY_REDIS_CLAIM_NUMBER;
        }

        if (op->type == NGX_IDEMPOTENCY_RELEASE) {
            return NGX_IDEMPOTENCY_REDIS_RELEASE_NUMBER;
        }
    }

    return op->type;
}


static ngx_int_t
ngx_idempotency_redis_op_args(ngx_idempotency_redis_op_t *rop)
{
    u_char                       *p;
    time_t                        keep;
    ngx_str_t                    *arg, *note, mark;
    ngx_idempotency_op_t         *op;
    ngx_idempotency_lease_t      *lease;
    ngx_idempotency_identity_t   *id;
    ngx_idempotency_redis_ctx_t  *ctx;

    op = rop->op;
    ctx = op->store->data;
    lease = rop->lease;
    id = lease ? &lease->id : &op->id;
    arg = rop->args;

    keep = ngx_max(op->ttl, op->tombstone);
    keep = ngx_max(keep, NGX_IDEMPOTENCY_UNKNOWN_TTL);

    note = &op->note;

    p = ngx_pnalloc(op->pool, ngx_idempotency_redis_record_name_len(ctx)
                              + NGX_IDEMPOTENCY_REDIS_ARGUMENT + note->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&arg[0], "EVALSHA");

    arg[1] = rop->script->sha;

    ngx_str_set(&arg[2], "1");

    arg[3].data = p;

    p = ngx_idempotency_redis_record_name(p, ctx, id->digest,
                                          lease ? lease->flags : op->flags,
                                          &mark);

    arg[3].len = p - arg[3].data;

    rop->nargs = 4;

    if (rop->sequence) {
        ngx_str_set(&arg[2], "2");
        arg[rop->nargs++] = mark;
    }

    arg[rop->nargs].data = p;
    arg[rop->nargs].len = NGX_IDEMPOTENCY_REDIS_ARGUMENT + note->len;
    rop->nargs++;

    /* see scripts/parts/read.lua */

    p = ngx_cpymem(p, id->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    p = ngx_cpymem(p, id->fingerprint, NGX_IDEMPOTENCY_FINGERPRINT_SUM);

    p = ngx_idempotency_redis_op_number(p, 8, lease ? lease->lease
                                                    : op->lease);
    p = ngx_idempotency_redis_op_number(p, 8, lease ? lease->keep : keep);
    p = ngx_idempotency_redis_op_number(p, 8, op->ttl);
    p = ngx_idempotency_redis_op_number(p, 8, op->tombstone);
    p = ngx_idempotency_redis_op_number(p, 8, lease ? lease->fence
                                                    : op->fence);
    p = ngx_idempotency_redis_op_number(p, 4, op->keep ? op->head.len : 0);
    p = ngx_idempotency_redis_op_number(p, 2, op->status);

    *p++ = (u_char) op->flags;
    *p++ = (u_char) op->keep;

    p = ngx_cpymem(p, id->fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM,
                   NGX_IDEMPOTENCY_FINGERPRINT_LEN
                   - NGX_IDEMPOTENCY_FINGERPRINT_SUM);

    p = ngx_idempotency_redis_op_number(p, 8, id->number);
    p = ngx_idempotency_redis_op_number(p, 8, id->number + 1);
    p = ngx_idempotency_redis_op_number(p, 8, id->epoch);
    p = ngx_idempotency_redis_op_number(p, 8, lease ? 0 : op->granted);

    if (note->len) {

        /* what it points to may be gone when it is needed again */

        ngx_memcpy(p, note->data, note->len);
        note->data = p;
    }

    if (op->type == NGX_IDEMPOTENCY_COMPLETE
        || (op->type == NGX_IDEMPOTENCY_RESOLVE && op->executed))
    {
        return ngx_idempotency_redis_op_copy_answer(rop);
    }

    if (op->type == NGX_IDEMPOTENCY_PURGE) {
        arg[rop->nargs++] = ctx->purged;
    }

    return NGX_OK;
}


u_char *
ngx_idempotency_redis_record_name(u_char *p, ngx_idempotency_redis_ctx_t *ctx,
    u_char *digest, ngx_uint_t flags, ngx_str_t *mark)
{
    mark->data = p;

    p = ngx_cpymem(p, ctx->prefix.data, ctx->prefix.len);

    if (!(flags & NGX_IDEMPOTENCY_SEQUENCE)) {
        return ngx_hex_dump(p, digest, NGX_IDEMPOTENCY_DIGEST_LEN);
    }

    /* the records of a sequence and its mark have the same cluster slot */

    *p++ = '{';
    p = ngx_hex_dump(p, digest, NGX_IDEMPOTENCY_DIGEST_LEN / 2);
    *p++ = '}';

    mark->len = p - mark->data;

    return ngx_hex_dump(p, digest + NGX_IDEMPOTENCY_DIGEST_LEN / 2,
                        NGX_IDEMPOTENCY_DIGEST_LEN / 2);
}


static u_char *
ngx_idempotency_redis_op_number(u_char *p, ngx_uint_t bytes, uint64_t n)
{
    ngx_uint_t  i;

    for (i = bytes; i; i--) {
        p[i - 1] = (u_char) n;
        n >>= 8;
    }

    return p + bytes;
}


/* what op->body points to may be gone when the command is sent again */

static ngx_int_t
ngx_idempotency_redis_op_copy_answer(ngx_idempotency_redis_op_t *rop)
{
    u_char                *p;
    ngx_str_t             *arg;
    ngx_chain_t           *cl;
    ngx_idempotency_op_t  *op;

    op = rop->op;
    arg = &rop->args[rop->nargs++];

    if (!op->keep) {
        ngx_str_set(arg, "");
        return NGX_OK;
    }

    arg->len = op->head.len + op->body_len;
    arg->data = ngx_pnalloc(op->pool, arg->len);
    if (arg->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(arg->data, op->head.data, op->head.len);

    for (cl = op->body; cl; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    return NGX_OK;
}


ngx_str_t *
ngx_idempotency_redis_op_answer(ngx_idempotency_op_t *op)
{
    ngx_idempotency_redis_op_t  *rop;

    static ngx_str_t  none = ngx_null_string;

    if (op->type != NGX_IDEMPOTENCY_COMPLETE || !op->keep) {
        return &none;
    }

    rop = op->own;

    return &rop->args[NGX_IDEMPOTENCY_REDIS_ARGS - 1];
}


void
ngx_idempotency_redis_op_strip(ngx_idempotency_redis_op_t *rop)
{
    u_char     *p;
    ngx_str_t  *answer;

    answer = &rop->args[NGX_IDEMPOTENCY_REDIS_ARGS - 1];

    /* length of the head (4), status (2), flags (1), whether it is kept (1) */

    p = rop->args[NGX_IDEMPOTENCY_REDIS_ARGS - 2].data
        + NGX_IDEMPOTENCY_OWNER_LEN + NGX_IDEMPOTENCY_FINGERPRINT_SUM + 5 * 8;

    (void) ngx_idempotency_redis_op_number(p, 4, 0);
    p[4 + 2 + 1] = 0;

    (void) ngx_pfree(rop->op->pool, answer->data);

    ngx_str_set(answer, "");
    rop->op->keep = 0;
}
