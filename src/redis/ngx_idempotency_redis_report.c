
/*
 * Lines about a node in the error log: one for each kind of failure in an
 * outage.
 */


#include "ngx_idempotency_redis_conn.h"


void
ngx_idempotency_redis_report(ngx_idempotency_redis_conn_t *conn,
    ngx_uint_t kind, ngx_err_t err, const char *fmt, ...)
{
    u_char   *p, buf[NGX_MAX_CONF_ERRSTR];
    va_list   args;

    if (conn->peer->reported & kind) {
        return;
    }

    conn->peer->reported |= kind;

    va_start(args, fmt);
    p = ngx_vslprintf(buf, buf + sizeof(buf), fmt, args);
    va_end(args);

    ngx_log_error(ngx_idempotency_redis_report_level(conn->peer, NGX_LOG_ERR),
                  ngx_cycle->log, err,
                  "idempotency store \"%V\" %*s, node \"%V\"",
                  &conn->redis->name, p - buf, buf, conn->pc.name);
}


/* the outage of a subscriber is that of its node, which is reported itself */

ngx_uint_t
ngx_idempotency_redis_report_level(ngx_idempotency_redis_peer_t *peer,
    ngx_uint_t level)
{
    return peer->kind == NGX_IDEMPOTENCY_REDIS_KIND_SUBSCRIBER ? NGX_LOG_INFO
                                                          : level;
}


void
ngx_idempotency_redis_report_hush(ngx_idempotency_redis_conn_t *conn,
    ngx_uint_t hush)
{
    ngx_uint_t  level;

    level = ngx_cycle->log->log_level;

    if (hush && level <= NGX_LOG_DEBUG) {
        level = ngx_min(level, NGX_LOG_ALERT);
    }

    conn->log.log_level = level;
}


u_char *
ngx_idempotency_redis_report_log(ngx_log_t *log, u_char *buf, size_t len)
{
    u_char                        *p;
    ngx_idempotency_redis_conn_t  *conn;

    conn = log->data;

    p = ngx_snprintf(buf, len,
                     " while %s idempotency store \"%V\", node \"%V\"",
                     log->action ? log->action : "leaving",
                     &conn->redis->name, conn->pc.name);

    return p;
}
