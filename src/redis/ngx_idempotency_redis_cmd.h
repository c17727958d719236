
/*
 * One command, from the store to a node of Redis, and its reply.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_CMD_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_CMD_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_redis_resp.h"


/* bytes of the largest argument that is sent; others have some room more */
#define NGX_IDEMPOTENCY_REDIS_LARGEST  (64 * 1024 * 1024)


typedef struct ngx_idempotency_redis_cmd_s    ngx_idempotency_redis_cmd_t;
typedef struct ngx_idempotency_redis_shard_s  ngx_idempotency_redis_shard_t;

typedef void (*ngx_idempotency_redis_handler_pt)(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
typedef void (*ngx_idempotency_redis_abandon_pt)(
    ngx_idempotency_redis_cmd_t *cmd);


typedef enum {
    NGX_IDEMPOTENCY_REDIS_FINE = 0,
    NGX_IDEMPOTENCY_REDIS_CONNECT,    /* no connection, or it was lost */
    NGX_IDEMPOTENCY_REDIS_TIMEOUT,    /* no reply in time */
    NGX_IDEMPOTENCY_REDIS_PROTOCOL,   /* the reply is not RESP */
    NGX_IDEMPOTENCY_REDIS_REFUSED     /* the reply is an error */
} ngx_idempotency_redis_error_e;


/*
 * The caller owns the memory of a command and of its arguments until the
 * handler is called: the command may have to be sent to another node.  The
 * handler is called once, and never from within send.  Its "reply" is freed
 * when the handler returns; NULL means that there is none, and cmd->error says
 * why.  Then cmd->sent == 0 means that no server can have executed the
 * command, and cmd->stuck that a connection which was up has timed out,
 * because of this command or of another one on the same connection.
 *
 * A caller that does not wait any more sets cmd->handler to NULL.  A worker
 * that exits calls no handlers but "abandon", where it is set; the command is
 * the caller's again.
 *
 * With cmd->wait, and "replicas=" or "fsync=" configured, the handler is called
 * after WAIT or WAITAOF was answered: cmd->acks is the number of replicas that
 * have the command, cmd->synced the number of servers that have it on disk, and
 * cmd->refusal says whether WAIT or WAITAOF was refused.
 */

struct ngx_idempotency_redis_cmd_s {
    ngx_queue_t                         queue;
    ngx_str_t                          *args;
    ngx_uint_t                          nargs;
    ngx_str_t                          *begin;   /* NULL, or args encoded */
    ngx_uint_t                          nbegin;  /* number of these args */
    ngx_str_t                          *key;     /* NULL: any node will do */
    ngx_uint_t                          part;    /* not 0: instead of a key */
    ngx_msec_t                          within;  /* 0: the store's timeout */
    ngx_msec_t                          deadline;/* on this connection */
    ngx_msec_t                          until;   /* on all of them */
    ngx_idempotency_redis_handler_pt    handler;
    ngx_idempotency_redis_abandon_pt    abandon;
    void                               *data;
    ngx_idempotency_redis_error_e       error;
    ngx_idempotency_redis_refusal_e     refusal; /* the last error reply */
    ngx_idempotency_redis_shard_t      *shard;   /* that replied */
    ngx_msec_t                          pushed;  /* to a connection, then */
    uint64_t                            end;     /* in the bytes to send */
    ngx_uint_t                          moves;   /* from node to node */
    ngx_idempotency_redis_reply_t      *reply;   /* held, see ack */
    ngx_uint_t                          acks;
    ngx_uint_t                          synced;
    unsigned                            wait:1;
    unsigned                            tick:1;  /* advances a counter */
    unsigned                            sent:1;
    unsigned                            stuck:1;
    unsigned                            asking:1;/* sent after ASKING */
};


#endif /* _NGX_IDEMPOTENCY_REDIS_CMD_H_INCLUDED_ */
