#!/usr/bin/env python3
"""idempotency_stats: what the counts say is what happened.

Requests by location and result, of all workers, across a reload; the time
that the store took; leases that are held and duplicates that wait, and not
those of a worker that has died; unknowns for as long as they are, as many as
the store has, also after a restart.  As JSON, and as text for Prometheus, by
?format= or by Accept.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (POSTGRES, REDIS, SQLITE, Gateway, Ledger, finish,  # noqa: E402
                     ok, same, until)

up = Ledger()
gw = Gateway(up, workers=2, locations='''
        location = /stats { idempotency_stats; }
        location /later/ {
            idempotency main;
            idempotency_in_progress wait=20s;
            proxy_pass http://up;
        }
''')


def get(query='', accept=None):
    headers = [('Accept', accept)] if accept else []
    return gw.post('/stats' + query, None, body=None, method='GET',
                   headers=headers)


def stats():
    return json.loads(get('?format=json').body)


def results(name):
    for loc in stats()['locations']:
        if loc['location'] == name:
            return {k: v for k, v in loc['results'].items() if v}
    return None


def store():
    return stats()['stores'][0]


def now():
    s = store()
    return s['in_flight'], s['leases'], s['waiting']


def unknown():
    u = store()['unknown']
    return u['total'], u['now']


def test_results():
    for i in range(7):
        gw.post('/ok', 'a%d' % i)
    for i in range(3):
        gw.post('/ok', 'a0')
    gw.post('/ok', 'a0', body=b'other')
    gw.post('/ok', None)
    gw.post('/ok', 'b' * 300)
    expected = {'new': 7, 'replayed': 3, 'mismatch': 1, 'missing': 1,
                'invalid': 1}
    until(lambda: results('/') == expected)
    same(results('/'), expected, 'results of a location')
    same(results('/later/'), {}, 'and not of another one')
    same(results('/stats'), None, 'the stats do not count themselves')
    s = store()
    same((s['claim']['count'], s['complete']['count']), (11, 7),
         'operations of the store')
    same(sum(s['claim']['buckets']), 11, 'by how long they took')
    same((s['health'], s['why']), ('ok', ''), 'the store is well')
    same(s['kind'], 'redis' if REDIS else 'sqlite' if SQLITE
         else 'postgres' if POSTGRES else 'shm', 'the kind of the store')
    if REDIS is None and not POSTGRES:
        same(s['zone']['records'], 7, 'records in the zone')
        ok(SQLITE or 0 < s['zone']['free'] < s['zone']['size'],
           'room in the zone')


def test_now():
    up.hold()
    first = gw.call('/later/wait', 'now')
    up.until('now')
    others = [gw.call('/later/wait', 'now') for _ in range(3)]
    ok(until(lambda: now() == (4, 1, 3)), 'one holds its key, three wait',
       now())
    up.go()
    for c in [first] + others:
        c.read()
    ok(until(lambda: now() == (0, 0, 0)), 'and then nobody', now())
    expected = {'new': 1, 'waited': 3}
    until(lambda: results('/later/') == expected)
    same(results('/later/'), expected, 'they have waited')


def test_unknown():
    same(unknown(), (0, 0), 'nothing is unknown')
    gw.post('/reset', 'lost')
    ok(until(lambda: unknown() == (1, 1)), 'an outcome is unknown',
       store()['unknown'])
    gw.post('/reset', 'lost')
    same(unknown(), (1, 1), 'a duplicate is no other one')
    u = store()['unknown']
    ok(0 <= u['oldest'] < 60, 'its age', u)
    same([len(r['record']) for r in u['records']], [16], 'its name')
    fence = gw.record('lost', '/reset')['fence']
    gw.ask({'X-Key': 'lost', 'X-Source': 'somebody',
            'X-Scope': 'POST /reset'}, op='resolve', identify=1, fence=fence)
    ok(until(lambda: unknown() == (1, 0), 20), 'and then it is settled',
       store()['unknown'])


def settle(key):
    fence = gw.record(key, '/reset')['fence']
    gw.ask({'X-Key': key, 'X-Source': 'somebody',
            'X-Scope': 'POST /reset'}, op='resolve', identify=1, fence=fence)


def restart():
    pid = gw.pid()
    gw.end()
    until(lambda: not os.path.exists('/proc/%d' % pid))
    gw.command()
    gw.wait_port()


def test_restart():
    """the store knows of them, and not only the process that made them"""
    started = time.time()
    for i in range(3):
        gw.post('/reset', 'kept%d' % i)
    ok(until(lambda: unknown()[1] == 3), 'three are unknown',
       store()['unknown'])
    counted = store()['unknown']['counted']
    if not (REDIS or SQLITE or POSTGRES):
        restart()
        same(unknown(), (0, 0), 'shared memory ends with nginx')
        return
    time.sleep(2)
    restart()
    ok(until(lambda: unknown() == (0, 3)), 'they are after a restart',
       store()['unknown'])
    u = store()['unknown']
    ok(1 <= u['oldest'] <= time.time() - started + 1, 'as old as they are', u)
    ok(until(lambda: store()['unknown']['counted'] > counted),
       'when they were counted')
    same(len(store()['unknown']['records']), 3, 'which ones')
    for i in range(3):
        settle('kept%d' % i)
    ok(until(lambda: unknown() == (0, 0)), 'and then they are settled',
       store()['unknown'])


def test_many():
    """more than the list has room for"""
    for i in range(80):
        gw.post('/reset', 'many%d' % i)
    ok(until(lambda: unknown()[1] == 80, 40), 'eighty are unknown',
       store()['unknown']['now'])
    same(len(store()['unknown']['records']), 64, 'some of them by name')
    ok('idempotency_unknown{store="main"} 80\n'
       in get('?format=prometheus').body.decode(), 'for Prometheus too')
    for i in range(80):
        settle('many%d' % i)
    ok(until(lambda: unknown()[1] == 0, 40), 'then none is',
       store()['unknown']['now'])


def test_about():
    s = stats()
    text = get('?format=prometheus').body.decode()
    with open(os.path.dirname(os.path.abspath(__file__))
              + '/../src/ngx_http_idempotency.h') as f:
        version = re.search(r'VERSION +"([\d.]+)"', f.read()).group(1)
    same((s['version'], s['host']), (version, socket.gethostname()),
         'which module, on which machine')
    ok(re.search(r'^idempotency_build_info\{version="%s",nginx="[\d.]+",'
                 r'host="%s"\} 1$' % (re.escape(version),
                                      re.escape(socket.gethostname())),
                 text, re.M), 'for Prometheus too', text[:400])
    ok(0 <= s['time'] - s['since'] < 600, 'since when it counts', s['since'])
    ok('idempotency_counting_since_timestamp_seconds %d\n' % s['since']
       in text, 'for Prometheus too')
    names = re.findall(r'requests_total\{server="",location="/later/",'
                       r'result="(\w+)"\} 0\n', text)
    same(sorted(names), sorted(s['locations'][0]['results']),
         'each result of a location has a value before the first request')


def test_death():
    up.hold()
    clients = [gw.call('/later/wait', 'dead%d' % i) for i in range(4)]
    for i in range(4):
        up.until('dead%d' % i)
    ok(until(lambda: now() == (4, 4, 0)), 'four hold their keys', now())
    gw.expected.append('exited on signal 9')
    old = gw.workers()
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    ok(until(lambda: len(set(gw.workers()) - set(old)) == 2, 15),
       'other workers are there')
    ok(until(lambda: now() == (0, 0, 0), 15), 'the dead hold nothing', now())
    same(store()['abandoned'], 4, 'which is told as well')
    up.go()
    for c in clients:
        c.close()


def test_promtool():
    text = get('?format=prometheus').body
    if shutil.which('promtool') is None:
        print('# skipped: promtool is not installed')
        return
    done = subprocess.run(['promtool', 'check', 'metrics'], input=text,
                          capture_output=True, timeout=60)
    same((done.returncode, done.stdout + done.stderr), (0, b''),
         'promtool has nothing to say')


def test_formats():
    a = get('?format=prometheus')
    same(a.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8',
         'the type for Prometheus')
    text = a.body.decode()
    ok('idempotency_requests_total{server="",location="/",result="new"} 7\n'
       in text, 'a result', text)
    ok('idempotency_store_duration_seconds_bucket{store="main",'
       'operation="claim",le="+Inf"} ' in text, 'a bucket')
    wrong = [line for line in text.splitlines()
             if not re.fullmatch(r'# (HELP|TYPE) idempotency_\w+ .+|'
                                 r'idempotency_\w+(\{\w+="[^"]*"'
                                 r'(,\w+="[^"]*")*\})? -?\d+(\.\d+)?', line)]
    same(wrong, [], 'nothing but metrics')
    names = re.findall(r'^# TYPE (\w+)', text, re.M)
    same(len(names), len(set(names)), 'each is declared once')

    for accept, kind in [
            ('text/plain;version=0.0.4;q=0.5,*/*;q=0.1', 'text/plain'),
            ('application/openmetrics-text,text/plain', 'text/plain'),
            ('text/html,application/xhtml+xml,*/*;q=0.8', 'text/html'),
            ('application/json, text/html', 'application/json'),
            ('application/json', 'application/json'),
            ('*/*', 'application/json'), (None, 'application/json')]:
        a = get('', accept)
        same(a.get('content-type').partition(';')[0], kind,
             'Accept: %s' % accept)
    a, b = get('?format=html'), get('?format=html')
    policy, other = [x.get('content-security-policy') for x in (a, b)]
    nonce = re.search("'nonce-([0-9a-f]{32})'", policy).group(1)
    ok(("default-src 'none'" in policy and "connect-src 'self'" in policy
        and 'unsafe' not in policy), 'the page talks to us only', policy)
    same((a.body.count(b'nonce="' + nonce.encode() + b'"'), a.body.count(b'@'),
          policy != other), (2, b.body.count(b'@'), True),
         'and only what is in it runs')
    ok(b'@NONCE@' not in a.body and b'@STYLE@' not in a.body
       and b'@SCRIPT@' not in a.body and b'</html>' in a.body, 'all is in it')
    same(re.findall(rb'(?:https?:)?//[\w.]+', a.body),
         [b'http://www.w3.org'], 'it names no other host')
    same(get('', None).get('cache-control'), 'no-store', 'it is not cached')
    same(get('?format=xml').status, 400, 'an unknown format')
    same(gw.post('/stats', None).status, 405, 'POST')
    a = gw.post('/stats', None, body=None, method='HEAD')
    same((a.status, a.body), (200, b''), 'HEAD')


def test_reload():
    before = results('/')
    old = gw.workers()
    gw.signal(signal.SIGHUP)
    until(lambda: not set(gw.workers()) & set(old), 15)
    same(results('/'), before, 'counts survive a reload')
    gw.post('/ok', 'after')
    expected = dict(before, new=before['new'] + 1)
    until(lambda: results('/') == expected)
    same(results('/'), expected, 'and go on')


test_about()
test_results()
test_now()
test_formats()
test_unknown()
test_promtool()
test_reload()
test_many()
test_restart()
test_death()
gw.stop()
finish()
