#!/usr/bin/env python3
"""Damaged databases: bytes flip, pages are swapped, lost or repeated, files
end early, in the database and in its WAL.  nginx opens them, and all clients
ask again.

No worker dies.  A key whose record is in the file as it was written is never
executed again.  A store that has met damage says so by name, and executes
nothing from then on.

A key whose record is gone is executed again if nothing on the way to it looks
damaged: a database has no checksums, and a WAL whose end cannot be read is
what every loss of power leaves.  How often that was is printed, not judged.

    DATABASES=n   how many, 1000 by default
    SEED=n        it is printed
    ONLY=n        the one of this number
"""

import collections
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))) + '/drive')
from gateway import TOP, Gateway, Ledger, finish, ok, same, until  # noqa: E402

DATABASES = int(os.environ.get('DATABASES', 1000))
SEED = os.environ.get('SEED', str(time.time_ns() % 1000000))
ONLY = os.environ.get('ONLY')
AT_ONCE = 20              # stores of one nginx
KEYS = 60
PAGE = 4096
PATHS = '/ok', '/ok', '/ok', '/big/300', '/big/3000', '/big/9000', \
    '/status/402'

LOCATION = '''
    location /%(name)s/ {
        idempotency %(name)s;
        idempotency_scope pay;
        proxy_pass http://up/;
    }
'''


def stores(folder, names):
    return dict(
        workers=2, level='notice', store='shm:1m',
        http=''.join('idempotency_store %s sqlite:%s/%s/main.db sync=normal '
                     'timeout=5s;\n' % (name, folder, name)
                     for name in names)
        + 'idempotency_lease 60s; idempotency_log_level error;\n',
        locations=''.join(LOCATION % dict(name=name) for name in names)
        + 'location = /stats { idempotency_stats; }\n')


def source(folder):
    """Makes the database: {key: (path, digest, row)}; as it is when nginx has
    ended, and as it is when everything was killed."""
    up = Ledger()
    gw = Gateway(up, **stores(folder, ['source']))
    path = folder + '/source/main.db'
    keys, known = {}, set()
    for i in range(KEYS):
        key = 'k%d' % i
        if i == KEYS // 2:
            gw.end()
            shutil.copytree(folder + '/source', folder + '/ended')
            gw.command()
            gw.wait_port()
        where = '/silent' if i % 10 == 9 else PATHS[i % len(PATHS)]
        call = gw.call('/source' + where, key)
        up.until(key)
        if where != '/silent':
            call.read()
        rows = read(path)
        new = set(rows) - known
        known |= new
        keys[key] = where, new.pop(), i >= KEYS // 2
    pids = [gw.pid()] + gw.workers()
    os.kill(pids[0], signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(os.path.exists('/proc/%d' % p) for p in pids), 10)
    os.unlink(gw.root + '/nginx.pid')
    os.unlink(folder + '/source/main.db-shm')
    os.rename(folder + '/source', folder + '/killed')
    gw.stop()
    return keys


def read(path):
    conn = sqlite3.connect('file:%s?mode=ro' % path, uri=True)
    try:
        return {row[0]: row for row in conn.execute(
            'SELECT * FROM records UNION ALL SELECT * FROM executing')}
    finally:
        conn.close()


def rows_by_digest(folder, digests):
    """As the module looks for them: one by one."""
    copy = folder + '-copy'
    shutil.copytree(folder, copy)
    found = {}
    try:
        conn = sqlite3.connect(copy + '/main.db')
        for digest in digests:
            try:
                found[digest] = conn.execute(
                    'SELECT * FROM executing WHERE digest = ?1 UNION ALL '
                    'SELECT * FROM records WHERE digest = ?1',
                    (digest,)).fetchone()
            except (sqlite3.Error, OverflowError, UnicodeDecodeError):
                pass
        try:
            whole = conn.execute('PRAGMA integrity_check').fetchall() \
                == [('ok',)]
        except (sqlite3.Error, UnicodeDecodeError):
            whole = False
        conn.close()
    except sqlite3.Error:
        whole = False
    shutil.rmtree(copy)
    return found, whole


# ---- damage

def flip(rng, data):
    for _ in range(rng.choice((1, 1, 2, 8, 100))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def noise(rng, data):
    at, n = rng.randrange(len(data)), rng.choice((1, 4, 32, 512, PAGE))
    data[at:at + n] = rng.randbytes(len(data[at:at + n]))


def zeros(rng, data):
    at, n = rng.randrange(len(data)), rng.choice((8, 512, PAGE))
    at -= at % min(n, 512)
    data[at:at + n] = bytes(len(data[at:at + n]))


def page(rng, data):
    """a page over another, or two of them change places"""
    n = len(data) // PAGE
    a, b = (PAGE * rng.randrange(n) for _ in range(2))
    one, two = data[a:a + PAGE], data[b:b + PAGE]
    data[a:a + PAGE] = two
    if rng.random() < 0.5:
        data[b:b + PAGE] = one


def shorter(rng, data):
    n = rng.randrange(len(data))
    if rng.random() < 0.5:
        n -= n % PAGE
    del data[n:]


def longer(rng, data):
    data.extend(rng.randbytes(rng.choice((1, 512, PAGE, 5 * PAGE))))


def header(rng, data):
    data[rng.randrange(100)] = rng.randrange(256)


DAMAGE = flip, flip, flip, noise, noise, zeros, page, page, shorter, longer, \
    header


def damage(rng, source, folder):
    """What was done, in words."""
    how = rng.choice(('ended', 'killed', 'killed'))
    shutil.copytree(source + '/' + how, folder)
    files = [f for f in ('main.db', 'main.db-wal')
             if os.path.exists(folder + '/' + f)
             and os.path.getsize(folder + '/' + f)]
    words = [how]
    for name in rng.sample(files, rng.randint(1, len(files))):
        with open(folder + '/' + name, 'rb') as f:
            data = bytearray(f.read())
        what = rng.choice(DAMAGE)
        what(rng, data)
        words.append('%s: %s' % (name, what.__name__))
        with open(folder + '/' + name, 'wb') as f:
            f.write(data)
    return ', '.join(words)


# ---- clients

class Round:
    def __init__(self, work, keys, numbers, counts):
        self.names = ['d%d' % n for n in numbers]
        self.keys, self.counts, self.work = keys, counts, work
        self.said = {}
        self.after = {}           # executed by a store that is damaged
        original = read(work + '/original/main.db')
        for n, name in zip(numbers, self.names):
            rng = random.Random('%s %d' % (SEED, n))
            self.said[name] = damage(rng, work, '%s/%s' % (work, name))
        digests = [digest for _, digest, _ in keys.values()]
        self.before = {name: rows_by_digest('%s/%s' % (work, name), digests)
                       for name in self.names}
        self.original = original

    def run(self):
        up = Ledger()
        gw = Gateway(up, **stores(self.work, self.names))
        gw.expected = ['idempotency store "d']
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: self.ask(gw, name), self.names))
        log = gw.log()
        died = 'exited on signal' in log
        ok(not died, 'databases %s to %s: no worker has died'
           % (self.names[0], self.names[-1]),
           '\n'.join(line for line in log.splitlines()
                     if 'exited on signal' in line))
        wrong = []
        for name in self.names:
            wrong += self.judge(up, log, name)
        same(wrong, [], 'nothing was executed again that the file has, and '
             'nothing by a store that is damaged')
        gw.stop()
        for name in self.names:
            shutil.rmtree('%s/%s' % (self.work, name))

    def ask(self, gw, name):
        paths = [(key, path) for key, (path, _, _) in self.keys.items()]
        paths += [('new-%d' % i, '/ok') for i in range(5)]
        refused, self.after[name] = False, []
        for key, path in paths:
            a = gw.post('/%s%s' % (name, path.replace('silent', 'ok')), key,
                        headers=[('X-Store', name)])
            if a.status == 503:
                refused = True
            elif refused and a.status in (201, 402) and not a.replayed:
                self.after[name].append(key)

    def judge(self, up, log, name):
        c = self.counts
        ended = self.said[name].startswith('ended')
        found, whole = self.before[name]
        damaged = any('store "%s"' % name in line and 'damaged' in line
                      for line in log.splitlines())
        c['databases'] += 1
        c['not whole'] += not whole
        c['said to be damaged'] += damaged
        with up.lock:
            executed = [e[1] for e in up.entries
                        if dict(e[4]).get('x-store') == name]
        c['executed new'] += sum(k.startswith('new-') for k in executed)
        wrong = ['%s (%s): %s was executed by a store that is damaged'
                 % (name, self.said[name], key)
                 for key in self.after[name][:3] if damaged]
        for key, (_, digest, late) in self.keys.items():
            if key not in executed or ended and late:
                continue
            if found.get(digest) == self.original[digest]:
                wrong.append('%s (%s): %s was executed again, and its record '
                             'is there' % (name, self.said[name], key))
            elif damaged:
                c['executed again, said to be damaged'] += 1
            elif late and 'main.db-wal' in self.said[name]:
                c['executed again, a WAL that breaks off'] += 1
            elif whole:
                c['executed again, bytes that SQLite cannot doubt'] += 1
            else:
                c['executed again, silently'] += 1
                c['silent: ' + self.said[name]] += 1
        return wrong


def main():
    print('# SEED=%s' % SEED, flush=True)
    os.makedirs(TOP + '/build', exist_ok=True)
    work = tempfile.mkdtemp(prefix='damaged-', dir=TOP + '/build')
    os.chmod(work, 0o755)
    counts = collections.Counter()
    try:
        keys = source(work)
        shutil.copytree(work + '/killed', work + '/original')
        numbers = [int(ONLY)] if ONLY else range(DATABASES)
        for at in range(0, len(numbers), AT_ONCE):
            Round(work, keys, numbers[at:at + AT_ONCE], counts).run()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for what, n in sorted(counts.items()):
        print('# %s: %d' % (what, n))
    finish()


main()
