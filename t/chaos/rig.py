"""Everything that a round needs: nginx, the upstream, and Redis perhaps.

    rig = Rig(root, 'redis', module=..., proxied=True)
    await rig.start()
    ... rig.gw, rig.redis, rig.proxy, rig.upstream ...
    rig.stop()

The stores, "shm", "redis" and "sqlite", see the same locations: /pay/ holds what is
unknown, /again/ tries it again, /kept/ ignores that its client leaves.
"""

import asyncio
import atexit
import os
import re
import shutil
import subprocess
import sys
import time

from gateway import Gateway, alarms, free_port
from proxy import Proxy
from redis_process import Redis
from workload import MAX_RESPONSE

HERE = os.path.dirname(os.path.abspath(__file__))
KEEPALIVE = 8             # connections of a worker to the upstream

LOCATIONS = '''
        location /pay/ { idempotency main; proxy_pass http://up; }
        location /again/ {
            idempotency main;
            idempotency_unknown retry;
            proxy_pass http://up;
        }
        location /kept/ {
            idempotency main;
            proxy_ignore_client_abort on;
            proxy_pass http://up;
        }
        location = /health { return 200; }
'''

HTTP = '''
    idempotency_lease %(lease)gs;
    idempotency_max_response %(max)d;
    idempotency_log_level info;
    keepalive_requests 100000000;
    %(more)s
'''


class Upstream:
    """The process of the counting upstream."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.port = free_port()
        self.process = None
        self.start()

    def start(self):
        # it ends with this process, however that ends
        self.process = subprocess.Popen(
            [sys.executable, '-B', HERE + '/upstream.py', str(self.port),
             self.ledger], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


class Nginx(Gateway):
    """The gateway of the other drivers, without their TAP."""

    def stop(self):
        if self.root is None:
            return
        self.end()
        atexit.unregister(self.stop)
        shutil.rmtree(self.root, ignore_errors=True)
        self.root = None

    def alarms(self, expected):
        """What nobody wants to read in a log."""
        return alarms(self.log(), expected)


class Rig:
    def __init__(self, root, store, module=None, lease=2, timeout=5,
                 redis=(), proxied=False, seed=0, http='', main='', env=None,
                 size='256m', connections=1, store_args='', servers=None,
                 database=None):
        os.makedirs(root, exist_ok=True)
        self.root = root
        self.store = store
        self.args = dict(module=module, lease=lease, timeout=timeout,
                         proxied=proxied, seed=seed, http=http, main=main,
                         env=env, size=size, connections=connections,
                         store_args=store_args, redis=redis, servers=servers,
                         database=database or root + '/keys/main.db')
        self.set = None           # Redis servers that belong together
        self.gw = self.redis = self.proxy = self.upstream = None

    async def start(self):
        a = self.args
        self.upstream = Upstream(self.root + '/ledger')
        target = 'shm:' + a['size']
        if self.store == 'sqlite':
            target = 'sqlite:%s timeout=%dms %s' % (
                a['database'], a['timeout'] * 1000, a['store_args'])
        if self.store == 'redis' and a['servers']:
            self.set = a['servers']()
            target = '%s timeout=%dms %s' % (
                self.set.url, a['timeout'] * 1000, a['store_args'])
        elif self.store == 'redis':
            self.redis = Redis(self.root + '/redis', *a['redis'])
            port = self.redis.port
            if a['proxied']:
                self.proxy = Proxy(('127.0.0.1', port), a['seed'])
                await self.proxy.start()
                port = self.proxy.port
            target = ('redis://127.0.0.1:%d timeout=%dms connections=%d %s'
                      % (port, a['timeout'] * 1000, a['connections'],
                         a['store_args']))
        self.gw = Nginx(
            self.upstream, locations=LOCATIONS, workers=2, level='notice',
            store=target, main=a['main'], module=a['module'], env=a['env'],
            http=HTTP % dict(lease=a['lease'], max=MAX_RESPONSE,
                             more=a['http'] + getattr(self.set, 'http', '')))
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                _, writer = await asyncio.open_connection(
                    '127.0.0.1', self.upstream.port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.02)
        # their connections to Redis, too, are what they always have
        while len(self.usage()) < 2 and time.monotonic() < end:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        self.quiet = self.usage()

    def workers(self):
        """pids; quicker than ps"""
        pids = []
        try:
            with open('/proc/%d/task/%d/children' % ((self.gw.pid(),) * 2)
                      ) as f:
                children = f.read().split()
        except (OSError, ValueError):
            return []
        for pid in children:
            try:
                with open('/proc/%s/cmdline' % pid) as f:
                    if 'worker process' in f.read():
                        pids.append(int(pid))
            except OSError:
                pass
        return pids

    def usage(self):
        """{pid: (descriptors, kB of memory that is not shared)}"""
        found = {}
        for pid in self.workers():
            try:
                with open('/proc/%d/status' % pid) as f:
                    rss = int(re.search(r'RssAnon:\s+(\d+)', f.read())
                              .group(1))
                found[pid] = len(os.listdir('/proc/%d/fd' % pid)), rss
            except (OSError, AttributeError):
                pass
        return found

    async def leftovers(self, timeout=15):
        """Descriptors that stay when all clients are gone, as a text."""
        most = max((n for n, _ in self.quiet.values()), default=0) \
            + KEEPALIVE + 2
        end = time.monotonic() + timeout
        while True:
            usage = self.usage()
            if usage and all(n <= most for n, _ in usage.values()):
                return None
            if time.monotonic() > end:
                return ('descriptors of the workers: %r, %d at most when all '
                        'is quiet' % ([n for n, _ in usage.values()], most))
            await asyncio.sleep(0.1)

    async def stop(self):
        if self.gw:
            self.gw.stop()
        if self.proxy:
            await self.proxy.stop()
        if self.set:
            self.set.stop()
        if self.redis:
            self.redis.end()
        if self.upstream:
            self.upstream.kill()
