#!/usr/bin/env python3
"""idempotency_lookup ... cancel: a key that was never executed never will be.

DELETE by its caller cancels a key that nothing was executed under; from then
on it gets 410 for as long as a key is kept.  Otherwise DELETE gets 409 and the
state.  Of a cancel and a claim at the same moment exactly one wins.
"""

import json
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish,  # noqa: E402
                     free_port, ok, same, until)

up = Ledger()

gw = Gateway(up, workers=2, server='idempotency_source $client;', http='''
    map $http_client $client { "" somebody; default $http_client; }
    idempotency_scope pay;
''', locations='''
    location /pay/ {
        idempotency main;
        proxy_read_timeout 20s;
        proxy_pass http://up;
    }
    location /reject/ {
        idempotency main;
        idempotency_duplicate reject;
        proxy_pass http://up;
    }
    location /issued/ {
        idempotency main;
        idempotency_issued on;
        proxy_pass http://up;
    }
    location /closed/ {
        idempotency main;
        proxy_pass http://127.0.0.1:%d;
    }
    location /stripe/ {
        idempotency main;
        idempotency_profile stripe;
        idempotency_scope pay;
        proxy_pass http://up;
    }
    location = /token { idempotency_token main; }
    location = /look  { idempotency_lookup main; }
    location = /mine  { idempotency_lookup main cancel; }
    location = /short {
        idempotency_lookup main cancel;
        idempotency_ttl 1s;
    }
    location = /grave {
        idempotency_lookup main cancel;
        idempotency_ttl 1s tombstone=30s;
    }
    location = /both  { idempotency_lookup main admin cancel; }
''' % free_port())


def ask(method, key, path='/mine', headers=(), **args):
    a = gw.post(path, key, method=method, body=None, headers=headers, **args)
    try:
        a.json = json.loads(a.body)
    except ValueError:
        a.json = {}
    return a


def pay(key, path='/pay/ok', **args):
    return gw.post(path, key, **args)


def gone(key, name, path='/pay/ok', **args):
    a = pay(key, path, **args)
    same((a.status, a.code, a.retry, a.replayed, a.get('content-type')),
         (410, 'key_cancelled', 'never', False, 'application/problem+json'),
         name + ': 410')
    ok(b'original_status' not in a.body, name + ': it has no status', a)


def test_never_executed():
    a = ask('DELETE', 'k')
    same((a.status, a.json.get('state'), a.get('cache-control')),
         (200, 'cancelled', 'no-store'), 'a key that was never sent')
    gone('k', 'then')
    gone('k', 'with another body', body=b'other')
    gone('k', 'where duplicates are rejected', '/reject/ok')
    executed(up, 'k', 0, 'cancelled')

    b = ask('DELETE', 'k')
    same((b.status, b.json.get('fence')), (200, a.json['fence']),
         'cancelled again')
    for path in ('/look', '/mine'):
        c = ask('GET', 'k', path)
        same((c.status, c.json.get('state'), c.json.get('attempts'),
              'status' in c.json, 86000 < c.json.get('ttl', 0) <= 86400),
             (200, 'cancelled', 0, False, True), path + ' shows it')

    a = pay('k', '/stripe/ok')
    error = json.loads(a.body)['error']
    same((a.status, error['type'], error['code']),
         (410, 'idempotency_error', 'key_cancelled'), 'as Stripe would say it')

    a = pay('k', headers=[('Client', 'bob')])
    same(a.status, 201, 'the same key of another source')
    same(ask('GET', 'k', headers=[('Client', 'bob')]).json.get('state'),
         'done', 'is another record')
    ok('was cancelled by "127.0.0.1"' in gw.log(), 'it is logged')


def test_released():
    a = pay('released', '/closed/x')
    same((a.status, a.code), (502, 'not_sent'), 'a try that was not sent')
    same(ask('DELETE', 'released').status, 200, 'it was released: cancelled')
    gone('released', 'released')


def test_issued():
    token = gw.post('/token', None, body=b'').body
    key = json.loads(token)['token'] if token.startswith(b'{') \
        else token.decode().strip()
    same(ask('DELETE', key).json.get('state'), 'cancelled', 'a token')
    gone(key, 'a token', '/issued/ok')


def test_executed():
    def refused(key, state, name):
        before = ask('GET', key, '/look').json
        a = ask('DELETE', key)
        same((a.status, a.code, a.json.get('state')),
             (409, 'state_mismatch', state), name + ': 409')
        after = ask('GET', key, '/look').json
        for record in (before, after):
            record.pop('age', 0)
            record.pop('ttl', 0)
        same(after, before, name + ': unchanged')

    up.hold()
    c = gw.call('/pay/wait', 'running')
    up.until('running')
    refused('running', 'executing', 'a running request')
    up.go()
    first = c.read()
    same(first.status, 201, 'which gets its answer')
    refused('running', 'done', 'an executed request')
    a = pay('running', '/pay/wait')
    same((a.status, a.body, a.replayed), (201, first.body, True), 'replayed')

    same(pay('lost', '/pay/reset').code, 'outcome_unknown', 'lost')
    refused('lost', 'unknown', 'an unknown outcome')


def test_time():
    same(ask('DELETE', 'short', '/short').status, 200, 'for one second')
    gone('short', 'meanwhile')
    ok(until(lambda: ask('GET', 'short', '/look').status == 404, 10),
       'past its ttl it is not known')
    same(pay('short').status, 201, 'and new again')

    ask('DELETE', 'grave', '/grave')
    ok(until(lambda: ask('GET', 'grave', '/look').json.get('ttl', 0) > 20,
             10),
       'behind it a tombstone', ask('GET', 'grave', '/look').json)
    same(ask('GET', 'grave', '/look').json.get('state'), 'cancelled',
         'which is that of a cancelled key')
    gone('grave', 'tombstone')
    same(ask('DELETE', 'grave').status, 200, 'tombstone: cancelled before')


def test_refused():
    a = ask('DELETE', 'x', '/look')
    same((a.status, a.code, a.get('allow')),
         (405, 'method_not_allowed', 'GET, HEAD'), 'not without "cancel"')
    a = ask('POST', 'x')
    same((a.status, a.get('allow')), (405, 'GET, HEAD, DELETE'), 'no POST')
    same((ask('DELETE', None).code, ask('DELETE', 'a b').code),
         ('key_missing', 'key_invalid'), 'it needs a key')
    for headers in ([('Origin', 'https://evil.example')],
                    [('Sec-Fetch-Site', 'cross-site')],
                    [('Sec-Fetch-Site', 'same-site')]):
        a = ask('DELETE', 'x', headers=headers)
        same((a.status, a.code), (403, 'cross_site'), str(headers))
    same(ask('DELETE', 'x', headers=[('Origin', 'http://gateway')]).status,
         200, 'its own site')
    same(ask('GET', 'x2', '/look').status, 404, 'nothing was done')


def test_admin():
    same(pay('admin').status, 201, 'executed')
    a = ask('DELETE', 'admin', '/both')
    same((a.status, a.code), (409, 'state_mismatch'), 'admin: not cancelled')
    a = ask('DELETE', 'admin', '/both?fence=%d' % a.json['fence'])
    same((a.status, a.json.get('state')), (200, 'none'),
         'admin: purged, with its fence')
    same(ask('DELETE', 'admin', '/both').json.get('state'), 'cancelled',
         'admin: cancelled, without')
    gone('admin', 'after a purge')
    a = ask('DELETE', None, '/both?record=' + '0' * 64)
    same((a.status, a.code), (400, 'argument_invalid'),
         'a record is not cancelled by its name')
    fence = ask('GET', 'admin', '/look').json['fence']
    same(ask('DELETE', 'admin', '/both?fence=%d' % fence).json.get('state'),
         'none', 'an operator may purge a cancelled key')
    same(pay('admin').status, 201, 'which is new then')


def test_race():
    """exactly one of a cancel and some claims wins, for each key"""
    won = {'cancel': 0, 'claim': 0}
    for n in range(60):
        key = 'race-%d' % n
        answers = {}
        start = threading.Barrier(4)

        def run(name, function, *args):
            start.wait()
            answers[name] = function(*args)

        threads = [threading.Thread(target=run, args=args) for args in (
            ('cancel', ask, 'DELETE', key), ('one', pay, key),
            ('two', pay, key), ('again', ask, 'DELETE', key))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        cancelled = {answers[n].status == 200 for n in ('cancel', 'again')}
        last = pay(key)
        good = len(cancelled) == 1
        if cancelled == {True}:
            won['cancel'] += 1
            good = good and up.count(key) == 0 and all(
                a.code == 'key_cancelled'
                for a in (answers['one'], answers['two'], last))
        else:
            won['claim'] += 1
            good = good and up.count(key) == 1 and last.replayed \
                and all(answers[n].code == 'state_mismatch'
                        for n in ('cancel', 'again'))
        if not good:
            ok(False, 'one wins', (key, answers, last, up.count(key)))
            return
    ok(True, 'exactly one wins, 60 times')
    print('# won by ' + str(won))


test_never_executed()
test_released()
test_issued()
test_executed()
test_time()
test_refused()
test_admin()
test_race()
gw.stop()
finish()
