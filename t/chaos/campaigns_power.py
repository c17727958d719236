"""C20: loss of power.

A run under load, with a reload in it and a quit at its end, is recorded by
t/drive/disk.c.  From the record, files are made as they would be after a loss
of power at every flush boundary and at random moments; see power.py.  Each is
opened and compared with what the upstream and the clients had seen until then.
Some are given to a new nginx, and all clients ask again.

C20d records below a file system, ext4 on a disk by FUSE: t/drive/fusedisk.c.
"""

import asyncio
import atexit
import bisect
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time

from campaign import Campaign
from campaigns_nginx import until
from checker import Rules
from disk import Disk
from history import read_ledger
from power import Recording
from rig import Rig
from workload import Load, Mix

EXECUTING, UNKNOWN, DONE, TOMBSTONE = 2, 3, 4, 5
KEYS = 400                # of a run

DRIVE = os.path.dirname(os.path.abspath(__file__)) + '/../drive'


class C20(Campaign):
    name = 'C20'
    title = 'loss of power, sync=full'
    stores = ('sqlite',)
    unit = 'cuts'
    n = 300               # at random; every flush boundary besides
    short = 20
    hunt = 100
    per_round = 300
    sync = 'full'
    asked = 20            # restored files that a new nginx gets
    first = 0             # record before which there may be a cut
    parts = False, True   # at a boundary nothing is kept, or a random part
    sometimes = ('flush boundaries', 'not synced', 'checkpoints',
                 'executing', 'asked again')
    mutants = ('no-sync', 'grant-before-sync')

    def rig_args(self):
        self.folder = self.rig_root + '/keys'
        os.makedirs(self.folder, mode=0o700)
        self.log_path = self.rig_root + '/disk.log'
        self.disk = Disk(self.folder, self.log_path)
        # what is granted too early has time to be executed
        self.disk.set('delay', 3000)
        return dict(lease=6, env=self.disk.env(),
                    database=self.folder + '/main.db',
                    store_args='sync=' + self.sync)

    def mix(self):
        # all answers are kept, and tell by whom they were executed
        return Mix(leave=0.05, other=0, keyless=0, late=0, keepalive=False,
                   statuses=((200, 30), (201, 60), (402, 10)),
                   forms=(('sized', 70), ('chunked', 30)),
                   delays=((0, 60), (5, 20), (20, 15), (60, 5)),
                   sizes=((0, 10), (40, 50), (400, 30), (6000, 10)),
                   bodies=((30, 90), (900, 10)))

    def rules(self):
        return Rules()

    async def injections(self, n):
        self.random_cuts = n
        keys = KEYS if n > self.short else KEYS // 4
        await until(lambda: len(self.load.keys) >= keys // 2, 120)
        old = set(self.rig.workers())
        self.rig.gw.signal(signal.SIGHUP)
        await until(lambda: len(set(self.rig.workers()) - old) >= 2)
        await until(lambda: len(self.load.keys) >= keys, 120)

    async def leftovers(self, before):
        """All is quiet: the end of the recording, then the cuts."""
        await super().leftovers(before)
        records = self.read(self.folder + '/main.db')
        self.rig.gw.signal(signal.SIGQUIT)
        await until(lambda: not os.path.exists(self.rig.gw.root
                                               + '/nginx.pid'))
        self.key_of = self.keys_by_record(records)
        await self.cuts()

    # who is who: a record has the digest of its key, and the answer tells
    # which execution it is of

    def keys_by_record(self, records):
        effects = {e.effect: e for e in read_ledger(self.rig.root + '/ledger')}
        found = {}
        for digest, (_, effect) in records.items():
            if effect in effects:
                found[digest] = effects[effect].key
        self.executed = sorted((e.t, e.key, e.effect)
                               for e in effects.values())
        missing = ({key for _, key, _ in self.executed}
                   - set(found.values()))
        if missing:
            self.wrong.append(('void', '%d keys are in the ledger and have '
                               'no record' % len(missing)))
        return found

    @staticmethod
    def read(path):
        """{digest: (state, effect of its answer)}"""
        conn = sqlite3.connect(path)
        try:
            if conn.execute('PRAGMA integrity_check').fetchall() != [('ok',)]:
                raise sqlite3.DatabaseError('integrity_check')
            if not conn.execute("SELECT 1 FROM sqlite_master "
                                "WHERE name = 'executing'").fetchall():
                return {}
            rows = conn.execute(
                'SELECT digest, state, head FROM (SELECT * FROM records '
                'UNION ALL SELECT * FROM executing) '
                'LEFT JOIN answers ON id = answer').fetchall()
        finally:
            conn.close()
        return {bytes(digest): (state, effect_of(head))
                for digest, state, head in rows}

    async def cuts(self):
        recording = Recording(self.log_path)
        rng = random.Random('%s cuts' % self.seed)
        boundaries = [at for at in recording.boundaries()
                      if at >= self.first]
        last = len(recording.records)
        plan = sorted(
            [(at, part) for at in boundaries for part in self.parts]
            + [(rng.randint(self.first, last), True)
               for _ in range(self.random_cuts)])
        half = range(len(plan) // 2, len(plan))
        ask = set(rng.sample(half, min(self.ask(), len(half))))
        self.counts['flush boundaries'] += len(boundaries)
        self.counts['random cuts'] += self.random_cuts
        self.counts['checkpoints'] += self.checkpoints(recording)
        base = '/dev/shm' if os.access('/dev/shm', os.W_OK) else self.rig.root
        folder = tempfile.mkdtemp(prefix='power-', dir=base)
        try:
            for number, cut in enumerate(recording.cuts(
                    [at for at, _ in plan])):
                lost = self.restore(cut, folder,
                                    rng if plan[number][1] else None)
                self.counts['not synced'] += lost > 0
                self.counts[self.unit] += 1
                if number in ask:
                    shutil.copytree(folder, '%s/asked' % self.rig.root)
                self.judge(folder + '/main.db', cut.moment)
                if number in ask:
                    await self.ask_again(cut.moment)
                if len(self.wrong) > 20 or self.wrong and number in ask:
                    break
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def restore(self, cut, folder, rng):
        return cut.restore(folder, rng)

    def ask(self):
        return 2 if self.random_cuts <= self.short else self.asked

    @staticmethod
    def checkpoints(recording):
        """Syncs of the database itself."""
        names = {inode: data for _, kind, inode, _, _, data
                 in recording.records if kind == 'O'}
        return sum(kind == 'E' and names.get(inode) == b'main.db'
                   for _, kind, inode, _, _, _ in recording.records)

    def judge(self, path, moment):
        try:
            records = self.read(path) if os.path.exists(path) else {}
        except sqlite3.DatabaseError as e:
            self.wrong.append(('P', 'unreadable after a cut: %s' % e))
            return
        states = {self.key_of[digest]: found
                  for digest, found in records.items()
                  if digest in self.key_of}
        for _, (state, _) in states.items():
            self.counts['executing'] += state == EXECUTING
        until_then = bisect.bisect_left(self.executed, (moment,))
        for t, key, _ in self.executed[:until_then]:
            if states.get(key, (0,))[0] not in (EXECUTING, UNKNOWN, DONE,
                                                TOMBSTONE):
                self.free(key, moment - t)
        self.answers(states, moment)

    def free(self, key, age):
        self.wrong.append(('S1', '%s was executed %.1f ms before a cut, and '
                           'is free after it' % (key, age * 1000)))

    def answers(self, states, moment):
        # an answer that the disk has not taken in time is sent before
        late = self.load.worst > self.rig.args['timeout']
        for a in self.load.attempts:
            if a.kind != 'answer' or a.end >= moment:
                continue
            if states.get(a.key, (0, None)) == (DONE, a.effect):
                continue
            if late:
                self.counts['answers that are unknown'] += 1
            else:
                self.wrong.append(('S6', '%s was answered before a cut, and '
                                   'its answer is not stored' % a.key))

    async def ask_again(self, moment):
        """A new nginx on the restored files, after a boot; clients retry."""
        root = self.rig.root + '/asked'
        path = root + '/main.db'
        if os.path.exists(path):
            conn = sqlite3.connect(path)
            if conn.execute("SELECT 1 FROM sqlite_master "
                            "WHERE name = 'meta'").fetchall():
                conn.execute("UPDATE meta SET value = 'another' "
                             "WHERE name = 'boot_id'")
                conn.commit()
            conn.close()
        done = {key: effect for t, key, effect in self.executed if t < moment}
        answered = {a.key for a in self.load.attempts if a.kind == 'answer'
                    and a.end < moment and not a.replayed}
        again = Rig(self.rig.root + '/again', 'sqlite', database=path,
                    module=self.rig.args['module'], lease=6,
                    store_args='sync=' + self.sync)
        try:
            await again.start()
            load = Load(again.gw.port, self.seed, self.tag, self.mix(), 6)
            keys = [k for name, k in self.load.keys.items() if name in done]
            load.keys = {k.name: k for k in keys}

            async def some():
                while keys:
                    await load.attempt(keys.pop(), 0)

            await asyncio.gather(*[some() for _ in range(8)])
        finally:
            alarms = again.gw.alarms(()) if again.gw else []
            await self.keep_log(again.root, again.gw.log() if again.gw
                                else '')
            await again.stop()
        effects = read_ledger(again.root + '/ledger')
        self.counts['asked again'] += len(load.attempts)
        twice = [e.key for e in effects if e.key in done]
        for key in twice:
            self.again(key)
        for a in load.attempts:
            if a.key in answered and a.effect != done[a.key] \
                    and a.key not in twice:
                self.again_lost(a)
        if alarms:
            self.wrong.append(('L2', 'after a cut: ' + alarms[0]))
        if not self.wrong:
            shutil.rmtree(root)
            shutil.rmtree(again.root)

    def again(self, key):
        self.wrong.append(('S1', '%s was executed before a cut, and again '
                           'after it' % key))

    def again_lost(self, a):
        self.wrong.append(('S6', '%s was answered before a cut, and then: %s'
                           % (a.key, a.code or a.status)))


class C20n(C20):
    """What sync=normal loses is counted; what is left is always whole."""

    name = 'C20n'
    title = 'loss of power, sync=normal'
    sync = 'normal'
    strict = False
    mutants = ()

    def free(self, key, age):
        self.counts['lost keys'] += 1
        self.counts['oldest loss ms'] = max(self.counts['oldest loss ms'],
                                            int(age * 1000))

    def answers(self, states, moment):
        pass

    def again(self, key):
        pass

    def again_lost(self, a):
        pass


class FuseDisk:
    """ext4 on a disk that is recorded; root only."""

    def __init__(self, root, log, delay):
        self.root = root
        self.mounts = []
        for name in ('fuse', 'ext4'):
            os.mkdir('%s/%s' % (root, name))
        program = root + '/fusedisk'
        flags = subprocess.run(['pkg-config', '--cflags', '--libs', 'fuse3'],
                               check=True, capture_output=True, text=True)
        subprocess.run(['cc', '-O1', '-Wall', '-Wextra', '-Werror', '-o',
                        program, DRIVE + '/fusedisk.c',
                        *flags.stdout.split()], check=True)
        with open(root + '/image', 'wb') as f:
            f.truncate(24 << 20)
        subprocess.run(['mkfs.ext4', '-q', '-J', 'size=4', root + '/image'],
                       check=True)
        atexit.register(self.end)
        self.process = subprocess.Popen(
            [program, root + '/image', log, str(delay), root + '/fuse'],
            stdin=subprocess.DEVNULL)
        self.mounts.append(root + '/fuse')
        end = time.monotonic() + 10
        while not os.path.exists(root + '/fuse/disk'):
            if time.monotonic() > end:
                raise OSError('FUSE does not mount')
            time.sleep(0.02)
        mount(root + '/fuse/disk', root + '/ext4')
        self.mounts.append(root + '/ext4')

    def end(self):
        while self.mounts:
            subprocess.run(['umount', self.mounts.pop()])
        self.process.wait(20)
        atexit.unregister(self.end)


def mount(file, folder):
    subprocess.run(['mount', '-o', 'loop', file, folder], check=True,
                   capture_output=True)


class C20d(C20):
    name = 'C20d'
    title = 'loss of power below ext4, sync=full'
    sometimes = ('flush boundaries', 'not synced', 'executing', 'asked again')
    first = 7             # the image itself is there
    parts = (False,)
    needs = 'root, FUSE and loop devices'

    @classmethod
    def possible(cls):
        return (os.getuid() == 0 and os.path.exists('/dev/fuse')
                and os.path.exists('/dev/loop-control')
                and subprocess.run(['pkg-config', '--exists', 'fuse3']
                                   ).returncode == 0)

    def rig_args(self):
        os.makedirs(self.rig_root)
        self.log_path = self.rig_root + '/disk.log'
        self.fuse = FuseDisk(self.rig_root, self.log_path, 3000)
        self.folder = self.rig_root + '/ext4/keys'
        return dict(lease=6, database=self.folder + '/main.db',
                    store_args='sync=' + self.sync)

    def restore(self, cut, folder, rng):
        lost = cut.restore(folder, rng)
        place = self.rig_root + '/restored'
        os.makedirs(place, exist_ok=True)
        try:
            mount(folder + '/disk', place)
        except subprocess.CalledProcessError as e:
            self.wrong.append(('P', 'ext4 is not mounted after a cut: %s'
                               % e.stderr.decode()))
            return lost
        try:
            for name in ('main.db', 'main.db-wal'):
                path = '%s/keys/%s' % (place, name)
                if os.path.exists(path):
                    shutil.copy(path, folder)
        finally:
            subprocess.run(['umount', place], check=True)
        os.unlink(folder + '/disk')
        return lost

    def after(self):
        self.fuse.end()


def effect_of(head):
    found = re.search(rb'[0-9a-f]+\.[0-9]+', bytes(head or b''))
    return found and found.group().decode()
