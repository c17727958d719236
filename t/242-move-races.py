#!/usr/bin/env python3
"""from=STORE: a gateway that knows both stores and one that knows the old store
only, at every moment in which one of them could go wrong.  Commands to either
store are held, lost, or never answered; workers die between two steps; the old
store is away, slow or full.  Nothing is executed twice, and nobody is locked
out by a request that was never sent.

/old/ is a gateway that was not reloaded yet, /new/ one that has "from=".
"""

import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, same, until)
from redis_clock import Clock  # noqa: E402
from redisd import Proxy, Redis  # noqa: E402

up = Ledger()
one, two = Redis(), Redis()
old, new = Proxy(one), Proxy(two)

LOCATIONS = '''
    location /%(at)s/pay/ {
        idempotency %(at)s;
        idempotency_scope pay;
        proxy_pass http://up/;
    }
    location /%(at)s/wait/ {
        idempotency %(at)s;
        idempotency_scope pay;
        idempotency_in_progress wait=15s;
        proxy_pass http://up/;
    }
    location /%(at)s/retry/ {
        idempotency %(at)s;
        idempotency_scope pay;
        idempotency_unknown retry;
        proxy_pass http://up/;
    }
    location /%(at)s/pass/ {
        idempotency %(at)s;
        idempotency_scope pay;
        idempotency_store_error pass;
        proxy_pass http://up/;
    }
    location /%(at)s/number/ {
        idempotency %(at)s;
        idempotency_scope number;
        idempotency_sequence strict;
        proxy_pass http://up/;
    }
    location = /%(at)s/admin {
        idempotency_lookup %(at)s admin;
        idempotency_scope pay;
        allow all;
    }
'''

STATS = 'location = /stats { idempotency_stats; }'

# old gateways, and a new one that is faster, have a way of their own
gw = Gateway(up, workers=1, size='1m', main='worker_shutdown_timeout 300ms;',
             http='''
    idempotency_lease 1500ms;
    idempotency_store plain redis://127.0.0.1:%d timeout=2s;
    idempotency_store old redis://127.0.0.1:%d timeout=2s;
    idempotency_store new redis://127.0.0.1:%d timeout=2s prefix=new: from=plain;
    idempotency_store fast redis://127.0.0.1:%d timeout=2s prefix=new: from=old;
''' % (old.port, one.port, new.port, two.port), locations=STATS + ''.join(
    LOCATIONS % dict(at=at) for at in ('old', 'new', 'fast')))


def send(path, key, **args):
    return gw.post(path, key, timeout=20, **args)


def says(path, key, want, name):
    got = send(path, key)
    same((got.status, got.code), want, name)


def all_replay(path, key, first, name):
    for at in 'new', 'old':
        again = send('/%s/%s' % (at, path), key)
        same((again.status, again.body), (first.status, first.body),
             '%s: %s' % (name, at))


def waits(proxy, name, n):
    """n more commands of this name have come"""
    return until(lambda: proxy.count(name) >= n, 10)


def die():
    """the worker, and another one begins"""
    pid, = gw.workers()
    os.kill(pid, signal.SIGKILL)
    ok(until(lambda: gw.workers() not in ([], [pid]), 10), 'another worker')
    gw.expected.append('exited on signal 9')
    # its connections to both stores
    ok(until(lambda: send('/new/pay/ok', 'alive-%d' % pid).status == 201, 10,
             0.1), 'it works')


def admin(key, method, args, body=None):
    return gw.post('/new/admin?' + args, key, body, method=method)


def fence(key):
    return json.loads(admin(key, 'GET', '').body)['fence']


def stats():
    return {s['name']: s for s in json.loads(
        gw.post('/stats?format=json', None, None, method='GET').body)['stores']}


send('/new/pay/ok', 'first')       # both servers have the scripts now


# ---- an old gateway comes in between the two claims

new.on('claim', 'hold')
n = new.count('claim')
first = background(send, '/new/pay/ok', 'between')
ok(waits(new, 'claim', n + 1), 'claimed in the old store, not in the new one')
says('/old/pay/ok', 'between', (409, 'in_progress'),
     'an old gateway is refused now')
new.let_go()
first = first.join()
same(first.status, 201, 'the request goes on')
all_replay('pay/ok', 'between', first, 'both')
executed(up, 'between', 1, 'between two claims')


# ---- and before the first of them

old.on('claim', 'hold')
n = old.count('claim')
late = background(send, '/new/wait/ok', 'before')
ok(waits(old, 'claim', n + 1), 'the new store was read')
first = send('/old/pay/ok', 'before')
same(first.status, 201, 'an old gateway executes it')
old.let_go()
late = late.join()
same((late.status, late.body, late.replayed), (201, first.body, True),
     'and the new one gets its answer')
executed(up, 'before', 1, 'before both claims')


# ---- two new ones at the same time

old.on('claim', 'hold')
n = old.count('claim')
both = [background(send, '/new/wait/slow/50', 'pair') for _ in range(2)]
ok(waits(old, 'claim', n + 1), 'both have read the new store')
time.sleep(0.1)
old.let_go()
both = [b.join() for b in both]
same(both[0].body, both[1].body, 'one answer')
executed(up, 'pair', 1, 'two at the same time')


# ---- a worker dies between two steps

new.on('claim', 'hold')
n = new.count('claim')
gone = background(send, '/new/pay/ok', 'died-1')
waits(new, 'claim', n + 1)
die()
new.let_go()
ok(until(lambda: send('/old/pay/ok', 'died-1').code == 'outcome_unknown', 10,
         0.1), 'died between the claims: unknown to an old gateway')
says('/new/pay/ok', 'died-1', (409, 'outcome_unknown'), 'and to a new one')
executed(up, 'died-1', 0, 'died between the claims')
a = admin('died-1', 'POST', 'resolve=not-executed&fence=%s' % fence('died-1'))
same(a.status, 200, 'an operator frees it')
# what was held has landed after the death of the worker, with a lease
if not until(lambda: send('/new/pay/ok', 'died-1').code != 'in_progress', 10,
             0.1) or send('/new/pay/ok', 'died-1').code == 'outcome_unknown':
    a = admin('died-1', 'POST',
              'resolve=not-executed&fence=%s' % fence('died-1'))
    same(a.status, 200, 'in the new store, too')
first = send('/new/pay/ok', 'died-1')
same(first.status, 201, 'and it is executed')
all_replay('pay/ok', 'died-1', first, 'once')
executed(up, 'died-1', 1, 'freed')

send('/new/pay/ok', 'died-2', headers=[('X-Fail', 'after_claim:kill')])
gw.expected.append('exited on signal 9')
until(lambda: gw.workers() and send('/new/pay/ok', 'x').status == 201, 10, 0.1)
ok(until(lambda: send('/old/pay/ok', 'died-2').code == 'outcome_unknown', 10,
         0.1), 'died with both claims: unknown to an old gateway')
says('/new/pay/ok', 'died-2', (409, 'outcome_unknown'), 'and to a new one')
first = send('/new/retry/ok', 'died-2')
same(first.status, 201, 'unknown retry')
all_replay('pay/ok', 'died-2', first, 'unknown retry')
executed(up, 'died-2', 1, 'died with both claims')

new.on('complete', 'cut')
new.on('complete', 'hold', 100)
n = new.count('complete')
gone = background(send, '/new/pay/ok', 'died-3')
waits(new, 'complete', n + 1)
pid, = gw.workers()
os.kill(pid, signal.SIGKILL)
new.clear()
until(lambda: gw.workers() not in ([], [pid]), 10)
first = send('/old/pay/ok', 'died-3')
same((first.status, first.replayed), (201, True),
     'died after the outcome was in the old store')
ok(until(lambda: send('/new/pay/ok', 'died-3').status == 201, 10, 0.1),
   'a new gateway finds it there')
all_replay('pay/ok', 'died-3', first, 'the answer')
ok(until(lambda: two('GET', 'x') is None, 1), 'the new server answers')
time.sleep(2)
all_replay('pay/ok', 'died-3', first, 'and after the lease')
executed(up, 'died-3', 1, 'died between the outcomes')


# ---- replies that are lost

for proxy, name in (old, 'the old store'), (new, 'the new store'):
    for command in 'claim', 'complete':
        for how in 'lose', 'late':
            key = '%s-%s-%s' % (command, how, name[4:7])
            proxy.on(command, how)
            first = send('/new/pay/ok', key)
            proxy.clear()
            if first.status == 503:
                same(up.count(key), 0, 'refused, and not executed')
                ok(until(lambda: send('/new/pay/ok', key).status == 201, 10,
                         0.1), 'it is taken back in both stores')
                first = send('/new/pay/ok', key)
            same(first.status, 201, '%s of %s: %s' % (command, name, how))
            ok(until(lambda: send('/old/pay/ok', key).status == 201, 10, 0.1),
               'an old gateway knows it')
            # the connection to the new store may just be made again
            until(lambda: send('/new/pay/ok', key).status != 503, 10, 0.1)
            all_replay('pay/ok', key, first, key)
            executed(up, key, 1, key)

new.on('release', 'lose')
same(send('/new/pay/status/503', 'freed').status, 503, 'not executed')
ok(until(lambda: send('/old/pay/ok', 'freed').status == 201, 10, 0.1),
   'released in the old store')
executed(up, 'freed', 2, 'released')


# ---- a client that leaves

for proxy, name in (old, 'the old store'), (new, 'the new store'):
    key = 'left-' + name[4:7]
    proxy.on('claim', 'hold')
    n = proxy.count('claim')
    client = gw.call('/new/pay/ok', key)
    waits(proxy, 'claim', n + 1)
    client.reset()
    time.sleep(0.2)
    proxy.let_go()
    ok(until(lambda: send('/old/pay/ok', key).status == 201, 5, 0.05),
       'a client that left while %s was asked does not hold the key' % name)
    ok(until(lambda: send('/new/pay/ok', key).status == 201, 5, 0.05),
       'nor in the new one')
    executed(up, key, 1, 'once')


# ---- a request that ends with its worker while a store is asked

for proxy, name in (old, 'the old store'), (new, 'the new store'):
    key = 'ended-' + name[4:7]
    proxy.on('claim', 'hold')
    n = proxy.count('claim')
    client = gw.call('/new/pay/ok', key)
    waits(proxy, 'claim', n + 1)
    before = gw.workers()
    gw.signal(signal.SIGHUP)
    same(client.read().status, 0, 'worker_shutdown_timeout ends the request')
    proxy.let_go()
    same(up.count(key), 0, 'which was not sent')
    ok(until(lambda: send('/old/pay/ok', key).status == 201, 5, 0.05),
       'a claim that %s grants afterwards is taken back' % name)
    ok(until(lambda: send('/new/pay/ok', key).status == 201, 5, 0.05),
       'in both stores')
    executed(up, key, 1, 'once')
    ok(until(lambda: gw.workers() and not set(gw.workers()) & set(before),
             20), 'the worker ends')


# ---- numbers reach the new store in another order than the old one

def number(at, n):
    return gw.post('/%s/number/ok' % at, str(n), timeout=20)


same(number('old', 1).status, 201, 'a sequence of the old store')
same([number('new', n).status for n in range(2, 10)], [201] * 8, 'goes on')
new.on('claim', 'hold')
n = new.count('claim')
first = background(number, 'new', 10)
ok(waits(new, 'claim', n + 1), 'a number that the old store has granted')
same(number('fast', 11).status, 201, 'the next one is faster')
new.let_go()
same(first.join().status, 201, 'and the first one is executed, too')
executed(up, '10', 1, 'the first one')
executed(up, '11', 1, 'the next one')
same(number('new', 12).status, 201, 'the mark is that of the last one')


# ---- the new store knows a key under a higher fence: its clock is ahead

def fences(key):
    return [int(dict(e[4])['x-fence']) for e in up.of(key)]


clock = Clock(7200)
ahead = Redis(clock=clock)
here = Gateway(up, workers=1, size='1m', http='''
    idempotency_store old redis://127.0.0.1:%d timeout=2s prefix=ahead:;
    idempotency_store new redis://127.0.0.1:%d timeout=2s;
''' % (one.port, ahead.port), locations=''.join(
    LOCATIONS % dict(at=at) for at in ('old', 'new')))
same(here.post('/new/pay/status/503', 'ahead').status, 503,
     'a key that the new store knew before')
here.write(http=here.conf['http'].replace('timeout=2s;',
                                          'timeout=2s from=old;'))
before = here.workers()
here.signal(signal.SIGHUP)
until(lambda: here.workers() and not set(here.workers()) & set(before), 20)
for at in 'new', 'old', 'new', 'old':
    same(here.post('/%s/pay/status/503' % at, 'ahead').status, 503, 'released')
same(len(set(fences('ahead'))), 5, 'five executions')
ok(fences('ahead') == sorted(fences('ahead')), 'fences grow at all gateways',
   fences('ahead'))
here.stop()


# ---- another one has taken over in the old store

up.hold()
first = background(send, '/new/pay/wait', 'taken')
up.until('taken')
new.on('renew', '-ERR not now', 100)
old.on('renew', '-ERR not now', 100)
ok(until(lambda: send('/old/pay/wait', 'taken').code == 'outcome_unknown', 15,
         0.1), 'its lease has ended')
other = send('/old/retry/ok', 'taken')
up.go()
first = first.join()
new.clear()
old.clear()
same((other.status, first.status), (201, 201), 'unknown retry at an old one')
same(first.body, other.body, 'both clients get the answer of the record')
all_replay('pay/wait', 'taken', other, 'as all do later')


# ---- the old store is away, or slow

kept = send('/new/pay/ok', 'kept')
for what, back in (one.pause, one.resume), (one.stop, one.start):
    data = one('DUMP', 'x') if what == one.stop else None
    if what == one.stop:
        one('CONFIG', 'SET', 'appendonly', 'yes')
        until(lambda: b'aof_rewrite_in_progress:0' in one('INFO')
              and b'aof_rewrite_scheduled:0' in one('INFO'), 10)
        one.options += ('--appendonly', 'yes')
    what()
    key = 'away-' + what.__name__
    says('/new/pay/ok', key, (503, 'store_unavailable'), 'a new key')
    executed(up, key, 0, 'the old store is away')
    same(stats()['new']['refusing'], 'old_store', 'the reason')
    again = send('/new/pay/ok', 'kept')
    same((again.status, again.body), (201, kept.body),
         'a key that is done in the new store')
    passed = send('/new/pass/ok', key + '-pass')
    same(passed.status, 201, 'store_error pass')
    again = send('/new/pass/ok', 'kept')
    same(again.body, kept.body, 'which does not pass what is known')
    back()
    ok(until(lambda: send('/new/pay/ok', key).status == 201, 15, 0.1),
       'when it is back, the key is free')
    executed(up, key, 1, 'then')
    ok(until(lambda: send('/old/pay/ok', key + '-pass').body == passed.body,
             15, 0.1), 'what has passed is stored behind it')
    all_replay('pay/ok', key + '-pass', passed, 'passed')
    executed(up, key + '-pass', 1, 'passed')
    same(stats()['new']['refusing'], 'none', 'no reason any more')

# one that runs while the old store is away
up.hold()
first = background(send, '/new/pay/wait', 'while')
up.until('while')
one.pause()
up.go()
first = first.join()
same(first.status, 201, 'its client gets the answer')
again = send('/new/pay/wait', 'while')
same((again.status, again.body), (201, first.body), 'which the new store has')
one.resume()
ok(until(lambda: send('/old/pay/wait', 'while').body == first.body, 15, 0.1),
   'the old one gets it later')
executed(up, 'while', 1, 'the old store was away at its end')
gw.stop()


# ---- the old store is full, or has room for no answer

gw = Gateway(up, workers=1, size='1m', http='''
    idempotency_store old shm:64k;
    idempotency_store new redis://127.0.0.1:%d timeout=2s prefix=full: from=old;
''' % two.port, locations=STATS + ''.join(
    LOCATIONS % dict(at=at) for at in ('old', 'new')))
big = send('/new/pay/big/400000', 'big')
same(big.status, 201, 'an answer that the old store cannot keep')
again = send('/new/pay/big/400000', 'big')
same((again.body == big.body, again.replayed), (True, True),
     'is kept by the new one')
says('/old/pay/big/400000', 'big', (409, 'response_not_kept'),
     'an old gateway knows that it was executed')
n = 0
while send('/old/pay/big/2000', 'fill-%d' % n).status == 201 and n < 1000:
    n += 1
says('/new/pay/ok', 'full', (503, 'store_unavailable'), 'it is full')
executed(up, 'full', 0, 'the old store is full')
same(stats()['new']['refusing'], 'old_store', 'the reason')
again = send('/new/pay/big/400000', 'big')
same(again.body == big.body, True, 'what the new store has is replayed')
gw.expected += ['no room']
gw.stop()
finish()
