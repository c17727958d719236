"""A store whose servers change under load, with and without replicas=.

    gw = Gateway(up, locations=LOCATIONS, http=stores(url, replicas=2))
    safe, plain = loads(gw, up); ...; safe.stop(); plain.stop()
    settled(safe, 'with replicas=2')
"""

from gateway import ok
from retries import Load

FORGOTTEN = 'keys may be forgotten'


def location(name, store, lease='idempotency_lease 4s;'):
    return '''
    location /%s/ {
        idempotency %s;
        %s
        proxy_pass http://up;
    }
''' % (name, store, lease)


LOCATION = location('pay', 'red')
LOCATIONS = location('safe', 'safe') + location('plain', 'plain')


def store(target):
    return 'idempotency_store red %s;' % target


def stores(url, replicas):
    return '''
    idempotency_store safe  %s prefix=safe: replicas=%d amnesia=500ms;
    idempotency_store plain %s prefix=plain: amnesia=0;
''' % (url, replicas, url)


def loads(gw, up, clients):
    """two, which have begun"""
    safe = Load(gw, up, '/safe/slow/10', clients=clients)
    plain = Load(gw, up, '/plain/slow/10', clients=4, pause=0.1)
    plain.name += 'p'
    safe.start()
    plain.start()
    return safe, plain


def settled(load, name, strict=True):
    """strict: nothing may be lost; otherwise, how much was"""
    load.settle(120)
    print('# %s: %s' % (name, load.summary()))
    if strict:
        ok(not load.twice(), name + ': no key was executed twice',
           load.show(load.twice()))
        ok(not load.unequal(), name + ': all answers of a key are the same',
           load.show(load.unequal()))
    else:
        print('# %s: %d of %d keys were lost'
              % (name, len(load.twice()), len(load.keys)))
    ok(not load.open(), name + ': every key has come to its answer, or is '
       'unknown', load.show(load.open()))
