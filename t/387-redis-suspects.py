#!/usr/bin/env python3
"""idempotency_suspect in Redis: two commands, of which either may be lost.

The look for a suspect is sent together with the claim, to another slot of a
cluster.  Of many requests at the same moment one is executed.  A lost reply is
asked for again; where none comes, "reject" refuses and "report" executes.  A
request that is refused leaves neither a claim nor an entry, and an entry that
is left behind by a lost command makes nobody a suspect.
"""

import os
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from fakeredis import Fake, NOTHING, answer, granted, owner  # noqa: E402
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     same, until)
from redisd import Proxy, Redis  # noqa: E402
from redisset import Cluster  # noqa: E402

ALWAYS = 1000000
DAY = 86400 * 1000
WINDOW = 3000

up = Ledger()
cluster = Cluster(masters=3, replicas=0)
server = Redis()
proxy = Proxy(server)
fake = Fake()

LOCATION = '''
    location /%s/ {
        idempotency %s;
        idempotency_suspect %s window=3s;
        %s
        proxy_pass http://up;
    }
'''

fake.reply = lambda args: answer(0, owner=owner(args))
fake.login = lambda args: b':1\r\n' if args[0] == b'INCR' else b'+OK\r\n'

far = Gateway(up, workers=2, http='''
    idempotency_store far %s prefix=far:;
    idempotency_scope pay;
    add_header X-Suspect $idempotency_suspect always;
''' % cluster.url, locations=LOCATION % ('far', 'far', 'reject', ''))

gw = Gateway(up, http='''
    idempotency_store near redis://127.0.0.1:%d prefix=near: timeout=300ms;
    idempotency_store fake redis://127.0.0.1:%d amnesia=0 timeout=900ms;
    idempotency_scope pay;
    add_header X-Suspect $idempotency_suspect always;
''' % (proxy.port, fake.port),
    locations=LOCATION % ('near', 'near', 'reject', '')
    + LOCATION % ('report', 'near', 'report', '')
    + LOCATION % ('pass', 'near', 'reject', 'idempotency_store_error pass;')
    + LOCATION % ('fake', 'fake', 'reject', '')
    + LOCATION % ('fake-report', 'fake', 'report', '') + '''
    location = /look {
        idempotency_lookup near;
        idempotency_source somebody;
    }
''')


def pay(key, body, path, **args):
    return (far if path.startswith('/far/') else gw).post(
        path, key, body=body, **args)


def passes(key, body, path, name, suspect='0'):
    a = pay(key, body, path)
    same((a.status, a.get('x-suspect')), (201, suspect), name + ': passes')
    executed(up, key, 1, name)


def suspected(key, body, path, name):
    n = up.count(key)
    a = pay(key, body, path)
    same((a.status, a.code, a.retry), (409, 'suspected_duplicate', 'never'),
         name + ': refused')
    same(up.count(key), n, name + ': not executed')


def unavailable(key, body, path, name):
    n = up.count(key)
    a = pay(key, body, path)
    same((a.status, a.code, a.retry), (503, 'store_unavailable', 'same-key'),
         name + ': 503')
    same(up.count(key), n, name + ': not executed')


def state(key):
    a = gw.post('/look', key, body=None, method='GET')
    return 'none' if a.status == 404 else 'there'


def entries():
    return set(server('KEYS', 'near:suspect:*'))


class New:
    """entries that were made meanwhile"""

    def __init__(self):
        self.before = entries()

    def __call__(self):
        return entries() - self.before


def settle():
    """until the connection is a good one again"""
    proxy.clear()
    n = [0]

    def good():
        n[0] += 1
        return pay('settle-%f' % time.time(), b'settle %f' % time.time(),
                   '/near/ok').status == 201
    until(good, 5, 0.05)


def test_cluster():
    for n in range(8):
        body = b'far %d' % n
        passes('far-%d' % n, body, '/far/ok', 'cluster %d' % n)
        suspected('far-%d-2' % n, body, '/far/ok', 'cluster %d' % n)
    nodes = {}
    for node in cluster.nodes:
        for kind, name in (('suspect', 'far:suspect:*'), ('record', 'far:[0-9a-f]*')):
            nodes.setdefault(kind, []).append(len(node('KEYS', name)))
    ok(all(sum(1 for n in found if n) > 1 for found in nodes.values()),
       'they are on several nodes', nodes)
    same(sum(nodes['suspect']), 8, 'one entry for each request')

    for n in range(8):
        body = b'far race %d' % n
        answers = {}
        barrier = threading.Barrier(10)

        def client(i):
            barrier.wait()
            answers[i] = pay('fr%d-%d' % (n, i), body, '/far/slow/30')
        threads = [threading.Thread(target=client, args=(i,))
                   for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same(sorted((a.status, a.code) for a in answers.values()),
             [(201, None)] + [(409, 'suspected_duplicate')] * 9,
             'cluster, race %d: one of them' % n)
        same(sum(up.count('fr%d-%d' % (n, i)) for i in range(10)), 1,
             'cluster, race %d: executed once' % n)


def test_kept():
    """how long there is an entry"""
    new = New()
    up.hold()
    a = gw.call('/near/wait', 'kept', body=b'kept')
    ok(up.until('kept'), 'one is executing')
    name, = new()
    ok(server('PTTL', name) > 30 * DAY, 'its entry outlasts an unknown one')
    suspected('kept2', b'kept', '/near/ok', 'executing')
    up.go()
    same(a.read().status, 201, 'it is done')
    ok(until(lambda: server('PTTL', name) <= WINDOW), 'then for the window',
       server('PTTL', name))
    suspected('kept3', b'kept', '/near/ok', 'done')
    ok(server('PTTL', name) <= WINDOW, 'a suspect does not change it')
    ok(until(lambda: name not in entries(), 10), 'then it is gone')
    same(pay('kept', b'kept', '/near/ok').replayed, True, 'a late duplicate')
    ok(until(lambda: not new(), 5), 'leaves no entry', new())

    new = New()
    same(pay('rel', b'rel', '/near/status/503').status, 503, 'released')
    ok(until(lambda: not new(), 5), 'its entry is gone', new())

    new = New()
    same(pay('unk', b'unk', '/near/reset').status, 502, 'unknown')
    name, = new()
    ok(server('PTTL', name) > 30 * DAY, 'its entry stays')


def test_lost():
    settle()
    proxy.on('suspect', 'lose')
    passes('lost', b'lost', '/near/ok', 'a reply that is lost')
    suspected('lost2', b'lost', '/near/ok', 'and then')
    settle()
    proxy.on('fetch', 'lose')
    suspected('lost3', b'lost', '/near/ok', 'the look at its record is lost')

    for name in ('suspect', 'fetch'):
        settle()
        key = 'late-' + name
        body = key.encode()
        if name == 'fetch':
            passes('late-first', body, '/near/ok', 'the first')
        new = New()
        proxy.on(name, 'late', ALWAYS)
        unavailable(key, body, '/near/ok', 'no reply to ' + name)
        settle()
        ok(until(lambda: state(key) == 'none', 5), 'its claim is taken back')
        if name == 'suspect':
            passes(key, body, '/near/ok', 'then the same key')

    for path, key in (('/report/ok', 'r'), ('/pass/ok', 'p')):
        settle()
        proxy.on('suspect', '-ERR no', ALWAYS)
        passes('no-' + key, b'no ' + key.encode(), path,
               'an error, ' + path, None)
    unavailable('no-s', b'no s', '/near/ok', 'an error')
    settle()


def test_claim_lost():
    """the entry is there, and the claim of its request is not"""
    settle()
    new = New()
    proxy.on('claim', 'late', ALWAYS)
    unavailable('cl', b'cl', '/near/ok', 'no reply to the claim')
    settle()
    ok(until(lambda: state('cl') == 'none', 5), 'it is taken back')
    passes('cl2', b'cl', '/near/ok', 'then a fresh key')


def test_replay():
    """a duplicate does not wait for the look, and leaves nothing"""
    passes('dup', b'dup', '/near/ok', 'the first')
    settle()
    ok(until(lambda: not [e for e in entries() if server('PTTL', e) <= WINDOW],
             10), 'its window is over')
    new = New()
    n = proxy.count('suspect')
    proxy.on('suspect', 'hold')
    begin = time.time()
    a = pay('dup', b'dup', '/near/ok')
    took = time.time() - begin
    same(a.replayed, True, 'a replay while the look is held up')
    ok(took < 0.25, 'at once: %.3f s' % took)
    ok(until(lambda: proxy.count('suspect') > n, 5), 'it was asked')
    proxy.let_go()
    settle()
    ok(until(lambda: not [e for e in new() if server('PTTL', e) > WINDOW], 5),
       'no entry is left')
    passes('dup2', b'dup', '/near/ok', 'then a fresh key')


def test_client_leaves():
    settle()
    n = proxy.count('suspect')
    proxy.on('suspect', 'hold')
    a = gw.call('/near/ok', 'leaves', body=b'leaves')
    ok(until(lambda: proxy.count('suspect') > n, 5), 'the look is held up')
    a.reset()
    proxy.let_go()
    ok(up.until('leaves'), 'its client has left: it is executed')
    settle()
    suspected('leaves2', b'leaves', '/near/ok', 'then a fresh key')


def test_not_shortened():
    """its request is done, and the entry does not know"""
    settle()
    new = New()
    proxy.on('suspect keep', 'cut')
    pay('cut', b'cut', '/near/ok')
    settle()
    executed(up, 'cut', 1, 'the first')
    ok(any(server('PTTL', name) > 30 * DAY for name in new()),
       'its entry stays')
    suspected('cut2', b'cut', '/near/ok', 'within the window')
    n = [2]

    def over():
        n[0] += 1
        return pay('cut%d' % n[0], b'cut', '/near/ok').status == 201
    ok(until(over, 10, 0.1), 'after the window: passes')


def test_by_hand():
    new = New()
    passes('hand', b'hand', '/near/ok', 'the first')
    name, = new()
    mine = server('GET', name)
    same((len(mine), mine[:1]), (57, b'\1'), 'an entry')

    def entry(age, record=b'r' * 32):
        now, = struct.unpack('>Q', mine[-8:])
        passed = int(time.time() * 1000)
        return b'\1' + b'o' * 16 + record \
            + struct.pack('>Q', max(now, passed) - age)

    server('SET', name, entry(0), 'PX', 60000)
    suspected('hand2', b'hand', '/near/ok', 'a claim may be on its way')
    server('SET', name, entry(60000), 'PX', 60000)
    passes('hand3', b'hand', '/near/ok', 'it is not')
    suspected('hand4', b'hand', '/near/ok', 'and from then on')
    for bytes in (b'', b'x', b'\2' + mine[1:], mine + b'x'):
        server('SET', name, bytes, 'PX', 60000)
        unavailable('hand5', b'hand', '/near/ok', 'foreign: %r' % bytes[:8])
    server('DEL', name)
    server('RPUSH', name, 'x')
    unavailable('hand5', b'hand', '/near/ok', 'another type')
    server('DEL', name)
    passes('hand6', b'hand', '/near/ok', 'gone')


def claims(args):
    """only a claim has a lease; its note is behind that"""
    return len(args) == 5 and len(args[4]) >= 130 and any(args[4][48:56])


def test_one_round_trip():
    """a server that replies to the claim when it has both"""
    held = []

    def reply(args):
        if b'suspect:' in args[3]:
            if len(args[4]) < 72:
                return answer(0, owner=owner(args))
            first = held.pop() if held else b''
            return first + answer(1, owner=owner(args))
        if claims(args) and not held:
            held.append(granted(args))
            return NOTHING
        return answer(0, owner=owner(args))
    fake.reply = reply
    ok(until(lambda: pay('warm', b'warm', '/fake/ok').status in (201, 200), 5),
       'it is there')
    a = pay('trip', b'trip', '/fake/ok')
    same((a.status, a.get('x-suspect')), (201, '0'),
         'both are sent before a reply is there')
    executed(up, 'trip', 1, 'one round trip')

    # strange replies to the look, or none
    def strange(value):
        def reply(args):
            if b'suspect:' in args[3] and len(args[4]) == 72:
                return value(args)
            if claims(args):
                return granted(args)
            return answer(0, owner=owner(args))
        return reply
    def warm():
        """until the connection is a good one again"""
        fake.reply = strange(lambda args: answer(1, owner=owner(args)))
        ok(until(lambda: pay('warm-%f' % time.time(), b'%f' % time.time(),
                             '/fake/ok').status == 201, 10, 0.05), 'warm')

    for n, value in enumerate((
            lambda args: answer(0, owner=owner(args)),
            lambda args: answer(4, owner=owner(args)),
            lambda args: answer(1, b'x', owner=owner(args)),
            lambda args: answer(2, owner=owner(args)),
            lambda args: answer(2, b'x' * 55, owner=owner(args)),
            lambda args: answer(2, b'x' * 57, owner=owner(args)),
            lambda args: answer(1, owner=b'x' * 16),
            lambda args: granted(args),
            lambda args: b'+OK\r\n',
            lambda args: b'-ERR no\r\n')):
        warm()
        fake.reply = strange(value)
        a = pay('strange-%d' % n, b'strange %d' % n, '/fake/ok')
        same((a.status, up.count('strange-%d' % n)), (503, 0),
             'a strange reply, %d: 503' % n)

    warm()
    fake.reply = strange(lambda args: NOTHING)
    a = pay('silent', b'silent', '/fake-report/ok')
    same((a.status, a.get('x-suspect')), (201, None), 'none, report: passes')
    executed(up, 'silent', 1, 'none, report')
    warm()
    fake.reply = strange(lambda args: NOTHING)
    a = pay('silence', b'silence', '/fake/ok')
    same((a.status, a.code), (503, 'store_unavailable'), 'none, reject: 503')
    executed(up, 'silence', 0, 'none, reject')


test_cluster()
test_kept()
test_lost()
test_claim_lost()
test_replay()
test_client_leaves()
test_not_shortened()
test_by_hand()
test_one_round_trip()
gw.expected = ['keys may be forgotten']
gw.stop()
far.stop()
finish()
