"""Writes docs/clients/tested-clients.md."""

import datetime
import platform
import re
import subprocess

from cells import short
from guide import TOP
from network import FAULTS

PAGE = TOP + '/docs/clients/tested-clients.md'

HEAD = '''# Clients tested

Results of `make clients`, which writes this page; `make test-clients`, a part
of `make test-all`, runs the same tests and fails if a client was served wrongly.
HTTP clients, retry libraries and SDKs send a payment through a gateway while
one thing fails. The upstream records what it executes.

In every cell of the tables below

- the payment was executed **at most once**,
- the client ended with the answer of that execution, or with an error,
- the same key and body, sent once more afterwards, got that answer, or 409
  `outcome_unknown` where the upstream never gave one.

Without the module the same clients execute payments twice: the column "twice
without" counts in how many of %(mutants)d faults
(%(bare)s). If that is zero for a client that retries lost answers, the run
has failed: it could not have found anything.

%(date)s with nginx %(nginx)s, %(system)s; the last change of
`src/` is %(commit)s. Packages of npm are the newest versions that
Debian 12's Node 18 can run.

## Faults

| fault | what happens |
|---|---|
%(faults)s

The gateway has `idempotency_in_progress wait=10s`, except for `leaves-409`, where
duplicates are refused. In `redis-down` the store is Redis; all others use the
embedded store. `upstream-silent` has a
`proxy_read_timeout` of one second.

## Clients with their own retries

Retries are switched on for POST, at most five, with a time-out of ten seconds;
which statuses a client retries, and how it waits, is its own choice. `ok 2` means that the client had the answer after two requests, `409 3`
that it gave up with that status after three, `error 1` that it reported a
broken connection or a time-out, `**cut** 1` that it took the first half of an
answer for all of it: a defect of that client, which no gateway can correct.

| client | version | settings | twice without |
|---|---|---|---|
%(libraries)s

%(table)s

## Programs of the client guide

The programs of the [client guide](guide.md), as printed there. They must end with
the answer wherever there is one: not for 500, which is the answer, and not where
the upstream executes and never answers.

| program | twice without |
|---|---|
%(programs)s

%(guide_table)s

## Not run

%(not_run)s
'''

NOTES = '''
## Notes

- Most libraries stop at 409, which is not in their lists of statuses. With
  `wait=10s` (`leaves`) that does not matter. Otherwise add 409 to the list, as the
  guide does, or let the server answer `in_progress` with 503
  (`idempotency_in_progress reject=503`).
- superagent retries immediately, without a pause: an outage of one second is
  longer than all its tries.
- curl and Go's net/http retry without being asked to if a kept-alive connection
  breaks; Go does so because the request has an `Idempotency-Key`.
- Adyen's SDK reports a broken connection as a status 500, which no server has
  sent. It is an `error` here; a caller must not take it for the answer.
- PayPal's and Adyen's SDK know only addresses of their companies, or only TLS:
  the test replaces the connection below them and nothing else.
- SDKs send no earlier request that could keep a connection open: they have no
  cell `kept`.
- Stripe's library has a test of its own, `t/185-stripe-library.py`.
'''


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=TOP)
    return done.stdout + done.stderr


def table(cells, names):
    """rows are clients, columns are faults"""
    faults = [f for f in FAULTS.values()
              if any(c.fault is f for c in cells)]
    lines = ['| | ' + ' | '.join(f.name for f in faults) + ' |',
             '|---' * (len(faults) + 1) + '|']
    by = {(c.client, c.fault.name): c for c in cells}
    for name in names:
        lines.append('| %s | %s |' % (re.sub('^guide: ', '', name), ' | '.join(
            short(by[name, f.name]) if (name, f.name) in by else ''
            for f in faults)))
    return '\n'.join(lines)


def write(libraries, programs, cells, guide_cells, twice, mutants, nginx):
    """twice: by name of the client, in how many faults it executed twice
    without the module"""
    missing = [(x.name, x.missing) for x in libraries if x.missing] \
        + [('the program for ' + p.title, p.missing)
           for p in programs if p.missing]
    ran = [x for x in libraries if not x.missing]
    text = HEAD % dict(
        mutants=len(mutants), bare=', '.join('`%s`' % f.name for f in mutants),
        date='Tried on ' + datetime.date.today().isoformat(),
        commit=output('git', 'log', '-1', '--format=%h', '--', 'src').strip(),
        nginx=re.search(r'nginx/([\d.]+)', output(nginx, '-v')).group(1),
        system='Linux ' + platform.release().split('-')[0],
        faults='\n'.join('| `%s` | %s |' % (f.name, f.title)
                         for f in FAULTS.values()),
        libraries='\n'.join('| %s | %s | %s | %s |' % (
            x.name, x.version, x.settings, twice[x.name]) for x in ran),
        table=table(cells, [x.name for x in ran]),
        programs='\n'.join('| %s | %s |' % (
            p.title, twice['guide: ' + p.title])
            for p in programs if not p.missing),
        guide_table=table(guide_cells, ['guide: ' + p.title for p in programs
                                        if not p.missing]),
        not_run='\n'.join('- %s: %s' % m for m in missing)
        or 'Nothing: all clients were there.')
    with open(PAGE, 'w') as f:
        f.write(text + NOTES)
