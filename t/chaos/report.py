"""Results of the long form: kept piece by piece, and written as
docs/contribute/evidence.md."""

import collections
import json
import os
import platform
import re
import sqlite3
import subprocess
import time

from campaign import KEPT
from gateway import NGINX, TOP
from jobs import CAMPAIGNS, STORES, mutant_jobs, verdict
from mutants import MUTANTS
from redis_binary import SERVER

RESULTS = KEPT + '/results'
EVIDENCE = TOP + '/docs/contribute/evidence.md'

HEAD = '''# Evidence

Results of `make chaos`, which writes this page. The command runs nginx with the
module in front of an upstream that records every execution before it answers.
Clients retry, disconnect and collide while one fault is injected again and
again. Afterwards the [guarantees](../understand/guarantees.md) are checked from
the clients' history and the upstream's ledger.

    make chaos                            all of it, more than an hour
    make chaos CAMPAIGNS="C1 C7"          some of it; the others' results stay
    make chaos CHAOS_N=1000               more injections of each kind
    make chaos CHAOS_SEED=7               other seeds than these
    make chaos CAMPAIGNS=C7 STORES=sqlite one store only

The rules, for every key:

| rule | |
|---|---|
| S1 | it is executed at most once, but for executions that the upstream answered with a retryable status |
| S2 | all of its answers are the same, byte for byte |
| S3 | each answer is whole, and that of an execution with this key and this body |
| S4 | another body is never executed, and is refused with 422 |
| S5 | `Idempotent-Replayed` is on all answers but that of the execution |
| S6 | after an answer every later attempt gets it again |
| S7 | no client gets an answer, or an execution, through a location whose access checks refuse it (C14) |
| S8 | what the location adds to an answer it adds to its replay (C14) |
| S9 | a first attempt gets what it gets without the module (C14) |
| A | no client gets an answer that the fault does not explain |
| L1 | when the fault is over, the key reaches its final answer |
| L2 | afterwards nothing is left over: no descriptor, no memory, no alert in the log |
| L3 | new keys of live masters are accepted while another master is down (C18) |
| P | after a loss of power the database can be read and is whole (C20) |

A campaign is void if an event that it must meet did not occur, and if it does
not notice a module that was broken on purpose. No violation in n
injections means that the true rate is below 3/n, with 95% confidence.
'''


def save(o, where):
    """Adds to what is there, or replaces it; where: versions() at the start"""
    os.makedirs(RESULTS, exist_ok=True)
    name = '-'.join(x for x in (o['name'], o['store'], o['mutant']) if x)
    with open('%s/%s.json' % (RESULTS, name), 'w') as f:
        json.dump(dict(o, date=time.strftime('%Y-%m-%d'), **where), f,
                  indent=1)


def load():
    found = []
    if os.path.isdir(RESULTS):
        for name in os.listdir(RESULTS):
            with open('%s/%s' % (RESULTS, name)) as f:
                found.append(json.load(f))
    order = list(CAMPAIGNS)
    return sorted(found, key=lambda o: (order.index(o['name']), o['store'],
                                        o['mutant']))


def versions():
    def first(pattern, *command):
        out = subprocess.run(command, capture_output=True, text=True)
        found = re.search(pattern, out.stdout + out.stderr)
        return found.group(1) if found else 'unknown'

    return dict(
        commit=first(r'^(\w+)', 'git', '-C', TOP, 'rev-parse', '--short',
                     'HEAD'),
        nginx=first(r'nginx/([\d.]+)', NGINX, '-v'),
        redis=first(r'v=([\d.]+)', SERVER, '--version'),
        sqlite=sqlite3.sqlite_version,
        kernel=platform.release().partition('-')[0],
        cores=os.cpu_count())


def line(o):
    """One line for people who wait."""
    what = verdict(o)
    text = '%-7s %-5s %-5s %-14s n %-7d %6.0f s  seed %s' % (
        what, o['name'], o['store'], o['mutant'], o['n'], o['seconds'],
        o['seed'])
    if o['mutant'] and what == 'caught':
        text += '  by ' + ' '.join(sorted({v[0] for v in o['violations']}))
    elif what == 'measured':
        text += '  %d keys lost' % o['counts'].get('lost keys', 0)
    if o['missing']:
        text += '  never met: ' + ', '.join(o['missing'])
    if what in ('FAILED', 'void', 'MISSED'):
        text += ''.join('\n    %s %s %s' % tuple(v)
                        for v in o['violations'][:5])
        text += '\n    kept: %s' % o['kept'] if o['kept'] else ''
    return text


class Earlier:
    """What the page says already of campaigns that have not run here."""

    def __init__(self, ran):
        self.ran = ran
        self.rows = collections.defaultdict(list)     # by heading
        self.runs = []
        heading = ''
        with open(EVIDENCE) as f:
            for text in f.read().splitlines():
                if text.startswith('## '):
                    heading = text
                elif text.startswith('| '):
                    self.rows[heading].append(text)
                elif text.startswith('Measured on '):
                    self.runs.append(text)

    def and_new(self, heading, rows):
        """Rows of campaigns, in their order."""
        order = list(CAMPAIGNS)
        rows = rows + [row for row in self.rows['## ' + heading]
                       if self.campaign(row) in order
                       and not self.has_run(row)]
        return sorted(rows, key=lambda row: (
            order.index(self.campaign(row)), self.store(row)))

    @staticmethod
    def campaign(row):
        return row.split(' | ')[0][2:]

    @staticmethod
    def store(row):
        return next((word for word in row.split(' | ')[1:3]
                     if word in STORES), '')

    def has_run(self, row):
        return (self.campaign(row), self.store(row)) in self.ran

    def caught(self, mutant):
        """By whom, as a list of "C1 (redis, S1)"."""
        for row in self.rows['## Mutants']:
            if self.campaign(row) == mutant:
                return [who for who in re.findall(r'C\w+ \([^)]*\)',
                                                  row.split(' | ')[2])
                        if tuple(re.findall(r'\w+', who)[:2])
                        not in self.ran]
        return []

    def needed(self, rows):
        """Lines "Measured on" whose commit some row has."""
        return [run for run in self.runs
                if re.search(r'commit (\w+)', run).group(1)
                in ' '.join(rows).split()]


def evidence():
    """Writes docs/contribute/evidence.md from all results, and its notes."""
    found = load()
    real = [o for o in found if not o['mutant']]
    broken = collections.defaultdict(list)
    for o in found:
        if o['mutant']:
            broken[o['name'], o['store']].append(o)

    earlier = Earlier({(o['name'], o['store']) for o in real})
    strict = earlier.and_new('Strict campaigns', [
        strict_row(o, broken[o['name'], o['store']]) for o in real
        if o['strict']])
    losses = earlier.and_new('Measured losses', [
        loss_row(o) for o in real if not o['strict']])

    text = [HEAD]
    text += sorted({measured(o) for o in real}
                   | set(earlier.needed(strict + losses)))
    text += ['', '## Strict campaigns', '',
             '| | what is broken | store | n | violations | rate below '
             '| keys | attempts | executions | commit | seed | mutants caught |',
             '|---|---|---|---|---|---|---|---|---|---|---|---|'] + strict
    text += ['', '## Measured losses', '',
             'These settings allow a store to lose data. Each lost key is '
             'explained by a moment at which the store did; any other loss '
             'would be a violation. Except in C20n a process is killed, '
             'not a machine: what it has written without fsync survives '
             'that, but may not survive a loss of power. C20n counts a key '
             'once for each power cut that loses it, and assumes the worst '
             'at a flush boundary: that nothing reached the disk unless it '
             'was synced.', '',
             '| | what is broken | store | n | lost keys | keys | executions '
             '| other violations | commit | seed |',
             '|---|---|---|---|---|---|---|---|---|---|'] + losses
    text += ['', '## Events in the runs', '', '| | store | met |',
             '|---|---|---|']
    text += earlier.and_new('Events in the runs', [
        '| %s | %s | %s |' % (o['name'], o['store'], met(o)) for o in real])
    text += ['', '## Mutants', '', '| mutant | what was broken | caught by |',
             '|---|---|---|']
    order = list(CAMPAIGNS)
    for name, (what, _) in MUTANTS.items():
        caught = earlier.caught(name) + [
            '%s (%s, %s)' % (o['name'], o['store'], ' '.join(sorted(
                {v[0] for v in o['violations']})))
            for o in found if o['mutant'] == name and verdict(o) == 'caught']
        caught.sort(key=lambda who: order.index(who.split()[0]))
        if caught:
            text.append('| %s | %s | %s |' % (name, what, ', '.join(caught)))
    with open(EVIDENCE, 'w') as f:
        f.write('\n'.join(text) + '\n')


def measured(o):
    return ('Measured on %s, commit %s, nginx %s, Redis %s, %d cores, '
            'Linux %s%s.' % (o['date'], o['commit'], o['nginx'], o['redis'],
                             o['cores'], o['kernel'], ', SQLite '
                             + o['sqlite'] if 'sqlite' in o else ''))


def strict_row(o, broken):
    caught = [m['mutant'] for m in broken if verdict(m) == 'caught']
    wanted = [job.mutant for job in mutant_jobs([o['name']], o['seed'])
              if job.store == o['store']]
    uncaught = [mutant for mutant in wanted if mutant not in caught]
    word = verdict(o)
    if word == 'passed' and uncaught:
        word = 'void'
    good = word == 'passed'
    c = o['counts']
    return ('| %s | %s | %s | %d %s | %s | %s | %d | %d | %d | %s | %s | %s |'
            ) % (
        o['name'], o['title'], o['store'], o['n'], o['unit'],
        '0' if good else '**%s**' % word,
        '%.2g' % (3 / o['n']) if good else '',
        c.get('keys', 0), c.get('attempts', 0), c.get('executions', 0),
        o['commit'], o['seed'], ', '.join(caught + ['**not caught: %s**' % mutant
                                       for mutant in uncaught]))


def loss_row(o):
    c = o['counts']
    return '| %s | %s | %s | %d %s | %d | %d | %d | %s | %s | %s |' % (
        o['name'], o['title'], o['store'], o['n'], o['unit'],
        c.get('lost keys', 0), c.get('keys', 0), c.get('executions', 0),
        '0' if verdict(o) == 'measured' else '**%s**' % verdict(o),
        o['commit'], o['seed'])


def met(o):
    skip = ('keys', 'attempts', 'executions', o['unit'])
    return ', '.join('%s %d' % item for item in sorted(o['counts'].items())
                     if item[0] not in skip and item[1])
