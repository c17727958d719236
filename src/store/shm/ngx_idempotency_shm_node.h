
/*
 * Records and marks in the zone.
 * Private to the embedded store; the caller holds the mutex.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_NODE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_NODE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_zone.h"
#include "ngx_idempotency_transition.h"


#if (NGX_PTR_SIZE != 8)
#error the embedded store needs a 64-bit platform
#endif


#define NGX_IDEMPOTENCY_SHM_NODE_SIZE    256
#define NGX_IDEMPOTENCY_SHM_INLINE       2

#define NGX_IDEMPOTENCY_SHM_DIGEST_REST                                       \
    (NGX_IDEMPOTENCY_DIGEST_LEN - sizeof(ngx_rbtree_key_t))


typedef struct ngx_idempotency_shm_piece_s  ngx_idempotency_shm_piece_t;


/* the note of a record, in a slot of its own */

typedef struct {
    uint16_t                       len;
    u_char                         data[NGX_IDEMPOTENCY_NOTE_LEN];
} ngx_idempotency_shm_note_t;


/*
 * A record, or the mark of a sequence, or the last request with a source,
 * scope and fingerprint.  A worker may be killed at any
 * instruction, so it is valid at every instant: fields are written first, the
 * state, one byte, last.
 *
 * Head and body of an answer are one string: it begins in "data" and goes on
 * in the pieces.  A record that is not done has an answer while one is being
 * written, or if its writer has died.
 *
 * expire.key is "until" of a record, see ngx_idempotency_stored_t; where the
 * state ends at another time, it is only when to look at the record again.
 *
 * A mark has two counts in "fingerprint"; "status" says which one is valid.
 * It is due at "lease".
 *
 * A last request has the digest of its record in "fingerprint", the owner of
 * its claim, and in "created" when it came, msec.  It is due at "lease".
 *
 * The fields are in the order of cache lines: a lookup reads the first 64
 * bytes only.
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
    ngx_idempotency_shm_note_t    *note;       /* or NULL */
    uint32_t                       generation; /* changes with each move */
    uint32_t                       attempts;
    uint32_t                       keep;       /* seconds */
    uint32_t                       tombstone;  /* seconds */
    uint32_t                       head_len;
    uint32_t                       body_len;
    uint16_t                       status;
    u_char                         kept;
    u_char                         state;
    u_char                         how[2];     /* rest of the fingerprint */
    u_char                         data[NGX_IDEMPOTENCY_SHM_INLINE];

    ngx_rbtree_node_t              expire;     /* key: when it is due, msec */
    ngx_rbtree_node_t             *same;       /* see shm_expiry.c */
    ngx_idempotency_shm_node_t    *next;       /* of all records */
    ngx_idempotency_shm_node_t   **prev;       /* NULL: not in the zone yet */
};


/* the node of a digest, if any; it may be overdue */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_lookup(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest);

/*
 * The record of a digest as it is at this time, in "stored" as well; NULL: it
 * does not exist, and "stored" says so.
 */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_find(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_stored_t *stored, uint64_t now);

void ngx_idempotency_shm_load(ngx_idempotency_shm_node_t *node,
    ngx_idempotency_stored_t *stored);

/* a new record, or NULL when the zone is full of what is live */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_insert(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_stored_t *stored, uint64_t now);

/*
 * Makes the record what "stored" says.  The answer of a record that becomes
 * done is written before; any other one is freed if the record has moved.
 */
void ngx_idempotency_shm_write(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_stored_t *stored,
    ngx_idempotency_change_e change);

/*
 * Makes the note of a record what "note" says, after the record was written.
 * Without room for it the record has none.
 */
void ngx_idempotency_shm_note_write(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, const ngx_str_t *note);

/* the bytes of the slot of a note */
size_t ngx_idempotency_shm_note_size(size_t len);

/* takes a node out of the zone and frees it with its answer */
void ngx_idempotency_shm_remove(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node);

/* when time ends the state that the node has */
uint64_t ngx_idempotency_shm_due(ngx_idempotency_shm_node_t *node);

/* lets time act on up to "n" overdue nodes; returns on how many it did */
ngx_uint_t ngx_idempotency_shm_expire(ngx_idempotency_shm_ctx_t *ctx,
    uint64_t now, ngx_uint_t n);

/*
 * Memory of the zone; what is overdue makes room for it.  NULL: there is none,
 * or sh->due has passed and more may be had after the mutex was released.
 */
void *ngx_idempotency_shm_alloc(ngx_idempotency_shm_ctx_t *ctx, size_t size,
    uint64_t now);

/* is it the record of a number?  Then its mark is in the zone. */
ngx_uint_t ngx_idempotency_shm_in_sequence(ngx_idempotency_shm_ctx_t *ctx,
    u_char *digest);

/* the mark of a record's sequence; NULL: none, and "mark" is all zero */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_mark_find(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_mark_t *mark, uint64_t now);

/*
 * A new mark, one number below "mark": ngx_idempotency_shm_mark_write() moves
 * it when the record of the number is in the zone.  NULL as for a record.
 */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_mark_insert(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_mark_t *mark, uint64_t now);
void ngx_idempotency_shm_mark_write(ngx_idempotency_shm_node_t *node,
    ngx_idempotency_mark_t *mark);

/* the last request of a digest; NULL: none, and "last" is not set */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_last_find(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_last_t *last, uint64_t now);

/* writes it to its node, or to a new one.  NGX_ERROR: there is no room. */
ngx_int_t ngx_idempotency_shm_last_write(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, u_char *digest,
    ngx_idempotency_last_t *last, uint64_t now);

/*
 * The node behind "digest", which need not be that of one, in an order that
 * is the same for as long as the zone lives.  Sets "digest" to its own.
 * NULL: there is none in this tree, and "digest" is where the next tree
 * begins; *last says that there is no next one.
 */
ngx_idempotency_shm_node_t *ngx_idempotency_shm_next(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest, ngx_uint_t *last);

/* inserts a node that is in the list of all into the trees */
void ngx_idempotency_shm_insert_trees(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due);


#endif /* _NGX_IDEMPOTENCY_SHM_NODE_H_INCLUDED_ */
