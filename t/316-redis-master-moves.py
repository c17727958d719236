#!/usr/bin/env python3
"""redis://: the store follows the master that the name or the virtual address
leads to.

All connections leave a server that is demoted at once, also if its READONLY
comes wrapped in the error of a script; the name is resolved again, and of
several addresses the one with a master is used.  A name that moves is
followed, also while the old server still answers, and by all workers as soon as
one of them has resolved it.  A name server that is
silent, slow or does not know the name costs neither the known addresses nor
the next try.
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from dns import Dns, Forward  # noqa: E402
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     same, since, until)
from redis_binary import skipped  # noqa: E402
from redisd import RECORDS, Proxy, Redis  # noqa: E402
from shm import free_port  # noqa: E402

FORGOTTEN = 'keys may be forgotten'
OPTIONS = ' timeout=500ms connect_timeout=500ms amnesia=0'
FAST = ('--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1')

up = Ledger()
names = iter('%d' % n for n in range(100000))


def server(address, port, *options):
    s = Redis('--bind', address, '--protected-mode', 'no', *FAST, *options,
              port=port)
    s.address = address
    return s


def gateway(target, dns=None, workers=1, http=''):
    gw = Gateway(up, store=target + OPTIONS, workers=workers,
                 http=(dns.resolver if dns else '') + http)
    gw.expected = [FORGOTTEN]
    return gw


def post(gw):
    return gw.post('/ok', 'key-' + next(names)).status


def works(gw, name, timeout=10):
    """returns seconds until it does"""
    begin = time.time()
    seen = []
    ok(until(lambda: seen.append(post(gw)) or seen[-1] == 201, timeout, 0.02),
       name, (seen[-5:], gw.log()[-2000:]))
    return since(begin)


def served(gw, name, timeout=10):
    """by all workers: one may have found out before another"""
    ok(until(lambda: [post(gw) for _ in range(8)] == [201] * 8, timeout),
       name)


def records(s):
    return len(s('KEYS', RECORDS))


def replicate(s, master):
    s('REPLICAOF', master.address, master.port)
    ok(until(lambda: s('ROLE')[3] == b'connected', 20),
       '%s replicates' % s.address)


def swap(old, new):
    """"new" is a master, and "old" its replica; both are alive"""
    new('REPLICAOF', 'NO', 'ONE')
    old('REPLICAOF', new.address, new.port)


def stop(*all_):
    for s in all_:
        s.remove()


def test_resolver_timeout():
    """nginx merges "resolver_timeout" into servers, not into http{}"""
    port = free_port()
    one, two = server('127.0.0.2', port), server('127.0.0.3', port)
    dns = Dns()
    dns.set('localhost', '127.0.0.2')
    with_name = Forward('127.0.0.1', port, ('127.0.0.2', port))
    gw = gateway('redis://localhost:%d' % port, dns)
    works(gw, 'no resolver_timeout: works')
    dns.set('localhost', '127.0.0.3')
    one.stop()
    with_name.to(None)
    works(gw, 'no resolver_timeout: the name has moved, and is found')
    ok('timed out' not in gw.log() or 'Operation timed out' not in gw.log(),
       'no resolver_timeout: no lookup times out at once')
    ok(records(two) > 0, 'no resolver_timeout: it is the new server')
    gw.stop()
    stop(one, two)


def test_name_server():
    """slow, silent, ignorant: known addresses stay, and it is asked again"""
    port = free_port()
    one, two = server('127.0.0.2', port), server('127.0.0.3', port)
    dns = Dns()
    dns.set('localhost', '127.0.0.2')
    gw = gateway('redis://localhost:%d' % port, dns,
                 http='resolver_timeout 400ms;')
    works(gw, 'name server: works')

    for bad, word in ((None, 'silent'), (Dns.NXDOMAIN, 'does not know'),
                      (Dns.SERVFAIL, 'fails')):
        dns.set('localhost', bad)
        one.restart()
        works(gw, 'name server %s: the last known address is used' % word)
        dns.set('localhost', '127.0.0.3')
        n = records(two)
        ok(until(lambda: post(gw) == 201 and records(two) > n, 15, 0.05),
           'name server %s: it is asked again, and then followed' % word)
        dns.set('localhost', '127.0.0.2')
        n = records(one)
        ok(until(lambda: post(gw) == 201 and records(one) > n, 15, 0.05),
           'name server %s: and back' % word)

    dns.delay = 0.2
    dns.set('localhost', '127.0.0.3')
    one.stop()
    works(gw, 'name server slow: found')
    gw.stop()
    stop(one, two)


def test_moved_name():
    """the old server is alive and a master: the name counts, for all"""
    port = free_port()
    one, two = server('127.0.0.2', port), server('127.0.0.3', port)
    dns = Dns()
    dns.set('localhost', '127.0.0.2')
    gw = gateway('redis://localhost:%d connections=3' % port, dns, workers=2)
    works(gw, 'moved name: works')
    for old, new in ((one, two), (two, one)):
        dns.set('localhost', new.address)
        ok(until(lambda: b' addr=127' not in old('CLIENT', 'LIST'), 15, 0.1),
           'moved name: no connection is left at the old server')
        served(gw, 'moved name: works again')
        ok(until(lambda: all(post(gw) == 201 for _ in range(20)), 15),
           'moved name: all workers have found it')
        n = records(old)
        same([post(gw) for _ in range(20)], [201] * 20,
             'moved name: all is served')
        same(records(old), n, 'moved name: nothing goes to the old server')
    gw.stop()
    stop(one, two)


def test_cached_name():
    """a worker keeps an old answer of the name server for ten minutes"""
    port = free_port()
    servers = [server('127.0.0.%d' % n, port) for n in (2, 3, 4)]
    dns = Dns()
    dns.set('localhost', servers[0].address)
    gw = gateway('redis://localhost:%d' % port, dns, workers=3)
    for old, new, alive in ((*servers[:2], True), (*servers[1:], False)):
        served(gw, 'cached name: works')
        dns.ttls = [600]
        ok(until(lambda: not dns.ttls, 10), 'cached name: one worker keeps it')
        dns.set('localhost', new.address)
        if not alive:
            old.stop()
        begin = time.time()
        ok(until(lambda: post(gw) == 201 and records(new), 10, 0.05),
           'cached name: a worker finds the new server')
        ok(until(lambda: [post(gw) for _ in range(24)] == [201] * 24, 10),
           'cached name: it leads the others there', gw.log()[-3000:])
        print('# all workers after %.1f s' % since(begin))
        n = alive and records(old)
        losses = gw.log().count(FORGOTTEN)
        time.sleep(4)             # they resolve it again meanwhile
        same([post(gw) for _ in range(24)], [201] * 24,
             'cached name: and they stay')
        same(alive and records(old), n, 'cached name: none goes back')
        same(gw.log().count(FORGOTTEN), losses,
             'cached name: and none meets another server')
    gw.stop()
    stop(*servers)


def test_connections():
    """two masters behind one name: all connections go to one of them"""
    port = free_port()
    one, two = server('127.0.0.2', port), server('127.0.0.3', port)
    dns = Dns()
    dns.set('localhost', '127.0.0.2', '127.0.0.3')
    gw = gateway('redis://localhost:%d connections=8' % port, dns)
    works(gw, 'connections: works')
    for _ in range(40):
        same(post(gw), 201, 'connections: served')
    same(sorted([records(one) > 0, records(two) > 0]), [False, True],
         'connections: all of them go to one server')
    there = one if records(one) else two
    there('CLIENT', 'KILL', 'TYPE', 'normal')
    works(gw, 'connections: closed, and made anew')
    for _ in range(40):
        same(post(gw), 201, 'connections: served again')
    same(sorted([records(one) > 0, records(two) > 0]), [False, True],
         'connections: still to that server')
    gw.stop()
    stop(one, two)


def test_replica_among_addresses():
    port = free_port()
    one, two = server('127.0.0.2', port), server('127.0.0.3', port)
    replicate(one, two)
    dns = Dns()
    dns.set('localhost', '127.0.0.2', '127.0.0.3')
    gw = gateway('redis://localhost:%d' % port, dns, workers=2)
    works(gw, 'several addresses: the master is found')
    slow = []
    for i in range(6):
        old, new = (two, one) if i % 2 == 0 else (one, two)
        swap(old, new)
        slow.append(works(gw, 'several addresses: the new master is found'))
        served(gw, 'several addresses: by all workers')
    ok(max(slow) < 3, 'several addresses: soon', slow)
    gw.stop()
    stop(one, two)


def test_virtual_address():
    """the address stays, what it leads to does not"""
    one, two = server('127.0.0.2', free_port()), \
        server('127.0.0.3', free_port())
    replicate(two, one)
    vip = Forward('127.0.0.9', 0, (one.address, one.port))
    gw = gateway('redis://127.0.0.9:%d connections=4' % vip.port, workers=2)
    works(gw, 'virtual address: works')
    for cut in (True, False) * 2:
        old, new = (one, two) if one('ROLE')[0] == b'master' else (two, one)
        swap(old, new)
        begin = time.time()
        a = gw.post('/ok', 'vip-' + next(names))
        ok(a.status == 503 and since(begin) < 3,
           'virtual address: refused while it leads to a replica',
           (a.status, since(begin)))
        vip.to((new.address, new.port), cut=cut)
        took = works(gw, 'virtual address: it leads to the master again')
        ok(took < 3, 'virtual address: soon', took)
        served(gw, 'virtual address: by all workers')
        ok(until(lambda: new('ROLE')[0] == b'master' and len(new('ROLE')[2]),
                 20), 'virtual address: replicates again')
    gw.stop()
    stop(one, two)


def test_wrapped():
    """READONLY as Redis 5, 6 and 7 say it: not executed, so sent again"""
    one = server('127.0.0.1', None)
    proxy = Proxy(one)
    said = 'READONLY You can\'t write against a read only replica.'
    script = 'ERR Error running script (call to f_%s): @user_script:6: ' \
        '@user_script: 6: -' % ('0' * 40)
    for text in (said, script + said, said + ' script: 0, on @user_script:6.',
                 script + 'MASTERDOWN Link with MASTER is down and '
                 'replica-serve-stale-data is set to \'no\'.',
                 'LOADING Redis is loading the dataset in memory'):
        gw = gateway('redis://127.0.0.1:%d' % proxy.port)
        works(gw, 'wrapped: works')
        time.sleep(1.1)           # a connection that lasts is a good one
        before = proxy.connections
        proxy.on('claim', '-' + text)
        key = 'wrapped-' + next(names)
        same(gw.post('/ok', key).status, 201, 'wrapped: "%s..."' % text[:40])
        executed(up, key, 1, 'wrapped')
        ok(proxy.connections > before, 'wrapped: on another connection')
        gw.stop()
    # what only looks like it
    gw = gateway('redis://127.0.0.1:%d' % proxy.port)
    works(gw, 'wrapped: works')
    proxy.on('claim', '-ERR READONLY is no word of mine')
    same(gw.post('/ok', 'wrapped-' + next(names)).status, 503,
         'wrapped: another error is one')
    gw.stop()
    stop(one)


def test_without_role():
    """a user who may not ask for the role: the first write tells"""
    if skipped('a user who may not ask for the role', 'acl'):
        return
    port = free_port()
    acl = ('--user', 'pay', 'on', 'nopass', '~*', '&*', '+@all', '-role',
           '-info')
    one, two = server('127.0.0.2', port, *acl), \
        server('127.0.0.3', port, *acl)
    replicate(two, one)
    dns = Dns()
    dns.set('localhost', '127.0.0.2', '127.0.0.3')
    gw = gateway('redis://pay:x@localhost:%d' % port, dns)
    works(gw, 'no role: works')
    swap(one, two)
    works(gw, 'no role: the new master is found')
    ok(records(two) > 0, 'no role: it is there')
    gw.stop()
    stop(one, two)


def main():
    for test in sys.argv[1:] or [n for n in list(globals())
                                 if n.startswith('test_')]:
        globals()[test]()
    finish()


main()
