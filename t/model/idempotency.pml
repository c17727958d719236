/*
 * One key, N attempts at it, each by a worker that may die, through a store
 * that may be slow, deaf, or forget.  What the store does is not written
 * here: transitions.py makes store_*() and time_*() of the table that the
 * real stores are tested with.
 *
 *   -DN=3                 so many attempts
 *   -DS1 -DS2 -DS3        what is to be checked, see below
 *   -DLEASE               a lease can end at any time while one executes
 *   -DRETRY               idempotency_unknown retry
 *   -DFAIL_OPEN           idempotency_store_error pass
 *   -DDEDUP               the upstream knows the key and executes it once
 *   -DACKED               no client is answered before its answer is stored
 *   -DFAILOVER=1          the store fails over and loses what it likes
 *   -DFAILOVER=2          ... but nothing that it has acknowledged
 *   -DGET_SET             a claim looks first and writes then
 *   -DNO_TAKE_BACK        an attempt that got "in progress" forgets that
 *                         an earlier try of its claim got no reply
 *   -DTIMEOUT_FREES       no answer of the upstream releases the key
 *   -DLEASE_FREES -DNO_STUB -DONE_STUB -DNO_OWNER -DLOSER_FREES
 *                         see transitions.py
 */

byte   effects;           /* how often the upstream has executed it */
byte   first;             /* whose execution an upstream with DEDUP knows */
byte   said;              /* whose answer clients have got */
byte   begun;
bit    copy[N + 1];       /* a claim that will arrive later, or never */

#ifdef S3
bit    sent;
byte   ended;
#endif

#include "transitions.pml"

/* the record, and the record as the replica has it */
mtype  st = NONE, rst = NONE;
byte   own, ans, rown, rans;
byte   dead, rdead;       /* a bit for each owner that was or gave up */
bit    failed;

mtype  res = OK;          /* of an operation, until it is read */

#define is(result)  (res == result) -> res = OK

/* an unreachable state proves nothing: what was seen is printed */
c_decl {
    static unsigned  seen;
}

#define SEEN(n, text)                                                         \
    c_code { if (!(seen & 1u << n)) {                                         \
        seen |= 1u << n; printf("seen: %s\n", text); } }


/* S1: executed at most once */

inline execute(me, v)
{
#ifdef DEDUP
    if
    :: effects == 0 -> effects = 1; first = me
    :: else
    fi;
    v = first;
#else
    if
    :: effects < 2 -> effects++
    :: else
    fi;
    v = me;
#endif

    printf("%d: the upstream executes it\n", me);

#ifdef S1
    assert(effects <= 1);
#endif
}


/* S2: all answers are the same answer */

inline say(me, v)
{
    printf("%d: the client gets the answer of %d\n", me, v);

#ifdef S2
    assert(said == 0 || said == v);
#endif

    if
    :: said == 0 -> said = v
    :: else
    fi
}


inline acknowledged()
{
#if FAILOVER == 2
    rst = st; rown = own; rans = ans; rdead = dead
#else
    skip
#endif
}


/*
 * These begin with a step that is always possible: the "else" below would
 * otherwise be one of the choice in which they stand.
 */

inline claim(me)
{
    true;

    if
    :: st == STUB && own != me -> SEEN(15, "taken after a release")
    :: else
    fi;

#ifdef RETRY
    store_claim_retry(me, 0)
#else
    store_claim(me, 0)
#endif
}


inline renew(me)
{
    true;

    if
    :: st == NONE -> SEEN(0, "written anew")
    :: st == STUB && own != me && !DEAD(me) -> SEEN(18, "and above a stub")
    :: st == LAPSED && own == me -> SEEN(1, "a lease revived")
    :: else
    fi;

    store_renew(me, 0)
}


inline complete(me, v)
{
    true;

    if
    :: st == NONE -> SEEN(0, "written anew")
    :: st == STUB && own != me && !DEAD(me) -> SEEN(18, "and above a stub")
    :: (st == LAPSED || st == UNKNOWN) && own == me -> SEEN(2, "late answer")
    :: else
    fi;

    store_complete(me, v);

    if
    :: res == REFUSED -> SEEN(3, "answer refused")
    :: else
    fi
}


#if N == 2
#define copies  (copy[1] + copy[2])
#elif N == 3
#define copies  (copy[1] + copy[2] + copy[3])
#else
#define copies  (copy[1] + copy[2] + copy[3] + copy[4])
#endif


/* an earlier try of the claim may arrive yet */
#ifdef NO_TAKE_BACK
#define TAKES_BACK  false
#else
#define TAKES_BACK  (again == 1)
#endif

#ifdef S3
#define MAY_DIE  false
#else
#define MAY_DIE  true
#endif


proctype attempt(byte me)
{
    byte  v;
    bit   again;

    /* attempts differ in nothing but the name: they begin in this order */
    atomic { begun == me - 1; begun++ }

ask:
#ifdef GET_SET
    atomic {
        if
        :: st == NONE || st == STUB -> printf("%d: sees no record\n", me)
        :: else -> goto over
        fi
    }

    atomic {
        printf("%d: writes its claim\n", me);
        st = EXECUTING; own = me;
        goto work
    }
#endif

    atomic {
        if
        :: claim(me);
           acknowledged();

           if
           :: is(GRANTED);
              printf("%d: claim: granted\n", me);

              if
              :: again -> SEEN(4, "granted again")
              :: else
              fi;

              goto work

           :: st == DONE && is(EXISTS);
              SEEN(5, "replay");
              say(me, ans);
              goto over

           :: st == EXECUTING && is(EXISTS);
              printf("%d: claim: in progress, 409\n", me);
              SEEN(6, "in progress");

              if
              :: TAKES_BACK -> goto take_back
              :: else -> goto lost
              fi

           :: (st == LAPSED || st == UNKNOWN) && is(EXISTS);
              printf("%d: claim: outcome unknown, 409\n", me);
              SEEN(7, "outcome unknown");

              if
              :: TAKES_BACK -> goto take_back
              :: else -> goto over
              fi

           :: is(REFUSED);
              goto over
           fi

        :: claim(me);
           res = OK;
           printf("%d: claim: arrives, its reply is lost\n", me)

        :: copy[me] == 0 ->
           copy[me] = 1;
           printf("%d: claim: on its way, no reply\n", me)

        :: printf("%d: claim: lost\n", me)
        fi
    }

    /* no reply */

    if
    :: again == 0 -> again = 1; goto ask
#ifdef FAIL_OPEN
    :: goto send
#else
    :: goto take_back
#endif
    :: MAY_DIE -> goto dies
    fi;

work:
    if
    :: skip
    :: atomic {
           renew(me);
           acknowledged();

           if
           :: is(REFUSED);
              printf("%d: no longer its own, 503\n", me);
              SEEN(8, "stopped before it was sent");
              goto over
           :: else
           fi
       }
    :: MAY_DIE -> goto dies
    fi;

    if
    :: atomic {
           printf("%d: the upstream cannot be reached\n", me);
           goto take_back
       }
    :: skip
    fi;

send:
    atomic {
#ifdef S3
        sent = 1;
#endif

        if
        :: execute(me, v)
        :: printf("%d: sent, not executed\n", me)
        fi
    }

    if
    :: v != 0

    :: skip ->
#ifdef TIMEOUT_FREES
       goto take_back
#else
       atomic {
           store_mark_unknown(me, 0);
           res = OK;
           printf("%d: no answer of the upstream, marked unknown\n", me);
           goto over
       }
#endif

    :: MAY_DIE -> goto dies
    fi;

    if
    :: skip
    :: atomic { renew(me); acknowledged(); res = OK }
    fi;

    if
    :: atomic {
           complete(me, v);
           acknowledged();

           if
           :: res == OK -> say(me, v)
           :: st == DONE && is(REFUSED);
              SEEN(9, "answer of the record instead");
              say(me, ans)
           :: else -> res = OK; printf("%d: not its own any more, 409\n", me)
           fi;

           goto over
       }

#ifndef ACKED
    :: atomic {
           printf("%d: complete: no reply\n", me);
           say(me, v)
       };

       if
       :: atomic {
              complete(me, v);
              res = OK;
              printf("%d: its answer arrives at the store\n", me);
              goto over
          }
       :: MAY_DIE -> goto dies
       fi
#endif

    :: MAY_DIE -> goto dies
    fi;

lost:
#ifdef LOSER_FREES
    atomic {
        store_release(me, 0);
        res = OK;
        printf("%d: cleans up the key\n", me);
        goto over
    }
#else
    goto over;
#endif

take_back:
    atomic {
        store_release(me, 0);
        res = OK;
        printf("%d: gives the key back\n", me);

        if
        :: copy[me] -> SEEN(10, "taken back before it arrived")
        :: else
        fi;

        goto over
    }

dies:
    atomic {
        if
        :: v -> SEEN(16, "death after the call")
        :: else -> SEEN(17, "death before the call")
        fi;

        printf("%d: its worker dies\n", me);
        goto over
    }

over:
#ifdef S3
    ended++
#else
    skip
#endif
}


inline arrive(me)
{
    copy[me] = 0;
    claim(me);
    printf("%d: its old claim arrives\n", me);

    if
    :: res == REFUSED -> SEEN(11, "late claim refused")
    :: else
    fi;

    res = OK
}


#define DIFFERENT                                                             \
    (rst != st || rown != own || rans != ans || rdead != dead)


active proctype world()
{
end:
    do
#ifdef LEASE
    :: atomic {
           can_LEASE_END;
           time_lease_end();
           SEEN(12, "lease end");
           printf("the lease of %d ends\n", own)
       }
#endif

    :: atomic { copy[1] -> arrive(1) }
    :: atomic { copy[2] -> arrive(2) }
#if N > 2
    :: atomic { copy[3] -> arrive(3) }
#endif
#if N > 3
    :: atomic { copy[4] -> arrive(4) }
#endif

#if FAILOVER
    :: atomic {
           !failed && DIFFERENT ->
           rst = st; rown = own; rans = ans; rdead = dead
       }
    :: atomic {
           !failed ->

           if
           :: rst != st -> SEEN(13, "loss")
           :: else
           fi;

           st = rst; own = rown; ans = rans; dead = rdead; failed = 1;
           printf("the store fails over\n");
           rst = NONE; rown = 0; rans = 0; rdead = 0
       }
#endif
    od
}


/* S3: where nothing was sent and no worker died, no client is locked out */

init
{
    atomic {
        run attempt(1);
        run attempt(2);
#if N > 2
        run attempt(3);
#endif
#if N > 3
        run attempt(4)
#endif
    }

#ifdef S3
    atomic {
        ended == N && copies == 0;

        if
        :: sent == 0 && st == STUB -> SEEN(14, "free in the end")
        :: else
        fi;

        assert(sent || st == NONE || st == STUB)
    }
#endif
}
