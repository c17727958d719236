#!/usr/bin/env python3
"""The campaign of configurations, C14 of "make chaos", in short.

Random configurations that nginx accepts, clients that retry, leave, collide
and give wrong passwords, and upstreams that fail; see t/chaos/configurations.
The same is played against nginx without the module, which tells whom nginx
lets in and what a location adds.  The checker is tested first, with histories
that have one thing wrong; and two broken modules must be noticed.

    SEED=n             of the configurations
    CONFIGURATIONS=n   how many
"""

import asyncio
import os
import shutil
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE + '/chaos', HERE + '/drive']
import mutants                                            # noqa: E402
from configurations import doctored                       # noqa: E402
from configurations.hunt import RARE, SOMETIMES, Hunt     # noqa: E402
from gateway import MODULE, REDIS, TOP                    # noqa: E402
from shm import finish, ok                                # noqa: E402

SEED = os.environ.get('SEED', '1')
N = int(os.environ.get('CONFIGURATIONS',
                       80 if 'ASAN_OPTIONS' in os.environ else 160))

MUTANTS = ('first-decides', 'gate-open')


def root(name):
    return '%s/build/chaos/891-%d-%s' % (TOP, os.getpid(), name)


def notices(mutant):
    hunt = Hunt(root(mutant), SEED, mutants.build(mutant), 'shm:64m',
                shrinks=0)
    asyncio.run(hunt.run(400))
    shutil.rmtree(root(mutant), ignore_errors=True)
    ok(hunt.findings, 'it notices: ' + mutants.MUTANTS[mutant][0])
    print('# after %d configurations, by %s' % (
        hunt.counts['configurations'],
        ' '.join(sorted({f.rule for f in hunt.findings}))), flush=True)


def main():
    # what was started is ended, also when the time is over
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print('# SEED=%s' % SEED, flush=True)

    for good, name, detail in doctored.cases():
        ok(good, 'the checker: ' + name, detail)

    store = 'shm:64m' if REDIS is None else '%s prefix=891-%d:' % (
        REDIS, os.getpid())
    hunt = Hunt(root('all'), SEED, MODULE, store, shrinks=1)
    try:
        asyncio.run(hunt.run(N))
    finally:
        kept = hunt.keep()
    counts = hunt.counts
    for name, n in sorted(counts.items()):
        print('# %6d  %s' % (n, name))

    ok(not hunt.findings, 'no rule is broken in %d configurations'
       % counts['configurations'],
       '\n\n'.join(f.report() for f in hunt.findings[:3])
       + '\n\nall of it is in %s/violations' % kept)
    ok(counts['refused'] * 10 <= counts['configurations'],
       'nginx accepts nearly all of them', counts['refused'])

    missing = [s for s in SOMETIMES if not counts[s] and s not in RARE]
    ok(not missing, 'they have met what they were made for', missing)

    # once is enough, and they are built for Debian's nginx
    if REDIS is None and 'ASAN_OPTIONS' not in os.environ:
        for mutant in MUTANTS:
            notices(mutant)
    finish()


main()
