#!/usr/bin/env python3
"""A loss of data in Redis is noticed, and then new keys are refused for a
while.

Redis is emptied while it runs, or comes back empty: that is logged at alert,
and new keys are refused until running requests can have ended.  The renewal of
a running request restores its record, so that its duplicates find it, and its
answer is stored, also where an older copy, or a take-back that arrives first,
has left a key that reads as free; a waiting duplicate does not claim such a
key.  A server that comes back with its data has lost nothing.  After a reload
or the death of a worker nginx still knows what it has noticed, and what it is
to compare.
"""

import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from dns import Dns  # noqa: E402
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, refused, replays, same, since, until)
from redis_binary import skipped  # noqa: E402
from redisd import RECORDS, Client, Proxy, Redis  # noqa: E402
from redisset import Cluster  # noqa: E402

FORGOTTEN = 'keys may be forgotten'

HTTP = '''
    idempotency_store short redis://127.0.0.1:%(port)d prefix=s: amnesia=5s;
    idempotency_store long  redis://127.0.0.1:%(port)d prefix=l:;
    idempotency_store never redis://127.0.0.1:%(port)d prefix=n: amnesia=0;
'''

LOCATIONS = '''
    location /pay/ {
        idempotency short;
        idempotency_lease 3s;
        proxy_pass http://up;
    }
    location /pass/ {
        idempotency short;
        idempotency_lease 3s;
        idempotency_store_error pass;
        proxy_pass http://up;
    }
    location /long/ {
        idempotency long;
        idempotency_lease 7s;
        proxy_pass http://up;
    }
    location /longer/ {
        idempotency long;
        idempotency_lease 9s;
        proxy_pass http://up;
    }
    location /never/ {
        idempotency never;
        proxy_pass http://up;
    }
    location /queue/ {
        idempotency short;
        idempotency_lease 3s;
        idempotency_in_progress wait=30s;
        proxy_pass http://up;
    }
    location = /token {
        idempotency_token short;
        idempotency_scope spend;
    }
    location /spend/ {
        idempotency short;
        idempotency_issued on;
        idempotency_lease 3s;
        idempotency_scope spend;
        proxy_pass http://up/;
    }
    location = /cancel {
        idempotency_lookup short cancel;
        idempotency_scope "POST /pay/ok";
    }
    location /same/ {
        idempotency short;
        idempotency_lease 3s;
        idempotency_scope same;
        proxy_pass http://up/;
    }
'''


def losses(gw):
    """of the store that is asked: the others may notice it earlier"""
    return sum(FORGOTTEN in line and 'store "long"' not in line
               and 'store "never"' not in line
               for line in gw.log().splitlines())


def known(gw):
    """until the counters have been seen"""
    time.sleep(0.8)
    return losses(gw)


def taken_again(gw, path, name):
    """A new key is taken once the time is over."""
    ok(until(lambda: gw.post(path, name).status == 201, 30, 0.2),
       name + ': new keys are taken again')


def emptied(gw, up, redis):
    gw.post('/pay/ok', 'flush-done')
    first = background(gw.post, '/pay/wait', 'flush-running')
    up.until('flush-running')
    before = known(gw)

    redis('FLUSHALL')
    ok(until(lambda: losses(gw) > before, 10), 'FLUSHALL: it is noticed')

    refused(gw, '/pay/ok', 'flush-new', 'store_unavailable',
            'FLUSHALL: a new key is refused', status=503)
    executed(up, 'flush-new', 0, 'FLUSHALL: a new key')
    refused(gw, '/cancel', 'flush-done', 'store_unavailable',
            'FLUSHALL: what was executed is not cancelled', status=503,
            method='DELETE')
    refused(gw, '/pass/ok', 'flush-pass', 'store_unavailable',
            'FLUSHALL: also where a store that is away is passed by',
            status=503)

    ok(until(lambda: gw.post('/pay/wait', 'flush-running').code
             == 'in_progress', 10, 0.1),
       'FLUSHALL: what runs is written anew')
    up.go()
    answer = first.join()
    same((answer.status, answer.replayed), (201, False),
         'FLUSHALL: what ran ends')
    replays(gw, '/pay/wait', 'flush-running', answer, 'FLUSHALL')
    executed(up, 'flush-running', 1, 'FLUSHALL: what ran')
    up.hold()

    taken_again(gw, '/pay/ok', 'flush-later')
    gw.post('/pay/ok', 'flush-done')
    executed(up, 'flush-done', 2, 'FLUSHALL: what is lost is lost')


def empty_restart(gw, up, redis):
    before = known(gw)
    redis.stop()
    redis.start()
    # whoever comes first meets a server that is known to be empty
    answers = []
    until(lambda: answers.append(gw.post('/pay/ok', 'empty-%d'
                                         % len(answers)))
          or losses(gw) > before, 10, 0)
    until(lambda: answers.append(gw.post('/pay/ok', 'empty-%d'
                                         % len(answers)))
          or len(answers) > 50, 5, 0)
    same(sorted({a.status for a in answers}), [503],
         'an empty restart: nothing new is begun (%d requests)'
         % len(answers))
    ok('has come back without its data' in gw.log(),
       'an empty restart: it is noticed')
    taken_again(gw, '/pay/ok', 'empty-later')


def times(gw, up, redis):
    ok('"long" has come back without its data: keys may be forgotten, new '
       'ones are refused for 9000 ms' in gw.log(),
       'the longest lease unless told')
    ok('"never" has come back without its data: keys may be forgotten, new '
       'ones are refused for 0 ms' in gw.log(), 'amnesia=0 is noticed too')
    same(gw.post('/never/ok', 'never-1').status, 201,
         'amnesia=0: nothing is refused')


def goes_on(gw, up, before, path, key, first, name):
    """It was lost above something that reads as free, and is not that."""
    ok(until(lambda: losses(gw) > before, 10), name + ': it is noticed')
    time.sleep(1.5)               # and has been renewed
    refused(gw, path, key, 'in_progress', name + ': what runs is written anew')
    up.go()
    answer = first.join()
    same((answer.status, answer.replayed), (201, False),
         name + ': what ran ends')
    taken_again(gw, '/pay/ok', key + '-later')
    replays(gw, path, key, answer, name)
    executed(up, key, 1, name)
    up.hold()


def older_token(gw, up, redis):
    token = json.loads(gw.post('/token', None).body)['token']
    redis('SAVE')
    first = background(gw.post, '/spend/wait', token)
    up.until(token)
    before = known(gw)
    redis.restart()
    goes_on(gw, up, before, '/spend/wait', token, first,
            'an older copy, a token')


def older_stub(gw, up, redis):
    same(gw.post('/same/status/503', 'older').status, 503, 'a status to retry')
    redis('SAVE')
    first = background(gw.post, '/same/wait', 'older')
    up.until('older', 2)
    before = known(gw)
    redis.restart()
    ok(until(lambda: losses(gw) > before, 10), 'an older stub: it is noticed')
    up.go()
    answer = first.join()
    same((answer.status, answer.replayed), (201, False),
         'an older stub: what ran ends')
    taken_again(gw, '/pay/ok', 'older-later')
    replays(gw, '/same/wait', 'older', answer, 'an older stub')
    executed(up, 'older', 2, 'an older stub, with the first try')
    up.hold()


def taken_back(gw, up, redis):
    """a duplicate's take-back is the first to land"""
    first = background(gw.post, '/pay/wait', 'back')
    up.until('back')
    before = known(gw)
    redis.pause()
    refused(gw, '/pay/wait', 'back', 'store_unavailable',
            'a take-back: no reply', status=503)
    redis.restart()
    goes_on(gw, up, before, '/pay/wait', 'back', first, 'a take-back')


def one_answer(gw, up, free, key, first, second):
    """who ran ends, and who waited for it gets that"""
    up.go()
    answer = first.join()
    same((answer.status, answer.replayed), (201, False),
         key + ': what ran ends')
    again = second.join()
    same((again.status, again.body, again.replayed),
         (201, answer.body, True), key + ': who waits gets the answer')
    taken_again(gw, free, key + '-later')
    replays(gw, '/queue/wait', key, answer, key)
    executed(up, key, 1, key)
    up.hold()


def waited(gw, up, redis):
    """who waits does not take it from the one who runs"""
    first = background(gw.post, '/queue/wait', 'waited')
    up.until('waited')
    second = background(gw.post, '/queue/wait', 'waited', timeout=30)
    before = known(gw)
    redis.pause()
    time.sleep(0.6)               # it asks now and then
    redis.restart()
    ok(until(lambda: losses(gw) > before, 10), 'a waiter: it is noticed')
    time.sleep(1.5)               # and has been renewed
    one_answer(gw, up, '/pay/ok', 'waited', first, second)


def granted(up):
    """a waiter's claim, asked before the loss was seen and granted after it"""
    redis = Redis()
    proxy = Proxy(redis)
    gw = Gateway(up, workers=2, store='redis://127.0.0.1:%d timeout=5s '
                 'amnesia=5s' % proxy.port, locations='''
    location /queue/ {
        idempotency main;
        idempotency_lease 9s;
        idempotency_in_progress wait=30s;
        proxy_pass http://up;
    }
''')
    gw.expected = [FORGOTTEN]
    first = background(gw.post, '/queue/wait', 'granted')
    up.until('granted')
    second = background(gw.post, '/queue/wait', 'granted', timeout=30)
    before = known(gw)
    proxy.on('claim', 'hold')
    time.sleep(0.7)               # it asks now and then
    redis('FLUSHALL')
    ok(until(lambda: losses(gw) > before, 4), 'granted: it is noticed')
    proxy.let_go()
    time.sleep(3.5)               # and has been renewed
    one_answer(gw, up, '/ok', 'granted', first, second)
    gw.stop()
    redis.remove()


def kept(up):
    redis = Redis('--appendonly', 'yes', '--appendfsync', 'always')
    gw = Gateway(up, http=HTTP % dict(port=redis.port), locations=LOCATIONS)
    first = gw.post('/pay/ok', 'kept')
    known(gw)
    for _ in range(2):
        redis.stop()
        redis.start()
        ok(until(lambda: gw.post('/pay/ok', 'kept').status == 201, 10, 0.05),
           'a restart with the data: it is back')
        replays(gw, '/pay/ok', 'kept', first, 'a restart with the data')
        same(gw.post('/pay/ok', 'kept-%d' % time.time_ns()).status, 201,
             'a restart with the data: new keys are taken')
        time.sleep(0.6)
    same(losses(gw), 0, 'a restart with the data: nothing was forgotten')
    gw.stop()
    redis.remove()


def reload(gw):
    old = gw.workers()
    gw.signal(signal.SIGHUP)
    ok(until(lambda: gw.workers() and not set(old) & set(gw.workers()), 10),
       'the old workers have left')


def kill(gw):
    old = gw.workers()
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(set(gw.workers()) - set(old)) == len(old), 10)


def workers_change(up):
    """what was noticed outlives who has noticed it"""
    redis = Redis()
    # longer than a reload and a kill of all workers take on a busy machine: new
    # keys are accepted behind it, and this one was lost by the server
    gw = Gateway(up, store='redis://127.0.0.1:%d amnesia=20s' % redis.port,
                 workers=3,
                 locations='location = /stats { idempotency_stats; }')
    gw.expected = [FORGOTTEN, 'exited on signal 9']
    gw.post('/ok', 'change')
    known(gw)
    redis.restart()
    ok(until(lambda: losses(gw) == 1, 10), 'it is noticed')
    noticed = time.time()

    for how in (reload, kill):
        how(gw)
        ok(until(lambda: gw.post('/ok', 'change').code
                 == 'store_unavailable', 2),
           how.__name__ + ': new keys are refused still')
        time.sleep(0.6)
        refused(gw, '/ok', 'change', 'store_unavailable',
                how.__name__ + ': and later', status=503)
        ok(b'has lost data' in gw.post('/stats?format=json', None, body=None,
                                       method='GET').body,
           how.__name__ + ': and the stats say why')
    executed(up, 'change', 1, 'workers change')

    taken_again(gw, '/ok', 'change-new')
    ok(time.time() - noticed > 19, 'when the time is over')
    same(gw.log().count('accepts new keys again'), 1, 'which is said once')
    same(losses(gw), 1, 'workers change: it was noticed once')
    gw.stop()
    redis.remove()


def away(up):
    """a loss while Redis is away, and the workers leave meanwhile"""
    redis = Redis()
    gw = Gateway(up, store='redis://127.0.0.1:%d amnesia=5s' % redis.port,
                 workers=2)
    gw.expected = [FORGOTTEN, 'exited on signal 9']
    for how in (reload, kill):
        name = 'away-' + how.__name__
        taken_again(gw, '/ok', name)
        before = known(gw)
        redis.stop()
        how(gw)
        redis.start()
        ok(until(lambda: gw.post('/ok', name).code
                 == 'store_unavailable' and losses(gw) > before, 10),
           how.__name__ + ' while Redis is away: it is noticed')
        executed(up, name, 1, how.__name__ + ' while Redis is away')
        time.sleep(1)
        same(losses(gw), before + 1, how.__name__ + ': once, by all workers')
    gw.stop()
    redis.remove()


def another(up):
    """a store that is elsewhere now has forgotten nothing"""
    here, there = Redis(), Redis()
    gw = Gateway(up, store='redis://127.0.0.1:%d' % here.port)
    gw.post('/ok', 'another')
    known(gw)
    for server in (there, here):
        gw.write(store='redis://127.0.0.1:%d' % server.port)
        reload(gw)
        same(gw.post('/ok', 'another-%d' % server.port).status, 201,
             'another server: new keys are taken')
        known(gw)
    gw.write(store='redis://:secret@127.0.0.1:%d' % here.port)
    here('CONFIG', 'SET', 'requirepass', 'secret')
    here.auth = ('secret',)
    reload(gw)
    ok(until(lambda: gw.post('/ok', 'another').status == 201),
       'another password: it is reached')
    known(gw)
    same(losses(gw), 0, 'another server: nothing was forgotten')
    same(len(here('KEYS', 'idem:counter:*')), 2,
         'another password: the counter is the same')
    here('FLUSHALL')
    gw.expected = [FORGOTTEN]
    ok(until(lambda: losses(gw) == 1), 'and is looked at')
    gw.stop()
    here.remove()
    there.remove()


def cluster(up):
    """A node is asked before it takes anything, by new workers as well."""
    if skipped('a worker that may not ask for the map of a cluster', 'acl'):
        return
    node = Redis('--cluster-enabled', 'yes', *Cluster.bus())
    node('CLUSTER', 'ADDSLOTS', *range(16384))
    until(lambda: b'cluster_state:ok' in node('CLUSTER', 'INFO'))
    monitor = Client(node.path, timeout=1)
    monitor('MONITOR')
    gw = Gateway(up, store='redis-cluster://127.0.0.1:%d' % node.port)
    old = set(gw.workers())
    ok(until(lambda: gw.post('/ok', 'n%f' % time.time()).status == 201),
       'a worker in a cluster')
    gw.expected = ['has no map of a cluster']
    node('ACL', 'SETUSER', 'default', '-cluster')
    gw.signal(signal.SIGHUP)
    ok(until(lambda: not old & set(gw.workers())), 'a new one')
    same(gw.post('/ok', 'early').status, 503,
         'which takes nothing before it has the map')
    node('ACL', 'SETUSER', 'default', '+cluster')
    ok(until(lambda: gw.post('/ok', 'early').status == 201), 'and then does')
    same(gw.post('/ok', 'last').status, 201, 'which takes keys')

    said = {}             # by connection
    node('PING', 'enough')
    words = []
    while b'"enough"' not in words:
        words = monitor.reply().split()
        said.setdefault(words[2], []).append(words[3].lower())
    claims = [c for c in said.values() if b'"evalsha"' in c or b'"eval"' in c]
    ok(len(claims) >= 2, 'both workers have claimed', said)
    same([c for c in claims if b'"incr"' not in
          c[:min(i for i, w in enumerate(c) if w.startswith(b'"eval'))]], [],
         'each connection begins with the counter')
    monitor.close()
    gw.stop()
    node.remove()

    gw = Gateway(up, store='redis-cluster://127.0.0.1:%d timeout=30s'
                 % node.port)
    gw.expected = ['cannot be reached', 'connect()']
    began = time.time()
    same(gw.post('/ok', 'nobody').status, 503, 'nobody is there to have a map')
    ok(since(began) < 10, 'which is not waited for')
    gw.stop()


def names(cluster):
    return {(key, node) for node in cluster.nodes
            for key in node('KEYS', 'idem:*') if b'counter' not in key}


def slot_moves(up):
    """A slot that leaves a node which has lost keys is refused elsewhere."""
    cluster = Cluster(masters=3, replicas=0)
    gw = Gateway(up, store=cluster.url + ' amnesia=15s', workers=1)
    gw.expected = [FORGOTTEN]
    ok(until(lambda: all(gw.post('/ok', 'w%d%f' % (n, time.time())).status
                         == 201 for n in range(9))), 'all masters take keys')
    before = names(cluster)
    same(gw.post('/ok', 'travels').status, 201, 'a key')
    (name, owner), = names(cluster) - before
    slot = owner('CLUSTER', 'KEYSLOT', name)
    other = [node for node in cluster.nodes if node is not owner][0]

    owner('FLUSHALL')
    began = time.time()
    ok(until(lambda: losses(gw) == 1), 'its node loses everything')
    same(gw.post('/ok', 'travels').status, 503, 'the key is refused')
    for node in (other, owner):
        node('CLUSTER', 'SETSLOT', slot, 'NODE', cluster.id(other))
    for n in range(5):
        same(gw.post('/ok', 'travels').status, 503,
             'also by the node that its slot has moved to')
    ok(since(began) < 14, 'in time for that')
    ok(until(lambda: gw.post('/ok', 'travels').status == 201, 30),
       'until running requests can have ended')
    gw.stop()
    cluster.stop()


def lost_before_sent(up):
    """A refused renewal: the request is not sent, however new its lease is."""
    redis = Redis()
    dns = Dns()
    dns.set('up.test', '127.0.0.1')
    dns.delay = 3
    store = 'redis://127.0.0.1:%d' % redis.port
    slow = Gateway(up, store=store, workers=1, locations='''
    location /same/ {
        idempotency main;
        idempotency_lease 6s;
        idempotency_scope same;
        %s
        set $name up.test;
        rewrite ^/same(/.*) $1 break;
        proxy_pass http://$name:%d;
    }
''' % (dns.resolver, up.port))
    other = Gateway(up, store=store, workers=1, locations='''
    location /same/ {
        idempotency main;
        idempotency_scope same;
        proxy_pass http://up/;
    }
''')
    first = slow.call('/same/ok', 'taken')
    ok(until(lambda: redis('KEYS', RECORDS)), 'a claim, before it is sent')
    redis('DEL', *redis('KEYS', RECORDS))
    same(other.post('/same/ok', 'taken').status, 201,
         'its record is lost, and another gateway executes the key')
    ok(slow.until_log('was lost', 10), 'the renewal is refused')
    a = first.read()
    ok(a.status >= 500, 'so the request is not sent', a.status)
    executed(up, 'taken', 1, 'a lease that was lost')
    slow.stop()
    other.stop()
    redis.remove()


def counters(up):
    redis = Redis()
    gw = Gateway(up, store='redis://127.0.0.1:%d' % redis.port, workers=2)
    gw.expected = [FORGOTTEN]

    def keys():
        return redis('KEYS', 'idem:counter:*')

    def expire():
        return keys() and all(redis('PTTL', key) > 0 for key in keys())

    ok(until(expire), 'a counter leaves after a while')
    for _ in range(2):
        reload(gw)
    known(gw)
    same(len(keys()), 1, 'all workers have one, before and after a reload')
    ok(expire(), 'and it leaves after a while')
    redis('FLUSHALL')
    ok(until(lambda: losses(gw) and expire()), 'the one after a loss, too')
    gw.stop()
    redis.remove()


def main():
    up = Ledger()
    redis = Redis()
    gw = Gateway(up, http=HTTP % dict(port=redis.port), locations=LOCATIONS)
    gw.expected = [FORGOTTEN]
    same(losses(gw), 0, 'at first nothing is forgotten')
    emptied(gw, up, redis)
    empty_restart(gw, up, redis)
    times(gw, up, redis)
    taken_back(gw, up, redis)
    waited(gw, up, redis)
    older_token(gw, up, redis)
    older_stub(gw, up, redis)
    gw.stop()
    granted(up)
    kept(up)
    workers_change(up)
    away(up)
    another(up)
    cluster(up)
    slot_moves(up)
    lost_before_sent(up)
    counters(up)
    finish()


main()
