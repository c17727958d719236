"""C14: configurations that nobody has thought of.  See configurations/."""

import os
import time

from campaign import KEPT
from configurations.hunt import AT_ONCE, SOMETIMES, Hunt
from gateway import MODULE, TOP
from redis_process import Redis


class C14:
    name = 'C14'
    title = 'random configurations that nginx accepts'
    stores = ('shm', 'redis')
    unit = 'configurations'
    n = 5100               # some are refused by nginx -t
    short = 160
    hunt = 4000
    per_round = AT_ONCE
    strict = True
    sometimes = SOMETIMES
    mutants = ('get-then-set', 'no-fingerprint', 'unknown-frees', 'cut-kept',
               'first-decides', 'last-only', 'passed-stays', 'gate-open',
               'probe-anyone', 'probe-cached', 'half-header',
               'stale-settles', 'method-lies', 'refused-runs', 'first-byte',
               'subrequest-runs')

    @classmethod
    async def run(cls, store, n, seed, module, label):
        """As campaign.run(): a dict of results."""
        started = time.monotonic()
        root = '%s/%s-%s-%d' % (KEPT, '-'.join(
            x for x in (cls.name, label) if x), store, os.getpid())
        os.makedirs(root, exist_ok=True)
        redis, target = None, 'shm:64m'
        if store == 'redis':
            redis = Redis(root + '-redis')
            target = 'redis://127.0.0.1:%d timeout=5s' % redis.port
        try:
            hunt = await Hunt(root, seed, module or MODULE, target,
                              shrinks=0 if label else 3).run(n)
        finally:
            if redis:
                redis.end()
        kept = hunt.keep()
        c = hunt.counts
        return dict(
            name=cls.name, store=store, title=cls.title, unit=cls.unit,
            n=c['configurations'], seed=seed, rounds=1, counts=dict(c),
            strict=True, missing=[s for s in SOMETIMES if not c[s]],
            violations=[[f.rule, f.seed, f.text.partition('\n')[0]]
                        for f in hunt.findings[:50]],
            kept=kept and os.path.relpath(kept, TOP),
            seconds=round(time.monotonic() - started, 1))
