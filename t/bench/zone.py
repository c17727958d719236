"""Stores with many records in them: what a record and an operation cost."""

import statistics
import urllib.parse

import load
import rig
import rows
from table import table

BATCH = 10000

COPIES = """
    local record = redis.call("GET", KEYS[1])
    local name = string.sub(KEYS[1], 1, -13)
    for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
        redis.call("SET", name .. string.format("%012d", i), record,
                   "EX", 86400)
    end
"""


class Endpoint:
    """The debug module's own, by which a store is filled and looked into."""

    def __init__(self, port):
        self.client = load.Client(port)

    def __call__(self, **args):
        page = self.client.get('/exercise?' + urllib.parse.urlencode(args))
        return {name: value.strip() for name, _, value in
                (line.partition(':') for line in page.splitlines())}

    def used(self):
        info = {k: int(v) for k, v in self(op='info').items()}
        return (info['records'],
                (info['pages'] - info['free']) * info['pagesize'])

    def fill(self, start, n):
        """Done records with 150 bytes of head and 200 of body."""
        while n > 0:
            self(op='fill', n=min(n, BATCH), **{'from': start})
            start += BATCH
            n -= BATCH

    def cost(self, start):
        """Nanoseconds of a claim and of a completion."""
        # a batch during which the machine did something else is no median
        batches = [self(op='fill', n=200, **{'from': start + i * 200})
                   for i in range(50)]
        return [statistics.median(int(b[name]) for b in batches)
                for name in ('claim_ns', 'complete_ns')]


def looked_into(case, name):
    """The same case, but with the debug module and its endpoint."""
    return rows.variant(case, name, rig.DEBUG, rows.EXERCISE)


def record_size(bench, case):
    """Bytes of zone for each first request of the load."""
    subject = bench.subject(looked_into(case, 'size'))
    endpoint = Endpoint(subject.port)
    before = endpoint.used()
    load.wrk(subject.port, 0, 1, 'size')
    after = endpoint.used()
    subject.stop()
    return (after[1] - before[1]) / (after[0] - before[0])


def operations(bench, counts):
    """Time of the embedded store's operations alone, without HTTP."""
    case = next(c for c in bench.cases if c.zone)
    subject = bench.subject(looked_into(case, 'operations'))
    endpoint = Endpoint(subject.port)
    lines, total = [], 0
    for i, n in enumerate(counts):
        endpoint.fill(total, n - total)
        total = n
        lines.append(['%d' % n] + ['%.2f' % (ns / 1000) for ns in
                                   endpoint.cost((i + 1) * 10**9)])
    subject.stop()
    return table(['records', 'claim us', 'complete us'], lines)


def crowd(subject, have, want):
    """So many records that nobody asks for."""
    if subject.db is None:
        Endpoint(subject.port).fill(have, want - have)
        return
    redis = subject.redis.client
    redis('SELECT', subject.db)
    model = next(key for key in redis('KEYS', '*') if b'counter' not in key)
    for begin in range(have, want, BATCH):
        redis('EVAL', COPIES, 1, model, begin, min(begin + BATCH, want) - 1)
