#!/usr/bin/env python3
"""A cluster whose nodes have names.

A name in the target with several addresses, that of a headless service or a
configuration endpoint for example, stands for several nodes: all keys work.
Nodes that announce host names are found by them with a resolver, and without
one at the addresses that they also announce; over TLS their certificates are
for the announced name, either way.
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from certs import Certs  # noqa: E402
from dns import Dns  # noqa: E402
from hosts import Hosts  # noqa: E402
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     same, until)
from redis_binary import skipped  # noqa: E402
from redisd import RECORDS, Redis  # noqa: E402
from redisset import Cluster  # noqa: E402

FORGOTTEN = 'keys may be forgotten'
ADDRESSES = ['127.0.0.%d' % n for n in range(2, 8)]
KEYS = 45

hosts = Hosts()
up = Ledger()
scratch = Redis(port=0)
certs = Certs(scratch.dir)
options = ' timeout=1s connect_timeout=1s amnesia=0 '


def gateway(target, dns=None, workers=1):
    gw = Gateway(up, store=target + options, workers=workers,
                 http=dns.resolver if dns else '')
    gw.expected = [FORGOTTEN]
    return gw


def works(gw, name, cluster):
    """every key works, and every node has some"""
    ok(until(lambda: gw.post('/ok', name + '-first').status == 201, 15, 0.1),
       name + ': works', gw.log()[-1500:])
    bad, end = [], time.time() + 15

    def post(key):
        """Both workers find the node, one of them may be a moment behind."""
        a = gw.post('/ok', key)
        while a.status == 503 and time.time() < end:
            time.sleep(0.05)
            a = gw.post('/ok', key)
        return a

    for i in range(KEYS):
        key = '%s-%d' % (name, i)
        a, b = post(key), post(key)
        if a.status != 201:
            bad.append(a.status)
            continue
        same((b.status, b.body, b.replayed), (201, a.body, True),
             name + ': the retry replays')
        executed(up, key, 1, name)
    same(bad, [], name + ': all keys work')
    same([n.address for n in cluster.masters() if not n('KEYS', RECORDS)], [],
         name + ': each master has some of them')


def hostname(n):
    return 'node%d.test' % n


def announced(n):
    return '--cluster-announce-hostname', hostname(n)


def own_certificate(n):
    """for its name only, but for the first one, which is in the target"""
    name = 'server%d' % n
    certs.certificate(name, 'ca', 'DNS:' + hostname(n)
                      + (',IP:' + ADDRESSES[0] if n == 0 else ''))
    return certs.redis(name) + ('--tls-auth-clients', 'no')


def test_headless():
    cluster = Cluster(masters=3, replicas=1, addresses=ADDRESSES)
    port = cluster.nodes[0].port
    target = 'redis-cluster://seeds.test:%d connections=3' % port
    hosts.set({'seeds.test': ADDRESSES})
    gw = gateway(target)
    works(gw, 'headless', cluster)
    gw.stop()

    dns = Dns()
    dns.set('seeds.test', *ADDRESSES)
    gw = gateway(target, dns, workers=2)
    works(gw, 'resolver', cluster)

    # moved slots, a failover, and keys everywhere again
    cluster.move(500)
    works(gw, 'moved', cluster)
    old, switched = cluster.crash()
    ok(switched, 'failover: there is a new master')
    works(gw, 'failover', cluster)
    cluster.heal()
    gw.stop()
    cluster.stop()


def test_seeds_move():
    """all known nodes are gone: the name is resolved again"""
    one = Cluster(masters=3, replicas=0, addresses=ADDRESSES[:3])
    port = one.nodes[0].port
    dns = Dns()
    dns.set('seeds.test', *ADDRESSES[:3])
    hosts.set({'seeds.test': ADDRESSES[:3]})
    gw = gateway('redis-cluster://seeds.test:%d' % port, dns)
    works(gw, 'seeds', one)
    one.stop()
    two = Cluster(masters=3, replicas=0, addresses=ADDRESSES[3:], port=port)
    dns.set('seeds.test', *ADDRESSES[3:])
    works(gw, 'seeds-moved', two)
    gw.stop()
    two.stop()


def test_hostnames():
    if skipped('nodes that announce host names', 'hostnames'):
        return
    cluster = Cluster(masters=3, replicas=0, addresses=ADDRESSES,
                      options=('--cluster-preferred-endpoint-type',
                               'hostname'), each=announced)
    port = cluster.nodes[0].port
    gw = gateway('redis-cluster://%s:%d' % (ADDRESSES[0], port))
    works(gw, 'hostnames', cluster)
    cluster.move(300)
    works(gw, 'hostnames-moved', cluster)
    gw.stop()

    dns = Dns()
    for n in range(3):
        dns.set(hostname(n), ADDRESSES[n])
    gw = gateway('redis-cluster://%s:%d' % (ADDRESSES[0], port), dns)
    works(gw, 'resolved', cluster)
    ok(dns.asked(hostname(1)) > 0, 'resolved: by name')
    cluster.move(300)
    works(gw, 'resolved-moved', cluster)
    gw.stop()
    cluster.stop()


def test_tls():
    if skipped('nodes that announce host names, TLS', 'hostnames'):
        return
    trust = 'ssl_trusted_certificate=' + certs.path('ca.pem')
    for endpoint in ('hostname', 'ip'):
        cluster = Cluster(
            masters=3, replicas=0, addresses=ADDRESSES,
            options=('--cluster-preferred-endpoint-type', endpoint),
            tls=certs.redis('bus') + ('--tls-auth-clients', 'no'),
            each=lambda n: announced(n) + own_certificate(n))
        port = cluster.nodes[0].port
        target = 'rediss-cluster://%s:%d %s' % (ADDRESSES[0], port, trust)
        gw = gateway(target)
        works(gw, 'tls-' + endpoint, cluster)
        gw.stop()

        if endpoint == 'ip':
            dns = Dns()
            gw = gateway(target, dns)
            works(gw, 'tls-ip-resolver', cluster)
            gw.stop()

        # a certificate for another name
        node = cluster.nodes[1]
        node.options += certs.redis('stranger')
        node.restart()
        cluster.healthy()
        gw = gateway(target)
        ok(gw.until_log('has a certificate that is not for "%s"'
                        % hostname(1)), 'tls: a stranger is refused, %s'
           % endpoint, gw.log()[-1500:])
        gw.stop()
        cluster.stop()


certs.ca('ca')
certs.certificate('bus', 'ca', 'DNS:localhost')
certs.certificate('stranger', 'ca', 'DNS:elsewhere.test')
for test in sys.argv[1:] or [n for n in list(globals())
                             if n.startswith('test_')]:
    globals()[test]()
finish()
