
/*
 * The counts as Prometheus reads them.
 */


#include "ngx_http_idempotency_stats.h"
#include "ngx_http_idempotency_context.h"


/* one number of each store, or only of those that have it */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_STATS_ANY = 0,
    NGX_HTTP_IDEMPOTENCY_STATS_SHM,
    NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
    NGX_HTTP_IDEMPOTENCY_STATS_FROM
} ngx_http_idempotency_stats_of_e;


typedef struct {
    const char                        *name;
    const char                        *type;
    const char                        *help;
    ngx_http_idempotency_stats_of_e    of;
    size_t                             offset;
} ngx_http_idempotency_stats_value_t;


static void ngx_http_idempotency_stats_about(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_requests(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text,
    ngx_uint_t dry_run);
static void ngx_http_idempotency_stats_trouble(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_latencies(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_latency(
    ngx_http_idempotency_text_t *text, ngx_str_t *store, const char *op,
    ngx_idempotency_latency_t *latency);
static void ngx_http_idempotency_stats_sample(
    ngx_http_idempotency_text_t *text, const char *name, ngx_str_t *store);
static void ngx_http_idempotency_stats_failures(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_up(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_refusals(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_connections(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_values(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static ngx_uint_t ngx_http_idempotency_stats_has(
    ngx_idempotency_store_t *store, ngx_http_idempotency_stats_of_e of);


#define ngx_http_idempotency_stats_at(field)                                  \
    offsetof(ngx_http_idempotency_stats_store_t, field)

static ngx_http_idempotency_stats_value_t
    ngx_http_idempotency_stats_all[] =
{
    { "in_flight", "gauge", "Requests with a key that are here now.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(now.in_flight) },

    { "leases", "gauge", "Requests that hold their key now.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(now.leases) },

    { "leases_abandoned_total", "counter",
      "Leases that workers held when they died.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(counts.abandoned) },

    { "waiting", "gauge", "Duplicates that wait for another request now.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(now.waiting) },

    { "unknown", "gauge", "Unknown outcomes in the store now.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(unknown) },

    { "unknown_oldest_seconds", "gauge", "Age of the oldest of these.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(oldest) },

    { "unknown_counted_timestamp_seconds", "gauge",
      "When they were last counted in the store, 0 if not yet.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(unknown_counted) },

    { "unknown_total", "counter", "Requests whose outcome became unknown.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(counts.unknown) },

    { "uncommitted_total", "counter",
      "Answers of services that did not commit the record with their work.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(counts.uncommitted) },

    { "suspects_passed_total", "counter",
      "Requests that were the same under another key, and passed.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(counts.suspects_passed) },

    { "suspects_rejected_total", "counter",
      "Requests that were the same under another key, and were refused.",
      NGX_HTTP_IDEMPOTENCY_STATS_ANY,
      ngx_http_idempotency_stats_at(counts.suspects_rejected) },

    { "old_store_answers_total", "counter",
      "Claims that only the store of from= could answer.",
      NGX_HTTP_IDEMPOTENCY_STATS_FROM,
      ngx_http_idempotency_stats_at(counts.old_answers) },

    { "zone_bytes", "gauge", "Size of an embedded store.",
      NGX_HTTP_IDEMPOTENCY_STATS_SHM,
      ngx_http_idempotency_stats_at(usage.size) },

    { "zone_free_bytes", "gauge", "What is free of it, in whole pages.",
      NGX_HTTP_IDEMPOTENCY_STATS_SHM,
      ngx_http_idempotency_stats_at(usage.free) },

    { "records", "gauge", "Records in an embedded store.",
      NGX_HTTP_IDEMPOTENCY_STATS_SHM,
      ngx_http_idempotency_stats_at(usage.records) },

    { "zone_unknown", "gauge", "Records of these whose outcome is unknown.",
      NGX_HTTP_IDEMPOTENCY_STATS_SHM,
      ngx_http_idempotency_stats_at(zone_unknown) },

    { "zone_unknown_bytes", "gauge", "What they take of an embedded store.",
      NGX_HTTP_IDEMPOTENCY_STATS_SHM,
      ngx_http_idempotency_stats_at(zone_unknown_bytes) },

    { "redis_reconnects_total", "counter",
      "Connections to Redis that had to be made again.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(counts.redis.reconnects) },

    { "redis_connect_failures_total", "counter",
      "Attempts to connect to Redis that failed.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(counts.redis.failures) },

    { "redis_cached_total", "counter",
      "Claims that cache= has answered without Redis.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(counts.cached) },

    { "redis_losses_total", "counter",
      "Times that Redis was seen to have forgotten.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(counts.losses) },

    { "redis_unwatched", "gauge",
      "Workers to whom INFO does not tell whether Redis loses keys.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(now.redis.unwatched) },

    { "redis_clock_steps_total", "counter",
      "Times that the clock of a Redis server was seen to jump.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(counts.redis.clock_steps) },

    { "redis_unacknowledged_total", "counter",
      "Operations that too few replicas have acknowledged.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(counts.unacked) },

    { "redis_retries_total", "counter",
      "Operations that were sent to Redis again.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(counts.retries) },

    { "redis_background", "gauge",
      "Outcomes that Redis could not be told yet.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(now.background) },

    { "redis_background_dropped_total", "counter",
      "Outcomes given up because too many waited.",
      NGX_HTTP_IDEMPOTENCY_STATS_REDIS,
      ngx_http_idempotency_stats_at(counts.dropped) },

    { NULL, NULL, NULL, 0, 0 }
};


void
ngx_http_idempotency_stats_prometheus(void *data,
    ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_stats_t *stats = data;

    ngx_http_idempotency_stats_about(stats, text);
    ngx_http_idempotency_stats_requests(stats, text, 0);
    ngx_http_idempotency_stats_requests(stats, text, 1);
    ngx_http_idempotency_stats_trouble(stats, text);
    ngx_http_idempotency_stats_latencies(stats, text);
    ngx_http_idempotency_stats_failures(stats, text);
    ngx_http_idempotency_stats_up(stats, text);
    ngx_http_idempotency_stats_refusals(stats, text);
    ngx_http_idempotency_stats_connections(stats, text);
    ngx_http_idempotency_stats_values(stats, text);
}


static void
ngx_http_idempotency_stats_about(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_build_info Version of the module and of nginx.\n"
        "# TYPE idempotency_build_info gauge\n"
        "idempotency_build_info{version=\"%s\",nginx=\"%s\",host=\"",
        NGX_HTTP_IDEMPOTENCY_VERSION, NGINX_VERSION);
    ngx_http_idempotency_text_json(text, (ngx_str_t *) &ngx_cycle->hostname);
    ngx_http_idempotency_text_add(text, "\"} 1\n"
        "# HELP idempotency_counting_since_timestamp_seconds "
        "When the counters began at zero.\n"
        "# TYPE idempotency_counting_since_timestamp_seconds gauge\n"
        "idempotency_counting_since_timestamp_seconds %T\n",
        stats->imcf->counts->since);
}


/*
 * Results that never occurred have a line too: the increase from none to the
 * first one is seen only if there was a 0 before.  Dry runs have a metric of
 * their own, which is not added up with real results.
 */

static void
ngx_http_idempotency_stats_requests(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text, ngx_uint_t dry_run)
{
    const char                       *name;
    ngx_uint_t                        i, n;
    ngx_atomic_t                     *cell;
    ngx_http_idempotency_location_t  *location;

    name = dry_run ? "dry_run_requests_total" : "requests_total";

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_%s Requests by what %s of them.\n"
        "# TYPE idempotency_%s counter\n",
        name, dry_run ? "would have become" : "became", name);

    location = stats->imcf->locations.elts;
    cell = stats->cells;

    for (i = 0; i < stats->imcf->locations.nelts; i++) {
        for (n = 0; n < NGX_HTTP_IDEMPOTENCY_RESULTS; n++, cell++) {

            if (location[i].dry_run != dry_run) {
                continue;
            }

            ngx_http_idempotency_text_add(text, "idempotency_%s{server=\"",
                                          name);
            ngx_http_idempotency_text_json(text, &location[i].server);
            ngx_http_idempotency_text_add(text, "\",location=\"");
            ngx_http_idempotency_text_json(text, &location[i].location);
            ngx_http_idempotency_text_add(text, "\",result=\"%V\"} %uA\n",
                &ngx_http_idempotency_result_names[n], *cell);
        }
    }
}


/* not by source: there may be any number of them */

static void
ngx_http_idempotency_stats_trouble(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t  i;

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_client_trouble_total "
        "What clients do wrong when they retry.\n"
        "# TYPE idempotency_client_trouble_total counter\n");

    for (i = 0; i < NGX_IDEMPOTENCY_TROUBLE_N; i++) {
        ngx_http_idempotency_text_add(text,
            "idempotency_client_trouble_total{kind=\"%s\"} %uL\n",
            ngx_idempotency_trouble_kinds[i],
            stats->imcf->counts->trouble->kinds[i]);
    }
}


static void
ngx_http_idempotency_stats_latencies(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                           i;
    ngx_http_idempotency_stats_store_t  *store;

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_store_duration_seconds "
        "How long the store took to answer.\n"
        "# TYPE idempotency_store_duration_seconds histogram\n");

    for (i = 0; i < stats->nstores; i++) {
        store = &stats->stores[i];

        ngx_http_idempotency_stats_latency(text, &store->store->name, "claim",
                                           &store->counts.claim);
        ngx_http_idempotency_stats_latency(text, &store->store->name,
                                           "complete",
                                           &store->counts.complete);
    }
}


static void
ngx_http_idempotency_stats_latency(ngx_http_idempotency_text_t *text,
    ngx_str_t *store, const char *op, ngx_idempotency_latency_t *latency)
{
    ngx_uint_t         i, bound;
    ngx_atomic_uint_t  n;

    n = 0;

    for (i = 0; i < NGX_IDEMPOTENCY_LATENCIES; i++) {
        n += latency->le[i];

        ngx_http_idempotency_stats_sample(text, "store_duration_seconds_bucket",
                                          store);
        ngx_http_idempotency_text_add(text, ",operation=\"%s\",le=\"", op);

        if (i == NGX_IDEMPOTENCY_LATENCIES - 1) {
            ngx_http_idempotency_text_add(text, "+Inf\"} %uA\n", n);
            break;
        }

        bound = ngx_idempotency_latency_bounds[i];

        ngx_http_idempotency_text_add(text, "%ui.%06ui\"} %uA\n",
                                      bound / 1000000, bound % 1000000, n);
    }

    ngx_http_idempotency_stats_sample(text, "store_duration_seconds_sum",
                                      store);
    ngx_http_idempotency_text_add(text, ",operation=\"%s\"} %uA.%06uA\n", op,
        latency->usec / 1000000, latency->usec % 1000000);

    ngx_http_idempotency_stats_sample(text, "store_duration_seconds_count",
                                      store);
    ngx_http_idempotency_text_add(text, ",operation=\"%s\"} %uA\n", op, n);
}


/* up to the name of the store; more labels or "} VALUE" may follow */

static void
ngx_http_idempotency_stats_sample(ngx_http_idempotency_text_t *text,
    const char *name, ngx_str_t *store)
{
    ngx_http_idempotency_text_add(text, "idempotency_%s{store=\"", name);
    ngx_http_idempotency_text_json(text, store);
    ngx_http_idempotency_text_add(text, "\"");
}


static void
ngx_http_idempotency_stats_failures(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t  i, n;

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_store_errors_total "
        "Operations that the store could not do.\n"
        "# TYPE idempotency_store_errors_total counter\n");

    for (i = 0; i < stats->nstores; i++) {
        for (n = 1; n < NGX_IDEMPOTENCY_ERRORS; n++) {
            ngx_http_idempotency_stats_sample(text, "store_errors_total",
                                         &stats->stores[i].store->name);
            ngx_http_idempotency_text_add(text, ",error=\"%V\"} %uA\n",
                &ngx_http_idempotency_stats_errors[n],
                stats->stores[i].counts.errors[n]);
        }
    }
}


static void
ngx_http_idempotency_stats_up(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t  i;

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_store_up Whether the store takes new keys.\n"
        "# TYPE idempotency_store_up gauge\n");

    for (i = 0; i < stats->nstores; i++) {
        ngx_http_idempotency_stats_sample(text, "store_up",
                                          &stats->stores[i].store->name);
        ngx_http_idempotency_text_add(text, "} %d\n",
            stats->stores[i].state->health
            != NGX_HTTP_IDEMPOTENCY_STATS_DOWN);
    }

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_store_degraded "
        "Whether the store needs an operator to look at it.\n"
        "# TYPE idempotency_store_degraded gauge\n");

    for (i = 0; i < stats->nstores; i++) {
        ngx_http_idempotency_stats_sample(text, "store_degraded",
                                          &stats->stores[i].store->name);
        ngx_http_idempotency_text_add(text, "} %d\n",
            stats->stores[i].state->health
            != NGX_HTTP_IDEMPOTENCY_STATS_OK);
    }

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_store_state How the store is, by name.\n"
        "# TYPE idempotency_store_state gauge\n");

    for (i = 0; i < stats->nstores; i++) {
        ngx_http_idempotency_stats_sample(text, "store_state",
                                          &stats->stores[i].store->name);
        ngx_http_idempotency_text_add(text, ",state=\"%s\"} 1\n",
                                      stats->stores[i].state->name);
    }
}


static void
ngx_http_idempotency_stats_refusals(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t  i, n;

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_store_refusing "
        "Why the store refuses new keys now.\n"
        "# TYPE idempotency_store_refusing gauge\n");

    for (i = 0; i < stats->nstores; i++) {
        for (n = 1; n < NGX_IDEMPOTENCY_REFUSAL_N; n++) {
            ngx_http_idempotency_stats_sample(text, "store_refusing",
                                         &stats->stores[i].store->name);
            ngx_http_idempotency_text_add(text, ",reason=\"%V\"} %d\n",
                &ngx_idempotency_refusals[n],
                stats->stores[i].refusing == n);
        }
    }

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_store_refused_total "
        "New keys that the store has refused.\n"
        "# TYPE idempotency_store_refused_total counter\n");

    for (i = 0; i < stats->nstores; i++) {
        for (n = 1; n < NGX_IDEMPOTENCY_REFUSAL_N; n++) {
            ngx_http_idempotency_stats_sample(text, "store_refused_total",
                                         &stats->stores[i].store->name);
            ngx_http_idempotency_text_add(text, ",reason=\"%V\"} %uA\n",
                &ngx_idempotency_refusals[n],
                stats->stores[i].counts.refused[n]);
        }
    }
}


static void
ngx_http_idempotency_stats_connections(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t  i, n;

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_redis_connections "
        "Connections of all workers to Redis.\n"
        "# TYPE idempotency_redis_connections gauge\n");

    for (i = 0; i < stats->nstores; i++) {

        if (stats->stores[i].store->usage) {
            continue;
        }

        for (n = 0; n < NGX_IDEMPOTENCY_REDIS_IS_N; n++) {
            ngx_http_idempotency_stats_sample(text, "redis_connections",
                                         &stats->stores[i].store->name);
            ngx_http_idempotency_text_add(text, ",state=\"%V\"} %A\n",
                &ngx_http_idempotency_stats_states[n],
                stats->stores[i].now.redis.connections[n]);
        }
    }
}


/* all of these numbers have the size of a pointer */

static void
ngx_http_idempotency_stats_values(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                            i;
    ngx_http_idempotency_stats_store_t   *store;
    ngx_http_idempotency_stats_value_t   *value;

    for (value = ngx_http_idempotency_stats_all; value->name; value++) {

        ngx_http_idempotency_text_add(text,
            "# HELP idempotency_%s %s\n# TYPE idempotency_%s %s\n",
            value->name, value->help, value->name, value->type);

        for (i = 0; i < stats->nstores; i++) {
            store = &stats->stores[i];

            if (!ngx_http_idempotency_stats_has(store->store, value->of)) {
                continue;
            }

            ngx_http_idempotency_stats_sample(text, value->name,
                                              &store->store->name);
            ngx_http_idempotency_text_add(text, "} %A\n",
                *(ngx_atomic_t *) ((u_char *) store + value->offset));
        }
    }
}


static ngx_uint_t
ngx_http_idempotency_stats_has(ngx_idempotency_store_t *store,
    ngx_http_idempotency_stats_of_e of)
{
    switch (of) {

    case NGX_HTTP_IDEMPOTENCY_STATS_SHM:
        return store->usage != NULL;

    case NGX_HTTP_IDEMPOTENCY_STATS_REDIS:
        return store->usage == NULL;

    case NGX_HTTP_IDEMPOTENCY_STATS_FROM:
        return store->from != NULL;

    default: /* ANY */
        return 1;
    }
}
