#!/usr/bin/env python3
"""What has expired gives its memory back: a zone that was filled and expired
many times is as large as on the first day, whatever the order and the length
of its answers, and whether they ended as tombstones, were purged or replaced.
"""

import itertools
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from shm import Nginx, finish, ok, same  # noqa: E402

YEAR = 366 * 24 * 3600 * 1000


def empty(nginx):
    """Lets everything expire; the free pages then."""
    for i in range(5000):
        nginx.ask('pay', op='claim', key='sweep', owner='s%d' % i, lease=0,
                  after=i * YEAR)
        if nginx.ask('pay', op='info')['records'] == '1':
            break
    nginx.ask('pay', op='purge', key='sweep', fence='current')
    # the stub of the sweep itself
    nginx.ask('pay', op='fetch', key='sweep', after=10000 * YEAR)
    info = nginx.ask('pay', op='info')
    return int(info['records']), int(info['free'])


def test_fill():
    """Full again and again."""
    nginx = Nginx({'pay': '2m'}, workers=1)
    first = nginx.ask('pay', op='info')
    kept = []
    for turn in range(20):
        # nothing else makes room: each fill finds the previous one overdue
        a = nginx.ask('pay', op='fill', n=6000, ttl=0, head_len=100,
                      body_len=turn * 97 % 3000,
                      **{'from': turn * 10000})
        kept.append(int(a['kept']))
    same(kept, [6000] * 20, 'what has expired makes room for all')

    kept = []
    for turn in range(10):
        a = nginx.ask('pay', op='fill', n=6000, ttl=3600, head_len=100,
                      body_len=200, **{'from': 1000000 + turn * 10000})
        kept.append(int(a['kept']))
        same(empty(nginx), (0, int(first['free'])),
             'empty after fill %d' % (turn + 1))
    same(kept, kept[:1] * 10, 'each time as many fit')


def test_mixed():
    """Every operation, at random."""
    random.seed(7)
    nginx = Nginx({'pay': '2m'}, workers=2)
    first = int(nginx.ask('pay', op='info')['free'])
    keys = ['k%d' % i for i in range(40)]
    for i in range(6000):
        key = random.choice(keys)
        op = random.choice(('claim', 'claim', 'complete', 'complete',
                            'release', 'mark_unknown', 'renew', 'issue',
                            'fetch', 'resolve', 'purge'))
        args = dict(op=op, key=key, owner=random.choice('ABC'), fp='F',
                    lease=random.choice((0, 10, 10000)),
                    ttl=random.choice((0, 1, 100)),
                    tombstone=random.choice((0, 1, 100)),
                    body_len=random.choice((0, 10, 300, 5000, 80000)),
                    flags=random.choice(('', 'unknown', 'issued')),
                    executed=random.choice((0, 1)),
                    after=random.choice((0, 0, 500, 2000, 200000)))
        if op in ('resolve', 'purge'):
            args['fence'] = 'current'
        a = nginx.ask('pay', **args)
        if a is None or a.get('error', 'full') != 'full':
            ok(False, 'operation %d' % i, (args, a))
            return
    same(empty(nginx), (0, first), 'all memory is back')
    ok('[alert]' not in nginx.log(), 'the slab was in order')


def test_together():
    """Records that are due together leave in any order."""
    random.seed(8)
    nginx = Nginx({'pay': '2m'}, workers=1)
    first = int(nginx.ask('pay', op='info')['free'])
    for end in ('complete', 'release', 'mark_unknown'):
        for order in itertools.permutations('abcd'):
            # others are due before and after: above and below in the tree
            others = random.sample(range(1000, 60000, 1000), 8)
            for lease in others[:4]:
                nginx.ask('pay', op='claim', key=lease, owner='A', lease=lease)
            for key in 'abcd':
                nginx.ask('pay', op='claim', key=key, owner='A')
            for lease in others[4:]:
                nginx.ask('pay', op='claim', key=lease, owner='A', lease=lease)
            # each of them goes elsewhere: to its ttl, to that of a stub
            for key in order:
                nginx.ask('pay', op=end, key=key, owner='A', ttl=100)
            for key in order[::-1]:
                nginx.ask('pay', op='purge', key=key, fence='current')
            for lease in others:
                nginx.ask('pay', op='release', key=lease, owner='A')
    same(empty(nginx), (0, first), 'all that were together are gone')
    ok('[alert]' not in nginx.log(), 'the slab was in order then')


test_fill()
test_mixed()
test_together()
finish()
