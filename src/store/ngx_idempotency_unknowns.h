
/*
 * The unknowns that this nginx has made or met, as far as there is room, and
 * whether they still are.
 */


#ifndef _NGX_IDEMPOTENCY_UNKNOWNS_H_INCLUDED_
#define _NGX_IDEMPOTENCY_UNKNOWNS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_record.h"


#define NGX_IDEMPOTENCY_UNKNOWNS  64


struct ngx_idempotency_store_s;


/*
 * FREE -> WRITING by who wants to write, WRITING -> SET when all is written,
 * SET -> FREE by who forgets it.  A writer that dies takes the place along.
 */

typedef enum {
    NGX_IDEMPOTENCY_UNKNOWN_FREE = 0,
    NGX_IDEMPOTENCY_UNKNOWN_WRITING,
    NGX_IDEMPOTENCY_UNKNOWN_SET
} ngx_idempotency_unknown_e;


typedef struct {
    ngx_atomic_t                    state;
    ngx_atomic_t                    since;       /* seconds */
    ngx_atomic_t                    flags;       /* SEQUENCE, or 0: a store
                                                    names these otherwise */
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
} ngx_idempotency_unknown_t;


/* of one store, shared by all workers without a lock */

typedef struct {
    ngx_atomic_t                    number;      /* 0: there is none; may be
                                                    too high, if one died */
    ngx_atomic_t                    checked;     /* place in the list */
    ngx_idempotency_unknown_t       list[NGX_IDEMPOTENCY_UNKNOWNS];
} ngx_idempotency_unknowns_t;


/* a record is unknown since then; without room it is not noted */
void ngx_idempotency_unknowns_note(ngx_idempotency_unknowns_t *unknowns,
    u_char *digest, ngx_uint_t flags, time_t since);

/* it is not, or no longer */
void ngx_idempotency_unknowns_forget(ngx_idempotency_unknowns_t *unknowns,
    u_char *digest);

/*
 * The next one after *i, in no order, and its place in *i; NGX_DECLINED when
 * there are no more.  It may be half of another one by now.
 */
ngx_int_t ngx_idempotency_unknowns_next(ngx_idempotency_unknowns_t *unknowns,
    ngx_uint_t *i, ngx_idempotency_unknown_t *unknown);

/* asks the store about some of them; those that are no more are forgotten */
void ngx_idempotency_unknowns_check(struct ngx_idempotency_store_s *store);


#endif /* _NGX_IDEMPOTENCY_UNKNOWNS_H_INCLUDED_ */
