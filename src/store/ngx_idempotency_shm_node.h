
/*
 * A record in the zone, and how it is found there.
 * Private to the embedded store; everything here wants the mutex.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_NODE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_NODE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_zone.h"


#if (NGX_PTR_SIZE != 8)
#error the embedded store needs a 64-bit platform
#endif


#define NGX_IDEMPOTENCY_SHM_NODE_SIZE    256
#define NGX_IDEMPOTENCY_SHM_INLINE       10

#define NGX_IDEMPOTENCY_SHM_DIGEST_REST                                       \
    (NGX_IDEMPOTENCY_DIGEST_LEN - sizeof(ngx_rbtree_key_t))


typedef struct ngx_idempotency_shm_piece_s  ngx_idempotency_shm_piece_t;


/*
 * A worker may be killed at any instruction, so a record is meaningful at
 * every instant: fields are written first, the state, one byte, last.
 *
 * Head and body of an answer are one string: it begins in "data" and goes on
 * in the pieces.  The answer of a record that is not done is one that is
 * being written, or was when its writer died.
 *
 * An executing or unknown record is due "keep" seconds after its lease, an
 * issued one at "issued"; their expire.key only says when to look again.
 *
 * A mark has two counts in "fingerprint"; "status" says which one is valid.
 * It is due at "lease".
 *
 * The order is that of lines in a processor's cache: a lookup reads the first
 * 64 bytes only.
 */

struct ngx_idempotency_shm_node_s {
    ngx_rbtree_node_t              node;       /* key: begin of the digest */
    u_char                         digest[NGX_IDEMPOTENCY_SHM_DIGEST_REST];

    u_char                         fingerprint
                                       [NGX_IDEMPOTENCY_FINGERPRINT_SUM];
    u_char                         owner[NGX_IDEMPOTENCY_OWNER_LEN];
    uint64_t                       fence;
    uint64_t                       lease;      /* its end, msec */

    uint64_t                       issued;     /* its end, msec; 0: was not */
    int64_t                        created;
    ngx_idempotency_shm_piece_t   *answer;
    uint32_t                       generation; /* another after each move */
    uint32_t                       attempts;
    uint32_t                       keep;       /* seconds */
    uint32_t                       tombstone;  /* seconds */
    uint32_t                       head_len;
    uint32_t                       body_len;
    uint16_t                       status;
    u_char                         kept;
    u_char                         state;
    u_char                         how[2];     /* the fingerprint was made */
    u_char                         data[NGX_IDEMPOTENCY_SHM_INLINE];

    ngx_rbtree_node_t              expire;     /* key: when it is due, msec */
    ngx_rbtree_node_t             *same;       /* see shm_time.c */
    ngx_idempotency_shm_node_t    *next;       /* of all records */
    ngx_idempotency_shm_node_t   **prev;       /* NULL: not in the zone yet */
};


/* of an operation or a lease into a record, and of a record to show it */

static ngx_inline void
ngx_idempotency_shm_set_fingerprint(ngx_idempotency_shm_node_t *node,
    const u_char *fingerprint)
{
    ngx_memcpy(node->fingerprint, fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_SUM);
    ngx_memcpy(node->how, fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM,
               sizeof(node->how));
}


static ngx_inline void
ngx_idempotency_shm_get_fingerprint(ngx_idempotency_shm_node_t *node,
    u_char *fingerprint)
{
    ngx_memcpy(fingerprint, node->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_SUM);
    ngx_memcpy(fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM, node->how,
               sizeof(node->how));
}


/* the record of a digest, if any; it may be overdue */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_lookup(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest);

/* sets "mark" to the digest of the mark that the record of a number has */
void ngx_idempotency_shm_mark_digest(u_char *mark, u_char *digest);

/* is it the record of a number?  Then its mark is in the zone. */
ngx_uint_t ngx_idempotency_shm_in_sequence(ngx_idempotency_shm_ctx_t *ctx,
    u_char *digest);

/*
 * The record behind "digest", which need not be one itself, in an order that
 * is the same for as long as the zone lives.  Sets "digest" to its own.
 * NULL: there is none in this tree, and "digest" is where the next tree
 * begins; *last says that there is no next one.
 */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_next(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest, ngx_uint_t *last);

/* inserts a record all of whose fields are set, to be looked at at "due" */
void ngx_idempotency_shm_insert(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due);

/* the same for a record that is in the list of all */
void ngx_idempotency_shm_insert_trees(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due);

/* takes a record out of the zone and frees it with its answer */
void ngx_idempotency_shm_remove(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node);


#endif /* _NGX_IDEMPOTENCY_SHM_NODE_H_INCLUDED_ */
