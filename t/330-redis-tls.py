#!/usr/bin/env python3
"""Redis over TLS.  The server's certificate is verified unless that is
switched off, against the configured CAs and the name in the target, or
"ssl_name="; otherwise nothing is sent.  The server may ask for a client
certificate.  All certificates are made here.
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
from certs import Certs  # noqa: E402
from gateway import (Gateway, Ledger, executed, finish, ok,  # noqa: E402
                     replays, same, since, until)
from redis_binary import skip_all  # noqa: E402
from redisd import Redis  # noqa: E402

skip_all('tls')
up = Ledger()
scratch = Redis(port=0)
certs = Certs(scratch.dir)
path = certs.path
numbers = iter(range(1000))


def redis(name, *options):
    return Redis(*options, tls=certs.redis(name))


def gateway(server, host, params):
    return Gateway(up, store='rediss://%s:%d timeout=1s %s'
                   % (host, server.port, params))


def works(server, params, name, host='localhost'):
    gw = gateway(server, host, params)
    key = 'works-%d' % next(numbers)
    a = gw.post('/big/100000', key)
    if same((a.status, a.replayed), (201, False), name + ': works'):
        replays(gw, '/big/100000', key, a, name)
        executed(up, key, 1, name)
    calls = [gw.call('/big/%d' % (100 + i * 300), '%s-%d' % (key, i))
             for i in range(60)]
    same({c.read().status for c in calls}, {201}, name + ': 60 at a time')
    wrong = 0
    for i in range(60):
        b = gw.post('/big/%d' % (100 + i * 300), '%s-%d' % (key, i))
        wrong += not (b.replayed and b.whole and len(b.body) == 100 + i * 300)
    same(wrong, 0, name + ': all replay')
    gw.stop()


def refuses(server, params, name, said, host='localhost'):
    before = server('DBSIZE')
    gw = gateway(server, host, params)
    for _ in range(3):
        key = 'refused-%d' % next(numbers)
        a = gw.post('/ok', key)
        same((a.status, a.code), (503, 'store_unavailable'),
             name + ': refused')
        executed(up, key, 0, name)
    time.sleep(0.5)
    same(gw.log().count(said), 1, name + ': logged once') or print(
        '# ' + gw.log().replace('\n', '\n# '))
    same(server('DBSIZE'), before, name + ': nothing was stored')
    gw.stop()


certs.ca('ca')
certs.ca('other')
certs.certificate('server', 'ca', 'DNS:localhost,DNS:redis.test,IP:127.0.0.1')
certs.certificate('stranger', 'ca', 'DNS:elsewhere.test')
certs.certificate('client', 'ca', 'DNS:gateway.test')
certs.certificate('imposter', 'other', 'DNS:localhost')

trust = 'ssl_trusted_certificate=' + path('ca.pem')
anybody = redis('server', '--tls-auth-clients', 'no')

works(anybody, trust, 'a certificate of the CA')
works(anybody, trust, 'an address in the certificate', host='127.0.0.1')
works(anybody, trust + ' ssl_name=redis.test', 'another of its names',
      host='127.0.0.1')
works(anybody, trust + ' connections=2', 'two connections')
works(anybody, 'ssl_verify=off', 'not verified')

refuses(anybody, '', 'a CA that the system does not know',
        'has a certificate that is not trusted')
refuses(anybody, 'ssl_trusted_certificate=' + path('other.pem'),
        'another CA', 'has a certificate that is not trusted')
refuses(anybody, trust + ' ssl_name=wrong.test', 'another name',
        'has a certificate that is not for "wrong.test"')
refuses(anybody, trust + ' ssl_name=127.0.0.2', 'another address',
        'has a certificate that is not for "127.0.0.2"')

stranger = redis('stranger', '--tls-auth-clients', 'no')
refuses(stranger, trust, 'a certificate of somebody else',
        'has a certificate that is not for "localhost"')
works(stranger, trust + ' ssl_name=elsewhere.test', 'called by its name')
stranger.remove()

imposter = redis('imposter', '--tls-auth-clients', 'no')
refuses(imposter, trust, 'an imposter', 'is not trusted')
imposter.remove()

strict = redis('server', '--tls-auth-clients', 'yes')
own = ' ssl_certificate=%s ssl_certificate_key=%s'
works(strict, trust + own % (path('client.pem'), path('client.key')),
      'a client certificate')
gw = gateway(strict, 'localhost', trust)
gw.expected += ['alert certificate required']    # nginx's own line
a = gw.post('/ok', 'nameless')
same((a.status, a.code), (503, 'store_unavailable'),
     'without a client certificate: refused')
gw.stop()
gw = gateway(strict, 'localhost',
             trust + own % (path('imposter.pem'), path('imposter.key')))
a = gw.post('/ok', 'imposter')
same((a.status, a.code), (503, 'store_unavailable'),
     'with one of another CA: refused')
gw.stop()
strict.remove()

# plain text on a port of TLS, and TLS on a port of plain text
gw = Gateway(up, store='redis://127.0.0.1:%d timeout=300ms' % anybody.port)
same(gw.post('/ok', 'plain').status, 503, 'plain text to TLS: refused')
gw.stop()
plain = Redis()
gw = Gateway(up, store='rediss://127.0.0.1:%d timeout=300ms '
             'connect_timeout=300ms %s' % (plain.port, trust))
same(gw.post('/ok', 'tls').status, 503, 'TLS to plain text: refused')
gw.stop()
plain.remove()

# lost and found
gw = gateway(anybody, 'localhost', trust + ' amnesia=0')
gw.expected = ['keys may be forgotten']
a = gw.post('/ok', 'restart')
time.sleep(1.1)
anybody.pause()
start = time.time()
same(gw.post('/ok', 'paused').status, 503, 'paused: refused')
ok(since(start) < 2.5, 'within twice the timeout')
anybody.resume()
ok(until(lambda: gw.post('/ok', 'paused').status == 201, 4), 'resumed')
replays(gw, '/ok', 'restart', a, 'resumed')
anybody.restart()
ok(until(lambda: gw.post('/ok', 'new').status == 201, 4), 'restarted')
gw.stop()
finish()
