#!/usr/bin/env python3
"""A client that goes away does not cancel what it has asked for.

Before the claim it leaves nothing behind.  At any moment after it, by FIN, by
RST, by RST_STREAM or by the loss of an HTTP/2 connection, the upstream is
called once, its answer is stored, and the retry gets it.
"""

import os
import random
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Client, Gateway, Ledger, executed,  # noqa: E402
                     finish, ok, refused, same, until)
from h2 import H2  # noqa: E402

up = Ledger()
gw = Gateway(up, locations='''
    location /unbuffered/ {
        idempotency main;
        proxy_buffering off;
        proxy_pass http://up;
    }
    location /hasty/ {
        idempotency main;
        proxy_read_timeout 300ms;
        proxy_pass http://up;
    }
    location /nobody/ {
        idempotency main;
        proxy_pass http://127.0.0.1:1;
    }
''')


def abort_h1(path, key, how, after=None, **args):
    c = gw.call(path, key, **args)
    after() if after else up.until(key)
    if how == 'RST':
        c.reset()
    else:
        c.close()


def abort_h2(path, key, how, after=None, **args):
    c = H2(gw.h2)
    c.request(path, key, **args)
    after() if after else up.until(key)
    if how == 'RST_STREAM':
        c.cancel()
        return c      # kept open: only the stream is gone
    if how == 'h2 RST':
        c.reset()
    else:
        c.close()


WAYS = [(abort_h1, 'FIN'), (abort_h1, 'RST'), (abort_h2, 'RST_STREAM'),
        (abort_h2, 'h2 RST'), (abort_h2, 'h2 FIN')]


def settled(key, path):
    return until(lambda: gw.state(key, path) not in ('executing', 'none'))


def test_before_the_claim():
    path = '/ok/before'
    whole = Client(gw.port, path, 'b', b'12345678', send=False)
    whole.close()
    end = whole.bytes.index(b'\r\n\r\n')

    for n, where in ((20, 'in the request line'), (end - 5, 'in the header'),
                     (end + 4, 'after the header'), (end + 8, 'in the body')):
        for how in ('FIN', 'RST'):
            key = 'b-%d-%s' % (n, how)
            c = Client(gw.port, path, key, b'12345678', send=False)
            c.send(c.bytes[:n])
            time.sleep(0.05)
            c.reset() if how == 'RST' else c.close()
            time.sleep(0.05)
            name = '%s %s' % (how, where)
            same(gw.state(key, path), 'none', name + ' leaves nothing')
            executed(up, key, 0, name)
            a = gw.post(path, key, b'12345678')
            same((a.status, a.replayed), (201, False), name + ': a retry runs')

    c = H2(gw.h2)
    c.request(path, 'b-h2', b'1234', end=False)
    time.sleep(0.05)
    c.cancel()
    time.sleep(0.05)
    same(gw.state('b-h2', path), 'none', 'RST_STREAM in the body')
    executed(up, 'b-h2', 0, 'RST_STREAM in the body')
    c.close()


def test_after_the_claim():
    for moment in ('after_claim', 'before_forward'):
        for abort, how in WAYS:
            name = '%s %s' % (how, moment)
            key = name.replace(' ', '-')
            path = '/ok/claim'
            abort(path, key, how, after=lambda: time.sleep(0.05),
                  headers=[('x-fail', moment + ':150')])
            ok(settled(key, path), name + ' settles')
            executed(up, key, 1, name)
            a = gw.post(path, key)
            same((a.status, a.replayed, a.get('x-effect')),
                 (201, True, str(up.of(key)[0][0])), name + ': replayed')


def test_while_the_upstream_works():
    for where in ('/slow/300', '/unbuffered/slow/300'):
        for abort, how in WAYS:
            key = ('w-%s-%s' % (how, where)).replace(' ', '-')
            name = '%s during %s' % (how, where)
            keep = abort(where, key, how)
            time.sleep(0.05)
            refused(gw, where, key, 'in_progress', name + ': still running')
            ok(settled(key, where), name + ' settles')
            a = gw.post(where, key)
            same((a.status, a.body, a.replayed),
                 (201, b'effect %06d\n' % up.of(key)[0][0], True),
                 name + ': replayed')
            executed(up, key, 1, name)
            if keep:
                same(keep.request('/ok/h2', key + '2') and keep.data(),
                     b'effect %06d\n' % up.of(key + '2')[0][0],
                     name + ': the connection goes on')
                keep.close()


def test_half_close():
    """A client that only closes its side still waits for the answer."""
    c = gw.call('/slow/200', 'half')
    c.sock.shutdown(socket.SHUT_WR)
    a = c.read()
    same((a.status, a.replayed), (201, False), 'half closed: answered')
    executed(up, 'half', 1, 'half closed')


def test_while_the_answer_comes():
    for where in ('/drip/6/50', '/unbuffered/drip/6/50'):
        for abort, how in WAYS:
            key = ('d-%s-%s' % (how, where)).replace(' ', '-')
            name = '%s during the body of %s' % (how, where)
            abort(where, key, how,
                  after=lambda: (up.until(key), time.sleep(0.12)))
            ok(settled(key, where), name + ' settles')
            a = gw.post(where, key)
            effect = up.of(key)[0][0]
            same((a.status, a.body, a.replayed),
                 (201, b''.join(b'effect %06d piece %d\n' % (effect, i)
                                for i in range(6)), True),
                 name + ': replayed whole')
            executed(up, key, 1, name)


def test_while_it_is_sent():
    for how in ('FIN', 'RST'):
        c = gw.call('/big/900000', 's-' + how)
        c.read_some(20000)
        c.reset() if how == 'RST' else c.close()
        a = gw.post('/big/900000', 's-' + how)
        same((a.status, len(a.body), a.whole, a.replayed),
             (201, 900000, True, True), how + ' while it is sent: replayed')
        executed(up, 's-' + how, 1, how + ' while it is sent')

        for where in ('/big/3000000', '/bigchunked/3000000',
                      '/unbuffered/bigchunked/3000000'):
            key = 'l-%s-%s' % (how, where)
            name = '%s during a too large %s' % (how, where)
            c = gw.call(where, key)
            c.read_some(20000)
            c.reset() if how == 'RST' else c.close()
            refused(gw, where, key, 'response_not_kept', name)
            executed(up, key, 1, name)


def test_client_and_upstream():
    """Nobody is left to hear what became of it; the record tells."""
    path = '/hasty/silent'
    c = gw.call(path, 'u')
    up.until('u')
    c.close()
    ok(until(lambda: gw.state('u', path) == 'unknown', 3),
       'client gone, then a time-out: unknown')
    refused(gw, path, 'u', 'outcome_unknown', 'and held')
    executed(up, 'u', 1, 'client gone, then a time-out')

    path = '/hasty/reset'
    c = gw.call(path, 'v', headers=[('x-fail', 'before_forward:100')])
    c.close()
    ok(until(lambda: gw.state('v', path) == 'unknown', 3),
       'client gone, then a reset: unknown')

    path = '/nobody/ok'
    c = gw.call(path, 'n', headers=[('x-fail', 'before_forward:100')])
    time.sleep(0.03)
    c.close()
    ok(gw.until_log('is released'), 'client gone, nobody there: released')
    same(gw.state('n', path), 'none', 'and free')


def test_any_moment():
    seed = int(os.environ.get('SEED', time.time()))
    print('# SEED=%d' % seed)
    rnd = random.Random(seed)
    keys = []
    for i in range(120):
        where = rnd.choice(['/slow/30', '/drip/4/10', '/ok/any', '/big/60000',
                            '/unbuffered/drip/4/10'])
        abort, how = rnd.choice(WAYS)
        delay = rnd.random() * 0.06
        key = 'any-%d' % i
        abort(where, key, how, after=lambda: time.sleep(delay))
        keys.append((key, where, how, delay))
    time.sleep(0.3)
    wrong = []
    first = 0
    for key, where, how, delay in keys:
        a = gw.post(where, key)
        first += not a.replayed
        again = gw.post(where, key)
        if (a.status != 201 or not a.whole or not again.replayed
                or again.body != a.body or up.count(key) != 1):
            wrong.append((key, where, how, delay, a, up.count(key)))
    same(wrong, [], 'aborts at %d moments, %d of them before the claim'
         % (len(keys), first))


test_before_the_claim()
test_after_the_claim()
test_while_the_upstream_works()
test_half_close()
test_while_the_answer_comes()
test_while_it_is_sent()
test_client_and_upstream()
test_any_moment()
gw.stop()
finish()
