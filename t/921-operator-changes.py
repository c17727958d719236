#!/usr/bin/env python3
"""A change by an operator happens once, and only to the record that was seen.

A change names the fence: if the record has changed, it is refused, and the
answer has the current state.  Of an operator and an owner that comes back late
exactly one succeeds, and every client gets that answer.  A list has every
record that existed all the time, in bounded steps.  Each change is logged,
with the address and the user that made it, and without the key.
"""

import base64
import concurrent.futures
import json
import os
import re
import signal
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (REDIS, Gateway, Ledger, executed, finish,  # noqa: E402
                     ok, refused, same, until)
from h2 import H2  # noqa: E402

up = Ledger()

secret = tempfile.NamedTemporaryFile()
secret.write(b'0123456789abcdef' * 2)
secret.flush()

gw = Gateway(up, workers=2, http='''
    idempotency_scope pay;
    idempotency_lease 1500ms;
    client_body_buffer_size 1k;
''', locations='''
    location /pay/ {
        idempotency main;
        idempotency_source $http_client;
        proxy_pass http://up/;
    }
    location = /admin {
        idempotency_lookup main admin;
        idempotency_source $http_client;
        idempotency_max_response 10k;
    }
    location /number/ {
        idempotency main;
        idempotency_scope number;
        idempotency_sequence increasing;
        proxy_pass http://up/;
    }
    location = /token {
        idempotency_token main;
        idempotency_source $http_client;
    }
    location /sealed/ {
        idempotency main;
        idempotency_scope sealed;
        idempotency_secret %(file)s;
        proxy_pass http://up/;
    }
    location = /admin-sealed {
        idempotency_lookup main admin;
        idempotency_scope sealed;
        idempotency_secret %(file)s;
    }
    location = /admin-open {
        idempotency_lookup main admin;
        idempotency_scope sealed;
    }
''' % dict(file=secret.name))

class Told:
    """what the endpoint has answered"""

    def __init__(self, a):
        self.status, self.code, self.raw = a.status, a.code, a
        try:
            self.json = json.loads(a.body)
        except ValueError:
            self.json = {}

    def __getattr__(self, name):
        return self.json.get(name)

    def __repr__(self):
        return repr(self.raw)


def admin(method, key=None, body=None, client='alice', path='/admin',
          headers=(), typed=True, **args):
    if body and typed and 'Content-Type' not in dict(headers):
        headers = [*headers, ('Content-Type', 'text/plain')]
    query = '&'.join('%s=%s' % (n.rstrip('_'), v) for n, v in args.items())
    return Told(gw.post('%s?%s' % (path, query), key, body, method,
                        [('Client', client), *headers]))


def look(key, **args):
    return admin('GET', key, **args)


def pay(key, path='/pay/ok', client='alice', **args):
    return gw.post(path, key, headers=[('Client', client)], **args)


def lost(key, path='/pay/flaky', **args):
    """a request whose outcome is unknown; returns its fence"""
    a = pay(key, path, **args)
    if a.status != 502:
        ok(False, 'could not lose ' + key, a)
    return look(key).fence


# ---- what is there ----

running = gw.call('/pay/slow/1000', 'running', headers=[('Client', 'alice')])
until(lambda: look('running').state == 'executing')
a = look('running')
same((a.status, a.state, a.attempts), (200, 'executing', 1), 'it is running')
ok('body' not in a.raw.body.decode(), 'nothing of the answer is told', a)

a = admin('DELETE', 'running', fence=a.fence)
same((a.status, a.code, a.state), (409, 'state_mismatch', 'executing'),
     'what is running is not purged')
a = admin('POST', 'running', b'', fence=a.fence, resolve='executed')
same((a.status, a.code, a.state), (409, 'state_mismatch', 'executing'),
     'nor resolved')
same(running.read().status, 201, 'and comes to its end')
executed(up, 'running', 1, 'it was running')
same(pay('running', '/pay/slow/1000').replayed, True, 'with its own answer')

# ---- purge ----

first = pay('purge')
fence = look('purge').fence
a = admin('DELETE', 'purge', fence=fence - 1)
same((a.status, a.code, a.fence, a.state),
     (409, 'fence_mismatch', fence, 'done'), 'another fence')
same(pay('purge').replayed, True, 'changes nothing')
same(admin('DELETE', 'purge', fence=fence, client='bob').status, 404,
     'nor does somebody else')
same(pay('purge').replayed, True, 'who has another record')
a = admin('DELETE', 'purge', fence=fence)
same((a.status, a.state), (200, 'none'), 'the fence that it has')
same(look('purge').status, 404, 'it is gone')
same(admin('DELETE', 'purge', fence=fence).status, 404, 'and only once')
a = pay('purge')
same((a.status, a.replayed), (201, False), 'the key is free')
ok(look('purge').fence > fence, 'the fence grows')

# ---- resolve: executed ----

fence = lost('told')
refused(gw, '/pay/flaky', 'told', 'outcome_unknown', 'it is unknown',
        headers=[('Client', 'alice')])
a = admin('POST', 'told', b'{"paid":1}', fence=fence - 1, resolve='executed',
          status=201)
same((a.status, a.code, a.fence, a.state),
     (409, 'fence_mismatch', fence, 'unknown'), 'another fence')
a = admin('POST', 'told', b'{"paid":1}', fence=fence, resolve='executed',
          status=201, headers=[('Content-Type', 'application/json')])
# "status" is both the answer's and the record's
same((a.status, a.state, a.json.get('status'), a.fence),
     (200, 'done', 201, fence), 'resolved with an answer')
a = pay('told', '/pay/flaky')
same((a.status, a.body, a.get('content-type'), a.replayed),
     (201, b'{"paid":1}', 'application/json', True),
     'which is what retries get')
same(pay('told', '/pay/flaky', body=b'other').code, 'key_reused',
     'but not with another body')
a = admin('POST', 'told', b'', fence=fence, resolve='not-executed')
same((a.status, a.code, a.state), (409, 'state_mismatch', 'done'),
     'what is done is not resolved again')
executed(up, 'told', 1, 'an answer that was told')

long = b'0123456789' * 900
fence = lost('long')
a = admin('POST', 'long', long, fence=fence, resolve='executed', status=200,
          typed=False)
same((a.status, a.code), (400, 'argument_invalid'),
     'a body of no type that nobody gave')
a = admin('POST', 'long', long, fence=fence, resolve='executed', status=200)
same(a.status, 200, 'an answer that was read into a file')
a = pay('long', '/pay/flaky')
same((a.status, a.body, a.get('content-type')),
     (200, long, 'text/plain'), 'is whole')

fence = lost('large')
a = admin('POST', 'large', long * 2, fence=fence, resolve='executed',
          status=200)
same((a.status, a.code), (413, 'answer_too_large'), 'one that is too large')
same(look('large').state, 'unknown', 'changes nothing')

# ---- a page of another site makes no changes ----

FOREIGN = [[('Origin', 'https://evil.example')], [('Origin', 'null')],
           [('Origin', 'http://gateway.evil.example')],
           [('Origin', 'http://gateway:81')], [('Origin', 'gateway')],
           [('Origin', 'file://gateway')], [('Origin', '')],
           [('Origin', 'http://gateway'), ('Origin', 'http://evil.example')],
           [('Sec-Fetch-Site', 'cross-site')],
           [('Sec-Fetch-Site', 'same-site')], [('Sec-Fetch-Site', '')],
           [('Sec-Fetch-Site', 'same-origin'), ('Origin', 'http://evil')],
           [('Sec-Fetch-Site', 'cross-site'), ('Origin', 'http://gateway')]]
OWN = [[], [('Origin', 'http://gateway')], [('Origin', 'https://GATEWAY')],
       [('Sec-Fetch-Site', 'same-origin')], [('Sec-Fetch-Site', 'none')],
       [('Sec-Fetch-Site', 'same-origin'), ('Origin', 'https://gateway')]]

fence = lost('foreign')
same([(a.status, a.code, a.raw.get('content-type')) for headers in FOREIGN
      for a in (admin('POST', 'foreign', b'', fence=fence, headers=headers,
                      resolve='not-executed'),
                admin('DELETE', 'foreign', fence=fence, headers=headers))],
     [(403, 'cross_site', 'application/problem+json')] * 2 * len(FOREIGN),
     'changes that another site asks for are refused')
same((look('foreign').state, look('foreign').fence), ('unknown', fence),
     'and change nothing')
same([look('foreign', headers=headers).state for headers in FOREIGN],
     ['unknown'] * len(FOREIGN), 'to look is no change')
same(admin('DELETE', 'foreign', fence=fence).status, 200, 'nor is it stuck')
same([admin('POST', 'own%d' % n, b'', fence=lost('own%d' % n),
            headers=headers, resolve='not-executed').status
      for n, headers in enumerate(OWN)], [200] * len(OWN),
     'those of a page of this site are made')
same([admin('DELETE', 'gone%d' % n, fence=lost('gone%d' % n),
            headers=headers).status
      for n, headers in enumerate(OWN)], [200] * len(OWN), 'all of them')

fence = lost('h2')
h2 = H2(gw.h2)
bodies = [h2.data(h2.request('/admin?fence=%d&resolve=not-executed' % fence,
                             'h2', b'', headers=[('client', 'alice'),
                                                 ('origin', origin)]))
          for origin in ('http://evil.example', 'http://gateway')]
h2.close()
same((b'"code":"cross_site"' in bodies[0], look('h2').status,
      b'"record":' in bodies[1]), (True, 404, True), 'over HTTP/2')

fence = lost('plain')
same(admin('POST', 'plain', b'', fence=fence, resolve='executed',
           status=204).status, 200, 'without a body')
a = pay('plain', '/pay/flaky')
same((a.status, a.body, a.replayed), (204, b'', True), 'a plain answer')

fence = lost('somehow')
same(admin('POST', 'somehow', b'', fence=fence, resolve='executed').state,
     'done', 'without a status')
refused(gw, '/pay/flaky', 'somehow', 'response_not_kept',
        'nobody is told what nobody knows', headers=[('Client', 'alice')])
executed(up, 'somehow', 1, 'executed somehow')

# ---- resolve: not executed ----

fence = lost('never')
a = admin('POST', 'never', b'', fence=fence, resolve='not-executed')
same((a.status, a.state), (200, 'none'), 'resolved as not executed')
a = pay('never', '/pay/flaky')
same((a.status, a.replayed), (201, False), 'the retry runs')
executed(up, 'never', 2, 'it was not, and then it was')

# ---- what cannot be meant ----

fence = lost('args')
for method, args in (
        ('DELETE', {}), ('DELETE', dict(fence='x')), ('DELETE', dict(fence=0)),
        ('DELETE', dict(fence=-1)), ('DELETE', dict(fence=1 << 64)),
        ('POST', {}), ('POST', dict(fence=fence)),
        ('POST', dict(resolve='executed')),
        ('POST', dict(fence=fence, resolve='perhaps')),
        ('POST', dict(fence=fence, resolve='executed', status=199)),
        ('POST', dict(fence=fence, resolve='executed', status=600)),
        ('POST', dict(fence=fence, resolve='executed', status='x')),
        ('POST', dict(fence=fence, resolve='executed', body=b'x')),
        ('POST', dict(fence=fence, resolve='executed', body=b'x',
                      status=204)),
        ('POST', dict(fence=fence, resolve='not-executed', status=200)),
        ('GET', dict(state='none')), ('GET', dict(state='')),
        ('GET', dict(state='done', cursor='x')),
        ('GET', dict(state='done', cursor='1' * 65)),
        ('GET', dict(state='done', cursor='0.' + '1' * 30)),
        ('GET', dict(state='done', cursor='z' * 64)),
        ('GET', dict(record='0' * 11)), ('GET', dict(record='g' * 64)),
        ('GET', dict(record='0' * 65))):
    a = admin(method, 'args', **args)
    same((a.status, a.code), (400, 'argument_invalid'),
         '%s %r' % (method, args))
same((look('args').state, look('args').fence), ('unknown', fence),
     'nothing was done')
a = admin('PUT', 'args', b'')
same((a.status, a.raw.get('allow')), (405, 'GET, HEAD, DELETE, POST'),
     'another method')

# ---- one of many ----

pool = concurrent.futures.ThreadPoolExecutor(16)

fence = lost('race')
answers = list(pool.map(
    lambda i: admin('POST', 'race', b'told %d' % i, fence=fence,
                    resolve='executed', status=200),
    range(16)))
won = [i for i, a in enumerate(answers) if a.status == 200]
same(len(won), 1, 'of sixteen operators one is believed')
same({a.code for a in answers if a.status != 200}, {'state_mismatch'},
     'the others are told')
same(pay('race', '/pay/flaky').body, b'told %d' % won[0], 'by all clients')

# an owner that was away for longer than its lease and comes back
for what, args in (('executed', dict(body=b'told', status=202)),
                   ('not-executed', dict(body=b''))):
    key = 'late-' + what
    late = gw.call('/pay/ok', key, headers=[
        ('Client', 'alice'), ('X-Fail', 'before_complete:stop')])
    until(gw.stopped)
    pid = gw.stopped()[0]
    ok(until(lambda: look(key).state == 'unknown', 10),
       '%s: its lease is over' % what)
    fence = look(key).fence
    same(admin('POST', key, fence=fence, resolve=what, **args).status, 200,
         '%s: resolved' % what)
    if what == 'not-executed':
        again = pay(key)
        same((again.status, again.replayed), (201, False),
             '%s: the retry runs' % what)
    gw.signal(signal.SIGCONT, pid)
    a = late.read()
    b = pay(key)
    same((a.status, a.body), (b.status, b.body),
         '%s: the first client gets what all get' % what)
    same(b.body, b'told' if what == 'executed' else again.body,
         '%s: and that is what was said' % what)

# the owner was first: the operator is not believed
late = gw.call('/pay/ok', 'back', headers=[
    ('Client', 'alice'), ('X-Fail', 'before_complete:stop')])
until(gw.stopped)
pid = gw.stopped()[0]
until(lambda: look('back').state == 'unknown', 10)
fence = look('back').fence
gw.signal(signal.SIGCONT, pid)
first = late.read()
a = admin('POST', 'back', b'told', fence=fence, resolve='executed', status=200)
same((a.status, a.code), (409, 'state_mismatch'), 'the owner was first')
same(pay('back').body, first.body, 'its answer stays')

# ---- sealed ----


def lose_sealed(key):
    gw.post('/sealed/flaky', key)
    return admin('GET', key, path='/admin-sealed').fence


fence = lose_sealed('seal')
start = len(gw.log())
a = admin('POST', 'seal', b'no secret', path='/admin-open', fence=fence,
          resolve='executed', status=200)
same((a.status, b'idempotency_secret' in a.raw.body), (400, True),
     'where the secret is not known')
ok('needs the "idempotency_secret"' in gw.log()[start:], 'the log says why')
a = admin('POST', 'seal', b'a secret thing', path='/admin-sealed',
          fence=fence, resolve='executed', status=200)
same(a.status, 200, 'where it is')
same(gw.post('/sealed/flaky', 'seal').body, b'a secret thing',
     'the answer is replayed')
record = gw.ask({'X-Key': 'seal', 'X-Source': 'somebody',
                 'X-Scope': 'sealed'}, op='fetch', identify=1)
ok((record.get('state'), record.get('kept')) == ('done', '1')
   and 'secret' not in repr(record), 'and sealed in the store', record)

# ---- lists ----


def pages(state):
    cursor, found, n = '', [], 0
    while cursor is not None:
        a = admin('GET', state=state, cursor=cursor)
        if a.status != 200 or a.state != state:
            ok(False, 'a page of the list', a)
            break
        found += a.records
        cursor = a.cursor
        n += 1
    return found, n


unknown = {look(key).record for key in ('args', 'large')}
found, _ = pages('unknown')
same({r['record'] for r in found}, unknown, 'the unknowns, and nothing else')
same(sorted(found[0]), ['age', 'attempts', 'created', 'fence', 'location',
                        'reason', 'record', 'since', 'state', 'ttl',
                        'upstream'], 'what is told of each')

# through the store itself, as many requests are slow
many = ['many-%d' % i for i in range(700)]


def make(key):
    gw.ask(op='claim', key=key, owner=key, lease=60000)
    gw.ask(op='mark_unknown', key=key, owner=key)


list(pool.map(make, many))
found, n = pages('unknown')
same((len(found), len({r['record'] for r in found})), (702, 702),
     'each of many is listed once')
ok(n > 1, 'on %d pages' % n)
same({r['state'] for r in found}, {'unknown'}, 'all of them unknown')
ok(unknown <= {r['record'] for r in found}, 'those of before among them')

tokens = [gw.post('/token', None, headers=[('Client', 'alice')])
          for _ in range(3)]
same(len(pages('issued')[0]), 3, 'tokens')
running = gw.call('/pay/slow/700', 'runs', headers=[('Client', 'alice')])
until(lambda: look('runs').state == 'executing')
same([r['record'] for r in pages('executing')[0]], [look('runs').record],
     'what is running')
running.read()
done = {look(key).record for key in
        ('running', 'purge', 'told', 'runs', 'back')}
found, _ = pages('done')
ok(done <= {r['record'] for r in found}, 'what is done')
ok(all('status' in r for r in found if r['record'] in done), 'with a status')
same(pages('tombstone')[0], [], 'no tombstones')

# by the name that is listed
record = look('args').record
a = admin('GET', record=record)
same((a.status, a.record, a.state), (200, record, 'unknown'),
     'a record by its name')
a = admin('POST', None, b'named', record=record, fence=a.fence,
          resolve='executed', status=200)
same(a.state, 'done', 'resolved by its name')
same(pay('args', '/pay/flaky').body, b'named', 'by all clients')

# a number of a sequence has another name in Redis
gw.post('/number/ok', '1')
gw.post('/number/flaky', '2')
new = [r for r in pages('unknown')[0] if '-' in r['record']]
if REDIS:
    same(len(new), 1, 'a number of a sequence')
    a = admin('POST', None, b'', record=new[0]['record'],
              fence=new[0]['fence'], resolve='not-executed')
    same((a.status, a.state), (200, 'none'), 'it is resolved')
    same(gw.post('/number/flaky', '2').status, 201, 'and runs again')

# ---- the log ----

log = gw.log()
lines = [line for line in log.splitlines() if '" was ' in line]
ok(any(re.search(r'\[notice\].*idempotency record "[0-9a-f]{64}" was purged '
                 r'by "127\.0\.0\.1" user "-", status 0, fence \d+', line)
       for line in lines), 'who has purged', lines)
fence = lost('audit')
start = len(gw.log())
user = base64.b64encode(b'ops"\n2026 [alert] x:pw').decode()
admin('POST', 'audit', b'', fence=fence, resolve='executed', status=200,
      headers=[('Authorization', 'Basic ' + user)])
line = [x for x in gw.log()[start:].splitlines() if '" was ' in x]
ok(len(line) == 1 and re.search(
    r'was resolved as executed by "127\.0\.0\.1" user "ops\?\?2026 \[alert\] '
    r'x", status 200, fence %d' % fence, line[0]), 'who has resolved', line)
gw.expected.append('was resolved as executed')
ok('audit' not in gw.log()[start:], 'the key is not in the log')

gw.stop()
finish()
