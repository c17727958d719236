"""Campaigns against one Redis whose name, address or role moves."""

import asyncio

from campaigns_sets import SetCampaign
from redismove import Both, Named, Virtual


class MoveCampaign(SetCampaign):
    n = 100
    per_round = 9             # odd: at the end the master is the other one
    store_args = 'replicas=1 amnesia=500ms'
    hows = ()

    async def inject(self):
        pair, rng = self.rig.set, self.rng
        how = rng.choice(self.hows)
        if rng.random() < 0.3:
            # it leads to the replica, which is none in a moment
            await self.elsewhere(pair.lead, pair.replica)
            await asyncio.sleep(rng.random())
        if not await self.elsewhere(pair.swap, how):
            await self.elsewhere(pair.heal)
            return False
        await asyncio.sleep(rng.choice((0, rng.random())))
        await self.elsewhere(pair.lead)
        if how in ('stay', 'kill'):
            # a second master, or none, for a while
            await asyncio.sleep(rng.choice((0.1, 1, 2)))
        healed = await self.elsewhere(pair.heal)
        self.counts[how] += 1
        # what is served in between is the load that the next one meets
        await asyncio.sleep(rng.uniform(0.7, 2))
        return healed


class C15(MoveCampaign):
    name = 'C15'
    title = 'a name or a virtual address moves to the replica, replicas=1'
    hows = ('replicaof', 'kill', 'stay')
    mutants = ('no-wait', 'old-address', 'get-then-set')

    def rig_args(self):
        # names more often: they are what is resolved again
        servers = self.rng.choice((Named, Named, Virtual))
        return dict(super().rig_args(), servers=servers)


class C16(MoveCampaign):
    name = 'C16'
    title = 'a master is demoted by FAILOVER or REPLICAOF, replicas=1'
    hows = ('failover', 'replicaof')
    servers = Both
    mutants = ('demoted-stays', 'no-wait', 'get-then-set')
