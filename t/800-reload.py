#!/usr/bin/env python3
"""Reload, quit and upgrade while requests are in flight.

Old workers finish what they have begun and renew its leases; a duplicate that
meets a new worker waits for nothing and executes nothing.  A worker that may
not wait any longer (worker_shutdown_timeout, fast shutdown) leaves an unknown.
A binary upgrade has a zone of its own: what the old process knows is not known
to the new one, and this file shows that limit, too.
"""

import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (STORE, Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, refused, replays, same, until)

up = Ledger()


def gateway(**args):
    return Gateway(up, workers=2, size='64m',
                   http='idempotency_lease 1s;', **args)


def reload(gw):
    old = gw.workers()
    gw.signal(signal.SIGHUP)
    until(lambda: len(set(gw.workers()) - set(old)) >= 2)
    return old


def gone(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return True
    with open('/proc/%d/stat' % pid) as f:
        return f.read().rpartition(')')[2].split()[0] == 'Z'


def test_reload():
    gw = gateway()
    path = '/slow/2500'
    first = background(gw.post, path, 'reload')
    up.until('reload')
    old = reload(gw)
    codes = set()
    while first.is_alive():
        a = gw.post(path, 'reload')
        codes.add(a.code if a.status == 409 else a.status)
        time.sleep(0.1)
    ok(codes <= {'in_progress', 201}, 'reload: the old worker renews', codes)
    a = first.join()
    same((a.status, a.replayed), (201, False), 'reload: answered')
    replays(gw, path, 'reload', a, 'reload')
    executed(up, 'reload', 1, 'reload')
    ok(until(lambda: all(gone(pid) for pid in old), 5),
       'reload: old workers end')

    # with a client that has left
    c = gw.call('/slow/600', 'left')
    up.until('left')
    c.close()
    reload(gw)
    ok(until(lambda: gw.state('left', '/slow/600') == 'done', 3),
       'reload, and the client has left: done')
    a = gw.post('/slow/600', 'left')
    same((a.status, a.replayed), (201, True), 'and replayed')
    executed(up, 'left', 1, 'the client has left')

    # a configuration that fails changes nothing
    until(lambda: len(gw.workers()) == 2)
    before = gw.workers()
    gw.write(default='no_such_directive on;')
    gw.signal(signal.SIGHUP)
    gw.until_log('unknown directive "no_such_directive"')
    gw.expected.append('unknown directive "no_such_directive"')
    same(gw.workers(), before, 'a wrong file is not taken')
    replays(gw, path, 'reload', first.join(), 'a wrong file')
    gw.stop()


def test_reload_under_load():
    gw = gateway()
    stop = threading.Event()
    wrong, done = [], []

    def client(n):
        i = 0
        while not stop.is_set():
            key = 'load-%d-%d' % (n, i)
            path = ('/slow/30', '/ok', '/drip/3/10', '/big/30000')[i % 4]
            i += 1
            a = gw.post(path, key)
            b = gw.post(path, key)
            if a.status != 201 or not b.replayed or a.body != b.body:
                wrong.append((key, a, b))
            done.append(key)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for _ in range(10):
        reload(gw)
        time.sleep(0.15)
    stop.set()
    for t in threads:
        t.join()
    same(wrong[:3], [], '10 reloads under load, %d keys' % len(done))
    same([k for k in done if up.count(k) != 1], [], 'each executed once')
    gw.stop()


def test_quit():
    gw = gateway()
    first = background(gw.post, '/slow/1500', 'quit')
    up.until('quit')
    left = gw.call('/slow/800', 'quit-left')
    up.until('quit-left')
    left.close()
    log = gw.log_file
    pid = gw.pid()
    gw.signal(signal.SIGQUIT)
    a = first.join()
    same((a.status, a.replayed), (201, False), 'graceful quit: answered')
    executed(up, 'quit', 1, 'graceful quit')
    ok(until(lambda: not os.path.exists(gw.root + '/nginx.pid'), 5),
       'and ends then', pid)
    with open(log) as f:
        ok('record' not in f.read(), 'no outcome was lost')
    gw.stop()


def test_shutdown_timeout():
    gw = gateway(main='worker_shutdown_timeout 500ms;')
    path = '/slow/3000'
    first = background(gw.post, path, 'timeout')
    up.until('timeout')
    old = reload(gw)
    a = first.join()
    same(a.raw, b'', 'worker_shutdown_timeout: no answer')
    ok(until(lambda: gw.state('timeout', path) == 'unknown', 2),
       'worker_shutdown_timeout: unknown')
    refused(gw, path, 'timeout', 'outcome_unknown', 'and held')
    ok(until(lambda: all(gone(pid) for pid in old), 3), 'old workers end')
    executed(up, 'timeout', 1, 'worker_shutdown_timeout')
    gw.stop()


def test_terminate():
    gw = gateway()
    first = background(gw.post, '/slow/1000', 'term')
    up.until('term')
    for pid in gw.workers():
        os.kill(pid, signal.SIGTERM)
    a = first.join()
    same(a.raw, b'', 'a worker that is terminated: no answer')
    gw.wait_port()
    ok(until(lambda: gw.state('term', '/slow/1000') == 'unknown', 3),
       'unknown after its lease at the latest')
    executed(up, 'term', 1, 'a worker that is terminated')
    gw.stop()


def test_upgrade():
    gw = gateway()
    path = '/slow/2000'
    a = gw.post('/ok', 'before')
    first = background(gw.post, path, 'upgrade')
    up.until('upgrade')
    old = gw.pid()
    old_workers = gw.workers()
    gw.signal(signal.SIGUSR2)
    ok(until(lambda: os.path.exists(gw.root + '/nginx.pid.oldbin')
             and os.path.exists(gw.root + '/nginx.pid')
             and len(gw.workers()) == 2, 5), 'USR2: a new process')
    gw.signal(signal.SIGWINCH, old)
    b = first.join()
    same((b.status, b.replayed), (201, False),
         'upgrade: what was in flight is answered')
    executed(up, 'upgrade', 1, 'upgrade')
    ok(until(lambda: all(gone(pid) for pid in old_workers), 5),
       'WINCH: the old workers end')

    b = gw.post('/ok', 'before')

    if STORE:
        same((b.status, b.replayed, b.body), (201, True, a.body),
             'a key of the old process replays in the new one')
        executed(up, 'before', 1, 'it')
    else:
        # the limit of the embedded store
        same((b.status, b.replayed, a.body != b.body), (201, False, True),
             'a key of the old process is not known to the new one')
        executed(up, 'before', 2, 'and is executed again')

    # back: the old process has kept its zone
    new = gw.pid()
    os.kill(old, signal.SIGHUP)
    until(lambda: len(gw.workers(old)) == 2)
    os.kill(new, signal.SIGQUIT)
    ok(until(lambda: gone(new), 5), 'HUP to the old, QUIT to the new')
    until(lambda: os.path.exists(gw.root + '/nginx.pid'))
    c = gw.post('/ok', 'before')
    same((c.status, c.body, c.replayed), (201, a.body, True),
         'a roll back finds every key again')
    gw.stop()


test_reload()
test_reload_under_load()
test_quit()
test_shutdown_timeout()
test_terminate()
test_upgrade()
finish()
