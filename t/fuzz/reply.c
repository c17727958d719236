
/*
 * A reply to an operation, whatever was asked: a grant must name its owner and
 * its record, and no operation waits for ever.  The first byte says what was
 * asked, the rest are replies of Redis.
 */


#include "fuzz.h"
#include "../../src/store/redis/ngx_idempotency_redis_op.c"
#include "../../src/store/redis/ngx_idempotency_redis_command.c"
#include "../../src/store/redis/ngx_idempotency_redis_suspect.c"


static void fuzz_reply(ngx_idempotency_op_e type, ngx_uint_t detached,
    ngx_uint_t looks, ngx_idempotency_redis_reply_t *reply);
static void fuzz_land(void);
static void fuzz_done(ngx_idempotency_op_t *op);


static ngx_idempotency_store_t      fuzz_store;
static ngx_idempotency_redis_ctx_t  fuzz_ctx;
static ngx_shm_zone_t               fuzz_zone;
static ngx_uint_t                   fuzz_over;

static ngx_idempotency_redis_shared_t  fuzz_shared;

static u_char  fuzz_owner[] = "0123456789abcdef";
static u_char  fuzz_suspect[NGX_IDEMPOTENCY_DIGEST_LEN];


void
fuzz_init(void)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_SCRIPTS; i++) {
        ngx_str_set(&fuzz_ctx.scripts[i].text, "return 1");
        ngx_str_set(&fuzz_ctx.scripts[i].sha, "sha");
    }

    ngx_str_set(&fuzz_store.name, "fuzz");
    ngx_str_set(&fuzz_ctx.prefix, "idem:");

    fuzz_store.data = &fuzz_ctx;
    fuzz_store.counts = &ngx_idempotency_counts_nowhere;
    fuzz_store.now = &ngx_idempotency_counts_never;
    fuzz_ctx.store = &fuzz_store;
    fuzz_ctx.redis.name = fuzz_store.name;
    fuzz_ctx.redis.zone = &fuzz_zone;

    fuzz_zone.data = &fuzz_shared;

    ngx_queue_init(&fuzz_ctx.redis.nodes);
    ngx_queue_init(&fuzz_ctx.redis.leaving);
    ngx_queue_init(&fuzz_ctx.redis.waiting);
}


void
fuzz_one(ngx_pool_t *pool, ngx_str_t *in)
{
    u_char                           first;
    ngx_uint_t                       type;
    ngx_idempotency_redis_reply_t   *reply;
    ngx_idempotency_redis_reader_t  *reader;

    (void) pool;

    first = fuzz_byte(in);

    reader = ngx_idempotency_redis_reader_create(65536);
    fuzz_want(reader != NULL);

    ngx_idempotency_redis_background_start(&fuzz_ctx);

    if (ngx_idempotency_redis_reader_feed(reader, in->data, in->len)
        == NGX_OK)
    {
        while (ngx_idempotency_redis_reader_next(reader, &reply) == NGX_OK) {
            /* anything but a list */

            type = (first & 0x7f) % NGX_IDEMPOTENCY_SUSPECT_KEEP;

            fuzz_reply(type < NGX_IDEMPOTENCY_LIST ? type : type + 1,
                       first & 0x80, first & 0x40, reply);
            ngx_idempotency_redis_reply_free(reply);
        }
    }

    fuzz_land();

    ngx_idempotency_redis_background_stop(&fuzz_ctx);
    ngx_idempotency_redis_reader_free(reader);
}


/* operations that wait in background are finished */

static void
fuzz_land(void)
{
    ngx_queue_t                 *q;
    ngx_idempotency_redis_op_t  *rop;

    while (!ngx_queue_empty(&fuzz_ctx.background.queue)) {

        q = ngx_queue_head(&fuzz_ctx.background.queue);
        ngx_queue_remove(q);

        rop = ngx_queue_data(q, ngx_idempotency_redis_op_t, queue);

        fuzz_want(rop->background);
        ngx_idempotency_redis_background_done(rop);
    }

    fuzz_want(fuzz_ctx.background.outcomes == 0
              && fuzz_ctx.background.bytes == 0);
}


static void
fuzz_reply(ngx_idempotency_op_e type, ngx_uint_t detached, ngx_uint_t looks,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                    value;
    ngx_idempotency_op_t        *op;
    ngx_idempotency_lease_t     *lease;
    ngx_idempotency_redis_op_t  *rop;

    static ngx_uint_t  pending;

    op = ngx_idempotency_op_create(&fuzz_store, type);
    fuzz_want(op != NULL);

    ngx_memcpy(op->id.owner, fuzz_owner, NGX_IDEMPOTENCY_OWNER_LEN);

    op->lease = 30000;
    op->ttl = 60;
    op->suspect = fuzz_suspect;
    op->window = 60;
    op->handler = fuzz_done;
    op->pending = 1;
    lease = NULL;

    if (type == NGX_IDEMPOTENCY_RENEW) {
        lease = ngx_pcalloc(op->pool, sizeof(ngx_idempotency_lease_t));
        fuzz_want(lease != NULL);
        ngx_memcpy(lease->id.owner, fuzz_owner, NGX_IDEMPOTENCY_OWNER_LEN);
    }

    rop = ngx_idempotency_redis_op_create(op, lease);
    fuzz_want(rop != NULL);

    if (lease) {
        pending = 1;
        op->own = &pending;
    }

    if (type == NGX_IDEMPOTENCY_SUSPECT && looks) {

        /* the last request is known: the reply is its record */

        fuzz_want(ngx_idempotency_redis_suspect_look(rop) == NGX_OK);
    }

    rop->cmd.sent = 1;
    fuzz_over = 0;

    if (detached) {
        ngx_idempotency_op_drop(op);
        ngx_idempotency_redis_op_handler(&rop->cmd, reply);
        return;
    }

    ngx_idempotency_redis_op_handler(&rop->cmd, reply);

    fuzz_want(fuzz_over == 1);

    if (type == NGX_IDEMPOTENCY_CLAIM
        && op->error == NGX_IDEMPOTENCY_ERROR_NONE
        && op->result == NGX_IDEMPOTENCY_GRANTED)
    {
        ngx_idempotency_redis_reply_string(reply, &value);

        fuzz_want(value.len > NGX_IDEMPOTENCY_REDIS_REPLY
                  && ngx_memcmp(value.data + 9, fuzz_owner,
                                NGX_IDEMPOTENCY_OWNER_LEN)
                     == 0);

        value.data += NGX_IDEMPOTENCY_REDIS_REPLY;
        value.len -= NGX_IDEMPOTENCY_REDIS_REPLY;

        fuzz_want(ngx_idempotency_record_is_of(&value, fuzz_owner));
    }

    ngx_idempotency_op_drop(op);
}


static void
fuzz_done(ngx_idempotency_op_t *op)
{
    (void) op;
    fuzz_over++;
}
