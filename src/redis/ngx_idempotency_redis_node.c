
/*
 * One server: where it is, and this worker's connections to it.
 */


#include "ngx_idempotency_redis_link.h"


static ngx_int_t ngx_idempotency_redis_node_place(
    ngx_idempotency_redis_node_t *node, ngx_idempotency_redis_place_t *place);
static ngx_int_t ngx_idempotency_redis_node_copy(ngx_pool_t *pool,
    ngx_str_t *from, ngx_str_t *to);
static ngx_int_t ngx_idempotency_redis_node_addr(ngx_str_t *host,
    in_port_t port, ngx_sockaddr_t *sockaddr, ngx_addr_t *addr);
static ngx_idempotency_redis_conn_t *ngx_idempotency_redis_node_pick(
    ngx_idempotency_redis_node_t *node);


ngx_idempotency_redis_node_t *
ngx_idempotency_redis_node_create(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_place_t *place, ngx_idempotency_redis_kind_e kind)
{
    ngx_uint_t                     i;
    ngx_pool_t                    *pool;
    ngx_idempotency_redis_node_t  *node;

    pool = ngx_create_pool(1024, ngx_cycle->log);
    if (pool == NULL) {
        return NULL;
    }

    node = ngx_pcalloc(pool, sizeof(ngx_idempotency_redis_node_t));
    if (node == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    node->pool = pool;
    node->redis = redis;
    node->kind = kind;
    node->nconns = (kind == NGX_IDEMPOTENCY_REDIS_SERVER)
                   ? redis->connections : 1;

    ngx_queue_insert_tail(kind == NGX_IDEMPOTENCY_REDIS_EAR ? &redis->ears
                                                            : &redis->nodes,
                          &node->queue);

    if (ngx_idempotency_redis_node_place(node, place) != NGX_OK) {
        ngx_idempotency_redis_node_free(node);
        return NULL;
    }

    node->conns = ngx_pcalloc(pool, node->nconns
                                    * sizeof(ngx_idempotency_redis_conn_t));
    if (node->conns == NULL) {
        ngx_idempotency_redis_node_free(node);
        return NULL;
    }

    for (i = 0; i < node->nconns; i++) {
        if (ngx_idempotency_redis_conn_init(&node->conns[i], node)
            != NGX_OK)
        {
            ngx_idempotency_redis_node_free(node);
            return NULL;
        }
    }

    return node;
}


/* a place may be that of a reply which is gone in a moment */

static ngx_int_t
ngx_idempotency_redis_node_place(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_place_t *place)
{
    ngx_uint_t   i;
    ngx_addr_t  *to, *from;

    node->place = *place;
    node->place.addrs = NULL;

    if (ngx_idempotency_redis_node_copy(node->pool, &place->host,
                                        &node->place.host)
        != NGX_OK
        || ngx_idempotency_redis_node_copy(node->pool, &place->alias,
                                           &node->place.alias)
           != NGX_OK
        || ngx_idempotency_redis_node_copy(node->pool, &place->seed,
                                           &node->place.seed)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (place->naddrs == 0) {
        node->name.data = ngx_pnalloc(node->pool, place->host.len
                                                  + sizeof(":65535"));
        if (node->name.data == NULL) {
            return NGX_ERROR;
        }

        node->name.len = ngx_sprintf(node->name.data, "%V:%ui", &place->host,
                                     (ngx_uint_t) place->port)
                         - node->name.data;

        return NGX_OK;
    }

    to = ngx_palloc(node->pool, place->naddrs * sizeof(ngx_addr_t));
    if (to == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < place->naddrs; i++) {
        from = &place->addrs[i];

        to[i].sockaddr = ngx_palloc(node->pool, from->socklen);
        if (to[i].sockaddr == NULL
            || ngx_idempotency_redis_node_copy(node->pool, &from->name,
                                               &to[i].name)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        ngx_memcpy(to[i].sockaddr, from->sockaddr, from->socklen);
        to[i].socklen = from->socklen;
    }

    node->place.addrs = to;
    node->addrs = to;
    node->naddrs = place->naddrs;
    node->name = to[0].name;

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_node_copy(ngx_pool_t *pool, ngx_str_t *from,
    ngx_str_t *to)
{
    to->len = from->len;
    to->data = ngx_pnalloc(pool, from->len + 1);
    if (to->data == NULL) {
        return NGX_ERROR;
    }

    if (from->len) {
        ngx_memcpy(to->data, from->data, from->len);
    }

    to->data[from->len] = '\0';

    return NGX_OK;
}


ngx_idempotency_redis_node_t *
ngx_idempotency_redis_node_told(ngx_idempotency_redis_t *redis,
    ngx_str_t *host, in_port_t port, ngx_str_t *alias,
    ngx_idempotency_redis_kind_e kind)
{
    u_char                         text[NGX_SOCKADDR_STRLEN];
    ngx_addr_t                     addr;
    ngx_sockaddr_t                 sockaddr;
    ngx_idempotency_redis_place_t  place;

    ngx_memzero(&place, sizeof(ngx_idempotency_redis_place_t));

    place.host = *host;
    place.port = port;

    if (alias) {
        place.alias = *alias;
    }

    addr.name.data = text;

    if (ngx_idempotency_redis_node_addr(host, port, &sockaddr, &addr)
        == NGX_OK)
    {
        place.addrs = &addr;
        place.naddrs = 1;

    } else {
        place.named = 1;
    }

    return ngx_idempotency_redis_node_create(redis, &place, kind);
}


/* NGX_DECLINED: this is a name */

static ngx_int_t
ngx_idempotency_redis_node_addr(ngx_str_t *host, in_port_t port,
    ngx_sockaddr_t *sockaddr, ngx_addr_t *addr)
{
    in_addr_t  inaddr;

    ngx_memzero(sockaddr, sizeof(ngx_sockaddr_t));

    inaddr = ngx_inet_addr(host->data, host->len);

    if (inaddr != INADDR_NONE) {
        sockaddr->sockaddr_in.sin_family = AF_INET;
        sockaddr->sockaddr_in.sin_addr.s_addr = inaddr;
        addr->socklen = sizeof(struct sockaddr_in);

#if (NGX_HAVE_INET6)
    } else if (ngx_inet6_addr(host->data, host->len,
                              sockaddr->sockaddr_in6.sin6_addr.s6_addr)
               == NGX_OK)
    {
        sockaddr->sockaddr_in6.sin6_family = AF_INET6;
        addr->socklen = sizeof(struct sockaddr_in6);
#endif

    } else {
        return NGX_DECLINED;
    }

    addr->sockaddr = &sockaddr->sockaddr;

    ngx_inet_set_port(addr->sockaddr, port);

    if (addr->name.data) {
        addr->name.len = ngx_sock_ntop(addr->sockaddr, addr->socklen,
                                       addr->name.data, NGX_SOCKADDR_STRLEN,
                                       1);
    }

    return NGX_OK;
}


ngx_uint_t
ngx_idempotency_redis_node_is_at(ngx_idempotency_redis_node_t *node,
    ngx_str_t *host, in_port_t port)
{
    ngx_addr_t                      addr;
    ngx_sockaddr_t                  sockaddr;
    ngx_idempotency_redis_place_t  *place;

    place = &node->place;

    if (place->port == port
        && ((place->host.len == host->len
             && ngx_strncmp(place->host.data, host->data, host->len) == 0)
            || (place->alias.len == host->len && host->len
                && ngx_strncasecmp(place->alias.data, host->data, host->len)
                   == 0)))
    {
        return 1;
    }

    addr.name.data = NULL;

    if (ngx_idempotency_redis_node_addr(host, port, &sockaddr, &addr)
        != NGX_OK)
    {
        return 0;
    }

    return ngx_idempotency_redis_node_is_addr(node, &addr);
}


/*
 * A node is what it answered with: of several addresses that its name has,
 * the others may be those of other servers.
 */

ngx_uint_t
ngx_idempotency_redis_node_is_addr(ngx_idempotency_redis_node_t *node,
    ngx_addr_t *addr)
{
    if (ngx_idempotency_redis_node_is_up(node)) {
        return ngx_cmp_sockaddr(&node->at.sockaddr.sockaddr, node->at.socklen,
                                addr->sockaddr, addr->socklen, 1)
               == NGX_OK;
    }

    return node->naddrs == 1
           && ngx_cmp_sockaddr(node->addrs[0].sockaddr,
                               node->addrs[0].socklen,
                               addr->sockaddr, addr->socklen, 1)
              == NGX_OK;
}


void
ngx_idempotency_redis_node_alias(ngx_idempotency_redis_node_t *node,
    ngx_str_t *alias)
{
    ngx_str_t  name;

    if (alias->len == 0 || node->place.alias.len
        || (alias->len == node->place.host.len
            && ngx_strncmp(alias->data, node->place.host.data, alias->len)
               == 0)
        || ngx_idempotency_redis_node_copy(node->pool, alias, &name)
           != NGX_OK)
    {
        return;
    }

    node->place.alias = name;
}


void
ngx_idempotency_redis_node_dial(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t  i;

    for (i = 0; i < node->nconns; i++) {
        if (node->conns[i].state == NGX_IDEMPOTENCY_REDIS_OFF) {
            ngx_idempotency_redis_dial(&node->conns[i]);
        }
    }
}


void
ngx_idempotency_redis_node_login(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t                     i;
    ngx_idempotency_redis_conn_t  *conn;

    for (i = 0; i < node->nconns; i++) {
        conn = &node->conns[i];

        if (node->counter == NULL
            || (conn->state != NGX_IDEMPOTENCY_REDIS_LOGIN
                && conn->state != NGX_IDEMPOTENCY_REDIS_READY))
        {
            continue;
        }

        if (conn->counter != node->counter) {
            ngx_idempotency_redis_conn_retire(conn);
        }
    }
}


void
ngx_idempotency_redis_node_move(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t                     i, steady;
    ngx_idempotency_redis_conn_t  *conn;

    steady = 0;

    for (i = 0; i < node->nconns; i++) {
        conn = &node->conns[i];

        if (conn->state == NGX_IDEMPOTENCY_REDIS_READY) {
            steady |= ngx_idempotency_redis_conn_is_steady(conn);
        }

        ngx_idempotency_redis_conn_close(conn);
        ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);

        conn->refuses = 0;
    }

    if (node->ear) {
        ngx_idempotency_redis_conn_close(&node->ear->conns[0]);
        ngx_idempotency_redis_conn_drop(&node->ear->conns[0],
                                        NGX_IDEMPOTENCY_REDIS_CONNECT);
    }

    if (!node->moving) {
        node->moving = 1;
        node->moved = ngx_current_msec;
    }

    node->left = 1;

    conn = &node->conns[0];
    node->seeker = conn;

    if (steady) {
        conn->failures = 0;
        ngx_idempotency_redis_dial(conn);
        return;
    }

    /* a server that accepts logins but no commands is retried with back-off */

    conn->replica = 1;
    ngx_idempotency_redis_conn_down(conn);
}


ngx_uint_t
ngx_idempotency_redis_node_is_moving(ngx_idempotency_redis_node_t *node)
{
    return node->moving && node->seeker
           && ngx_current_msec - node->moved < node->redis->timeout;
}


void
ngx_idempotency_redis_node_log_out(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t  i;

    for (i = 0; i < node->nconns; i++) {
        if (node->conns[i].state == NGX_IDEMPOTENCY_REDIS_LOGIN
            || node->conns[i].state == NGX_IDEMPOTENCY_REDIS_READY)
        {
            ngx_idempotency_redis_conn_retire(&node->conns[i]);
        }
    }
}


ngx_int_t
ngx_idempotency_redis_node_send(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_cmd_t *cmd)
{
    ngx_int_t                      rc;
    ngx_str_t                      bytes;
    ngx_idempotency_redis_conn_t  *conn;

    conn = ngx_idempotency_redis_node_pick(node);
    if (conn == NULL) {
        return NGX_ERROR;
    }

    if (cmd->begin) {
        rc = ngx_idempotency_redis_pipe_push(conn, cmd->begin, cmd);

    } else {

        if (ngx_idempotency_redis_encode(cmd->args, cmd->nargs, &bytes)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        rc = ngx_idempotency_redis_pipe_push(conn, &bytes, cmd);

        ngx_idempotency_redis_encode_free(&bytes);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    if (conn->state == NGX_IDEMPOTENCY_REDIS_OFF) {
        ngx_idempotency_redis_dial(conn);
    }

    return NGX_AGAIN;
}


/* in turn one that is ready, else one that may be in a moment */

static ngx_idempotency_redis_conn_t *
ngx_idempotency_redis_node_pick(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t                     i;
    ngx_idempotency_redis_conn_t  *conn, *hope;

    hope = NULL;

    for (i = 0; i < node->nconns; i++) {

        node->next++;
        if (node->next >= node->nconns) {
            node->next = 0;
        }

        conn = &node->conns[node->next];

        if (conn->state == NGX_IDEMPOTENCY_REDIS_READY) {
            return conn;
        }

        if (conn->refuses) {
            ngx_idempotency_redis_conn_hasten(conn);
            continue;
        }

        if (hope == NULL) {
            hope = conn;
        }
    }

    if (node->seeker) {
        return node->seeker->refuses ? NULL : node->seeker;
    }

    return hope;
}


ngx_uint_t
ngx_idempotency_redis_node_is_up(ngx_idempotency_redis_node_t *node)
{
    return ngx_idempotency_redis_node_ready(node) != NULL;
}


ngx_idempotency_redis_conn_t *
ngx_idempotency_redis_node_ready(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t  i;

    for (i = 0; i < node->nconns; i++) {
        if (node->conns[i].state == NGX_IDEMPOTENCY_REDIS_READY) {
            return &node->conns[i];
        }
    }

    return NULL;
}


void
ngx_idempotency_redis_node_leave(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t                     i;
    ngx_idempotency_redis_conn_t  *conn;

    ngx_idempotency_redis_hear_leave(node);
    ngx_idempotency_redis_name_stop(node);

    node->seeker = NULL;

    for (i = 0; i < node->nconns; i++) {
        conn = &node->conns[i];

        ngx_idempotency_redis_conn_close(conn);
        ngx_idempotency_redis_conn_drop(conn, NGX_IDEMPOTENCY_REDIS_CONNECT);

        conn->refuses = 1;
        ngx_idempotency_redis_conn_state(conn, NGX_IDEMPOTENCY_REDIS_DOWN);
    }

    /* who had sent something is told from the event loop */

    ngx_queue_remove(&node->queue);
    ngx_queue_insert_tail(&node->redis->gone, &node->queue);
}


void
ngx_idempotency_redis_node_free(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t  i;

    ngx_idempotency_redis_name_free(node);

    for (i = 0; node->conns && i < node->nconns; i++) {
        if (node->conns[i].node) {
            ngx_idempotency_redis_conn_free(&node->conns[i]);
        }
    }

    ngx_queue_remove(&node->queue);

    ngx_destroy_pool(node->pool);
}
