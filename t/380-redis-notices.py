#!/usr/bin/env python3
"""A duplicate that waits on another gateway is woken by a notice.

Two gateways share a store in Redis, and polling is switched off on the second
one.  The answer, the release and the unknown outcome of the first gateway's
request arrive there by Pub/Sub; when the channel was lost, all waiters ask
once it is open again.  A Redis that does not allow channels, or has no sharded
ones, costs time and nothing else.
"""

import os
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     same, until)
from redis_binary import can, skipped  # noqa: E402
from redisd import Proxy, Redis  # noqa: E402
from redismove import Both, Virtual  # noqa: E402
from redisset import Cluster, Sentinels  # noqa: E402

HTTP = '''
    idempotency_in_progress wait=30s;
    add_header X-Result $idempotency_result always;
'''
NEVER = 3600000

up = Ledger()


def gateway(store, poll=500, more='', **args):
    gw = Gateway(up, workers=1, http=HTTP + more, store=store, **args)
    same(gw.ask(op='poll', ms=poll).get('was'), '500', 'looks every 500 ms')
    return gw


def channels(server):
    """those of records: sentinels have one, too"""
    sharded = server('PUBSUB', 'SHARDCHANNELS') if can('sharded') else []
    return [c for c in sharded + server('PUBSUB', 'CHANNELS') if len(c) > 64]


def published(server):
    return sum(int(n) for n in re.findall(
        rb'cmdstat_s?publish:calls=(\d+)', server('INFO', 'commandstats')))


def listens(server, n=1):
    return ok(until(lambda: len(channels(server)) == n, 10),
              'it listens to %d channels' % n, channels(server))


def start(a, b, key, path='/wait', waiters=1):
    """the first request on one gateway, duplicates on the other"""
    up.hold()
    first = a.call(path, key)
    up.until(key)
    return first, [b.call(path, key) for _ in range(waiters)]


def finds(first, waiters, name):
    up.go()
    x = first.read()
    for w in waiters:
        y = w.read(25)
        same((y.status, y.body, y.replayed, y.get('x-result')),
             (201, x.body, True, 'waited'), name + ': is answered')


def test_answer(a, b, server):
    first, waiters = start(a, b, 'answer', waiters=3)
    listens(server)
    name = channels(server)[0]
    ok(re.fullmatch(rb'pre:[0-9a-f]{64}', name),
       'the channel is called as the record', name)
    finds(first, waiters, 'push')
    executed(up, 'answer', 1, 'push')
    listens(server, 0)


def test_leave(a, b, server):
    first, waiters = start(a, b, 'leave', waiters=2)
    listens(server)
    waiters[0].reset()
    time.sleep(0.2)
    listens(server)
    waiters[1].reset()
    listens(server, 0)
    up.go()
    same(first.read().status, 201, 'who left is not waited for')


def test_released(a, b, server):
    first, waiters = start(a, b, 'released', '/wait/503', 3)
    listens(server)
    up.go()
    same([first.read().status] + [w.read(25).status for w in waiters],
         [503] * 4, 'released: each has its turn')
    executed(up, 'released', 4, 'released')


def test_unknown(a, b, server):
    first, waiters = start(a, b, 'unknown', '/silent', 2)
    listens(server)
    same(first.read(25).status, 504, 'unknown: the first')
    for w in waiters:
        x = w.read(25)
        same((x.status, x.code), (409, 'outcome_unknown'),
             'unknown: they are told')
    executed(up, 'unknown', 1, 'unknown')
    up.go()


def test_lost(a, b, server, proxy):
    """nobody listens while the record is settled"""
    first, waiters = start(a, b, 'lost', waiters=2)
    listens(server)
    n = proxy.count('ssubscribe')
    proxy.on('ssubscribe', 'hold')
    server('CLIENT', 'KILL', 'TYPE', 'pubsub')
    ok(until(lambda: proxy.count('ssubscribe') > n, 10), 'it tries again')
    up.go()
    x = first.read()
    same(x.status, 201, 'lost: the first is answered')
    proxy.let_go()
    for w in waiters:
        same(w.read(25).body, x.body, 'lost: they look when it is back')
    proxy.clear()


def test_silent(a, b, server, proxy):
    """a connection that is open and dead"""
    first, waiters = start(a, b, 'dead')
    listens(server)
    n = proxy.count('ssubscribe')
    proxy.on('ping', 'late')
    ok(until(lambda: proxy.count('ssubscribe') > n, 25),
       'a dead channel is noticed and made anew')
    finds(first, waiters, 'dead')
    proxy.clear()


def test_many(a, b, server):
    """more keys than channels: the others look by the clock"""
    was = b.ask(op='poll', ms=300).get('was')
    up.hold()
    first, waiters = [], []
    for i in range(20):
        key = 'many-%d' % i
        first.append(a.call('/wait', key))
        up.until(key)
        waiters.append(b.call('/wait', key))
    listens(server, 20)
    up.go()
    bodies = [f.read().body for f in first]
    same([w.read(25).body for w in waiters], bodies, 'each has its own')
    listens(server, 0)
    b.ask(op='poll', ms=was)


def latency(a, b, server, name):
    late = []
    for i in range(9):
        first, [w] = start(a, b, 'late-%d' % i)
        until(lambda: len(channels(server)) == 1, 10)
        time.sleep(0.05)
        began = time.time()
        up.go()
        w.read(25)
        late.append(time.time() - began)
        same(first.read().status, 201, 'the first')
    print('# %s: who waits on the other gateway is answered %.1f ms after the '
          'upstream (median)' % (name, statistics.median(late) * 1000))


def test_one():
    server = Redis()
    proxy = Proxy(server)
    a = gateway('redis+unix://%s prefix=pre:' % server.path,
                default='proxy_read_timeout 2s;')
    b = gateway('redis://127.0.0.1:%d prefix=pre:' % proxy.port, NEVER)
    test_answer(a, b, server)
    test_leave(a, b, server)
    test_released(a, b, server)
    test_unknown(a, b, server)
    test_lost(a, b, server, proxy)
    test_silent(a, b, server, proxy)
    test_many(a, b, server)
    latency(a, b, server, 'one server')

    # who cannot be waited for does not tell
    c = Gateway(up, store='redis+unix://%s prefix=pre:' % server.path)
    before = published(server)
    for i in range(5):
        same(c.post('/wait', 'silence-%d' % i).status, 201, 'nobody waits')
    same(published(server), before, 'nothing is published where nobody waits')
    same(a.post('/wait', 'said').status, 201, 'somebody might wait')
    same(published(server), before + 1, 'which is published')
    c.stop()
    a.stop()
    b.stop()
    server.remove()


def test_forbidden():
    """a user without channels"""
    if skipped('a user without channels', 'acl'):
        return
    server = Redis()
    server('ACL', 'SETUSER', 'gw', 'on', '>pw', '~idem:*', 'resetchannels',
           '+@all', '-@admin')
    url = 'redis://gw:pw@127.0.0.1:%d' % server.port
    a, b = gateway(url), gateway(url)
    first, waiters = start(a, b, 'forbidden')
    ok(b.until_log('does not permit subscriptions'), 'forbidden: it is logged')
    finds(first, waiters, 'forbidden')
    executed(up, 'forbidden', 1, 'forbidden')
    same(b.log().count('does not permit subscriptions'), 1, 'forbidden: once')
    for gw in (a, b):
        gw.stop()
    server.remove()


def test_old():
    """Redis before 7 has no sharded channels"""
    server = Redis(*(('--rename-command', 'SSUBSCRIBE', '',
                      '--rename-command', 'SPUBLISH', '')
                     if can('sharded') else ()))
    url = 'redis+unix://%s' % server.path
    a, b = gateway(url), gateway(url, NEVER)
    first, waiters = start(a, b, 'old', waiters=2)
    ok(until(lambda: server('PUBSUB', 'CHANNELS'), 10), 'old: it listens')
    finds(first, waiters, 'old')
    for gw in (a, b):
        gw.stop()
    server.remove()


def test_cluster():
    cluster = Cluster(masters=3, replicas=0)
    a, b = gateway(cluster.url), gateway(cluster.url, NEVER)
    for gw in (a, b):
        until(lambda: gw.post('/warm', 'warm').status == 201, 20, 0.1)
    nodes = set()
    for i in range(6):
        first, waiters = start(a, b, 'cluster-%d' % i)
        until(lambda: any(channels(n) for n in cluster.nodes), 10)
        nodes |= {n.port for n in cluster.nodes if channels(n)}
        finds(first, waiters, 'cluster')
    ok(len(nodes) > 1, 'cluster: each key on its own node', nodes)
    for gw in (a, b):
        gw.stop()
    cluster.stop()


def test_sentinel():
    set_ = Sentinels(replicas=1, sentinels=1)
    # what is waited for survives
    target = set_.url + ' replicas=1:1s timeout=3s amnesia=0'
    a, b = gateway(target), gateway(target, NEVER)
    for gw in (a, b):
        gw.expected = ['keys may be forgotten']
        until(lambda: gw.post('/warm', 'warm').status == 201, 20, 0.1)
    first, waiters = start(a, b, 'sentinel')
    listens(set_.master())
    finds(first, waiters, 'sentinel')

    # those who wait meet another master
    first, waiters = start(a, b, 'switched')
    listens(set_.master())
    old, switched = set_.failover()
    ok(switched, 'sentinel: another master')
    ok(until(lambda: len(channels(set_.master())) == 1, 20),
       'sentinel: it listens to that one')
    finds(first, waiters, 'sentinel, another master')
    for gw in (a, b):
        gw.stop()
    set_.stop()


def test_demoted(pair, name):
    """the old master lives on as a replica, and its channels with it"""
    target = pair.url + ' replicas=1:1s timeout=3s amnesia=0'
    a, b = (gateway(target, poll, more=pair.http) for poll in (500, NEVER))
    for gw in (a, b):
        gw.expected = ['keys may be forgotten', 'replica', 'READONLY']
        until(lambda: gw.post('/warm', 'warm').status == 201, 20, 0.1)
    first, waiters = start(a, b, name.replace(' ', '-'))
    listens(pair.master)
    ok(pair.swap('replicaof'), name + ': a replica becomes the master')
    if isinstance(pair, Virtual):
        pair.forward.to((pair.master.address, pair.port), cut=False)
    listens(pair.master)
    listens(pair.replica, 0)
    finds(first, waiters, name)
    for gw in (a, b):
        gw.stop()
    pair.stop()


test_one()
test_forbidden()
test_old()
test_cluster()
test_sentinel()
test_demoted(Both(), 'another master behind a name')
test_demoted(Virtual(), 'another master behind an address')
finish()
