
/*
 * The counts in the text format of Prometheus.
 */


#include "ngx_http_idempotency_stats.h"
#include "ngx_http_idempotency_variables.h"


static void ngx_http_idempotency_stats_requests(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_latencies(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_latency(
    ngx_http_idempotency_text_t *text, ngx_str_t *store, const char *op,
    ngx_idempotency_latency_t *latency);
static void ngx_http_idempotency_stats_failures(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_values(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);
static void ngx_http_idempotency_stats_usage(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);


/* one number of each store */

typedef struct {
    const char                        *name;
    const char                        *type;
    const char                        *help;
    size_t                             offset;
} ngx_http_idempotency_stats_value_t;


static ngx_http_idempotency_stats_value_t
    ngx_http_idempotency_stats_all[] =
{
    { "leases", "gauge", "Requests that hold their key now.",
      offsetof(ngx_idempotency_store_counts_t, leases) },

    { "waiting", "gauge", "Duplicates that wait for another request now.",
      offsetof(ngx_idempotency_store_counts_t, waiting) },

    { "store_losses_total", "counter",
      "Times that Redis was seen to have forgotten.",
      offsetof(ngx_idempotency_store_counts_t, losses) },

    { "store_unacknowledged_total", "counter",
      "Operations that too few replicas have acknowledged.",
      offsetof(ngx_idempotency_store_counts_t, unacked) },

    { NULL, NULL, NULL, 0 }
};


void
ngx_http_idempotency_stats_prometheus(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_http_idempotency_stats_requests(stats, text);
    ngx_http_idempotency_stats_latencies(stats, text);
    ngx_http_idempotency_stats_failures(stats, text);
    ngx_http_idempotency_stats_values(stats, text);
    ngx_http_idempotency_stats_usage(stats, text);
}


/* a result that never was is not a line: most have few */

static void
ngx_http_idempotency_stats_requests(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                        i, n;
    ngx_atomic_t                     *cell;
    ngx_http_idempotency_location_t  *location;

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_requests_total Requests by what became of them.\n"
        "# TYPE idempotency_requests_total counter\n");

    location = stats->imcf->locations.elts;
    cell = stats->cells;

    for (i = 0; i < stats->imcf->locations.nelts; i++) {
        for (n = 0; n < NGX_HTTP_IDEMPOTENCY_RESULTS; n++, cell++) {

            if (*cell == 0) {
                continue;
            }

            ngx_http_idempotency_text_add(text,
                "idempotency_requests_total{server=\"");
            ngx_http_idempotency_text_json(text, &location[i].server);
            ngx_http_idempotency_text_add(text, "\",location=\"");
            ngx_http_idempotency_text_json(text, &location[i].location);
            ngx_http_idempotency_text_add(text, "\",result=\"%V\"} %uA\n",
                &ngx_http_idempotency_result_names[n], *cell);
        }
    }
}


static void
ngx_http_idempotency_stats_latencies(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                 i;
    ngx_idempotency_store_t  **stores;

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_store_duration_seconds "
        "How long the store took to answer.\n"
        "# TYPE idempotency_store_duration_seconds histogram\n");

    stores = stats->imcf->stores.elts;

    for (i = 0; i < stats->imcf->stores.nelts; i++) {
        ngx_http_idempotency_stats_latency(text, &stores[i]->name, "claim",
                                           &stats->stores[i].claim);
        ngx_http_idempotency_stats_latency(text, &stores[i]->name, "complete",
                                           &stats->stores[i].complete);
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

        ngx_http_idempotency_text_add(text,
            "idempotency_store_duration_seconds_bucket"
            "{store=\"%V\",operation=\"%s\",le=\"", store, op);

        if (i == NGX_IDEMPOTENCY_LATENCIES - 1) {
            ngx_http_idempotency_text_add(text, "+Inf\"} %uA\n", n);
            break;
        }

        bound = ngx_idempotency_latency_bounds[i];

        ngx_http_idempotency_text_add(text, "%ui.%06ui\"} %uA\n",
                                      bound / 1000000, bound % 1000000, n);
    }

    ngx_http_idempotency_text_add(text,
        "idempotency_store_duration_seconds_sum"
        "{store=\"%V\",operation=\"%s\"} %uA.%06uA\n"
        "idempotency_store_duration_seconds_count"
        "{store=\"%V\",operation=\"%s\"} %uA\n",
        store, op, latency->usec / 1000000, latency->usec % 1000000,
        store, op, n);
}


static void
ngx_http_idempotency_stats_failures(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                 i, n;
    ngx_idempotency_store_t  **stores;

    ngx_http_idempotency_text_add(text,
        "# HELP idempotency_store_errors_total "
        "Operations that the store could not do.\n"
        "# TYPE idempotency_store_errors_total counter\n");

    stores = stats->imcf->stores.elts;

    for (i = 0; i < stats->imcf->stores.nelts; i++) {
        for (n = 1; n < NGX_IDEMPOTENCY_ERRORS; n++) {
            ngx_http_idempotency_text_add(text,
                "idempotency_store_errors_total{store=\"%V\",error=\"%V\"} "
                "%uA\n", &stores[i]->name,
                &ngx_http_idempotency_stats_errors[n],
                stats->stores[i].errors[n]);
        }
    }
}


static void
ngx_http_idempotency_stats_values(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                            i;
    ngx_idempotency_store_t             **stores;
    ngx_http_idempotency_stats_value_t   *value;

    stores = stats->imcf->stores.elts;

    for (value = ngx_http_idempotency_stats_all; value->name; value++) {

        ngx_http_idempotency_text_add(text,
            "# HELP idempotency_%s %s\n# TYPE idempotency_%s %s\n",
            value->name, value->help, value->name, value->type);

        for (i = 0; i < stats->imcf->stores.nelts; i++) {
            ngx_http_idempotency_text_add(text,
                "idempotency_%s{store=\"%V\"} %A\n", value->name,
                &stores[i]->name,
                *(ngx_atomic_t *) ((u_char *) &stats->stores[i]
                                   + value->offset));
        }
    }
}


static void
ngx_http_idempotency_stats_usage(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text)
{
    ngx_uint_t                 i, n;
    ngx_idempotency_usage_t    usage;
    ngx_idempotency_store_t  **stores;

    static const char  *names[] = { "zone_bytes", "zone_free_bytes",
                                    "records" };
    static const char  *helps[] = { "Size of an embedded store.",
                                    "What is free of it, in whole pages.",
                                    "Records in an embedded store." };

    stores = stats->imcf->stores.elts;

    for (n = 0; n < 3; n++) {

        ngx_http_idempotency_text_add(text,
            "# HELP idempotency_%s %s\n# TYPE idempotency_%s gauge\n",
            names[n], helps[n], names[n]);

        for (i = 0; i < stats->imcf->stores.nelts; i++) {

            if (stores[i]->usage == NULL) {
                continue;
            }

            stores[i]->usage(stores[i], &usage);

            ngx_http_idempotency_text_add(text,
                "idempotency_%s{store=\"%V\"} %uz\n", names[n],
                &stores[i]->name,
                n == 0 ? usage.size : n == 1 ? usage.free : usage.records);
        }
    }
}
