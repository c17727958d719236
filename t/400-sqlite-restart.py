#!/usr/bin/env python3
"""What is stored in SQLite survives: a reload, a restart, a binary upgrade with
both masters at work, kill -9 of a worker and of everything.  A request that
was running when everything died reads as unknown afterwards, not as free.  A
configuration that cannot be safe is refused by name.
"""

import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, 't', 'drive'))
from gateway import (Gateway, Ledger, executed, finish, ok,    # noqa: E402
                     refused, replays, same, until)

os.makedirs(TOP + '/build', exist_ok=True)
work = tempfile.mkdtemp(prefix='restart-', dir=TOP + '/build')
db = work + '/keys/main.db'

up = Ledger()
gw = Gateway(up, store='sqlite:%s timeout=5s' % db, workers=2,
             default='idempotency_lease 2s;')


def start():
    done = gw.command()
    same(done.returncode, 0, 'nginx starts again')
    gw.wait_port()


def kill_all():
    master = gw.pid()
    pids = [master] + gw.workers()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(os.path.exists('/proc/%d' % p) for p in pids), 10)
    os.remove(gw.root + '/nginx.pid')


# ---- the file

first = gw.post('/a', 'made-first')
same(first.status, 201, 'a first request')
replays(gw, '/a', 'made-first', first, 'before anything happened')

mode = os.stat(work + '/keys').st_mode & 0o777
same(mode, 0o700, 'nginx has made the directory, for its user only')
for suffix in '', '-wal', '-shm', '-lock':
    same(os.stat(db + suffix).st_mode & 0o777, 0o600,
         'only its user may read PATH' + suffix)

conn = sqlite3.connect('file:%s?mode=ro' % db, uri=True)
rows = conn.execute('SELECT state, status, attempts FROM records_readable'
                    ).fetchall()
same([tuple(map(str, r)) for r in rows], [('done', '201', '1')],
     'sqlite3 shows the record in words')
conn.close()


def said_empty():
    return len(re.findall(r'\[notice\] .*store "main" begins empty', gw.log()))


ok(until(lambda: said_empty() == 1), 'that it was empty is said once')


# ---- what it survives

def survives(name, what):
    key = re.sub(r'\W+', '-', name)
    before = gw.post('/b', key)
    what()
    replays(gw, '/b', key, before, 'after ' + name)
    replays(gw, '/a', 'made-first', first, 'after ' + name)
    executed(up, key, 1, name)


def reload():
    old = gw.workers()
    gw.signal(signal.SIGHUP)
    ok(until(lambda: not set(old) & set(gw.workers())
             and len(gw.workers()) == 2), 'workers are new')


def restart():
    gw.end()
    start()


def kill_worker():
    victim = gw.workers()[0]
    os.kill(victim, signal.SIGKILL)
    ok(until(lambda: victim not in gw.workers()
             and len(gw.workers()) == 2), 'a new worker')


def kill_everything():
    kill_all()
    start()


def upgrade():
    old = gw.pid()
    gw.signal(signal.SIGUSR2)
    ok(until(lambda: os.path.exists(gw.root + '/nginx.pid.oldbin')
             and os.path.exists(gw.root + '/nginx.pid')
             and gw.pid() != old), 'a new master')
    until(lambda: len(gw.workers()) == 2, 10)
    both = gw.post('/b', 'both-at-work')
    for _ in range(8):
        replays(gw, '/b', 'both-at-work', both, 'with two masters')
    os.kill(old, signal.SIGQUIT)
    ok(until(lambda: not os.path.exists('/proc/%d' % old)), 'the old one ends')


survives('a reload', reload)
survives('a restart', restart)
survives('kill -9 of a worker', kill_worker)
survives('kill -9 of everything', kill_everything)
same(said_empty(), 1, 'the file that was there is not called empty')
survives('a binary upgrade', upgrade)

for i in range(5):
    survives('kill -9 of everything, %d' % i, kill_everything)


# ---- what was running

running = gw.call('/slow/5000', 'was-running')
ok(until(lambda: gw.state('was-running', '/slow/5000') == 'executing'),
   'a request is running')
ok(until(lambda: up.count('was-running') == 1), 'the upstream has it')
kill_all()
start()
ok(until(lambda: gw.state('was-running', '/slow/5000') == 'unknown', 10),
   'it is unknown once its lease is over')
refused(gw, '/slow/5000', 'was-running', 'outcome_unknown',
        'a retry is not executed')
executed(up, 'was-running', 1, 'it')
running.close()


# ---- under load, everything dies again and again

rounds = int(os.environ.get('KILLS', 6))
answers = {}
for n in range(rounds):
    calls = [(k, gw.call('/load', k))
             for k in ('load-%d-%d' % (n, i) for i in range(30))]
    time.sleep(0.02 * (n % 4))
    kill_all()
    for key, call in calls:
        a = call.read()
        if a.status == 201 and a.whole:
            answers[key] = a
    start()
lost = [k for k, a in answers.items()
        if (lambda b: (b.status, b.body) != (201, a.body))(gw.post('/load', k))]
same(lost, [], '%d answers that clients got are replayed after %d kills'
     % (len(answers), rounds))
twice = [k for n in range(rounds) for i in range(30)
         for k in ['load-%d-%d' % (n, i)] if up.count(k) > 1]
same(twice, [], 'nothing was executed twice')

conn = sqlite3.connect('file:%s?mode=ro' % db, uri=True)
same(conn.execute('PRAGMA integrity_check').fetchall(), [('ok',)],
     'the database is whole')
conn.close()


# ---- size= and expiry

gw.write(store='sqlite:%s timeout=5s size=300k' % db,
         default='idempotency_lease 2s; idempotency_ttl 2s;')
reload()
full = None
for i in range(2000):
    a = gw.post('/big/2000', 'fills-%d' % i)
    if a.status == 503:
        full = a
        break
ok(full is not None, 'a store that is full refuses new keys')
replays(gw, '/a', 'made-first', first, 'full')
ok(until(lambda: gw.post('/a', 'has-room').status == 201, 30, 0.3),
   'expired records make room')
gw.write(store='sqlite:%s timeout=5s' % db)
reload()


# ---- another program's file, a newer schema, a damaged one

def refuses(prepare, log, name):
    path = work + '/odd.db'
    for suffix in '', '-wal', '-shm', '-lock':
        if os.path.exists(path + suffix):
            os.remove(path + suffix)
    prepare(path)
    size = os.path.getsize(gw.log_file)
    gw.write(store='sqlite:' + path)
    reload()
    same(gw.post('/x', 'x').status, 503, name + ': new keys are refused')
    ok(gw.until_log(log, 5, 0), name + ': and the log says why',
       gw.log()[size:][:1000])


def sql(*commands):
    def prepare(path):
        conn = sqlite3.connect(path)
        for command in commands:
            conn.execute(command)
        conn.commit()
        conn.close()
    return prepare


def noise(path):
    with open(path, 'wb') as f:
        f.write(b'this is no database, not at all. ' * 400)


gw.expected += ['exited on signal 9', 'is the database of another program', 'of the schema',
                'file is not a database', 'cannot be opened']
refuses(sql('CREATE TABLE mine (a)'), 'is the database of another program',
        'another program')
refuses(sql('CREATE TABLE records (a)', 'PRAGMA application_id = 0x6964656d',
            'PRAGMA user_version = 99'), 'has version 99 of the schema',
        'a newer schema')
refuses(noise, 'file is not a database', 'no database')


# ---- configurations

def wrong(store, text, name, **more):
    gw.write(store=store, **more)
    done = gw.command('-t')
    ok(done.returncode != 0 and text in done.stderr, name, done.stderr)
    gw.write(http='')


os.mkdir(work + '/open')
os.chmod(work + '/open', 0o777)
os.symlink(work + '/keys', work + '/link')

wrong('sqlite:', 'it must name a file', 'no path')
wrong('sqlite:%s/open/x.db' % work, 'can be written by others',
      'a directory that others may write')
wrong('sqlite:%s/no/where/x.db' % work, 'the one above it must exist',
      'a directory of which the parent is missing')
wrong('sqlite:%s sync=maybe' % db, 'parameter "sync=maybe"', 'sync=maybe')
wrong('sqlite:%s size=1k' % db, 'parameter "size=1k"', 'a tiny size')
wrong('sqlite:%s timeout=0' % db, 'invalid time "timeout=0"', 'no timeout')
wrong('sqlite:%s prefix=x' % db, 'parameter "prefix=x"', 'an unknown one')
wrong('sqlite:%s threads=nobody' % db, 'unknown thread pool "nobody"',
      'an unknown pool')
wrong('sqlite:%s' % db, 'another store uses the file', 'two stores, one file',
      http='idempotency_store other sqlite:%s;' % db)
wrong('sqlite:%s' % db, 'another store uses the file',
      'two stores, one file by two names',
      http='idempotency_store other sqlite:%s/link/main.db;' % work)

if os.getuid() == 0:
    os.mkdir(work + '/foreign')
    os.chown(work + '/foreign', 12345, 12345)
    user = gw.conf['user']
    wrong('sqlite:%s/foreign/x.db' % work, 'belongs to user 12345',
          'a directory of another user', user='user www-data;')
    gw.write(user=user)

gw.write(store='sqlite:%s timeout=5s sync=normal cache=1m threads=mine' % db,
         main='thread_pool mine threads=2;')
reload()
replays(gw, '/a', 'made-first', first, 'with all parameters')
replays(gw, '/a', 'made-first', first, 'from the cache')

gw.stop()
shutil.rmtree(work, ignore_errors=True)
finish()
