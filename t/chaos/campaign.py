"""A campaign: rounds of load and injections, and what became of them.

A subclass says what is broken and what must hold; see campaigns_*.py.

    outcome = asyncio.run(run(C1, 'redis', n=300, seed=7))

Each round has a rig of its own and a seed of its own.  A campaign ends at the
first round with a violation; the round's history, ledger and logs are kept
under build/chaos.
"""

import asyncio
import collections
import os
import random
import shutil
import time

from checker import Rules, check
from history import read_ledger, story, write
from rig import Rig
from workload import Load, Mix, final
from gateway import TOP

KEPT = TOP + '/build/chaos'


class Campaign:
    name = None
    title = None              # what is broken, in a few words
    stores = ('shm', 'redis')
    unit = 'injections'
    n = 300                   # injections of the long form
    short = 4                 # of the one in "make test"
    hunt = 40                 # of a mutant, at most
    per_round = 50
    clients = 16
    strict = True             # else losses are counted, not judged
    sometimes = ()            # what a run must have met: see seen()
    mutants = ('get-then-set', 'no-fingerprint')
    expected = ()             # alarms in the log that were provoked
    patience = 30             # seconds until the last word of a key
    share = 1.0               # of the keys that are asked for it
    warm = 0.3                # seconds of load before the first injection
    grows = 6144              # kB that a worker may take in a round

    def __init__(self, store, seed, tag):
        self.store = store
        self.seed = seed
        self.tag = tag
        self.rng = random.Random('%s injections' % seed)
        self.counts = collections.Counter()
        self.wrong = []           # of the campaign's own checks

    # what a subclass changes

    needs = ''                # what not every machine has

    @classmethod
    def possible(cls):
        return True

    def rig_args(self):
        return {}

    def mix(self):
        return Mix()

    def rules(self):
        return Rules()

    async def inject(self):
        """One injection; True if it was one."""
        raise NotImplementedError

    async def heal(self):
        """The end of all faults."""

    def after(self):
        """Own checks, when all is over: self.wrong.append(...)"""

    # the round

    async def round(self, root, n, module):
        self.rig_root = root
        args = dict(dict(seed=self.seed, module=module), **self.rig_args())
        self.rig = Rig(root, self.store, **args)
        try:
            await self.rig.start()
            self.load = Load(self.rig.gw.port, self.seed, self.tag,
                             self.mix(), self.rig.args['lease'])
            before = time.monotonic()
            load = asyncio.ensure_future(self.load.run(self.clients))
            self.task = load
            await self.injections(n)
            self.load.running = False
            await self.heal()
            await load
            await self.load.settle(self.clients, self.patience, self.share)
            self.load.web.close()
            await self.leftovers(before)
        finally:
            log = self.rig.gw.log() if self.rig.gw else ''
            await self.keep_log(root, log)
            await self.rig.stop()
        self.log = log
        self.after()
        return self.verdict(root)

    async def injections(self, n):
        await asyncio.sleep(self.warm)
        while self.counts[self.unit] < n:
            if await self.inject():
                self.counts[self.unit] += 1
            if self.task.done():
                self.task.result()
                break

    async def leftovers(self, before):
        left = await self.rig.leftovers()
        if left:
            self.wrong.append(('L2', left))
        quiet, now = self.rig.quiet, self.rig.usage()
        for pid, (_, rss) in now.items():
            # a sanitizer keeps what was freed
            if pid in quiet and rss > quiet[pid][1] + self.grows \
                    and 'ASAN_OPTIONS' not in os.environ:
                self.wrong.append(('L2', 'a worker had %d kB of memory, then '
                                   '%d' % (quiet[pid][1], rss)))
        alarms = self.rig.gw.alarms(self.expected)
        if alarms:
            self.wrong.append(('L2', '%d alarms in the log, as %s'
                               % (len(alarms), alarms[0])))

    async def keep_log(self, root, log):
        with open(root + '/error.log', 'w') as f:
            f.write(log)

    def verdict(self, root):
        effects = read_ledger(root + '/ledger')
        load = self.load
        result = check(load.keys, load.attempts, effects, self.rules())
        wrong = [(v.rule, v.key, v.text) for v in result.violations] \
            + [(rule, '', text) for rule, text in self.wrong]

        c = self.counts
        c['keys'] += len(load.keys)
        c['attempts'] += len(load.attempts)
        c['executions'] += len(effects)
        c['lost keys'] += len(result.lost)
        c['worst ms'] = int(load.worst * 1000)
        self.seen(c)

        if wrong:
            write(root + '/history', load.attempts)
            with open(root + '/violations', 'w') as f:
                f.write('%s on %s, seed %s\n' % (self.name, self.store,
                                                 self.seed))
                for rule, key, text in wrong:
                    f.write('%s %s %s\n' % (rule, key, text))
                for key in list(dict.fromkeys(k for _, k, _ in wrong if k)
                                )[:20]:
                    f.write('\n%s %s\n%s\n' % (
                        key, load.keys[key].path if key in load.keys else '',
                        story(key, load.attempts, effects)))
        return wrong

    def seen(self, c):
        """What "sometimes" may name."""
        for a in self.load.attempts:
            if a.replayed:
                c['replayed'] += 1
            if a.code:
                c[a.code] += 1
            elif a.kind == 'nginx':
                c['nginx %d' % a.status] += 1
            elif a.kind == 'none':
                c['left' if a.aborted else 'broken off'] += 1
        c['retryable'] += sum(a.kind == 'answer' and a.status == 503
                              for a in self.load.attempts)
        c['up again'] += self.log.count('is up again')
        c['told later'] += self.log.count('retrying in background')
        c['late completion refused'] += self.log.count(
            'was settled by another request')
        c['unknown at last'] += sum(
            key.settled is not None and key.settled.code == 'outcome_unknown'
            for key in self.load.keys.values())


async def run(campaign, store, n, seed, module=None, label=''):
    """All rounds: a dict of results."""
    name = campaign.name + ('-' + label if label else '')
    counts = collections.Counter()
    started = time.monotonic()
    wrong, seeds, kept = [], [], None
    most = getattr(campaign, 'per_round')
    while counts[campaign.unit] < n and not wrong:
        number = len(seeds)
        round_seed = '%s.%d' % (seed, number)
        root = '%s/%s-%s-%d-%d' % (KEPT, name, store, os.getpid(), number)
        shutil.rmtree(root, ignore_errors=True)
        c = campaign(store, round_seed, 'r%d' % number)
        wrong = await c.round(root, min(most, n - counts[campaign.unit]),
                              module)
        seeds.append(round_seed)
        # times are the longest ones, the rest is added up
        longest = {what: max(counts[what], c.counts[what])
                   for what in c.counts if what.endswith(' ms')}
        counts += c.counts
        for what in longest:
            counts[what] = longest[what]
        if wrong:
            kept = root
        else:
            shutil.rmtree(root, ignore_errors=True)
        if c.counts[campaign.unit] == 0 and not wrong:
            wrong = [('void', '', 'nothing could be injected')]
    return dict(name=campaign.name, store=store, title=campaign.title,
                unit=campaign.unit, n=counts[campaign.unit], seed=seed,
                rounds=len(seeds), counts=dict(counts),
                strict=campaign.strict,
                violations=[list(w) for w in wrong[:50]],
                missing=[s for s in campaign.sometimes if not counts[s]],
                kept=kept and os.path.relpath(kept, TOP),
                seconds=round(time.monotonic() - started, 1))
