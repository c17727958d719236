#!/usr/bin/env python3
"""What a disk can do to a database: it is full, read-only, fails to write or to
sync; the file is damaged, removed or replaced.  Each has a name in the log,
in statistics and metrics.  Nothing that was acknowledged is lost, nothing is
executed twice, and the repair that the documentation describes works.
"""

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, 't', 'drive'))
from faultydisk import (DATABASE, OWN_SYNC, RESERVE, SYNC, WAL,  # noqa: E402
                        WRITE, FaultyDisk)
from gateway import (Gateway, Ledger, background, executed,    # noqa: E402
                     finish, ok, replays, same, until)

os.makedirs(TOP + '/build', exist_ok=True)
work = tempfile.mkdtemp(prefix='faults-', dir=TOP + '/build')
db = work + '/keys/main.db'
ALL = WAL | DATABASE | RESERVE

disk = FaultyDisk()
up = Ledger()
gw = Gateway(up, store='sqlite:%s timeout=2s' % db, workers=2,
             main='env FAULTY_DISK_FILE;',
             default='idempotency_lease 2s;',
             locations='location = /stats { idempotency_stats; }')
gw.expected += ['SQLite: ', 'fdatasync(', 'open("', 'was found damaged',
                'cannot be synced']
known = {}


def stats(form):
    with urllib.request.urlopen('http://127.0.0.1:%d/stats?format=%s'
                                % (gw.port, form)) as f:
        return f.read().decode()


def store():
    return json.loads(stats('json'))['stores'][0]


def named(reason, state, why, start):
    """in statistics, metrics and log"""
    s = store()
    same((s['refusing'], s['state']), (reason, state), 'statistics say why')
    ok('idempotency_store_refusing{store="main",reason="%s"} 1' % reason
       in stats('prometheus'), 'so do metrics')
    ok(gw.until_log(why, 5, start), 'and the log', gw.log()[start:][:2000])


def learn(*keys):
    for key in keys:
        known[key] = gw.post('/ok', key)
        same(known[key].status, 201, key + ': executed')


def all_known(name):
    """what clients got they get again, and nothing was executed twice"""
    wrong = []
    for key, a in known.items():
        b = gw.post('/wait' if key.startswith('running') else '/ok', key)
        if (b.status, b.body, up.count(key)) != (201, a.body, 1):
            wrong.append((key, b, up.count(key)))
    same(wrong, [], name + ': all %d answers are kept' % len(known))


def refuses(key, name):
    a = gw.post('/ok', key)
    same((a.status, a.code), (503, 'store_unavailable'), name)
    executed(up, key, 0, key)


def restart():
    gw.end()
    same(gw.command().returncode, 0, 'nginx starts again')
    gw.wait_port()


def recovers(key, name):
    ok(until(lambda: gw.post('/ok', key).status == 201, 10, 0.2), name)
    known[key] = gw.post('/ok', key)


learn(*('before-%d' % i for i in range(10)))
same(os.path.getsize(db + '-reserve') > 1 << 20, True, 'there is a reserve')


# ---- the disk is full, but for the reserve

def full(files):
    """a request runs when it happens"""
    start = len(gw.log())
    key = 'running-%d' % len(known)
    up.hold()
    running = background(gw.post, '/wait', key)
    up.until(key)
    return start, key, running


start, key, running = full(ALL)
disk.fails(WRITE, ALL, errno.ENOSPC, 1)
gw.post('/ok', 'uses-the-reserve-%d' % start)
same(os.path.getsize(db + '-reserve'), 0, 'the reserve was given up')
disk.fails(WRITE, RESERVE, errno.ENOSPC)
refuses('full-1', 'new keys are refused')
named('full', 'full', 'the disk is full: make room', start)
all_known('full')
up.go()
known[key] = running.join()
same(known[key].status, 201, 'what was running ends')
ok(until(lambda: gw.state(key, '/wait') == 'done', 5), 'and is stored')
refuses('full-2', 'new keys are still refused')
disk.works()
recovers('full-1', 'there is room again')
ok(os.path.getsize(db + '-reserve') > 1 << 20, 'and a reserve')
ok(gw.until_log('there is room on the disk again', 5, start), 'it is logged')
all_known('room again')


# ---- nothing can be written at all

for error, reason, state, why in (
        (errno.ENOSPC, 'full', 'full', 'the disk is full: make room'),
        (errno.EDQUOT, 'full', 'full', 'the disk is full: make room'),
        (errno.EROFS, 'readonly', 'readonly',
         'the file or its file system is read-only'),
        (errno.EIO, 'disk', 'disk', 'the disk fails')):
    name = errno.errorcode[error]
    start, key, running = full(ALL)
    disk.fails(WRITE, ALL, error)
    refuses(name, name + ': new keys are refused')
    named(reason, state, why, start)
    all_known(name)
    up.go()
    known[key] = running.join()
    same(known[key].status, 201, 'a client gets its answer')
    disk.works()
    ok(until(lambda: gw.state(key, '/wait') == 'done', 10),
       'it is stored when the disk works again')
    recovers(name, name + ': new keys are accepted')
    all_known(name)


# ---- a commit cannot be synced

def unsynced(calls, files, name):
    start = len(gw.log())
    disk.fails(calls, files, errno.EIO, 1)
    i = 0
    while not disk.hits and i < 2000:
        gw.post('/ok', '%s-%d' % (name, i))
        i += 1
    ok(disk.hits, name + ': a sync has failed')
    ok(until(lambda: store()['refusing'] == 'disk', 5), 'it is noticed')
    refuses(name + '-after', 'new keys are refused, although syncs work')
    named('disk', 'disk', 'the disk has lost data: replace it', start)
    a = gw.post('/ok', 'before-0')
    same(a.status, 503, 'and nothing is read')
    restart()
    recovers(name + '-after', 'after a restart new keys are accepted')
    all_known(name)
    same([n for n in range(i) if up.count('%s-%d' % (name, n)) > 1], [],
         'nothing was executed twice')


unsynced(SYNC, WAL, 'commit')
unsynced(OWN_SYNC, WAL | DATABASE, 'checkpoint')


# ---- removed, and replaced

def moved(change, back, name):
    start = len(gw.log())
    change()
    refuses(name, name + ': new keys are refused')
    named('unreachable', 'unreachable', 'was removed or replaced', start)
    old = gw.workers()
    gw.signal(signal.SIGHUP)
    until(lambda: not set(old) & set(gw.workers())
          and len(gw.workers()) == 2, 10)
    refuses(name + '-2', 'by new workers as well')
    gw.end()
    back()
    same(gw.command().returncode, 0, 'nginx starts again')
    gw.wait_port()
    recovers(name, 'put back, then restarted: new keys are accepted')
    all_known(name)


def aside(*suffixes):
    for s in suffixes:
        os.rename(db + s, db + '.aside' + s)


def put_back(*suffixes):
    for s in suffixes:
        os.rename(db + '.aside' + s, db + s)


moved(lambda: aside(''), lambda: put_back(''), 'removed')
moved(lambda: (shutil.copy(db, db + '.copy'), aside(''),
               os.rename(db + '.copy', db)),
      lambda: put_back(''), 'replaced')
moved(lambda: aside('-wal'), lambda: put_back('-wal'), 'wal-moved')


# ---- damaged

def backup():
    done = subprocess.run(['sqlite3', db, '.backup ' + work + '/backup.db'],
                          capture_output=True, text=True)
    same((done.returncode, done.stderr), (0, ''), 'a backup while nginx runs')


def clear():
    for suffix in '-wal', '-shm', '-lock':
        if os.path.exists(db + suffix):
            os.remove(db + suffix)


def damage():
    """the pages below the root of the table of records"""
    gw.end()
    conn = sqlite3.connect(db)
    conn.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    root, = conn.execute("SELECT rootpage FROM sqlite_schema "
                         "WHERE name = 'records'").fetchone()
    conn.close()
    with open(db, 'r+b') as f:
        f.seek((root - 1) * 4096)
        f.write(b'\xff' * 8)
    same(gw.command().returncode, 0, 'nginx starts again')
    gw.wait_port()


backup()
start = len(gw.log())
damage()
refuses('damaged', 'a damaged page: new keys are refused')
named('damaged', 'damaged', 'the database is damaged: stop nginx', start)
start = len(gw.log())
restart()
refuses('damaged-2', 'after a restart as well')
ok(gw.until_log('was found damaged before', 5, start), 'the log says so')

gw.end()
clear()
shutil.copy(work + '/backup.db', db)
same(gw.command().returncode, 0, 'a backup is restored')
gw.wait_port()
recovers('damaged', 'new keys are accepted')
all_known('restored')

# ---- repaired, as docs/operate/sqlite.md says

def pages(name):
    """of a table or an index, but for the first"""
    conn = sqlite3.connect(db)
    conn.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    rows = conn.execute("SELECT pageno FROM dbstat WHERE name = ? AND "
                        "pagetype = 'leaf' ORDER BY path", (name,)).fetchall()
    conn.close()
    return [row[0] for row in rows]


def tool(*args, **named):
    return subprocess.run(['sqlite3', *args], capture_output=True, text=True,
                          **named)


def smash(page):
    with open(db, 'r+b') as f:
        f.seek((page - 1) * 4096)
        f.write(b'\xff' * 4096)


def save(page):
    gw.end()
    smash(page)
    ok(tool(db, 'PRAGMA integrity_check').stdout.strip() != 'ok',
       'a page is damaged')
    text = tool(db, '.dump').stdout
    text = text.replace('ROLLBACK; -- due to errors', 'COMMIT;')
    done = tool(work + '/saved.db',
                input='PRAGMA auto_vacuum = INCREMENTAL;\n'
                'PRAGMA application_id = 0x6964656d;\n'
                'PRAGMA user_version = 3;\n' + text)
    same((done.returncode, done.stderr), (0, ''), '.dump saves the rest')
    clear()
    os.rename(work + '/saved.db', db)
    os.chmod(db, 0o600)
    same(gw.command().returncode, 0, 'nginx starts again')
    gw.wait_port()


for i in range(200):
    key = 'many-%d' % i
    known[key] = gw.post('/ok', key)
save(pages('records_due')[-1])
recovers('saved-index', 'new keys are accepted')
all_known('an index')

save(pages('answers')[-1])
recovers('saved-answers', 'new keys are accepted')
lost = [a for a in (gw.post('/wait' if key.startswith('running') else '/ok',
                            key) for key in known) if a.status != 201]
ok(0 < len(lost) < 100, 'answers of the damaged page are lost, no others',
   len(lost))
same({(a.status, a.code) for a in lost}, {(503, 'store_unavailable')},
     'their keys are known')
same([key for key in known if up.count(key) != 1], [],
     'and nothing is executed again')
conn = sqlite3.connect(db)
same(conn.execute('PRAGMA integrity_check').fetchall(), [('ok',)],
     'it is whole')
same(conn.execute('PRAGMA auto_vacuum').fetchone(), (2,), 'and can shrink')
conn.close()

gw.stop()
shutil.rmtree(work, ignore_errors=True)
finish()
