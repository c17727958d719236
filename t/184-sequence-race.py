#!/usr/bin/env python3
"""Sequences with concurrent producers: no number is executed twice or before
its turn.

Producers of one source send the same numbers, each as soon as it has the
answer to the previous one, to several workers, some through a gateway whose
upstream cannot be reached, while other clients send numbers that are too low
or too high.  The upstream must see 1, 2, 3 and so on, each once.

A process that dies at any instruction of a claim or a release leaves a
sequence that can continue: no number is lost, and no number is free that may
have been executed.
"""

import hashlib
import os
import random
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (REDIS, Gateway, Ledger, finish, free_port,  # noqa: E402
                     ok, same)
from shm import Nginx  # noqa: E402

NUMBERS = 40

up = Ledger()

gw = Gateway(up, workers=4, http='''
    idempotency_fingerprint off;
    idempotency_scope       $arg_s;
''', locations='''
    location /strict/ {
        idempotency main;
        idempotency_sequence strict;
        proxy_pass http://up/;
    }
    location /increasing/ {
        idempotency main;
        idempotency_sequence increasing;
        proxy_pass http://up/;
    }
    location /away/ {
        idempotency main;
        idempotency_sequence strict;
        proxy_pass http://127.0.0.1:%d/;
    }
''' % free_port())


def order(scope):
    """the numbers in the order in which they were executed"""
    with up.lock:
        return [int(e[1]) for e in up.entries if 's=' + scope in e[3]]


def produce(scope, seed, said):
    """Sends all numbers, each until it is answered."""
    rand = random.Random(seed)
    end = time.time() + 60
    n = 1
    while n <= NUMBERS and time.time() < end:
        path = '/away/ok' if rand.random() < 0.1 else '/strict/ok'
        a = gw.post(path + '?s=' + scope, str(n))
        if a.status == 201:
            said.append((n, a.body))
            n += 1
        elif a.status == 409 and a.code in ('in_progress', 'out_of_order'):
            said.append((n, a.code))
        elif a.status != 502:
            said.append((n, repr(a)))
            return


def disturb(scope, seed, stop, said):
    """Numbers of the past, and of a future that nobody reaches."""
    rand = random.Random(seed)
    while not stop.is_set():
        answered = [n for n, body in list(said) if isinstance(body, bytes)]
        n = rand.choice([rand.choice(answered),
                         rand.randint(NUMBERS + 2, NUMBERS + 100)])
        a = gw.post('/strict/ok?s=' + scope, str(n))
        if a.status == 201:
            said.append((n, a.body))
        elif not (a.status == 409
                  and a.code in ('in_progress', 'out_of_order')):
            said.append((n, repr(a)))
            return
        time.sleep(0.01)


def race(scope):
    said, stop = [], threading.Event()
    # somebody has to begin, since the first number of a source is any
    said.append((1, gw.post('/strict/ok?s=' + scope, '1').body))
    producers = [threading.Thread(target=produce, args=(scope, i, said))
                 for i in range(4)]
    others = [threading.Thread(target=disturb, args=(scope, i, stop, said))
              for i in range(2)]
    for t in producers + others:
        t.start()
    for t in producers:
        t.join(90)
    stop.set()
    for t in others:
        t.join(30)
    same(order(scope), list(range(1, NUMBERS + 1)),
         scope + ': each number is executed once, in its turn')
    answers = {}
    for n, body in said:
        if isinstance(body, bytes):
            answers.setdefault(n, set()).add(body)
    same([n for n in answers if len(answers[n]) != 1], [],
         scope + ': and has one answer')
    same([s for s in said if isinstance(s[1], str) and s[1] not in
          ('in_progress', 'out_of_order')], [], scope + ': or is refused')
    ok(any(s[1] == 'out_of_order' for s in said)
       or any(s[1] == 'in_progress' for s in said),
       scope + ': some had to wait')


race('one')
race('two')

# ---- increasing: numbers that overtake each other ----

taken, lock = {}, threading.Lock()


def scatter(seed):
    rand = random.Random(seed)
    for _ in range(30):
        n = rand.randint(1, 400)
        a = gw.post('/increasing/ok?s=up', str(n))
        with lock:
            taken.setdefault(n, set()).add(
                a.body if a.status == 201 else a.code)


threads = [threading.Thread(target=scatter, args=(i,)) for i in range(6)]
for t in threads:
    t.start()
for t in threads:
    t.join(60)
ran = order('up')
same(len(ran), len(set(ran)), 'increasing: nothing is executed twice')
same(sorted(set(ran) - set(taken)), [], 'increasing: nothing else')
same([n for n, a in taken.items() if n not in ran
      and a - {'out_of_order', 'in_progress'}], [],
     'increasing: what was never executed was refused')
ok(any('out_of_order' in a for a in taken.values()),
   'increasing: some were too late')

# ---- a number is released behind the mark ----

path = '/wait/503?s=late'
first = gw.call('/strict' + path, '1')
end = time.time() + 10
while 1 not in order('late') and time.time() < end:
    time.sleep(0.01)
same(gw.post('/strict/ok?s=late', '2').status, 201,
     'the second need not wait for it')
up.go()
same(first.read().status, 503, 'the first is to be retried')
same(gw.post('/strict/ok?s=late', '3').status, 201, 'the third goes on')
same(gw.post('/strict/ok?s=late', '1').status, 201,
     'the first may be claimed again, behind the mark')
same(order('late'), [1, 2, 3, 1], 'and was executed by that')
gw.stop()

# ---- a death at each instruction ----

DAY = 24 * 3600 * 1000


def digest(source, n):
    """as the module names it: half of the source, half of the number"""
    return (hashlib.sha256(source.encode()).hexdigest()[:32]
            + hashlib.sha256(b'%s %d' % (source.encode(), n))
            .hexdigest()[:32])


def step(nginx, source, n, op, owner, **args):
    return nginx.ask('pay', op=op, owner=owner, number=n, lease=10 ** 9,
                     digest=digest(source, n), flags='sequence,strict',
                     **args)


def deaths():
    nginx = Nginx({'pay': '1m'}, workers=2)
    died = bad = 0
    for what, numbers in (('claim', ()), ('claim', (1, 2)),
                          ('release', (1, 2, 3))):
        for kill in range(1, 40):
            source = '%s-%d-%d' % (what, len(numbers), kill)
            for n in numbers:
                step(nginx, source, n, 'claim', 'A%d' % n)
            n = 3 if numbers else 1
            owner = 'A3' if what == 'release' else 'B'
            if step(nginx, source, n, what, owner, kill=kill) is not None:
                break
            died += 1
            # the number is there to be found, or to be claimed
            a = step(nginx, source, n, 'claim', 'C') or {}
            if a.get('result') not in ('exists', 'granted'):
                print('# %s, death %d: %r' % (what, kill, a))
                bad += 1
            # and the next one is next
            a = step(nginx, source, n + 1, 'claim', 'D') or {}
            b = step(nginx, source, n + 3, 'claim', 'E') or {}
            if (a.get('result') != 'granted'
                    or b.get('result') != 'out_of_order'
                    or b.get('expected') != str(n + 2)):
                print('# %s, death %d: %r %r' % (what, kill, a, b))
                bad += 1
    ok(died > 15, '%d deaths inside the mutex' % died)
    same(bad, 0, 'after each the sequence goes on')
    ok(re.search('was rebuilt', nginx.log()), 'the store was rebuilt')
    nginx.stop()


def stubs():
    """A number that became free stays so, however it did."""
    nginx = Nginx({'pay': '1m'}, workers=1)
    for how, args in (('release', {}), ('resolve', dict(fence='current')),
                      ('purge', dict(fence='current')), ('scribble', {})):
        step(nginx, how, 1, 'claim', 'A')
        step(nginx, how, 2, 'claim', 'B')
        if how in ('resolve', 'purge'):
            step(nginx, how, 1, 'mark_unknown', 'A')
        if how == 'scribble':
            # a death of which the store is rebuilt
            step(nginx, how, 1, 'release', 'A')
            same(nginx.ask('pay', op=how), None, 'a worker dies')
        elif how == 'release':
            same(step(nginx, how, 1, how, 'A')['result'], 'ok', how)
        else:
            # an operator names the record, and need not know what it is
            same(nginx.ask('pay', op=how, digest=digest(how, 1),
                           **args)['result'], 'ok', how)
        a = step(nginx, how, 1, 'claim', 'C', after=20 * DAY)
        same((a['result'], a['attempts']), ('granted', '2'),
             'it is free for weeks: ' + how)
    nginx.stop()


if REDIS is None:
    deaths()
    stubs()

finish()
