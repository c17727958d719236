
/*
 * Table tests of claims that another store has granted before: the old store
 * of "from=".
 */


#include "ngx_idempotency_transition.h"


#define NOW    1000000
#define FENCE  500           /* of the records */
#define CLOCK  900           /* the fence by the store's clock */


static ngx_uint_t  number, failed;


static void
ok(ngx_uint_t passed, char *what, char *name)
{
    number++;
    failed += !passed;

    printf("%s %u - %s: %s\n", passed ? "ok" : "not ok", (unsigned) number,
           what, name);
}


/* the record is that of owner A, in a state of NGX_IDEMPOTENCY_NONE on */

static void
ask(ngx_idempotency_transition_t *t, ngx_idempotency_op_t *op,
    ngx_idempotency_op_e type, ngx_uint_t exists,
    ngx_idempotency_state_e state, u_char owner, uint64_t granted)
{
    ngx_memzero(t, sizeof(ngx_idempotency_transition_t));
    ngx_memzero(op, sizeof(ngx_idempotency_op_t));

    t->op = op;
    t->now = NOW;
    t->fence = CLOCK;

    if (exists) {
        ngx_memset(t->stored.owner, 'A', NGX_IDEMPOTENCY_OWNER_LEN);

        t->stored.exists = 1;
        t->stored.state = state;
        t->stored.fence = FENCE;
        t->stored.keep = 3600;
        t->stored.until = NOW + 3600000;
        t->stored.lease = state == NGX_IDEMPOTENCY_EXECUTING ? NOW + 5000
                                                             : NOW;
    }

    ngx_memset(op->id.owner, owner, NGX_IDEMPOTENCY_OWNER_LEN);

    op->type = type;
    op->lease = 5000;
    op->ttl = 3600;
    op->granted = granted;
}


/* the fence is the one that was granted, or the next of the record */

static void
test_fences(void)
{
    ngx_uint_t                     i;
    ngx_idempotency_op_t           op;
    ngx_idempotency_transition_t   t;

    static struct {
        char                     *name;
        ngx_idempotency_op_e      type;
        ngx_uint_t                exists;
        ngx_idempotency_state_e   state;
        u_char                    owner;
        uint64_t                  granted;
        uint64_t                  fence;
    } rows[] = {
        { "a new key", NGX_IDEMPOTENCY_CLAIM, 0, 0, 'B', 7, 7 },
        { "a new key, by the clock", NGX_IDEMPOTENCY_CLAIM, 0, 0, 'B', 0,
          CLOCK },
        { "a stub, a higher one", NGX_IDEMPOTENCY_CLAIM, 1,
          NGX_IDEMPOTENCY_NONE, 'B', FENCE + 5, FENCE + 5 },
        { "a stub, a lower one", NGX_IDEMPOTENCY_CLAIM, 1,
          NGX_IDEMPOTENCY_NONE, 'B', 7, FENCE + 1 },
        { "its owner, a higher one", NGX_IDEMPOTENCY_CLAIM, 1,
          NGX_IDEMPOTENCY_EXECUTING, 'A', FENCE + 5, FENCE + 5 },
        { "its owner, a lower one", NGX_IDEMPOTENCY_CLAIM, 1,
          NGX_IDEMPOTENCY_EXECUTING, 'A', 7, FENCE },
        { "another owner", NGX_IDEMPOTENCY_CLAIM, 1,
          NGX_IDEMPOTENCY_EXECUTING, 'B', FENCE + 5, FENCE },
        { "a probe", NGX_IDEMPOTENCY_PROBE, 1, NGX_IDEMPOTENCY_UNKNOWN, 'B',
          FENCE + 5, FENCE + 5 },
        { "a probe, a lower one", NGX_IDEMPOTENCY_PROBE, 1,
          NGX_IDEMPOTENCY_UNKNOWN, 'B', 7, FENCE + 1 },
        { "a token", NGX_IDEMPOTENCY_ISSUE, 0, 0, 'B', 7, 7 }
    };

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ask(&t, &op, rows[i].type, rows[i].exists, rows[i].state,
            rows[i].owner, rows[i].granted);

        ngx_idempotency_transition(&t);

        ok(t.stored.fence == rows[i].fence, "fence", rows[i].name);
    }
}


/* the mark is at epoch 5, next 10; it never goes back */

static void
test_numbers(void)
{
    ngx_uint_t                     i;
    ngx_idempotency_op_t           op;
    ngx_idempotency_transition_t   t;

    static struct {
        char        *name;
        uint64_t     granted;
        ngx_uint_t   flags;
        uint64_t     epoch;
        uint64_t     number;
        ngx_uint_t   result;
        uint64_t     next_epoch;
        uint64_t     next;
    } rows[] = {
        { "below the mark", 7, 0, 5, 8, NGX_IDEMPOTENCY_GRANTED, 5, 10 },
        { "below the mark, not granted before", 0, 0, 5, 8,
          NGX_IDEMPOTENCY_OUT_OF_ORDER, 5, 10 },
        { "a gap", 7, NGX_IDEMPOTENCY_SEQUENCE_STRICT, 5, 12,
          NGX_IDEMPOTENCY_GRANTED, 5, 13 },
        { "a gap, not granted before", 0, NGX_IDEMPOTENCY_SEQUENCE_STRICT, 5,
          12, NGX_IDEMPOTENCY_OUT_OF_ORDER, 5, 10 },
        { "an old epoch", 7, 0, 4, 12, NGX_IDEMPOTENCY_GRANTED, 5, 10 },
        { "an old epoch, not granted before", 0, 0, 4, 12,
          NGX_IDEMPOTENCY_OUT_OF_ORDER, 5, 10 },
        { "a new epoch", 7, NGX_IDEMPOTENCY_SEQUENCE_STRICT, 6, 7,
          NGX_IDEMPOTENCY_GRANTED, 6, 8 }
    };

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ask(&t, &op, NGX_IDEMPOTENCY_CLAIM, 0, 0, 'B', rows[i].granted);

        op.flags = NGX_IDEMPOTENCY_SEQUENCE|rows[i].flags;
        op.id.epoch = rows[i].epoch;
        op.id.number = rows[i].number;

        t.mark.exists = 1;
        t.mark.epoch = 5;
        t.mark.next = 10;
        t.mark.until = NOW + 1;

        ngx_idempotency_transition(&t);

        ok(t.result == rows[i].result, "claim of a number", rows[i].name);
        ok(t.mark.epoch == rows[i].next_epoch && t.mark.next == rows[i].next,
           "mark", rows[i].name);
    }
}


int
main(void)
{
    test_fences();
    test_numbers();

    printf("1..%u\n", (unsigned) number);

    return failed != 0;
}
