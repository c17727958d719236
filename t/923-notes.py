#!/usr/bin/env python3
"""Operators see which operation a record is of, and settle the right one.

A record that is executing or unknown has its label and location; one that is
unknown has the upstream, the reason and the time as well, and one line at warn
in the error log has all of that.  One name of the record everywhere.  A label
is sealed with the secret, and must be repeated to settle its record.  Lists
are the oldest first, on all pages, with filters, as JSON, NDJSON or CSV that
no spreadsheet executes.  A batch settles many, each line by itself.
"""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (REDIS, SQLITE, Gateway, Ledger, executed,  # noqa: E402
                     finish, ok, same, until)

up = Ledger()

secret = tempfile.NamedTemporaryFile()
secret.write(b'0123456789abcdef' * 2)
secret.flush()

gw = Gateway(up, workers=1, level='info', http='''
    idempotency_scope $arg_scope;
    idempotency_lease 1500ms;
    idempotency_log_level info;
    log_format mine '$idempotency_result|$idempotency_record|'
                    '$idempotency_upstream_key|$idempotency_fence|'
                    '$idempotency_label|$request_uri';

''', locations='''
    idempotency_final 200-499;
    access_log access.log mine;
    location /pay/ {
        idempotency main;
        idempotency_scope pay;
        idempotency_label $http_order;
        proxy_read_timeout 300ms;
        proxy_pass http://up/;
    }
    location /plain/ {
        idempotency main;
        idempotency_scope plain;
        proxy_pass http://up/;
    }
    location /number/ {
        idempotency main;
        idempotency_scope number;
        idempotency_label $http_order;
        idempotency_sequence increasing;
        proxy_pass http://up/;
    }
    location /sealed/ {
        idempotency main;
        idempotency_scope sealed;
        idempotency_secret %(file)s;
        idempotency_label $http_order;
        proxy_pass http://up/;
    }
    location = /admin {
        idempotency_lookup main admin;
        idempotency_key $arg_key;
    }
    location = /admin-sealed {
        idempotency_lookup main admin;
        idempotency_secret %(file)s;
    }
    location = /mine {
        idempotency_lookup main;
        idempotency_key $arg_key;
        idempotency_scope pay;
    }
''' % dict(file=secret.name))


def pay(key, path='/pay/ok', order='', **args):
    return gw.post(path, key, headers=[('Order', order)], **args)


def admin(method='GET', body=b'', path='/admin', headers=(), **args):
    query = urllib.parse.urlencode({n.rstrip('_'): v
                                    for n, v in args.items()})
    return gw.post('%s?%s' % (path, query), None, body, method, headers)


def listed(**args):
    a = admin(**{'state': 'unknown', **args})
    if a.status != 200:
        ok(False, 'a list', a)
        return []
    return json.loads(a.body)['records']


def of(label, **args):
    rows = [r for r in listed(**args) if r.get('label') == label]
    return rows[0] if len(rows) == 1 else {}


# ---- what a record says ----

same(pay('k-timeout', '/pay/slow/1000', 'order-1').status, 504, 'a time-out')
row = of('order-1')
same((row.get('state'), row.get('location'), row.get('reason')),
     ('unknown', '/pay/', 'timeout'), 'its label, location and reason')
same(row.get('upstream'), '127.0.0.1:%d' % up.port, 'its upstream')
ok(abs(row.get('since', 0) - time.time()) < 10, 'and since when', row)

lines = [l for l in gw.log().split('\n') if 'outcome unknown' in l]
same(len(lines), 1, 'one line in the error log')
want = (r'\[warn\] .*idempotency outcome unknown, record "%s", fence %d, '
        r'label "order-1", location "/pay/", upstream "127.0.0.1:%d", '
        r'reason "timeout"' % (row.get('record'), row.get('fence', 0), up.port))
ok(re.search(want, lines[0]), 'at warn, with all of it', (want, lines))

with open(gw.root + '/access.log') as f:
    logged = [l.strip().split('|') for l in f if '/pay/slow' in l]
same(logged[0][:5], ['new', row['record'], row['record'], str(row['fence']),
                     'order-1'], 'the first try has them in the access log')
ok('"%s"' % row['record'] in gw.log(), 'one name everywhere')

same(pay('k-reset', '/pay/flaky', 'order-2').status, 502, 'a reset')
same(of('order-2').get('reason'), 'reset', 'is the reason')
same(pay('k-status', '/pay/status/507', 'order-3').status, 507,
     'a status that is neither final nor retryable')
same(of('order-3').get('reason'), 'status 507', 'is the reason')
pay('k-cut', '/pay/cut/10', 'order-cut')
same(of('order-cut').get('reason'), 'cut', 'an answer that broke off')
same(pay('k-plain', '/plain/flaky').status, 502, 'without a label')
row = [r for r in listed() if r.get('location') == '/plain/'][0]
ok('label' not in row and row['reason'] == 'reset', 'the rest is noted', row)

running = gw.call('/plain/slow/700', 'k-running')
until(lambda: [r for r in listed(state='executing')])
row = listed(state='executing')[0]
same((row.get('location'), row.get('reason')), ('/plain/', None),
     'one that runs has its location')
running.read()

a = pay('k-done', order='order-done')
same(a.status, 201, 'one that is done')
row = json.loads(admin(key='k-done', scope='pay').body)
same((row['state'], row.get('label'), row.get('location')),
     ('done', 'order-done', None), 'has its label, and no more')
row = json.loads(gw.post('/mine?key=k-timeout', None, b'', 'GET').body)
ok(row.get('label') == 'order-1' and 'upstream' not in row,
   'a caller sees its label, and not the upstream', row)
same(pay('k-number', '/number/flaky', 'order-n').status, 400, 'not a number')
same(pay('17', '/number/flaky', 'order-n').status, 502, 'a number')
row = of('order-n')
ok(re.match('[0-9a-f]{32}-[0-9a-f]{32}$', row.get('record', '')),
   'its name has a dash', row)
with open(gw.root + '/access.log') as f:
    ok([l for l in f if '|%s|%s|' % (row['record'], row['record']) in l],
       'also in the access log')

worker = gw.call('/plain/slow/5000', 'k-died')
until(lambda: [r for r in listed(state='executing')
               if r.get('location') == '/plain/'])
os.kill(int(gw.workers()[0]), signal.SIGKILL)
gw.expected.append('exited on signal 9')
until(lambda: [r for r in listed() if r.get('reason') == 'worker died'], 20)
row = [r for r in listed() if r.get('reason') == 'worker died'][0]
same(row.get('location'), '/plain/', 'a worker died: where is known')


# ---- sealed ----

pay('k-sealed', '/sealed/flaky', 'order-secret')
row = [r for r in listed() if r.get('label_sealed')]
same(len(row), 1, 'a sealed label is not shown')
row = [r for r in json.loads(admin(path='/admin-sealed',
                                   state='unknown').body)['records']
       if r.get('label') == 'order-secret']
same(len(row), 1, 'but where the secret is')
row = row[0]
a = admin('POST', record=row['record'], fence=row['fence'],
          resolve='not-executed', label='order-secret')
ok(a.status == 400 and b'cannot be opened' in a.body,
   'it cannot be compared without the secret', a)
a = admin('POST', record=row['record'], fence=row['fence'],
          resolve='not-executed', confirm=row['record'])
same(a.status, 200, 'the name of the record confirms as well')


# ---- lookups that tell no falsehood ----

same(pay('a key/with%20signs&more', '/pay/ok', 'x').status, 400,
     'blanks are no part of a bare key')
same(pay('k/with+signs&more=1', '/pay/ok', 'escaped').status, 201, 'signs are')
a = admin(key='k/with+signs&more=1', scope='pay')
same(json.loads(a.body).get('label'), 'escaped',
     'arguments are decoded, the record is found')
a = admin(key='k-never', scope='pay')
ok(a.status == 404 and b'does not prove that the operation never ran'
   in a.body, 'no record proves nothing', a)
for args, word in ((dict(state='nowhere'), b'state='),
                   (dict(state='unknown', limit='0'), b'limit='),
                   (dict(state='unknown', older='x'), b'older='),
                   (dict(state='unknown', format='xls'), b'format='),
                   (dict(state='unknown', cursor='x'), b'cursor='),
                   (dict(record='123'), b'record='),
                   (dict(record='xyzxyzxyzxyz'), b'record=')):
    a = admin(**args)
    ok(a.status == 400 and b'Wrong argument: ' + word in a.body,
       'named: %s' % word.decode(), a)
for args, word in ((dict(fence=1), b'resolve='),
                   (dict(resolve='executed'), b'fence='),
                   (dict(resolve='perhaps', fence=1), b'resolve='),
                   (dict(resolve='executed', fence=1, status=99), b'status=')):
    a = admin('POST', key='k', scope='pay', **args)
    ok(a.status == 400 and b'Wrong argument: ' + word in a.body,
       'named: %s' % word.decode(), a)
a = gw.post('/admin', None, b'', 'GET')
ok(a.status == 200 and b'resolve=batch' in a.body, 'a short help', a)

row = of('order-1')
a = admin(record=row['record'][:12])
same(json.loads(a.body).get('record'), row['record'], '12 digits are enough')
same(json.loads(admin(record=row['record'][:20].upper()).body).get('record'),
     row['record'], 'in any case')
same(admin(record='0' * 12).status, 404, 'none begins so')

for digest in ('c' * 16 + 'a' * 48, 'c' * 16 + 'b' * 48):
    gw.ask(op='claim', digest=digest, owner='somebody', lease=600000)
a = admin(record='c' * 12)
ok(a.status == 400 and b'record= is ambiguous' in a.body,
   'the digits of two records', a)
same(json.loads(admin(record='c' * 16 + 'b').body).get('record'),
     'c' * 16 + 'b' * 48, 'one digit more')


# ---- resolve repeats the label ----

named = dict(record=row['record'], fence=row['fence'], resolve='executed')
a = admin('POST', **named)
ok(a.status == 400 and b'label= must repeat' in a.body, 'without the label', a)
a = admin('POST', label='order-2', **named)
same(a.status, 400, 'with that of another one')
a = admin('POST', b'{}', label='order-1', status=201, **named)
ok(a.status == 400 and b'Content-Type' in a.body,
   'a body without a type is refused', a)
same(of('order-1').get('state'), 'unknown', 'nothing was done')
a = admin('POST', b'{"n":1}', label='order-1', status=201,
          headers=[('Content-Type', 'application/json')], **named)
same(a.status, 200, 'settled with its label')
a = pay('k-timeout', '/pay/slow/1000', 'order-1')
same((a.status, a.body), (201, b'{"n":1}'), 'its client gets the answer')
executed(up, 'k-timeout', 1, 'it')


# ---- lists: the oldest first ----

def lost(i, label):
    pay('list-%d' % i, '/pay/flaky', label)


for i in range(40):
    lost(i, 'list-%02d' % i)
    if i % 10 == 9:
        time.sleep(1.1)
rows = listed()
order = [(r['created'], r['record'].replace('-', '')) for r in rows]
same(order, sorted(order), 'the oldest first')
pages, cursor = [], ''
while cursor is not None:
    a = json.loads(admin(state='unknown', limit=7, cursor=cursor).body)
    ok(len(a['records']) <= 7, 'a page of 7')
    pages += a['records']
    cursor = a['cursor']
same([r['record'] for r in pages], [r['record'] for r in rows],
     'on all pages')
same([r['label'] for r in listed(label='list-1')],
     [r['label'] for r in rows if r.get('label', '').startswith('list-1')],
     'by the beginning of the label')
same(len(listed(label='list-1')), 10, 'of which there are 10')
same({r['location'] for r in listed(location='/plain/')}, {'/plain/'},
     'by location')
same(listed(older='1h'), [], 'none is older than an hour')
lost(40, 'list-40')
ok(0 < len(listed(older='2s')) < len(listed()),
   'some are older than 2 seconds')


# ---- exports ----

pay('k-formula', '/pay/flaky', '=HYPERLINK("http://x","y"),1')
a = admin(state='unknown', format='csv')
ok(a.get('content-type').startswith('text/csv'), 'CSV', a)
table = list(csv.DictReader(io.StringIO(a.body.decode(), newline='')))
rows = listed()
same([t['record'] for t in table], [r['record'] for r in rows], 'all of them')
evil = [t for t in table if 'HYPERLINK' in t['label']][0]
same(evil['label'], '\'=HYPERLINK("http://x","y"),1', 'no formula, all quoted')
same((evil['location'], evil['reason']), ('/pay/', 'reset'),
     'the other columns are where they belong')
ok(re.match(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$', evil['since']), 'times', evil)
a = admin(state='unknown', format='ndjson', limit=5)
lines = [json.loads(l) for l in a.body.decode().splitlines()]
same([l['record'] for l in lines], [r['record'] for r in rows[:5]], 'NDJSON')
ok(a.get('idempotency-cursor'), 'with a cursor in the header', a)


# ---- a batch ----

rows = listed(label='list-')
lines = [dict(r, resolve='executed' if i % 2 else 'not-executed')
         for i, r in enumerate(rows[:6])]
lines[0]['fence'] += 1
lines[1]['label'] = 'another'
lines[3].update(status=200, body='ok', content_type='text/plain')
lines[5].update(status=200, body='ok')
text = '\n'.join([json.dumps(l) for l in lines]
                 + ['', 'no json', '[]', '{"record":"12"}',
                    json.dumps(dict(lines[2], record='0' * 64))])


def batch(**args):
    a = admin('POST', text.encode(), resolve='batch', **args)
    same(a.status, 200, 'a batch')
    return [json.loads(l) for l in a.body.decode().splitlines()]


out = batch(dry_run=1)
same([o['result'] for o in out],
     ['refused', 'refused', 'would be not executed', 'would be executed',
      'would be not executed', 'refused', 'invalid', 'invalid', 'invalid',
      'refused'], 'a dry run says what would be')
same([o['line'] for o in out], [1, 2, 3, 4, 5, 6, 8, 9, 10, 11],
     'line by line')
same(len(listed(label='list-')), len(rows), 'and does nothing')
out = batch()
same([o['result'] for o in out],
     ['refused', 'refused', 'resolved', 'resolved', 'resolved', 'refused',
      'invalid', 'invalid', 'invalid', 'refused'], 'the real one')
same(len(listed(label='list-')), len(rows) - 3, 'settles three')
ok('label= must repeat' in out[1]['detail'], 'each refusal is explained')
key = 'list-%d' % int(rows[3]['label'][5:])
a = pay(key, '/pay/flaky', rows[3]['label'])
same((a.status, a.body), (200, b'ok'), 'an answer of a batch is replayed')
same(len(re.findall('was resolved as', gw.log())), 5, 'each one is logged')
a = admin('POST', b'', resolve='batch')
same(a.status, 400, 'a batch of nothing')


# ---- the reconciliation of docs/operate/unknowns.md ----

with open(os.path.dirname(os.path.abspath(__file__))
          + '/../docs/operate/unknowns.md') as f:
    page = f.read()


def snippet(after):
    part = page[page.index(after) + len(after):]
    return '\n'.join(line[4:] for line in re.match(
        r'\n+((?:    .*\n|\n)+)', part).group(1).split('\n'))


with tempfile.TemporaryDirectory() as work:
    with open(work + '/reconcile.py', 'w') as f:
        f.write(snippet('`reconcile.py`:'))
    with open(work + '/bank.csv', 'w') as f:
        f.write(snippet('`bank.csv`:'))
    for order in ('order-17', 'order-18', 'order-19'):
        pay('bank-' + order, '/pay/flaky', order)
    exported = admin(state='unknown', format='ndjson', label='order-1').body
    settle = subprocess.run([sys.executable, 'reconcile.py', 'bank.csv'],
                            input=exported, capture_output=True, cwd=work)
same(settle.returncode, 0, 'the program of the page runs')
for more, word in ((dict(dry_run=1), 'would be'), ({}, 'resolved')):
    a = admin('POST', settle.stdout, resolve='batch', **more)
    out = [json.loads(l)['result'] for l in a.body.decode().splitlines()]
    ok(len(out) == 3 and all(o.startswith(word) for o in out),
       'all three: ' + word, a)
same([pay('bank-' + order, '/pay/flaky', order).status
      for order in ('order-17', 'order-18', 'order-19')], [409, 201, 409],
     'what the bank has not booked is executed by the retry')
executed(up, 'bank-order-17', 1, 'what it has booked')


# ---- records of older gateways, byte for byte ----

if REDIS and not SQLITE and 'cluster' not in REDIS:
    import socket
    import struct

    def redis(*words):
        url = urllib.parse.urlparse(REDIS.split()[0])
        if url.scheme == 'redis+unix':
            s = socket.socket(socket.AF_UNIX)
            s.connect(url.path)
        else:
            s = socket.create_connection((url.hostname, url.port or 6379))
        s.sendall(b'*%d\r\n' % len(words) + b''.join(
            b'$%d\r\n%s\r\n' % (len(w), w) for w in words))
        s.settimeout(5)
        got = s.recv(4096)
        s.close()
        return got

    now = int(time.time() * 1000)
    fence = now * 1000

    def old(state, lease):
        return struct.pack('>BBBBHH16s32sQQQQIIIIIQ', 1, state, 0, 0, 0, 0,
                           b'o' * 16, b'\0' * 32, fence, lease, 0,
                           now // 1000, 1, 2592000, 0, 0, 0, 0)

    prefix = os.path.basename(gw.root).encode() + b':'
    for name, state, lease in ((b'a', 3, now), (b'b', 2, now - 5000)):
        same(redis(b'SET', prefix + name * 64, old(state, lease), b'PX',
                   b'600000')[:3], b'+OK', 'bytes of version 1')
    rows = {r['record'][0]: r for r in listed(limit=1000)
            if r['record'] in ('a' * 64, 'b' * 64)}
    same(sorted(rows), ['a', 'b'], 'both are listed')
    same((rows['a'].get('reason'), rows['b'].get('reason')),
         (None, 'worker died'), 'with what they say')
    for name in 'ab':
        a = admin('POST', record=name * 64, fence=fence,
                  resolve='not-executed')
        same(a.status, 200, 'and can be settled')

gw.stop()
finish()
