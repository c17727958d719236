#!/usr/bin/env python3
"""A reload while Redis is not available loses no outcome.

An outcome that could not be stored waits in the background queue of a worker.
An exiting worker stays until it is stored, for worker_shutdown_timeout or 30
seconds.  The rest is handed over to the workers of the new configuration
through shared memory.  So clients that got an answer find it again, and a
request that was refused and never sent can be retried.  Only if no worker is
left do outcomes become unknown, and that is logged.
"""

import json
import os
import select
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     same, until)
from redisd import Proxy, Redis  # noqa: E402
from redisset import Cluster, Sentinels  # noqa: E402

LEASE = 1
STAYED = 'outcomes are left to other workers'
TAKEN = 'takes over outcomes'
UNKNOWN = 'the last worker exits'
up = Ledger()
ALWAYS = ('--appendonly', 'yes', '--appendfsync', 'always')
server = Redis(*ALWAYS)


def gateway(main='', target=None, timeout='300ms', **more):
    return Gateway(up, workers=2, main=main, store='%s timeout=%s'
                   % (target or 'redis://127.0.0.1:%d' % server.port, timeout),
                   http='idempotency_lease %ds;' % LEASE, locations='''
    location = /stats { idempotency_stats; }
    location /number/ {
        idempotency main;
        idempotency_scope numbers;
        idempotency_sequence strict;
        proxy_pass http://up;
    }
''', **more)


def dead(pid):
    try:
        with open('/proc/%d/stat' % pid) as f:
            return f.read().rpartition(')')[2].split()[0] == 'Z'
    except OSError:
        return True


def reload(gw):
    """the workers there were, once the new ones are there"""
    old = gw.workers()
    gw.signal(signal.SIGHUP)
    ok(until(lambda: len([p for p in gw.workers() if p not in old]) >= 2),
       'reload: new workers')
    return old


def stats(gw):
    text = gw.post('/stats?format=json', None, body=None, method='GET').body
    return json.loads(text)['stores'][0]


def waiting(gw):
    return stats(gw)['background']['waiting']


def ready(gw):
    """of all workers"""
    states = stats(gw)['connections']
    return states['ready'] >= 2 and not states['down'] \
        and not states['connecting']


def begun(gw, path, key):
    """A new worker may have no connection yet, and refuses it: once more."""
    end = time.time() + 20
    while True:
        call = gw.call(path, key)
        until(lambda: up.count(key)
              or select.select([call.sock], [], [], 0)[0], 20, 0.005)
        if up.count(key) or time.time() > end:
            return call
        call.read()
        time.sleep(0.05)


def answered(gw, name, n=5, path='/wait', more={}, claims=(),
             away=server.stop):
    """{key: answer}: executed, and Redis went away before it was stored.
    Claims are sent after that, and refused."""
    paths = {'%s-%d' % (name, i): path for i in range(n)}
    paths.update(more)
    ok(until(lambda: ready(gw) and gw.post('/ok', name + '-warm').status
             == 201, 10, 0.05), name + ': Redis is there', stats(gw))
    up.hold()
    calls = {key: begun(gw, path, key) for key, path in paths.items()}
    away()
    asked = [gw.call('/ok', key) for key in claims]
    up.go()
    answers = {key: c.read() for key, c in calls.items()}
    same({a.status for a in answers.values()} - {201}, set(),
         name + ': all clients are answered')
    same([c.read().code for c in asked], ['store_unavailable'] * len(asked),
         name + ': refused while Redis is away')
    return answers


def unread():
    """bytes that a paused Redis has in its sockets"""
    with open('/proc/net/tcp') as f:
        rows = [line.split() for line in f][1:]
    return sum(int(row[4].split(':')[1], 16) for row in rows
               if int(row[1].split(':')[1], 16) == server.port
               and row[3] == '01')


def stays(pids, name):
    """those that have something, for longer than the leases"""
    ok(not until(lambda: all(dead(pid) for pid in pids), LEASE + 0.5, 0.05),
       name + ': the old worker stays')


def patiently(gw, path, key):
    """again while the store is said to be away, as a client does it"""
    answers = []
    until(lambda: answers.append(gw.post(path, key))
          or answers[-1].code != 'store_unavailable', 20, 0.1)
    return answers[-1]


def done(gw, keys, path):
    return until(lambda: {gw.state(key, path) for key in keys} == {'done'},
                 15, 0.05)


def found(gw, answers, name, path='/wait'):
    done(gw, answers, path)
    again = {key: patiently(gw, path, key) for key in answers}
    same({k: (a.status, a.code, a.replayed, a.body)
          for k, a in again.items()},
         {k: (201, None, True, a.body) for k, a in answers.items()},
         name + ': retries get the answer')
    same({up.count(key) for key in answers}, {1}, name + ': executed once')


def free(gw, key, name, path='/ok'):
    until(lambda: gw.state(key, path) == 'none', 10, 0.05)
    a = patiently(gw, path, key)
    same((a.status, a.code, a.replayed), (201, None, False),
         name + ': the retry runs')
    executed(up, key, 1, name)


def test_answers():
    gw = gateway()
    answers = answered(gw, 'answers')
    old = reload(gw)
    stays(old, 'reload')
    same(waiting(gw), 5, 'their outcomes are counted')
    server.start()
    found(gw, answers, 'reload')
    ok(until(lambda: all(dead(pid) for pid in old), 5),
       'reload: then the old workers end')
    same(waiting(gw), 0, 'nothing waits')
    same([t for t in (STAYED, UNKNOWN) if t in gw.log()], [],
         'nothing was left to others')
    gw.stop()


def test_refused():
    gw = gateway()
    answered(gw, 'none', n=0, claims=['refused'], away=server.pause)
    old = reload(gw)
    stays(old, 'reload')
    server.resume()
    free(gw, 'refused', 'reload')
    ok(until(lambda: all(dead(pid) for pid in old), 5),
       'reload: then the old workers end')
    gw.stop()


def test_quit():
    gw = gateway()
    answers = answered(gw, 'quit')
    pid = gw.pid()
    gw.signal(signal.SIGQUIT)
    stays([pid], 'quit')
    server.start()
    ok(until(lambda: dead(pid), 5), 'quit: ends when all is stored')
    same(gw.log().count(UNKNOWN), 0, 'quit: nothing is lost')
    gw.command()
    gw.wait_port()
    found(gw, answers, 'quit')
    gw.stop()


def test_quit_bound():
    gw = gateway(main='worker_shutdown_timeout 1s;')
    answered(gw, 'bound')
    pid = gw.pid()
    start = time.time()
    gw.signal(signal.SIGQUIT)
    ok(until(lambda: dead(pid), 6), 'quit: ends when its time is over')
    ok(time.time() - start > 0.9, 'and not before', time.time() - start)
    lines = [x for x in gw.log().splitlines() if UNKNOWN in x]
    same(sum(int(x.split(UNKNOWN)[1].split()[1]) for x in lines), 5, 'quit: what becomes unknown is logged')
    server.start()
    gw.stop()


def test_handed_over():
    gw = gateway(main='worker_shutdown_timeout 500ms;')
    answers = answered(gw, 'over')
    old = reload(gw)
    ok(until(lambda: all(dead(pid) for pid in old), 5),
       'worker_shutdown_timeout: the old workers end')
    ok(STAYED in gw.log(), 'what is left is logged')
    same(waiting(gw), 5, 'and counted')
    server.start()
    found(gw, answers, 'handed over')
    ok(gw.until_log(TAKEN, 5), 'taken over, which is logged')
    same(waiting(gw), 0, 'nothing waits')

    # the claim is executed when Redis goes on, and nobody waits for it
    old = gw.workers()
    answered(gw, 'over', n=0, claims=['over-refused'], away=server.pause)
    reload(gw)
    ok(until(lambda: all(dead(pid) for pid in old), 5), 'and once more')
    same(waiting(gw), 1, 'a claim is to be taken back')
    server.resume()
    free(gw, 'over-refused', 'handed over')
    same(gw.log().count(UNKNOWN), 0, 'nothing is unknown')
    gw.stop()


def test_many_reloads():
    gw = gateway(main='worker_shutdown_timeout 300ms;')
    answers = answered(gw, 'many')
    for _ in range(4):
        old = reload(gw)
        ok(until(lambda: all(dead(pid) for pid in old), 5),
           'one of many reloads: the old workers end')
        same(waiting(gw), 5, 'one of many reloads: all wait')
    server.start()
    ok(gw.until_log(TAKEN, 10), 'many reloads: taken over')
    old = reload(gw)
    found(gw, answers, 'many reloads')
    gw.stop()


def test_taken_and_refused():
    """What was taken over, and could not be stored, is handed over again."""
    proxy = Proxy(server)
    gw = gateway(main='worker_shutdown_timeout 300ms;',
                 target='redis://127.0.0.1:%d' % proxy.port)
    server('SCRIPT', 'FLUSH')
    gw.post('/ok', 'proxied')
    answers = answered(gw, 'again')
    proxy.on('complete', '-OOM command not allowed', 1000000)
    old = reload(gw)
    ok(until(lambda: all(dead(pid) for pid in old), 5),
       'refused: the old workers end')
    server.start()
    ok(gw.until_log(TAKEN, 10), 'refused: the new ones take over')
    ok(gw.until_log('refuses: "OOM', 10), 'and cannot store it')
    start = len(gw.log())
    old = reload(gw)
    ok(until(lambda: all(dead(pid) for pid in old), 5),
       'refused: the next workers end')
    ok(STAYED in gw.log()[start:], 'refused: handed over again')
    proxy.clear()
    found(gw, answers, 'refused')
    gw.stop()


def test_in_flight():
    """sent, and not answered, when the worker is terminated"""
    gw = gateway(timeout='5s')
    up.hold()
    calls = [gw.call('/wait', 'flight-%d' % i) for i in range(5)]
    for i in range(5):
        up.until('flight-%d' % i)
    server.pause()
    claims = [gw.call('/ok', 'claim-%d' % i) for i in range(5)]
    up.go()
    ok(until(lambda: unread() >= 10 * 250), 'terminated: all of it was sent',
       unread())
    for pid in gw.workers():
        os.kill(pid, signal.SIGTERM)
    same([c.read().raw for c in calls + claims], [b''] * 10,
         'terminated: no answers')
    gw.wait_port()
    until(lambda: len(gw.workers()) == 2)
    server.resume()
    done(gw, ['flight-%d' % i for i in range(5)], '/wait')
    same([(a.status, a.replayed) for a in
          (patiently(gw, '/wait', 'flight-%d' % i) for i in range(5))],
         [(201, True)] * 5, 'terminated: answers that were on their way')
    for i in range(5):
        free(gw, 'claim-%d' % i, 'terminated')
    gw.stop()


def test_other_store():
    """The new configuration has no such store: the old worker stays alone."""
    gw = gateway()
    conf = gw.conf['store']
    answers = answered(gw, 'other')
    gw.write(store='shm:1m')
    old = reload(gw)
    stays(old, 'another store')
    server.start()
    ok(until(lambda: all(dead(pid) for pid in old), 10),
       'another store: the old workers end')
    same(gw.log().count(UNKNOWN), 0, 'another store: nothing is lost')
    gw.write(store=conf)
    reload(gw)
    found(gw, answers, 'another store')

    gw.write(main='worker_shutdown_timeout 300ms;')
    old = reload(gw)
    until(lambda: all(dead(pid) for pid in old), 5)
    answered(gw, 'gone')
    gw.write(store='shm:1m')
    old = reload(gw)
    ok(until(lambda: all(dead(pid) for pid in old), 5),
       'no store: the old workers end in time')
    ok(gw.until_log(UNKNOWN, 5), 'no store: what is unknown is logged')
    server.start()
    gw.stop()


def test_kinds():
    """sealed and large answers, and numbers of a sequence"""
    secret = server.dir + '/secret'
    with open(secret, 'wb') as f:
        f.write(os.urandom(32))
    os.chmod(secret, 0o600)
    gw = gateway(main='worker_shutdown_timeout 500ms;',
                 default='idempotency_secret %s;' % secret)
    same(gw.post('/number/ok', '1').status, 201, 'number 1')
    answers = answered(gw, 'sealed', n=3, path='/waitbig/300000',
                       more={'2': '/number/wait'})
    old = reload(gw)
    ok(until(lambda: all(dead(pid) for pid in old), 5), 'all kinds: old end')
    server.start()
    number = answers.pop('2')
    found(gw, answers, 'sealed', '/waitbig/300000')
    ok(until(lambda: gw.post('/number/wait', '2').replayed, 10, 0.1),
       'number 2 replays')
    # by any worker
    same(patiently(gw, '/number/wait', '2').body, number.body, 'its answer')
    executed(up, '2', 1, 'number 2')
    same(patiently(gw, '/number/ok', '4').code, 'out_of_order', 'number 4')
    same(patiently(gw, '/number/ok', '3').status, 201, 'number 3')
    gw.stop()


def test_too_many():
    """what does not fit keeps that it was executed, not its answer"""
    gw = gateway(main='worker_shutdown_timeout 500ms;')
    path = '/waitbig/950000'
    answers = answered(gw, 'fit', n=16, path=path)
    old = reload(gw)
    ok(until(lambda: all(dead(pid) for pid in old), 5),
       'too many: the old workers end')
    server.start()
    ok(done(gw, answers, path), 'too many: all are done')
    again = {key: patiently(gw, path, key) for key in answers}
    kept = [k for k, a in again.items() if a.replayed]
    ok(8 <= len(kept) < 16, 'too many: as many as fit', len(kept))
    same([again[k].body == answers[k].body for k in kept],
         [True] * len(kept), 'too many: those replay')
    same({a.code for k, a in again.items() if k not in kept},
         {'response_not_kept'}, 'too many: the others are done')
    same({up.count(key) for key in answers}, {1}, 'too many: executed once')
    gw.stop()


def test_killed():
    """whoever is killed with it, the others go on"""
    gw = gateway(main='worker_shutdown_timeout 300ms;')
    gw.expected += ['exited on signal 9', 'was locked by']
    for turn in range(5):
        answers = answered(gw, 'killed-%d' % turn, n=3)
        old = reload(gw)
        time.sleep(0.1 * turn)
        for pid in old[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        ok(until(lambda: all(dead(pid) for pid in old), 5), 'killed: all end')
        server.start()
        until(lambda: patiently(gw, '/ok', 'k-%d' % turn).status == 201)
        same({up.count(key) for key in answers}, {1}, 'killed: executed once')
    answers = answered(gw, 'afterwards')
    old = reload(gw)
    ok(until(lambda: all(dead(pid) for pid in old), 5), 'afterwards: end')
    server.start()
    found(gw, answers, 'afterwards')
    gw.stop()


def sets(servers, nodes, name):
    # a set of servers needs some seconds to agree on its state again
    gw = gateway(main='worker_shutdown_timeout 8s;', target=servers.url)

    def away():
        for node in nodes:
            node.stop()

    def back():
        for node in nodes:
            node.start()

    answers = answered(gw, name, n=10, away=away)
    old = reload(gw)
    back()
    ok(until(lambda: all(dead(pid) for pid in old), 15),
       name + ': the old workers end')
    found(gw, answers, name)
    same(gw.log().count(STAYED), 0, name + ': in time')
    answers = answered(gw, name + '-over', n=10, away=away)
    old = reload(gw)
    ok(until(lambda: all(dead(pid) for pid in old), 15),
       name + ': the old workers end, Redis is away')
    back()
    found(gw, answers, name + ', handed over')
    gw.stop()
    servers.stop()


def test_cluster():
    servers = Cluster(masters=3, replicas=0, timeout=15000, options=ALWAYS)
    sets(servers, servers.nodes, 'cluster')


def test_sentinel():
    servers = Sentinels(replicas=0, sentinels=1, down_after=15000,
                        options=ALWAYS)
    sets(servers, servers.servers, 'sentinel')


for test in sys.argv[1:] or [n for n in list(globals())
                             if n.startswith('test_')]:
    globals()[test]()
finish()
