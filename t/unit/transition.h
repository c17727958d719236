
/*
 * States that a record may be in, and numbers of a sequence: see transition.c.
 */


#define SEQ        NGX_IDEMPOTENCY_SEQUENCE
#define STRICT     (SEQ|NGX_IDEMPOTENCY_SEQUENCE_STRICT)


/*
 * "none" is no record at all; lapsed is executing with a lease that is over,
 * asked is unknown while somebody probes
 */

typedef enum {
    NONE = 0,
    STUBBED,
    ISSUED,
    EXECUTING,
    LAPSED,
    UNKNOWN,
    ASKED,
    DONE,
    TOMBSTONE,
    CANCELLED,
    STATES
} test_state_e;


/*
 * Numbers of a sequence whose mark is at epoch 5, next 10, if there is one.
 * The record: NONE, STUBBED, or DONE, which is another one's.
 */

typedef struct {
    char                      *name;
    ngx_uint_t                 mark;
    ngx_uint_t                 flags;
    uint64_t                   epoch;
    uint64_t                   number;
    test_state_e               before;
    ngx_idempotency_result_e   result;
    int                        expected;    /* -1: is not told */
    uint64_t                   next;        /* 0: the mark stays */
} test_number_t;


#define GRANTED  NGX_IDEMPOTENCY_GRANTED
#define EXISTS   NGX_IDEMPOTENCY_EXISTS
#define ORDER    NGX_IDEMPOTENCY_OUT_OF_ORDER

static test_number_t  numbers[] = {

    { "first one", 0, SEQ, 5, 7, NONE, GRANTED, -1, 8 },
    { "first one, strict", 0, STRICT, 5, 7, NONE, GRANTED, -1, 8 },
    { "known, the mark is lost", 0, SEQ, 5, 7, DONE, EXISTS, -1, 8 },

    { "next", 1, SEQ, 5, 10, NONE, GRANTED, -1, 11 },
    { "next, strict", 1, STRICT, 5, 10, NONE, GRANTED, -1, 11 },
    { "gap", 1, SEQ, 5, 12, NONE, GRANTED, -1, 13 },
    { "gap, strict", 1, STRICT, 5, 12, NONE, ORDER, 10, 0 },
    { "gap, strict, released", 1, STRICT, 5, 12, STUBBED, ORDER, 10, 0 },
    { "beyond the mark, known", 1, STRICT, 5, 12, DONE, EXISTS, -1, 13 },

    { "below, known", 1, SEQ, 5, 9, DONE, EXISTS, -1, 0 },
    { "below, known, strict", 1, STRICT, 5, 9, DONE, EXISTS, -1, 0 },
    { "below, released", 1, SEQ, 5, 9, STUBBED, GRANTED, -1, 0 },
    { "below, released, strict", 1, STRICT, 5, 9, STUBBED, GRANTED, -1, 0 },
    { "below, not known", 1, SEQ, 5, 9, NONE, ORDER, -1, 0 },
    { "below, not known, strict", 1, STRICT, 5, 9, NONE, ORDER, 10, 0 },

    { "old epoch", 1, SEQ, 4, 10, NONE, ORDER, -1, 0 },
    { "old epoch, strict", 1, STRICT, 4, 10, NONE, ORDER, -1, 0 },
    { "old epoch, known", 1, SEQ, 4, 10, DONE, ORDER, -1, 0 },

    { "new epoch", 1, SEQ, 6, 3, NONE, GRANTED, -1, 4 },
    { "new epoch from 0, strict", 1, STRICT, 6, 0, NONE, GRANTED, -1, 1 },
    { "new epoch from 1, strict", 1, STRICT, 6, 1, NONE, GRANTED, -1, 2 },
    { "new epoch from 2, strict", 1, STRICT, 6, 2, NONE, ORDER, 0, 0 },
    { "new epoch from 2, strict, known", 1, STRICT, 6, 2, DONE, EXISTS, -1,
      3 },

    { NULL, 0, 0, 0, 0, 0, 0, 0, 0 }
};
