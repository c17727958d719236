#!/usr/bin/env python3
"""With fsync=N a claim counts only when N servers have it on disk.

The master is one of them.  Where the server has no WAITAOF (before Redis 7.2
and Valkey 8), has no append-only file, or does not allow the command, new keys
are refused and the reason has a name; nothing is executed.  Together with
replicas= both must hold.
"""

import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from fakeredis import Fake, answer, granted, is_claim, owner  # noqa: E402
from gateway import (Gateway, Ledger, background, executed,  # noqa: E402
                     finish, ok, replays, same, until)
from redis_binary import skipped  # noqa: E402
from redisd import Redis  # noqa: E402

LOCATIONS = '''
    location = /stats { idempotency_stats; }
    location /pay/ { idempotency red; proxy_pass http://up; }
'''

up = Ledger()


def gateway(port, options):
    return Gateway(up, locations=LOCATIONS, http='''
        idempotency_store red redis://127.0.0.1:%d timeout=4s %s;
    ''' % (port, options))


def store(gw):
    reply = gw.post('/stats?format=json', None, body=None, method='GET')
    return [s for s in json.loads(reply.body)['stores']
            if s['name'] == 'red'][0]


def refused(gw, key, reason, what):
    same(gw.post('/pay/ok', key).status, 503, what + ': refused')
    executed(up, key, 0, what)
    same((store(gw)['health'], store(gw)['refusing']), ('down', reason),
         what + ': the reason')


def accepted(gw, key, what):
    first = gw.post('/pay/ok', key)
    same(first.status, 201, what + ': accepted')
    replays(gw, '/pay/ok', key, first, what)
    executed(up, key, 1, what)
    same((store(gw)['health'], store(gw)['refusing']), ('ok', 'none'),
         what + ': it is well')


class Disk(Fake):
    """counts what was waited for, and says what a test wants"""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.wait = b':1\r\n'
        self.waitaof = b'*2\r\n:1\r\n:1\r\n'
        self.done = {}
        self.login = self.other
        self.reply = self.script

    def other(self, args):
        if args[0] in (b'WAIT', b'WAITAOF'):
            self.asked.append(b' '.join(args).decode())
        return {b'WAIT': self.wait,
                b'WAITAOF': self.waitaof}.get(args[0], b'+OK\r\n')

    def script(self, args):
        return granted(args) if is_claim(args) \
            else answer(0, owner=owner(args))


def what_is_asked():
    fake = Disk()
    for n, (options, asked) in enumerate((
            ('fsync=1:200ms', ['WAITAOF 1 0 200']),
            ('fsync=2:200ms', ['WAITAOF 1 1 200']),
            ('fsync=3', ['WAITAOF 1 2 1000']),
            ('fsync=2:200ms replicas=1:100ms',
             ['WAIT 1 100', 'WAITAOF 1 1 200']))):
        fake.waitaof = b'*2\r\n:1\r\n:2\r\n'
        gw = gateway(fake.port, options)
        del fake.asked[:]
        same(gw.post('/pay/ok', 'asked-%d' % n).status, 201,
             options + ': accepted')
        # a claim, and its answer; ticks may have come in between
        ok(len(fake.asked) >= 2 * len(asked)
           and set(fake.asked) == set(asked), options + ': ' + str(asked),
           fake.asked)
        gw.stop()


def what_is_told():
    """what is not the number of disks is no acknowledgement"""
    fake = Disk()
    gw = gateway(fake.port, 'fsync=2:200ms replicas=1:100ms')
    for n, (wait, waitaof, reason) in enumerate((
            (b':1\r\n', b'*2\r\n:1\r\n:1\r\n', None),
            (b':1\r\n', b'*2\r\n:1\r\n:0\r\n', 'no_fsync'),
            (b':1\r\n', b'*2\r\n:0\r\n:5\r\n', 'no_fsync'),
            (b':1\r\n', b'*2\r\n:-1\r\n:9\r\n', 'no_fsync'),
            (b':1\r\n', b'*1\r\n:1\r\n', 'no_fsync'),
            (b':1\r\n', b':2\r\n', 'no_fsync'),
            (b':1\r\n', b'+OK\r\n', 'no_fsync'),
            (b':1\r\n', b'*2\r\n+1\r\n+1\r\n', 'no_fsync'),
            (b':0\r\n', b'*2\r\n:1\r\n:1\r\n', 'no_replicas'),
            (b':1\r\n', b"-ERR unknown command 'WAITAOF'\r\n", 'no_fsync'),
            (b':1\r\n', b'-ERR WAITAOF cannot be used when numlocal is set '
             b'but appendonly is disabled.\r\n', 'no_fsync'),
            (b':1\r\n', b'-NOPERM no permissions to run waitaof\r\n',
             'not_permitted'),
            (b'-NOPERM no permissions to run wait\r\n',
             b'*2\r\n:1\r\n:1\r\n', 'not_permitted'),
            (b"-ERR unknown command 'WAIT'\r\n", b'*2\r\n:1\r\n:1\r\n',
             'other'))):
        fake.wait, fake.waitaof = wait, waitaof
        what = '%r %r' % (wait, waitaof)
        key = 'told-%d' % n
        if reason:
            refused(gw, key, reason, what)
        else:
            same(gw.post('/pay/ok', key).status, 201, what)
        fake.wait, fake.waitaof = b':1\r\n', b'*2\r\n:1\r\n:1\r\n'
        same(gw.post('/pay/ok', key + '-after').status, 201, what + ': after')
    log = gw.log()
    ok('1 of 2 servers have written to disk in time' in log, 'a line of it')
    for text in ("refuses WAITAOF, node \"127.0.0.1:%d\": \"ERR unknown "
                 "command 'WAITAOF'\"" % fake.port,
                 'refuses WAITAOF, node "127.0.0.1:%d": "NOPERM' % fake.port,
                 'refuses WAIT, node "127.0.0.1:%d": "NOPERM' % fake.port,
                 'replicas acknowledge again'):
        ok(text in log, 'a line: ' + text)
    ok('0 of 1 replicas' in log, 'too few replicas are told')
    same(log.count('of 1 replicas have'), 1, 'and only where they are too few')
    gw.stop()


def together():
    """those who ask at the same time wait together"""
    fake = Disk()
    gw = gateway(fake.port, 'fsync=1:200ms')
    all_ = [background(gw.post, '/pay/ok', 'together-%d' % i)
            for i in range(40)]
    same({a.join().status for a in all_}, {201}, 'together')
    ok(len(fake.asked) <= fake.scripts + 20, 'together: %d scripts, %d WAITAOF'
       % (fake.scripts, len(fake.asked)))
    gw.stop()


def lost():
    """a connection that is lost between the two is lost for both"""
    fake = Disk()
    gw = gateway(fake.port, 'fsync=2:200ms replicas=1:100ms')
    same(gw.post('/pay/ok', 'lost-0').status, 201, 'lost: before')
    fake.waitaof = b'?nonsense\r\n'
    same(gw.post('/pay/ok', 'lost-1').status, 503, 'lost: refused')
    fake.waitaof = b'*2\r\n:1\r\n:1\r\n'
    ok(until(lambda: gw.post('/pay/ok', 'lost-2').status == 201, 15),
       'lost: and then')
    gw.stop()


def real():
    """this server's own word"""
    server = Redis()
    has = bool(server('COMMAND', 'INFO', 'waitaof')[0])
    print('# this server has %sWAITAOF' % ('' if has else 'no '))
    gw = gateway(server.port, 'fsync=1')
    refused(gw, 'real', 'no_fsync', 'no append-only file')
    ok('refuses WAITAOF, node' in gw.log(), 'it is logged')
    if has:
        server('CONFIG', 'SET', 'appendonly', 'yes')
        server('CONFIG', 'SET', 'appendfsync', 'always')
        ok(until(lambda: gw.post('/pay/ok', 'real').status == 201, 15, 0.1),
           'an append-only file')
        accepted(gw, 'real-2', 'an append-only file')
        server.stop()
        server.start('--appendonly', 'yes')
        gw.expected.append('keys may be forgotten')
        ok(until(lambda: gw.post('/pay/ok', 'real-2').status == 201, 15, 0.1),
           'killed: its answer was on disk')
        executed(up, 'real-2', 1, 'killed')
    gw.stop()
    if has:
        real_replica(server)


def real_replica(master):
    replica = Redis('--replicaof', '127.0.0.1 %d' % master.port,
                    '--appendonly', 'yes', '--appendfsync', 'always')
    ok(until(lambda: replica('ROLE')[3] == b'connected', 20), 'a replica')
    gw = gateway(master.port, 'fsync=2')
    # its file is written anew after the synchronization, and synced then
    ok(until(lambda: gw.post('/pay/ok', 'synced-%d' % time.time_ns()).status
             == 201, 15, 0.1), 'two disks')
    accepted(gw, 'replica-1', 'two disks')
    replica('CONFIG', 'SET', 'appendonly', 'no')
    refused(gw, 'replica-2', 'no_fsync', 'one disk')
    gw.stop()


def real_wait():
    """WAIT that is not permitted is not a want of replicas"""
    server = Redis()
    gw = gateway(server.port, 'replicas=1:100ms')
    refused(gw, 'wait-0', 'no_replicas', 'no replica')
    server('ACL', 'SETUSER', 'default', '-wait')
    refused(gw, 'wait-1', 'not_permitted', 'no permission')
    ok('refuses WAIT, node "127.0.0.1:%d": "NOPERM' % server.port in gw.log(),
       'no permission: it is logged by its name')
    same(gw.log().count('0 of 1 replicas'), 1, 'and is no want of replicas')
    gw.stop()


what_is_asked()
what_is_told()
together()
lost()
real()
if not skipped('WAIT is not permitted', 'acl'):
    real_wait()
finish()
