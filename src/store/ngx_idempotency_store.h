
/*
 * The store interface: operations and what they promise.
 */


#ifndef _NGX_IDEMPOTENCY_STORE_H_INCLUDED_
#define _NGX_IDEMPOTENCY_STORE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include "ngx_idempotency_counts.h"
#include "ngx_idempotency_record.h"
#include "ngx_idempotency_unknowns.h"


/* how long the stub of a released key refuses the owner that gave it up, sec */
#define NGX_IDEMPOTENCY_STUB_TTL      600

/* how long an unknown outcome is kept at least, seconds */
#define NGX_IDEMPOTENCY_UNKNOWN_TTL   (30 * 24 * 3600)


/* how much longer than its records the mark of a sequence is kept, seconds */
#define NGX_IDEMPOTENCY_MARK_TTL      (24 * 3600)


typedef struct ngx_idempotency_store_s  ngx_idempotency_store_t;
typedef struct ngx_idempotency_op_s     ngx_idempotency_op_t;

typedef ngx_int_t (*ngx_idempotency_submit_pt)(ngx_idempotency_op_t *op);
typedef void (*ngx_idempotency_op_handler_pt)(ngx_idempotency_op_t *op);
typedef ngx_int_t (*ngx_idempotency_start_pt)(ngx_idempotency_store_t *store);
typedef void (*ngx_idempotency_stop_pt)(ngx_idempotency_store_t *store);


/* bytes; "free" counts whole pages only */

typedef struct {
    size_t                          size;
    size_t                          free;
    size_t                          records;
    size_t                          record;      /* of one without answer */
    size_t                          executing;   /* with lapsed leases */
    size_t                          unknown;
    ngx_uint_t                      broken;      /* refuses everything */
    ngx_idempotency_refusal_e       refusing;    /* everything, and why */
} ngx_idempotency_usage_t;

/* a subscription to the changes of one record, see store.listen */
typedef struct ngx_idempotency_listener_s  ngx_idempotency_listener_t;

typedef ngx_idempotency_listener_t *(*ngx_idempotency_listen_pt)(
    ngx_idempotency_op_t *op);
typedef void (*ngx_idempotency_unlisten_pt)(
    ngx_idempotency_listener_t *listener);

typedef void (*ngx_idempotency_usage_pt)(ngx_idempotency_store_t *store,
    ngx_idempotency_usage_t *usage);
typedef ngx_uint_t (*ngx_idempotency_left_pt)(ngx_idempotency_store_t *store);


typedef enum {
    /*
     * Takes the key for op->id.owner until op->lease is over.  GRANTED: it is
     * ours, record.fence and record.attempts are set; the same owner asking
     * again is granted again.  Otherwise EXISTS, and op->record shows why;
     * NOT_ISSUED with NGX_IDEMPOTENCY_CLAIM_ISSUED and nothing issued;
     * OUT_OF_ORDER for a number of a sequence whose turn it is not;
     * REFUSED for an owner whose claim was released before.
     */
    NGX_IDEMPOTENCY_CLAIM = 0,

    /*
     * Keeps the answer.  Valid for the owner of an executing or unknown
     * record, and for a record that the store has lost: it is written anew;
     * in Redis also where the key reads as free and this owner has not given
     * it up.
     * OK, or REFUSED with op->record set.  A store without room for the answer
     * makes the record done with record.kept = 0.
     */
    NGX_IDEMPOTENCY_COMPLETE,

    /*
     * executing -> none (or issued): nothing was sent.  OK or REFUSED.  It
     * may overtake its claim: if the key is free, a claim by this owner is
     * refused from then on.
     */
    NGX_IDEMPOTENCY_RELEASE,

    /* executing -> unknown: sent, and no answer.  OK or REFUSED. */
    NGX_IDEMPOTENCY_MARK_UNKNOWN,

    /*
     * Takes the right to probe an unknown until op->lease is over.  GRANTED:
     * record.fence is a new one.  Otherwise EXISTS, and op->record shows why:
     * unknown with a lease left means that another request is probing.  With
     * op->fence it gives the right back: OK or REFUSED.
     */
    NGX_IDEMPOTENCY_PROBE,

    /* prolongs op->leases; each lease gets a result of its own */
    NGX_IDEMPOTENCY_RENEW,

    /* none -> issued for op->ttl.  OK, or REFUSED when the key is known. */
    NGX_IDEMPOTENCY_ISSUE,

    /* reads.  OK with op->record set (state none when there is nothing). */
    NGX_IDEMPOTENCY_FETCH,

    /*
     * An operator settles an unknown that has op->fence: with op->executed
     * it becomes done with the given answer, else none.  OK or REFUSED.
     */
    NGX_IDEMPOTENCY_RESOLVE,

    /* forgets a record that has op->fence and no live lease.  OK, REFUSED. */
    NGX_IDEMPOTENCY_PURGE,

    /*
     * none or issued -> done without an answer, for op->ttl: the key is never
     * executed; see ngx_idempotency_record_is_cancelled().  OK, also if it was
     * cancelled before, or REFUSED with op->record set.
     */
    NGX_IDEMPOTENCY_CANCEL,

    /*
     * Goes through some of the records, from op->list->cursor on, and shows
     * those of one state.  OK, or REFUSED when it cannot begin there.
     */
    NGX_IDEMPOTENCY_LIST,

    /*
     * Has another key asked for the same?  op->suspect is the digest of
     * source, scope and fingerprint, and the claim of op->id was submitted
     * before.  EXISTS: a request with another key is executing or unknown, or
     * is done since less than op->window.  op->record is its record, with the
     * digest in place of the fingerprint; its state is none if its claim may
     * be on its way.  GRANTED: none has, and from now on this is the last
     * request of that digest, for op->ttl.  REFUSED: the key is not, or not
     * yet known to be, claimed by op->id.owner, and nothing was changed: if
     * the claim is granted, to be asked again with SUSPECT_CLAIMED.
     */
    NGX_IDEMPOTENCY_SUSPECT,

    /*
     * If op->id.owner is that of the last request of op->suspect, that is
     * remembered for op->ttl from now on, 0: not at all.  OK or REFUSED.
     */
    NGX_IDEMPOTENCY_SUSPECT_KEEP
} ngx_idempotency_op_e;


typedef enum {
    NGX_IDEMPOTENCY_OK = 0,
    NGX_IDEMPOTENCY_GRANTED,
    NGX_IDEMPOTENCY_EXISTS,
    NGX_IDEMPOTENCY_NOT_ISSUED,
    NGX_IDEMPOTENCY_REFUSED,
    NGX_IDEMPOTENCY_OUT_OF_ORDER
} ngx_idempotency_result_e;


/* why an operation could not be done at all */

typedef enum {
    NGX_IDEMPOTENCY_ERROR_NONE = 0,
    NGX_IDEMPOTENCY_ERROR_FULL,       /* no room for a new record */
    NGX_IDEMPOTENCY_ERROR_DAMAGED,    /* what is stored cannot be read */
    NGX_IDEMPOTENCY_ERROR_CONNECT,    /* the store cannot be reached */
    NGX_IDEMPOTENCY_ERROR_TIMEOUT,    /* it did not answer in time */
    NGX_IDEMPOTENCY_ERROR_PROTOCOL,   /* it answered nonsense */
    NGX_IDEMPOTENCY_ERROR_REFUSED,    /* it will not do it */
    NGX_IDEMPOTENCY_ERROR_UNSAFE,     /* it may forget, or has forgotten */
    NGX_IDEMPOTENCY_ERROR_MEMORY      /* this process is out of memory */
} ngx_idempotency_error_e;


/*
 * claim: an unknown record with this fingerprint may be taken over, and with
 * this fence if op->fence is not 0
 */
#define NGX_IDEMPOTENCY_CLAIM_UNKNOWN  0x01
/* claim: only an issued key may be taken */
#define NGX_IDEMPOTENCY_CLAIM_ISSUED   0x02

/*
 * all operations: the record is number id.number of epoch id.epoch of a
 * sequence, whose mark moves with claim and release.  The digests of all
 * records of a sequence begin with the same half.  STRICT: without a gap.
 */
#define NGX_IDEMPOTENCY_SEQUENCE         0x04
#define NGX_IDEMPOTENCY_SEQUENCE_STRICT  0x08

/* fetch: the record without head and body of its answer */
#define NGX_IDEMPOTENCY_FETCH_BARE       0x10

/* complete, release, mark_unknown: notify waiters of other gateways */
#define NGX_IDEMPOTENCY_TELL             0x20

/*
 * the service commits the record together with its work; claim: an unknown
 * record that was claimed so, with this fingerprint, may be taken over
 */
#define NGX_IDEMPOTENCY_WORK             0x100

/* suspect: it is executed in any case; the last request is this one, then */
#define NGX_IDEMPOTENCY_SUSPECT_PASSES   0x40
/* suspect: its claim was granted */
#define NGX_IDEMPOTENCY_SUSPECT_CLAIMED  0x80


/* what the head of an answer may take besides store.largest, bytes */
#define NGX_IDEMPOTENCY_STORE_HEAD       32768


/* a list ends when it has about so many entries */
#define NGX_IDEMPOTENCY_LIST_ENTRIES     256

/* a cursor is not longer than this */
#define NGX_IDEMPOTENCY_LIST_CURSOR      (2 * NGX_IDEMPOTENCY_DIGEST_LEN)


/* which record, and which attempt at it */

typedef struct {
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    u_char                          owner[NGX_IDEMPOTENCY_OWNER_LEN];
    u_char                          fingerprint
                                        [NGX_IDEMPOTENCY_FINGERPRINT_LEN];
    uint64_t                        number;       /* of a sequence */
    uint64_t                        epoch;
} ngx_idempotency_identity_t;


/* one line of a renewal */

typedef struct {
    ngx_idempotency_identity_t      id;
    uint64_t                        fence;
    ngx_uint_t                      flags;        /* SEQUENCE, or 0 */
    ngx_msec_t                      lease;
    time_t                          keep;
    ngx_idempotency_result_e        result;
} ngx_idempotency_lease_t;


/* one line of a list */

typedef struct {
    u_char                          digest[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_idempotency_record_t        record;       /* without its answer */
    unsigned                        sequence:1;   /* is a number */
} ngx_idempotency_entry_t;


/*
 * A page of a listing.  A store looks at a bounded number of records and sets
 * the cursor to go on from; an empty cursor asks for the first page, and is
 * the answer of the last one.  A record that stays in its state is on exactly
 * one page; one that moves meanwhile may be on none or two.
 */

typedef struct {
    ngx_idempotency_state_e         state;        /* NONE: any but that */
    ngx_str_t                       digits;       /* the digest begins with */
    ngx_str_t                       cursor;
    u_char                          text[NGX_IDEMPOTENCY_LIST_CURSOR];
    ngx_array_t                     entries;
    ngx_uint_t                      seen;         /* records, of any state */
} ngx_idempotency_list_t;


/*
 * One operation.  It has a pool of its own and lives until its caller frees
 * it, or, once detached, until it is finished.
 *
 * "granted" is for claim, probe and issue: the fence that another store has
 * given for the same, or 0.  The new fence is that one, or the next of the
 * record if that is higher, instead of one by the clock of this store; and
 * whether it is the turn of a number is not asked again.
 *
 * "note" is for claim, complete and mark_unknown: bytes about the request for
 * people, see note.h, which a store keeps with the record and does not read.
 * That of a claim or complete takes the place of the one before, also if it is
 * empty; an empty one of mark_unknown leaves the one before.  A record that is
 * free has none.  A store without room for a note goes on without it.
 */

struct ngx_idempotency_op_s {
    ngx_pool_t                     *pool;
    ngx_idempotency_store_t        *store;
    ngx_idempotency_op_e            type;

    /* the question */

    ngx_idempotency_identity_t      id;
    ngx_uint_t                      flags;
    uint64_t                        fence;        /* as it was seen */
    uint64_t                        granted;      /* see below */
    ngx_msec_t                      lease;        /* claim, probe */
    time_t                          ttl;          /* of done or issued */
    time_t                          tombstone;
    ngx_array_t                    *leases;       /* renew */
    ngx_idempotency_list_t         *list;
    u_char                         *suspect;      /* digest */
    time_t                          window;       /* suspect */

    /* what is to be kept; read during submit only */

    ngx_str_t                       note;         /* see below */

    ngx_uint_t                      status;
    ngx_str_t                       head;
    ngx_chain_t                    *body;         /* memory buffers */
    size_t                          body_len;

    /* what came of it */

    ngx_idempotency_result_e        result;
    ngx_idempotency_error_e         error;
    ngx_idempotency_refusal_e       refusal;      /* of a new key, if known */
    ngx_idempotency_record_t        record;
    uint64_t                        expected;     /* OUT_OF_ORDER, strict */

    ngx_msec_t                      submitted;
    uint64_t                        started;      /* usec, if counted */
    ngx_uint_t                      shared;       /* besides its caller */
    ngx_queue_t                     replays;      /* see share.c */
    ngx_atomic_uint_t               connection;   /* its number, for logs */

    ngx_idempotency_op_handler_pt   handler;
    void                           *data;
    void                           *own;          /* the store's */

    unsigned                        keep:1;       /* keep head and body */
    unsigned                        executed:1;   /* resolve */
    unsigned                        pending:1;    /* handler to be called */
    unsigned                        detached:1;   /* its caller has left */
    unsigned                        unsure:1;     /* failed, may have worked */
    unsigned                        expects:1;    /* expected is set */
    unsigned                        part:1;       /* of another operation on
                                                     this store, see from.c, or
                                                     a census: not counted */
};


/*
 * Does it read the answer of a record, so that a cache of done records may
 * serve it?  A number of a sequence depends on its mark as well.
 */

static ngx_inline ngx_uint_t
ngx_idempotency_op_reads_answer(ngx_idempotency_op_t *op)
{
    return !(op->flags & NGX_IDEMPOTENCY_SEQUENCE)
           && (op->type == NGX_IDEMPOTENCY_CLAIM
               || (op->type == NGX_IDEMPOTENCY_FETCH
                   && !(op->flags & NGX_IDEMPOTENCY_FETCH_BARE)));
}


/* the names of operations and results */
extern const char  *ngx_idempotency_ops[];
extern const char  *ngx_idempotency_results[];


/*
 * A store as the configuration named it.  Stores differ in submit; what they
 * need is in data.
 */

struct ngx_idempotency_store_s {
    ngx_str_t                       name;
    const char                     *kind;         /* "shm", "redis", ... */
    ngx_idempotency_submit_pt       submit;
    ngx_idempotency_start_pt        start;        /* of a worker, or NULL */
    ngx_idempotency_stop_pt         stop;
    ngx_idempotency_usage_pt        usage;        /* or NULL: not known */

    /* number of outcomes that exited workers have handed over, or NULL */
    ngx_idempotency_left_pt         left;

    /*
     * Subscribes to the record of the operation: ngx_idempotency_wait_wake()
     * is called when another gateway may have settled it.  NULL, as a result
     * or here: the store cannot do that.
     */
    ngx_idempotency_listen_pt       listen;
    ngx_idempotency_unlisten_pt     unlisten;

    /* the store of "from=", or NULL; "direct" is submit without it */
    ngx_idempotency_store_t        *from;
    ngx_idempotency_submit_pt       direct;

    void                           *data;
    ngx_idempotency_store_counts_t *counts;       /* of this worker */
    ngx_idempotency_store_now_t    *now;          /* of this process */
    ngx_idempotency_unknowns_t     *unknowns;     /* NULL: not noted */
    ngx_idempotency_health_t       *health;       /* NULL: not noted */
    ngx_msec_t                      lease;        /* the longest it is for */
    ngx_uint_t                      suspects;     /* are looked for */
    ngx_uint_t                      transactions; /* services may commit
                                                     records, see WORK */
    size_t                          largest;      /* body it takes, 0: any */
    u_char                         *file;         /* where it is defined */
    ngx_uint_t                      line;
};


/*
 * A new operation on a store, with everything zero.  NULL when memory is
 * short.
 */
ngx_idempotency_op_t *ngx_idempotency_op_create(ngx_idempotency_store_t *store,
    ngx_idempotency_op_e type);

/*
 * Makes it a list of the records of one state from a cursor on.  NGX_OK;
 * NGX_DECLINED: that is no cursor; NGX_ERROR.
 */
ngx_int_t ngx_idempotency_op_list(ngx_idempotency_op_t *op,
    ngx_idempotency_state_e state, ngx_str_t *cursor);

/*
 * For stores: does a record of that state and digest belong to the list?
 * list->digits are lower case hex digits.
 */
ngx_uint_t ngx_idempotency_list_wants(ngx_idempotency_list_t *list,
    ngx_idempotency_state_e state, const u_char *digest);

/*
 * Starts the operation.  NGX_OK: finished, result is set and the handler will
 * not be called.  NGX_AGAIN: the handler is called later, never from within
 * this call.  NGX_ERROR: not available, op->error says why.  Bytes the
 * question points to may be reused as soon as this returns.
 */
ngx_int_t ngx_idempotency_op_submit(ngx_idempotency_op_t *op);

/*
 * The caller is no longer interested.  A finished operation is freed; a
 * pending one goes on without a handler and frees itself: a complete still
 * finishes, a claim that is granted after all is released again.
 */
void ngx_idempotency_op_drop(ngx_idempotency_op_t *op);

/* adds a caller to a finished operation; each caller drops it */
ngx_idempotency_op_t *ngx_idempotency_op_share(ngx_idempotency_op_t *op);

/*
 * Writes a line about an operation to the debug log, with the number of its
 * connection: one grep then finds the request and what happens to its record
 * after the request has ended.
 */
void ngx_idempotency_op_debug(ngx_idempotency_op_t *op, const char *what);

/*
 * For stores: the operation is over.  Calls its handler, or frees it when it
 * was detached.
 */
void ngx_idempotency_op_done(ngx_idempotency_op_t *op);

/*
 * Fetches some of the records in store->unknowns; those that are not unknown
 * any more are taken off that list.
 */
void ngx_idempotency_store_check(ngx_idempotency_store_t *store);


#endif /* _NGX_IDEMPOTENCY_STORE_H_INCLUDED_ */
