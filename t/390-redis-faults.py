"""The promise, while Redis is killed, paused and restarted under load, and
its connections cut.

No key is executed twice, all answers of a key are the same, and every key
comes to its answer within seconds after Redis is back: what could not be
stored at once lands in the background, what was refused can be retried.  The
server keeps what it acknowledged (appendfsync always), no worker dies.

    FAULTS=100    of each kind; 8 unless told
    SEED=n        of the load and the faults; it is printed
    MUTANT=name   breaks the module first: this must be noticed
"""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/drive')
import gateway                                            # noqa: E402
from gateway import Answer, Gateway, Ledger, finish, ok   # noqa: E402
from redis_process import Redis                                  # noqa: E402

FAULTS = int(os.environ.get('FAULTS', 8))
SEED = int(os.environ.get('SEED', time.time_ns() % 1000000))
CLIENTS = 24
TIMEOUT = 0.5
LEASE = 4
SETTLE = float(os.environ.get('SETTLE', 12))    # seconds for the last answer

# faults needed to notice it; the scripts are text within the module: as it
# is, and broken, of the same length
MUTANTS = {
    'a claim is always granted':
        (0, b'elseif found and state ~= 0 and state ~= 1\n',
         b'elseif found and state ~= 0 and state == 9\n'),
    'nothing is taken back':
        (3, b'elseif r_owner == owner and r_state == 2 then',
         b'elseif r_owner == owner and r_state == 9 then'),
    'a completion is not kept':
        (0, b'r_state, r_kept, r_status = 4, kept, status\n'
         b'r_lease, r_until, r_tombstone = now, now + ttl * 1000, tombstone\n'
         b'rest = ARGV[2]\n',
         b'r_state, r_kept, r_status = 2, kept, status\n'
         b'r_lease, r_until, r_tombstone = now, now + ttl * 1000, tombstone\n'
         b'rest = ARGV[2]\n'),
}

LOCATIONS = '''
    location /pay/ {
        idempotency red;
        idempotency_lease %ds;
        proxy_pass http://plain;
    }
''' % LEASE

HTTP = '''
    idempotency_store red redis://127.0.0.1:%d timeout=%dms connections=%d;
    upstream plain { server 127.0.0.1:%d; }
'''


class Key:
    def __init__(self, name, rng):
        self.name = name
        self.path = rng.choice(['/pay/ok', '/pay/ok', '/pay/slow/20',
                                '/pay/slow/150', '/pay/status/402',
                                '/pay/big/30000'])
        self.bodies = [('%s body %d ' % (name, i)).encode()
                       * rng.choice([1, 1, 20, 500]) for i in range(2)]
        self.attempts = []        # (body, begin, end, answer)
        self.settled = None


class Campaign:
    def __init__(self, root):
        self.rng = random.Random(SEED)
        self.up = Ledger()
        self.redis = Redis(root + '/redis', 'appendonly yes',
                           'appendfsync always', 'maxmemory-policy noeviction')
        self.gw = Gateway(
            self.up, workers=2, locations=LOCATIONS,
            http=HTTP % (self.redis.port, int(TIMEOUT * 1000),
                         self.rng.choice([1, 1, 2]), self.up.port))
        self.keys = []
        self.running = True
        self.faults = []
        self.worst = 0

    # the load

    async def request(self, key, body):
        begin = time.monotonic()
        data = b''
        try:
            reader, writer = await asyncio.open_connection(
                '127.0.0.1', self.gw.port)
            writer.write(('POST %s HTTP/1.1\r\nHost: gateway\r\n'
                          'Connection: close\r\nIdempotency-Key: %s\r\n'
                          'Content-Length: %d\r\n\r\n'
                          % (key.path, key.name, len(body))).encode() + body)
            data = await asyncio.wait_for(reader.read(-1), 30)
            writer.close()
        except (OSError, asyncio.TimeoutError):
            pass
        answer = Answer(data)
        end = time.monotonic()
        self.worst = max(self.worst, end - begin)
        key.attempts.append((body, begin, end, answer))
        return answer

    async def client(self, rng):
        while self.running:
            key = Key('key-%06d' % len(self.keys), rng)
            self.keys.append(key)
            left = rng.randint(1, 6)
            while left > 0:
                n = min(left, rng.choice([1, 1, 1, 2, 4]))
                left -= n
                answers = await asyncio.gather(*[
                    self.request(key, key.bodies[rng.random() < 0.07])
                    for _ in range(n)])
                # an old key is retried as soon as its client likes
                if any(a.status == 503 for a in answers):
                    await asyncio.sleep(rng.choice([0.02, 0.1, 0.5]))
                else:
                    await asyncio.sleep(rng.choice([0, 0, 0.05]))

    # the faults

    async def break_redis(self, kind):
        if kind == 'kill':
            self.redis.kill()
            await asyncio.sleep(self.rng.choice([0, self.rng.random()]))
            self.redis.start()
        elif kind == 'pause':
            self.redis.pause()
            await asyncio.sleep(self.rng.uniform(0.1, 2))
            self.redis.resume()
        elif kind == 'cut':
            # what was executed and not told is asked again
            for _ in range(self.rng.choice([1, 1, 5])):
                self.redis.ask('CLIENT', 'KILL', 'TYPE', 'normal',
                               'SKIPME', 'yes')
                await asyncio.sleep(self.rng.uniform(0.02, 0.1))
        else:
            await asyncio.get_running_loop().run_in_executor(
                None, self.redis.quit)
            self.redis.start()
        self.faults.append(kind)

    async def run(self):
        clients = [asyncio.ensure_future(self.client(
            random.Random('%d %d' % (SEED, i)))) for i in range(CLIENTS)]
        await asyncio.sleep(1)
        self.before = self.usage()

        kinds = ['kill', 'pause', 'restart', 'cut'] * FAULTS
        self.rng.shuffle(kinds)
        for i, kind in enumerate(kinds):
            await self.break_redis(kind)
            # often the next fault comes before things are well again
            await asyncio.sleep(self.rng.choice([0.05, 0.3, 0.8, 1.3]))
            if i == len(kinds) // 2:
                self.middle = self.usage()

        await asyncio.sleep(1)
        self.running = False
        await asyncio.gather(*clients)
        await self.settle()
        self.after = self.usage()

    async def settle(self):
        """Everybody asks until there is an answer."""
        self.late = 0

        async def one(key):
            begin = time.monotonic()
            while time.monotonic() < begin + SETTLE:
                # a body that lost is told so: the other one has won
                answer = await self.request(key, key.bodies[0])
                if answer.status == 422:
                    answer = await self.request(key, key.bodies[1])
                if final(answer):
                    key.settled = answer
                    self.late = max(self.late, time.monotonic() - begin)
                    return
                await asyncio.sleep(0.3)
            if os.environ.get('MUTANT'):
                left.clear()          # noticed

        left = list(self.keys)

        async def some():
            while left:
                await one(left.pop())

        await asyncio.gather(*[some() for _ in range(CLIENTS)])

    def usage(self):
        """descriptors and memory of the workers"""
        fds, rss = [], []
        for pid in sorted(self.gw.workers()):
            fds.append(len(os.listdir('/proc/%d/fd' % pid)))
            with open('/proc/%d/status' % pid) as f:
                rss.append(int(re.search(r'VmRSS:\s+(\d+)', f.read())
                               .group(1)))
        return fds, rss


def final(answer):
    """Is it what the upstream has said?"""
    return answer.whole and (answer.status in (200, 201)
                             or answer.status == 402)


def count(campaign, test):
    return sum(1 for key in campaign.keys for a in key.attempts
               if test(a[3]))


def some(names, n=10):
    names = list(names)
    return '\n'.join(str(x) for x in names[:n]) \
        + ('\nand %d more' % (len(names) - n) if len(names) > n else '')


def story(key, effects):
    """all that happened to a key"""
    lines = ['%s %s: executed %d times' % (key.name, key.path,
                                           len(effects))]
    for body, begin, end, a in sorted(key.attempts, key=lambda x: x[1]):
        lines.append('  %.3f-%.3f body %d: %d %s %s%s' % (
            begin, end, key.bodies.index(body), a.status, a.code or '',
            a.body[:16] if final(a) else '',
            ' replayed' if a.replayed else ''))
    return '\n'.join(lines)


def check(c):
    effects = {}
    for effect, name, _, _, _, body in c.up.entries:
        effects.setdefault(name, []).append((effect, body))

    def stories(keys):
        return some((story(k, effects.get(k.name, [])) for k in keys), 3)

    twice = [k for k in c.keys if len(effects.get(k.name, [])) > 1]
    ok(not twice, 'no key was executed twice', stories(twice))

    unequal, strange, denied = [], [], []
    for key in c.keys:
        answers = [(body, a) for body, _, _, a in key.attempts if final(a)]
        if len({(a.status, a.body) for _, a in answers}) > 1:
            unequal.append(key)
        known = effects.get(key.name, [])
        for body, a in answers:
            effect = int(a.get('x-effect') or 0)
            if (effect, body) not in known:
                strange.append(key)
                break
        if any(not final(a) and a.status not in (409, 422, 503)
               for _, _, _, a in key.attempts):
            denied.append(key)
    ok(not unequal, 'all answers of a key are the same', stories(unequal))
    ok(not strange, 'an answer belongs to what was executed with its body',
       stories(strange))
    ok(not denied, 'nobody saw anything but an answer, 409, 422 or 503',
       stories(denied))

    # no worker has died: even what was unknown for a while is known now
    open_ = [k for k in c.keys if k.settled is None]
    ok(not open_, 'every key has come to its answer', stories(open_))
    print('# the last one after %.1f s' % c.late)
    lost = [k for k in c.keys
            if k.settled and len(effects.get(k.name, [])) != 1]
    ok(not lost, 'and was executed', stories(lost))

    # a claim, an answer that is on its way, a completion
    ok(c.worst < TIMEOUT + 0.2 + TIMEOUT + 2,
       'nobody waited for long: %.2f s at most' % c.worst)


def kept():
    """connections to an upstream that nginx keeps unless told otherwise"""
    version = subprocess.run([gateway.NGINX, '-v'], capture_output=True,
                             text=True).stderr
    numbers = re.search(r'/(\d+)\.(\d+)\.(\d+)', version).groups()
    return 32 if tuple(map(int, numbers)) >= (1, 29, 7) else 0


def check_workers(c, workers):
    ok(sorted(c.gw.workers()) == workers, 'the workers are the same',
       '%r, then %r' % (workers, c.gw.workers()))
    print('# descriptors %r, memory %r kB; halfway %r' % (c.before + (
        c.middle,)))
    print('# at the end %r, %r kB' % c.after)
    # quiet: the listening sockets, the channels, the connections to Redis
    ok(max(c.after[0]) <= min(c.quiet[0]) + 1 + kept(),
       'no descriptor is left behind', '%r, then %r' % (c.quiet, c.after))
    grown = max(b - a for a, b in zip(sorted(c.middle[1]),
                                      sorted(c.after[1])))
    # a sanitizer keeps what was freed
    ok(grown < 4096 or 'ASAN_OPTIONS' in os.environ,
       'memory does not grow in the second half: %d kB' % grown)


def check_seen(c):
    log = c.gw.log()
    lost = sum(int(n) for n in re.findall(
        r'commands (?:lost|waiting): (\d+)', log))
    seen = {
        'replayed': count(c, lambda a: a.replayed),
        '409 in_progress': count(c, lambda a: a.code == 'in_progress'),
        '409 outcome_unknown': count(c, lambda a: a.code
                                     == 'outcome_unknown'),
        '422': count(c, lambda a: a.status == 422),
        '503': count(c, lambda a: a.status == 503),
        'lost replies': lost,
        'told in the background': log.count('retrying in background'),
        'up again': log.count('is up again'),
    }
    print('# %d keys, %d requests, %d executions, faults: %s' % (
        len(c.keys), count(c, lambda a: True), len(c.up.entries),
        ', '.join('%d %s' % (c.faults.count(k), k)
                  for k in ('kill', 'pause', 'restart', 'cut'))))
    for name, n in seen.items():
        print('# %-24s %d' % (name, n))
    missing = [name for name, n in seen.items()
               if n == 0 and name != '409 outcome_unknown']
    ok(not missing, 'the run met what it was made for', some(missing))


def mutate(name, root):
    """A copy of the module with another script in it."""
    _, old, new = MUTANTS[name]
    assert len(old) == len(new)
    with open(gateway.MODULE, 'rb') as f:
        data = f.read()
    if old not in data:
        print('Bail out! the module has no "%s"' % old.decode())
        sys.exit(1)
    path = root + '/broken.so'
    with open(path, 'wb') as f:
        f.write(data.replace(old, new))
    gateway.MODULE = path


def start_mutant(name, attempt):
    return subprocess.Popen(
        [sys.executable, '-B', __file__], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=dict(os.environ, MUTANT=name, FAULTS=str(MUTANTS[name][0]),
                 SEED=str(SEED + attempt), SETTLE='5'))


def check_mutants():
    """A campaign that cannot fail proves nothing; it may need some luck."""
    runs = {name: start_mutant(name, 0) for name in MUTANTS}
    for name, run in runs.items():
        for attempt in range(1, 6):
            out = run.communicate()[0]
            noticed = re.findall(r'^not ok \d+ - (.*)', out, re.M)
            if noticed or attempt == 5:
                break
            run = start_mutant(name, attempt)
        ok(noticed, 'noticed: ' + name, out[-2000:])
        for line in noticed:
            print('#   ' + line)


def main():
    # what was started is ended, also when the time is over
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print('# seed %d' % SEED, flush=True)
    root = gateway.TOP + '/build/faults-%d' % os.getpid()
    mutant = os.environ.get('MUTANT')
    os.makedirs(root, exist_ok=True)
    if mutant:
        mutate(mutant, root)

    c = Campaign(root)
    workers = sorted(c.gw.workers())
    time.sleep(0.5)
    c.quiet = c.usage()
    asyncio.run(c.run())
    time.sleep(0.3)
    c.after = c.usage()

    check(c)
    if not mutant:
        check_workers(c, workers)
        check_seen(c)
        check_mutants()
    c.gw.stop()
    c.redis.end()
    subprocess.run(['rm', '-rf', root])
    finish()


main()
