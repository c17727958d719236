"""The store on disk: two workers at once, and many records in the file."""

import dataclasses
import os
import sqlite3
import statistics
import time

import load
import rig
import rows
from table import number, table

WORKERS = 2
CONNECTIONS = 32

# of two workers with sync=full; times of 10^6 records, those of 10^3
RATE = 3000
P99 = 25
OPEN = 50
GROWTH = 1.5

# done records as the first one is, with digests and answers of their own
FILL = '''
    WITH RECURSIVE n(i) AS
        (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :n)
    INSERT INTO %s
'''
ANSWERS = FILL % '''answers (head, body)
    SELECT head, body FROM n, (SELECT head, body FROM answers LIMIT 1)'''
RECORDS = FILL % '''records
    SELECT randomblob(32), state, owner, fingerprint, fence, lease, until,
           issued, created, attempts, keep, tombstone, status, kept, boot,
           :last + 1 - i, due
    FROM n, (SELECT * FROM records WHERE state = 4 LIMIT 1)'''


def sync_time(folder):
    """Milliseconds to write a page over an old one and to sync it."""
    times = []
    with open(folder + '/probe', 'wb', buffering=0) as f:
        f.write(bytes(1 << 20))
        os.fsync(f.fileno())
        for i in range(200):
            begin = time.monotonic()
            os.pwrite(f.fileno(), bytes(4096), i % 256 * 4096)
            os.fdatasync(f.fileno())
            times.append(time.monotonic() - begin)
    os.unlink(folder + '/probe')
    return statistics.median(times) * 1000


def case_of(name, kind):
    """Old keys expire in that of first requests, in the other none do."""
    return dataclasses.replace(
        next(c for c in rows.ROWS
             if c.kind == kind and c.row == 'SQLite, sync=full'
             and c.module), row=name)


def workers(bench, args, rounds):
    """Each on any core, with the clients and the application.  Returns a
    table, and what misses its bound."""
    print('SQLite, %d workers' % WORKERS, flush=True)
    case = case_of('SQLite, two workers', 'first')
    bench.workers = WORKERS
    subject = case.start(bench, case)
    bench.workers = 1
    load.wrk(subject.port, 0, 1, 'warm', 0, CONNECTIONS)
    found = [load.wrk(subject.port, 0, 2, 'workers-%d' % i, 0, CONNECTIONS)
             for i in range(rounds)]
    sync = sync_time(os.path.join(rig.WORK, case.slug + '-db'))
    subject.stop()
    rate = statistics.median(r.requests / r.seconds for r in found)
    p50 = statistics.median(r.p50 for r in found)
    p99 = statistics.median(r.p99 for r in found)
    missed = []
    if rate < RATE or p99 > P99:
        missed.append('SQLite, %d workers: %d requests/s, p99 %.1f ms; at '
                      'least %d, at most %d ms' % (WORKERS, rate, p99, RATE,
                                                   P99))
    return table(['sync=full, %d workers, %d connections'
                  % (WORKERS, CONNECTIONS), ''], [
        ['new requests/s (at least %d)' % RATE, '%d' % rate],
        ['p50 ms', number(p50, 1)],
        ['p99 ms (at most %d)' % P99, number(p99, 1)],
        ['write and sync of a page, ms', number(sync, 2)]]), missed


def file(bench, args, rounds):
    """With many records; the same."""
    bare = next(c for c in rows.ROWS if c.name == rows.BARE)
    subject = bare.start(bench, dataclasses.replace(bare, row='bare start'))
    without = starts(subject.parts[0], rounds)
    subject.stop()
    found = [crowded(bench, n, rounds) for n in args.records]
    missed = []
    return records(args.records, without, found, missed), missed


def crowded(bench, n, rounds):
    """Milliseconds from start to first answer, CPU of requests, replays."""
    print('SQLite, %d records' % n, flush=True)
    case = case_of('SQLite, %d records' % n, 'replay')
    subject = case.start(bench, case)
    path = os.path.join(rig.WORK, case.slug + '-db', 'keys.db')
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute('BEGIN IMMEDIATE')
    conn.execute(ANSWERS, {'n': n})
    last, = conn.execute('SELECT max(id) FROM answers').fetchone()
    conn.execute(RECORDS, {'n': n, 'last': last})
    conn.execute('COMMIT')
    conn.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    conn.close()

    opened = starts(subject.parts[0], rounds)
    with load.Client(subject.port) as client:
        for i in range(load.keys_for(0)):
            client.post('replay-0-%012d' % i)
    cpu = []
    for keys in (0, load.keys_for(0)):
        found = []
        for i in range(rounds + 1):
            before = subject.cpu()
            prefix = 'replay-0' if keys else 'first-%d' % i
            done = load.wrk(subject.port, 0, 1, prefix, keys)
            found.append((subject.cpu() - before) / done.requests / 1000)
        cpu.append(statistics.median(found[1:]))
    subject.stop()
    return [opened, *cpu]


def starts(nginx, rounds):
    return statistics.median(start_time(nginx) for _ in range(2 * rounds + 1))


def start_time(nginx):
    """From a start of nginx until it has answered a new key."""
    nginx.stop()
    begin = time.monotonic()
    nginx.start(nginx.port, 0.001)
    load.until_ready(nginx.port, 'start-%f' % begin, 0.001)
    return (time.monotonic() - begin) * 1000


def records(counts, without, found, missed):
    names = ['from start to first answer, ms', 'first request, CPU us',
             'replay, CPU us']
    small, large = found[0], found[-1]
    if large[0] - without > OPEN:
        missed.append('SQLite, %d records: %.0f ms to open, at most %d'
                      % (counts[-1], large[0] - without, OPEN))
    for name, one, other in list(zip(names, small, large))[1:]:
        if other > one * GROWTH:
            missed.append('SQLite, %d records: %s %.1f for %.1f'
                          % (counts[-1], name, other, one))
    return table(['sync=full, records', 'bare'] + ['%d' % n for n in counts],
                 [[name, number(without) if i == 0 else '']
                  + [number(one[i]) for one in found]
                  for i, name in enumerate(names)])
