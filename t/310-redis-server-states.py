#!/usr/bin/env python3
"""A Redis server in every condition: reached in each way that a target allows,
with and without a password, as a user with few rights; loading, a replica,
full, busy, unable to save, paused, down, and back without its data.

While it cannot be used, requests are refused with 503 and the reason is logged
by name, once.  As soon as it can be used again requests are executed, without
a restart.
"""

import os
import re
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     replays, same, since, until)
from pasted import blocks  # noqa: E402
from redis_binary import VERSION, skipped  # noqa: E402
from redisd import (Client, Proxy, Redis, RECORDS,  # noqa: E402
                    RedisError)

SECRET = 'tell-nobody'
NO_TLS = 'TLS handshake .*needs "redis://" instead'
# Redis 5 has no name for it
WRONG_PASSWORD = 'refused AUTH: "' + 'WRONGPASS' * (VERSION >= (6,))
up = Ledger()
numbers = iter(range(100000))


def gateway(target, **args):
    return Gateway(up, store=target, **args)


def works(gw, name):
    key = 'works-%d' % next(numbers)
    a = gw.post('/ok', key)
    if same((a.status, a.replayed), (201, False), name + ': works'):
        replays(gw, '/ok', key, a, name)
        executed(up, key, 1, name)


def is_refused(gw, name, said, n=5):
    """refused without being sent, and logged once; before Redis 7 an error
    in a script stands in the middle of a longer text"""
    start = len(gw.log())
    keys = ['refused-%d' % next(numbers) for _ in range(n)]
    for key in keys:
        a = gw.post('/ok', key)
        if not same((a.status, a.code, a.get('retry-after'), a.retry),
                    (503, 'store_unavailable', '1', 'same-key'),
                    name + ': refused'):
            break
    same(sum(up.count(key) for key in keys), 0, name + ': never sent')
    lines = [x for x in gw.log().splitlines() if re.search(said, x)]
    same(len(lines), 1, name + ': logged by name, once') or print(
        '# ' + gw.log()[start:].replace('\n', '\n# '))
    return keys


def recovers(gw, name, keys, limit=3):
    """the same keys run, once"""
    start = time.time()
    ok(until(lambda: gw.post('/ok', keys[0]).status == 201, limit, 0.05),
       name + ': works again', gw.log()[-2000:])
    print('# after %.1f s' % (time.time() - start))
    same([gw.post('/ok', key).status for key in keys], [201] * len(keys),
         name + ': what was refused runs')
    same([up.count(key) for key in keys], [1] * len(keys),
         name + ': once')


def test_targets():
    server = Redis()
    for target, name in (
            ('redis://127.0.0.1:%d' % server.port, 'TCP'),
            ('redis://localhost:%d' % server.port, 'a name'),
            ('redis+unix://%s' % server.path, 'a socket'),
            ('redis://127.0.0.1:%d connections=2' % server.port,
             'two connections')):
        gw = gateway(target)
        works(gw, name)
        gw.stop()
    keys = server('KEYS', RECORDS)
    same(len(keys), 4, 'a key for each record')
    ok(all(len(k) == 69 and k.startswith(b'idem:') for k in keys),
       'of a fixed length', keys)

    for target, db in (('redis://127.0.0.1:%d/7 prefix=p7-' % server.port, 7),
                       ('redis+unix://%s?db=9 prefix=' % server.path, 9)):
        gw = gateway(target)
        works(gw, 'database %d' % db)
        gw.stop()
        client = Client(server.path)
        client('SELECT', db)
        keys = client('KEYS', RECORDS)
        prefix = b'p7-' if db == 7 else b''
        ok(len(keys) == 1 and len(keys[0]) == 64 + len(prefix)
           and keys[0].startswith(prefix), 'database and prefix', keys)
        client.close()

    gw = gateway('redis://127.0.0.1:%d/99' % server.port)
    is_refused(gw, 'no such database', 'refused SELECT: "ERR')
    gw.stop()

    # what is likely wrong is said, with what to write instead
    tls = 'rediss://127.0.0.1:%d ssl_verify=off'
    gw = gateway(tls % server.port)
    is_refused(gw, 'TLS to a plain port', NO_TLS)
    gw.stop()
    with socket.create_server(('127.0.0.1', 0)) as silent:
        gw = gateway(tls % silent.getsockname()[1])
        is_refused(gw, 'TLS without an answer',
                   'did not finish the ' + NO_TLS)
        gw.stop()
    gw = gateway('redis-sentinel://127.0.0.1:%d/pay' % server.port)
    is_refused(gw, 'a sentinel that is none',
               'is no sentinel but a Redis, whose target is "redis://"')
    gw.stop()
    server.remove()


def test_connections():
    server = Redis()
    gw = gateway('redis+unix://%s connections=3' % server.path, workers=2)
    works(gw, 'three connections')
    ok(until(lambda: len(server('CLIENT', 'LIST').splitlines()) == 7),
       'three for each of two workers', server('CLIENT', 'LIST').decode())
    calls = [gw.call('/ok', 'c%d' % i) for i in range(200)]
    same({c.read().status for c in calls}, {201}, '200 requests at a time')
    same(len(server('CLIENT', 'LIST').splitlines()), 7,
         'share these connections')
    gw.stop()
    ok(until(lambda: len(server('CLIENT', 'LIST').splitlines()) == 1),
       'closed at the end')
    server.remove()


def test_password():
    server = Redis('--requirepass', SECRET + '%/@:')
    server.auth = (SECRET + '%/@:',)
    quoted = SECRET + '%25%2f%40:'

    gw = gateway('redis://:%s@127.0.0.1:%d' % (quoted, server.port))
    works(gw, 'a password')
    gw.stop()
    ok(SECRET not in gw_log[-1], 'and nobody is told')

    gw = gateway('redis+unix://%s password_file=%s' % (
        server.path, password_file(SECRET + '%/@:\n')))
    works(gw, 'a password from a file')
    gw.stop()

    gw = gateway('redis://127.0.0.1:%d' % server.port)
    keys = is_refused(gw, 'no password',
                      'refused PING: "NOAUTH.*give one in the URL')
    server('CONFIG', 'SET', 'requirepass', '')
    server.auth = ()
    recovers(gw, 'no password needed any more', keys)
    server('CONFIG', 'SET', 'requirepass', 'other-' + SECRET)
    server.auth = ('other-' + SECRET,)
    gw.stop()

    gw = gateway('redis://:%s@127.0.0.1:%d' % (quoted, server.port))
    keys = is_refused(gw, 'a wrong password', WRONG_PASSWORD)
    server('CONFIG', 'SET', 'requirepass', SECRET + '%/@:')
    server.auth = (SECRET + '%/@:',)
    recovers(gw, 'a right password', keys)
    gw.stop()
    ok(SECRET not in gw_log[-1], 'a wrong password is not logged')
    server.remove()


def test_user():
    if skipped('a user with few rights', 'acl'):
        return
    server = Redis()
    server('ACL', 'SETUSER', 'gate', 'on', '>' + SECRET, '~idem:*',
           '-@all', '+eval', '+evalsha', '+get', '+set', '+time')
    target = 'redis://gate:%s@127.0.0.1:%d' % (SECRET, server.port)
    gw = gateway(target)
    works(gw, 'a user with few rights')
    gw.stop()
    ok(SECRET not in gw_log[-1], 'whose password is not logged')
    ok('maxmemory' not in gw_log[-1], 'and who cannot ask about memory')

    server('ACL', 'SETUSER', 'gate', '-set')
    gw = gateway(target)
    keys = is_refused(gw, 'a right is missing', ' refuses: "')
    server('ACL', 'SETUSER', 'gate', '+set')
    recovers(gw, 'the right is there', keys)
    ok('no longer refuses' in gw.log(), 'which is logged')

    server('ACL', 'SETUSER', 'gate', '-evalsha')
    keys = is_refused(gw, 'another right', 'refuses: "NOPERM')
    server('ACL', 'SETUSER', 'gate', '+evalsha')
    recovers(gw, 'that right is there', keys)
    gw.stop()

    gw = gateway('redis://nobody:%s@127.0.0.1:%d' % (SECRET, server.port))
    is_refused(gw, 'no such user', WRONG_PASSWORD)
    gw.stop()

    gw = gateway(target + ' prefix=other:')
    is_refused(gw, 'a key that is not its own', ' refuses: "')
    gw.stop()
    server.remove()


def test_pasted():
    """the settings and the user of docs/operate/redis.md"""
    if skipped('pasted: settings and user', 'acl'):
        return
    texts = [block.text for block in blocks('docs/operate/redis.md')]
    settings, = [text for text in texts if text.startswith('maxmemory ')]
    user, = [text for text in texts if text.startswith('ACL SETUSER')]
    options = [word for line in settings.split('\n')
               for word in ('--' + line).split(' ')]
    server = Redis(*options)
    same(server('CONFIG', 'GET', 'maxmemory-policy')[1], b'noeviction',
         'pasted: Redis starts with these settings')
    # these two are for those who have replicas
    server('CONFIG', 'SET', 'min-replicas-to-write', 0)
    server(*user.split())
    kept(user.split())
    gw = gateway('redis://gateway:secret@127.0.0.1:%d' % server.port,
                 locations='''
    location = /admin {
        idempotency_lookup main admin;
        idempotency_scope pay;
        idempotency_key $arg_key;
    }
''')
    works(gw, 'pasted')
    same(gw.post('/admin?state=done', None, None, 'GET').status, 200,
         'pasted: records are listed')
    ok(until(lambda: server('KEYS', 'idem:counter:*')),
       'pasted: the worker has its counter')
    same((server('ACL', 'LOG'), gw.log().count(' refuses')), ([], 0),
         'pasted: nothing is refused')
    gw.stop()
    server.remove()


def kept(user):
    """docs/operate/redis.md: what a restart leaves of a user"""
    server = Redis()
    server(*user)
    server.restart()
    ok(b'gateway' not in server('ACL', 'USERS'), 'a user is lost at a restart')
    server.remove()

    path = up_dir + '/users.acl'
    with open(path, 'w'):
        pass
    server = Redis('--aclfile', path)
    server(*user)
    server('ACL', 'SAVE')
    server.restart()
    ok(b'gateway' in server('ACL', 'USERS'), 'ACL SAVE keeps it')
    server.remove()


def test_replica():
    server = Redis()
    gw = gateway('redis://127.0.0.1:%d amnesia=0' % server.port)
    gw.expected = ['keys may be forgotten']
    works(gw, 'a master')
    server('REPLICAOF', '127.0.0.1', 1)
    keys = is_refused(gw, 'a replica', 'refuses: ".*READONLY')
    server('REPLICAOF', 'NO', 'ONE')
    recovers(gw, 'a master again', keys)
    gw.stop()
    server.remove()


def test_memory():
    server = Redis()
    gw = gateway('redis://127.0.0.1:%d' % server.port)
    a = gw.post('/ok', 'kept')
    server('CONFIG', 'SET', 'maxmemory', '1')
    keys = is_refused(gw, 'memory is full', 'refuses: ".*OOM')
    server('CONFIG', 'SET', 'maxmemory', '0')
    recovers(gw, 'memory is there', keys)
    replays(gw, '/ok', 'kept', a, 'what was there')

    # the answer finds no room: it is the answer all the same
    c = gw.call('/wait', 'answer')
    up.until('answer')
    server('CONFIG', 'SET', 'maxmemory', '1')
    up.go()
    a = c.read()
    same((a.status, a.replayed), (201, False), 'full at the end: answered')
    server('CONFIG', 'SET', 'maxmemory', '0')
    ok(until(lambda: gw.state('answer', '/wait') == 'done', 3),
       'and stored when there is room')
    replays(gw, '/wait', 'answer', a, 'full at the end')
    executed(up, 'answer', 1, 'full at the end')
    gw.stop()
    server.remove()


def test_eviction():
    server = Redis('--maxmemory', '100mb', '--maxmemory-policy',
                   'allkeys-lru')
    gw = gateway('redis://127.0.0.1:%d connections=2 amnesia=0 '
                 'eviction=allow' % server.port, workers=2)
    gw.expected = ['keys may be forgotten']
    ok(gw.until_log('maxmemory-policy is "allkeys-lru", it may forget keys '
                    'when its memory is full; set it to "noeviction"'),
       'a policy that may evict', gw.log())
    works(gw, 'a policy that may evict, eviction=allow')
    same(gw.log().count('maxmemory-policy'), 1, 'is warned of once')
    gw.stop()
    server.remove()


def test_busy():
    server = Redis('--busy-reply-threshold', '50')
    gw = gateway('redis://127.0.0.1:%d' % server.port)
    works(gw, 'not busy')

    def loop():
        try:
            server('EVAL', 'while true do end', 0)
        except (RedisError, OSError):
            pass
    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    time.sleep(0.3)
    keys = is_refused(gw, 'busy with a script', 'refuses: "BUSY')
    server('SCRIPT', 'KILL')
    recovers(gw, 'not busy any more', keys)
    gw.stop()
    server.remove()


def test_misconf():
    server = Redis()
    gw = gateway('redis://127.0.0.1:%d' % server.port)
    works(gw, 'saves')
    server('CONFIG', 'SET', 'save', '3600 1')
    os.rmdir(server.data)
    server('BGSAVE')
    until(lambda: b'rdb_last_bgsave_status:err' in
          server('INFO', 'persistence'))
    keys = is_refused(gw, 'cannot save', 'refuses: ".*MISCONF')
    server('CONFIG', 'SET', 'stop-writes-on-bgsave-error', 'no')
    recovers(gw, 'need not save', keys)
    gw.stop()
    server.remove()


def test_loading():
    server = Redis()
    proxy = Proxy(server)
    gw = gateway('redis://127.0.0.1:%d' % proxy.port)
    works(gw, 'loaded')
    loading = '-LOADING Redis is loading the dataset in memory'
    proxy.on('any', loading, 1000000)
    keys = is_refused(gw, 'loading', 'refuses: "LOADING')
    proxy.clear()
    recovers(gw, 'loaded again', keys)
    gw.stop()

    proxy.on('any', loading, 1000000)
    gw = gateway('redis://127.0.0.1:%d' % proxy.port)
    keys = is_refused(gw, 'loading from the start',
                      'refused PING: "LOADING')
    proxy.clear()
    recovers(gw, 'loaded at last', keys)

    for text in ('ERR whatever', 'TRYAGAIN', ''):
        proxy.on('claim', '-' + text)
        a = gw.post('/ok', 'text-' + text[:3])
        same((a.status, a.code), (503, 'store_unavailable'),
             'refused with "%s"' % text)
        a = gw.post('/ok', 'text-' + text[:3])
        same((a.status, a.replayed), (201, False), 'and then not')
    gw.stop()
    server.remove()


def test_restart():
    """A server that knows no script, and one that has forgotten a key."""
    server = Redis('--appendonly', 'yes', '--appendfsync', 'always')
    gw = gateway('redis://127.0.0.1:%d' % server.port)
    gw.expected = ['keys may be forgotten']
    a = gw.post('/ok', 'before')
    for i in range(3):
        server('SCRIPT', 'FLUSH')
        works(gw, 'scripts flushed')
    same(server('INFO', 'commandstats').count(b'cmdstat_eval:'), 1,
         'scripts are sent')
    before = server('INFO', 'commandstats')
    works(gw, 'scripts known')
    same(server('INFO', 'commandstats').split(b'cmdstat_eval:')[1]
         .split(b',')[0], before.split(b'cmdstat_eval:')[1].split(b',')[0],
         'and then no more')

    c = gw.call('/wait', 'over')
    up.hold()
    up.until('over')
    server.restart()
    replays_soon(gw, 'before', a, 'restarted')
    up.go()
    b = c.read()
    same((b.status, b.replayed), (201, False), 'restarted meanwhile: answered')
    replays_soon(gw, 'over', b, 'restarted meanwhile', '/wait')
    executed(up, 'over', 1, 'restarted meanwhile')

    c = gw.call('/slow/500', 'lost')
    up.until('lost')
    server('FLUSHALL')
    b = c.read()
    same((b.status, b.replayed), (201, False), 'flushed meanwhile: answered')
    replays(gw, '/slow/500', 'lost', b, 'flushed meanwhile')
    gw.stop()
    server.remove()


def replays_soon(gw, key, first, name, path='/ok'):
    ok(until(lambda: gw.post(path, key).status == 201, 3, 0.05),
       name + ': there again')
    replays(gw, path, key, first, name)


def test_pause():
    server = Redis()
    gw = gateway('redis://127.0.0.1:%d timeout=300ms' % server.port)
    works(gw, 'not paused')
    time.sleep(1.1)
    kept = gw.post('/ok', 'kept-pause')
    server.pause()
    start = time.time()
    calls = [gw.call('/ok', 'pause-%d' % i) for i in range(50)]
    waits = []
    for c in calls:
        a = c.read()
        waits.append(since(start))
        if a.status != 503:
            ok(False, 'paused: refused', a)
    ok(max(waits) < 0.9, 'paused: nobody waits longer than twice the timeout',
       max(waits))
    start = time.time()
    for i in range(20):
        a = gw.post('/ok', 'later-%d' % i)
        if (a.status, a.code) != (503, 'store_unavailable'):
            ok(False, 'paused: refused', a)
    took = since(start)
    ok(took < 1.5, '20 later ones are refused at once', took)
    same(sum(up.count('pause-%d' % i) for i in range(50)), 0,
         'paused: none was sent')
    time.sleep(1)
    same(gw.log().count('timed out'), 1, 'logged once') or print(
        '# ' + gw.log().replace('\n', '\n# '))
    server.resume()
    start = time.time()
    ok(until(lambda: gw.post('/ok', 'kept-pause').status == 201, 5),
       'resumed: works again')
    took = since(start)
    ok(took < 1.5, 'soon', took)
    replays(gw, '/ok', 'kept-pause', kept, 'resumed')
    # what had been sent to it before is taken back, not unknown
    ok(until(lambda: all(gw.state('pause-%d' % i, '/ok') == 'none'
                         for i in range(50)), 3), 'what was claimed is free',
       [gw.state('pause-%d' % i, '/ok') for i in range(50)])
    same({gw.post('/ok', 'pause-%d' % i).status for i in range(50)}, {201},
         'and runs')
    same({up.count('pause-%d' % i) for i in range(50)}, {1}, 'once')
    gw.stop()
    server.remove()


def test_down():
    server = Redis('--appendonly', 'yes', '--appendfsync', 'always')
    gw = gateway('redis://127.0.0.1:%d' % server.port)
    works(gw, 'up')
    time.sleep(1.1)
    server.stop()
    # it may have let the first attempt in while it ended
    gw.until_log('annot be reached')
    start = time.time()
    keys = is_refused(gw, 'down', 'annot be reached', 20)
    took = since(start)
    ok(took < 1.5, 'down: refused at once', took)
    server.start()
    recovers(gw, 'up again', keys)
    ok(gw.until_log('is up again'), 'which is logged')
    gw.stop()

    server.stop()
    gw = gateway('redis://127.0.0.1:%d' % server.port, workers=2)
    start = time.time()
    a = gw.post('/ok', 'first')
    same((a.status, a.code), (503, 'store_unavailable'), 'down at the start')
    server.start()
    ok(until(lambda: gw.post('/ok', 'first').status == 201, 3),
       'started later than nginx')
    executed(up, 'first', 1, 'started later')
    gw.stop()
    server.remove()


# what a gateway had logged when it ended
gw_log = []
stop = Gateway.stop


def stop_and_keep(self):
    if self.root:
        gw_log.append(self.log())
    stop(self)


def password_file(text):
    path = up_dir + '/password'
    with open(path, 'w') as f:
        f.write(text)
    return path


Gateway.stop = stop_and_keep
scratch = Redis(port=0)
up_dir = scratch.dir

names = sys.argv[1:] or [n for n in list(globals()) if n.startswith('test_')]
for test in names:
    globals()[test]()
finish()
