#!/usr/bin/env python3
"""Never sent is not the same as unknown.

If nothing was sent, the claim is released, the error says so, and the retry is
executed.  If a byte was sent and no whole answer came, the outcome is unknown,
the key is held, and no other upstream is tried, neither by next_upstream, PUT
and DELETE included, nor by error_page.
"""

import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish,  # noqa: E402
                     free_port, ok, refused, replays, same, until)


class Full:
    """A port that nobody can connect to: its queue is full."""

    def __init__(self):
        self.sock = socket.socket()
        self.sock.bind(('127.0.0.1', 0))
        self.sock.listen(0)
        self.port = self.sock.getsockname()[1]
        self.clients = []
        for _ in range(4):
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(('127.0.0.1', self.port))
            self.clients.append(c)
        time.sleep(0.1)


up, other = Ledger(), Ledger()
full = Full()


def no_tls(listener):
    """answers a ClientHello with something else"""
    while True:
        c, _ = listener.accept()
        c.recv(10000)
        c.sendall(b'What?\n')
        c.close()


plain = socket.create_server(('127.0.0.1', 0))
threading.Thread(target=no_tls, args=(plain,), daemon=True).start()


def no_http(listener):
    """answers without a status line, as HTTP/0.9"""
    while True:
        c, _ = listener.accept()
        c.recv(10000)
        bare.append(1)
        c.sendall(b'{"error":"what?"}\n')
        c.close()


bare = []
nine = socket.create_server(('127.0.0.1', 0))
threading.Thread(target=no_http, args=(nine,), daemon=True).start()
closed = free_port()
late = free_port()

NEXT = 'error timeout invalid_header http_500 http_502 http_503 http_504 ' \
       'http_403 http_404 http_429'

gw = Gateway(up, http='''
    upstream refuses_then_up {
        server 127.0.0.1:%(closed)d max_fails=0;
        server 127.0.0.1:%(up)d backup;
    }
    upstream full_then_up {
        server 127.0.0.1:%(full)d max_fails=0;
        server 127.0.0.1:%(up)d backup;
    }
    upstream two {
        server 127.0.0.1:%(up)d max_fails=0;
        server 127.0.0.1:%(other)d backup;
    }
    upstream refuses_then_two {
        server 127.0.0.1:%(closed)d max_fails=0;
        server 127.0.0.1:%(up)d max_fails=0;
        server 127.0.0.1:%(other)d backup;
    }
    limit_req_zone $http_idempotency_key zone=once:1m rate=1r/m;
    upstream dead { server 127.0.0.1:%(closed)d down; }
    idempotency_methods POST PUT PATCH DELETE;
    idempotency_unknown hold;
    proxy_connect_timeout 300ms;
    proxy_read_timeout 400ms;
    proxy_next_upstream %(next)s;
''' % dict(closed=closed, full=full.port, up=up.port, other=other.port,
           next=NEXT), locations='''
    location /limited/ {
        idempotency main;
        limit_req zone=once;
        error_page 502 503 = @backup;
        proxy_pass http://up;
    }
    location /limited-safe/ {
        idempotency main;
        limit_req zone=once;
        error_page 502 503 = @safe;
        proxy_pass http://up;
    }
    location /limited-page/ {
        idempotency main;
        limit_req zone=once;
        error_page 503 /limited-page/ok;
        proxy_pass http://127.0.0.1:%(o)d;
    }
    location @safe { idempotency main; proxy_pass http://127.0.0.1:%(o)d; }
    location /denied/ {
        idempotency main;
        deny all;
        error_page 403 = @backup;
        proxy_pass http://up;
    }
    location /closed/ { idempotency main; proxy_pass http://127.0.0.1:%(c)d; }
    location /late/   { idempotency main; proxy_pass http://127.0.0.1:%(l)d; }
    location /full/   { idempotency main; proxy_pass http://127.0.0.1:%(f)d; }
    location /dead/   { idempotency main; proxy_pass http://dead; }
    location /ssl/    { idempotency main; proxy_pass https://127.0.0.1:%(t)d; }
    location /nine/   { idempotency main; proxy_pass http://127.0.0.1:%(n)d; }
    location /rtu/    { idempotency main; proxy_pass http://refuses_then_up; }
    location /ftu/    { idempotency main; proxy_pass http://full_then_up; }
    location /two/    { idempotency main; proxy_pass http://two; }
    location /two-get/ {
        idempotency main;
        idempotency_methods GET HEAD;
        proxy_pass http://two;
    }
    location /backup-get/ {
        idempotency main;
        idempotency_methods GET HEAD;
        error_page 502 504 = @backup;
        proxy_pass http://up;
    }
    location /rtt/    { idempotency main; proxy_pass http://refuses_then_two; }
    location /bad/ {
        idempotency main;
        resolver 127.0.0.1:%(c)d;
        resolver_timeout 300ms;
        set $name nobody.invalid;
        proxy_pass http://$name;
    }

    location /backup/ {
        idempotency main;
        error_page 500 502 503 504 = @backup;
        proxy_pass http://up;
    }
    location /caught/ {
        idempotency main;
        proxy_intercept_errors on;
        error_page 500 502 503 504 = @backup;
        proxy_pass http://up;
    }
    location /backup-closed/ {
        idempotency main;
        error_page 502 504 = @backup;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /backup-uri/ {
        idempotency main;
        error_page 502 504 /sorry;
        proxy_pass http://up;
    }
    location /closed-uri/ {
        idempotency main;
        error_page 502 504 /sorry;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /no/ {
        idempotency main;
        idempotency_describedby https://example.com/errors;
        error_page 400 409 413 502 503 504 = @backup;
        error_page 422 =200 @backup;
        client_body_buffer_size 1k;
        client_max_body_size 2k;
        proxy_read_timeout 10s;
        proxy_pass http://up;
    }
    location /no-uri/ {
        idempotency main;
        error_page 422 /sorry;
        proxy_pass http://up;
    }
    location /dry/ {
        idempotency main;
        idempotency_dry_run on;
        error_page 502 = @backup;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location /try/ { idempotency main; try_files /nothing @eager; }
    location /eager/ {
        idempotency main;
        error_page 502 = @eager;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location @eager {
        proxy_next_upstream error timeout non_idempotent;
        proxy_pass http://two;
    }
    location /hide-uri/ {
        idempotency main;
        error_page 502 504 = /sorry;
        proxy_pass http://up;
    }
    location /hide-200/ {
        idempotency main;
        error_page 502 504 =200 /sorry;
        proxy_pass http://up;
    }
    location /hide-closed/ {
        idempotency main;
        error_page 502 504 = /sorry;
        proxy_pass http://127.0.0.1:%(c)d;
    }
    location @backup { proxy_pass http://127.0.0.1:%(o)d; }
    location = /sorry { internal; proxy_pass http://127.0.0.1:%(o)d; }
''' % dict(c=closed, l=late, f=full.port, o=other.port,
           t=plain.getsockname()[1], n=nine.getsockname()[1]))


def released(path, key, status, name, **args):
    start = time.time()
    a = gw.post(path, key, **args)
    same((a.status, a.code, a.retry, a.whole),
         (status, 'not_sent', 'same-key', True),
         name + ': the error says to retry with the same key')
    same(gw.state(key, path, method=args.get('method', 'POST')), 'none',
         name + ': released')
    b = gw.post(path, key, **args)
    same((b.status, b.replayed), (status, False), name + ': the retry runs')
    return time.time() - start


def unknown(path, key, status, name, executions=1, **args):
    a = gw.post(path, key, **args)
    same((a.status, a.code, a.retry, a.whole),
         (status, 'outcome_unknown', 'same-key', True),
         name + ': the error says to retry with the same key')
    same(gw.state(key, path, method=args.get('method', 'POST')), 'unknown',
         name + ': unknown')
    refused(gw, path, key, 'outcome_unknown', name + ': held', **args)
    executed(up, key, executions, name)
    executed(other, key, 0, name + ', elsewhere')


def test_never_sent():
    released('/closed/ok', 'refused', 502, 'connection refused')
    took = released('/full/ok', 'full', 504, 'connect time-out')
    ok(took >= 0.6, 'which took its time, twice', took)
    released('/dead/ok', 'dead', 502, 'no live upstream')
    released('/ssl/ok', 'ssl', 502, 'no TLS there')
    released('/bad/ok', 'name', 502, 'a name that cannot be resolved')

    for method in ('PUT', 'DELETE', 'PATCH'):
        released('/closed/ok', method, 502, method + ' refused',
                 method=method)

    # the same key runs as soon as there is somebody
    a = gw.post('/late/ok', 'late')
    same(a.status, 502, 'nobody there yet')
    now = Ledger(late)
    a = gw.post('/late/ok', 'late')
    same((a.status, a.replayed), (201, False), 'the retry runs')
    replays(gw, '/late/ok', 'late', a, 'refused before')
    executed(now, 'late', 1, 'refused before')


def test_sent():
    unknown('/reset', 'reset', 502, 'reset after the request')
    unknown('/close', 'close', 502, 'closed after the request')
    unknown('/silent', 'silent', 504, 'read time-out')
    unknown('/deaf', 'deaf', 502, 'reset before it was read', executions=0)
    unknown('/partial/100', 'partial', 502, 'reset within the body',
            executions=0, body=b'x' * 200)
    unknown('/head/1', 'head1', 502, 'closed after a byte of the header')
    unknown('/head/30', 'head30', 502, 'closed within the header')
    for method in ('PUT', 'DELETE', 'PATCH'):
        unknown('/reset', 'reset-' + method, 502, 'reset of ' + method,
                method=method)


def test_no_status_line():
    """nginx takes it for an answer of HTTP/0.9, whose status nobody knows"""
    a = gw.post('/nine/ok', 'nine')
    ok(b'what?' in a.raw, 'no status line: the client gets what came', a.raw)
    same(gw.state('nine', '/nine/ok'), 'unknown', 'no status line: unknown')
    refused(gw, '/nine/ok', 'nine', 'outcome_unknown', 'no status line: held')
    same(len(bare), 1, 'no status line: executed once')


def test_answered_after_refusal():
    for path, name in (('/rtu/ok', 'refused, then answered'),
                       ('/ftu/ok', 'connect time-out, then answered')):
        a = gw.post(path, path)
        same((a.status, a.replayed), (201, False), name + ': an answer')
        same(gw.state(path, path), 'done', name + ': done')
        replays(gw, path, path, a, name)
        executed(up, path, 1, name)


def test_not_sent_again():
    for method in ('POST', 'PUT', 'PATCH', 'DELETE'):
        for path, status in (('/two/reset', 502), ('/two/close', 502),
                             ('/two/silent', 504), ('/two/head/20', 502)):
            unknown(path, '%s-%s' % (method, path), status,
                    '%s %s with another upstream' % (method, path),
                    method=method)
        unknown('/two/deaf', '%s-deaf' % method, 502,
                '%s reset before it was read, another upstream' % method,
                method=method, executions=0)
        unknown('/rtt/reset', method + '-rtt', 502,
                method + ' refused, then reset', method=method)

        # a status that next_upstream lists is an answer
        for status, state in ((500, 'done'), (503, 'none'), (404, 'done'),
                              (429, 'none'), (403, 'none'), (502, 'unknown'),
                              (504, 'unknown')):
            path = '/two/status/%d' % status
            key = '%s-%d' % (method, status)
            a = gw.post(path, key, method=method)
            same((a.status, a.get('x-effect')),
                 (status, str(up.of(key)[0][0])),
                 '%s: %d is the answer' % (method, status))
            same(gw.state(key, path, method=method), state,
                 '%s: %d leaves it %s' % (method, status, state))
            executed(up, key, 1, '%s: %d' % (method, status))
            executed(other, key, 0, '%s: %d, elsewhere' % (method, status))


def test_non_idempotent():
    """where a redirect leads is not known when the configuration is read"""
    for path in ('/try/reset', '/eager/reset'):
        unknown(path, path, 502, path + ' to a location that sends again')


def test_error_page():
    for path, status in (('/backup/reset', 502), ('/backup/silent', 502)):
        a = gw.post(path, path)
        same((a.status, a.retry), (status, 'same-key'),
             path + ': not sent to @backup')
        same(gw.state(path, path), 'unknown', path + ': unknown')
        refused(gw, path, path, 'outcome_unknown', path + ': held')
        executed(up, path, 1, path)
        executed(other, path, 0, path + ', @backup')
    ok('request was sent before, it is not sent to '
       'another upstream' in gw.log(), 'which is logged')

    # what was never sent may go elsewhere
    path = '/backup-closed/ok'
    a = gw.post(path, 'b')
    executed(other, 'b', 1, 'refused, @backup')
    same((a.get('x-effect'), a.replayed), (str(other.of('b')[0][0]), False),
         'its answer')
    replays(gw, path, 'b', a, 'refused, @backup')
    executed(other, 'b', 1, 'refused, @backup')

    # a page for the error, by GET
    path = '/backup-uri/reset'
    a = gw.post(path, 'p')
    same(a.status, 502, 'error_page URI')
    same([e[2:4] for e in other.of('p')], [('GET', '/sorry')],
         'the page is asked for by GET')
    same(gw.state('p', path), 'unknown', 'it is not the answer')
    refused(gw, path, 'p', 'outcome_unknown', 'held')
    executed(up, 'p', 1, 'error_page URI')

    path = '/closed-uri/ok'
    for name in ('refused, error_page URI', 'again'):
        a = gw.post(path, 'q')
        same((a.status, a.replayed), (502, False), name)
        same(gw.state('q', path), 'none', name + ': released')
    same(len(other.of('q')), 2, 'the page was asked for')

    # "=" would make the page's answer that of the request
    for path in ('/hide-uri/reset', '/hide-200/reset'):
        unknown(path, path, 502, path)

    path = '/hide-closed/ok'
    a = gw.post(path, 'h')
    same((a.status, a.replayed), (201, False), 'refused, error_page = URI')
    same(gw.state('h', path), 'none', 'a page is not the answer of the key')
    same([e[2] for e in other.of('h')], ['GET'], 'it was asked for by GET')

    # an answer that is intercepted is not asked for elsewhere either
    for status, state in ((500, 'done'), (503, 'none')):
        path = '/caught/status/%d' % status
        key = 'caught-%d' % status
        a = gw.post(path, key)
        same(a.status, status, path + ': what the upstream said')
        executed(up, key, 1, path)
        executed(other, key, 0, path + ', @backup')
        same(gw.state(key, path), state, path + ': ' + state)
        if state == 'done':
            replays(gw, path, key, a, path)


def test_refused_and_error_page():
    """what the module refuses is not executed by error_page"""
    def no(a, status, code, name):
        same((a.status, a.code, a.whole), (status, code, True), name)
        same(sorted(n for n, _ in a.headers if n in (
            'cache-control', 'idempotency-retry', 'retry-after', 'link')),
             ['cache-control', 'idempotency-retry', 'link']
             + ['retry-after'] * (code == 'in_progress'),
             name + ': each header once')

    path = '/no/wait'
    up.hold()
    first = gw.call(path, 'no')
    up.until('no')
    no(gw.post(path, 'no'), 409, 'in_progress', 'in progress')
    mark = len(gw.log())
    no(gw.post(path, 'no', body=b'other'), 422, 'key_reused', 'mismatch')
    same(gw.log()[mark:].count('request was "mismatch"'), 1, 'logged once')
    no(gw.post(path, None), 400, 'key_missing', 'no key')
    up.go()
    a = first.read()
    same(a.status, 201, 'the first is answered')
    replays(gw, path, 'no', a, 'the first')
    executed(up, 'no', 1, 'refused')
    executed(other, 'no', 0, 'refused, @backup')

    c = gw.call('/no/ok', 'no-413', body=None,
                headers=[('Transfer-Encoding', 'chunked')])
    c.send(b'1000\r\n' + b'x' * 4096 + b'\r\n0\r\n\r\n')
    # "=" forgets the status if the body is not there when it is asked for
    ok(c.read().status in (400, 413), 'a body that is too large')
    same(other.of('no-413'), [], 'is not sent to @backup')
    same(other.of(None), [], 'nor is what has no key')

    # what nginx itself refuses is claimed where error_page leads
    a = gw.post('/limited/ok', 'limited')
    replays(gw, '/limited/ok', 'limited', a, 'limit_req, @backup')
    executed(other, 'limited', 0, 'limit_req, @backup')
    a = gw.post('/limited-safe/ok', 'safe')
    replays(gw, '/limited-safe/ok', 'safe', a, 'limit_req, @safe')
    executed(other, 'safe', 0, 'limit_req, @safe')
    same([gw.post('/limited-page/post', 'page').status for _ in range(3)],
         [201, 503, 503], 'limit_req, a page')
    same([e[2] for e in other.of('page')], ['POST', 'GET', 'GET'],
         'which is asked for each time')
    same(gw.post('/denied/ok', 'denied').status, 403, 'no page by POST for '
         'who is denied')
    executed(other, 'denied', 0, 'denied')

    # a page is asked for by GET, and a dry run refuses nothing
    gw.post('/no-uri/ok', 'no-uri')
    a = gw.post('/no-uri/ok', 'no-uri', body=b'other')
    same((a.status, [e[2:4] for e in other.of('no-uri')]),
         (422, [('GET', '/sorry')]), 'a page is proxied')
    gw.post('/dry/ok', 'dry')
    gw.post('/dry/ok', 'dry', body=b'other')
    executed(other, 'dry', 2, 'a dry run')


def test_protected_get():
    """idempotency_methods may list GET, which nginx sends again gladly."""
    for path in ('/two-get/reset', '/two-get/silent'):
        unknown(path, path, 504 if 'silent' in path else 502,
                'GET ' + path, method='GET', body=None)
    for method in ('GET', 'HEAD'):
        a = gw.post('/two-get/reset', method, method=method, body=None)
        b = gw.post('/two-get/reset', method, method=method, body=None)
        same((a.status, b.status), (502, 409), method + ' is held')
        executed(up, method, 1, method)
        executed(other, method, 0, method + ', elsewhere')
        key = method + '-backup'
        a = gw.post('/backup-get/reset', key, method=method, body=None)
        same(a.status, 502, method + ' is not sent to @backup')
        executed(up, key, 1, method)
        executed(other, key, 0, method + ', @backup')
    a = gw.post('/two-get/ok', 'get', method='GET', body=None)
    same((a.status, a.replayed), (201, False), 'GET is answered')
    replays(gw, '/two-get/ok', 'get', a, 'GET', method='GET', body=None)
    executed(up, 'get', 1, 'GET')


def test_stale_connection():
    """A kept connection that its server closes at the wrong moment."""
    listener = socket.create_server(('127.0.0.1', 0))
    gw.write(http=gw.conf['http'] + '''
        upstream stale { server 127.0.0.1:%d; keepalive 4; }
    ''' % listener.getsockname()[1], locations=gw.conf['locations'] + '''
        location /stale/ { idempotency main; proxy_pass http://stale; }
    ''')
    old = gw.workers()
    gw.signal(1)
    until(lambda: not set(old) & set(gw.workers()))

    def serve():
        c, _ = listener.accept()
        c.recv(65536)
        c.sendall(b'HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok')
        c.recv(65536)         # the second one is read and not answered
        c.close()

    threading.Thread(target=serve, daemon=True).start()
    same(gw.post('/stale/a', 's1').status, 201, 'a connection is kept')
    a = gw.post('/stale/a', 's2')
    same(a.status, 502, 'the next request meets its end')
    same(gw.state('s2', '/stale/a'), 'unknown', 'and may have been executed')
    refused(gw, '/stale/a', 's2', 'outcome_unknown', 'it is held')
    listener.close()


test_never_sent()
test_sent()
test_no_status_line()
test_answered_after_refusal()
test_not_sent_again()
test_non_idempotent()
test_error_page()
test_refused_and_error_page()
test_protected_get()
test_stale_connection()
gw.expected.append('SSL_do_handshake() failed')
gw.stop()
finish()
