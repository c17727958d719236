
/*
 * What a server says about itself, and whether it is the one that was known.
 */


#ifndef _NGX_IDEMPOTENCY_REDIS_INFO_H_INCLUDED_
#define _NGX_IDEMPOTENCY_REDIS_INFO_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_redis_resp.h"


/* bytes of run_id, master_replid and master_replid2 */
#define NGX_IDEMPOTENCY_REDIS_ID_LEN  40


/*
 * A process has a run_id; a history of writes has a replid, which a replica
 * shares with its master.  A replica that is promoted gets a new one.
 */

typedef struct {
    u_char        run_id[NGX_IDEMPOTENCY_REDIS_ID_LEN];
    u_char        replid[NGX_IDEMPOTENCY_REDIS_ID_LEN];
} ngx_idempotency_redis_identity_t;


typedef struct {
    ngx_idempotency_redis_identity_t  identity;

    /* the history that this server went on with when it was promoted */
    u_char        predecessor[NGX_IDEMPOTENCY_REDIS_ID_LEN];

    int64_t       time;            /* milliseconds, by its clock */
    uint64_t      evicted;         /* keys, since it started */
    ngx_uint_t    version;         /* its first number, 0: not known */
    size_t        policy_len;
    u_char        policy[24];      /* of eviction, for the log */

    unsigned      identified:1;    /* identity and predecessor are set */
    unsigned      timed:1;         /* time is set */
    unsigned      watched:1;       /* evicted and evicts are set */
    unsigned      evicts:1;        /* it may, by its policy */
} ngx_idempotency_redis_info_t;


/* A server compared with the one that was known. */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_SERVER_SAME = 0,

    /*
     * It was restarted, or the slots have moved to it: the counter shows
     * whether it has all data.
     */
    NGX_IDEMPOTENCY_REDIS_SERVER_OTHER,

    /*
     * A replica has taken over, perhaps a former master: it may lack the last
     * writes that its master had acknowledged, even if the counter is right.
     */
    NGX_IDEMPOTENCY_REDIS_SERVER_SUCCESSOR
} ngx_idempotency_redis_server_e;


/* What the topology knows about a change of master. */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_HINT_NONE = 0,
    NGX_IDEMPOTENCY_REDIS_HINT_HANDED_OVER,    /* by a master that lives */
    NGX_IDEMPOTENCY_REDIS_HINT_TAKEN_OVER      /* from one that is lost */
} ngx_idempotency_redis_hint_e;


/*
 * Read the reply to INFO, or to TIME.  Fields that it does not have stay as
 * they are: the server may refuse the command, or be a proxy.
 */
void ngx_idempotency_redis_info_read(ngx_idempotency_redis_reply_t *reply,
    ngx_idempotency_redis_info_t *info);
void ngx_idempotency_redis_info_time(ngx_idempotency_redis_reply_t *reply,
    ngx_idempotency_redis_info_t *info);

/*
 * The one decision about identity; "known" is NULL if no server was known,
 * "slots" says that keys are on several servers.  Pure: see t/unit/info.c.
 */
ngx_idempotency_redis_server_e ngx_idempotency_redis_info_judge(
    ngx_idempotency_redis_identity_t *known,
    ngx_idempotency_redis_info_t *info, ngx_idempotency_redis_hint_e hint,
    ngx_uint_t slots);


#endif /* _NGX_IDEMPOTENCY_REDIS_INFO_H_INCLUDED_ */
