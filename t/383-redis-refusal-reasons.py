#!/usr/bin/env python3
"""A store that refuses new keys is down, with a reason.

While the last new key was refused and none was accepted since, "up" is 0 and
the reason has its name in JSON and for Prometheus; retries of known keys
change nothing.  What one worker has seen counts for all, and ends with the
next new key that any of them gets accepted.
"""

import json
import os
import re
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, finish, free_port, ok,  # noqa: E402
                     same, until)
from redis_binary import skipped  # noqa: E402
from redisd import Proxy, Redis  # noqa: E402

LOCATIONS = '''
    location = /stats { idempotency_stats; }
    location /r/ { idempotency red; proxy_pass http://up; }
    location /token { idempotency_token red; idempotency_scope x; }
'''

up = Ledger()
serial = 0


def gateway(port, user='', workers=1, amnesia='30s'):
    return Gateway(up, workers=workers, locations=LOCATIONS, http='''
        idempotency_store red redis://%s127.0.0.1:%d
                          connect_timeout=300ms timeout=300ms amnesia=%s;'''
                   % (user, port, amnesia))


def get(gw, form):
    return gw.post('/stats?format=' + form, None, body=None,
                   method='GET').body.decode()


def store(gw):
    return [s for s in json.loads(get(gw, 'json'))['stores']
            if s['name'] == 'red'][0]


def metrics(gw):
    """up, degraded, and the reasons that are 1"""
    text = get(gw, 'prometheus')
    up_, degraded = [int(re.search(
        r'^idempotency_store_%s\{store="red"\} (\d)' % name, text,
        re.M).group(1)) for name in ('up', 'degraded')]
    reasons = re.findall(r'^idempotency_store_refusing\{store="red",'
                         r'reason="(\w+)"\} 1$', text, re.M)
    return up_, degraded, reasons


def new(gw):
    global serial
    serial += 1
    return gw.post('/r/ok', 'new-%d' % serial).status


def refuses(gw, reason, state, why, ask=True):
    if ask:
        same(new(gw), 503, why + ': a new key is refused')
    same(metrics(gw), (0, 1, [reason]), why + ': it is down')
    s = store(gw)
    same((s['health'], s['state'], s['refusing'], s['why'] != ''),
         ('down', state, reason, True), why + ': in JSON')
    ok(s['refused'][reason] > 0, why + ': it is counted', s['refused'])


def accepts(gw, why, ask=True):
    if ask:
        ok(until(lambda: new(gw) == 201, 20), why + ': a new key is accepted')
    same(metrics(gw), (1, 0, []), why + ': it is up')
    same(store(gw)['refusing'], 'none', why + ': in JSON')


def server_errors():
    """a real Redis"""
    server = Redis()
    gw = gateway(server.port, amnesia='1s')
    ok(until(lambda: store(gw)['connections']['ready'] > 0, 15), 'connected')
    accepts(gw, 'not asked yet', ask=False)
    known = gw.post('/r/ok', 'known')
    same(known.status, 201, 'a key to know')

    server('CONFIG', 'SET', 'maxmemory', '1')
    refuses(gw, 'out_of_memory', 'full', 'no memory')
    same(gw.post('/r/ok', 'known').status, 201, 'no memory: a known key')
    server('CONFIG', 'SET', 'maxmemory', '0')
    refuses(gw, 'out_of_memory', 'full', 'nobody has asked', ask=False)
    same(gw.post('/r/ok', 'known').status, 201, 'again a known key')
    refuses(gw, 'out_of_memory', 'full', 'known keys prove nothing', ask=False)
    accepts(gw, 'memory')

    if not skipped('min-replicas-to-write', 'min-replicas'):
        server('CONFIG', 'SET', 'min-replicas-to-write', '1')
        refuses(gw, 'no_replicas', 'too_few_replicas',
                'min-replicas-to-write')
        server('CONFIG', 'SET', 'min-replicas-to-write', '0')
        accepts(gw, 'min-replicas-to-write')

    if not skipped('permissions', 'acl'):
        server('ACL', 'SETUSER', 'default', '-evalsha', '-eval')
        refuses(gw, 'not_permitted', 'not_permitted', 'no EVALSHA')
        server('ACL', 'SETUSER', 'default', '+@all', '-set')
        refuses(gw, 'not_permitted', 'not_permitted', 'no SET in the script')
        server('ACL', 'SETUSER', 'default', '+@all')
        accepts(gw, 'permissions')

    server('REPLICAOF', '127.0.0.1', free_port())
    refuses(gw, 'readonly', 'readonly', 'a replica')
    gw.expected.append('keys may be forgotten')
    server('REPLICAOF', 'NO', 'ONE')
    accepts(gw, 'a master again')

    server.pause()
    same(new(gw), 503, 'paused: a new key is refused')
    s = store(gw)
    same((s['health'], s['refusing']), ('down', 'timeout'), 'paused: it is down')
    server.resume()
    accepts(gw, 'resumed')

    behind_another(gw, server)

    server.stop()
    ok(until(lambda: store(gw)['health'] == 'down', 15), 'stopped')
    same(metrics(gw), (0, 1, ['unreachable']), 'stopped: before it was asked')
    refuses(gw, 'unreachable', 'disconnected', 'stopped')
    server.start()
    ok(until(lambda: store(gw)['connections']['ready'] > 0, 30), 'it is back')
    same(store(gw)['health'], 'down', 'back, and not asked yet')
    gw.stop()


def behind_another(gw, server):
    """a key whose connection is given up because of the command before it"""
    ok(until(lambda: store(gw)['connections']['ready'] > 0, 15), 'connected')
    server.pause()
    before = threading.Thread(target=new, args=(gw,))
    before.start()
    time.sleep(0.1)
    same(new(gw), 503, 'behind another: a new key is refused')
    before.join()
    s = store(gw)
    same((s['health'], s['refusing']), ('down', 'timeout'),
         'behind another: it is down')
    server.resume()
    accepts(gw, 'behind another')


def password():
    """a login that is refused is not "unreachable"; nor is one that waits"""
    server = Redis('--requirepass', 'right')
    server.auth = ('right',)
    gw = gateway(server.port, ':wrong@')
    ok(until(lambda: 'refused AUTH' in gw.log(), 15), 'a wrong password')
    same(new(gw), 503, 'a wrong password: a new key is refused')
    same(metrics(gw), (0, 1, ['not_permitted']), 'a wrong password: is named')
    gw.stop()


def other_errors():
    """what is hard to bring about in Redis is said by a proxy"""
    server = Redis()
    proxy = Proxy(server)
    gw = gateway(proxy.port)
    accepts(gw, 'through the proxy')
    for text, reason, state in (
            ('-MISCONF Redis is configured to save RDB snapshots',
             'misconfigured', 'misconfigured'),
            ('-LOADING Redis is loading the dataset in memory',
             'loading', 'loading'),
            ('-NOREPLICAS Not enough good replicas to write.',
             'no_replicas', 'too_few_replicas'),
            ('-ERR Error running script (call to f_0): @user_script:48: '
             '@user_script: 48: -OOM command not allowed',
             'out_of_memory', 'full'),
            ('-ERR Error running script (call to f_0): @user_script:48: '
             '@user_script: 48: -MISCONF Redis is configured',
             'misconfigured', 'misconfigured'),
            ('-BUSY Redis is busy running a script.', 'other', 'refused'),
            ('-ERR OOMPH', 'other', 'refused')):
        # some are asked again, until their time is over
        proxy.on('claim', text, 99)
        refuses(gw, reason, state, text)
        proxy.clear()
        accepts(gw, text)
    proxy.on('issue', '-MISCONF no disk', 1)
    same(gw.post('/token', None).status, 503, 'a token is a new key')
    refuses(gw, 'misconfigured', 'misconfigured', 'a token', ask=False)
    same(gw.post('/token', None).status, 200, 'the next one')
    accepts(gw, 'a token', ask=False)
    gw.stop()


def connected():
    """that a login succeeds proves nothing"""
    server = Redis()
    proxy = Proxy(server)
    gw = gateway(proxy.port)
    accepts(gw, 'honest')
    for action, reason in ((b'$8\r\nnonsense\r\n', 'protocol'),
                           ('lose', 'unreachable'), ('late', 'timeout')):
        proxy.on('claim', action, 99)
        same(new(gw), 503, '%s: refused' % reason)
        ok(until(lambda: store(gw)['connections']['ready'] > 0, 15),
           '%s: it is connected' % reason, store(gw))
        same(metrics(gw), (0, 1, [reason]), '%s: and down' % reason)
        proxy.clear()
        accepts(gw, reason)
    gw.stop()


def workers():
    """no worker keeps what is not so any more, dead or alive"""
    server = Redis()
    gw = gateway(server.port, workers=2)
    accepts(gw, 'two workers')
    server('CONFIG', 'SET', 'maxmemory', '1')
    for _ in range(20):
        new(gw)
    refuses(gw, 'out_of_memory', 'full', 'two workers', ask=False)
    for pid in gw.workers():
        os.kill(pid, signal.SIGKILL)
    gw.expected.append('exited on signal 9')
    ok(until(lambda: len(gw.workers()) == 2, 15), 'new workers')
    refuses(gw, 'out_of_memory', 'full', 'new workers know it', ask=False)
    server('CONFIG', 'SET', 'maxmemory', '0')
    accepts(gw, 'new workers')
    gw.stop()


def damaged_key():
    """one key that is no record says nothing about others"""
    server = Redis()
    gw = gateway(server.port)
    accepts(gw, 'fine')
    name = [n for n in server('KEYS', '*') if len(n) > 60][0]
    server('DEL', name)
    server('LPUSH', name, 'no record')
    same(gw.post('/r/ok', 'new-%d' % serial).status, 503, 'no record')
    accepts(gw, 'no record', ask=False)
    gw.stop()


server_errors()
password()
other_errors()
connected()
workers()
damaged_key()
finish()
