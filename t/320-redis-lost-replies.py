#!/usr/bin/env python3
"""A lost reply is not a lost claim, and a lost completion not a lost answer.

A proxy loses, delays and holds back commands and replies between nginx and
Redis.  A claim is repeated with the same owner while its request can wait; if
that does not help the request is refused, and the claim is taken back in the
background, also if it arrives after the take-back.  An outcome is sent again
until it is stored; an answer that is too large for the link, or for the
background queue, is given up, but not the fact that it was executed.  With
"store_error pass" a request passes only if the store cannot be reached.
"""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, refused, replays, same, since, until)
from redisd import Proxy, Redis  # noqa: E402

ALWAYS = 1000000
AGAIN = 'retrying in background'
STORED = 'all outcomes that waited in background are stored'
up = Ledger()
server = Redis()
proxy = Proxy(server)
gw = Gateway(up, store='redis://127.0.0.1:%d timeout=300ms' % proxy.port,
             locations='''
    location /pass/ {
        idempotency main;
        idempotency_store_error pass;
        add_header X-Result $idempotency_result always;
        proxy_pass http://up;
    }
    location /pass-probe/ {
        idempotency main;
        idempotency_store_error pass;
        idempotency_unknown probe=/executed;
        proxy_pass http://up;
    }
    location = /executed { internal; proxy_pass http://up/wait; }
    location /backup/ {
        idempotency main;
        error_page 502 503 504 = @backup;
        proxy_pass http://up;
    }
    location @backup { proxy_pass http://up; }
    location /nobody/ {
        idempotency main;
        proxy_pass http://127.0.0.1:1;
    }
    location /later/ {
        idempotency main;
        idempotency_in_progress wait=2s;
        proxy_pass http://up;
    }
    location /large/ {
        idempotency main;
        idempotency_max_response 20;
        proxy_buffering off;
        proxy_pass http://up;
    }
    location /short/ {
        idempotency main;
        idempotency_lease 1s;
        proxy_pass http://up;
    }
''')


def warm():
    """all scripts are there, and known to the proxy"""
    gw.post('/ok', 'warm')
    gw.post('/nobody/ok', 'warm')
    gw.post('/reset', 'warm')
    gw.post('/short/slow/500', 'warm')
    server('SCRIPT', 'FLUSH')
    gw.post('/ok', 'warm2')
    gw.post('/nobody/ok', 'warm2')
    gw.post('/reset', 'warm2')
    gw.post('/short/slow/500', 'warm2')
    same(sorted(set(proxy.names.values())),
         ['claim', 'complete', 'lease', 'release', 'renew', 'unknown'],
         'the proxy knows what it sees')


def settle():
    """until the connection is a good one again"""
    proxy.clear()
    until(lambda: gw.post('/ok', 'settle').status == 201, 5, 0.05)
    until(lambda: STORED in gw.log()[mark:]
          or AGAIN not in gw.log()[mark:], 5)
    time.sleep(1.05)


mark = 0


def test_claim():
    for action, name in (('lose', 'its reply'), ('cut', 'on its way')):
        settle()
        key = 'claim-' + action
        before = proxy.count('claim')
        proxy.on('claim', action)
        start = time.time()
        a = gw.post('/ok', key)
        took = since(start)
        same((a.status, a.replayed), (201, False),
             'a claim lost %s: answered' % name)
        ok(took < 0.7, 'in time', took)
        same(proxy.count('claim') - before, 2, 'it was asked again')
        executed(up, key, 1, 'a claim lost %s' % name)
        same(gw.record(key, '/ok')['attempts'], '1', 'as the same attempt')
        replays(gw, '/ok', key, a, 'a claim lost %s' % name)


def test_claim_for_good():
    """it was granted, and nobody heard"""
    for action in ('lose', 'late'):
        times = []
        for turn in range(4):
            settle()
            key = 'good-%s-%d' % (action, turn)
            proxy.on('claim', action, ALWAYS)
            start = time.time()
            a = gw.post('/ok', key)
            times.append(since(start))
            same((a.status, a.code, a.retry, a.get('retry-after')),
                 (503, 'store_unavailable', 'same-key', '1'),
                 'a claim that stays lost is refused')
            if times[-1] < 0.5:
                break
        # one try or many: on a slow machine the best of some
        ok(min(times) < 0.5, 'when the timeout is over', times)
        executed(up, key, 0, 'a claim that stays lost')
        proxy.clear()
        ok(until(lambda: gw.state(key, '/ok') == 'none', 3), 'taken back')
        a = gw.post('/ok', key)
        same((a.status, a.replayed), (201, False), 'the retry runs')
        executed(up, key, 1, 'the retry')


def test_claim_then_down():
    settle()
    proxy.on('claim', 'lose')
    proxy.on('any', 'cut', ALWAYS)
    a = gw.post('/ok', 'down')
    same((a.status, a.code), (503, 'store_unavailable'),
         'claimed, then nobody is there: refused')
    time.sleep(1)
    start = len(gw.log())
    proxy.clear()
    a = None

    def runs():
        nonlocal a
        a = gw.post('/ok', 'down')
        return a.status != 503
    ok(until(runs, 5, 0.05), 'until it is back')
    same((a.status, a.replayed, a.code), (201, False, None),
         'then it runs at once: not unknown, not in progress')
    executed(up, 'down', 1, 'claimed, then nobody is there')
    ok(gw.until_log(STORED, 5, start), 'which is logged')


def test_overtaken():
    """a claim that comes after it was taken back, on a key that is new, and
    on one that was taken back before"""
    for turn in range(3):
        settle()
        proxy.on('claim', 'hold', ALWAYS)
        a = gw.post('/ok', 'late')
        same((a.status, a.code), (503, 'store_unavailable'),
             'a claim that is held up is refused')
        n = proxy.count('release')
        ok(until(lambda: proxy.count('release') >= n, 2), 'and taken back')
        time.sleep(0.3)
        with proxy.lock:
            proxy.rules = []
        proxy.let_go()
        time.sleep(0.2)
        same(gw.state('late', '/ok'), 'none',
             'turn %d: then it comes, and is too late' % turn)
    a = gw.post('/ok', 'late')
    same((a.status, a.replayed), (201, False), 'the retry runs')
    executed(up, 'late', 1, 'a claim that came too late')


def test_overtaken_in_progress():
    """a claim that comes after its request was told of another's, and that
    one has given the key back"""
    headers = {'X-Key': 'both', 'X-Source': 'somebody', 'X-Scope': 'POST /ok'}
    settle()
    other = gw.ask(headers, op='claim', identify=1, owner='Z')
    same(other['result'], 'granted', 'somebody has the key')
    n = proxy.count('release')
    proxy.on('claim', 'leave')
    a = gw.post('/ok', 'both')
    same((a.status, a.code), (409, 'in_progress'),
         'the second try is told so')
    ok(until(lambda: proxy.count('release') > n, 5),
       'the first one, which is held up, is taken back')
    other = gw.ask(headers, op='release', identify=1, owner='Z')
    same(other['result'], 'ok', 'the key is given back')
    proxy.let_go()
    time.sleep(0.2)
    same(gw.state('both', '/ok'), 'none', 'then it comes, and is too late')
    a = gw.post('/ok', 'both')
    same((a.status, a.replayed), (201, False), 'the retry runs')
    executed(up, 'both', 1, 'a claim that came too late')


def test_client_gone():
    settle()
    proxy.on('claim', 'hold')
    c = gw.call('/slow/200', 'gone')
    time.sleep(0.05)
    c.close()
    time.sleep(0.05)
    proxy.let_go()
    time.sleep(0.5)
    a = gw.post('/slow/200', 'gone')
    same(a.status, 201, 'gone before it was claimed: the retry is answered')
    executed(up, 'gone', 1, 'gone before it was claimed')


def test_large_and_gone():
    """the client leaves while an answer too large to keep is told of"""
    path = '/large/drip/100/20'
    for i in range(5):
        key = 'large-%d' % i
        proxy.on('complete', 'hold')
        n = proxy.count('complete')
        c = gw.call(path, key)
        until(lambda: proxy.count('complete') > n)
        c.reset()
        time.sleep(0.05)
        proxy.let_go()
        ok(until(lambda: gw.state(key, path) == 'done', 5),
           'too large, and the client has left: done')
        executed(up, key, 1, 'too large')
        refused(gw, path, key, 'response_not_kept', 'too large')
    proxy.clear()


def test_completion():
    for action, path in (('lose', '/ok'), ('cut', '/ok'), ('late', '/ok'),
                         ('cut', '/big/300000'), ('lose', '/big/3000000'),
                         ('cut', '/status/404')):
        settle()
        key = 'complete-%s%s' % (action, path)
        name = '%s %s' % (path, action)
        proxy.on('complete', action)
        start = time.time()
        a = gw.post(path, key)
        took = since(start)
        same((a.status in (201, 404), a.replayed, a.whole),
             (True, False, True), name + ': a lost completion is answered')
        ok(took < 0.9, 'in time', took)
        ok(until(lambda: gw.state(key, path) == 'done', 3), 'and stored')
        if path.endswith('3000000'):
            refused(gw, path, key, 'response_not_kept', name)
        else:
            replays(gw, path, key, a, name)
        executed(up, key, 1, name)


def test_completion_while_down():
    settle()
    keys = ['cd-%d' % i for i in range(40)]
    up.hold()
    calls = [gw.call('/wait', key) for key in keys]
    for key in keys:
        up.until(key)
    start = len(gw.log())
    proxy.on('any', 'cut', ALWAYS)
    up.go()
    answers = [c.read() for c in calls]
    same({(a.status, a.replayed) for a in answers}, {(201, False)},
         'down at the end: all are answered')
    a = gw.post('/wait', keys[0])
    same((a.status, a.code), (503, 'store_unavailable'),
         'a retry is refused while it is down')
    time.sleep(1)
    proxy.clear()
    ok(gw.until_log(STORED, 5, start), 'told later')
    again = [gw.post('/wait', key) for key in keys]
    same([(b.status, b.replayed, b.body) for b in again],
         [(201, True, a.body) for a in answers], 'all of them replay')
    same({up.count(key) for key in keys}, {1}, 'and were executed once')
    same(gw.log()[start:].count(AGAIN), 1,
         'logged once')


def patiently(path, key):
    """again while the store is said to be away, as a client does it"""
    answers = []
    until(lambda: answers.append(gw.post(path, key))
          or answers[-1].code != 'store_unavailable', 20, 0.1)
    return answers[-1]


def test_slow_link():
    """answers that cannot be transferred in time, however often"""
    settle()
    line = 'could not be stored in time'
    path = '/big/900000'
    keys = ['link-%d' % i for i in range(4)]
    start = len(gw.log())
    n = proxy.stuck
    proxy.limit = 64 * 1024
    calls = [background(patiently, path, key) for key in keys]
    same({(a.status, a.whole) for a in (c.join() for c in calls)},
         {(201, True)}, 'a slow link: all are answered')
    ok(gw.until_log(STORED, 15, start),
       'then all has landed')
    # on a slow machine it may be away twice
    ok(4 <= proxy.stuck - n <= 14, 'after some tries', proxy.stuck - n)
    ok(1 <= gw.log()[start:].count(line) <= 2, 'which is logged once a time')
    for key in keys:
        same(patiently(path, key).code, 'response_not_kept', 'a slow link')
        executed(up, key, 1, 'a slow link')
    same(patiently('/ok', 'link-small').status, 201, 'others are served')

    # small ones would not make it better
    settle()
    start = len(gw.log())
    n = proxy.stuck
    proxy.limit = 30000
    a = patiently('/big/40000', 'link-40000')
    ok(until(lambda: proxy.stuck - n >= 5, 15), 'small: told again and again')
    proxy.limit = None
    ok(gw.until_log(STORED, 5, start), 'until it lands')
    replays(gw, '/big/40000', 'link-40000', a, 'small')
    same(gw.log()[start:].count(line), 0, 'and no answer is given up')


def test_too_much():
    """more answers than may wait: that they were executed has room"""
    settle()
    start = len(gw.log())
    path = '/big/950000'
    keys = ['much-%d' % i for i in range(20)]
    proxy.on('complete', '-OOM command not allowed', ALWAYS)
    answers = [patiently(path, key) for key in keys]
    same({(a.status, a.whole) for a in answers}, {(201, True)},
         'too much: all are answered')
    proxy.clear()
    ok(gw.until_log(STORED + ', dropped: 0', 15, start), 'then all has landed')
    again = [patiently(path, key) for key in keys]
    kept = [i for i in range(20) if again[i].replayed]
    ok(kept == list(range(len(kept))) and 15 <= len(kept) < 20,
       'the first replay', kept)
    same([again[i].body for i in kept], [answers[i].body for i in kept],
         'the same answers')
    same({again[i].code for i in range(len(kept), 20)},
         {'response_not_kept'}, 'the others are done')
    same({up.count(key) for key in keys}, {1}, 'and were executed once')
    same(gw.log()[start:].count('has no room to wait'), 1,
         'which is logged once')


def test_release():
    settle()
    proxy.on('release', 'cut')
    a = gw.post('/nobody/ok', 'release')
    same((a.status, a.retry), (502, 'same-key'), 'a release that is lost')
    ok(until(lambda: gw.state('release', '/nobody/ok') == 'none', 3),
       'is told again')
    settle()
    proxy.on('unknown', 'cut')
    a = gw.post('/reset', 'unknown')
    same(a.status, 502, 'an unknown that is lost')
    ok(until(lambda: gw.state('unknown', '/reset') == 'unknown', 3),
       'is told again')
    refused(gw, '/reset', 'unknown', 'outcome_unknown', 'and held')


def test_renewal():
    settle()
    proxy.on('renew', 'lose')
    first = background(gw.post, '/short/slow/2500', 'renew')
    up.until('renew')
    codes = set()
    while first.is_alive():
        a = gw.post('/short/slow/2500', 'renew')
        codes.add(a.code or a.status)
        time.sleep(0.05)
    ok(codes <= {'in_progress', 201}, 'a renewal that is lost: in progress '
       'all the time', codes)
    a = first.join()
    same((a.status, a.replayed), (201, False), 'and answered')
    executed(up, 'renew', 1, 'a renewal that is lost')


def result(a):
    return a.status, a.replayed, a.get('x-result')


def test_pass():
    settle()
    proxy.on('any', 'cut', ALWAYS)
    a = gw.post('/pass/ok', 'pass')
    same(result(a), (201, False, 'store_error'), 'down: passes')
    start = time.time()
    b = gw.post('/pass/ok', 'pass-2')
    took = since(start)
    same(result(b), (201, False, 'store_error'), 'and the next one')
    ok(took < 0.3, 'at once', took)
    proxy.clear()
    ok(until(lambda: gw.state('pass', '/pass/ok') == 'done', 5),
       'completed when it is back')
    same(result(gw.post('/pass/ok', 'pass')), (201, True, 'replayed'),
         'the duplicate replays')
    executed(up, 'pass', 1, 'passed')
    ok('a request passes unprotected' in gw.log(), 'which is logged')

    settle()
    proxy.on('claim', 'late', ALWAYS)
    start = time.time()
    a = gw.post('/pass/ok', 'pass-late')
    took = time.time() - start, since(start)
    same(result(a), (201, False, 'store_error'), 'silent: passes')
    ok(0.25 < took[0] and took[1] < 1.0, 'after the timeout', took)
    proxy.clear()
    ok(until(lambda: gw.state('pass-late', '/pass/ok') == 'done', 5),
       'it was claimed all the same, and is completed')
    same(result(gw.post('/pass/ok', 'pass-late')), (201, True, 'replayed'),
         'the duplicate replays')
    executed(up, 'pass-late', 1, 'silent')

    settle()
    proxy.on('claim', '-OOM command not allowed')
    same(result(gw.post('/pass/ok', 'pass-oom')), (201, False, 'store_error'),
         'refuses: passes')
    ok(until(lambda: gw.state('pass-oom', '/pass/ok') == 'done', 5),
       'and is completed')

    # what was sent to nobody is not executed
    settle()
    for reply in (b'*3\r\n:77\r\n:1\r\n$0\r\n\r\n', b'+OK\r\n', b':1\r\n',
                  b'*3\r\n:1\r\n:1\r\n$3\r\nabc\r\n',
                  b'-WRONGTYPE Operation against a key holding the wrong '
                  b'kind of value\r\n'):
        proxy.on('claim', reply, 1000)
        a = gw.post('/pass/ok', 'pass-nonsense')
        same((a.status, a.code), (503, 'store_unavailable'),
             'nonsense does not pass: %r' % reply[:20])
        executed(up, 'pass-nonsense', 0, 'nonsense')
        settle()
    same(gw.post('/pass/ok', 'pass-nonsense').status, 201, 'then it runs')
    executed(up, 'pass-nonsense', 1, 'it')


def test_backup():
    """what is refused because the store is down is not executed elsewhere"""
    settle()
    proxy.on('any', 'cut', ALWAYS)
    a = gw.post('/backup/ok', 'backup')
    same((a.status, a.code, a.retry, a.get('retry-after')),
         (503, 'store_unavailable', 'same-key', '1'), 'error_page 503')
    executed(up, 'backup', 0, 'error_page 503')


def test_pass_after_a_probe():
    """it was executed, the record says so, and then the store is gone"""
    settle()
    path = '/pass-probe/flaky'
    gw.post(path, 'told')
    same(gw.state('told', path), 'unknown', 'an outcome is unknown')
    up.hold()
    n = up.count('told')
    c = gw.call(path, 'told')
    ok(up.until('told', n + 1), 'the upstream is asked about it')
    proxy.on('claim', 'cut', ALWAYS)
    up.go()
    a = c.read()
    same((a.status, a.code), (503, 'store_unavailable'),
         'executed, as it says: does not pass')
    settle()
    same([e[2] for e in up.of('told')], ['POST', 'GET'],
         'it is not executed again')
    same(gw.state('told', path), 'done', 'and done')
    same(gw.post(path, 'told').replayed, True, 'a retry replays')


def test_waiter():
    """It waits, and its own claim is granted without a reply: taken back."""
    settle()
    up.hold()
    first = gw.call('/later/wait/503', 'waiter')
    up.until('waiter')
    waiter = gw.call('/later/wait/503', 'waiter')
    time.sleep(0.3)
    proxy.on('claim', 'late', ALWAYS)
    up.go()
    same(first.read().status, 503, 'the first is released')
    a = waiter.read()
    same((a.status, a.code), (409, 'in_progress'),
         'who waits for a store that does not answer')
    proxy.clear()
    settle()
    ok(until(lambda: gw.state('waiter', '/later/wait/503') == 'none', 5),
       'its claim is taken back')
    same(gw.post('/later/wait/503', 'waiter').status, 503, 'a retry runs')
    executed(up, 'waiter', 2, 'a waiter that was not sure')


def test_waiter_gone():
    """Its claim is granted, and it leaves in the same turn of the loop."""
    settle()
    up.hold()
    path = '/later/wait/503'
    first = gw.call(path, 'left')
    up.until('left')
    waiter = gw.call(path, 'left')
    time.sleep(0.3)
    # all: one that takes too long is asked again
    proxy.on('claim', 'hold', ALWAYS)
    n = proxy.count('claim')
    up.go()
    same(first.read().status, 503, 'the first is released')
    ok(until(lambda: proxy.count('claim') > n), 'who waits claims')
    pid = gw.workers()[0]
    os.kill(pid, signal.SIGSTOP)
    proxy.let_go()
    time.sleep(0.1)
    waiter.close()
    time.sleep(0.1)
    os.kill(pid, signal.SIGCONT)
    proxy.clear()
    ok(until(lambda: gw.state('left', path) == 'none', 3),
       'it has left: its claim is taken back')
    same(gw.post(path, 'left').status, 503, 'a retry runs')
    # in that turn of the loop the grant may come before the end of the client
    ok(up.count('left') in (2, 3), 'a waiter that has left: executed or not',
       up.count('left'))


def test_pass_paused():
    settle()
    server.pause()
    start = time.time()
    calls = [gw.call('/pass/ok', 'pp-%d' % i) for i in range(20)]
    answers = [c.read() for c in calls]
    took = since(start)
    same({result(a) for a in answers}, {(201, False, 'store_error')},
         'paused: all pass')
    ok(took < 1.2, 'after the timeout', took)
    server.resume()
    ok(until(lambda: all(gw.state('pp-%d' % i, '/pass/ok') == 'done'
                         for i in range(20)), 5), 'resumed: all are done')
    same({result(gw.post('/pass/ok', 'pp-%d' % i)) for i in range(20)},
         {(201, True, 'replayed')}, 'and replay')
    same({up.count('pp-%d' % i) for i in range(20)}, {1}, 'executed once')


def test_short():
    """connections that nobody uses, ended as soon as they are made"""
    line = 'closed a connection as soon as it was made'
    settle()
    start = len(gw.log())
    for _ in range(4):
        n = proxy.connections
        server('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
        ok(until(lambda: proxy.connections > n, 5), 'ended: made anew')
        time.sleep(0.1)
    ok(gw.until_log(line, 5, start), 'which is logged')
    ok(gw.until_log('is up again', 5, start), 'and that it is over')
    settle()
    ok(gw.log()[start:].count(line) <= 3, 'once for each time')
    same(gw.post('/ok', 'short').status, 201, 'it works')


def cpu(gateway):
    """seconds that its workers have used"""
    ticks = 0
    for pid in gateway.workers():
        with open('/proc/%d/stat' % pid) as f:
            fields = f.read().rsplit(')', 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK')


def test_paused():
    """nobody waits longer than the timeout, whatever is asked again"""
    other = Gateway(up, store='redis+unix://%s timeout=1s' % server.path)
    other.post('/ok', 'paused')
    seen = []

    def timed(key):
        start = time.time()
        a = other.post('/ok', key)
        seen.append((since(start), a.status))

    for turn in range(2):
        threads = []
        used = cpu(other)
        server.pause()
        for i in range(40):
            threads.append(background(timed, 'pause-%d-%d' % (turn, i)))
            time.sleep(0.05)
        used = cpu(other) - used
        server.resume()
        back = time.time()
        ok(until(lambda: other.post('/ok', 'p-%f' % time.time()).status
                 == 201, 5, 0.02), 'resumed: it works')
        took = since(back)
        for thread in threads:
            thread.join()
        ok(took < 1.5, 'within a second', took)
        ok(used < 0.5, 'a worker has nothing to do meanwhile', used)
    same({s for _, s in seen} <= {201, 503}, True, 'answered or refused')
    longest = max(seen)[0]
    ok(longest < 1.7, 'nobody waited much longer than the timeout', longest)
    other.stop()


warm()
for test in sys.argv[1:] or [n for n in list(globals())
                             if n.startswith('test_')]:
    mark = len(gw.log())
    globals()[test]()
gw.stop()
finish()
