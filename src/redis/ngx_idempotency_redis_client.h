
/*
 * Redis as one worker reaches it, one server or many: persistent, pipelined
 * connections that all requests share.  This is what the store uses.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_CLIENT_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_CLIENT_H_INCLUDED_


#include "ngx_idempotency_redis_cmd.h"
#include "ngx_idempotency_redis_conf.h"
#include "ngx_idempotency_redis_loss.h"


typedef struct ngx_idempotency_redis_sub_s  ngx_idempotency_redis_sub_t;

typedef void (*ngx_idempotency_redis_sub_pt)(ngx_idempotency_redis_sub_t *sub);


/*
 * A subscription to a channel, which is named as the key it is about.  The
 * caller owns its memory and that of the name.  The handler is called for each
 * message, and when messages may have been missed: the channel is open now, or
 * again.  It may not end its own subscription.
 */

struct ngx_idempotency_redis_sub_s {
    ngx_str_node_t                      channel;
    ngx_idempotency_redis_sub_pt        handler;
    void                               *data;
    void                               *subscriber;  /* SUBSCRIBE was sent to
                                                        this node, or NULL */
    unsigned                            open:1;      /* and was confirmed */
};


/* has the command as many acknowledgements as are configured? */

#define ngx_idempotency_redis_is_acked(redis, cmd)                            \
    ((cmd)->acks >= (redis)->replicas && (cmd)->synced >= (redis)->fsync)


/* client */

/*
 * Connects this worker; later commands connect by themselves.  NGX_ERROR
 * when memory is short.
 */
ngx_int_t ngx_idempotency_redis_start(ngx_idempotency_redis_t *redis);

/* Closes everything at once: the worker exits. */
void ngx_idempotency_redis_stop(ngx_idempotency_redis_t *redis);

/*
 * The keys are on several nodes of a cluster, and otherwise on one: each node
 * has a part of them.  Parts are numbered from 1 on, with gaps; 0: there is
 * none behind it.
 */
ngx_uint_t ngx_idempotency_redis_next_part(ngx_idempotency_redis_t *redis,
    ngx_uint_t part);

/*
 * A reply made no sense to the caller: replies may be out of step, so all
 * connections are closed and made anew.  May be called from a handler.
 */
void ngx_idempotency_redis_distrust(ngx_idempotency_redis_t *redis);

/* The shard that has the key now; NULL: not known. */
ngx_idempotency_redis_shard_t *ngx_idempotency_redis_shard(
    ngx_idempotency_redis_t *redis, ngx_str_t *key);


/* topology */

/*
 * Sends a command, its args, nargs, key, handler and data set, to the node
 * that has the key.  All commands of one turn of the event loop leave in one
 * write.  NGX_AGAIN: the handler will be called.  NGX_ERROR: no connection is
 * up or about to be for the first time: refused at once, the handler is not
 * called.
 */
ngx_int_t ngx_idempotency_redis_send(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_cmd_t *cmd);

/* Is a connection up? */
ngx_uint_t ngx_idempotency_redis_is_up(ngx_idempotency_redis_t *redis);


/* pubsub */

ngx_int_t ngx_idempotency_redis_pubsub_start(ngx_idempotency_redis_t *redis);
void ngx_idempotency_redis_pubsub_stop(ngx_idempotency_redis_t *redis);

/*
 * The subscription begins when the node that has the key confirms it.  NGX_OK,
 * or NGX_DECLINED: there are too many.
 */
ngx_int_t ngx_idempotency_redis_subscribe(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub);
void ngx_idempotency_redis_unsubscribe(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub);

/*
 * NGX_OK: all messages in the purge channel are received, "since" then; or
 * NGX_DECLINED.
 */
ngx_int_t ngx_idempotency_redis_purge_since(ngx_idempotency_redis_t *redis,
    ngx_msec_t *since);


/* tick: the timer of loss detection */

ngx_int_t ngx_idempotency_redis_tick_start(ngx_idempotency_redis_t *redis);
void ngx_idempotency_redis_tick_stop(ngx_idempotency_redis_t *redis);


#endif /* _NGX_IDEMPOTENCY_REDIS_CLIENT_H_INCLUDED_ */
