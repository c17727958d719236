"""Two nginx with many configurations each: with the module, and without it.

    batch = Batch(name, upstreams, module, store)
    await batch.run([(config, lanes), ...]) -> [Case, ...]

Each configuration is a server{} with a name of its own, which is also in all
keys, so that they share nginx, store and upstreams and nothing else.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import time

from gateway import NGINX, alarms, free_port
from .clients import send
from .grammar import TIMEOUT
from .upstreams import GONE

APART = 0.03              # seconds between the first clients of each

MAIN = '''
%(load)s
%(user)s
worker_processes %(workers)d;
error_log ROOT/error.log %(level)s;
pid ROOT/nginx.pid;
events { worker_connections 2048; }
http {
    access_log off;
    uninitialized_variable_warn off;
    server_names_hash_bucket_size 128;
    variables_hash_max_size 2048;
    proxy_headers_hash_max_size 1024;
    client_body_temp_path ROOT/t1;
    proxy_temp_path ROOT/t2;
    fastcgi_temp_path ROOT/t3;
    uwsgi_temp_path ROOT/t4;
    scgi_temp_path ROOT/t5;
    proxy_cache_path ROOT/cache keys_zone=proxy:4m;
    fastcgi_cache_path ROOT/cache2 keys_zone=fastcgi:4m;
    limit_req_zone $server_name zone=req:1m rate=20r/s;
    limit_conn_zone $server_name zone=conn:1m;
    default_type text/plain;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $host;
    proxy_set_header X-Path $via;
    proxy_set_header X-Tried $upstream_addr;
    %(fence)s
    grpc_set_header X-Path $via;
    grpc_set_header X-Tried $upstream_addr;
    fastcgi_param HTTP_X_PATH $via;
    fastcgi_param HTTP_X_TRIED $upstream_addr;
    fastcgi_param REQUEST_METHOD $request_method;
    fastcgi_param REQUEST_URI $uri;
    fastcgi_param CONTENT_LENGTH $content_length;
    uwsgi_param HTTP_X_PATH $via;
    uwsgi_param HTTP_X_TRIED $upstream_addr;
    uwsgi_param REQUEST_METHOD $request_method;
    uwsgi_param REQUEST_URI $uri;
    uwsgi_param CONTENT_LENGTH $content_length;
    scgi_param HTTP_X_PATH $via;
    scgi_param HTTP_X_TRIED $upstream_addr;
    scgi_param REQUEST_METHOD $request_method;
    scgi_param REQUEST_URI $uri;
    scgi_param CONTENT_LENGTH $content_length;
    proxy_read_timeout TIMEOUT;
    fastcgi_read_timeout TIMEOUT;
    uwsgi_read_timeout TIMEOUT;
    scgi_read_timeout TIMEOUT;
    grpc_read_timeout TIMEOUT;
    proxy_connect_timeout 2s;
    %(store)s
    server {
        listen 127.0.0.1:%(port)d default_server;
        listen 127.0.0.1:%(port2)d default_server http2;
        return 404;
    }
'''

FENCE = '''proxy_set_header X-Fence $idempotency_fence;
    grpc_set_header X-Fence $idempotency_fence;
    fastcgi_param HTTP_X_FENCE $idempotency_fence;
    uwsgi_param HTTP_X_FENCE $idempotency_fence;
    scgi_param HTTP_X_FENCE $idempotency_fence;'''


def has_open(config):
    """Whether the reference is not the same each time."""
    return config.unsteady() or config.caches()


class Nginx:
    """One of the two; module: its path, or None for the reference."""

    def __init__(self, root, sockets, module, store, dead):
        self.root = root
        self.sockets = sockets
        self.module = module
        self.store = store
        self.dead = dead
        self.ports = free_port(), free_port()
        self.process = None
        self.folders()

    def folders(self):
        shutil.rmtree(self.root, ignore_errors=True)
        for name in ('html/dir', 'dav', 'logs'):
            os.makedirs(self.root + '/' + name)
        with open(self.root + '/html/dir/index.php', 'w') as f:
            f.write('a file\n')
        with open(self.root + '/users', 'w') as f:
            f.write(''.join('%s:{PLAIN}right\n' % user
                            for user in ('ann', 'bob', 'eve')))

    def write(self, configs, http, hosts):
        """Returns the first line number of each configuration."""
        text = MAIN % dict(
            load='load_module %s;' % self.module if self.module else '',
            user='user root;' if os.getuid() == 0 else '',
            workers=2 if self.module else 1,
            level='notice' if self.module else 'error',
            fence=FENCE if self.module else '',
            store='idempotency_store main %s;\n    idempotency_log_level '
            'info;\n    %s' % (self.store, '\n    '.join(http))
            if self.module else '',
            port=self.ports[0], port2=self.ports[1])
        text = text.replace('TIMEOUT', TIMEOUT)
        starts = []
        for config, host in zip(configs, hosts):
            starts.append(text.count('\n') + 1)
            text += config.render(host, bool(self.module)) + '\n'
            if not self.module and has_open(config):
                text += config.render(host + '-open', False, True) + '\n'
        for word, value in (
                ('LISTEN2', '127.0.0.1:%d http2' % self.ports[1]),
                ('LISTEN', '127.0.0.1:%d' % self.ports[0]),
                ('ROOT', self.root), ('SOCK', self.sockets),
                ('DEAD', '127.0.0.1:%d' % self.dead),
                ('GONE', '%s:%d' % (GONE, self.dead))):
            text = text.replace(word, value)
        text += '}\n'
        with open(self.root + '/nginx.conf', 'w') as f:
            f.write(text)
        return starts

    def command(self, *args):
        return subprocess.run(
            [NGINX, '-p', self.root, '-c', self.root + '/nginx.conf', *args],
            capture_output=True, text=True)

    async def start(self):
        done = await asyncio.to_thread(self.command)
        if done.returncode:
            raise RuntimeError('nginx does not start: ' + done.stderr)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                _, writer = await asyncio.open_connection('127.0.0.1',
                                                          self.ports[0])
                writer.close()
                return
            except OSError:
                await asyncio.sleep(0.02)

    def end(self):
        try:
            with open(self.root + '/nginx.pid') as f:
                os.kill(int(f.read()), signal.SIGTERM)
        except (OSError, ValueError):
            pass

    async def ended(self):
        for _ in range(500):
            if not os.path.exists(self.root + '/nginx.pid'):
                return
            await asyncio.sleep(0.01)

    def log(self):
        try:
            with open(self.root + '/error.log', errors='replace') as f:
                return f.read()
        except OSError:
            return ''

    def alarms(self):
        return alarms(self.log())


class Case:
    """A configuration, what was done to it, and what became of that."""

    def __init__(self, config, lanes):
        self.config = config
        self.lanes = lanes
        self.host = None
        self.refused = None       # nginx -t, in its own words
        self.module = []          # outcomes, a list for each lane
        self.plain = []           # of the reference
        self.open = []            # of the reference, open to all
        self.alarms = []
        self.stalled = False      # the upstreams were slow


class Stalls:
    """How long this process stood still, at most; the upstreams did, too."""

    def __init__(self):
        self.longest = 0

    async def watch(self):
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            self.longest = max(self.longest, time.monotonic() - before - 0.05)


class Batch:
    def __init__(self, name, upstreams, module, store):
        self.name = name          # in the names of all servers
        self.upstreams = upstreams
        self.dead = free_port()
        root = upstreams.root
        self.module = Nginx(root + '/module', root, module, store, self.dead)
        self.plain = Nginx(root + '/plain', root, None, None, self.dead)
        self.number = 0
        self.clock_jumped = False     # that of this machine, in the last run

    async def run(self, planned):
        """planned: configurations with the same lines of http{}"""
        self.number += 1
        self.upstreams.ledger.clear()
        ahead = time.time() - time.monotonic()
        self.clock_jumped = False
        cases = [Case(*p) for p in planned]
        for n, case in enumerate(cases):
            case.host = '%sb%dc%d' % (self.name, self.number, n)
        for nginx in (self.module, self.plain):
            nginx.folders()
            # in a thread: those who play elsewhere go on
            await asyncio.to_thread(self.refuse, nginx, cases)
        live = [c for c in cases if c.refused is None]
        self.write(self.module, live)
        if not live:
            return cases
        stalls = Stalls()
        watch = asyncio.create_task(stalls.watch())
        try:
            await self.module.start()
            await self.plain.start()
            await asyncio.gather(*(self.play(case, APART * n)
                                   for n, case in enumerate(live)))
        finally:
            watch.cancel()
            self.module.end()
            self.plain.end()
            await self.module.ended()
            await self.plain.ended()
        self.clock_jumped = abs(time.time() - time.monotonic() - ahead) > 1
        self.alarms(live)
        for case in live:
            case.stalled = stalls.longest > 0.25
        by_attempt = self.upstreams.ledger.by_attempt
        for case in live:
            for prefix, lanes in (('m', case.module), ('p', case.plain),
                                  ('o', case.open)):
                host = case.host + ('-open' if prefix == 'o' else '')
                for o in (o for lane in lanes for o in lane):
                    o.executions = by_attempt['%s%s.%d' % (
                        prefix, host, o.attempt.number)]
        return cases

    def write(self, nginx, live):
        return nginx.write([c.config for c in live], live[0].config.http
                           if live else [], [c.host for c in live])

    def refuse(self, nginx, cases):
        """Finds those that nginx or the module does not accept."""
        while True:
            live = [c for c in cases if c.refused is None]
            starts = self.write(nginx, live)
            done = nginx.command('-t')
            if not done.returncode or not live:
                return
            found = re.search(r'\[emerg\].*nginx\.conf:(\d+)', done.stderr)
            if found is None:
                # without a line: one by one
                self.one_by_one(nginx, live)
                continue
            line = int(found.group(1))
            guilty = [c for c, start in zip(live, starts) if start <= line]
            if not guilty:
                raise RuntimeError('nginx -t: ' + done.stderr)
            guilty[-1].refused = done.stderr.strip()

    def one_by_one(self, nginx, live):
        for case in live:
            self.write(nginx, [case])
            done = nginx.command('-t')
            if done.returncode:
                case.refused = done.stderr.strip()
                return
        raise RuntimeError('nginx -t refuses all together, not one alone')

    async def play(self, case, after):
        await asyncio.sleep(after)
        runs = [(self.module, 'm', case.host), (self.plain, 'p', case.host)]
        if has_open(case.config):
            runs.append((self.plain, 'o', case.host + '-open'))
        results = await asyncio.gather(*(
            self.lane(nginx, prefix, host, lane)
            for nginx, prefix, host in runs for lane in case.lanes))
        n = len(case.lanes)
        case.module, case.plain, case.open = (results[:n], results[n:2 * n],
                                              results[2 * n:])

    async def lane(self, nginx, prefix, host, lane):
        outcomes = []
        for step in lane:
            outcomes += await asyncio.gather(*(
                self.attempt(nginx, prefix, host, a) for a in step))
            if any(o.left for o in outcomes):
                await asyncio.sleep(0.02)
        return outcomes

    @staticmethod
    async def attempt(nginx, prefix, host, attempt):
        if attempt.at:
            await asyncio.sleep(attempt.at)
        return await send(attempt, nginx.ports, host, prefix)

    def alarms(self, live):
        """Of the module only, to the server that they name if they do."""
        def form(line):
            return re.sub(r'\d+', 'N', line.partition('] ')[2])
        known = {form(line) for line in self.plain.alarms()}
        for line in self.module.alarms():
            if form(line) in known:
                continue
            found = re.search(r'server: (r\d+b\d+c\d+)', line)
            hit = [c for c in live if found and c.host == found.group(1)]
            for case in hit or live[:1]:
                case.alarms.append(line)
