"""Starts the cases, measures them in turns, and checks what they did."""

import collections
import contextlib
import math
import random
import statistics
import sys
import time

import load
import servers

SAMPLE = 20

# times the connections: so many answers make up for the requests that are
# begun and not answered when the time is over
ENOUGH = 4


class Bench:
    """The servers of one run.  Cases are started when they are needed."""

    def __init__(self, cases, args):
        self.cases = cases
        self.args = args
        self.before = ()            # a command that runs the gateways
        self.workers = 1            # of each gateway
        self.answers = servers.answers(args.sizes)
        self.redis = servers.RedisServer()
        self.sets = {}              # Sentinel, Cluster
        self.subjects = {}
        self.filled = set()         # sets of replays that are there
        self.pace = {}              # seconds of a turn
        self.turns = 0
        self.told = []              # what is wrong in logs

    def subject(self, case):
        if case.name not in self.subjects:
            self.subjects[case.name] = case.start(self, case)
            check(case, self.subjects[case.name])
        return self.subjects[case.name]

    def set(self, name):
        if name not in self.sets:
            self.sets[name] = servers.redis_set(name)
        return self.sets[name]

    def ready(self, case, size=0, connections=32):
        """Connections and caches are warm, the answers to replay there."""
        # Node takes its time to compile what is called often
        cold = case.name not in self.pace and not self.args.quick
        subject = self.subject(case)
        if case.kind == 'replay':
            fill(case, subject, size, self.filled)
        for _ in range(2 if cold else 1):
            warm = self.load(case, subject, size, 1, connections)
        rate = warm.requests / warm.seconds
        self.pace[case.name] = max(self.args.seconds, min(
            8, math.ceil(ENOUGH * connections / (rate or 1))))
        if case.kind == 'first':
            subject.forget()

    def load(self, case, subject, size, seconds, connections):
        size = size or case.size
        keys = 0
        if case.kind == 'replay':
            keys = case.keys or load.keys_for(size)
        self.turns += 1
        prefix = 'replay-%d' % size if keys else '%s-%d' % (case.slug,
                                                            self.turns)
        return load.wrk(subject.port, size, seconds, prefix, keys,
                        connections)

    def measure(self, case, size=0, connections=32):
        """One turn of a case, as a Sample."""
        subject = self.subject(case)
        redis = subject.redis
        served = servers.settled(subject.executed)
        memory = redis.memory() if subject.db else 0
        calls = redis.calls() if subject.db else {}
        records = redis.records(subject.db) if subject.db else 0
        cpu, other = subject.cpu(), redis.cpu() if subject.db else 0

        n, seconds, p50, p99 = self.load(case, subject, size,
                                         self.pace[case.name], connections)

        cpu = subject.cpu() - cpu
        other = redis.cpu() - other if subject.db else 0
        served = servers.settled(subject.executed) - served
        if not n:
            sys.exit('%s: nothing was answered in %d s' % (case.name,
                                                           seconds))

        # wrk leaves a request on each connection when its time is over
        expected = case.expected(n)
        if not expected <= served <= expected + (expected and connections):
            sys.exit('%s: %d requests, but the application has seen %d'
                     % (case.name, n, served))

        sent, inside, each = 0, 0, None
        if subject.db:
            sent, inside = redis.commands(calls, redis.calls())
            records = redis.records(subject.db) - records
            if records:
                each = (redis.memory() - memory) / records
        if case.kind == 'first':
            subject.forget()

        return Sample(n / seconds, cpu / n / 1000, other / n / 1000, p50, p99,
                      sent / n, inside / n, each, n)

    def rounds(self, cases, rounds, size=0, connections=32):
        """All cases in turns, in another order in each round."""
        for case in cases:
            with named(case):
                self.ready(case, size, connections)
        results = {case.name: Samples() for case in cases}
        for turn in range(rounds):
            order = list(cases)
            random.Random(turn).shuffle(order)
            for case in order:
                results[case.name].append(self.measure(case, size,
                                                       connections))
        for case in cases:
            with named(case):
                check_replays(case, self.subject(case), size)
        return results

    def pairs(self, cases, rounds, connections):
        """The same, and each case with its control before or behind it: the
        machine is slower at some times than at others."""
        results = self.rounds(cases, 0, connections=connections)
        for turn in range(rounds):
            if turn:
                self.renew(cases, connections)
            self.turn_of_pairs(cases, turn, connections, results)
            for case in cases:
                with named(case):
                    check_replays(case, self.subject(case), 0)
        return results

    def turn_of_pairs(self, cases, turn, connections, results):
        controls = {case.name: case for case in cases}
        order = list(cases)
        random.Random(turn).shuffle(order)
        for i, case in enumerate(order):
            both = [case]
            if case.control in controls and case.control != case.name:
                both.insert((turn + i) % 2, controls[case.control])
            taken = {one.name: self.measure(one, 0, connections)
                     for one in both}
            for name, sample in taken.items():
                results[name].append(sample)
            results[case.name].pairs.append(
                (taken[case.name], taken.get(case.control,
                                             taken[case.name])))

    def renew(self, cases, connections):
        """New processes: some have their memory where it is slower."""
        for case in cases:
            if case.stays:
                continue
            subject = self.subjects.pop(case.name)
            self.told += complaints(case.name, subject)
            subject.stop()
            if subject.db is not None:
                self.redis.give_back(subject.db)
            self.filled -= {(case.name, 0)}
            with named(case):
                self.ready(case, 0, connections)

    def complaints(self):
        return self.told + [line for item in self.subjects.items()
                            for line in complaints(*item)]


Sample = collections.namedtuple(
    'Sample', 'rate cpu redis p50 p99 sent inside memory requests')


class Samples(list):
    """What the rounds of one case have shown."""

    def __init__(self):
        super().__init__()
        self.pairs = []             # with what the control has shown

    def median(self, name):
        values = [getattr(s, name) for s in self]
        values = [v for v in values if v is not None]
        return statistics.median(values) if values else None

    def quartiles(self, name):
        values = [getattr(s, name) for s in self]
        if len(values) < 2:
            return values * 3
        return statistics.quantiles(values, n=4, method='inclusive')

    def range(self, name):
        values = [getattr(s, name) for s in self]
        return min(values), max(values)

    def ratio(self, name):
        """The median of the pairs: what slows one of them slows both."""
        return statistics.median(getattr(a, name) / getattr(b, name)
                                 for a, b in self.pairs)


def complaints(name, subject):
    return ['%s: %s' % (name, line) for line in subject.complaints()]


# answers and executions, looked at one by one

@contextlib.contextmanager
def named(case):
    try:
        yield
    except OSError as e:
        sys.exit('%s: %s' % (case.name, e))


def check(case, subject):
    """The first request is executed once, its duplicate is its equal."""
    with load.Client(subject.port) as client:
        before = servers.settled(subject.executed)
        keys = ['check-%s-%d' % (case.slug, i) for i in range(SAMPLE)]
        first = [client.post(key) for key in keys]
        middle = servers.settled(subject.executed)
        time.sleep(0.05)
        second = [client.post(key) for key in keys]
        after = servers.settled(subject.executed)

    protected = case.kind != 'plain'
    want = SAMPLE * case.executes, 0 if protected else SAMPLE * case.executes
    if (middle - before, after - middle) != want:
        sys.exit('%s: executed %d and %d of %d requests and duplicates'
                 % (case.name, middle - before, after - middle, SAMPLE))
    for status, marked, body in first + second:
        if status != 201 or body != load.ANSWER:
            sys.exit('%s: not the answer that all have to give: %d %s'
                     % (case.name, status, body[:200]))
    if any(marked for _, marked, _ in first):
        sys.exit('%s: a first request says to be a replay' % case.name)


def fill(case, subject, size, filled):
    """The set of answers to replay; each key is executed exactly once."""
    if (case.name, size) in filled:
        return
    filled.add((case.name, size))
    keys = load.keys_for(size)
    before = servers.settled(subject.executed)
    with load.Client(subject.port) as client:
        answers = {client.post('replay-%d-%012d' % (size, i), size)
                   for i in range(keys)}
    if answers != {(201, False, load.answer_body(size))}:
        sys.exit('%s: a first answer is not what all have to give'
                 % case.name)
    served = servers.settled(subject.executed) - before
    if served != keys:
        sys.exit('%s: %d keys, but the application has seen %d requests'
                 % (case.name, keys, served))


def check_replays(case, subject, size):
    if case.kind != 'replay':
        return
    before = servers.settled(subject.executed)
    with load.Client(subject.port) as client:
        answers = {client.post('replay-%d-%012d' % (size, i), size)
                   for i in range(SAMPLE)}
    if answers != {(201, case.marks, load.answer_body(size))}:
        sys.exit('%s: a replay is not what the first answer was' % case.name)
    if servers.settled(subject.executed) != before:
        sys.exit('%s: a replay was executed' % case.name)
