#!/usr/bin/env python3
"""TLS with Sentinel and Cluster: every server has to show a certificate for
the name or the address by which it was found: the sentinels, the servers that
they name, each node of a cluster, and the new master after a failover.
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from certs import Certs  # noqa: E402
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     replays, same, until)
from redis_binary import skip_all  # noqa: E402
from redisd import Redis  # noqa: E402
from redisset import Cluster, Sentinels  # noqa: E402

FORGOTTEN = 'keys may be forgotten'

skip_all('tls')
up = Ledger()
scratch = Redis(port=0)
certs = Certs(scratch.dir)
trust = ' timeout=1s amnesia=0 ssl_trusted_certificate=' + certs.path('ca.pem')


def tls(name):
    return certs.redis(name) + ('--tls-auth-clients', 'no')


def works(gw, name):
    """keys enough for each node of a cluster"""
    ok(until(lambda: gw.post('/ok', name).status == 201, 15, 0.1),
       name + ': works')
    for i in range(12):
        key = '%s-%d' % (name, i)
        a = gw.post('/ok', key)
        same(a.status, 201, name + ': a key works')
        replays(gw, '/ok', key, a, name)
        executed(up, key, 1, name)


def refuses(target, name, said):
    gw = Gateway(up, store=target)
    for i in range(3):
        key = '%s-%d' % (name.replace(' ', '-'), i)
        same(gw.post('/ok', key).status, 503, name + ': refused')
        executed(up, key, 0, name)
    ok(gw.until_log(said), name + ': and why', gw.log()[-800:])
    gw.stop()


def test_sentinels():
    set_ = Sentinels(replicas=1, sentinels=1, tls=tls('server'))
    gw = Gateway(up, store=set_.url + trust)
    gw.expected = [FORGOTTEN]
    works(gw, 'sentinels')
    ok(set_.crash()[1], 'sentinels: there is a new master')
    works(gw, 'failover')
    gw.stop()

    refuses(set_.url.replace('rediss', 'redis') + ' timeout=1s', 'plain',
            'closed the connection at login')
    refuses(set_.url + trust + ' ssl_name=wrong.test', 'another name',
            'has a certificate that is not for "wrong.test"')
    refuses(set_.url + ' timeout=1s', 'a CA that nobody knows',
            'has a certificate that is not trusted')
    set_.stop()


def test_master():
    """Good sentinels that name a master with a strange certificate."""
    set_ = Sentinels(replicas=0, sentinels=1, tls=tls('server'))
    master = set_.master()
    master.options += tls('stranger')
    master.restart()
    set_.healthy()
    refuses(set_.url + trust, 'a strange master',
            'has a certificate that is not for "127.0.0.1"')
    same(master('DBSIZE'), 0, 'a strange master: nothing is written')
    set_.stop()


def test_cluster():
    cluster = Cluster(masters=3, replicas=0, tls=tls('server'))
    gw = Gateway(up, store=cluster.url + trust)
    works(gw, 'cluster')
    same([n for n in cluster.nodes if n('DBSIZE') == 0], [],
         'cluster: each node has some of it')
    before = gw.log().count('has a certificate')

    # one node shows another certificate: its keys are refused, no others
    cluster.nodes[1].options += tls('stranger')
    cluster.nodes[1].restart()
    cluster.healthy()
    time.sleep(0.5)
    seen = {}
    for i in range(40):
        a = gw.post('/ok', 'mixed-%d' % i)
        seen[a.status] = seen.get(a.status, 0) + 1
        executed(up, 'mixed-%d' % i, a.status == 201, 'a strange node')
    same(sorted(seen), [201, 503], 'a strange node: its keys are refused')
    ok(gw.log().count('has a certificate') > before
       and 'that is not for "127.0.0.1"' in gw.log(),
       'a strange node: and why')
    same(cluster.nodes[1]('DBSIZE'), 0, 'a strange node: nothing is written')
    gw.stop()
    cluster.stop()


certs.ca('ca')
certs.certificate('server', 'ca', 'DNS:localhost,IP:127.0.0.1')
certs.certificate('stranger', 'ca', 'DNS:elsewhere.test')
for test in sys.argv[1:] or [n for n in list(globals())
                             if n.startswith('test_')]:
    globals()[test]()
finish()
