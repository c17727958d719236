
/*
 * The counts in JSON.
 */


#include "ngx_http_idempotency_stats.h"
#include "ngx_http_idempotency_context.h"


static void ngx_http_idempotency_stats_json_locations(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_json_lookups(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_json_trouble(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_json_troubles(
    ngx_http_idempotency_text_t *text, uint64_t *kinds);
static void ngx_http_idempotency_stats_json_store(
    ngx_http_idempotency_stats_store_t *store,
    ngx_idempotency_unknowns_t *unknowns, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_json_unknown(
    ngx_http_idempotency_stats_store_t *store,
    ngx_idempotency_unknowns_t *unknowns, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_json_redis(
    ngx_http_idempotency_stats_store_t *store,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_json_latency(
    ngx_http_idempotency_text_t *text, const char *op,
    ngx_idempotency_latency_t *latency);


void
ngx_http_idempotency_stats_json(void *data, ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_stats_t *stats = data;

    ngx_uint_t  i;

    ngx_http_idempotency_text_add(text,
        "{\"time\":%T,\"since\":%T,\"version\":\"%s\",\"nginx\":\"%s\","
        "\"host\":\"",
        ngx_time(), stats->imcf->counts->since, NGX_HTTP_IDEMPOTENCY_VERSION,
        NGINX_VERSION);
    ngx_http_idempotency_text_json(text, (ngx_str_t *) &ngx_cycle->hostname);
    ngx_http_idempotency_text_add(text, "\",\"locations\":[");

    ngx_http_idempotency_stats_json_locations(stats, text);

    ngx_http_idempotency_text_add(text, "],\"stores\":[");

    for (i = 0; i < stats->nstores; i++) {
        ngx_http_idempotency_text_add(text, "%s", i ? "," : "");
        ngx_http_idempotency_stats_json_store(&stats->stores[i],
                                   &stats->imcf->counts->unknowns[i], text);
    }

    ngx_http_idempotency_text_add(text, "],\"lookups\":[");

    ngx_http_idempotency_stats_json_lookups(stats, text);

    ngx_http_idempotency_text_add(text, "],\"retry_doctor\":");

    ngx_http_idempotency_stats_json_trouble(stats, text);

    ngx_http_idempotency_text_add(text, "}\n");
}


static void
ngx_http_idempotency_stats_json_locations(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                        i, n;
    ngx_atomic_t                     *cell;
    ngx_http_idempotency_location_t  *location;

    location = stats->imcf->locations.elts;
    cell = stats->cells;

    for (i = 0; i < stats->imcf->locations.nelts; i++) {
        ngx_http_idempotency_text_add(text, "%s{\"server\":\"", i ? "," : "");
        ngx_http_idempotency_text_json(text, &location[i].server);
        ngx_http_idempotency_text_add(text, "\",\"location\":\"");
        ngx_http_idempotency_text_json(text, &location[i].location);
        ngx_http_idempotency_text_add(text, "\",\"store\":\"");
        ngx_http_idempotency_text_json(text, &location[i].store->name);
        ngx_http_idempotency_text_add(text, "\",\"dry_run\":%s,\"results\":{",
                                      location[i].dry_run ? "true" : "false");

        for (n = 0; n < NGX_HTTP_IDEMPOTENCY_RESULTS; n++, cell++) {
            ngx_http_idempotency_text_add(text, "%s\"%V\":%uA", n ? "," : "",
                                  &ngx_http_idempotency_result_names[n],
                                  *cell);
        }

        ngx_http_idempotency_text_add(text, "}}");
    }
}


/* of this server only: the page must not connect to others */

static void
ngx_http_idempotency_stats_json_lookups(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                        i, n;
    ngx_http_core_srv_conf_t         *cscf;
    ngx_http_idempotency_location_t  *lookup;

    cscf = ngx_http_get_module_srv_conf(stats->request, ngx_http_core_module);
    lookup = stats->imcf->lookups.elts;
    n = 0;

    for (i = 0; i < stats->imcf->lookups.nelts; i++) {

        if (lookup[i].cscf != cscf) {
            continue;
        }

        ngx_http_idempotency_text_add(text, "%s{\"location\":\"",
                                      n++ ? "," : "");
        ngx_http_idempotency_text_json(text, &lookup[i].location);
        ngx_http_idempotency_text_add(text, "\",\"store\":\"");
        ngx_http_idempotency_text_json(text, &lookup[i].store->name);
        ngx_http_idempotency_text_add(text, "\"}");
    }
}


static void
ngx_http_idempotency_stats_json_trouble(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_str_t                          label;
    ngx_uint_t                         i, n;
    ngx_idempotency_trouble_t         *trouble;
    ngx_http_idempotency_location_t   *location;
    ngx_idempotency_trouble_source_t  *source;

    trouble = stats->imcf->counts->trouble;
    location = stats->imcf->locations.elts;

    source = ngx_palloc(stats->request->pool,
                        sizeof(ngx_idempotency_trouble_source_t)
                        * NGX_IDEMPOTENCY_TROUBLE_SOURCES);
    if (source == NULL) {
        text->failed = 1;
        return;
    }

    n = ngx_idempotency_trouble_top(trouble, source);

    ngx_http_idempotency_text_add(text, "{");
    ngx_http_idempotency_stats_json_troubles(text, trouble->kinds);
    ngx_http_idempotency_text_add(text,
        ",\"missed\":%uA,\"replaced\":%uL,\"sources\":[",
        trouble->missed, trouble->replaced);

    for (i = 0; i < n; i++) {
        ngx_http_idempotency_text_add(text, "%s{\"source\":\"%016xL\",",
                                      i ? "," : "", source[i].source);
        ngx_http_idempotency_stats_json_troubles(text, source[i].kinds);

        label.data = source[i].label;
        label.len = source[i].label_len;

        ngx_http_idempotency_text_add(text, ",\"label\":\"");
        ngx_http_idempotency_text_json(text, &label);
        ngx_http_idempotency_text_add(text, "\",\"location\":\"");

        if (source[i].location < stats->imcf->locations.nelts) {
            ngx_http_idempotency_text_json(text,
                                      &location[source[i].location].location);
        }

        ngx_http_idempotency_text_add(text,
            "\",\"error\":%uL,\"last\":%T}", source[i].error,
            source[i].last);
    }

    ngx_http_idempotency_text_add(text, "]}");
}


static void
ngx_http_idempotency_stats_json_troubles(ngx_http_idempotency_text_t *text,
    uint64_t *kinds)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IDEMPOTENCY_TROUBLE_N; i++) {
        ngx_http_idempotency_text_add(text, "%s\"%s\":%uL", i ? "," : "",
                                      ngx_idempotency_trouble_kinds[i],
                                      kinds[i]);
    }
}


static void
ngx_http_idempotency_stats_json_store(
    ngx_http_idempotency_stats_store_t *store,
    ngx_idempotency_unknowns_t *unknowns, ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                       i;
    ngx_idempotency_store_counts_t  *counts;

    static const char  *health[] = { "ok", "degraded", "down" };

    counts = &store->counts;

    ngx_http_idempotency_text_add(text, "{\"name\":\"");
    ngx_http_idempotency_text_json(text, &store->store->name);
    ngx_http_idempotency_text_add(text,
        "\",\"kind\":\"%s\",\"health\":\"%s\",\"state\":\"%s\","
        "\"why\":\"%s\",\"refusing\":\"%V\",",
        store->store->kind, health[store->state->health],
        store->state->name, store->state->why,
        &ngx_idempotency_refusals[store->refusing]);

    ngx_http_idempotency_stats_json_latency(text, "claim", &counts->claim);
    ngx_http_idempotency_stats_json_latency(text, "complete",
                                            &counts->complete);

    ngx_http_idempotency_text_add(text, "\"errors\":{");

    for (i = 1; i < NGX_IDEMPOTENCY_ERRORS; i++) {
        ngx_http_idempotency_text_add(text, "%s\"%V\":%uA", i > 1 ? "," : "",
                                  &ngx_http_idempotency_stats_errors[i],
                                  counts->errors[i]);
    }

    ngx_http_idempotency_text_add(text, "},\"refused\":{");

    for (i = 1; i < NGX_IDEMPOTENCY_REFUSAL_N; i++) {
        ngx_http_idempotency_text_add(text, "%s\"%V\":%uA", i > 1 ? "," : "",
                                      &ngx_idempotency_refusals[i],
                                      counts->refused[i]);
    }

    ngx_http_idempotency_text_add(text,
        "},\"in_flight\":%A,\"leases\":%A,\"waiting\":%A,"
        "\"abandoned\":%uA,\"uncommitted\":%uA,"
        "\"suspects\":{\"passed\":%uA,\"rejected\":%uA},",
        store->now.in_flight, store->now.leases, store->now.waiting,
        counts->abandoned, counts->uncommitted, counts->suspects_passed,
        counts->suspects_rejected);

    ngx_http_idempotency_stats_json_unknown(store, unknowns, text);

    if (store->store->from) {
        ngx_http_idempotency_text_add(text, ",\"from\":{\"store\":\"");
        ngx_http_idempotency_text_json(text, &store->store->from->name);
        ngx_http_idempotency_text_add(text, "\",\"answers\":%uA}",
                                      counts->old_answers);
    }

    if (store->store->usage) {
        ngx_http_idempotency_text_add(text,
            ",\"zone\":{\"size\":%uz,\"free\":%uz,\"records\":%uz,"
            "\"unknown\":%uz,\"unknown_bytes\":%uz}}",
            store->usage.size, store->usage.free, store->usage.records,
            store->zone_unknown, store->zone_unknown_bytes);

    } else {
        ngx_http_idempotency_stats_json_redis(store, text);
    }
}


static void
ngx_http_idempotency_stats_json_unknown(
    ngx_http_idempotency_stats_store_t *store,
    ngx_idempotency_unknowns_t *unknowns, ngx_http_idempotency_text_t *text)
{
    time_t                     age;
    ngx_uint_t                 i, n;
    ngx_idempotency_unknown_t  unknown;

    ngx_http_idempotency_text_add(text,
        "\"unknown\":{\"total\":%uA,\"now\":%ui,\"oldest\":%T,"
        "\"counted\":%T,\"records\":[",
        store->counts.unknown, store->unknown, store->oldest,
        store->unknown_counted);

    i = 0;
    n = 0;

    while (ngx_idempotency_unknowns_next(unknowns, &i, &unknown) == NGX_OK) {

        /* another gateway's clock may be ahead */

        age = ngx_time() - (time_t) unknown.since;

        ngx_http_idempotency_text_add(text,
            "%s{\"record\":\"%*xs\",\"age\":%T}", n++ ? "," : "",
            (size_t) 8, unknown.digest, ngx_max(age, 0));
    }

    ngx_http_idempotency_text_add(text, "]}");
}


static void
ngx_http_idempotency_stats_json_redis(
    ngx_http_idempotency_stats_store_t *store,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t  i;

    ngx_http_idempotency_text_add(text, ",\"connections\":{");

    for (i = 0; i < NGX_IDEMPOTENCY_REDIS_IS_N; i++) {
        ngx_http_idempotency_text_add(text, "%s\"%V\":%A", i ? "," : "",
            &ngx_http_idempotency_stats_states[i],
            store->now.redis.connections[i]);
    }

    ngx_http_idempotency_text_add(text,
        "},\"reconnects\":%uA,\"failures\":%uA,\"cached\":%uA,"
        "\"losses\":%uA,\"clock_steps\":%uA,\"unacknowledged\":%uA,"
        "\"unwatched\":%A,"
        "\"background\":{\"waiting\":%A,\"retries\":%uA,\"dropped\":%uA}}",
        store->counts.redis.reconnects, store->counts.redis.failures,
        store->counts.cached,
        store->counts.losses, store->counts.redis.clock_steps,
        store->counts.unacked, store->now.redis.unwatched,
        store->now.background, store->counts.retries, store->counts.dropped);
}


/* seconds and counts, not added up as those of Prometheus are */

static void
ngx_http_idempotency_stats_json_latency(ngx_http_idempotency_text_t *text,
    const char *op, ngx_idempotency_latency_t *latency)
{
    ngx_uint_t         i;
    ngx_atomic_uint_t  n;

    ngx_http_idempotency_text_add(text, "\"%s\":{\"buckets\":[", op);

    n = 0;

    for (i = 0; i < NGX_IDEMPOTENCY_LATENCIES; i++) {
        n += latency->le[i];

        ngx_http_idempotency_text_add(text, "%s%uA", i ? "," : "",
                                      latency->le[i]);
    }

    ngx_http_idempotency_text_add(text, "],\"bounds\":[");

    for (i = 0; i < NGX_IDEMPOTENCY_LATENCIES - 1; i++) {
        ngx_http_idempotency_text_add(text, "%s%ui", i ? "," : "",
                                      ngx_idempotency_latency_bounds[i]);
    }

    ngx_http_idempotency_text_add(text, "],\"count\":%uA,\"usec\":%uA},", n,
                                  latency->usec);
}
