
/*
 * Does a server still know what it has acknowledged?
 *
 * Each master carries a counter.  All workers advance it, by a timer and at
 * each login, before anything else is sent: a value that is not above the last
 * one acknowledged means that the server has lost what came with that one or
 * later.  What it loses between two ticks cannot be seen.
 *
 * What was acknowledged is in shared memory: a worker that is new, after a
 * reload or the death of another, knows what there was to be forgotten.
 */


#include "ngx_idempotency_redis_link.h"


/* milliseconds */
#define NGX_IDEMPOTENCY_REDIS_TICK  250

/*
 * A counter that nobody advances stays for a day, which is renewed now and
 * then; nothing is expected of it after half of that.
 */
#define NGX_IDEMPOTENCY_REDIS_STAY  "86400000"
#define NGX_IDEMPOTENCY_REDIS_KEEP_EVERY  64
#define NGX_IDEMPOTENCY_REDIS_EXPECTED  43200000


static ngx_idempotency_redis_tally_t *ngx_idempotency_redis_memory_tally(
    ngx_idempotency_redis_t *redis, ngx_uint_t n);
static void ngx_idempotency_redis_memory_timer(ngx_event_t *ev);
static void ngx_idempotency_redis_memory_tick(
    ngx_idempotency_redis_node_t *node);
static void ngx_idempotency_redis_memory_ticked(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);
static void ngx_idempotency_redis_memory_kept(
    ngx_idempotency_redis_cmd_t *cmd, ngx_idempotency_redis_reply_t *reply);


ngx_int_t
ngx_idempotency_redis_memory_start(ngx_idempotency_redis_t *redis)
{
    ngx_event_t                     *ev;
    ngx_idempotency_redis_memory_t  *memory;

    memory = ngx_calloc(sizeof(ngx_idempotency_redis_memory_t),
                        ngx_cycle->log);
    if (memory == NULL) {
        return NGX_ERROR;
    }

    redis->memory = memory;

    ngx_queue_init(&memory->counters);

    ev = &memory->timer;

    ev->handler = ngx_idempotency_redis_memory_timer;
    ev->data = &redis->dummy;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_TICK);

    return NGX_OK;
}


void
ngx_idempotency_redis_memory_stop(ngx_idempotency_redis_t *redis)
{
    ngx_queue_t                     *q;
    ngx_idempotency_redis_memory_t  *memory;

    memory = redis->memory;

    if (memory == NULL) {
        return;
    }

    if (memory->timer.timer_set) {
        ngx_del_timer(&memory->timer);
    }

    while (!ngx_queue_empty(&memory->counters)) {
        q = ngx_queue_head(&memory->counters);
        ngx_queue_remove(q);

        ngx_free(ngx_queue_data(q, ngx_idempotency_redis_counter_t, queue));
    }

    ngx_free(memory);
    redis->memory = NULL;
}


void
ngx_idempotency_redis_memory_name(ngx_idempotency_redis_t *redis,
    ngx_uint_t n, ngx_str_t *name)
{
    ngx_idempotency_redis_shared_t  *shared;

    shared = redis->zone->data;

    name->len = ngx_sprintf(name->data, "%Vcounter:%*xs:%ui", &redis->prefix,
                            sizeof(shared->id), shared->id, n)
                - name->data;
}


void
ngx_idempotency_redis_memory_count(ngx_idempotency_redis_node_t *node,
    ngx_uint_t n)
{
    ngx_queue_t                      *q;
    ngx_idempotency_redis_t          *redis;
    ngx_idempotency_redis_tally_t    *tally;
    ngx_idempotency_redis_memory_t   *memory;
    ngx_idempotency_redis_counter_t  *counter;

    redis = node->redis;
    memory = redis->memory;

    for (q = ngx_queue_head(&memory->counters);
         q != ngx_queue_sentinel(&memory->counters);
         q = ngx_queue_next(q))
    {
        counter = ngx_queue_data(q, ngx_idempotency_redis_counter_t, queue);

        if (counter->n == n) {
            node->counter = counter;
            return;
        }
    }

    node->counter = NULL;

    tally = ngx_idempotency_redis_memory_tally(redis, n);
    if (tally == NULL) {
        return;
    }

    counter = ngx_calloc(sizeof(ngx_idempotency_redis_counter_t)
                         + ngx_idempotency_redis_memory_len(redis),
                         ngx_cycle->log);
    if (counter == NULL) {
        return;
    }

    counter->n = n;
    counter->tally = tally;
    counter->name.data = (u_char *) (counter + 1);

    ngx_idempotency_redis_memory_name(redis, n, &counter->name);

    ngx_queue_insert_tail(&memory->counters, &counter->queue);

    node->counter = counter;
}


static ngx_idempotency_redis_tally_t *
ngx_idempotency_redis_memory_tally(ngx_idempotency_redis_t *redis,
    ngx_uint_t n)
{
    ngx_uint_t                       i;
    ngx_slab_pool_t                 *shpool;
    ngx_idempotency_redis_tally_t   *tally;
    ngx_idempotency_redis_shared_t  *shared;

    shared = redis->zone->data;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_TALLIES; i++) {
        tally = &shared->tallies[i];

        if (tally->number == 0) {
            tally->number = n + 1;
        }

        if (tally->number == n + 1) {
            ngx_shmtx_unlock(&shpool->mutex);
            return tally;
        }
    }

    ngx_shmtx_unlock(&shpool->mutex);

    if (!redis->memory->full) {
        redis->memory->full = 1;

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" has had more masters than can "
                      "be watched: if the last ones forget what they have "
                      "acknowledged, that will not be noticed", &redis->name);
    }

    return NULL;
}


static void
ngx_idempotency_redis_memory_timer(ngx_event_t *ev)
{
    ngx_queue_t                   *q, *next;
    ngx_connection_t              *dummy;
    ngx_idempotency_redis_t       *redis;
    ngx_idempotency_redis_node_t  *node;

    dummy = ev->data;
    redis = dummy->data;

    if (ngx_exiting) {

        /* nobody claims here any more */

        return;
    }

    for (q = ngx_queue_head(&redis->nodes);
         q != ngx_queue_sentinel(&redis->nodes);
         q = next)
    {
        next = ngx_queue_next(q);
        node = ngx_queue_data(q, ngx_idempotency_redis_node_t, queue);

        if (node->counter && !node->counter->ticking
            && ngx_idempotency_redis_node_is_up(node))
        {
            ngx_idempotency_redis_memory_tick(node);
        }
    }

    ngx_add_timer(ev, NGX_IDEMPOTENCY_REDIS_TICK);
}


static void
ngx_idempotency_redis_memory_tick(ngx_idempotency_redis_node_t *node)
{
    ngx_idempotency_redis_cmd_t      *cmd;
    ngx_idempotency_redis_counter_t  *counter;

    counter = node->counter;
    cmd = &counter->tick;

    ngx_str_set(&counter->args[0], "INCR");
    counter->args[1] = counter->name;

    cmd->args = counter->args;
    cmd->nargs = 2;
    cmd->key = &counter->name;
    cmd->handler = ngx_idempotency_redis_memory_ticked;
    cmd->data = counter;
    cmd->wait = 1;

    counter->redis = node->redis;

    ngx_idempotency_redis_memory_know(node->redis, counter, &counter->before);

    if (ngx_idempotency_redis_send(node->redis, cmd) == NGX_AGAIN) {
        counter->ticking = 1;
    }
}


static void
ngx_idempotency_redis_memory_ticked(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_counter_t  *counter;

    counter = cmd->data;
    counter->ticking = 0;

    if (reply == NULL || cmd->acks < counter->redis->replicas) {

        /* the next one tells */

        return;
    }

    ngx_idempotency_redis_memory_told(counter->redis, counter, reply,
                                      &counter->before, 1);

    if (counter->ticks++ % NGX_IDEMPOTENCY_REDIS_KEEP_EVERY != 0
        || counter->keeping)
    {
        return;
    }

    cmd = &counter->keep;

    ngx_str_set(&counter->keep_args[0], "PEXPIRE");
    counter->keep_args[1] = counter->name;
    ngx_str_set(&counter->keep_args[2], NGX_IDEMPOTENCY_REDIS_STAY);

    cmd->args = counter->keep_args;
    cmd->nargs = 3;
    cmd->key = &counter->name;
    cmd->handler = ngx_idempotency_redis_memory_kept;
    cmd->data = counter;

    if (ngx_idempotency_redis_send(counter->redis, cmd) == NGX_AGAIN) {
        counter->keeping = 1;
    }
}


static void
ngx_idempotency_redis_memory_kept(ngx_idempotency_redis_cmd_t *cmd,
    ngx_idempotency_redis_reply_t *reply)
{
    ngx_idempotency_redis_counter_t  *counter;

    (void) reply;

    counter = cmd->data;
    counter->keeping = 0;
}


void
ngx_idempotency_redis_memory_know(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_counter_t *counter,
    ngx_idempotency_redis_known_t *before)
{
    ngx_slab_pool_t                *shpool;
    ngx_idempotency_redis_tally_t  *tally;

    tally = counter->tally;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    /* others have their own idea of the time, which may be a bit later */

    if ((ngx_msec_int_t) (ngx_current_msec - tally->told)
        > NGX_IDEMPOTENCY_REDIS_EXPECTED)
    {
        tally->known.seen = 0;
    }

    *before = tally->known;

    ngx_shmtx_unlock(&shpool->mutex);
}


/*
 * Several may be on their way, from several workers: each is compared with
 * what was known when it was sent.  What was sent before a loss was seen is
 * no second loss, and may tell of what is lost.
 */

void
ngx_idempotency_redis_memory_told(ngx_idempotency_redis_t *redis,
    ngx_idempotency_redis_counter_t *counter,
    ngx_idempotency_redis_reply_t *reply,
    ngx_idempotency_redis_known_t *before, ngx_uint_t sure)
{
    uint64_t                         value;
    ngx_slab_pool_t                 *shpool;
    ngx_idempotency_redis_tally_t   *tally;
    ngx_idempotency_redis_memory_t  *memory;

    memory = redis->memory;

    if (ngx_idempotency_redis_reply_is_error(reply, "NOPERM")
        && !memory->warned)
    {
        memory->warned = 1;

        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "idempotency store \"%V\" may not use INCR: if the "
                      "server forgets what it has acknowledged, that will "
                      "not be noticed; allow INCR and PEXPIRE",
                      &redis->name);
    }

    if (ngx_idempotency_redis_reply_type(reply)
        != NGX_IDEMPOTENCY_REDIS_INTEGER)
    {
        return;
    }

    value = (uint64_t) ngx_idempotency_redis_reply_integer(reply);

    tally = counter->tally;
    shpool = (ngx_slab_pool_t *) redis->zone->shm.addr;

    ngx_shmtx_lock(&shpool->mutex);

    if (tally->known.losses != before->losses) {
        goto done;
    }

    tally->told = ngx_current_msec;

    if (value > before->seen) {

        if (sure) {
            tally->known.seen = ngx_max(tally->known.seen, value);
        }

        goto done;
    }

    /* whoever finds it noticed must find that nothing may be claimed */

    redis->forgot(redis, value == 1 ? "has come back without its data"
                                    : "has come back behind its data");

    tally->known.seen = value;
    tally->known.losses++;

    counter->ticks = 0;

done:

    ngx_shmtx_unlock(&shpool->mutex);
}
