
/*
 * The store in Redis: what its files share.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_OP_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_OP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include "ngx_idempotency_store.h"
#include "ngx_idempotency_redis_conn.h"
#include "ngx_idempotency_redis_left.h"
#include "ngx_idempotency_redis_script.h"


/* EVALSHA, script, "1", key, question, and for some the answer to keep; or
 * EVALSHA, script, "2", key, mark, question; or
 * EVALSHA, script, "0", question, cursor, prefix */
#define NGX_IDEMPOTENCY_REDIS_ARGS     6

/* of these are the same in all commands of a script */
#define NGX_IDEMPOTENCY_REDIS_BEGIN    3

/* bytes of a question, and before the record in an answer */
#define NGX_IDEMPOTENCY_REDIS_QUESTION                                        \
    (NGX_IDEMPOTENCY_OWNER_LEN + NGX_IDEMPOTENCY_FINGERPRINT_LEN + 72)
#define NGX_IDEMPOTENCY_REDIS_ANSWER   (9 + NGX_IDEMPOTENCY_OWNER_LEN)

/* flags of an operation that it has in the background, too */
#define NGX_IDEMPOTENCY_REDIS_LATER_FLAGS                                     \
    (NGX_IDEMPOTENCY_SEQUENCE|NGX_IDEMPOTENCY_SEQUENCE_STRICT                 \
     |NGX_IDEMPOTENCY_TELL)


typedef struct {
    ngx_str_t                      text;
    ngx_str_t                      sha;        /* in hex */
    ngx_str_t                      begin;      /* of its command */
    ngx_uint_t                     nargs;      /* of its command */
} ngx_idempotency_redis_text_t;


/*
 * What waits for a connection: claims until their deadline, and what must
 * not get lost.
 */

typedef struct {
    ngx_queue_t                    queue;      /* ngx_idempotency_redis_op_t */
    ngx_event_t                    timer;
    ngx_uint_t                     number;     /* without a deadline */
    size_t                         bytes;      /* of their answers */
    ngx_uint_t                     dropped;
    ngx_uint_t                     bare;       /* told without an answer */
    unsigned                       busy:1;     /* a large one is under way */
} ngx_idempotency_redis_later_t;


/*
 * What exiting workers leave to others.  "leaving" is set once, when this
 * worker notices that it is to exit.
 */

typedef struct {
    ngx_shm_zone_t                *zone;
    ngx_event_t                    timer;
    ngx_connection_t               dummy;
    ngx_msec_t                     since;      /* this worker is leaving */
    ngx_uint_t                     given;      /* operations, when it exits */
    ngx_uint_t                     lost;       /* the same, without room */
    unsigned                       leaving:1;
    unsigned                       took:1;     /* there may be more */
    unsigned                       locked:1;   /* by a process that is dead */
} ngx_idempotency_redis_handover_t;


typedef struct {
    ngx_idempotency_redis_t        redis;
    ngx_idempotency_store_t       *store;
    ngx_str_t                      prefix;
    ngx_str_t                      purged;     /* a channel, see cache */
    ngx_shm_zone_t                *cache;      /* NULL: none */
    ngx_idempotency_redis_text_t   scripts[NGX_IDEMPOTENCY_REDIS_SCRIPTS];
    ngx_idempotency_redis_later_t  later;
    ngx_idempotency_redis_handover_t
                                   handover;
    ngx_str_t                      refusal;    /* the last one logged */
    u_char                         refusal_name[32];

    /* see safe */

    ngx_uint_t                     few;        /* not acknowledged since */
    ngx_idempotency_refusal_e      unacked;    /* why, NONE: they are */
} ngx_idempotency_redis_ctx_t;


/*
 * What the store keeps of an operation, or of one lease of a renewal, to be
 * able to ask again.
 */

typedef struct {
    ngx_queue_t                    queue;      /* of later */
    ngx_idempotency_redis_cmd_t    cmd;
    ngx_idempotency_op_t          *op;
    ngx_idempotency_lease_t       *lease;
    ngx_idempotency_redis_text_t  *script;
    ngx_str_t                      args[NGX_IDEMPOTENCY_REDIS_ARGS];
    ngx_uint_t                     nargs;
    ngx_msec_t                     deadline;   /* of all tries */
    uint64_t                       time;       /* of the server's reply */
    ngx_uint_t                     part;       /* of the keys, in a list */
    ngx_uint_t                     steps;      /* of a list, so far */
    ngx_uint_t                     timeouts;   /* in the background */
    ngx_idempotency_refusal_e      refusal;    /* of the last try */

    unsigned                       eval:1;     /* the script was not there */
    unsigned                       later:1;    /* nobody waits for it */
    unsigned                       nonsense:1; /* was the reply to one try */
    unsigned                       marked:1;   /* with the mark's key */
    unsigned                       looks:1;    /* a claim that takes nothing */
    unsigned                       ours:1;     /* and sees an earlier try */
} ngx_idempotency_redis_op_t;


/* What all commands of a script have in common; once its sha is known. */
ngx_int_t ngx_idempotency_redis_op_begin(ngx_pool_t *pool, ngx_uint_t i,
    ngx_idempotency_redis_text_t *script);

/*
 * What is needed to ask and to ask again, in op->pool; op->own is set, except
 * for a lease.  NULL when memory is short.
 */
ngx_idempotency_redis_op_t *ngx_idempotency_redis_op_create(
    ngx_idempotency_op_t *op, ngx_idempotency_lease_t *lease);

/*
 * Writes the name of a record, for which there is room: at most this many
 * bytes.  Returns its end; "mark" is the part of it that names its sequence.
 */
#define ngx_idempotency_redis_op_name_len(ctx)                                \
    ((ctx)->prefix.len + 2 * NGX_IDEMPOTENCY_DIGEST_LEN + 2)
u_char *ngx_idempotency_redis_op_name(u_char *p,
    ngx_idempotency_redis_ctx_t *ctx, u_char *digest, ngx_uint_t flags,
    ngx_str_t *mark);

/* Takes the answer out of a completion that is not under way. */
void ngx_idempotency_redis_op_bare(ngx_idempotency_redis_op_t *rop);

/* Sends it, once more or for the first time.  NGX_AGAIN or NGX_ERROR. */
ngx_int_t ngx_idempotency_redis_op_send(ngx_idempotency_redis_op_t *rop);

/* It failed for good: tells its caller. */
void ngx_idempotency_redis_op_fail(ngx_idempotency_redis_op_t *rop,
    ngx_idempotency_error_e error);

/* Why a command could not be sent, or its connection was lost. */
ngx_idempotency_refusal_e ngx_idempotency_redis_op_unreachable(
    ngx_idempotency_redis_ctx_t *ctx);

/* What an error of Redis says about new keys. */
ngx_idempotency_refusal_e ngx_idempotency_redis_op_refusal(
    ngx_idempotency_redis_refusal_e refusal);

/*
 * The worker exits: what must land is left to others, and what is no
 * request's is freed.
 */
void ngx_idempotency_redis_op_abandon(ngx_idempotency_redis_op_t *rop);

/* Is it empty, or one that a list has set? */
ngx_uint_t ngx_idempotency_redis_list_is_cursor(ngx_str_t *cursor);

/* The arguments of a list.  NGX_ERROR: memory is short. */
ngx_int_t ngx_idempotency_redis_list_args(ngx_idempotency_redis_op_t *rop);

/* What it has found.  NGX_ERROR: this is no such reply. */
ngx_int_t ngx_idempotency_redis_list_read(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *value, uint64_t now);

/* NGX_AGAIN: it goes on; NGX_OK: this is the list, and its cursor is set. */
ngx_int_t ngx_idempotency_redis_list_next(ngx_idempotency_redis_op_t *rop);

/* Must it land, whether somebody waits for it or not? */
ngx_uint_t ngx_idempotency_redis_op_settles(ngx_idempotency_op_t *op);


/* Sets up a worker's queue. */
void ngx_idempotency_redis_later_init(ngx_idempotency_redis_ctx_t *ctx);
void ngx_idempotency_redis_later_stop(ngx_idempotency_redis_ctx_t *ctx);

/* A claim asks again as soon as it can, until its deadline. */
void ngx_idempotency_redis_later_again(ngx_idempotency_redis_op_t *rop);

/*
 * A copy of the operation is sent until it lands, with the type given.  Within
 * bounds: an answer that there is no memory for is left out, and beyond a
 * number of them the operation is dropped and counted.
 */
void ngx_idempotency_redis_later_add(ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type);

/*
 * One of these copies has failed again, or is over.  One whose large answer
 * has timed out some times goes on without it: it would time out for ever,
 * and what shares its connection as well.
 */
void ngx_idempotency_redis_later_failed(ngx_idempotency_redis_op_t *rop);
void ngx_idempotency_redis_later_landed(ngx_idempotency_redis_op_t *rop);

/* A connection is up. */
void ngx_idempotency_redis_later_ready(ngx_idempotency_redis_ctx_t *ctx);

/* Is there room for one more, with so many bytes of an answer? */
ngx_uint_t ngx_idempotency_redis_later_has_room(
    ngx_idempotency_redis_ctx_t *ctx, size_t answer);

/*
 * An operation that has all but its answer is made ready to be sent; "head" is
 * the first part of the answer.  NULL when memory is short: it is freed.
 */
ngx_idempotency_redis_op_t *ngx_idempotency_redis_later_make(
    ngx_idempotency_op_t *op, ngx_str_t *answer, size_t head);

/* One that was made so is sent until it lands. */
void ngx_idempotency_redis_later_adopt(ngx_idempotency_redis_op_t *rop);


/* After the zone of safe: the shared memory of what exiting workers leave. */
ngx_int_t ngx_idempotency_redis_handover_zone(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx);

/*
 * A worker begins, and takes what others leave; it exits, when all that it
 * leaves was given.
 */
void ngx_idempotency_redis_handover_start(ngx_idempotency_redis_ctx_t *ctx);
void ngx_idempotency_redis_handover_stop(ngx_idempotency_redis_ctx_t *ctx);

/*
 * This worker is to exit, and has waited long enough for what is in the
 * background.
 */
ngx_uint_t ngx_idempotency_redis_handover_is_due(
    ngx_idempotency_redis_ctx_t *ctx);

/*
 * The worker exits now: others are to send the operation, with the type given.
 * Within bounds: an answer that there is no room for is left out, and without
 * any room the operation is lost and counted.
 */
void ngx_idempotency_redis_handover_give(ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type);

/* Takes what others have left, if there is something and Redis is up. */
void ngx_idempotency_redis_handover_take(ngx_idempotency_redis_ctx_t *ctx);

/* How many operations nobody has taken yet: see store.left. */
ngx_uint_t ngx_idempotency_redis_handover_number(
    ngx_idempotency_store_t *store);


/* "cache=", whose value this is; and, after all parameters, its channel. */
char *ngx_idempotency_redis_cache_conf(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx, ngx_str_t *value, void *tag);
ngx_int_t ngx_idempotency_redis_cache_channel(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx);

/* NGX_OK: the claim has its answer from memory; NGX_DECLINED: it must ask. */
ngx_int_t ngx_idempotency_redis_cache_claim(ngx_idempotency_op_t *op);

/* The reply was read, these are the bytes of its record. */
void ngx_idempotency_redis_cache_reply(ngx_idempotency_op_t *op,
    ngx_str_t *value, uint64_t now);


/* Waits for others to settle the record of the operation: see store.listen. */
ngx_idempotency_listener_t *ngx_idempotency_redis_push_listen(
    ngx_idempotency_op_t *op);
void ngx_idempotency_redis_push_unlisten(
    ngx_idempotency_listener_t *listener);


/* After all parameters: what the workers share.  NGX_OK or NGX_ERROR. */
ngx_int_t ngx_idempotency_redis_safe_zone(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx);

/* A worker begins, with what others have left. */
ngx_int_t ngx_idempotency_redis_safe_start(ngx_idempotency_redis_ctx_t *ctx);

/* The server has lost what it had acknowledged: no new claims for a while. */
void ngx_idempotency_redis_safe_forgot(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_shard_t *shard, const char *how);

/* What runs in this worker is written anew where it was lost. */
void ngx_idempotency_redis_safe_renew(ngx_idempotency_redis_t *redis);

/*
 * Makes a claim one that only looks, while nothing new may be claimed: asked
 * before each try.
 */
void ngx_idempotency_redis_safe_claim(ngx_idempotency_redis_op_t *rop);

/* Are replicas, or disks, to have it? */
ngx_uint_t ngx_idempotency_redis_safe_waits(ngx_idempotency_redis_op_t *rop);

/*
 * The reply was read.  If what was granted may be forgotten again, or may be
 * somebody else's, the operation has failed: UNSAFE.
 */
void ngx_idempotency_redis_safe(ngx_idempotency_redis_op_t *rop);


#endif /* _NGX_IDEMPOTENCY_REDIS_OP_H_INCLUDED_ */
