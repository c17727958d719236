"""The campaign of configurations by itself.

    python3 t/chaos/configurations [--seed N] [--n N] [--module FILE]
                                   [--store TARGET] [--shrink N] [--most N]
                                   [--rules "S1 S7"]
"""

import argparse
import asyncio
import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE),
                os.path.dirname(os.path.dirname(HERE)) + '/drive']

from gateway import MODULE, TOP                           # noqa: E402
from configurations.hunt import ALL, Hunt                 # noqa: E402


def tell(finding):
    print('=' * 70)
    print(finding.report(), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--seed', default='1')
    p.add_argument('--n', type=int, default=200)
    p.add_argument('--module', default=MODULE)
    p.add_argument('--store', default='shm:64m')
    p.add_argument('--shrink', type=int, default=3,
                   help='findings of each rule that are shrunk')
    p.add_argument('--most', type=int, default=1,
                   help='findings after which it ends')
    p.add_argument('--rules', default=' '.join(ALL))
    p.add_argument('--only', default='',
                   help='configurations by their seeds, as 1.0.25')
    args = p.parse_args()
    # what was started is ended, also when the time is over
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    root = '%s/build/chaos/C14-%d' % (TOP, os.getpid())
    hunt = asyncio.run(Hunt(root, args.seed, args.module, args.store,
                            args.shrink, args.most,
                            args.rules.split(),
                            args.only.split(), tell).run(args.n))
    for name, n in sorted(hunt.counts.items()):
        print('%6d  %s' % (n, name))
    return 1 if hunt.findings else 0


sys.exit(main())
