#!/usr/bin/env python3
"""Only the answer of the probe location's own upstream counts.

The answer of an error page, of the target of an X-Accel-Redirect, of another
upstream or of a cache leaves the record unknown.  The probe is a GET that has
the probe's URI in every variable; it does not carry headers that belong to the
body or to the conditions of the operation, and variables that it sets are not
seen by the main request.
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Answer, Client, Gateway, Ledger, executed,  # noqa: E402
                     finish, free_port, ok, replays, same)
from h2 import H2  # noqa: E402

up, query, other = Ledger(), Ledger(), Ledger()
PORTS = dict(query=query.port, other=other.port, dead=free_port())

# locations of probes: their verdict does not count
VOID = {
    # the page of server{}
    'down': 'proxy_pass http://127.0.0.1:%(dead)d;',
    'own-page': '''error_page 502 = @backup;
                   proxy_pass http://127.0.0.1:%(dead)d;''',
    'recursive': '''recursive_error_pages on; error_page 502 = @backup;
                    proxy_pass http://127.0.0.1:%(dead)d;''',
    'page-200': '''error_page 502 =200 /page;
                   proxy_pass http://127.0.0.1:%(dead)d;''',
    'page-404': '''error_page 502 =404 /page;
                   proxy_pass http://127.0.0.1:%(dead)d;''',
    'page-uri': '''recursive_error_pages on; error_page 502 = /page;
                   proxy_pass http://127.0.0.1:%(dead)d;''',
    'file': '''error_page 502 = /page.html;
               proxy_pass http://127.0.0.1:%(dead)d;''',
    'returned': '''error_page 502 = @returned;
                   proxy_pass http://127.0.0.1:%(dead)d;''',
    'limited': '''limit_req zone=never; error_page 503 = @backup;
                  proxy_pass http://127.0.0.1:%(query)d;''',
    'limited-recursive': '''limit_req zone=never; error_page 503 = @backup;
                            recursive_error_pages on;
                            proxy_pass http://127.0.0.1:%(query)d;''',
    'return': '''error_page 418 = @backup; return 418;''',
    'return-recursive': '''recursive_error_pages on;
                           error_page 418 = @backup; return 418;''',
    'no-file': '''recursive_error_pages on; error_page 404 = @backup;
                  root html;''',
    'try-code': '''recursive_error_pages on; error_page 404 = @backup;
                   try_files /nothing =404;''',
    'intercepted': '''proxy_intercept_errors on; error_page 500 = @backup;
                      proxy_pass http://127.0.0.1:%(query)d/status/500;''',
    'intercepted-404': '''proxy_intercept_errors on;
                          error_page 404 = @backup;
                          proxy_pass http://127.0.0.1:%(query)d/status/404;''',
    'accel': '''proxy_pass
        http://127.0.0.1:%(query)d/ok?h=X-Accel-Redirect:/page;''',
    'accel-named': '''proxy_pass
        http://127.0.0.1:%(query)d/ok?h=X-Accel-Redirect:@backup;''',
    'accel-file': '''proxy_pass
        http://127.0.0.1:%(query)d/status/200?h=X-Accel-Redirect:/page.html;
        ''',
    # its own upstream, and not all of it
    'cut': 'proxy_pass http://127.0.0.1:%(query)d/cut/10;',
    'cut-chunked': 'proxy_pass http://127.0.0.1:%(query)d/cutchunked/10;',
    'cut-reset': 'proxy_pass http://127.0.0.1:%(query)d/cutreset/10;',
    'cut-header': 'proxy_pass http://127.0.0.1:%(query)d/head/40;',
    'cut-unbuffered': '''proxy_buffering off;
                         proxy_pass http://127.0.0.1:%(query)d/cut/10;''',
    'after-accel': '''error_page 502 = @backup;
        proxy_pass http://127.0.0.1:%(query)d/ok?h=X-Accel-Redirect:/down;
        ''',
}

# and these do: what comes before the first content handler is no answer
VALID = {
    'plain': 'proxy_pass http://127.0.0.1:%(other)d$http_x_other;',
    'tried': 'try_files /nothing @backup;',
    'tried-own': '''root .; try_files /page.html @returned;
                    proxy_pass http://127.0.0.1:%(other)d$http_x_other;''',
    'rewritten': 'rewrite ^ /page last;',
    'next': 'proxy_pass http://several$http_x_other;',
    'not-intercepted': '''proxy_intercept_errors on;
        proxy_pass http://127.0.0.1:%(other)d$http_x_other;''',
    'unbuffered': '''proxy_buffering off;
        proxy_pass http://127.0.0.1:%(other)d$http_x_other;''',
    'filtered': '''gzip on; gzip_min_length 1; gzip_types *;
                   add_header X-Added 1 always;
                   proxy_pass http://127.0.0.1:%(other)d$http_x_other;''',
}

CACHE = '''
    proxy_cache probes;
    proxy_cache_key $uri;
    proxy_cache_valid any 1h;
    proxy_cache_lock on;
    proxy_pass http://127.0.0.1:%(query)d$http_x_probe;
'''

PROTECTED = '''
    location /%(name)s/ {
        idempotency main;
        idempotency_unknown probe=/probe/%(name)s;
        proxy_pass http://up;
    }
    location = /probe/%(name)s { %(text)s }
'''

gw = Gateway(up, http='''
    upstream several {
        server 127.0.0.1:%(dead)d; server 127.0.0.1:%(other)d;
    }
    proxy_cache_path cache keys_zone=probes:1m;
    limit_req_zone $server_port zone=never:64k rate=1r/m;
''' % PORTS, server='error_page 502 503 504 = @backup;', locations='''
    location @backup { proxy_pass http://127.0.0.1:%(other)d$http_x_other; }
    location = /page { proxy_pass http://127.0.0.1:%(other)d$http_x_other; }
    location = /down { proxy_pass http://127.0.0.1:%(dead)d; }
    location = /page.html { root .; }
    location @returned { return 404; }
    location = /auth {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://127.0.0.1:%(other)d/status/200?h=X-User:me;
    }
    location /vars/ {
        set $before "$request_method $request_uri $request $content_type
                     $content_length $http_if_match $http_content_type";
        set $given yes;
        set $both main;
        auth_request /auth;
        auth_request_set $user $upstream_http_x_user;
        idempotency main;
        idempotency_unknown probe=/probe/vars%%20x?a=b%%20c;
        add_header X-After "$both $request_method $request_uri" always;
        add_header X-Id $request_id always;
        proxy_set_header X-Before $before;
        proxy_pass http://up;
    }
    location = "/probe/vars x" {
        internal;
        set $both probe;
        proxy_set_header X-Vars "$given $both $user $idempotency_key";
        proxy_set_header X-Method "$request_method";
        proxy_set_header X-Id $request_id;
        proxy_set_header X-Request "$request";
        proxy_set_header X-Uri "$request_uri $uri $args";
        proxy_set_header X-Type "$content_type$http_content_type";
        proxy_set_header X-Length "$content_length$http_content_length";
        proxy_set_header X-Text "$request_body$request_body_file";
        proxy_set_header X-Match "$http_if_match$http_range";
        proxy_pass http://127.0.0.1:%(query)d/ok;
    }
''' % PORTS + ''.join(
    PROTECTED % dict(name=name, text=text % PORTS) for name, text in [
        *VOID.items(), *VALID.items(),
        ('own', 'proxy_pass http://127.0.0.1:%(query)d$http_x_probe;'),
        ('cached', CACHE), ('cached-2', CACHE), ('shared', CACHE),
        ('shared-2', CACHE),
        ('stale', CACHE.replace('1h', '1s')
         + 'proxy_cache_use_stale error timeout http_500 updating;')]))

with open(gw.root + '/page.html', 'w') as f:
    f.write('page')


def lost(path, key, **args):
    """a request whose outcome is unknown"""
    a = gw.post(path, key, **args)
    if a.status != 502 or gw.state(key, path) != 'unknown':
        ok(False, 'could not lose ' + path, a)


def ask(path, key, probe='/ok', elsewhere='/ok', **args):
    return gw.post(path, key, headers=[('X-Probe', probe),
                                       ('X-Other', elsewhere)], **args)


def test_void():
    gw.post('/probe/limited', None, None, 'GET')
    for name in VOID:
        path = '/%s/flaky' % name
        for says in ('/status/404', '/status/200', '/ok', '/status/202'):
            key = name + says
            lost(path, key)
            start = len(gw.log())
            a = ask(path, key, elsewhere=says)
            same((a.status, a.code), (409, 'outcome_unknown'),
                 '%s, where another one says %s: nothing is told'
                 % (name, says))
            same(gw.state(key, path), 'unknown', name + ': still unknown')
            executed(up, key, 1, name)
            if not name.startswith('cut'):
                ok('not from the upstream of its location' in
                   gw.log()[start:], name + ': the log tells why')
            same(len([e for e in other.of(key) if e[2] != 'GET']), 0,
                 name + ': nobody else has executed it')


def test_valid():
    for name in VALID:
        path = '/%s/flaky' % name
        lost(path, name)
        a = ask(path, name)
        same((a.status, a.replayed, a.body[:6]), (201, True, b'effect'),
             name + ': its 201 is the answer')
        replays(gw, path, name, a, name)
        executed(up, name, 1, name)

        key = name + '-never'
        lost(path, key)
        a = ask(path, key, elsewhere='/status/404')
        same((a.status, a.replayed), (201, False),
             name + ': its 404 lets it run')
        executed(up, key, 2, name)


def test_word():
    """X-Accel-Idempotency of a probe's answer means nothing"""
    path = '/own/flaky'
    for word in ('final', 'release', 'unknown', 'final%3Bttl=1', 'nonsense'):
        key = 'word-' + word[:9]
        lost(path, key)
        a = ask(path, key, '/ok?h=X-Accel-Idempotency:' + word)
        same((a.status, a.replayed, a.get('x-accel-idempotency')),
             (201, True, None), 'a probe with the word %s: not forwarded'
             % word)
        b = replays(gw, path, key, a, 'a probe with the word ' + word)
        same(b.get('x-accel-idempotency'), None, 'and not stored')
        executed(up, key, 1, word)
    time.sleep(1.2)
    same(gw.state('word-final%3Bt', path), 'done', 'its ttl does not count')
    key = 'word-404'
    lost(path, key)
    a = ask(path, key, '/status/404?h=X-Accel-Idempotency:final')
    same((a.status, a.replayed), (201, False), 'final, 404: it runs')


def get(path, probe):
    return gw.post(path, None, None, 'GET', headers=[('X-Probe', probe)])


def test_cache():
    # of another client's probe
    path = '/cached/flaky'
    lost(path, 'c-1')
    a = ask(path, 'c-1', '/status/404')
    same((a.status, a.replayed), (201, False), 'a 404 that could be cached')
    lost(path, 'c-2')
    a = ask(path, 'c-2', '/ok')
    same((a.status, a.replayed), (201, True),
         'the next probe asks the upstream')
    executed(up, 'c-2', 1, 'after another one\'s 404')

    path = '/cached-2/flaky'
    bodies = []
    for key in ('c-3', 'c-4'):
        lost(path, key)
        a = ask(path, key, '/ok')
        same((a.status, a.replayed), (201, True), 'a 201 of ' + key)
        bodies.append(a.body)
        executed(query, key, 1, 'the probe')
    ok(bodies[0] != bodies[1], 'nobody gets another one\'s answer', bodies)

    # of what is not a probe
    path = '/shared/flaky'
    same([get('/probe/shared', '/status/404').status,
          get('/probe/shared', '/ok').status], [404, 404],
         'the cache has a 404')
    lost(path, 'c-5')
    a = ask(path, 'c-5', '/ok')
    same((a.status, a.replayed), (201, True), 'a probe does not ask it')
    executed(up, 'c-5', 1, 'with a cached 404')
    same(get('/probe/shared', '/ok').status, 404, 'which is still there')

    path = '/shared-2/flaky'
    lost(path, 'c-6')
    a = ask(path, 'c-6', '/ok')
    same((a.status, a.replayed), (201, True), 'a probe')
    same(get('/probe/shared-2', '/status/410').status, 410,
         'its answer is not cached')
    same(get('/probe/shared-2', '/ok').status, 410, 'that of others is')

    path = '/stale/flaky'
    for n, probe in enumerate(('/reset', '/status/500')):
        key = 'c-stale-%d' % n
        lost(path, key)
        get('/probe/stale', '/status/404')
        time.sleep(2.1)
        a = ask(path, key, probe)
        same((a.status, a.code), (409, 'outcome_unknown'),
             'a stale 404 tells nothing')
        executed(up, key, 1, 'a stale 404')


def test_variables():
    path = '/vars/flaky?x=y'
    key = 'vars'
    headers = [('Content-Type', 'text/odd'), ('X-Other', '/ok'),
               ('X-Twice', '1'), ('Authorization', 'Bearer b'),
               ('X-Twice', '2'), ('Content-Encoding', 'identity'),
               ('If-Match', '"e"'), ('If-None-Match', '"n"'),
               ('If-Modified-Since', 'Thu, 01 Jan 1970 00:00:01 GMT'),
               ('If-Unmodified-Since', 'Thu, 01 Jan 2037 00:00:01 GMT'),
               ('Range', 'bytes=0-1'), ('If-Range', '"e"'),
               ('Expect', '100-continue'), ('Content-MD5', 'x'),
               ('Upgrade', 'echo'), ('X-Last', 'z'), ('Digest', 'd')]

    def send():
        a = gw.post(path, key, headers=headers)
        return Answer(a.raw.replace(b'HTTP/1.1 100 Continue\r\n\r\n', b''))

    a = send()
    same((a.status, gw.state(key, '/vars/flaky')), (502, 'unknown'), 'lost')
    a = send()
    same((a.status, a.replayed), (201, True), 'probed')
    same(a.get('x-after'), 'main POST ' + path,
         'the probe changes no variable of the main request')
    entry = query.of(key)[0]
    fields = dict(entry[4])
    same(fields.get('x-vars'), 'yes probe me vars',
         'variables of the main request are there')
    same(fields.get('x-method'), 'GET', '$request_method')
    same(fields.get('x-id'), a.get('x-id'), '$request_id is the same')
    same(fields.get('x-request'),
         'GET /probe/vars%20x?a=b%20c HTTP/1.1', '$request')
    same(fields.get('x-uri'),
         '/probe/vars%20x?a=b%20c /probe/vars x a=b%20c',
         '$request_uri, $uri, $args')
    for name in ('x-type', 'x-length', 'x-text', 'x-match', 'content-type',
                 'content-length', 'content-encoding', 'content-md5',
                 'if-match', 'if-none-match', 'if-modified-since',
                 'if-unmodified-since', 'range', 'if-range', 'expect',
                 'upgrade', 'digest', 'transfer-encoding'):
        same(fields.get(name), None, 'a probe has no ' + name)
    same((entry[2], entry[5]), ('GET', b''), 'a GET without a body')
    same([v for n, v in entry[4] if n == 'x-twice'], ['1', '2'],
         'two lines are two')
    same((fields.get('authorization'), fields.get('x-last'),
          fields.get('idempotency-key')), ('Bearer b', 'z', key),
         'what says who asks is there')
    replays(gw, path, key, a, 'vars', headers=[('Content-Type', 'text/odd'),
                                               ('X-Other', '/ok')])


def test_chunked():
    path = '/own/flaky'
    key = 'chunked'
    for want in (502, 201):
        c = Client(gw.port, path, key, None, headers=[
            ('Transfer-Encoding', 'chunked'), ('X-Probe', '/ok')])
        c.send(b'1\r\nx\r\n0\r\n\r\n')
        a = c.read()
        same(a.status, want, 'a chunked body')
    entry = query.of(key)[0]
    same((entry[2], entry[5], dict(entry[4]).get('transfer-encoding')),
         ('GET', b'', None), 'a probe is not chunked')
    executed(up, key, 1, 'a chunked body')


def test_http2():
    path, key = '/vars/flaky', 'h2'
    bodies = []
    for _ in range(3):
        c = H2(gw.h2)
        c.request(path, key, headers=[('content-type', 'text/odd'),
                                      ('x-other', '/ok')])
        bodies.append(c.data())
        c.close()
    same((bodies[1][:6], bodies[2]), (b'effect', bodies[1]),
         'HTTP/2: probed, and replayed')
    entry = query.of(key)[0]
    fields = dict(entry[4])
    same((entry[2], entry[5], fields.get('content-type')),
         ('GET', b'', None), 'HTTP/2: a GET without a body')
    same(fields.get('x-request'),
         'GET /probe/vars%20x?a=b%20c HTTP/2.0', 'HTTP/2: $request')
    executed(query, key, 1, 'HTTP/2: the probe')
    executed(up, key, 1, 'HTTP/2')


test_void()
test_valid()
test_word()
test_cache()
test_variables()
test_chunked()
test_http2()
gw.stop()
finish()
