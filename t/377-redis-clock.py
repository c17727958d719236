#!/usr/bin/env python3
"""Clocks of Redis servers, by which leases and ttl are measured.

A server whose clock jumps forward, while it runs or because a replica that is
ahead took over, has ended leases and answers early.  That is logged at alert,
counted, and treated as a loss: new keys are refused for the longest lease, and
neither running nor done requests are executed a second time as long as new
keys are refused.  (With "idempotency_unknown retry" a retry may after that
take over a request that seems dead.) A jump backward ends nothing: it is
logged and counted, and requests go on.

The clock of each server is set by redis_clock.py.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, refused, replays, same, until)
from redis_clock import Clock  # noqa: E402
from redisd import Proxy, Redis  # noqa: E402

FORGOTTEN = 'keys may be forgotten'
FORWARD = 'the clock of the server went forward by '
BACK = 'the clock of the server went back by '
LEASE = 4

up = Ledger()


def gateway(port):
    """/again/ would execute what a lease that is over has left"""
    gw = Gateway(up, store='redis://127.0.0.1:%d timeout=2s' % port,
                 http='idempotency_ttl 60s;\n    idempotency_lease %ds;\n'
                 % LEASE, workers=2, locations='''
    location = /stats { idempotency_stats; }
    location /again/ {
        idempotency main;
        idempotency_unknown retry;
        proxy_pass http://up;
    }
''')
    gw.expected = [FORGOTTEN, FORWARD, BACK]
    ok(until(lambda: gw.post('/ok', 'warm').status == 201), 'it works')
    return gw


def store(gw):
    answer = gw.post('/stats?format=json', None, None, 'GET')
    return [s for s in json.loads(answer.body)['stores']
            if s['name'] == 'main'][0]


def prometheus(gw):
    return gw.post('/stats?format=prometheus', None, None,
                   'GET').body.decode()


def jumped(gw, text, seconds, name):
    """logged once, at alert, with the distance"""
    ok(until(lambda: text in gw.log(), 10), name + ': it is noticed',
       gw.log()[-1500:])
    lines = [x for x in gw.log().splitlines() if text in x]
    if not same(len(lines), 1, name + ': once'):
        return
    ok('[alert]' in lines[0], name + ': at alert', lines)
    said = int(lines[0].split(text)[1].split()[0]) / 1000
    ok(abs(said - seconds) < 1.5, name + ': by how much', lines)
    same(store(gw).get('clock_steps'), 1, name + ': it is counted')
    ok('idempotency_redis_clock_steps_total{store="main"} 1\n'
       in prometheus(gw), name + ': for Prometheus too')


def refused_then_taken(gw, done, name):
    """what a jump forward has ended stays refused, and then is new"""
    same([gw.post('/ok', key).status for key in done], [503] * len(done),
         name + ': what was done is refused')
    for key in done:
        executed(up, key, 1, name + ': what was done')
    refused(gw, '/ok', name + '-new', 'store_unavailable',
            name + ': a new key is refused', status=503)
    ok(until(lambda: gw.post('/ok', name + '-new').status == 201,
             3 * LEASE, 0.1), name + ': taken again after a lease')
    executed(up, name + '-new', 1, name + ': a new key')


def test_tool():
    """the tool of this test: a clock that jumps while the server runs"""
    clock = Clock(90)
    server = Redis(clock=clock)
    for ahead in (90, 0, 200, -100):
        clock.set(ahead)
        ok(abs(clock.shows(server) - ahead) < 1, 'a clock of %d s' % ahead,
           clock.shows(server))
    server('SET', 'key', 'x', 'PX', 60000)
    clock.set(0)
    same(server('GET', 'key'), None, 'ttl go by it')
    server.remove()


def test_forward():
    clock = Clock()
    server = Redis(clock=clock)
    gw = gateway(server.port)
    done = ['forward-done-%d' % i for i in range(5)]
    for key in done:
        gw.post('/ok', key)
    up.hold()
    running = background(gw.post, '/wait', 'forward-runs', timeout=60)
    again = background(gw.post, '/again/wait', 'forward-again', timeout=60)
    up.until('forward-runs')
    up.until('forward-again')

    clock.set(90)
    # the first to come may be a retry, before any tick of the gateway
    retries = [gw.post('/again/wait', 'forward-again') for _ in range(5)]
    ok({a.status for a in retries} <= {409, 503}, 'forward: what runs is not '
       'executed again', retries)
    executed(up, 'forward-again', 1, 'forward: what another one may retry')
    jumped(gw, FORWARD, 90, 'forward')
    ok('has a clock that went forward: ' + FORGOTTEN in gw.log(),
       'forward: it is a loss')
    refused_then_taken(gw, done, 'forward')
    refused(gw, '/wait', 'forward-runs', 'in_progress',
            'forward: what runs is known to run')
    up.go()
    again.join()
    answer = running.join()
    same((answer.status, answer.replayed), (201, False),
         'forward: what ran ends')
    replays(gw, '/wait', 'forward-runs', answer, 'forward')
    executed(up, 'forward-runs', 1, 'forward: what ran')
    gw.stop()
    server.remove()


def test_another():
    """A virtual address moves to a replica that is ahead."""
    first = Redis(clock=Clock())
    ahead = Redis('--replicaof', '127.0.0.1 %d' % first.port,
                  clock=Clock(90))
    address = Proxy(first)
    gw = gateway(address.port)
    done = ['another-done-%d' % i for i in range(5)]
    for key in done:
        gw.post('/ok', key)
    ok(until(lambda: ahead('DBSIZE') >= first('DBSIZE') > 5),
       'another: the replica has it all')
    ahead('REPLICAOF', 'NO', 'ONE')
    address.server = ahead
    first.stop()
    ok(until(lambda: gw.post('/ok', 'another-early').status == 503),
       'another: refused')
    jumped(gw, FORWARD, 90, 'another')
    refused_then_taken(gw, done, 'another')
    gw.stop()
    first.remove()
    ahead.remove()


def test_back():
    clock = Clock(300)
    server = Redis(clock=clock)
    gw = gateway(server.port)
    answer = gw.post('/ok', 'back-done')
    clock.set(210)
    same(gw.post('/ok', 'back-new').status, 201, 'back: a new key runs')
    jumped(gw, BACK, 90, 'back')
    replays(gw, '/ok', 'back-done', answer, 'back')
    ok(FORGOTTEN not in gw.log(), 'back: it is no loss')
    same(gw.post('/ok', 'back-later').status, 201, 'back: another one')
    gw.stop()
    server.remove()


def test_small():
    """a correction of a second is none"""
    clock = Clock()
    server = Redis(clock=clock)
    gw = gateway(server.port)
    for ahead in (1, 0, -1, 0):
        clock.set(ahead)
        same({gw.post('/ok', 'small-%d-%d' % (ahead, i)).status
              for i in range(5)} - {200, 201}, set(),
             'a clock that is corrected by a second')
    ok('clock of the server' not in gw.log(), 'is not reported')
    same(store(gw).get('clock_steps'), 0, 'and not counted')
    gw.stop()
    server.remove()


for test in sys.argv[1:] or [n for n in list(globals())
                             if n.startswith('test_')]:
    globals()[test]()
finish()
