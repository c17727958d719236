"""What a request costs: the module, what it is beside, and what others do.

    python3 t/bench [--quick] [--rounds N] [--seconds S] [--only ROW ...]
                    [--parts PART ...] [--against SO] [--check] [--keep]

Each row has a server of its own with one worker or process.  The rows take
turns, in another order in each round, and medians of the rounds are compared.
A run stops when an answer is not what it should be, or when the application
has executed other requests than it should have: each first one once, and no
replay.

The tables go into docs/understand/performance.md and the plots beside it;
with --quick, --only, --parts or --against into build/bench/performance.md.
--check makes it fail when a bound is missed; --against measures another build
of the module in the same run; --keep leaves the profiles of the instructions
in build/bench.
"""

import argparse
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import rig  # noqa: E402
import compare  # noqa: E402
import durable  # noqa: E402
import growth  # noqa: E402
import pause  # noqa: E402
import rows  # noqa: E402
import waiting  # noqa: E402
import zone  # noqa: E402
from bench import Bench  # noqa: E402
from instructions import instructions  # noqa: E402
from page import Page, machine  # noqa: E402
from servers import Node  # noqa: E402

PARTS = ['compare', 'pause', 'waiting', 'operations', 'records', 'workers',
         'file', 'bodies', 'connections', 'instructions']


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, usage=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=int, default=1)
    parser.add_argument('--parts', nargs='+', choices=PARTS)
    parser.add_argument('--only', nargs='+', metavar='ROW')
    parser.add_argument('--against', metavar='MODULE.so')
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--keep', action='store_true')
    args = parser.parse_args()

    # the lengths of a series; few and short ones only show that it works
    args.sizes = [100, 1000, 10000, 100000, 1000000]
    args.clients = [1, 8, 32, 128, 512, 1000]
    args.records = [10**3, 10**4, 10**5, 10**6]
    args.requests = 2000
    args.tables = [32, 512]
    if args.quick:
        args.sizes = [100, 1000000]
        args.clients = [1, 1000]
        args.records = [10**3, 10**4]
        args.requests = 200
        args.tables = [32]
    return args


def cases_of(args):
    cases = list(rows.ROWS)
    if args.against:
        cases += [rows.variant(case, 'other', args.against)
                  for case in cases if case.module]
    if args.only:
        cases = [case for case in cases
                 if case.name == rows.BARE
                 or any(word in case.name for word in args.only)]
    return cases


def main():
    args = arguments()
    parts = args.parts or PARTS
    page = Page(not (args.quick or args.parts or args.only or args.against))
    few = max(1, args.rounds * 2 // 5)
    missed = []

    Node.install()
    bench = Bench(cases_of(args), args)

    page.write('machine', machine(args))
    if 'compare' in parts:
        tables = []
        for n in args.tables:
            turns = args.rounds if n == args.tables[0] else few + 1
            found, text, miss = compare.compare(bench, n, turns)
            if n == args.tables[0]:
                compare.plot(page.plots, bench, found)
                store = compare.store_table(bench, found)
            tables.append(text)
            missed += miss
        page.write('compare', *tables,
                   page.plot('gateways', 'CPU time of gateways'),
                   page.plot('express', 'CPU time in and before Express'))
        page.write('store', store)
    if 'pause' in parts:
        text, miss = pause.report(bench)
        page.write('pause', text)
        missed += miss
    if 'waiting' in parts:
        page.write('waiting', waiting.report(bench, 5 if args.quick else 51))
    for name in ('workers', 'file'):
        if name in parts:
            text, miss = getattr(durable, name)(bench, args, few + 1)
            page.write(name, text)
            missed += miss
    if 'operations' in parts:
        page.write('operations', zone.operations(bench, args.records))
    for name in ('records', 'bodies', 'connections'):
        if name in parts:
            page.write(name, page.plot(name, 'growth with ' + name),
                       getattr(growth, name)(bench, page.plots, few))
    if 'instructions' in parts:
        page.write('instructions', instructions(bench, args.requests,
                                                args.keep))

    for line in bench.complaints():
        print(line)
    for line in missed:
        print('missed: ' + line)
    print('written to ' + os.path.relpath(page.path))
    return 1 if missed and args.check else 0


if __name__ == '__main__':
    sys.exit(main())
