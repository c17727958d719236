#!/usr/bin/env python3
"""The embedded store survives a reload and the death of workers: every record
is there afterwards, in its state and with its answer, and old and new workers
share it.  A reload that would empty it is refused, and the old configuration
goes on.
"""

import os
import re
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
import shm  # noqa: E402
from shm import Nginx, finish, ok, pattern, same  # noqa: E402


def test_reload():
    nginx = Nginx({'pay': '2m'})
    ask = nginx.ask
    ask('pay', op='claim', key='done', owner='A', fp='F')
    ask('pay', op='complete', key='done', owner='A', head='h', body_len=9000)
    ask('pay', op='claim', key='run', owner='A')
    ask('pay', op='claim', key='free', owner='A')
    ask('pay', op='release', key='free', owner='A')
    before = {key: ask('pay', op='fetch', key=key)
              for key in ('done', 'run', 'free')}
    same(before['done']['body'], pattern(9000), 'a record')

    for turn in range(3):
        log = nginx.reload()
        ok('[emerg]' not in log and '[alert]' not in log, 'reload', log)
        ok('begins empty' not in log, 'nobody is told of an empty store', log)
        for key, want in before.items():
            got = ask('pay', op='fetch', key=key)
            for name in ('lease_left', 'ttl_left'):
                got.pop(name), want.pop(name, None)
            same(got, want, '%s after reload %d' % (key, turn + 1))

    same(ask('pay', op='claim', key='free', owner='A')['result'], 'refused',
         'the stub refuses its owner')
    same(ask('pay', op='claim', key='run', owner='B')['result'], 'exists',
         'what runs is not granted')
    same(ask('pay', op='complete', key='run', owner='A', body='x')['result'],
         'ok', 'its owner completes it')

    # a store more changes nothing for the first
    nginx.write({'pay': '2m', 'more': '1m'})
    log = nginx.reload()
    same(re.findall(r'\[notice\] .*store "(\w+)" begins empty', log), ['more'],
         'a new store says that it is empty')
    same(ask('pay', op='fetch', key='run')['body'], 'x', 'beside a new store')
    same(ask('more', op='fetch', key='run')['state'], 'none', 'which is new')


def test_resize():
    nginx = Nginx({'pay': '2m'})
    nginx.ask('pay', op='claim', key='a', owner='A')
    nginx.ask('pay', op='complete', key='a', owner='A', body='kept')

    for size, number in (('4m', 4194304), ('1m', 1048576)):
        nginx.write({'pay': size})
        log = nginx.reload()
        ok('idempotency_store "pay": the size of a live zone cannot change '
           'from 2097152 to %d in a reload, it would forget every key; '
           'restart nginx, or keep the size' % number in log,
           'a size of %s is refused' % size, log)
        same(nginx.ask('pay', op='fetch', key='a')['body'], 'kept',
             'the old configuration goes on')

    same(nginx.command('-t').returncode, 0,
         'the file itself is right: a restart takes it')


def test_copy():
    """The same module from another file has another address in memory."""
    nginx = Nginx({'pay': '2m'})
    nginx.ask('pay', op='complete', key='a', owner='A', body='kept')
    nginx.module = nginx.root + '/copy.so'
    shutil.copy(shm.MODULE, nginx.module)
    nginx.write({'pay': '2m'})
    log = nginx.reload()
    ok('idempotency_store "pay": the live zone belongs to another copy of '
       'this module, a reload would forget every key' in log,
       'another copy is refused', log)
    same(nginx.ask('pay', op='fetch', key='a')['body'], 'kept',
         'the old configuration goes on')


def test_worker_death():
    nginx = Nginx({'pay': '2m'})
    nginx.ask('pay', op='claim', key='a', owner='A', lease=600)
    for pid in nginx.children():
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    same(nginx.ask('pay', op='claim', key='a', owner='B')['state'],
         'executing', 'its lease holds')
    time.sleep(0.6)
    a = nginx.ask('pay', op='claim', key='a', owner='B')
    same((a['result'], a['state']), ('exists', 'unknown'),
         'then it is unknown, not free')
    same(nginx.ask('pay', op='info')['rebuilds'], '0', 'nothing to repair')


def test_workers_share():
    """Each request may meet another worker."""
    nginx = Nginx({'pay': '2m'}, workers=4)
    pids = set()
    granted = 0
    for i in range(200):
        pids.add(nginx.ask('pay', op='info')['pid'])
        a = nginx.ask('pay', op='claim', key='k%d' % (i // 4),
                      owner='O%d' % i)
        granted += a['result'] == 'granted'
    ok(len(pids) > 1, 'several workers answered', pids)
    same(granted, 50, 'each key was granted once')


test_reload()
test_resize()
test_copy()
test_worker_death()
test_workers_share()
finish()
