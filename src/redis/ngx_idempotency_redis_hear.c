
/*
 * What servers say without being asked: channels.
 *
 * A connection that listens can do nothing else, so a server that is listened
 * to has a second node, its ear.  Channels of keys are sharded where a server
 * can do that (Redis 7): in a cluster only the node that has the key tells.
 * Whatever is lost or moved is found by a tick, which also makes sure that
 * ears are alive: a channel that is silent and one that is dead look alike.
 */


#include "ngx_idempotency_redis_link.h"


/* milliseconds */
#define NGX_IDEMPOTENCY_REDIS_HEAR_TICK  1000

/* of one worker and store */
#define NGX_IDEMPOTENCY_REDIS_SUBS       1024


struct ngx_idempotency_redis_hear_s {
    ngx_rbtree_t                   subs;
    ngx_rbtree_node_t              sentinel;
    ngx_uint_t                     n;
    ngx_event_t                    timer;
};


static void ngx_idempotency_redis_hear_route(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub);
static void ngx_idempotency_redis_hear_sub(ngx_idempotency_redis_sub_t *sub,
    ngx_uint_t on);
static void ngx_idempotency_redis_hear_say(ngx_idempotency_redis_node_t *ear,
    char *word, ngx_str_t *name);
static void ngx_idempotency_redis_hear_error(
    ngx_idempotency_redis_node_t *ear, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_hear_again(
    ngx_idempotency_redis_node_t *ear);
static void ngx_idempotency_redis_hear_tick(ngx_event_t *ev);
static void ngx_idempotency_redis_hear_ping(
    ngx_idempotency_redis_node_t *ear);
static ngx_idempotency_redis_sub_t *ngx_idempotency_redis_hear_first(
    ngx_idempotency_redis_t *redis);
static ngx_idempotency_redis_sub_t *ngx_idempotency_redis_hear_next(
    ngx_idempotency_redis_t *redis, ngx_idempotency_redis_sub_t *sub);


#define ngx_idempotency_redis_hear_is_up(ear)                                 \
    ((ear)->conns[0].state == NGX_IDEMPOTENCY_REDIS_READY)


ngx_int_t
ngx_idempotency_redis_hear_start(ngx_idempotency_redis_t *redis)
{
    ngx_event_t                   *ev;
    ngx_idempotency_redis_hear_t  *hear;

    hear = ngx_calloc(sizeof(ngx_idempotency_redis_hear_t), ngx_cycle->log);
    if (hear == NULL) {
        return NGX_ERROR;
    }

    redis->hear = hear;

    ngx_rbtree_init(&hear->subs, &hear->sentinel,
                    ngx_str_rbtree_insert_value);

    ev = &hear->timer;

    ev->handler = ngx_idempotency_redis_hear_tick;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    if (redis->news.len) {
        ngx_add_timer(ev, 1);
    }

    return NGX_OK;
}


void
ngx_idempotency_redis_hear_stop(ngx_idempotency_redis_t *redis)
{
    if (redis->hear == NULL) {
        return;
    }

    if (redis->hear->timer.timer_set) {
        ngx_del_timer(&redis->hear->timer);
    }

    ngx_free(redis->hear);
    redis->hear = NULL;
}


ngx_int_t
ngx_idempotency_redis_listen(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub)
{
    ngx_idempotency_redis_hear_t  *hear;

    hear = redis->hear;

    if (hear == NULL || hear->n == NGX_IDEMPOTENCY_REDIS_SUBS) {
        return NGX_DECLINED;
    }

    sub->ear = NULL;
    sub->sure = 0;
    sub->channel.node.key = ngx_crc32_short(sub->channel.str.data,
                                            sub->channel.str.len);

    ngx_rbtree_insert(&hear->subs, &sub->channel.node);
    hear->n++;

    ngx_idempotency_redis_hear_route(redis, sub);

    if (!hear->timer.timer_set) {
        ngx_add_timer(&hear->timer, NGX_IDEMPOTENCY_REDIS_HEAR_TICK);
    }

    return NGX_OK;
}


void
ngx_idempotency_redis_unlisten(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub)
{
    if (redis->hear == NULL) {
        return;
    }

    ngx_idempotency_redis_hear_sub(sub, 0);

    ngx_rbtree_delete(&redis->hear->subs, &sub->channel.node);
    redis->hear->n--;
}


ngx_uint_t
ngx_idempotency_redis_hear_is_wanted(ngx_idempotency_redis_t *redis)
{
    return redis->hear && (redis->hear->n || redis->news.len);
}


/* asks the server that has the key now, if that is not yet done */

static void
ngx_idempotency_redis_hear_route(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub)
{
    ngx_uint_t                     hope;
    ngx_idempotency_redis_node_t  *node, *ear;

    hope = 0;
    node = redis->topology->pick(redis, &sub->channel.str, &hope);

    ear = node ? ngx_idempotency_redis_hear_ear(node) : NULL;

    if (ear == NULL || (ear == sub->ear && sub->sure)) {
        return;
    }

    if (ear != sub->ear) {
        ngx_idempotency_redis_hear_sub(sub, 0);
    }

    sub->ear = ear;
    sub->sure = 0;

    ngx_idempotency_redis_hear_sub(sub, 1);
}


ngx_idempotency_redis_node_t *
ngx_idempotency_redis_hear_ear(ngx_idempotency_redis_node_t *node)
{
    if (node->ear == NULL) {
        node->ear = ngx_idempotency_redis_node_create(node->redis,
                                      &node->place, NGX_IDEMPOTENCY_REDIS_EAR);
        if (node->ear) {
            node->ear->server = node;
        }
    }

    if (node->ear && !ngx_exiting) {
        ngx_idempotency_redis_node_dial(node->ear);
    }

    return node->ear;
}


/* one that is not up yet is told when it is */

static void
ngx_idempotency_redis_hear_sub(ngx_idempotency_redis_sub_t *sub,
    ngx_uint_t on)
{
    char                          *word;
    ngx_idempotency_redis_node_t  *ear;

    ear = sub->ear;

    if (ear == NULL || ear->deaf || !ngx_idempotency_redis_hear_is_up(ear)) {
        return;
    }

    word = on ? "SSUBSCRIBE" : "SUNSUBSCRIBE";

    if (ear->plain) {
        word = on ? "SUBSCRIBE" : "UNSUBSCRIBE";
    }

    ngx_idempotency_redis_hear_say(ear, word, &sub->channel.str);
}


/* replies are told apart by what they say, not by their order */

static void
ngx_idempotency_redis_hear_say(ngx_idempotency_redis_node_t *ear, char *word,
    ngx_str_t *name)
{
    ngx_str_t                      args[2], bytes;
    ngx_idempotency_redis_conn_t  *conn;

    conn = &ear->conns[0];

    args[0].data = (u_char *) word;
    args[0].len = ngx_strlen(word);

    if (name) {
        args[1] = *name;
    }

    if (ngx_idempotency_redis_encode(args, name ? 2 : 1, &bytes) != NGX_OK) {
        return;
    }

    if (ngx_idempotency_redis_bytes_append(&conn->out, bytes.data, bytes.len)
        == NGX_OK)
    {
        conn->appended += bytes.len;
        ngx_post_event(&conn->flush, &ngx_posted_events);
    }

    ngx_idempotency_redis_encode_free(&bytes);
}


void
ngx_idempotency_redis_hear_ready(ngx_idempotency_redis_node_t *ear)
{
    ear->pinged = 0;

    if (ear->redis->news.len) {
        ngx_idempotency_redis_hear_say(ear, "SUBSCRIBE", &ear->redis->news);
    }

    ngx_idempotency_redis_hear_again(ear);
}


static void
ngx_idempotency_redis_hear_again(ngx_idempotency_redis_node_t *ear)
{
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_sub_t  *sub;

    redis = ear->redis;

    for (sub = ngx_idempotency_redis_hear_first(redis);
         sub;
         sub = ngx_idempotency_redis_hear_next(redis, sub))
    {
        if (sub->ear == ear) {
            ngx_idempotency_redis_hear_sub(sub, 1);
        }
    }
}


void
ngx_idempotency_redis_hear_closed(ngx_idempotency_redis_node_t *ear)
{
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_sub_t  *sub;

    redis = ear->redis;

    ear->sure = 0;
    ear->deaf = 0;
    ear->plain = 0;

    for (sub = ngx_idempotency_redis_hear_first(redis);
         sub;
         sub = ngx_idempotency_redis_hear_next(redis, sub))
    {
        if (sub->ear == ear) {
            sub->sure = 0;
        }
    }
}


void
ngx_idempotency_redis_hear_leave(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_sub_t   *sub;
    ngx_idempotency_redis_node_t  *ear;

    redis = node->redis;
    ear = node->ear;

    if (ear == NULL) {
        return;
    }

    node->ear = NULL;

    for (sub = ngx_idempotency_redis_hear_first(redis);
         sub;
         sub = ngx_idempotency_redis_hear_next(redis, sub))
    {
        if (sub->ear == ear) {
            sub->ear = NULL;
            sub->sure = 0;
        }
    }

    ngx_idempotency_redis_node_leave(ear);
}


/*
 * "message", channel, text; or a word about the channel, channel, number.  A
 * sharded channel is ended by its server when the slot leaves.
 */

void
ngx_idempotency_redis_hear_reply(ngx_idempotency_redis_conn_t *conn,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t                      word, name;
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_sub_t   *sub;
    ngx_idempotency_redis_node_t  *ear;

    ear = conn->node;
    redis = conn->redis;

    ear->pinged = 0;

    if (ngx_idempotency_redis_reply_type(reply)
        == NGX_IDEMPOTENCY_REDIS_ERROR)
    {
        ngx_idempotency_redis_hear_error(ear, reply);
        return;
    }

    if (ngx_idempotency_redis_reply_elements(reply) != 3) {
        return;
    }

    ngx_idempotency_redis_reply_string(
                      ngx_idempotency_redis_reply_element(reply, 0), &word);
    ngx_idempotency_redis_reply_string(
                      ngx_idempotency_redis_reply_element(reply, 1), &name);

    if (word.len && word.data[0] == 's'
        && !(word.len == 9 && ngx_strncmp(word.data, "subscribe", 9) == 0))
    {
        /* sharded: the same words with an "s" before */

        word.data++;
        word.len--;
    }

    if (word.len == 0 || name.len == 0 || redis->hear == NULL) {
        return;
    }

    if (name.len == redis->news.len
        && ngx_strncmp(name.data, redis->news.data, name.len) == 0)
    {
        ngx_idempotency_redis_news_reply(ear, &word);
        return;
    }

    sub = (ngx_idempotency_redis_sub_t *)
              ngx_str_rbtree_lookup(&redis->hear->subs, &name,
                                    ngx_crc32_short(name.data, name.len));
    if (sub == NULL) {
        return;
    }

    switch (word.data[0]) {

    case 'u':

        /* it was not us: we would not know of the channel any more */

        if (sub->sure) {
            sub->ear = NULL;
            sub->sure = 0;
        }

        return;

    case 's':

        /* before now anything may have been said */

        sub->ear = ear;
        sub->sure = 1;
        break;

    default: /* "message" */
        break;
    }

    sub->handler(sub);
}


static void
ngx_idempotency_redis_hear_error(ngx_idempotency_redis_node_t *ear,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_str_t  text;

    ngx_idempotency_redis_reply_string(reply, &text);

    if (ngx_idempotency_redis_reply_is_error(reply, "ERR unknown command")
        && !ear->plain)
    {
        /* before Redis 7: all of them again, by the other word */

        ear->plain = 1;
        ngx_idempotency_redis_hear_again(ear);
        return;
    }

    if (!ngx_idempotency_redis_reply_is_error(reply, "NOPERM")
        || ngx_strlcasestrn(text.data, text.data + text.len,
                            (u_char *) "'ping'", 6 - 1))
    {
        /* the map has changed, or is about to: the tick asks again */

        return;
    }

    if (ear->deaf) {
        return;
    }

    ear->deaf = 1;

    if (!ear->warned) {
        ear->warned = 1;

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" may not be listened to: "
                      "\"%V\", node \"%V\"; requests that wait for another "
                      "gateway look twice a second, and \"cache=\" has no "
                      "effect", &ear->redis->name, &text, &ear->name);
    }
}


static void
ngx_idempotency_redis_hear_tick(ngx_event_t *ev)
{
    ngx_queue_t                  *q, *next;
    ngx_connection_t             *dummy;
    ngx_idempotency_redis_t      *redis;
    ngx_idempotency_redis_sub_t  *sub;

    dummy = ev->data;
    redis = dummy->data;

    for (q = ngx_queue_head(&redis->ears);
         q != ngx_queue_sentinel(&redis->ears);
         q = next)
    {
        next = ngx_queue_next(q);

        ngx_idempotency_redis_hear_ping(
                      ngx_queue_data(q, ngx_idempotency_redis_node_t, queue));
    }

    ngx_idempotency_redis_news_dial(redis);

    for (sub = ngx_idempotency_redis_hear_first(redis);
         sub;
         sub = ngx_idempotency_redis_hear_next(redis, sub))
    {
        ngx_idempotency_redis_hear_route(redis, sub);
    }

    if (ngx_idempotency_redis_hear_is_wanted(redis)) {
        ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_HEAR_TICK);
    }
}


static void
ngx_idempotency_redis_hear_ping(ngx_idempotency_redis_node_t *ear)
{
    ngx_msec_t                     patience;
    ngx_idempotency_redis_conn_t  *conn;

    conn = &ear->conns[0];

    if (!ngx_idempotency_redis_hear_is_up(ear)) {
        return;
    }

    if (!ear->pinged) {
        ear->pinged = 1;
        ear->pinged_at = ngx_current_msec;

        ngx_idempotency_redis_hear_say(ear, "PING", NULL);
        return;
    }

    patience = ngx_max(conn->redis->timeout,
                       NGX_IDEMPOTENCY_REDIS_HEAR_TICK / 2);

    if (ngx_current_msec - ear->pinged_at >= patience) {
        ngx_idempotency_redis_report(conn,
                                     NGX_IDEMPOTENCY_REDIS_SAID_TIMEOUT, 0,
                                     "is silent where it is listened to");
        ngx_idempotency_redis_conn_lost(conn,
                                        NGX_IDEMPOTENCY_REDIS_TIMEOUT);
    }
}


static ngx_idempotency_redis_sub_t *
ngx_idempotency_redis_hear_first(ngx_idempotency_redis_t *redis)
{
    ngx_rbtree_t  *tree;

    if (redis->hear == NULL || redis->hear->n == 0) {
        return NULL;
    }

    tree = &redis->hear->subs;

    return (ngx_idempotency_redis_sub_t *) ngx_rbtree_min(tree->root,
                                                          tree->sentinel);
}


static ngx_idempotency_redis_sub_t *
ngx_idempotency_redis_hear_next(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_sub_t *sub)
{
    return (ngx_idempotency_redis_sub_t *)
               ngx_rbtree_next(&redis->hear->subs, &sub->channel.node);
}
