
/*
 * The zone of an embedded store: its head, its lock, its repair.
 * Private to the embedded store.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_ZONE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_ZONE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_store.h"


typedef struct ngx_idempotency_shm_node_s  ngx_idempotency_shm_node_t;


/*
 * The states of nodes that are no records: the mark of a sequence, and the
 * last request with a source, scope and fingerprint
 */
#define NGX_IDEMPOTENCY_SHM_MARK  (NGX_IDEMPOTENCY_TOMBSTONE + 1)
#define NGX_IDEMPOTENCY_SHM_LAST  (NGX_IDEMPOTENCY_TOMBSTONE + 2)


/*
 * Whether a zone is being changed.  The holder of the mutex moves it CLEAN ->
 * CHANGING -> CLEAN.  A process that takes the mutex and finds CHANGING knows
 * that the last holder has died and rebuilds the zone; where that is
 * impossible the zone is BROKEN for good.
 */

typedef enum {
    NGX_IDEMPOTENCY_SHM_CLEAN = 0,
    NGX_IDEMPOTENCY_SHM_CHANGING,
    NGX_IDEMPOTENCY_SHM_BROKEN
} ngx_idempotency_shm_dirty_e;


/*
 * The head of a zone, its first slab page.  "records" is the only part that is
 * trusted after a process has died with the mutex: the list is intact at every
 * instant.
 */

typedef struct {
    uint32_t                      magic;
    uint32_t                      version;
    uint32_t                      node_size;
    uint32_t                      generation;    /* the last one given */
    ngx_atomic_t                  dirty;         /* shm_dirty_e */
    uint64_t                      fence;         /* the last one given */
    ngx_uint_t                    number;        /* of records */
    ngx_uint_t                    states         /* the same by their states */
                                      [NGX_IDEMPOTENCY_SHM_LAST + 1];
    ngx_uint_t                    rebuilds;
    ngx_idempotency_shm_node_t   *records;
    ngx_rbtree_node_t           **roots;         /* trees by digest */
    ngx_uint_t                    mask;          /* their number, minus one */
    ngx_rbtree_node_t             sentinel;
    ngx_rbtree_t                  expire;
    ngx_rbtree_node_t             expire_sentinel;
    uint64_t                      due;           /* no node is due before */
    u_char                        log_ctx[128];
} ngx_idempotency_shm_sh_t;


typedef struct {
    ngx_idempotency_store_t      *store;
    ngx_idempotency_shm_sh_t     *sh;
    ngx_slab_pool_t              *shpool;
    time_t                        full_logged;
    time_t                        lost_logged;
} ngx_idempotency_shm_ctx_t;


/*
 * Takes the mutex; rebuilds the zone if its last holder died.  NGX_ERROR when
 * that is impossible: the mutex is not held then.
 */
ngx_int_t ngx_idempotency_shm_lock(ngx_idempotency_shm_ctx_t *ctx);

void ngx_idempotency_shm_unlock(ngx_idempotency_shm_ctx_t *ctx);

/*
 * Makes slab and trees anew from the list of records, which stays as it is: a
 * process that dies in here is repaired as any other.  NGX_ERROR: the list is
 * damaged, too, and the zone is broken from now on, or memory is short.
 */
ngx_int_t ngx_idempotency_shm_rebuild(ngx_idempotency_shm_ctx_t *ctx);

/*
 * A point at which a test may kill the process: with the mutex held, between
 * two writes to the zone.
 */

#if (NGX_HTTP_IDEMPOTENCY_DEBUG)

extern ngx_uint_t  ngx_idempotency_shm_kill;

#define ngx_idempotency_shm_point()                                           \
    if (ngx_idempotency_shm_kill && --ngx_idempotency_shm_kill == 0) {        \
        (void) kill(ngx_pid, SIGKILL);                                        \
    }

/*
 * A gap between two steps, in which a test may let other processes act; any
 * signal ends it.
 */

extern ngx_msec_t  ngx_idempotency_shm_pause;

#define ngx_idempotency_shm_gap()                                             \
    if (ngx_idempotency_shm_pause) {                                          \
        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0, "paused by a test");   \
        ngx_msleep(ngx_idempotency_shm_pause);                                \
        ngx_idempotency_shm_pause = 0;                                        \
    }

#else

#define ngx_idempotency_shm_point()
#define ngx_idempotency_shm_gap()

#endif


/*
 * NGX_ERROR, with a message, when a reload would replace the live zone of that
 * name by an empty one.
 */
ngx_int_t ngx_idempotency_shm_check_old(ngx_conf_t *cf, ngx_str_t *name,
    size_t size, void *tag);

/* initializes the zone or takes over that of the previous configuration */
ngx_int_t ngx_idempotency_shm_init_zone(ngx_shm_zone_t *shm_zone, void *data);

/* empty trees, and what ngx_slab_init() sets otherwise */
void ngx_idempotency_shm_init_sh(ngx_idempotency_shm_ctx_t *ctx);


#endif /* _NGX_IDEMPOTENCY_SHM_ZONE_H_INCLUDED_ */
