#!/usr/bin/env python3
"""redis-sentinel://: the store is wherever the master is.

First sentinels that lie: only a server that says itself that it is the master
is written to, whoever named it, and the latest failover wins.  Then a real
set, one master, two replicas and three sentinels, whose master is killed
again and again under load.  With replicas=2 no key is executed twice; without
it the loss is counted and printed.

    FAILOVERS=100   10 unless told
"""

import os
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
    one, two = Liar(replica), Liar(None)
    gw = Gateway(up, locations=LOCATION, workers=1,
                 http=store(url(one, two) + ' timeout=300ms amnesia=0'))
    gw.expected = [FORGOTTEN]

    refused(gw, '/pay/ok', 'replica', 'store_unavailable',
            'a replica is named: refused', status=503)
    ok(gw.until_log('is not the master, node "127.0.0.1:%d"' % replica.port),
       'a replica is named: it is not believed')
    same((replica('KEYS', '*'), master('KEYS', '*')), ([], []),
         'a replica is named: nothing is written')
    ok(gw.until_log('knows no master "pay"'), 'who knows nothing is named')

    one.server = master
    ok(until(lambda: gw.post('/pay/ok', 'master').status == 201, 10, 0.1),
       'the master is named: it works')
    same(len(master('KEYS', RECORDS)), 1, 'the master is named: it is there')

    # an older word does not count while the master is there
    one.epoch = 5
    n = one.asked
    ok(until(lambda: one.asked > n + 1, 20), 'the sentinels are asked again')
    two.epoch, two.server = 3, other
    time.sleep(2.5)
    for i in range(5):
        gw.post('/pay/ok', 'older-%d' % i)
    same(other('KEYS', '*'), [], 'an older failover: not believed')

    # a newer one does, and nothing more goes to the old one
    two.epoch = 9
    ok(until(lambda: other('KEYS', '*') != [], 10, 0.1),
       'a newer failover: believed')
    n = len(master('KEYS', RECORDS))
    for i in range(5):
        gw.post('/pay/ok', 'newer-%d' % i)
    same((len(master('KEYS', RECORDS)), len(other('KEYS', RECORDS))),
         (n, 5), 'a newer failover: all goes there')

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
        one.login = two.login = nonsense
        time.sleep(0.15)
        gw.post('/pay/ok', 'nonsense')
    same(gw.post('/pay/ok', 'nonsense-after').status, 201,
         'nonsense: the master stays')
    gw.stop()
    for s in (master, replica, other):
        s.remove()


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


def main():
    up = Ledger()
    test_lies(up)
    test_passwords(up)
    test_failovers(up)
    finish()


main()
