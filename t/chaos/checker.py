"""The promise, checked afterwards from the clients' history and the ledger.

    S1  a key is executed at most once
    S2  all answers of a key are the same, byte for byte
    S3  an answer is whole, and that of an execution with its key and body
    S4  another body never executes, and is told so (422)
    S5  the mark of a replay is on all answers but that of the execution
    S6  after an answer every later attempt gets it again
    A   nobody gets anything else than this campaign may bring
    L1  every key comes to its last word

An execution that the upstream answers with a retryable status frees the key,
and counts as none.  L2 (nothing left pending, no descriptor, no memory, no
alarm in the log) is looked at by rig.py, while nginx is still there.
"""

import collections

from history import NEITHER, RETRYABLE
from upstream import BARE
from workload import MAX_RESPONSE

Violation = collections.namedtuple('Violation', 'rule key text')


class Rules:
    """What a campaign may bring besides answers."""

    unavailable = False   # 503: the store is away
    unknown = False       # 409 outcome_unknown as a last word
    lost = False          # connections that break
    cuts = False          # an answer breaks off that was not held
    errors = ()           # nginx's own answers, as 502
    late = False          # an answer may have been given before it was stored
    unkept = False        # there may be no memory to keep an answer
    bare = False          # nor for the Content-Length that nginx sends
    settles = True        # L1 is judged
    again = ()            # prefixes where an unknown is tried again
    forgets = ()          # moments at which the store may have lost its keys

    def __init__(self, **changes):
        for name, value in changes.items():
            if not hasattr(self, name):
                raise ValueError('no such rule: ' + name)
            setattr(self, name, value)


class Result:
    def __init__(self):
        self.violations = []
        self.lost = set()         # keys that a store has forgotten

    def add(self, rule, key, text):
        self.violations.append(Violation(rule, key, text))


def check(keys, attempts, effects, rules):
    """keys: {name: Key}; what is read of a key: form, status, size, prefix,
    settled."""
    result = Result()
    of_key = collections.defaultdict(lambda: ([], []))

    for a in attempts:
        if not a.keyless:
            of_key[a.key][0].append(a)
        elif a.kind != 'none' and a.code != 'key_missing' \
                or a.kind == 'none' and not rules.lost:
            if a.status not in rules.errors:
                result.add('A', '', 'without a key: %s' % describe(a))
    for e in effects:
        if e.body == BARE and rules.bare:
            e = e._replace(body=next(a.body for a in attempts
                                     if (a.key, a.n) == (e.key, e.n)))
        if e.key in keys:
            of_key[e.key][1].append(e)
        else:
            result.add('S1', e.key, 'executed, and nobody has asked for it')

    for name, key in keys.items():
        mine, done = of_key[name]
        mine.sort(key=lambda a: a.begin)
        done.sort(key=lambda e: e.t)
        check_key(key, name, mine, done, rules, result)
    return result


def check_key(key, name, attempts, effects, rules, result):
    counted = [e for e in effects if e.status not in RETRYABLE]

    if forgotten(counted, attempts, rules):
        result.lost.add(name)
        return

    again = key.prefix in rules.again

    if not again:
        if len(counted) > 1:
            result.add('S1', name, 'executed %d times' % len(counted))
        elif counted and effects[-1] is not counted[0]:
            result.add('S1', name, 'executed again after its last execution')

    answers = [a for a in attempts if a.kind == 'answer']
    last = [a for a in answers if a.status not in RETRYABLE]

    if len({a.digest for a in last}) > 1:
        result.add('S2', name, '%d different answers'
                   % len({a.digest for a in last}))

    check_answers(name, answers, {e.effect: e for e in effects}, again,
                  result)
    check_bodies(name, attempts, counted, rules, result)
    check_replays(key, name, attempts, last, rules, result)
    check_outcomes(key, name, attempts, counted, rules, result)
    if rules.settles:
        check_last(key, name, rules, result)


def forgotten(counted, attempts, rules):
    """Were all executions but the first due to a loss of the store?"""
    if len(counted) < 2 or not rules.forgets:
        return False
    begin = {a.n: a.begin for a in attempts}
    for one, two in zip(counted, counted[1:]):
        # the claim is older than the execution, by less than its attempt
        if not any(begin.get(one.n, one.t) <= t <= two.t
                   for t in rules.forgets):
            return False
    return True


def check_answers(name, answers, effects, again, result):
    for a in answers:
        e = effects.get(a.effect)
        if e is None:
            result.add('S3', name, 'not in the ledger: %s' % describe(a))
            continue
        if e.body != a.body:
            result.add('S3', name, 'of another body: %s' % describe(a))
        if not a.whole:
            result.add('S3', name, 'not whole: %s' % describe(a))
        if a.replayed == (a.n == e.n) and not (again and a.replayed):
            result.add('S5', name, 'executed by attempt %d: %s'
                       % (e.n, describe(a)))


def check_bodies(name, attempts, counted, rules, result):
    if not counted:
        return
    first = counted[0]
    if any(e.body != first.body for e in counted):
        result.add('S4', name, 'executed with two bodies')
    for a in attempts:
        if a.body == first.body or a.begin <= first.t or a.kind == 'none':
            continue
        if a.code == 'key_reused':
            continue
        if a.code == 'store_unavailable' and rules.unavailable:
            continue
        if a.kind == 'nginx' and a.status in rules.errors:
            continue
        result.add('S4', name, 'with another body: %s' % describe(a))


def check_replays(key, name, attempts, last, rules, result):
    if not last:
        return
    first = min(last, key=lambda a: a.end)
    for a in attempts:
        if a.begin <= first.end or a.body != first.body:
            continue
        if a.kind == 'none':
            continue              # see check_outcomes()
        if a.code == 'store_unavailable' and rules.unavailable:
            continue
        if a.kind == 'nginx' and a.status in rules.errors:
            continue
        if first.status in NEITHER:
            good = a.code == 'outcome_unknown'
        elif key.size > MAX_RESPONSE:
            good = a.code == 'response_not_kept'
        else:
            good = a.kind == 'answer'
        if rules.late and a.code in ('in_progress', 'outcome_unknown'):
            continue
        if rules.unkept and a.code == 'response_not_kept':
            continue
        if not good and not (key.prefix in rules.again
                             and first.status in NEITHER):
            result.add('S6', name, 'after attempt %d was answered: %s'
                       % (first.n, describe(a)))


def check_outcomes(key, name, attempts, counted, rules, result):
    unknown = rules.unknown or key.status in NEITHER
    for a in attempts:
        if a.kind == 'answer':
            good = True
        elif a.kind == 'none':
            good = a.aborted or rules.lost or rules.cuts and not held(key)
        elif a.kind == 'nginx':
            good = a.status in rules.errors
        elif a.code == 'in_progress':
            good = True
        elif a.code == 'key_reused':
            # sure only if no other claim can have come and gone
            good = (not counted or a.body != counted[0].body
                    or a.end < counted[0].t or key.form == 'flaky'
                    or rules.unavailable)
        elif a.code == 'outcome_unknown':
            good = unknown or rules.late
        elif a.code == 'response_not_kept':
            good = key.size > MAX_RESPONSE or rules.unkept
        elif a.code == 'store_unavailable':
            good = rules.unavailable
        else:
            good = False
        if not good:
            result.add('A', name, describe(a))


def held(key):
    """Is its answer sent when it is stored, and not as it comes?"""
    return (key.size <= MAX_RESPONSE and key.status not in NEITHER
            and key.form != 'flaky')


def check_last(key, name, rules, result):
    a = key.settled
    if a is None or a.kind == 'answer' and a.status not in RETRYABLE:
        return
    if a.code == 'response_not_kept' and (key.size > MAX_RESPONSE
                                          or rules.unkept):
        return
    if a.code == 'outcome_unknown' and (rules.unknown
                                        or key.status in NEITHER):
        return
    result.add('L1', name, 'the last word was: %s' % describe(a))


def describe(a):
    return 'attempt %d got %s %s%s' % (
        a.n, a.kind, a.code or a.effect or a.status,
        ' replayed' if a.replayed else '')
