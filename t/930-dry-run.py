#!/usr/bin/env python3
"""A dry run observes everything and changes nothing.

Every request reaches the upstream and gets its answer, as without the module:
duplicates, requests without a key, requests while the store is down or does
not answer.  What the module would have done is in the log, in the counters,
and in $idempotency_result.  No record of a dry run is visible when it is
switched off, and no list shows one.
"""

import json
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish,  # noqa: E402
                     free_port, ok, same, since, until)

up = Ledger()

mute = socket.socket()            # takes connections and says nothing
mute.bind(('127.0.0.1', 0))
mute.listen(64)

DRY = '''
    location /pay/ {
        idempotency main;
        idempotency_scope pay;
        idempotency_dry_run %s;
        add_header X-Result $idempotency_result always;
        proxy_pass http://up/;
    }
'''

REST = '''
    location /waits/ {
        idempotency main;
        idempotency_dry_run on;
        idempotency_in_progress wait=20s;
        proxy_pass http://up/;
    }
    location /number/ {
        idempotency main;
        idempotency_dry_run on;
        idempotency_sequence strict;
        proxy_pass http://up/;
    }
    location /away/ {
        idempotency away;
        idempotency_dry_run on;
        proxy_pass http://up/;
    }
    location /mute/ {
        idempotency mute;
        idempotency_dry_run on;
        proxy_pass http://up/;
    }
    location = /admin {
        idempotency_lookup main admin;
        idempotency_scope pay;
    }
    location = /stats { idempotency_stats; }
'''

gw = Gateway(up, http='''
    idempotency_store away redis://127.0.0.1:%d timeout=9s connect_timeout=9s;
    idempotency_store mute redis://127.0.0.1:%d timeout=9s connect_timeout=9s;
''' % (free_port(), mute.getsockname()[1]), locations=DRY % 'on' + REST)


def results(location='/pay/'):
    data = json.loads(gw.post('/stats', None, None, 'GET').body)
    found = [x for x in data['locations'] if x['location'] == location][0]
    return {n: v for n, v in found['results'].items() if v}, found['dry_run']


def counted(wanted, name, location='/pay/'):
    until(lambda: results(location)[0] == wanted, 10)
    same(results(location), (wanted, True), name)


def line(text, start, name):
    ok(gw.until_log(text, 10, start), name, gw.log()[start:][-2000:])


# ---- as if there were nothing ----

start = len(gw.log())
answers = [gw.post('/pay/ok', 'k')]
counted({'new': 1}, 'a request')      # the store has it: no answer waits for it
answers += [gw.post('/pay/ok', 'k') for _ in range(2)]
same([(a.status, a.replayed) for a in answers], [(201, False)] * 3,
     'duplicates are executed')
same(len({a.body for a in answers}), 3, 'each on its own')
executed(up, 'k', 3, 'a dry run')
counted({'new': 1, 'replayed': 2}, 'and counted as what they would have been')
line('idempotency dry run: request would have been "replayed", record "',
     start, 'and logged')
same(gw.log()[start:].count('would have been'), 2, 'a line for each')
ok('location "/pay/"' in gw.log()[start:], 'with its location')
if os.environ.get('TEST_NGINX_STORE') is None:
    same([a.get('x-result') for a in answers], ['new', 'replayed', 'replayed'],
         'and in the variable')

a = gw.post('/pay/ok', None)
same((a.status, a.code), (201, None), 'without a key')
a = gw.post('/pay/ok', 'a b')
same((a.status, a.code), (201, None), 'a malformed one')
a = gw.post('/pay/ok', 'k', b'other')
same((a.status, a.code), (201, None), 'another body')
counted({'new': 1, 'replayed': 2, 'missing': 1, 'invalid': 1, 'mismatch': 1},
        'what they would have been')

slow = gw.call('/pay/wait', 'slow')
until(lambda: up.count('slow') == 1)
until(lambda: results()[0].get('new') == 1)
other = gw.call('/pay/ok', 'slow')
same(other.read().status, 201, 'while the first one runs')
waits = gw.call('/waits/wait', 'slow')
until(lambda: up.count('slow') == 3)
begin = time.time()
same(gw.post('/waits/ok', 'slow', timeout=30).status, 201, 'nobody waits')
ok(since(begin) < 15, 'not at all')
up.go()
same((slow.read().status, waits.read().status), (201, 201), 'it ends')
counted({'new': 2, 'replayed': 2, 'missing': 1, 'invalid': 1, 'mismatch': 1,
         'in_progress': 1}, 'in progress')

start = len(gw.log())
same(gw.post('/pay/reset', 'lost').status, 502, 'an upstream that breaks off')
line('would be unknown, status 502', start, 'an unknown')
until(lambda: results()[0].get('new') == 3)
a = gw.post('/pay/reset', 'lost')
same((a.status, a.code, a.retry), (502, None, None), 'is asked again')
executed(up, 'lost', 2, 'an unknown')
counted({'new': 3, 'replayed': 2, 'missing': 1, 'invalid': 1, 'mismatch': 1,
         'in_progress': 1, 'unknown': 1}, 'unknown')
for i in range(2):
    same(gw.post('/pay/status/503', 'later').status, 503, 'to be retried')
    until(lambda: results()[0].get('new') == 4 + i)
counted({'new': 5, 'replayed': 2, 'missing': 1, 'invalid': 1, 'mismatch': 1,
         'in_progress': 1, 'unknown': 1}, 'released')

for i, n in enumerate(('1', '3', '2')):
    same(gw.post('/number/ok', n).status, 201, 'a number in no order')
    until(lambda: sum(results('/number/')[0].values()) > i)
counted({'new': 2, 'out_of_order': 1}, 'numbers', '/number/')

# the answer flows; it is not held until its end
c = gw.call('/pay/drip/3/700', 'drip')
c.read_some(20)
begin = time.time()
c.read_some(1 << 20)
ok(time.time() - begin > 0.6, 'an answer flows while it is made',
   time.time() - begin)
a = gw.post('/pay/ok?h=X-Accel-Idempotency:final', 'word')
same((a.status, a.get('x-accel-idempotency')), (201, None),
     "the upstream's word is not passed on")

# ---- what it leaves behind ----


def listed(state):
    """all pages: one may be empty, with more behind it"""
    records, cursor = [], ''
    while cursor is not None:
        page = json.loads(gw.post('/admin?state=%s&cursor=%s' % (
            state, cursor), None, None, 'GET').body)
        records += page['records']
        cursor = page['cursor']
    return records


same([listed(s) for s in ('done', 'unknown', 'executing')], [[], [], []],
     'no list shows it')

workers = gw.workers()
gw.write(locations=DRY % 'off' + REST)
gw.signal(signal.SIGHUP)
until(lambda: gw.workers() and not set(gw.workers()) & set(workers), 30)
a = gw.post('/pay/ok', 'k')
same((a.status, a.replayed), (201, False), 'switched off, the key is new')
executed(up, 'k', 5, 'once more')
b = gw.post('/pay/ok', 'k')
same((b.body, b.replayed), (a.body, True), 'and then it is protected')
executed(up, 'k', 5, 'and no more')
same(gw.post('/pay/ok', 'lost').status, 201, 'what was unknown is free')
same(len(listed('done')), 2, 'now there are records')

# ---- a store that fails ----

for i in range(3):
    for place in ('/away/ok', '/mute/ok'):
        begin = time.time()
        same(gw.post(place, 'fails').status, 201, place + ': it goes on')
        ok(since(begin) < 5, place + ': without waiting',
           since(begin))
until(lambda: results('/away/')[0].get('store_error') == 3, 10)
same(results('/away/')[0], {'store_error': 3}, 'a store that is away')
same(up.count('fails'), 6, 'all were executed')
text = gw.post('/stats?format=prometheus', None, None, 'GET').body.decode()
ok('idempotency_dry_run_requests_total{server="",location="/away/",'
   'result="store_error"} 3' in text, 'for Prometheus by another name', text)
ok('idempotency_requests_total{server="",location="/number/"' not in text,
   'and not among those that are refused')

gw.stop()
finish()
