
/*
 * The store in Redis: one operation as a command, and the types of the store.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_OP_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_OP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include "ngx_idempotency_store.h"
#include "ngx_idempotency_redis_client.h"


/*
 * The arguments of a command:
 *     EVALSHA, script, "1", record, argument, and for some scripts the answer;
 *     EVALSHA, script, "2", record, mark of its sequence, argument; or
 *     EVALSHA, script, "0", argument, cursor, prefix
 * of which those of the prefix are the same in all commands of a script.
 */
#define NGX_IDEMPOTENCY_REDIS_ARGS         6
#define NGX_IDEMPOTENCY_REDIS_PREFIX_ARGS  3

/*
 * Bytes of the argument, and of a reply before its record; see
 * scripts/parts/read.lua and reply.lua
 */
#define NGX_IDEMPOTENCY_REDIS_ARGUMENT                                        \
    (NGX_IDEMPOTENCY_OWNER_LEN + NGX_IDEMPOTENCY_FINGERPRINT_LEN + 80)
#define NGX_IDEMPOTENCY_REDIS_REPLY    (9 + NGX_IDEMPOTENCY_OWNER_LEN)

/* where the argument has the flags of the operation */
#define NGX_IDEMPOTENCY_REDIS_FLAGS                                           \
    (NGX_IDEMPOTENCY_OWNER_LEN + NGX_IDEMPOTENCY_FINGERPRINT_SUM + 46)

/* bytes of the last request with a source, scope and fingerprint */
#define NGX_IDEMPOTENCY_REDIS_LAST        57

/* the result of a script that cannot read what is stored */
#define NGX_IDEMPOTENCY_REDIS_UNREADABLE  9


/* the scripts: one for each ngx_idempotency_op_e, and these */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_EXECUTED = NGX_IDEMPOTENCY_SUSPECT_KEEP + 1,
    NGX_IDEMPOTENCY_REDIS_CLAIM_NUMBER,
    NGX_IDEMPOTENCY_REDIS_RELEASE_NUMBER,
    NGX_IDEMPOTENCY_REDIS_SCRIPTS
} ngx_idempotency_redis_script_e;


typedef struct {
    ngx_str_t                      text;
    ngx_str_t                      sha;        /* in hex */
    ngx_str_t                      prefix;     /* of its command, encoded */
    ngx_uint_t                     nargs;      /* of its command */
} ngx_idempotency_redis_script_t;


/*
 * What waits for a connection: claims until their deadline, and outcomes,
 * which are sent until Redis has them.
 */

typedef struct {
    ngx_queue_t                    queue;      /* ngx_idempotency_redis_op_t */
    ngx_event_t                    timer;
    ngx_connection_t               dummy;      /* of the timer */
    ngx_uint_t                     outcomes;   /* queued, or under way */
    size_t                         bytes;      /* of their answers */
    ngx_uint_t                     dropped;
    ngx_uint_t                     stripped;   /* sent without their answer */
    unsigned                       large:1;    /* a large one is under way */
} ngx_idempotency_redis_background_t;


/*
 * What exiting workers leave to others.  "exiting" is set once, when this
 * worker notices that it is to exit.
 */

typedef struct {
    ngx_shm_zone_t                *zone;
    ngx_event_t                    timer;
    ngx_connection_t               dummy;      /* of the timer */
    ngx_msec_t                     exiting_since;
    ngx_uint_t                     left;       /* outcomes, by this worker */
    ngx_uint_t                     lost;       /* there was no room for them */
    unsigned                       exiting:1;
    unsigned                       more:1;     /* not all were taken at once */
    unsigned                       stuck:1;    /* mutex of a dead process */
} ngx_idempotency_redis_handover_t;


typedef struct {
    ngx_idempotency_redis_t        redis;
    ngx_idempotency_store_t       *store;
    ngx_str_t                      prefix;
    ngx_str_t                      purged;     /* the channel of purges */
    ngx_shm_zone_t                *cache;      /* NULL: none */
    ngx_idempotency_redis_script_t scripts[NGX_IDEMPOTENCY_REDIS_SCRIPTS];
    ngx_idempotency_redis_background_t
                                   background;
    ngx_idempotency_redis_handover_t
                                   handover;

    /* the first word of the last error that was logged; empty: none */
    ngx_str_t                      error;
    u_char                         error_word[32];

    /* of replicas or disks: why they do not acknowledge, and since then */
    ngx_idempotency_refusal_e      unacked;    /* NONE: they do */
    ngx_uint_t                     unacked_ops;
} ngx_idempotency_redis_ctx_t;


typedef struct ngx_idempotency_redis_suspect_s
    ngx_idempotency_redis_suspect_t;


/*
 * What the store keeps of an operation, or of one lease of a renewal, to send
 * it and to send it again.
 */

typedef struct {
    ngx_queue_t                    queue;      /* of the background */
    ngx_idempotency_redis_cmd_t    cmd;
    ngx_idempotency_op_t          *op;
    ngx_idempotency_lease_t       *lease;
    ngx_idempotency_redis_script_t *script;
    ngx_str_t                      args[NGX_IDEMPOTENCY_REDIS_ARGS];
    ngx_uint_t                     nargs;
    ngx_msec_t                     deadline;   /* of all tries */
    uint64_t                       time;       /* of the server's reply */
    ngx_uint_t                     part;       /* of the keys, in a list */
    ngx_uint_t                     steps;      /* of a list, so far; or of a
                                                  look for a suspect */
    ngx_idempotency_redis_suspect_t *suspect;
    ngx_uint_t                     timeouts;   /* in the background */
    ngx_idempotency_refusal_e      refusal;    /* of the last try */

    unsigned                       eval:1;     /* Redis has not the script */
    unsigned                       background:1;   /* an outcome, sent later */
    unsigned                       nonsense:1; /* a reply was no reply to it */
    unsigned                       sequence:1; /* with the key of the mark */
    unsigned                       fetches:1;  /* a claim that only reads */
    unsigned                       ours:1;     /* the record has our owner */
} ngx_idempotency_redis_op_t;


/* The texts of all scripts, their sums and encoded prefixes. */
ngx_int_t ngx_idempotency_redis_load_scripts(ngx_pool_t *pool,
    ngx_idempotency_redis_ctx_t *ctx);

/*
 * The command of an operation, or of a lease, in op->pool; op->own is set,
 * except for a lease.  NULL when memory is short.
 */
ngx_idempotency_redis_op_t *ngx_idempotency_redis_op_create(
    ngx_idempotency_op_t *op, ngx_idempotency_lease_t *lease);

/*
 * Writes the name of a record, for which there is room: at most this many
 * bytes.  Returns its end; "mark" is the part of it that names the mark of
 * its sequence.
 */
#define ngx_idempotency_redis_record_name_len(ctx)                            \
    ((ctx)->prefix.len + 2 * NGX_IDEMPOTENCY_DIGEST_LEN + 2)
u_char *ngx_idempotency_redis_record_name(u_char *p,
    ngx_idempotency_redis_ctx_t *ctx, u_char *digest, ngx_uint_t flags,
    ngx_str_t *mark);

/*
 * The answer that a completion stores, of length 0 if there is none.  It is
 * in the command: what op->head and op->body point to may be gone.
 */
ngx_str_t *ngx_idempotency_redis_op_answer(ngx_idempotency_op_t *op);

/* Takes the answer out of a completion that is not under way. */
void ngx_idempotency_redis_op_strip(ngx_idempotency_redis_op_t *rop);


/* The store's submit, see ngx_idempotency_op_submit(). */
ngx_int_t ngx_idempotency_redis_op_submit(ngx_idempotency_op_t *op);

/* Sends it, once more or for the first time.  NGX_AGAIN or NGX_ERROR. */
ngx_int_t ngx_idempotency_redis_op_send(ngx_idempotency_redis_op_t *rop);

/* It failed for good: its caller is told. */
void ngx_idempotency_redis_op_fail(ngx_idempotency_redis_op_t *rop,
    ngx_idempotency_error_e error);

/*
 * The worker exits: an outcome is left to other workers, and an operation
 * that no request waits for is freed.
 */
void ngx_idempotency_redis_op_abandon(ngx_idempotency_redis_cmd_t *cmd);


/* Is it empty, or one that a list has set? */
ngx_uint_t ngx_idempotency_redis_list_is_cursor(ngx_str_t *cursor);

/* The arguments of a list.  NGX_ERROR: memory is short. */
ngx_int_t ngx_idempotency_redis_list_args(ngx_idempotency_redis_op_t *rop);

/* What a reply has found.  NGX_ERROR: this is no such reply. */
ngx_int_t ngx_idempotency_redis_list_read(ngx_idempotency_redis_op_t *rop,
    ngx_str_t *value, uint64_t now);

/*
 * Sets the cursor.  NGX_AGAIN: the list is to be sent again, to go on from
 * there; NGX_OK: it is long enough, or there is no more.
 */
ngx_int_t ngx_idempotency_redis_list_next(ngx_idempotency_redis_op_t *rop);


/*
 * After all parameters: the zone that workers share, and what is done about a
 * loss.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_idempotency_redis_amnesia_zone(ngx_conf_t *cf,
    ngx_idempotency_redis_ctx_t *ctx);

/* A worker starts; a loss that other workers have seen counts here as well. */
ngx_int_t ngx_idempotency_redis_amnesia_start(ngx_idempotency_redis_ctx_t *ctx);

/*
 * Before each try: while new keys are refused, a claim becomes a fetch, which
 * finds the known keys.
 */
void ngx_idempotency_redis_amnesia_before_send(ngx_idempotency_redis_op_t *rop);

/*
 * After a reply was read; rop->refusal is what Redis has refused in it.  The
 * operation fails with UNSAFE if what was granted may be lost again, or may
 * belong to another owner.
 */
void ngx_idempotency_redis_amnesia_after_reply(ngx_idempotency_redis_op_t *rop);


#endif /* _NGX_IDEMPOTENCY_REDIS_OP_H_INCLUDED_ */
