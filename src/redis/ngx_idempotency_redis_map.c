
/*
 * The slots of a cluster, from CLUSTER SLOTS: ranges, each with its master and
 * then its replicas.
 */


#include "ngx_idempotency_redis_map.h"


/* names of counters to try for a node, which may have few slots */
#define NGX_IDEMPOTENCY_REDIS_TRIES  100000


typedef struct {
    ngx_uint_t   first;
    ngx_uint_t   last;
    ngx_str_t    host;
    ngx_str_t    alias;     /* another name of it, or empty */
    in_port_t    port;
    ngx_str_t    id;
} ngx_idempotency_redis_range_t;


static void ngx_idempotency_redis_map_refuse(
    ngx_idempotency_redis_node_t *node);
static ngx_idempotency_redis_node_t *ngx_idempotency_redis_map_node(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_range_t *range);
static ngx_int_t ngx_idempotency_redis_map_range(
    ngx_idempotency_redis_node_t *from, ngx_idempotency_redis_reply_t *reply,
    ngx_idempotency_redis_range_t *range);
static ngx_int_t ngx_idempotency_redis_map_member(
    ngx_idempotency_redis_node_t *from, ngx_idempotency_redis_reply_t *reply,
    ngx_idempotency_redis_range_t *range);
static void ngx_idempotency_redis_map_names(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_reply_t *more, ngx_idempotency_redis_range_t *range);
static ngx_idempotency_redis_node_t *ngx_idempotency_redis_map_predecessor(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_range_t *range);
static void ngx_idempotency_redis_map_succession(
    ngx_idempotency_redis_node_t *from, ngx_idempotency_redis_range_t *range);
static void ngx_idempotency_redis_map_replicas(
    ngx_idempotency_redis_node_t *node, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_map_counters(ngx_idempotency_redis_map_t *map,
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_map_counter(ngx_idempotency_redis_map_t *map,
    ngx_idempotency_redis_node_t *node);


ngx_int_t
ngx_idempotency_redis_map_read(ngx_idempotency_redis_map_t *map,
    ngx_idempotency_redis_node_t *from, ngx_idempotency_redis_reply_t *reply)
{
    ngx_uint_t                      i, n, slot;
    ngx_queue_t                    *q;
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_node_t   *node;
    ngx_idempotency_redis_range_t   range;
    ngx_idempotency_redis_reply_t  *element;
    u_char                          taken[NGX_IDEMPOTENCY_REDIS_SLOTS / 8];

    redis = from->redis;
    n = ngx_idempotency_redis_reply_elements(reply);

    for (i = 0; i < n; i++) {
        element = ngx_idempotency_redis_reply_element(reply, i);

        if (ngx_idempotency_redis_map_range(from, element, &range)
            != NGX_OK)
        {
            return NGX_DECLINED;
        }

        /* before the replicas of each node are replaced */

        ngx_idempotency_redis_map_succession(from, &range);
    }

    if (n == 0) {
        return NGX_DECLINED;
    }

    ngx_memzero(taken, sizeof(taken));

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);
        node->master = 0;
        node->nreplicas = 0;
    }

    for (i = 0; i < n; i++) {
        element = ngx_idempotency_redis_reply_element(reply, i);

        (void) ngx_idempotency_redis_map_range(from, element, &range);

        if (range.host.len == 0) {
            continue;
        }

        node = ngx_idempotency_redis_map_node(redis, &range);
        if (node == NULL) {
            continue;
        }

        node->master = 1;

        if (node != from) {
            node->questioned = 0;
        }

        ngx_idempotency_redis_node_alias(node, &range.alias);
        ngx_idempotency_redis_map_replicas(node, element);

        for (slot = range.first; slot <= range.last; slot++) {
            ngx_idempotency_redis_map_move(map->slots[slot], node);

            map->slots[slot] = node;
            taken[slot / 8] |= 1 << slot % 8;
        }
    }

    for (slot = 0; slot < NGX_IDEMPOTENCY_REDIS_SLOTS; slot++) {
        if (!(taken[slot / 8] & 1 << slot % 8)) {
            map->slots[slot] = NULL;
        }
    }

    map->known = 1;

    ngx_idempotency_redis_map_counters(map, redis);

    return NGX_OK;
}


void
ngx_idempotency_redis_map_move(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_node_t *to)
{
    ngx_atomic_uint_t  until;

    if (from == NULL || from == to || from->peer.counter == NULL) {
        return;
    }

    until = from->peer.counter->shard->until;

    if (until
        && (to->refuses_until == 0
            || (ngx_msec_int_t) (until - to->refuses_until) > 0))
    {
        to->refuses_until = until;
    }

    ngx_idempotency_redis_map_refuse(to);
}


/* when it has a counter, and with that a shard */

static void
ngx_idempotency_redis_map_refuse(ngx_idempotency_redis_node_t *node)
{
    if (node->peer.counter && node->refuses_until) {
        ngx_idempotency_redis_shard_refuse(node->peer.counter->shard,
                                           node->refuses_until);
        node->refuses_until = 0;
    }
}


static ngx_idempotency_redis_node_t *
ngx_idempotency_redis_map_node(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_range_t *range)
{
    ngx_idempotency_redis_map_t   *map;
    ngx_idempotency_redis_node_t  *node;

    map = redis->map;
    node = ngx_idempotency_redis_map_find(redis, &range->host, range->port);

    if (node) {
        return node;
    }

    node = ngx_idempotency_redis_node_create_at(redis, &range->host,
                                                range->port, &range->alias,
                                                map->type);

    if (node) {
        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has a node \"%V\"",
                      &redis->name, &node->peer.name);
    }

    return node;
}


static ngx_int_t
ngx_idempotency_redis_map_range(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_reply_t *reply,
    ngx_idempotency_redis_range_t *range)
{
    int64_t                         first, last;
    ngx_idempotency_redis_reply_t  *a, *b;

    a = ngx_idempotency_redis_reply_element(reply, 0);
    b = ngx_idempotency_redis_reply_element(reply, 1);

    if (a == NULL || b == NULL
        || ngx_idempotency_redis_reply_type(a)
           != NGX_IDEMPOTENCY_REDIS_INTEGER
        || ngx_idempotency_redis_reply_type(b)
           != NGX_IDEMPOTENCY_REDIS_INTEGER)
    {
        return NGX_DECLINED;
    }

    first = ngx_idempotency_redis_reply_integer(a);
    last = ngx_idempotency_redis_reply_integer(b);

    if (first < 0 || last < first || last >= NGX_IDEMPOTENCY_REDIS_SLOTS) {
        return NGX_DECLINED;
    }

    range->first = (ngx_uint_t) first;
    range->last = (ngx_uint_t) last;

    return ngx_idempotency_redis_map_member(from,
                          ngx_idempotency_redis_reply_element(reply, 2), range);
}


/* host, port, id, more; since Redis 7 the host may be a name or nil */

static ngx_int_t
ngx_idempotency_redis_map_member(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_reply_t *reply,
    ngx_idempotency_redis_range_t *range)
{
    int64_t                         port;
    ngx_idempotency_redis_reply_t  *host, *number, *id, *more;

    if (reply == NULL) {
        return NGX_DECLINED;
    }

    host = ngx_idempotency_redis_reply_element(reply, 0);
    number = ngx_idempotency_redis_reply_element(reply, 1);
    id = ngx_idempotency_redis_reply_element(reply, 2);
    more = ngx_idempotency_redis_reply_element(reply, 3);

    if (host == NULL || number == NULL) {
        return NGX_DECLINED;
    }

    port = ngx_idempotency_redis_reply_integer(number);

    if (port < 1 || port > 65535) {
        return NGX_DECLINED;
    }

    range->port = (in_port_t) port;

    ngx_idempotency_redis_reply_string(host, &range->host);

    if (range->host.len == 1 && range->host.data[0] == '?') {

        /* the node announces a hostname but does not know it yet */

        range->host.len = 0;

    } else if (range->host.len == 0) {
        range->host = from->peer.host.name;
    }

    ngx_str_null(&range->alias);

    if (more) {
        ngx_idempotency_redis_map_names(from, more, range);
    }

    ngx_str_null(&range->id);

    if (id) {
        ngx_idempotency_redis_reply_string(id, &range->id);
    }

    return NGX_OK;
}


/*
 * "ip" or "hostname", the one that is not the first element.  The certificate
 * of the server may be for a name even if that cannot be resolved.
 */

static void
ngx_idempotency_redis_map_names(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_reply_t *more, ngx_idempotency_redis_range_t *range)
{
    ngx_str_t  ip, hostname;

    ngx_idempotency_redis_reply_value(more, "ip", &ip);
    ngx_idempotency_redis_reply_value(more, "hostname", &hostname);

    if (ip.len && from->redis->resolver == NULL) {
        range->alias = range->host;
        range->host = ip;
    }

    if (hostname.len) {
        range->alias = hostname;
    }
}


ngx_idempotency_redis_node_t *
ngx_idempotency_redis_map_find(ngx_idempotency_redis_t *redis,
    ngx_str_t *host, in_port_t port)
{
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (ngx_idempotency_redis_node_is_at(node, host, port)) {
            return node;
        }
    }

    return NULL;
}


ngx_idempotency_redis_node_t *
ngx_idempotency_redis_map_doubtful(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_uint_t                      i, n;
    ngx_idempotency_redis_node_t   *node;
    ngx_idempotency_redis_range_t   range;
    ngx_idempotency_redis_reply_t  *element;

    n = ngx_idempotency_redis_reply_elements(reply);

    for (i = 0; i < n; i++) {
        element = ngx_idempotency_redis_reply_element(reply, i);

        if (ngx_idempotency_redis_map_range(from, element, &range) != NGX_OK) {
            return NULL;
        }

        node = ngx_idempotency_redis_map_predecessor(from->redis, &range);

        if (node && node != from && !node->missed && !node->questioned
            && ngx_idempotency_redis_node_is_up(node))
        {
            node->questioned = 1;
            return node;
        }
    }

    return NULL;
}


ngx_uint_t
ngx_idempotency_redis_map_is_doubtful(ngx_idempotency_redis_t *redis)
{
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (node->questioned) {
            return 1;
        }
    }

    return 0;
}


/* the master whose replica has these slots now, or NULL */

static ngx_idempotency_redis_node_t *
ngx_idempotency_redis_map_predecessor(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_range_t *range)
{
    ngx_uint_t                     i;
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node;

    if (range->id.len != NGX_IDEMPOTENCY_REDIS_ID || range->host.len == 0) {
        return NULL;
    }

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        for (i = 0; i < node->nreplicas; i++) {

            if (ngx_memcmp(node->replicas[i], range->id.data,
                           NGX_IDEMPOTENCY_REDIS_ID)
                == 0)
            {
                return node;
            }
        }
    }

    return NULL;
}


/*
 * A node that was a replica and is a master now has taken over.  A master that
 * was connected all the time and has the successor in its own map has handed
 * over all data.  One that was lost may be back as a replica, and an open
 * connection does not show that a master is still there.
 */

static void
ngx_idempotency_redis_map_succession(ngx_idempotency_redis_node_t *from,
    ngx_idempotency_redis_range_t *range)
{
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_node_t  *node, *next;

    redis = from->redis;

    for ( ;; ) {
        node = ngx_idempotency_redis_map_predecessor(redis, range);

        if (node == NULL) {
            return;
        }

        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has a new master "
                      "\"%V:%ui\" after \"%V\"", &redis->name,
                      &range->host, (ngx_uint_t) range->port,
                      &node->peer.name);

        next = ngx_idempotency_redis_map_node(redis, range);

        if (next) {
            next->peer.hint = (node == from && !node->missed
                               && ngx_idempotency_redis_node_is_up(node))
                              ? NGX_IDEMPOTENCY_REDIS_HINT_HANDED_OVER
                              : NGX_IDEMPOTENCY_REDIS_HINT_TAKEN_OVER;

            ngx_idempotency_redis_node_log_out(next, 1);
        }

        /* the other ranges of this node would report it again */

        node->nreplicas = 0;
        node->questioned = 0;
    }
}


static void
ngx_idempotency_redis_map_replicas(ngx_idempotency_redis_node_t *node,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                       id;
    ngx_uint_t                      i, n;
    ngx_idempotency_redis_reply_t  *member;

    node->nreplicas = 0;
    n = ngx_idempotency_redis_reply_elements(reply);

    for (i = 3; i < n && node->nreplicas < NGX_IDEMPOTENCY_REDIS_REPLICAS;
         i++)
    {
        member = ngx_idempotency_redis_reply_element(reply, i);

        if (ngx_idempotency_redis_reply_elements(member) < 3) {
            continue;
        }

        ngx_idempotency_redis_reply_text(member, 2, &id);

        if (id.len == NGX_IDEMPOTENCY_REDIS_ID) {
            ngx_memcpy(node->replicas[node->nreplicas++], id.data, id.len);
        }
    }
}


/* each master has a counter whose name is in one of its slots */

static void
ngx_idempotency_redis_map_counters(ngx_idempotency_redis_map_t *map,
    ngx_idempotency_redis_t *redis)
{
    ngx_queue_t                      *q;
    ngx_idempotency_redis_node_t     *node;
    ngx_idempotency_redis_counter_t  *counter;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);
        counter = node->peer.counter;

        if (!node->master) {
            node->peer.counter = NULL;
            continue;
        }

        if (counter == NULL
            || map->slots[ngx_idempotency_redis_slot(&counter->name)] != node)
        {
            ngx_idempotency_redis_map_counter(map, node);
        }

        ngx_idempotency_redis_map_refuse(node);
    }
}


static void
ngx_idempotency_redis_map_counter(ngx_idempotency_redis_map_t *map,
    ngx_idempotency_redis_node_t *node)
{
    ngx_str_t   name;
    ngx_uint_t  n, slot, first, fixed;

    node->peer.counter = NULL;

    name.data = ngx_alloc(ngx_idempotency_redis_loss_name_len(node->redis),
                          ngx_cycle->log);
    if (name.data == NULL) {
        return;
    }

    first = 0;
    fixed = 1;

    for (n = 0; n < NGX_IDEMPOTENCY_REDIS_TRIES; n++) {

        ngx_idempotency_redis_loss_name(node->redis, n, 0, &name);
        slot = ngx_idempotency_redis_slot(&name);

        if (map->slots[slot] == node) {
            node->peer.counter = ngx_idempotency_redis_loss_counter(node->redis,
                                                                    n);
            break;
        }

        /* with a hash tag in the prefix all names are in one slot */

        first = n ? first : slot;
        fixed &= (slot == first);

        if (fixed && n == 3) {
            break;
        }
    }

    ngx_free(name.data);
}


/*
 * A part is all that a node has, numbered by its first slot plus one.  Its
 * number stays valid if the node gets a lower slot meanwhile.
 */

ngx_idempotency_redis_node_t *
ngx_idempotency_redis_map_part(ngx_idempotency_redis_t *redis,
    ngx_uint_t part, ngx_uint_t *hope)
{
    ngx_idempotency_redis_map_t   *map;
    ngx_idempotency_redis_node_t  *node;

    map = redis->map;

    if (part > NGX_IDEMPOTENCY_REDIS_SLOTS) {
        *hope = 0;
        return NULL;
    }

    node = map->slots[part - 1];

    *hope = (node == NULL);

    return node;
}


/* slots without a node are a part, too: a command for it fails */

ngx_uint_t
ngx_idempotency_redis_map_next(ngx_idempotency_redis_t *redis,
    ngx_uint_t part)
{
    ngx_uint_t                    i, slot;
    ngx_idempotency_redis_map_t  *map;

    map = redis->map;

    for (slot = part; slot < NGX_IDEMPOTENCY_REDIS_SLOTS; slot++) {

        if (map->slots[slot] == map->slots[slot - 1]) {
            continue;
        }

        for (i = 0; i < slot; i++) {
            if (map->slots[i] == map->slots[slot]) {
                break;
            }
        }

        if (i == slot) {
            return slot + 1;
        }
    }

    return 0;
}
