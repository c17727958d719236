
/*
 * The store in Redis: the last request with a source, scope and fingerprint.
 *
 * Its key is in another slot than that of the record, and in a cluster no
 * script may have both.  So it only names a record and the owner of its claim:
 * what became of that request is what the record says, and nothing that is
 * lost or late here makes a request look executed that was not.
 *
 *     ASK    is sent together with the claim.  It takes the key for this
 *            request if there is none, or says which request was the last one;
 *            of two at the same time one is told about the other.
 *     LOOK   if that one had another key: fetches its record.  If that is free
 *            and does not name that owner, its claim may be on its way.
 *     TAKE   if it is no suspect: replaces that one, unless another request
 *            has done so meanwhile, at which it looks then.  A duplicate must
 *            not do that, so the claim must be granted first.
 *
 * A first request needs the first of these only.
 */


#include "ngx_idempotency_redis_suspect.h"
#include "ngx_idempotency_transition.h"


/* so many requests that came between one's LOOK and TAKE are looked at */
#define NGX_IDEMPOTENCY_REDIS_SUSPECT_STEPS  8

#define NGX_IDEMPOTENCY_REDIS_SUSPECT_ARGUMENT                                \
    (2 * NGX_IDEMPOTENCY_OWNER_LEN + NGX_IDEMPOTENCY_DIGEST_LEN + 8)


struct ngx_idempotency_redis_suspect_s {
    ngx_str_t                      name;       /* of the key */
    ngx_str_t                      argument;   /* of ASK and TAKE */
    ngx_idempotency_last_t         last;
    uint64_t                       age;        /* of that, msec */
    ngx_idempotency_record_t       record;
    unsigned                       looks:1;    /* the command is LOOK */
    unsigned                       released:1; /* the record has that owner */
    unsigned                       suspected:1;
};


static void ngx_idempotency_redis_suspect_command(
    ngx_idempotency_redis_op_t *rop, ngx_uint_t script);
static ngx_int_t ngx_idempotency_redis_suspect_look(
    ngx_idempotency_redis_op_t *rop);
static ngx_int_t ngx_idempotency_redis_suspect_take(
    ngx_idempotency_redis_op_t *rop);
static u_char *ngx_idempotency_redis_suspect_number(u_char *p, uint64_t n);


ngx_int_t
ngx_idempotency_redis_suspect_args(ngx_idempotency_redis_op_t *rop)
{
    u_char                           *p;
    ngx_idempotency_op_t             *op;
    ngx_idempotency_redis_ctx_t      *ctx;
    ngx_idempotency_redis_suspect_t  *suspect;

    op = rop->op;
    ctx = op->store->data;

    suspect = ngx_pcalloc(op->pool, sizeof(ngx_idempotency_redis_suspect_t));
    if (suspect == NULL) {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(op->pool, ctx->prefix.len + sizeof("suspect:") - 1
                              + 2 * NGX_IDEMPOTENCY_DIGEST_LEN
                              + NGX_IDEMPOTENCY_REDIS_SUSPECT_ARGUMENT);
    if (p == NULL) {
        return NGX_ERROR;
    }

    rop->suspect = suspect;

    /* no record has a name of this length, see scripts/list.lua */

    suspect->name.data = p;
    p = ngx_cpymem(p, ctx->prefix.data, ctx->prefix.len);
    p = ngx_cpymem(p, "suspect:", sizeof("suspect:") - 1);
    p = ngx_hex_dump(p, op->suspect, NGX_IDEMPOTENCY_DIGEST_LEN);
    suspect->name.len = p - suspect->name.data;

    suspect->argument.data = p;
    p = ngx_cpymem(p, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);

    if (op->type == NGX_IDEMPOTENCY_SUSPECT) {
        p = ngx_cpymem(p, op->id.digest, NGX_IDEMPOTENCY_DIGEST_LEN);

        /* which has no owner: nothing is replaced */

        ngx_memzero(p, NGX_IDEMPOTENCY_OWNER_LEN);
        p += NGX_IDEMPOTENCY_OWNER_LEN;
    }

    p = ngx_idempotency_redis_suspect_number(p, (uint64_t) op->ttl * 1000);
    suspect->argument.len = p - suspect->argument.data;

    ngx_idempotency_redis_suspect_command(rop, op->type);

    rop->args[3] = suspect->name;
    rop->args[4] = suspect->argument;

    return NGX_OK;
}


static void
ngx_idempotency_redis_suspect_command(ngx_idempotency_redis_op_t *rop,
    ngx_uint_t script)
{
    ngx_idempotency_redis_ctx_t  *ctx;

    ctx = rop->op->store->data;

    rop->script = &ctx->scripts[script];
    rop->eval = 0;
    rop->nargs = 5;

    ngx_str_set(&rop->args[0], "EVALSHA");
    rop->args[1] = rop->script->sha;
    ngx_str_set(&rop->args[2], "1");
}


/* the bytes are foreign data */

ngx_int_t
ngx_idempotency_redis_suspect_read(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *value, uint64_t now)
{
    u_char                           *p;
    ngx_idempotency_op_t             *op;
    ngx_idempotency_redis_suspect_t  *suspect;

    op = rop->op;
    suspect = rop->suspect;

    if (suspect->looks) {

        if (op->result != NGX_IDEMPOTENCY_OK) {
            return NGX_ERROR;
        }

        suspect->released = ngx_idempotency_record_is_of(value,
                                                         suspect->last.owner);

        return ngx_idempotency_record_decode(value, now, &suspect->record);
    }

    if (op->type == NGX_IDEMPOTENCY_SUSPECT_KEEP
        || op->result == NGX_IDEMPOTENCY_GRANTED)
    {
        return value->len ? NGX_ERROR : NGX_OK;
    }

    if (op->result != NGX_IDEMPOTENCY_EXISTS
        || value->len != NGX_IDEMPOTENCY_REDIS_LAST - 1)
    {
        return NGX_ERROR;
    }

    p = value->data;

    ngx_memcpy(suspect->last.owner, p, NGX_IDEMPOTENCY_OWNER_LEN);
    p += NGX_IDEMPOTENCY_OWNER_LEN;

    ngx_memcpy(suspect->last.record, p, NGX_IDEMPOTENCY_DIGEST_LEN);
    p += NGX_IDEMPOTENCY_DIGEST_LEN;

    suspect->last.made = 0;

    while (p < value->data + value->len) {
        suspect->last.made = suspect->last.made << 8 | *p++;
    }

    suspect->age = (now > suspect->last.made) ? now - suspect->last.made : 0;

    return NGX_OK;
}


ngx_int_t
ngx_idempotency_redis_suspect_next(ngx_idempotency_redis_op_t *rop)
{
    ngx_uint_t                        looks;
    ngx_idempotency_op_t             *op;
    ngx_idempotency_redis_suspect_t  *suspect;

    op = rop->op;
    suspect = rop->suspect;

    if (op->type == NGX_IDEMPOTENCY_SUSPECT_KEEP) {
        return NGX_OK;
    }

    /* LOOK, or else ASK or TAKE */

    looks = suspect->looks;
    suspect->looks = 0;

    if (looks) {
        suspect->suspected = ngx_idempotency_transition_suspects(op,
                                        &suspect->record, suspect->released,
                                        suspect->age);

        if (!suspect->suspected
            || ((op->flags & NGX_IDEMPOTENCY_SUSPECT_PASSES)
                && suspect->record.state >= NGX_IDEMPOTENCY_DONE))
        {
            return ngx_idempotency_redis_suspect_take(rop);
        }

    } else if (op->result == NGX_IDEMPOTENCY_EXISTS) {

        ngx_memzero(&suspect->record, sizeof(ngx_idempotency_record_t));

        /* until it is known to be none; this is not the last one yet */

        suspect->suspected = 1;

        if (rop->steps++ < NGX_IDEMPOTENCY_REDIS_SUSPECT_STEPS) {

            if (ngx_memcmp(suspect->last.record, op->id.digest,
                           NGX_IDEMPOTENCY_DIGEST_LEN)
                == 0)
            {
                suspect->suspected = 0;
                return ngx_idempotency_redis_suspect_take(rop);
            }

            if (ngx_idempotency_redis_suspect_look(rop) == NGX_OK) {
                return NGX_AGAIN;
            }
        }
    }

    /* it was looked at, or this request is the last one now */

    if (suspect->suspected) {
        op->result = NGX_IDEMPOTENCY_EXISTS;
        op->record = suspect->record;

        ngx_memcpy(op->record.fingerprint, suspect->last.record,
                   NGX_IDEMPOTENCY_DIGEST_LEN);
    }

    return NGX_OK;
}


/* as ngx_idempotency_redis_op_args() makes that of a fetch */

static ngx_int_t
ngx_idempotency_redis_suspect_look(ngx_idempotency_redis_op_t *rop)
{
    u_char                           *p;
    ngx_str_t                         mark;
    ngx_idempotency_op_t             *op;
    ngx_idempotency_redis_ctx_t      *ctx;
    ngx_idempotency_redis_suspect_t  *suspect;

    op = rop->op;
    ctx = op->store->data;
    suspect = rop->suspect;

    p = ngx_pnalloc(op->pool, ngx_idempotency_redis_record_name_len(ctx)
                              + NGX_IDEMPOTENCY_REDIS_ARGUMENT);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_idempotency_redis_suspect_command(rop, NGX_IDEMPOTENCY_FETCH);

    rop->args[3].data = p;
    p = ngx_idempotency_redis_record_name(p, ctx, suspect->last.record, 0,
                                          &mark);
    rop->args[3].len = p - rop->args[3].data;

    rop->args[4].data = p;
    rop->args[4].len = NGX_IDEMPOTENCY_REDIS_ARGUMENT;

    ngx_memzero(p, NGX_IDEMPOTENCY_REDIS_ARGUMENT);
    ngx_memcpy(p, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);
    p[NGX_IDEMPOTENCY_REDIS_FLAGS] = NGX_IDEMPOTENCY_FETCH_BARE;

    suspect->looks = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_suspect_take(ngx_idempotency_redis_op_t *rop)
{
    ngx_idempotency_redis_suspect_t  *suspect;

    suspect = rop->suspect;

    if (!(rop->op->flags & NGX_IDEMPOTENCY_SUSPECT_CLAIMED)) {
        rop->op->result = NGX_IDEMPOTENCY_REFUSED;
        return NGX_OK;
    }

    ngx_idempotency_redis_suspect_command(rop, NGX_IDEMPOTENCY_SUSPECT);

    ngx_memcpy(suspect->argument.data + NGX_IDEMPOTENCY_OWNER_LEN
               + NGX_IDEMPOTENCY_DIGEST_LEN,
               suspect->last.owner, NGX_IDEMPOTENCY_OWNER_LEN);

    rop->args[3] = suspect->name;
    rop->args[4] = suspect->argument;

    return NGX_AGAIN;
}


static u_char *
ngx_idempotency_redis_suspect_number(u_char *p, uint64_t n)
{
    ngx_uint_t  i;

    for (i = 8; i; i--) {
        p[i - 1] = (u_char) n;
        n >>= 8;
    }

    return p + 8;
}
