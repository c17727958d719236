#!/usr/bin/env python3
"""idempotency_stats: a store that refuses new keys says so, and why.

Unknown outcomes are kept for 30 days and may fill a small zone.  From the
first new key that is refused to the next one that is accepted the store is
down, with the reason "full", for Prometheus, in JSON and for all workers, also
after a reload; the number and the size of unknown records are shown as well.
"""

import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     refused, replays, same, until)

up = Ledger()
gw = Gateway(up, store='shm:64k', workers=2, http='idempotency_lease 1s;',
             locations='''
    location = /stats { idempotency_stats; }
    location /brief/ {
        idempotency main;
        idempotency_ttl 3s;
        proxy_pass http://up;
    }
''')


def get(form):
    return gw.post('/stats?format=' + form, None, body=None,
                   method='GET').body.decode()


def store():
    return json.loads(get('json'))['stores'][0]


def metric(name, labels=''):
    found = re.search(r'^idempotency_%s\{store="main"%s\} (\d+)$'
                      % (name, labels), get('prometheus'), re.M)
    return found and int(found.group(1))


def says():
    s = store()
    return s['health'], s.get('state'), metric('store_up')


same(says(), ('ok', 'ok', 1), 'an empty store')
same(metric('store_state', ',state="ok"'), 1, 'its state for Prometheus')
same((store()['zone'].get('unknown'), metric('zone_unknown')), (0, 0),
     'no unknowns')

first = gw.post('/ok', 'first')
for i in range(20):
    gw.post('/brief/ok', 'brief%d' % i)
keys = []
for i in range(1000):
    a = gw.post('/reset', 'u%d' % i)
    if a.status == 503:
        break
    keys.append('u%d' % i)
same((a.status, a.code), (503, 'store_unavailable'), 'full of unknowns')
ok(len(keys) > 100, 'many', len(keys))

same(says(), ('down', 'full', 0), 'it is down, and says that it is full')
same(store()['why'], 'full: new keys are refused', 'for people')
same((metric('store_state', ',state="full"'),
      metric('store_state', ',state="ok"')), (1, None), 'and for Prometheus')

zone = store()['zone']
same((zone.get('unknown'), metric('zone_unknown')), (len(keys),) * 2,
     'the number of unknowns')
same((metric('zone_unknown_bytes'), zone.get('unknown_bytes', 0)),
     (256 * len(keys),) * 2, 'and what they take')
ok(zone.get('unknown_bytes', 0) > zone['size'] / 2, 'most of the zone', zone)

# what is known is served, and is not a sign of health
replays(gw, '/ok', 'first', first, 'full')
refused(gw, '/reset', keys[0], 'outcome_unknown', 'an unknown is held')
same(says(), ('down', 'full', 0), 'still full')

old = gw.workers()
gw.signal(signal.SIGHUP)
until(lambda: gw.workers() and not set(gw.workers()) & set(old), 20)
same(says(), ('down', 'full', 0), 'still full after a reload')

# room alone is no proof, a new key that is accepted is
time.sleep(3.5)
same(says(), ('down', 'full', 0), 'there is room, and nobody has tried')
same(gw.post('/ok', 'after').status, 201, 'a new key is accepted')
same(says()[2], 1, 'it takes new keys')
ok(says()[1] in ('ok', 'nearly_full'), 'it says how it is', says())

# of a worker that has died, once its lease is over
up.hold()
c = gw.call('/wait', 'died')
up.until('died')
same(store()['zone'].get('unknown'), len(keys), 'what runs is not unknown')
for pid in gw.workers():
    gw.signal(signal.SIGKILL, pid)
gw.expected.append('exited on signal 9')
until(lambda: len(gw.workers()) == 2, 20)
ok(until(lambda: store()['zone'].get('unknown') == len(keys) + 1, 5),
   'what a dead worker has left is', store()['zone'])
executed(up, 'died', 1, 'died')
c.close()
up.go()

for i in range(100):
    a = gw.post('/ok', 'more%d' % i)
    if a.status == 503:
        break
same((a.status, says()), (503, ('down', 'full', 0)), 'full again')

gw.stop()
finish()
