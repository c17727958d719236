
/*
 * How many records of a store are unknown, counted in the background.
 *
 * What a process has noted is lost when nginx restarts, and it does not know
 * of what other gateways did: only the store has all unknown records.  So the
 * list of them is read page by page.  Each page is bounded work, the next one
 * follows after ten times as long, in the first count after three times as
 * long, and the next count after a hundred times as long as the last one took.
 */


#include "ngx_idempotency_census.h"


/* milliseconds */
#define NGX_IDEMPOTENCY_CENSUS_PAGE       20     /* between two pages */
#define NGX_IDEMPOTENCY_CENSUS_PAGE_MAX   5000
#define NGX_IDEMPOTENCY_CENSUS_REST       10000  /* between two counts */
#define NGX_IDEMPOTENCY_CENSUS_REST_MAX   600000
#define NGX_IDEMPOTENCY_CENSUS_RETRY      1000   /* after a failure */
#define NGX_IDEMPOTENCY_CENSUS_RETRY_MAX  60000
#define NGX_IDEMPOTENCY_CENSUS_REFUSED_MAX  3600000


/* the count of one store that goes on */

typedef struct {
    ngx_idempotency_store_t        *store;
    ngx_event_t                     timer;
    ngx_connection_t                dumb;        /* for nginx's debug log */
    ngx_idempotency_op_t           *op;          /* that reads a page */
    ngx_uint_t                      found;
    time_t                          oldest;      /* since then, or 0 */
    ngx_msec_t                      began;       /* the page */
    ngx_msec_t                      spent;       /* for all pages */
    ngx_msec_t                      retry;
    ngx_str_t                       cursor;
    u_char                          text[NGX_IDEMPOTENCY_LIST_CURSOR];
} ngx_idempotency_census_t;


static void ngx_idempotency_census_end(void *data);
static void ngx_idempotency_census_page(ngx_event_t *ev);
static ngx_uint_t ngx_idempotency_census_none(ngx_idempotency_store_t *store);
static void ngx_idempotency_census_done(ngx_idempotency_op_t *op);
static void ngx_idempotency_census_read(ngx_idempotency_census_t *census,
    ngx_idempotency_op_t *op);
static void ngx_idempotency_census_begin(ngx_idempotency_census_t *census);
static void ngx_idempotency_census_next(ngx_idempotency_census_t *census,
    ngx_msec_t wait);


ngx_int_t
ngx_idempotency_census_start(ngx_idempotency_store_t *store)
{
    ngx_event_t               *ev;
    ngx_pool_cleanup_t        *cln;
    ngx_idempotency_census_t  *census;

    census = ngx_pcalloc(ngx_cycle->pool, sizeof(ngx_idempotency_census_t));
    if (census == NULL) {
        return NGX_ERROR;
    }

    cln = ngx_pool_cleanup_add(ngx_cycle->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_idempotency_census_end;
    cln->data = census;

    census->store = store;
    census->cursor.data = census->text;
    census->retry = NGX_IDEMPOTENCY_CENSUS_RETRY;
    census->dumb.fd = (ngx_socket_t) -1;
    census->dumb.data = census;

    ev = &census->timer;

    ev->handler = ngx_idempotency_census_page;
    ev->data = &census->dumb;
    ev->log = ngx_cycle->log;
    ev->cancelable = 1;

    ngx_idempotency_census_next(census, NGX_IDEMPOTENCY_CENSUS_PAGE);

    return NGX_OK;
}


/* the store was stopped before: it does not finish this operation any more */

static void
ngx_idempotency_census_end(void *data)
{
    ngx_idempotency_census_t  *census = data;

    if (census->op) {
        census->op->pending = 0;
        ngx_idempotency_op_drop(census->op);
    }
}


static void
ngx_idempotency_census_page(ngx_event_t *ev)
{
    ngx_connection_t          *dumb;
    ngx_idempotency_op_t      *op;
    ngx_idempotency_census_t  *census;

    dumb = ev->data;
    census = dumb->data;

    if (ngx_exiting || ngx_terminate) {
        return;
    }

    if (census->cursor.len == 0) {
        ngx_idempotency_census_begin(census);

        if (ngx_idempotency_census_none(census->store)) {
            ngx_idempotency_unknowns_counted(census->store->unknowns, 0, 0);
            ngx_idempotency_census_next(census, NGX_IDEMPOTENCY_CENSUS_REST);
            return;
        }
    }

    op = ngx_idempotency_op_create(census->store, NGX_IDEMPOTENCY_LIST);
    if (op == NULL) {
        ngx_idempotency_census_next(census, NGX_IDEMPOTENCY_CENSUS_RETRY);
        return;
    }

    census->op = op;

    op->handler = ngx_idempotency_census_done;
    op->data = census;
    op->part = 1;

    if (ngx_idempotency_op_list(op, NGX_IDEMPOTENCY_UNKNOWN, &census->cursor)
        != NGX_OK)
    {
        op->error = NGX_IDEMPOTENCY_ERROR_MEMORY;
        ngx_idempotency_census_done(op);
        return;
    }

    census->began = ngx_current_msec;

    if (ngx_idempotency_op_submit(op) != NGX_AGAIN) {

        /* the embedded store has worked in between */

        ngx_time_update();
        ngx_idempotency_census_done(op);
    }
}


/* A store that counts its records by state may have none. */

static ngx_uint_t
ngx_idempotency_census_none(ngx_idempotency_store_t *store)
{
    ngx_idempotency_usage_t  usage;

    if (store->usage == NULL) {
        return 0;
    }

    ngx_memzero(&usage, sizeof(ngx_idempotency_usage_t));

    store->usage(store, &usage);

    return usage.unknown == 0 && usage.executing == 0;
}


static void
ngx_idempotency_census_done(ngx_idempotency_op_t *op)
{
    ngx_msec_t                 page, pause, max;
    ngx_idempotency_census_t  *census;

    census = op->data;
    census->op = NULL;

    if (op->error != NGX_IDEMPOTENCY_ERROR_NONE
        || op->result != NGX_IDEMPOTENCY_OK)
    {
        /*
         * From the beginning: the cursor may be of a server that is gone.  A
         * user of Redis without SCAN is refused always, which is logged.
         */

        max = (op->error == NGX_IDEMPOTENCY_ERROR_REFUSED)
              ? NGX_IDEMPOTENCY_CENSUS_REFUSED_MAX
              : NGX_IDEMPOTENCY_CENSUS_RETRY_MAX;

        ngx_idempotency_op_drop(op);

        census->cursor.len = 0;
        ngx_idempotency_census_next(census, census->retry);

        census->retry = ngx_min(2 * census->retry, max);
        return;
    }

    ngx_idempotency_census_read(census, op);
    ngx_idempotency_op_drop(op);

    page = ngx_current_msec - census->began;

    census->spent += page;
    census->retry = NGX_IDEMPOTENCY_CENSUS_RETRY;

    if (census->cursor.len) {
        ngx_idempotency_unknowns_counting(census->store->unknowns,
                                          census->found, census->oldest);

        pause = census->store->unknowns->counted_at ? 10 * page : 3 * page;

        ngx_idempotency_census_next(census,
            ngx_min(ngx_max(pause, NGX_IDEMPOTENCY_CENSUS_PAGE),
                    NGX_IDEMPOTENCY_CENSUS_PAGE_MAX));
        return;
    }

    ngx_idempotency_unknowns_counted(census->store->unknowns, census->found,
                                     census->oldest);

    ngx_idempotency_census_next(census,
        ngx_min(ngx_max(100 * census->spent, NGX_IDEMPOTENCY_CENSUS_REST),
                NGX_IDEMPOTENCY_CENSUS_REST_MAX));
}


static void
ngx_idempotency_census_read(ngx_idempotency_census_t *census,
    ngx_idempotency_op_t *op)
{
    time_t                    since;
    ngx_uint_t                i;
    ngx_idempotency_entry_t  *entry;

    entry = op->list->entries.elts;

    for (i = 0; i < op->list->entries.nelts; i++) {
        since = entry[i].record.created;

        if (census->found++ == 0 || since < census->oldest) {
            census->oldest = since;
        }

        ngx_idempotency_unknowns_note(census->store->unknowns,
                                      entry[i].digest,
                                      entry[i].sequence
                                      ? NGX_IDEMPOTENCY_SEQUENCE : 0,
                                      since);
    }

    census->cursor.len = op->list->cursor.len;
    ngx_memcpy(census->text, op->list->cursor.data, op->list->cursor.len);
}


static void
ngx_idempotency_census_begin(ngx_idempotency_census_t *census)
{
    census->found = 0;
    census->oldest = 0;
    census->spent = 0;
}


static void
ngx_idempotency_census_next(ngx_idempotency_census_t *census, ngx_msec_t wait)
{
    ngx_add_timer(&census->timer, wait);
}
