#!/usr/bin/env python3
"""A token is spent once, by the source that it was issued to, before it
expires.

The claim spends it: of many simultaneous requests one is executed, and the
others are its duplicates.  A request that was never executed gives the token
back.  A token that was not issued, was issued to another source, or has
expired is not executed.

Snowflakes are never issued twice, by any worker, and whatever the clock of the
machine does.
"""

import concurrent.futures
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from wallclock import WallClock  # noqa: E402
from gateway import (Gateway, Ledger, executed, finish,  # noqa: E402
                     free_port, ok, same, until)

clock = WallClock()
up = Ledger()

gw = Gateway(up, workers=4, http='''
    idempotency_scope pay;
''', locations='''
    location = /token {
        idempotency_token main;
        idempotency_source $http_client;
    }
    location = /soon {
        idempotency_token main ttl=1s format=uuid7;
        idempotency_source $http_client;
    }
    location = /snow {
        idempotency_token main format=snowflake node=5;
        idempotency_source $http_client;
    }
    location /pay/ {
        idempotency main;
        idempotency_issued on;
        idempotency_source $http_client;
        proxy_pass http://up/;
    }
    location /nobody/ {
        idempotency main;
        idempotency_issued on;
        idempotency_source $http_client;
        proxy_pass http://127.0.0.1:%d/;
    }
''' % free_port())


def fetch(path='/token', client='alice'):
    a = gw.post(path, None, headers=[('Client', client)])
    return json.loads(a.body)['token'] if a.status == 200 else repr(a)


def pay(token, path='/pay/ok', client='alice', body=b'x'):
    return gw.post(path, token, body, headers=[('Client', client)])


# ---- one request ----

token = fetch()
first = pay(token)
same((first.status, first.replayed), (201, False), 'a token is spent')
again = pay(token)
same((again.status, again.body, again.replayed), (201, first.body, True),
     'after that its answer is replayed')
same(pay(token, body=b'y').status, 422, 'another body is a mismatch')
executed(up, token, 1, 'a token that was spent')

token = fetch()
other = pay(token, client='bob')
same((other.status, other.code, other.retry), (403, 'not_issued', 'new-key'),
     "another source's token")
same(pay(token).status, 201, 'is still there for its own')
executed(up, token, 1, 'a token that two have tried')

same((pay('invented').status, pay('invented').code), (403, 'not_issued'),
     'a key that was never issued')
executed(up, 'invented', 0, 'a key that was never issued')

# ---- its time ----

token, spent, back = fetch('/soon'), fetch('/soon'), fetch('/soon')
same(pay(spent).status, 201, 'a token in its time')
same(pay(back, '/nobody/ok').status, 502, 'nobody is there to execute it')
time.sleep(1.6)
a = pay(token)
same((a.status, a.code), (403, 'not_issued'), 'a token past its time')
executed(up, token, 0, 'a token past its time')
a = pay(spent)
same((a.status, a.replayed), (201, True), 'one that was spent in time')
a = pay(back)
same((a.status, a.code), (403, 'not_issued'),
     'one that was given back, past its time')

# ---- given back ----

token = fetch()
same(pay(token, '/nobody/ok').status, 502, 'never sent')
same(pay(token, '/nobody/ok').status, 502, 'and never sent again')
a = pay(token, client='bob')
same((a.status, a.code), (403, 'not_issued'), 'it was not given to others')
a = pay(token)
same((a.status, a.replayed), (201, False), 'the token can still be spent')
same(pay(token).replayed, True, 'and then it is')
executed(up, token, 1, 'a token that came back')

token = fetch()
same(pay(token, '/pay/status/503').status, 503, 'a status to retry')
a = pay(token, '/pay/status/503')
same((a.status, a.replayed), (503, False), 'is executed again')
executed(up, token, 2, 'a token of a retryable status')

# ---- many at a time ----

pool = concurrent.futures.ThreadPoolExecutor(16)

tokens = [fetch() for _ in range(10)]
answers = list(pool.map(pay, tokens * 8, ['/pay/slow/100'] * 80))
same({a.status for a in answers} - {201, 409}, set(),
     'of many requests at a time each is answered or refused')
same([t for t in tokens if up.count(t) != 1], [], 'and each token spent once')

# ---- a reload ----

token = fetch()
workers = gw.workers()
gw.signal(signal.SIGHUP)
ok(until(lambda: gw.workers() and not set(gw.workers()) & set(workers), 20),
   'a reload')
same(pay(token).status, 201, 'a token of before can be spent')

# ---- snowflakes ----


def flakes(n):
    return [int(t) for t in pool.map(fetch, ['/snow'] * n)]


numbers = flakes(300)
before = max(numbers)
same(len(set(numbers)), 300, 'all workers give other numbers')
same({n >> 12 & 1023 for n in numbers}, {5}, 'with the node in them')
age = time.time() - (1704067200 + (before >> 22) / 1000)
ok(abs(age) < 60, 'and the time', age)
ok(before < 1 << 63, 'in 63 bits')

alone = [int(fetch('/snow')) for _ in range(20)]
same(alone, sorted(alone), 'one after the other they grow')

clock.set(-3600)
numbers += alone + flakes(100)
same(len(set(numbers)), 420, 'the clock goes back an hour, the numbers do not')
same(min(numbers[-100:]) > max(alone), True, 'they go on from where they were')
workers = gw.workers()
gw.signal(signal.SIGHUP)
until(lambda: gw.workers() and not set(gw.workers()) & set(workers), 20)
numbers += flakes(100)
same(len(set(numbers)), 520, 'after a reload too')
clock.set(0)
late = flakes(20)
same(min(late) > max(numbers), True, 'and when the clock is right again')
same(pay(str(late[0])).status, 201, 'a number is spent as any token')

gw.stop()
finish()
