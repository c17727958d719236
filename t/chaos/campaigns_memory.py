"""C13: nginx runs out of memory, and out of descriptors.

One allocation fails at a time, by malloc.c: the first after a moment, the
second, and so on.  A request may be refused with 500 or without any answer;
what is executed is executed once, and no worker dies.
"""

import asyncio
import mmap
import os
import struct
import subprocess

from campaign import KEPT, Campaign
from campaigns_nginx import until
from checker import Rules
from gateway import TOP
from workload import Mix

HERE = os.path.dirname(os.path.abspath(__file__))


def shim():
    """build/chaos/malloc.so"""
    source, target = HERE + '/malloc.c', TOP + '/build/chaos/malloc.so'
    if not os.path.exists(target) \
            or os.path.getmtime(target) < os.path.getmtime(source):
        os.makedirs(KEPT, exist_ok=True)
        new = '%s.%d' % (target, os.getpid())
        subprocess.run(['cc', '-O2', '-Wall', '-Wextra', '-Werror', '-fPIC',
                        '-shared', '-o', new, source], check=True)
        os.rename(new, target)
    return target


class C13(Campaign):
    name = 'C13'
    title = 'an allocation of nginx fails'
    stores = ('shm', 'redis', 'sqlite')
    n = 1500
    short = 60
    hunt = 300
    per_round = 500
    clients = 12
    sometimes = ('replayed', 'in_progress', 'key_reused', 'failed')
    # what nginx itself says when it gets nothing
    expected = ('malloc(', 'posix_memalign(', 'calloc(', 'SSL',
                'could not allocate', 'Cannot allocate memory',
                'SQLite: out of memory')

    def rig_args(self):
        self.file = '%s/malloc-%d' % (KEPT, os.getpid())
        os.makedirs(KEPT, exist_ok=True)
        with open(self.file, 'wb') as f:
            f.write(bytes(16))
        with open(self.file, 'r+b') as f:
            self.map = mmap.mmap(f.fileno(), 16)
        return dict(lease=1, timeout=2, env=dict(
            os.environ, LD_PRELOAD=shim(), CHAOS_MALLOC=self.file))

    def mix(self):
        return Mix(pause=0.01, keepalive=False)

    def rules(self):
        # what the store could not be told at once is copied, or told without;
        # nginx leaves out a header whose value it has no memory for, also
        # that of Content-Length: ngx_http_script_copy_var_len_code()
        return Rules(unknown=True, lost=True, unavailable=True, late=True,
                     unkept=True, bare=True, errors=(500, 502, 503))

    def failed(self):
        return struct.unpack('qq', self.map[:])[1]

    async def inject(self):
        # the n-th from now, whoever it hits: the load has all the paths
        n = 1 + self.counts[self.unit] % 500
        before = self.failed()
        self.map[0:8] = struct.pack('q', n)
        if not await until(lambda: self.failed() > before, 10, 0.002):
            return False
        self.counts['failed'] += 1
        return True

    async def heal(self):
        self.map[0:8] = struct.pack('q', 0)
        await asyncio.sleep(1)

    async def leftovers(self, before):
        await super().leftovers(before)
        if set(self.rig.usage()) != set(self.rig.quiet):
            self.wrong.append(('L2', 'a worker has died'))

    def after(self):
        os.unlink(self.file)


class C13f(Campaign):
    name = 'C13f'
    title = 'nginx runs out of descriptors'
    unit = 'times'
    n = 100
    short = 3
    hunt = 20
    per_round = 50
    clients = 8
    sometimes = ('replayed', 'in_progress', 'key_reused', 'too many')
    expected = ('Too many open files', 'worker_connections are not enough',
                '(24:')

    def rig_args(self):
        return dict(lease=1, timeout=2,
                    main='worker_rlimit_nofile 40;')

    def mix(self):
        return Mix(pause=0.01, keepalive=False)

    def rules(self):
        return Rules(unknown=True, lost=True, unavailable=True, late=True,
                     errors=(500, 502, 503))

    async def inject(self):
        """A crowd comes, and leaves."""
        crowd = []
        for _ in range(100):
            try:
                crowd.append(await asyncio.wait_for(asyncio.open_connection(
                    '127.0.0.1', self.rig.gw.port), 1))
            except (OSError, asyncio.TimeoutError):
                break
        await asyncio.sleep(self.rng.uniform(0.05, 0.3))
        for _, writer in crowd:
            writer.close()
        await asyncio.sleep(self.rng.uniform(0.05, 0.3))
        return True

    async def heal(self):
        await asyncio.sleep(1)

    def after(self):
        self.counts['too many'] += self.log.count('Too many open files')
