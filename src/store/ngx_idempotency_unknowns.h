
/*
 * Unknown records of a store, for statistics: a list of some, and the number.
 */


#ifndef _NGX_IDEMPOTENCY_UNKNOWNS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_UNKNOWNS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_record.h"


#define NGX_IDEMPOTENCY_UNKNOWNS  64


/*
 * A worker that notes an unknown moves its entry FREE -> WRITING -> SET, and a
 * worker that forgets it SET -> FREE.  The entry of a worker that dies while
 * WRITING is lost.
 */

typedef enum {
    NGX_IDEMPOTENCY_UNKNOWN_FREE = 0,
    NGX_IDEMPOTENCY_UNKNOWN_WRITING,
    NGX_IDEMPOTENCY_UNKNOWN_SET
} ngx_idempotency_unknown_e;


typedef struct {
    ngx_atomic_t                    state;
    ngx_atomic_t                    since;       /* seconds */
    ngx_atomic_t                    flags;       /* SEQUENCE, or 0 */
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
} ngx_idempotency_unknown_t;


/* of one store, shared by all workers without a lock */

typedef struct {
    ngx_atomic_t                    number;      /* of entries; too high if
                                                    a worker died */
    ngx_atomic_t                    checked;     /* entry to go on with */
    ngx_atomic_t                    counted;     /* in the whole store ... */
    ngx_atomic_t                    counted_oldest;  /* since, seconds */
    ngx_atomic_t                    counted_at;  /* seconds; 0: not yet */
    ngx_idempotency_unknown_t       list[NGX_IDEMPOTENCY_UNKNOWNS];
} ngx_idempotency_unknowns_t;


/* what is known of all unknown records of a store */

typedef struct {
    ngx_uint_t                      number;
    time_t                          oldest;      /* since then, or 0 */
    time_t                          counted_at;  /* in the store, or 0 */
} ngx_idempotency_unknowns_sum_t;


/* notes an unknown record, if there is room */
void ngx_idempotency_unknowns_note(ngx_idempotency_unknowns_t *unknowns,
    u_char *digest, ngx_uint_t flags, time_t since);

/* the record is not unknown, or no longer */
void ngx_idempotency_unknowns_forget(ngx_idempotency_unknowns_t *unknowns,
    u_char *digest);

/*
 * Copies the next entry from *i on, and sets *i behind it; NGX_DECLINED when
 * there are no more.  Without a lock the copy may be torn.
 */
ngx_int_t ngx_idempotency_unknowns_next(ngx_idempotency_unknowns_t *unknowns,
    ngx_uint_t *i, ngx_idempotency_unknown_t *unknown);

/*
 * The store has so many, the oldest of them since that time: so far, while the
 * first count goes on, and in the end.  Each of them was noted before.
 */
void ngx_idempotency_unknowns_counting(ngx_idempotency_unknowns_t *unknowns,
    ngx_uint_t number, time_t oldest);
void ngx_idempotency_unknowns_counted(ngx_idempotency_unknowns_t *unknowns,
    ngx_uint_t number, time_t oldest);

/*
 * All of them.  If they fit into the list it has them all, and is up to date;
 * otherwise the last count tells.
 */
void ngx_idempotency_unknowns_sum(ngx_idempotency_unknowns_t *unknowns,
    ngx_idempotency_unknowns_sum_t *sum);


#endif /* _NGX_IDEMPOTENCY_UNKNOWNS_H_INCLUDED_ */
