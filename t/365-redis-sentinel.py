#!/usr/bin/env python3
"""redis-sentinel://: the store follows the master.

First sentinels that lie: only a server that says itself that it is the master
is written to, and the latest failover wins.  An older one, or the first that
is reported, is believed only if most sentinels of the target agree.  Sentinels
that are not in the target are found.  Then a real set, one master, two
replicas and three sentinels, whose master is killed again and again under
load.  With replicas=2 no key is executed twice; without it the loss is counted
and printed.

    FAILOVERS=100   10 by default
"""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from fakeredis import Fake, bulk  # noqa: E402
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, refused, replays, same, until)
from moving import (FORGOTTEN, LOCATION, LOCATIONS, loads,  # noqa: E402
                    settled, store, stores)
from redisd import RECORDS, Redis  # noqa: E402
from redisset import Sentinels  # noqa: E402

FAILOVERS = int(os.environ.get('FAILOVERS', 10))


def array(*items):
    return b'*%d\r\n' % len(items) + b''.join(
        bulk(str(i).encode()) for i in items)


class Liar(Fake):
    """A sentinel that says what it is told to say."""

    def __init__(self, server=None, epoch=1):
        super().__init__()
        self.server = server
        self.epoch = epoch
        self.asked = 0
        self.login = self.say

    def say(self, args):
        words = [a.upper() for a in args]
        if words[0] == b'SUBSCRIBE':
            return b'*3\r\n' + bulk(b'subscribe') + bulk(args[1]) + b':1\r\n'
        if words[:2] == [b'SENTINEL', b'GET-MASTER-ADDR-BY-NAME']:
            if self.server is None:
                return b'*-1\r\n'
            return array('127.0.0.1', self.server.port)
        if words[:2] == [b'SENTINEL', b'MASTER']:
            if self.server is None:
                return b'-ERR No such master with that name\r\n'
            self.asked += 1
            return array('name', 'pay', 'config-epoch', self.epoch)
        return b'+PONG\r\n'


def url(*sentinels):
    return 'redis-sentinel://%s/pay' % ','.join(
        '127.0.0.1:%d' % s.port for s in sentinels)


def test_lies(up):
    master = Redis()
    replica = Redis('--replicaof', '127.0.0.1 %d' % master.port)
    other = Redis()
    one, two, three = Liar(replica), Liar(replica), Liar(None)
    gw = Gateway(up, locations=LOCATION, workers=1,
                 http=store(url(one, two, three)
                            + ' timeout=300ms amnesia=0'))
    gw.expected = [FORGOTTEN]

    refused(gw, '/pay/ok', 'replica', 'store_unavailable',
            'a replica is named: refused', status=503)
    ok(gw.until_log('is not the master, node "127.0.0.1:%d"' % replica.port),
       'a replica is named: it is not believed')
    same((replica('KEYS', '*'), master('KEYS', '*')), ([], []),
         'a replica is named: nothing is written')
    ok(gw.until_log('knows no master "pay"'), 'who knows nothing is named')

    one.server = two.server = master
    one.epoch = two.epoch = 2
    ok(until(lambda: gw.post('/pay/ok', 'master').status == 201, 10, 0.1),
       'the master is named: it works')
    same(len(master('KEYS', RECORDS)), 1, 'the master is named: it is there')

    # an older word does not count while the master is there
    one.epoch = two.epoch = 5
    n = one.asked
    ok(until(lambda: one.asked > n + 1, 20), 'the sentinels are asked again')
    three.epoch, three.server = 3, other
    n = three.asked
    ok(until(lambda: three.asked > n + 1, 20), 'and the other one')
    for i in range(5):
        gw.post('/pay/ok', 'older-%d' % i)
    same(other('KEYS', '*'), [], 'an older failover: not believed')

    # a newer one does, and nothing more goes to the old one
    three.epoch = 9
    ok(until(lambda: other('KEYS', '*') != [], 10, 0.1),
       'a newer failover: believed')
    n = len(master('KEYS', RECORDS))
    for i in range(5):
        gw.post('/pay/ok', 'newer-%d' % i)
    same((len(master('KEYS', RECORDS)), len(other('KEYS', RECORDS))),
         (n, 5), 'a newer failover: all goes there')

    # most of them have not heard of it yet: that changes nothing
    n = two.asked
    ok(until(lambda: two.asked > n + 2, 20), 'the others are asked')
    for i in range(5):
        gw.post('/pay/ok', 'behind-%d' % i)
    same((len(master('KEYS', RECORDS)), len(other('KEYS', RECORDS))),
         (n and len(master('KEYS', RECORDS)), 10),
         'a newer failover: the others are behind')

    # demoted while we are connected
    one.server, one.epoch = master, 20
    other('REPLICAOF', '127.0.0.1', master.port)
    ok(until(lambda: gw.post('/pay/ok', 'demoted').status == 201, 10, 0.1),
       'demoted: the sentinels are asked')
    executed(up, 'demoted', 1, 'demoted')
    ok(FORGOTTEN in gw.log(), 'another master: what is lost is not known')

    # nonsense
    for said in (b':1\r\n', b'+OK\r\n', b'-NOAUTH no\r\n',
                 array('127.0.0.1', 'x'), array('', 1),
                 array('h' * 1000, 1), array('127.0.0.1', 70000)):
        def nonsense(args, said=said):
            return said if args[0] == b'SENTINEL' else b'+OK\r\n'
        one.login = two.login = three.login = nonsense
        time.sleep(0.15)
        gw.post('/pay/ok', 'nonsense')
    same(gw.post('/pay/ok', 'nonsense-after').status, 201,
         'nonsense: the master stays')
    gw.stop()
    for s in (master, replica, other):
        s.remove()


def test_stale(up):
    """One sentinel of three names an old master, and the others are away."""
    master, other = Redis(), Redis()
    one, two, three = Liar(master, 5), Liar(master, 5), Liar(master, 5)
    config = store(url(one, two, three) + ' timeout=300ms amnesia=0')
    gw = Gateway(up, locations=LOCATION, workers=2, http=config)
    gw.expected = [FORGOTTEN]
    ok(until(lambda: gw.post('/pay/ok', 'stale-0').status == 201, 10, 0.1),
       'stale: works')

    def nothing_goes_to_the_old_one(name):
        n = three.asked
        ok(until(lambda: three.asked > n + 4, 20), name + ': it is asked')
        for i in range(10):
            same(gw.post('/pay/ok', '%s-%d' % (name, i)).status, 503,
                 name + ': refused')
        same(other('KEYS', '*'), [], name + ': nothing is written')

    three.server, three.epoch = other, 3
    one.server = two.server = None
    master.stop()
    nothing_goes_to_the_old_one('stale')
    ok(gw.until_log('with the epoch 3 after 5, and no majority'),
       'stale: it is logged')
    n = len(gw.workers())
    gw.signal(signal.SIGHUP)
    ok(until(lambda: 'exited with code 0' in gw.log(), 20) and n,
       'stale: reloaded')
    nothing_goes_to_the_old_one('reloaded')

    master.start()
    ok(until(lambda: gw.post('/pay/ok', 'back').status == 201, 10, 0.1),
       'stale: the master is back, and used')
    master.stop()
    one.server, one.epoch = other, 3
    ok(until(lambda: gw.post('/pay/ok', 'most').status == 201, 10, 0.1),
       'stale: most of them say so: believed')
    gw.stop()

    # nothing is known yet
    other('FLUSHALL')
    master.start()
    one.server = None
    gw = Gateway(up, locations=LOCATION, workers=2, http=config)
    gw.expected = [FORGOTTEN]
    nothing_goes_to_the_old_one('first')
    ok('with the epoch 3 after -1' in gw.log(), 'first: it is logged')
    one.server = two.server = master
    one.epoch = two.epoch = 1
    ok(until(lambda: gw.post('/pay/ok', 'first').status == 201, 10, 0.1),
       'first: the word of two of three')
    gw.stop()

    # a target of one
    gw = Gateway(up, locations=LOCATION, workers=1, http=store(
        url(one) + ' timeout=300ms amnesia=0'))
    ok(until(lambda: gw.post('/pay/ok', 'only').status == 201, 10, 0.1),
       'one: it is enough where it is the only one')
    gw.stop()
    for s in (master, other):
        s.remove()


def test_discovered(up):
    """The target has one sentinel of three, and that one dies."""
    set_ = Sentinels(replicas=2, sentinels=3)
    first = set_.sentinels[0]
    target = '%s://127.0.0.1:%d/%s' % ('redis-sentinel', first.port,
                                       set_.NAME)
    gw = Gateway(up, locations=LOCATION, workers=1,
                 http=store(target + ' amnesia=0'))
    gw.expected = [FORGOTTEN]
    ok(until(lambda: gw.post('/pay/ok', 'found').status == 201, 10, 0.1),
       'discovered: one of three in the target is enough')
    found = 'that is not in its target'
    ok(until(lambda: gw.log().count(found) == 2, 20),
       'discovered: the two others are known')
    gw.signal(signal.SIGHUP)
    ok(until(lambda: gw.log().count(found) == 4, 20),
       'discovered: after a reload as well')
    first.stop()
    old, switched = set_.crash()
    ok(switched, 'discovered: there is a new master')
    ok(until(lambda: gw.post('/pay/ok', 'moved-on').status == 201, 20, 0.1),
       'discovered: the new master is found by the others')
    # none was taken for another one
    same(gw.log().count(found), 4, 'discovered: each once')
    gw.stop()
    set_.stop()


def test_passwords(up):
    """The sentinels have a password of their own."""
    folder = os.path.dirname(os.path.abspath(__file__)) + '/../build'
    name = '%s/sentinel-password-%d' % (folder, os.getpid())
    with open(name, 'w') as f:
        f.write('watch\n')
    set_ = Sentinels(
        replicas=1, sentinels=1,
        options=('--requirepass', 'data', '--masterauth', 'data'),
        lines=('sentinel auth-pass %s data' % Sentinels.NAME,
               'requirepass watch'), auth=('watch',), password='data')
    target = set_.url.replace('://', '://:data@')
    gw = Gateway(up, locations=LOCATION, http=store(
        target + ' sentinel_password_file=' + name))
    ok(until(lambda: gw.post('/pay/ok', 'password').status == 201, 10, 0.1),
       'passwords: of servers and sentinels')
    gw.stop()
    gw = Gateway(up, locations=LOCATION, http=store(target))
    same(gw.post('/pay/ok', 'password-2').status, 503,
         'passwords: without that of the sentinels')
    ok(gw.until_log('NOAUTH'), 'passwords: it is logged')
    gw.stop()
    set_.stop()
    os.unlink(name)


def test_failovers(up):
    set_ = Sentinels(replicas=2, sentinels=3)
    gw = Gateway(up, workers=2, locations=LOCATIONS,
                 http=stores(set_.url, replicas=2))
    gw.expected = [FORGOTTEN]
    until(lambda: len(gw.workers()) == 2)
    workers = sorted(gw.workers())
    safe, plain = loads(gw, up, clients=8)
    time.sleep(1)
    times, good = [], 0
    for i in range(FAILOVERS):
        begin = time.time()
        # the last one as an operator does it
        old, switched = set_.failover() if i == FAILOVERS - 1 \
            else set_.crash()
        times.append(time.time() - begin)
        good += bool(switched and set_.heal())
        time.sleep(0.5)
    safe.stop()
    plain.stop()
    same(good, FAILOVERS, 'all failovers took place')
    print('# a new master after %s s' % ', '.join('%.1f' % t for t in times))
    settled(safe, 'with replicas=2')
    settled(plain, '%d failovers, without replicas=' % FAILOVERS, strict=False)

    seen = {
        'replayed or told': len(safe.keys) > 50,
        '503': safe.refused() > 0,
        'a new master': 'has a new master' in gw.log(),
        'a loss': FORGOTTEN in gw.log(),
    }
    missing = [name for name, there in seen.items() if not there]
    ok(not missing, 'the run met what it was made for', missing)
    same(sorted(gw.workers()), workers, 'the workers are the same')
    gw.stop()
    set_.stop()


def test_outage(up):
    """docs/operate/redis.md: how long new keys are refused after a failover"""
    lease = 4                     # of the location
    set_ = Sentinels(replicas=2, sentinels=3)
    gw = Gateway(up, locations=LOCATION, http=store(
        set_.url + ' replicas=1'))
    gw.expected = [FORGOTTEN]
    ok(until(lambda: gw.post('/pay/ok', 'outage').status == 201, 10, 0.1),
       'outage: it works')
    begin = time.time()
    _, switched = set_.crash()
    master = time.time() - begin
    ok(switched, 'outage: another master')
    names = iter(range(100000))
    ready = [master]

    def accepted():
        """Two sentinels may each begin a failover: then there are two masters
        for some seconds, and none of them has a replica."""
        done = gw.post('/pay/ok', 'outage-%d' % next(names)).status == 201
        roles = [s('ROLE') for s in set_.alive()]
        if not done and [len(r[2]) for r in roles if r[0] == b'master'] != [1]:
            ready[0] = time.time() - begin
        return done

    ok(until(accepted, 60, 0.05), 'outage: new keys are accepted again')
    ready = ready[0]
    took = time.time() - begin
    print('# a master was killed: another one after %.1f s, with a replica '
          'after %.1f s, new keys after %.1f s, with a lease of %d s'
          % (master, ready, took, lease))
    ok(lease < took < ready + lease + 6, 'outage: after a lease',
       (master, ready, took))
    gw.stop()
    set_.stop()


def main():
    up = Ledger()
    for test in sys.argv[1:] or ('test_lies', 'test_stale',
                                 'test_discovered', 'test_passwords',
                                 'test_failovers', 'test_outage'):
        globals()[test](up)
    finish()


main()
