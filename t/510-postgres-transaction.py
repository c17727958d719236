#!/usr/bin/env python3
"""Commit with the work: the service commits the record of its request in its
own transaction.  An answer that was lost is found in the record if and only if
the work has committed; if it has not, the retry runs under a higher fence and
a late transaction of the first attempt is refused.  No outcome stays unknown.
"""

import http.server
import json
import os
import random
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + '/drive')
from gateway import Gateway, Ledger, finish, ok, same, until  # noqa: E402
from postgresd import Server  # noqa: E402

try:
    import psycopg
except ImportError:
    # Debian's package is for Debian's Python
    if sys.executable == '/usr/bin/python3':
        sys.exit('Bail out! python3-psycopg is not installed')
    os.execv('/usr/bin/python3', ['/usr/bin/python3', '-B',
                                  os.path.abspath(__file__)])

db = Server()
db.schema('idempotency')
db.sql('CREATE TABLE payments (operation text, fence bigint)',
       'GRANT INSERT, SELECT ON payments TO app')


class Service(http.server.BaseHTTPRequestHandler):
    """What it does is in the path, one word for each fault."""

    protocol_version = 'HTTP/1.1'
    refused = []
    gates = {}

    def log_message(self, *args):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers.get('Content-Length', 0)))
        key = self.headers['X-Record']
        fence = int(self.headers['X-Fence'])
        words = self.path.strip('/').split('/')
        first = key not in Service.gates
        gate = Service.gates.setdefault(key, threading.Event())
        if 'lateonce' in words and first:
            gate.wait(20)
        answer = self.work(key, fence, words, first)
        if answer is None:
            self.close_connection = True
            return
        status, body = answer
        if 'differ' in words:
            status, body = 200, b'other'
        if 'loseonce' in words and first or 'lose' in words:
            self.close_connection = True
            return
        if 'silentonce' in words and first:
            time.sleep(4)
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('X-From', 'service')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def work(self, key, fence, words, first):
        body = b'{"paid":true}'
        if 'bare' in words:
            db.sql("INSERT INTO payments VALUES ('%s', %d)" % (key, fence))
            return 201, body
        try:
            with psycopg.connect(db.dsn()) as conn:
                with conn.cursor() as cur:
                    cur.execute('SELECT * FROM idempotency.begin(%s, %s)',
                                (key, fence))
                    status, _, stored = cur.fetchone()
                    if status is not None:
                        conn.rollback()
                        return status, stored or b''
                    cur.execute('INSERT INTO payments VALUES (%s, %s)',
                                (key, fence))
                    if 'slow' in words:
                        time.sleep(6)
                    if 'forget' not in words:
                        cur.execute('SELECT idempotency.executed'
                                    '(%s, %s, 201, %s)', (key, fence, body))
                    if 'rollbackonce' in words and first:
                        conn.rollback()
                        return None
        except psycopg.Error as e:
            Service.refused.append((key, fence, e.sqlstate))
            return None
        return 201, body


class Services(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        """the gateway has not waited"""


service = Services(('127.0.0.1', 0), Service)
threading.Thread(target=service.serve_forever, daemon=True).start()

LOCATION = '''
    location /pay/ {
        idempotency main;
        idempotency_unknown transaction;
        idempotency_lease 2s;
        proxy_set_header X-Record $idempotency_record;
        proxy_set_header X-Fence $idempotency_fence;
        proxy_read_timeout 1s;
        proxy_pass http://127.0.0.1:%d;
    }
    location = /stats {
        idempotency_stats;
    }
'''


ALERT = 'the service has answered 201 and did not commit the record'


def payments():
    return int(db.sql('SELECT count(*) FROM payments'))


def unknowns():
    return int(db.sql('SELECT count(*) FROM idempotency.records '
                      'WHERE state = 3 AND flags & 4 = 0'))


def post(path, key):
    return gw.post('/pay/' + path, key)


def retry(path, key, seconds=20):
    """As a client does, until there is an answer."""
    end = time.time() + seconds
    while True:
        a = post(path, key)
        if a.status == 201 or time.time() > end:
            return a
        time.sleep(0.2)


def test_plain():
    before = payments()
    a = post('ok', 'plain')
    same((a.status, a.body, a.get('x-from')),
         (201, b'{"paid":true}', 'service'), 'the answer of the service')
    a = post('ok', 'plain')
    same((a.status, a.replayed, a.get('x-from')),
         (201, True, 'service'), 'is replayed with its header')
    same(payments() - before, 1, 'one payment')


def test_committed_and_lost():
    for word in ('loseonce', 'silentonce'):
        before = payments()
        a = post(word, word)
        same((a.status, a.body), (201, b'{"paid":true}'),
             '%s: what has committed is the answer' % word)
        a = post(word, word)
        same((a.status, a.replayed, a.body), (201, True, b'{"paid":true}'),
             '%s: and is replayed' % word)
        same(payments() - before, 1, '%s: one payment' % word)


def test_differs():
    a = post('differ', 'differ')
    same((a.status, a.body), (201, b'{"paid":true}'),
         'what was committed wins over what was answered')
    a = post('differ', 'differ')
    same((a.status, a.replayed, a.body), (201, True, b'{"paid":true}'),
         'also later')


def test_rolled_back():
    before = payments()
    a = post('rollbackonce', 'rolled')
    ok(a.status >= 500, 'nothing was committed: an error', a.status)
    a = retry('rollbackonce', 'rolled')
    same((a.status, a.replayed), (201, False), 'the retry runs')
    same(payments() - before, 1, 'one payment')


def test_late():
    """The first transaction begins when the retry has run."""
    before = payments()
    a = post('lateonce', 'late')
    same(a.status, 504, 'no answer in time')
    a = retry('lateonce', 'late')
    same(a.status, 201, 'the retry runs')
    seen = len(Service.refused)
    for gate in Service.gates.values():
        gate.set()
    ok(until(lambda: len(Service.refused) > seen, 10), 'the first one wakes')
    same(Service.refused[-1][2], 'IK001', 'and is refused')
    same(payments() - before, 1, 'one payment')


def test_slow():
    """A transaction that is longer than lease and time-out."""
    before = payments()
    a = post('slow', 'slow')
    same(a.status, 504, 'no answer in time')
    began = time.time()
    a = post('slow', 'slow')
    same((a.status, a.code), (409, 'in_progress'), 'its work is under way')
    ok(time.time() - began < 1.5, 'nobody waits for its lock',
       time.time() - began)
    a = retry('slow', 'slow')
    same((a.status, a.body), (201, b'{"paid":true}'), 'then its answer')
    same(payments() - before, 1, 'one payment')


def test_forgets():
    before = payments()
    a = post('forget', 'forget')
    ok(a.status >= 500, 'begin() without executed() does not commit',
       a.status)
    same(Service.refused[-1][2], 'IK005', 'by name')
    same(payments() - before, 0, 'no payment')

    # neither of them
    a = post('bare', 'bare')
    same(a.status, 201, 'a service that calls neither')
    ok(gw.until_log(ALERT), 'that is logged at alert', gw.log()[-800:])
    stats = json.loads(gw.post('/stats', None, b'', 'GET').body)
    same(stats['stores'][0]['uncommitted'], 1, 'and counted')


def test_random():
    """Backends, workers and gateways' connections die; clients retry."""
    before = payments()
    n = 36
    done = []
    stop = threading.Event()

    def again(i):
        return retry(('ok', 'loseonce', 'rollbackonce')[i % 3],
                     'random-%d' % i, 60)

    def client(i):
        a = again(i)
        done.append((i, a.status, a.body))

    def killer():
        while not stop.wait(0.3):
            what = random.randrange(3)
            if what == 0:
                for pid in gw.workers()[:1]:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except OSError:
                        pass
            else:
                db.sql('SELECT pg_terminate_backend(pid) FROM '
                       'pg_stat_activity WHERE usename = %s AND '
                       'random() < 0.5' % ("'nginx'", "'app'")[what - 1],
                       check=False)

    def run(numbers):
        for i in numbers:
            try:
                client(i)
            except OSError:
                try:
                    client(i)
                except OSError:
                    done.append((i, 0, b''))

    killing = threading.Thread(target=killer)
    killing.start()
    threads = [threading.Thread(target=run, args=(range(k, n, 6),))
               for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    stop.set()
    killing.join()
    for i, status, _ in done:
        if status != 201:
            again(i)
    same(payments() - before, n, 'one payment for each key')
    same(db.sql('SELECT count(*) FROM (SELECT operation FROM payments GROUP BY '
                'operation HAVING count(*) > 1) x'), '0', 'and none twice')
    bad = [x for x in ((i, again(i)) for i in range(n))
           if x[1].status != 201]
    same(len(bad), 0, 'all keys have their answer')


def test_configuration():
    for store in ('shm:1m', db.target('idempotency') + ' from=x; '
                  'idempotency_store x shm:1m'):
        gw.write(store=store)
        done = gw.command('-t')
        ok(done.returncode and 'idempotency_unknown transaction' in
           done.stderr, 'refused with %s' % store.split()[0], done.stderr)


gw = Gateway(Ledger(), store=db.target('idempotency'), workers=2,
             locations=LOCATION % service.server_port)
gw.expected += ['worker process', 'exited on signal 9', ALERT]
test_plain()
test_committed_and_lost()
test_differs()
test_rolled_back()
test_late()
test_slow()
test_random()
same(unknowns(), 0, 'nothing is unknown at the end')
test_forgets()
test_configuration()
gw.stop()
finish()
