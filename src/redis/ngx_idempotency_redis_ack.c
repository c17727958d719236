
/*
 * Acknowledgement by replicas: one WAIT behind all that leaves in one write.
 *
 * Redis does nothing else for a connection that waits, so the next write is
 * held back until the reply is there: however long the replicas take, nobody
 * waits for more than two of them.
 */


#include "ngx_idempotency_redis_link.h"


/* bytes up to here may be written now */

ngx_int_t
ngx_idempotency_redis_ack_batch(ngx_idempotency_redis_conn_t *conn)
{
    ngx_int_t                     rc;
    ngx_str_t                     args[3], bytes;
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_cmd_t  *ack;
    u_char                        number[NGX_INT_T_LEN], msec[NGX_INT_T_LEN];

    redis = conn->redis;

    if (conn->acking) {
        return NGX_OK;
    }

    if (!conn->unacked) {
        conn->batch = conn->appended;
        return NGX_OK;
    }

    ngx_str_set(&args[0], "WAIT");

    args[1].data = number;
    args[1].len = ngx_sprintf(number, "%ui", redis->replicas) - number;

    args[2].data = msec;
    args[2].len = ngx_sprintf(msec, "%M", redis->replicas_wait) - msec;

    if (ngx_idempotency_redis_encode(args, 3, &bytes) != NGX_OK) {
        return NGX_ERROR;
    }

    ack = &conn->ack;

    ngx_memzero(ack, sizeof(ngx_idempotency_redis_cmd_t));

    rc = ngx_idempotency_redis_pipe_push(conn, &bytes, ack);

    ngx_idempotency_redis_encode_free(&bytes);

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    conn->unacked = 0;
    conn->acking = 1;
    conn->batch = conn->appended;

    return NGX_OK;
}


void
ngx_idempotency_redis_ack_hold(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    cmd->reply = reply;

    ngx_queue_insert_tail(&conn->held, &cmd->queue);
}


/* an error of WAIT is no acknowledgement */

void
ngx_idempotency_redis_ack_told(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    int64_t                         n;
    ngx_queue_t                    *q, queue;
    ngx_idempotency_redis_cmd_t    *cmd;
    ngx_idempotency_redis_reply_t  *held;

    n = ngx_idempotency_redis_reply_integer(reply);

    conn->acking = 0;
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
        cmd->acks = (ngx_uint_t) ngx_max(n, 0);

        if (cmd->handler) {
            cmd->handler(cmd, held);
        }

        ngx_idempotency_redis_reply_free(held);
    }
}


/* the connection is lost: these were executed, and how safely is not known */

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

    if (conn->acking && conn->ack.queue.next) {
        ngx_queue_remove(&conn->ack.queue);
        conn->ack.queue.next = NULL;
    }

    conn->acking = 0;
    conn->unacked = 0;
    conn->batch = 0;
}
