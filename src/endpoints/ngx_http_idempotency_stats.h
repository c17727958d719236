
/*
 * What the counts say, for people, programs and scrapers.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_STATS_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_STATS_H_INCLUDED_


#include "ngx_http_idempotency.h"
#include "ngx_http_idempotency_text.h"


/* the counts of all workers, added up */

typedef struct {
    ngx_http_idempotency_main_conf_t  *imcf;
    ngx_idempotency_store_counts_t    *stores;
    ngx_atomic_t                      *cells;
} ngx_http_idempotency_stats_t;


/* errors of a store, by number */
extern ngx_str_t  ngx_http_idempotency_stats_errors[];


/* handler of the directive */
char *ngx_http_idempotency_stats(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* after the configuration: asks for the memory, if there are stats */
ngx_int_t ngx_http_idempotency_stats_init(ngx_conf_t *cf,
    ngx_http_idempotency_main_conf_t *imcf);

/* in a worker: from now on it counts there */
void ngx_http_idempotency_stats_start(ngx_http_idempotency_main_conf_t *imcf);

void ngx_http_idempotency_stats_json(ngx_http_idempotency_stats_t *stats,
    ngx_http_idempotency_text_t *text);
void ngx_http_idempotency_stats_prometheus(
    ngx_http_idempotency_stats_t *stats, ngx_http_idempotency_text_t *text);


#endif /* _NGX_HTTP_IDEMPOTENCY_STATS_H_INCLUDED_ */
