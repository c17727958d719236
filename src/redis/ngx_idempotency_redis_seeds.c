
/*
 * The hosts in the target of a cluster.  A name with several addresses, that
 * of a headless service or of a configuration endpoint, stands for as many
 * servers: each of its addresses is a node of its own.
 */


#include "ngx_idempotency_redis_map.h"


/* addresses of one name at most, and milliseconds until it is resolved again */
#define NGX_IDEMPOTENCY_REDIS_SEEDS  64
#define NGX_IDEMPOTENCY_REDIS_SEED   1000


typedef struct {
    ngx_idempotency_redis_t            *redis;
    ngx_idempotency_redis_host_t       *host;
    ngx_resolver_ctx_t                 *resolving;
    ngx_msec_t                          asked;
    unsigned                            again:1;     /* dialed before */
    unsigned                            resolved:1;  /* by the resolver */
    unsigned                            warned:1;
} ngx_idempotency_redis_seed_t;


struct ngx_idempotency_redis_seeds_s {
    ngx_uint_t                          n;
    ngx_idempotency_redis_seed_t        seeds[1];
};


static ngx_int_t ngx_idempotency_redis_seeds_node(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_host_t *host,
    struct sockaddr *sockaddr, socklen_t socklen);
static ngx_uint_t ngx_idempotency_redis_seeds_resolve(
    ngx_idempotency_redis_seed_t *seed);
static void ngx_idempotency_redis_seeds_resolved(ngx_resolver_ctx_t *ctx);
static void ngx_idempotency_redis_seeds_clean(
    ngx_idempotency_redis_seed_t *seed, ngx_resolver_ctx_t *ctx);


ngx_idempotency_redis_seeds_t *
ngx_idempotency_redis_seeds_start(ngx_idempotency_redis_t *redis)
{
    ngx_uint_t                      i;
    ngx_idempotency_redis_host_t   *host;
    ngx_idempotency_redis_seeds_t  *seeds;

    seeds = ngx_calloc(sizeof(ngx_idempotency_redis_seeds_t)
                       + redis->hosts.nelts
                         * sizeof(ngx_idempotency_redis_seed_t),
                       ngx_cycle->log);
    if (seeds == NULL) {
        return NULL;
    }

    host = redis->hosts.elts;
    seeds->n = redis->hosts.nelts;

    for (i = 0; i < seeds->n; i++) {
        seeds->seeds[i].redis = redis;
        seeds->seeds[i].host = &host[i];
    }

    return seeds;
}


void
ngx_idempotency_redis_seeds_stop(ngx_idempotency_redis_seeds_t *seeds)
{
    ngx_uint_t  i;

    if (seeds == NULL) {
        return;
    }

    for (i = 0; i < seeds->n; i++) {
        if (seeds->seeds[i].resolving) {
            ngx_resolve_name_done(seeds->seeds[i].resolving);
        }
    }

    ngx_free(seeds);
}


ngx_int_t
ngx_idempotency_redis_seeds_dial(ngx_idempotency_redis_seeds_t *seeds)
{
    ngx_uint_t                     i, n;
    ngx_addr_t                    *addr;
    ngx_idempotency_redis_seed_t  *seed;
    ngx_idempotency_redis_host_t  *host;

    for (i = 0; i < seeds->n; i++) {
        seed = &seeds->seeds[i];
        host = seed->host;

        if (ngx_idempotency_redis_seeds_resolve(seed)) {
            continue;
        }

        for (n = 0; n < ngx_min(host->naddrs, NGX_IDEMPOTENCY_REDIS_SEEDS);
             n++)
        {
            addr = &host->addrs[n];

            if (ngx_idempotency_redis_seeds_node(seed->redis, host,
                                                 addr->sockaddr,
                                                 addr->socklen)
                != NGX_OK)
            {
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_idempotency_redis_seeds_node(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_host_t *host, struct sockaddr *sockaddr,
    socklen_t socklen)
{
    u_char                           text[NGX_SOCKADDR_STRLEN];
    ngx_addr_t                       addr;
    ngx_queue_t                     *q;
    ngx_idempotency_redis_node_t    *node;
    ngx_idempotency_redis_map_t     *map;
    ngx_idempotency_redis_host_t     one;
    ngx_idempotency_redis_address_t  at;

    map = redis->map;

    ngx_idempotency_redis_address_copy(&at, sockaddr, socklen);
    ngx_inet_set_port(&at.sockaddr.sockaddr, host->port);

    at.name.len = ngx_sock_ntop(&at.sockaddr.sockaddr, at.socklen, at.text,
                                NGX_SOCKADDR_STRLEN, 1);

    addr.sockaddr = &at.sockaddr.sockaddr;
    addr.socklen = at.socklen;
    addr.name = at.name;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (ngx_idempotency_redis_node_is_addr(node, &addr)) {
            goto found;
        }
    }

    ngx_memzero(&one, sizeof(ngx_idempotency_redis_host_t));

    one.name.data = text;
    one.name.len = ngx_sock_ntop(addr.sockaddr, addr.socklen, text,
                                 NGX_SOCKADDR_STRLEN, 0);
    one.port = host->port;
    one.addrs = &addr;
    one.naddrs = 1;

    if (host->named) {
        one.seed = host->name;
    }

    node = ngx_idempotency_redis_node_create(redis, &one, map->type);
    if (node == NULL) {
        return NGX_ERROR;
    }

found:

    node->used = ngx_current_msec;

    ngx_idempotency_redis_node_dial(node);

    return NGX_OK;
}


/* 0: the addresses of the configuration have to be used */

static ngx_uint_t
ngx_idempotency_redis_seeds_resolve(ngx_idempotency_redis_seed_t *seed)
{
    ngx_uint_t                first;
    ngx_resolver_ctx_t       *ctx;
    ngx_idempotency_redis_t  *redis;

    redis = seed->redis;
    first = !seed->again;
    seed->again = 1;

    if (first || !seed->host->named) {
        return 0;
    }

    if (redis->resolver == NULL) {

        if (!seed->warned) {
            seed->warned = 1;

            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "idempotency store \"%V\" connects to \"%V\" "
                          "by the addresses known at start, set "
                          "\"resolver\" to have it resolved again",
                          &redis->name, &seed->host->name);
        }

        return 0;
    }

    if (seed->resolving
        || (seed->asked && ngx_current_msec - seed->asked
                           < NGX_IDEMPOTENCY_REDIS_SEED))
    {
        return seed->resolved;
    }

    ctx = ngx_resolve_start(redis->resolver, NULL);

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        return seed->resolved;
    }

    ctx->name = seed->host->name;
    ctx->handler = ngx_idempotency_redis_seeds_resolved;
    ctx->data = seed;
    ctx->cancelable = 1;
    ctx->timeout = ngx_idempotency_redis_address_timeout(redis);

    seed->asked = ngx_current_msec;
    seed->resolving = ctx;

    if (ngx_resolve_name(ctx) != NGX_OK) {
        seed->resolving = NULL;
    }

    return seed->resolved;
}


static void
ngx_idempotency_redis_seeds_resolved(ngx_resolver_ctx_t *ctx)
{
    ngx_uint_t                     i;
    ngx_idempotency_redis_seed_t  *seed;

    seed = ctx->data;
    seed->resolving = NULL;

    if (ctx->state || ctx->naddrs == 0) {

        if (!seed->warned) {
            seed->warned = 1;

            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "idempotency store \"%V\" has a host \"%V\" that "
                          "could not be resolved (%i: %s), its last known "
                          "addresses are used", &seed->redis->name,
                          &ctx->name, ctx->state,
                          ngx_resolver_strerror(ctx->state));
        }

        ngx_resolve_name_done(ctx);
        return;
    }

    seed->warned = 0;
    seed->resolved = 1;

    ngx_idempotency_redis_seeds_clean(seed, ctx);

    for (i = 0; i < ngx_min(ctx->naddrs, NGX_IDEMPOTENCY_REDIS_SEEDS); i++) {
        (void) ngx_idempotency_redis_seeds_node(seed->redis, seed->host,
                                                ctx->addrs[i].sockaddr,
                                                ctx->addrs[i].socklen);
    }

    ngx_resolve_name_done(ctx);
}


/* lets nodes go that are down, have no slots, and have lost the name */

static void
ngx_idempotency_redis_seeds_clean(ngx_idempotency_redis_seed_t *seed,
    ngx_resolver_ctx_t *ctx)
{
    ngx_uint_t                     i, n;
    ngx_queue_t                   *q, *next;
    ngx_idempotency_redis_node_t  *node;
    ngx_idempotency_redis_host_t  *host;

    host = seed->host;

    for (q = ngx_queue_head(&seed->redis->nodes);
         q != ngx_queue_sentinel(&seed->redis->nodes);
         q = next)
    {
        next = ngx_queue_next(q);
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (node->master || ngx_idempotency_redis_node_is_up(node)
            || node->peer.host.port != host->port
            || node->peer.host.seed.len != host->name.len
            || ngx_strncmp(node->peer.host.seed.data, host->name.data,
                           host->name.len)
               != 0)
        {
            continue;
        }

        n = 0;

        for (i = 0; i < ctx->naddrs; i++) {
            n += (ngx_cmp_sockaddr(ctx->addrs[i].sockaddr,
                                   ctx->addrs[i].socklen,
                                   node->addrs[0].sockaddr,
                                   node->addrs[0].socklen, 0)
                  == NGX_OK);
        }

        if (n == 0) {
            ngx_idempotency_redis_node_leave(node);
        }
    }
}
