"""Campaigns against Redis and the way to it."""

import asyncio
import time

from campaign import Campaign
from campaigns_nginx import until
from checker import Rules
from proxy import KINDS
from workload import Mix

TIMEOUT = 0.5             # of a command


class RedisCampaign(Campaign):
    stores = ('redis',)
    clients = 24
    lease = 4
    conf = ('appendonly yes', 'appendfsync always',
            'maxmemory-policy noeviction')
    sometimes = ('replayed', 'in_progress', 'key_reused', 'store_unavailable',
                 'up again')
    mutants = ('fail-open', 'get-then-set', 'no-fingerprint')

    def rig_args(self):
        return dict(lease=self.lease, timeout=TIMEOUT, redis=self.conf,
                    connections=self.rng.choice((1, 1, 2)))

    def mix(self):
        return Mix(pause=0.03)

    def rules(self):
        # 503: the lease could not be renewed in time, and nothing was sent
        return Rules(unavailable=True, late=True, errors=(503,))

    async def heal(self):
        await until(lambda: self.rig.redis.ask('PING') == b'+PONG', 30, 0.1)

    async def health(self):
        """A worker that waits for Redis serves others meanwhile."""
        begin = time.monotonic()
        await self.load.web.send(b'GET /health HTTP/1.1\r\nHost: x\r\n\r\n')
        took = time.monotonic() - begin
        self.counts['other requests'] += 1
        if took > 5:
            self.wrong.append(('A', 'a request that needs no store took '
                               '%.1f s' % took))

    def after(self):
        # claim: two tries; completion: one; the rest is the machine's
        limit = 3 * TIMEOUT + 10
        if self.load.worst > limit:
            self.wrong.append(('A', 'somebody waited for %.1f s'
                               % self.load.worst))


class C1(RedisCampaign):
    name = 'C1'
    title = 'Redis is killed, appendfsync always'
    n = 300
    short = 5
    per_round = 30

    async def inject(self):
        self.rig.redis.kill()
        await asyncio.sleep(self.rng.choice(
            (0, self.rng.random() * 0.3, self.rng.random())))
        self.rig.redis.start()
        await asyncio.sleep(self.rng.choice((0.05, 0.2, 0.5, 0.9)))
        return True


class Forgetful(C1):
    """Losses are counted; each must be due to a kill."""

    strict = False
    n = 100
    short = 0
    # a hot store that loses has lost what was said just before the kill
    before = 0
    expected = ('keys may be forgotten',)
    amnesia = '0'             # losses are to be met

    def rig_args(self):
        return dict(super().rig_args(), store_args='amnesia=' + self.amnesia)

    def __init__(self, *args):
        super().__init__(*args)
        self.moments = []

    async def inject(self):
        self.moments.append(time.monotonic())
        return await super().inject()

    def rules(self):
        # a completion that is lost leaves its claim, which ends as unknown
        return Rules(unavailable=True, late=True, errors=(503,),
                     unknown=True, forgets=self.moments)


class C1e(Forgetful):
    name = 'C1e'
    title = 'Redis is killed, appendfsync everysec'
    conf = ('appendonly yes', 'appendfsync everysec')
    mutants = ()


class C1n(Forgetful):
    name = 'C1n'
    title = 'Redis is killed, nothing on disk'
    conf = ('appendonly no',)
    mutants = ('get-then-set', 'no-fingerprint')


class C2(RedisCampaign):
    name = 'C2'
    title = 'Redis is paused'
    n = 300
    short = 3
    per_round = 30

    async def inject(self):
        rng = self.rng
        seconds = rng.choices((rng.uniform(0.1, 0.8),
                               # a claim is asked again when Redis is back
                               rng.uniform(1.2, 1.8) * TIMEOUT,
                               rng.uniform(1, 3), rng.uniform(3, 10)),
                              (60, 30, 8, 2))[0]
        self.rig.redis.pause()
        await asyncio.sleep(seconds / 2)
        await self.health()
        await asyncio.sleep(seconds / 2)
        self.rig.redis.resume()
        await asyncio.sleep(rng.choice((0.05, 0.2, 0.4)))
        return True

    async def heal(self):
        self.rig.redis.resume()
        await super().heal()


class C3(Forgetful):
    name = 'C3'
    title = 'Redis loses its data'
    n = 50
    short = 3
    per_round = 25
    conf = ('appendonly no',)
    sometimes = ('replayed', 'in_progress', 'key_reused', 'lost keys')
    mutants = ('get-then-set', 'no-fingerprint')

    async def inject(self):
        if self.rng.random() < 0.5:
            return await super().inject()
        begin = time.monotonic()
        self.rig.redis.ask('FLUSHALL')
        self.moments += [begin, time.monotonic()]
        await asyncio.sleep(self.rng.choice((0.1, 0.3)))
        return True


class C3a(C3):
    """The same with amnesia=: new keys are refused after each loss."""

    name = 'C3a'
    title = 'Redis loses its data, amnesia=2s'
    n = 30
    short = 0
    amnesia = '2s'
    sometimes = C3.sometimes + ('store_unavailable', 'noticed')

    async def inject(self):
        done = await super().inject()
        await asyncio.sleep(2.5)
        return done

    def after(self):
        super().after()
        self.counts['noticed'] += self.log.count('keys may be forgotten')


class C6(RedisCampaign):
    name = 'C6'
    title = 'the way to Redis breaks, in %d ways' % len(KINDS)
    n = 300 * len(KINDS)
    short = 3 * len(KINDS)
    per_round = 30 * len(KINDS)
    hunt = 20 * len(KINDS)
    sometimes = RedisCampaign.sometimes + KINDS
    mutants = ('fail-open', 'owner-off', 'get-then-set', 'no-fingerprint')

    def rig_args(self):
        return dict(super().rig_args(), proxied=True)

    async def inject(self):
        kind = KINDS[self.counts[self.unit] % len(KINDS)]
        if not await self.rig.proxy.break_next(kind):
            return False
        self.counts[kind] += 1
        await asyncio.sleep(self.rng.choice((0.01, 0.05, 0.15)))
        return True

    async def heal(self):
        self.rig.proxy.next = None
        await super().heal()


class C11(RedisCampaign):
    name = 'C11'
    title = 'the memory of Redis is full, noeviction'
    unit = 'keys'
    n = 50000
    short = 1500
    hunt = 2000
    per_round = 10000
    conf = ('appendonly no', 'maxmemory-policy noeviction')
    sometimes = ('replayed', 'in_progress', 'key_reused', 'store_unavailable',
                 'out of memory')

    async def injections(self, n):
        """Full, and room again, by turns."""
        redis = self.rig.redis
        while len(self.load.keys) < n:
            redis.ask('CONFIG', 'SET', 'maxmemory',
                      int(redis.info('used_memory'))
                      + self.rng.randint(0, 300000))
            await asyncio.sleep(self.rng.uniform(0.2, 0.6))
            redis.ask('CONFIG', 'SET', 'maxmemory', 0)
            await asyncio.sleep(self.rng.uniform(0.2, 0.8))
            self.counts['times full'] += 1

    async def heal(self):
        self.rig.redis.ask('CONFIG', 'SET', 'maxmemory', 0)

    def mix(self):
        return Mix(pause=0.002)

    def after(self):
        super().after()
        self.counts['out of memory'] += self.log.count('refuses: "OOM')


class C11l(Forgetful):
    """A store that evicts: warned of, and the losses counted."""

    name = 'C11l'
    title = 'the memory of Redis is full, allkeys-lru, eviction=allow'
    amnesia = '0 eviction=allow'
    unit = 'keys'
    n = 10000
    short = 0
    per_round = 10000
    conf = ('appendonly no', 'maxmemory-policy allkeys-lru')
    sometimes = ('warned', 'lost keys')
    mutants = ()

    async def injections(self, n):
        redis = self.rig.redis
        redis.ask('CONFIG', 'SET', 'maxmemory',
                  int(redis.info('used_memory')) + 1000000)
        while len(self.load.keys) < n:
            # at any time, in silence
            self.moments.append(time.monotonic())
            await asyncio.sleep(0.0005)

    async def heal(self):
        self.rig.redis.ask('CONFIG', 'SET', 'maxmemory', 0)

    def mix(self):
        return Mix(pause=0.002)

    def after(self):
        self.counts['warned'] += self.log.count('maxmemory-policy is')
