#!/usr/bin/env python3
"""Workers are killed at random under load: no key is executed twice, and every
key is settled in the end.  KILLS=200 is the long form.
"""

import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (STORE, Gateway, Ledger, finish, ok,  # noqa: E402
                     same)

KILLS = int(os.environ.get('KILLS', 40))
SEED = int(os.environ.get('SEED', time.time()))
CLIENTS = 12
LEASE = 1

print('# KILLS=%d SEED=%d' % (KILLS, SEED))
random.seed(SEED)

up = Ledger()
gw = Gateway(up, workers=3, http='idempotency_lease %ds;' % LEASE,
             level='notice', size='64m')
gw.expected += ['exited on signal 9', 'was locked by',
                'was rebuilt after a process died']

PATHS = ['/ok', '/ok', '/slow/10', '/slow/50', '/drip/3/10', '/big/6000',
         '/bigchunked/20000', '/bigchunked/1200000']

stop = threading.Event()
lock = threading.Lock()
history = {}          # key: (path, [what each attempt got])
seen = dict.fromkeys(('201', 'replay', 'in_progress', 'outcome_unknown',
                      'response_not_kept', 'nothing', '502'), 0)


def attempt(path, key):
    """One attempt; what it got."""
    try:
        a = gw.post(path, key, timeout=10)
    except OSError:
        return 'nothing', None
    if not a.whole:
        return 'nothing', None
    if a.status == 201:
        return ('replay' if a.replayed else '201'), a.body
    return a.code or str(a.status), None


def settled(what):
    return what in ('201', 'replay', 'outcome_unknown', 'response_not_kept')


def client(n):
    rnd = random.Random(SEED + n)
    i = 0
    while not stop.is_set():
        key = 'k%d-%d' % (n, i)
        path = rnd.choice(PATHS)
        i += 1
        with lock:
            history[key] = (path, [])
        for _ in range(rnd.randint(1, 6)):
            got = attempt(path, key)
            history[key][1].append(got)
            if got[0] in ('nothing', 'in_progress'):
                time.sleep(rnd.random() * 0.2)
        time.sleep(0.01)


threads = [threading.Thread(target=client, args=(n,), daemon=True)
           for n in range(CLIENTS)]
for t in threads:
    t.start()

killed = 0
while killed < KILLS:
    time.sleep(random.uniform(0.05, 0.2))
    workers = gw.workers()
    if workers:
        try:
            os.kill(random.choice(workers), signal.SIGKILL)
            killed += 1
        except OSError:
            pass

stop.set()
for t in threads:
    t.join()

time.sleep(LEASE + 0.2)
gw.wait_port()

for key, (path, got) in history.items():
    for _ in range(2):
        got.append(attempt(path, key))

of = {}
for entry in up.entries:
    of.setdefault(entry[1], []).append(entry)

twice, unsettled, differ, strange = [], [], [], []

for key, (path, got) in history.items():
    if not settled(got[-1][0]):
        unsettled.append((key, path, got))
    for what, _ in got:
        if what not in seen:
            strange.append((key, path, what))
        else:
            seen[what] += 1
    entries = of.get(key, [])
    if len(entries) > 1:
        twice.append((key, path, got))
    bodies = {body for _, body in got if body is not None}
    if len(bodies) > 1:
        differ.append((key, path))
    for body in bodies:
        if not entries or b'%06d' % entries[0][0] not in body:
            differ.append((key, path, body[:60]))

print('# %d keys, %d executions, answers: %s'
      % (len(history), len(up.entries), seen))

ok(killed == KILLS, '%d workers were killed' % killed)
same(twice, [], 'no key was executed twice')
same(unsettled, [], 'every key settles')
same(differ, [], 'all answers for a key are the one of its execution')
same(strange, [], 'no other answers')
ok(all(seen[w] for w in ('201', 'replay', 'nothing', 'in_progress',
                         'outcome_unknown')),
   'the kills were felt', seen)

if STORE is None:
    info = gw.ask(op='info')
    ok(info.get('dirty') == '0', 'the store is in order', info)

gw.stop()
finish()
