"""Campaigns against nginx: nothing at all, kills, pauses, reloads, clocks."""

import asyncio
import os
import shutil
import signal
import time

from campaign import Campaign
from checker import Rules
from gateway import NGINX
from workload import Mix

MOMENTS = ('after_claim', 'before_forward', 'after_header', 'before_complete',
           'after_complete')


async def until(condition, timeout=20, step=0.01):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(step)
    return True


class C0(Campaign):
    name = 'C0'
    title = 'nothing: the promise under load'
    unit = 'attempts'
    n = 1000000
    short = 5000
    hunt = 10000
    per_round = 100000
    clients = 80
    share = 0.1
    sometimes = ('replayed', 'in_progress', 'key_reused', 'key_missing',
                 'response_not_kept', 'outcome_unknown', 'retryable', 'left')
    mutants = ('get-then-set', 'no-fingerprint')

    def rig_args(self):
        return dict(lease=6)

    async def injections(self, n):
        self.load.limit = n
        await self.task


class C7(Campaign):
    name = 'C7'
    title = 'a worker is killed, at random and at each moment'
    stores = ('shm', 'redis', 'sqlite')
    n = 550
    short = 14
    per_round = 55
    sometimes = ('replayed', 'in_progress', 'outcome_unknown', 'broken off',
                 'unknown at last') + MOMENTS
    mutants = ('lease-frees', 'get-then-set', 'no-fingerprint')
    expected = ('exited on signal 9', 'was locked by',
                'was rebuilt after a process died')
    lease = 1

    def rig_args(self):
        return dict(lease=self.lease)

    def mix(self):
        return Mix(pause=0.03)

    def rules(self):
        # 503: a lease of a second, and a machine with other things to do
        return Rules(unknown=True, lost=True, errors=(503,))

    async def inject(self):
        # at random and at the moments, 300 to 5 times 50
        i = self.counts[self.unit] % 11
        await asyncio.sleep(self.rng.uniform(0.02, 0.2))
        if i < 6:
            return self.kill()
        moment = MOMENTS[i - 6]
        text = 'failpoint "%s:kill"' % moment
        before = self.rig.gw.log().count(text)
        self.load.fails = [moment + ':kill']
        if not await until(lambda: not self.load.fails, 5) \
                or not await until(lambda: self.rig.gw.log().count(text)
                                   > before, 1):
            return False      # its claim was not granted: another time
        self.counts[moment] += 1
        return True

    def kill(self):
        workers = self.rig.workers()
        if not workers:
            return False
        try:
            os.kill(self.rng.choice(workers), signal.SIGKILL)
        except OSError:
            return False
        return True

    async def heal(self):
        await until(lambda: len(self.rig.workers()) == 2)
        await asyncio.sleep(self.lease)


class C7p(Campaign):
    """A worker that sleeps and then goes on as if nothing had happened."""

    name = 'C7p'
    title = 'a worker is paused beyond its leases'
    n = 300
    short = 3
    per_round = 30
    clients = 20
    sometimes = ('replayed', 'in_progress', 'outcome_unknown',
                 'late completion refused')
    mutants = ('owner-off', 'lease-frees', 'no-fingerprint')
    lease = 1

    def rig_args(self):
        return dict(lease=self.lease)

    def mix(self):
        # 502 is unknown, too, and would be executed again by every attempt
        return Mix(pause=0.02, prefixes=('pay', 'again'), hedge=0.2,
                   keepalive=False, delays=((0, 50), (20, 25), (100, 25)),
                   statuses=[s for s in Mix.statuses if s[0] != 502])

    def rules(self):
        # 503: the lease was over before anything was sent
        return Rules(unknown=True, errors=(503,), again=('again',))

    async def inject(self):
        workers = self.rig.workers()
        if len(workers) < 2:
            return False
        pid = self.rng.choice(workers)
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(self.lease * self.rng.uniform(0.9, 1.8))
        os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(self.rng.uniform(0.05, 0.2))
        return True


class C8(Campaign):
    name = 'C8'
    title = 'reload under load'
    stores = ('shm', 'redis', 'sqlite')
    n = 300
    short = 5
    per_round = 50
    sometimes = ('replayed', 'in_progress', 'key_reused', 'wrong file')
    mutants = ('get-then-set', 'no-fingerprint')
    expected = ('no_such_directive',)

    def rig_args(self):
        return dict(lease=6)

    def mix(self):
        # an idle connection may be closed as its next request is sent
        return Mix(pause=0.02, keepalive=False)

    async def inject(self):
        gw = self.rig.gw
        old = set(self.rig.workers())
        if self.counts[self.unit] % 10 == 3:
            new = self.new
            before = gw.log().count('no_such_directive')
            gw.write(default='no_such_directive on;')
            gw.signal(signal.SIGHUP)
            await until(lambda: gw.log().count('no_such_directive') > before)
            gw.write(default='')
            self.counts['wrong file'] += 1
            if not new <= set(self.rig.workers()):
                self.wrong.append(('L2', 'a wrong file ended workers'))
            return True
        gw.signal(signal.SIGHUP)
        if not await until(lambda: len(set(self.rig.workers()) - old) >= 2):
            self.wrong.append(('L2', 'a reload has not come'))
        self.new = set(self.rig.workers()) - old
        await asyncio.sleep(self.rng.uniform(0.05, 0.4))
        return True

    async def heal(self):
        if not await until(lambda: len(self.rig.workers()) == 2, 30):
            self.wrong.append(('L2', 'old workers have not ended'))


class C8u(C8):
    name = 'C8u'
    title = 'binary upgrade under load'
    stores = ('redis', 'sqlite')
    n = 20
    short = 1
    per_round = 10
    sometimes = ('replayed', 'in_progress')
    expected = ()

    async def inject(self):
        gw = self.rig.gw
        old, workers = gw.pid(), set(self.rig.workers())
        gw.signal(signal.SIGUSR2)
        if not await until(lambda: self.new_master(old)
                           and len(self.rig.workers()) == 2):
            self.wrong.append(('L2', 'no new process has come'))
            return True
        await asyncio.sleep(self.rng.uniform(0, 0.3))
        os.kill(old, signal.SIGWINCH)
        if not await until(lambda: not any(map(alive, workers)), 30):
            self.wrong.append(('L2', 'old workers have not ended'))
        os.kill(old, signal.SIGQUIT)
        await until(lambda: not alive(old))
        await until(lambda: not os.path.exists(gw.root + '/nginx.pid.oldbin'))
        await asyncio.sleep(self.rng.uniform(0, 0.3))
        return True

    def new_master(self, old):
        try:
            return self.rig.gw.pid() != old
        except (OSError, ValueError):
            return False


class C8a(C8):
    """Debian's own script, on an nginx of ours: its copy reads our file."""

    name = 'C8a'
    title = 'what apt-get install --reinstall nginx runs: upgrade, restart'
    stores = ('sqlite',)
    n = 20
    short = 2
    per_round = 10
    sometimes = ('replayed', 'in_progress', 'upgrade', 'restart')
    expected = ()
    script = '/etc/init.d/nginx'
    needs = 'root and Debian\'s /etc/init.d/nginx'

    @classmethod
    def possible(cls):
        return os.getuid() == 0 and os.path.exists(cls.script) \
            and shutil.which('start-stop-daemon') is not None

    def rules(self):
        # nobody listens while nginx is restarted
        return Rules(lost=True)

    async def inject(self):
        gw = self.rig.gw
        what = ('upgrade', 'restart')[self.counts[self.unit] % 2]
        with open(self.script) as f:
            text = f.read().replace('/etc/nginx/nginx.conf',
                                    gw.root + '/nginx.conf')
        text = text.replace('DAEMON=/usr/sbin/nginx',
                            'DAEMON=%s\nDAEMON_OPTS="-p %s -c %s/nginx.conf"'
                            % (NGINX, gw.root, gw.root))
        with open(gw.root + '/init', 'w') as f:
            f.write(text)
        old = gw.pid()
        done = await asyncio.create_subprocess_exec(
            'sh', gw.root + '/init', what, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT)
        out, _ = await done.communicate()
        if done.returncode:
            self.wrong.append(('L1', '%s: %s' % (what, out.decode())))
        if not await until(lambda: not alive(old), 40) or gw.pid() == old:
            self.wrong.append(('L2', what + ': the old nginx is there'))
        self.counts[what] += 1
        await asyncio.sleep(self.rng.uniform(0.2, 0.6))
        return True


class C8e(C8u):
    """The embedded store begins anew with the new process."""

    name = 'C8e'
    title = 'binary upgrade under load, embedded store'
    stores = ('shm',)
    strict = False
    mutants = ()

    def __init__(self, *args):
        super().__init__(*args)
        self.moments = []

    async def inject(self):
        # from USR2 on there are two stores, until the old workers are gone
        begin = time.monotonic()
        await super().inject()
        while begin < time.monotonic():
            self.moments.append(begin)
            begin += 0.001
        return True

    def rules(self):
        return Rules(forgets=self.moments)


def alive(pid):
    """Also as long as a thread of it waits for the disk."""
    try:
        with open('/proc/%d/stat' % pid) as f:
            return (f.read().rpartition(')')[2].split()[0] != 'Z'
                    or len(os.listdir('/proc/%d/task' % pid)) > 1)
    except OSError:
        return False


class C12(Campaign):
    name = 'C12'
    title = 'the clock of nginx jumps by an hour'
    stores = ('shm', 'redis', 'sqlite')
    n = 100
    short = 4
    hunt = 100
    per_round = 50
    sometimes = ('replayed', 'in_progress', 'key_reused')
    mutants = ('wall-clock', 'get-then-set', 'no-fingerprint')
    lib = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1'
    names = ('LD_PRELOAD', 'FAKETIME_TIMESTAMP_FILE', 'FAKETIME_NO_CACHE',
             'FAKETIME_DONT_FAKE_MONOTONIC')

    def rig_args(self):
        self.file = '/tmp/chaos-clock-%d' % os.getpid()
        self.set(0)
        values = self.lib, self.file, '1', '1'
        return dict(lease=6, env=dict(os.environ, **dict(zip(self.names,
                                                             values))),
                    main=''.join('env %s;\n' % name for name in self.names))

    def set(self, seconds):
        with open(self.file + '.new', 'w') as f:
            f.write('%+d\n' % seconds)
        os.rename(self.file + '.new', self.file)
        self.now = seconds

    def mix(self):
        return Mix(pause=0.02, delays=((0, 40), (20, 20), (60, 20),
                                       (400, 20)))

    def rules(self):
        # leases go by the clock of the machine there: a jump ends them
        return Rules(unknown=self.store == 'sqlite')

    async def inject(self):
        self.set({0: self.rng.choice((3600, -3600))}.get(self.now, 0))
        await asyncio.sleep(self.rng.uniform(0.1, 0.5))
        return True

    async def heal(self):
        self.set(0)

    def after(self):
        os.unlink(self.file)
