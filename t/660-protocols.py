#!/usr/bin/env python3
"""The same promise for fastcgi_pass, uwsgi_pass, scgi_pass and grpc_pass.

One execution, equal answers, trailers included; what breaks off is not kept;
a client that leaves does not cancel; Range and conditions of a client do not
make half an answer.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     refused, replays, same, until)
from backends import Fastcgi, Grpc, Scgi, Uwsgi  # noqa: E402
from h2 import H2  # noqa: E402

up = Ledger()
servers = {'fastcgi': Fastcgi(), 'uwsgi': Uwsgi(), 'scgi': Scgi()}
fastcgi_kept = Fastcgi()
grpc = Grpc()

PARAMS = '''
    %(p)s_param CONTENT_LENGTH $content_length;
    %(p)s_param REQUEST_METHOD $request_method;
'''

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
    location /nobody/ { idempotency main; grpc_pass grpc://127.0.0.1:1; }
''' % (PARAMS % dict(p='fastcgi'), grpc.port), http='''
    upstream kept { server 127.0.0.1:%d; keepalive 4; }
''' % fastcgi_kept.port)


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


for name, server in servers.items():
    test_backend(name, name, server)
    test_backend(name, name + '-unbuffered', server)
test_backend('fastcgi', 'kept', fastcgi_kept)
test_grpc()
gw.stop()
finish()
