#!/usr/bin/env python3
"""docs/guides/moving-stores.md: from one store to another by reloads under
load.  Clients retry all the time; nothing is executed twice, no
answer is lost, and all retries of a key get the same answer.

Where two gateways can share the old store, one of them is reloaded later than
the other, and the same keys are sent to both.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (TOP, Gateway, Ledger, background, finish,  # noqa: E402
                     ok, same, until)
from pasted import blocks  # noqa: E402
from redis_binary import skipped  # noqa: E402
from redisd import Redis  # noqa: E402
from retries import Load  # noqa: E402

os.makedirs(TOP + '/build', exist_ok=True)
work = tempfile.mkdtemp(prefix='load-', dir=TOP + '/build')
one, two = Redis(), Redis()

LOCATION = '''
    location /pay/ {
        idempotency %s;
        idempotency_lease 4s;
        proxy_pass http://up;
    }
'''

TARGETS = {
    'shm': lambda name: 'shm:32m',
    'sqlite': lambda name: 'sqlite:%s/%s/keys.db timeout=5s' % (work, name),
    'redis': lambda name: 'redis://127.0.0.1:%d timeout=5s prefix=%s:' % (
        one.port, name),
    'redis2': lambda name: 'redis://127.0.0.1:%d timeout=5s prefix=%s:' % (
        two.port, name),
}

# as docs/guides/moving-stores.md has it; Redis with the settings of
# docs/operate/redis.md
page = blocks('docs/guides/moving-stores.md')
for block in blocks('docs/operate/redis.md'):
    if block.text.startswith('maxmemory '):
        for line in block.text.split('\n'):
            one('CONFIG', 'SET', *line.split())
    if block.text.startswith('ACL ') \
            and not skipped('the user of the ACL', 'acl'):
        one(*block.text.split())
        ok(b'gateway' in one('ACL', 'USERS'), 'the user of the ACL')
same(one('CONFIG', 'GET', 'appendfsync')[1], b'always', 'the settings')
one('CONFIG', 'SET', 'min-replicas-to-write', '0')    # it has none

during, = [b.text for b in page if b.heading == 'Moving to another store'
           and 'from=' in b.text]
ok('idempotency_store new sqlite:/var/lib/nginx-idempotency/pay.db from=pay;'
   in during and 'idempotency_store pay shm:64m;' in during,
   'the directives of the docs', during)


class Gateways:
    """what a load balancer does: each request goes to one of them"""

    def __init__(self, gws):
        self.gws = gws

    @property
    def port(self):
        return random.choice(self.gws).port


def change(gw, stores, name):
    gw.write(http=stores, locations=LOCATION % name)
    before = set(gw.workers())
    gw.signal(signal.SIGHUP)
    return before


def changed(gw, before, name):
    ok(until(lambda: gw.workers() and not set(gw.workers()) & before, 30),
       name)


def move(old, new, gateways):
    name = '%s to %s' % (old, new)
    ids = name.replace(' ', '-')
    define = 'idempotency_store pay %s;' % TARGETS[old](ids + '-old')
    target = TARGETS[new](ids + '-new')
    moving = define + 'idempotency_store new %s from=pay;' % target
    moved = 'idempotency_store new %s;' % target

    up = Ledger()
    gws = [Gateway(up, workers=2, size='1m', http=define,
                   locations=LOCATION % 'pay', level='notice')
           for _ in range(gateways)]
    load = Load(Gateways(gws), up, path='/pay/slow/20', clients=10)
    load.start()
    ok(until(lambda: len(load.keys) > 100, 30), name + ': keys before')

    # a request that is running meanwhile, in a worker that knows one store
    up.hold()
    slow = [background(gw.post, '/pay/wait', 'slow-%d' % i, timeout=60)
            for i, gw in enumerate(gws)]
    for i in range(gateways):
        up.until('slow-%d' % i)

    before = []
    for gw in gws:
        n = len(load.keys)
        before.append(change(gw, moving, 'new'))
        ok(until(lambda: set(gw.workers()) - before[-1], 20),
           name + ': workers that know both stores')
        ok(until(lambda: len(load.keys) > n + 150, 60),
           name + ': keys while old and new workers are at work')

    for i, gw in enumerate(gws):
        again = gw.post('/pay/wait', 'slow-%d' % i)
        same((again.status, again.code), (409, 'in_progress'),
             name + ': what the old worker runs is running')
    up.go()
    slow = [s.join(60) for s in slow]
    for i, gw in enumerate(gws):
        same([gw.post('/pay/wait', 'slow-%d' % i).body for gw in gws],
             [slow[i].body] * gateways, name + ': and has one answer')
        changed(gw, before[i], name + ': the old workers are gone')

    n = len(load.keys)
    until(lambda: len(load.keys) > n + 100, 30)
    load.stop()
    load.settle()
    keys = len(load.keys)
    print('# %s: %s' % (name, load.summary()))

    ok(not load.twice(), name + ': nothing is executed twice',
       load.show(load.twice()))
    ok(not load.unequal(), name + ': one answer for each key',
       load.show(load.unequal()))
    ok(not load.open() and not load.unknown(), name + ': no answer is lost',
       load.show(load.open() + load.unknown()))
    ok(not load.refused(), name + ': and none was refused', load.summary())

    # while the old store is removed, its keys have expired: others are asked
    after = Load(Gateways(gws), up, path='/pay/slow/20', clients=10)
    after.start()
    ok(until(lambda: len(after.keys) > 100, 30), name + ': keys after it')
    for gw in gws:
        changed(gw, change(gw, moved, 'new'), name + ': from= is removed')
        n = len(after.keys)
        until(lambda: len(after.keys) > n + 50, 30)
    after.stop()
    after.settle()
    print('# %s, the end: %s' % (name, after.summary()))
    ok(not after.twice() and not after.unequal() and not after.open()
       and not after.unknown(), name + ': nothing is lost at the end',
       after.show(after.twice() + after.unequal() + after.open()
                  + after.unknown()))
    for gw in gws:
        gw.stop()
    return keys


only = os.environ.get('PAIR')
for old, new, gateways in (('shm', 'sqlite', 1), ('sqlite', 'redis', 2),
                           ('redis', 'redis2', 2), ('shm', 'redis', 1),
                           ('redis2', 'sqlite', 2)):
    if not only or only == '%s-%s' % (old, new):
        move(old, new, gateways)

shutil.rmtree(work, ignore_errors=True)
finish()
