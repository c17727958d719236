#!/usr/bin/env python3
"""With a secret, the stored answer reveals nothing.  Secrets can be rotated
without a false mismatch and without a lost answer: the first secret seals, all
of them open.  A record that does not open is a store error; its request is
never executed again, whatever the policy.  A secret file that others may read,
or that has no valid secret, stops nginx with a message that names the fix.
"""

import os
import shutil
import signal
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (REDIS, TOP, Gateway, Ledger, executed,  # noqa: E402
                     finish, ok, refused, replays, same, until)
from redisd import Client as RedisClient  # noqa: E402

os.makedirs(TOP + '/build', exist_ok=True)
folder = tempfile.mkdtemp(prefix='secrets-', dir=TOP + '/build')


def secret(name, data=None, mode=0o600):
    path = os.path.join(folder, name)
    with open(path, 'wb') as f:
        f.write(os.urandom(32) if data is None else data)
    os.chmod(path, mode)
    return path


def lines(*names):
    return ''.join('    idempotency_secret %s/%s;\n' % (folder, name)
                   for name in names)


for name in ('one', 'two', 'three'):
    secret(name)

LOCATIONS = '''
    location /pass/ {
        idempotency main;
        idempotency_store_error pass;
        proxy_pass http://up;
    }
    location /retry/ {
        idempotency main;
        idempotency_unknown retry;
        proxy_pass http://up;
    }
    location /off/ {
        idempotency main;
        idempotency_fingerprint off;
        proxy_pass http://up;
    }
    location = /own {
        idempotency main;
        idempotency_secret %s/three;
        proxy_pass http://up/ok;
    }
''' % folder

up = Ledger()
gw = Gateway(up, locations=LOCATIONS, http='idempotency_ttl 600s;')


def use(*names):
    """reloads with these secrets in http{}"""
    old = gw.workers()
    gw.write(http='idempotency_ttl 600s;\n' + lines(*names))
    gw.signal(signal.SIGHUP)
    if not until(lambda: not set(old) & set(gw.workers())
                 and gw.workers(), 20):
        ok(False, 'could not reload')


def kept(key, path):
    """head and body as the store has them"""
    return repr(gw.record(key, path))


def test_store_shows_nothing():
    use('one')
    path = '/ok?h=X-Card:4242424242424242'
    a = gw.post(path, 'pan', body=b'pan=4242424242424242')
    same((a.status, a.replayed), (201, False), 'the first')
    for i in range(2):
        again = replays(gw, path, 'pan', a, 'sealed',
                        body=b'pan=4242424242424242')
        same(again.get('x-card'), '4242424242424242', 'a header, too')
    shown = kept('pan', '/ok')
    ok('state' in shown and 'done' in shown, 'the store shows a record',
       shown)
    ok('4242' not in shown and 'X-Card' not in shown
       and a.body.decode().strip() not in shown, 'and nothing of the answer',
       shown)
    executed(up, 'pan', 1, 'sealed')

    use()
    plain = gw.post(path, 'plain')
    ok('4242' in kept('plain', '/ok'), 'without a secret it would', plain)
    if REDIS:
        for value in values():
            if b'4242424242424242' in value:
                break
        else:
            ok(False, 'a plain record can be seen in Redis')


def redis():
    return RedisClient(REDIS[len('redis+unix://'):])


def values():
    server = redis()
    names = server('KEYS', os.path.basename(gw.root) + ':' + '?' * 64)
    found = {name: server('GET', name) for name in names}
    server.close()
    return found.values()


def test_sizes():
    use('one')
    for n in (0, 1, 15, 16, 17, 5000, 70000, 900000):
        for kind in ('big', 'bigchunked'):
            path = '/%s/%d' % (kind, n)
            key = '%s-%d' % (kind, n)
            a = gw.post(path, key)
            same(len(a.body), n, '%s of %d' % (kind, n))
            replays(gw, path, key, a, '%s of %d' % (kind, n))
            executed(up, key, 1, key)


def test_rotation():
    use()
    a = {'none': gw.post('/ok', 'r-none')}
    use('one')
    a['one'] = gw.post('/ok', 'r-one')
    use('two', 'one')
    a['two'] = gw.post('/ok', 'r-two')
    use('three', 'two', 'one')
    for name in a:
        key = 'r-' + name
        replays(gw, '/ok', key, a[name], 'made with %s' % name)
        refused(gw, '/ok', key, 'key_reused', '%s: another body' % name,
                status=422, body=b'other')
        executed(up, key, 1, key)

    use('three', 'two')
    replays(gw, '/ok', 'r-two', a['two'], 'an old one is still there')
    start = len(gw.log())
    b = refused(gw, '/ok', 'r-one', 'store_unavailable',
                'its secret is gone: an error of the store', status=503)
    same(b.retry, 'same-key', 'to be tried again')
    ok(b'an earlier request may have been executed' in b.body,
       'the text does not deny an execution', b.body)
    ok(gw.until_log('was made with a secret that is not known', start=start),
       'the log says what is missing')
    refused(gw, '/ok', 'r-one', 'store_unavailable',
            'also for another body', status=503, body=b'other')

    use('one')
    replays(gw, '/ok', 'r-one', a['one'], 'it is back')
    executed(up, 'r-one', 1, 'r-one')
    use()
    refused(gw, '/ok', 'r-one', 'store_unavailable', 'no secret at all',
            status=503)
    executed(up, 'r-one', 1, 'r-one')


def test_pass_does_not_pass():
    use('one')
    gw.post('/pass/ok', 'pass')
    use('two')
    refused(gw, '/pass/ok', 'pass', 'store_unavailable',
            'store_error pass: not for what cannot be opened', status=503)
    executed(up, 'pass', 1, 'pass')


def test_in_flight():
    """a mismatch comes first, also over a change of secrets"""
    use('one')
    up.hold()
    first = gw.call('/wait', 'flight')
    up.until('flight')
    old = gw.workers()
    gw.write(http=lines('two', 'one'))
    gw.signal(signal.SIGHUP)
    until(lambda: set(gw.workers()) - set(old), 20)
    refused(gw, '/wait', 'flight', 'in_progress', 'the same request')
    refused(gw, '/wait', 'flight', 'key_reused', 'another one', status=422,
            body=b'other')
    up.go()
    a = first.read()
    same(a.status, 201, 'the first ends')
    replays(gw, '/wait', 'flight', a, 'over a reload')
    executed(up, 'flight', 1, 'flight')


def test_unknown():
    """retry takes an unknown over, and its fingerprint"""
    use('one')
    a = gw.post('/retry/flaky', 'unknown')
    same((a.status, gw.state('unknown', '/retry/flaky')), (502, 'unknown'),
         'a lost answer')
    use('two', 'one')
    refused(gw, '/retry/flaky', 'unknown', 'key_reused', 'another body',
            status=422, body=b'other')
    executed(up, 'unknown', 1, 'another body')
    a = gw.post('/retry/flaky', 'unknown')
    same((a.status, a.replayed), (201, False), 'retried with another secret')
    executed(up, 'unknown', 2, 'retried')
    replays(gw, '/retry/flaky', 'unknown', a, 'retried')
    refused(gw, '/retry/flaky', 'unknown', 'key_reused', 'and still itself',
            status=422, body=b'other')


def test_without_fingerprint():
    use('one')
    a = gw.post('/off/ok', 'off')
    use('two', 'one')
    replays(gw, '/off/ok', 'off', a, 'no fingerprint', body=b'other')


def test_inherited():
    use('one')
    a = gw.post('/own', 'own')
    replays(gw, '/own', 'own', a, 'a secret of the location')
    use('two')
    replays(gw, '/own', 'own', a, 'which is not that of http{}')


def test_fingerprint_is_keyed():
    """the same body under two secrets, and without any"""
    seen = set()
    for names in ((), ('one',), ('two',)):
        use(*names)
        key = 'fp' + ''.join(names)
        gw.post('/ok', key)
        seen.add(gw.record(key, '/ok').get('fp'))
    same(len(seen), 3, 'three fingerprints')


HEADER = 116


def test_altered():
    """every byte of the sealed answer counts, and its place, too"""
    use('one')
    server = redis()
    prefix = os.path.basename(gw.root) + ':'

    def made(key):
        before = set(server('KEYS', prefix + '?' * 64))
        gw.post('/ok', key)
        name, = set(server('KEYS', prefix + '?' * 64)) - before
        return name, server('GET', name)

    name, good = made('altered')
    other, stranger = made('stranger')
    head, body = struct.unpack('>II', good[100:108])
    ok(head > 45 and body, 'a record is as the test knows it', (head, body))

    def check(value, what):
        server('SET', name, value)
        a = gw.post('/ok', 'altered')
        if (a.status, a.code) != (503, 'store_unavailable') \
           or up.count('altered') != 1:
            ok(False, what, a)
            return 1
        return 0

    bad = 0
    places = list(range(HEADER, HEADER + 60)) \
        + list(range(HEADER + 60, len(good), 7)) + [len(good) - 1]
    for i in places:
        bad += check(good[:i] + bytes([good[i] ^ 1]) + good[i + 1:],
                     'byte %d' % i)
    ok(not bad, 'any byte that differs: an error of the store')

    bad = check(good[:HEADER] + stranger[HEADER:], 'another answer')
    bad += check(stranger, 'another record')
    bad += check(good[:100] + struct.pack('>II', head + 1, body - 1)
                 + good[108:], 'the bound of head and body')
    bad += check(good[:100] + struct.pack('>II', 45, body + head - 45)
                 + good[108:], 'no head')
    bad += check(good[:100] + struct.pack('>II', 10, body + head - 10)
                 + good[108:], 'half a prefix')
    bad += check(good[:100] + struct.pack('>II', head, body - 1)
                 + good[108:-1], 'cut')
    ok(not bad, 'answers cannot be swapped or cut')

    server('SET', name, good)
    a = gw.post('/ok', 'altered')
    same((a.status, a.replayed), (201, True), 'the real one opens')
    nonces = set()
    for i in range(50):
        _, value = made('nonce-%d' % i)
        nonces.add(value[HEADER + 5:HEADER + 29])
    same(len(nonces), 50, 'no nonce twice')
    server.close()


def test_configuration():
    os.mkdir(folder + '/directory')
    os.link(folder + '/one', folder + '/again')
    with open(folder + '/copy', 'wb') as f, open(folder + '/two', 'rb') as g:
        f.write(g.read())
    os.chmod(folder + '/copy', 0o400)
    for name, path, words in (
            ('open to all', secret('r', mode=0o644), 'chmod 600 '),
            ('open to the group', secret('g', mode=0o640), 'chmod 600 '),
            ('open to others', secret('o', mode=0o604), 'chmod 600 '),
            ('writable by the group', secret('w', mode=0o620), 'chmod 600 '),
            ('empty', secret('0', b''), 'has 0 bytes, it must have 32'),
            ('too short', secret('31', bytes(31)), 'openssl rand 32'),
            ('too long', secret('33', bytes(33)), 'openssl rand 32'),
            ('missing', folder + '/missing', 'openssl rand 32'),
            ('a directory', folder + '/directory', 'is not a file')):
        gw.write(http='    idempotency_secret %s;' % path)
        done = gw.command('-t')
        ok(done.returncode != 0 and words in done.stderr
           and path in done.stderr and 'idempotency_secret' in done.stderr,
           'a file that is %s is refused' % name, done.stderr)
    gw.write(http=lines('two', 'copy'))
    done = gw.command('-t')
    ok(done.returncode and 'has the same secret' in done.stderr,
       'the same secret twice is refused', done.stderr)
    gw.write(http=lines('copy'))
    ok(gw.command('-t').returncode == 0, 'mode 400 is right')


try:
    test_store_shows_nothing()
    test_sizes()
    test_rotation()
    test_pass_does_not_pass()
    test_in_flight()
    test_unknown()
    test_without_fingerprint()
    test_inherited()
    test_fingerprint_is_keyed()
    if REDIS:
        test_altered()
    test_configuration()
finally:
    shutil.rmtree(folder, ignore_errors=True)
gw.stop()
finish()
