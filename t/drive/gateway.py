"""An nginx with the module in front of a ledger, and clients that misbehave.

    up = Ledger()
    gw = Gateway(up, locations='location /x { ... }')
    a = gw.post('/slow/300', 'key-1')
    a.status, a.headers, a.body, a.code

The locations "/", "/store" (the endpoint of tests) and the upstream "up" are
always there; "/" is protected and goes to the ledger.
"""

import atexit
import http.client
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from shm import (MODULE, NGINX, TOP, finish, free_port, ok,  # noqa: E402,F401
                 same, since)
from ledger import Ledger, filler  # noqa: E402,F401

# the second run of the tests is on Redis: see t/tools/with-redis; a third one
# may be on SQLite, where it is a folder: see t/tools/with-sqlite; and one on
# PostgreSQL: see t/tools/with-postgres
STORE = os.environ.get('TEST_NGINX_STORE')
SQLITE = STORE if STORE and STORE.startswith('sqlite:') else None
POSTGRES = STORE if STORE and STORE.startswith('postgres:') else None
REDIS = None if SQLITE or POSTGRES else STORE

# the target of a store that the store under test takes over from; "same": one
# of the same kind
FROM = os.environ.get('TEST_NGINX_FROM')

CONF = '''
load_module %(module)s;
%(user)s
worker_processes %(workers)d;
error_log %(root)s/error.log %(level)s;
pid %(root)s/nginx.pid;
# for a binary upgrade
env ASAN_OPTIONS;
env UBSAN_OPTIONS;
%(main)s
events { worker_connections 2048; }
http {
    access_log off;
    client_body_temp_path %(root)s/t1;
    proxy_temp_path %(root)s/t2;
    fastcgi_temp_path %(root)s/t3;
    uwsgi_temp_path %(root)s/t4;
    scgi_temp_path %(root)s/t5;
    client_max_body_size 10m;

    idempotency_store main %(store)s;
    idempotency_source somebody;
    idempotency_failpoint $http_x_fail;

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header X-Fence $idempotency_fence;
    proxy_set_header X-Attempt $idempotency_attempt;

    upstream up { server 127.0.0.1:%(up)d; keepalive 8; }

    %(http)s

    server {
        listen 127.0.0.1:%(port)d;
        listen 127.0.0.1:%(h2)d http2;
        %(server)s

        location / {
            idempotency main;
            %(default)s
            proxy_pass http://up;
        }
        location = /store {
            idempotency_exercise main;
            idempotency_key $http_x_key;
            idempotency_source $http_x_source;
            idempotency_scope $http_x_scope;
        }
        %(locations)s
    }
}
'''


class Gateway:
    def __init__(self, up, locations='', http='', server='', default='',
                 main='', workers=1, level='info', size='8m',
                 store=None, module=None, env=None):
        os.makedirs(TOP + '/build', exist_ok=True)
        self.root = tempfile.mkdtemp(prefix='gateway-', dir=TOP + '/build')
        os.mkdir(self.root + '/logs')     # where nginx logs until it reads
        self.port = free_port()
        self.h2 = free_port()
        self.log_file = self.root + '/error.log'
        self.expected = []        # [alert] and [crit] that were provoked
        self.env = env            # instead of this process's own
        self.conf = dict(module=module or MODULE, root=self.root, port=self.port,
                         h2=self.h2, up=up.port,
                         store=store or self.default_store(size),
                         locations=locations, http=http,
                         server=server, default=default, main=main,
                         workers=workers, level=level,
                         user='user root;' if os.getuid() == 0 else '')
        self.up = up
        self.write()
        done = self.command()
        if done.returncode:
            print('Bail out! nginx does not start: ' + done.stderr)
            sys.exit(1)
        atexit.register(self.stop)
        self.wait_port()

    def default_store(self, size):
        name = os.path.basename(self.root)
        target = self.default_target(size, name)
        if FROM:
            # a store that takes over from an empty one does the same
            target += ' from=before; idempotency_store before ' + (
                self.default_target(size, name + '-before')
                if FROM == 'same' else FROM)
        return target

    @staticmethod
    def default_target(size, name):
        if SQLITE:
            return '%s/%s.db %s' % (
                SQLITE, name,
                os.environ.get('TEST_SQLITE_OPTIONS', 'timeout=5s'))
        if POSTGRES:
            subprocess.run([TOP + '/t/tools/postgres-schema', name],
                           check=True)
            return '%s schema=%s %s' % (
                POSTGRES, name,
                os.environ.get('TEST_POSTGRES_STORE', 'timeout=5s'))
        if REDIS is None:
            return 'shm:' + size
        return '%s prefix=%s:' % (REDIS, name)

    def write(self, **changes):
        self.conf.update(changes)
        with open(self.root + '/nginx.conf', 'w') as f:
            f.write(CONF % self.conf)

    def command(self, *args):
        return subprocess.run([NGINX, '-p', self.root, '-c',
                               self.root + '/nginx.conf', *args],
                              capture_output=True, text=True, env=self.env)

    def wait_port(self):
        """the port is there before the workers are"""
        for _ in range(200):
            try:
                socket.create_connection(('127.0.0.1', self.port)).close()
                break
            except OSError:
                time.sleep(0.02)
        until(lambda: len(self.workers()) >= self.conf['workers'], 10)

    def pid(self):
        # nginx writes the file after it has made it
        until(lambda: os.path.getsize(self.root + '/nginx.pid'), 5)
        with open(self.root + '/nginx.pid') as f:
            return int(f.read())

    def workers(self, pid=None):
        out = subprocess.run(['ps', '-o', 'pid=,args=', '--ppid',
                              str(pid or self.pid())],
                             capture_output=True, text=True).stdout
        return [int(line.split()[0]) for line in out.splitlines()
                if 'worker process' in line]

    def stopped(self):
        """workers that a failpoint or SIGSTOP has stopped"""
        found = []
        for pid in self.workers():
            try:
                with open('/proc/%d/stat' % pid) as f:
                    if f.read().rpartition(')')[2].split()[0] == 'T':
                        found.append(pid)
            except OSError:
                pass
        return found

    def signal(self, sig, pid=None):
        os.kill(pid or self.pid(), sig)

    def log(self):
        with open(self.log_file, errors='replace') as f:
            return f.read()

    def until_log(self, text, timeout=20, start=0):
        return until(lambda: text in self.log()[start:], timeout)

    def end(self):
        try:
            pid = self.pid()
            for worker in self.workers():
                try:
                    os.kill(worker, signal.SIGCONT)
                except ProcessLookupError:
                    pass          # the last one before a reload
            os.kill(pid, signal.SIGTERM)
            until(lambda: not os.path.exists(self.root + '/nginx.pid'), 5)
        except (OSError, ValueError):
            pass

    def stop(self):
        """Ends all of it and looks at what was logged."""
        if self.root is None:
            return
        self.end()
        bad = alarms(self.log(), self.expected)
        ok(not bad, 'nothing alarming was logged', '\n'.join(bad[:20]))
        if os.environ.get('KEEP'):
            print('# kept ' + self.root)
        else:
            shutil.rmtree(self.root, ignore_errors=True)
        atexit.unregister(self.stop)
        self.root = None

    # clients

    def call(self, path, key, body=b'x', method='POST', headers=(),
             port=None):
        """Sends a request and does not wait: see class Client."""
        return Client(port or self.port, path, key, body, method, headers)

    def post(self, path, key, body=b'x', method='POST', headers=(),
             timeout=15, port=None):
        return self.call(path, key, body, method, headers, port).read(timeout)

    def record(self, key, path, method='POST', source='somebody'):
        """The record as the store shows it."""
        return self.ask(
            {'X-Key': key, 'X-Source': source,
             'X-Scope': '%s %s' % (method, path.partition('?')[0])},
            op='fetch', identify=1)

    def state(self, key, path, **args):
        return self.record(key, path, **args).get('state')

    def ask(self, headers={}, **args):
        query = '&'.join('%s=%s' % item for item in args.items())
        conn = http.client.HTTPConnection('127.0.0.1', self.port, timeout=30)
        try:
            conn.request('GET', '/store?' + query, headers=headers)
            text = conn.getresponse().read().decode('latin-1')
        finally:
            conn.close()
        return {name: value.strip('"') for name, value
                in re.findall(r'^(\w+): (.*)$', text, re.M)}


ALARM = re.compile(r'\[(alert|crit|emerg)\]|Sanitizer|runtime error')

# nginx kills a child that has not ended about 1.5 s after SIGTERM.  With a
# sanitizer all of them look for leaks at their end, which takes that long; the
# cache's processes have no part in requests.
ENDS_LATE = re.compile(
    '%s process \\d+ exited on signal 9'
    % ('(worker|cache (manager|loader))' if 'ASAN_OPTIONS' in os.environ
       else 'cache (manager|loader)'))


def alarms(log, expected=()):
    """The lines of a log that no test should see, but for expected ones."""
    return [line for line in log.splitlines()
            if ALARM.search(line) and not ENDS_LATE.search(line)
            and not any(e in line for e in expected)]


def until(condition, timeout=20, step=0.01):
    end = time.time() + timeout
    while time.time() < end:
        if condition():
            return True
        time.sleep(step)
    return bool(condition())


class Client:
    """One request of HTTP/1.1, on a connection of its own."""

    def __init__(self, port, path, key, body=b'x', method='POST', headers=(),
                 send=True):
        lines = ['%s %s HTTP/1.1' % (method, path), 'Host: gateway',
                 'Connection: close']
        lines += ['%s: %s' % h for h in headers]
        if key is not None:
            lines.append('Idempotency-Key: ' + key)
        if body is not None:
            lines.append('Content-Length: %d' % len(body))
        self.bytes = '\r\n'.join(lines + ['', '']).encode() + (body or b'')
        self.method = method
        self.sock = socket.create_connection(('127.0.0.1', port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send:
            self.send(self.bytes)

    def send(self, data):
        self.sock.sendall(data)

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             struct.pack('ii', 1, 0))
        self.sock.close()

    def read_some(self, n, timeout=10):
        """n bytes at least, or what there is"""
        self.sock.settimeout(timeout)
        data = b''
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                break
            data += more
        return data

    def read(self, timeout=15):
        self.sock.settimeout(timeout)
        data = bytearray()
        try:
            while True:
                more = self.sock.recv(65536)
                if not more:
                    break
                data += more
        except ConnectionError:
            pass
        except socket.timeout:
            self.sock.close()
            return Answer(bytes(data), self.method, timed_out=True)
        self.sock.close()
        return Answer(bytes(data), self.method)


class Answer:
    """status is 0 where there was none; whole: nothing is missing"""

    def __init__(self, raw, method='POST', timed_out=False):
        self.raw = raw
        self.status = 0
        self.headers = []
        self.trailers = []
        self.body = b''
        self.whole = False
        self.timed_out = timed_out
        head, found, rest = raw.partition(b'\r\n\r\n')
        if not found:
            return
        lines = head.decode('latin-1').split('\r\n')
        self.status = int(lines[0].split()[1][:3])
        self.headers = self._fields(lines[1:])
        if self.get('transfer-encoding') == 'chunked':
            self._chunked(rest)
            return
        self.body = rest
        length = self.get('content-length')
        if method == 'HEAD' or self.status in (204, 304):
            self.whole = rest == b''
        elif length is not None:
            self.whole = len(rest) == int(length)
        else:
            self.whole = not timed_out

    @staticmethod
    def _fields(lines):
        return [(n.strip().lower(), v.strip()) for n, _, v
                in (line.partition(':') for line in lines)]

    def _chunked(self, rest):
        while True:
            size, found, rest = rest.partition(b'\r\n')
            if not found:
                return
            n = int(size, 16)
            if n == 0:
                lines, _, rest = rest.partition(b'\r\n\r\n') \
                    if rest != b'\r\n' else (b'', b'', b'')
                if lines:
                    self.trailers = self._fields(
                        lines.decode('latin-1').split('\r\n'))
                self.whole = rest == b''
                return
            self.body += rest[:n]
            if len(rest) < n + 2:
                return
            rest = rest[n + 2:]

    def get(self, name):
        values = [v for n, v in self.headers if n == name.lower()]
        return ', '.join(values) if values else None

    @property
    def replayed(self):
        return self.get('idempotent-replayed') == 'true'

    @property
    def code(self):
        """of an error that the module has written"""
        found = re.search(rb'"code":"(\w+)"', self.body)
        return found.group(1).decode() if found else None

    @property
    def retry(self):
        return self.get('idempotency-retry')

    def __repr__(self):
        return '<%d %r %r>' % (self.status, self.headers, self.body[:200])


def background(function, *args, **named):
    """Runs it in a thread; join() gives what it returned."""
    class Thread(threading.Thread):
        def run(self):
            self.result = function(*args, **named)

        def join(self, timeout=30):
            super().join(timeout)
            return getattr(self, 'result', None)
    thread = Thread(daemon=True)
    thread.start()
    return thread


def replays(gw, path, key, first, name, **args):
    """A retry gets the first answer, without another execution."""
    again = gw.post(path, key, **args)
    same((again.status, again.body, again.replayed),
         (first.status, first.body, True), name + ': the retry replays')
    return again


def refused(gw, path, key, code, name, status=409, **args):
    again = gw.post(path, key, **args)
    same((again.status, again.code), (status, code), name)
    return again


def executed(up, key, n, name):
    return same(up.count(key), n, name + ': executed %s' %
                {0: 'never', 1: 'once', 2: 'twice'}.get(n, n))
