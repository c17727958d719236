#!/usr/bin/env python3
"""A process may die at any instruction, also while it holds the mutex of the
store.  The next process that wants the store repairs it: no record is lost,
each is in the state before or after the change that was cut off, answers are
complete, and the other records are untouched.  Where a repair is impossible
the store refuses everything rather than forget.
"""

import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from shm import Nginx, finish, ok, pattern, same  # noqa: E402

DAY = 24 * 3600 * 1000


def others(nginx):
    """Records in every state, that nobody touches."""
    ask = nginx.ask
    for key, size in (('o-small', 11), ('o-mid', 333), ('o-long', 150000)):
        ask('pay', op='claim', key=key, owner='O', fp='F')
        ask('pay', op='complete', key=key, owner='O', head='h', body_len=size)
    ask('pay', op='claim', key='o-exec', owner='O', lease=10 * DAY,
        note='short')
    ask('pay', op='claim', key='o-unknown', owner='O')
    ask('pay', op='mark_unknown', key='o-unknown', owner='O', note='n' * 300)
    ask('pay', op='issue', key='o-issued')
    ask('pay', op='claim', key='o-tomb', owner='O')
    ask('pay', op='complete', key='o-tomb', owner='O', body='x', ttl=0,
        tombstone=3600)


def others_now(nginx):
    now = {}
    for key in ('small', 'mid', 'long', 'exec', 'unknown', 'issued', 'tomb'):
        a = nginx.ask('pay', op='fetch', key='o-' + key) or {}
        now[key] = (a.get('state'), a.get('fence'), a.get('attempts'),
                    a.get('head'), a.get('body'), a.get('note'))
    return now


# name, what was before, the operation, the states in which its death may
# leave the record
CASES = [
    ('claim', [], dict(op='claim', owner='A'), {'none', 'executing'}),

    ('claim with a note', [], dict(op='claim', owner='A', note='n' * 40),
     {'none', 'executing'}),

    ('unknown with a note', [dict(op='claim', owner='A', note='n' * 40)],
     dict(op='mark_unknown', owner='A', note='m' * 100),
     {'executing', 'unknown'}),

    ('complete with a note', [dict(op='claim', owner='A', note='n' * 40)],
     dict(op='complete', owner='A', body_len=348, note='m' * 10),
     {'executing', 'done'}),

    ('release with a note', [dict(op='claim', owner='A', note='n' * 40)],
     dict(op='release', owner='A'), {'executing', 'none'}),

    ('claim of a stub',
     [dict(op='claim', owner='Z'), dict(op='release', owner='Z')],
     dict(op='claim', owner='A'), {'none', 'executing'}),

    ('claim of an issued key', [dict(op='issue')],
     dict(op='claim', owner='A', flags='issued'), {'issued', 'executing'}),

    ('take-over', [dict(op='claim', owner='Z', lease=0)],
     dict(op='claim', owner='A', flags='unknown'), {'unknown', 'executing'}),

    ('complete, tiny', [dict(op='claim', owner='A')],
     dict(op='complete', owner='A', body_len=12), {'executing', 'done'}),

    ('complete, small', [dict(op='claim', owner='A')],
     dict(op='complete', owner='A', body_len=348), {'executing', 'done'}),

    ('complete, long', [dict(op='claim', owner='A')],
     dict(op='complete', owner='A', body_len=100000), {'executing', 'done'}),

    ('complete, nothing kept', [dict(op='claim', owner='A')],
     dict(op='complete', owner='A', keep=0), {'executing', 'done'}),

    ('complete of a lost record', [],
     dict(op='complete', owner='A', body_len=348),
     {'none', 'unknown', 'done'}),

    ('release', [dict(op='claim', owner='A')],
     dict(op='release', owner='A'), {'executing', 'none'}),

    ('release of an issued key',
     [dict(op='issue'), dict(op='claim', owner='A')],
     dict(op='release', owner='A'), {'executing', 'issued'}),

    ('mark_unknown', [dict(op='claim', owner='A')],
     dict(op='mark_unknown', owner='A'), {'executing', 'unknown'}),

    ('renew', [dict(op='claim', owner='A')],
     dict(op='renew', owner='A'), {'executing'}),

    ('renew of a lost record', [], dict(op='renew', owner='A'),
     {'none', 'executing'}),

    ('issue', [], dict(op='issue'), {'none', 'issued'}),

    ('resolve, executed', [dict(op='claim', owner='A', lease=0)],
     dict(op='resolve', fence='current', executed=1, body_len=348),
     {'unknown', 'done'}),

    ('resolve, not executed', [dict(op='claim', owner='A', lease=0)],
     dict(op='resolve', fence='current'), {'unknown', 'none'}),

    ('purge', [dict(op='claim', owner='A'),
               dict(op='complete', owner='A', body_len=348)],
     dict(op='purge', fence='current'), {'done', 'none'}),

    ('end of ttl', [dict(op='claim', owner='A'),
                    dict(op='complete', owner='A', body_len=348, ttl=5)],
     dict(op='fetch', after=6000), {'done', 'none'}),

    ('end of ttl, tombstone',
     [dict(op='claim', owner='A'),
      dict(op='complete', owner='A', body_len=348, ttl=5, tombstone=60)],
     dict(op='fetch', after=6000), {'done', 'tombstone'}),
]


def test_points():
    """Every operation, cut off at each of its points."""
    nginx = Nginx({'pay': '4m'})
    others(nginx)
    want = others_now(nginx)
    ok(want['long'][4] == pattern(150000), 'the bystanders are there', want)

    deaths = 0
    for name, before, op, states in CASES:
        bad = []
        for kill in range(1, 200):
            key = '%s-%d' % (name.replace(' ', '_').replace(',', ''), kill)
            for step in before:
                nginx.ask('pay', key=key, fp='F', **step)

            number = records(nginx)
            end = nginx.ask('pay', key=key, fp='F', kill=kill, **op)
            if end is not None:
                break

            deaths += 1
            after = nginx.ask('pay', op='fetch', key=key) or {}
            if op['op'] == 'fetch':
                # what time removes leaves no stub, and no ghost either
                number -= after.get('state') == 'none'
                if records(nginx) != number:
                    bad.append((kill, 'records', number, records(nginx)))

            if after.get('state') not in states:
                bad.append((kill, after))

            size = op.get('body_len') or \
                (before and before[-1].get('body_len'))
            if after.get('state') == 'done' and size:
                if after['body'] != pattern(size) and size > 64 \
                        or after['kept'] != '1':
                    bad.append((kill, after))

            now = others_now(nginx)
            if now != want:
                bad.append((kill, now))

            if not retry(nginx, key, op, after):
                bad.append((kill, 'retry', after))

        ok(not bad and kill > 1,
           '%s: died at %d points' % (name, kill - 1), bad)

    info = nginx.ask('pay', op='info')
    same(int(info['rebuilds']), deaths, 'each death was repaired once')
    same(info['dirty'], '0', 'the zone is clean')
    log = nginx.log()
    ok(log.count('was rebuilt after a process died') == deaths,
       'each repair was logged')
    ok('ngx_slab' not in log, 'the slab was in order')


def records(nginx):
    return int(nginx.ask('pay', op='info')['records'])


def retry(nginx, key, op, after):
    """The same again, by somebody else where a claim was cut off, gets on."""
    state = after.get('state')
    want = {'ok'}
    args = dict(op)
    if op['op'] == 'fetch':
        return True
    if op['op'] == 'claim':
        args['owner'] = 'B'
        want = {'exists'} if state == 'executing' else {'granted'}
    if op['op'] == 'issue' and state == 'issued':
        want = {'refused'}
    if op['op'] == 'resolve' and state != 'unknown':
        want = {'refused'}
    if op['op'] == 'purge' and state == 'none':
        want = {'refused'}
    again = nginx.ask('pay', key=key, fp='F', **args) or {}
    return again.get('result') in want


def test_scribble():
    """Slab and trees are full of rubbish: the list of records is enough."""
    nginx = Nginx({'pay': '4m'})
    others(nginx)
    want = others_now(nginx)
    for _ in range(3):
        same(nginx.ask('pay', op='scribble'), None, 'a worker dies')
        same(others_now(nginx), want, 'every record is there')
    ok('7 records and 3 answers kept, 0 records and 0 answers lost' in nginx.log(),
       'the log says so')


def test_repair_dies():
    """A repair that is cut off is repaired."""
    nginx = Nginx({'pay': '4m'})
    others(nginx)
    want = others_now(nginx)
    for kill in range(1, 100):
        nginx.ask('pay', op='scribble')
        end = nginx.ask('pay', op='fetch', key='o-mid', kill=kill)
        if others_now(nginx) != want:
            break
        if end is not None:
            break
    ok(end is not None and kill > 8, 'died at %d points' % (kill - 1))
    same(others_now(nginx), want, 'every record is there')


def test_broken():
    """No repair is possible: refuse, and say so once."""
    nginx = Nginx({'pay': '4m'})
    others(nginx)
    nginx.ask('pay', op='scribble', list=1)
    for op in ('claim', 'fetch', 'complete', 'renew', 'purge'):
        same(nginx.ask('pay', op=op, key='o-small', owner='X'),
             {'error': 'damaged'}, op + ' is refused')
    same(nginx.log().count('refuses everything from now on'), 1,
         'logged once')


def test_random():
    """Workers are killed at random instructions while both write."""
    nginx = Nginx({'pay': '32m'})
    done = {}
    stop = time.time() + 4
    lock = threading.Lock()
    bad = []

    def client(n):
        i = 0
        while time.time() < stop:
            i += 1
            key = 'r%d-%d' % (n, i)
            size = random.choice((10, 300, 3000, 90000))
            a = nginx.ask('pay', op='claim', key=key, owner='A')
            if a is None or a.get('result') != 'granted':
                continue
            a = nginx.ask('pay', op='complete', key=key, owner='A',
                          head='', body_len=size, ttl=3600)
            if a and a.get('result') == 'ok' and a['kept'] == '1':
                with lock:
                    done[key] = size
            elif a and 'error' in a and a['error'] != 'full':
                bad.append(a)

    def filler(n):
        # keeps a worker inside the store, so that death meets it there
        i = 0
        while time.time() < stop:
            i += 1
            nginx.ask('pay', op='fill', n=2000, body_len=i * 37 % 5000,
                      ttl=1, **{'from': n * 10000000 + i * 2000})

    threads = [threading.Thread(target=client, args=(n,)) for n in range(2)]
    threads += [threading.Thread(target=filler, args=(n,)) for n in range(2)]
    for t in threads:
        t.start()
    kills = 0
    while time.time() < stop:
        time.sleep(random.uniform(0.01, 0.08))
        pids = nginx.children()
        if pids:
            try:
                os.kill(random.choice(pids), signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                pass
    for t in threads:
        t.join()

    time.sleep(0.3)
    for key, size in done.items():
        a = nginx.ask('pay', op='fetch', key=key) or {}
        if a.get('state') != 'done' or \
                (size > 64 and a.get('body') != pattern(size)):
            bad.append((key, size, a))
    info = nginx.ask('pay', op='info')
    print('# %d kills, %d acknowledged answers, %s repairs'
          % (kills, len(done), info['rebuilds']))
    ok(int(info['rebuilds']) > 0, 'some died inside the mutex', info)
    ok(not bad and len(done) > 20, 'every acknowledged answer is there',
       bad[:5])
    ok('ngx_slab' not in nginx.log(), 'the slab was in order')


test_points()
test_scribble()
test_repair_dies()
test_broken()
test_random()
finish()
