"""Redis paused for two seconds under load."""

import asyncio
import os
import time

import load
import rows
from table import table

RATE = 400                          # requests a second
BEFORE, LENGTH, AFTER = 3, 2, 3
TIMEOUT = 0.5

CASE = rows.module('paused', 'redis://127.0.0.1:%%(port)d/%%(db)d '
                   'timeout=%dms' % (TIMEOUT * 1000))[0]


def report(bench):
    """Returns a table, and what misses its bound."""
    print('Redis paused', flush=True)
    # its log has errors, as it should: nobody is to be told of them
    subject = CASE.start(bench, CASE)
    pause = Pause(bench.redis, subject)
    asyncio.run(pause.run())
    subject.stop()
    return pause.judge()


class Pause:
    def __init__(self, redis, subject):
        self.redis = redis
        self.subject = subject
        self.samples = []           # (begin, end, status)
        self.clock = []             # (time, ns)

    async def one(self, i):
        begin = time.monotonic()
        status = 0
        try:
            reader, writer = await asyncio.open_connection(
                '127.0.0.1', self.subject.port)
            writer.write(('POST %s HTTP/1.1\r\n%sConnection: close\r\n'
                          'Idempotency-Key: pause-%d-%d\r\n'
                          'Content-Length: %d\r\n\r\n%s'
                          % (load.PATH, load.HEADERS, os.getpid(), i,
                             len(load.REQUEST), load.REQUEST)).encode())
            data = await asyncio.wait_for(reader.read(-1), 20)
            status = int(data.split()[1])
            writer.close()
        except (OSError, asyncio.TimeoutError, IndexError):
            pass
        self.samples.append((begin, time.monotonic(), status))

    async def tick(self):
        while True:
            self.clock.append((time.monotonic(), self.subject.cpu()))
            await asyncio.sleep(0.1)

    async def run(self):
        tick = asyncio.ensure_future(self.tick())
        start = time.monotonic()
        self.paused = start + BEFORE
        self.resumed = None
        state, tasks, i = 0, [], 0
        while True:
            now = time.monotonic()
            if state == 0 and now >= self.paused:
                self.redis.pause()
                self.paused, state = time.monotonic(), 1
            if state == 1 and now >= self.paused + LENGTH:
                self.redis.resume()
                self.resumed, state = time.monotonic(), 2
            if state == 2 and now >= self.resumed + AFTER:
                break
            while i < (now - start) * RATE:
                tasks.append(asyncio.ensure_future(self.one(i)))
                i += 1
            await asyncio.sleep(0.002)
        await asyncio.gather(*tasks)
        tick.cancel()

    def used(self, begin, end):
        """of the worker, in percent of a core"""
        inside = [c for c in self.clock if begin <= c[0] <= end]
        return 100 * (inside[-1][1] - inside[0][1]) / 1e9 \
            / (inside[-1][0] - inside[0][0])

    def judge(self):
        longest = max(end - begin for begin, end, _ in self.samples)
        bad = [s for s in self.samples if s[2] != 201]
        odd = [s for s in bad if s[2] != 503]
        late = [b for b, _, s in self.samples if s != 201
                and b > self.resumed]
        first = min((e for b, e, s in self.samples
                     if s == 201 and e > self.resumed), default=0)
        recovered = max(late) - self.resumed if late else 0
        refused = [e - b for b, e, s in self.samples if s == 503
                   and b > self.paused + 1.5]

        before = self.used(self.paused - 2, self.paused)
        during = self.used(self.paused, self.resumed)
        after = self.used(self.resumed + 1, self.resumed + AFTER)

        missed = []
        if odd:
            missed.append('%d answers other than 201 and 503' % len(odd))
        if longest > TIMEOUT + 0.3:
            missed.append('a request waited %.2f s' % longest)
        if during > 1.5 * max(before, after) + 5:
            missed.append('the worker used %.1f %%' % during)
        if recovered > 1 or first - self.resumed > 1:
            missed.append('it took more than 1 s to recover')

        return table(['Redis paused for %.1f s' % (self.resumed
                                                   - self.paused), ''], [
            ['requests; answered 503; answered otherwise but 201',
             '%d; %d; %d' % (len(self.samples), len(bad) - len(odd),
                             len(odd))],
            ['longest wait of any request, with timeout=%dms'
             % (TIMEOUT * 1000), '%.2f s' % longest],
            ['longest wait for a 503, 1.5 s into the pause',
             '%.1f ms' % (1000 * max(refused, default=0))],
            ['worker before, during and after, of a core',
             '%.1f %%, %.1f %%, %.1f %%' % (before, during, after)],
            ['first 201 after the resume',
             '%.0f ms' % (1000 * (first - self.resumed))],
            ['last request refused that was sent after the resume',
             '%.0f ms' % (1000 * recovered) if late else 'none'],
        ]), ['pause: ' + m for m in missed]
