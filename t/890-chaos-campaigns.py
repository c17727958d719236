#!/usr/bin/env python3
"""The campaigns of "make chaos", in short: see t/chaos.

Each breaks one thing under load and checks from the clients' history and the
upstream's ledger that the promise holds.  The checker is tested first, with
histories that have one thing wrong; and three broken modules must be noticed.

    SEED=n        of the load and the faults
"""

import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE + '/chaos', HERE + '/drive']
import doctored                                           # noqa: E402
import jobs                                               # noqa: E402
import report                                             # noqa: E402
from shm import finish, ok                                # noqa: E402

SEED = os.environ.get('SEED', '1')

# with libfaketime, or of many minutes, and those that only measure: not here
NAMES = ['C6', 'C7', 'C0', 'C1', 'C2', 'C8', 'C9', 'C10', 'C13', 'C17',
         'C19', 'C20', 'C20n', 'C21', 'C8a']

# its malloc() and that of a sanitizer exclude each other: see
# t/820-allocation-failures.py
if 'ASAN_OPTIONS' in os.environ:
    NAMES.remove('C13')

MUTANTS = (('C0', 'shm', 'get-then-set'), ('C6', 'redis', 'fail-open'),
           ('C20', 'sqlite', 'grant-before-sync'))

# what a short run may miss by chance
RARE = {
    'C0': ('response_not_kept', 'outcome_unknown', 'retryable'),
    'C1': ('key_reused',), 'C2': ('key_reused',),
    'C7': ('outcome_unknown', 'unknown at last'),
    'C17': ('stayed', 'taken over'),
    'C19': ('outcome_unknown', 'unknown at last'),
    'C21': ('state full', 'state timeout'),
}


def missing(outcome):
    return [m for m in outcome['missing']
            if m not in RARE.get(outcome['name'], ())]


def main():
    # what was started is ended, also when the time is over
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print('# SEED=%s' % SEED, flush=True)

    for good, name, detail in doctored.cases():
        ok(good, 'the checker, ' + name, detail)

    ok(not jobs.mutants.stale(), 'the source has what mutants change in it',
       jobs.mutants.stale())

    names = list(jobs.possible(NAMES))
    planned = jobs.real_jobs(names, SEED, lambda campaign: campaign.short)
    planned += [jobs.Job(name, store, jobs.CAMPAIGNS[name].hunt, SEED, mutant)
             for name, store, mutant in MUTANTS]

    for o in jobs.run_jobs(planned, 3):
        if o['mutant']:
            ok(jobs.verdict(o) == 'caught', '%s on %s notices: %s'
               % (o['name'], o['store'], jobs.mutants.MUTANTS[o['mutant']][0]))
        else:
            ok(not o['violations'], '%s on %s, %d %s: %s' % (
                o['name'], o['store'], o['n'], o['unit'], o['title']),
               report.line(o))
            ok(not missing(o), '%s on %s met what it was made for'
               % (o['name'], o['store']), missing(o))
        print('# %s: %.1f s, %s' % (o['name'], o['seconds'], report.met(o)),
              flush=True)
    finish()


main()
