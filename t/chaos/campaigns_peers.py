"""Campaigns by those on both sides of nginx: clients and the upstream."""

import asyncio

from campaign import Campaign
from checker import Rules
from workload import Mix


class C9(Campaign):
    name = 'C9'
    title = 'clients leave at any byte'
    stores = ('shm', 'redis', 'sqlite')
    unit = 'left'
    n = 20000
    short = 500
    hunt = 2000
    per_round = 10000
    clients = 48
    sometimes = ('replayed', 'in_progress', 'key_reused')
    mutants = ('abort-cancels', 'get-then-set', 'no-fingerprint')

    def rig_args(self):
        return dict(lease=6)

    def mix(self):
        return Mix(leave=0.75, prefixes=('pay', 'kept'), late=0)

    async def injections(self, n):
        while True:
            await asyncio.sleep(0.1)
            if sum(a.aborted for a in self.load.attempts) >= n:
                return
            if self.task.done():
                self.task.result()


class C10(Campaign):
    name = 'C10'
    title = 'the upstream is slow, cuts its answers, is killed'
    stores = ('shm', 'redis', 'sqlite')
    unit = 'faults'
    n = 2000
    short = 60
    hunt = 300
    per_round = 400
    clients = 24
    sometimes = ('replayed', 'in_progress', 'key_reused', 'outcome_unknown',
                 'nginx 502', 'unknown at last', 'upstream killed',
                 'slower than the lease', 'cut off')
    mutants = ('cut-kept', 'unknown-frees', 'get-then-set', 'no-fingerprint')
    lease = 1

    def rig_args(self):
        return dict(lease=self.lease)

    def mix(self):
        return Mix(pause=0.02,
                   delays=((0, 60), (20, 22), (200, 15), (1300, 3)),
                   sizes=Mix.sizes + ((100 << 20, 0.05),),
                   forms=(('sized', 40), ('chunked', 20), ('cut', 15),
                          ('cutchunked', 12), ('reset', 10), ('flaky', 3)))

    def rules(self):
        return Rules(unknown=True, cuts=True, errors=(502, 503))

    def count(self):
        keys = self.load.keys.values()
        c = self.counts
        c['cut off'] = sum(k.form in ('cut', 'cutchunked', 'reset')
                           for k in keys)
        c['slower than the lease'] = sum(k.ms > self.lease * 1000
                                         for k in keys)
        c[self.unit] = (c['cut off'] + c['slower than the lease']
                        + c['upstream killed'])

    async def injections(self, n):
        while self.counts[self.unit] < n:
            await asyncio.sleep(self.rng.uniform(0.3, 0.8))
            self.rig.upstream.kill()
            self.counts['upstream killed'] += 1
            await asyncio.sleep(self.rng.choice((0, 0.1)))
            self.rig.upstream.start()
            self.count()

    def after(self):
        self.count()
