#!/usr/bin/env python3
"""redis-cluster://: each key is on the node that has its slot, and both may
move.

First nodes that answer oddly: MOVED to each other for ever, ASK, TRYAGAIN,
CLUSTERDOWN, invalid slot maps.  A command is sent on within its time, with the
same owner, or the request is refused; nothing is executed twice and no node is
asked in a tight loop.  Then a master that hands over, one that goes down
and comes back before another one has taken over, and one whose successor does
not have the counter that would show a loss.  Then a real cluster of six nodes:
slots are moved, and masters killed, under load.

    MOVES=20    times of each; 2 by default
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from fakeredis import (RESET, Fake, answer, bulk, granted,  # noqa: E402
                       is_claim, owner)
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     refused, same, until)
from moving import (FORGOTTEN, LOCATION, LOCATIONS, loads,  # noqa: E402
                    location, settled, store, stores)
from redisset import Cluster  # noqa: E402

MOVES = int(os.environ.get('MOVES', 2))


def url(*nodes):
    return 'redis-cluster://' + ','.join('127.0.0.1:%d' % n.port
                                         for n in nodes)


def slots(*ranges):
    """(first, last, node) each, and replicas"""
    return b'*%d\r\n' % len(ranges) + b''.join(
        b'*%d\r\n:%d\r\n:%d\r\n' % (len(nodes) + 2, first, last)
        + b''.join(b'*3\r\n%s:%d\r\n%s' % (
            bulk(b'127.0.0.1'), node.port, bulk(b'%040d' % node.port))
            for node in nodes)
        for first, last, *nodes in ranges)


def grants(args):
    return granted(args) if is_claim(args) else answer(0, owner=owner(args))


class Node(Fake):
    """A node: map is its word, script what it says to scripts."""

    def __init__(self):
        super().__init__()
        self.map = b'-ERR none\r\n'
        self.asked = 0
        self.asking = 0
        self.reply = grants
        self.login = self.say

    def say(self, args):
        if args[0] == b'CLUSTER':
            self.asked += 1
            return self.map
        if args[0] == b'ASKING':
            self.asking += 1
        return b':1\r\n' if args[0] == b'INCR' else b'+OK\r\n'


def test_odd(up):
    a, b = Node(), Node()
    a.map = b.map = slots((0, 16383, a))
    gw = Gateway(up, locations=LOCATION,
                 http=store(url(a) + ' timeout=2s amnesia=0'))
    gw.expected = [FORGOTTEN]
    same(gw.post('/pay/ok', 'plain').status, 201, 'one node has it all')

    # each says that the other has it: it is not a race between them
    a.map = b.map = slots((0, 8191, a), (8192, 16383, b))
    time.sleep(0.3)
    a.reply = b'-MOVED 1 127.0.0.1:%d\r\n' % b.port
    b.reply = b'-MOVED 1 127.0.0.1:%d\r\n' % a.port
    until(lambda: gw.post('/pay/ok', 'warm') and b.scripts > 0, 10)
    n = a.scripts + b.scripts
    begin = time.time()
    refused(gw, '/pay/ok', 'loop', 'store_unavailable', 'a loop: refused',
            status=503)
    n = a.scripts + b.scripts - n
    ok(n < 2000, 'a loop: asked %d times in %.1f s' % (n, time.time() - begin))
    executed(up, 'loop', 0, 'a loop')

    # the other one has it: the same question goes there; where the loop
    # ended is perhaps connected anew first
    a.reply = b'-MOVED 1 127.0.0.1:%d\r\n' % b.port
    b.reply = grants
    ok(until(lambda: gw.post('/pay/ok', 'moved').status == 201),
       'MOVED: it works')
    executed(up, 'moved', 1, 'MOVED')
    a.reply = b'-MOVED 1 :%d\r\n' % b.port
    same(gw.post('/pay/ok', 'moved-here').status, 201,
         'MOVED on the same host: it works')

    # an order of a few words is not followed
    for text in (b'MOVED', b'MOVED 1', b'MOVED x 127.0.0.1:1',
                 b'MOVED 16384 127.0.0.1:%d' % b.port, b'MOVED 1 nowhere',
                 b'MOVED 1 127.0.0.1:70000', b'ASK', b'ASK 1 x'):
        a.reply = b.reply = b'-%s\r\n' % text
        same(gw.post('/pay/ok', 'nonsense').status, 503, 'nonsense: %r'
             % text)
    executed(up, 'nonsense', 0, 'nonsense')

    # for this key only, and with ASKING
    c = Node()
    c.map = a.map
    a.reply = b.reply = b'-ASK 1 127.0.0.1:%d\r\n' % c.port
    ok(until(lambda: gw.post('/pay/ok', 'ask').status == 201, 5, 0.1),
       'ASK: it works')
    executed(up, 'ask', 1, 'ASK')
    ok(c.asking == c.scripts > 0, 'ASK: with ASKING each time',
       (c.asking, c.scripts))

    # in a moment
    for text in (b'TRYAGAIN', b'CLUSTERDOWN The cluster is down'):
        left = [3]

        def later(args):
            left[0] -= 1
            return b'-%s\r\n' % text if left[0] >= 0 else grants(args)
        a.reply = b.reply = later
        key = 'later-' + text.decode().split()[0]
        same(gw.post('/pay/ok', key).status, 201, '%s: it waits' % key)
        executed(up, key, 1, key)
        a.reply = b.reply = b'-%s\r\n' % text
        n = a.scripts + b.scripts
        refused(gw, '/pay/ok', key + '-ever', 'store_unavailable',
                key + ': not for ever', status=503)
        n = a.scripts + b.scripts - n
        ok(n < 500, '%s: asked %d times' % (key, n))
        a.reply = b.reply = grants
        ok(until(lambda: gw.post('/pay/ok', key + '-ever').status == 201),
           key + ': then it works')

    # no maps
    for said in (b'+OK\r\n', b'*0\r\n', b'*1\r\n:1\r\n', b'*-1\r\n',
                 b'-ERR This instance has cluster support disabled\r\n',
                 b'*1\r\n*3\r\n:5\r\n:1\r\n*2\r\n$1\r\nx\r\n:1\r\n',
                 b'*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nx\r\n:1\r\n',
                 b'*1\r\n*2\r\n:0\r\n:1\r\n',
                 b'*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\nx\r\n:70000\r\n'):
        a.map = b.map = c.map = said
        a.reply = b'-MOVED 1 127.0.0.1:%d\r\n' % b.port
        gw.post('/pay/ok', 'map-%d' % time.time_ns())
        time.sleep(0.15)
        a.reply = grants
        same(gw.post('/pay/ok', 'map-%d' % time.time_ns()).status, 201,
             'a map that is none: %r' % said[:40])
    gw.stop()


class Slow(Node):
    """Its second connection has not logged in when the map is given."""

    def __init__(self):
        super().__init__()
        self.said = {}            # by connection

    def one(self, sock, args):
        said = self.said.setdefault(sock.getpeername(), [])
        said.append(args[0].upper())
        if len(self.said) == 2 and len(said) == 1:
            until(lambda: self.asked)
            time.sleep(0.3)
        if args[0] == b'CLUSTER':
            until(lambda: len(self.said) > 1)
        return super().one(sock, args)


def test_login(up):
    """A connection that logs in when the map comes is not used any more."""
    node = Slow()
    node.map = slots((0, 16383, node))
    gw = Gateway(up, locations=LOCATION,
                 http=store(url(node) + ' timeout=3s connections=3 amnesia=0'))
    gw.expected = [FORGOTTEN]
    ok(until(lambda: sum(b'INCR' in said for said in node.said.values()) > 2),
       'login: three are asked for the counter')
    time.sleep(0.5)
    calls = [gw.call('/pay/ok', 'login-%d' % i) for i in range(30)]
    same({c.read().status for c in calls}, {201}, 'login: all are answered')
    said = list(node.said.values())
    same(said[1], [b'PING'], 'login: not by the one that was late')
    same([words for words in said
          if b'EVALSHA' in words
          and b'INCR' not in words[:words.index(b'EVALSHA')]], [],
         'login: each begins with the counter')
    gw.stop()


class Master(Node):
    """Has all slots, or has had them; gone: it ends all connections."""

    ticks = 0

    def __init__(self):
        super().__init__()
        self.gone = False
        self.other = None
        self.counter = None       # who has its slot, if another node has it
        self.refused = 0          # logins, by a MOVED of the counter
        self.dies_if = None       # asked for its map
        self.down = False         # as a node that sees too few others
        self.reply = self.script

    def one(self, sock, args):
        if args[0] == b'CLUSTER' and self.dies_if and self.dies_if():
            self.gone = True
        return super().one(sock, args)

    def moved(self):
        return b'-MOVED 1 127.0.0.1:%d\r\n' % self.other.port

    def script(self, args):
        if self.gone:
            return RESET
        if self.down:
            return b'-CLUSTERDOWN The cluster is down\r\n'
        return self.moved() if self.other else grants(args)

    def say(self, args):
        if self.gone:
            return RESET
        if args[0] == b'INCR':
            # replicas have what a counter was
            Master.ticks += 1
            if self.counter:
                self.refused += 1
                return b'-MOVED 1 127.0.0.1:%d\r\n' % self.counter.port
            return self.moved() if self.other else b':%d\r\n' % self.ticks
        if args[0] == b'PEXPIRE' and self.other:
            return self.moved()
        return super().say(args)


def test_succession(up):
    a, b = Master(), Master()
    b.other = a
    a.map = b.map = slots((0, 16383, a, b))
    gw = Gateway(up, locations=LOCATION, http=store(url(a, b)
                                                    + ' amnesia=500ms'))
    gw.expected = [FORGOTTEN]
    ok(until(lambda: gw.post('/pay/ok', 'first').status == 201, 5),
       'a master works')

    a.other, b.other = b, None
    a.map = b.map = slots((0, 16383, b, a))
    gw.post('/pay/ok', 'handed')
    ok(gw.until_log('has a new master'), 'one that hands over is noticed')
    ok(until(lambda: gw.post('/pay/ok', 'second').status == 201, 5),
       'and the next one works')
    same(gw.log().count(FORGOTTEN), 0, 'nothing was forgotten')

    # the map is seen when it is back, as a replica
    n = b.connections
    b.gone = True
    gw.post('/pay/ok', 'lost')
    a.other, b.other = None, a
    b.gone = False
    ok(until(lambda: b.connections > n and b.open, 5), 'lost, and back')
    start = len(gw.log())
    time.sleep(0.3)
    a.map = b.map = slots((0, 16383, a, b))
    ok(gw.until_log('has a new master', 7, start), 'another took over')
    ok(gw.until_log('has another master: ' + FORGOTTEN, 1, start),
       'which may have forgotten some')
    ok(until(lambda: gw.post('/pay/ok', 'third').status == 201, 5, 0.1),
       'then it works')
    gw.stop()


def test_successor_without_counter(up):
    """A replica took over, and the slot of its counter is on another node."""
    a, b = Master(), Master()
    b.other = a
    a.map = b.map = slots((0, 16383, a, b))
    gw = Gateway(up, locations=LOCATION, http=store(url(a, b)
                                                    + ' amnesia=500ms'))
    gw.expected = [FORGOTTEN]
    ok(until(lambda: gw.post('/pay/ok', 'early').status == 201, 5),
       'a counter elsewhere: a master works')

    b.counter, b.other, b.map = a, None, slots((0, 16383, b))
    a.gone = True
    before, start = b.scripts, len(gw.log())
    ok(gw.until_log('has a new master', 10, start),
       'a counter elsewhere: another took over')
    ok(until(lambda: b.refused > 2, 10),
       'a counter elsewhere: the login is refused', b.refused)
    refused(gw, '/pay/ok', 'unjudged', 'store_unavailable',
            'a counter elsewhere: no key before the server is judged',
            status=503)
    same(b.scripts, before, 'a counter elsewhere: it was asked nothing')
    executed(up, 'unjudged', 0, 'a counter elsewhere')
    same(gw.log().count(FORGOTTEN), 0, 'a counter elsewhere: nothing is known')

    b.counter = None
    ok(gw.until_log('has another master: ' + FORGOTTEN, 10, start),
       'a counter elsewhere: then the loss is noticed')
    ok(until(lambda: gw.post('/pay/ok', 'judged').status == 201, 5, 0.1),
       'a counter elsewhere: and later it works')
    gw.stop()


def test_silent_master(up):
    """A connection that is still open does not show that the master lives,
    nor that it knows of its successor: it has not handed over its data.
    """
    for what in 'dead', 'alone':
        a, b = Master(), Master()
        b.other = a
        a.map = b.map = slots((0, 16383, a, b))
        gw = Gateway(up, locations=LOCATION, http=store(url(a, b)
                                                        + ' amnesia=500ms'))
        gw.expected = [FORGOTTEN]
        ok(until(lambda: gw.post('/pay/ok', what).status == 201, 5),
           '%s: a master works' % what)
        start = len(gw.log())
        n = b.asked
        if what == 'dead':
            a.dies_if = lambda: b.asked > n
        b.other, b.map = None, slots((0, 16383, b, a))
        # both are asked for a map then, again and again
        a.down = True
        gw.post('/pay/ok', what + '-down')
        ok(gw.until_log('has a new master', 15, start),
           '%s: another took over' % what)
        ok(gw.until_log('has another master: ' + FORGOTTEN, 10, start),
           '%s: which may have forgotten some' % what)
        ok(until(lambda: gw.post('/pay/ok', what + '-then').status == 201, 5,
                 0.1), '%s: then it works' % what)
        gw.stop()


def test_cluster(up):
    cluster = Cluster(masters=3, replicas=1)
    gw = Gateway(up, workers=2,
                 locations=LOCATIONS + location('tag', 'tag', ''),
                 http=stores(cluster.url, replicas=1)
                 + 'idempotency_store tag %s "prefix={pay}:";' % cluster.url)
    gw.expected = [FORGOTTEN]

    for i in range(20):
        gw.post('/tag/ok', 'tag-%d' % i)
    held = [len(n('KEYS', '{pay}:' + '?' * 64)) for n in cluster.masters()]
    same(sorted(held), [0, 0, 20], 'a tag in the prefix: one node has all')

    safe, plain = loads(gw, up, clients=6)
    time.sleep(0.5)

    moves = []
    for _ in range(MOVES):
        masters = cluster.masters()
        moves += [cluster.move(1000, masters[0], masters[1]),
                  cluster.move(1000, masters[1], masters[2])]
    ok(not any(m.returncode for m in moves), 'slots were moved', '\n'.join(
        (m.stdout[-2000:] + m.stderr) for m in moves if m.returncode))
    spread = [len(n('KEYS', 'safe:' + '?' * 64)) for n in cluster.masters()]
    ok(all(spread), 'all nodes have records: %r' % spread)
    safe.stop()
    plain.stop()
    same(gw.log().count(FORGOTTEN), 0, 'moving: nothing was forgotten')
    settled(plain, 'moving')
    settled(safe, 'moving, with replicas=1')

    safe, plain = loads(gw, up, clients=6)
    good = 0
    for i in range(MOVES):
        time.sleep(0.5)
        node, over = cluster.crash(i)
        good += bool(cluster.heal() and over)
    time.sleep(0.5)
    safe.stop()
    plain.stop()
    ok(good == MOVES, 'masters were killed', cluster.words())
    ok(FORGOTTEN in gw.log(), 'killed: another master is noticed')
    settled(safe, 'killed, with replicas=1')
    settled(plain, 'killed %d times, without replicas=' % MOVES, strict=False)
    ok(safe.refused() > 0, 'the run met what it was made for')
    gw.stop()
    cluster.stop()


def main():
    up = Ledger()
    for test in sys.argv[1:] or ('test_odd', 'test_login', 'test_succession',
                                 'test_successor_without_counter',
                                 'test_silent_master',
                                 'test_cluster'):
        globals()[test](up)
    finish()


main()
