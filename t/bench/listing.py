#!/usr/bin/env python3
"""What a list of unknowns costs with a million records, and who waits for it.

    make debug && python3 -B t/bench/listing.py [RECORDS]

Prints a line for each store: pages, the time of all and of the slowest, and
beside them the slowest of the requests that were made meanwhile, which is
what others notice.  Run by hand; docs/operate/unknowns.md has its figures.
"""

import http.client
import json
import os
import sys
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
os.environ.setdefault('TEST_NGINX_BINARY', '/usr/sbin/nginx')
os.environ.setdefault('TEST_NGINX_LOAD_MODULES',
                      TOP + '/build/debug/ngx_http_idempotency_module.so')
sys.path.insert(0, TOP + '/t/drive')
from gateway import Gateway, Ledger  # noqa: E402
from redisd import Redis  # noqa: E402

RECORDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000000
UNKNOWN = 300

LOCATIONS = '''
    location = /admin {
        idempotency_lookup main admin;
        idempotency_scope pay;
    }
'''

# copies of a record of the module's own under other names
COPY = """
local v = redis.call('GET', KEYS[1])
for i = ARGV[2], ARGV[3] do
  redis.call('SET', ARGV[1] .. redis.sha1hex(i) .. string.sub(
             redis.sha1hex(-i), 1, 24), v, 'PX', 86400000)
end
"""


class Asker:
    def __init__(self, port):
        self.conn = http.client.HTTPConnection('127.0.0.1', port, timeout=60)

    def __call__(self, path):
        start = time.perf_counter()
        self.conn.request('GET', path)
        body = self.conn.getresponse().read()
        return body, time.perf_counter() - start


def claims(port, stop, times):
    """other requests: each a claim and its completion"""
    ask, n = Asker(port), 0
    while not stop.is_set():
        n += 1
        times.append(ask('/store?op=claim&key=o%d&owner=o&lease=9999' % n)[1])
        ask('/store?op=complete&key=o%d&owner=o&status=200&ttl=600' % n)


def measure(name, gw):
    ask = Asker(gw.port)
    for i in range(UNKNOWN):
        for op in ('claim', 'mark_unknown'):
            ask('/store?op=%s&key=u%d&owner=o%d&lease=60000' % (op, i, i))
    stop, alone, beside = threading.Event(), [], []
    thread = threading.Thread(target=claims, args=(gw.port, stop, alone))
    thread.start()
    time.sleep(2)
    stop.set()
    thread.join()
    stop.clear()
    thread = threading.Thread(target=claims, args=(gw.port, stop, beside))
    thread.start()
    cursor, found, seen, times = '', 0, 0, []
    while cursor is not None:
        body, took = ask('/admin?state=unknown&cursor=' + cursor)
        page = json.loads(body)
        times.append(took)
        found += len(page['records'])
        seen += page['seen']
        cursor = page['cursor']
    stop.set()
    thread.join()

    def late(values):
        return 1000 * sorted(values)[int(len(values) * 0.999)]
    print('%s: %d records, %d unknown, %d pages, %.2f s, slowest page %.1f '
          'ms; 99.9%% of other requests within %.1f ms, %.1f ms without a '
          'list' % (name, seen, found, len(times), sum(times),
                    1000 * max(times), late(beside), late(alone)))
    gw.stop()


gw = Gateway(Ledger(), workers=2, size='%dm' % (RECORDS // 1500 + 8),
             locations=LOCATIONS)
ask = Asker(gw.port)
for first in range(0, RECORDS, 100000):
    ask('/store?op=fill&n=%d&from=%d'
        % (min(100000, RECORDS - first), first))
measure('shm', gw)

server = Redis()
gw = Gateway(Ledger(), workers=2, locations=LOCATIONS,
             store='redis://127.0.0.1:%d' % server.port)
ask = Asker(gw.port)
ask('/store?op=claim&key=first&owner=o&lease=9000')
ask('/store?op=complete&key=first&owner=o&status=200&ttl=86400')
key = server('KEYS', '*' + '?' * 64)[0]
for first in range(1, RECORDS, 20000):
    server('EVAL', COPY, 1, key, 'idem:', first, first + 19999)
measure('redis', gw)
