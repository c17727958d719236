#!/usr/bin/env python3
"""The store has a clock of its own.  A wall clock that is set, by an hour and
back, ends no lease and expires no record, in one nginx or in the two of a
binary upgrade.  A boot of the machine ends all leases.  An older schema is
brought up to date, when no nginx that knows only the older one is left.
"""

import fcntl
import os
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, 't', 'drive'))
from gateway import (Gateway, Ledger, background, executed,    # noqa: E402
                     finish, ok, refused, replays, same, until)
from wallclock import WallClock    # noqa: E402

F_OFD_SETLK = 37

os.makedirs(TOP + '/build', exist_ok=True)
work = tempfile.mkdtemp(prefix='clock-', dir=TOP + '/build')
db = work + '/keys/main.db'

wall = WallClock()
up = Ledger()
gw = Gateway(up, store='sqlite:%s timeout=5s' % db, workers=1,
             main='env WALL_CLOCK_FILE;',
             default='idempotency_lease 10s; idempotency_ttl 30m;'
                     'idempotency_unknown retry;')
gw.expected += ['exited on signal 9', 'of the schema', 'cannot be opened']
first = gw.post('/ok', 'first')
same(first.status, 201, 'it works')


def sql(text, *args):
    conn = sqlite3.connect(db, isolation_level=None)
    rows = conn.execute(text, args).fetchall()
    conn.close()
    return rows


def stop():
    gw.end()


def start():
    same(gw.command().returncode, 0, 'nginx starts')
    gw.wait_port()


# ---- the wall clock is set

up.hold()
running = background(gw.post, '/wait', 'running')
up.until('running')
for seconds in 3600, 0, -3600, 86400 * 30, 0:
    wall.set(seconds)
    name = '%+d s' % seconds
    replays(gw, '/ok', 'first', first, name)
    refused(gw, '/wait', 'running', 'in_progress',
            name + ': a lease goes on')
    executed(up, 'running', 1, name)

wall.set(-3600)
up.go()
a = running.join()
same(a.status, 201, 'it ends')
replays(gw, '/wait', 'running', a, 'an hour ago')


# ---- two masters, an hour ago

up.hold()
running = background(gw.post, '/wait', 'two')
up.until('two')
old = gw.pid()
gw.signal(signal.SIGUSR2)
ok(until(lambda: os.path.exists(gw.root + '/nginx.pid.oldbin')
         and os.path.exists(gw.root + '/nginx.pid')
         and gw.pid() != old), 'a new master')
until(lambda: len(gw.workers()) == 1, 10)
os.kill(old, signal.SIGQUIT)
same(gw.state('two', '/wait'), 'executing', 'both know that it runs')
for _ in range(4):
    refused(gw, '/wait', 'two', 'in_progress', 'it is not executed')
up.go()
same(running.join().status, 201, 'it ends')
executed(up, 'two', 1, 'it')
ok(until(lambda: not os.path.exists('/proc/%d' % old), 15), 'the old one ends')
replays(gw, '/ok', 'first', first, 'by the new one')


# ---- a restart, and a boot

def killed(key, between):
    """the state of a request that was running when everything died"""
    up.hold()
    call = gw.call('/wait', key)
    up.until(key)
    master = gw.pid()
    pids = [master] + gw.workers()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(os.path.exists('/proc/%d' % p) for p in pids), 10)
    os.remove(gw.root + '/nginx.pid')
    between()
    start()
    state = gw.state(key, '/wait')
    up.go()
    call.close()
    return state


before, = sql("SELECT value FROM meta WHERE name = 'clock'")[0]
wall.set(-7200)
same(killed('restarted', lambda: None), 'executing',
     'a restart: its lease goes on')
after, = sql("SELECT value FROM meta WHERE name = 'clock'")[0]
ok(after >= before, 'the clock of the store does not go back',
   (before, after))
same(killed('booted', lambda: sql("UPDATE meta SET value = 'another' "
                                  "WHERE name = 'boot_id'")), 'unknown',
     'a boot: its lease is over')
with open('/proc/sys/kernel/random/boot_id') as f:
    same(sql("SELECT value FROM meta WHERE name = 'boot_id'"),
         [(f.read().strip(),)], 'the boot is noted')
same(gw.state('restarted', '/wait'), 'unknown', 'all of them')
replays(gw, '/ok', 'first', first, 'after a boot')
after, = sql("SELECT value FROM meta WHERE name = 'clock'")[0]
ok(after >= before, 'its clock does not go back either')
executed(up, 'booted', 1, 'it')


# ---- a file without the column for notes

def downgrade_notes():
    stop()
    view, = sql("SELECT sql FROM sqlite_schema WHERE name "
                "= 'records_readable'")[0]
    sql('DROP VIEW records_readable')
    sql('ALTER TABLE records DROP COLUMN note')
    sql('ALTER TABLE executing DROP COLUMN note')
    sql(view)


schema = sql('SELECT name, sql FROM sqlite_schema ORDER BY name')
ok('note' in str(schema), 'a new file has the column for notes')
downgrade_notes()
old = sql('SELECT name, sql FROM sqlite_schema ORDER BY name')
ok('note' not in str(old), 'one of an older module has not')

conn = sqlite3.connect('file:%s?mode=rw' % db, uri=True)
older = conn.execute('SELECT fence FROM records').fetchall()
start()
replays(gw, '/ok', 'first', first, 'without the column')
same(sql('SELECT name, sql FROM sqlite_schema ORDER BY name'), schema,
     'it was added, and the version of the schema stays')
same(sql('PRAGMA user_version'), [(3,)], 'version 3')
same(conn.execute('SELECT fence FROM records WHERE fence IN (%s)'
                  % ','.join(str(f) for f, in older)).fetchall(), older,
     'a process that has the file open goes on')
conn.close()
same(gw.state('restarted', '/wait'), 'unknown', 'and nothing is free')


# ---- an older schema

def downgrade():
    stop()
    sql('INSERT INTO records SELECT * FROM executing')
    sql('DROP VIEW records_readable')
    sql('ALTER TABLE records DROP COLUMN note')
    sql('DROP TABLE executing')
    sql('DROP INDEX records_due')
    sql('CREATE INDEX records_due ON records(due) WHERE state <> 2')
    sql('CREATE VIEW records_readable AS SELECT state FROM records')
    sql("DELETE FROM meta WHERE name = 'offset'")
    sql('PRAGMA user_version = 1')


schema = sql('SELECT name, sql FROM sqlite_schema ORDER BY name')
executing = sql('SELECT count(*) FROM executing')


downgrade()
start()
replays(gw, '/ok', 'first', first, 'version 1')
same(sql('PRAGMA user_version'), [(3,)], 'it is version 3 now')
ok(gw.until_log('has version 2 now', 5), 'step by step')
ok(gw.until_log('has version 3 now', 5), 'and logged')
same(sql('SELECT name, sql FROM sqlite_schema ORDER BY name'), schema,
     'with the schema of a new file')
same(sql('SELECT count(*) FROM executing'), executing,
     'what was not settled is where it belongs')
ok(executing > [(0,)], 'of which there is some', executing)
same(sql('SELECT count(*) FROM records WHERE state = 2'), [(0,)],
     'and only there')
same(gw.state('restarted', '/wait'), 'unknown', 'and nothing is free')

downgrade()
fd = os.open(db + '-lock', os.O_RDWR)
fcntl.fcntl(fd, F_OFD_SETLK,
            struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 2, 1, 0))
start()
same(gw.post('/ok', 'older').status, 503,
     'an older module uses it: new keys are refused')
ok(gw.until_log('an nginx with an older module still uses', 5), 'by name')
same(sql('PRAGMA user_version'), [(1,)], 'and nothing is changed')
os.close(fd)
ok(until(lambda: gw.post('/ok', 'older').status == 201, 10, 0.1),
   'when it has ended, they are accepted')
same(sql('PRAGMA user_version'), [(3,)], 'in version 3')
replays(gw, '/ok', 'first', first, 'at the end')

gw.stop()
shutil.rmtree(work, ignore_errors=True)
finish()
