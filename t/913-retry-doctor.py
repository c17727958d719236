#!/usr/bin/env python3
"""The retry doctor: which clients retry wrongly, and how.

Keys that are used again with another body, fresh keys for the same body,
retries without a pause: by source, which is a hash that an operator can
compute, in JSON; in sum for Prometheus.  Clients that do it right are not
there.  That a retry never came takes ten minutes: t/unit/trouble.c has it.
"""

import hashlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import Gateway, Ledger, finish, ok, same, until  # noqa: E402

up = Ledger()
gw = Gateway(up, workers=2, locations='''
        location = /stats { idempotency_stats; }
        location /pay/ {
            idempotency main;
            idempotency_source $http_x_client;
            idempotency_suspect report;
            idempotency_label "the shop of $http_x_client";
            proxy_pass http://up;
        }
        location /dry/ {
            idempotency main;
            idempotency_source $http_x_client;
            idempotency_dry_run on;
            proxy_pass http://up;
        }
''', default='idempotency_source $http_x_client;')

KINDS = ('key_reused', 'fresh_key', 'no_backoff', 'never_retried')


def post(path, client, key, body=b'x'):
    return gw.post(path, key, body=body, headers=[('X-Client', client)])


def doctor():
    a = gw.post('/stats?format=json', None, body=None, method='GET')
    return json.loads(a.body)['retry_doctor']


def source(client):
    name = hashlib.sha256(client.encode()).hexdigest()[:16]
    for s in doctor()['sources']:
        if s['source'] == name:
            return s
    return None


def trouble(client):
    s = source(client)
    return s and {k: s[k] for k in KINDS if s[k]}


def shows(client, want, name):
    until(lambda: trouble(client) == want)
    same(trouble(client), want, name)


def test_right():
    for i in range(20):
        post('/ok', 'good', 'right-%d' % i)
        post('/ok', 'good', 'right-%d' % i)
    same(doctor()['sources'], [], 'replays are no trouble')


def test_reused():
    for body in (b'a', b'b', b'c'):
        post('/ok', 'reuser', 'order', body)
    shows('reuser', {'key_reused': 2}, 'a key with another body')
    s = source('reuser')
    same((s['location'], s['label'], s['error']), ('/', '', 0),
         'where, and for sure')
    ok(abs(s['last'] - time.time()) < 60, 'and when', s)


def test_fresh():
    for i in range(3):
        post('/pay/ok', 'fresh', 'fresh-%d' % i, b'the same')
    shows('fresh', {'fresh_key': 2}, 'fresh keys for the same body')
    s = source('fresh')
    same((s['location'], s['label']), ('/pay/', 'the shop of fresh'),
         'where, and the label of the last one')


def test_backoff():
    up.hold()
    held = [gw.call('/wait', 'held', headers=[('X-Client', c)])
            for c in ('hasty', 'patient')]
    up.until('held', 2)
    for i in range(4):
        same(post('/wait', 'hasty', 'held').status, 409, 'it still runs')
        time.sleep(0.2)
    post('/wait', 'patient', 'held')
    time.sleep(1.2)           # at least
    post('/wait', 'patient', 'held')
    up.go()
    for c in held:
        c.read()
    shows('hasty', {'no_backoff': 3}, 'retries at once')
    same(source('patient'), None, 'but not one that has waited a second')


def test_unavailable():
    post('/status/503', 'eager', 'away')
    time.sleep(0.2)           # the answer may be there before its end is noted
    post('/status/503', 'eager', 'away')
    shows('eager', {'no_backoff': 1}, 'also after a 503 of the upstream')


def test_dry_run():
    for body in (b'a', b'b'):
        post('/dry/ok', 'dry', 'order', body)
    time.sleep(0.3)
    same(source('dry'), None, 'a dry run refuses nothing')


def test_sums():
    d = doctor()
    same({k: d[k] for k in KINDS}, {'key_reused': 2, 'fresh_key': 2,
                                    'no_backoff': 4, 'never_retried': 0},
         'all of them')
    text = gw.post('/stats?format=prometheus', None, body=None,
                   method='GET').body.decode()
    ok('idempotency_client_trouble_total{kind="no_backoff"} 4\n' in text,
       'for Prometheus too')
    same([s['source'] for s in d['sources']][:1],
         [hashlib.sha256(b'hasty').hexdigest()[:16]], 'the worst is first')


def test_bounded():
    for i in range(150):
        post('/ok', 'many-%d' % i, 'b', b'a')
        post('/ok', 'many-%d' % i, 'b', b'b')
    ok(until(lambda: doctor()['key_reused'] == 152), 'many sources',
       doctor()['key_reused'])
    same(len(doctor()['sources']), 64, 'of which some are kept')


test_right()
test_reused()
test_fresh()
test_backoff()
test_unavailable()
test_dry_run()
test_sums()
test_bounded()
gw.stop()
finish()
