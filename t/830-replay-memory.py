#!/usr/bin/env python3
"""Memory of replays: of one answer there is one copy, however many read it.

Clients that read slowly keep a large answer in a worker's memory.  What that
takes depends on the answers, not on the readers: asked one after the other or
all at once, sealed or not, by HTTP/2, or as waiters for the first request.
"""

import hashlib
import os
import re
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (REDIS, TOP, Client, Gateway, Ledger, executed,  # noqa: E402
                     finish, free_port, ok, same, until)
from h2 import H2  # noqa: E402
from redisd import Redis  # noqa: E402

MB = 1 << 20
SIZE = 4 * MB
READERS = 40
# one that is sent, one that is compared, what malloc() does not give back
COPIES = 6
if 'ASAN_OPTIONS' in os.environ:
    COPIES += 4                   # 16 MB of what was freed, see the Makefile

SECRET = TOP + '/build/secret-%d' % os.getpid()
with open(SECRET, 'wb', opener=lambda p, f: os.open(p, f, 0o600)) as f:
    f.write(os.urandom(32))

up = Ledger()
narrow, narrow_h2 = free_port(), free_port()

# 160 MB at once through a Redis take their time, which the one that the test
# files share does not have
store = REDIS and 'redis://127.0.0.1:%d timeout=20s' % Redis().port

gw = Gateway(up, size='64m', store=store, http='''
    idempotency_max_response 8m;
    proxy_buffers 16 64k;
    send_timeout 300s;
''', server='''
    listen 127.0.0.1:%d sndbuf=32k;
    listen 127.0.0.1:%d http2 sndbuf=32k;
''' % (narrow, narrow_h2), locations='''
    location /hold/ {
        idempotency main;
        idempotency_in_progress wait=30s;
        proxy_pass http://up;
    }
    location /sealed/ {
        idempotency main;
        idempotency_secret %s;
        proxy_pass http://up;
    }
''' % SECRET)


def rss():
    with open('/proc/%d/status' % gw.workers()[0]) as f:
        return int(re.search(r'VmRSS:\s+(\d+)', f.read()).group(1)) * 1024


class Slow(Client):
    """reads the beginning of an answer, and the rest when it is told to"""

    def __init__(self, path, key):
        super().__init__(narrow, path, key, send=False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        self.send(self.bytes)

    def begin(self):
        self.start = self.read_some(1000, 30)
        return b'\r\nIdempotent-Replayed: true\r\n' in self.start

    def rest(self):
        self.sock.settimeout(60)
        data = [self.start]
        while data[-1]:
            data.append(self.sock.recv(MB))
        self.close()
        return b''.join(data).partition(b'\r\n\r\n')[2]


class SlowH2(H2):
    """the same by HTTP/2"""

    def __init__(self, path, key):
        super().__init__(narrow_h2)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        self.request(path, key)

    def begin(self):
        for kind, _, _, _ in self.frames(30):
            if kind == 0:
                return True
        return False


def bounded(name, before, copies=COPIES):
    grown = rss() - before
    print('# %s: %.1f copies' % (name, grown / SIZE))
    ok(grown < copies * SIZE, name + ': memory is that of one answer',
       '%.1f copies' % (grown / SIZE))


def first(path, key):
    a = gw.post(path, key)
    same((a.status, len(a.body)), (201, SIZE), key + ': the first answer')
    executed(up, key, 1, key)
    return hashlib.sha256(a.body).digest()


def whole(name, slow, digest):
    same({hashlib.sha256(c.rest()).digest() for c in slow}, {digest},
         name + ': all get the same bytes')


def test_readers(name, path, at_once):
    digest = first(path, name)
    before = rss()
    slow, begun = [], []
    for _ in range(READERS):
        slow.append(Slow(path, name))
        if not at_once:
            begun.append(slow[-1].begin())
    if at_once:
        begun = [c.begin() for c in slow]
    ok(all(begun), name + ': all replays have begun')
    bounded(name, before)

    # the first of them are not the only owners
    for c in slow[:5]:
        c.close()
    whole(name, slow[5:], digest)
    executed(up, name, 1, name)


def test_h2():
    path = '/big/%d' % SIZE
    first(path, 'h2')
    before = rss()
    slow = [SlowH2(path, 'h2') for _ in range(READERS)]
    ok(all([c.begin() for c in slow]), 'h2: all replays have begun')
    bounded('h2', before)
    for c in slow:
        c.close()


def test_waiters():
    path = '/hold/waitbig/%d' % SIZE
    up.hold()
    head = Slow(path, 'wait')
    up.until('wait')
    before = rss()
    slow = [Slow(path, 'wait') for _ in range(READERS)]
    until(lambda: False, 0.5)
    up.go()
    head.begin()
    ok(all([c.begin() for c in slow]), 'waiters: all replays have begun')
    late = [Slow(path, 'wait') for _ in range(5)]
    ok(all([c.begin() for c in late]), 'waiters: and late ones')
    bounded('waiters', before, COPIES + 2)
    digest = hashlib.sha256(head.rest()).digest()
    whole('waiters', slow + late, digest)
    executed(up, 'wait', 1, 'waiters')


def test_answers():
    """other keys have other bytes, of the same length"""
    path = '/big/%d' % (256 * 1024)
    want = {}
    for i in range(8):
        a = gw.post(path, 'other-%d' % i)
        want['other-%d' % i] = hashlib.sha256(a.body).digest()
    slow = [(key, Slow(path, key)) for key in want for _ in range(4)]
    ok(all([c.begin() for _, c in slow]), 'other answers: all have begun')
    got = {(key, hashlib.sha256(c.rest()).digest()) for key, c in slow}
    same(got, set(want.items()), 'other answers: each has its own')


test_readers('one-by-one', '/big/%d' % SIZE, False)
test_readers('at-once', '/big/%d' % SIZE, True)
test_readers('sealed', '/sealed/big/%d' % SIZE, True)
test_h2()
test_waiters()
test_answers()
gw.stop()
os.unlink(SECRET)
finish()
