
/*
 * The counts in JSON.
 */


#include "ngx_http_idempotency_stats.h"
#include "ngx_http_idempotency_variables.h"


static void ngx_http_idempotency_stats_json_locations(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_json_store(
    ngx_idempotency_store_t *store, ngx_idempotency_store_counts_t *counts,
    ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_json_latency(
    ngx_http_idempotency_text_t *text, const char *op,
    ngx_idempotency_latency_t *latency);


void
ngx_http_idempotency_stats_json(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                 i;
    ngx_idempotency_store_t  **stores;

    ngx_http_idempotency_text_add(text, "{\"time\":%T,\"locations\":[",
                                  ngx_time());

    ngx_http_idempotency_stats_json_locations(stats, text);

    ngx_http_idempotency_text_add(text, "],\"stores\":[");

    stores = stats->imcf->stores.elts;

    for (i = 0; i < stats->imcf->stores.nelts; i++) {
        ngx_http_idempotency_text_add(text, "%s", i ? "," : "");
        ngx_http_idempotency_stats_json_store(stores[i], &stats->stores[i],
                                              text);
    }

    ngx_http_idempotency_text_add(text, "]}\n");
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
        ngx_http_idempotency_text_add(text, "\",\"results\":{");

        for (n = 0; n < NGX_HTTP_IDEMPOTENCY_RESULTS; n++, cell++) {
            ngx_http_idempotency_text_add(text, "%s\"%V\":%uA", n ? "," : "",
                                  &ngx_http_idempotency_result_names[n],
                                  *cell);
        }

        ngx_http_idempotency_text_add(text, "}}");
    }
}


static void
ngx_http_idempotency_stats_json_store(ngx_idempotency_store_t *store,
    ngx_idempotency_store_counts_t *counts, ngx_http_idempotency_text_t *text)
{
    ngx_uint_t               i;
    ngx_idempotency_usage_t  usage;

    ngx_http_idempotency_text_add(text, "{\"name\":\"");
    ngx_http_idempotency_text_json(text, &store->name);
    ngx_http_idempotency_text_add(text, "\",\"kind\":\"%s\",",
                                  store->usage ? "shm" : "redis");

    ngx_http_idempotency_stats_json_latency(text, "claim", &counts->claim);
    ngx_http_idempotency_stats_json_latency(text, "complete",
                                            &counts->complete);

    ngx_http_idempotency_text_add(text, "\"errors\":{");

    for (i = 1; i < NGX_IDEMPOTENCY_ERRORS; i++) {
        ngx_http_idempotency_text_add(text, "%s\"%V\":%uA", i > 1 ? "," : "",
                                  &ngx_http_idempotency_stats_errors[i],
                                  counts->errors[i]);
    }

    ngx_http_idempotency_text_add(text,
        "},\"leases\":%A,\"waiting\":%A,\"losses\":%uA,"
        "\"unacknowledged\":%uA",
        counts->leases, counts->waiting, counts->losses, counts->unacked);

    if (store->usage) {
        store->usage(store, &usage);

        ngx_http_idempotency_text_add(text,
            ",\"zone\":{\"size\":%uz,\"free\":%uz,\"records\":%uz}",
            usage.size, usage.free, usage.records);
    }

    ngx_http_idempotency_text_add(text, "}");
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
