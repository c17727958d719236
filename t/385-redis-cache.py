#!/usr/bin/env python3
"""cache=SIZE: replays without Redis, as long as that is safe.

A done record is cached, for all workers, once a duplicate has asked for it.
It is replayed for five seconds, to the same fingerprint only, and not beyond
its ttl; not after a purge, on any gateway; and only while the channel for
purges is open.
"""

import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     refused, replays, same, since, until)
from redis_binary import skipped  # noqa: E402
from redisd import Proxy, Redis  # noqa: E402
from redisset import Cluster  # noqa: E402

HTTP = 'add_header X-Result $idempotency_result always;'
LOCATIONS = '''
    location /brief/ {
        idempotency main;
        idempotency_ttl 2s tombstone=1h;
        proxy_pass http://up;
    }
    location /small/ {
        idempotency main;
        idempotency_max_response 4;
        proxy_pass http://up;
    }
    location /sealed/ {
        idempotency main;
        idempotency_secret %(secret)s;
        proxy_pass http://up;
    }
    location = /stats { idempotency_stats; }
'''
SECRET = os.path.dirname(os.path.abspath(__file__)) \
    + '/../build/cache-secret-%d' % os.getpid()

up = Ledger()


def gateway(store, **more):
    return Gateway(up, http=HTTP, store=store,
                   locations=LOCATIONS % dict(secret=SECRET), **more)


def asked(server):
    """how often a script was called"""
    return sum(int(n) for n in re.findall(
        rb'cmdstat_evalsha:calls=(\d+)', server('INFO', 'commandstats')))


def listens(server, n):
    return ok(until(lambda: server('PUBSUB', 'NUMSUB', 'idem:purged')[1] == n,
                    10), '%d workers listen' % n)


def purge(gw, key, path):
    return gw.ask({'X-Key': key, 'X-Source': 'somebody',
                   'X-Scope': 'POST ' + path},
                  op='purge', identify=1, fence='current').get('result')


def remember(gw, key, path='/ok'):
    """executed, and asked for once"""
    first = gw.post(path, key)
    same(first.status, 201, 'the first')
    replays(gw, path, key, first, 'from Redis')
    return first


def test_replay(a, server):
    first = remember(a, 'replay')
    n = asked(server)
    for _ in range(20):
        again = replays(a, '/ok', 'replay', first, 'from memory')
        same(again.get('x-result'), 'replayed', 'it is a replay')
    same(asked(server), n, 'Redis is not asked, on no worker')
    refused(a, '/ok', 'replay', 'key_reused', 'another body', status=422,
            body=b'another')
    same(asked(server), n, 'for a mismatch neither')
    stats = a.call('/stats', None, body=None, method='GET').read().body
    found = re.search(rb'"cached":(\d+)', stats)
    ok(found and int(found.group(1)) >= 21, 'it is counted', stats[:600])
    executed(up, 'replay', 1, 'from memory')


def test_kinds(a, server):
    first = remember(a, 'sealed', '/sealed/ok')
    n = asked(server)
    replays(a, '/sealed/ok', 'sealed', first, 'a sealed one from memory')
    same(asked(server), n, 'Redis is not asked')

    same(a.post('/small/ok', 'small').status, 201, 'too large to keep')
    n = asked(server)
    for _ in range(3):
        refused(a, '/small/ok', 'small', 'response_not_kept', 'not kept')
    same(asked(server), n + 3, 'what is not whole is not remembered')


def test_time(a, server):
    first = remember(a, 'old')
    brief = remember(a, 'brief', '/brief/ok')
    began = time.time()
    replays(a, '/brief/ok', 'brief', brief, 'within its ttl')
    time.sleep(max(0, began + 2.5 - time.time()))
    refused(a, '/brief/ok', 'brief', 'key_expired', 'beyond its ttl',
            status=410)
    time.sleep(max(0, began + 5.5 - time.time()))
    n = asked(server)
    replays(a, '/ok', 'old', first, 'after five seconds')
    same(asked(server), n + 1, 'Redis is asked again')


def test_purged(a, b, server):
    """by another gateway, which has no memory itself"""
    remember(a, 'purged')
    same(purge(b, 'purged', '/ok'), 'ok', 'purged elsewhere')
    began = time.time()
    ok(until(lambda: not a.post('/ok', 'purged').replayed, 10),
       'it is executed again')
    took = since(began)
    ok(took < 4.5, 'and not because it was old', took)
    executed(up, 'purged', 2, 'purged elsewhere')

    # by this one: all of its workers know before the operator does
    for i in range(10):
        key = 'here-%d' % i
        remember(a, key)
        same(purge(a, key, '/ok'), 'ok', 'purged here')
        same(a.post('/ok', key).replayed, False, 'seen at once')
        executed(up, key, 2, 'purged here')


def from_memory(gw, key, first, ask):
    """at last: news may still be on their way"""
    def one():
        gw.post('/ok', key)
        n = ask()
        again = gw.post('/ok', key)
        return again.replayed and again.body == first.body and ask() == n
    return until(one, 10)


def test_late(a, server, proxy):
    """the reply to a claim comes after the news of a purge"""
    server('SCRIPT', 'FLUSH')     # the proxy learns their names
    first = a.post('/ok', 'late')
    proxy.on('claim', 'hold')
    w = a.call('/ok', 'late')
    ok(until(lambda: proxy.rules[0][2] == 0, 10), 'the claim is under way')
    same(server('PUBLISH', 'idem:purged', ''), 1, 'something is purged')
    time.sleep(0.3)
    proxy.let_go()
    same(w.read().body, first.body, 'then the reply comes')
    proxy.clear()
    n = asked(server)
    replays(a, '/ok', 'late', first, 'asked before the purge')
    same(asked(server), n + 1, 'which was not remembered')


def test_lost(a, server, proxy):
    first = remember(a, 'lost')
    proxy.on('subscribe', 'hold', 9)
    server('CLIENT', 'KILL', 'TYPE', 'pubsub')
    ok(until(lambda: proxy.rules[0][2] < 9, 10), 'the channel is lost')
    n = asked(server)
    replays(a, '/ok', 'lost', first, 'without a channel')
    same(asked(server), n + 1, 'Redis is asked')
    proxy.clear()
    proxy.let_go()
    listens(server, 1)
    ok(from_memory(a, 'lost', first, lambda: asked(server)),
       'with a channel it is remembered anew')


def test_round(a):
    """many times the size: all answers are those of their keys"""
    first = {}
    for i in range(150):
        key = 'round-%d' % i
        first[key] = a.post('/big/600', key)
    wrong = 0
    for i in range(450):
        key = 'round-%d' % (i * 7 % 150 if i % 3 else i % 5)
        again = a.post('/big/600', key)
        wrong += (again.status, again.body, again.replayed) \
            != (first[key].status, first[key].body, True)
    same(wrong, 0, 'round and round')
    same({up.count(k) for k in first}, {1}, 'round and round: once each')


def test_forbidden():
    if skipped('a user without channels', 'acl'):
        return
    server = Redis()
    server('ACL', 'SETUSER', 'gw', 'on', '>pw', '~idem:*', 'resetchannels',
           '+@all', '-@admin')
    a = gateway('redis://gw:pw@127.0.0.1:%d cache=1m' % server.port)
    ok(a.until_log('"cache=" has no effect'), 'forbidden: it is logged')
    first = remember(a, 'forbidden')
    n = asked(server)
    replays(a, '/ok', 'forbidden', first, 'forbidden')
    same(asked(server), n + 1, 'forbidden: Redis is asked')
    same(purge(a, 'forbidden', '/ok'), 'ok', 'forbidden: purged all the same')
    a.stop()
    server.remove()


def test_cluster():
    cluster = Cluster(masters=3, replicas=0)
    a = gateway(cluster.url + ' cache=1m')
    b = gateway(cluster.url)
    for gw in (a, b):
        until(lambda: gw.post('/ok', 'warm').status in (200, 201), 20, 0.1)
    for node in cluster.nodes:
        listens(node, 1)
    for i in range(6):
        key = 'cluster-%d' % i
        ok(from_memory(a, key, remember(a, key), lambda: sum(
            asked(node) for node in cluster.nodes)),
           'cluster: no node is asked')
        same(purge(b, key, '/ok'), 'ok', 'cluster: purged')
        began = time.time()
        ok(until(lambda: not a.post('/ok', key).replayed, 10)
           and since(began) < 4.5, 'cluster: seen')
    for gw in (a, b):
        gw.stop()
    cluster.stop()


with open(SECRET, 'wb') as f:
    f.write(bytes(range(32)))
os.chmod(SECRET, 0o600)

server = Redis()
proxy = Proxy(server)
url = 'redis+unix://' + server.path
a, b = gateway(url + ' cache=1m', workers=2), gateway(url)
listens(server, 2)
test_replay(a, server)
test_kinds(a, server)
test_time(a, server)
test_purged(a, b, server)
a.stop()

a = gateway('redis://127.0.0.1:%d cache=64k timeout=5s'
            % proxy.port)
listens(server, 1)
test_late(a, server, proxy)
test_lost(a, server, proxy)
test_round(a)
a.stop()
b.stop()
server.remove()

test_forbidden()
test_cluster()
os.unlink(SECRET)
finish()
