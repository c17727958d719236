#!/usr/bin/env python3
"""The log says what happened, and one grep finds all lines of one request.

Each result but "new" has exactly one line, of one form, at the level of the
location.  At level debug every line about a request has the number of its
connection, from its start to its end and beyond: also store operations that
end after the request. docs/operate/logs.md shows such lines; this test compares
them.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (REDIS, STORE, TOP, Gateway, Ledger, finish,  # noqa: E402
                     free_port, ok, same, until)
from redisd import Proxy, Redis  # noqa: E402

up = Ledger()

server = Redis()
proxy = Proxy(server)

gw = Gateway(up, level='debug', workers=2, http='''
    idempotency_store red redis://127.0.0.1:%d timeout=300ms;
    idempotency_store away redis://127.0.0.1:%d timeout=100ms;
''' % (proxy.port, free_port()), locations='''
    location /pay/ {
        idempotency main;
        idempotency_lease 60s;
        idempotency_log_level warn;
        add_header X-Connection $connection always;
        add_header X-Result $idempotency_result always;
        proxy_pass http://up/;
    }
    location /rejects/ {
        idempotency main;
        idempotency_duplicate reject;
        proxy_pass http://up/;
    }
    location /waits/ {
        idempotency main;
        idempotency_in_progress wait=20s;
        proxy_pass http://up/;
    }
    location /number/ {
        idempotency main;
        idempotency_sequence strict;
        proxy_pass http://up/;
    }
    location /token/ {
        idempotency main;
        idempotency_issued on;
        proxy_pass http://up/;
    }
    location /perhaps/ {
        idempotency main;
        idempotency_required off;
        proxy_pass http://up/;
    }
    location /away/ {
        idempotency away;
        proxy_pass http://up/;
    }
    location /passes/ {
        idempotency away;
        idempotency_store_error pass;
        proxy_pass http://up/;
    }
    location /red/ {
        idempotency red;
        add_header X-Connection $connection always;
        proxy_pass http://up/;
    }
''')

LINE = (r'\[(\w+)\] \d+#\d+: \*(\d+) idempotency request was "(\w+)"'
        r'(?:, code "(\w+)")?(?:, record "[0-9a-f]{64}")?, location "([^"]*)"')

# ---- one line for each result ----


def events(start):
    return re.findall(LINE, gw.log()[start:])


def event(name, wanted, *args, **named):
    """what a request brings: level, result, code, location"""
    start = len(gw.log())
    gw.post(*args, **named)
    until(lambda: len(events(start)) >= len(wanted))
    same([(e[0], *e[2:]) for e in events(start)], wanted, name)


event('new', [], '/pay/ok', 'k')
event('replayed', [('warn', 'replayed', '', '/pay/')], '/pay/ok', 'k')
event('mismatch', [('warn', 'mismatch', 'key_reused', '/pay/')], '/pay/ok',
      'k', b'other')
event('missing', [('warn', 'missing', 'key_missing', '/pay/')], '/pay/ok',
      None)
event('invalid', [('warn', 'invalid', 'key_invalid', '/pay/')], '/pay/ok',
      'a b')
event('lost', [], '/pay/reset', 'lost')
event('unknown', [('warn', 'unknown', 'outcome_unknown', '/pay/')],
      '/pay/reset', 'lost')
running = gw.call('/waits/wait', 'w')
until(lambda: up.count('w') == 1)
gw.post('/rejects/ok', 'r')
event('rejected', [('notice', 'rejected', 'duplicate', '/rejects/')],
      '/rejects/ok', 'r')
start = len(gw.log())
second = gw.call('/waits/wait', 'w')
until(lambda: 'is exists, state "executing"' in gw.log()[start:], 10)
up.go()
same((running.read().status, second.read().status), (201, 201), 'they end')
same([(e[2], e[4]) for e in events(start)], [('waited', '/waits/')], 'waited')
gw.post('/number/ok', '1')
event('out_of_order', [('notice', 'out_of_order', 'out_of_order',
                        '/number/')], '/number/ok', '7')
event('not_issued', [('notice', 'not_issued', 'not_issued', '/token/')],
      '/token/ok', 'x')
event('bypassed', [('notice', 'bypassed', '', '/perhaps/')], '/perhaps/ok',
      None)
event('store_error', [('notice', 'store_error', 'store_unavailable',
                       '/away/')], '/away/ok', 'k')
event('passed', [('notice', 'store_error', 'passed', '/passes/')],
      '/passes/ok', 'k')

# ---- the story of one request ----


def story(number, start):
    """what one grep finds, without times and processes"""
    return [line.partition('idempotency ')[2] for line
            in gw.log()[start:].splitlines()
            if '*%s ' % number in line and 'idempotency ' in line]


def told(lines, milestones, name):
    """each of them is in the lines, in this order"""
    at = 0
    for text in milestones:
        while at < len(lines) and not re.search(text, lines[at]):
            at += 1
        if at == len(lines):
            return ok(False, '%s: "%s" is told' % (name, text),
                      '\n'.join(lines))
        at += 1
    return ok(True, name)


FIRST = ['begins with "POST /pay/ok"', 'is that of key "story"',
         'BODY -> READY', r'claim: .*', 'claim of record .* is granted',
         'runs the content handler', 'answer 201 after', r'complete: .*ok',
         'sends the answer', 'ends, result "new"']
AGAIN = ['begins with', 'is that of key "story"', 'claim of record .* is '
         'exists, state "done"', 'request was "replayed"',
         'replays an answer, status 201', 'ends, result "replayed"']

for milestones, name in ((FIRST, 'a request'), (AGAIN, 'its duplicate')):
    start = len(gw.log())
    a = gw.post('/pay/ok', 'story')
    number = a.get('x-connection')
    until(lambda: any('ends, result' in x for x in story(number, start)))
    told(story(number, start), milestones, name)
    if name == 'a request':
        first = story(number, start)

# the request is gone, and Redis is told what became of it
if REDIS is None:
    until(lambda: gw.post('/red/ok', 'warm').status == 201, 10)
    start = len(gw.log())
    proxy.on('complete', 'lose')
    a = gw.post('/red/ok', 'later')
    number = a.get('x-connection')
    same(a.status, 201, 'the client has its answer')
    until(lambda: any('stored in background' in x for x in story(number, start)), 10)
    told(story(number, start),
         ['begins', 'claim: is asked', 'claim: answers, granted',
          'complete: is asked', 'complete: to be retried in background',
          'ends, result "new"', 'complete: stored in background, ok'],
         'what happens behind a request')

# ---- and as the page shows it ----

with open(TOP + '/docs/operate/logs.md') as f:
    page = f.read()
shown = re.findall(r'^    \S+ \S+ \[debug\] \S+: (?:\*\d+ )?idempotency (.*)$',
                   page, re.M)


def shape(lines):
    record = r'"(?:[0-9a-f]{64}|[0-9a-f]{16})"'
    return [re.sub(r'\*\d+', '*N', re.sub(record, '"..."',
            re.sub(r'fence:\d+', 'fence:N', re.sub(r'\d+ bytes', 'N bytes',
                                                   x))))
            .replace('/pay/ok', '/pay').replace('"story"', '"order-1"')
            .partition(', client: ')[0] for x in lines]


if STORE is None:
    same(shape(first), shape(shown), 'the page shows what is logged')

gw.stop()
finish()
