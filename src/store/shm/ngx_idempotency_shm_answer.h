
/*
 * The bytes of an answer in the zone.
 * Private to the embedded store; the caller holds the mutex.
 */


#ifndef _NGX_IDEMPOTENCY_SHM_ANSWER_H_INCLUDED_
#define _NGX_IDEMPOTENCY_SHM_ANSWER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_shm_node.h"


/* about the most that is copied while the mutex is held */
#define NGX_IDEMPOTENCY_SHM_STEP  65536


/* its size follows from the number of bytes that were left to write */

struct ngx_idempotency_shm_piece_s {
    ngx_idempotency_shm_piece_t   *next;
    u_char                         data[1];
};

#define NGX_IDEMPOTENCY_SHM_PIECE_HEAD                                        \
    offsetof(ngx_idempotency_shm_piece_t, data)


/* an answer that is being written */

typedef struct {
    u_char                        *pos;
    u_char                        *last;
    ngx_chain_t                   *in;
    size_t                         head_len;
    size_t                         body_len;
    size_t                         rest;
    ngx_idempotency_shm_piece_t  **piece;
    uint32_t                       generation;
} ngx_idempotency_shm_writer_t;


/* an answer that is being read */

typedef struct {
    u_char                        *pos;
    size_t                         rest;
    ngx_idempotency_shm_piece_t   *piece;
    uint32_t                       generation;
} ngx_idempotency_shm_reader_t;


/*
 * Begins to write head and body into a record that is not done.  The record
 * gets the generation of the writer; the writer may go on as long as the
 * record has it, that is, as long as no other operation has moved it.
 */
void ngx_idempotency_shm_answer_write_start(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_shm_writer_t *w,
    ngx_str_t *head, ngx_chain_t *body, size_t body_len);

/* NGX_OK: all is written, NGX_AGAIN: a step is done, NGX_DECLINED: no room */
ngx_int_t ngx_idempotency_shm_answer_write(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_shm_writer_t *w,
    uint64_t now);

/*
 * Begins to read the answer of a done record to "pos", also bound to the
 * generation of the record.
 */
void ngx_idempotency_shm_answer_read_start(ngx_idempotency_shm_node_t *node,
    ngx_idempotency_shm_reader_t *r, u_char *pos);

/* NGX_OK: all is read, NGX_AGAIN: a step is done, NGX_ERROR: damaged */
ngx_int_t ngx_idempotency_shm_answer_read(ngx_idempotency_shm_reader_t *r);

/* frees the answer of a record that is not done, or was removed */
void ngx_idempotency_shm_answer_free(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node);

/* the size of the next piece when "rest" bytes are left */
size_t ngx_idempotency_shm_answer_piece_size(size_t rest);


#endif /* _NGX_IDEMPOTENCY_SHM_ANSWER_H_INCLUDED_ */
