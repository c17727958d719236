#!/usr/bin/env python3
"""With sync=full nothing is reported before it would survive loss of power: a
request is sent when its claim is on disk, an answer when it is, by whatever
worker.  Workers share syncs, and no two run at a time.  A worker that is
killed or stopped while it syncs does not hold up the others.
"""

import os
import shutil
import signal
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, 't', 'drive'))
from faultydisk import SYNC, WAL, WRITE, FaultyDisk    # noqa: E402
from gateway import (Gateway, Ledger, background, executed,    # noqa: E402
                     finish, free_port, ok, replays, same, until)

os.makedirs(TOP + '/build', exist_ok=True)
work = tempfile.mkdtemp(prefix='sync-', dir=TOP + '/build')

disk = FaultyDisk()
up = Ledger()
each = free_port()          # where connections go to each worker in turn
gw = Gateway(up, store='sqlite:%s/keys/main.db timeout=10s' % work, workers=4,
             main='env FAULTY_DISK_FILE;',
             http='add_header X-Worker $pid always;',
             server='listen 127.0.0.1:%d reuseport;' % each)


def all_work(name):
    """each worker has opened the database, and synced it for that"""
    seen = set()
    ok(until(lambda: seen.add(gw.post('/ok', '%s-%d' % (name, len(seen)),
                                      port=each).get('x-worker'))
             or len(seen) == 4), name + ': all workers work')


all_work('warm')


# ---- a request is sent when its claim is on disk

disk.holds(SYNC, WAL)
first = background(gw.post, '/ok', 'claimed')
ok(until(lambda: disk.hits > 0), 'the claim is being synced')
time.sleep(0.5)
executed(up, 'claimed', 0, 'before it is on disk')
disk.works()
same(first.join().status, 201, 'then it goes on')
executed(up, 'claimed', 1, 'it')


# ---- an answer is sent when it is on disk, to duplicates as well

up.hold()
first = background(gw.post, '/wait', 'answered')
up.until('answered')
disk.holds(SYNC, WAL)
up.go()
ok(until(lambda: disk.hits > 0), 'the answer is being synced')
duplicates = [background(gw.post, '/wait', 'answered', port=each)
              for _ in range(24)]
time.sleep(1)
same([t for t in [first] + duplicates if not t.is_alive()], [],
     'nothing is sent before it is on disk')
disk.works()
answers = [t.join() for t in [first] + duplicates]
same({(a.status, a.body) for a in answers}, {(201, answers[0].body)},
     'then all get the answer')
ok(len({a.get('x-worker') for a in answers}) > 1,
   'duplicates came to several workers',
   {a.get('x-worker') for a in answers})
executed(up, 'answered', 1, 'it')


# ---- a commit is written at once, however many pages it has

before = disk.seen(WRITE, WAL)
for i in range(20):
    gw.post('/ok', 'written-%d' % i)
writes = disk.seen(WRITE, WAL) - before
ok(40 <= writes < 60, 'a claim and a completion are two writes each time',
   writes / 20)


# ---- one sync for several workers

ms = 30
disk.slow(SYNC, WAL, ms)
before = disk.seen(SYNC, WAL)
start = time.time()


def client(n):
    return [gw.post('/ok', 'group-%d-%d' % (n, i), port=each).status
            for i in range(6)]


clients = [background(client, n) for n in range(24)]
statuses = [s for t in clients for s in t.join(60)]
took = time.time() - start
syncs = disk.seen(SYNC, WAL) - before
disk.works()
same(set(statuses), {201}, '%d new keys' % len(statuses))
ok(syncs * ms / 1000 < took * 1.1,
   'no two syncs at a time', '%d in %.2f s' % (syncs, took))
ok(syncs < len(statuses), 'and fewer than requests',
   '%d for %d' % (syncs, len(statuses)))


# ---- a worker is stopped, or killed, while it syncs

def others_go_on(name):
    answers = [background(gw.post, '/ok', '%s-%d' % (name, i))
               for i in range(12)]
    start = time.time()
    same({t.join().status for t in answers}, {201}, name + ': others go on')
    ok(time.time() - start < 5, 'in time', time.time() - start)


disk.stops(SYNC, WAL)
first = background(gw.post, '/ok', 'stopped')
ok(until(lambda: gw.stopped()), 'a worker is stopped while it syncs')
others_go_on('stopped')
executed(up, 'stopped', 0, 'it')
os.kill(disk.pid, signal.SIGCONT)
same(first.join().status, 201, 'it goes on as well')
executed(up, 'stopped', 1, 'it')

disk.kills(SYNC, WAL)
gw.expected += ['exited on signal 9']
first = background(gw.post, '/ok', 'killed')
ok(until(lambda: disk.hits), 'a worker is killed while it syncs')
others_go_on('killed')
victim = disk.pid
ok(until(lambda: victim not in gw.workers() and len(gw.workers()) == 4),
   'it has a successor')
disk.works()
same(first.join().status, 0, 'its client gets no answer')
executed(up, 'killed', 0, 'it')


# ---- another worker takes over what a stopped one has claimed

gw.write(default='idempotency_lease 1s; idempotency_unknown retry;')
old = gw.workers()
gw.signal(signal.SIGHUP)
until(lambda: not set(old) & set(gw.workers()) and len(gw.workers()) == 4)
all_work('configured')
disk.stops(SYNC, WAL)
lost = background(gw.post, '/slow/100', 'lost')
ok(until(lambda: gw.stopped()), 'a worker is stopped, its claim is written')
executed(up, 'lost', 0, 'it')
taken = None


def take():
    global taken
    taken = gw.post('/slow/100', 'lost')
    return taken.status == 201


ok(until(take, 15, 0.2), 'its lease is over: another worker executes it')
executed(up, 'lost', 1, 'it')
for pid in gw.stopped():
    os.kill(pid, signal.SIGCONT)
a = lost.join()
executed(up, 'lost', 1, 'after the first worker goes on')
ok(a.status in (409, 503) or (a.status, a.body) == (201, taken.body),
   'its client does not get another answer', a)
replays(gw, '/slow/100', 'lost', taken, 'taken over')

gw.stop()
shutil.rmtree(work, ignore_errors=True)
finish()
