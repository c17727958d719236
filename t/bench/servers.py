"""What stands behind and beside the servers that are measured."""

import atexit
import os
import re
import shutil
import subprocess
import sys
import time

import load
import rig
from redis_process import Redis
from redisd import Client as RedisClient
from redisset import Cluster, Sentinels

# POST to a file is 405, and the file is what that error shows; a text in
# nginx.conf can't be as long
UPSTREAM = '''
    server {
        listen 127.0.0.1:%(port)d;
        root %(answers)s;
        client_max_body_size 4m;
        client_body_buffer_size 2m;
        default_type application/json;
        location / { return 201 '%(answer)s'; }
        location = /status { stub_status; }
        location /sized/ {
            rewrite ^/sized/(.*)$ /$1 break;
            etag off;
            add_header Last-Modified "";
            error_page 405 =201 $uri;
        }
        location ~ ^/[0-9]+$ {
            internal;
            etag off;
            add_header Last-Modified "";
        }
    }
'''


# by its counter the module knows that Redis has not lost anything
FORGET = """
    local kept = {}
    for i, name in ipairs(redis.call("KEYS", "*counter:*")) do
        kept[name] = redis.call("GET", name)
    end
    redis.call("FLUSHDB", "SYNC")
    for name, value in pairs(kept) do
        redis.call("SET", name, value, "EX", 86400)
    end
"""


def answers(sizes):
    """A folder with an answer for each size."""
    folder = os.path.join(rig.WORK, 'answers')
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for size in (0, *sizes):
        with open('%s/%d' % (folder, size), 'w') as f:
            f.write(load.answer_body(size))
    return folder


def folder(name):
    """An empty one, for a database."""
    path = os.path.join(rig.WORK, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path, mode=0o700)
    return path


def secret():
    """A file for idempotency_secret."""
    path = os.path.join(rig.WORK, 'secret.key')
    if not os.path.exists(path):
        os.makedirs(rig.WORK, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'wb') as f:
            f.write(os.urandom(32))
    return path


class Upstream:
    """The application behind a gateway: an nginx that always says 201."""

    def __init__(self, name, folder):
        self.port = rig.free_port()
        self.asked = 0
        self.nginx = rig.Nginx(name, UPSTREAM % {
            'port': self.port, 'answers': folder, 'answer': load.ANSWER},
            cores=rig.OTHER_CORES).start(self.port)

    def stop(self):
        self.nginx.stop()

    def executed(self):
        with load.Client(self.port) as client:
            page = client.get('/status')
        self.asked += 1
        return int(re.search(r'\n\s*\d+ \d+ (\d+)', page).group(1)) \
            - self.asked


class Node:
    """An Express application, plain or with a package."""

    modules = os.path.join(rig.WORK, 'node', 'node_modules')

    def __init__(self, name, folder, package=None, url=None):
        self.name = name
        self.port = rig.free_port()
        self.log = os.path.join(rig.WORK, name + '.log')
        command = ['node', os.path.join(rig.HERE, 'node', 'server.js'),
                   str(self.port), folder]
        if package:
            command += [package, url]
        with open(self.log, 'w') as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(os.environ, NODE_ENV='production',
                         BENCH_MODULES=self.modules),
                preexec_fn=rig.on_server_cores)
        atexit.register(self.stop)
        rig.wait_for(self.port, self.process, name)

    @classmethod
    def install(cls):
        """The packages, with npm, if they are not there yet."""
        folder = os.path.dirname(cls.modules)
        wanted = os.path.join(rig.HERE, 'node', 'package.json')
        have = os.path.join(folder, 'installed.json')
        with open(wanted) as f:
            text = f.read()
        if os.path.exists(have) and open(have).read() == text:
            return
        print('installing npm packages', flush=True)
        os.makedirs(folder, exist_ok=True)
        shutil.copy(wanted, folder)
        done = subprocess.run(
            ['npm', 'install', '--no-audit', '--no-fund', '--no-package-lock',
             '--omit=dev'], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit('npm install failed, and what it would bring is to be '
                     'measured:\n' + done.stderr)
        shutil.copy(wanted, have)

    def stop(self):
        rig.end(self.process)

    def pids(self):
        return [self.process.pid]

    def executed(self):
        with load.Client(self.port) as client:
            return int(client.get('/executed'))

    def complaints(self):
        with open(self.log) as f:
            return [line.strip() for line in f]


class RedisServer(Redis):
    """Over TCP, a unix socket and TLS, without persistence."""

    # what the bench itself asks; "select" is a part of connecting
    OURS = {'info', 'dbsize', 'flushdb', 'keys', 'select', 'ping',
            'config|get', 'client|setinfo', 'script|load'}
    # sent by clients even when the others are called by scripts
    SENT = {'evalsha', 'eval', 'fcall', 'wait', 'asking'}

    def __init__(self):
        folder = os.path.join(rig.WORK, 'certificates')
        self.certificates(folder)
        self.ca = folder + '/ca.crt'
        self.tls = rig.free_port()
        self.databases = 0
        self.free = []              # that were given back
        super().__init__(os.path.join(rig.WORK, 'redis'),
                         'appendonly no', 'databases 256',
                         'tls-port %d' % self.tls, 'tls-auth-clients no',
                         'tls-ca-cert-file %s/ca.crt' % folder,
                         'tls-cert-file %s/redis.crt' % folder,
                         'tls-key-file %s/redis.key' % folder,
                         before=rig.on_other_cores)
        self.client = RedisClient(self.root + '/redis.sock', timeout=60)

    @staticmethod
    def certificates(folder):
        os.makedirs(folder, exist_ok=True)
        with open(folder + '/san', 'w') as f:
            f.write('subjectAltName = DNS:localhost, IP:127.0.0.1\n')
        for command in (
                'req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca '
                '-keyout ca.key -out ca.crt',
                'req -newkey rsa:2048 -nodes -subj /CN=localhost '
                '-keyout redis.key -out redis.csr',
                'x509 -req -in redis.csr -CA ca.crt -CAkey ca.key -days 2 '
                '-CAcreateserial -extfile san -out redis.crt'):
            subprocess.run(['openssl'] + command.split(), cwd=folder,
                           check=True, capture_output=True)

    def database(self):
        """The number of one that nobody has."""
        if self.free:
            return self.free.pop()
        self.databases += 1
        return self.databases

    def give_back(self, db):
        self.forget(db)
        self.free.append(db)

    def names(self, db):
        """For the address of a store."""
        return {'port': self.port, 'tls': self.tls, 'ca': self.ca, 'db': db,
                'socket': self.root + '/redis.sock'}

    def cpu(self):
        return rig.cpu([self.process.pid])

    def _section(self, name):
        for line in self.client('INFO', name).decode().splitlines():
            if ':' in line:
                yield line.split(':', 1)

    def calls(self):
        """How often each command was called, by clients and by scripts."""
        calls = {name[len('cmdstat_'):]:
                 int(re.match(r'calls=(\d+)', value).group(1))
                 for name, value in self._section('commandstats')}
        return {name: n for name, n in calls.items()
                if name not in self.OURS}

    def commands(self, before, after):
        """Of two calls(): commands sent, and those called by scripts."""
        calls = {name: n - before.get(name, 0) for name, n in after.items()}
        total = sum(calls.values())
        if not any(calls.get(name) for name in ('evalsha', 'eval', 'fcall')):
            return total, 0
        sent = sum(calls.get(name, 0) for name in self.SENT)
        return sent, total - sent

    def memory(self):
        """Bytes, without the buffers of its clients."""
        memory = dict(self._section('memory'))
        return int(memory['used_memory']) - int(memory['mem_clients_normal'])

    def records(self, db):
        self.client('SELECT', db)
        return self.client('DBSIZE')

    def forget(self, db):
        self.client('SELECT', db)
        self.client('EVAL', FORGET, 0)


# what a target may be instead of an address
SETS = {
    'Sentinel': lambda: Sentinels(replicas=1, sentinels=3),
    'Cluster': lambda: Cluster(masters=3, replicas=0),
}


def redis_set(name):
    """Redis servers that belong together, on the cores of the others."""
    kept = os.sched_getaffinity(0)
    rig.on_other_cores()
    try:
        return SETS[name]()
    finally:
        os.sched_setaffinity(0, kept)


def settled(executed):
    """Its value, once the requests that wrk has left behind are through."""
    equal, value = 0, executed()
    while equal < 2:
        time.sleep(0.01)
        value, old = executed(), value
        equal = equal + 1 if value == old else 0
    return value
