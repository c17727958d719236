#!/usr/bin/env python3
"""examples/payments: whatever is killed, each payment is made once, every
client learns of it in the end, and the ledger balances.

Workers of nginx, the service and backends of PostgreSQL are killed at random
while clients pay and retry.  KILLS=200 makes it as long as a release needs it.
"""

import base64
import json
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from example import Example, children  # noqa: E402
from gateway import finish, ok, same  # noqa: E402

KILLS = int(os.environ.get('KILLS', 15))
SEED = int(os.environ.get('SEED', time.time()))
CLIENTS = 8

print('# KILLS=%d SEED=%d' % (KILLS, SEED))
random.seed(SEED)
example = Example('payments')
ALICE = 'Basic ' + base64.b64encode(b'alice:secret').decode()
ORDER = b'{"from": "alice", "to": "shop", "amount": 7}'

a, b = [example.post('/pay', 'first', ORDER, Authorization=ALICE)
        for _ in range(2)]
same((a.status, a.replayed, b.status, b.body, b.replayed),
     (201, False, 201, a.body, True), 'one payment, and its replay')

stop = threading.Event()
lock = threading.Lock()
paid = {}             # key: the answers that its client has got
gave_up = []
seen = {}


def until_paid(key):
    """Tries until it is told what became of the payment."""
    end = time.time() + 60
    while time.time() < end:
        try:
            a = example.post('/pay', key, ORDER, Authorization=ALICE)
            what = a.status if a.status == 201 else a.code or a.status
        except OSError:
            what = 'nobody'
        with lock:
            seen[what] = seen.get(what, 0) + 1
            if what == 201 and a.whole:
                paid.setdefault(key, []).append(a.body)
                return
        time.sleep(random.random() * 0.1)
    gave_up.append(key)


def client(n):
    i = 0
    while not stop.is_set():
        i += 1
        for _ in range(random.randint(1, 3)):
            until_paid('k-%d-%d' % (n, i))


threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
for thread in threads:
    thread.start()

killed = {'worker': 0, 'service': 0, 'backend': 0}
end = time.time() + 60 + KILLS
while sum(killed.values()) < KILLS and time.time() < end:
    time.sleep(0.1 + random.random() * 0.3)
    what = random.choice(list(killed))
    pids = {'worker': lambda: children(example.pid('nginx'), 'worker'),
            'service': lambda: [example.pid('service')],
            'backend': example.backends}[what]()
    if not pids:
        continue
    try:
        os.kill(random.choice(pids), signal.SIGKILL)
        killed[what] += 1
    except ProcessLookupError:
        pass
stop.set()
for thread in threads:
    thread.join()

print('# killed: %r' % killed)
print('# clients got: %r' % seen)
print('# %d keys' % len(paid))
same(sum(killed.values()), KILLS, 'so many were killed')
same(gave_up, [], 'every client learns what became of its payment')
same([key for key, got in paid.items() if len(set(got)) > 1], [],
     'and is told the same each time')
answers = [got[0] for got in paid.values()]
same(len(set(answers)), len(answers), 'no payment is told to two keys')

sums = json.loads(example.get('/accounts').body)
total = 7 * (len(paid) + 1)
same([(s['name'], s['balance'], s['entries']) for s in sums],
     [('alice', 1000000 - total, -total), ('shop', total, total)],
     'the ledger has one payment for each key')
ok('outcome_unknown' in seen or 'in_progress' in seen or 503 in seen,
   'and it was not without trouble', seen)

example.stop()
finish()
