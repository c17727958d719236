"""The checker's own test: histories with one thing wrong are told.

Each entry breaks a good history in one place, and names the rule that must
notice it, and no other rule may.
"""

import collections

from checker import Rules, check
from history import Attempt, Effect
from upstream import BARE

Key = collections.namedtuple('Key', 'form status size prefix settled')


def attempt(n, begin, kind='answer', **changes):
    a = Attempt('k', n, 'one', begin, begin + 1, kind, 201, None, n > 1,
                'e.1', 'sum', True, False, False)
    if kind != 'answer':
        a = a._replace(replayed=False, effect=None, digest='', status=409)
    return a._replace(**changes)


def effect(name='e.1', t=1.5, n=1, body='one', status=201, key='k'):
    return Effect(t, name, key, n, body, status)


def refused(n, begin, code, **changes):
    return attempt(n, begin, 'refused', code=code, **changes)


# the first, one in flight, another body, a replay, one without a key
GOOD = [attempt(1, 1), refused(2, 1.6, 'in_progress'),
        refused(3, 3, 'key_reused', body='two'), attempt(4, 5),
        attempt(5, 7),
        refused(6, 9, 'key_missing', key='', keyless=True)]


def but(n, *changed):
    """The good history with another attempt n, or without it."""
    return [a for a in GOOD if a.n != n] + list(changed)


CASES = [
    # rule, what is wrong, attempts, effects, rules, other keys of a key
    (None, 'nothing', GOOD, [effect()], {}, {}),
    ('S1', 'executed twice', GOOD, [effect(), effect('e.2', 6, 5)], {}, {}),
    ('S1', 'freed after it was executed', GOOD,
     [effect(), effect('e.2', 6, 5, status=503)], {}, {}),
    (None, 'freed before it was executed', GOOD,
     [effect('e.0', 1.2, 2, status=503), effect()], {}, {}),
    ('S1', 'executed without a key', GOOD, [effect(), effect(key='')],
     {}, {}),
    (None, 'nginx had no memory for the length', GOOD,
     [effect(body=BARE)], {'bare': True}, {}),
    (None, 'forgotten in between',
     but(5, attempt(5, 7, effect='e.2', replayed=False, digest='other')),
     [effect(), effect('e.2', 7.5, 5)], {'forgets': [6.5]}, {}),
    ('S1', 'forgotten, and executed twice before that', GOOD,
     [effect(), effect('e.2', 6, 5)], {'forgets': [6.5]}, {}),
    ('S2', 'another body of the answer', but(5, attempt(5, 7, digest='x')),
     [effect()], {}, {}),
    ('S3', 'not in the ledger', but(5, attempt(5, 7, effect='e.9')),
     [effect()], {}, {}),
    ('S3', 'of another body', [attempt(1, 1)] + [attempt(
        2, 1.2, body='two')], [effect()], {}, {}),
    ('S3', 'not whole', but(5, attempt(5, 7, whole=False)), [effect()],
     {}, {}),
    ('S4', 'another body is held up', but(3, refused(
        3, 3, 'in_progress', body='two')), [effect()], {}, {}),
    (None, 'another body, and the store is away', but(3, refused(
        3, 3, 'store_unavailable', body='two')), [effect()],
     {'unavailable': True}, {}),
    ('S5', 'a replay without its mark', but(4, attempt(
        4, 5, replayed=False)), [effect()], {}, {}),
    ('S5', 'the first one with the mark', but(1, attempt(
        1, 1, replayed=True)), [effect()], {}, {}),
    ('S6', 'in progress after an answer', but(4, refused(
        4, 5, 'in_progress')), [effect()], {}, {}),
    (None, 'in progress, stored late', but(4, refused(
        4, 5, 'in_progress')), [effect()], {'late': True}, {}),
    ('A', 'a stranger of an answer', GOOD + [attempt(
        7, 1.1, 'nginx', status=502)], [effect()], {}, {}),
    ('A', 'no answer', GOOD + [attempt(7, 1.1, 'none')], [effect()], {}, {}),
    (None, 'no answer to one who has left', GOOD + [attempt(
        7, 1.1, 'none', aborted=True)], [effect()], {}, {}),
    ('A', 'unknown for no reason', GOOD + [refused(
        7, 1.1, 'outcome_unknown')], [effect()], {}, {}),
    ('A', 'the same body is told to be another one', GOOD + [refused(
        7, 1.8, 'key_reused')], [effect()], {}, {}),
    ('A', 'without a key, and not told so', but(6, attempt(
        6, 9, key='', keyless=True)), [effect()], {}, {}),
    ('L1', 'no last word', GOOD, [effect()], {},
     {'settled': refused(9, 60, 'in_progress')}),
    ('L1', 'unknown is no last word', GOOD, [effect()], {},
     {'settled': refused(9, 60, 'outcome_unknown')}),
    (None, 'unknown, and a worker was killed', GOOD, [effect()],
     {'unknown': True}, {'settled': refused(9, 60, 'outcome_unknown')}),
]


def cases():
    """(good, name, detail) for each case"""
    for rule, name, attempts, effects, rules, changes in CASES:
        key = Key('sized', 201, 40, 'pay', attempt(8, 59))
        found = check({'k': key._replace(**changes)}, attempts, effects,
                      Rules(**rules)).violations
        want = {rule} if rule else set()
        # what is wrong with a body may be told twice, never something else
        got = {v.rule for v in found}
        yield got == want, '%s: %s' % (rule or 'good', name), found


if __name__ == '__main__':
    for good, name, detail in cases():
        print('' if good else 'NOT ', 'ok', name, '' if good else detail)
