#!/usr/bin/env python3
"""idempotency_unknown decides what happens to an unknown outcome.

"hold" refuses until it is resolved.  "retry" executes again, under a higher
fence.  "probe" asks the upstream: 2xx is the answer, 404 means never executed,
202 and 425 mean not yet known; anything else leaves it unknown.  One request
probes at a time, and the result for a record that was settled in the meantime
has no effect.
"""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, free_port, ok, refused, replays, same, until)

up, query = Ledger(), Ledger()

PROBE = '''
    location %(path)s {
        idempotency main;
        idempotency_unknown probe=%(uri)s;
        proxy_pass http://up;
    }
'''

gw = Gateway(up, workers=2, http='''
    idempotency_lease 2s;
''', locations='''
    location /retry/ {
        idempotency main;
        idempotency_unknown retry;
        proxy_pass http://up;
    }
    location = /ask {
        internal;
        proxy_read_timeout 700ms;
        proxy_set_header X-Fence $idempotency_fence;
        proxy_set_header X-Query-Key $idempotency_key;
        proxy_set_header X-Query-Source $idempotency_source;
        proxy_pass http://127.0.0.1:%d$http_x_probe$is_args$args;
    }
    location = /nobody { internal; proxy_pass http://127.0.0.1:%d; }
    location = /made { internal; return 404; }
    location = /caught {
        internal;
        proxy_intercept_errors on;
        error_page 500 =404 /made;
        proxy_pass http://127.0.0.1:%d/status/500;
    }
    location = /slow-lease {
        internal;
        proxy_pass http://127.0.0.1:%d/wait;
    }
    location /p-wait/ {
        idempotency main;
        idempotency_in_progress wait=10s;
        idempotency_unknown probe=/ask;
        proxy_pass http://up;
    }
    location /p-little/ {
        idempotency main;
        idempotency_max_response 10;
        idempotency_unknown probe=/ask;
        proxy_pass http://up;
    }
''' % (query.port, free_port(), query.port, query.port) + ''.join(
    PROBE % dict(path=path, uri=uri) for path, uri in (
        ('/p/', '/ask?from=probe'), ('/p-nobody/', '/nobody'),
        ('/p-missing/', '/missing/'), ('/p-made/', '/made'),
        ('/p-caught/', '/caught'))) + '''
    location /missing/ { root html; }
''')


def lost(path, key, **args):
    """a request whose outcome is unknown"""
    a = gw.post(path, key, **args)
    if a.status != 502 or gw.state(key, path) != 'unknown':
        ok(False, 'could not lose ' + path, a)


def fence(entry):
    return int(dict(entry[4])['x-fence'])


def ask(path, key, probe, **args):
    return gw.post(path, key, headers=[('X-Probe', probe)], **args)


def test_hold():
    lost('/flaky', 'hold')
    before = gw.record('hold', '/flaky')
    for i in range(3):
        refused(gw, '/flaky', 'hold', 'outcome_unknown', 'held')
    refused(gw, '/flaky', 'hold', 'key_reused', 'another body', status=422,
            body=b'other')
    executed(up, 'hold', 1, 'held')
    after = gw.record('hold', '/flaky')
    same((after['fence'], after['attempts']),
         (before['fence'], before['attempts']), 'duplicates write nothing')


def test_retry():
    lost('/retry/flaky', 'retry')
    refused(gw, '/retry/flaky', 'retry', 'key_reused',
            'another body is not taken for a retry', status=422,
            body=b'other')
    executed(up, 'retry', 1, 'another body')
    a = gw.post('/retry/flaky', 'retry')
    same((a.status, a.replayed), (201, False), 'policy retry: runs again')
    executed(up, 'retry', 2, 'policy retry')
    one, two = up.of('retry')
    ok(fence(one) < fence(two), 'under a higher fence')
    replays(gw, '/retry/flaky', 'retry', a, 'policy retry')


def test_fence():
    """grows with every claim, over a release, too"""
    path = '/status/503'
    for i in range(4):
        gw.post(path, 'fence')
    fences = [fence(e) for e in up.of('fence')]
    ok(fences == sorted(set(fences)) and len(fences) == 4,
       'the fence grows with every claim', fences)
    same([dict(e[4])['x-attempt'] for e in up.of('fence')],
         ['1', '2', '3', '4'], 'attempts are counted')
    a = gw.post('/ok/fence', 'other key')
    same(a.status, 400, 'a blank in a key')
    gw.post('/ok/fence', 'other')
    ok(fence(up.of('other')[0]) > fences[-1],
       'another key has one of its own')


def test_probe_executed():
    path = '/p/flaky'
    lost(path, 'yes')
    a = ask(path, 'yes', '/answer/%s' % 'yes')
    same((a.status, a.replayed, a.whole), (201, True, True),
         'probe 201: its answer is the record\'s')
    same((a.body, a.get('x-effect')),
         (b'effect %06d\n' % query.of('yes')[0][0],
          str(query.of('yes')[0][0])), 'with header and body')
    entry = query.of('yes')[0]
    fields = dict(entry[4])
    same((entry[2], entry[5], fields.get('content-length'),
          fields['x-query-key'], fields['x-query-source']),
         ('GET', b'', None, 'yes', 'somebody'),
         'asked by GET, without the body, about this key')
    ok(entry[3].endswith('?from=probe'), 'with its arguments', entry[3])
    ok(int(fields['x-fence']) > fence(up.of('yes')[0]),
       'under a new fence')
    replays(gw, path, 'yes', a, 'probe 201')
    executed(query, 'yes', 1, 'the probe')
    executed(up, 'yes', 1, 'probe 201')

    for probe, status, size in (('/status/200', 200, 14),
                                ('/status/204', 204, 0),
                                ('/bigchunked/300000', 201, 300000),
                                ('/eof/100', 201, 100),
                                ('/trailers', 201, 14)):
        key = 'yes' + probe
        lost(path, key)
        a = ask(path, key, probe)
        same((a.status, len(a.body), a.replayed), (status, size, True),
             'probe %s' % probe)
        replays(gw, path, key, a, 'probe ' + probe)
        executed(up, key, 1, 'probe ' + probe)

    path = '/p-little/flaky'
    for probe in ('/ok', '/bigchunked/100000'):
        key = 'large' + probe
        lost(path, key)
        a = ask(path, key, probe)
        same((a.status, a.code), (409, 'response_not_kept'),
             'a probe that is too large says executed')
        refused(gw, path, key, 'response_not_kept', 'and so does the record')
        executed(up, key, 1, 'a large probe')


def test_probe_never():
    path = '/p/flaky'
    lost(path, 'no')
    a = ask(path, 'no', '/status/404')
    same((a.status, a.replayed), (201, False), 'probe 404: it runs')
    executed(up, 'no', 2, 'probe 404')
    one, two = up.of('no')
    ok(fence(one) < fence(query.of('no')[0]) < fence(two),
       'under a fence above the probe\'s',
       (fence(one), fence(query.of('no')[0]), fence(two)))
    replays(gw, path, 'no', a, 'probe 404')
    executed(query, 'no', 1, 'the probe')


def not_yet(path, key, status, probes):
    """the same answer comes without a probe while the record is locked"""
    a = ask(path, key, '/status/%d' % status)
    return (a.status, a.code, a.get('retry-after'),
            len(query.of(key))) == (409, 'in_progress', '1', probes)


def ask_later(path, key, probe):
    """the end of the last probe is stored behind its answer"""
    end = time.monotonic() + 10
    while (a := ask(path, key, probe)).code == 'in_progress':
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return a


def test_probe_not_yet():
    path = '/p/flaky'
    for status in (202, 425):
        key = 'yet-%d' % status
        lost(path, key)
        for probes in (1, 2):
            ok(until(lambda: not_yet(path, key, status, probes), 10, 0.1),
               'probe %d: not yet' % status)
        same(gw.state(key, path), 'unknown', 'and still unknown')
        executed(query, key, 2, 'the probe')
        executed(up, key, 1, 'probe %d' % status)
        a = ask_later(path, key, '/ok')
        same((a.status, a.replayed), (201, True), 'until it is told')


def test_probe_tells_nothing():
    path = '/p/flaky'
    for probe in ('/status/500', '/status/502', '/status/503', '/status/403',
                  '/status/301', '/status/410', '/reset', '/close',
                  '/cut/10', '/cutchunked/10', '/cut/0', '/silent',
                  '/head/20', '/deaf'):
        key = 'none' + probe
        lost(path, key)
        a = ask(path, key, probe)
        same((a.status, a.code), (409, 'outcome_unknown'),
             'probe %s: nothing is told' % probe)
        same(gw.state(key, path), 'unknown', probe + ': still unknown')
        executed(up, key, 1, 'probe ' + probe)
        a = ask_later(path, key, '/ok')
        same((a.status, a.replayed), (201, True),
             probe + ': asked again at once')

    for path, what in (('/p-nobody/flaky', 'nobody to ask'),
                       ('/p-missing/flaky', 'a probe that is not there'),
                       ('/p-made/flaky', 'a 404 of nginx\'s own'),
                       ('/p-caught/flaky', 'a 404 made of a 500')):
        lost(path, path)
        for i in range(2):
            a = ask_later(path, path, '')
            same((a.status, a.code), (409, 'outcome_unknown'),
                 what + ': nothing is told')
        executed(up, path, 1, what)


def test_probe_mismatch():
    path = '/p/flaky'
    lost(path, 'mis')
    a = ask(path, 'mis', '/status/404', body=b'other')
    same((a.status, a.code), (422, 'key_reused'), 'another body')
    executed(query, 'mis', 0, 'nothing is asked')
    executed(up, 'mis', 1, 'another body')


def test_one_at_a_time():
    path = '/p/flaky'
    lost(path, 'one')
    query.hold()
    first = background(ask, path, 'one', '/wait')
    query.until('one')
    for i in range(3):
        a = ask(path, 'one', '/ok')
        same((a.status, a.code), (409, 'outcome_unknown'),
             'while somebody asks: still unknown')
    executed(query, 'one', 1, 'one probe at a time')
    query.go()
    a = first.join()
    same((a.status, a.replayed), (201, True), 'the one that asked is told')
    replays(gw, path, 'one', a, 'and all others')
    executed(query, 'one', 1, 'one probe')
    executed(up, 'one', 1, 'one probe')


def test_client_gone():
    path = '/p/flaky'
    lost(path, 'gone')
    query.hold()
    c = gw.call(path, 'gone', headers=[('X-Probe', '/wait')])
    query.until('gone')
    c.close()
    time.sleep(0.2)
    query.go()
    a = ask(path, 'gone', '/ok')
    same((a.status, a.replayed), (201, True),
         'a client that leaves while it asks gives its right back')
    executed(up, 'gone', 1, 'a client that leaves')


def test_killed():
    path = '/p/flaky'
    lost(path, 'killed')
    query.hold()
    c = gw.call(path, 'killed', headers=[('X-Probe', '/wait')])
    query.until('killed')
    for pid in gw.workers():
        os.kill(pid, signal.SIGKILL)
    gw.expected.append('exited on signal 9')
    time.sleep(0.3)
    gw.wait_port()
    query.go()
    c.close()
    a = ask(path, 'killed', '/ok')
    same((a.status, a.code), (409, 'outcome_unknown'),
         'the right of a dead worker lasts for a lease')
    time.sleep(2)
    a = ask(path, 'killed', '/ok')
    same((a.status, a.replayed), (201, True), 'and not longer')
    executed(up, 'killed', 1, 'a dead worker')


def test_settled_meanwhile():
    """the first request comes to its end while somebody asks about it"""
    for verdict, what in (('', '2xx'), ('404', '404')):
        path = '/p/ok'
        key = 'void' + verdict
        c = gw.call(path, key, headers=[('X-Fail', 'before_complete:stop')])
        until(gw.stopped)
        pid = gw.stopped()[0]
        time.sleep(2.1)
        query.hold()
        second = background(ask, path, key, '/wait/' + verdict)
        query.until(key)
        os.kill(pid, signal.SIGCONT)
        a = c.read()
        same((a.status, a.replayed), (201, False),
             what + ': the late answer of the owner counts')
        query.go()
        b = second.join()
        same((b.status, b.body, b.replayed), (201, a.body, True),
             what + ': the verdict is void, the answer is the same')
        executed(up, key, 1, what)
        replays(gw, path, key, a, what)


def test_operator():
    """an operator settles it while somebody asks"""
    path = '/p/flaky'
    lost(path, 'operator')
    query.hold()
    second = background(ask, path, 'operator', '/wait')
    query.until('operator')
    done = gw.ask({'X-Key': 'operator', 'X-Source': 'somebody',
                   'X-Scope': 'POST ' + path},
                  op='resolve', identify=1, fence='current', executed=1,
                  keep=0, status=299)
    same(done['result'], 'ok', 'settled by an operator')
    query.go()
    a = second.join()
    same((a.status, a.code), (409, 'response_not_kept'),
         'the verdict is void')
    executed(up, 'operator', 1, 'settled by an operator')


def test_waits_once():
    """it waits, asks, and finds that somebody else was faster"""
    path = '/p-wait/wait/502'
    up.hold()
    query.hold()
    first = gw.call(path, 'twice')
    up.until('twice')
    second = gw.call(path, 'twice', headers=[('X-Probe', '/wait/404')])
    time.sleep(0.3)
    up.go()
    same(first.read().status, 502, 'the first is lost')
    ok(query.until('twice'), 'who has waited for it asks')
    done = gw.ask({'X-Key': 'twice', 'X-Source': 'somebody',
                   'X-Scope': 'POST ' + path},
                  op='resolve', identify=1, fence='current', executed=0)
    same(done['result'], 'ok', 'meanwhile an operator settles it')
    up.hold()
    third = gw.call(path, 'twice')
    ok(up.until('twice', 2), 'and somebody else executes it')
    query.go()
    a = second.read(5)
    same((a.status, a.code), (409, 'in_progress'),
         'it does not wait again, as nothing would end that')
    up.go()
    third.read()
    executed(up, 'twice', 2, 'each')


test_hold()
test_retry()
test_fence()
test_probe_executed()
test_probe_never()
test_probe_not_yet()
test_probe_tells_nothing()
test_probe_mismatch()
test_one_at_a_time()
test_client_gone()
test_killed()
test_settled_meanwhile()
test_operator()
test_waits_once()
gw.stop()
finish()
