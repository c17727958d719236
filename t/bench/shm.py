#!/usr/bin/env python3
"""What the embedded store costs: bytes of zone per record, and the time of
claim and complete with 10 thousand and with 1 million records in it.

    t/bench/shm.py [RECORDS]

A record has a head of 150 bytes and a body of 200.
"""

import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))) + '/drive')
from shm import Nginx  # noqa: E402


def used(nginx):
    info = {k: int(v) for k, v in nginx.ask('big', op='info').items()}
    return info['records'], (info['pages'] - info['free']) * info['pagesize']


def cost(nginx, start, name):
    # a batch during which the machine did something else is no median
    batches = [nginx.ask('big', op='fill', n=200, **{'from': start + i * 200})
               for i in range(50)]
    print('%-12s claim %5d ns, complete %5d ns'
          % (name,
             statistics.median(int(a['claim_ns']) for a in batches),
             statistics.median(int(a['complete_ns']) for a in batches)))


def main():
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 1000000
    nginx = Nginx({'big': '%dk' % (total * 700 // 1024)}, workers=1)
    records, empty = used(nginx)
    nginx.ask('big', op='fill', n=10000)
    cost(nginx, 100000000, '10000:')
    start = 10000
    while start < total - 20000:
        nginx.ask('big', op='fill', n=10000, **{'from': start})
        start += 10000
    cost(nginx, 200000000, '%d:' % total)
    records, full = used(nginx)
    print('%d records use %.1f MB of a zone of %.1f MB: %.1f bytes each'
          % (records, full / 1e6, total * 700 / 1e6,
             (full - empty) / records))


main()
