"""What the clients do with a configuration: operations and their attempts.

A scenario has a lane for each operation, which run at the same time; a lane is
a list of steps, one after the other; the attempts of a step run together.  The
same scenario is played against the reference.
"""

import random

from .clients import Attempt

FAILURES = ('close', 'reset', 'timeout', 'cuthead', 'cutbody', 'status:500',
            'status:502', 'status:503', 'status:504', 'status:429',
            'status:404', 'status:403', 'cut-release', 'cut-final',
            'release', 'unknown')
GOOD = ('ok', 'ok', 'ok', 'chunked', 'nolength', 'big', 'ssi', 'stale',
        'status:200', 'status:204', 'status:404', 'status:302', 'final')


class Operation:
    """What is to be done once."""

    def __init__(self, number, path, method, user):
        self.key = '-k%d' % number
        self.path = path
        self.method = method
        self.user = user
        self.body = b'pay %d' % number


def scenario(config, seed):
    """[[[attempt, ...], ...], ...]"""
    return Writer(config, random.Random(seed)).lanes()


class Writer:
    def __init__(self, config, rng):
        self.config = config
        self.rng = rng
        self.accel = [b.head.split()[1] for b in config.server.items
                      if not isinstance(b, str)
                      and b.head.startswith('location @')]
        self.accel.append('/aux_inc')

    def good(self):
        if self.rng.random() < 0.08:
            return 'accel:%s,ok' % self.rng.choice(self.accel)
        return self.rng.choice(GOOD)

    def failure(self):
        first = self.rng.choice(FAILURES)
        return first + self.rng.choice((',ok', ''))

    def attempt(self, op, **args):
        args.setdefault('http2', self.rng.random() < 0.15)
        args.setdefault('packed', self.rng.random() < 0.1)
        args.setdefault('page', self.rng.choice((404, 404, 200, 500)))
        return Attempt(op, **args)

    def lanes(self):
        plays = [self.retry, self.fail, self.fail, self.stranger,
                 self.collide, self.leave, self.strange_first, self.pair]
        if self.config.caches() or self.config.has('probe='):
            plays += [self.pair, self.fail]
        lanes, rng = [], self.rng
        entries = rng.sample(self.config.entries, len(self.config.entries))
        for path, methods in entries[:3]:
            for play in rng.sample(plays, 2):
                op = Operation(len(lanes), path, rng.choice(methods), 'ann')
                lanes.append(play(op))
        if self.config.has('idempotency_failpoint'):
            path, methods = entries[0]
            lanes = [self.overtaken(Operation(0, path, methods[0], 'ann'))]
        attempts = (a for lane in lanes for step in lane for a in step)
        for number, attempt in enumerate(attempts):
            attempt.number = number
        return lanes

    def after(self, op):
        """What comes after the first word: retries, some of them others'."""
        more = [[self.attempt(op)],
                [self.attempt(op, right=False)],
                [self.attempt(op, body=b'something else')],
                [self.attempt(op, do=self.good())],
                [self.attempt(op, user='eve')]]
        if self.rng.random() < 0.3:
            more.append([self.attempt(op, keyless=True)])
        return [[self.attempt(op, do=self.good())]] + self.rng.sample(more, 3)

    def retry(self, op):
        return [[self.attempt(op, do=self.good())]] + self.after(op)

    def fail(self, op):
        return [[self.attempt(op, do=self.failure())],
                [self.attempt(op, do=self.rng.choice(
                    ('ok', 'ok', 'timeout', 'reset')))]] + self.after(op)

    def stranger(self, op):
        return [[self.attempt(op)], [self.attempt(op, right=False)],
                [self.attempt(op)],
                [self.attempt(op, right=False, http2=True)]]

    def strange_first(self, op):
        return [[self.attempt(op, right=False)], [self.attempt(op)],
                [self.attempt(op, right=False)], [self.attempt(op)]]

    def collide(self, op):
        gap = self.rng.choice((0, 0.005, 0.03))
        together = [self.attempt(op, do='slow', at=gap * n)
                    for n in range(self.rng.choice((2, 3)))]
        return [together] + self.after(op)

    def leave(self, op):
        return [[self.attempt(op, do='slow', leave=0.05)]] + self.after(op)

    def overtaken(self, op):
        """Its worker stands still before it sends, for longer than a lease.

        Nothing else is done with such a configuration: the leases of others
        would run out as well.
        """
        return [[self.attempt(op, fail='before_send:1400'),
                 self.attempt(op, at=1.1)]] + self.after(op)

    def pair(self, op):
        """Two operations in one place, the second one without an answer."""
        other = Operation(0, op.path, op.method, 'bob')
        other.key = op.key + 'b'
        first = self.rng.choice(('stale', 'ok', 'timeout'))
        if self.config.has('use_stale'):
            first = 'stale'
        if self.config.has('probe=') and self.rng.random() < 0.7:
            first = 'timeout'
        return [[self.attempt(op, do=first)], [self.attempt(op)],
                [self.attempt(other, do=self.rng.choice(
                    ('timeout', 'reset', 'close', 'status:500')))],
                [self.attempt(other)], [self.attempt(other)],
                [self.attempt(op)]]

