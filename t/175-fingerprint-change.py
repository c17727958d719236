#!/usr/bin/env python3
"""A record is compared in the way in which its fingerprint was made, also
after a reload to another way: no honest retry gets 422, and what can still be
compared is compared.  Where the location does not know that way, the request
is not a mismatch, and the log says so.  Records of earlier versions, which do
not say how their fingerprint was made, are compared as these versions did.
"""

import hashlib
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (REDIS, TOP, Gateway, Ledger, executed,  # noqa: E402
                     finish, ok, refused, replays, same, until)
from redisd import Client as RedisClient  # noqa: E402

LOCATIONS = '''
    location /retry/ {
        idempotency main;
        idempotency_unknown retry;
        proxy_pass http://up;
    }
    location /dry/ {
        idempotency main;
        idempotency_dry_run on;
        add_header X-Result $idempotency_result always;
        proxy_pass http://up/;
    }
'''
JSON = b'{"a": 1, "b": [2]}'
SORTED = b'{"b":[2],"a":1}'
OTHER = b'{"a": 2, "b": [2]}'
NOT_COMPARED = 'was made with another "idempotency_fingerprint"'

up = Ledger()
gw = Gateway(up, locations=LOCATIONS)

os.makedirs(TOP + '/build', exist_ok=True)
folder = tempfile.mkdtemp(prefix='secrets-', dir=TOP + '/build')
for name in ('one', 'two'):
    with open(os.path.join(folder, name), 'wb') as f:
        f.write(os.urandom(32))
    os.chmod(f.name, 0o600)


def use(fingerprint, *secrets):
    """reloads with this fingerprint in http{}"""
    old = gw.workers()
    gw.write(http='idempotency_fingerprint %s;\n' % fingerprint
             + ''.join('idempotency_secret %s/%s;\n' % (folder, name)
                       for name in secrets))
    gw.signal(signal.SIGHUP)
    if not until(lambda: not set(old) & set(gw.workers())
                 and gw.workers(), 20):
        ok(False, 'could not reload')


def parts(boundary, *values):
    return b''.join(b'--%s\r\nContent-Disposition: form-data; name="v"\r\n\r\n'
                    b'%s\r\n' % (boundary, value) for value in values) \
        + b'--%s--\r\n' % boundary


def typed(boundary):
    return [('Content-Type', 'multipart/form-data; boundary='
             + boundary.decode())]


def mismatch(path, key, body, name, **args):
    refused(gw, path, key, 'key_reused', name, status=422, body=body, **args)


def test_comparable():
    """(made with, then, first body, equal bodies, others)"""
    for i, (first, then, body, equal, others) in enumerate((
            ('raw', 'json', JSON, [JSON], [OTHER, SORTED]),
            ('json', 'raw', JSON, [JSON, SORTED], [OTHER, b'no JSON']),
            ('raw', 'form', b'a=1&b=2', [b'a=1&b=2'], [b'b=2&a=1']),
            ('form', 'raw', b'a=1&b=2', [b'b=2&a=1'], [b'a=1', b'%zz']),
            ('raw', 'json exclude=a', JSON, [JSON], [OTHER]),
            ('json', 'json exclude=a', JSON, [JSON, SORTED], [OTHER]),
            ('json exclude=a,c.d', 'json exclude=c.d,a', JSON,
             [JSON, OTHER], [b'{"b":1}']),
            ('raw with=$uri', 'json with=$uri', JSON, [JSON], [OTHER]))):
        name = '%s, then %s' % (first, then)
        use(first)
        key = 'change-%d' % i
        a = gw.post('/ok?x', key, body=body)
        same(a.status, 201, name + ': the first')
        start = len(gw.log())
        use(then)
        for again in equal:
            replays(gw, '/ok?x', key, a, name, body=again)
        for other in others:
            mismatch('/ok?x', key, other, name + ': another body')
        ok(NOT_COMPARED not in gw.log()[start:], name + ': compared')
        executed(up, key, 1, name)


def test_not_comparable():
    """(made with, then, first body, another one)"""
    for i, (first, then, body, other) in enumerate((
            ('json exclude=a', 'json', JSON, OTHER),
            ('json exclude=a', 'raw', JSON, OTHER),
            ('json exclude=a', 'json exclude=b', JSON, OTHER),
            ('json include=a', 'json exclude=a', JSON, b'{"b": 3}'),
            ('form include=a', 'raw', b'a=1&b=2', b'a=2'),
            ('raw', 'raw with=$uri', JSON, OTHER),
            ('raw with=$http_x', 'json', JSON, OTHER))):
        name = '%s, then %s' % (first, then)
        use(first)
        key = 'lost-%d' % i
        a = gw.post('/ok', key, body=body)
        use(then)
        start = len(gw.log())
        replays(gw, '/ok', key, a, name, body=body)
        ok(gw.until_log(NOT_COMPARED, start=start), name + ': the log says so')
        replays(gw, '/ok', key, a, name + ', another body', body=other)
        executed(up, key, 1, name)
        gw.post('/ok', key + '-new', body=body)
        mismatch('/ok', key + '-new', other, name + ': a new key is compared')


def test_multipart():
    use('raw')
    one = parts(b'one', b'1', b'2')
    two = parts(b'2222', b'1', b'2')
    a = gw.post('/ok', 'parts', body=one, headers=typed(b'one'))
    use('multipart')
    replays(gw, '/ok', 'parts', a, 'raw, then multipart', body=two,
            headers=typed(b'2222'))
    mismatch('/ok', 'parts', parts(b'x', b'1'), 'raw, then multipart: other',
             headers=typed(b'x'))
    b = gw.post('/ok', 'parts-2', body=one, headers=typed(b'one'))
    use('raw')
    replays(gw, '/ok', 'parts-2', b, 'multipart, then raw', body=two,
            headers=typed(b'2222'))
    mismatch('/ok', 'parts-2', parts(b'x', b'2', b'1'),
             'multipart, then raw: other', headers=typed(b'x'))
    mismatch('/ok', 'parts-2', b'x', 'multipart, then raw: not multipart')
    use('multipart exclude=w')
    replays(gw, '/ok', 'parts-2', b, 'multipart, then with a list', body=two,
            headers=typed(b'2222'))
    executed(up, 'parts', 1, 'raw, then multipart')
    executed(up, 'parts-2', 1, 'multipart, then raw')


def test_in_flight():
    use('raw')
    up.hold()
    first = gw.call('/wait', 'flight', body=JSON)
    up.until('flight')
    old = gw.workers()
    gw.write(http='idempotency_fingerprint json;')
    gw.signal(signal.SIGHUP)
    until(lambda: set(gw.workers()) - set(old), 20)
    refused(gw, '/wait', 'flight', 'in_progress', 'in flight: the same',
            body=JSON)
    mismatch('/wait', 'flight', OTHER, 'in flight: another one')
    up.go()
    a = first.read()
    same(a.status, 201, 'in flight: the first ends')
    replays(gw, '/wait', 'flight', a, 'in flight', body=JSON)
    executed(up, 'flight', 1, 'in flight')


def test_secrets():
    """another secret and another kind at once"""
    use('raw', 'one')
    a = gw.post('/ok', 'secret', body=JSON)
    use('json', 'two', 'one')
    replays(gw, '/ok', 'secret', a, 'another secret, too', body=JSON)
    mismatch('/ok', 'secret', OTHER, 'another secret: another body')
    executed(up, 'secret', 1, 'another secret')


def test_unknown():
    use('raw')
    for key in ('retry', 'other'):
        a = gw.post('/retry/flaky', key, body=JSON)
        same((a.status, gw.state(key, '/retry/flaky')), (502, 'unknown'),
             'a lost answer')
    use('json')
    mismatch('/retry/flaky', 'other', OTHER, 'unknown: another body')
    executed(up, 'other', 1, 'unknown: another body')
    a = gw.post('/retry/flaky', 'retry', body=JSON)
    same((a.status, a.replayed), (201, False), 'unknown: retried')
    executed(up, 'retry', 2, 'unknown: retried')
    replays(gw, '/retry/flaky', 'retry', a, 'unknown', body=JSON)
    mismatch('/retry/flaky', 'retry', OTHER, 'unknown: and still itself')

    # as policy says: it is retried, since it is no mismatch
    use('json with=$uri')
    a = gw.post('/retry/flaky', 'other', body=JSON)
    same((a.status, a.replayed), (201, False), 'not comparable: retried')
    executed(up, 'other', 2, 'not comparable: retried')
    replays(gw, '/retry/flaky', 'other', a, 'not comparable', body=JSON)


def test_off():
    use('off')
    a = gw.post('/ok', 'off', body=JSON)
    use('json')
    replays(gw, '/ok', 'off', a, 'off, then json', body=OTHER)
    b = gw.post('/ok', 'on', body=JSON)
    use('off')
    replays(gw, '/ok', 'on', b, 'json, then off', body=OTHER)


def test_dry_run():
    """nothing is read again for a dry run: what differs is not compared"""
    use('raw')
    same(gw.post('/dry/slow/300', 'dry', body=JSON).get('x-result'), 'new',
         'dry run')
    same(gw.post('/dry/slow/300', 'dry', body=OTHER).get('x-result'), 'mismatch',
         'dry run: another body')
    use('json')
    same(gw.post('/dry/slow/300', 'dry', body=JSON).get('x-result'), 'replayed',
         'dry run: no mismatch after a reload')


def test_earlier_versions():
    """of which the two bytes that tell are zero, and the rest is the same"""
    server = RedisClient(REDIS[len('redis+unix://'):])
    names = os.path.basename(gw.root) + ':' + '?' * 64

    def sized(text):
        return bytes([len(text)]) + text

    def sum_of(kind, content):
        return bytes(4) + hashlib.sha256(sized(kind) + sized(b'')
                                         + content).digest()[:28]

    def older(path, key, body, kind=None, content=None, headers=()):
        """makes a record, and makes an earlier version's of it"""
        before = set(server('KEYS', names))
        answer = gw.post(path, key, body=body, headers=headers)
        name, = set(server('KEYS', names)) - before
        value = server('GET', name)
        ok(value[6:8] != b'\0\0', key + ': it tells how it was made')
        if kind and content is None:
            same(value[24:56], sum_of(kind, body), key + ': the same bytes')
        elif kind:
            value = value[:24] + sum_of(kind, content) + value[56:]
        server('SET', name, value[:6] + b'\0\0' + value[8:], 'PX', '600000')
        return answer

    use('raw')
    a = older('/ok', 'old-raw', JSON, b'fingerprint raw 1')
    replays(gw, '/ok', 'old-raw', a, 'an old one', body=JSON)
    mismatch('/ok', 'old-raw', OTHER, 'an old one: another body')

    one = parts(b'one', b'1', b'2')
    a = older('/ok', 'old-parts', one, b'fingerprint raw 1', one,
              headers=typed(b'one'))
    replays(gw, '/ok', 'old-parts', a, 'an old one of parts', body=one,
            headers=typed(b'one'))
    mismatch('/ok', 'old-parts', parts(b'x', b'1'), 'an old one of parts: '
             'another body', headers=typed(b'x'))
    older('/retry/flaky', 'old-flaky', one, b'fingerprint raw 1', one,
          headers=typed(b'one'))
    same(gw.state('old-flaky', '/retry/flaky'), 'unknown', 'an old unknown')
    b = gw.post('/retry/flaky', 'old-flaky', body=one, headers=typed(b'one'))
    same((b.status, b.replayed), (201, False), 'an old unknown is retried')
    same(gw.post('/dry/slow/300', 'old-dry', body=one,
                 headers=typed(b'one')).get('x-result'), 'new', 'a dry one')

    use('multipart')
    replays(gw, '/ok', 'old-parts', a, 'an old one, then multipart', body=one,
            headers=typed(b'one'))

    use('json')
    a = older('/ok', 'old-json', b'{"a":1,"b":[2]}', b'fingerprint json 1')
    replays(gw, '/ok', 'old-json', a, 'an old JSON', body=SORTED)
    mismatch('/ok', 'old-json', OTHER, 'an old JSON: another body')

    use('form exclude=x')
    a = older('/ok', 'old-form', b'a=1&x=2')
    replays(gw, '/ok', 'old-form', a, 'an old form', body=b'a=1&x=3')
    mismatch('/ok', 'old-form', b'a=2', 'an old form: another body')
    server.close()


test_comparable()
test_not_comparable()
test_multipart()
test_in_flight()
test_secrets()
test_unknown()
test_off()
test_dry_run()
if REDIS:
    test_earlier_versions()
gw.stop()
shutil.rmtree(folder, ignore_errors=True)
finish()
