"""Runs nginx with the debug module for the tests of the embedded store.

Each test is a function that calls ok(); finish() prints the plan.
"""

import atexit
import http.client
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NGINX = os.environ.get('TEST_NGINX_BINARY', '/usr/sbin/nginx')
MODULE = os.environ.get('TEST_NGINX_LOAD_MODULES',
                        TOP + '/build/debug/ngx_http_idempotency_module.so')

# a thousand clients, and as many connections of nginx and the upstream
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (
    most if most != resource.RLIM_INFINITY else 65536, most))

count = 0
failed = 0


def ok(good, name, detail=''):
    global count, failed
    count += 1
    if not good:
        failed += 1
        # prove hides what goes to standard output
        for line in ['failed: ' + name] + str(detail).splitlines():
            print('# ' + line, file=sys.stderr, flush=True)
    print('%sok %d - %s' % ('' if good else 'not ', count, name), flush=True)
    return good


def same(got, want, name):
    return ok(got == want, name, 'got  %r\nwant %r' % (got, want))


def finish():
    print('1..%d' % count)
    sys.exit(1 if failed else 0)


def pattern(n):
    """The bytes that the endpoint makes for body_len=n, as it shows them."""
    b = bytes((i ^ (i >> 8) ^ (i >> 16)) & 0xff for i in range(n))
    return '%d bytes %08x' % (n, zlib.crc32(b))


class Stalls(threading.Thread):
    """Knows when the machine has let nobody run."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = []
        self.last = time.time()
        self.start()

    def run(self):
        while True:
            time.sleep(0.02)
            now = time.time()
            if now - self.last > 0.1:
                self.seen.append((self.last, now))
            self.last = now


stalls = Stalls()


def since(start):
    """how long ago that is, less what the machine is to blame for"""
    end = time.time()
    seen = stalls.seen + [(stalls.last + 0.1, end)]
    return end - start - sum(max(0, min(b, end) - max(a, start))
                             for a, b in seen)


held = []


def take_port(port):
    """A name that goes with this process keeps the port from all other tests,
    t/lib among them, also while nothing listens there."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind('\0idempotency-port-%d' % port)
        with socket.socket() as s:
            s.bind(('127.0.0.1', port))
    except OSError:
        name.close()
        return None
    return name


def free_port(above=0):
    """Below those that the system gives to clients, and nobody else's.  With
    "above", the port that is so much higher is free, too."""
    while True:
        port = random.SystemRandom().randrange(10000, 32000 - above)
        names = [take_port(n) for n in sorted({port, port + above})]
        if all(names):
            held.extend(names)
            return port
        for name in names:
            if name:
                name.close()


class Nginx:
    """An nginx with the stores {name: size}; /name is its endpoint."""

    def __init__(self, stores, workers=2):
        self.root = tempfile.mkdtemp(prefix='idem-shm-')
        self.port = free_port()
        self.workers = workers
        self.module = MODULE
        self.log_file = self.root + '/error.log'
        self.write(stores)
        self.run()
        atexit.register(self.stop)

    def write(self, stores):
        temp = ''.join('%s_temp_path %s/%s;\n' % (x, self.root, x)
                       for x in ('client_body', 'proxy', 'fastcgi',
                                 'uwsgi', 'scgi'))
        with open(self.root + '/nginx.conf', 'w') as f:
            f.write('load_module %s;\n' % self.module)
            if os.getuid() == 0:
                f.write('user root;\n')
            f.write('worker_processes %d;\nerror_log %s info;\n'
                    'pid %s/nginx.pid;\nevents { worker_connections 64; }\n'
                    'http {\naccess_log off;\n%s'
                    % (self.workers, self.log_file, self.root, temp))
            for name, size in stores.items():
                f.write('idempotency_store %s shm:%s;\n' % (name, size))
            f.write('server {\nlisten 127.0.0.1:%d;\nkeepalive_timeout 0;\n'
                    % self.port)
            for name in stores:
                f.write('location /%s { idempotency_exercise %s; }\n'
                        % (name, name))
            f.write('}\n}\n')

    def command(self, *args):
        return subprocess.run([NGINX, '-p', self.root, '-c',
                               self.root + '/nginx.conf', *args],
                              capture_output=True, text=True)

    def run(self):
        done = self.command()
        if done.returncode:
            print('Bail out! nginx does not start: ' + done.stderr)
            sys.exit(1)
        for _ in range(100):
            try:
                socket.create_connection(('127.0.0.1', self.port)).close()
                return
            except OSError:
                time.sleep(0.05)

    def pid(self):
        with open(self.root + '/nginx.pid') as f:
            return int(f.read())

    def children(self):
        out = subprocess.run(['ps', '-o', 'pid=', '--ppid', str(self.pid())],
                             capture_output=True, text=True).stdout
        return [int(x) for x in out.split()]

    def reload(self):
        """Asks for a reload; returns the log lines that came of it."""
        before = len(self.log())
        old = set(self.children())
        os.kill(self.pid(), signal.SIGHUP)
        for _ in range(200):
            time.sleep(0.05)
            added = self.log()[before:]
            if '[emerg]' in added:
                break
            if self.children() and not old & set(self.children()):
                break
        return self.log()[before:]

    def stop(self):
        if os.path.exists(self.root + '/nginx.pid'):
            pid = self.pid()
            os.kill(pid, signal.SIGTERM)
            for _ in range(100):
                if not os.path.exists(self.root + '/nginx.pid'):
                    break
                time.sleep(0.05)
        shutil.rmtree(self.root, ignore_errors=True)

    def log(self):
        with open(self.log_file, errors='replace') as f:
            return f.read()

    def ask(self, store, **args):
        """One operation; the lines of the answer, or None: it died."""
        query = '&'.join('%s=%s' % item for item in args.items())
        conn = http.client.HTTPConnection('127.0.0.1', self.port, timeout=60)
        try:
            conn.request('GET', '/%s?%s' % (store, query))
            answer = conn.getresponse()
            text = answer.read().decode('latin-1')
        except (http.client.HTTPException, OSError):
            return None
        finally:
            conn.close()
        if answer.status != 200:
            return {'http': answer.status}
        lines = re.findall(r'^(\w+): (.*)$', text, re.M)
        return {name: value.strip('"') for name, value in lines}
