
/*
 * How many records of a store are unknown, counted in the background.
 */


#ifndef _NGX_IDEMPOTENCY_CENSUS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_CENSUS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include "ngx_idempotency_store.h"


/*
 * Begins to count the unknown records of a store, again and again, as long as
 * this process lives; one process of an nginx does that.  The records and
 * their number go to store->unknowns.  NGX_ERROR when memory is short.
 */
ngx_int_t ngx_idempotency_census_start(ngx_idempotency_store_t *store);


#endif /* _NGX_IDEMPOTENCY_CENSUS_H_INCLUDED_ */
