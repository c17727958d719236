
/*
 * Statistics: as JSON, for Prometheus, and as a page.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_STATS_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_STATS_H_INCLUDED_


#include "ngx_http_idempotency.h"
#include "ngx_http_idempotency_text.h"


typedef enum {
    NGX_HTTP_IDEMPOTENCY_STATS_OK = 0,
    NGX_HTTP_IDEMPOTENCY_STATS_DEGRADED,   /* works, but needs attention */
    NGX_HTTP_IDEMPOTENCY_STATS_DOWN        /* new keys are refused */
} ngx_http_idempotency_stats_health_e;


typedef struct {
    ngx_http_idempotency_stats_health_e   health;
    const char                           *name;
    const char                           *why;      /* the reason in words */
} ngx_http_idempotency_stats_store_state_t;


/* the counts of all workers, added up */

typedef struct {
    ngx_idempotency_store_t           *store;
    ngx_idempotency_store_counts_t     counts;
    ngx_idempotency_store_now_t        now;
    ngx_idempotency_usage_t            usage;     /* embedded ones only */
    ngx_uint_t                         unknown;   /* in the store */
    time_t                             oldest;    /* of these, its age */
    time_t                             unknown_counted;  /* when, or 0 */
    size_t                             zone_unknown;  /* in the zone, all */
    size_t                             zone_unknown_bytes;
    ngx_idempotency_refusal_e          refusing;  /* the last new key */
    ngx_http_idempotency_stats_store_state_t  *state;
} ngx_http_idempotency_stats_store_t;


typedef struct {
    ngx_http_request_t                  *request;
    ngx_http_idempotency_main_conf_t    *imcf;
    ngx_http_idempotency_stats_store_t  *stores;
    ngx_uint_t                           nstores;
    ngx_atomic_t                        *cells;
} ngx_http_idempotency_stats_t;


/* errors of a store, by number */
extern ngx_str_t  ngx_http_idempotency_stats_errors[];

/* connections to Redis, by their state */
extern ngx_str_t  ngx_http_idempotency_stats_states[];


/* handler of the directive */
char *ngx_http_idempotency_stats(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* after the configuration: adds the zone, if there is such a location */
ngx_int_t ngx_http_idempotency_stats_init(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf);

/* in a worker: begins to count there, and ends it */
void ngx_http_idempotency_stats_start(ngx_http_idempotency_main_conf_t *imcf);
void ngx_http_idempotency_stats_stop(ngx_http_idempotency_main_conf_t *imcf);

/* Adds up the counts of all workers.  NGX_ERROR when memory is short. */
ngx_int_t ngx_http_idempotency_stats_collect(ngx_http_request_t *r,
    ngx_http_idempotency_stats_t *stats);

/* Write them; text->failed is set when memory is short. */
void ngx_http_idempotency_stats_json(void *data,
    ngx_http_idempotency_text_t *text);
void ngx_http_idempotency_stats_prometheus(void *data,
    ngx_http_idempotency_text_t *text);


#endif /* _NGX_HTTP_IDEMPOTENCY_STATS_H_INCLUDED_ */
