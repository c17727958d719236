
/*
 * What the error log is told about a server: each kind of failure once in an
 * outage.
 */


#include "ngx_idempotency_redis_link.h"


void
ngx_idempotency_redis_report(ngx_idempotency_redis_conn_t *conn,
    ngx_uint_t kind, ngx_err_t err, const char *fmt, ...)
{
    u_char   *p, buf[NGX_MAX_CONF_ERRSTR];
    va_list   args;

    if (conn->node->said & kind) {
        return;
    }

    conn->node->said |= kind;

    va_start(args, fmt);
    p = ngx_vslprintf(buf, buf + sizeof(buf), fmt, args);
    va_end(args);

    ngx_log_error(ngx_idempotency_redis_report_level(conn->node, NGX_LOG_ERR),
                  ngx_cycle->log, err,
                  "idempotency store \"%V\" %*s, node \"%V\"",
                  &conn->redis->name, p - buf, buf, conn->peer.name);
}


/* the outage of an ear is that of its server, which is reported as such */

ngx_uint_t
ngx_idempotency_redis_report_level(ngx_idempotency_redis_node_t *node,
    ngx_uint_t level)
{
    return node->kind == NGX_IDEMPOTENCY_REDIS_EAR ? NGX_LOG_INFO : level;
}


void
ngx_idempotency_redis_hush(ngx_idempotency_redis_conn_t *conn,
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
ngx_idempotency_redis_log(ngx_log_t *log, u_char *buf, size_t len)
{
    u_char                        *p;
    ngx_idempotency_redis_conn_t  *conn;

    conn = log->data;

    p = ngx_snprintf(buf, len,
                     " while %s idempotency store \"%V\", node \"%V\"",
                     log->action ? log->action : "leaving",
                     &conn->redis->name, conn->peer.name);

    return p;
}
