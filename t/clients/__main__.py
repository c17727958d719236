"""Real HTTP clients, retry libraries and SDKs, through faults.

    python3 t/clients                      prints TAP
    python3 t/clients --write              and writes docs/clients/tested-clients.md
    python3 t/clients --only got --faults lost-rst,leaves

Three parts: clients as they are, the programs of docs/clients/guide.md, and
both of them without the module, which must execute twice: else this test
could not find anything.  A client that is not there is reported as not run.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guide  # noqa: E402
from network import FAULTS, Rig  # noqa: E402
import report  # noqa: E402
import shm  # noqa: E402
from cells import judge, run_libraries, run_programs, short  # noqa: E402
from libraries import libraries  # noqa: E402
from gateway import NGINX, finish, ok, same  # noqa: E402

# those that execute twice if nothing protects the upstream
MUTANT_FAULTS = ['lost-rst', 'lost-fin', 'answer-cut', 'leaves', 'time-out']

# with urllib3 before 2.0, it does not compare Content-Length with what came
CUT = ('requests',)

arguments = argparse.ArgumentParser()
arguments.add_argument('--write', action='store_true')
arguments.add_argument('--only', default='', help='a part of their names')
arguments.add_argument('--faults', default='')
args = arguments.parse_args()

faults = [FAULTS[name] for name in args.faults.split(',') if name] \
    or list(FAULTS.values())
mutant_faults = [f for f in faults if f.name in MUTANT_FAULTS]

all_libraries = [x for x in libraries() if args.only in x.name]
all_programs = guide.programs(
    lambda title, *_: args.only in 'guide: ' + title)
ran = [x for x in all_libraries if not x.missing]
programs = [p for p in all_programs if not p.missing]


def check(rig, cells, name, **more):
    mine = [c for c in cells if c.client == name]
    wrong = []
    for cell in mine:
        wrong += ['%s: %s' % (cell.fault.name, w) for w in judge(
            rig, cell, may_be_cut=cell.fault.name == 'answer-cut'
            and name in CUT, **more)]
    print('# %s: %s' % (name, ', '.join(
        '%s %s' % (c.fault.name, short(c)) for c in mine)))
    wrong += ['%s: %r' % (c.fault.name, c) for c in mine
              if c.fault.name == 'none' and short(c) != 'ok 1']
    ok(mine and not wrong, '%s: %d faults, executed at most once, the answer '
       'or an error' % (name, len(mine)), '\n'.join(wrong))


# ---- with the module ----

redis = any(f.gateway == 'redis' for f in faults)
cells = guide_cells = []
if ran:
    rig = Rig(redis=redis)
    cells = run_libraries(rig, ran, faults)
    for x in ran:
        check(rig, cells, x.name)
    rig.stop()
if programs:
    rig = Rig(redis=redis)
    guide_cells = run_programs(rig, programs, faults)
    for p in programs:
        check(rig, guide_cells, 'guide: ' + p.title, must_answer=True)
    rig.stop()

# each fault has been met: else it was none
for fault in faults if not args.only else []:
    seen = [c for c in cells + guide_cells if c.fault is fault]
    ok(fault.name in ('none', '500') or any(len(c.requests) > 1 for c in seen),
       fault.name + ': made clients come again')

# ---- without it ----

rig = Rig(protected=False, redis=False)
bare = run_libraries(rig, ran, mutant_faults) if ran else []
bare += run_programs(rig, programs, mutant_faults)
twice = {}
for cell in bare:
    twice[cell.client] = twice.get(cell.client, 0) + (
        len(cell.executions) > 1)
if mutant_faults:
    for name in [x.name for x in ran if x.retries] \
            + ['guide: ' + p.title for p in programs]:
        ok(twice[name] > 0, '%s: executes twice without the module, in %d of '
           '%d' % (name, twice[name], len(mutant_faults)),
           '\n'.join('%s %s' % (c.fault.name, short(c)) for c in bare
                     if c.client == name))
rig.stop()

for x in all_libraries + all_programs:
    if x.missing:
        print('# not run: %s: %s' % (getattr(x, 'title', x.name), x.missing))
same(len(cells) + len(guide_cells) > 0, True, 'there were clients')

if args.write and not args.only and not args.faults and not shm.failed:
    report.write(all_libraries, all_programs, cells, guide_cells, twice,
                 mutant_faults, NGINX)
    print('# wrote docs/clients/tested-clients.md')
finish()
