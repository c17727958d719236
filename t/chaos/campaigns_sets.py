"""Campaigns against Redis servers that belong together."""

import asyncio
import time

from campaigns_redis import RedisCampaign, TIMEOUT
from checker import Rules
from redisset import Cluster, Sentinels
from workload import Key, Mix


class SetCampaign(RedisCampaign):
    per_round = 10
    short = 0
    clients = 12
    sometimes = ('replayed', 'in_progress', 'store_unavailable')
    expected = ('keys may be forgotten',)
    mutants = ('no-wait', 'get-then-set', 'no-fingerprint')
    hunt = 20
    servers = None
    store_args = ''

    def rig_args(self):
        return dict(lease=self.lease, timeout=TIMEOUT, servers=self.servers,
                    store_args=self.store_args)

    def rules(self):
        # an answer that too few replicas had is lost with the master
        return Rules(unavailable=True, late=True, errors=(503,),
                     unknown=True)

    async def elsewhere(self, function, *args):
        return await asyncio.get_running_loop().run_in_executor(
            None, function, *args)

    async def heal(self):
        await self.elsewhere(self.rig.set.heal)


class C4(SetCampaign):
    name = 'C4'
    title = 'the master of sentinels is killed, replicas=2'
    n = 100
    servers = Sentinels
    store_args = 'replicas=2 amnesia=500ms'

    def killed(self):
        pass

    async def inject(self):
        _, over = await self.elsewhere(self.rig.set.crash, self.killed)
        healed = await self.elsewhere(self.rig.set.heal)
        await asyncio.sleep(self.rng.uniform(0.2, 1))
        return over and healed


def patient():
    """sentinels that see no master down but those which are killed"""
    return Sentinels(down_after=2000)


class C4n(C4):
    """Without acknowledgement: the losses are counted."""

    name = 'C4n'
    title = 'the master of sentinels is killed, no replicas='
    servers = staticmethod(patient)
    strict = False
    mutants = ()
    store_args = 'amnesia=0'

    def __init__(self, *args):
        super().__init__(*args)
        self.moments = []

    def killed(self):
        self.moments.append(time.monotonic())

    def rules(self):
        return Rules(unavailable=True, late=True, errors=(503,),
                     unknown=True, forgets=self.moments)


class C5(SetCampaign):
    name = 'C5'
    title = 'slots of a cluster move, and masters are killed, replicas=1'
    n = 100
    servers = Cluster
    # too few masters are killed here to need replicas: see C4
    mutants = ('get-then-set', 'no-fingerprint')
    store_args = 'replicas=1 amnesia=500ms'

    async def inject(self):
        cluster = self.rig.set
        if self.counts[self.unit] % 5 == 4:
            _, over = await self.elsewhere(cluster.crash)
            return over and await self.elsewhere(cluster.heal)
        masters = await self.elsewhere(cluster.masters)
        a, b = self.rng.sample(masters, 2)
        moved = await self.elsewhere(cluster.move, 500, a, b)
        return moved.returncode == 0


class C18(SetCampaign):
    """New keys of the masters that live are accepted all the time."""

    name = 'C18'
    title = 'a master of a cluster is killed: keys of the others go on'
    n = 100
    hunt = 8
    servers = staticmethod(lambda: Cluster(
        options=('--cluster-require-full-coverage', 'no')))
    store_args = 'replicas=1 amnesia=4s'
    sometimes = SetCampaign.sometimes + ('losses', 'accepted meanwhile')
    mutants = ('amnesia-everywhere', 'get-then-set')
    longest = 2.0             # seconds without an accepted new key
    every = 0.03

    def __init__(self, *args):
        super().__init__(*args)
        self.probes = 0
        self.gaps = []            # seconds, of each injection

    async def probe(self, accepted):
        """a new key, asked for once"""
        mix = Mix(leave=0, other=0, keyless=0, late=0, statuses=((201, 1),),
                  delays=((0, 1),), sizes=((40, 1),), forms=(('sized', 1),),
                  bodies=((30, 1),))
        key = Key(self.seed, self.tag + 'p', self.probes, mix)
        self.probes += 1
        self.load.keys[key.name] = key
        a = await self.load.attempt(key, 0)
        if a.kind == 'answer' and a.status == 201:
            accepted.append(time.monotonic())

    async def inject(self):
        cluster, tasks, accepted, stalls = self.rig.set, [], [], 0
        begin = last = time.monotonic()
        crash = asyncio.ensure_future(self.elsewhere(
            cluster.crash, self.rng.randrange(3)))
        # the time to refuse begins when another one has taken over
        end = None
        while end is None or time.monotonic() < end:
            tasks.append(asyncio.ensure_future(self.probe(accepted)))
            await asyncio.sleep(self.every)
            now = time.monotonic()
            stalls += max(0, now - last - 0.2)
            last = now
            if end is None and crash.done():
                end = now + 4
        within = list(accepted)
        await asyncio.gather(*tasks)
        moments = [begin] + within + [end]
        gap = max(b - a for a, b in zip(moments, moments[1:])) - stalls
        self.gaps.append(gap)
        self.counts['accepted meanwhile'] += len(within)
        if gap > self.longest:
            self.wrong.append(('L3', 'no new key was accepted for %.1f s '
                               'while one master of three was away' % gap))
        _, over = crash.result()
        return over and await self.elsewhere(cluster.heal)

    def seen(self, c):
        super().seen(c)
        c['losses'] += self.log.count('keys may be forgotten')
        c['longest gap ms'] = int(max(self.gaps, default=0) * 1000)
