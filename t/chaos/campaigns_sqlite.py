"""SQLite: everything is killed, the disk is full or stalls.  C20, loss of
power, is in campaigns_power.py.
"""

import asyncio
import atexit
import json
import os
import signal
import subprocess
import time
import urllib.request

from campaign import Campaign
from campaigns_nginx import alive, until
from checker import Rules
from disk import Disk
from gateway import free_port
from workload import Mix


class C19(Campaign):
    name = 'C19'
    title = 'everything is killed, master and workers'
    stores = ('sqlite',)
    n = 500
    short = 8
    hunt = 60
    per_round = 50
    sometimes = ('replayed', 'in_progress', 'outcome_unknown', 'broken off',
                 'unknown at last')
    mutants = ('lease-frees', 'get-then-set', 'no-fingerprint')
    lease = 1

    def rig_args(self):
        return dict(lease=self.lease)

    def mix(self):
        return Mix(pause=0.03, keepalive=False)

    def rules(self):
        # 503: a lease of a second, and a machine with other things to do
        return Rules(unknown=True, lost=True, errors=(503,))

    async def inject(self):
        await asyncio.sleep(self.rng.uniform(0.02, 0.4))
        if not await self.kill():
            return False
        done = await asyncio.get_running_loop().run_in_executor(
            None, self.rig.gw.command)
        if done.returncode:
            self.wrong.append(('L1', 'nginx does not start: ' + done.stderr))
            return True
        await until(lambda: len(self.rig.workers()) == 2)
        return True

    async def kill(self):
        # a master that is stopped makes no worker between the two looks
        gw = self.rig.gw
        try:
            master = gw.pid()
            os.kill(master, signal.SIGSTOP)
            with open('/proc/%d/task/%d/children' % (master, master)) as f:
                pids = [master] + [int(pid) for pid in f.read().split()]
        except (OSError, ValueError):
            return False
        self.rng.shuffle(pids)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(map(alive, pids)))
        os.unlink(gw.root + '/nginx.pid')
        return True

    async def heal(self):
        await until(lambda: len(self.rig.workers()) == 2)
        await asyncio.sleep(self.lease)


class SmallDisk:
    """A small file system where root may mount one, but larger than a WAL may
    become; else files that cannot grow.
    """

    def __init__(self, folder, disk):
        self.folder, self.disk = folder, disk
        self.mounted = os.getuid() == 0 and subprocess.run(
            ['mount', '-t', 'tmpfs', '-o', 'size=96m,mode=700', 'none',
             folder], capture_output=True).returncode == 0
        atexit.register(self.end)

    def fill(self):
        if not self.mounted:
            self.disk.set('full', 1)
            return
        with open(self.folder + '/filler', 'ab', buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass

    def room(self):
        self.disk.set('full', 0)
        if os.path.exists(self.folder + '/filler'):
            os.unlink(self.folder + '/filler')

    def end(self):
        if self.mounted:
            subprocess.run(['umount', '-l', self.folder])
            self.mounted = False
        atexit.unregister(self.end)


class C21(Campaign):
    name = 'C21'
    title = 'the disk is full, or stalls'
    stores = ('sqlite',)
    n = 200
    short = 6
    hunt = 20
    per_round = 40
    sometimes = ('replayed', 'in_progress', 'store_unavailable', 'full',
                 'stalled', 'state full', 'state timeout')
    mutants = ('fail-open', 'get-then-set', 'no-fingerprint')
    expected = ('the disk is full', 'disk I/O error', 'cannot be opened',
                'No space left')
    lease = 6
    timeout = 0.5

    def rig_args(self):
        self.folder = self.rig_root + '/disk'
        os.makedirs(self.folder, mode=0o700)
        self.disk = Disk(self.folder)
        self.small = SmallDisk(self.folder, self.disk)
        self.port = free_port()
        return dict(lease=self.lease, timeout=self.timeout,
                    database=self.folder + '/main.db', env=self.disk.env(),
                    http='''
    server {
        listen 127.0.0.1:%d;
        location / { idempotency_stats; }
    }''' % self.port)

    def mix(self):
        return Mix(pause=0.02, keepalive=False)

    def rules(self):
        return Rules(unavailable=True, unknown=True, late=True, errors=(503,))

    async def inject(self):
        rng = self.rng
        await asyncio.sleep(rng.uniform(0.1, 0.4))
        what = ('full', 'stalled')[self.counts[self.unit] % 2]
        if what == 'full':
            self.small.fill()
        else:
            self.disk.set('stall', 1)
        await asyncio.sleep(rng.choice((0.05, 0.3, self.timeout * 1.5, 1.5)))
        await self.other_request()
        self.counts['state ' + self.state()] += 1
        if what == 'full':
            self.small.room()
        else:
            self.disk.set('stall', 0)
        self.counts[what] += 1
        return True

    async def other_request(self):
        """A worker is never blocked, whatever its disk does."""
        begin = time.monotonic()
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(
                '127.0.0.1', self.rig.gw.port), 5)
            writer.write(b'GET /health HTTP/1.0\r\n\r\n')
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        except (OSError, asyncio.TimeoutError) as e:
            self.wrong.append(('L2', 'a request without a key: %r' % e))
        took = int((time.monotonic() - begin) * 1000)
        self.counts['other request ms'] = max(
            self.counts['other request ms'], took)

    def state(self):
        with urllib.request.urlopen('http://127.0.0.1:%d/?format=json'
                                    % self.port) as f:
            return json.load(f)['stores'][0]['state']

    async def heal(self):
        self.small.room()
        self.disk.set('stall', 0)
        # nothing waits in the background, and new keys are taken
        if not await until(lambda: self.state() in ('ok', 'nearly_full'), 15,
                           0.1):
            self.wrong.append(('L2', 'the store is ' + self.state()))

    def after(self):
        self.small.end()
        if 'become unknown' in self.log:
            self.wrong.append(('L1', 'outcomes were given up'))
