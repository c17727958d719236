#!/usr/bin/env python3
"""Passwords and certificates are rotated while nginx runs.

A password file is read at each login, and when it has changed, AUTH is sent on
open connections: no request fails, however often the password changes, also if
the server disconnects clients of the old one.  If a file cannot be read, the
last password is used.  New connections use the certificates that are in the
files at that time.  No password is in a log.
"""

import os
import shutil
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from certs import Certs  # noqa: E402
from gateway import Gateway, Ledger, finish, ok, same, until  # noqa: E402
from redis_binary import skipped  # noqa: E402
from redisd import Proxy, Redis  # noqa: E402
from redisset import Sentinels  # noqa: E402

up = Ledger()
serial = 0


def replace(path, text):
    """as those do it who write tokens"""
    with open(path + '.new', 'w') as f:
        f.write(text)
    os.rename(path + '.new', path)


def new(gw):
    global serial
    serial += 1
    return gw.post('/r/ok', 'new-%d' % serial).status


def gateway(target, options, workers=2, level='info'):
    return Gateway(up, workers=workers, level=level, locations='''
        location /r/ { idempotency red; proxy_pass http://up; }
    ''', http='idempotency_store red %s amnesia=0 connections=2 timeout=1s %s;'
                   % (target, options))


class Load:
    """requests, one after the other, all the time"""

    def __init__(self, gw):
        self.gw = gw
        self.seen = {}
        self.over = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over:
            status = new(self.gw)
            self.seen[status] = self.seen.get(status, 0) + 1

    def end(self):
        self.over = True
        self.thread.join()
        return self.seen


def clients(server, user):
    text = server('CLIENT', 'LIST').decode()
    return [line for line in text.splitlines() if ' user=%s ' % user in line]


def rotated():
    """ten passwords; the old one is removed, and who used it is shut out"""
    server = Redis()
    path = server.dir + '/token'
    replace(path, 'token-0\n')
    server('ACL', 'SETUSER', 'gate', 'on', '>token-0', '~*', '&*', '+@all')
    gw = gateway('redis://gate@127.0.0.1:%d' % server.port,
                 'password_file=' + path)
    same(new(gw), 201, 'the first password')
    ok(until(lambda: len(clients(server, 'gate')) >= 4, 15), 'connections')
    ids = {line.split()[0] for line in clients(server, 'gate')}
    load = Load(gw)
    for n in range(1, 11):
        server('ACL', 'SETUSER', 'gate', '>token-%d' % n)
        before = gw.log().count('took the new password')
        replace(path, 'token-%d\n' % n)
        ok(until(lambda: gw.log().count('took the new password')
                 >= before + 4, 20), 'password %d: all connections' % n)
        server('ACL', 'SETUSER', 'gate', '<token-%d' % (n - 1))
    seen = load.end()
    same(list(seen), [201], 'no request has failed: %s' % seen)
    same({line.split()[0] for line in clients(server, 'gate')}, ids,
         'on the connections of the beginning')

    # the server closes what has an old token; the next login has the new one
    took = gw.log().count('took the new password')
    server('ACL', 'SETUSER', 'gate', 'resetpass', '>token-11')
    replace(path, 'token-11')
    ok(until(lambda: gw.log().count('took the new password') >= took + 4, 20),
       'a password that replaced all others')
    for line in clients(server, 'gate'):
        server('CLIENT', 'KILL', 'ID', line.split()[0][3:])
    ok(until(lambda: new(gw) == 201 and len(clients(server, 'gate')) == 4,
             15), 'closed: the next login')

    # one that is not taken
    replace(path, 'token-wrong')
    ok(until(lambda: gw.log().count('refused the new password of') == 4, 20),
       'a wrong one is refused, by all connections')
    same(new(gw), 201, 'a wrong one: connections go on')
    took = gw.log().count('took the new password')
    replace(path, 'token-11')
    ok(until(lambda: gw.log().count('took the new password') == took + 4, 20),
       'the right one again')

    # none
    os.unlink(path)
    ok(until(lambda: gw.log().count('cannot be found by a worker') == 2, 20),
       'no file: each worker says so')
    for line in clients(server, 'gate'):
        server('CLIENT', 'KILL', 'ID', line.split()[0][3:])
    # by all connections: one that was killed early is made anew in a moment,
    # and some requests in a row may go to one worker
    ok(until(lambda: len(clients(server, 'gate')) >= 4
             and all(new(gw) == 201 for _ in range(12)), 15),
       'no file: the last one is used')
    for text in ('', '\n', 'two\nlines\n', 'x' * 5000):
        replace(path, text)
        same(new(gw), 201, 'no password in it: %r' % text[:20])
    os.unlink(path)
    os.mkdir(path)
    for line in clients(server, 'gate'):
        server('CLIENT', 'KILL', 'ID', line.split()[0][3:])
    ok(until(lambda: new(gw) == 201, 15), 'a folder: the last one is used')
    os.rmdir(path)
    took = gw.log().count('took the new password')
    server('ACL', 'SETUSER', 'gate', '>token-12')
    replace(path, 'token-12')
    ok(until(lambda: gw.log().count('took the new password') > took, 20),
       'it is there again')
    same(new(gw), 201, 'and is used')
    ok('token-' not in gw.log(), 'no password is logged')
    same(gw.log().count('by a worker, the password that was read last'),
         gw.log().count('cannot be found by a worker')
         + gw.log().count('holds no password by a worker')
         + gw.log().count('cannot be opened by a worker'), 'what was said')
    gw.stop()


def in_order():
    """AUTH takes its turn between other commands"""
    server = Redis('--requirepass', 'old')
    server.auth = ('old',)
    path = server.dir + '/token'
    replace(path, 'old')
    proxy = Proxy(server)
    gw = gateway('redis://127.0.0.1:%d' % proxy.port,
                 'password_file=' + path, workers=1)
    same(new(gw), 201, 'in order: before')
    load = [Load(gw) for _ in range(8)]
    server('CONFIG', 'SET', 'requirepass', 'new')
    server.auth = ('new',)
    replace(path, 'new')
    ok(until(lambda: gw.log().count('took the new password') >= 2, 20),
       'in order: taken')
    # a connection that closes in the middle of it
    proxy.on('auth', 'lose', 2)
    replace(path, 'new\n')
    server('CONFIG', 'SET', 'requirepass', 'newer')
    server.auth = ('newer',)
    replace(path, 'newer\n')
    ok(until(lambda: not proxy.rules[0][2], 20), 'in order: two were lost')
    ok(until(lambda: new(gw) == 201, 15), 'in order: and then')
    seen = [one.end() for one in load]
    same({status for one in seen for status in one} - {201, 503}, set(),
         'in order: nothing else became of any: %s' % seen)
    gw.stop()


def sentinels():
    """those of sentinels have a file of their own"""
    there = Sentinels(replicas=0, sentinels=1, lines=('requirepass s-old',),
                      auth=('s-old',))
    path = there.servers[0].dir + '/sentinel'
    replace(path, 's-old')
    gw = gateway(there.url, 'sentinel_password_file=' + path, workers=1)
    ok(until(lambda: new(gw) == 201, 20), 'sentinel: before')
    sentinel = there.sentinels[0]
    sentinel('ACL', 'SETUSER', 'default', '>s-new')
    replace(path, 's-new')
    ok(until(lambda: 'took the new password, node "127.0.0.1:%d"'
             % sentinel.port in gw.log(), 20), 'sentinel: taken')
    same(new(gw), 201, 'sentinel: after')
    gw.stop()


def cut(server):
    """closes the connections of the gateway"""
    for line in server('CLIENT', 'LIST').decode().splitlines():
        if 'unix-socket' not in line.split('laddr')[0] \
                and ' addr=127' in line:
            server('CLIENT', 'KILL', 'ID', line.split()[0][3:])


def swap(certs, name, to):
    """a certificate and its key, one after the other"""
    for end in ('.pem', '.key'):
        with open(certs.path(name + end)) as f:
            replace(certs.path(to + end), f.read())


def certificates():
    scratch = Redis(port=0)
    certs = Certs(scratch.dir)
    certs.ca('ca')
    certs.ca('ca2')
    certs.certificate('server', 'ca', 'DNS:localhost')
    certs.certificate('one', 'ca', 'DNS:gateway.test')
    certs.certificate('two', 'ca2', 'DNS:gateway.test')
    certs.certificate('server2', 'ca2', 'DNS:localhost')
    swap(certs, 'one', 'client')
    shutil.copy(certs.path('ca.pem'), certs.path('trust.pem'))
    server = Redis(tls=certs.redis('server'))
    gw = gateway('rediss://localhost:%d' % server.port,
                 'ssl_trusted_certificate=%s ssl_certificate=%s '
                 'ssl_certificate_key=%s'
                 % (certs.path('trust.pem'), certs.path('client.pem'),
                    certs.path('client.key')), workers=1)
    same(new(gw), 201, 'certificates: the first ones')

    # the server wants another client, and is another one itself
    server('CONFIG', 'SET', 'tls-ca-cert-file', certs.path('ca2.pem'),
           'tls-cert-file', certs.path('server2.pem'),
           'tls-key-file', certs.path('server2.key'))
    same(new(gw), 201, 'certificates: open connections go on')
    swap(certs, 'two', 'client')
    with open(certs.path('ca2.pem')) as f:
        replace(certs.path('trust.pem'), f.read())
    cut(server)
    ok(until(lambda: new(gw) == 201, 15), 'certificates: the second ones')
    ok('has reloaded its certificates' in gw.log(), 'certificates: a line')

    # a certificate whose key is not there yet, and what is none
    for name, text in (('client.pem', open(certs.path('one.pem')).read()),
                       ('client.key', ''), ('trust.pem', 'nonsense\n')):
        before = open(certs.path(name)).read()
        replace(certs.path(name), text)
        cut(server)
        ok(until(lambda: new(gw) == 201, 15),
           'certificates: the last ones, not %s' % name)
        replace(certs.path(name), before)
        cut(server)
        ok(until(lambda: new(gw) == 201, 15), 'certificates: and again')
    os.rename(certs.path('client.key'), certs.path('away.key'))
    cut(server)
    ok(until(lambda: new(gw) == 201, 15), 'certificates: no key')
    same(gw.log().count('cannot be used by a worker') >= 1, True,
         'certificates: it is said')
    ok('PRIVATE' not in gw.log(), 'certificates: no key in the log')
    gw.stop()


if not skipped('passwords of a user', 'acl'):
    rotated()
    sentinels()
in_order()
if not skipped('certificates', 'tls') \
        and not skipped('certificates', 'config-set'):
    certificates()
finish()
