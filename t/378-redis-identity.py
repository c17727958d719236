#!/usr/bin/env python3
"""Another server in place of the master, or one that evicts keys, is noticed.

Behind one address, as managed services have it, a replica takes over that has
all but the last writes: its counter is right, its identity is not.  A switch
back to the previous server is noticed as well, since the counter has another
name by then.  Running requests restore their records at once, and new keys are
refused for the longest lease of any gateway, not only of this one.  A server
that may evict keys gets no new ones, and one that has evicted some has lost
data; where INFO is forbidden neither is known, which is logged.  An idle gateway sends few commands, however many workers it has.
"""

import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from dns import Forward  # noqa: E402
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, refused, replays, same, until)
from redis_binary import skipped  # noqa: E402
from redisd import Redis  # noqa: E402
from shm import free_port  # noqa: E402

FORGOTTEN = 'keys may be forgotten'


def losses(gw):
    return gw.log().count(FORGOTTEN)


def taken_again(gw, name, path='/ok'):
    ok(until(lambda: gw.post(path, name + '-%d' % time.time_ns()).status
             == 201, 20, 0.2), name + ': new keys are taken again')


def replica_of(master):
    replica = Redis()
    replica('REPLICAOF', '127.0.0.1', master.port)
    ok(until(lambda: b'master_link_status:up' in replica('INFO'), 20),
       'a replica is there')
    return replica


def behind_an_address(up):
    """a replica takes over; then the old server is back, with old data"""
    first = Redis()
    second = replica_of(first)
    port = free_port()
    address = Forward('127.0.0.1', port, ('127.0.0.1', first.port))
    gw = Gateway(up, workers=2,
                 store='redis://127.0.0.1:%d amnesia=3s' % port)
    gw.expected = [FORGOTTEN]
    done = gw.post('/ok', 'known')
    same(done.status, 201, 'a master behind an address')
    ok(until(lambda: second('DBSIZE') == first('DBSIZE'), 10),
       'its replica has everything')
    running = background(gw.post, '/wait', 'running')
    up.until('running')

    second('REPLICAOF', 'NO', 'ONE')
    address.to(('127.0.0.1', second.port))
    ok(until(lambda: losses(gw), 10),
       'a replica that lacks nothing yet has taken over: it is noticed')
    refused(gw, '/ok', 'while', 'store_unavailable',
            'nothing new is begun', status=503)
    executed(up, 'while', 0, 'what is refused')
    ok(until(lambda: gw.post('/ok', 'known').body == done.body, 5),
       'what is known is answered')
    ok(until(lambda: gw.post('/wait', 'running').code == 'in_progress', 2),
       'what runs is known there')
    time.sleep(1)
    same(losses(gw), 1, 'it is noticed once, by all workers')
    up.go()
    same(running.join().status, 201, 'what ran ends')
    up.hold()
    taken_again(gw, 'second')
    same(gw.post('/ok', 'new-there').status, 201, 'a key of the new server')

    time.sleep(0.6)
    address.to(('127.0.0.1', first.port))
    ok(until(lambda: losses(gw) == 2, 10),
       'back at the server before: it is noticed')
    refused(gw, '/ok', 'new-there', 'store_unavailable',
            'and its keys are not executed again', status=503)
    executed(up, 'new-there', 1, 'a key of the new server')
    gw.stop()
    first.remove()
    second.remove()


def late_replica(up):
    """Redis begins another history when its first replica comes."""
    first = Redis()
    address = Forward('127.0.0.1', free_port(), ('127.0.0.1', first.port))
    gw = Gateway(up, store='redis://127.0.0.1:%d amnesia=2s' % address.port)
    gw.expected = [FORGOTTEN]
    same(gw.post('/ok', 'late').status, 201, 'a master without a replica')
    second = replica_of(first)
    time.sleep(2.5)               # the server was asked since
    second('REPLICAOF', 'NO', 'ONE')
    address.to(('127.0.0.1', second.port))
    ok(until(lambda: losses(gw), 10),
       'a replica that came later has taken over: it is noticed')

    third = replica_of(second)
    fourth = replica_of(third)
    third('REPLICAOF', 'NO', 'ONE')
    ok(until(lambda: b'master_link_status:up' in fourth('INFO'), 20),
       'a replica of the third')
    fourth('REPLICAOF', 'NO', 'ONE')
    before = losses(gw)
    address.to(('127.0.0.1', fourth.port))
    ok(until(lambda: losses(gw) > before, 10),
       'two failovers at once are noticed')
    gw.stop()
    for server in (first, second, third, fourth):
        server.remove()


def there_and_back(up):
    """a master that was a replica meanwhile is the same process"""
    first = Redis()
    second = replica_of(first)
    gw = Gateway(up, store='redis://127.0.0.1:%d amnesia=2s' % first.port)
    gw.expected = [FORGOTTEN, 'is not the master', 'READONLY',
                   'cannot be reached']
    same(gw.post('/ok', 'back').status, 201, 'a master')
    second('REPLICAOF', 'NO', 'ONE')
    first('REPLICAOF', '127.0.0.1', second.port)
    ok(until(lambda: b'master_link_status:up' in first('INFO'), 20),
       'it is a replica now')
    first('REPLICAOF', 'NO', 'ONE')
    ok(until(lambda: losses(gw), 10),
       'and a master again, with what the other one had: it is noticed')
    taken_again(gw, 'back')
    gw.stop()
    first.remove()
    second.remove()


def unproven(up):
    """it is empty, and takes no write at first: its counter says nothing"""
    server = Redis()
    replica = replica_of(server)
    server('CONFIG', 'SET', 'min-replicas-to-write', 1)
    gw = Gateway(up, store='redis://127.0.0.1:%d amnesia=2s' % server.port)
    gw.expected = [FORGOTTEN, 'NOREPLICAS', 'cannot be reached', 'closed',
                   'refuses']
    ok(until(lambda: gw.post('/ok', 'proof').status == 201, 10),
       'a master with its replica')
    time.sleep(0.6)
    replica.pause()
    server.stop()
    server.start('--min-replicas-to-write', '1')
    ok(until(lambda: clients(server), 10), 'it comes back empty')
    same(gw.post('/ok', 'other').status, 503, 'and takes no writes')
    replica.resume()
    ok(until(lambda: gw.post('/ok', 'proof').status == 201
             or losses(gw), 20, 0), 'then it takes them, and is seen as empty')
    executed(up, 'proof', 1, 'what it has lost')
    ok(losses(gw), 'it is noticed')
    gw.stop()
    server.remove()
    replica.remove()


def clients(server):
    return [line for line in server('CLIENT', 'LIST').split(b'\n')
            if b'addr=127.0.0.1:' in line and b'flags=N' in line]


def followed(up):
    """one worker meets another server, the others leave the one before"""
    first = Redis()
    second = replica_of(first)
    address = Forward('127.0.0.1', free_port(), ('127.0.0.1', first.port))
    gw = Gateway(up, workers=3,
                 store='redis://127.0.0.1:%d amnesia=1s' % address.port)
    gw.expected = [FORGOTTEN, 'exited on signal 9']
    same(gw.post('/ok', 'follow').status, 201, 'three workers')
    ok(until(lambda: len(clients(first)) >= 3, 10), 'are connected')
    second('REPLICAOF', 'NO', 'ONE')
    address.to(('127.0.0.1', second.port), cut=False)
    os.kill(gw.workers()[0], signal.SIGKILL)
    ok(until(lambda: losses(gw), 10), 'a new worker notices')
    ok(until(lambda: len(clients(second)) >= 3 and not clients(first), 10),
       'and all of them are there now')
    same(losses(gw), 1, 'one loss for all')
    gw.stop()
    first.remove()
    second.remove()


def restarted(up):
    """the same server, with its data: no loss, though it has a new run_id"""
    server = Redis('--appendonly', 'yes', '--appendfsync', 'always')
    gw = Gateway(up, workers=2, store='redis://127.0.0.1:%d' % server.port)
    first = gw.post('/ok', 'restarted')
    server.stop()
    server.start()
    ok(until(lambda: gw.post('/ok', 'restarted').status == 201, 10),
       'a restart: it is back')
    replays(gw, '/ok', 'restarted', first, 'a restart with its data')
    taken_again(gw, 'restarted')
    same(losses(gw), 0, 'a restart with its data is no loss')
    gw.stop()
    server.remove()


LEASE = '''
    location /pay/ {
        idempotency main;
        idempotency_lease %s;
        proxy_pass http://up;
    }
'''


def leases(up):
    """two gateways, one of them with longer leases"""
    server = Redis()
    store = 'redis://127.0.0.1:%d' % server.port
    short = Gateway(up, store=store, locations=LEASE % '2s')
    long = Gateway(up, workers=3, store=store, locations=LEASE % '60s')
    for gw in (short, long):
        gw.expected = [FORGOTTEN]
        same(gw.post('/pay/ok', 'lease').status, 201, 'a gateway works')
    ok(until(lambda: server('GET', 'idem:lease') == b'60000', 10),
       'the longest lease is kept in Redis')
    ok(server('PTTL', 'idem:lease') > 0, 'and leaves after a while')

    running = [background(long.post, '/pay/wait', 'long-%d' % i)
               for i in range(6)]
    for i in range(6):
        up.until('long-%d' % i)
    time.sleep(5)                 # the short one has seen it by now
    server('FLUSHALL')
    ok(until(lambda: 'refused for 60000 ms' in short.log(), 10),
       'a gateway with short leases waits for the longest')
    refused(short, '/pay/ok', 'short-new', 'store_unavailable',
            'and refuses new keys', status=503)
    ok(until(lambda: all(short.post('/pay/wait', 'long-%d' % i).code
                         == 'in_progress' for i in range(6)), 3, 0.1),
       'what runs in any worker is written anew at once')
    up.go()
    same({r.join().status for r in running}, {201}, 'what ran ends')
    for i in range(6):
        executed(up, 'long-%d' % i, 1, 'what ran')
    up.hold()
    short.stop()
    long.stop()
    server.remove()


def eviction(up):
    server = Redis('--maxmemory', '100mb', '--maxmemory-policy',
                   'volatile-lru')
    gw = Gateway(up, workers=2,
                 store='redis://127.0.0.1:%d amnesia=2s' % server.port,
                 locations='location = /stats { idempotency_stats; }')
    gw.expected = [FORGOTTEN]

    def stats():
        return gw.post('/stats?format=prometheus', None, body=None,
                       method='GET').body.decode()

    refused(gw, '/ok', 'evict', 'store_unavailable',
            'a policy that may evict: no new keys', status=503)
    ok(gw.until_log('maxmemory-policy is "volatile-lru", it may forget keys '
                    'when its memory is full, new keys are refused'),
       'which is said', gw.log())
    executed(up, 'evict', 0, 'a policy that may evict')
    ok('idempotency_store_up{store="main"} 0' in stats(), 'it is not up')
    ok('reason="evicts"} 1' in stats(), 'and the reason has a name', stats())

    server('CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
    ok(until(lambda: gw.post('/ok', 'evict').status == 201, 10, 0.1),
       'noeviction: new keys are taken')
    ok('idempotency_store_up{store="main"} 1' in stats(), 'it is up')

    server('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    ok(until(lambda: gw.post('/ok', 'evict-%d' % time.time_ns()).code
             == 'store_unavailable', 10, 0.1),
       'a later change is noticed')
    same(gw.post('/ok', 'evict').replayed, True, 'known keys are answered')

    # it evicts and is set right before anybody has looked
    server('CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
    taken_again(gw, 'evict')
    before = losses(gw)
    for i in range(2000):
        server('SET', 'other-%d' % i, 'x' * 100, 'EX', 1000)
    server('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-random')
    used = int([line for line in server('INFO', 'memory').split(b'\r\n')
                if line.startswith(b'used_memory:')][0].split(b':')[1])
    server('CONFIG', 'SET', 'maxmemory', used - 100000)
    until(lambda: b'evicted_keys:0' not in server('INFO', 'stats'), 5)
    server('CONFIG', 'SET', 'maxmemory', '100mb')
    server('CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
    ok(until(lambda: 'has evicted keys: ' + FORGOTTEN in gw.log(), 10),
       'keys that were evicted are a loss')
    ok(losses(gw) > before, 'and counted')
    gw.stop()

    server('CONFIG', 'SET', 'maxmemory-policy', 'volatile-ttl')
    gw = Gateway(up, store='redis://127.0.0.1:%d eviction=allow'
                 % server.port)
    same(gw.post('/ok', 'allowed').status, 201, 'eviction=allow')
    gw.stop()
    server.remove()


def calls(server, name):
    for line in server('INFO', 'commandstats').split(b'\r\n'):
        if line.startswith(b'cmdstat_%s:' % name):
            return int(line.split(b'calls=')[1].split(b',')[0])
    return 0


def idle(up):
    server = Redis('--appendonly', 'yes', '--appendfsync', 'always')
    gw = Gateway(up, workers=4, store='redis://127.0.0.1:%d' % server.port)
    same(gw.post('/ok', 'idle').status, 201, 'four workers')
    time.sleep(1.5)
    names = (b'incr', b'set', b'pexpire')
    before, began = [calls(server, n) for n in names], time.time()
    time.sleep(6)
    after, took = [calls(server, n) for n in names], time.time() - began
    ticks = after[0] - before[0]
    ok(1 <= ticks <= 2 * took + 1,
       'an idle gateway writes at most twice a second: %d in %.1f s'
       % (ticks, took))
    same(after[1] - before[1], 0, 'and nothing but its counter')
    gw.stop()
    server.remove()


def untold(up):
    """a user who may not ask INFO"""
    if skipped('a user who may not ask INFO', 'acl'):
        return
    server = Redis()
    server('ACL', 'SETUSER', 'default', '-info')
    gw = Gateway(up, workers=2, store='redis://127.0.0.1:%d' % server.port,
                 locations='location = /stats { idempotency_stats; }')

    def unwatched():
        """of two workers, by both formats"""
        got = [gw.post('/stats?format=' + f, None, body=None,
                       method='GET').body.decode()
               for f in ('prometheus', 'json')]
        return [int(n) for text in got for n in re.findall(
            r'^idempotency_redis_unwatched{store="main"} (\d+)$'
            r'|"unwatched":(\d+)', text, re.M) for n in n if n]

    same(gw.post('/ok', 'untold').status, 201, 'no INFO: it works')
    ok(until(lambda: unwatched() == [2, 2], 10), 'no INFO: it is shown',
       unwatched())
    ok(gw.until_log('INFO does not identify the server'),
       'which is said')
    time.sleep(0.5)
    same(gw.log().count('INFO does not identify'), 1, 'once, by all workers')
    server('ACL', 'SETUSER', 'default', '+info')
    server('CLIENT', 'KILL', 'TYPE', 'normal')
    ok(until(lambda: unwatched() == [0, 0], 10), 'INFO is allowed: it is shown',
       unwatched())
    gw.stop()
    server.remove()


def evicts_untold(up):
    """a policy that may evict was seen, and then INFO is forbidden"""
    if skipped('a policy that may evict, then no INFO', 'acl'):
        return
    server = Redis('--maxmemory', '100mb', '--maxmemory-policy',
                   'volatile-lru')
    gw = Gateway(up, workers=2, store='redis://127.0.0.1:%d' % server.port)
    refused(gw, '/ok', 'evicts', 'store_unavailable',
            'a policy that may evict: no new keys', status=503)
    server('ACL', 'SETUSER', 'default', '-info')
    server('CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
    server('CLIENT', 'KILL', 'TYPE', 'normal')
    # the change of the policy cannot be read
    ok(until(lambda: gw.post('/ok', 'evicts').status == 201, 10, 0.1),
       'no INFO: the refusal ends with the next login')
    executed(up, 'evicts', 1, 'no INFO after eviction')
    ok('INFO does not identify the server: a failover behind its address and '
       'the eviction of keys will not be noticed' in gw.log(),
       'no INFO: which is logged')
    gw.stop()
    server.remove()


def main():
    up = Ledger()
    for test in sys.argv[1:] or (
            'behind_an_address', 'late_replica', 'there_and_back', 'unproven',
            'followed', 'restarted', 'leases', 'eviction', 'idle', 'untold',
            'evicts_untold'):
        globals()[test](up)
    finish()


main()
