
/*
 * The moves of a record: every operation in every state, asked by the owner
 * that the record names and by another one.  Linked with transition.c only;
 * prints TAP.  t/220-model.py drives whole stores through the same moves.
 */


#include "ngx_idempotency_transition.h"
#include "transition.h"


#define NOW        1000000
#define TIME       1700000000
#define FENCE      500           /* of the records */
#define NEW        900           /* of the clock */
#define LEASE      30000
#define TTL        100
#define TOMB       50
#define MONTH      (30 * 24 * 3600)
#define STUB       600


static char  *states[] = {
    "none", "stub", "issued", "executing", "lapsed", "unknown", "asked",
    "done", "tombstone", "cancelled"
};


typedef struct {
    char                  *name;
    ngx_idempotency_op_e   type;
    char                  *how;       /* see test_op() */
    char                  *owner;     /* what comes of it, see test_want() */
    char                  *other;
} test_move_t;


/*
 * For each state two letters: the result (Granted, Exists, Ok, Refused, Not
 * issued), and what becomes of the record:
 *
 *     =  nothing                   l  another end of its lease
 *     o  the owner who is refused  x  executing, as a new try
 *     d  done                      D  done by nobody
 *     u  unknown                   q  unknown, and asked about
 *     i  issued                    s  a stub
 *     b  back: a stub, or issued if it was claimed as an issued key
 *     c  cancelled
 *
 * A "!" behind it: the record is shown with its answer.
 */

static test_move_t  moves[] = {

    /*     no  stub is. ex. la. un. as. do. to. ca. */

    { "claim", NGX_IDEMPOTENCY_CLAIM, "",
      "    -   R=  R=  Gl  Gl  E=! E=! E=! E=! E=!",
      "    Gx  Gx  Gx  E=! E=! E=! E=! E=! E=! E=!" },
    { "claim, other request", NGX_IDEMPOTENCY_CLAIM, "p",
      "    -   R=  R=  Gl  Gl  E=! E=! E=! E=! E=!",
      "    Gx  Gx  Gx  E=! E=! E=! E=! E=! E=! E=!" },
    { "claim, takes unknown", NGX_IDEMPOTENCY_CLAIM, "u",
      "    -   R=  R=  Gl  Gl  E=! E=! E=! E=! E=!",
      "    Gx  Gx  Gx  E=! Gx  Gx  Gx  E=! E=! E=!" },
    { "claim, takes unknown, fingerprint made otherwise",
      NGX_IDEMPOTENCY_CLAIM, "uh",
      "    -   R=  R=  Gl  Gl  E=! E=! E=! E=! E=!",
      "    Gx  Gx  Gx  E=! Gx  Gx  Gx  E=! E=! E=!" },
    { "claim, takes unknown with this fence", NGX_IDEMPOTENCY_CLAIM, "uf",
      "    -   R=  R=  Gl  Gl  E=! E=! E=! E=! E=!",
      "    Gx  Gx  Gx  E=! Gx  Gx  Gx  E=! E=! E=!" },
    { "claim, takes unknown with an old fence", NGX_IDEMPOTENCY_CLAIM, "uF",
      "    -   R=  R=  Gl  Gl  E=! E=! E=! E=! E=!",
      "    Gx  Gx  Gx  E=! E=! E=! E=! E=! E=! E=!" },
    { "claim, takes unknown, other request", NGX_IDEMPOTENCY_CLAIM, "up",
      "    -   R=  R=  Gl  Gl  E=! E=! E=! E=! E=!",
      "    Gx  Gx  Gx  E=! E=! E=! E=! E=! E=! E=!" },
    { "claim, issued only", NGX_IDEMPOTENCY_CLAIM, "i",
      "    -   N=  R=  Gl  Gl  E=! E=! E=! E=! E=!",
      "    N=  N=  Gx  E=! E=! E=! E=! E=! E=! E=!" },

    { "complete", NGX_IDEMPOTENCY_COMPLETE, "k",
      "    -   R=! R=! Od  Od  Od  Od  O=  O=  R=!",
      "    Od  R=! R=! R=! R=! R=! R=! R=! R=! R=!" },
    { "complete, not kept", NGX_IDEMPOTENCY_COMPLETE, "",
      "    -   R=! R=! Od  Od  Od  Od  O=  O=  R=!",
      "    Od  R=! R=! R=! R=! R=! R=! R=! R=! R=!" },
    { "complete, with its fence", NGX_IDEMPOTENCY_COMPLETE, "kf",
      "    -   R=! R=! Od  Od  Od  Od  O=  O=  R=!",
      "    Od  R=! R=! R=! R=! R=! R=! R=! R=! R=!" },

    { "release", NGX_IDEMPOTENCY_RELEASE, "",
      "    -   Oo  Oo  Ob  Ob  R=  R=  R=  R=  R= ",
      "    Os  Oo  Oo  R=  R=  R=  R=  R=  R=  R= " },
    { "release of a number", NGX_IDEMPOTENCY_RELEASE, "n",
      "    -   Oo  Oo  Ob  Ob  R=  R=  R=  R=  R= ",
      "    O=  Oo  Oo  R=  R=  R=  R=  R=  R=  R= " },

    { "mark_unknown", NGX_IDEMPOTENCY_MARK_UNKNOWN, "",
      "    -   R=  R=  Ou  Ou  O=  O=  R=  R=  R= ",
      "    Ou  R=  R=  R=  R=  R=  R=  R=  R=  R= " },

    { "probe", NGX_IDEMPOTENCY_PROBE, "",
      "    -   E=! E=! E=! Gq  Gq  E=! E=! E=! E=!",
      "    E=! E=! E=! E=! Gq  Gq  E=! E=! E=! E=!" },
    { "end of a probe", NGX_IDEMPOTENCY_PROBE, "f",
      "    -   R=  R=  R=  R=  Ou  Ou  R=  R=  R= ",
      "    R=  R=  R=  R=  R=  Ou  Ou  R=  R=  R= " },
    { "end of an old probe", NGX_IDEMPOTENCY_PROBE, "F",
      "    -   R=  R=  R=  R=  R=  R=  R=  R=  R= ",
      "    R=  R=  R=  R=  R=  R=  R=  R=  R=  R= " },

    { "renew", NGX_IDEMPOTENCY_RENEW, "f",
      "    -   R=  R=  Ol  Ol  R=  R=  R=  R=  R= ",
      "    Ox  R=  R=  R=  R=  R=  R=  R=  R=  R= " },

    { "issue", NGX_IDEMPOTENCY_ISSUE, "",
      "    -   Oi  R=  R=  R=  R=  R=  R=  R=  R= ",
      "    Oi  Oi  R=  R=  R=  R=  R=  R=  R=  R= " },

    { "fetch", NGX_IDEMPOTENCY_FETCH, "",
      "    -   O=! O=! O=! O=! O=! O=! O=! O=! O=!",
      "    O=! O=! O=! O=! O=! O=! O=! O=! O=! O=!" },
    { "fetch without answer", NGX_IDEMPOTENCY_FETCH, "b",
      "    -   O=  O=  O=  O=  O=  O=  O=  O=  O= ",
      "    O=  O=  O=  O=  O=  O=  O=  O=  O=  O= " },

    { "resolve as executed", NGX_IDEMPOTENCY_RESOLVE, "xkf",
      "    -   R=! R=! R=! OD  OD  OD  R=! R=! R=!",
      "    R=! R=! R=! R=! OD  OD  OD  R=! R=! R=!" },
    { "resolve as executed, old fence", NGX_IDEMPOTENCY_RESOLVE, "xkF",
      "    -   R=! R=! R=! R=! R=! R=! R=! R=! R=!",
      "    R=! R=! R=! R=! R=! R=! R=! R=! R=! R=!" },
    { "resolve as not executed", NGX_IDEMPOTENCY_RESOLVE, "f",
      "    -   R=  R=  R=  Ob  Ob  Ob  R=  R=  R= ",
      "    R=  R=  R=  R=  Ob  Ob  Ob  R=  R=  R= " },
    { "resolve as not executed, old fence", NGX_IDEMPOTENCY_RESOLVE, "F",
      "    -   R=  R=  R=  R=  R=  R=  R=  R=  R= ",
      "    R=  R=  R=  R=  R=  R=  R=  R=  R=  R= " },

    { "purge", NGX_IDEMPOTENCY_PURGE, "f",
      "    -   R=  Os  R=  Os  Os  Os  Os  Os  Os ",
      "    R=  R=  Os  R=  Os  Os  Os  Os  Os  Os " },
    { "purge, old fence", NGX_IDEMPOTENCY_PURGE, "F",
      "    -   R=  R=  R=  R=  R=  R=  R=  R=  R= ",
      "    R=  R=  R=  R=  R=  R=  R=  R=  R=  R= " },

    { "cancel", NGX_IDEMPOTENCY_CANCEL, "",
      "    -   Oc  Oc  R=  R=  R=  R=  R=  R=  O= ",
      "    Oc  Oc  Oc  R=  R=  R=  R=  R=  R=  O= " },

    { NULL, 0, NULL, NULL, NULL }
};


static ngx_uint_t  number, failed;


static void
ok(ngx_uint_t passed, char *name, char *more, char *what)
{
    number++;
    failed += !passed;

    printf("%s %u - %s: %s\n", passed ? "ok" : "not ok", (unsigned) number,
           name, more);

    if (!passed) {
        printf("# differs: %s\n", what);
    }
}


/* the field that is not as it should be, or NULL */

static char *
test_differs(ngx_idempotency_stored_t *got, ngx_idempotency_stored_t *want)
{
#define differs(field)                                                        \
    if (got->field != want->field) {                                          \
        return #field;                                                        \
    }

    differs(exists);
    differs(state);
    differs(fence);
    differs(lease);
    differs(until);
    differs(issued);
    differs(created);
    differs(attempts);
    differs(keep);
    differs(tombstone);
    differs(status);
    differs(kept);

    if (ngx_memcmp(got->owner, want->owner, NGX_IDEMPOTENCY_OWNER_LEN) != 0) {
        return "owner";
    }

    if (ngx_memcmp(got->fingerprint, want->fingerprint,
                   NGX_IDEMPOTENCY_FINGERPRINT_LEN) != 0)
    {
        return "fingerprint";
    }

    return NULL;
}


/* a record of owner A at its last or, if time changes nothing, any moment */

static void
test_record(ngx_idempotency_stored_t *stored, test_state_e state,
    ngx_uint_t issued)
{
    static ngx_idempotency_state_e  stored_states[] = {
        NGX_IDEMPOTENCY_NONE, NGX_IDEMPOTENCY_NONE, NGX_IDEMPOTENCY_ISSUED,
        NGX_IDEMPOTENCY_EXECUTING, NGX_IDEMPOTENCY_EXECUTING,
        NGX_IDEMPOTENCY_UNKNOWN, NGX_IDEMPOTENCY_UNKNOWN,
        NGX_IDEMPOTENCY_DONE, NGX_IDEMPOTENCY_TOMBSTONE,
        NGX_IDEMPOTENCY_DONE
    };

    ngx_memzero(stored, sizeof(ngx_idempotency_stored_t));

    if (state == NONE) {
        return;
    }

    ngx_memset(stored->owner, 'A', NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memset(stored->fingerprint, 'f', NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    stored->exists = 1;
    stored->state = stored_states[state];
    stored->fence = FENCE;
    stored->created = TIME - 60;
    stored->attempts = 3;
    stored->keep = MONTH;
    stored->lease = NOW + (state == EXECUTING || state == ASKED);
    stored->until = NOW + 1;
    stored->issued = (issued == 1) ? NOW + 1 : (issued == 2) ? NOW : 0;

    switch (state) {

    case ISSUED:
        stored->issued = NOW + 7000;
        break;

    case DONE:
        stored->kept = 1;
        stored->tombstone = TOMB;

        /* fall through */

    case TOMBSTONE:
        stored->status = 201;
        break;

    case CANCELLED:
        ngx_memzero(stored->owner, NGX_IDEMPOTENCY_OWNER_LEN);
        stored->attempts = 0;
        stored->status = NGX_IDEMPOTENCY_CANCELLED_STATUS;
        stored->tombstone = TOMB;
        break;

    default:
        break;
    }
}


static void
test_ask(ngx_idempotency_transition_t *t, ngx_idempotency_op_t *op)
{
    ngx_memzero(t, sizeof(ngx_idempotency_transition_t));

    t->op = op;
    t->now = NOW;
    t->time = TIME;
    t->fence = NEW;
}


/*
 * i issued only, u takes unknown, p other fingerprint, h made otherwise, f the
 * fence of the record, F another one, k keep the answer, x executed, b bare,
 * n number of a sequence
 */

static void
test_op(ngx_idempotency_op_t *op, ngx_idempotency_op_e type, char *how)
{
    ngx_memzero(op, sizeof(ngx_idempotency_op_t));

    op->type = type;
    op->status = 202;
    op->lease = LEASE;
    op->ttl = TTL;
    op->tombstone = TOMB;
    op->keep = (strchr(how, 'k') != NULL);
    op->executed = (strchr(how, 'x') != NULL);
    op->fence = strchr(how, 'f') ? FENCE : strchr(how, 'F') ? FENCE - 1 : 0;
    op->flags = (strchr(how, 'i') ? NGX_IDEMPOTENCY_CLAIM_ISSUED : 0)
                | (strchr(how, 'u') ? NGX_IDEMPOTENCY_CLAIM_UNKNOWN : 0)
                | (strchr(how, 'b') ? NGX_IDEMPOTENCY_FETCH_BARE : 0)
                | (strchr(how, 'n') ? SEQ : 0);

    ngx_memset(op->id.owner, 'B', NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memset(op->id.fingerprint, 'f', NGX_IDEMPOTENCY_FINGERPRINT_LEN);

    if (strchr(how, 'p')) {
        op->id.fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_SUM - 1] = 'g';
    }

    if (strchr(how, 'h')) {
        op->id.fingerprint[NGX_IDEMPOTENCY_FINGERPRINT_LEN - 1] = 'g';
    }
}


/* what "t" becomes: only what is not as before is set */

static void
test_want(ngx_idempotency_transition_t *t, test_state_e before, u_char what)
{
    ngx_idempotency_stored_t    *s;
    const ngx_idempotency_op_t  *op;

    s = &t->stored;
    op = t->op;

    t->change = (what == '=') ? NGX_IDEMPOTENCY_UNCHANGED
                : (what == 'l' || what == 'o') ? NGX_IDEMPOTENCY_TOUCHED
                : NGX_IDEMPOTENCY_MOVED;

    if (what == '=') {
        return;
    }

    if (what == 'l') {
        s->lease = NOW + LEASE;
        return;
    }

    if (what == 'o') {
        ngx_memcpy(s->owner, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);

        if (before == STUBBED) {
            s->until = NOW + s->keep * 1000;
        }

        return;
    }

    if (what == 'c') {
        ngx_memzero(s, sizeof(ngx_idempotency_stored_t));
        s->exists = 1;
        s->state = NGX_IDEMPOTENCY_DONE;
        s->status = NGX_IDEMPOTENCY_CANCELLED_STATUS;
        s->fence = NEW;
        s->created = TIME;
        s->lease = NOW;
        s->until = NOW + TTL * 1000;
        s->tombstone = TOMB;
        return;
    }

    if (before == NONE) {
        s->exists = 1;
        s->created = TIME;
        s->fence = NEW;
    }

    if (what == 'x' || (before == NONE && what != 'i')) {

        /* a new try */

        ngx_memcpy(s->owner, op->id.owner, NGX_IDEMPOTENCY_OWNER_LEN);
        ngx_memcpy(s->fingerprint, op->id.fingerprint,
                   NGX_IDEMPOTENCY_FINGERPRINT_LEN);

        s->attempts++;
        s->keep = MONTH;
        s->lease = NOW;

        if (before == NONE && op->fence
            && op->type != NGX_IDEMPOTENCY_CLAIM)
        {
            /* its owner knows the fence that was lost */

            s->fence = op->fence;

        } else {
            s->fence = NEW;
        }

        if (before < EXECUTING) {
            s->created = TIME;
        }
    }

    switch (what) {

    case 'x':
        s->state = NGX_IDEMPOTENCY_EXECUTING;
        s->lease = NOW + LEASE;
        break;

    case 'D':
        ngx_memzero(s->owner, NGX_IDEMPOTENCY_OWNER_LEN);

        /* fall through */

    case 'd':
        s->state = NGX_IDEMPOTENCY_DONE;
        s->kept = op->keep;
        s->status = 202;
        s->lease = NOW;
        s->until = NOW + TTL * 1000;
        s->tombstone = TOMB;
        break;

    case 'u':
        s->state = NGX_IDEMPOTENCY_UNKNOWN;
        s->lease = NOW;
        break;

    case 'q':
        s->state = NGX_IDEMPOTENCY_UNKNOWN;
        s->lease = NOW + LEASE;
        s->fence = NEW;
        break;

    case 'i':
        s->state = NGX_IDEMPOTENCY_ISSUED;
        s->created = TIME;
        s->fence = NEW;
        s->issued = NOW + TTL * 1000;
        break;

    case 'B':
        s->state = NGX_IDEMPOTENCY_ISSUED;
        break;

    default: /* s */
        s->state = NGX_IDEMPOTENCY_NONE;
        s->keep = STUB;
        s->until = NOW + STUB * 1000;
        s->issued = 0;
        s->status = 0;
        s->kept = 0;
        break;
    }
}


/* issued: 1 that time is not over, 2 it is */

static void
test_move(test_move_t *m, test_state_e before, ngx_uint_t owner,
    ngx_uint_t issued)
{
    char                          *cell, *differs, what;
    char                           name[128];
    ngx_idempotency_op_t           op;
    ngx_idempotency_transition_t   t, want;

    cell = (owner ? m->owner : m->other) + 4 + 4 * before;

    test_op(&op, m->type, m->how);
    test_ask(&t, &op);
    test_record(&t.stored, before, issued);

    if (owner) {
        ngx_memset(op.id.owner, 'A', NGX_IDEMPOTENCY_OWNER_LEN);
    }

    want = t;

    what = cell[1];

    if (what == 'b') {
        what = (issued == 1) ? 'B' : 's';
    }

    test_want(&want, before, what);

    ngx_idempotency_transition(&t);

    differs = test_differs(&t.stored, &want.stored);

    if ("OGENR"[t.result] != cell[0]) {
        differs = "result";

    } else if (t.change != want.change) {
        differs = "change";

    } else if (t.answer != (cell[2] == '!')) {
        differs = "answer";

    } else if (t.mark_moved || t.expects) {
        differs = "mark";
    }

    (void) snprintf(name, sizeof(name), "%s%s by %s", states[before],
                    issued == 0 ? "" : issued == 1 ? ", issued"
                                                   : ", issued long ago",
                    owner ? "its owner" : "another");

    ok(differs == NULL, m->name, name, differs);
}


static void
test_moves(void)
{
    ngx_uint_t    owner, issued;
    test_move_t  *m;
    test_state_e  s;

    for (m = moves; m->name; m++) {
        for (s = NONE; s < STATES; s++) {
            for (owner = (s == NONE); owner < 2; owner++) {
                test_move(m, s, !owner, 0);

                /* the same for a key that was claimed as an issued one */

                for (issued = 1; s >= EXECUTING && s <= ASKED && issued < 3;
                     issued++)
                {
                    test_move(m, s, !owner, issued);
                }
            }
        }
    }
}


static void
test_numbers(void)
{
    char                          *differs;
    uint64_t                       until;
    test_number_t                 *n;
    ngx_idempotency_op_t           op;
    ngx_idempotency_mark_t         mark;
    ngx_idempotency_transition_t   t;

    until = NOW + (uint64_t) (MONTH + 24 * 3600) * 1000;

    for (n = numbers; n->name; n++) {
        test_op(&op, NGX_IDEMPOTENCY_CLAIM, "");
        test_ask(&t, &op);
        test_record(&t.stored, n->before, 0);

        op.flags = n->flags;
        op.id.epoch = n->epoch;
        op.id.number = n->number;

        if (n->mark) {
            t.mark.exists = 1;
            t.mark.epoch = 5;
            t.mark.next = 10;
            t.mark.until = NOW + 1;
        }

        mark = t.mark;

        if (n->next) {
            mark.exists = 1;
            mark.epoch = n->epoch;
            mark.next = n->next;
        }

        if (n->result == GRANTED || !n->mark) {
            mark.until = until;
        }

        ngx_idempotency_transition(&t);

        differs = NULL;

        if (t.result != n->result) {
            differs = "result";

        } else if (t.expects != (n->expected >= 0)
                   || (t.expects && t.expected != (uint64_t) n->expected))
        {
            differs = "expected";

        } else if (t.mark.exists != mark.exists
                   || t.mark.epoch != mark.epoch
                   || t.mark.next != mark.next)
        {
            differs = "mark";

        } else if (t.mark.until != mark.until) {
            differs = "life of the mark";

        } else if (t.mark_moved != (n->next || n->result == GRANTED)) {
            differs = "mark_moved";

        } else if ((t.change == NGX_IDEMPOTENCY_MOVED)
                   != (n->result == GRANTED))
        {
            differs = "change";
        }

        ok(differs == NULL, "claim of a number", n->name, differs);
    }
}


/* the mark goes back with the last number, and only by its owner */

static void
test_number_release(void)
{
    ngx_uint_t                     i;
    ngx_idempotency_op_t           op;
    ngx_idempotency_transition_t   t;

    static struct {
        char          *name;
        test_state_e   state;
        u_char         owner;
        ngx_uint_t     flags;
        uint64_t       epoch;
        uint64_t       number;
        uint64_t       next;
    } rows[] = {
        { "the last one", EXECUTING, 'A', SEQ, 5, 9, 9 },
        { "the last one, lease over", LAPSED, 'A', SEQ, 5, 9, 9 },
        { "one before it", EXECUTING, 'A', SEQ, 5, 8, 10 },
        { "of another epoch", EXECUTING, 'A', SEQ, 4, 9, 10 },
        { "by another", EXECUTING, 'B', SEQ, 5, 9, 10 },
        { "unknown", UNKNOWN, 'A', SEQ, 5, 9, 10 },
        { "released before", STUBBED, 'A', SEQ, 5, 9, 10 },
        { "not known", NONE, 'A', SEQ, 5, 9, 10 },
        { "not of a sequence", EXECUTING, 'A', 0, 5, 9, 10 }
    };

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        test_op(&op, NGX_IDEMPOTENCY_RELEASE, "");
        test_ask(&t, &op);
        test_record(&t.stored, rows[i].state, 0);

        ngx_memset(op.id.owner, rows[i].owner, NGX_IDEMPOTENCY_OWNER_LEN);

        op.flags = rows[i].flags;
        op.id.epoch = rows[i].epoch;
        op.id.number = rows[i].number;

        t.mark.exists = 1;
        t.mark.epoch = 5;
        t.mark.next = 10;

        ngx_idempotency_transition(&t);

        ok(t.mark.next == rows[i].next && t.mark_moved == (t.mark.next != 10),
           "release of a number", rows[i].name, "mark");

        /* the stub of a number is kept as long as its record would be */

        if (t.change == NGX_IDEMPOTENCY_MOVED) {
            ok(t.stored.keep == MONTH
               && t.stored.until == NOW + (uint64_t) MONTH * 1000,
               "the stub of a number is kept", rows[i].name, "until");
        }
    }
}


static void
test_times(void)
{
    uint64_t                  end;
    ngx_uint_t                i;
    ngx_idempotency_stored_t  stored, want;

    static struct {
        char          *name;
        test_state_e   before;
        int64_t        after;       /* msec before or after its end */
        test_state_e   now;
    } rows[] = {
        { "a stub, until its time", STUBBED, -1, STUBBED },
        { "a stub, past it", STUBBED, 0, NONE },
        { "issued, until its time", ISSUED, -1, ISSUED },
        { "issued, past it", ISSUED, 0, NONE },
        { "executing, kept behind its lease", EXECUTING, -1, EXECUTING },
        { "executing, past that", EXECUTING, 0, NONE },
        { "unknown, kept", UNKNOWN, -1, UNKNOWN },
        { "unknown, past that", UNKNOWN, 0, NONE },
        { "done, until its ttl", DONE, -1, DONE },
        { "done, past it", DONE, 0, TOMBSTONE },
        { "done, past it, until the end of its tombstone",
          DONE, TOMB * 1000 - 1, TOMBSTONE },
        { "done, past that", DONE, TOMB * 1000, NONE },
        { "a tombstone, until its time", TOMBSTONE, -1, TOMBSTONE },
        { "a tombstone, past it", TOMBSTONE, 0, NONE }
    }, *r;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        r = &rows[i];
        test_record(&stored, r->before, 0);

        end = (r->before == EXECUTING || r->before == UNKNOWN)
              ? stored.lease + (uint64_t) MONTH * 1000
              : (r->before == ISSUED) ? stored.issued : stored.until;

        ok(ngx_idempotency_transition_due(&stored) == end, "due", r->name,
           "due");

        want = stored;

        if (r->now == NONE) {
            test_record(&want, NONE, 0);

        } else if (r->now != r->before) {
            want.state = NGX_IDEMPOTENCY_TOMBSTONE;
            want.kept = 0;
            want.until = end + TOMB * 1000;
        }

        ngx_idempotency_transition_time(&stored, end + r->after);

        ok(test_differs(&stored, &want) == NULL,
           "time", r->name, test_differs(&stored, &want));
    }
}


static void
test_shown(void)
{
    ngx_uint_t                i;
    ngx_idempotency_record_t  record;
    ngx_idempotency_stored_t  stored;

    static struct {
        test_state_e              before;
        ngx_idempotency_state_e   state;
        ngx_msec_t                lease;
        time_t                    ttl;
        ngx_uint_t                status;
        ngx_uint_t                kept;
    } rows[] = {
        { NONE, NGX_IDEMPOTENCY_NONE, 0, 0, 0, 0 },
        { STUBBED, NGX_IDEMPOTENCY_NONE, 0, 0, 0, 0 },
        { ISSUED, NGX_IDEMPOTENCY_ISSUED, 0, 7, 0, 0 },
        { EXECUTING, NGX_IDEMPOTENCY_EXECUTING, 1, MONTH + 1, 0, 0 },
        { LAPSED, NGX_IDEMPOTENCY_UNKNOWN, 0, MONTH, 0, 0 },
        { UNKNOWN, NGX_IDEMPOTENCY_UNKNOWN, 0, MONTH, 0, 0 },
        { ASKED, NGX_IDEMPOTENCY_UNKNOWN, 1, MONTH + 1, 0, 0 },
        { DONE, NGX_IDEMPOTENCY_DONE, 0, 1, 201, 1 },
        { TOMBSTONE, NGX_IDEMPOTENCY_TOMBSTONE, 0, 1, 201, 0 },
        { CANCELLED, NGX_IDEMPOTENCY_DONE, 0, 1, 410, 0 }
    };

    for (i = 0; i < STATES; i++) {
        ngx_memzero(&record, sizeof(ngx_idempotency_record_t));
        test_record(&stored, rows[i].before, 0);

        ngx_idempotency_transition_show(&stored, NOW, &record);

        ok(record.state == rows[i].state
           && record.lease_left == rows[i].lease
           && record.ttl_left == rows[i].ttl
           && record.status == rows[i].status
           && record.kept == rows[i].kept
           && record.fence == stored.fence
           && record.attempts == stored.attempts
           && record.created == stored.created
           && ngx_memcmp(record.fingerprint, stored.fingerprint,
                         NGX_IDEMPOTENCY_FINGERPRINT_LEN) == 0,
           "shown", states[i], "record");
    }
}


static void
test_bounds(void)
{
    ngx_idempotency_op_t          op;
    ngx_idempotency_transition_t  t;

    test_op(&op, NGX_IDEMPOTENCY_CLAIM, "");
    test_ask(&t, &op);
    test_record(&t.stored, STUBBED, 0);
    t.fence = FENCE;
    ngx_idempotency_transition(&t);

    ok(t.stored.fence == FENCE + 1, "a fence grows", "slow clock", "fence");

    test_ask(&t, &op);
    op.ttl = 2 * MONTH;
    op.tombstone = 3 * MONTH;
    ngx_idempotency_transition(&t);

    ok(t.stored.keep == 3 * MONTH, "kept as long as its answer would be",
       "tombstone", "keep");

    test_ask(&t, &op);
    op.ttl = (time_t) 1 << 40;
    ngx_idempotency_transition(&t);

    ok(t.stored.keep == NGX_MAX_UINT32_VALUE, "a long ttl", "claim", "keep");

    test_op(&op, NGX_IDEMPOTENCY_COMPLETE, "");
    test_ask(&t, &op);
    op.ttl = -1;
    op.tombstone = (time_t) 1 << 40;
    ngx_idempotency_transition(&t);

    ok(t.stored.until == NOW
       && t.stored.tombstone == NGX_MAX_UINT32_VALUE,
       "a ttl below zero, a long tombstone", "complete", "until");

    test_op(&op, NGX_IDEMPOTENCY_CLAIM, "");
    test_ask(&t, &op);
    test_record(&t.stored, DONE, 0);
    t.now = t.stored.until + TOMB * 1000;
    ngx_idempotency_transition(&t);

    ok(t.result == GRANTED && t.stored.attempts == 1,
       "what is past its time is not there", "claim", "result");
}


int
main(void)
{
    test_moves();
    test_numbers();
    test_number_release();
    test_times();
    test_shown();
    test_bounds();

    printf("1..%u\n", (unsigned) number);

    return failed != 0;
}
