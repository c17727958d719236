#!/usr/bin/env python3
"""Any method may be protected, and content handlers see the method that was
sent.

GET, HEAD, PUT and DELETE, which nginx sends again after an error, reach one
upstream only, also on a kept connection that is closed when they arrive.
limit_except, dav, empty_gif, stub_status and other modules that look at the
method behave as without this module.
"""

import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (NGINX, Gateway, Ledger, executed,  # noqa: E402
                     finish, free_port, ok, refused, replays, same)

NCHAN = '/usr/lib/nginx/modules/ngx_nchan_module.so'

up, other = Ledger(), Ledger()


class Closing:
    """An upstream that answers the first request of a connection, keeps it
    open, and closes it when the next one comes."""

    def __init__(self):
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.requests = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            c, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(c,),
                             daemon=True).start()

    def serve(self, c):
        for n in range(2):
            data = c.recv(65536)
            if not data:
                break
            self.requests.append(data)
            if n == 0:
                c.sendall(b'HTTP/1.1 201 Created\r\n'
                          b'Content-Length: 2\r\n\r\nok')
        c.close()

    def count(self, key):
        return sum(1 for data in list(self.requests)
                   if b': ' + key.encode() + b'\r\n' in data)


closing = Closing()

LOCATIONS = '''
    location /two/ {
        idempotency main;
        idempotency_methods GET HEAD PUT DELETE;
        proxy_read_timeout 400ms;
        proxy_next_upstream error timeout invalid_header http_500;
        proxy_pass http://two;
    }
    location /closing/ {
        idempotency main;
        idempotency_methods GET PUT DELETE;
        proxy_pass http://closing;
    }
    location /heads/ {
        idempotency main;
        idempotency_methods GET HEAD PUT;
        proxy_pass http://up;
    }
    location /heads-file/ {
        idempotency main;
        idempotency_methods GET HEAD PUT;
        alias files/;
    }
    location /heads-little/ {
        idempotency main;
        idempotency_methods GET HEAD;
        idempotency_max_response 4;
        proxy_pass http://up;
    }
    location /heads-closed/ {
        idempotency main;
        idempotency_methods GET HEAD;
        proxy_pass http://127.0.0.1:%(closed)d;
    }
    location /heads-page/ {
        idempotency main;
        idempotency_methods GET HEAD;
        proxy_intercept_errors on;
        error_page 404 502 503 /heads-file/page.txt;
        proxy_pass http://up;
    }
    location = /gif {
        idempotency main;
        idempotency_methods GET HEAD PUT DELETE;
        empty_gif;
    }
    location = /gif-plain { empty_gif; }
    location = /status {
        idempotency main;
        idempotency_methods GET HEAD PUT DELETE;
        stub_status;
    }
    location = /status-plain { stub_status; }
    location /only-put/ {
        limit_except PUT { deny all; }
        idempotency main;
        idempotency_methods POST PUT DELETE;
        proxy_pass http://up;
    }
    location /to-put/ {
        idempotency main;
        idempotency_methods POST PUT DELETE;
        try_files /nothing /only-put/ok;
    }
    location /closed-put/ {
        idempotency main;
        idempotency_methods POST PUT DELETE;
        error_page 502 = @only-put;
        proxy_pass http://127.0.0.1:%(closed)d;
    }
    location @only-put {
        limit_except PUT { deny all; }
        proxy_pass http://up;
    }
    location /dav/ {
        root .;
        dav_methods PUT DELETE MKCOL;
        create_full_put_path on;
        idempotency main;
        idempotency_methods PUT DELETE MKCOL;
    }
    location /dav-plain/ {
        root .;
        dav_methods PUT DELETE MKCOL;
        create_full_put_path on;
    }
    location /dav-dry/ {
        root .;
        dav_methods PUT DELETE MKCOL;
        create_full_put_path on;
        idempotency main;
        idempotency_methods PUT DELETE MKCOL;
        idempotency_dry_run on;
    }
'''

PORTS = dict(closed=free_port(), up=up.port, other=other.port,
             closing=closing.port)

gw = Gateway(up, http='''
    idempotency_scope "$request_method $uri";
    upstream two {
        server 127.0.0.1:%(up)d max_fails=0;
        server 127.0.0.1:%(other)d backup;
    }
    upstream closing { server 127.0.0.1:%(closing)d; keepalive 4; }
''' % PORTS, locations=LOCATIONS % PORTS)

for name in ('files', 'dav', 'dav-plain', 'dav-dry'):
    os.mkdir('%s/%s' % (gw.root, name))
with open(gw.root + '/files/page.txt', 'w') as f:
    f.write('a page\n')


def test_not_sent_again():
    for method in ('PUT', 'DELETE', 'GET'):
        body = None if method == 'GET' else b'x'
        for what, status in (('reset', 502), ('silent', 504),
                             ('head/20', 502)):
            key = '%s-%s' % (method, what)
            a = gw.post('/two/' + what, key, method=method, body=body)
            same((a.status, a.replayed), (status, False), key + ': an error')
            refused(gw, '/two/' + what, key, 'outcome_unknown',
                    key + ': held', method=method, body=body)
            executed(up, key, 1, key)
            executed(other, key, 0, key + ', elsewhere')

        # on a kept connection, which is closed when the request comes
        key = 'closing-' + method
        a = gw.post('/closing/x', key + '-first', method=method, body=body)
        same(a.status, 201, method + ': a connection is kept')
        a = gw.post('/closing/x', key, method=method, body=body)
        same((a.status, closing.count(key)), (502, 1),
             method + ' on a connection that is closed: not sent again')
        refused(gw, '/closing/x', key, 'outcome_unknown',
                method + ' on a connection that is closed: held',
                method=method, body=body)


def on_one_connection(requests):
    """the answers as (status, length of the body), or what is no answer"""
    c = socket.create_connection(('127.0.0.1', gw.port))
    c.settimeout(5)
    data, found = b'', []
    for i, (method, path, key) in enumerate(requests):
        c.sendall(('%s %s HTTP/1.1\r\nHost: g\r\n%sConnection: %s\r\n\r\n' % (
            method, path, 'Idempotency-Key: %s\r\n' % key if key else '',
            'close' if i + 1 == len(requests) else 'keep-alive')).encode())
        while b'\r\n\r\n' not in data:
            more = c.recv(65536)
            if not more:
                break
            data += more
        head, _, data = data.partition(b'\r\n\r\n')
        if not head.startswith(b'HTTP/1.1 '):
            found.append(head[:60])
            break
        length = 0
        if method != 'HEAD':
            for line in head.lower().split(b'\r\n'):
                if line.startswith(b'content-length:'):
                    length = int(line.split(b':')[1])
        while len(data) < length:
            data += c.recv(65536)
        data = data[length:]
        found.append((int(head.split()[1]), length))
        time.sleep(0.02)          # for a body that must not come
    c.close()
    return found


def test_head():
    same(on_one_connection([('HEAD', '/heads/ok', 'head'),
                            ('HEAD', '/heads/ok', 'head'),
                            ('GET', '/heads/ok', 'head-get'),
                            ('HEAD', '/heads/ok', None),
                            ('HEAD', '/heads/ok', 'head'),
                            ('GET', '/heads/ok', 'head-get')]),
         [(201, 0), (201, 0), (201, 14), (400, 0), (201, 0), (201, 14)],
         'HEAD of a proxy on a kept connection has no body')
    executed(up, 'head', 1, 'HEAD')
    executed(up, 'head-get', 1, 'GET')
    same(on_one_connection([('HEAD', '/heads-file/page.txt', 'f1'),
                            ('HEAD', '/heads-file/page.txt', 'f1'),
                            ('GET', '/heads-file/page.txt', 'f2'),
                            ('HEAD', '/heads-file/none', 'f3'),
                            ('GET', '/heads-file/page.txt', 'f2')]),
         [(200, 0), (200, 0), (200, 7), (404, 0), (200, 7)],
         'HEAD of a file on a kept connection has no body')


    for path in ('/heads/status/503', '/heads/status/404', '/heads/status/502',
                 '/heads/reset', '/heads/close', '/heads/head/20',
                 '/heads-little/ok', '/heads-little/big/100',
                 '/heads-closed/ok', '/heads-page/status/404',
                 '/heads-page/status/503', '/heads-page/reset', '/gif',
                 '/status'):
        found = on_one_connection([('HEAD', path, 'h' + path),
                                   ('HEAD', path, 'h' + path),
                                   ('GET', '/gif-plain', None)])
        same([x if isinstance(x, bytes) else x[1] for x in found], [0, 0, 43],
             'HEAD %s on a kept connection has no body' % path)


def test_handlers_see_the_method():
    for place in ('/gif', '/status'):
        for method in ('GET', 'HEAD', 'PUT', 'DELETE'):
            body = b'x' if method == 'PUT' else None
            a = gw.post(place, method + place, method=method, body=body)
            b = gw.post(place + '-plain', None, method=method, body=body)
            same((a.status, a.get('content-type'), a.whole),
                 (b.status, b.get('content-type'), True),
                 '%s %s: as without the module' % (method, place))
            if place == '/gif':
                same(a.body, b.body, method + ' /gif: the body too')


def test_limit_except():
    for place in ('/only-put/', '/to-put/', '/closed-put/'):
        path, key = place + 'ok', place
        a = gw.post(path, key, method='PUT')
        same((a.status, a.replayed), (201, False),
             place + ': limit_except lets PUT in')
        replays(gw, path, key, a, place + ': limit_except', method='PUT')
        executed(up, key, 1, place + ': limit_except')
        for method in ('POST', 'DELETE'):
            a = gw.post(path, key + method, method=method)
            same(a.status, 403, '%s: limit_except denies %s'
                 % (place, method))
            executed(up, key + method, 0, place + ': ' + method)


def content(name):
    try:
        with open(gw.root + name, 'rb') as f:
            return f.read()
    except OSError:
        return None


def dav(place, keyed=True):
    """statuses of a series of requests, and what is there after each"""
    found = []
    for i, (method, name, body) in enumerate((
            ('PUT', 'a', b'first'), ('PUT', 'a', b'second'),
            ('PUT', 'deep/er/b', b'x' * 100000), ('PUT', 'empty', b''),
            ('MKCOL', 'c/', None), ('MKCOL', 'c/', None),
            ('DELETE', 'a', None), ('DELETE', 'a', None))):
        a = gw.post('%s/%s' % (place, name), 'dav%s-%d' % (place, i)
                    if keyed else None, method=method, body=body)
        found.append((method, a.status, a.whole,
                      content('%s/%s' % (place, name))))
    return found


def test_dav():
    plain = dav('/dav-plain', keyed=False)
    same([x[1] for x in plain], [201, 204, 201, 201, 201, 405, 204, 404],
         'dav without the module')
    same(dav('/dav'), plain, 'dav, protected')
    same(dav('/dav-dry'), plain, 'dav, a dry run')

    a = gw.post('/dav/r', 'dav-put', method='PUT', body=b'mine')
    same(a.status, 201, 'PUT by dav')
    with open(gw.root + '/dav/r', 'w') as f:
        f.write('changed')
    replays(gw, '/dav/r', 'dav-put', a, 'PUT by dav', method='PUT',
            body=b'mine')
    same(content('/dav/r'), b'changed', 'PUT by dav: not executed again')
    refused(gw, '/dav/r', 'dav-put', 'key_reused', 'PUT by dav: another body',
            status=422, method='PUT', body=b'other')
    a = gw.post('/dav/r', 'dav-delete', method='DELETE', body=None)
    same(a.status, 204, 'DELETE by dav')
    with open(gw.root + '/dav/r', 'w') as f:
        f.write('anew')
    replays(gw, '/dav/r', 'dav-delete', a, 'DELETE by dav', method='DELETE',
            body=None)
    same(content('/dav/r'), b'anew', 'DELETE by dav: not executed again')


def test_nchan():
    if not os.path.exists(NCHAN) or NGINX != '/usr/sbin/nginx':
        ok(True, 'nchan # skip it is not installed for this nginx')
        return
    nchan = Gateway(up, main='load_module %s;' % NCHAN, locations='''
        location /chan/ {
            idempotency main;
            idempotency_methods POST PUT DELETE;
            nchan_publisher;
            nchan_channel_id $uri;
        }
        location /chan-plain/ { nchan_publisher; nchan_channel_id $uri; }
    ''')
    for method in ('PUT', 'POST', 'DELETE', 'DELETE'):
        body = None if method == 'DELETE' else b'x'
        key = '%s-%d' % (method, time.time_ns())
        a = nchan.post('/chan/x', key, method=method, body=body)
        b = nchan.post('/chan-plain/x', None, method=method, body=body)
        same((a.status, a.whole), (b.status, True),
             'nchan: %s as without the module' % method)
        c = nchan.post('/chan/x', key, method=method, body=body)
        same((c.status, c.replayed), (a.status, True),
             'nchan: %s is replayed' % method)
    nchan.stop()


TESTS = [test_not_sent_again, test_head, test_handlers_see_the_method,
         test_limit_except, test_dav, test_nchan]

for test in TESTS:
    if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
        print('# ' + test.__name__, flush=True)
        test()
gw.stop()
finish()
