#!/usr/bin/env python3
"""A lease is short, unlike the retention time, and is renewed while the
request runs.  When it ends, because a worker was killed or paused, the record
reads as unknown and not as free.  A late completion by the old owner is
accepted while no other owner has taken the record, and is refused afterwards:
then the client gets the record's answer.  No upstream try starts under a lease
that may have ended.
"""

import os
import signal
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, refused, replays, same, until)

up = Ledger()

crowd = []


def crowded(address, port=0):
    """a port that nobody can connect to: its queue is full"""
    sock = socket.socket()
    sock.bind((address, port))
    sock.listen(0)
    for _ in range(4):
        crowd.append(socket.socket())
        crowd[-1].setblocking(False)
        crowd[-1].connect_ex(sock.getsockname())
    return sock


full = crowded('127.0.0.1')
full2 = crowded('127.0.0.2', full.getsockname()[1])



class Names:
    """A name server that answers when it is told to."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(('127.0.0.1', 0))
        self.port = self.sock.getsockname()[1]
        self.asked = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            self.asked.append(self.sock.recvfrom(4096))

    def answer(self, query, *addresses):
        data, client = query
        name = data[12:data.index(b'\0', 12) + 5]
        self.sock.sendto(
            data[:2] + struct.pack('>5H', 0x8180, 1, len(addresses), 0, 0)
            + name + b''.join(b'\xc0\x0c' + struct.pack('>HHIH', 1, 1, 1, 4)
                              + socket.inet_aton(a) for a in addresses),
            client)


names = Names()

gw = Gateway(up, workers=2, http='''
    idempotency_lease 1s;
    upstream full_then_up {
        server 127.0.0.1:%d max_fails=0;
        server 127.0.0.1:%d backup;
    }
''' % (full.getsockname()[1], up.port), locations='''
    location /retry/ {
        idempotency main;
        idempotency_unknown retry;
        proxy_pass http://up;
    }
    location /tries/ {
        idempotency main;
        idempotency_unknown retry;
        proxy_connect_timeout 5s;
        proxy_pass http://full_then_up;
    }
    location /named/ {
        idempotency main;
        idempotency_unknown retry;
        resolver 127.0.0.1:%d ipv6=off;
        resolver_timeout 30s;
        set $name pay$http_x_name.test;
        proxy_pass http://$name:%d;
    }
    location /named-tries/ {
        idempotency main;
        idempotency_unknown retry;
        resolver 127.0.0.1:%d ipv6=off;
        resolver_timeout 30s;
        set $name $http_x_name;
        proxy_connect_timeout 3s;
        proxy_pass http://$name:%d;
    }
    location /page/ {
        idempotency main;
        error_page 502 /sorry/ok;
        proxy_pass http://up;
    }
    location /sorry/ {
        proxy_pass http://up;
    }
    location /retry-page/ {
        idempotency main;
        idempotency_unknown retry;
        error_page 500 502 503 504 = @sorry;
        proxy_pass http://up;
    }
    location @sorry {
        proxy_pass http://up;
    }
    location /long/ {
        idempotency main;
        idempotency_lease 60s;
        proxy_pass http://up;
    }
''' % (names.port, up.port, names.port, full.getsockname()[1]))
gw.expected += ['exited on signal 9']


def codes_during(thread, path, key):
    """what duplicates get while the first one runs"""
    codes = set()
    while thread.is_alive():
        a = gw.post(path, key)
        codes.add(a.code if a.status == 409 else a.status)
        time.sleep(0.1)
    return codes


def stop_at(moment, path, key, **args):
    """a request whose worker stops itself; returns it and the worker"""
    c = gw.call(path, key, headers=[('X-Fail', moment + ':stop')], **args)
    until(gw.stopped)
    return c, gw.stopped()[0]


def go_on(pid):
    os.kill(pid, signal.SIGCONT)


def test_renewal():
    first = background(gw.post, '/slow/3000', 'renew')
    up.until('renew')
    codes = codes_during(first, '/slow/3000', 'renew')
    ok(codes <= {'in_progress', 201}, 'running for three leases: in progress '
       'all the time', codes)
    a = first.join()
    same((a.status, a.replayed), (201, False), 'and answered')
    replays(gw, '/slow/3000', 'renew', a, 'three leases')
    executed(up, 'renew', 1, 'three leases')


def test_many():
    """more than one batch, ended in any order"""
    keys = ['many-%d' % i for i in range(600)]
    calls = [gw.call('/slow/%d' % (1500 + i % 7 * 100), key)
             for i, key in enumerate(keys)]
    time.sleep(1.25)
    states = {gw.state(key, '/slow/%d' % (1500 + i % 7 * 100))
              for i, key in enumerate(keys)}
    ok(states <= {'executing', 'done'}, '600 leases are renewed', states)
    same({c.read().status for c in calls}, {201}, '600 answers')
    ok(all(up.count(key) == 1 for key in keys), 'each was executed once')


def test_killed():
    for moment, executions in (('after_claim', 0), ('before_forward', 0),
                               ('after_header', 1), ('before_complete', 1)):
        key = 'kill-' + moment
        start = time.time()
        a = gw.post('/ok', key, headers=[('X-Fail', moment + ':kill')])
        claimed = time.time()     # at the latest
        same(a.raw, b'', 'killed %s: no answer' % moment)
        b = gw.post('/ok', key)
        if time.time() - start < 0.9:
            same((b.status, b.code, b.get('retry-after')),
                 (409, 'in_progress', '1'),
                 'killed %s: in progress until the lease is over' % moment)
        time.sleep(max(0, claimed + 1.05 - time.time()))
        refused(gw, '/ok', key, 'outcome_unknown',
                'killed %s: then unknown' % moment)
        executed(up, key, executions, 'killed %s' % moment)
        same(gw.record(key, '/ok').get('attempts'), '1',
             'killed %s: no further attempt' % moment)

        key += '-retry'
        gw.post('/retry/ok', key, headers=[('X-Fail', moment + ':kill')])
        time.sleep(1.05)
        a = gw.post('/retry/ok', key)
        same((a.status, a.replayed), (201, False),
             'killed %s, policy retry: runs again' % moment)
        executed(up, key, executions + 1, 'killed %s, retry' % moment)
        replays(gw, '/retry/ok', key, a, 'killed %s, retry' % moment)

    a = gw.post('/ok', 'kill-after', headers=[('X-Fail',
                                               'after_complete:kill')])
    same(a.raw, b'', 'killed after_complete: no answer')
    gw.wait_port()
    a = gw.post('/ok', 'kill-after')
    same((a.status, a.replayed, a.body),
         (201, True, b'effect %06d\n' % up.of('kill-after')[0][0]),
         'killed after_complete: the retry replays at once')
    executed(up, 'kill-after', 1, 'killed after_complete')


def test_long_lease():
    gw.post('/long/ok', 'long', headers=[('X-Fail', 'before_complete:kill')])
    gw.wait_port()
    time.sleep(1.2)
    refused(gw, '/long/ok', 'long', 'in_progress',
            'a longer lease holds longer')
    left = int(gw.record('long', '/long/ok')['lease_left'])
    ok(50000 < left < 60000, 'as long as it says', left)


def test_late_completion():
    c, pid = stop_at('before_complete', '/ok', 'late')
    time.sleep(1.1)
    refused(gw, '/ok', 'late', 'outcome_unknown', 'paused beyond its lease')
    go_on(pid)
    a = c.read()
    same((a.status, a.replayed), (201, False), 'the late answer is accepted')
    same(gw.state('late', '/ok'), 'done', 'and kept')
    replays(gw, '/ok', 'late', a, 'late')
    executed(up, 'late', 1, 'late')

    # paused while the upstream works
    c = gw.call('/slow/300', 'paused')
    up.until('paused')
    for pid in gw.workers():
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.2)
    for pid in gw.workers():
        go_on(pid)
    a = c.read()
    same((a.status, a.replayed), (201, False), 'all were paused: answered')
    replays(gw, '/slow/300', 'paused', a, 'all were paused')
    executed(up, 'paused', 1, 'all were paused')


def test_taken_over():
    """somebody else has the record: his answer is the answer"""
    for what in ('ok', 'big/200000', 'big/3000000', 'bigchunked/3000000',
                 'eof/100', 'events', 'status/500'):
        path = '/retry/' + what
        key = 'taken-' + what
        c, pid = stop_at('before_complete', path, key)
        time.sleep(1.1)
        second = gw.post(path, key)
        ok(second.status in (200, 201, 500) and not second.replayed,
           what + ': taken over', second)
        go_on(pid)
        a = c.read()
        if '3000000' in what or what == 'events':
            same((a.status, a.code, a.whole),
                 (409, 'response_not_kept', True),
                 what + ': the first one is told so, and nothing else')
        else:
            same((a.status, a.body, a.whole, a.replayed),
                 (second.status, second.body, True, True),
                 what + ': the first client gets the same answer')
            replays(gw, path, key, second, what)
        executed(up, key, 2, what)
        fences = [int(dict(e[4])['x-fence']) for e in up.of(key)]
        ok(fences[0] < fences[1], what + ': under a higher fence', fences)
        same([dict(e[4])['x-attempt'] for e in up.of(key)], ['1', '2'],
             what + ': attempts are counted')
    ok('was settled by another request or an operator' in gw.log(), 'which is logged')


def test_taken_over_and_running():
    path = '/retry/wait'
    up.go()
    c, pid = stop_at('before_complete', path, 'running')
    time.sleep(1.1)
    up.hold()
    second = background(gw.post, path, 'running')
    up.until('running', 2)
    go_on(pid)
    a = c.read()
    same((a.status, a.code), (409, 'in_progress'),
         'taken over and still running: the first client is told so')
    up.go()
    b = second.join()
    same((b.status, b.replayed), (201, False), 'the second is answered')
    replays(gw, path, 'running', b, 'and kept')


def test_keepalive_after_refusal():
    """what was dropped does not follow on the connection"""
    for what in ('ok', 'bigchunked/3000000'):
        path = '/retry/' + what
        key = 'keep-' + what
        c = socket.create_connection(('127.0.0.1', gw.port))
        c.sendall(('POST %s HTTP/1.1\r\nHost: g\r\nIdempotency-Key: %s\r\n'
                   'X-Fail: before_complete:stop\r\nContent-Length: 1\r\n\r\n'
                   'x' % (path, key)).encode())
        until(gw.stopped)
        pid = gw.stopped()[0]
        time.sleep(1.1)
        gw.post(path, key)
        go_on(pid)
        time.sleep(0.3)
        c.sendall(b'GET /store?op=fetch HTTP/1.1\r\nHost: g\r\n'
                  b'Connection: close\r\n\r\n')
        data = b''
        c.settimeout(5)
        while True:
            more = c.recv(65536)
            if not more:
                break
            data += more
        ok(len(data) < 3000 and data.count(b'HTTP/1.1 ') <= 2
           and (b'result: ok' in data or data.count(b'HTTP/1.1 ') == 1),
           what + ': two clean answers on a connection', data[:3000])


def test_check_before_forward():
    # paused for more than two thirds, nobody came: renewed, then sent
    c, pid = stop_at('before_forward', '/slow/300', 'check')
    time.sleep(0.8)
    go_on(pid)
    up.until('check')
    left = int(gw.record('check', '/slow/300')['lease_left'])
    ok(left > 600, 'renewed before it is sent', left)
    a = c.read()
    same((a.status, a.replayed), (201, False), 'and answered')

    # paused for longer than the lease, nobody came
    c, pid = stop_at('before_forward', '/ok', 'check2')
    time.sleep(1.2)
    same(gw.state('check2', '/ok'), 'unknown', 'the lease is over')
    go_on(pid)
    a = c.read()
    same((a.status, a.replayed), (201, False), 'nobody came: revived')
    executed(up, 'check2', 1, 'revived')

    # the client has left meanwhile: it is sent all the same
    c, pid = stop_at('before_forward', '/ok', 'check-gone')
    c.sock.close()
    time.sleep(0.8)
    go_on(pid)
    ok(until(lambda: gw.state('check-gone', '/ok') == 'done'),
       'nobody waits: renewed and sent')
    executed(up, 'check-gone', 1, 'nobody waits')


def test_page_after_the_lease():
    """it is settled and its lease let go: a page for it is no execution"""
    for what in ('cut/10', 'reset'):
        key = 'page-' + what
        pids = gw.workers()
        c, pid = stop_at('before_complete', '/page/' + what, key)
        time.sleep(1.2)
        go_on(pid)
        a = c.read()
        same(a.status, 502, what + ': the client is told')
        same(gw.workers(), pids, what + ': nobody died')
        refused(gw, '/page/' + what, key, 'outcome_unknown', what)


def test_check_and_somebody_came():
    """nor does an error_page execute it elsewhere"""
    for path in ('/retry/ok', '/retry-page/ok'):
        key = 'check3' + path
        c, pid = stop_at('before_forward', path, key)
        time.sleep(1.1)
        second = gw.post(path, key)
        same((second.status, second.replayed), (201, False), 'taken over')
        # it stops again before the page would be sent
        first = background(c.read)
        until(lambda: go_on(pid) or not first.is_alive(), step=0.1)
        a = first.join()
        same((a.status, a.retry), (503, 'same-key'), 'the first is not sent')
        executed(up, key, 1, 'taken over before it was sent')
        replays(gw, path, key, second, 'its record is as it was')


def test_check_before_each_try():
    path = '/tries/ok'
    c = gw.call(path, 'tries')
    until(lambda: gw.state('tries', path) == 'executing')
    # the worker that has the request is found by its connection
    port = c.sock.getsockname()[1]
    time.sleep(0.1)
    owner = [pid for pid in gw.workers() if has_peer(pid, port)]
    same(len(owner), 1, 'one worker has it')
    os.kill(owner[0], signal.SIGSTOP)
    time.sleep(1.2)
    second = gw.post(path, 'tries')
    same((second.status, second.replayed), (201, False),
         'taken over between two tries')
    go_on(owner[0])
    a = c.read()
    same((a.status, a.code), (502, 'not_sent'), 'the next try is not made')
    executed(up, 'tries', 1, 'taken over between two tries')
    replays(gw, path, 'tries', second, 'its record is as it was')


def owner_of(call):
    """the worker that has the request"""
    return [pid for pid in gw.workers()
            if has_peer(pid, call.sock.getsockname()[1])][0]


def test_check_before_a_name():
    """the first try waits for the name of its server"""
    path = '/named/ok'
    c = gw.call(path, 'named')
    ok(until(lambda: names.asked), 'a name is asked for')
    query = names.asked[-1]
    pid = owner_of(c)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1.2)
    second = background(gw.post, path, 'named')
    ok(until(lambda: names.asked[-1] != query), 'and by another worker')
    names.answer(names.asked[-1], '127.0.0.1')
    b = second.join()
    same((b.status, b.replayed), (201, False), 'taken over meanwhile')
    names.answer(query, '127.0.0.1')
    time.sleep(0.1)
    go_on(pid)
    a = c.read()
    same((a.status, a.code), (502, 'not_sent'), 'the first is not sent')
    executed(up, 'named', 1, 'taken over while a name was asked for')
    replays(gw, path, 'named', b, 'its record is as it was')

    # nobody came: it is sent
    n = len(names.asked)
    c = gw.call(path, 'named2', headers=[('X-Name', '2')])
    ok(until(lambda: len(names.asked) > n), 'a name is asked for')
    names.answer(names.asked[-1], '127.0.0.1')
    a = c.read()
    same((a.status, a.replayed), (201, False), 'nobody came: sent')
    executed(up, 'named2', 1, 'nobody came')

def test_check_after_a_name():
    """the further tries of a name that has two addresses"""
    path = '/named-tries/ok'

    def call(key, name, *addresses):
        n = len(names.asked)
        c = gw.call(path, key, headers=[('X-Name', name)])
        ok(until(lambda: len(names.asked) > n), 'a name is asked for')
        names.answer(names.asked[-1], *addresses)
        return c

    for i in range(5):
        key = 'two%d' % i
        mark = len(gw.log())
        begin = time.monotonic()
        c = call(key, key + '.test', '127.0.0.1', '127.0.0.2')
        time.sleep(0.3)
        pid = owner_of(c)
        os.kill(pid, signal.SIGSTOP)
        # the second try begins after 3 s
        if time.monotonic() - begin < 2.5:
            break
        print('# once more: this machine has stalled')
        go_on(pid)
        c.read()
    time.sleep(1.2)
    # it has no server, and lets the record go
    same(call(key, 'none.test', '127.0.0.3').read().status, 502,
         'taken over between two tries, and let go')
    go_on(pid)
    same(c.read().status, 502, 'the next try is not made')
    ok('lease could not be renewed in time' in gw.log()[mark:],
       'as its lease is not sure')
    same(gw.log()[mark:].count('was lost'), 1, 'which is logged once')

    # nginx fails at once, and the request is gone before we look again
    gw.expected.append('connect() to 127.255.255.255')
    c = call('three', 'void.test', '127.255.255.255')
    same(c.read().status, 502, 'a name that leads nowhere')
    same(gw.state('three', path), 'none', 'is never sent')


def has_peer(pid, port):
    """Does the process have the connection from that local port?"""
    with open('/proc/net/tcp') as f:
        inodes = {line.split()[9] for line in f.readlines()[1:]
                  if int(line.split()[2].split(':')[1], 16) == port}
    for fd in os.listdir('/proc/%d/fd' % pid):
        try:
            link = os.readlink('/proc/%d/fd/%s' % (pid, fd))
        except OSError:
            continue
        if link.startswith('socket:[') and link[8:-1] in inodes:
            return True
    return False


test_renewal()
test_many()
test_killed()
test_long_lease()
test_late_completion()
test_taken_over()
test_taken_over_and_running()
test_keepalive_after_refusal()
test_check_before_forward()
test_page_after_the_lease()
test_check_and_somebody_came()
test_check_before_each_try()
test_check_before_a_name()
test_check_after_a_name()
gw.stop()
finish()
