
/*
 * One channel that all servers with records have: what is said there, by
 * whomever, everybody hears who listens.
 */


#include "ngx_idempotency_redis_link.h"


/* in a cluster those who have slots, else the one there is */
#define ngx_idempotency_redis_news_has_records(node)                          \
    ((node)->kind == NGX_IDEMPOTENCY_REDIS_SERVER                             \
     && ((node)->master || !(node)->redis->topology->slots))


void
ngx_idempotency_redis_news_dial(ngx_idempotency_redis_t *redis)
{
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node;

    if (redis->news.len == 0) {
        return;
    }

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (ngx_idempotency_redis_news_has_records(node)) {
            (void) ngx_idempotency_redis_hear_ear(node);
        }
    }
}


void
ngx_idempotency_redis_news_reply(ngx_idempotency_redis_node_t *ear,
    ngx_str_t *word)
{
    if (word->data[0] == 'm') {
        ear->redis->told(ear->redis);
        return;
    }

    /* not the time at which this turn of the event loop began */

    ngx_time_update();

    ear->since = ngx_current_msec;
    ear->sure = (word->data[0] == 's');
}


ngx_int_t
ngx_idempotency_redis_hears(ngx_idempotency_redis_t *redis, ngx_msec_t *since)
{
    ngx_uint_t                     n;
    ngx_queue_t                   *q;
    ngx_idempotency_redis_node_t  *node;

    if (redis->hear == NULL) {
        return NGX_DECLINED;
    }

    n = 0;

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (!ngx_idempotency_redis_news_has_records(node)) {
            continue;
        }

        if (node->ear == NULL || !node->ear->sure) {
            return NGX_DECLINED;
        }

        if (n++ == 0
            || (ngx_msec_int_t) (node->ear->since - *since) > 0)
        {
            *since = node->ear->since;
        }
    }

    return n ? NGX_OK : NGX_DECLINED;
}
