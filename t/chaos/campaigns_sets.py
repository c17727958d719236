"""Campaigns against Redis servers that belong together."""

import asyncio
import time

from campaigns_redis import RedisCampaign, TIMEOUT
from checker import Rules
from redisset import Cluster, Sentinels


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
