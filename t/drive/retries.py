"""Clients that retry until they have an answer, and come back for it later.

    load = Load(gateway, ledger, path='/pay/slow/30', clients=16)
    load.start(); ...; load.stop()     the clients run in a thread
    load.settle()                      every key is asked once more
    load.twice(), load.unequal(), load.open(), load.unknown()
"""

import asyncio
import random
import threading
import time

from gateway import Answer


class Key:
    def __init__(self, name):
        self.name = name
        self.answers = []         # of the upstream: (status, body)
        self.tries = 0
        self.refused = 0          # 503
        self.told = {}            # code of other answers: how often
        self.final = None         # at the last settle()

    def seen(self, answer):
        if answer.whole and answer.status in (200, 201):
            self.answers.append((answer.status, answer.body))
            return True
        if answer.status == 503:
            self.refused += 1
        code = answer.code or str(answer.status)
        self.told[code] = self.told.get(code, 0) + 1
        return False


class Load:
    def __init__(self, gw, up, path='/pay/slow/20', clients=12, seed=0,
                 pause=0.02):
        self.gw = gw
        self.up = up
        self.path = path
        self.clients = clients
        self.pause = pause
        self.seed = seed
        self.keys = []
        self.running = False
        self.thread = None
        self.name = 'k%x-' % (time.time_ns() & 0xffffff)

    # in its thread

    async def request(self, key):
        data = b''
        try:
            reader, writer = await asyncio.open_connection(
                '127.0.0.1', self.gw.port)
            writer.write(('POST %s HTTP/1.1\r\nHost: gateway\r\n'
                          'Connection: close\r\nIdempotency-Key: %s\r\n'
                          'Content-Length: 4\r\n\r\nbody'
                          % (self.path, key.name)).encode())
            data = await asyncio.wait_for(reader.read(-1), 30)
            writer.close()
        except (OSError, asyncio.TimeoutError):
            pass
        key.tries += 1
        return key.seen(Answer(data))

    async def client(self, rng):
        while self.running:
            key = Key(self.name + '%05d' % len(self.keys))
            self.keys.append(key)
            n = rng.choice([1, 1, 2])
            while self.running:
                if any(await asyncio.gather(*[self.request(key)
                                              for _ in range(n)])):
                    break
                await asyncio.sleep(rng.uniform(0.02, 0.1))
            await asyncio.sleep(self.pause)
            # somebody who does not trust the first answer
            old = rng.choice(self.keys[-200:])
            await self.request(old)

    async def run(self):
        await asyncio.gather(*[self.client(random.Random(
            '%s %s' % (self.seed, i))) for i in range(self.clients)])

    async def ask_all(self, deadline):
        left = list(self.keys)

        async def some():
            while left:
                key = left.pop()
                while time.monotonic() < deadline:
                    before = key.told.get('outcome_unknown', 0)
                    if await self.request(key):
                        key.final = key.answers[-1]
                        break
                    if key.told.get('outcome_unknown', 0) > before:
                        # nobody is there any more to tell
                        key.final = 'unknown'
                        break
                    await asyncio.sleep(0.2)
        await asyncio.gather(*[some() for _ in range(self.clients)])

    # for the test

    def start(self):
        self.running = True
        self.thread = threading.Thread(
            target=lambda: asyncio.run(self.run()), daemon=True)
        self.thread.start()

    def stop(self):
        self.running = False
        self.thread.join(60)

    def settle(self, timeout=30):
        asyncio.run(self.ask_all(time.monotonic() + timeout))

    def executions(self):
        with self.up.lock:
            entries = list(self.up.entries)
        count = {}
        for e in entries:
            count[e[1]] = count.get(e[1], 0) + 1
        return count

    def twice(self):
        count = self.executions()
        return [k for k in self.keys if count.get(k.name, 0) > 1]

    def unequal(self):
        return [k for k in self.keys if len(set(k.answers)) > 1]

    def open(self):
        return [k for k in self.keys if k.final is None]

    def unknown(self):
        return [k for k in self.keys if k.final == 'unknown']

    def refused(self):
        return sum(k.refused for k in self.keys)

    def told(self, code):
        return sum(k.told.get(code, 0) for k in self.keys)

    def summary(self):
        count = self.executions()
        return '%d keys, %d requests, %d answers 503, %d executions, ' \
            '%d keys executed twice, %d unknown' % (
                len(self.keys), sum(k.tries for k in self.keys),
                self.refused(), sum(count.get(k.name, 0) for k in self.keys),
                len(self.twice()), len(self.unknown()))

    @staticmethod
    def show(keys, n=5):
        return '\n'.join('%s: %d tries, %r, answers %r' % (
            k.name, k.tries, k.told, k.answers[:4]) for k in keys[:n])
