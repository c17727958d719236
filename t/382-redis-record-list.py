#!/usr/bin/env python3
"""A list of records goes through all servers, and shows records only.

Other data in the same database, counters and marks are not records, nor is a
value that cannot be read.  In a cluster one server follows the other, and each
record is listed once.  With Sentinel the master is asked.
"""

import concurrent.futures
import http.client
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, finish, ok, same,  # noqa: E402
                     until)
from redisd import Redis  # noqa: E402
from redisset import Cluster, Sentinels  # noqa: E402

LOCATIONS = '''
    location = /admin {
        idempotency_lookup red admin;
        idempotency_scope pay;
        idempotency_key $arg_key;
    }
    location = /red {
        idempotency_exercise red;
    }
'''

pool = concurrent.futures.ThreadPoolExecutor(8)


def start(url):
    gw = Gateway(Ledger(), workers=2, locations=LOCATIONS,
                 http='idempotency_store red %s prefix=li[st]*: '
                      'timeout=5s;' % url)
    return gw


def ask(gw, path):
    conn = http.client.HTTPConnection('127.0.0.1', gw.port, timeout=30)
    try:
        conn.request('GET', path)
        return conn.getresponse().read()
    finally:
        conn.close()


def fill(gw, n, first=0):
    def make(i):
        for op in ('claim', 'mark_unknown'):
            ask(gw, '/red?op=%s&key=k%d&owner=o%d&lease=60000' % (op, i, i))
    list(pool.map(make, range(first, first + n)))


def pages(gw, state='unknown', between=None):
    cursor, found, cursors = '', [], []
    while cursor is not None:
        raw = ask(gw, '/admin?state=%s&cursor=%s' % (state, cursor))
        page = json.loads(raw)
        if 'records' not in page:
            ok(False, 'a page of the list', raw)
            break
        found += [r['record'] for r in page['records']]
        cursor = page['cursor']
        cursors.append(cursor)
        if between:
            between()
    return found, cursors


def test_single():
    server = Redis()
    gw = start('redis://127.0.0.1:%d' % server.port)
    fill(gw, 40)
    hexes = 'ab' * 32
    server('SET', 'other', 'x')
    server('SET', 'other:' + hexes, 'x')
    server('SET', 'li[st]*:short', 'x')
    server('SET', 'li[st]*:' + hexes, 'not a record')
    server('RPUSH', 'li[st]*:' + 'cd' * 32, 'a list')
    server('SET', 'li[st]*:' + 'xy' * 32, b'\1' + b'\3' + b'\0' * 114)
    server('SET', 'li[st]*:{%s}' % ('ab' * 16), b'\1' + b'\0' * 16)
    server('SET', 'lis*:' + hexes, b'\1' + b'\3' + b'\0' * 114)
    found, _ = pages(gw)
    same((len(found), len(set(found))), (40, 40),
         'records, and nothing that is none')
    server('SCRIPT', 'FLUSH')
    same(len(pages(gw)[0]), 40, 'a script that was forgotten')
    for i in range(0, 40, 2):
        ask(gw, '/red?op=complete&key=k%d&owner=o%d&status=200&ttl=60'
            % (i, i))
    same((len(pages(gw)[0]), len(pages(gw, 'done')[0])), (20, 20),
         'each in its state')
    # many keys of others: many steps until the list has a record
    for i in range(20):
        server('EVAL', "for i = 1, 1500 do redis.call('SET', 'x:%d:' .. i, 1)"
                       " end" % i, 0)
    same(len(pages(gw)[0]), 20, 'a needle in a haystack')
    server.stop()
    a = json.loads(ask(gw, '/admin?state=unknown'))
    same((a['status'], a['code']), (503, 'store_unavailable'),
         'a server that is away')
    gw.stop()


def start_set(servers):
    """until they are found"""
    gw = start(servers.url)
    gw.expected = ['keys may be forgotten']
    until(lambda: b'granted' in ask(gw, '/red?op=claim&key=up&owner=u'), 10,
          0.1)
    ask(gw, '/red?op=release&key=up&owner=u')
    return gw


def test_cluster():
    cluster = Cluster(masters=3, replicas=0)
    gw = start_set(cluster)
    fill(gw, 900)
    ok(all(n('DBSIZE') > 200 for n in cluster.nodes),
       'records are on all nodes')
    found, cursors = pages(gw)
    same((len(found), len(set(found))), (900, 900),
         'all nodes: each record is listed once')
    ok(len(cursors) > 1, 'on more than one page', cursors)

    # slots move, records stay where they are found
    moved = cluster.move(200)
    same(moved.returncode, 0, 'slots were moved')

    def settled():
        found, _ = pages(gw)
        return len(found) == len(set(found)) == 900
    ok(until(settled, 15, 0.3), 'after that each record is listed once')
    gw.stop()


def test_sentinel():
    servers = Sentinels(replicas=1, sentinels=1)
    gw = start_set(servers)
    fill(gw, 20)
    same(len(pages(gw)[0]), 20, 'Sentinel: the master has them')
    gw.stop()


test_single()
test_cluster()
test_sentinel()
finish()
