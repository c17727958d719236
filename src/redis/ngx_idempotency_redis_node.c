
/*
 * A node: one server, and this worker's connections to it.
 */


#include "ngx_idempotency_redis_node.h"
#include "ngx_idempotency_redis_pipe.h"


static ngx_int_t ngx_idempotency_redis_node_host(
    ngx_idempotency_redis_node_t *node, ngx_idempotency_redis_host_t *host);
static ngx_int_t ngx_idempotency_redis_node_copy(ngx_pool_t *pool,
    ngx_str_t *from, ngx_str_t *to);
static ngx_int_t ngx_idempotency_redis_node_addr(ngx_str_t *host,
    in_port_t port, ngx_sockaddr_t *sockaddr, ngx_addr_t *addr);
static ngx_idempotency_redis_conn_t *ngx_idempotency_redis_node_pick(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_node_on_ready(
    ngx_idempotency_redis_conn_t *conn);
static void ngx_idempotency_redis_node_identify(
    ngx_idempotency_redis_node_t *node, ngx_idempotency_redis_info_t *info);
static void ngx_idempotency_redis_node_on_retired(
    ngx_idempotency_redis_conn_t *conn);


ngx_idempotency_redis_node_t *
ngx_idempotency_redis_node_create(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_host_t *host, ngx_idempotency_redis_node_type_t *type)
{
    ngx_idempotency_redis_node_t  *node;
    ngx_uint_t                     i;
    ngx_pool_t                    *pool;

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
    node->type = type;
    node->peer.kind = type->kind;
    node->peer.role = type->role;
    node->peer.strict = type->strict;
    node->events.on_dial = ngx_idempotency_redis_address_dial;
    node->events.on_failed = ngx_idempotency_redis_address_failed;
    node->events.on_ready = ngx_idempotency_redis_node_on_ready;
    node->events.on_retired = ngx_idempotency_redis_node_on_retired;
    node->events.on_reply = type->on_reply;
    node->events.on_closed = type->on_closed;
    node->events.on_lost = type->on_lost;
    node->events.is_wanted = type->is_wanted;
    node->nconns = (type->kind == NGX_IDEMPOTENCY_REDIS_KIND_DATA)
                   ? redis->connections : 1;

    ngx_queue_insert_tail(type->kind == NGX_IDEMPOTENCY_REDIS_KIND_SUBSCRIBER
                          ? &redis->subscribers : &redis->nodes,
                          &node->queue);

    if (ngx_idempotency_redis_node_host(node, host) != NGX_OK) {
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
        if (ngx_idempotency_redis_conn_init(&node->conns[i], redis,
                                            &node->peer,
                                            &node->events,
                                            node)
            != NGX_OK)
        {
            ngx_idempotency_redis_node_free(node);
            return NULL;
        }
    }

    return node;
}


/* a copy: the strings may be those of a reply, which is freed soon */

static ngx_int_t
ngx_idempotency_redis_node_host(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_host_t *host)
{
    ngx_uint_t   i;
    ngx_addr_t  *to, *from;

    node->peer.host = *host;
    node->peer.host.addrs = NULL;

    if (ngx_idempotency_redis_node_copy(node->pool, &host->name,
                                        &node->peer.host.name)
        != NGX_OK
        || ngx_idempotency_redis_node_copy(node->pool, &host->alias,
                                           &node->peer.host.alias)
           != NGX_OK
        || ngx_idempotency_redis_node_copy(node->pool, &host->seed,
                                           &node->peer.host.seed)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (host->naddrs == 0) {
        node->peer.name.data = ngx_pnalloc(node->pool, host->name.len
                                                       + sizeof(":65535"));
        if (node->peer.name.data == NULL) {
            return NGX_ERROR;
        }

        node->peer.name.len = ngx_sprintf(node->peer.name.data, "%V:%ui",
                                          &host->name,
                                          (ngx_uint_t) host->port)
                              - node->peer.name.data;

        return NGX_OK;
    }

    to = ngx_palloc(node->pool, host->naddrs * sizeof(ngx_addr_t));
    if (to == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < host->naddrs; i++) {
        from = &host->addrs[i];

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

    node->peer.host.addrs = to;
    node->addrs = to;
    node->naddrs = host->naddrs;
    node->peer.name = to[0].name;

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
ngx_idempotency_redis_node_create_at(ngx_idempotency_redis_t *redis,
    ngx_str_t *host, in_port_t port, ngx_str_t *alias,
    ngx_idempotency_redis_node_type_t *type)
{
    u_char                        text[NGX_SOCKADDR_STRLEN];
    ngx_idempotency_redis_host_t  at;
    ngx_addr_t                    addr;
    ngx_sockaddr_t                sockaddr;

    ngx_memzero(&at, sizeof(ngx_idempotency_redis_host_t));

    at.name = *host;
    at.port = port;

    if (alias) {
        at.alias = *alias;
    }

    addr.name.data = text;

    if (ngx_idempotency_redis_node_addr(host, port, &sockaddr, &addr) == NGX_OK)
    {
        at.addrs = &addr;
        at.naddrs = 1;

    } else {
        at.named = 1;
    }

    return ngx_idempotency_redis_node_create(redis, &at, type);
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
    ngx_idempotency_redis_host_t  *at;
    ngx_addr_t                     addr;
    ngx_sockaddr_t                 sockaddr;

    at = &node->peer.host;

    if (at->port == port
        && ((at->name.len == host->len
             && ngx_strncmp(at->name.data, host->data, host->len) == 0)
            || (at->alias.len == host->len && host->len
                && ngx_strncasecmp(at->alias.data, host->data, host->len)
                   == 0)))
    {
        return 1;
    }

    addr.name.data = NULL;

    if (ngx_idempotency_redis_node_addr(host, port, &sockaddr, &addr) != NGX_OK)
    {
        return 0;
    }

    return ngx_idempotency_redis_node_is_addr(node, &addr);
}


/*
 * A node that is up has the address at which it answered: of several addresses
 * that its name has, the others may be those of other servers.
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

    if (alias->len == 0 || node->peer.host.alias.len
        || (alias->len == node->peer.host.name.len
            && ngx_strncmp(alias->data, node->peer.host.name.data, alias->len)
               == 0)
        || ngx_idempotency_redis_node_copy(node->pool, alias, &name)
           != NGX_OK)
    {
        return;
    }

    node->peer.host.alias = name;
}


void
ngx_idempotency_redis_node_dial(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t  i;

    for (i = 0; i < node->nconns; i++) {
        if (node->conns[i].state == NGX_IDEMPOTENCY_REDIS_OFF) {
            ngx_idempotency_redis_address_dial(&node->conns[i]);
        }
    }
}


ngx_int_t
ngx_idempotency_redis_node_send(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_cmd_t *cmd)
{
    ngx_idempotency_redis_conn_t  *conn;

    conn = ngx_idempotency_redis_node_pick(node);

    if (conn == NULL || ngx_idempotency_redis_queue_push(conn, cmd) != NGX_OK) {
        return NGX_ERROR;
    }

    if (conn->state == NGX_IDEMPOTENCY_REDIS_OFF) {
        ngx_idempotency_redis_address_dial(conn);
    }

    return NGX_AGAIN;
}


/* in turn one that is ready, else one that may be ready soon */

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


static void
ngx_idempotency_redis_node_on_ready(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t     *node;
    ngx_idempotency_redis_counter_t  *counter;

    node = conn->node;

    if (node->type->kind != NGX_IDEMPOTENCY_REDIS_KIND_SUBSCRIBER) {
        ngx_idempotency_redis_address_found(node, conn);

        if (!ngx_exiting) {
            ngx_idempotency_redis_node_dial(node);
            ngx_idempotency_redis_node_identify(node, &conn->login.info);
        }

        counter = conn->login.counter;

        if (counter && counter->losses != counter->shard->known.losses) {
            ngx_idempotency_redis_loss_tick(node->redis);
        }
    }

    node->type->on_ready(node);
}


/* a subscriber follows its node, and may be connected to the server before */

static void
ngx_idempotency_redis_node_identify(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_info_t *info)
{
    ngx_idempotency_redis_node_t  *subscriber;

    subscriber = node->subscriber;

    if (subscriber && info->identified
        && ngx_memcmp(node->run_id, info->identity.run_id,
                      NGX_IDEMPOTENCY_REDIS_ID_LEN)
           != 0)
    {
        ngx_idempotency_redis_conn_reset(&subscriber->conns[0]);
    }

    ngx_memcpy(node->run_id, info->identity.run_id,
               NGX_IDEMPOTENCY_REDIS_ID_LEN);

    if (subscriber && subscriber->type->is_wanted(subscriber)) {
        ngx_idempotency_redis_node_dial(subscriber);
    }
}


static void
ngx_idempotency_redis_node_on_retired(ngx_idempotency_redis_conn_t *conn)
{
    ngx_idempotency_redis_node_t  *node;

    node = conn->node;

    if (node->seeker == conn) {
        node->seeker = NULL;
    }
}


void
ngx_idempotency_redis_node_log_out(ngx_idempotency_redis_node_t *node,
    ngx_uint_t all)
{
    ngx_idempotency_redis_conn_t  *conn;
    ngx_uint_t                     i;

    for (i = 0; i < node->nconns; i++) {
        conn = &node->conns[i];

        if ((conn->state == NGX_IDEMPOTENCY_REDIS_LOGIN
             || conn->state == NGX_IDEMPOTENCY_REDIS_READY)
            && (all || (node->peer.counter
                        && conn->login.counter != node->peer.counter)))
        {
            ngx_idempotency_redis_conn_retire(conn);
        }
    }
}


void
ngx_idempotency_redis_node_leave(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_node_t  *subscriber;
    ngx_uint_t                     i;

    subscriber = node->subscriber;

    if (subscriber) {
        node->subscriber = NULL;

        subscriber->type->on_leave(subscriber);
        ngx_idempotency_redis_node_leave(subscriber);
    }

    ngx_idempotency_redis_address_stop(node);

    node->seeker = NULL;

    for (i = 0; i < node->nconns; i++) {
        ngx_idempotency_redis_conn_end(&node->conns[i]);
    }

    /* handlers of its commands are called from the event loop */

    ngx_queue_remove(&node->queue);
    ngx_queue_insert_tail(&node->redis->leaving, &node->queue);
}


void
ngx_idempotency_redis_node_free(ngx_idempotency_redis_node_t *node)
{
    ngx_uint_t  i;

    ngx_idempotency_redis_address_free(node);

    for (i = 0; node->conns && i < node->nconns; i++) {
        if (node->conns[i].node) {
            ngx_idempotency_redis_conn_free(&node->conns[i]);
        }
    }

    ngx_queue_remove(&node->queue);

    ngx_destroy_pool(node->pool);
}
