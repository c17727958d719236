"""The campaigns, in their long form.

    python3 t/chaos [--campaigns "C1 C7"] [--seed N] [--n N] [--attempts N]
                    [--stores "shm sqlite"] [--jobs N]
                    [--no-mutants | --only-mutants]

Results are kept in build/chaos/results, and docs/contribute/evidence.md is
written from all of them.  Exit code 1: a violation, a void campaign or a missed mutant.
"""

import argparse
import json
import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE) + '/drive')

import jobs                                               # noqa: E402
import report                                             # noqa: E402


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument('--campaigns', default='')
    p.add_argument('--stores', default=' '.join(jobs.STORES))
    p.add_argument('--seed', default='1')
    p.add_argument('--n', type=int, help='injections instead of 300')
    p.add_argument('--attempts', type=int, help='of C0 instead of 1000000')
    p.add_argument('--jobs', type=int, default=2)
    p.add_argument('--no-mutants', action='store_true')
    p.add_argument('--only-mutants', action='store_true')
    p.add_argument('--job')
    return p.parse_args()


def main():
    # what was started is ended, also when the time is over
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    args = arguments()
    if args.job:
        jobs.work(jobs.Job(*json.loads(args.job)))
        return 0

    names = args.campaigns.split() or list(jobs.CAMPAIGNS)
    unknown = [n for n in names if n not in jobs.CAMPAIGNS]
    if unknown:
        sys.exit('no such campaign: %s; there are %s'
                 % (' '.join(unknown), ' '.join(jobs.CAMPAIGNS)))

    names = list(jobs.possible(names))

    def size(campaign):
        if campaign.name == 'C0':
            return args.attempts or campaign.n
        # in proportion: a campaign may count otherwise than by 300
        return max(1, campaign.n * args.n // 300) if args.n else campaign.n

    planned = []
    if not args.only_mutants:
        planned += jobs.real_jobs(names, args.seed, size, args.stores.split())
    if not args.no_mutants:
        planned += jobs.mutant_jobs(names, args.seed, args.stores.split())

    print('seed %s, %d jobs, %d at a time' % (args.seed, len(planned),
                                              args.jobs), flush=True)
    bad = 0
    where = report.versions()
    for outcome in jobs.run_jobs(planned, args.jobs):
        print(report.line(outcome), flush=True)
        report.save(outcome, where)
        bad += jobs.verdict(outcome) in ('FAILED', 'void', 'MISSED')
    report.evidence()
    print('%d of %d jobs went wrong; docs/contribute/evidence.md is written'
          % (bad, len(planned)))
    return 1 if bad else 0


sys.exit(main())
