"""Reloads while Redis is away: what waits in the background is not lost."""

import asyncio
import json
import signal
import urllib.request

from campaigns_nginx import until
from campaigns_redis import TIMEOUT, RedisCampaign
from gateway import free_port
from workload import Mix

STAY = 3                  # seconds: longer than any request takes


class C17(RedisCampaign):
    """Redis is killed or paused, and nginx is reloaded meanwhile, once or
    twice.  Some workers stay until Redis is back; others may not, and leave
    their outcomes to new ones.
    """

    name = 'C17'
    title = 'reload while Redis is away'
    n = 200
    short = 2
    hunt = 16
    per_round = 20
    lease = 2
    sometimes = ('replayed', 'in_progress', 'store_unavailable', 'told later',
                 'stayed', 'taken over')
    mutants = ('background-lost', 'handover-lost', 'fail-open',
               'no-fingerprint')

    def rig_args(self):
        self.port = free_port()
        self.leave = False        # may its workers not stay?
        return dict(super().rig_args(), http='''
    server {
        listen 127.0.0.1:%d;
        location / { idempotency_stats; }
    }''' % self.port)

    def mix(self):
        # an idle connection may be closed as its next request is sent
        return Mix(pause=0.03, keepalive=False)

    async def inject(self):
        rng, redis = self.rng, self.rig.redis
        paused = rng.random() < 0.5
        if paused:
            redis.pause()
        else:
            redis.kill()
        await asyncio.sleep(rng.choice((0, 0.1, TIMEOUT, 2 * TIMEOUT)))
        before, leave = set(self.rig.workers()), False
        for _ in range(rng.choice((1, 1, 2))):
            leave = leave or self.leave
            await self.reload()
            await asyncio.sleep(rng.choice((0, 0.3, TIMEOUT)))
        if leave:
            await asyncio.sleep(rng.choice((0, STAY + 1, STAY + 1)))
        elif before & set(self.rig.workers()):
            self.counts['stayed'] += 1
        await self.health()
        if paused:
            redis.resume()
        else:
            redis.start()
        # connections are made anew after five seconds at most
        await asyncio.sleep(rng.choice((0.3, 1, 2)))
        return True

    async def reload(self):
        old = set(self.rig.workers())
        self.leave = self.rng.random() < 0.6
        self.rig.gw.write(main='worker_shutdown_timeout %ds;' % STAY
                          if self.leave else '')
        self.rig.gw.signal(signal.SIGHUP)
        if not await until(lambda: len(set(self.rig.workers()) - old) >= 2):
            self.wrong.append(('L2', 'a reload has not come'))

    async def heal(self):
        self.rig.redis.resume()
        await super().heal()
        if not await until(lambda: len(self.rig.workers()) == 2, 45, 0.1):
            self.wrong.append(('L2', 'old workers have not ended'))
        if not await until(lambda: self.waiting() == 0, 15, 0.1):
            self.wrong.append(('L2', '%d outcomes are not stored'
                               % self.waiting()))

    def waiting(self):
        with urllib.request.urlopen('http://127.0.0.1:%d/?format=json'
                                    % self.port) as f:
            return json.load(f)['stores'][0]['background']['waiting']

    def after(self):
        super().after()
        self.counts['handed over'] += self.log.count('are left to other workers')
        self.counts['taken over'] += self.log.count('takes over outcomes')
        if 'become unknown' in self.log:
            self.wrong.append(('L1', 'outcomes were given up'))
