"""The load: keys with their attempts, all of it drawn from a seed.

What happens to key number i of a seed depends on these two and the mix alone,
and not on the moment at which it is its turn.
"""

import asyncio
import random
import time

from client import Web
from history import Attempt
from upstream import digest, filler

# what is larger is executed and not kept: see rig.py
MAX_RESPONSE = 100000


class Mix:
    """How often what happens; the defaults are those without any fault."""

    leave = 0.06          # an attempt whose client leaves before its end
    other = 0.05          # an attempt with another body
    keyless = 0.05        # a key with an attempt without a key
    late = 0.01           # a key that is asked for once more after its lease
    hedge = 0             # seconds until a client asks again meanwhile
    pause = 0.0           # seconds between two keys of a client, at most
    keepalive = True
    prefixes = ('pay',)
    statuses = ((200, 30), (201, 40), (204, 5), (400, 3), (402, 5), (404, 3),
                (409, 2), (422, 2), (500, 4), (501, 1), (502, 1))
    delays = ((0, 70), (5, 10), (20, 10), (60, 8), (200, 2))
    sizes = ((0, 5), (40, 50), (400, 30), (6000, 10), (40000, 4),
             (150000, 1))
    forms = (('sized', 67), ('chunked', 30), ('flaky', 3))
    bodies = ((0, 8), (30, 60), (900, 25), (20000, 5), (120000, 1.8),
              (1 << 20, 0.2))

    def __init__(self, **changes):
        for name, value in changes.items():
            if not hasattr(self, name):
                raise ValueError('a mix has no ' + name)
            setattr(self, name, value)


def draw(rng, weighted):
    values, weights = zip(*weighted)
    return rng.choices(values, weights)[0]


class Key:
    """A key, and what its clients are going to do."""

    def __init__(self, seed, tag, index, mix):
        rng = random.Random('%s/%s/%d' % (seed, tag, index))
        self.name = '%s-%d' % (tag, index)
        self.prefix = rng.choice(mix.prefixes)
        self.status = draw(rng, mix.statuses)
        self.form = draw(rng, mix.forms)
        self.size = 0 if self.status == 204 else draw(rng, mix.sizes)
        self.ms = draw(rng, mix.delays)
        self.length = draw(rng, mix.bodies)
        self.path = '/%s/%d/%d/%d/%s' % (self.prefix, self.status, self.ms,
                                         self.size, self.form)
        self.pause = rng.random() * mix.pause
        self.steps = self.plan(rng, mix)
        self.count = 0
        self.settled = None

    def plan(self, rng, mix):
        """Steps one after the other: attempts at the same time, and a pause."""
        steps = []
        left = rng.randint(1, 6)
        if rng.random() < mix.keyless:
            steps.append(([(0, None, False, True)], 0))
        while left > 0:
            n = min(left, rng.choice((1, 1, 1, 2, 3, 5)))
            left -= n
            attempts = [(int(rng.random() < mix.other), *self.manners(rng, mix),
                         False) for _ in range(n)]
            steps.append((attempts, rng.choice((0, 0, 0, 0.01, 0.05))))
        self.late = rng.random() < mix.late
        return steps

    def manners(self, rng, mix):
        if rng.random() >= mix.leave:
            return None, False
        how = rng.choice(('request', 'wait', 'wait', 'answer'))
        if how == 'wait':
            what = rng.random() * max(0.004, self.ms / 1000 * 1.2)
        else:
            what = rng.random()       # of the length
        return (how, what), rng.random() < 0.5

    def body(self, variant):
        line = ('%s body %d ' % (self.name, variant)).encode()
        n = self.length + variant
        return (line * (n // len(line) + 1))[:n]

    def answer_length(self):
        return 250 + self.size


class Load:
    def __init__(self, port, seed, tag, mix, lease):
        self.web = Web(port, mix.keepalive)
        self.seed = seed
        self.tag = tag
        self.mix = mix
        self.lease = lease
        self.keys = {}
        self.attempts = []
        self.running = True
        self.limit = None         # of attempts
        self.fails = []           # failpoints for the next new keys
        self.late = []
        self.worst = 0

    async def attempt(self, key, variant, leave=None, reset=False,
                      keyless=False, fail=None):
        body = key.body(variant)
        key.count += 1
        n = key.count
        data = ('POST %s HTTP/1.1\r\nHost: gateway\r\nX-Attempt-N: %d\r\n'
                'Content-Length: %d\r\n%s%s%s\r\n' % (
                    key.path, n, len(body),
                    '' if keyless else 'Idempotency-Key: %s\r\n' % key.name,
                    'X-Fail: %s\r\n' % fail if fail else '',
                    '' if self.web.keepalive else 'Connection: close\r\n')
                ).encode() + body
        if leave and leave[0] == 'request':
            leave = 'request', int(leave[1] * len(data))
        elif leave and leave[0] == 'answer':
            leave = 'answer', int(leave[1] * key.answer_length())

        begin = time.monotonic()
        reply = await self.web.send(data, leave, reset)
        end = time.monotonic()
        self.worst = max(self.worst, end - begin)
        a = judge(key, n, digest(body), begin, end, reply, leave is not None,
                  keyless)
        self.attempts.append(a)
        return a

    async def client(self):
        while self.running:
            if self.limit is not None and len(self.attempts) >= self.limit:
                return
            key = Key(self.seed, self.tag, len(self.keys), self.mix)
            self.keys[key.name] = key
            await self.live(key)
            if key.pause:
                await asyncio.sleep(key.pause)

    async def live(self, key):
        fail = self.fails.pop() if self.fails else None
        for attempts, pause in key.steps:
            if len(attempts) == 1 and not self.mix.hedge:
                answers = [await self.attempt(key, *attempts[0], fail)]
            else:
                answers = await self.together(key, [
                    asyncio.ensure_future(
                        self.attempt(key, *a, fail if i == 0 else None))
                    for i, a in enumerate(attempts)])
            fail = None
            if any(a.status == 503 for a in answers):
                pause = max(pause, 0.1)
            if pause:
                await asyncio.sleep(pause)
        if key.late and self.running:
            self.late.append(asyncio.ensure_future(self.ask_late(key)))

    async def together(self, key, tasks):
        while True:
            _, pending = await asyncio.wait(
                tasks, timeout=self.mix.hedge or None)
            if not pending:
                return [task.result() for task in tasks]
            if len(tasks) < 20:
                tasks.append(asyncio.ensure_future(self.attempt(key, 0)))

    async def ask_late(self, key):
        await asyncio.sleep(self.lease * 1.2)
        await self.attempt(key, 0)

    async def run(self, clients):
        """Until somebody sets running to False, or the limit is reached."""
        await asyncio.gather(*[self.client() for _ in range(clients)])
        await asyncio.gather(*self.late)

    async def settle(self, clients, timeout, share=1.0):
        """Everybody asks until there is a last word; see final()."""
        left = [key for i, key in enumerate(self.keys.values())
                if share == 1 or i % int(1 / share) == 0]

        async def some():
            while left:
                await self.settle_key(left.pop(), timeout)

        await asyncio.gather(*[some() for _ in range(clients)])

    async def settle_key(self, key, timeout):
        end = time.monotonic() + timeout
        while True:
            # a body that lost is told so: the other one has won
            for variant in (0, 1):
                key.settled = a = await self.attempt(key, variant)
                if a.code != 'key_reused':
                    break
            if final(a) or time.monotonic() > end:
                return
            await asyncio.sleep(0.2)


def final(a):
    return (a.kind == 'answer' and a.status != 503
            or a.code in ('outcome_unknown', 'response_not_kept'))


def judge(key, n, body, begin, end, reply, left, keyless):
    """The attempt, from what its client got."""
    kind, status, code, replayed, effect, sum_ = 'none', 0, None, False, None, ''
    whole = True
    if reply is not None:
        headers = reply.headers
        status = reply.status
        effect = headers.get('x-effect')
        replayed = headers.get('idempotent-replayed') == 'true'
        if effect is not None:
            kind = 'answer'
            size = 0 if status == 204 else key.size
            whole = reply.body == filler(effect, size)
            sum_ = digest(b'%d %s %s %s ' % (
                status, effect.encode(), headers.get('x-note', '').encode(),
                headers.get('content-type', '').encode()) + reply.body)
        elif headers.get('content-type') == 'application/problem+json':
            kind = 'refused'
            _, _, rest = reply.body.partition(b'"code":"')
            code = rest.partition(b'"')[0].decode()
            if code == 'not_sent' or (code == 'outcome_unknown'
                                      and status != 409):
                kind, code = 'nginx', None
        else:
            kind = 'nginx'
    return Attempt('' if keyless else key.name, n, body, begin, end, kind,
                   status, code, replayed, effect, sum_, whole, left, keyless)
