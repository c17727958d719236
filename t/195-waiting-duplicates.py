#!/usr/bin/env python3
"""idempotency_in_progress wait=TIME: a duplicate waits for the first request.

It gets the answer as soon as that is stored, on the same worker and on others;
at its deadline it gets 409.  If the first request was released, one of the
waiting duplicates claims and the others continue to wait; if its outcome is
unknown they get 409 outcome_unknown.  A client that leaves frees its place, and
so does a waiter that is refused, before its answer is sent.  A thousand waiters
for one key cost one store operation.
"""

import json
import os
import re
import resource
import signal
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (REDIS, Gateway, Ledger, executed, finish,  # noqa: E402
                     free_port, ok, refused, replays, same, since, until)
from redisd import Redis  # noqa: E402

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE,
                   (min(hard, max(soft, 4096)), hard))

up = Ledger()

HTTP = '''
    idempotency_in_progress wait=20s;
    add_header X-Result $idempotency_result always;
    add_header X-Worker $pid always;
'''
SHORT = '''
    location /short/ {
        idempotency main;
        idempotency_in_progress wait=300ms;
        proxy_pass http://up;
    }
    location /never/ {
        idempotency main;
        idempotency_in_progress reject;
        proxy_pass http://up;
    }
    location = /token {
        idempotency_token main ttl=1s;
        idempotency_scope issued;
    }
    location /issued/ {
        idempotency main;
        idempotency_issued on;
        idempotency_scope issued;
        error_page 403 /page/silent;
        proxy_pass http://up;
    }
    location = /page/silent {
        proxy_pass http://up;
    }
'''


def asked():
    """how often a script was called, on a Redis of our own"""
    if server is None:
        return 0
    found = re.search(rb'cmdstat_evalsha:calls=(\d+)',
                      server('INFO', 'commandstats'))
    return int(found.group(1)) if found else 0


def start(gw, path, key, waiters, port=None):
    """the first request, executing, and those who wait for it"""
    up.hold()
    first = gw.call(path, key, port=port)
    up.until(key)
    return first, [gw.call(path, key, port=port) for _ in range(waiters)]


def settle():
    """time for requests that are on their way to arrive"""
    time.sleep(0.3)


def test_answer(gw):
    first, waiters = start(gw, '/wait', 'answer', 3)
    settle()
    refused(gw, '/wait', 'answer', 'key_reused', 'a mismatch does not wait',
            status=422, body=b'another')
    up.go()
    a = first.read()
    same((a.status, a.get('x-result')), (201, 'new'), 'the first is answered')
    for w in waiters:
        b = w.read()
        same((b.status, b.body, b.replayed, b.get('x-result')),
             (201, a.body, True, 'waited'), 'who waited gets its answer')
    replays(gw, '/wait', 'answer', a, 'later')
    executed(up, 'answer', 1, 'waited for')


def test_deadline(gw):
    first, [w] = start(gw, '/short/wait', 'deadline', 1)
    a = w.read()
    same((a.status, a.code, a.retry, a.get('retry-after')),
         (409, 'in_progress', 'same-key', '1'), 'the deadline')
    up.go()
    first.read()
    executed(up, 'deadline', 1, 'the deadline')


def test_reject(gw):
    first, [w] = start(gw, '/never/wait', 'reject', 1)
    a = w.read()
    same((a.status, a.code), (409, 'in_progress'), 'reject inside of wait')
    up.go()
    first.read()


def test_released(gw):
    """503 is retryable: one of those who wait executes, the others wait on"""
    up.hold()
    first = gw.call('/wait/503', 'released')
    up.until('released')
    waiters = [gw.call('/wait/503', 'released') for _ in range(4)]
    settle()
    up.go()
    same(first.read().status, 503, 'the first is refused by the upstream')
    statuses = sorted(w.read().status for w in waiters)
    same(statuses, [503] * 4, 'each of the others has its own turn')
    executed(up, 'released', 5, 'released each time')

    # and if the second try is the one that counts
    first, waiters = start(gw, '/wait', 'second', 4)
    settle()
    key = gw.record('second', '/wait')
    same(key.get('state'), 'executing', 'the first runs')
    up.go()
    answers = [first.read()] + [w.read() for w in waiters]
    same(len({a.body for a in answers}), 1, 'one answer for all')
    executed(up, 'second', 1, 'one execution for all')


def test_unknown(gw):
    up.hold()
    key = 'unknown'
    first = gw.call('/silent', key)
    up.until(key)
    waiters = [gw.call('/silent', key) for _ in range(3)]
    settle()
    a = first.read(30)
    same(a.status, 504, 'the first times out')
    for w in waiters:
        b = w.read(30)
        same((b.status, b.code), (409, 'outcome_unknown'),
             'who waited is told that nobody knows')
    executed(up, key, 1, 'unknown')


def test_leave(gw):
    """who has gone is not the one to claim"""
    up.hold()
    first = gw.call('/wait/503', 'leave')
    up.until('leave')
    gone = [gw.call('/wait/503', 'leave') for _ in range(3)]
    settle()
    stays = gw.call('/wait/503', 'leave')
    settle()
    for w in gone:
        w.reset()
    settle()
    up.go()
    first.read()
    same(stays.read().status, 503, 'who stays is answered')
    executed(up, 'leave', 2, 'not for those who left')


def test_refused(gw):
    """a token expires while a request with it runs, and that is released"""
    token = json.loads(gw.post('/token', None).body)['token']
    expires = time.time() + 1
    up.hold()
    first = gw.call('/issued/wait/503', token)
    up.until(token)
    waiters = [gw.call('/issued/wait/503', token) for _ in range(3)]
    time.sleep(max(0.5, expires + 0.1 - time.time()))
    up.go()
    same(first.read().status, 503, 'the first request is released')
    # each waiter is refused with 403, whose page the upstream never sends
    ok(until(lambda: up.came('/page/silent') == 3, 10),
       'each waiter has its turn before the answer of another is sent',
       up.came('/page/silent'))
    for w in waiters:
        w.close()
    same(up.came('/issued/wait/503'), 1, 'a token that expired: executed once')


def test_many(gw):
    n = 1000
    first, waiters = start(gw, '/wait', 'many', n)
    time.sleep(1)
    before, began = asked(), time.time()
    up.go()
    a = first.read()
    answers = [w.read(30) for w in waiters]
    asks, took = asked() - before, time.time() - began
    same(sum((b.status, b.body) == (201, a.body) for b in answers), n,
         'a thousand get one answer')
    executed(up, 'many', 1, 'a thousand')
    # each worker asks once or twice, and by its clock while this lasts
    ok(asks <= 12 + 4 * took, 'and cost a handful of looks into the store', asks)


def test_workers(gw):
    """on the other worker, and not by the half-second clock"""
    late = []
    for i in range(7):
        key = 'workers-%d' % i
        first, waiters = start(gw, '/wait', key, 16, spread)
        time.sleep(0.62)
        began = time.time()
        up.go()
        workers = {a.get('x-worker')
                   for a in [first.read()] + [w.read() for w in waiters]}
        if len(workers) == 2:
            late.append(since(began))
        executed(up, key, 1, 'on two workers')
    ok(late, 'both workers have waited')
    print('# all are answered %.1f ms after the upstream (median)'
          % (statistics.median(late or [0]) * 1000))
    ok(not late or min(late) < 0.25, 'nobody had to look at the clock', late)


def test_reload(gw):
    first, waiters = start(gw, '/wait', 'reload', 2)
    settle()
    old = gw.workers()
    gw.signal(signal.SIGHUP)
    until(lambda: len(set(gw.workers()) - set(old)) >= 2)
    waiters += [gw.call('/wait', 'reload') for _ in range(2)]
    settle()
    up.go()
    a = first.read()
    for w in waiters:
        b = w.read()
        same((b.status, b.body), (201, a.body), 'across a reload')
    executed(up, 'reload', 1, 'across a reload')


gw = Gateway(up, workers=1, http=HTTP, default='proxy_read_timeout 3s;',
             locations=SHORT)
test_answer(gw)
test_deadline(gw)
test_reject(gw)
test_released(gw)
test_unknown(gw)
test_leave(gw)
test_refused(gw)
gw.stop()

# nobody else is counted
server = Redis() if REDIS else None

# the kernel deals connections to the workers
spread = free_port()
gw = Gateway(up, workers=2, server='listen 127.0.0.1:%d reuseport;' % spread,
             http=HTTP, locations=SHORT,
             main='worker_rlimit_nofile 4096;',
             store=server and 'redis+unix://%s' % server.path)
test_many(gw)
test_workers(gw)
test_reload(gw)
gw.stop()
finish()
