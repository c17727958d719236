#!/usr/bin/env python3
"""A lying server: it drips, truncates, delays and resets, answers out of order
and twice, with other types, with lengths beyond any memory, with nested
replies and with noise.  A request is executed at most once and only if it was
granted, is answered in time, and no worker crashes, leaks a descriptor, or
needs a restart when the lies end.
"""

import os
import random
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from fakeredis import (CLOSE, NOTHING, RESET, Fake, answer,  # noqa: E402
                       bulk, granted, is_claim, owner)
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     same, since, until)

up = Ledger()
fake = Fake()
gw = Gateway(up, store='redis://127.0.0.1:%d timeout=200ms '
             'connect_timeout=200ms amnesia=0' % fake.port, locations='''
    location /pass/ {
        idempotency main;
        idempotency_store_error pass;
        proxy_pass http://up;
    }
''')
gw.expected = ['clock']       # noise may look like another time
numbers = iter(range(1000000))
workers = gw.workers()


def honest(args):
    return granted(args) if is_claim(args) else answer(0, owner=owner(args))


def told(*what):
    """a reply to who has asked"""
    return lambda args: answer(*what, owner=owner(args))


def said(reply, args):
    return reply(args) if callable(reply) else reply


def works(name):
    """the lies have ended"""
    fake.reply, fake.login = honest, b'+OK\r\n'
    status = None

    def tried():
        nonlocal status
        key = 'works-%d' % next(numbers)
        status = gw.post('/ok', key).status
        return status == 201 and up.count(key) == 1
    ok(until(tried, 5, 0.05), name + ': and then it works', status)


def drip(data, pause):
    out = []
    for i in range(len(data)):
        out += [data[i:i + 1], pause]
    return out


def lie(name, reply, want=503, limit=3):
    """it is refused in time: a worker that is busy with it takes longer"""
    works(name)
    key = 'lie-%d' % next(numbers)
    fake.reply = reply
    start = time.time()
    a = gw.post('/ok', key)
    took = since(start)
    same(a.status, want, name)
    ok(took < limit, 'in time', took)
    n = up.count(key)
    ok(n == (1 if want == 201 else 0), name + ': executed %d times' % n)
    return a


NESTS = b'*1\r\n' * 1000
LIES = {
    'another type': b'+OK\r\n',
    'a number': b':1\r\n',
    'nil': b'$-1\r\n',
    'a nil array': b'*-1\r\n',
    'an empty array': b'*0\r\n',
    'an error': b'-ERR no\r\n',
    'an error without a text': b'-\r\n',
    'an array of two': b'*2\r\n:1\r\n:1\r\n',
    'an array of four': b'*4\r\n:1\r\n:1\r\n$0\r\n\r\n:1\r\n',
    'an empty string': bulk(b''),
    'less than an answer': lambda args: bulk(struct.pack('>BQ', 1, 1)
                                             + owner(args)[:15]),
    'other types inside': b'*3\r\n$1\r\n1\r\n:1\r\n$0\r\n\r\n',
    'nil inside': b'*3\r\n:1\r\n:1\r\n$-1\r\n',
    'an array inside': b'*3\r\n:1\r\n:1\r\n*1\r\n:1\r\n',
    'an error inside': b'*3\r\n:1\r\n:1\r\n-ERR\r\n',
    'a result that is none': told(77),
    'the last of all results': told(255),
    'granted without a record': told(1),
    'told to nobody': answer(0),
    'granted to nobody': answer(1, b'noise' * 40),
    'granted to another': granted([b''] * 4 + [b'o' * 16 + b'f' * 32]),
    'granted with noise': told(1, b'noise' * 40),
    'exists without a record': told(2),
    'not issued': told(3),
    'out of order': told(5, bytes(8)),
    'refused': told(4),
    'ok': told(0),
    'a time that is none': told(1, b'', 2 ** 64 - 1),
    'no RESP': b'HTTP/1.1 400 Bad Request\r\n\r\n',
    'noise': bytes(range(256)),
    'zeroes': bytes(1000),
    'nests': NESTS + b':1\r\n',
    'endless nests': NESTS * 20,
    'an array of billions': b'*2147483647\r\n',
    'an array of more': b'*9223372036854775807\r\n',
    'an array of too many': b'*99999999999999999999999\r\n',
    'a string of gigabytes': b'*3\r\n:1\r\n:1\r\n$2147483647\r\nabc',
    'a string of more': b'$9223372036854775807\r\nabc',
    'a negative length': b'$-2\r\nabc\r\n',
    'a number too large': b':99999999999999999999999999\r\n',
    'no number': b':one\r\n',
    'a line that never ends': b'+' + b'x' * 300000,
    'a string without its end': b'*3\r\n:1\r\n:1\r\n$3\r\nabcdef\r\n',
    'RESP3': b'%1\r\n+a\r\n:1\r\n',
    'a push': b'>1\r\n:1\r\n',
    'nothing': NOTHING,
    'the end': CLOSE,
    'a reset': RESET,
    'half a reply, then nothing': [b'*3\r\n:1\r\n:1'],
    'half a reply, then the end': [b'*3\r\n:1\r\n:1', CLOSE],
    'half a reply, then a reset': [b'*3\r\n:1\r\n:1', RESET],
    'a delay': [1, b'+OK\r\n'],
}


def test_lies():
    for name, reply in LIES.items():
        a = lie(name, lambda args: (said(reply, args) if is_claim(args)
                                       else answer(0, owner=owner(args))))
        same((a.code, a.get('retry-after')), ('store_unavailable', '1'),
             name + ': refused')


def test_pass():
    """nonsense is not a store that cannot be reached"""
    for name in ('another type', 'granted with noise', 'an array of two',
                 'exists without a record', 'a result that is none'):
        works(name)
        key = 'pass-%d' % next(numbers)
        fake.reply = LIES[name]
        a = gw.post('/pass/ok', key)
        same((a.status, up.count(key)), (503, 0), name + ': does not pass')


def test_every_cut():
    """the reply of a grant, cut after each byte; the next try gets it all"""
    works('cuts')
    wrong = []
    for cut in list(range(0, 30)) + [60, 100, 140, 145, 146, 147]:
        for how in (CLOSE, RESET):
            first = [True]

            def reply(args):
                if not is_claim(args):
                    return honest(args)
                whole = granted(args)
                if first.pop() if first else False:
                    return [whole[:cut], 0.002, how]
                return whole
            fake.reply = reply
            key = 'cut-%d' % next(numbers)
            a = gw.post('/ok', key)
            # a connection that just came is not replaced at once
            if a.status not in (201, 503) \
                    or up.count(key) != (a.status == 201):
                wrong.append((cut, a, up.count(key)))
            if a.status == 503:
                works('cuts')
    same(wrong, [], 'a reply cut at each byte: executed once or refused')


def test_drip():
    works('drip')
    # within its time; on a busy machine a pause takes long, and it is refused
    pause = 0.0005
    fake.reply = lambda args: drip(honest(args), pause)
    keys = iter('drip-%d' % i for i in range(1000))
    key = None

    def dripped():
        nonlocal key, pause
        key = next(keys)
        status = gw.post('/ok', key).status
        pause = pause / 4 if pause > 0.00001 else 0
        return status == 201 or not same(up.count(key), 0, 'byte by byte: '
                                         'refused')
    ok(until(dripped, 20, 0.1), 'byte by byte: works')
    executed(up, key, 1, 'byte by byte')
    fake.reply = lambda args: drip(honest(args), 0.01)
    start = time.time()
    a = gw.post('/ok', 'drip-slow')
    took = since(start)
    ok(a.status == 503 and took < 3, 'too slowly: refused', (a, took))
    executed(up, 'drip-slow', 0, 'too slowly')


def test_out_of_turn():
    """more than was asked for, or before it was"""
    for name, more in (('twice', lambda a: granted(a) * 2),
                       ('and more', lambda a: granted(a) + b'+OK\r\n' * 50),
                       ('and noise', lambda a: granted(a) + b'\0\1\2')):
        works(name)
        key = 'turn-%d' % next(numbers)
        fake.reply = lambda args: (more(args) if is_claim(args)
                                   else honest(args))
        a = gw.post('/slow/50', key)
        same(a.status in (201, 503) and up.count(key) == (a.status == 201),
             True, 'answered %s' % name)

    # a reply to the last one is not a reply to the next
    works('late')
    keys = ['swap-%d' % i for i in range(20)]
    held = []

    def swapped(args):
        if not is_claim(args):
            return honest(args)
        held.append(args)
        return granted(held[-2]) if len(held) > 1 else granted(args)
    fake.reply = swapped
    calls = [gw.call('/ok', key) for key in keys]
    answers = [c.read() for c in calls]
    ok(all(a.status in (201, 503, 409) for a in answers)
       and all(up.count(key) <= 1 for key in keys),
       'replies of others', answers[:3])

    # before anything is asked
    works('unasked')
    fake.login = b'+OK\r\n+OK\r\n:1\r\n'
    fake.reply = CLOSE
    gw.post('/ok', 'unasked-0')
    fake.reply = honest
    for i in range(5):
        a = gw.post('/ok', 'unasked-%d' % (i + 1))
        ok(a.status in (201, 503), 'a reply that nobody asked for')
        time.sleep(0.05)


def test_login():
    for name in ('noise', 'nests', 'an array of billions', 'no RESP',
                 'a line that never ends', 'the end', 'a reset', 'nothing',
                 'a string of gigabytes', 'half a reply, then nothing'):
        works('login')
        fake.login = LIES[name]
        fake.reply = CLOSE
        start = time.time()
        for i in range(3):
            key = 'login-%d' % next(numbers)
            a = gw.post('/ok', key)
            same((a.status, a.code, up.count(key)),
                 (503, 'store_unavailable', 0), 'login, %s: refused' % name)
        ok(since(start) < 2, 'in time')


def test_completion():
    for name, reply in LIES.items():
        if name in ('ok', 'refused', 'exists without a record'):
            continue
        works(name)
        key = 'end-%d' % next(numbers)
        claimed = set()

        # Only this request's completion is lied to: what the gateway sends
        # by itself (ticks, completions of earlier requests) may stand before
        # the claim, which would then be refused in time, and rightly so.
        def answers(args):
            if is_claim(args):
                claimed.add(owner(args))
                return granted(args)
            return (said(reply, args) if owner(args) in claimed
                    else honest(args))
        fake.reply = answers
        start = time.time()
        a = gw.post('/ok', key)
        took = since(start)
        ok(a.status == 201 and a.whole and not a.replayed and took < 3,
           'completed with %s: the client has its answer' % name, (a, took))
        executed(up, key, 1, name)


def test_noise():
    seed = int(os.environ.get('SEED', time.time()))
    print('# SEED=%d' % seed)
    rnd = random.Random(seed)
    keys = []

    def reply(args):
        whole = bytearray(honest(args))
        if rnd.random() < 0.9:
            return bytes(whole)
        if rnd.random() < 0.7:
            for _ in range(rnd.choice((1, 3, 20))):
                whole[rnd.randrange(len(whole))] = rnd.randrange(256)
        if rnd.random() < 0.5:
            del whole[rnd.randrange(len(whole)):]
        return [bytes(whole), rnd.choice((CLOSE, RESET, 0.01, 0.3))]

    seen = {}
    for _ in range(8):
        works('noise')
        time.sleep(1.05)      # a good connection, until then
        fake.reply = reply
        for _ in range(10):
            calls = []
            for _ in range(8):
                key = 'noise-%d' % next(numbers)
                keys.append(key)
                calls.append(gw.call('/ok', key))
            for c in calls:
                a = c.read()
                seen[a.status] = seen.get(a.status, 0) + 1
    print('# %d requests, %r' % (len(keys), seen))
    same([k for k in keys if up.count(k) > 1], [], 'noise: none ran twice')
    ok(set(seen) <= {201, 503, 409, 422, 410}, 'all were answered', seen)
    ok(seen.get(201) and seen.get(503), 'some ran, some did not', seen)
    works('noise')


def sockets():
    """of the gateway to the server, as the kernel counts them"""
    with open('/proc/net/tcp') as f:
        lines = [line.split() for line in f.readlines()[1:]]
    return sum(remote.endswith(':%04X' % fake.port) and state == '01'
               for _, _, remote, state, *_ in lines)


def test_leak():
    works('leak')
    ok(until(lambda: sockets() == 1, 5),
       'after %d connections one is open' % fake.connections,
       (sockets(), fake.open))
    fds = len(os.listdir('/proc/%d/fd' % workers[0]))
    ok(fds < 40, 'no descriptor leaked', fds)
    same(gw.workers(), workers, 'nobody died')


for test in sys.argv[1:] or [n for n in list(globals())
                             if n.startswith('test_')]:
    globals()[test]()
gw.stop()
finish()
