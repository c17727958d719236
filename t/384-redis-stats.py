#!/usr/bin/env python3
"""idempotency_stats of a store in Redis.

Connections and their states, of all workers; that Redis is not available, and
what waits for it; that operations were repeated.  An unknown outcome that was
resolved elsewhere disappears.  Names are escaped so that both formats stay
valid, whatever is in the configuration.
"""

import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import Gateway, Ledger, finish, ok, same, until  # noqa: E402
from redisd import RECORDS, Redis  # noqa: E402

server = Redis()
up = Ledger()
gw = Gateway(up, workers=2, http='''
    idempotency_store "a\\"b\\\\c" redis://127.0.0.1:%d connections=3
                      connect_timeout=500ms timeout=300ms;
''' % server.port, locations='''
    location = /stats { idempotency_stats; }
    location /seq/ {
        idempotency "a\\"b\\\\c";
        idempotency_sequence increasing;
        proxy_pass http://up;
    }
    location /r/ { idempotency "a\\"b\\\\c"; proxy_pass http://up; }
    location "/\xe9\\"<b>\\n/" { idempotency main; proxy_pass http://up; }
''')


def get(form):
    return gw.post('/stats?format=' + form, None, body=None,
                   method='GET').body.decode()


def store():
    return [s for s in json.loads(get('json'))['stores']
            if s['name'] == 'a"b\\c'][0]


def ready():
    return store()['connections']['ready']


def names():
    ok('"location":"/\xe9\\"<b>?/"' in get('json'), 'a name in JSON')
    ok('idempotency_store_up{store="a\\"b\\\\c"} 1\n' in get('prometheus'),
       'and in a label', get('prometheus'))


def connections():
    ok(until(lambda: ready() == 6, 15), 'all connections are ready', store())
    same(store()['health'], 'ok', 'the store is well')
    ok('idempotency_redis_connections{store="a\\"b\\\\c",state="ready"} 6\n'
       in get('prometheus'), 'for Prometheus too')


def away():
    gw.post('/r/ok', 'first')
    up.hold()
    running = gw.call('/r/wait', 'running')
    up.until('running')
    server.stop()
    up.go()
    same(running.read().status, 201, 'what ran is answered')
    ok(until(lambda: (store()['health'], store()['why'])
             == ('down', 'not connected'), 15), 'it is down', store())
    ok(until(lambda: store()['background']['waiting'] == 1, 15),
       'an outcome waits for it', store())
    ok('idempotency_store_up{store="a\\"b\\\\c"} 0\n' in get('prometheus'),
       'for Prometheus too')
    s = store()
    ok(s['failures'] > 0, 'attempts failed', s)
    server.start()
    ok(until(lambda: ready() == 6, 30), 'it is back', store())
    ok(until(lambda: store()['background']['waiting'] == 0, 30),
       'and was told', store())
    s = store()
    same((s['reconnects'], s['background']['retries'] > 0), (6, True),
         'by new connections')


def settled_elsewhere():
    gw.post('/r/reset', 'lost')
    ok(until(lambda: store()['unknown']['now'] == 1), 'an unknown',
       store()['unknown'])
    for name in server('KEYS', RECORDS):
        server('DEL', name)
    ok(until(lambda: store()['unknown']['now'] == 0, 30),
       'that is no more', store()['unknown'])


def looks():
    """calls of scripts so far; nobody else asks"""
    text = server('INFO', 'commandstats').decode()
    return sum(int(n) for n in re.findall(r'cmdstat_eval\w*:calls=(\d+)', text))


def sequences():
    """a number is looked for under its own name"""
    gw.post('/seq/reset', '7')
    gw.post('/r/reset', 'lost')
    ok(until(lambda: store()['unknown']['now'] == 2), 'two unknowns',
       store()['unknown'])
    before = looks()
    ok(until(lambda: looks() >= before + 6, 60), 'looked at three times')
    same(store()['unknown']['now'], 2, 'they still are')
    for name in server('KEYS', '*}*'):
        if b'counter' not in name:
            server('DEL', name)
    ok(until(lambda: store()['unknown']['now'] == 1, 30),
       'one that is no more', store()['unknown'])
    for name in server('KEYS', RECORDS):
        server('DEL', name)
    ok(until(lambda: store()['unknown']['now'] == 0, 30),
       'nor is the other', store()['unknown'])


def full():
    up_line = 'idempotency_store_up{store="a\\"b\\\\c"} %d\n'
    server('CONFIG', 'SET', 'maxmemory', '1')
    same(gw.post('/r/ok', 'full').status, 503, 'Redis has no memory')
    same((store()['health'], store()['state'], store()['why']),
         ('down', 'full', 'full: new keys are refused'), 'it is full')
    ok(up_line % 0 in get('prometheus'), 'for Prometheus too')
    server('CONFIG', 'SET', 'maxmemory', '0')
    same(store()['state'], 'full', 'nobody has tried since')
    same(gw.post('/r/ok', 'room').status, 201, 'there is room again')
    same((store()['health'], store()['state']), ('ok', 'ok'), 'all is well')
    ok(up_line % 1 in get('prometheus'), 'for Prometheus too')


names()
connections()
full()
settled_elsewhere()
sequences()
away()
# it has come back empty, which is noticed
gw.expected.append('keys may be forgotten')
gw.stop()
finish()
