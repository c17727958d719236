"""nginx instances, load and CPU clocks for the benches in this folder.

Everything listens on loopback, writes under build/bench and is stopped at
the end.  The gateway's worker has one core for itself, everything else the
other one, if there are two.
"""

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
WORK = os.path.join(TOP, 'build', 'bench')
NGINX = os.environ.get('TEST_NGINX_BINARY', '/usr/sbin/nginx')
MODULE = os.environ.get(
    'MODULE', os.path.join(TOP, 'build', 'ngx_http_idempotency_module.so'))

CORES = sorted(os.sched_getaffinity(0))

# "split": the gateway's worker has a core for itself; "one": all share one,
# nobody is woken across cores; "none": as the kernel likes
PIN = os.environ.get('PIN', 'split')
GATEWAY_CORES = {'split': [CORES[-1]], 'one': [CORES[-1]]}.get(PIN, CORES)
OTHER_CORES = {'split': [CORES[0]], 'one': [CORES[-1]]}.get(PIN, CORES)

# an order and its receipt, about 200 bytes each
REQUEST = ('{"order":"4711-0815","customer":"c-20231","currency":"EUR",'
           '"amount":12995,"items":[{"sku":"A-100","quantity":2,'
           '"price":4995},{"sku":"B-7","quantity":1,"price":3005}],'
           '"note":"please ring twice, thank you"}')
ANSWER = ('{"id":"pay_20489125","order":"4711-0815","state":"captured",'
          '"currency":"EUR","amount":12995,"captured":12995,"refunded":0,'
          '"method":"card","last4":"4242","created":"2024-05-01T10:11:12Z",'
          '"receipt":"r-99"}')

UPSTREAM = '''
    server {
        listen 127.0.0.1:%(port)d;
        keepalive_requests 1000000000;
        location / { default_type application/json; return 201 '%(answer)s'; }
        location = /status { stub_status; }
    }
'''

PROXY = '''
            proxy_pass http://upstream;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
'''


class Nginx:
    """One instance: a master and a worker, or one process for valgrind."""

    def __init__(self, name, http, module=None, cores=None, before=()):
        self.name = name
        self.prefix = os.path.join(WORK, name)
        self.before = list(before)
        shutil.rmtree(self.prefix, ignore_errors=True)
        os.makedirs(os.path.join(self.prefix, 'logs'))

        main = ['daemon off;', 'worker_processes 1;',
                'pid %s/nginx.pid;' % self.prefix,
                'error_log %s/error.log warn;' % self.prefix]
        if os.geteuid() == 0:
            main.append('user root;')
        for path in [module] if isinstance(module, str) else module or []:
            main.append('load_module %s;' % os.path.abspath(path))
        if before:
            main.append('master_process off;')
        elif cores is not None:
            mask = ''.join('1' if i in cores else '0'
                           for i in range(max(CORES), -1, -1))
            main.append('worker_cpu_affinity %s;' % mask)

        temp = '\n'.join('    %s_temp_path %s/%s;' % (kind, self.prefix, kind)
                         for kind in ('client_body', 'proxy', 'fastcgi',
                                      'uwsgi', 'scgi'))

        self.conf = os.path.join(self.prefix, 'nginx.conf')
        with open(self.conf, 'w') as f:
            f.write('%s\n'
                    'events { worker_connections 4096; }\n'
                    'http {\n'
                    '    access_log off;\n'
                    '    keepalive_requests 1000000000;\n'
                    '    keepalive_timeout 3600s;\n'
                    '%s\n%s\n}\n' % ('\n'.join(main), temp, http))

    def start(self, port):
        self.process = subprocess.Popen(
            self.before + [NGINX, '-p', self.prefix, '-c', self.conf,
                           '-e', self.prefix + '/error.log'],
            stdin=subprocess.DEVNULL, preexec_fn=self._core)
        atexit.register(self.stop)
        self.port = port

        for _ in range(600):
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(('127.0.0.1', port), 1).close()
                return self
            except OSError:
                time.sleep(0.05)

        sys.exit('%s does not start, see %s/error.log'
                 % (self.name, self.prefix))

    @staticmethod
    def _core():
        os.sched_setaffinity(0, OTHER_CORES)

    def stop(self):
        # a signal that comes just before epoll_wait() does not end it
        for _ in range(60):
            if self.process.poll() is not None:
                return
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(1)
            except subprocess.TimeoutExpired:
                pass
        self.process.kill()
        self.process.wait()

    def worker(self):
        pid = self.process.pid
        with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
            return int(f.read().split()[0])

    def cpu(self):
        """Nanoseconds, user and system, that the worker has run."""
        with open('/proc/%d/schedstat' % self.worker()) as f:
            return int(f.read().split()[0])

    def complaints(self):
        """What error.log says, without what the end of a run leaves."""
        with open(self.prefix + '/error.log') as f:
            return [line.strip() for line in f if '[' in line]


def free_ports(n):
    socks = [socket.socket() for _ in range(n)]
    for s in socks:
        s.bind(('127.0.0.1', 0))
    ports = [s.getsockname()[1] for s in socks]
    for s in socks:
        s.close()
    return ports


def upstream_block(port, name='upstream'):
    return ('    upstream %s { server 127.0.0.1:%d; keepalive 128; '
            'keepalive_requests 1000000000; keepalive_timeout 3600s; }\n'
            % (name, port))


def start_upstream(port):
    return Nginx('upstream', UPSTREAM % {'port': port, 'answer': ANSWER},
                 cores=OTHER_CORES).start(port)


def upstream_requests(port):
    """How many requests the upstream has served, these questions apart."""
    with socket.create_connection(('127.0.0.1', port), 10) as s:
        s.sendall(b'GET /status HTTP/1.0\r\n\r\n')
        data = b''
        while True:
            more = s.recv(4096)
            if not more:
                break
            data += more
    upstream_requests.asked += 1
    total = int(re.search(rb'\n\s*\d+ \d+ (\d+)', data).group(1))
    return total - upstream_requests.asked


upstream_requests.asked = 0


def load(port, path, seconds, prefix, keys=0, connections=32):
    """Runs wrk; keys named PREFIX-n, new ones or KEYS in a circle.

    Returns how many requests were answered, all of them with 2xx.
    """
    return measure(port, path, seconds, prefix, keys, connections)[0]


def measure(port, path, seconds, prefix, keys=0, connections=32):
    """The same; returns requests, seconds, and p50 and p99 in ms."""
    env = dict(os.environ, BENCH_BODY=REQUEST, BENCH_PREFIX=prefix,
               BENCH_KEYS=str(keys))
    out = subprocess.run(
        ['wrk', '-t1', '-c%d' % connections, '-d%s' % seconds,
         '-s', os.path.join(HERE, 'load.lua'),
         'http://127.0.0.1:%d%s' % (port, path)],
        env=env, check=True, capture_output=True, text=True,
        preexec_fn=Nginx._core).stdout
    m = re.search(r'BENCH (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)', out)
    requests, errors, status, us, p50, p99 = (int(x) for x in m.groups())
    if errors or status or not requests:
        sys.exit('%s: %d requests, %d of them failed, %d with a bad status'
                 % (path, requests, errors, status))
    return requests, us / 1e6, p50 / 1000, p99 / 1000
