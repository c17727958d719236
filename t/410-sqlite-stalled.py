#!/usr/bin/env python3
"""A disk that stalls blocks no worker, and nobody waits longer than timeout=.
New keys are refused with 503 and taken back; answers of upstreams reach their
clients and are stored when the disk is back, also by a worker that exits.  The stall is made by the lock that writers take turns by, which
the test holds.
"""

import fcntl
import json
import os
import shutil
import signal
import struct
import sys
import tempfile
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, 't', 'drive'))
from gateway import (Gateway, Ledger, background, executed,    # noqa: E402
                     finish, ok, replays, same, until)

F_OFD_SETLKW = 38

os.makedirs(TOP + '/build', exist_ok=True)
work = tempfile.mkdtemp(prefix='stalled-', dir=TOP + '/build')
db = work + '/keys/main.db'

up = Ledger()
gw = Gateway(up, store='sqlite:%s timeout=500ms' % db, workers=1,
             locations='''
    location = /plain { return 200 "plain"; }
    location = /stats { idempotency_stats; }
''')


class Stall:
    """nobody can write while it is there"""

    def __enter__(self):
        self.fd = os.open(db + '-lock', os.O_RDWR)
        fcntl.fcntl(self.fd, F_OFD_SETLKW,
                    struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 1, 0))

    def __exit__(self, *_):
        os.close(self.fd)


def timed(function, *args, **named):
    start = time.time()
    a = function(*args, **named)
    return a, time.time() - start


def store():
    with urllib.request.urlopen('http://127.0.0.1:%d/stats?format=json'
                                % gw.port) as f:
        return json.load(f)['stores'][0]


first = gw.post('/ok', 'warm')
same(first.status, 201, 'it works')

# ---- new keys

with Stall():
    a, took = timed(gw.post, '/ok', 'stalled')
    same((a.status, a.code), (503, 'store_unavailable'),
         'a new key is refused')
    ok(0.3 < took < 2, 'when its timeout is over', took)
    a, took = timed(gw.post, '/ok', 'stalled-too')
    same(a.status, 503, 'so is the next one')
    ok(took < 0.3, 'at once: the disk is known to stall', took)
    a, took = timed(gw.post, '/plain', None, body=None, method='GET')
    ok(a.status == 200 and took < 0.3, 'the worker is not blocked', took)
    same(store()['refusing'], 'timeout', 'statistics say why')

ok(until(lambda: gw.post('/ok', 'after').status == 201, 10),
   'afterwards new keys are taken')
executed(up, 'stalled', 0, 'what was refused')
ok(until(lambda: gw.state('stalled', '/ok') == 'none', 5),
   'its claim was given back', gw.state('stalled', '/ok'))
same(gw.post('/ok', 'stalled').status, 201, 'and a retry is executed')
executed(up, 'stalled', 1, 'the retry')

# ---- a client that leaves

with Stall():
    c = gw.call('/ok', 'left')
    time.sleep(0.1)
    c.close()
    time.sleep(0.1)
ok(until(lambda: gw.state('left', '/ok') in ('none', 'done'), 5),
   'a client has left: its key is settled')
same(gw.post('/ok', 'left').status, 201, 'its retry is answered')
executed(up, 'left', 1, 'it')

# ---- an answer

up.hold()
held = background(gw.post, '/wait', 'answered')
up.until('answered')
with Stall():
    up.go()
    a = held.join()
    same(a.status, 201, 'an answer reaches its client while the disk stalls')
    ok(until(lambda: store()['state'] == 'outcomes_waiting', 5),
       'statistics say that its outcome waits', store()['state'])
ok(until(lambda: gw.state('answered', '/wait') == 'done', 5),
   'it is stored when the disk is back')
replays(gw, '/wait', 'answered', a, 'stored behind its request')
executed(up, 'answered', 1, 'it')

# ---- the worker quits meanwhile

up.hold()
held = background(gw.post, '/wait', 'quit')
up.until('quit')
old = gw.workers()
with Stall():
    up.go()
    a = held.join()
    gw.signal(signal.SIGHUP)
    time.sleep(1)
    ok(set(old) <= set(gw.workers()), 'a worker with outcomes does not exit')
ok(until(lambda: not set(old) & set(gw.workers()), 10), 'then it does')
replays(gw, '/wait', 'quit', a, 'stored by a worker that was exiting')
executed(up, 'quit', 1, 'it')

# ---- it is told to terminate

up.hold()
held = background(gw.post, '/wait', 'term')
up.until('term')
with Stall():
    up.go()
    a = held.join()
    same(a.status, 201, 'another answer')
    pid = gw.pid()
    gw.signal(signal.SIGTERM)
    time.sleep(0.2)
ok(until(lambda: not os.path.exists('/proc/%d' % pid), 10), 'nginx ends')
gw.command()
gw.wait_port()
replays(gw, '/wait', 'term', a, 'stored by a worker that was terminated')
executed(up, 'term', 1, 'it')

gw.stop()
shutil.rmtree(work, ignore_errors=True)
finish()
