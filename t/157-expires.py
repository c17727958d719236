#!/usr/bin/env python3
"""Idempotency-Expires: until when a key gets the answer that it got.

The first answer has it once its outcome is stored, and replays and refusals
of an executed request have that of the record, which does not move.  It is
never later than the true moment.  What leaves no record with an end has none:
released keys, unknown outcomes, requests that were refused or not protected.
idempotency_expires_header and idempotency_replayed_header name the headers.
"""

import calendar
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, free_port, ok, same, until)

DAY = 24 * 3600
FIXDATE = re.compile(r'(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d '
                     r'(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) '
                     r'\d{4} \d\d:\d\d:\d\d GMT$')

up = Ledger()

gw = Gateway(up, workers=2, locations='''
    location /short/  { idempotency main; idempotency_ttl 100s;
                        proxy_pass http://up; }
    location /grave/  { idempotency main; idempotency_ttl 1s tombstone=1h;
                        proxy_pass http://up; }
    location /reject/ { idempotency main; idempotency_duplicate reject;
                        proxy_pass http://up; }
    location /tiny/   { idempotency main; idempotency_max_response 10;
                        proxy_pass http://up; }
    location /large/  { idempotency main; idempotency_max_response 8m;
                        proxy_max_temp_file_size 0; proxy_pass http://up; }
    location /waiting/  { idempotency main; idempotency_in_progress wait=20s;
                        proxy_pass http://up; }
    location /free/   { idempotency main; idempotency_required off;
                        proxy_pass http://up; }
    location /closed/ { idempotency main;
                        proxy_pass http://127.0.0.1:%d; }
    location /late/   { idempotency main; proxy_read_timeout 300ms;
                        proxy_pass http://up; }
    location /stripe/ { idempotency main; idempotency_profile stripe;
                        proxy_pass http://up; }
    location /named/  { idempotency main;
                        idempotency_expires_header X-Kept-Until;
                        idempotency_replayed_header X-Replay;
                        proxy_pass http://up;
        location /named/inner/  { proxy_pass http://up; }
        location /named/off/    { idempotency_expires_header off;
                                  proxy_pass http://up; }
    }
    location /quiet/  { idempotency main; idempotency_expires_header off;
                        idempotency_replayed_header off;
                        proxy_pass http://up; }
    location = /mine  { idempotency_lookup main cancel;
                        idempotency_scope cancelled; }
    location /mine/   { idempotency main; idempotency_scope cancelled;
                        proxy_pass http://up; }
''' % free_port(), size='32m')


def when(answer, name='idempotency-expires'):
    """seconds, or None; a line that is there twice or no date is 0"""
    values = [v for n, v in answer.headers if n == name]
    if not values:
        return None
    if len(values) > 1 or not FIXDATE.match(values[0]):
        return 0
    return calendar.timegm(time.strptime(values[0],
                                         '%a, %d %b %Y %H:%M:%S GMT'))


def first(path, key, ttl, name, **args):
    """The first answer: the date is right, and not later than the truth."""
    begin = time.time()
    a = gw.post(path, key, **args)
    end = time.time()
    e = when(a)
    ok(e is not None and begin + ttl - 2 <= e <= end + ttl,
       name + ': kept until its ttl is over',
       '%r, asked %s to %s, ttl %s: %r' % (e, begin, end, ttl, a))
    return a, e


def none(a, status, name, code=None):
    same((a.status, when(a), a.code), (status, None, code), name)


a, e = first('/ok', 'day', DAY, 'first')
same((a.status, a.replayed), (201, False), 'first: is no replay')
a2, e2 = first('/short/ok', 'short', 100, 'ttl 100s')
first('/answer', 'own', 50, "the upstream's own ttl", headers=[
    ('X-Status', '200'), ('X-Header', 'X-Accel-Idempotency: final; ttl=50')])
first('/status/204', 'empty', DAY, '204')
first('/status/404', 'missing', DAY, '404')
first('/tiny/big/1000', 'tiny', DAY, 'the answer is not kept, the key is')
first('/reject/ok', 'reject', DAY, 'duplicates are rejected')
first('/stripe/ok', 'stripe', DAY, 'profile stripe')
_, grave = first('/grave/ok', 'grave', 1, 'with a tombstone')
big = gw.call('/large/big/4000000', 'large')
ok(up.until('large'), 'a large answer was executed')
_, large = first('/large/big/4000000', 'large2', DAY, 'a large answer')

# a replay that is read slowly: others may share its copy of the answer
slow = gw.call('/large/big/4000000', 'large2')
started = slow.read_some(2000)

# the record's expiry stays where it is while the clock goes on
begin = time.time()
until(lambda: time.time() > begin + 3.2)

for path, key, expires in (('/ok', 'day', e), ('/short/ok', 'short', e2),
                           ('/large/big/4000000', 'large2', large)):
    again = gw.post(path, key)
    ok(again.replayed and when(again)
       and -1 <= when(again) - expires <= 1,
       'a replay has the expiry of the record: ' + key,
       '%r, first %r' % (again, expires))
ok(b'Idempotency-Expires: ' in started and b'Replayed: true' in started,
   'the slow replay has one', started[:600])
slow.close()
big.close()

for path, key, code in (('/reject/ok', 'reject', 'duplicate'),
                        ('/tiny/big/1000', 'tiny', 'response_not_kept')):
    again = gw.post(path, key)
    same((again.status, again.code), (409, code), code)
    ok(begin + DAY - 10 <= (when(again) or 0) <= begin + DAY,
       code + ': the expiry of the record', repr(again))

again = gw.post('/grave/ok', 'grave')
same((again.status, again.code), (410, 'key_expired'), 'a tombstone')
ok(abs((when(again) or 0) - grave - 3600) <= 1,
   'a tombstone: its own end', '%r, first %r' % (again, grave))

gw.post('/mine', 'gone', method='DELETE', body=None)
again = gw.post('/mine/ok', 'gone')
same((again.status, again.code), (410, 'key_cancelled'), 'a cancelled key')
ok(abs((when(again) or 0) - time.time() - DAY) <= 20,
   'a cancelled key: kept for ttl', repr(again))

# no record, or none that has an end

none(gw.post('/status/503', 'released'), 503, 'a retryable status')
none(gw.post('/answer', 'release', headers=[
    ('X-Status', '200'), ('X-Header', 'X-Accel-Idempotency: release')]),
    200, 'released by the upstream')
none(gw.post('/closed/x', 'closed'), 502, 'nothing was sent', 'not_sent')
none(gw.post('/late/silent', 'late'), 504, 'a time-out', 'outcome_unknown')
none(gw.post('/late/silent', 'late'), 409, 'and its duplicate',
     'outcome_unknown')
none(gw.post('/ok', None), 400, 'no key', 'key_missing')
none(gw.post('/ok', 'day', body=b'another'), 422, 'another body',
     'key_reused')
none(gw.post('/free/ok', None), 201, 'not protected')
none(gw.post('/ok', None, method='GET', body=None), 201, 'another method')

up.hold()
running = background(gw.post, '/waiting/wait', 'running')
ok(up.until('running'), 'one is running')
none(gw.post('/waiting/wait', 'running', body=b'another'), 422,
     'another body while it runs', 'key_reused')
waiter = background(gw.post, '/waiting/wait', 'running')
up.go()
one, two = running.join(), waiter.join()
same((one.status, one.replayed, two.status, two.replayed),
     (201, False, 201, True), 'a duplicate that waits')
ok(when(one) and when(two) and abs(when(one) - when(two)) <= 1,
   'a duplicate that waits has it', '%r %r' % (one, two))
executed(up, 'running', 1, 'a duplicate that waits')

# an upstream that is such a gateway itself

THEIRS = 'Idempotency-Expires: Thu, 01 Jan 2099 00:00:00 GMT'
args = dict(headers=[('X-Status', '200'), ('X-Header', THEIRS),
                     ('X-Header', 'Idempotent-Replayed: true')])
a, e = first('/answer', 'theirs', DAY, "instead of the upstream's", **args)
again = gw.post('/answer', 'theirs', **args)
ok(again.replayed and abs((when(again) or 0) - e) <= 1,
   "instead of the upstream's, replayed", repr(again))
a = gw.post('/answer', 'theirs2', headers=[
    ('X-Status', '503'), ('X-Header', THEIRS)])
same(a.get('idempotency-expires'), THEIRS.partition(': ')[2],
     "the upstream's own where nothing is kept here")

# names

for key, path, kept, replay in (
        ('n1', '/named/ok', 'x-kept-until', 'x-replay'),
        ('n2', '/named/inner/ok', 'x-kept-until', 'x-replay'),
        ('n3', '/named/off/ok', None, 'x-replay'),
        ('n4', '/quiet/ok', None, None)):
    for number in (0, 1):
        a = gw.post(path, key)
        names = [n for n, v in a.headers]
        want = ([kept] if kept else []) + ([replay] if replay and number
                                           else [])
        same(sorted(n for n in names if 'idempoten' in n or n in (
            'x-kept-until', 'x-replay')), sorted(want),
            '%s: the headers of answer %d' % (path, number + 1))
        if kept:
            ok(abs((when(a, kept) or 0) - time.time() - DAY) <= 20,
               path + ': the date', repr(a))
    executed(up, key, 1, path)

gw.stop()
finish()
