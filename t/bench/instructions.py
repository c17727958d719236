"""Instructions of the gateway per request, counted by valgrind's callgrind.

One process without a master, one connection, one request after the other:
the count repeats to a fraction of a percent where time does not.  Two runs
of different length are subtracted, so that the start is not in the figure.
The kernel's work is not counted, and valgrind's processor has no SHA
extension, so that hashing weighs more here than it does in time.
"""

import dataclasses
import os
import re
import sys

import load
import rig
import rows
from table import number, table

WARM = 200
CASES = [rows.BARE, 'embedded, first request', 'embedded, replay',
         'embedded, order of 1 KB, first request',
         'embedded, order of 1 KB, json fingerprint, first request',
         'embedded, sealed, first request',
         'Redis, TCP, first request', 'Redis, TCP, replay',
         'Redis, TCP, cache, replay',
         'Redis, TLS, first request', 'Redis, TLS, replay']


def count(bench, case, requests, keep):
    out = os.path.join(rig.WORK, 'callgrind.%s.%d' % (case.slug, requests))
    bench.before = ['valgrind', '-q', '--tool=callgrind',
                    '--callgrind-out-file=' + out, '--log-file=' + out
                    + '.log']
    subject = case.start(bench, dataclasses.replace(
        case, row='counted ' + case.row))
    bench.before = ()

    with load.Client(subject.port) as client:
        for i in range(WARM + requests):
            replay = case.kind == 'replay'
            key = 'key-%d-%08d' % (requests, i % WARM if replay else i)
            answer = client.post(key, case.size)
            if answer != (201, replay and i >= WARM, load.ANSWER):
                sys.exit('%s: request %d was not what it should be: %r'
                         % (case.name, i, answer))

    subject.stop()
    with open(out) as f:
        total = int(re.search(r'^(?:totals|summary): (\d+)', f.read(),
                              re.M).group(1))
    os.unlink(out + '.log')
    if keep:
        print('kept ' + os.path.relpath(out))
    else:
        os.unlink(out)
    return total


def instructions(bench, requests, keep):
    lines, bare = [], None
    for case in bench.cases:
        if case.name not in CASES:
            continue
        print('instructions of %s' % case.name, flush=True)
        short = count(bench, case, requests // 4, False)
        long = count(bench, case, requests, keep)
        each = (long - short) / (requests - requests // 4)
        bare = bare or each
        lines.append([case.name, '%.0f' % each, number(each / bare, 2)])
    return table(['', 'instructions', 'x bare'], lines)
