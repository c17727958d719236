"""How soon a duplicate that waits is answered."""

import statistics
import time

from gateway import Gateway, Ledger
from table import number, table

WAITS = 'idempotency_in_progress wait=30s;'


def report(bench, times):
    """Returns a table."""
    print('waiting duplicates', flush=True)
    up = Ledger()
    redis = 'redis://127.0.0.1:%d/%d' % (bench.redis.port,
                                         bench.redis.database())
    lines = []
    for name, gateways in (
            ('on the same worker', [('shm:10m', 1)]),
            ('on one of two workers', [('shm:10m', 2)]),
            ('on one of two workers, Redis', [(redis, 2)]),
            ('on another gateway, Redis', [(redis, 1), (redis, 1)])):
        running = [Gateway(up, workers=workers, http=WAITS, store=store)
                   for store, workers in gateways]
        late = sorted(once(up, running[0], running[-1],
                           '%s-%d' % (name.replace(' ', '-'), i))
                      for i in range(times))
        for gw in running:
            gw.stop()
        lines.append([name, number(statistics.median(late) * 1000),
                      number(late[len(late) * 9 // 10] * 1000)])
    return table(['a duplicate that waits', 'median ms', '9 of 10 within ms'],
                 lines)


def once(up, first, second, key):
    """From the moment when the upstream answers; seconds."""
    up.hold()
    one = first.call('/wait', key)
    up.until(key)
    two = second.call('/wait', key)
    # it waits, and has listened where it has to
    time.sleep(0.1)
    began = time.monotonic()
    up.go()
    answer = two.read()
    late = time.monotonic() - began
    if (answer.status, answer.replayed) != (201, True) \
            or one.read().body != answer.body:
        raise SystemExit('a duplicate that waited got %d' % answer.status)
    return late
