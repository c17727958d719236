#!/usr/bin/env python3
"""What docs/clients/guide.md tells clients is true, and its programs work.

The page has every answer of docs/reference/errors.md that a client can get.
Programs that need nothing but curl, Python and Node are taken out of the page
and run: an answer is lost, the first try is still being executed, the outcome
is unknown.  "make test-clients" runs all programs, with all faults.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/clients')
import guide  # noqa: E402
from cells import answered, judge, run_programs  # noqa: E402
from network import FAULTS, Rig  # noqa: E402
from gateway import finish, ok, same  # noqa: E402

# ---- the tables ----


def rows(path, pattern):
    with open(path) as f:
        return re.findall(pattern, f.read(), re.M)


# operators and lookups have answers of their own
listed = {(code, status): retry for case, status, code, retry in rows(
    guide.TOP + '/docs/reference/errors.md',
    r'^\| ([^|]+) \| (\d+) \| `(\w+)` \| ([\w-]+) \|')
    if not case.startswith(('operator:', 'lookup:', 'cancel:'))}
told = {(code, status)
        for statuses, codes in rows(
            guide.PAGE, r'^\| ([\d, ]+) \| (`[^|]+) \|')
        for code in re.findall(r'`(\w+)`', codes)
        for status in statuses.split(', ')}
ok(len(listed) > 12, 'docs/reference/errors.md has answers', sorted(listed))
same(sorted(set(listed) - told), [], 'the guide has each of them')
same(sorted({code for code, _ in told} - {code for code, _ in listed}
            - {'suspected_duplicate'}), [], 'and no other codes')

# ---- the programs ----

sources = guide.sources()
same(sorted({language for _, language, _ in sources}),
     ['go', 'java', 'js', 'python', 'sh'], 'languages of the programs')
ok(len(sources) >= 10, 'there are programs', len(sources))

HERE = ('curl', 'Python: requests', 'Node: fetch')
programs = guide.programs(lambda title, *_: title in HERE)
same([p.title for p in programs], list(HERE), 'these run here')
for p in programs:
    if p.missing:
        print('# not run: %s: %s' % (p.title, p.missing))
programs = [p for p in programs if not p.missing]
faults = [FAULTS[name] for name in ('none', 'lost-rst', 'answer-cut',
                                    'leaves-409', 'upstream-reset')]

rig = Rig(redis=False)
for cell in run_programs(rig, programs, faults, 6):
    same(judge(rig, cell, must_answer=True), [], repr(cell))
    if cell.fault.ends:
        ok(not answered(cell) and len(cell.executions) == 1
           and 'outcome_unknown' in cell.result['error'],
           '%r: says that the outcome is not known' % cell, cell.result)
rig.stop()

# ---- without the module ----

rig = Rig(protected=False, redis=False)
same([len(cell.executions) for cell in run_programs(
    rig, programs, [FAULTS['lost-rst']])], [2] * len(programs),
    'without the module a lost answer is a second execution')
rig.stop()
finish()
