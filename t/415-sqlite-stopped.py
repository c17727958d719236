#!/usr/bin/env python3
"""A worker is killed or stopped while it has its turn to write.  Killed: its
turn is over at once, and nothing of what it has begun is seen.  Stopped: the
others answer 503 by name in time, also leave when they are asked to, and go on
when it does.  In no case is anything executed twice.
"""

import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, 't', 'drive'))
from faultydisk import WAL, WRITE, FaultyDisk    # noqa: E402
from gateway import (Gateway, Ledger, background, executed,    # noqa: E402
                     finish, ok, replays, same, until)

os.makedirs(TOP + '/build', exist_ok=True)
work = tempfile.mkdtemp(prefix='stopped-', dir=TOP + '/build')
db = work + '/keys/main.db'

disk = FaultyDisk()
up = Ledger()
gw = Gateway(up, store='sqlite:%s timeout=1s' % db, workers=3,
             main='env FAULTY_DISK_FILE;', default='idempotency_lease 2s;',
             locations='location = /stats { idempotency_stats; }')
gw.expected += ['exited on signal 9']
first = gw.post('/ok', 'first')
same(first.status, 201, 'it works')


def refusing():
    with urllib.request.urlopen('http://127.0.0.1:%d/stats?format=json'
                                % gw.port) as f:
        return json.load(f)['stores'][0]['refusing']


def timed(function, *args, **named):
    start = time.time()
    a = function(*args, **named)
    return a, time.time() - start


# ---- killed

for n in range(5):
    key = 'killed-%d' % n
    disk.kills(WRITE, WAL)
    a = gw.post('/ok', key)
    victim = disk.pid
    same(a.status, 0, key + ': a worker was killed while it wrote')
    executed(up, key, 0, key)
    a, took = timed(gw.post, '/ok', key)
    same(a.status, 201, key + ': a retry is executed')
    ok(took < 3, 'and does not wait', took)
    executed(up, key, 1, key)
    until(lambda: victim not in gw.workers() and len(gw.workers()) == 3)
replays(gw, '/ok', 'first', first, 'after that')


# ---- stopped

disk.stops(WRITE, WAL)
held = background(gw.post, '/ok', 'held', timeout=60)
ok(until(lambda: gw.stopped()), 'a worker is stopped while it writes')
victim = disk.pid
# those that are asked to leave do not wait for it

time.sleep(1.5)                    # they wait for their turn to expire records
old = set(gw.workers())
gw.signal(signal.SIGHUP)
ok(until(lambda: not (old - {victim}) & set(gw.workers()), 10),
   'workers without outcomes leave', old & set(gw.workers()))
same(victim in gw.stopped(), True, 'while it is still stopped')

a, took = timed(gw.post, '/ok', 'meanwhile')
same((a.status, a.code), (503, 'store_unavailable'), 'others refuse new keys')
ok(took < 3, 'in time', took)
same(refusing(), 'timeout', 'statistics say why')
executed(up, 'held', 0, 'what it has begun')

os.kill(victim, signal.SIGCONT)
ok(until(lambda: gw.post('/ok', 'after').status == 201, 10, 0.1),
   'it goes on, and so do the others')
a = held.join()
ok(a.status in (201, 503), 'its client gets an answer', a)
ok(until(lambda: gw.post('/ok', 'held').status == 201, 10, 0.1),
   'a retry gets the answer or is executed')
executed(up, 'held', 1, 'it')
same(gw.post('/ok', 'meanwhile').status, 201, 'what was refused is free')
executed(up, 'meanwhile', 1, 'it')
ok(until(lambda: victim not in gw.workers()), 'it leaves as well')
replays(gw, '/ok', 'first', first, 'at the end')

conn = sqlite3.connect('file:%s?mode=ro' % db, uri=True)
same(conn.execute('PRAGMA integrity_check').fetchall(), [('ok',)],
     'the database is whole')
conn.close()

gw.stop()
shutil.rmtree(work, ignore_errors=True)
finish()
