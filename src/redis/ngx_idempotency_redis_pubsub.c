
/*
 * Channels: of single keys, and one for purges that all nodes with records
 * have.
 *
 * A connection with subscriptions can do nothing else, so a node whose channels
 * are used has a second node, its subscriber.  Channels of keys are sharded
 * where the server can do that (Redis 7): in a cluster only the node that has
 * the key publishes.  A tick renews subscriptions that were lost or whose keys
 * have moved, and sends PING to subscribers: a channel without messages and a
 * dead connection look alike.
 */


#include "ngx_idempotency_redis_client.h"
#include "ngx_idempotency_redis_pipe.h"
#include "ngx_idempotency_redis_topology.h"


/* milliseconds between two ticks */
#define NGX_IDEMPOTENCY_REDIS_PUBSUB_TICK  1000

/* subscriptions of one worker and store */
#define NGX_IDEMPOTENCY_REDIS_SUBS       1024


/* what a message of a server says about a channel */

typedef enum {
    NGX_IDEMPOTENCY_REDIS_PUBSUB_OTHER = 0,
    NGX_IDEMPOTENCY_REDIS_PUBSUB_MESSAGE,
    NGX_IDEMPOTENCY_REDIS_PUBSUB_OPENED,
    NGX_IDEMPOTENCY_REDIS_PUBSUB_CLOSED
} ngx_idempotency_redis_pubsub_e;


typedef struct {
    ngx_str_t                           name;
    ngx_idempotency_redis_pubsub_e      what;
} ngx_idempotency_redis_pubsub_word_t;


struct ngx_idempotency_redis_pubsub_s {
    ngx_rbtree_t                        subs;
    ngx_rbtree_node_t                   sentinel;
    ngx_uint_t                          n;
    ngx_event_t                         timer;
};


static void ngx_idempotency_redis_pubsub_route(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub);
static ngx_idempotency_redis_node_t *ngx_idempotency_redis_pubsub_subscriber(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_pubsub_sub(ngx_idempotency_redis_sub_t *sub,
    ngx_uint_t on);
static void ngx_idempotency_redis_pubsub_say(
    ngx_idempotency_redis_node_t *subscriber, char *word, ngx_str_t *name);
static void ngx_idempotency_redis_pubsub_ready(
    ngx_idempotency_redis_node_t *subscriber);
static void ngx_idempotency_redis_pubsub_again(
    ngx_idempotency_redis_node_t *subscriber);
static void ngx_idempotency_redis_pubsub_closed(
    ngx_idempotency_redis_node_t *subscriber);
static void ngx_idempotency_redis_pubsub_leave(
    ngx_idempotency_redis_node_t *subscriber);
static ngx_int_t ngx_idempotency_redis_pubsub_reply(
    ngx_idempotency_redis_node_t *subscriber, ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply);
static ngx_idempotency_redis_pubsub_e ngx_idempotency_redis_pubsub_word(
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_pubsub_purge(
    ngx_idempotency_redis_node_t *subscriber,
    ngx_idempotency_redis_pubsub_e what);
static void ngx_idempotency_redis_pubsub_error(
    ngx_idempotency_redis_node_t *subscriber,
    ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_pubsub_tick(ngx_event_t *ev);
static void ngx_idempotency_redis_pubsub_purges(
    ngx_idempotency_redis_t *redis);
static void ngx_idempotency_redis_pubsub_ping(
    ngx_idempotency_redis_node_t *subscriber);
static ngx_idempotency_redis_sub_t *ngx_idempotency_redis_pubsub_first(
    ngx_idempotency_redis_t *redis);
static ngx_idempotency_redis_sub_t *ngx_idempotency_redis_pubsub_next(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_sub_t *sub);
static ngx_uint_t ngx_idempotency_redis_pubsub_is_wanted(
    ngx_idempotency_redis_node_t *subscriber);


#define ngx_idempotency_redis_pubsub_is_used(redis)                           \
    ((redis)->pubsub                                                          \
     && ((redis)->pubsub->n || (redis)->purge_channel.len))

#define ngx_idempotency_redis_pubsub_is_up(subscriber)                        \
    ((subscriber)->conns[0].state == NGX_IDEMPOTENCY_REDIS_READY)

/* in a cluster the nodes that have slots, else the only one */
#define ngx_idempotency_redis_pubsub_has_records(node)                        \
    ((node)->type->kind == NGX_IDEMPOTENCY_REDIS_KIND_DATA                 \
     && ((node)->master || !(node)->redis->spread))


static ngx_idempotency_redis_pubsub_word_t
    ngx_idempotency_redis_pubsub_words[] = {
    { ngx_string("message"), NGX_IDEMPOTENCY_REDIS_PUBSUB_MESSAGE },
    { ngx_string("smessage"), NGX_IDEMPOTENCY_REDIS_PUBSUB_MESSAGE },
    { ngx_string("subscribe"), NGX_IDEMPOTENCY_REDIS_PUBSUB_OPENED },
    { ngx_string("ssubscribe"), NGX_IDEMPOTENCY_REDIS_PUBSUB_OPENED },
    { ngx_string("unsubscribe"), NGX_IDEMPOTENCY_REDIS_PUBSUB_CLOSED },
    { ngx_string("sunsubscribe"), NGX_IDEMPOTENCY_REDIS_PUBSUB_CLOSED },
    { ngx_null_string, NGX_IDEMPOTENCY_REDIS_PUBSUB_OTHER }
};


static ngx_idempotency_redis_node_type_t  ngx_idempotency_redis_pubsub_node = {
    NGX_IDEMPOTENCY_REDIS_KIND_SUBSCRIBER,
    ngx_idempotency_redis_pubsub_reply,
    ngx_idempotency_redis_pubsub_ready,
    NULL,
    ngx_idempotency_redis_pubsub_closed,
    ngx_idempotency_redis_pubsub_leave,
    ngx_idempotency_redis_pubsub_is_wanted,
    0,
    0
};


ngx_int_t
ngx_idempotency_redis_pubsub_start(ngx_idempotency_redis_t *redis)
{
    ngx_event_t                     *ev;
    ngx_idempotency_redis_pubsub_t  *pubsub;

    pubsub = ngx_calloc(sizeof(ngx_idempotency_redis_pubsub_t), ngx_cycle->log);
    if (pubsub == NULL) {
        return NGX_ERROR;
    }

    redis->pubsub = pubsub;

    ngx_rbtree_init(&pubsub->subs, &pubsub->sentinel,
                    ngx_str_rbtree_insert_value);

    ev = &pubsub->timer;

    ev->handler = ngx_idempotency_redis_pubsub_tick;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    if (redis->purge_channel.len) {
        ngx_add_timer(ev, 1);
    }

    return NGX_OK;
}


void
ngx_idempotency_redis_pubsub_stop(ngx_idempotency_redis_t *redis)
{
    if (redis->pubsub == NULL) {
        return;
    }

    if (redis->pubsub->timer.timer_set) {
        ngx_del_timer(&redis->pubsub->timer);
    }

    ngx_free(redis->pubsub);
    redis->pubsub = NULL;
}


ngx_int_t
ngx_idempotency_redis_subscribe(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub)
{
    ngx_idempotency_redis_pubsub_t  *pubsub;

    pubsub = redis->pubsub;

    if (pubsub == NULL || pubsub->n == NGX_IDEMPOTENCY_REDIS_SUBS) {
        return NGX_DECLINED;
    }

    sub->subscriber = NULL;
    sub->open = 0;
    sub->channel.node.key = ngx_crc32_short(sub->channel.str.data,
                                            sub->channel.str.len);

    ngx_rbtree_insert(&pubsub->subs, &sub->channel.node);
    pubsub->n++;

    ngx_idempotency_redis_pubsub_route(redis, sub);

    if (!pubsub->timer.timer_set) {
        ngx_add_timer(&pubsub->timer, NGX_IDEMPOTENCY_REDIS_PUBSUB_TICK);
    }

    return NGX_OK;
}


void
ngx_idempotency_redis_unsubscribe(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub)
{
    if (redis->pubsub == NULL) {
        return;
    }

    ngx_idempotency_redis_pubsub_sub(sub, 0);

    ngx_rbtree_delete(&redis->pubsub->subs, &sub->channel.node);
    redis->pubsub->n--;
}


static ngx_uint_t
ngx_idempotency_redis_pubsub_is_wanted(ngx_idempotency_redis_node_t *subscriber)
{
    return ngx_idempotency_redis_pubsub_is_used(subscriber->redis);
}


/* subscribes at the node that has the key now, if that is not yet done */

static void
ngx_idempotency_redis_pubsub_route(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub)
{
    ngx_uint_t                     hope;
    ngx_idempotency_redis_node_t  *node, *subscriber;

    hope = 0;
    node = redis->topology->pick(redis, &sub->channel.str, &hope);

    subscriber = node ? ngx_idempotency_redis_pubsub_subscriber(node) : NULL;

    if (subscriber == NULL || (subscriber == sub->subscriber && sub->open)) {
        return;
    }

    if (subscriber != sub->subscriber) {
        ngx_idempotency_redis_pubsub_sub(sub, 0);
    }

    sub->subscriber = subscriber;
    sub->open = 0;

    ngx_idempotency_redis_pubsub_sub(sub, 1);
}


static ngx_idempotency_redis_node_t *
ngx_idempotency_redis_pubsub_subscriber(ngx_idempotency_redis_node_t *node)
{
    if (node->subscriber == NULL) {
        node->subscriber = ngx_idempotency_redis_node_create(node->redis,
                                                             &node->peer.host,
                                            &ngx_idempotency_redis_pubsub_node);
        if (node->subscriber) {
            node->subscriber->subscribed = node;
        }
    }

    if (node->subscriber && !ngx_exiting) {
        ngx_idempotency_redis_node_dial(node->subscriber);
    }

    return node->subscriber;
}


/* for a subscriber that is not up yet it is done when it is */

static void
ngx_idempotency_redis_pubsub_sub(ngx_idempotency_redis_sub_t *sub,
    ngx_uint_t on)
{
    char                          *word;
    ngx_idempotency_redis_node_t  *subscriber;

    subscriber = sub->subscriber;

    if (subscriber == NULL
        || subscriber->denied
        || !ngx_idempotency_redis_pubsub_is_up(subscriber))
    {
        return;
    }

    word = on ? "SSUBSCRIBE" : "SUNSUBSCRIBE";

    if (subscriber->unsharded) {
        word = on ? "SUBSCRIBE" : "UNSUBSCRIBE";
    }

    ngx_idempotency_redis_pubsub_say(subscriber, word, &sub->channel.str);
}


/* replies are told apart by their contents, not by their order */

static void
ngx_idempotency_redis_pubsub_say(ngx_idempotency_redis_node_t *subscriber,
    char *word, ngx_str_t *name)
{
    ngx_str_t  args[2];

    args[0].data = (u_char *) word;
    args[0].len = ngx_strlen(word);

    if (name) {
        args[1] = *name;
    }

    ngx_idempotency_redis_queue_say(&subscriber->conns[0], args, name ? 2 : 1);
}


static void
ngx_idempotency_redis_pubsub_ready(ngx_idempotency_redis_node_t *subscriber)
{
    subscriber->pinged = 0;

    if (subscriber->redis->purge_channel.len) {
        ngx_idempotency_redis_pubsub_say(subscriber, "SUBSCRIBE",
                                         &subscriber->redis->purge_channel);
    }

    ngx_idempotency_redis_pubsub_again(subscriber);
}


static void
ngx_idempotency_redis_pubsub_again(ngx_idempotency_redis_node_t *subscriber)
{
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_sub_t  *sub;

    redis = subscriber->redis;

    for (sub = ngx_idempotency_redis_pubsub_first(redis);
         sub;
         sub = ngx_idempotency_redis_pubsub_next(redis, sub))
    {
        if (sub->subscriber == subscriber) {
            ngx_idempotency_redis_pubsub_sub(sub, 1);
        }
    }
}


static void
ngx_idempotency_redis_pubsub_closed(ngx_idempotency_redis_node_t *subscriber)
{
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_sub_t  *sub;

    redis = subscriber->redis;

    subscriber->purges = 0;
    subscriber->denied = 0;
    subscriber->unsharded = 0;

    for (sub = ngx_idempotency_redis_pubsub_first(redis);
         sub;
         sub = ngx_idempotency_redis_pubsub_next(redis, sub))
    {
        if (sub->subscriber == subscriber) {
            sub->open = 0;
        }
    }
}


static void
ngx_idempotency_redis_pubsub_leave(ngx_idempotency_redis_node_t *subscriber)
{
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_sub_t  *sub;

    redis = subscriber->redis;

    for (sub = ngx_idempotency_redis_pubsub_first(redis);
         sub;
         sub = ngx_idempotency_redis_pubsub_next(redis, sub))
    {
        if (sub->subscriber == subscriber) {
            sub->subscriber = NULL;
            sub->open = 0;
        }
    }
}


/*
 * "message", channel, text; or a word about the channel, channel, number.  A
 * server closes a sharded channel itself when the slot leaves.
 */

static ngx_int_t
ngx_idempotency_redis_pubsub_reply(ngx_idempotency_redis_node_t *subscriber,
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_t        *redis;
    ngx_idempotency_redis_sub_t    *sub;
    ngx_str_t                       name;
    ngx_idempotency_redis_pubsub_e  what;

    (void) cmd;

    redis = subscriber->redis;

    subscriber->pinged = 0;

    if (ngx_idempotency_redis_reply_type(reply) == NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        ngx_idempotency_redis_pubsub_error(subscriber, reply);
        return NGX_OK;
    }

    if (ngx_idempotency_redis_reply_elements(reply) != 3) {
        return NGX_OK;
    }

    what = ngx_idempotency_redis_pubsub_word(
                             ngx_idempotency_redis_reply_element(reply, 0));
    ngx_idempotency_redis_reply_text(reply, 1, &name);

    if (what == NGX_IDEMPOTENCY_REDIS_PUBSUB_OTHER
        || name.len == 0
        || redis->pubsub == NULL)
    {
        return NGX_OK;
    }

    if (name.len == redis->purge_channel.len
        && ngx_strncmp(name.data, redis->purge_channel.data, name.len) == 0)
    {
        ngx_idempotency_redis_pubsub_purge(subscriber, what);
        return NGX_OK;
    }

    sub = (ngx_idempotency_redis_sub_t *)
              ngx_str_rbtree_lookup(&redis->pubsub->subs, &name,
                                    ngx_crc32_short(name.data, name.len));
    if (sub == NULL) {
        return NGX_OK;
    }

    switch (what) {

    case NGX_IDEMPOTENCY_REDIS_PUBSUB_CLOSED:

        /* by the server: what we end ourselves is not found here */

        if (sub->open) {
            sub->subscriber = NULL;
            sub->open = 0;
        }

        return NGX_OK;

    case NGX_IDEMPOTENCY_REDIS_PUBSUB_OPENED:

        /* messages before this one were missed */

        sub->subscriber = subscriber;
        sub->open = 1;
        break;

    default: /* NGX_IDEMPOTENCY_REDIS_PUBSUB_MESSAGE */
        break;
    }

    sub->handler(sub);

    return NGX_OK;
}


static ngx_idempotency_redis_pubsub_e
ngx_idempotency_redis_pubsub_word(ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t   word;
    ngx_uint_t  i;

    ngx_idempotency_redis_reply_string(reply, &word);

    for (i = 0; ngx_idempotency_redis_pubsub_words[i].name.len; i++) {

        if (word.len == ngx_idempotency_redis_pubsub_words[i].name.len
            && ngx_strncmp(word.data,
                           ngx_idempotency_redis_pubsub_words[i].name.data,
                           word.len)
               == 0)
        {
            return ngx_idempotency_redis_pubsub_words[i].what;
        }
    }

    return NGX_IDEMPOTENCY_REDIS_PUBSUB_OTHER;
}


static void
ngx_idempotency_redis_pubsub_purge(ngx_idempotency_redis_node_t *subscriber,
    ngx_idempotency_redis_pubsub_e what)
{
    if (what == NGX_IDEMPOTENCY_REDIS_PUBSUB_MESSAGE) {
        subscriber->redis->on_purge(subscriber->redis);
        return;
    }

    /* not the time at which this turn of the event loop began */

    ngx_time_update();

    subscriber->since = ngx_current_msec;
    subscriber->purges = (what == NGX_IDEMPOTENCY_REDIS_PUBSUB_OPENED);
}


static void
ngx_idempotency_redis_pubsub_error(ngx_idempotency_redis_node_t *subscriber,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t  text;

    ngx_idempotency_redis_reply_string(reply, &text);

    if (ngx_idempotency_redis_reply_is_error(reply, "ERR unknown command")
        && !subscriber->unsharded)
    {
        /* before Redis 7: all channels again, not sharded */

        subscriber->unsharded = 1;
        ngx_idempotency_redis_pubsub_again(subscriber);
        return;
    }

    if (!ngx_idempotency_redis_reply_is_error(reply, "NOPERM")
        || ngx_strlcasestrn(text.data, text.data + text.len,
                            (u_char *) "'ping'", 6 - 1))
    {
        /* the map has changed, or is about to: the tick subscribes again */

        return;
    }

    if (subscriber->denied) {
        return;
    }

    subscriber->denied = 1;

    if (!subscriber->warned) {
        subscriber->warned = 1;

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" does not permit subscriptions: "
                      "\"%V\", node \"%V\"; requests that wait poll twice a "
                      "second, and \"cache=\" has no effect",
                      &subscriber->redis->name, &text,
                      &subscriber->peer.name);
    }
}


static void
ngx_idempotency_redis_pubsub_tick(ngx_event_t *ev)
{
    ngx_queue_t                  *q, *next;
    ngx_connection_t             *dummy;
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_sub_t  *sub;

    dummy = ev->data;
    redis = dummy->data;

    for (q = ngx_queue_head(&redis->subscribers);
         q != ngx_queue_sentinel(&redis->subscribers);
         q = next)
    {
        next = ngx_queue_next(q);

        ngx_idempotency_redis_pubsub_ping(
                        ngx_queue_data(q, ngx_idempotency_redis_node_t, queue));
    }

    ngx_idempotency_redis_pubsub_purges(redis);

    for (sub = ngx_idempotency_redis_pubsub_first(redis);
         sub;
         sub = ngx_idempotency_redis_pubsub_next(redis, sub))
    {
        ngx_idempotency_redis_pubsub_route(redis, sub);
    }

    if (ngx_idempotency_redis_pubsub_is_used(redis)) {
        ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_PUBSUB_TICK);
    }
}


/* all nodes with records have subscribers */

static void
ngx_idempotency_redis_pubsub_purges(ngx_idempotency_redis_t *redis)
{
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node;

    if (redis->purge_channel.len == 0) {
        return;
    }

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (ngx_idempotency_redis_pubsub_has_records(node)) {
            (void) ngx_idempotency_redis_pubsub_subscriber(node);
        }
    }
}


ngx_int_t
ngx_idempotency_redis_purge_since(ngx_idempotency_redis_t *redis,
    ngx_msec_t *since)
{
    ngx_uint_t                     n;
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node;

    if (redis->pubsub == NULL) {
        return NGX_DECLINED;
    }

    n = 0;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (!ngx_idempotency_redis_pubsub_has_records(node)) {
            continue;
        }

        if (node->subscriber == NULL || !node->subscriber->purges) {
            return NGX_DECLINED;
        }

        if (n++ == 0
            || (ngx_msec_int_t) (node->subscriber->since - *since) > 0)
        {
            *since = node->subscriber->since;
        }
    }

    return n ? NGX_OK : NGX_DECLINED;
}


static void
ngx_idempotency_redis_pubsub_ping(ngx_idempotency_redis_node_t *subscriber)
{
    ngx_msec_t                     patience;
    ngx_idempotency_redis_conn_t  *conn;

    conn = &subscriber->conns[0];

    if (!ngx_idempotency_redis_pubsub_is_up(subscriber)) {
        return;
    }

    if (!subscriber->pinged) {
        subscriber->pinged = 1;
        subscriber->pinged_at = ngx_current_msec;

        ngx_idempotency_redis_pubsub_say(subscriber, "PING", NULL);
        return;
    }

    patience = ngx_max(conn->redis->timeout,
                       NGX_IDEMPOTENCY_REDIS_PUBSUB_TICK / 2);

    if (ngx_current_msec - subscriber->pinged_at >= patience) {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_REPORT_TIMEOUT, 0,
                                     "does not answer PING on a subscribed "
                                     "connection");
        ngx_idempotency_redis_conn_lost(conn,
                                        NGX_IDEMPOTENCY_REDIS_TIMEOUT);
    }
}


static ngx_idempotency_redis_sub_t *
ngx_idempotency_redis_pubsub_first(ngx_idempotency_redis_t *redis)
{
    ngx_rbtree_t  *tree;

    if (redis->pubsub == NULL || redis->pubsub->n == 0) {
        return NULL;
    }

    tree = &redis->pubsub->subs;

    return (ngx_idempotency_redis_sub_t *) ngx_rbtree_min(tree->root,
                                                          tree->sentinel);
}


static ngx_idempotency_redis_sub_t *
ngx_idempotency_redis_pubsub_next(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub)
{
    return (ngx_idempotency_redis_sub_t *)
               ngx_rbtree_next(&redis->pubsub->subs, &sub->channel.node);
}
