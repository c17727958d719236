"""nginx instances, ports and CPU clocks.

Everything listens on loopback, writes under build/bench and is stopped at
the end.
"""

import atexit
import os
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
DEBUG = os.path.join(TOP, 'build', 'debug', 'ngx_http_idempotency_module.so')

sys.path.insert(0, os.path.join(TOP, 't', 'drive'))

CORES = sorted(os.sched_getaffinity(0))

# "one": all share a core, and nobody is woken across cores, for which the
# waker pays in a virtual machine; "split": what is measured has a core for
# itself, everything else the others; "none": as the kernel likes
PIN = os.environ.get('PIN') or ('split' if len(CORES) >= 4 else 'one')
SERVER_CORES = {'split': CORES[-1:], 'one': CORES[-1:]}.get(PIN, CORES)
OTHER_CORES = {'split': CORES[:-1], 'one': CORES[-1:]}.get(PIN, CORES)


def on_server_cores():
    os.sched_setaffinity(0, SERVER_CORES)


def on_other_cores():
    os.sched_setaffinity(0, OTHER_CORES)


def cpu(pids):
    """Nanoseconds, user and system, that all threads of these have run."""
    total = 0
    for pid in pids:
        for task in os.listdir('/proc/%d/task' % pid):
            try:
                with open('/proc/%d/task/%s/schedstat' % (pid, task)) as f:
                    total += int(f.read().split()[0])
            except FileNotFoundError:
                pass
    return total


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def wait_for(port, process, name, seconds=30, pause=0.05):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(('127.0.0.1', port), 1).close()
            return
        except OSError:
            time.sleep(pause)
    sys.exit('%s does not start, see %s' % (name, WORK))


def end(process):
    # nginx: a signal that comes just before epoll_wait() does not end it
    for _ in range(60):
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            pass
    process.kill()
    process.wait()


class Nginx:
    """One instance: a master and a worker, or one process for valgrind."""

    def __init__(self, name, http, modules=(), cores=SERVER_CORES,
                 before=(), workers=1):
        self.name = name
        self.prefix = os.path.join(WORK, name)
        self.before = list(before)
        shutil.rmtree(self.prefix, ignore_errors=True)
        os.makedirs(os.path.join(self.prefix, 'logs'))

        main = ['daemon off;', 'worker_processes %d;' % workers,
                'pid %s/nginx.pid;' % self.prefix,
                'error_log %s/error.log warn;' % self.prefix]
        if os.geteuid() == 0:
            main.append('user root;')
        for path in modules:
            main.append('load_module %s;' % os.path.abspath(path))
        if before:
            main.append('master_process off;')
        else:
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

    def start(self, port, pause=0.05):
        self.process = subprocess.Popen(
            self.before + [NGINX, '-p', self.prefix, '-c', self.conf,
                           '-e', self.prefix + '/error.log'],
            stdin=subprocess.DEVNULL, preexec_fn=on_other_cores)
        atexit.register(self.stop)
        self.port = port
        wait_for(port, self.process, self.name, pause=pause)
        return self

    def stop(self):
        end(self.process)

    def pids(self):
        """The worker."""
        pid = self.process.pid
        with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
            return [int(f.read().split()[0])]

    def complaints(self):
        with open(self.prefix + '/error.log') as f:
            return [line.strip() for line in f if '[' in line]
