#!/usr/bin/env python3
"""Each allocation that a request makes fails once.

No process crashes, nothing is executed twice, no answer is given that the
record does not have, and no key stays in progress when its request is gone.

    EVERY=n    only each n-th allocation; 1: all of them
    SEED=n     which ones; printed
"""

import itertools
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from failmalloc import FailMalloc                          # noqa: E402
from gateway import (REDIS, Client, Gateway, Ledger, finish,  # noqa: E402
                     ok, same, until)

# after a failure the store in Redis is not asked for a second
EVERY = int(os.environ.get('EVERY', 16 if REDIS else 4))
SEED = int(os.environ.get('SEED', time.time_ns() % 1000000))
LEASE = 2

memory = FailMalloc()
up, query = Ledger(), Ledger()
gw = Gateway(up, http='idempotency_lease %ds;' % LEASE, locations='''
    location /file/ {
        idempotency main;
        client_body_buffer_size 1k;
        client_body_in_file_only clean;
        proxy_pass http://up;
    }
    location /message/ {
        idempotency main;
        idempotency_profile jsonrpc;
        proxy_pass http://up;
    }
    location /pass/ {
        idempotency main;
        idempotency_store_error pass;
        proxy_pass http://up;
    }
    location /probe/ {
        idempotency main;
        idempotency_unknown probe=/ask;
        proxy_pass http://up;
    }
    location /caught/ {
        idempotency main;
        error_page 400 409 422 500 502 503 /error;
        proxy_pass http://up;
    }
    location /backup/ {
        idempotency main;
        error_page 500 502 503 = @backup;
        proxy_pass http://up;
    }
    location @backup { proxy_pass http://up; }
    location /page/ {
        idempotency main;
        error_page 500 502 503 /sorry;
        proxy_pass http://up;
    }
    location = /sorry {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://127.0.0.1:%d/ok;
    }
    location = /error { internal; return 200 "caught\\n"; }
    location = /ask { internal; proxy_pass http://127.0.0.1:%d/ok; }
''' % (query.port, query.port))
gw.expected += ['alloc(', 'memalign(', 'SQLite: out of memory']
until(gw.workers, 20)
worker = gw.workers()
numbers = itertools.count()
rng = random.Random(SEED)

# name: path, and the key: asked for before with the same or another body
PATHS = {
    'a first request': ('/ok', None),
    'a long answer': ('/big/40000', None),
    'an answer in pieces': ('/trailers', None),
    'an answer with a header': ('/ok?h=X-Accel-Idempotency:final;%20ttl=900'
                                '&h=Link:a&h=Cache-Control:b', None),
    'a body in a file': ('/file/ok', None),
    'a message of JSON-RPC': ('/message/ok', None),
    'a replay of JSON-RPC': ('/message/ok', 'same'),
    'a release': ('/status/503', None),
    'nobody answers': ('/reset', None),
    'a cut answer': ('/cut/10', None),
    'a store that may be passed': ('/pass/ok', None),
    'a replay': ('/ok', 'same'),
    'a replay, with a backup': ('/backup/ok', 'same'),
    'nobody answers, with a backup': ('/backup/reset', None),
    'an unknown, with a backup': ('/backup/reset', 'same'),
    'a first request, with a page': ('/page/ok', None),
    'a long replay': ('/trailers', 'same'),
    'another body': ('/ok', 'other'),
    'another body, caught': ('/caught/ok', 'other'),
    'no key': ('/ok', 'none'),
    'a bad key': ('/ok', 'bad'),
    'an unknown': ('/reset', 'same'),
    'a probe': ('/probe/reset', 'same'),
}


def ready():
    """the store is there, also after a connection to it was lost"""
    return until(lambda: gw.post('/ok', 'w-%d' % next(numbers)).status == 201,
                 10)


def one(name, path, before, n):
    """The n-th allocation fails; whether there was one."""
    ready()
    key = '%s-%d' % (name.replace(' ', '-'), n)
    body = (b'b' * 3000 if path.startswith('/file')
            else b'{"id":1,"params":{"_meta":{"idempotencyKey":"%s"}}}'
            % key.encode() if path.startswith('/message') else b'x')
    first = None
    if before in ('same', 'other'):
        first = gw.post(path, key, body)
    sent, ask = key, body
    if before == 'other':
        ask = b'another'
    if before == 'none':
        sent = None
    if before == 'bad':
        sent = '"' + key
    client = Client(gw.port, path, sent, ask, send=False)
    # what the connection needs is nginx's; the header is there before
    time.sleep(0.002)
    memory.arm(worker[0], n)
    client.send(client.bytes)
    answer = client.read(10)
    if answer.status == 0:
        time.sleep(0.01)        # it may still be working
    failed = memory.disarm()
    return failed, Case(name, key, path, body, before, first, answer)


class Case:
    def __init__(self, name, key, path, body, before, first, answer):
        self.name, self.key, self.path = name, key, path
        self.body, self.before = body, before
        self.first, self.answer = first, answer

    def __repr__(self):
        return '%s: %s, %r, executed %d times' % (
            self.key, self.before, self.answer, up.count(self.key))


def test(name):
    path, before = PATHS[name]
    # a location that has never proxied may be one that answers by itself
    gw.post(path, 'w-%d' % next(numbers),
            b'{}' if path.startswith('/message') else b'b' * 3000)
    cases, n = [], rng.randrange(EVERY) + 1
    while True:
        failed, case = one(name, path, before, n)
        if not failed:
            break
        cases.append(case)
        n += EVERY
        if gw.workers() != worker:
            break
    same(gw.workers(), worker, '%s: %d allocations failed, one at a time'
         % (name, len(cases)))
    return cases


def check(cases):
    wrong = [c for c in cases if up.count(c.key) > (
        2 if c.path.startswith('/status') else 1)]
    ok(not wrong, 'nothing was executed twice', wrong[:5])
    wrong = [c for c in cases if c.answer.timed_out]
    ok(not wrong, 'nobody waits for ever', wrong[:5])
    wrong = [c for c in cases if c.answer.status == 201 and (
        not c.answer.whole
        or int(c.answer.get('x-effect') or 0) not in
        [e[0] for e in up.of(c.key)] + [e[0] for e in query.entries])]
    ok(not wrong, 'an answer is that of the execution', wrong[:5])


def settle(cases):
    """Nobody works on them: the retry runs, or says what is."""
    seen, stuck, twice, other, lost = {}, [], [], [], []
    for c in cases:
        if c.before in ('none', 'bad'):
            continue
        n = up.count(c.key)
        a = gw.post(c.path, c.key, c.body)
        seen[a.code or a.status] = seen.get(a.code or a.status, 0) + 1
        if a.code in ('in_progress', 'store_unavailable'):
            stuck.append((c, a))
        if up.count(c.key) > max(1, n) and a.status != 503:
            twice.append((c, a))
        if n == 0 and up.count(c.key) == 0:
            lost.append((c, a))
        final = [x for x in (c.first, c.answer, a)
                 if x is not None and x.status == 201]
        if len({x.body for x in final}) > 1:
            other.append((c, a))
    print('# retries got %r' % seen)
    ok(not stuck, 'no key stays in progress', stuck[:5])
    ok(not twice, 'no retry executes it again', twice[:5])
    ok(not other, 'all answers of a key are the same', other[:5])
    ok(not lost, 'what was not executed can be', lost[:5])


print('# SEED=%d' % SEED)
all_ = []
for name in sys.argv[1:] or PATHS:
    all_ += test(name)
check(all_)
time.sleep(LEASE + 0.5)
ok(ready(), 'the store is there')
settle(all_)
ok(len(all_) >= 8, '%d allocations failed' % len(all_))
gw.stop()
finish()
