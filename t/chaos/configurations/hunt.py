"""Plays many configurations and reports what breaks a rule.

    result = await Hunt(root, seed, module, store).run(n)
"""

import asyncio
import collections
import os
import random
import shutil

from .batch import Batch
from .check import TIMED, check, is_timed, operations, story
from .grammar import generate, http_lines
from .scenario import scenario
from .shrink import shows, shrink
from .upstreams import Upstreams

AT_ONCE = 40              # configurations of one nginx
RIGS = 2                  # pairs of nginx at a time
ALL = ('S1', 'S2', 'S3', 'S4', 'S5', 'S6', 'S7', 'S8', 'S9', 'A',
       'T')


def one(seed):
    """A configuration and what clients do, from a seed such as 1.0.25."""
    http = http_lines(random.Random(seed.rpartition('.')[0] + ' http'))
    config = generate(seed, http)
    return config, scenario(config, seed)


# What a run must have met, else it proves nothing.
SOMETIMES = (
    'replayed', 'replayed over HTTP/2', 'replayed for a named location',
    'in_progress', 'key_reused', 'outcome_unknown', 'key_missing',
    'executed in a named location', 'given up', 'left', 'mirrored', 'accel',
    'probe', 'page', 'cache HIT', 'cache MISS', 'connection refused',
    'limited', 'behind auth_request', 'status 401', 'status 403',
    'status 502', 'status 504', 'at h0', 'at h1', 'at h2',
    'at fcgi', 'at uwsgi', 'at scgi', 'at grpc', 'at tls', 'barred',
    'overtaken', 'subrequest stopped')

# but not in so few configurations as the short form has
RARE = ('barred', 'overtaken', 'subrequest stopped')


class Finding:
    def __init__(self, case, violation):
        self.case = case
        self.seed = case.config.seed
        self.rule = violation.rule
        self.text = violation.text
        self.small = None         # (config, lanes), shrunk
        self.story = story(case)

    def report(self):
        text = ['%s, seed %s: %s' % (self.rule, self.seed, self.text), '']
        config = self.small[0] if self.small else self.case.config
        text += ['# http{}: ' + ' '.join(config.http),
                 config.render('NAME'), '', self.story]
        return '\n'.join(text)


class Hunt:
    def __init__(self, root, seed, module, store, shrinks=3, most=1,
                 rules=ALL, only=(), tell=None):
        self.root = root
        self.seed = seed
        self.module = module
        self.store = store
        self.shrinks = shrinks    # findings of a rule that are shrunk
        self.most = most          # findings that are enough
        self.rules = rules        # that are looked at
        self.only = only          # seeds of configurations, instead of all
        self.tell = tell or (lambda finding: None)
        self.counts = collections.Counter()
        self.findings = []
        self.unconfirmed = []     # of rules that time alone does not break

    async def run(self, n):
        shutil.rmtree(self.root, ignore_errors=True)
        # a batch of its own for each: their lines of http{} differ
        planned = [[one(seed)] for seed in self.only] if self.only \
            else self.plan(n)

        async def hunt(batch):
            for part in planned:
                await self.one_batch(batch, part)
                if len(self.findings) >= self.most:
                    break
        planned = iter(planned)
        await self.several(hunt)
        await self.shrink_all()
        return self

    def keep(self):
        """Writes what was found; the folder, or None."""
        if self.unconfirmed:
            with open(self.root + '-unconfirmed', 'w') as f:
                f.write('\n\n'.join(finding.report()
                                    for finding in self.unconfirmed))
        if not self.findings:
            shutil.rmtree(self.root, ignore_errors=True)
            return None
        with open(self.root + '/violations', 'w') as f:
            f.write('\n\n'.join(finding.report()
                                for finding in self.findings))
        return self.root

    async def several(self, work):
        """Runs it at the same time in rigs of their own."""
        async def start(number):
            upstreams = Upstreams('%s/%d' % (self.root, number))
            os.makedirs(upstreams.root, exist_ok=True)
            await upstreams.start()
            try:
                await work(Batch('r%d' % number, upstreams, self.module,
                                 self.store))
            finally:
                await upstreams.stop()
        await asyncio.gather(*(start(n) for n in range(RIGS)))

    def plan(self, n):
        """Batches, each with the same lines in http{}."""
        for number in range((n + AT_ONCE - 1) // AT_ONCE):
            yield [one('%s.%d.%d' % (self.seed, number, i))
                   for i in range(min(AT_ONCE, n - number * AT_ONCE))]

    async def one_batch(self, batch, planned):
        cases = await batch.run(planned)
        while batch.clock_jumped:     # the store has noticed, as it should
            self.counts['played again, the clock jumped'] += 1
            cases = await batch.run(planned)
        self.count(batch, cases)
        found = [Finding(case, v) for case in cases if not case.refused
                 for v in first_of_each(check(case))
                 if v.rule in self.rules]
        timed = [f for f in found if is_timed(f.case, f.rule)]
        for finding in found:
            if finding not in timed:
                self.found(finding)
        for rule in {f.rule for f in timed}:
            await self.confirm(batch, [f for f in timed if f.rule == rule],
                               rule)

    async def confirm(self, batch, timed, rule):
        """A rule that depends on time has to be broken three times."""
        planned = [(f.case.config, f.case.lanes) for f in timed]
        again = await shows(batch, planned, rule, 1)
        again &= await shows(batch, planned, rule, 1)
        for n, finding in enumerate(timed):
            if n in again:
                self.found(finding)
            else:
                self.counts['unconfirmed ' + rule] += 1
                if rule not in TIMED:
                    self.unconfirmed.append(finding)

    def found(self, finding):
        self.counts['found ' + finding.rule] += 1
        self.findings.append(finding)

    async def shrink_all(self):
        """Some of each rule, several at a time."""
        planned, taken = [], collections.Counter()
        for finding in self.findings:
            taken[finding.rule] += 1
            if taken[finding.rule] <= self.shrinks:
                planned.append(finding)
            else:
                self.tell(finding)

        async def work(batch):
            while planned:
                finding = planned.pop(0)
                await self.small(batch, finding)
                self.tell(finding)
        await self.several(work)

    async def small(self, batch, finding):
        case = finding.case
        tries = 2 if finding.rule in TIMED else 1
        if not await shows(batch, [(case.config, case.lanes)],
                           finding.rule, 4):
            self.counts['seen once only'] += 1
            return
        config, lanes = await shrink(batch, case.config, case.lanes,
                                     finding.rule, tries)
        finding.small = config, lanes
        for _ in range(4):
            again, = await batch.run([(config, lanes)])
            bad = [v for v in check(again) if v.rule == finding.rule]
            if bad:
                finding.text = bad[0].text
                finding.story = story(again)
                break

    def count(self, batch, cases):
        """What a run has met: see SOMETIMES."""
        c = self.counts
        log = batch.module.log()
        c['connection refused'] += log.count('Connection refused')
        c['limited'] += log.count('limiting ')
        c['overtaken'] += log.count('lease could not be renewed in time')
        c['subrequest stopped'] += log.count('a subrequest is not sent')
        c['stalled'] += any(case.stalled for case in cases)
        for case in cases:
            if case.refused:
                c['refused'] += 1
                continue
            c['configurations'] += 1
            c['keys'] += len({(o.attempt.op.key, o.attempt.user)
                              for lane in case.module for o in lane})
            for o in (o for lane in case.module for o in lane):
                self.count_outcome(case, o)
        for name, n in batch.upstreams.ledger.counts.items():
            c[name] += n

    def count_outcome(self, case, o):
        c = self.counts
        c['attempts'] += 1
        c['status %d' % o.status] += 1
        if o.code:
            c[o.code] += 1
        if o.replayed:
            c['replayed'] += 1
            c['replayed over HTTP/2'] += o.attempt.http2
        if o.left:
            c['left'] += 1
        cached = o.get('x-cache')
        if cached:
            c['cache ' + cached] += 1
        real = operations(o)
        c['mirrored'] += len(o.executions) - len(real)
        c['executions'] += len(real)
        for e in real:
            c['executed in a named location'] += \
                ' @' in case.config.last(e.path).head
            c['accel'] += e.do.startswith('accel')
            c['given up'] += case.config.gives_up(e.path, e.method)
            c['behind auth_request'] += 'aux_auth' in e.path
        if o.status in (401, 403) and not real and any(
                case.config.barred_by(e.path, e.method, o.attempt.right)
                for e in self.plainly(case, o)):
            c['barred'] += 1
        if o.replayed and ' @' in self.where(case, o):
            c['replayed for a named location'] += 1

    @staticmethod
    def where(case, o):
        """The head of the location where the reference executes it."""
        for e in Hunt.plainly(case, o)[-1:]:
            return case.config.last(e.path).head
        return ''

    @staticmethod
    def plainly(case, o):
        """The executions of this attempt by the reference."""
        return [e for lane in case.plain for p in lane
                if p.attempt is o.attempt for e in p.executions]


def first_of_each(violations):
    seen = {}
    for v in violations:
        seen.setdefault(v.rule, v)
    return seen.values()
