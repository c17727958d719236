#!/usr/bin/env python3
"""A database that is used for months: what has expired is removed faster than
1000 records a second, the file shrinks, the WAL is bounded under writers that
never pause, and a reader that holds a snapshot stops none of them.  Every
statement finds its rows by an index, so that nothing gets slower with age.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, 't', 'drive'))
from gateway import (Gateway, Ledger, background, finish,    # noqa: E402
                     ok, same, until)

os.makedirs(TOP + '/build', exist_ok=True)
work = tempfile.mkdtemp(prefix='upkeep-', dir=TOP + '/build')
db = work + '/keys/main.db'
MB = 1024 * 1024

up = Ledger()
gw = Gateway(up, store='sqlite:%s sync=normal timeout=5s' % db, workers=2,
             level='notice', locations='''
    location /suspects/ {
        idempotency main;
        idempotency_suspect report;
        proxy_pass http://up;
    }
''')
first = gw.post('/ok', 'first')
same(first.status, 201, 'it works')
conn = sqlite3.connect(db, isolation_level=None)


# ---- plans

def statements():
    with open(TOP + '/src/store/sqlite/'
              'ngx_idempotency_sqlite_statements.c') as f:
        text = f.read()
    macros = re.findall(r'#define NGX_IDEMPOTENCY_SQLITE_(?:.*\\\n)*.*\n', text)
    array = re.search(r'ngx_idempotency_sqlite_statements\[\] = (\{.*?\n\});',
                      text, re.S).group(1)
    array = subprocess.run(['gcc', '-E', '-P', '-'], check=True, text=True,
                           input=''.join(macros) + array,
                           capture_output=True).stdout
    texts = re.sub(r'"\s+"', '', array)
    return re.findall('"(.*?)"', texts, re.S)


plans = 0
for sql in statements():
    if not re.match('SELECT|UPDATE|DELETE|INSERT', sql):
        continue
    rows = conn.execute('EXPLAIN QUERY PLAN ' + sql,
                        [0] * len(set(re.findall(r'\?\d+', sql)))).fetchall()
    bad = [row[3] for row in rows
           if re.match('SCAN|USE TEMP', row[3])]
    same(bad, [], 'an index: ' + sql[:60])
    plans += 1
ok(plans >= 18, 'all statements', plans)


# ---- expiry, and the file shrinks

def insert(n, state, due):
    """records as nginx writes them, of another age"""
    conn.execute('BEGIN IMMEDIATE')
    conn.execute("""WITH RECURSIVE n(i) AS
        (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
        INSERT INTO answers (head, body) SELECT zeroblob(100), zeroblob(1500)
        FROM n""", (n if state == 4 else 0,))
    last, = conn.execute('SELECT ifnull(max(id), 0) FROM answers').fetchone()
    conn.execute("""WITH RECURSIVE n(i) AS
        (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)
        INSERT INTO %s SELECT randomblob(32), ?, owner, fingerprint,
            fence, ?, ?, 0, created, 1, 0, 0, 201, kept, boot,
            CASE WHEN ? = 4 THEN ? - i ELSE 0 END, ?, NULL
        FROM n, (SELECT * FROM records WHERE state = 4 LIMIT 1)"""
                 % ('executing' if state == 2 else 'records'),
                 (n, state, due, due, state, last, due))
    conn.execute('COMMIT')


def count(table, where='1'):
    return conn.execute('SELECT count(*) FROM %s WHERE %s' % (table, where)
                        ).fetchone()[0]


def clock():
    return conn.execute("SELECT value FROM meta WHERE name = 'clock'"
                        ).fetchone()[0]


slowest = served = 0
stop = threading.Event()


def client(n):
    global slowest, served
    i = 0
    while not stop.is_set():
        begin = time.time()
        a = gw.post('/ok', 'load-%d-%d-%d' % (n, i, id(stop)))
        slowest = max(slowest, time.time() - begin)
        if a.status != 201:
            return a
        i += 1
        served += 1
    return i


def load(n):
    global slowest, served
    stop.clear()
    slowest = served = 0
    return [background(client, i) for i in range(n)]


def unload(clients):
    stop.set()
    done = [c.join() for c in clients]
    ok(all(isinstance(d, int) for d in done), 'all requests are executed',
       [d for d in done if not isinstance(d, int)][:1])
    return sum(d for d in done if isinstance(d, int))


N = 20000
old = clock() - 60000
insert(N, 4, old)
insert(50, 2, old)
conn.execute('PRAGMA wal_checkpoint(TRUNCATE)')
large = os.path.getsize(db)
start = time.time()
clients = load(4)
ok(until(lambda: count('records', 'due = %d' % old) == 0, 60, 0.1),
   'what has expired is removed')
took = time.time() - start
unload(clients)
print('# %.0f expired records a second, slowest request %.0f ms'
      % (N / took, slowest * 1000))
ok(slowest < took / 2, 'no request waits for all of it', (slowest, took))
ok(until(lambda: count('executing') == 0, 20, 0.1),
   'and what was never settled', count('executing'))


def small():
    gw.post('/ok', 'small-%f' % time.time())
    conn.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    return os.path.getsize(db) < large / 3


ok(until(small, 30, 0.2), 'the file shrinks',
   (large, os.path.getsize(db)))
same(gw.post('/ok', 'first').body, first.body, 'what has not expired stays')


# ---- the WAL

def wal():
    return os.path.getsize(db + '-wal')


largest = 0


def watched(enough):
    global largest
    largest = max(largest, wal())
    return enough()


clients = load(16)
ok(until(lambda: watched(lambda: served > 6000), 120, 0.01),
   'writers that never pause', served)
n = unload(clients)
ok(largest < 28 * MB, 'the WAL is bounded', largest)
print('# %d requests, WAL %.1f MB' % (n, largest / MB))

reader = sqlite3.connect(db, isolation_level=None)
reader.execute('BEGIN')
held = reader.execute('SELECT count(*) FROM records').fetchone()
clients = load(16)
ok(until(lambda: wal() > 32 * MB, 120, 0.01),
   'a reader that holds a snapshot stops no request, the WAL grows', wal())
unload(clients)
same(reader.execute('SELECT count(*) FROM records').fetchone(), held,
     'and sees what it has seen')
reader.execute('ROLLBACK')
reader.close()
clients = load(8)
ok(until(lambda: wal() < 28 * MB, 20, 0.1), 'then it is bounded again', wal())
unload(clients)
same(conn.execute('PRAGMA integrity_check').fetchall(), [('ok',)],
     'the database is whole')

conn.close()
gw.stop()
shutil.rmtree(work, ignore_errors=True)
finish()
