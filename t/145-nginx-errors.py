#!/usr/bin/env python3
"""nginx's own 502, 503 and 504 of a protected request are problems.

They say whether something was sent: "not_sent", or "outcome_unknown".  The
status stays.  A page of error_page wins, an answer of the upstream is left
alone whatever its status is, and so is every request that is not protected.
And idempotency_in_progress reject=STATUS: the status of "in_progress".
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Client, Gateway, Ledger, executed,  # noqa: E402
                     finish, free_port, ok, replays, same)
from h2 import H2  # noqa: E402

up = Ledger()
closed = free_port()

gw = Gateway(up, http='''
    limit_req_zone $http_idempotency_key zone=once:1m rate=1r/m;
    proxy_read_timeout 400ms;
    proxy_connect_timeout 300ms;
''', locations='''
    location /closed/ { idempotency main; proxy_pass http://127.0.0.1:%(c)d; }
    location /fast/   { idempotency main; fastcgi_pass 127.0.0.1:%(c)d; }
    location /grpc/   { idempotency main; grpc_pass 127.0.0.1:%(c)d; }
    location /limited/ {
        idempotency main;
        limit_req zone=once;
        proxy_pass http://up;
    }
    location /limited-page/ {
        idempotency main;
        limit_req zone=once;
        error_page 503 /page;
        proxy_pass http://up;
    }
    location /return/ { idempotency main; return 503; }
    location /return-text/ { idempotency main; return 503 "mine"; }
    location /all/ {
        idempotency main;
        idempotency_methods GET HEAD POST;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /all-up/ {
        idempotency main;
        idempotency_methods GET HEAD POST;
        proxy_pass http://up;
    }
    location /described/ {
        idempotency main;
        idempotency_describedby https://example.com/errors;
        add_header X-Added yes always;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /stripe/ {
        idempotency main;
        idempotency_profile stripe;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /acp/ {
        idempotency main;
        idempotency_profile acp;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /stripe-up/ {
        idempotency main;
        idempotency_profile stripe;
        proxy_pass http://up;
    }

    # error_page

    location = /page { internal; return 200 "page"; }
    location @page { return 200 "page"; }
    location @page502 { return 502 "page"; }
    location @closed { proxy_pass http://127.0.0.1:%(c)d; }
    location /uri/ {
        idempotency main;
        error_page 502 504 /page;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /named/ {
        idempotency main;
        error_page 502 504 = @page;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /recursive/ {
        idempotency main;
        recursive_error_pages on;
        error_page 502 504 @page502;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /recursive-up/ {
        idempotency main;
        recursive_error_pages on;
        error_page 502 504 @page502;
        proxy_pass http://up;
    }
    location /other/ {
        idempotency main;
        error_page 404 500 /page;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /backup/ {
        idempotency main;
        error_page 502 @closed;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /backup-up/ {
        idempotency main;
        error_page 502 504 = @closed;
        proxy_pass http://up;
    }
    location /backup-same/ {
        idempotency main;
        error_page 502 504 @closed;
        proxy_pass http://up;
    }
    location /elsewhere/ {
        idempotency main;
        error_page 502 https://example.com/sorry;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /intercept/ {
        idempotency main;
        proxy_intercept_errors on;
        error_page 404 /page;
        proxy_pass http://up;
    }

    # not protected

    location /off/ { proxy_pass http://127.0.0.1:%(c)d; }
    location /off-limited/ { limit_req zone=once; proxy_pass http://up; }
    location /dry/ {
        idempotency main;
        idempotency_dry_run on;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /dry-limited/ {
        idempotency main;
        idempotency_dry_run on;
        limit_req zone=once;
        proxy_pass http://up;
    }
    location /optional/ {
        idempotency main;
        idempotency_required off;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /sub/ { auth_request /closed/; proxy_pass http://up; }
    location /sub-of/ {
        idempotency main;
        auth_request /off/;
        proxy_pass http://up;
    }

    # in_progress

    location /early/ {
        idempotency main;
        idempotency_in_progress reject=425;
        proxy_read_timeout 20s;
        proxy_pass http://up;
    }
    location /busy/ {
        idempotency main;
        idempotency_in_progress reject=503;
        proxy_read_timeout 20s;
        proxy_pass http://up;
        location /busy/conflict/ {
            idempotency_in_progress reject=409;
            proxy_pass http://up;
        }
        location /busy/stripe/ {
            idempotency_profile stripe;
            proxy_pass http://up;
        }
        location /busy/page/ {
            error_page 503 =200 @page;
            proxy_pass http://up;
        }
    }
''' % dict(c=closed))

PHRASES = {502: 'Bad Gateway', 503: 'Service Unavailable',
           504: 'Gateway Timeout'}


def problem(a, status, code, name):
    """the answer is this problem, with each header once"""
    try:
        body = json.loads(a.body)
    except ValueError:
        ok(False, name + ': JSON', a)
        return {}
    same((a.status, body.get('status'), body.get('code'), a.whole),
         (status, status, code, True), name + ': status and code')
    same(sorted(body), ['code', 'detail', 'status', 'title', 'type'],
         name + ': members')
    same([a.get(n) for n in ('content-type', 'content-language',
                             'cache-control', 'idempotency-retry',
                             'retry-after')],
         ['application/problem+json', 'en', 'no-store', 'same-key',
          '60' if code == 'outcome_unknown' else None],
         name + ': headers')
    if body.get('type') == 'about:blank':
        same(body['title'], PHRASES[status], name + ': title')
    if code == 'outcome_unknown':
        ok('Do not use a new key' in body['detail'], name + ': detail')
    return body


def html(a, status, name, retry=None):
    ok(a.status == status and a.code is None and a.whole and b'<html>' in a.body
       and a.get('content-type') == 'text/html' and a.retry == retry,
       name + ': nginx\'s own page', a)


def page(a, status, name, text=b'page'):
    same((a.status, a.body, a.code), (status, text, None),
         name + ': the page of error_page')


def test_not_sent():
    for n in (1, 2):
        problem(gw.post('/closed/x', 'refused'), 502, 'not_sent',
                'refused %d' % n)
    same(gw.state('refused', '/closed/x'), 'none', 'refused: released')
    problem(gw.post('/fast/x', 'fast'), 502, 'not_sent', 'FastCGI')
    problem(gw.post('/grpc/x', 'grpc'), 502, 'not_sent',
            'grpc_pass for a client of another type')

    a = gw.post('/limited/ok', 'limited')
    same(a.status, 201, 'the first one is within the limit')
    problem(gw.post('/limited/ok', 'limited'), 503, 'not_sent', 'limit_req')
    executed(up, 'limited', 1, 'limit_req')
    problem(gw.post('/return/x', 'r'), 503, 'not_sent', 'return')


def test_sent():
    for path, status in (('/reset', 502), ('/close', 502), ('/silent', 504),
                         ('/head/20', 502), ('/cut/100', 502),
                         ('/cutchunked/100', 502)):
        a = gw.post(path, path)
        problem(a, status, 'outcome_unknown', path)
        same(gw.state(path, path), 'unknown', path + ': unknown')
        b = gw.post(path, path)
        same((b.status, b.code, b.get('retry-after')),
             (409, 'outcome_unknown', '60'), path + ': held')
        executed(up, path, 1, path)


def test_forms():
    body = problem(gw.post('/described/x', 'd'), 502, 'not_sent', 'described')
    same((body['type'], body['title']),
         ('https://example.com/errors#not_sent', 'Request was not sent'),
         'described: type and title')
    a = gw.post('/described/x', 'd')
    same((a.get('link'), a.get('x-added')),
         ('<https://example.com/errors>; rel="describedby"', 'yes'),
         'described: headers')

    for path, status, code in (('/stripe/x', 502, 'not_sent'),
                               ('/stripe-up/silent', 504, 'outcome_unknown')):
        a = gw.post(path, path)
        error = json.loads(a.body)['error']
        same((a.status, sorted(error), error['type'], error['code'],
              a.get('content-type'), a.get('stripe-should-retry'), a.retry),
             (status, ['code', 'message', 'type'], 'api_error', code,
              'application/json', 'true', 'same-key'), path)

    a = gw.post('/acp/x', 'acp')
    error = json.loads(a.body)
    same((a.status, sorted(error), error['type'], error['code'],
          a.get('content-type')),
         (502, ['code', 'message', 'type'], 'service_unavailable', 'not_sent',
          'application/json'), 'acp')

    a = gw.post('/stripe-up/ok', 'mismatch')
    b = gw.post('/stripe-up/ok', 'mismatch', body=b'other')
    same((a.status, b.status, b.code, b.retry, b.get('stripe-should-retry')),
         (201, 400, 'key_reused', 'same-key', 'false'),
         'Stripe\'s library does not retry a mismatch')


def test_methods():
    a = gw.post('/all/x', 'head', method='HEAD', body=None)
    same((a.status, a.body, a.get('content-type'), a.retry),
         (502, b'', 'application/problem+json', 'same-key'), 'HEAD')
    b = gw.post('/all/x', 'head', method='GET', body=None)
    problem(b, 502, 'not_sent', 'GET')
    same(a.get('content-length'), str(len(b.body)), 'HEAD: the same length')
    a = gw.post('/all-up/silent', 'head2', method='HEAD', body=None)
    same((a.status, a.body, a.get('content-type')),
         (504, b'', 'application/problem+json'), 'HEAD, sent')

    for path, code in (('/closed/x', 'not_sent'),
                       ('/reset', 'outcome_unknown')):
        c = H2(gw.h2)
        c.request(path, 'h2' + path)
        body = json.loads(c.data())
        same((body['status'], body['code']), (502, code), 'HTTP/2 ' + path)
        c.close()

    # the connection stays usable
    c = Client(gw.port, '/closed/x', 'keep', send=False)
    c.send(c.bytes.replace(b'Connection: close\r\n', b'')
           + c.bytes.replace(b'/closed/x', b'/ok').replace(b'keep', b'kept'))
    raw = c.read().raw
    first, _, second = raw.partition(b'}\nHTTP/1.1 201')
    ok(b'"not_sent"' in first and b'effect' in second,
       'a second request on the same connection', raw)

    for path in ('/grpc/x', '/closed/x', '/silent'):
        a = gw.post(path, 'g' + path,
                    headers=[('Content-Type', 'application/grpc')])
        html(a, 504 if path == '/silent' else 502, 'a gRPC client, ' + path,
             'same-key')


def test_error_page():
    page(gw.post('/uri/x', 'u'), 502, 'a URI')
    page(gw.post('/named/x', 'n'), 200, 'a named location')
    page(gw.post('/recursive/x', 'r'), 502, 'recursive_error_pages')
    page(gw.post('/recursive-up/reset', 'r2'), 502,
         'recursive_error_pages, sent')
    problem(gw.post('/other/x', 'o'), 502, 'not_sent',
            'error_page of another status')
    problem(gw.post('/backup/x', 'b'), 502, 'not_sent',
            'a backup that cannot be reached either')
    problem(gw.post('/backup-up/reset', 'b2'), 502, 'outcome_unknown',
            'a backup that must not get it')
    problem(gw.post('/backup-same/reset', 'b3'), 502, 'outcome_unknown',
            'a backup that must not get it, with the status')
    a = gw.post('/elsewhere/x', 'e')
    same((a.status, a.get('location'), a.retry),
         (302, 'https://example.com/sorry', 'same-key'), 'a redirect')
    gw.post('/limited-page/ok', 'lp')
    page(gw.post('/limited-page/ok', 'lp'), 503, 'limit_req')
    page(gw.post('/return-text/x', 'rt'), 503, 'return with a text', b'mine')


def test_upstream():
    for path in ('/status/%d', '/intercept/status/%d'):
        for status in (502, 503, 504):
            key = path % status
            a = gw.post(key, key)
            same((a.status, a.code, a.retry, a.get('x-effect')),
                 (status, None, None, str(up.of(key)[0][0])),
                 key + ': the upstream\'s own')


def test_unprotected():
    html(gw.post('/off/x', 'k'), 502, 'off')
    gw.post('/off-limited/ok', 'ol')
    html(gw.post('/off-limited/ok', 'ol'), 503, 'off, limit_req')
    html(gw.post('/dry/x', 'k'), 502, 'dry_run')
    gw.post('/dry-limited/ok', 'dl')
    html(gw.post('/dry-limited/ok', 'dl'), 503, 'dry_run, limit_req')
    html(gw.post('/closed/x', 'k', method='GET', body=None), 502,
         'another method')
    html(gw.post('/optional/x', None), 502, 'no key, and none required')
    problem(gw.post('/optional/x', 'k'), 502, 'not_sent',
            'a key, and none required')
    html(gw.post('/sub/x', 'k'), 500, 'a subrequest to a protected location')
    html(gw.post('/sub-of/x', 'k'), 500, 'a subrequest of a protected request')


def test_in_progress():
    up.hold()
    cases = (('/early/wait', 425, 'in_progress', 'Too Early'),
             ('/busy/wait', 503, 'in_progress', 'Service Unavailable'),
             ('/busy/conflict/wait', 409, 'in_progress', 'Conflict'),
             ('/busy/stripe/wait', 503, 'idempotency_key_in_use', None),
             ('/busy/page/wait', 200, None, None))
    running = []
    for path, _, _, _ in cases:
        running.append(gw.call(path, path))
        up.until(path)
    for path, status, code, title in cases:
        a = gw.post(path, path)
        same((a.status, a.code, a.retry, a.get('retry-after')),
             (status, code, 'same-key', '1'), path)
        if title:
            same(json.loads(a.body)['title'], title, path + ': title')
    up.go()
    for c, (path, _, _, _) in zip(running, cases):
        a = c.read()
        same(a.status, 201, path + ': the first one')
        replays(gw, path, path, a, path)
        executed(up, path, 1, path)


test_not_sent()
test_sent()
test_forms()
test_methods()
test_error_page()
test_upstream()
test_unprotected()
test_in_progress()
gw.stop()
finish()
