
/*
 * Which clients retry wrongly, in constant memory.
 */


#ifndef _NGX_IDEMPOTENCY_TROUBLE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_TROUBLE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* sources that are counted, and answers whose retry is awaited */
#define NGX_IDEMPOTENCY_TROUBLE_SOURCES   64
#define NGX_IDEMPOTENCY_TROUBLE_ANSWERS   2048

#define NGX_IDEMPOTENCY_TROUBLE_LABEL     64

/* milliseconds: a retry is too early until then, and does not come after it */
#define NGX_IDEMPOTENCY_TROUBLE_EARLY     900
#define NGX_IDEMPOTENCY_TROUBLE_LATE      600000


typedef enum {
    NGX_IDEMPOTENCY_TROUBLE_KEY_REUSED = 0,      /* with another body */
    NGX_IDEMPOTENCY_TROUBLE_FRESH_KEY,           /* for the same body */
    NGX_IDEMPOTENCY_TROUBLE_NO_BACKOFF,          /* retried at once */
    NGX_IDEMPOTENCY_TROUBLE_NEVER_RETRIED,       /* after 502, 503 or 504 */
    NGX_IDEMPOTENCY_TROUBLE_N
} ngx_idempotency_trouble_e;


/*
 * A counter of Space-Saving (Metwally, Agrawal, El Abbadi, 2005).  "count" is
 * not less than the number of events of the source, and at most "error" more.
 */

typedef struct {
    uint64_t                            source;  /* of its digest */
    uint64_t                            count;
    uint64_t                            error;
    uint64_t                            kinds[NGX_IDEMPOTENCY_TROUBLE_N];
                                                 /* since it is here */
    time_t                              last;
    uint32_t                            location;   /* of the last one */
    uint32_t                            label_len;
    u_char                              label[NGX_IDEMPOTENCY_TROUBLE_LABEL];
} ngx_idempotency_trouble_source_t;


/* an answer that asks for a retry; "key" is 0 if there is none */

typedef struct {
    uint64_t                            key;     /* of the record's digest */
    uint64_t                            source;
    ngx_msec_t                          when;
    uint32_t                            location;
    uint32_t                            unavailable;  /* 502, 503 or 504 */
} ngx_idempotency_trouble_answer_t;


typedef struct {
    ngx_atomic_t                        lock;    /* pid of its holder */
    ngx_atomic_t                        missed;  /* events: it was locked */
    uint64_t                            kinds[NGX_IDEMPOTENCY_TROUBLE_N];
    uint64_t                            replaced;   /* answers: by others */
    ngx_idempotency_trouble_source_t    sources
                                            [NGX_IDEMPOTENCY_TROUBLE_SOURCES];
    ngx_idempotency_trouble_answer_t    answers
                                            [NGX_IDEMPOTENCY_TROUBLE_ANSWERS];
} ngx_idempotency_trouble_t;


/* who did it, and where */

typedef struct {
    uint64_t                            source;
    uint32_t                            location;
    ngx_str_t                           label;   /* or empty */
} ngx_idempotency_trouble_client_t;


/* the names of the kinds */
extern const char  *ngx_idempotency_trouble_kinds[];


/*
 * These may be called by any worker.  If another one holds the lock for too
 * long, the event is not counted.
 */

void ngx_idempotency_trouble_note(ngx_idempotency_trouble_t *trouble,
    ngx_idempotency_trouble_e kind, ngx_idempotency_trouble_client_t *client);

/* the client was asked to send the request with that key again */
void ngx_idempotency_trouble_answered(ngx_idempotency_trouble_t *trouble,
    uint64_t key, ngx_idempotency_trouble_client_t *client,
    ngx_uint_t unavailable);

/*
 * A request with that key has come at "start".  Is it a retry that came too
 * early?  Costs one look at shared memory if no retry is awaited.
 */
ngx_uint_t ngx_idempotency_trouble_retried(ngx_idempotency_trouble_t *trouble,
    uint64_t key, ngx_msec_t start);

/*
 * Counts retries that did not come, and takes the lock from a process that has
 * died; by one worker, once in a while.
 */
void ngx_idempotency_trouble_sweep(ngx_idempotency_trouble_t *trouble);

/*
 * Copies the sources, with the most events first, and returns their number.
 * Without a lock: one that changes meanwhile may be torn.
 */
ngx_uint_t ngx_idempotency_trouble_top(ngx_idempotency_trouble_t *trouble,
    ngx_idempotency_trouble_source_t *sources);


#endif /* _NGX_IDEMPOTENCY_TROUBLE_H_INCLUDED_ */
