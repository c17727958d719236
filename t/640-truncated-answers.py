#!/usr/bin/env python3
"""Only a whole answer is an answer.

A truncated one is never stored and never shown: the client gets a clean 502,
and the outcome is unknown.  One that is too large to keep, or that can never
be kept (events, an upgrade), is stored as executed before its first byte is
passed on; then it reaches the client unchanged.  One without a length that
ends with its connection is kept, counted and warned of once.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, filler, finish,  # noqa: E402
                     ok, refused, replays, same, since, until)

up = Ledger()

PLACES = {
    '': 'buffered',
    '/unbuffered': 'unbuffered',
    '/small': 'small buffers',
    '/old': 'HTTP/1.0',
    '/oldunbuffered': 'HTTP/1.0, unbuffered',
}

gw = Gateway(up, http='''
    map $http_upgrade $hop { default Upgrade; "" ""; }
''', locations='''
    location /unbuffered/ {
        idempotency main;
        proxy_buffering off;
        proxy_pass http://up;
    }
    location /small/ {
        idempotency main;
        proxy_buffers 4 4k;
        proxy_buffer_size 4k;
        proxy_busy_buffers_size 8k;
        proxy_max_temp_file_size 0;
        proxy_pass http://up;
    }
    location /old/ {
        idempotency main;
        proxy_http_version 1.0;
        proxy_set_header Connection close;
        proxy_pass http://up;
    }
    location /oldunbuffered/ {
        idempotency main;
        proxy_http_version 1.0;
        proxy_set_header Connection close;
        proxy_buffering off;
        proxy_pass http://up;
    }
    location /little/ {
        idempotency main;
        idempotency_max_response 1000;
        proxy_pass http://up;
    }
    location /none/ {
        idempotency main;
        idempotency_max_response 0;
        proxy_pass http://up;
    }
    location /page/ {
        idempotency main;
        error_page 502 /sorry.txt;
        proxy_pass http://up;
    }
    location = /sorry.txt { root html; internal; }
    location /page-up/ {
        idempotency main;
        error_page 502 /ok/sorry;
        proxy_pass http://up;
    }
    location /page-named/ {
        idempotency main;
        error_page 502 = @again;
        proxy_pass http://up;
    }
    location @again { proxy_pass http://up; }
    location /upgrade/ {
        idempotency main;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $hop;
        proxy_pass http://up;
    }
''')
os.mkdir(gw.root + '/html')
with open(gw.root + '/html/sorry.txt', 'w') as f:
    f.write('sorry\n')


def test_cut():
    for place, name in PLACES.items():
        for how in ('cut/0', 'cut/1', 'cut/500', 'cut/999', 'cutreset/500',
                    'cutchunked/0', 'cutchunked/1', 'cutchunked/5000',
                    'cutchunked/100000'):
            if 'old' in place and 'chunked' in how:
                continue
            path = '%s/%s' % (place, how)
            a = gw.post(path, path)
            title = '%s, %s' % (name, how)
            same((a.status, a.whole, a.retry, a.get('x-effect')),
                 (502, True, 'same-key', None), title + ': a clean 502')
            ok(b'effect' not in a.body, title + ': nothing of the answer')
            same(gw.state(path, path), 'unknown', title + ': unknown')
            refused(gw, path, path, 'outcome_unknown', title + ': held')
            executed(up, path, 1, title)


def test_cut_everywhere():
    """at each byte of the answer"""
    head = len(b'HTTP/1.1 201 Whatever\r\nX-Effect: 100\r\n'
               b'Content-Length: 14\r\n\r\n')
    wrong = []
    for n in range(0, head + 16):
        path = '/head/%d' % n
        key = 'each-%d' % n
        a = gw.post(path, key)
        whole = a.status == 201 and len(a.body) == 14
        state = gw.state(key, path)
        if not (whole and state == 'done'
                or a.status == 502 and a.whole and state == 'unknown'):
            wrong.append((n, a, state))
    same(wrong, [], 'cut after each byte: whole and done, or 502 and unknown')


def test_cut_h2():
    for how in ('cut/500', 'cutchunked/500', 'unbuffered/cut/500'):
        path = '/%s/h2' % how
        out = subprocess.run(
            ['curl', '-s', '-i', '--http2-prior-knowledge', '-H',
             'Idempotency-Key: ' + how, '-d', 'x',
             'http://127.0.0.1:%d%s' % (gw.h2, path)],
            capture_output=True, text=True)
        ok(out.returncode == 0 and out.stdout.startswith('HTTP/2 502')
           and 'effect' not in out.stdout, 'HTTP/2, %s: a clean 502' % how,
           out)
        same(gw.state(how, path), 'unknown', 'HTTP/2, %s: unknown' % how)


def test_cut_and_error_page():
    a = gw.post('/page/cut/500', 'page')
    same((a.status, a.body, a.whole), (502, b'sorry\n', True),
         'cut, with a page for 502')
    same(gw.state('page', '/page/cut/500'), 'unknown', 'unknown')
    refused(gw, '/page/cut/500', 'page', 'outcome_unknown', 'held')

    a = gw.post('/page-up/cut/500', 'page-up')
    same((a.status, a.whole), (502, True), 'the page of another upstream')
    same([e[2] for e in up.of('page-up')], ['POST', 'GET'],
         'asked for by GET')
    same(gw.state('page-up', '/page-up/cut/500'), 'unknown', 'unknown')

    a = gw.post('/page-named/cut/500', 'page-named')
    same((a.status, a.whole), (502, True), 'cut, with @again for 502')
    executed(up, 'page-named', 1, 'cut, with @again for 502')
    same(gw.state('page-named', '/page-named/cut/500'), 'unknown', 'unknown')


def test_too_large():
    for place, name in PLACES.items():
        for kind in ('big', 'bigchunked'):
            if 'old' in place and kind == 'bigchunked':
                continue
            for n in (1048577, 3000000):
                path = '%s/%s/%d' % (place, kind, n)
                title = '%s, %s' % (name, path)
                a = gw.post(path, path)
                same((a.status, a.whole, len(a.body)), (201, True, n),
                     title + ': comes whole')
                ok(a.body == filler(n, up.of(path)[0][0]),
                   title + ': byte for byte')
                same(gw.record(path, path).get('state'), 'done',
                     title + ': done')
                b = refused(gw, path, path, 'response_not_kept', title)
                ok(b'"original_status":201' in b.body,
                   title + ': its status is told', b)
                executed(up, path, 1, title)

    for path in ('/big/1048576', '/bigchunked/1048576'):
        a = gw.post(path, path)
        same((a.status, len(a.body)), (201, 1048576), path)
        replays(gw, path, path, a, path + ' is kept')

    for path in ('/little/big/1000', '/little/bigchunked/1000',
                 '/little/eof/1000'):
        replays(gw, path, path, gw.post(path, path), path)
    for path in ('/little/big/1001', '/little/bigchunked/1001',
                 '/little/eof/1001', '/none/ok'):
        a = gw.post(path, path)
        same((a.status, a.whole), (201, True), path)
        refused(gw, path, path, 'response_not_kept', path)


def test_too_large_is_told_first():
    """killed when it was told: no byte was out, and it is executed"""
    for path in ('/big/3000000', '/bigchunked/3000000'):
        key = 'first-' + path
        a = gw.post(path, key, headers=[('X-Fail', 'after_complete:kill')])
        same(a.raw, b'', path + ': nothing was sent before')
        gw.wait_port()
        refused(gw, path, key, 'response_not_kept', path + ': executed')
        executed(up, key, 1, path)
    gw.expected += ['exited on signal 9']


def test_too_large_and_cut():
    """the record is right, the client sees that its answer is not whole"""
    path = '/little/cutchunked/100000'
    a = gw.post(path, 'lc')
    same((a.status, a.whole), (201, False), 'cut after it was let go')
    refused(gw, path, 'lc', 'response_not_kept', 'executed')
    executed(up, 'lc', 1, 'cut after it was let go')


def test_slow_client():
    """a client that reads slowly gets it all"""
    c = gw.call('/bigchunked/5000000', 'slow')
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    time.sleep(0.5)
    a = c.read()
    same((a.status, a.whole, len(a.body)), (201, True, 5000000),
         'a slow client')
    refused(gw, '/bigchunked/5000000', 'slow', 'response_not_kept', 'slow')


def test_not_storable():
    a = gw.post('/events', 'events')
    same((a.status, a.whole, a.body.count(b'event ')), (200, True, 2),
         'a stream of events comes whole')
    refused(gw, '/events', 'events', 'response_not_kept', 'and is not kept')
    executed(up, 'events', 1, 'a stream of events')

    c = gw.call('/events', 'events2')
    first = c.read_some(10)
    while b'event 0' not in first:
        first += c.read_some(10)
    ok(b'event 1' not in first, 'events are not held back')
    refused(gw, '/events', 'events2', 'response_not_kept',
            'executed, while the stream still runs')
    c.close()

    # nginx itself holds a header back where it buffers
    c = gw.call('/unbuffered/events/3000', 'events3')
    start = time.time()
    first = c.read_some(10)
    took = since(start)
    ok(first.startswith(b'HTTP/1.1 2') and b'event 0' not in first
       and took < 2.5, 'a header does not wait for its first event',
       (took, first))
    while b'event 1' not in first:
        first += c.read_some(10)
    c.close()
    executed(up, 'events3', 1, 'a stream with a late event')

    a = gw.post('/upgrade/upgrade', 'upgrade', headers=[('Upgrade', 'echo')])
    same((a.status, a.get('upgrade')), (101, 'echo'), 'an upgrade passes')
    ok(re.search(rb'effect \d+\n$', a.raw), 'with what follows', a.raw)
    b = refused(gw, '/upgrade/upgrade', 'upgrade', 'response_not_kept',
                'and is executed', headers=[('Upgrade', 'echo')])
    ok(b'"original_status":101' in b.body, 'its status is told', b)
    executed(up, 'upgrade', 1, 'an upgrade')


def test_by_close():
    for path in ('/eof/1000', '/unbuffered/eof/1000', '/old/eof/1000',
                 '/oldunbuffered/eof/1000', '/eof/0'):
        old = gw.workers()
        gw.signal(signal.SIGHUP)
        until(lambda: not set(old) & set(gw.workers()))
        start = len(gw.log())
        for key in ('by-close', 'and-again'):
            a = gw.post(path, key)
            same((a.status, a.whole), (201, True), path + ' is an answer')
            replays(gw, path, key, a, path)
        log = gw.log()[start:]
        same(len(re.findall(r'\[warn\].* has no length and ended with its '
                            'connection', log)), 1,
             path + ': warned of once by a worker')


def test_not_by_close():
    """what has an end of its own is not counted"""
    other = Gateway(up, locations=gw.conf['locations'],
                    http=gw.conf['http'])
    for path in ('/ok', '/status/204', '/bigchunked/1000', '/trailers',
                 '/unbuffered/ok', '/unbuffered/bigchunked/1000',
                 '/old/ok', '/oldunbuffered/big/1000', '/status/304',
                 '/unbuffered/status/204'):
        a = other.post(path, 'n' + path)
        replays(other, path, 'n' + path, a, path)
    ok('no length' not in other.log(), 'nothing to warn of', other.log())
    other.stop()


test_cut()
test_cut_everywhere()
test_cut_h2()
test_cut_and_error_page()
test_too_large()
test_too_large_is_told_first()
test_too_large_and_cut()
test_slow_client()
test_not_storable()
test_not_by_close()
test_by_close()
gw.stop()
finish()
