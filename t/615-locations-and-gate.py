#!/usr/bin/env python3
"""Which location protects a request that visits several, and the one gate.

try_files, index, rewrite, error_page, named locations and X-Accel-Redirect
lead a request from one location to another.  From the first protected one on
it is protected to its end.  Key, source, scope and policy are those of the
location whose content handler gets it, if that one is protected itself, else
those of the last protected one on the way.  The claim and the replay happen
there and not before: after the access checks of that location, and with what
it adds to an answer.

For one claim at most one upstream ever gets a byte of the operation, whatever
has led to a further try: proxy_next_upstream, error pages, a cache lock, a
TLS handshake that took long.  Exceptions are X-Accel-Redirect, and a page for
an error that is asked for by GET.
"""

import base64
import os
import signal
import socket
import ssl
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from certs import Certs  # noqa: E402
from gateway import (Gateway, Ledger, executed,  # noqa: E402
                     finish, free_port, ok, refused, replays, same,
                     until)

up, other = Ledger(), Ledger()
closed = free_port()
auth = free_port()
access = free_port()


class SlowTLS:
    """A TLS server that can hold back its part of the handshake."""

    def __init__(self):
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.holding = False
        self.held = []            # an event for each handshake
        self.keys = []            # of the requests that came

    def start(self, folder):
        Certs(folder).ca('tls')
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder + '/tls.pem', folder + '/tls.key')
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            c, _ = self.listener.accept()
            event = threading.Event()
            if self.holding:
                self.held.append(event)
            else:
                event.set()
            threading.Thread(target=self.serve, args=(c, event),
                             daemon=True).start()

    def serve(self, c, event):
        event.wait(30)
        try:
            with self.context.wrap_socket(c, server_side=True) as s:
                s.settimeout(10)
                data = s.recv(65536).decode()
                if not data:
                    return
                self.keys.append(data.lower().partition(
                    'idempotency-key: ')[2].partition('\r\n')[0])
                body = b'effect %06d\n' % len(self.keys)
                s.sendall(b'HTTP/1.1 201 Created\r\nConnection: close\r\n'
                          b'Content-Length: %d\r\n\r\n' % len(body) + body)
        except OSError:
            pass

    def count(self, key):
        return self.keys.count(key)


tls = SlowTLS()

ACCESS = '''
    server {
        listen 127.0.0.1:%(access)d;
        root files;
        set_real_ip_from 127.0.0.1;
        real_ip_header X-Real;
        auth_basic_user_file users;
        idempotency main;
        idempotency_source $http_x_user;

        location / { try_files $uri @app; }
        location @app {
            auth_basic payments;
            add_header X-App app always;
            proxy_pass http://up;
        }
        location /static/ { error_page 404 405 = @app; }
        location /both/ {
            try_files $uri @app;
            add_header X-App both always;
            proxy_pass http://up;
        }
        location /dir/ { index index.php; }
        location ~ \\.php$ {
            auth_basic payments;
            add_header X-App php always;
            proxy_pass http://up;
        }
        location /stripe/ {
            idempotency_profile stripe;
            try_files $uri @stripe;
        }
        location @stripe {
            idempotency_profile stripe;
            auth_basic payments;
            add_header X-App stripe always;
            proxy_pass http://up;
        }
        location /asked/ { try_files $uri @asked; }
        location @asked {
            auth_request /who;
            add_header X-App asked always;
            proxy_pass http://up;
        }
        location = /who {
            internal;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
            proxy_pass http://127.0.0.1:%(other)d/status/$http_x_auth;
        }
        location /denied/ { try_files $uri @denied; }
        location @denied {
            allow 10.0.0.1;
            deny all;
            add_header X-App denied always;
            proxy_pass http://up;
        }
        location /either/ { try_files $uri @either; }
        location @either {
            satisfy any;
            allow 10.0.0.1;
            deny all;
            auth_basic payments;
            add_header X-App either always;
            proxy_pass http://up;
        }
        location /unprotected/ { try_files $uri @unprotected; }
        location @unprotected {
            idempotency off;
            auth_basic payments;
            add_header X-App unprotected always;
            proxy_pass http://up;
        }
        location /login/ {
            auth_basic payments;
            error_page 401 = @login;
            proxy_pass http://up;
        }
        location /login-off/ {
            auth_basic payments;
            error_page 401 = @login-off;
            proxy_pass http://up;
        }
        location /login-tries/ {
            auth_basic payments;
            error_page 401 = @login-tries;
            proxy_pass http://up;
        }
        location /login-limited/ {
            limit_req zone=once;
            auth_basic payments;
            error_page 401 503 = @login;
            proxy_pass http://up;
        }
        location /login-status/ {
            auth_basic payments;
            error_page 401 @login;
            proxy_pass http://up;
        }
        location /login-code/ {
            auth_basic payments;
            error_page 401 =202 @login;
            proxy_pass http://up;
        }
        location /login-mixed/ {
            auth_basic payments;
            error_page 401 500 503 = @login;
            proxy_pass http://up;
        }
        location /login-recursive/ {
            auth_basic payments;
            recursive_error_pages on;
            error_page 401 = @login-recursive;
            proxy_pass http://up;
        }
        location /login-asked/ {
            auth_request /who;
            error_page 401 403 = @login;
            proxy_pass http://up;
        }
        location /login-denied/ {
            allow 10.0.0.1;
            deny all;
            error_page 403 @login;
            proxy_pass http://up;
        }
        location /login-own/ {
            auth_basic payments;
            error_page 401 = @login-own;
            proxy_pass http://up;
        }
        location /login-open/ {
            auth_basic payments;
            error_page 401 = @login-open;
            proxy_pass http://up;
        }
        location /login-optional/ {
            idempotency_required off;
            auth_basic payments;
            error_page 401 = @login-optional;
            proxy_pass http://up;
        }
        location /login-down/ {
            auth_request /who;
            error_page 404 405 500 = @login;
            proxy_pass http://up;
        }
        location /get/ {
            idempotency_methods GET HEAD;
            idempotency_scope get;
            auth_basic payments;
            error_page 401 /page;
            proxy_pass http://up;
        }
        location /get-named/ {
            idempotency_methods GET HEAD;
            idempotency_scope get;
            auth_basic payments;
            error_page 401 = @get;
            proxy_pass http://up;
        }
        location /get-page/ {
            idempotency_methods GET HEAD;
            idempotency_scope get;
            auth_basic payments;
            error_page 401 = /page-off;
            proxy_pass http://up;
        }
        location = /page {
            internal;
            idempotency_methods GET HEAD;
            idempotency_scope get;
            proxy_pass http://127.0.0.1:%(other)d;
        }
        location = /page-off {
            internal;
            idempotency off;
            proxy_pass http://127.0.0.1:%(other)d;
        }
        location @get {
            idempotency_methods GET HEAD;
            idempotency_scope get;
            proxy_pass http://127.0.0.1:%(other)d;
        }
        location @login { proxy_pass http://127.0.0.1:%(other)d; }
        location @login-recursive {
            recursive_error_pages on;
            error_page 401 = @login-recursive;
            proxy_pass http://127.0.0.1:%(other)d;
        }
        location @login-own {
            auth_basic others;
            auth_basic_user_file others;
            add_header X-App own always;
            proxy_pass http://up;
        }
        location @login-open {
            auth_basic off;
            allow all;
            proxy_pass http://127.0.0.1:%(other)d;
        }
        location @login-optional {
            idempotency_required off;
            proxy_pass http://127.0.0.1:%(other)d;
        }
        location @login-off {
            idempotency off;
            proxy_pass http://127.0.0.1:%(other)d;
        }
        location @login-tries { try_files /nothing @login; }
    }
'''

PASSED = '''
    location /passed/ {
        idempotency main;
        idempotency_required off;
        idempotency_key $http_x_other;
        try_files /nothing @pay;
    }
    location /passed-dry/ {
        idempotency main;
        idempotency_dry_run on;
        try_files /nothing @pay;
    }
    location /passed-closed/ {
        idempotency main;
        idempotency_required off;
        idempotency_key $http_x_other;
        error_page 502 = @pay;
        proxy_pass http://127.0.0.1:%(closed)d;
    }
    location /passed-dry-closed/ {
        idempotency main;
        idempotency_dry_run on;
        error_page 502 = @pay;
        proxy_pass http://127.0.0.1:%(closed)d;
    }
    location @pay { idempotency main; proxy_pass http://up; }

    location /teapot/ {
        idempotency main;
        idempotency_key $http_x_pay;
        error_page 418 = @plain;
        return 418;
    }
    location /if/ {
        idempotency main;
        idempotency_key $http_x_pay;
        error_page 418 = @plain;
        if ($request_method = POST) { return 418; }
        return 404;
    }
    location @plain { proxy_pass http://up; }
    location /rewritten/ {
        idempotency main;
        idempotency_key $http_x_pay;
        rewrite ^/rewritten/(.*) /within/$1 last;
    }
    location /within/ { internal; proxy_pass http://up; }
'''

ERRORS = '''
    location /auth/ {
        idempotency main;
        auth_request /checks;
        error_page 500 502 503 504 = @backup;
        proxy_pass http://up;
    }
    location = /checks {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://127.0.0.1:%(auth)d/status/200;
    }
    location /limited/ {
        idempotency main;
        limit_req zone=once;
        error_page 503 = @backup;
        proxy_pass http://up;
    }
    location /closed-backup/ {
        idempotency main;
        error_page 502 = @backup;
        proxy_pass http://127.0.0.1:%(closed)d;
    }
    location /closed-page/ {
        idempotency main;
        error_page 502 /sorry;
        proxy_pass http://127.0.0.1:%(closed)d;
    }
    location /sent-page/ {
        idempotency main;
        error_page 502 504 /sorry;
        proxy_pass http://up;
    }
    location @backup { proxy_pass http://127.0.0.1:%(other)d; }
    location = /sorry {
        internal;
        proxy_pass http://127.0.0.1:%(other)d;
    }

    location /accel/ { idempotency main; proxy_pass http://up; }
    location /fetched/ { internal; proxy_pass http://up; }
    location @fetched {
        proxy_ignore_headers X-Accel-Redirect;
        rewrite ^ /ok/named? break;
        proxy_pass http://up;
    }
    location @tries { try_files /nothing @fetched; }
    location /lost/ {
        internal;
        error_page 502 = @backup;
        proxy_pass http://127.0.0.1:%(closed)d;
    }
    location @lost {
        error_page 502 = @backup;
        proxy_pass http://127.0.0.1:%(closed)d;
    }
    location @lost-tries { try_files /nothing @lost; }
    location /router/ { proxy_pass http://up; }
    location @routed {
        idempotency main;
        rewrite ^ /ok/routed? break;
        proxy_pass http://127.0.0.1:%(other)d;
    }
    location /recursive/ {
        idempotency main;
        recursive_error_pages on;
        proxy_intercept_errors on;
        error_page 404 = @recursive;
        proxy_pass http://up;
    }
    location @recursive {
        recursive_error_pages on;
        error_page 404 = @recursive;
        proxy_pass http://127.0.0.1:%(other)d;
    }
'''

LEASE = '''
    location /tls/ {
        idempotency main;
        idempotency_unknown retry;
        # nginx keeps a session to the end, and never frees it
        proxy_ssl_session_reuse off;
        proxy_pass https://127.0.0.1:%(tls)d;
    }
    location /lock/ {
        idempotency main;
        idempotency_unknown retry;
        proxy_cache cache;
        proxy_cache_methods POST;
        proxy_cache_key $http_x_cache;
        proxy_cache_valid any 1h;
        proxy_cache_lock on;
        proxy_cache_lock_timeout 20s;
        proxy_cache_lock_age 20s;
        proxy_pass http://up;
    }
    location /lock-variable/ {
        idempotency main;
        idempotency_unknown retry;
        proxy_cache cache;
        proxy_cache_methods POST;
        proxy_cache_key $http_x_cache;
        proxy_cache_valid any 1h;
        proxy_cache_lock on;
        proxy_cache_lock_timeout 20s;
        proxy_cache_lock_age 20s;
        set $server 127.0.0.1:%(up)d;
        proxy_pass http://$server;
    }
    location /revalidate/ {
        idempotency main;
        idempotency_methods GET;
        proxy_cache cache;
        proxy_cache_key $http_x_cache;
        proxy_cache_valid any 1s;
        proxy_cache_revalidate on;
        proxy_pass http://up;
    }
    location /small/ {
        idempotency main;
        proxy_buffer_size 1k;
        proxy_buffers 4 1k;
        proxy_busy_buffers_size 2k;
        proxy_pass http://up;
    }
    location /stale/ {
        idempotency main;
        proxy_read_timeout 400ms;
        proxy_cache cache;
        proxy_cache_methods POST;
        proxy_cache_key $http_x_cache;
        proxy_cache_valid 201 1s;
        proxy_cache_use_stale error timeout invalid_header http_500;
        add_header X-Cache $upstream_cache_status always;
        proxy_pass http://up;
    }
'''

PORTS = dict(access=access, closed=closed, auth=auth, tls=tls.port,
             up=up.port, other=other.port)

gw = Gateway(up, workers=2, http='''
    idempotency_scope "$request_method $uri";
    idempotency_lease 1s;
    limit_req_zone $http_x_limit zone=once:1m rate=1r/m;
    proxy_cache_path cache keys_zone=cache:1m;
''' % PORTS + ACCESS % PORTS,
             locations=(PASSED + ERRORS + LEASE) % PORTS)

for name in ('files/static', 'files/both', 'files/dir'):
    os.makedirs('%s/%s' % (gw.root, name))
for name, text in (('files/static/there', 'a file\n'),
                   ('files/both/ok', 'a file\n'),
                   ('files/dir/index.php', 'a script\n'),
                   ('users', 'alice:{PLAIN}secret\n'),
                   ('others', 'alice:{PLAIN}guest\n')):
    with open('%s/%s' % (gw.root, name), 'w') as f:
        f.write(text)
tls.start(gw.root)


def basic(password):
    return [('X-User', 'alice'), ('X-Real', '10.0.0.9'),
            ('Authorization', 'Basic ' + base64.b64encode(
                b'alice:' + password).decode())]


RIGHT, WRONG = basic(b'secret'), basic(b'guess')


def total(key):
    return up.count(key) + other.count(key)


def owner_of(call):
    """the worker that has the client's connection"""
    port = call.sock.getsockname()[1]
    with open('/proc/net/tcp') as f:
        inodes = {line.split()[9] for line in f.readlines()[1:]
                  if int(line.split()[2].split(':')[1], 16) == port}
    for pid in gw.workers():
        for fd in os.listdir('/proc/%d/fd' % pid):
            try:
                link = os.readlink('/proc/%d/fd/%s' % (pid, fd))
            except OSError:
                continue
            if link.startswith('socket:[') and link[8:-1] in inodes:
                return pid
    return None


# ---- which location protects ----


def guarded(path, name, app, right=RIGHT, wrong=WRONG, status=401):
    """only those whom the location lets in get an answer, or a replay"""
    key = name.replace(' ', '-')
    a = gw.post(path, key, headers=wrong, port=access)
    same((a.status, a.replayed), (status, False), name + ': not let in')
    executed(up, key, 0, name + ', not let in')

    a = gw.post(path, key, headers=right, port=access)
    same((a.status, a.replayed, a.get('x-app')), (201, False, app),
         name + ': let in')
    executed(up, key, 1, name)

    b = gw.post(path, key, headers=wrong, port=access)
    same((b.status, b.replayed, b.body == a.body), (status, False, False),
         name + ': the stored answer is not for everybody')
    b = gw.post(path, key, headers=wrong, port=access, body=b'other')
    same(b.status, status, name + ': nor is a mismatch told')
    b = gw.post(path, key, headers=[('X-User', 'alice'),
                                    ('X-Auth', '403')], port=access)
    ok(b.status in (401, 403), name + ': no credentials', b)

    b = replays(gw, path, key, a, name, headers=right, port=access)
    same(b.get('x-app'), app, name + ': add_header applies to the replay')
    executed(up, key, 1, name)


def test_access_after_try_files():
    guarded('/ok', 'try_files', 'app')
    guarded('/unprotected/ok', 'try_files to a location without idempotency',
            'unprotected')
    guarded('/asked/ok', 'try_files and auth_request', 'asked',
            right=[('X-User', 'alice'), ('X-Auth', '200')],
            wrong=[('X-User', 'alice'), ('X-Auth', '403')], status=403)
    guarded('/denied/ok', 'try_files and deny', 'denied',
            right=[('X-User', 'alice'), ('X-Real', '10.0.0.1')],
            wrong=[('X-User', 'alice'), ('X-Real', '10.0.0.2')], status=403)
    guarded('/either/ok', 'try_files and satisfy any', 'either')


def test_access_after_try_files_of_a_proxy():
    guarded('/both/missing/ok', 'try_files beside proxy_pass', 'app')

    # the file is there: the location's own proxy_pass gets it
    a = gw.post('/both/ok', 'both', headers=WRONG, port=access)
    same((a.status, a.replayed, a.get('x-app')), (201, False, 'both'),
         'try_files finds its file')
    b = replays(gw, '/both/ok', 'both', a, 'try_files finds its file',
                headers=WRONG, port=access)
    same(b.get('x-app'), 'both', 'add_header applies to the replay')
    executed(up, 'both', 1, 'try_files finds its file')


def test_access_after_error_page():
    guarded('/static/there', 'error_page 405', 'app')
    guarded('/static/missing/ok', 'error_page 404', 'app')


def test_access_after_index():
    guarded('/dir/', 'index', 'php')


def test_access_and_profile():
    """a 401 that the gateway itself has made is nobody's answer"""
    guarded('/stripe/ok', 'profile stripe', 'stripe')
    a = gw.post('/stripe/status/402', 'declined', headers=RIGHT, port=access)
    same(a.status, 402, 'profile stripe: an error of the upstream')
    replays(gw, '/stripe/status/402', 'declined', a, 'is kept',
            headers=RIGHT, port=access)


def test_refused_then_error_page():
    """whom a location refuses gets nothing of what is kept for others"""
    for path in ('/login/ok', '/login-off/ok', '/login-tries/ok',
                 '/login-limited/ok'):
        key, limit = path.strip('/').replace('/', '-'), [('X-Limit', path)]
        a = gw.post(path, key, headers=RIGHT + limit, port=access)
        same((a.status, a.replayed), (201, False), path + ': let in')
        for body in (b'x', b'other'):
            b = gw.post(path, key, headers=WRONG + limit, port=access,
                        body=body)
            same((b.status, b.replayed, b.body == a.body),
                 (503 if 'limited' in path else 401, False, False),
                 path + ': refused')
        executed(other, key, 0, path + ': refused')
        if 'limited' not in path:
            replays(gw, path, key, a, path, headers=RIGHT, port=access)
        executed(up, key, 1, path)


def posts(key):
    """auth_request asks by GET"""
    return tuple(len([e for e in where.of(key) if e[2] == 'POST'])
                 for where in (up, other))


def refused_first(path, right=RIGHT, wrong=WRONG, status=401):
    """whom a location refuses makes no record that the owner would meet"""
    key = path.strip('/').replace('/', '-') + '-first'
    for _ in range(2):
        a = gw.post(path, key, headers=wrong, port=access)
        same((a.status, a.replayed), (status, False), path + ': not let in')
    same(posts(key), (0, 0), path + ': not let in, not executed')
    a = gw.post(path, key, headers=right, port=access)
    same((a.status, a.replayed), (201, False), path + ': the owner is')
    replays(gw, path, key, a, path + ': his answer', headers=right,
            port=access)
    a = gw.post(path, key, headers=wrong, port=access)
    same((a.status, a.replayed), (status, False), path + ': still not')
    same(posts(key), (1, 0), path + ': once in all')


def test_refused_first():
    for path in ('/login/ok', '/login-off/ok', '/login-tries/ok',
                 '/login-status/ok', '/login-code/ok', '/login-mixed/ok',
                 '/login-recursive/ok', '/login-open/ok',
                 '/login-optional/ok'):
        refused_first(path)
    refused_first('/login-denied/ok', status=403,
                  right=[('X-User', 'alice'), ('X-Real', '10.0.0.1')],
                  wrong=[('X-User', 'alice'), ('X-Real', '10.0.0.2')])
    for status in (401, 403):
        # which of the two it was "=" does not tell
        refused_first('/login-asked/ok?%d' % status,
                      right=[('X-User', 'alice'), ('X-Auth', '200')],
                      wrong=[('X-User', 'alice'), ('X-Auth', '%d' % status)])

    # without a key there is no record, and nothing is different
    path = '/login-optional/ok'
    n = other.came(path)
    a = gw.post(path, None, headers=WRONG, port=access)
    same((a.status, other.came(path)), (201, n + 1),
         path + ': without a key the error page has it')

    # a check that could not be made has refused nobody
    path, down = '/login-down/ok', [('X-User', 'alice'), ('X-Auth', '503')]
    a = gw.post(path, 'login-down', headers=down, port=access)
    same((a.status, a.replayed), (201, False), path + ': the backup has it')
    a = gw.post(path, 'login-down', headers=down, port=access)
    same((a.status, a.replayed), (500, False), path + ': once')
    same(posts('login-down'), (0, 1), path + ': once')


def test_refused_and_let_in():
    """the location of the error page has a check of its own"""
    path, key, guest = '/login-own/ok', 'own', basic(b'guest')
    a = gw.post(path, key, headers=WRONG, port=access)
    same(a.status, 401, path + ': nobody lets him in')
    a = gw.post(path, key, headers=guest, port=access)
    same((a.status, a.replayed, a.get('x-app')), (201, False, 'own'),
         path + ': the second one does')
    for headers in (guest, RIGHT):
        replays(gw, path, key, a, path, headers=headers, port=access)
    a = gw.post(path, key, headers=WRONG, port=access)
    same((a.status, a.replayed), (401, False), path + ': still not')
    executed(up, key, 1, path)


def test_refused_get():
    """a page for a refusal is no answer, also where GET is protected"""
    for path, status, pages in (('/get/ok', 401, 2), ('/get-named/ok', 401, 0),
                                ('/get-page/ok', 201, 2)):
        for method in ('GET', 'HEAD'):
            key, name = path + method, '%s %s: ' % (method, path)
            for _ in range(2):
                a = gw.post(path, key, headers=WRONG, port=access, body=None,
                            method=method)
                same((a.status, a.replayed), (status, False),
                     name + 'not let in')
            same((up.count(key), other.count(key)), (0, pages),
                 name + 'a page at most')
            a = gw.post(path, key, headers=RIGHT, port=access, body=None,
                        method=method)
            same((a.status, a.replayed, a.get('x-effect')),
                 (201, False, str(up.of(key)[0][0]) if up.of(key) else None),
                 name + 'the owner is')
            replays(gw, path, key, a, name + 'again', headers=RIGHT,
                    port=access, body=None, method=method)
            a = gw.post(path, key, headers=WRONG, port=access, body=None,
                        method=method)
            same((a.status, a.replayed), (status, False), name + 'still not')
            executed(up, key, 1, name)


def protected(path, name, headers=()):
    """by the key of the location that it arrives at"""
    key = name.replace(' ', '-')
    a = gw.post(path, key, headers=headers)
    same((a.status, a.replayed), (201, False), name)
    replays(gw, path, key, a, name, headers=headers)
    refused(gw, path, key, 'key_reused', name + ': another body', status=422,
            body=b'other', headers=headers)
    executed(up, key, 1, name)

    n = up.came(path)
    a = gw.post(path, None, headers=headers)
    same((a.status, a.code), (400, 'key_missing'), name + ': without a key')
    same(up.came(path), n, name + ': is not executed without a key')


def test_passed_then_protected():
    protected('/passed/ok', 'passed without a key')
    protected('/passed/ok', 'another key before',
              headers=[('X-Other', 'another')])
    protected('/passed-dry/ok', 'passed by a dry run')


def test_passed_then_error_page():
    protected('/passed-closed/ok', 'passed and refused')
    protected('/passed-dry-closed/ok', 'passed by a dry run and refused')


def outer(path, name):
    """the policy of the protected location that led to an unprotected one"""
    key = name.replace(' ', '-')
    headers = [('X-Pay', key)]
    a = gw.post(path, key, headers=headers)
    same((a.status, a.replayed), (201, False), name)
    replays(gw, path, key, a, name, headers=headers)
    refused(gw, path, key, 'key_reused', name + ': another body', status=422,
            body=b'other', headers=headers)
    executed(up, key, 1, name)
    refused(gw, path, key + '-without', 'key_missing',
            name + ': its key is required', status=400)
    executed(up, key + '-without', 0, name + ', without its key')


def test_return_and_error_page():
    outer('/teapot/ok', 'return 418')
    outer('/if/ok', 'return 418 within if')


def test_rewrite():
    outer('/rewritten/ok', 'rewrite last')


# ---- the gate: error pages ----


def at_most_once(path, key, name, tries=4, headers=()):
    """Every retry gets an error or the one answer."""
    answers = [gw.post(path, key, headers=headers) for _ in range(tries)]
    good = [a for a in answers if a.status == 201]
    ok(total(key) <= 1, name + ': executed once at most', total(key))
    ok(len({a.body for a in good}) <= 1, name + ': the same answer', good)
    ok(all(a.replayed for a in good[1:]), name + ': replayed', good)
    ok(all(a.status >= 400 for a in answers if a not in good),
       name + ': or an error', answers)
    same(bool(good), total(key) > 0, name + ': success means executed')
    return good


def test_auth_request_down():
    path, key = '/auth/ok', 'auth-down'
    before = at_most_once(path, key, 'auth_request is down')
    Ledger(auth)
    after = at_most_once(path, key, 'auth_request is back')
    same(total(key), 1, 'auth_request is back: executed once in all')
    same({a.body for a in before + after}, {after[0].body if after else b''},
         'auth_request is back: one answer')
    same(sum(1 for a in before + after if not a.replayed), 1,
         'auth_request is back: only one is no replay')


def test_limit_req():
    at_most_once('/limited/ok', 'limited', 'limit_req',
                 headers=[('X-Limit', 'a')])
    # the very first one is over the limit
    gw.post('/limited/ok', 'over', headers=[('X-Limit', 'b')])
    at_most_once('/limited/ok', 'over-2', 'limit_req at the first try',
                 headers=[('X-Limit', 'b')])


def test_backup():
    path = '/closed-backup/ok'
    a = gw.post(path, 'backup')
    executed(other, 'backup', 1, 'refused, @backup')
    same((a.get('x-effect'), a.replayed), (str(other.of('backup')[0][0]),
                                           False), 'its answer')
    replays(gw, path, 'backup', a, 'refused, @backup')
    executed(other, 'backup', 1, 'refused, @backup, again')


def test_page():
    path = '/closed-page/ok'
    for n in (1, 2):
        a = gw.post(path, 'page')
        pages = other.of('page')
        same((a.status, a.replayed, len(pages)), (502, False, n),
             'refused, a page: shown, and the retry runs')
        same((pages[-1][2:4], a.body),
             (('GET', '/sorry'), b'effect %06d\n' % pages[-1][0]),
             'refused, a page: asked for by GET')

    path = '/sent-page/reset'
    a = gw.post(path, 'sent-page')
    same((a.status, [e[2:4] for e in other.of('sent-page')], a.body),
         (502, [('GET', '/sorry')],
          b'effect %06d\n' % other.of('sent-page')[0][0]),
         'reset, a page: shown')
    refused(gw, path, 'sent-page', 'outcome_unknown', 'reset, a page: held')
    executed(up, 'sent-page', 1, 'reset, a page')


def test_accel():
    for target, name in (('/fetched/ok', 'a URI'), ('@fetched', 'a name'),
                         ('@tries', 'a name with try_files')):
        path = '/accel/ok?h=X-Accel-Redirect:' + target
        key = 'accel-' + target
        a = gw.post(path, key)
        same((a.status, a.replayed, up.count(key)), (201, False, 2),
             'X-Accel-Redirect to %s is followed' % name)
        if up.count(key) == 2:
            same(a.body, b'effect %06d\n' % up.of(key)[1][0],
                 'X-Accel-Redirect to %s: its answer' % name)
        replays(gw, path, key, a, 'X-Accel-Redirect to ' + name)
        executed(up, key, 2, 'X-Accel-Redirect to ' + name)

    for target in ('/lost/ok', '@lost', '@lost-tries'):
        path = '/accel/ok?h=X-Accel-Redirect:' + target
        key = 'lost-' + target
        for _ in range(3):
            a = gw.post(path, key)
            ok(a.status >= 400, 'X-Accel-Redirect to %s: an error' % target,
               a)
        executed(up, key, 1, 'X-Accel-Redirect to ' + target)
        executed(other, key, 0, 'X-Accel-Redirect to %s, elsewhere' % target)


def test_accel_from_an_unprotected_location():
    path = '/router/ok?h=X-Accel-Redirect:@routed'
    a = gw.post(path, 'routed')
    same((a.status, a.replayed), (201, False), 'an unprotected router: sent')
    replays(gw, path, 'routed', a, 'an unprotected router')
    executed(other, 'routed', 1, 'an unprotected router')


def test_recursive_error_pages():
    path = '/recursive/status/404'
    a = gw.post(path, 'recursive')
    same(a.status, 404, 'recursive_error_pages: the status of the answer')
    replays(gw, path, 'recursive', a, 'recursive_error_pages')
    same(total('recursive'), 1, 'recursive_error_pages: sent once')


# ---- the gate: the lease ----


def not_sent(a, second, name):
    ok(a.status in (502, 503) or a.replayed and a.body == second.body,
       name + ': the first one is told an error or the answer', a)


def test_lease_and_handshake():
    # longer than the lease, which is renewed meanwhile
    tls.holding = True
    c = gw.call('/tls/ok', 'shakes')
    ok(until(lambda: tls.held), 'a TLS handshake begins')
    time.sleep(1.6)
    tls.held.pop().set()
    a = c.read()
    same((a.status, tls.count('shakes')), (201, 1),
         'a handshake longer than the lease: sent')

    # paused beyond the lease, and another worker executes the key
    c = gw.call('/tls/ok', 'paused')
    until(lambda: tls.held)
    event = tls.held.pop()
    tls.holding = False
    pid = owner_of(c)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1.2)
    second = gw.post('/tls/ok', 'paused')
    same((second.status, second.replayed), (201, False),
         'paused within the handshake: taken over')
    event.set()
    time.sleep(0.2)
    os.kill(pid, signal.SIGCONT)
    not_sent(c.read(), second, 'paused within the handshake')
    time.sleep(0.1)
    same(tls.count('paused'), 1, 'paused within the handshake: sent once')
    replays(gw, '/tls/ok', 'paused', second, 'paused within the handshake')


def lease_and_cache_lock(where, name):
    up.hold()
    locker = gw.call(where + 'wait?h=Cache-Control:no-store', name + 'locker',
                     headers=[('X-Cache', name + 'one')])
    up.until(name + 'locker')
    c = gw.call(where + 'ok', name + 'waiter', headers=[('X-Cache', name + 'one')])
    ok(until(lambda: gw.state(name + 'waiter', where + 'ok') == 'executing'),
       'a request waits for the cache lock')
    time.sleep(0.1)
    pid = owner_of(c)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1.2)
    second = gw.post(where + 'ok', name + 'waiter', headers=[('X-Cache', name + 'two')])
    same((second.status, second.replayed), (201, False),
         'paused before the cache lock: taken over')
    up.go()
    time.sleep(0.2)
    os.kill(pid, signal.SIGCONT)
    not_sent(c.read(), second, 'paused before the cache lock')
    same(locker.read().status, 201, 'who had the lock is answered')
    executed(up, name + 'waiter', 1, 'paused before the cache lock')
    replays(gw, where + 'ok', name + 'waiter', second, 'paused before the cache lock',
            headers=[('X-Cache', name + 'three')])


def test_lease_and_cache_lock():
    lease_and_cache_lock('/lock/', '')
    lease_and_cache_lock('/lock-variable/', 'variable-')


# ---- what counts as an answer ----


def lost(path, key, status, name, headers=(), stale=None):
    """sent, and no answer of its own: unknown"""
    a = gw.post(path, key, headers=headers)
    same((a.status, a.replayed), (status, False), name + ': an error')
    ok(stale is None or a.body != stale, name + ": not another's answer", a)
    refused(gw, path, key, 'outcome_unknown', name + ': held',
            headers=headers)
    executed(up, key, 1, name)


def test_word_in_half_a_header():
    for word, n in (('final', 75), ('release', 77), ('final;ttl=60', 82)):
        lost('/head/%d?h=X-Accel-Idempotency:%s' % (n, word),
             'half-' + word, 502, word + ' in a header that breaks off')
        lost('/small/ok?h=X-Accel-Idempotency:%s&h=X-Big:%s'
             % (word, 'b' * 1500),
             'big-' + word, 502, word + ' in a header that is too big')


def test_stale_answer():
    cached = [('X-Cache', 'stale')]
    first = gw.post('/stale/ok', 'seed', headers=cached)
    same((first.status, first.get('x-cache')), (201, 'MISS'), 'is cached')
    time.sleep(2.1)
    for what, status in (('silent', 504), ('reset', 502), ('head/20', 502)):
        lost('/stale/' + what, 'stale-' + what, status, 'stale, ' + what,
             headers=cached, stale=first.body)
    a = gw.post('/stale/status/500', 'stale-500', headers=cached)
    same((a.status, a.body == first.body), (500, False),
         'stale, 500: what the upstream said')
    replays(gw, '/stale/status/500', 'stale-500', a, 'stale, 500',
            headers=cached)
    executed(up, 'stale-500', 1, 'stale, 500')


def test_revalidated_answer():
    """304: what is cached is the answer to this request as well"""
    cached = [('X-Cache', 'revalidate')]
    modified = '?h=Last-Modified:Mon,%2001%20Jan%202024%2000:00:00%20GMT'
    first = gw.post('/revalidate/ok' + modified, 'fresh', headers=cached,
                    method='GET', body=None)
    time.sleep(2.1)
    path = '/revalidate/status/304'
    a = gw.post(path, 'revalidated', headers=cached, method='GET', body=None)
    same((a.status, a.body), (201, first.body), 'revalidated')
    replays(gw, path, 'revalidated', a, 'revalidated', headers=cached,
            method='GET', body=None)
    executed(up, 'revalidated', 1, 'revalidated')


TESTS = [test_access_after_try_files, test_access_after_try_files_of_a_proxy,
         test_access_after_error_page, test_access_after_index,
         test_access_and_profile, test_refused_then_error_page,
         test_refused_first, test_refused_and_let_in, test_refused_get,
         test_passed_then_protected,
         test_passed_then_error_page, test_return_and_error_page,
         test_rewrite, test_auth_request_down, test_limit_req, test_backup,
         test_page, test_accel, test_accel_from_an_unprotected_location,
         test_recursive_error_pages, test_lease_and_handshake,
         test_lease_and_cache_lock, test_word_in_half_a_header,
         test_stale_answer, test_revalidated_answer]

for test in TESTS:
    if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
        print('# ' + test.__name__, flush=True)
        test()
gw.stop()
finish()
