#!/usr/bin/env python3
"""idempotency_suspect: the same request under another key.

A client that retries with a fresh key is noticed: while the first request is
executing or unknown, however long that takes, and for a window from its
completion on.  Such a request is marked, or refused with 409, and leaves no
claim; of several at the same moment one is executed.  What was not executed
is no reason to refuse anything, nor is the same key.
"""

import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish,  # noqa: E402
                     free_port, ok, replays, same, until)

up = Ledger()

LOCATION = '''
    location /%s/ {
        idempotency main;
        idempotency_suspect %s;
        %s
        proxy_pass http://up;
    }
'''

gw = Gateway(up, workers=2, server='idempotency_source $client;', http='''
    map $http_client $client { "" somebody; default $http_client; }
    idempotency_scope pay;
    proxy_set_header X-Suspect $idempotency_suspect;
    add_header X-Suspect $idempotency_suspect always;
    add_header X-Result $idempotency_result always;
''', locations=LOCATION % ('pay', 'reject', '')
    + LOCATION % ('short', 'reject window=1s', 'idempotency_lease 1s;')
    + LOCATION % ('zero', 'reject window=0', '')
    + LOCATION % ('two', 'reject window=2s', '')
    + LOCATION % ('report', 'report window=2s', '')
    + LOCATION % ('retry', 'reject', 'idempotency_unknown retry;')
    + LOCATION % ('issued', 'reject window=1s', 'idempotency_issued on;')
    + LOCATION % ('stripe', 'reject', 'idempotency_profile stripe;'
                  ' idempotency_scope stripe;'
                  ' idempotency_fingerprint raw with=;')
    + LOCATION % ('wait', 'reject', 'idempotency_in_progress wait=10s;')
    + LOCATION % ('allow', 'reject',
                  'idempotency_suspect_allow $http_x_never $http_x_again;')
    + '''
    location /off/ {
        idempotency main;
        proxy_pass http://up;
    }
    location /closed/ {
        idempotency main;
        idempotency_suspect reject;
        proxy_pass http://127.0.0.1:%d;
    }
    location = /token { idempotency_token main; }
    location = /admin { idempotency_lookup main admin; }
    location = /stats { idempotency_stats; }
''' % free_port())


def pay(key, body, path='/pay/ok', **args):
    return gw.post(path, key, body=body, **args)


def state(key):
    return gw.ask({'X-Key': key, 'X-Source': 'somebody', 'X-Scope': 'pay'},
                  op='fetch', identify=1).get('state')


def passes(key, body, name, path='/pay/ok', suspect='0', **args):
    a = pay(key, body, path, **args)
    same((a.status, a.get('x-suspect')), (201, suspect), name + ': passes')
    executed(up, key, 1, name)
    return a


def suspected(key, body, name, path='/pay/ok', **args):
    n = up.count(key)
    a = pay(key, body, path, **args)
    same((a.status, a.code, a.retry, a.get('retry-after'),
          a.get('content-type'), a.get('x-suspect'), a.get('x-result')),
         (409, 'suspected_duplicate', 'never', None,
          'application/problem+json', '1', 'rejected'), name + ': refused')
    same(up.count(key), n, name + ': not executed')
    return a


def counts():
    a = gw.post('/stats?format=json', None, body=None, method='GET')
    return [s['suspects'] for s in json.loads(a.body)['stores']
            if s['name'] == 'main'][0]


def test_fresh_key():
    first = passes('a1', b'a', 'the first one')
    before = counts()
    a = suspected('a2', b'a', 'a fresh key')
    ok(b'original_status' not in a.body, 'it says nothing of the first', a)
    same(state('a2'), 'none', 'it leaves no claim')
    suspected('a2', b'a', 'the fresh key again')
    suspected('a3', b'a', 'another fresh key', '/retry/ok')
    replays(gw, '/pay/ok', 'a1', first, 'the first key', body=b'a')
    suspected('a2', b'a', 'after a replay of the first')
    after = counts()
    same((after['rejected'] - before['rejected'],
          after['passed'] - before['passed']), (4, 0), 'they are counted')
    ok('under another key, which is "done": rejected, location "/pay/"'
       in gw.log(), 'and logged')
    a = gw.post('/stats?format=prometheus', None, body=None, method='GET')
    ok(b'idempotency_suspects_rejected_total{store="main"} %d\n'
       % after['rejected'] in a.body, 'for Prometheus as well', a.body[-2000:])

    passes('b1', b'b', 'another body')
    passes('b2', b'a', 'another source', headers=[('Client', 'bob')])
    passes('b3', b'a', 'another query', '/pay/ok?x=1')
    a = pay('b4', b'a', '/off/ok')
    same((a.status, a.get('x-suspect')), (201, None), 'where it is off')

    same(pay('s1', b's', '/stripe/ok').status, 201, 'Stripe: the first')
    a = pay('s2', b's', '/stripe/ok')
    error = json.loads(a.body)['error']
    same((a.status, error['type'], error['code'],
          a.get('stripe-should-retry')),
         (409, 'idempotency_error', 'suspected_duplicate', 'false'),
         'as Stripe would say it')


def test_window():
    passes('w1', b'w', 'the window', '/short/ok')
    done = time.time()
    suspected('w2', b'w', 'within the window', '/short/ok')
    n = [2]

    def over():
        n[0] += 1
        return pay('w%d' % n[0], b'w', '/short/ok').status == 201
    ok(until(over, 10, 0.05), 'after the window it passes')
    took = time.time() - done
    ok(took > 0.9, 'and not before: %.2f s' % took)
    same(sum(up.count('w%d' % i) for i in range(1, n[0] + 1)), 2,
         'the window: nothing else was executed')

    # a replay is no new request
    time.sleep(1.1)
    same(pay('w1', b'w', '/short/ok').replayed, True, 'a late replay')
    passes('w0', b'w', 'after it', '/short/ok')

    # it begins when the first one is done
    a = gw.call('/two/slow/2300', 'x1', body=b'x')
    ok(up.until('x1'), 'one takes longer than its window')
    same(a.read().status, 201, 'and is done')
    suspected('x2', b'x', 'then', '/two/ok')
    ok(until(lambda: pay('x3-%f' % time.time(), b'x', '/two/ok').status == 201,
             10, 0.1), 'and not for longer')

    passes('z1', b'z', 'no window', '/zero/ok')
    passes('z2', b'z', 'no window: the next', '/zero/ok')


def test_executing():
    up.hold()
    a = gw.call('/zero/wait', 'e1', body=b'e')
    ok(up.until('e1'), 'one is executing')
    suspected('e2', b'e', 'while it is executing', '/zero/ok')
    same((state('e1'), state('e2')), ('executing', 'none'), 'the records')
    b = gw.call('/wait/ok', 'e1', body=b'e')        # waits
    suspected('e3', b'e', 'with a duplicate that waits', '/zero/ok')
    up.go()
    first = a.read()
    same((first.status, b.read().body), (201, first.body), 'both are answered')
    passes('e4', b'e', 'after it', '/zero/ok')
    ok('which is "executing": rejected' in gw.log(), 'it is logged')


def test_unknown():
    same(pay('u1', b'u', '/short/reset').status, 502, 'no answer')
    same(state('u1'), 'unknown', 'the first is unknown')
    begin = time.time()
    suspected('u2', b'u', 'unknown', '/short/ok')
    while time.time() < begin + 1.3:
        time.sleep(0.1)
    suspected('u3', b'u', 'unknown after the window', '/short/ok')
    settle('u1', 'not-executed')
    passes('u4', b'u', 'resolved as not executed', '/short/ok')

    same(pay('v1', b'v', '/zero/reset').status, 502, 'no answer')
    suspected('v2', b'v', 'unknown', '/zero/ok')
    settle('v1', 'executed')
    passes('v3', b'v', 'resolved as executed', '/zero/ok')

    same(pay('y1', b'y', '/pay/reset').status, 502, 'no answer')
    settle('y1', 'executed')
    suspected('y2', b'y', 'resolved as executed just now')

    # the same key is no suspect
    same(pay('r1', b'r', '/retry/flaky').status, 502, 'no answer')
    a = pay('r1', b'r', '/retry/flaky')
    same((a.status, a.get('x-suspect')), (201, '0'), 'its retry is executed')
    suspected('r2', b'r', 'after it', '/retry/ok')


def settle(key, how):
    a = gw.post('/admin', key, body=None, method='GET')
    fence = json.loads(a.body)['fence']
    a = gw.post('/admin?resolve=%s&fence=%s' % (how, fence), key, body=b'')
    same(a.status, 200, 'an operator says: ' + how)


def test_not_executed():
    same(pay('n1', b'n', '/closed/x').code, 'not_sent', 'nothing was sent')
    passes('n2', b'n', 'then a fresh key')
    suspected('n1', b'n', 'and the first one again')

    same(pay('m1', b'm', '/pay/status/503').status, 503, 'released')
    passes('m2', b'm', 'then a fresh key', '/pay/ok')

    same(pay('k1', b'k', '/pay/status/503').status, 503, 'released')
    same(pay('k1', b'k', '/pay/status/503').status, 503, 'again')
    same(pay('k2', b'k', '/pay/status/503').status, 503, 'with a fresh key')
    a = pay('k1', b'k')
    same((a.status, a.get('x-suspect')), (201, '0'), 'and with the first')

    # answered, and that is the answer
    same(pay('f1', b'f', '/pay/status/402').status, 402, 'a final error')
    suspected('f2', b'f', 'is an answer')


def test_report():
    before = counts()
    passes('p1', b'p', 'report: the first', '/report/ok')
    time.sleep(1.2)
    passes('p2', b'p', 'report: a fresh key', '/report/ok', suspect='1')
    same(dict(up.of('p2')[0][4]).get('x-suspect'), '1',
         'the upstream can be told')
    time.sleep(1.2)
    suspected('p3', b'p', 'the window is that of the last one', '/two/ok')
    after = counts()
    same(after['passed'] - before['passed'], 1, 'it is counted')
    ok('which is "done": passed, location "/report/"' in gw.log(),
       'and logged')

    # one that is not settled stays the last one
    same(pay('q1', b'q', '/report/reset').status, 502, 'no answer')
    passes('q2', b'q', 'report: unknown', '/report/ok', suspect='1')
    time.sleep(2.2)
    suspected('q3', b'q', 'and it stays so', '/two/ok')


def test_allow():
    passes('o1', b'o', 'allow: the first', '/allow/ok')
    for name, value in (('X-Again', ''), ('X-Again', '0'), ('X-Other', '1')):
        suspected('o2', b'o', '%s: "%s"' % (name, value), '/allow/ok',
                  headers=[(name, value)])
    passes('o3', b'o', 'allowed', '/allow/ok', suspect='1',
           headers=[('X-Again', 'yes')])
    suspected('o4', b'o', 'the next one', '/allow/ok')


def test_token():
    def token():
        body = gw.post('/token', None, body=b'').body
        return json.loads(body)['token'] if body.startswith(b'{') \
            else body.decode().strip()
    one, two = token(), token()
    passes(one, b't', 'a token', '/issued/ok')
    suspected(two, b't', 'another token', '/issued/ok')
    same(state(two), 'issued', 'it is not spent')
    ok(until(lambda: pay(two, b't', '/issued/ok').status == 201, 10, 0.05),
       'after the window it is')
    executed(up, two, 1, 'the other token')


def test_race():
    for n in range(12):
        body = b'race %d' % n
        answers = {}
        barrier = threading.Barrier(12)

        def client(i):
            barrier.wait()
            answers[i] = pay('c%d-%d' % (n, i), body, '/pay/slow/30')
        threads = [threading.Thread(target=client, args=(i,))
                   for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same(sorted((a.status, a.code) for a in answers.values()),
             [(201, None)] + [(409, 'suspected_duplicate')] * 11,
             'race %d: one of them' % n)
        same(sum(up.count('c%d-%d' % (n, i)) for i in range(12)), 1,
             'race %d: executed once' % n)


def test_killed():
    """a worker dies: what it was executing is unknown"""
    up.hold()
    a = gw.call('/short/wait', 'd1', body=b'd')
    ok(up.until('d1'), 'one is executing')
    workers = gw.workers()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(set(gw.workers()) - set(workers)) == 2)
    a.close()
    suspected('d2', b'd', 'its worker was killed', '/short/ok')
    ok(until(lambda: state('d1') == 'unknown'), 'its lease ends')
    time.sleep(1.1)
    suspected('d3', b'd', 'and longer ago than the window', '/short/ok')
    up.go()


test_fresh_key()
test_window()
test_executing()
test_unknown()
test_not_executed()
test_report()
test_allow()
test_token()
test_race()
gw.expected = ['exited on signal 9', 'was rebuilt']
test_killed()
gw.stop()
finish()
