#!/usr/bin/env python3
"""from=STORE: a key that the old store knows is answered by it, in every state
and on every pair of stores; what the new store does is seen by gateways that
know the old one only.

Here /old/ is a gateway that was not reloaded yet, /new/ one that has "from=",
and after a reload /new/ is one from which "from=" was removed.  All of them
have the same keys.
"""

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from gateway import (TOP, Gateway, Ledger, background,  # noqa: E402
                     executed, finish, ok, same, until)
from redisd import Redis  # noqa: E402

os.makedirs(TOP + '/build', exist_ok=True)
work = tempfile.mkdtemp(prefix='move-', dir=TOP + '/build')
with open(work + '/secret', 'wb') as f:
    f.write(b'0123456789abcdef' * 2)
os.chmod(work + '/secret', 0o600)

up, query = Ledger(), Ledger()
one, two = Redis(), Redis()

TARGETS = {
    'shm': lambda name: 'shm:16m',
    'sqlite': lambda name: 'sqlite:%s/%s/keys.db timeout=5s' % (work, name),
    'redis': lambda name: 'redis://127.0.0.1:%d timeout=5s prefix=%s:' % (
        one.port, name),
    'redis2': lambda name: 'redis://127.0.0.1:%d timeout=5s prefix=%s: '
                           'cache=1m' % (two.port, name),
}

LOCATIONS = '''
    location /%(at)s/pay/ {
        idempotency %(store)s;
        idempotency_scope pay;
        proxy_pass http://up/;
    }
    location /%(at)s/wait/ {
        idempotency %(store)s;
        idempotency_scope pay;
        idempotency_in_progress wait=15s;
        proxy_pass http://up/;
    }
    location /%(at)s/retry/ {
        idempotency %(store)s;
        idempotency_scope pay;
        idempotency_unknown retry;
        proxy_pass http://up/;
    }
    location /%(at)s/probe/ {
        idempotency %(store)s;
        idempotency_scope pay;
        idempotency_unknown probe=/ask;
        proxy_pass http://up/;
    }
    location /%(at)s/short/ {
        idempotency %(store)s;
        idempotency_scope short;
        idempotency_ttl 1s tombstone=1h;
        proxy_pass http://up/;
    }
    location /%(at)s/sealed/ {
        idempotency %(store)s;
        idempotency_scope sealed;
        idempotency_secret %(secret)s;
        proxy_pass http://up/;
    }
    location /%(at)s/number/ {
        idempotency %(store)s;
        idempotency_scope number;
        idempotency_sequence strict;
        proxy_pass http://up/;
    }
    location = /%(at)s/token {
        idempotency_token %(store)s ttl=1h;
        idempotency_scope token;
    }
    location /%(at)s/spend/ {
        idempotency %(store)s;
        idempotency_scope token;
        idempotency_issued on;
        proxy_pass http://up/;
    }
    location = /%(at)s/lookup {
        idempotency_lookup %(store)s;
        idempotency_scope pay;
    }
    location = /%(at)s/mine {
        idempotency_lookup %(store)s cancel;
        idempotency_scope pay;
    }
    location = /%(at)s/admin {
        idempotency_lookup %(store)s admin;
        idempotency_scope pay;
        allow all;
    }
'''


def locations(old=True):
    text = '''
    location = /ask {
        internal;
        proxy_set_header X-Fence $idempotency_fence;
        proxy_pass http://127.0.0.1:%d$http_x_probe;
    }
    location = /stats { idempotency_stats; }
''' % query.port
    for at in ('old', 'new') if old else ('new',):
        text += LOCATIONS % dict(at=at, store=at, secret=work + '/secret')
    return text


def reload(gw, **changes):
    gw.write(**changes)
    before = gw.workers()
    gw.signal(signal.SIGHUP)
    ok(until(lambda: gw.workers() and not set(gw.workers()) & set(before), 20),
       'a reload')


class Pair:
    """an old and a new store, and one nginx that has both"""

    def __init__(self, old, new):
        self.name = '%s to %s' % (old, new)
        self.id = '%s-%s' % (old, new)
        target = TARGETS[new](self.id + '-new')
        self.old = 'idempotency_store old %s;' % TARGETS[old](self.id + '-old')
        self.moving = 'idempotency_store new %s from=old;' % target
        self.moved = 'idempotency_store new %s;' % target
        self.common = 'idempotency_lease 1500ms;'
        self.gw = Gateway(up, workers=2, size='1m',
                          http=self.moving + self.old + self.common,
                          locations=locations())

    def send(self, path, key, body=b'x', **headers):
        return self.gw.post(path, '%s-%s' % (self.id, key), body,
                            headers=[(n.replace('_', '-'), v)
                                     for n, v in headers.items()])

    def old_does(self, path, key, **args):
        return self.send('/old/' + path, key, **args)

    def new_does(self, path, key, **args):
        return self.send('/new/' + path, key, **args)

    def count(self, key, n, name):
        executed(up, '%s-%s' % (self.id, key), n, '%s: %s' % (self.name, name))

    def is_same(self, got, want, name):
        return same(got, want, '%s: %s' % (self.name, name))

    def replays(self, path, key, first, name, **args):
        again = self.send(path, key, **args)
        self.is_same((again.status, again.body, again.replayed),
                     (first.status, first.body, True), name)
        return again

    def says(self, path, key, want, name, **args):
        again = self.send(path, key, **args)
        self.is_same((again.status, again.code), want, name)
        return again

    def lookup(self, at, key):
        a = self.gw.post('/%s/lookup' % at, '%s-%s' % (self.id, key), None,
                         method='GET')
        return json.loads(a.body)

    def admin(self, at, key, method, args, body=None):
        return self.gw.post('/%s/admin?%s' % (at, args),
                            '%s-%s' % (self.id, key), body, method=method,
                            headers=[('Content-Type', 'text/plain')])

    def fences(self, key):
        return [int(dict(e[4])['x-fence'])
                for e in up.of('%s-%s' % (self.id, key))]

    def stats(self):
        return {s['name']: s for s in json.loads(
            self.gw.post('/stats?format=json', None, None, method='GET')
            .body)['stores']}


# ---- cases

def done(p):
    first = p.old_does('pay/ok', 'done')
    before = p.stats()['new']['from']['answers']
    again = p.replays('/new/pay/ok', 'done', first, 'done in the old store')
    p.is_same(again.get('x-effect'), first.get('x-effect'), 'its headers')
    p.says('/new/pay/ok', 'done', (422, 'key_reused'),
           'another body is compared with the old record', body=b'y')
    p.replays('/new/pay/ok', 'done', first, 'and that has changed nothing')
    p.is_same(p.stats()['new']['from'],
              dict(store='old', answers=before + 3),
              'claims that only the old store could answer are counted')
    p.count('done', 1, 'a key of the old store')

    first = p.old_does('pay/big/300000', 'big')
    p.replays('/new/pay/big/300000', 'big', first, 'a long answer')
    first = p.old_does('pay/trailers', 'trailers')
    again = p.replays('/new/pay/trailers', 'trailers', first,
                      'an answer with trailers')
    p.is_same(again.trailers, first.trailers, 'its trailers')
    first = p.old_does('sealed/ok', 'sealed')
    p.replays('/new/sealed/ok', 'sealed', first, 'a sealed answer')


def new_key(p):
    before = p.stats()['new']['from']['answers']
    first = p.new_does('pay/big/70000', 'new')
    p.is_same(first.status, 201, 'a new key')
    p.replays('/new/pay/big/70000', 'new', first, 'is replayed')
    p.replays('/new/pay/big/70000', 'new', first, 'again, perhaps cached')
    p.replays('/old/pay/big/70000', 'new', first,
              'also by a gateway that knows the old store only')
    p.count('new', 1, 'a new key')
    p.is_same(p.stats()['new']['from']['answers'], before,
              'that is no answer of the old store')
    new, old = p.lookup('new', 'new'), p.lookup('old', 'new')
    p.is_same((new['state'], new['fence'], new['status'], new['attempts']),
              (old['state'], old['fence'], old['status'], old['attempts']),
              'both stores have the same record')


def running(p):
    for here, there in ('old', 'new'), ('new', 'old'):
        key = 'run-' + here
        up.hold()
        first = background(p.send, '/%s/wait/wait' % here, key)
        up.until('%s-%s' % (p.id, key))
        p.says('/%s/pay/wait' % there, key, (409, 'in_progress'),
               'runs at the %s one, asked at the %s one' % (here, there))
        p.says('/%s/pay/wait' % there, key, (422, 'key_reused'),
               'with another body', body=b'other')
        p.is_same(p.lookup(there, key)['state'], 'executing', 'lookup')
        waiter = background(p.send, '/%s/wait/wait' % there, key)
        time.sleep(0.2)
        # longer than a lease: it is renewed in both stores
        end = time.time() + 2
        while time.time() < end:
            again = p.send('/%s/pay/wait' % there, key)
            if again.code != 'in_progress':
                break
            time.sleep(0.1)
        p.is_same(again.code, 'in_progress', 'the lease is renewed')
        up.go()
        first, waiter = first.join(), waiter.join()
        p.is_same((first.status, waiter.status, waiter.body, waiter.replayed),
                  (201, 201, first.body, True), 'who waits gets the answer')
        p.count(key, 1, 'running at the %s one' % here)


def unknown(p):
    for at in 'old', 'new':
        key = 'lost-' + at
        p.is_same(p.send('/%s/pay/reset' % at, key).status, 502, 'no answer')
        for there in 'new', 'old':
            p.says('/%s/pay/reset' % there, key, (409, 'outcome_unknown'),
                   'an unknown of the %s one, at the %s one' % (at, there))
        shown = p.lookup('new', key)
        p.is_same(shown['state'], 'unknown', 'lookup')
        p.is_same(p.admin('new', key, 'POST',
                          'resolve=executed&status=200&fence=1', b'no').status,
                  409, 'another fence is refused')
        done = p.admin('new', key, 'POST', 'resolve=executed&status=200'
                       '&fence=%s' % shown['fence'], b'settled')
        p.is_same(done.status, 200, 'an operator settles it')
        for there in 'new', 'old':
            again = p.send('/%s/pay/reset' % there, key)
            p.is_same((again.status, again.body), (200, b'settled'),
                      'and all gateways give that answer')
        p.count(key, 1, 'resolved as executed')

        key = 'gone-' + at
        p.send('/%s/pay/flaky' % at, key)
        done = p.admin('new', key, 'POST', 'resolve=not-executed&fence=%s'
                       % p.lookup('new', key)['fence'])
        p.is_same(done.status, 200, 'an operator frees it')
        first = p.send('/new/pay/flaky', key)
        p.is_same(first.status, 201, 'it is executed')
        p.replays('/old/pay/flaky', key, first, 'and known to the old one')
        p.count(key, 2, 'resolved as not executed')

        key = 'retry-' + at
        p.send('/%s/pay/flaky' % at, key)
        p.says('/new/retry/flaky', key, (422, 'key_reused'),
               'unknown retry: not with another body', body=b'other')
        first = p.send('/new/retry/flaky', key)
        p.is_same(first.status, 201, 'unknown retry')
        p.replays('/old/pay/flaky', key, first, 'unknown retry: known to both')
        p.count(key, 2, 'unknown retry')
        ok(p.fences(key) == sorted(set(p.fences(key))),
           p.name + ': under a higher fence', p.fences(key))

        key = 'probe-' + at
        p.send('/%s/pay/reset' % at, key)
        first = p.send('/new/probe/reset', key, X_Probe='/ok')
        p.is_same(first.status, 201, 'a probe finds the answer')
        for there in 'new', 'old':
            again = p.send('/%s/pay/reset' % there, key)
            p.is_same((again.status, again.body), (201, first.body),
                      'the answer of the probe, everywhere')
        p.count(key, 1, 'a probe that finds the answer')

        key = 'never-' + at
        p.send('/%s/pay/flaky' % at, key)
        p.says('/new/probe/flaky', key, (409, 'outcome_unknown'),
               'a probe that does not know', X_Probe='/status/500')
        first = p.send('/new/probe/flaky', key, X_Probe='/status/404')
        p.is_same(first.status, 201, 'a probe says never: it is executed')
        p.replays('/old/pay/flaky', key, first, 'and known to both')
        p.count(key, 2, 'a probe that says never')


def expired(p):
    key = 'tomb'
    p.old_does('short/ok', key)
    p.new_does('short/ok', key + '2')
    ok(until(lambda: p.send('/new/short/ok', key).status == 410, 10, 0.1),
       p.name + ': a tombstone of the old store')
    ok(until(lambda: p.send('/new/short/ok', key + '2').status == 410, 10,
             0.1), p.name + ': and one of both')
    p.says('/old/short/ok', key + '2', (410, 'key_expired'),
           'which the old one has as well')
    p.count(key, 1, 'a tombstone')
    p.count(key + '2', 1, 'a tombstone of both')


def released(p):
    for here, there in ('old', 'new'), ('new', 'old'):
        key = 'busy-' + here
        p.is_same(p.send('/%s/pay/status/503' % here, key).status, 503,
                  'not executed')
        p.is_same(p.send('/%s/pay/status/503' % there, key).status, 503,
                  'so another gateway may')
        p.is_same(p.send('/%s/pay/status/503' % here, key).status, 503,
                  'and the first one again')
        p.count(key, 3, 'released')
        ok(p.fences(key) == sorted(set(p.fences(key))),
           p.name + ': fences grow across gateways', p.fences(key))


def tokens(p):
    def issue(at):
        text = p.gw.post('/%s/token' % at, None, b'').body.decode()
        return re.search(r'"token":"([^"]+)"', text).group(1)

    def spend(at, token):
        return p.gw.post('/%s/spend/ok' % at, token)

    for here in 'old', 'new':
        for there in 'old', 'new':
            token = issue(here)
            first = spend(there, token)
            p.is_same(first.status, 201, 'a token of the %s one, spent at the '
                      '%s one' % (here, there))
            for at in 'old', 'new':
                p.is_same(spend(at, token).body, first.body, 'only once')
            same(up.count(token), 1, p.name + ': executed once')
    token = issue('old')
    p.gw.post('/new/spend/status/503', token)
    p.is_same(spend('new', token).status, 201, 'a token that was given back')
    p.is_same(spend('new', 'never').status, 403, 'one that was never issued')


def numbers(p):
    def send(at, n, word='ok'):
        return p.gw.post('/%s/number/%s/%s' % (at, p.id, word), str(n),
                         headers=[('X-Source', p.id)])

    first = [send('old', n) for n in (1, 2, 3)]
    p.is_same([a.status for a in first], [201] * 3, 'numbers')
    again = send('new', 2)
    p.is_same((again.body, again.replayed), (first[1].body, True),
              'a number of the old store')
    again = send('new', 6)
    p.is_same((again.code, json.loads(again.body).get('expected')),
              ('out_of_order', 4), 'its mark')
    p.is_same([send('new', 4).status, send('old', 5).status,
               send('new', 6, 'status/503').status, send('new', 6).status,
               send('new', 7).status], [201, 201, 503, 201, 201], 'go on')
    p.is_same(send('old', 9).code, 'out_of_order', 'at both')


def purged(p):
    for at in 'old', 'new':
        key = 'purge-' + at
        p.send('/%s/pay/ok' % at, key)
        fence = p.lookup('new', key)['fence']
        p.is_same(p.admin('new', key, 'DELETE', 'fence=%s' % fence).status,
                  200, 'an operator purges')
        p.is_same([p.lookup(a, key)['status'] for a in ('old', 'new')],
                  [404, 404], 'both stores forget')
        p.send('/new/pay/ok', key)
        p.count(key, 2, 'purged')


def together(p):
    """the same key at gateways of both kinds, at the same moment"""
    bad = []
    for i in range(25):
        key = 'race-%d' % i
        all_ = [background(p.send, '/%s/wait/slow/20' % at, key)
                for at in ('old', 'new', 'new', 'old')]
        got = {(a.status, a.body) for a in [t.join() for t in all_]}
        if len(got) > 1 or up.count('%s-%s' % (p.id, key)) != 1:
            bad.append((key, up.count('%s-%s' % (p.id, key)), got))
    ok(not bad, p.name + ': at the same moment: executed once, one answer',
       bad)


def finished(p):
    """from= is removed: what has happened meanwhile is known"""
    path, key = '/new/pay/ok', 'kept'
    first = p.new_does('pay/ok', key)
    p.new_does('pay/reset', 'unsettled')
    p.new_does('pay/status/503', 'free')
    fences = p.fences('free')
    reload(p.gw, http=p.moved + p.common, locations=locations(old=False))
    p.replays(path, key, first, 'after the move')
    p.says('/new/pay/reset', 'unsettled', (409, 'outcome_unknown'),
           'after the move: an unknown')
    p.new_does('pay/ok', 'free')
    ok(p.fences('free')[-1] > fences[-1], p.name + ': fences still grow')
    p.count(key, 1, 'after the move')
    n = p.gw.post('/new/number/%s/ok' % p.id, '9',
                  headers=[('X-Source', p.id)])
    p.is_same((n.code, json.loads(n.body).get('expected')),
              ('out_of_order', 8), 'the new store has the mark')


def cancelled(p):
    def cancel(at, key):
        a = p.gw.post('/%s/mine' % at, '%s-%s' % (p.id, key), None,
                      method='DELETE')
        return a.status, json.loads(a.body)['state']

    p.is_same(cancel('new', 'cancel'), (200, 'cancelled'), 'a cancelled key')
    for at in ('new', 'old'):
        p.says('/%s/pay/ok' % at, 'cancel', (410, 'key_cancelled'),
               'cancelled in both stores: ' + at)
        p.is_same(cancel(at, 'cancel'), (200, 'cancelled'),
                  'cancelled before: ' + at)
    p.is_same(cancel('old', 'cancel-old'), (200, 'cancelled'),
              'cancelled by a gateway that knows the old store only')
    p.says('/new/pay/ok', 'cancel-old', (410, 'key_cancelled'),
           'and the new store asks the old one')
    p.is_same(cancel('new', 'cancel-old'), (200, 'cancelled'),
              'cancelled in the old store before')
    p.old_does('pay/ok', 'cancel-done')
    p.is_same(cancel('new', 'cancel-done'), (409, 'done'),
              'executed, as the old store knows')
    p.new_does('pay/ok', 'cancel-both')
    p.is_same(cancel('new', 'cancel-both'), (409, 'done'), 'executed')
    p.count('cancel', 0, 'cancelled')
    p.count('cancel-old', 0, 'cancelled in the old store')


CASES = (done, new_key, running, unknown, expired, released, tokens, numbers,
         purged, cancelled, together, finished)
PAIRS = (('shm', 'sqlite'), ('sqlite', 'redis'), ('redis', 'redis2'),
         ('shm', 'redis2'), ('redis', 'sqlite'), ('redis2', 'shm'))


# ---- the configuration

gw = Gateway(up, size='1m')


def refuses(stores, *words):
    gw.write(http=stores)
    text = gw.command('-t').stderr
    ok(all(w in text for w in words), 'refused: ' + stores, text)


refuses('idempotency_store a shm:1m from=b;',
        'store "b" that is named in', 'is not defined')
refuses('idempotency_store a shm:1m from=a;',
        '"from=a" of "idempotency_store" "a"', 'take over from itself')
refuses('idempotency_store a shm:1m from=;', '"from="', 'as in "from=old"')
refuses('idempotency_store a shm:1m from=main from=main;', 'duplicate',
        '"from=main"')
refuses('idempotency_store a shm:1m from=b; idempotency_store b shm:1m '
        'from=main;', '"from=b" of "idempotency_store" "a"',
        'takes over from "main" itself', 'remove "from=main" of "b"')
gw.write(http='idempotency_store a shm:1m from=b; idempotency_store b shm:1m;')
same(gw.command('-t').returncode, 0, 'before its definition')
gw.stop()

only = os.environ.get('PAIR')
for old, new in PAIRS:
    if only and only != '%s-%s' % (old, new):
        continue
    pair = Pair(old, new)
    for case in CASES:
        case(pair)
    pair.gw.stop()

shutil.rmtree(work, ignore_errors=True)
finish()
