#!/usr/bin/env python3
"""The same promise for fastcgi_pass, uwsgi_pass, scgi_pass and grpc_pass.

One execution, equal answers, trailers included; what breaks off is not kept;
a client that leaves does not cancel; Range and conditions of a client do not
make half an answer.  A gRPC answer is judged by its grpc-status.  The probe
locations of docs/reference/directives.md ask by a GET that names the probe,
with the parameter files that come with nginx.
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     free_port, refused, replays, same, until)
from backends import Fastcgi, Grpc, Scgi, Uwsgi  # noqa: E402
from h2 import H2  # noqa: E402
from pasted import blocks, statements  # noqa: E402

up, query = Ledger(), Ledger()
servers = {'fastcgi': Fastcgi(), 'uwsgi': Uwsgi(), 'scgi': Scgi()}
fastcgi_kept = Fastcgi()
grpc = Grpc()

PARAMS = '''
    %(p)s_param CONTENT_LENGTH $content_length;
    %(p)s_param REQUEST_METHOD $request_method;
'''

# the probe locations of the page, each with its own backend; that of gRPC is
# an nginx that speaks HTTP/2 and hands on what it gets

h2_port = free_port()
ports = {'http': query.port, 'grpc': h2_port,
         **{p: s.port for p, s in servers.items()}}


def shown():
    """by the URI of the location"""
    found = {}
    for block in blocks('docs/reference/directives.md'):
        if block.heading == 'idempotency_unknown':
            for name, text in statements(block.text):
                if name == 'location':
                    uri = re.match(r'location = (\S+)', text).group(1)
                    found[uri] = re.sub(
                        r'((\w+)_pass\s+(?:\w+://)?)backend',
                        lambda m: '%s127.0.0.1:%d' % (
                            m.group(1), ports.get(m.group(2), query.port)),
                        text)
    return found


PROBES = shown()

# grpc-status in the header, where there is no message, and in the trailers
GRPC = {'failed': 'add_header grpc-status 12; return 200;',
        'trailer': 'add_trailer grpc-status 5; return 200 "m";',
        'none': 'return 200 "m";',
        'good': 'add_trailer grpc-status 0; return 200 "m";'}

gw = Gateway(up, locations=''.join('''
    location /%(p)s/ {
        idempotency main;
        %(params)s
        %(p)s_pass 127.0.0.1:%(port)d;
    }
    location /%(p)s-unbuffered/ {
        idempotency main;
        %(params)s
        %(p)s_buffering off;
        %(p)s_pass 127.0.0.1:%(port)d;
    }
''' % dict(p=p, port=s.port, params=PARAMS % dict(p=p))
    for p, s in servers.items()) + '''
    location /kept/ {
        idempotency main;
        %s
        fastcgi_keep_conn on;
        fastcgi_pass kept;
    }
    location /grpc/ {
        idempotency main;
        grpc_pass grpc://127.0.0.1:%d;
    }
    location /grpc-dry/ {
        idempotency main;
        idempotency_dry_run on;
        grpc_pass grpc://127.0.0.1:%d;
    }
    location /grpc-listed/ {
        idempotency main;
        idempotency_final 503;
        idempotency_retryable 404;
        grpc_pass grpc://127.0.0.1:%d;
    }
    location /nobody/ { idempotency main; grpc_pass grpc://127.0.0.1:1; }
''' % (PARAMS % dict(p='fastcgi'), *[grpc.port] * 3) + ''.join('''
    location /probe%(uri)s/ {
        idempotency main;
        idempotency_unknown probe=%(uri)s?a=%%20b;
        # evaluated before the probe is
        set $before "$request_uri $request_method $content_type $request";
        proxy_pass http://up;
    }
    %(text)s
''' % dict(uri=uri, text=text) for uri, text in PROBES.items()) + ''.join('''
    location /g-%(name)s/ {
        idempotency main;
        idempotency_unknown probe=/status_%(name)s;
        proxy_pass http://up;
    }
    location = /status_%(name)s { grpc_pass grpc://127.0.0.1:%(port)d; }
''' % dict(name=name, port=h2_port) for name in GRPC), http='''
    upstream kept { server 127.0.0.1:%d; keepalive 4; }
    server {
        listen 127.0.0.1:%d http2;
        default_type application/grpc;
        location / {
            proxy_pass http://127.0.0.1:%d$http_x_probe$request_uri;
        }
        %s
    }
''' % (fastcgi_kept.port, h2_port, query.port, ''.join(
        'location = /status_%s { %s }' % item for item in GRPC.items())))


def do(what, *more):
    return [('X-Do', what), *more]


def test_backend(name, place, server):
    path = '/%s/pay' % place

    def key(word):
        return '%s-%s' % (place, word)

    a = gw.post(path, key('ok'), headers=do('ok'))
    same((a.status, a.whole, a.replayed), (201, True, False), place)
    replays(gw, path, key('ok'), a, place)
    executed(server, key('ok'), 1, place)

    a = gw.post(path, key('nolength'), headers=do('nolength'))
    same((a.status, a.whole, a.body[:6]), (201, True, b'effect'),
         place + ' without a length')
    replays(gw, path, key('nolength'), a, place + ' without a length')
    executed(server, key('nolength'), 1, place + ' without a length')

    for word in ('cut', 'reset'):
        a = gw.post(path, key(word), headers=do(word))
        same((a.status, a.whole), (502, True), '%s %s: 502' % (place, word))
        refused(gw, path, key(word), 'outcome_unknown',
                '%s %s: unknown' % (place, word))
        executed(server, key(word), 1, '%s %s' % (place, word))

    c = gw.call(path, key('left'), headers=do('slow'))
    server.until(key('left'))
    c.close()
    ok(until(lambda: gw.state(key('left'), path) == 'done', 3),
       place + ': the client has left, done')
    a = gw.post(path, key('left'), headers=do('slow'))
    same((a.status, a.replayed, a.body[:6]), (201, True, b'effect'),
         place + ': replayed')
    executed(server, key('left'), 1, place + ': the client has left')

    for header in (('Range', 'bytes=0-3'), ('If-None-Match', '*'),
                   ('If-Match', '"no"'),
                   ('If-Unmodified-Since',
                    'Thu, 01 Jan 1970 00:00:01 GMT')):
        k = key(header[0])
        a = gw.post(path, k, headers=do('ok', header))
        same((a.status, len(a.body)), (201, 14),
             '%s: %s is not for us' % (place, header[0]))
        replays(gw, path, k, a, '%s %s' % (place, header[0]),
                headers=do('ok', header))
        executed(server, k, 1, '%s %s' % (place, header[0]))


def call(key, do, path='/grpc/pay.Pay/Charge'):
    """A unary call by curl: status line, headers and trailers, message."""
    text = ('%s %s' % (key, do)).encode()
    head = gw.root + '/head'
    out = subprocess.run(
        ['curl', '-s', '--http2-prior-knowledge', '-D', head, '-H',
         'Content-Type: application/grpc', '-H', 'TE: trailers', '-H',
         'Idempotency-Key: ' + key, '--data-binary', '@-',
         'http://127.0.0.1:%d%s' % (gw.h2, path)],
        input=b'\0' + len(text).to_bytes(4, 'big') + text,
        capture_output=True)
    with open(head) as f:
        lines = [line.strip() for line in f if line.strip()]
    fields = dict(line.split(': ', 1) for line in lines[1:] if ': ' in line)
    return lines[0] if lines else '', fields, out.stdout


def test_grpc():
    path = '/grpc/pay.Pay/Charge'
    line, fields, message = call('g-ok', 'ok')
    same((line, fields.get('grpc-status'), fields.get('grpc-message')),
         ('HTTP/2 200', '0', 'from trailers'), 'grpc: with its trailers')
    same(message[5:], b'effect 000001', 'grpc: its message')
    again = call('g-ok', 'ok')
    same((again[0], again[2]), (line, message), 'grpc: the same again')
    same((again[1].get('grpc-status'), again[1].get('grpc-message'),
          again[1].get('idempotent-replayed')),
         ('0', 'from trailers', 'true'), 'grpc: with its trailers again')
    executed(grpc, 'g-ok', 1, 'grpc')

    line, fields, message = call('g-error', 'error')
    same((fields.get('grpc-status'), message), ('13', b''),
         'grpc: an answer of trailers only')
    again = call('g-error', 'error')
    same((again[1].get('grpc-status'), again[2],
          again[1].get('idempotent-replayed')), ('13', b'', 'true'),
         'grpc: the same again')
    executed(grpc, 'g-error', 1, 'grpc, trailers only')

    line, fields, message = call('g-reset', 'reset')
    ok(line.startswith('HTTP/2 502'), 'grpc: a stream that is reset', line)
    same(gw.state('g-reset', path), 'unknown', 'grpc: unknown')
    line, fields, message = call('g-reset', 'reset')
    ok(b'outcome_unknown' in message, 'grpc: held', message)
    executed(grpc, 'g-reset', 1, 'grpc, reset')

    c = H2(gw.h2)
    text = b'g-left slow'
    c.request(path, 'g-left', b'\0' + len(text).to_bytes(4, 'big') + text,
              headers=[('content-type', 'application/grpc'),
                       ('te', 'trailers')])
    grpc.until('g-left')
    c.cancel()
    ok(until(lambda: gw.state('g-left', path) == 'done', 3),
       'grpc: the client has left, done')
    line, fields, message = call('g-left', 'slow')
    same((message[5:11], fields.get('grpc-status'),
          fields.get('idempotent-replayed')), (b'effect', '0', 'true'),
         'grpc: replayed')
    executed(grpc, 'g-left', 1, 'grpc, the client has left')
    c.close()

    path = '/nobody/pay.Pay/Charge'
    line, fields, message = call('g-none', 'ok', path)
    ok(line.startswith('HTTP/2 502'), 'grpc: nobody there', line)
    same((gw.state('g-none', path), fields.get('idempotency-retry')),
         ('none', 'same-key'), 'grpc: released')


BODY = [('Content-Type', 'text/odd'), ('Content-Language', 'de'),
        ('If-Match', '"e"'), ('Range', 'bytes=0-1')]


def lost(path, key, headers=()):
    a = gw.post(path, key, headers=[*headers, *BODY])
    if a.status != 502 or gw.state(key, path) != 'unknown':
        ok(False, 'could not lose ' + path, a)


def test_probe(name, server):
    uri = '/status_' + name
    path = '/probe%s/flaky' % uri
    key = name + '-probe'
    lost(path, key)
    a = gw.post(path, key, headers=do('ok', *BODY))
    same((a.status, a.replayed, a.body[:6]), (201, True, b'effect'),
         '%s: a probe' % name)
    replays(gw, path, key, a, '%s: a probe' % name)
    executed(up, key, 1, '%s: a probe' % name)
    params = server.requests[-1]
    same({n: params.get(n) for n in (
        'REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING',
        'HTTP_IDEMPOTENCY_KEY')},
        {'REQUEST_METHOD': 'GET', 'REQUEST_URI': uri + '?a=%20b',
         'QUERY_STRING': 'a=%20b', 'HTTP_IDEMPOTENCY_KEY': key},
        '%s: a GET that names the probe' % name)
    same(params.get('DOCUMENT_URI', params.get('PATH_INFO')), uri,
         '%s: also as its path' % name)
    same([n for n in ('CONTENT_TYPE', 'HTTP_CONTENT_TYPE',
                      'HTTP_CONTENT_LENGTH', 'HTTP_CONTENT_LANGUAGE',
                      'HTTP_IF_MATCH', 'HTTP_RANGE') if params.get(n)], [],
         '%s: nothing of the operation\'s body' % name)
    ok(params.get('CONTENT_LENGTH') in ('', '0', None),
       '%s: no length' % name, params.get('CONTENT_LENGTH'))
    ok(len(params['IDEMPOTENCY_KEY']) == 64
       and int(params['IDEMPOTENCY_FENCE']) > 0,
       '%s: with its parameters' % name, params)
    same(server.count(key), 0, '%s: a probe executes nothing' % name)

    lost(path, key + '-404')
    a = gw.post(path, key + '-404', headers=do('missing', *BODY))
    same((a.status, a.replayed), (201, False), '%s: 404, it runs' % name)
    executed(up, key + '-404', 2, '%s: 404' % name)

    for word in ('cut', 'head', 'reset'):
        lost(path, key + word)
        refused(gw, path, key + word, 'outcome_unknown',
                '%s: a probe that ends by %s' % (name, word),
                headers=do(word, *BODY))
        executed(up, key + word, 1, '%s: %s' % (name, word))


def test_probe_http(uri):
    """proxy_pass and grpc_pass, of which the ledger sees what arrives"""
    path = '/probe%s/flaky' % uri
    lost(path, uri)
    a = gw.post(path, uri, headers=BODY)
    same((a.status, a.replayed), (201, True), uri + ': a probe')
    executed(up, uri, 1, uri + ': a probe')
    entry = query.entries[-1]
    fields = dict(entry[4])
    same((entry[2], entry[5]), ('GET', b''), uri + ': a GET without a body')
    same([n for n in ('content-type', 'content-length', 'content-language',
                      'if-match', 'range') if n in fields], [],
         uri + ': nothing of the operation\'s body')
    ok(int(fields['idempotency-fence']) > 0, uri + ': with its fence')
    if uri == '/status_grpc':
        same((entry[3], len(entry[1])), (uri + '?a=%20b', 64),
             uri + ': names the probe and the key')
        lost(path, uri + '-404')
        a = gw.post(path, uri + '-404',
                    headers=[('X-Probe', '/status/404'), *BODY])
        same((a.status, a.replayed), (201, False), uri + ': 404, it runs')
    else:
        ok(re.fullmatch(r'/operations/[0-9a-f]{64}', entry[3]),
           uri + ': names the key', entry[3])
        same(entry[1], uri, uri + ': with the headers of the duplicate')


def test_probe_grpc_status():
    for name in GRPC:
        path, key = '/g-%s/flaky' % name, 'g-' + name
        lost(path, key)
        a = gw.post(path, key)
        if name == 'good':
            same((a.status, a.replayed), (200, True), 'grpc-status 0')
        else:
            same((a.status, a.code), (409, 'outcome_unknown'),
                 'grpc-status: %s tells nothing' % name)
        executed(up, key, 1, 'grpc-status: ' + name)
def test_grpc_status():
    """what becomes of a key: the status by its HTTP mapping, 504 is in no list"""
    state = dict.fromkeys(map(str, range(17)), 'done')
    state.update({'4': 'unknown', '7': 'none', '8': 'none', '14': 'none',
                  '16': 'none', '17': 'unknown', '99': 'unknown',
                  'x': 'unknown', '-1': 'unknown', '000': 'unknown'})
    path = '/grpc/pay.Pay/Charge'
    for how in ('trailers', 'only'):
        for status, want in state.items():
            what = '%s:%s' % (how, status)
            key = 'g-' + what
            line, fields, message = call(key, what)
            same((line, fields.get('grpc-status')), ('HTTP/2 200', status),
                 'grpc %s: the answer' % what)
            same(gw.state(key, path), want, 'grpc %s: %s' % (what, want))
            again = call(key, what)
            if want == 'done':
                same((again[1].get('grpc-status'), again[2],
                      again[1].get('idempotent-replayed')),
                     (status, message, 'true'), 'grpc %s: replayed' % what)
            if want == 'unknown':
                ok(b'outcome_unknown' in again[2], 'grpc %s: held' % what)
            executed(grpc, key, 2 if want == 'none' else 1, 'grpc ' + what)

    for what in ('none', 'other'):
        line, fields, message = call('g-' + what, what)
        same((line, message[5:11]), ('HTTP/2 200', b'effect'),
             'grpc, %s: the answer' % what)
        same(gw.state('g-' + what, path), 'unknown',
             'grpc, %s: a status is missing, unknown' % what)
        executed(grpc, 'g-' + what, 1, 'grpc, ' + what)

    for kind, what, want in (
            ('application/grpc+proto', 'trailers:14', 'none'),
            ('Application/gRPC;v=1', 'trailers:14', 'none'),
            ('application/grpc-web', 'none', 'done'),
            ('application/grpc-web', 'only:14', 'none'),
            ('application/grpcs', 'trailers:14', 'done'),
            ('text/plain', 'trailers:14', 'done'), ('', 'none', 'done')):
        grpc.type = kind
        key = 'g-%s-%s' % (kind.replace('/', '-').replace(';', '-'), what)
        call(key, what)
        same(gw.state(key, path), want,
             'grpc, %s as %r: %s' % (what, kind, want))
        grpc.type = 'application/grpc'

    start = len(gw.log())
    for what in ('trailers:14', 'only:4', 'ok'):
        call('g-dry-' + what, what, '/grpc-dry/pay.Pay/Charge')
    ok(gw.until_log('would be unknown, status 200', 3, start)
       and gw.until_log('would be released, status 200', 3, start),
       'grpc: a dry run sees it, too', gw.log()[start:])
    same(gw.log()[start:].count('would be'), 2, 'grpc: and what is final')

    call('g-listed', 'trailers:14', '/grpc-listed/pay.Pay/Charge')
    same(gw.state('g-listed', '/grpc-listed/pay.Pay/Charge'), 'done',
         'grpc: the lists of the location count')
    call('g-listed-5', 'trailers:5', '/grpc-listed/pay.Pay/Charge')
    same(gw.state('g-listed-5', '/grpc-listed/pay.Pay/Charge'), 'none',
         'grpc: the lists of the location count')


for name, server in servers.items():
    test_backend(name, name, server)
    test_backend(name, name + '-unbuffered', server)
test_backend('fastcgi', 'kept', fastcgi_kept)
test_grpc()
same(sorted(PROBES), sorted(['/pay_status', '/status_grpc']
                            + ['/status_' + name for name in servers]),
     'the page shows a probe location for each protocol')
for name, server in servers.items():
    test_probe(name, server)
test_probe_http('/pay_status')
test_probe_http('/status_grpc')
test_probe_grpc_status()
test_grpc_status()
gw.stop()
finish()
