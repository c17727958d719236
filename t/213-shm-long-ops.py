#!/usr/bin/env python3
"""A long answer is written and read in steps, and other operations may come
between two of them: the writer then notices and is refused or starts again,
and a reader never gets half of one answer and half of another.
"""

import contextlib
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import until  # noqa: E402
from shm import Nginx, finish, ok, pattern, same  # noqa: E402

LONG = 300000
PAUSE = 30000


class Paused(threading.Thread):
    """An operation that sleeps between its first two steps, until end()."""

    def __init__(self, nginx, **args):
        super().__init__()
        self.nginx = nginx
        self.args = args
        self.answer = None
        before = nginx.log().count('paused by a test')
        self.start()
        ok(until(lambda: nginx.log().count('paused by a test') > before),
           '%s: it pauses' % args['op'])

    def run(self):
        self.answer = self.nginx.ask('pay', pause=PAUSE, **self.args)

    def end(self):
        """A signal that nginx ignores ends the pause, if it has begun."""
        while self.is_alive():
            for pid in self.nginx.children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGALRM)
            self.join(0.05)
        return self.answer or {}


def writing(nginx, key, **claim):
    """A claim, and its completion in the middle."""
    nginx.ask('pay', op='claim', key=key, owner='A', fp='F', **claim)
    return Paused(nginx, op='complete', key=key, owner='A', body_len=LONG)


def reading(nginx, key, op='fetch', **done):
    nginx.ask('pay', op='claim', key=key, owner='A')
    nginx.ask('pay', op='complete', key=key, owner='A', body_len=LONG, **done)
    return Paused(nginx, op=op, key=key, owner='B')


def test_write(nginx):
    ask = nginx.ask

    w = writing(nginx, 'w0')
    a = ask('pay', op='fetch', key='w0')
    same((a['state'], a['kept'], a['body']), ('executing', '0', ''),
         'what is being written is not seen')
    same(ask('pay', op='claim', key='w0', owner='B')['result'], 'exists',
         'nor free')
    same(w.end()['result'], 'ok', 'the writer goes on')
    same(ask('pay', op='fetch', key='w0')['body'], pattern(LONG),
         'the answer is whole')

    w = writing(nginx, 'w1', lease=0)
    same(ask('pay', op='claim', key='w1', owner='B', fp='F',
             flags='unknown')['result'], 'granted', 'taken over meanwhile')
    a = w.end()
    same((a.get('result'), a.get('state')), ('refused', 'executing'),
         'the writer is refused')
    same(ask('pay', op='complete', key='w1', owner='B',
             body='mine')['result'], 'ok', 'the other is not')
    same(ask('pay', op='fetch', key='w1')['body'], 'mine', 'its answer counts')

    w = writing(nginx, 'w2', lease=0)
    same(ask('pay', op='resolve', key='w2', fence='current')['result'], 'ok',
         'resolved meanwhile as not executed')
    a = w.end()
    same((a.get('result'), a.get('state')), ('refused', 'none'),
         'the writer is refused')

    w = writing(nginx, 'w3', lease=0)
    same(ask('pay', op='resolve', key='w3', fence='current', executed=1,
             body_len=100)['result'], 'ok', 'resolved as executed')
    a = w.end()
    same((a.get('result'), a.get('body')), ('refused', pattern(100)),
         'the writer gets the answer of the record')

    w = writing(nginx, 'w4')
    same(ask('pay', op='scribble'), None, 'a process dies meanwhile')
    same(ask('pay', op='fetch', key='w4')['state'], 'executing',
         'the zone is rebuilt')
    same(w.end().get('result'), 'ok', 'the writer begins anew')
    same(ask('pay', op='fetch', key='w4')['body'], pattern(LONG),
         'the answer is whole')

    w = writing(nginx, 'w5')
    a = ask('pay', op='complete', key='w5', owner='A', body_len=200000)
    same(a['result'], 'ok', 'its owner completes it elsewhere')
    same(w.end().get('result'), 'ok', 'the writer hears that it is done')
    same(ask('pay', op='fetch', key='w5')['body'], pattern(200000),
         'the first answer counts')


def test_read(nginx):
    ask = nginx.ask

    r = reading(nginx, 'r0')
    same(r.end().get('body'), pattern(LONG), 'a reader between two steps')

    r = reading(nginx, 'r1', op='claim')
    ask('pay', op='purge', key='r1', fence='current')
    a = r.end()
    same((a.get('result'), a.get('body')), ('granted', ''),
         'purged meanwhile: the key is free')

    r = reading(nginx, 'r2', tombstone=1000, ttl=10)
    ask('pay', op='fetch', key='r2', after=11000)
    a = r.end()
    same((a.get('state'), a.get('body')), ('tombstone', ''),
         'overdue meanwhile: a tombstone')

    r = reading(nginx, 'r3')
    ask('pay', op='purge', key='r3', fence='current')
    ask('pay', op='claim', key='r3', owner='B')
    ask('pay', op='complete', key='r3', owner='B', head_len=1,
        body_len=LONG - 1)
    a = r.end()
    same((a.get('head'), a.get('body')), ('\0', pattern(LONG - 1)),
         'another answer meanwhile: all of it')

    r = reading(nginx, 'r4', op='complete')
    same(r.end().get('body'), pattern(LONG), 'one that is refused reads too')

    r = reading(nginx, 'r5')
    ask('pay', op='scribble')
    same(r.end().get('body'), pattern(LONG), 'a rebuild meanwhile')


def test_dead_writer():
    """What a writer left that died between two steps is not lost memory."""
    nginx = Nginx({'pay': '4m'})
    free = nginx.ask('pay', op='info')['free']
    w = writing(nginx, 'd')
    for pid in nginx.children():
        os.kill(pid, signal.SIGKILL)
    w.end()
    time.sleep(0.3)
    ok(int(nginx.ask('pay', op='info')['free']) < int(free) - 10,
       'it left something')
    same(nginx.ask('pay', op='complete', key='d', owner='A',
                   body='x')['result'], 'ok', 'the next one completes')
    same(nginx.ask('pay', op='fetch', key='d')['body'], 'x', 'its answer')
    same(int(nginx.ask('pay', op='info')['free']), int(free) - 1,
         'the memory is back')

    # and if nobody ever asks for that key again, time comes by
    w = writing(nginx, 'e', lease=500)
    for pid in nginx.children():
        os.kill(pid, signal.SIGKILL)
    w.end()
    time.sleep(0.3)
    same(nginx.ask('pay', op='claim', key='f', owner='A',
                   after=50000)['result'], 'granted', 'within a minute')
    ok(int(nginx.ask('pay', op='info')['free']) < int(free) - 10,
       'a slow writer would be left alone')
    nginx.ask('pay', op='claim', key='g', owner='A', after=70000)
    same(int(nginx.ask('pay', op='info')['free']), int(free) - 1,
         'the memory of a dead one is back')
    same(nginx.ask('pay', op='fetch', key='e', after=70000)['state'],
         'unknown', 'its record stays')


def test_slow_writer():
    """One that is taken for dead begins anew."""
    nginx = Nginx({'pay': '4m'})
    w = writing(nginx, 's')
    nginx.ask('pay', op='claim', key='other', owner='A', after=70000)
    same(w.end().get('result'), 'ok', 'it was not dead')
    same(nginx.ask('pay', op='fetch', key='s')['body'], pattern(LONG),
         'the answer is whole')


def test_turns():
    """What is overdue makes room for an answer, but not all at once."""
    nginx = Nginx({'pay': '1m'})

    def fill(n, ttl):
        # an answer of two bytes is in the record, and takes no memory else
        return int(nginx.ask('pay', op='fill', n=n, ttl=ttl, head_len=1,
                             body_len=1, **{'from': fill.n})['kept'])

    # most are overdue after 200 seconds, but no page is free for that ...
    fill.n = 0
    for _ in range(225):
        for n, ttl in ((15, 100), (1, 100000)):
            fill(n, ttl)
            fill.n += n
    # ... until these are gone as well, which are due later
    while int(nginx.ask('pay', op='info')['free']):
        fill(16, 150)
        fill.n += 16
    nginx.ask('pay', op='claim', key='t', owner='A')
    full = int(nginx.ask('pay', op='info')['records'])

    w = Paused(nginx, op='complete', key='t', owner='A', body_len=40000,
               after=200000)
    left = int(nginx.ask('pay', op='info')['records'])
    ok(full // 3 < left < full, 'others have their turn before all are gone',
       (full, left))
    same(w.end().get('kept'), '1', 'the answer is kept at last')
    same(nginx.ask('pay', op='fetch', key='t')['body'], pattern(40000),
         'all of it')


nginx = Nginx({'pay': '16m'}, workers=4)
test_write(nginx)
test_read(nginx)
ok('ngx_slab' not in nginx.log(), 'the slab was in order')
test_dead_writer()
test_slow_writer()
test_turns()
finish()
