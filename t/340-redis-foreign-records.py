#!/usr/bin/env python3
"""The value of a key is foreign data.  A value that cannot be read is a store
error: the request is neither executed nor passed, whatever the policy, and no
worker crashes.  A record lives as long as it says, by the clock of the server.
"""

import os
import random
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     same, until)
from redisd import RECORDS, Redis  # noqa: E402

HEADER = '>BBBBHH16s32sQQQQIIIIIQ'       # as in record.c
FIELDS = ('version state kept x status y owner fp fence lease until created '
          'attempts keep tomb head body issued').split()

up = Ledger()
server = Redis()
gw = Gateway(up, store='redis://127.0.0.1:%d amnesia=0' % server.port,
             locations='''
    location /pass/ {
        idempotency main;
        idempotency_store_error pass;
        proxy_pass http://up;
    }
    location /brief/ {
        idempotency main;
        idempotency_ttl 1s tombstone=1h;
        proxy_pass http://up;
    }
    location /number/ {
        idempotency main;
        idempotency_sequence increasing;
        idempotency_ttl 1s tombstone=1h;
        proxy_pass http://up;
    }
    location /largest/ {
        idempotency slow;
        idempotency_max_response 64m;
        proxy_pass http://up;
    }
''', http='idempotency_store slow redis://127.0.0.1:%d timeout=10s amnesia=0;'
             % server.port)
gw.expected = ['keys may be forgotten']
same(struct.calcsize(HEADER), 116, 'a header of 116 bytes')


def record(path, key):
    """a real one: its name and its bytes"""
    time.sleep(0.1)           # what is still taken back has landed
    server('FLUSHALL')
    gw.post(path, key)
    name, = server('KEYS', RECORDS)
    return name, server('GET', name)


def fields(value):
    return dict(zip(FIELDS, struct.unpack(HEADER, value[:116])))


def changed(value, **changes):
    header = fields(value)
    header.update(changes)
    return struct.pack(HEADER, *(header[f] for f in FIELDS)) + value[116:]


def test_unreadable():
    name, good = record('/ok', 'real')
    size = fields(good)
    same((size['version'], size['state'], size['kept'], size['status'],
          size['head'] + size['body'] + 116),
         (1, 4, 1, 201, len(good)), 'a record is as the test knows it')
    bad = {
        'nothing': b'',
        'a word': b'hello',
        'zeroes': bytes(116),
        'a header less one byte': good[:115],
        'a later version': changed(good, version=2),
        'version 0': changed(good, version=0),
        'version 255': changed(good, version=255),
        'a state that is none': changed(good, state=9),
        'state 255': changed(good, state=255),
        'a header only': good[:116],
        'a byte less': good[:-1],
        'a byte more': good + b'x',
        'a head that is longer': changed(good, head=size['head'] + 1),
        'a body that is longer': changed(good, body=size['body'] + 1),
        'a body that is shorter': changed(good, body=size['body'] - 1),
        'a huge head': changed(good, head=0xffffffff),
        'a huge body': changed(good, body=0xffffffff),
        'both': changed(good, head=0xffffffff, body=0xffffffff),
        'sums that turn round': changed(
            good, head=0xffffffff,
            body=(size['head'] + size['body'] + 1) & 0xffffffff),
        'a head that is none': good[:116] + b'\xff' * size['head']
        + good[116 + size['head']:],
        'the head of another version': good[:116] + b'\x07'
        + good[117:],
    }
    for path in ('/ok', '/pass/ok'):
        name, good = record(path, 'bad')
        for what, value in bad.items():
            server('SET', name, value)
            before = up.count('bad')
            a = gw.post(path, 'bad')
            same((a.status, a.code, a.get('retry-after')),
                 (503, 'store_unavailable', '1'), '%s: %s is refused'
                 % (path, what))
            ok(b'There is a record of this idempotency key' in a.body
               and b'may have been executed' in a.body,
               'and the text does not deny an execution', a.body)
            same(up.count('bad') - before, 0, 'and not executed')
            same(server('GET', name), value, 'and stays as it was')
        server('SET', name, good)
        a = gw.post(path, 'bad')
        same((a.status, a.replayed), (201, True), path + ': the real one')

        for make in (('RPUSH', 'x'), ('HSET', 'a', 'b'), ('SADD', 'x'),
                     ('ZADD', '1', 'x')):
            server(make[0], 'new', *make[1:])
            server('RENAME', 'new', name)
            before = up.count('bad')
            a = gw.post(path, 'bad')
            same((a.status, a.code), (503, 'store_unavailable'),
                 '%s: %s is refused' % (path, make[0]))
            same(up.count('bad') - before, 0, 'and not executed')


def test_unreadable_at_the_end():
    """it became so while the request ran"""
    time.sleep(0.1)
    server('FLUSHALL')
    up.hold()
    c = gw.call('/wait', 'end')
    up.until('end')
    name, = server('KEYS', RECORDS)
    server('SET', name, 'garbage')
    up.go()
    a = c.read()
    same((a.status, a.replayed), (201, False), 'the client has its answer')
    same(server('GET', name), b'garbage', 'what is there is not overwritten')
    a = gw.post('/wait', 'end')
    same((a.status, a.code), (503, 'store_unavailable'), 'a retry is refused')
    executed(up, 'end', 1, 'unreadable at the end')
    time.sleep(1)
    ok(gw.log().count('cannot be read') < 200, 'and nobody tries for ever')


def test_lost():
    """it is written anew, with the fence that the upstream was told"""
    other = dict(state=0, owner=b'o' * 16)
    for key, loss in (('gone', None), ('older', -5), ('newer', 5)):
        time.sleep(0.1)
        server('FLUSHALL')
        up.hold()
        c = gw.call('/wait', key)
        up.until(key)
        name, = server('KEYS', RECORDS)
        value = server('GET', name)
        was = fields(value)
        if loss is None:
            server('DEL', name)
        else:
            server('SET', name, changed(value, fence=was['fence'] + loss,
                                        **other))
        up.go()
        same(c.read().status, 201, key + ': the client has its answer')
        now = fields(server('GET', name))
        same((now['state'], now['owner'], now['fence'] - was['fence']),
             (4, was['owner'], 6 if loss == 5 else 0), key + ': and so has '
             'the record, with its fence or a higher one')
        same(gw.post('/wait', key).replayed, True, key + ': a retry')
        executed(up, key, 1, key)


def test_any_bytes():
    seed = int(os.environ.get('SEED', time.time()))
    print('# SEED=%d' % seed)
    rnd = random.Random(seed)
    name, good = record('/big/300', 'any')
    pid = gw.workers()
    seen = {}
    for i in range(1500):
        value = bytearray(good)
        for _ in range(rnd.choice((1, 1, 2, 5, 40))):
            value[rnd.randrange(len(value))] = rnd.randrange(256)
        if rnd.random() < 0.2:
            value = value[:rnd.randrange(len(value))]
        server('SET', name, bytes(value))
        a = gw.post('/big/300', 'any')
        what = a.code or (a.status, a.whole)
        seen[what] = seen.get(what, 0) + 1
    print('# %r' % seen)
    same(gw.workers(), pid, '1500 damaged records: nobody died')
    ok(seen.get('store_unavailable', 0) > 50, 'many were noticed', seen)
    ok('' not in seen and (0, False) not in seen, 'all were answered', seen)


def test_largest():
    """the largest answer that may be kept is"""
    size = 64 * 1024 * 1024

    def answer():
        with gw.call('/largest/big/%d' % size, 'largest').sock.makefile(
                'rb') as file:
            head, _, body = file.read().partition(b'\r\n\r\n')
        return head.split()[1], b'Idempotent-Replayed: true' in head, body
    status, replayed, body = answer()
    same((status, replayed, len(body)), (b'201', False, size), 'of 64m')
    status, replayed, again = answer()
    same((status, replayed), (b'201', True), 'it is replayed')
    ok(again == body, 'all of it')
    executed(up, 'largest', 1, 'the largest')
    server('FLUSHALL')


def left(key):
    """of the only key that is there"""
    name, = server('KEYS', RECORDS)
    return server('PTTL', name)


def ask(**args):
    a = gw.ask(**args)
    return a.get('result'), a.get('state')


def test_times():
    """what t/202-retention.t tests with a clock of its own"""
    day = 86400000
    server('FLUSHALL')
    same(ask(op='claim', key='a', owner='A', lease=300),
         ('granted', 'executing'), 'claimed')
    n = left('a')
    ok(30 * day - 5000 < n <= 30 * day + 300, 'kept for a lease and 30 days',
       n)
    time.sleep(0.4)
    same(ask(op='fetch', key='a'), ('ok', 'unknown'), 'then unknown')
    same(ask(op='claim', key='a', owner='B'), ('exists', 'unknown'),
         'for others, too')
    gw.ask(op='renew', key='a', owner='A', lease=300)
    same(ask(op='fetch', key='a'), ('ok', 'executing'), 'revived')
    time.sleep(0.4)
    same(ask(op='probe', key='a', lease=300), ('granted', 'unknown'),
         'one may ask')
    same(ask(op='probe', key='a', lease=300), ('exists', 'unknown'),
         'not two')
    time.sleep(0.4)
    same(ask(op='probe', key='a', lease=300), ('granted', 'unknown'),
         'unless the first is overdue')
    same(ask(op='complete', key='a', owner='A', body='x', ttl=1,
             tombstone=1), ('ok', 'done'), 'completed')
    n = left('a')
    ok(1900 < n <= 2000, 'kept for ttl and tombstone', n)
    same(ask(op='fetch', key='a'), ('ok', 'done'), 'done')
    time.sleep(1.1)
    a = gw.ask(op='claim', key='a', owner='B')
    same((a['result'], a['state'], a['status'], a['kept'], a['body']),
         ('exists', 'tombstone', '201', '0', ''), 'then a tombstone')
    ok(until(lambda: server('KEYS', RECORDS) == [], 2), 'then gone')
    same(ask(op='fetch', key='a'), ('ok', 'none'), 'and free')

    ask(op='claim', key='a', owner='A')
    same(ask(op='release', key='a', owner='A'), ('ok', 'none'), 'released')
    n = left('a')
    ok(595000 < n <= 600000, 'a stub for ten minutes', n)

    server('FLUSHALL')
    ask(op='claim', key='a', owner='A', ttl=3000000)
    n = left('a')
    ok(3000000000 < n, 'an unknown is kept as long as the ttl', n)

    server('FLUSHALL')
    same(ask(op='issue', key='a', ttl=1), ('ok', 'issued'), 'issued')
    n = left('a')
    ok(900 < n <= 1000, 'for its ttl', n)
    ask(op='claim', key='a', owner='A', flags='issued')
    time.sleep(1.1)
    same(ask(op='fetch', key='a'), ('ok', 'executing'), 'runs on')
    same(ask(op='release', key='a', owner='A'), ('ok', 'none'),
         'and is not issued again')


def test_tombstone_without_memory():
    """the first read after the ttl drops the answer, if Redis lets it"""
    server('FLUSHALL')
    same(gw.post('/brief/ok', 'brief').status, 201, 'a key')
    for number in ('1', '2'):
        same(gw.post('/number/ok', number).status, 201, 'number ' + number)
    name, = [n for n in server('KEYS', RECORDS) if b'}' not in n]
    ok(until(lambda: server('PTTL', name) < 3599900, 5), 'its ttl is over')
    length = server('STRLEN', name)
    server('CONFIG', 'SET', 'maxmemory', '1')
    same(gw.post('/brief/ok', 'brief').status, 410, 'no memory: a tombstone')
    same(server('STRLEN', name), length, 'no memory: its answer is still there')
    for number in ('2', '1'):
        same(gw.post('/number/ok', number).status, 410,
             'no memory: a tombstone, number ' + number)
    mark, = [n for n in server('KEYS', '*}') if len(n) < 60]
    server('DEL', mark)
    same(gw.post('/number/ok', '2').status, 410,
         'no memory: a tombstone without a mark')
    same(server('EXISTS', mark), 0, 'no memory: which is not made anew')
    server('CONFIG', 'SET', 'maxmemory', '0')
    same(gw.post('/brief/ok', 'brief').status, 410, 'memory: a tombstone')
    same(server('STRLEN', name), 116, 'memory: without its answer')
    ok(3590000 < server('PTTL', name) <= 3600000, 'memory: for its time')
    same(gw.post('/number/ok', '2').status, 410, 'memory: of a number')
    same(server('EXISTS', mark), 1, 'memory: its mark is back')
    same(gw.post('/number/ok', '1').status, 410, 'memory: below it')
    executed(up, 'brief', 1, 'tombstone')


for test in sys.argv[1:] or [n for n in list(globals())
                             if n.startswith('test_')]:
    globals()[test]()
gw.stop()
finish()
