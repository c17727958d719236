
/*
 * Acknowledgement by replicas and by disks: one WAIT, and one WAITAOF, behind
 * all commands of one write.  While Redis waits it executes nothing else for
 * this connection, so the next write is held back until the replies are there:
 * no command waits for more than two rounds.
 */


#include "ngx_idempotency_redis_pipe.h"


static ngx_int_t ngx_idempotency_redis_ack_push(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_cmd_t *ack,
    ngx_str_t *args, ngx_uint_t n);
static void ngx_idempotency_redis_ack_synced(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_ack_refused(
    ngx_idempotency_redis_conn_t *conn, ngx_idempotency_redis_cmd_t *ack,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_ack_forget(ngx_idempotency_redis_cmd_t *ack);


ngx_int_t
ngx_idempotency_redis_ack_batch(ngx_idempotency_redis_conn_t *conn)
{
    ngx_str_t                 args[4];
    ngx_idempotency_redis_t  *redis;
    u_char                    number[NGX_INT_T_LEN], msec[NGX_INT_T_LEN];

    redis = conn->redis;

    if (conn->acking) {
        return NGX_OK;
    }

    if (!conn->unacked) {
        conn->batch = conn->appended;
        return NGX_OK;
    }

    conn->acks = 0;
    conn->synced = 0;
    conn->ack_refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE;

    if (redis->replicas) {
        ngx_str_set(&args[0], "WAIT");

        args[1].data = number;
        args[1].len = ngx_sprintf(number, "%ui", redis->replicas) - number;

        args[2].data = msec;
        args[2].len = ngx_sprintf(msec, "%M", redis->replicas_wait) - msec;

        if (ngx_idempotency_redis_ack_push(conn, &conn->ack, args, 3)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (redis->fsync) {
        ngx_str_set(&args[0], "WAITAOF");
        ngx_str_set(&args[1], "1");

        args[2].data = number;
        args[2].len = ngx_sprintf(number, "%ui", redis->fsync - 1) - number;

        args[3].data = msec;
        args[3].len = ngx_sprintf(msec, "%M", redis->fsync_wait) - msec;

        if (ngx_idempotency_redis_ack_push(conn, &conn->sync, args, 4)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    conn->unacked = 0;
    conn->batch = conn->appended;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_ack_push(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *ack, ngx_str_t *args, ngx_uint_t n)
{
    ngx_memzero(ack, sizeof(ngx_idempotency_redis_cmd_t));

    ack->args = args;
    ack->nargs = n;

    if (ngx_idempotency_redis_queue_push(conn, ack) != NGX_OK) {
        return NGX_ERROR;
    }

    conn->acking++;

    return NGX_OK;
}


void
ngx_idempotency_redis_ack_hold(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    cmd->reply = reply;

    ngx_queue_insert_tail(&conn->held, &cmd->queue);
}


/* an error is no acknowledgement */

void
ngx_idempotency_redis_ack_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *ack, ngx_idempotency_redis_reply_t *reply)
{
    int64_t                         n;
    ngx_queue_t                    *q, queue;
    ngx_idempotency_redis_cmd_t    *cmd;
    ngx_idempotency_redis_reply_t  *held;

    ack->queue.next = NULL;

    if (ngx_idempotency_redis_reply_type(reply) == NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        ngx_idempotency_redis_ack_refused(conn, ack, reply);

    } else if (ack == &conn->ack) {
        n = ngx_idempotency_redis_reply_integer(reply);
        conn->acks = (ngx_uint_t) ngx_max(n, 0);

    } else {
        ngx_idempotency_redis_ack_synced(conn, reply);
    }

    if (--conn->acking) {
        return;
    }

    if (conn->ack_refusal == NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE) {
        conn->redis->ack_refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_NONE;
    }

    ngx_post_event(&conn->flush, &ngx_posted_events);

    ngx_queue_init(&queue);
    ngx_queue_add(&queue, &conn->held);
    ngx_queue_init(&conn->held);

    while (!ngx_queue_empty(&queue)) {
        q = ngx_queue_head(&queue);
        ngx_queue_remove(q);

        cmd = ngx_queue_data(q, ngx_idempotency_redis_cmd_t, queue);

        held = cmd->reply;
        cmd->reply = NULL;
        cmd->acks = conn->acks;
        cmd->synced = conn->synced;
        cmd->refusal = conn->ack_refusal;

        if (cmd->handler) {
            cmd->handler(cmd, held);
        }

        ngx_idempotency_redis_reply_free(held);
    }
}


/*
 * WAITAOF replies with two numbers: of masters and of replicas that have
 * synced
 */

static void
ngx_idempotency_redis_ack_synced(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    int64_t                         local, n;
    ngx_idempotency_redis_reply_t  *first, *second;

    first = ngx_idempotency_redis_reply_element(reply, 0);
    second = ngx_idempotency_redis_reply_element(reply, 1);

    if (first == NULL || second == NULL) {
        return;
    }

    local = ngx_idempotency_redis_reply_integer(first);
    n = ngx_idempotency_redis_reply_integer(second);

    if (local > 0) {
        conn->synced = 1 + (ngx_uint_t) ngx_max(n, 0);
    }
}


/* one line for each kind of error, until there is none */

static void
ngx_idempotency_redis_ack_refused(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *ack, ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                 text;
    ngx_idempotency_redis_t  *redis;

    redis = conn->redis;

    ngx_idempotency_redis_reply_string(reply, &text);

    conn->ack_refusal = ngx_idempotency_redis_refusal(&text);

    if (ack == &conn->sync
        && conn->ack_refusal != NGX_IDEMPOTENCY_REDIS_REFUSAL_NOPERM)
    {
        conn->ack_refusal = NGX_IDEMPOTENCY_REDIS_REFUSAL_NO_AOF;
    }

    if (redis->ack_refusal == conn->ack_refusal) {
        return;
    }

    redis->ack_refusal = conn->ack_refusal;

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "idempotency store \"%V\" refuses %s, node \"%V\": \"%V\"; "
                  "new keys are refused and answers may get lost",
                  &redis->name, (ack == &conn->sync) ? "WAITAOF" : "WAIT",
                  &conn->peer->name, &text);
}


/* commands with a reply were executed, but it is not known how safely */

void
ngx_idempotency_redis_ack_drop(ngx_idempotency_redis_conn_t *conn)
{
    ngx_queue_t                  *q;
    ngx_idempotency_redis_cmd_t  *cmd;

    while (!ngx_queue_empty(&conn->held)) {
        q = ngx_queue_head(&conn->held);
        ngx_queue_remove(q);

        cmd = ngx_queue_data(q, ngx_idempotency_redis_cmd_t, queue);

        ngx_idempotency_redis_reply_free(cmd->reply);

        cmd->reply = NULL;
        cmd->error = NGX_IDEMPOTENCY_REDIS_CONNECT;
        cmd->sent = 1;

        ngx_queue_insert_tail(&conn->lost, q);
    }

    if (conn->acking) {
        ngx_idempotency_redis_ack_forget(&conn->ack);
        ngx_idempotency_redis_ack_forget(&conn->sync);
    }

    conn->acking = 0;
    conn->unacked = 0;
    conn->batch = 0;
}


static void
ngx_idempotency_redis_ack_forget(ngx_idempotency_redis_cmd_t *ack)
{
    if (ack->queue.next) {
        ngx_queue_remove(&ack->queue);
        ack->queue.next = NULL;
    }
}
