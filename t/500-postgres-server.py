#!/usr/bin/env python3
"""What PostgreSQL can do to its gateways: it is away, restarts, stops to
answer, kills connections, is read-only, full of locks, has no schema or
another one, gives no rights, or is set to lose what it has confirmed.  New keys get 503 in time and a log line that
says what to do; outcomes are stored when it is back; nothing runs twice.
"""

import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + '/drive')
from gateway import Gateway, Ledger, finish, ok, same, until  # noqa: E402
from postgresd import Server  # noqa: E402

BACKENDS = ("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE usename = 'nginx'")

db = Server()
up = Ledger()
db.schema('gateway')
gw = Gateway(up, store=db.target('gateway'), workers=2)


def back(key):
    return until(lambda: gw.post('/ok', key).status == 201, 20)


def executed(key, times, what):
    same(up.count(key), times, '%s: executed %d times' % (what, times))


def test_life():
    a = gw.post('/ok', 'life')
    same((a.status, a.replayed), (201, False), 'a new key')
    a = gw.post('/ok', 'life')
    same((a.status, a.replayed), (201, True), 'is replayed')
    executed('life', 1, 'a new key')
    same(db.sql('SELECT count(*) FROM gateway.records WHERE state = 4'), '1',
         'it is in the table')
    same(db.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'gateway' "
                "AND has_table_privilege('nginx', "
                "quote_ident(schemaname) || '.' || tablename, 'SELECT')"),
         '0', 'the gateway may read no table')
    done = db.sql('SET ROLE nginx', "SELECT gateway.begin('00', 1)",
                  check=False)
    ok('permission denied' in done.stderr, 'nor call what is the service\'s')
    done = db.sql('SET ROLE app', 'SELECT gateway.expire(1, true)',
                  check=False)
    ok('permission denied' in done.stderr,
       'and the service not what is the gateway\'s')


def test_killed_backends():
    for i in range(5):
        db.sql(BACKENDS)
        ok(back('killed-%d' % i), 'connections are made again')
        executed('killed-%d' % i, 1, 'after connections were killed')
    ok('lost its connection to PostgreSQL' in gw.log(), 'that is logged')


def test_away():
    up.hold()
    c = gw.call('/wait', 'running')
    up.until('running')
    start = len(gw.log())
    db.stop()
    up.go()
    same(c.read().status, 201, 'what runs is answered while it is away')
    began = time.time()
    a = gw.post('/ok', 'away')
    same((a.status, a.code), (503, 'store_unavailable'), 'a new key is not')
    ok(time.time() - began < 5, 'at once', time.time() - began)
    ok(gw.until_log('cannot connect to PostgreSQL', start=start),
       'that is logged')
    executed('away', 0, 'refused')
    db.start()
    ok(back('away'), 'it is back')
    executed('away', 1, 'afterwards')
    ok(until(lambda: gw.post('/wait', 'running').replayed, 10),
       'the outcome was stored in background')
    executed('running', 1, 'an outcome that waited')
    ok(gw.until_log('connected to PostgreSQL again', start=start),
       'that is logged, too')


def test_stopped():
    """no backend answers, and no connection is closed"""
    pids = [int(x) for x in db.sql(
        "SELECT pid FROM pg_stat_activity WHERE usename = 'nginx'").split()]
    pids.append(db.pid())
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    began = time.time()
    a = gw.post('/ok', 'stopped')
    took = time.time() - began
    same((a.status, a.code), (503, 'store_unavailable'),
         'no answer within the timeout')
    ok(1.5 < took < 6, 'that takes as long as the timeout', took)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    ok(back('stopped'), 'it goes on')
    executed('stopped', 1, 'after a stop')


def test_locked():
    """A transaction that holds a record: nobody waits for it."""
    gw.post('/ok', 'locked')
    digest = db.sql('SELECT digest FROM gateway.records '
                    'ORDER BY created DESC, fence DESC LIMIT 1')
    import subprocess
    holder = subprocess.Popen(
        ['psql', '-XAtq', '-c', "BEGIN; SELECT 1 FROM gateway.records WHERE "
         "digest = '%s' FOR UPDATE; SELECT pg_sleep(3)" % digest],
        env=db.env(), stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    began = time.time()
    a = gw.post('/ok', 'locked')
    same((a.status, a.replayed), (201, True), 'a locked record is replayed')
    same(gw.post('/ok', 'another').status, 201, 'other keys run')
    ok(time.time() - began < 2, 'without waiting', time.time() - began)
    holder.wait()


def test_read_only():
    db.sql('ALTER DATABASE postgres SET default_transaction_read_only = on',
           BACKENDS)
    start = len(gw.log())
    a = gw.post('/ok', 'read-only')
    same((a.status, a.code), (503, 'store_unavailable'), 'read-only')
    executed('read-only', 0, 'read-only')
    db.sql('SET default_transaction_read_only = off',
           'ALTER DATABASE postgres RESET default_transaction_read_only')
    ok(back('read-only'), 'and not any more')
    executed('read-only', 1, 'afterwards')
    ok('PostgreSQL' in gw.log()[start:], 'that is logged')


def test_crash():
    """Settings of a database that confirm what a crash would lose."""
    db.sql("ALTER SYSTEM SET wal_writer_delay = '10s'",
           'SELECT pg_reload_conf()',
           'ALTER ROLE nginx SET synchronous_commit = off',
           "ALTER ROLE nginx SET default_transaction_isolation = serializable",
           BACKENDS)
    ok(back('before'), 'a role that does not wait for the disk')
    gw.post('/ok', 'crash')
    db.stop('immediate')
    db.start()
    ok(back('after'), 'PostgreSQL is back')
    a = gw.post('/ok', 'crash')
    same((a.status, a.replayed), (201, True), 'what was answered is kept')
    executed('crash', 1, 'before a crash')
    db.sql('ALTER ROLE nginx RESET ALL',
           'ALTER SYSTEM RESET wal_writer_delay', 'SELECT pg_reload_conf()')


def test_schema():
    for store, text in (
            (db.target('nowhere'), 'install the schema'),
            (db.target('other'), 'its schema has version 9'),
            (db.target('gateway', user='nobody'),
             'GRANT idempotency_gateway TO'),
            (db.target('gateway', user='who'), 'does not exist')):
        bad = Gateway(up, store=store)
        a = bad.post('/ok', 'bad')
        same((a.status, a.code), (503, 'store_unavailable'), text)
        ok(bad.until_log(text), 'the log has what to do',
           bad.log()[-400:])
        bad.stop()


db.sql('CREATE ROLE nobody LOGIN', 'CREATE SCHEMA other',
       'GRANT USAGE ON SCHEMA other TO nginx',
       'CREATE FUNCTION other.version() RETURNS integer LANGUAGE sql '
       'AS $$ SELECT 9 $$')

test_life()
test_killed_backends()
test_away()
test_stopped()
test_locked()
test_read_only()
test_crash()
test_schema()
gw.stop()
finish()
