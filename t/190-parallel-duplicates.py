#!/usr/bin/env python3
"""Duplicates that come at the same moment execute once.

Forty connections to two workers are open and have sent all but the last byte
of one request; then that byte is sent on all of them.  The upstream writes
down each execution before it answers.  One request is executed and gets the
answer; the others get the same answer as a replay, or 409 in_progress, and
what comes later gets the replay.  Sources do not see each other's records,
and another body under the same key is never executed.

On Redis they go to two gateways with two workers each, which share it.

ROUNDS=n makes it longer or shorter.
"""

import collections
import itertools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (REDIS, Client, Gateway, Ledger, finish,  # noqa: E402
                     ok, same)

ROUNDS = int(os.environ.get('ROUNDS', 200))
MIXED = max(4, ROUNDS // 8)
PARALLEL = 40

# the first answers before, while and after the duplicates come
PATHS = ['/pay/ok', '/pay/slow/3', '/pay/slow/15', '/pay/drip/3/2']

up = Ledger()


def gateway(**args):
    return Gateway(up, workers=2, level='warn', default='''
            idempotency_source $http_x_source;
            add_header X-Worker $pid always;
''', **args)


gateways = [gateway()]
if REDIS:
    gateways.append(gateway(store=gateways[0].conf['store']))

turns = itertools.count()
seen = collections.Counter()
workers = collections.Counter()


def release(requests):
    """Sends (path, key, source, body) at the same moment; the answers."""
    turn = next(turns)
    # eight at a time: all sources and bodies meet all gateways
    clients = [Client(gateways[(turn + n // 8) % len(gateways)].port, path,
                      key, body, headers=[('X-Source', source)], send=False)
               for n, (path, key, source, body) in enumerate(requests)]
    for c in clients:
        c.send(c.bytes[:-1])
    for c in clients:
        c.send(c.bytes[-1:])
    answers = [c.read() for c in clients]
    for a in answers:
        workers[a.get('x-worker')] += 1
        seen[kind(a)] += 1
    return answers


def kind(a):
    if a.status == 201 and a.whole:
        return 'replayed' if a.replayed else 'executed'
    return '%d %s' % (a.status, a.code)


def judge(answers, allowed):
    """What is wrong with the answers to one request and its duplicates."""
    kinds = collections.Counter(kind(a) for a in answers)
    bodies = {a.body for a in answers if a.status == 201}
    wrong = ['%d times %s' % (n, k) for k, n in kinds.items()
             if k not in allowed]
    if kinds['executed'] != 1:
        wrong.append('%d answers are no replay' % kinds['executed'])
    if len(bodies) != 1:
        wrong.append('%d different answers: %s' % (len(bodies), bodies))
    return wrong, bodies


def retry(path, key, source, body, bodies):
    [a] = release([(path, key, source, body)])
    if kind(a) != 'replayed' or {a.body} != bodies:
        return ['the retry got %r, not %r' % (a, bodies)]
    return []


def executions(key, expected):
    n = up.count(key)
    return [] if n == expected else ['executed %d times' % n]


def duplicates(i):
    path, key = PATHS[i % len(PATHS)], 'same-%d' % i
    answers = release([(path, key, 'alice', b'{"amount":1}')] * PARALLEL)
    wrong, bodies = judge(answers, ('executed', 'replayed',
                                    '409 in_progress'))
    wrong += executions(key, 1)
    wrong += retry(path, key, 'alice', b'{"amount":1}', bodies)
    return wrong + executions(key, 1)


def sources(i):
    path, key = PATHS[i % len(PATHS)], 'sources-%d' % i
    names = ['alice', 'bob', 'carol', 'dave']
    answers = release([(path, key, names[n % len(names)], b'x')
                       for n in range(PARALLEL)])
    wrong, effects = executions(key, len(names)), set()
    for n, name in enumerate(names):
        bad, bodies = judge(answers[n::len(names)],
                            ('executed', 'replayed', '409 in_progress'))
        wrong += ['%s: %s' % (name, w) for w in bad]
        wrong += retry(path, key, name, b'x', bodies)
        effects |= bodies
    if len(effects) != len(names):
        wrong.append('sources share an answer: %s' % effects)
    return wrong + executions(key, len(names))


def bodies(i):
    path, key = PATHS[i % len(PATHS)], 'bodies-%d' % i
    variants = [b'{"amount":1}', b'{"amount":2}']
    answers = release([(path, key, 'alice', variants[n % 2])
                       for n in range(PARALLEL)])
    wrong = executions(key, 1)
    if wrong:
        return wrong
    mine = variants.index(up.of(key)[0][5])
    bad, effects = judge(answers[mine::2], ('executed', 'replayed',
                                            '409 in_progress'))
    wrong += bad
    others = collections.Counter(kind(a) for a in answers[1 - mine::2])
    if set(others) != {'422 key_reused'}:
        wrong.append('the other body got %s' % dict(others))
    wrong += retry(path, key, 'alice', variants[mine], effects)
    return wrong + executions(key, 1)


def rounds(n, function, name):
    wrong = []
    for i in range(n):
        wrong += ['round %d: %s' % (i, w) for w in function(i)]
    ok(not wrong, name, '\n'.join(wrong[:20]))


rounds(ROUNDS, duplicates, '%d rounds of %d duplicates: one execution each'
       % (ROUNDS, PARALLEL))
rounds(MIXED, sources, '%d rounds with four sources: one execution for each'
       % MIXED)
rounds(MIXED, bodies, '%d rounds with two bodies: one is executed, the other '
       'is refused' % MIXED)

print('# ' + ', '.join('%d %s' % (n, k) for k, n in seen.most_common()))
print('# by worker: %s' % sorted(workers.values()))

# or nothing of this was proved

for what in ('executed', 'replayed', '409 in_progress', '422 key_reused'):
    ok(seen[what], 'some were %s' % what)

same(len(workers), 2 * len(gateways), 'all workers have answered')

for gw in gateways:
    gw.stop()
finish()
